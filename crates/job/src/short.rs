//! The short form of a job on the command line: `--cluster NAME=LAUNCHER[:RANKS]`.

use crate::file::parse_launcher;
use crate::spec::ClusterSpec;
use gridmpi_bootstrap::ClusterName;

/// Reads `NAME=LAUNCHER[:RANKS]`; LAUNCHER may have arguments, separated by blanks, or be `join`. A blank may stand before `:RANKS`.
///
/// # Errors
/// Says how to write it.
pub fn parse_cluster(text: &str) -> Result<ClusterSpec, String> {
    let form = "write NAME=LAUNCHER[:RANKS], such as a=mpiexec.mpich:4";
    let (name, rest) = text.split_once('=').ok_or_else(|| form.to_owned())?;
    let name = ClusterName::new(name).map_err(|error| error.to_string())?;
    let (launcher, ranks) = match rest.rsplit_once(':') {
        Some((launcher, ranks)) => {
            if is_ambiguous(launcher) {
                return Err(format!(
                    "`:{ranks}` may be the number of ranks, or belong to the launcher's arguments. Write a blank before the number of ranks: \
                     `{launcher} :{ranks}` if it is that, `{rest} :RANKS` if not; or use a job file"
                ));
            }
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

/// Whether what stands before `:RANKS` ends in an argument that is a list, whose elements may end so, too: `--host x:2,y`. With
/// another number at its end it is whole.
fn is_ambiguous(launcher: &str) -> bool {
    let last = launcher.rsplit(char::is_whitespace).next().unwrap_or(launcher);
    let is_argument = last.len() < launcher.len();
    let end = last.rsplit_once(':').map(|(_, end)| end);
    let is_whole = end.is_some_and(|end| end.parse::<u32>().is_ok());
    is_argument && last.contains([':', ',']) && !is_whole
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
    fn a_number_that_may_belong_to_a_host_is_not_taken_for_the_ranks() {
        for text in ["a=mpiexec --host x:2,y:2", "a=mpiexec --host x,y:2", "a=m -x a:b:2"] {
            let said = parse_cluster(text).unwrap_err();
            assert!(said.contains("`:2` may be the number"), "{said}");
            assert!(
                said.contains(" :2` if it is that, `") && said.contains(":2 :RANKS`"),
                "{said}"
            );
        }
        for (text, words) in [
            ("a=mpiexec --host x:2,y:2 :4", "mpiexec --host x:2,y:2"),
            ("a=mpiexec --host x:2,y:2:4", "mpiexec --host x:2,y:2"),
            ("a=mpiexec --host x,y :4", "mpiexec --host x,y"),
            ("a=mpiexec -host x:4", "mpiexec -host x"),
            ("a=/opt/a,b/mpiexec:4", "/opt/a,b/mpiexec"),
        ] {
            let spec = parse_cluster(text).unwrap();
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!((spec.launcher, spec.ranks), (Launcher::Command(words), Some(4)), "{text}");
        }
    }

    #[test]
    fn mistakes_say_how_to_write_it() {
        for text in ["a", "a=", "a=x:0", "a=x:many", "a b=x:1", "=x:1", "a=x:"] {
            assert!(parse_cluster(text).is_err(), "{text}");
        }
        assert!(parse_cluster("a=x:many").unwrap_err().contains("NAME=LAUNCHER"));
    }
}
