//! Where programs of others are: on the search path, or in the `.vendors` that `tools/setup` fills.

use crate::error::BenchError;
use crate::programs::Mpi;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Names the directory, as for `tests/run`.
const VARIABLE: &str = "GRIDMPI_VENDORS";
const NAME: &str = ".vendors";
const REMEDY: &str =
    "run `tools/setup`, then this in the source tree or with GRIDMPI_VENDORS naming its .vendors";

/// Intel's MPI and the benchmarks that come with it.
pub(super) struct Intel {
    pub(super) benchmarks: PathBuf,
    pub(super) mpi: Mpi,
    pub(super) variables: Vec<(&'static str, String)>,
}

/// A command of the search path, by its path.
pub(super) fn installed(command: &str) -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|directory| directory.join(command));
    let found = places.into_iter().find(|file| file.is_file());
    let remedy = "run `tools/setup`, or install the package that brings it";
    found.ok_or_else(|| BenchError::Missing { what: format!("`{command}`"), remedy })
}

/// The Python with mpi4py and numpy for the distribution's MPI.
pub(super) fn python() -> Result<PathBuf, BenchError> {
    vendors("debian/bin/python")
}

/// Intel's MPI, its benchmarks and what its ranks need on nodes of the lab.
pub(super) fn intel() -> Result<Intel, BenchError> {
    let benchmarks = vendors("impi/bin/IMB-MPI1")?;
    let home = benchmarks.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
    let launcher = home.join("bin/mpiexec").display().to_string();
    let mpi = Mpi {
        name: "impi",
        launcher: Cow::Owned(launcher),
        compiler: "",
        arguments: &[],
        over_nodes: Some(&[]),
        // Ranks outnumber cores. libfabric's tcp must keep messages that nobody has asked for yet.
        variables: &[
            ("I_MPI_PIN", "0"),
            ("I_MPI_FABRICS", "ofi"),
            ("FI_PROVIDER", "tcp"),
            ("FI_TCP_MAX_SAVED", "1000000"),
        ],
    };
    let variables = vec![
        ("I_MPI_ROOT", home.display().to_string()),
        ("LD_LIBRARY_PATH", home.join("lib").display().to_string()),
    ];
    Ok(Intel { benchmarks, mpi, variables })
}

/// A file of that directory.
fn vendors(name: &str) -> Result<PathBuf, BenchError> {
    let chosen = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let places = chosen.map_or_else(above, |path| vec![PathBuf::from(path)]);
    let found = places.into_iter().map(|place| place.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| BenchError::Missing { what: format!("{NAME}/{name}"), remedy: REMEDY })
}

/// Beside the working directory or this program, or above them.
fn above() -> Vec<PathBuf> {
    let here = [std::env::current_dir(), std::env::current_exe()];
    let all = here.iter().flatten().flat_map(|path| path.ancestors());
    all.map(|directory| directory.join(NAME)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_a_remedy() {
        let text = vendors("no/such/file").unwrap_err().to_string();
        assert!(text.contains(".vendors/no/such/file is missing: run `tools/setup`"), "{text}");
        assert!(installed("no-such-command").is_err() && installed("sh").is_ok());
    }
}
