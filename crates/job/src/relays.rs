//! The relays of clusters and of the coordinator, and the token that they ask for.

use crate::private;
use crate::spec::{ClusterSpec, JobSpec};
use gridmpi_bootstrap::{RelayAccess, RelayToken};
use std::path::Path;

/// How the ranks of a cluster get at its relays; `None` where it has none.
///
/// # Errors
/// Says what is wrong with the token or its file.
pub(crate) fn of_cluster(
    job: &JobSpec,
    cluster: &ClusterSpec,
) -> Result<Option<RelayAccess>, String> {
    let file = cluster.relay_token.as_deref().or(job.relay_token.as_deref());
    let whose = format!("cluster `{}`", cluster.name);
    access(&cluster.relays, file, &whose)
}

/// The relays through which clusters reach the coordinator.
///
/// # Errors
/// As [`of_cluster`].
pub(crate) fn of_coordinator(job: &JobSpec) -> Result<Option<RelayAccess>, String> {
    access(&job.relays, job.relay_token.as_deref(), "[job]")
}

/// Relays by name, with the token in `file`.
///
/// # Errors
/// As [`of_cluster`].
pub(crate) fn access(
    names: &[String],
    file: Option<&Path>,
    whose: &str,
) -> Result<Option<RelayAccess>, String> {
    if names.is_empty() {
        return Ok(None);
    }
    let file = file.ok_or_else(|| {
        format!("{whose} has relays but no token for them: name its file by `relay_token`")
    })?;
    Ok(Some(RelayAccess { names: names.to_vec(), token: read(file)? }))
}

/// Reads a token from a file that nobody else may read.
fn read(path: &Path) -> Result<RelayToken, String> {
    let shown = path.display();
    let text = private::read(path, "relay token")?;
    RelayToken::parse(&text).map_err(|error| {
        format!("the relay token file {shown} holds no relay token (`gridmpi relay token` makes one): it {error}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &str, mode: u32) -> std::path::PathBuf {
        let name = format!("gridmpi-relay-token-{}-{mode:o}-{}", std::process::id(), text.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn problem(names: &[&str], file: Option<&Path>) -> String {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        access(&names, file, "cluster `a`").unwrap_err()
    }

    #[test]
    fn a_token_is_read_from_a_private_file_only() {
        let good = file(&format!("{}\n", "5".repeat(64)), 0o600);
        let found = access(&["gw:7".to_owned()], Some(&good), "cluster `a`").unwrap().unwrap();
        assert_eq!((found.names, found.token.reveal()), (vec!["gw:7".to_owned()], "5".repeat(64)));
        assert_eq!(access(&[], None, "cluster `a`"), Ok(None));

        let open = file(&"6".repeat(64), 0o644);
        assert!(problem(&["gw:7"], Some(&open)).contains("chmod 600"));
        let wrong = file("hello there", 0o600);
        let said = problem(&["gw:7"], Some(&wrong));
        assert!(said.contains("64") && !said.contains("hello"), "{said}");
        assert!(problem(&["gw:7"], None).contains("cluster `a`"));
        assert!(problem(&["gw:7"], Some(Path::new("/none/x"))).contains("/none/x"));
        for path in [good, open, wrong] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
