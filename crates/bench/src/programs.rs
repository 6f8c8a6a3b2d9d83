//! The programs that are measured: compiled when they are needed, by the vendor's own compiler.

use crate::error::BenchError;
use crate::process;
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const COMMON: &str = "common.h";
const HEADERS: [(&str, &str); 5] = [
    (COMMON, include_str!("../programs/common.h")),
    ("clock.h", include_str!("../programs/clock.h")),
    ("socket.h", include_str!("../programs/socket.h")),
    ("tap.h", include_str!("../programs/tap.h")),
    ("gridmpi.h", include_str!("../../../include/gridmpi.h")),
];
const SOURCES: [(&str, &str); 17] = [
    ("local", include_str!("../programs/local.c")),
    ("latency", include_str!("../programs/latency.c")),
    ("bulk", include_str!("../programs/bulk.c")),
    ("sockets", include_str!("../programs/sockets.c")),
    ("overlap", include_str!("../programs/overlap.c")),
    ("idle", include_str!("../programs/idle.c")),
    ("burst", include_str!("../programs/burst.c")),
    ("collectives", include_str!("../programs/collectives.c")),
    ("churn", include_str!("../programs/churn.c")),
    ("leftover", include_str!("../programs/leftover.c")),
    ("grants", include_str!("../programs/grants.c")),
    ("changes", include_str!("../programs/changes.c")),
    ("stream", include_str!("../programs/stream.c")),
    ("across", include_str!("../programs/across.c")),
    ("failover", include_str!("../programs/failover.c")),
    ("halo", include_str!("../programs/halo.c")),
    ("pipeline", include_str!("../programs/pipeline.c")),
];

/// Directories in the system's temporary one are called this, the process's id and which of its own it is.
const PREFIX: &str = "gridmpi-bench-";

const REMEDY: &str = "run `tools/setup`, or install the package that brings it";

/// One MPI that the figures are measured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// As `--mpi` has it.
    pub name: &'static str,
    /// Its launcher, by name or path.
    pub launcher: Cow<'static, str>,
    /// Its compiler.
    pub compiler: &'static str,
    /// Arguments that its launcher needs where ranks may outnumber cores.
    pub arguments: &'static [&'static str],
    /// Those that it needs in a cluster of several nodes, where `{network}` stands for the network inside the cluster. `None`
    /// if it is not fit for that.
    pub over_nodes: Option<&'static [&'static str]>,
    /// Variables for its ranks there.
    pub variables: &'static [(&'static str, &'static str)],
}

/// What an MPI is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// To run on a node.
    Any,
    /// To run over the nodes of a cluster.
    OverNodes,
}

/// Those that are known, in order of preference.
pub static KNOWN: [Mpi; 2] = [
    Mpi {
        name: "mpich",
        launcher: Cow::Borrowed("mpiexec.mpich"),
        compiler: "mpicc.mpich",
        arguments: &[],
        // Over TCP between more than two nodes Debian's 4.0.2 hangs in its own MPI_Finalize, every second time or so.
        over_nodes: None,
        variables: &[],
    },
    Mpi {
        name: "openmpi",
        launcher: Cow::Borrowed("mpiexec.openmpi"),
        compiler: "mpicc.openmpi",
        arguments: &["--oversubscribe", "--bind-to", "none"],
        over_nodes: Some(&[
            "--bind-to",
            "none",
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "tcp,self",
            "--mca",
            "btl_tcp_if_include",
            "{network}",
            "--mca",
            "oob_tcp_if_include",
            "{network}",
        ]),
        variables: &[("OMPI_MCA_mpi_yield_when_idle", "1")],
    },
];

/// Whether a command is on the search path.
#[must_use]
pub fn is_installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(command).is_file())
}

/// Finds out that a command is there.
///
/// # Errors
/// It is not, and how to get it.
pub fn need(command: &str) -> Result<(), BenchError> {
    let missing = || BenchError::Missing { what: format!("`{command}`"), remedy: REMEDY };
    is_installed(command).then_some(()).ok_or_else(missing)
}

