//! A cluster whose launcher runs on a head node: `gridmpi join` there, started by ssh.
//!
//! The token and the cluster's description go through the connection's standard input, since
//! arguments can be read by everybody on either machine.

use crate::address;
use crate::shell::{quote, word};
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

/// The exit code by which ssh tells of a failure of its own.
pub(crate) const FAILED: i32 = 255;

/// ssh asks for a sign of life after so many seconds of silence, so that NATs do not forget its connection.
const ALIVE_S: u64 = 15;

/// What `gridmpi` does there for a job.
pub(crate) const JOIN: &str = "join --described";

/// What the login shell there is asked to do. It need not be one of POSIX: each takes this as it stands. What is special comes
/// as the first line of the input; start-up files that have read that must not have the next one, the token, run.
const REMOTE: &str = "exec sh -c 'IFS= read -r line; case \"$line\" in \"cd \"*) eval \"$line\";; *) \
                      echo \"gridmpi: the start-up files of the login shell here read what is meant for gridmpi: they must read nothing\" >&2; \
                      exit 1;; esac'";

/// The command that reaches the head node; it does what [`order`] says there. ssh gives up later than lost connections are tried to be made
/// again.
pub(crate) fn command(head: &str, reconnect: Duration) -> Vec<String> {
    let interval = format!("ServerAliveInterval={ALIVE_S}");
    let most = format!("ServerAliveCountMax={}", reconnect.as_secs() / ALIVE_S + 1);
    // A shared connection of the user's is used where there is one, but ours ends with the job: others must not come to hang on it.
    let words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no"];
    let words = words.into_iter().chain(["-o", &interval, "-o", &most, "--", head, REMOTE]);
    words.map(str::to_owned).collect()
}

/// What goes first through the connection: the line that has `gridmpi` do what `verb` says, and the secrets that this reads.
pub(crate) fn order(
    spec: &ClusterSpec,
    at: &[SocketAddr],
    gridmpi: &Path,
    verb: &str,
    (secret, description): (&Secret, &Description),
) -> Result<Vec<u8>, String> {
    let here = std::env::current_dir().unwrap_or_default().display().to_string();
    let gridmpi = match &spec.head_gridmpi {
        // That one and no other.
        Some(named) => format!("g={}", from_home(named)),
        // Sites often have one file system layout, but need not.
        None => format!(
            "g={}; [ -x \"$g\" ] || g=$(basename \"$g\")",
            quote(&gridmpi.display().to_string())
        ),
    };
    let script = format!(
        "cd {} 2>/dev/null; IFS= read -r {TOKEN} && IFS= read -r {DESCRIPTION} && export {TOKEN} {DESCRIPTION}; \
         {gridmpi}; exec \"$g\" {verb} --cluster {} {}",
        quote(&here),
        quote(spec.name.as_str()),
        quote(&address::list(at)),
    );
    let json = serde_json::to_string(description).map_err(|error| error.to_string())?;
    Ok(format!("{script}\n{}\n{json}\n", secret.reveal()).into_bytes())
}

/// A path as the shell there has it, whose user has a home of his own.
fn from_home(path: &str) -> String {
    match path.split_once('/') {
        Some((home, rest)) if home.starts_with('~') && is_home(&home[1..]) => {
            format!("{home}/{}", quote(rest))
        }
        _ => quote(path),
    }
}

