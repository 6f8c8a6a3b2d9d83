//! Relays in the lab, as a user would start them.

use crate::error::BenchError;
use crate::place::{Lab, own_program};
use crate::process::{self, Running};
use crate::session::Session;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// How relays know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trunk {
    /// By a secret, unencrypted.
    Plain,
    /// By certificates.
    Tls,
}

/// What a relay does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Looks for more first while that is worth it, as it comes.
    Looks,
    /// Sleeps at once.
    Sleeps,
}

/// One relay.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Its machine, in the lab.
    pub(super) node: String,
    pub(super) port: u16,
    pub(super) trunk: Trunk,
    /// The machine of the other relay, which has the same port; there may be none.
    pub(super) other: Option<String>,
    /// The other's address, if this one dials.
    pub(super) dials: Option<String>,
    pub(super) idle: Idle,
}

impl Server {
    /// A relay alone.
    pub(super) fn lone(node: &str, port: u16) -> Self {
        let (node, trunk) = (node.to_owned(), Trunk::Plain);
        Self { node, port, trunk, other: None, dials: None, idle: Idle::Looks }
    }

    /// Two, the first of which dials the second at `address`.
    pub(super) fn pair(nodes: [&str; 2], address: &str, port: u16, trunk: Trunk) -> [Self; 2] {
        let one = |node: &str, other: &str, dials| Self {
            node: node.to_owned(),
            port,
            trunk,
            other: Some(other.to_owned()),
            dials,
            idle: Idle::Looks,
        };
        let [near, far] = nodes;
        [one(near, far, Some(format!("{address}:{port}"))), one(far, near, None)]
    }
}

/// Files of a run's relays.
#[derive(Debug)]
pub(super) struct Keys {
    directory: PathBuf,
}

impl Keys {
    /// A token and a secret, the same for all.
    pub(super) fn make(session: &Session) -> Result<Self, BenchError> {
        let keys = Self { directory: session.files().place("relays") };
        if !keys.token().exists() {
            make_directory(&keys.directory)?;
            for file in [keys.token(), keys.directory.join("secret")] {
                gridmpi(&["relay", "token", &file.to_string_lossy()], session.until()?)?;
            }
        }
        Ok(keys)
    }

    pub(super) fn token(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// The directory of a relay's certificate, and its fingerprint.
    pub(super) fn identity(
        &self,
        name: &str,
        until: Instant,
    ) -> Result<(PathBuf, String), BenchError> {
        let directory = self.directory.join(name);
        let words = directory.to_string_lossy();
        if !directory.exists() {
            gridmpi(&["relay", "init", "--directory", &words], until)?;
        }
        let said = gridmpi(&["relay", "fingerprint", "--directory", &words], until)?;
        Ok((directory, said.trim().to_owned()))
    }

    /// Writes a file beside them.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let file = self.directory.join(name);
        std::fs::write(&file, text).map_err(|error| {
            let what = format!("cannot write {}", file.display());
            BenchError::File { what, error }
        })?;
        Ok(file)
    }

    fn peer(&self, server: &Server, until: Instant) -> Result<String, BenchError> {
        let Some(other) = &server.other else { return Ok(String::new()) };
        let proof = match server.trunk {
            Trunk::Plain => "tls = false\nsecret_file = \"secret\"\n".to_owned(),
            Trunk::Tls => {
                let (_, fingerprint) = self.identity(other, until)?;
                format!("fingerprint = \"{fingerprint}\"\n")
            }
        };
        let dials = server.dials.as_ref();
        let address = dials.map_or_else(String::new, |to| format!("address = \"{to}\"\n"));
        Ok(format!("[[peer]]\nname = \"{other}\"\n{proof}{address}"))
    }

    fn settings(&self, server: &Server, until: Instant) -> Result<String, BenchError> {
        let Server { node, port, trunk, idle, .. } = server;
        let identity = match trunk {
            Trunk::Plain => "",
            Trunk::Tls => {
                self.identity(node, until)?;
                &format!("identity = \"{node}\"\n")
            }
        };
        let idle = match idle {
            Idle::Looks => "",
            Idle::Sleeps => "busy_poll = \"0 s\"\n",
        };
        let peer = self.peer(server, until)?;
        Ok(format!(
            "[relay]\nlisten = [\"0.0.0.0:{port}\"]\n{identity}{idle}\
             [[token]]\nname = \"bench\"\nfile = \"token\"\n{peer}"
        ))
    }

    /// Starts a relay, behind `front` (`taskset` and its words); it listens when this returns.
    pub(super) fn start(
        &self,
        lab: &Lab,
        server: &Server,
        front: &[&str],
        until: Instant,
    ) -> Result<Started, BenchError> {
        let settings = self.settings(server, until)?;
        let file = self.write(&format!("{}-{}.toml", server.node, server.port), &settings)?;
        let program = own_program()?;
        let (program, file) = (program.to_string_lossy(), file.to_string_lossy());
        let mut command = front.to_vec();
        command.extend([&*program, "relay", "--config", &*file]);
        let mut started = start(lab, &server.node, &command, until)?;
        started.running.expect("listening", until)?;
        Ok(started)
    }
}

/// Something under way on a machine of the lab.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) running: Running,
    /// Its process, as the lab counts.
    pub(super) pid: u32,
}

/// In front of a command: says its process and lets its standard error be heard, too.
pub(super) const SPEAKING: [&str; 4] = ["sh", "-c", "echo pid $$; exec \"$@\" 2>&1", "start"];

/// Starts it; what it says goes to standard output, so that it can be waited for.
pub(super) fn start(
    lab: &Lab,
    node: &str,
    command: &[&str],
    until: Instant,
) -> Result<Started, BenchError> {
    let mut words = SPEAKING.to_vec();
    words.extend(command);
    let mut running = lab.start(node, &words)?;
    let line = running.expect("pid ", until)?;
    let pid = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok());
    let pid = pid.ok_or_else(|| BenchError::Output(format!("`{line}` is no process")))?;
    Ok(Started { running, pid })
}

/// Waits until those who dial have got through.
pub(super) fn wait_for_trunks(
    relays: &mut [(Server, Started)],
    until: Instant,
) -> Result<(), BenchError> {
    let mut dialling = relays.iter_mut().filter(|(server, _)| server.dials.is_some());
    dialling
        .try_for_each(|(_, relay)| relay.running.expect("connected to a relay", until).map(drop))
}

fn gridmpi(words: &[&str], until: Instant) -> Result<String, BenchError> {
    let mut command = Command::new(own_program()?);
    Ok(process::run("gridmpi relay", command.args(words), until)?.out)
}

fn make_directory(path: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(path).map_err(|error| {
        let what = format!("cannot make {}", path.display());
        BenchError::File { what, error }
    })
}
