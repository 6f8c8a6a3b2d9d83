//! The directory that all launchers of Open MPI 4 share on a machine, kept where it is.
//!
//! They have their files in `ompi.HOST.USER`, and each removes that directory whenever it finds it empty: at its end, and at its start too. One
//! that starts beside another may have made it and see it gone the next moment; it ends then with "orte_session_dir failed". While there is
//! something of ours in it, nobody removes it.

use crate::spec::Style;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// How often it is tried again where others put something into it and take it away at the same time.
const ATTEMPTS: usize = 1000;

/// Options of `mpiexec` that set what [`BASES`] name.
const OPTIONS: [&str; 4] = ["--mca", "-mca", "--gmca", "-gmca"];
/// Where this launcher has the directory, by Open MPI's own settings.
const BASES: [&str; 2] = ["orte_tmpdir_base", "orte_local_tmpdir_base"];
/// Where it has it otherwise: the first that is set.
const PLACES: [&str; 3] = ["TMPDIR", "TEMP", "TMP"];
const PLACE: &str = "/tmp";

/// Something of ours in such a directory; it goes when this is dropped, and the directory with it if it is empty then.
#[derive(Debug)]
pub(crate) struct Kept {
    own: PathBuf,
}

impl Kept {
    /// Makes the directory if need be, and something of ours in it that is called `name`.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(shared: &Path, name: &str) -> io::Result<Self> {
        let own = shared.join(name);
        let beside = shared.with_file_name(format!("gridmpi-{}-{name}", std::process::id()));
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            result = make(&own);
            if matches!(&result, Err(error) if error.kind() == ErrorKind::NotFound) {
                result = put(&beside, shared, name);
            }
            // Somebody else has put something into it meanwhile, and may have removed it.
            if !matches!(&result, Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty) {
                break;
            }
        }
        result.map(|()| Self { own })
    }

    /// What is ours.
    pub(crate) fn own(&self) -> &Path {
        &self.own
    }
}

/// As Open MPI makes it.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}

/// Puts a directory in the place of `shared`, which is empty or not there, that was made `beside` it with `name` in it: nobody
/// sees it empty.
fn put(beside: &Path, shared: &Path, name: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(beside)?;
    let own = beside.join(name);
    // File systems have two words for it.
    let is_taken = |error: &io::Error| error.kind() == ErrorKind::AlreadyExists;
    let taken = |error| if is_taken(&error) { ErrorKind::DirectoryNotEmpty.into() } else { error };
    let result = make(&own).and_then(|()| fs::rename(beside, shared).map_err(taken));
    if result.is_err() {
        remove(&own);
    }
    result
}

impl Drop for Kept {
    fn drop(&mut self) {
        remove(&self.own);
    }
}

/// Removes what a process has kept that was killed, and the directory around it if that is empty then.
pub(crate) fn remove(own: &Path) {
    let _ = fs::remove_dir(own);
    let _ = own.parent().map(fs::remove_dir);
}

/// The directory of a launcher with these words, started in `directory` with these variables beside our own; `None` if it shares none.
pub(crate) fn shared(
    style: Style,
    words: &[String],
    set: &[(String, String)],
    directory: Option<&Path>,
) -> Option<PathBuf> {
    if style != Style::OpenMpi4 {
        return None;
    }
    let own = |name: &str| std::env::var(name).ok();
    let variable = |name: &str| {
        let ours = set.iter().rev().find(|(known, _)| known == name);
        ours.map(|(_, value)| value.clone()).or_else(|| own(name))
    };
    let base = base(words, variable);
    let base = directory.map_or_else(|| base.clone(), |directory| directory.join(&base));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = rustix::process::geteuid().as_raw();
    Some(std::path::absolute(base).ok()?.join(format!("ompi.{}.{user}", short(&host))))
}

/// Where the directory is.
fn base(words: &[String], variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let is_base =
        |pair: &&[String]| OPTIONS.contains(&pair[0].as_str()) && BASES.contains(&pair[1].as_str());
    let option = words.windows(3).find(|triple| is_base(&&triple[..2]));
    let option = option.map(|triple| triple[2].clone());
    let setting = || BASES.iter().find_map(|name| variable(&format!("OMPI_MCA_{name}")));
    let place = || PLACES.iter().find_map(|name| variable(name));
    option.or_else(setting).or_else(place).unwrap_or_else(|| PLACE.to_owned()).into()
}

/// A host's name without its domain, as Open MPI calls it; addresses stay whole.
fn short(host: &str) -> &str {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return host;
    }
    host.split('.').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("gridmpi-sessions-{name}-{}", std::process::id()))
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_directory_stays_while_one_keeps_it() {
        let base = place("stays");
        let shared = base.join("ompi.x.0");
        let (a, b) = (Kept::new(&shared, "a").unwrap(), Kept::new(&shared, "b").unwrap());
        assert!(fs::remove_dir(&shared).is_err());
        drop(a);
        assert!(fs::remove_dir(&shared).is_err() && b.own().is_dir());
        drop(b);
        assert!(!shared.exists());
        assert!(Kept::new(Path::new("/proc/none"), "a").is_err());
        fs::remove_dir(&base).unwrap();
    }

    #[test]
    fn it_is_kept_against_those_who_remove_it_all_the_time() {
        let base = place("races");
        let shared = base.join("ompi.x.0");
        let is_over = AtomicBool::new(false);
        let wrong = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir(&shared);
                }
            });
            // Nothing may panic here: the other one would go on for ever.
            let kept = |_: &i32| Kept::new(&shared, "a").map(|kept| kept.own().is_dir());
            let wrong = (0..2000).map(|n| kept(&n)).find(|kept| !matches!(kept, Ok(true)));
            is_over.store(true, Ordering::Relaxed);
            wrong
        });
        let _ = fs::remove_dir_all(&base);
        assert!(wrong.is_none(), "{wrong:?}");
    }

    #[test]
    fn what_a_killed_process_kept_is_removed() {
        let base = place("killed");
        let shared = base.join("ompi.x.0");
        let own = Kept::new(&shared, "a").map(std::mem::ManuallyDrop::new).unwrap().own.clone();
        assert!(own.is_dir());
        remove(&own);
        assert!(!shared.exists());
        fs::remove_dir(&base).unwrap();
    }

    #[test]
    fn it_is_where_open_mpi_has_it() {
        let of = |line: &str, set: &[(&str, &str)]| {
            let set = set.to_vec();
            let variable = move |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            base(&words(line), variable).display().to_string()
        };
        assert_eq!(of("mpiexec -n 1 x", &[]), "/tmp");
        assert_eq!(of("mpiexec", &[("TMP", "/c"), ("TEMP", "/b"), ("TMPDIR", "/a")]), "/a");
        assert_eq!(of("mpiexec", &[("TMPDIR", "/a"), ("OMPI_MCA_orte_tmpdir_base", "/m")]), "/m");
        let line = "mpiexec -n 1 -mca orte_local_tmpdir_base /o x";
        assert_eq!(of(line, &[("OMPI_MCA_orte_tmpdir_base", "/m")]), "/o");
        let shared = |style| shared(style, &[], &words_of("TMPDIR", "t"), Some(Path::new("/d")));
        let found = shared(Style::OpenMpi4).unwrap();
        assert!(found.starts_with("/d/t") && found.display().to_string().contains("/ompi."));
        assert!(
            [Style::Hydra, Style::OpenMpi5, Style::Srun].into_iter().all(|s| shared(s).is_none())
        );
        assert_eq!((short("a.b.c"), short("10.0.0.1")), ("a", "10.0.0.1"));
    }

    fn words_of(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }
}
