//! A cluster whose launcher runs on a head node: `gridmpi join` there, started by ssh.
//!
//! The token and the cluster's description go through the connection's standard input, since
//! arguments can be read by everybody on either machine.

use crate::address;
use crate::spec::ClusterSpec;
use gridmpi_bootstrap::Secret;
use gridmpi_bootstrap::env::TOKEN;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The variable that carries a [`Description`] to `gridmpi join --described`.
pub(crate) const DESCRIPTION: &str = "GRIDMPI_DESCRIPTION";

/// What `gridmpi join` on the head node has to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) cluster: ClusterSpec,
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) label: bool,
    /// The token of the cluster's relays.
    pub(crate) relay_token: Option<String>,
}

/// How the head node is held to the job.
#[derive(Clone, Copy)]
pub(crate) struct Link<'a> {
    /// Where `gridmpi run` listens.
    pub(crate) at: &'a [SocketAddr],
    /// How long lost connections are tried to be made again; ssh gives up later than that.
    pub(crate) reconnect: Duration,
}

/// ssh asks for a sign of life after so many seconds of silence, so that NATs do not forget its connection.
const ALIVE_S: u64 = 15;

/// What `gridmpi` does there for a job.
pub(crate) const JOIN: &str = "join --described";

/// The command that reaches the head node, and has `gridmpi` do what `verb` says there.
pub(crate) fn command(
    head: &str,
    spec: &ClusterSpec,
    link: Link<'_>,
    gridmpi: &Path,
    verb: &str,
) -> Vec<String> {
    let here = std::env::current_dir().unwrap_or_default().display().to_string();
    let ours = gridmpi.display().to_string();
    let gridmpi = spec.head_gridmpi.as_deref().unwrap_or(&ours);
    // Sites often have one file system layout, but need not.
    let script = format!(
        "IFS= read -r {TOKEN} && IFS= read -r {DESCRIPTION} && export {TOKEN} {DESCRIPTION}; \
         cd {} 2>/dev/null; g={}; [ -x \"$g\" ] || g=$(basename \"$g\"); \
         exec \"$g\" {verb} --cluster {} {}",
        quote(&here),
        quote(gridmpi),
        quote(spec.name.as_str()),
        quote(&address::list(link.at)),
    );
    let interval = format!("ServerAliveInterval={ALIVE_S}");
    let most = format!("ServerAliveCountMax={}", link.reconnect.as_secs() / ALIVE_S + 1);
    let words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", &interval, "-o", &most, "--", head];
    let remote = format!("exec sh -c {}", quote(&script));
    words.map(str::to_owned).into_iter().chain([remote]).collect()
}

/// What goes first through the connection.
pub(crate) fn secrets(secret: &Secret, description: &Description) -> Result<Vec<u8>, String> {
    let json = serde_json::to_string(description).map_err(|error| error.to_string())?;
    Ok(format!("{}\n{json}\n", secret.reveal()).into_bytes())
}

/// Reads what [`secrets`] wrote, out of the environment.
pub(crate) fn description() -> Result<Description, String> {
    let text = std::env::var(DESCRIPTION)
        .map_err(|_| format!("--described is for `gridmpi run`: {DESCRIPTION} is not set"))?;
    serde_json::from_str(&text).map_err(|error| {
        format!(
            "cannot understand what `gridmpi run` asks for ({error}): install the same release of \
             GridMPI at every cluster"
        )
    })
}

/// One word for a POSIX shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Launcher;
    use gridmpi_bootstrap::ClusterName;

    #[test]
    fn arguments_hold_no_secret_and_survive_the_remote_shell() {
        let name = ClusterName::new("b").unwrap();
        let spec = ClusterSpec::new(name, Launcher::Command(vec!["mpiexec".into()]));
        let at = ["192.0.2.1:7".parse().unwrap(), "[2001:db8::1]:7".parse().unwrap()];
        let link = Link { at: &at, reconnect: Duration::from_secs(60) };
        let words = command("user@head", &spec, link, Path::new("/opt/it's/gridmpi"), JOIN);
        assert_eq!(words[..4], ["ssh", "-T", "-o", "BatchMode=yes"]);
        assert_eq!(words[words.len() - 3..][..2], ["--", "user@head"]);
        assert!(words[words.len() - 1].contains("join --described"), "{words:?}");
        let secret = Secret::random().unwrap();
        assert!(!words.join(" ").contains(&secret.reveal()));
        let described = Description {
            cluster: spec,
            command: vec!["./p\n".into()],
            env: BTreeMap::new(),
            label: true,
            relay_token: Some("5".repeat(64)),
        };
        let bytes = String::from_utf8(secrets(&secret, &described).unwrap()).unwrap();
        let lines: Vec<_> = bytes.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, secret.reveal().as_str()));
        assert_eq!(serde_json::from_str::<Description>(lines[1]).unwrap(), described);
    }

    #[test]
    fn ssh_outlasts_what_connections_may_take_to_come_back() {
        let name = ClusterName::new("b").unwrap();
        let spec = ClusterSpec::new(name, Launcher::Command(vec!["mpiexec".into()]));
        for reconnect in [0, 1, 15, 59, 60, 3600] {
            let link = Link { at: &[], reconnect: Duration::from_secs(reconnect) };
            let words = command("head", &spec, link, Path::new("gridmpi"), JOIN);
            let number = |option: &str| {
                let found = words.iter().find_map(|word| word.strip_prefix(option));
                found.unwrap().parse::<u64>().unwrap()
            };
            let patience = number("ServerAliveInterval=") * number("ServerAliveCountMax=");
            assert!(patience > reconnect && patience <= reconnect + 15, "{words:?}");
        }
    }

    #[test]
    fn quotes_are_quoted() {
        assert_eq!(quote("a'b c"), "'a'\\''b c'");
    }
}
