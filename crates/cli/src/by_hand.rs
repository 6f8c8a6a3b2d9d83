//! What `gridmpi probe` and `gridmpi doctor` have in common where users start both ends themselves.

use crate::output::complain;
use gridmpi_bootstrap::Secret;
use gridmpi_bootstrap::line::Pass;
use gridmpi_job::parse_coordinators;
use gridmpi_probe::node::{Identity, receive};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Addresses that one side tells the other.
const MOST_TOLD: usize = 16;

/// What to say, and the exit code.
pub(crate) type Failure = (Vec<String>, i32);

/// A side that listens.
#[derive(clap::Args)]
pub(crate) struct Hand {
    /// Wait for the other side, and serve it once: at an address of this machine, a port, or both [default: every address, a free port]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = ":0", value_parser = gridmpi_job::parse_listen, conflicts_with = "targets")]
    pub(crate) listen: Option<SocketAddr>,

    /// With --listen: write the token into this file instead of showing it. Else: read it from there [default: the variable
    /// GRIDMPI_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// With --listen: how long to wait for the other side
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u32).range(1..=86400), requires = "listen")]
    wait: u32,
}

pub(crate) fn bad(problem: String) -> Failure {
    (vec![problem], gridmpi_job::BAD_JOB)
}

/// `HOST:PORT` ends in a number, which no job file does.
pub(crate) fn job_file(targets: &[String]) -> Option<&Path> {
    let [only] = targets else { return None };
    let port = only.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    (!matches!(port, Some(Ok(_)))).then(|| Path::new(only))
}

/// The other sides, by their names.
pub(crate) fn targets(names: &[String]) -> Result<Vec<(String, Vec<SocketAddr>)>, Failure> {
    let target = |text: &String| parse_coordinators(text).map(|found| (text.clone(), found));
    let found: Result<Vec<_>, String> = names.iter().map(target).collect();
    found.map_err(bad)
}

impl Hand {
    /// A token is what two ends that users start have in common; elsewhere a file for it would be passed over.
    pub(crate) fn token_is_for_both_ends(&self, targets: &[String]) -> Result<(), &'static str> {
        let is_by_hand =
            self.listen.is_some() || !targets.is_empty() && job_file(targets).is_none();
        match self.token_file.is_some() && !is_by_hand {
            true => {
                Err("--token-file goes with --listen or HOST:PORT: nothing else asks for a token")
            }
            false => Ok(()),
        }
    }

    /// The side that listens, for `verb` (`probe`, `doctor`) at the other one, which has `done` so.
    pub(crate) fn serve(&self, listen: SocketAddr, verb: &str, done: &str) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| bad(format!("cannot listen on {listen}: {error}"));
        let secret = self.secret()?;
        let listener = gridmpi_bootstrap::listen(listen).map_err(cannot)?;
        let at = listener.local_addr().map_err(cannot)?;
        complain(format!("waiting at {at} for `gridmpi {verb} HOST:{}`", at.port()));
        let interface = std::env::var(gridmpi_bootstrap::env::INTERFACE);
        let who = Identity {
            cluster: "there".to_owned(),
            host: gridmpi_probe::host(),
            of: None,
            addresses: gridmpi_job::own_addresses(at).into_iter().take(MOST_TOLD).collect(),
            interface: interface.ok().filter(|name| !name.is_empty()),
            relays: None,
        };
        let wait = Duration::from_secs(self.wait.into());
        let stranger = |peer, problem| complain(format!("turned away {peer}: it {problem}"));
        receive(vec![listener], &Pass::from(&secret), who, wait, stranger)
            .map_err(|error| (vec![error.to_string()], 1))?;
        complain(format!("{done} at the other side"));
        Ok(())
    }

    /// The token to be held by whoever comes: given by the environment, or a new one, which is handed to the user.
    fn secret(&self) -> Result<Secret, Failure> {
        if self.token_file.is_none() && std::env::var_os(gridmpi_bootstrap::env::TOKEN).is_some() {
            return gridmpi_job::read_token(None).map_err(bad);
        }
        let secret = Secret::random().map_err(|error| bad(error.to_string()))?;
        match &self.token_file {
            Some(path) => gridmpi_job::write_token(path, &secret).map_err(bad)?,
            None => complain(format!("token: {}", secret.reveal())),
        }
        Ok(secret)
    }
}
