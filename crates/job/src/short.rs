//! The short form of a job on the command line: `--cluster NAME=LAUNCHER[:RANKS]`.

use crate::file::parse_launcher;
use crate::spec::ClusterSpec;
use gridmpi_bootstrap::ClusterName;

/// Reads `NAME=LAUNCHER[:RANKS]`; LAUNCHER may have arguments, separated by blanks, or be `join`.
///
/// # Errors
/// Says how to write it.
pub fn parse_cluster(text: &str) -> Result<ClusterSpec, String> {
    let form = "write NAME=LAUNCHER[:RANKS], such as a=mpiexec.mpich:4";
    let (name, rest) = text.split_once('=').ok_or_else(|| form.to_owned())?;
    let name = ClusterName::new(name).map_err(|error| error.to_string())?;
    let (launcher, ranks) = match rest.rsplit_once(':') {
        Some((launcher, ranks)) => {
            let count = ranks.parse::<u32>().ok().filter(|count| *count > 0);
            let wrong = || format!("{ranks:?} is no number of ranks; {form}");
            (launcher, Some(count.ok_or_else(wrong)?))
        }
        None => (rest, None),
    };
    let launcher = parse_launcher(launcher).ok_or_else(|| format!("no launcher; {form}"))?;
    let mut spec = ClusterSpec::new(name, launcher);
    spec.ranks = ranks;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Launcher;

    #[test]
    fn the_short_form_is_read() {
        let spec = parse_cluster("a=mpiexec.openmpi --oversubscribe:4").unwrap();
        let words = vec!["mpiexec.openmpi".to_owned(), "--oversubscribe".to_owned()];
        assert_eq!((spec.name.as_str(), spec.ranks), ("a", Some(4)));
        assert_eq!(spec.launcher, Launcher::Command(words));
        let spec = parse_cluster("b=join").unwrap();
        assert_eq!((spec.launcher, spec.ranks), (Launcher::Join, None));
    }

    #[test]
    fn mistakes_say_how_to_write_it() {
        for text in ["a", "a=", "a=x:0", "a=x:many", "a b=x:1", "=x:1", "a=x:"] {
            assert!(parse_cluster(text).is_err(), "{text}");
        }
        assert!(parse_cluster("a=x:many").unwrap_err().contains("NAME=LAUNCHER"));
    }
}
