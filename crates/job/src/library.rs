//! Where the preloaded libraries are.

use crate::spec::Family;
use gridmpi_bootstrap::env::LIBDIR;
use std::path::{Path, PathBuf};

/// None of the places holds the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find {name} for {family}: looked in {}. Build it (`make`), or name its directory \
         by {LIBDIR}", list(.tried))]
pub struct LibraryError {
    name: String,
    family: Family,
    tried: Vec<PathBuf>,
}

fn list(tried: &[PathBuf]) -> String {
    tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The library for `family`: in the directory of `GRIDMPI_LIBDIR` if that is set, else beside the
/// program `gridmpi` or in `lib` next to its directory.
pub(crate) fn find(family: Family, gridmpi: &Path) -> Result<PathBuf, LibraryError> {
    let named = std::env::var_os(LIBDIR).filter(|value| !value.is_empty()).map(PathBuf::from);
    find_in(family, &directories(named, gridmpi))
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
        None => Err(LibraryError { name, family, tried: directories.to_vec() }),
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
    fn a_missing_library_names_every_place() {
        let error = find_in(Family::OpenMpi, &["/none/a".into(), "/none/b".into()]).unwrap_err();
        let message = error.to_string();
        for part in ["libgridmpi-openmpi.so", "/none/a, /none/b", LIBDIR] {
            assert!(message.contains(part), "{message}");
        }
    }
}