impl Mpi {
    /// The named one, or the first that is installed and fit.
    ///
    /// # Errors
    /// It is not installed, or not fit.
    pub fn find(name: Option<&str>, fitness: Fitness) -> Result<Self, BenchError> {
        let is_fit = |mpi: &Self| fitness == Fitness::Any || mpi.over_nodes.is_some();
        if let Some(unfit) = KNOWN.iter().find(|mpi| Some(mpi.name) == name && !is_fit(mpi)) {
            let message =
                format!("{} cannot be trusted over several nodes here: --mpi openmpi", unfit.name);
            return Err(BenchError::Output(message));
        }
        let is_wanted = |mpi: &&Self| is_fit(mpi) && name.is_none_or(|name| mpi.name == name);
        let is_there = |mpi: &&Self| is_installed(&mpi.launcher) && is_installed(mpi.compiler);
        let mut wanted = KNOWN.iter().filter(is_wanted);
        wanted.find(is_there).cloned().ok_or_else(|| BenchError::Missing {
            what: name.map_or("an MPI with compiler and launcher".into(), |name| {
                format!("{name} with compiler and launcher")
            }),
            remedy: REMEDY,
        })
    }
}

/// A directory with compiled programs; removed when dropped.
#[derive(Debug)]
pub struct Programs {
    directory: PathBuf,
    mpi: Mpi,
}

impl Programs {
    /// An empty directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(mpi: Mpi) -> Result<Self, BenchError> {
        sweep();
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("{PREFIX}{pid}-{number}"));
        let write = |(name, text): &(&str, &str)| fs::write(directory.join(name), text);
        let made = fs::create_dir_all(&directory).and_then(|()| HEADERS.iter().try_for_each(write));
        let what = || format!("cannot write to {}", directory.display());
        made.map_err(|error| BenchError::File { what: what(), error })?;
        Ok(Self { directory, mpi })
    }

    /// A file of this directory with that text.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let file = self.place(name);
        let folder = file.parent().unwrap_or(&self.directory);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
        let what = || format!("cannot write {}", file.display());
        written.map_err(|error| BenchError::File { what: what(), error })?;
        Ok(file)
    }

    /// A place for a file.
    #[must_use]
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The compiled program of that name.
    ///
    /// # Errors
    /// It does not compile.
    pub fn get(&self, name: &str, until: Instant) -> Result<PathBuf, BenchError> {
        let program = self.place(name);
        if !program.is_file() {
            self.compile(name, &program, until)?;
        }
        Ok(program)
    }

    fn compile(&self, name: &str, program: &Path, until: Instant) -> Result<(), BenchError> {
        let source = SOURCES.iter().find(|(known, _)| *known == name);
        let text = source.map_or("", |(_, text)| text);
        let file = self.write(&format!("{name}.c"), text)?;
        let compiler = if text.contains(COMMON) { self.mpi.compiler } else { "cc" };
        need(compiler)?;
        let mut command = Command::new(compiler);
        command.args(["-O2", "-o"]).arg(program).arg(&file).arg("-ldl");
        process::run(compiler, &mut command, until).map(drop).map_err(|error| BenchError::Compile {
            program: name.to_owned(),
            message: error.to_string(),
        })
    }
}

/// Removes what earlier runs left that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(pid_of);
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Of the process whose directory is called so.
fn pid_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_directory_of_its_own() {
        let [one, other] = [(); 2].map(|()| Programs::new(KNOWN[0].clone()).unwrap());
        assert_ne!(one.directory, other.directory);
        let name = one.directory.file_name().unwrap().to_str().unwrap();
        assert_eq!(pid_of(name), Some(std::process::id()));
        // As they were called before.
        assert_eq!(pid_of("gridmpi-bench-12"), Some(12));
    }

    #[test]
    fn headers_are_there_that_programs_include() {
        for (name, text) in SOURCES.iter().chain(&HEADERS) {
            let lines = text.lines().filter_map(|line| line.strip_prefix("#include \""));
            for header in lines.filter_map(|line| line.strip_suffix('"')) {
                let is_it = |known: &(&str, &str)| known.0 == header;
                assert!(HEADERS.iter().any(is_it), "{name} includes {header}");
            }
            // Who includes it is compiled with MPI's compiler.
            let is_fit = text.contains(COMMON) || !text.contains("MPI_Init(");
            assert!(is_fit, "{name} does not include {COMMON}");
        }
    }

    #[test]
    fn what_is_not_installed_is_named_with_a_remedy() {
        let text = need("no-such-compiler").unwrap_err().to_string();
        assert!(text.contains("`no-such-compiler` is missing: run `tools/setup`"), "{text}");
        let find = |name| Mpi::find(Some(name), Fitness::OverNodes);
        assert!(find("mpich").unwrap_err().to_string().contains("--mpi openmpi"));
        assert!(find("no-such-mpi").unwrap_err().to_string().contains("no-such-mpi"));
    }
}
