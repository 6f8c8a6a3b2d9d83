//! Which MPI a program is built for.

use crate::elf::{self, Binary, Dynamic};
use crate::spec::Family;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Most libraries that are looked into before giving up.
const MAX_LIBRARIES: usize = 200;

/// What a program says about its MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Built for this family; the library that shows it.
    Mpi(Family, String),
    /// An interpreter or a script: only a run can tell.
    Interpreted,
    /// Found nowhere on this machine.
    Missing,
}

/// Why a program cannot be run over several clusters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error(
        "{0} is linked statically, so its calls of MPI cannot be reached: link it with the \
             shared MPI library (without -static)"
    )]
    Static(String),
    #[error(
        "{0} is no MPI program: none of the libraries it is linked with is an MPI. If it \
             loads one while running, say which by `mpi = \"mpich\"` or `mpi = \"openmpi\"` in \
             the job file (--mpi NAME=FAMILY)"
    )]
    NoMpi(String),
    #[error(
        "{program} is built for {abi} ({library}), which is not supported yet: build it with \
             MPICH's or Open MPI's own mpicc"
    )]
    Abi { program: String, library: String, abi: &'static str },
    #[error("program `{0}` is a directory: name the program in it that is to run")]
    Directory(String),
    #[error("{0} is neither a program for this system nor a script")]
    Unknown(String),
    #[error("cannot read {0}: {1}")]
    Unreadable(String, String),
}

/// Programs that run other programs: what they are linked with says nothing.
const INTERPRETERS: [&str; 12] = [
    "python", "bash", "sh", "dash", "zsh", "env", "perl", "julia", "Rscript", "R", "numactl",
    "time",
];

/// Looks at `program` as the shell would find it.
pub(crate) fn inspect(program: &str) -> Result<Program, ProgramError> {
    let Some(path) = find(program) else { return missing(program) };
    let unreadable = |error: std::io::Error| {
        ProgramError::Unreadable(path.display().to_string(), error.to_string())
    };
    let shown = path.display().to_string();
    match elf::inspect(&path).map_err(unreadable)? {
        Binary::Script => Ok(Program::Interpreted),
        Binary::Other => Err(ProgramError::Unknown(shown)),
        _ if is_interpreter(&path) => Ok(Program::Interpreted),
        Binary::Static => Err(ProgramError::Static(shown)),
        Binary::Dynamic(dynamic) => match search(&path, dynamic) {
            Some(Library::Family(family, library)) => Ok(Program::Mpi(family, library)),
            Some(Library::Unsupported(library, abi)) => {
                Err(ProgramError::Abi { program: shown, library, abi })
            }
            None => Err(ProgramError::NoMpi(shown)),
        },
    }
}

/// What is said of a name to which there is no file.
fn missing(program: &str) -> Result<Program, ProgramError> {
    match program.contains('/') && Path::new(program).is_dir() {
        true => Err(ProgramError::Directory(program.to_owned())),
        false => Ok(Program::Missing),
    }
}

/// The file that `program` names, through `PATH` if it has no slash.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|p| p.is_file())
}

fn is_interpreter(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_one = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        INTERPRETERS.contains(&stem)
    };
    is_one(path) || is_one(&real)
}

