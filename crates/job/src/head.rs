//! A cluster whose launcher runs on a head node: `gridmpi join` there, started by ssh.
//!
//! The token and the cluster's description go through the connection's standard input, since
//! arguments can be read by everybody on either machine.

use crate::spec::ClusterSpec;
use gridmpi_bootstrap::Secret;
use gridmpi_bootstrap::env::TOKEN;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

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

/// What `gridmpi` does there for a job.
pub(crate) const JOIN: &str = "join --described";

/// The command that reaches the head node, and has `gridmpi` do what `verb` says there.
pub(crate) fn command(
    head: &str,
    spec: &ClusterSpec,
    at: &[SocketAddr],
    gridmpi: &Path,
    verb: &str,
) -> Vec<String> {
    let here = std::env::current_dir().unwrap_or_default().display().to_string();
    let ours = gridmpi.display().to_string();
    let gridmpi = spec.head_gridmpi.as_deref().unwrap_or(&ours);
    let addresses: Vec<_> = at.iter().map(SocketAddr::to_string).collect();
    // Sites often have one file system layout, but need not.
    let script = format!(
        "IFS= read -r {TOKEN} && IFS= read -r {DESCRIPTION} && export {TOKEN} {DESCRIPTION}; \
         cd {} 2>/dev/null; g={}; [ -x \"$g\" ] || g=$(basename \"$g\"); \
         exec \"$g\" {verb} --cluster {} {}",
        quote(&here),
        quote(gridmpi),
        quote(spec.name.as_str()),
        quote(&addresses.join(",")),
    );
    let words = ["ssh", "-T", "-o", "BatchMode=yes", "--", head];
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
        let words = command("user@head", &spec, &at, Path::new("/opt/it's/gridmpi"), JOIN);
        assert_eq!(words[..6], ["ssh", "-T", "-o", "BatchMode=yes", "--", "user@head"]);
        assert!(words[6].contains("join --described"), "{}", words[6]);
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
    fn quotes_are_quoted() {
        assert_eq!(quote("a'b c"), "'a'\\''b c'");
    }
}