/// A user's name, or none: the user himself.
fn is_home(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// Says that what was started for a cluster has ended with this exit code `before` something.
pub(crate) fn fate(spec: &ClusterSpec, code: i32, before: &str) -> String {
    let name = &spec.name;
    let what = match &spec.head {
        None => "its launcher".to_owned(),
        Some(head) => format!("the ssh to its head node `{head}`"),
    };
    format!("cluster `{name}`: {what} ended with exit code {code} {before}")
}

/// The same; where it was the ssh to a head node, with what may be wrong.
pub(crate) fn ended(spec: &ClusterSpec, code: i32, before: &str) -> String {
    let fate = fate(spec, code, before);
    let more = spec.head.as_ref().map(|head| format!(": {}", remedy(spec, head, code)));
    fate + &more.unwrap_or_default()
}

/// What may be wrong where the ssh to a head node ends at once.
pub(crate) fn remedy(spec: &ClusterSpec, head: &str, code: i32) -> String {
    match (code, &spec.head_gridmpi) {
        (FAILED, _) => {
            format!("it did not get through (what it says stands above); {}", must_work(head))
        }
        (126 | 127, Some(named)) => format!(
            "what was said there stands above. Is `head_gridmpi`, {named}, on that node, and may you run it there?"
        ),
        (126 | 127, None) => "what was said there stands above. Is `gridmpi` installed there, under the path that it has here or in the PATH \
                      of what ssh starts? Else name it by `head_gridmpi`"
            .to_owned(),
        (0, _) => "does its sshd or its login shell not do what it is told (ForceCommand, an `exit` in start-up files)?"
            .to_owned(),
        (_, _) => "what was said there stands above".to_owned(),
    }
}

/// What shows whether ssh gets through.
pub(crate) fn must_work(head: &str) -> String {
    format!("`ssh -o BatchMode=yes {} true` must work here, ask nothing, and end", word(head))
}

/// Reads what [`order`] wrote, out of the environment.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Launcher;
    use gridmpi_bootstrap::ClusterName;

    fn spec() -> ClusterSpec {
        let name = ClusterName::new("b").unwrap();
        ClusterSpec::new(name, Launcher::Command(vec!["mpiexec".into()]))
    }

    #[test]
    fn arguments_hold_no_secret_and_suit_every_shell() {
        let words = command("user@head", Duration::from_secs(60));
        assert_eq!(words[..6], ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no"]);
        assert_eq!(words[words.len() - 3..][..2], ["--", "user@head"]);
        // One word in single quotes, without what is special in them in the C shell (!) and in fish (\).
        let remote = &words[words.len() - 1];
        assert_eq!(remote.matches('\'').count(), 2, "{remote}");
        assert!(!remote.contains(['!', '\\', '\n']), "{remote}");
        assert!(remote.starts_with("exec sh -c '") && remote.ends_with('\''), "{remote}");
    }

    #[test]
    fn three_lines_go_first_through_the_connection() {
        let at = ["192.0.2.1:7".parse().unwrap(), "[2001:db8::1]:7".parse().unwrap()];
        let secret = Secret::random().unwrap();
        let described = Description {
            cluster: spec(),
            command: vec!["./p\n".into()],
            env: BTreeMap::new(),
            label: true,
            relay_token: Some("5".repeat(64)),
        };
        let gridmpi = Path::new("/opt/it's\n!/gridmpi");
        let bytes = order(&spec(), &at, gridmpi, JOIN, (&secret, &described)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), lines[1]), (3, secret.reveal().as_str()));
        assert!(
            lines[0].starts_with("cd '") && lines[0].contains("join --described --cluster 'b'")
        );
        assert!(lines[0].contains(r"'/opt/it'\''s?!/gridmpi'"), "{}", lines[0]);
        assert!(!lines[0].contains(&secret.reveal()));
        assert_eq!(serde_json::from_str::<Description>(lines[2]).unwrap(), described);
    }

    #[test]
    fn the_gridmpi_that_was_named_is_the_only_one() {
        let secret = Secret::random().unwrap();
        let mut spec = spec();
        let described = Description {
            cluster: spec.clone(),
            command: vec![],
            env: BTreeMap::new(),
            label: false,
            relay_token: None,
        };
        let mut line = |named: Option<&str>| {
            spec.head_gridmpi = named.map(str::to_owned);
            let bytes = order(&spec, &[], Path::new("/our/gridmpi"), JOIN, (&secret, &described));
            String::from_utf8(bytes.unwrap()).unwrap().lines().next().unwrap().to_owned()
        };
        assert!(
            line(None).contains("g='/our/gridmpi'; [ -x \"$g\" ] || g=$(basename \"$g\"); exec")
        );
        for (named, word) in [
            ("/opt/it's/gridmpi", r"'/opt/it'\''s/gridmpi'"),
            ("~/my tools/gridmpi", "~/'my tools/gridmpi'"),
            ("~me/gridmpi", "~me/'gridmpi'"),
            ("~$(x)/gridmpi", "'~$(x)/gridmpi'"),
            ("gridmpi-1.1", "'gridmpi-1.1'"),
        ] {
            let line = line(Some(named));
            assert!(line.contains(&format!("; g={word}; exec \"$g\" join")), "{line}");
        }
    }

    #[test]
    fn ssh_outlasts_what_connections_may_take_to_come_back() {
        for reconnect in [0, 1, 15, 59, 60, 3600] {
            let words = command("head", Duration::from_secs(reconnect));
            let number = |option: &str| {
                let found = words.iter().find_map(|word| word.strip_prefix(option));
                found.unwrap().parse::<u64>().unwrap()
            };
            let patience = number("ServerAliveInterval=") * number("ServerAliveCountMax=");
            assert!(patience > reconnect && patience <= reconnect + 15, "{words:?}");
        }
    }

    #[test]
    fn an_ssh_that_ends_at_once_has_a_remedy() {
        let mut spec = spec();
        assert!(ended(&spec, 255, "too soon").starts_with("cluster `b`: its launcher ended"));
        spec.head = Some("me@head".to_owned());
        for (code, part) in [
            (255, "ssh -o BatchMode=yes me@head true"),
            (127, "head_gridmpi"),
            (0, "ForceCommand"),
            (7, "stands above"),
        ] {
            let text = ended(&spec, code, "too soon");
            assert!(text.contains("head node `me@head`") && text.contains(part), "{text}");
        }
        spec.head_gridmpi = Some("/opt/x".to_owned());
        let text = ended(&spec, 127, "too soon");
        assert!(text.contains("`head_gridmpi`, /opt/x,") && !text.contains("name it"), "{text}");
    }
}