enum Library {
    Family(Family, String),
    Unsupported(String, &'static str),
}

/// What the name of a shared library tells. Fortran bindings count: linkers drop what is needed
/// only by them.
fn classify(name: &str) -> Option<Library> {
    let stem = name.split(".so").next().unwrap_or(name);
    let major = name.split(".so.").nth(1).and_then(|v| v.split('.').next());
    let own = || name.to_owned();
    match (stem, major) {
        ("libmpi_abi" | "libmpifort_abi", _) => {
            Some(Library::Unsupported(own(), "the MPI-5 standard ABI"))
        }
        ("libmpich" | "libmpichfort" | "libmpichcxx" | "libmpichf90", _) => {
            Some(Library::Family(Family::Mpich, own()))
        }
        ("libmpifort" | "libmpicxx", Some("12")) => Some(Library::Family(Family::Mpich, own())),
        ("libmpi", Some("12" | "0")) => Some(Library::Family(Family::Mpich, own())),
        ("libmpi", Some("40")) => Some(Library::Family(Family::OpenMpi, own())),
        ("libmpi", Some("1" | "20")) => {
            Some(Library::Unsupported(own(), "a release of Open MPI before 3.0"))
        }
        (
            "libmpi_mpifh"
            | "libmpi_usempif08"
            | "libmpi_usempi_ignore_tkr"
            | "libmpi_usempi"
            | "libmpi_cxx",
            Some("40"),
        ) => Some(Library::Family(Family::OpenMpi, own())),
        _ => None,
    }
}

/// The nearest MPI library, breadth first as the dynamic linker loads.
fn search(program: &Path, dynamic: Dynamic) -> Option<Library> {
    let mut queue = VecDeque::from([(program.to_owned(), dynamic)]);
    let mut seen = BTreeSet::new();
    while let Some((path, dynamic)) = queue.pop_front() {
        if let Some(found) = dynamic.needed.iter().find_map(|name| classify(name)) {
            return Some(found);
        }
        for name in &dynamic.needed {
            if seen.len() >= MAX_LIBRARIES || !seen.insert(name.clone()) {
                continue;
            }
            if let Some(path) = locate(name, &path, &dynamic.search)
                && let Ok(Binary::Dynamic(next)) = elf::inspect(&path)
            {
                queue.push_back((path, next));
            }
        }
    }
    None
}

/// Where the dynamic linker would find a library, nearly (it also has a cache).
fn locate(name: &str, user: &Path, search: &[String]) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let origin = user.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    let origin = origin.unwrap_or_default().display().to_string();
    let own = search.iter().map(|directory| {
        PathBuf::from(directory.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin))
    });
    let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&variable).collect();
    own.chain(listed)
        .chain(system_directories())
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

fn system_directories() -> Vec<PathBuf> {
    let arch = std::env::consts::ARCH;
    let mut all = vec![
        PathBuf::from(format!("/lib/{arch}-linux-gnu")),
        PathBuf::from(format!("/usr/lib/{arch}-linux-gnu")),
    ];
    all.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    let configured = std::fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten();
    for file in configured.take(64) {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        all.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Option<Family> {
        match classify(name)? {
            Library::Family(family, _) => Some(family),
            Library::Unsupported(..) => None,
        }
    }

    #[test]
    fn library_names_tell_the_family() {
        for name in ["libmpich.so.12", "libmpi.so.12", "libmpifort.so.12", "libmpichfort.so.12"] {
            assert_eq!(family(name), Some(Family::Mpich), "{name}");
        }
        for name in ["libmpi.so.40", "libmpi_mpifh.so.40", "libmpi_usempif08.so.40"] {
            assert_eq!(family(name), Some(Family::OpenMpi), "{name}");
        }
        for name in ["libm.so.6", "libmpifr.so.3", "libmpi_cxx.so.1", "libmpc.so.3"] {
            assert_eq!(family(name), None, "{name}");
        }
        for name in ["libmpi_abi.so.1", "libmpi_abi.so", "libmpi.so.20"] {
            assert!(matches!(classify(name), Some(Library::Unsupported(..))), "{name}");
        }
    }

    #[test]
    fn interpreters_are_not_judged_by_their_libraries() {
        assert_eq!(inspect("sh"), Ok(Program::Interpreted));
        assert!(is_interpreter(Path::new("/usr/bin/python3.11")));
        assert!(!is_interpreter(Path::new("/usr/bin/pythonic")));
    }

    #[test]
    fn programs_without_mpi_are_refused_by_name() {
        let error = inspect("ls").unwrap_err().to_string();
        assert!(error.contains("/ls is no MPI program"), "{error}");
        let error = inspect("/etc/passwd").unwrap_err().to_string();
        assert!(error.contains("neither a program"), "{error}");
        assert_eq!(inspect("/nonexistent/program"), Ok(Program::Missing));
        let error = inspect("/tmp").unwrap_err().to_string();
        assert!(error.starts_with("program `/tmp` is a directory"), "{error}");
    }
}
