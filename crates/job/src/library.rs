//! Where the preloaded libraries are.

use crate::spec::{Family, Style};
use gridmpi_bootstrap::env::LIBDIR;
use std::path::{Path, PathBuf};

/// Why there is no library for ranks to load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// None of the places holds it.
    #[error(
        "cannot find {name} for {family}: looked in {}. Build it (`make`), or name its directory \
         by {LIBDIR}", list(.tried)
    )]
    Missing {
        /// Its file.
        name: String,
        /// Whose programs load it.
        family: Family,
        /// Where it is not.
        tried: Vec<PathBuf>,
    },
    /// Ranks would run without it, each cluster a world of its own.
    #[error(
        "the library {path} cannot be loaded into ranks, as {who} splits what it is told to load at every {what}: install GridMPI \
         where there is none in the path, or name a link that leads there by {LIBDIR}"
    )]
    Unloadable {
        /// Where it is.
        path: String,
        /// Who cannot be told so.
        who: &'static str,
        /// What is in the path.
        what: &'static str,
    },
}

fn list(tried: &[PathBuf]) -> String {
    tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The library for `family`, for ranks that a launcher of this style starts: in the directory of `GRIDMPI_LIBDIR` if that is set,
/// else beside the program `gridmpi` or in `lib` next to its directory.
pub(crate) fn find(family: Family, style: Style, gridmpi: &Path) -> Result<PathBuf, LibraryError> {
    let named = std::env::var_os(LIBDIR).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = find_in(family, &directories(named, gridmpi))?;
    check(&path, style).map(|()| path)
}

/// `LD_PRELOAD` is a list, and has no way to write its separators otherwise; nor has srun's `--export`.
fn check(path: &Path, style: Style) -> Result<(), LibraryError> {
    const LINKER: &str = "the dynamic linker";
    let separators = [(' ', LINKER, "blank"), (':', LINKER, "colon"), (',', "srun", "comma")];
    let shown = path.display().to_string();
    let is_wrong = |(separator, ..): &&(char, _, _)| {
        shown.contains(*separator) && (*separator != ',' || style == Style::Srun)
    };
    match separators.iter().find(is_wrong) {
        Some(&(_, who, what)) => Err(LibraryError::Unloadable { path: shown, who, what }),
        None => Ok(()),
    }
}

fn directories(named: Option<PathBuf>, gridmpi: &Path) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named];
    }
    let Some(here) = gridmpi.parent() else { return Vec::new() };
    let installed = here.parent().map(|prefix| prefix.join("lib"));
    let packaged = here.parent().map(|prefix| prefix.join("lib/gridmpi"));
    installed.into_iter().chain(packaged).chain([here.to_owned()]).collect()
}

/// Cargo cannot name a library with a hyphen, so its own output has an underscore.
fn find_in(family: Family, directories: &[PathBuf]) -> Result<PathBuf, LibraryError> {
    let name = format!("libgridmpi-{}.so", family.name());
    let from_cargo = format!("libgridmpi_{}.so", family.name());
    let candidates = directories.iter().flat_map(|d| [d.join(&name), d.join(&from_cargo)]);
    match candidates.clone().find(|path| path.is_file()) {
        // The dynamic linker takes a relative path from each rank's own directory.
        Some(path) => Ok(std::path::absolute(&path).unwrap_or(path)),
        None => Err(LibraryError::Missing { name, family, tried: directories.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_is_the_only_one() {
        let program = Path::new("/opt/gridmpi/bin/gridmpi");
        assert_eq!(directories(Some("/x".into()), program), [Path::new("/x")]);
        let expected = ["/opt/gridmpi/lib", "/opt/gridmpi/lib/gridmpi", "/opt/gridmpi/bin"];
        assert_eq!(directories(None, program), expected.map(PathBuf::from));
    }

    #[test]
    fn a_path_that_would_be_split_is_refused() {
        let said = |path: &str, style| check(Path::new(path), style).map_err(|e| e.to_string());
        for style in [Style::Hydra, Style::OpenMpi4, Style::OpenMpi5, Style::Srun] {
            assert_eq!(said("/opt/grid-mpi_1.1+x/lib/libgridmpi-mpich.so", style), Ok(()));
            for (path, what) in [("/opt/my tools/x.so", "blank"), ("/opt/a:b/x.so", "colon")] {
                let said = said(path, style).unwrap_err();
                let parts = [path, what, "the dynamic linker", LIBDIR];
                assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            }
        }
        assert_eq!(said("/opt/a,b/x.so", Style::Hydra), Ok(()));
        assert!(said("/opt/a,b/x.so", Style::Srun).unwrap_err().contains("srun splits"));
    }

    #[test]
    fn a_missing_library_names_every_place() {
        let error = find_in(Family::OpenMpi, &["/none/a".into(), "/none/b".into()]).unwrap_err();
        let message = error.to_string();
        for part in ["libgridmpi-openmpi.so", "/none/a, /none/b", LIBDIR] {
            assert!(message.contains(part), "{message}");
        }
    }
}
