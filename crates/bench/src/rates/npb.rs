//! The NAS Parallel Benchmarks, from a directory of binaries: which they are, and what they say.

use super::programs::trial::{self, OF_ALL, Reading, SPEED, Trial};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::session::Session;
use gridmpi_report::terminal::tell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const KERNELS: [&str; 8] = ["bt", "cg", "ep", "ft", "is", "lu", "mg", "sp"];
/// These run on square numbers of ranks only, the others on powers of two.
const SQUARE: [&str; 2] = ["bt", "sp"];
const CLASSES: &str = "SWABCDEF";
/// Ranks of a binary that takes any number.
const RANKS: u32 = 8;
const SQUARE_RANKS: u32 = 16;

/// One binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    path: PathBuf,
    name: String,
    ranks: u32,
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let Some(directory) = session.wishes.npb.clone() else {
        return Err(BenchError::Output("where the binaries are is not said: --npb DIR".to_owned()));
    };
    let binaries = find(&directory)?;
    Ok(binaries.into_iter().flat_map(|binary| run(session, &binary)).collect())
}

fn run(session: &mut Session, binary: &Binary) -> Vec<Figure> {
    let first = binary.ranks.div_ceil(2);
    let trial = Trial {
        name: &binary.name,
        mpi: session.mpi.clone(),
        program: &binary.path,
        arguments: &[],
        ranks: [first, binary.ranks - first],
        variables: &[],
        directory: None,
        enough: None,
        read: &|said, _| read(&binary.name, said),
        peers: OF_ALL,
    };
    trial::measure(session, &trial)
}

/// The binaries of a directory; what is none is told and left out.
fn find(directory: &Path) -> Result<Vec<Binary>, BenchError> {
    let what = || format!("cannot read the directory {}", directory.display());
    let entries = fs::read_dir(directory)
        .map_err(|error| BenchError::File { what: what(), error })?
        .flatten()
        .map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    let mut binaries = Vec::new();
    for path in paths {
        match binary(&path) {
            Ok(binary) => binaries.push(binary),
            Err(why) => {
                tell(format_args!("gridmpi bench: npb: {} is left out: {why}", path.display()))
            }
        }
    }
    if binaries.is_empty() {
        return Err(BenchError::Missing {
            what: format!("a binary of the NAS Parallel Benchmarks in {}", directory.display()),
            remedy: "build some (`make ft CLASS=A` with MPICC and MPIF77 of the clusters' MPI) and name the \
                     directory that they are in, `bin`",
        });
    }
    Ok(binaries)
}

/// What a file is by its name, `KERNEL.CLASS.RANKS`.
fn binary(path: &Path) -> Result<Binary, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ranks = ranks(&name).ok_or("it is not named as `ft.A.x` or `bt.S.16`")?;
    if ranks < 2 {
        return Err("it is built for one rank: two clusters need 2 at least".to_owned());
    }
    let mode = fs::metadata(path).map_err(|error| error.to_string())?;
    if !mode.is_file() || mode.permissions().mode() & 0o111 == 0 {
        return Err("it is no file that can be run".to_owned());
    }
    // Seen from wherever its ranks run.
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    Ok(Binary { path, name, ranks })
}

/// On how many ranks a binary of this name runs.
fn ranks(name: &str) -> Option<u32> {
    let parts: Vec<&str> = name.split('.').collect();
    let &[kernel, class, ranks] = parts.as_slice() else { return None };
    let is_known = KERNELS.contains(&kernel) && class.len() == 1 && CLASSES.contains(class);
    match ranks {
        _ if !is_known => None,
        "x" => Some(if SQUARE.contains(&kernel) { SQUARE_RANKS } else { RANKS }),
        number => number.parse().ok().filter(|ranks| *ranks > 0),
    }
}

/// What a benchmark says at its end, and its own verdict.
fn read(name: &str, said: &str) -> Result<Vec<Reading>, BenchError> {
    let wrong = |what: String| BenchError::Output(format!("{name}: {what}"));
    let value = |key: &str| {
        // What it says last is its result.
        let mut pairs = said.lines().rev().filter_map(|line| line.split_once('='));
        let found = pairs.find(|(known, _)| known.trim() == key);
        found.map(|(_, value)| value.trim()).ok_or_else(|| wrong(format!("it did not say `{key}`")))
    };
    let verdict = value("Verification")?;
    if verdict != "SUCCESSFUL" {
        return Err(wrong(format!("its verification is {verdict}")));
    }
    let number = |key: &str| {
        let text = value(key)?;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| wrong(format!("`{key}` is no number: {text}")))
    };
    let seconds = number("Time in seconds")?;
    let rate = number("Mop/s total")?;
    Ok(vec![Reading::seconds("", seconds), Reading::other(SPEED, rate)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(verdict: &str) -> String {
        format!(
            "\n\n A benchmark in the manner of NPB\n\n Size:  64x  64x  64\n iter    1\n\n FT Completed.\n \
             Class           =                        A\n Size            =              64x 64x 64\n \
             Time in seconds =                     1.25\n Total processes =                        8\n \
             Mop/s total     =                  5710.41\n Mop/s/process   =                   713.80\n \
             Operation type  =           floating point\n Verification    =               {verdict}\n"
        )
    }

    #[test]
    fn a_verified_result_is_read() {
        let found = read("ft.A.x", &text("SUCCESSFUL")).unwrap();
        assert_eq!(found, [Reading::seconds("", 1.25), Reading::other("Mop/s", 5710.41)]);
    }

    #[test]
    fn what_is_not_verified_is_an_error_that_names_the_binary() {
        let error = |said: &str| read("lu.W.16", said).unwrap_err().to_string();
        assert!(error(&text("UNSUCCESSFUL")).contains("lu.W.16: its verification is UNSUCCESSFUL"));
        assert!(error("").contains("lu.W.16: it did not say `Verification`"));
        let cut = text("SUCCESSFUL").replace("Time in seconds", "Time");
        assert!(error(&cut).contains("did not say `Time in seconds`"));
        assert!(
            error(&text("SUCCESSFUL").replace("5710.41", "NaN"))
                .contains("`Mop/s total` is no number")
        );
    }

    #[test]
    fn names_say_how_many_ranks() {
        assert_eq!(
            (ranks("ft.A.x"), ranks("bt.S.x"), ranks("bt.S.16")),
            (Some(8), Some(16), Some(16))
        );
        for name in
            ["ft.A", "xx.A.x", "ft.AA.x", "ft.A.y", "ft.A.0", "ft..x", "bt.A.x.ep_io", "README"]
        {
            assert_eq!(ranks(name), None, "{name}");
        }
    }

    #[test]
    fn an_empty_directory_is_an_error_with_the_remedy() {
        let directory =
            std::env::temp_dir().join(format!("gridmpi-npb-test-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("README"), "").unwrap();
        fs::write(directory.join("ft.A.1"), "").unwrap();
        let text = find(&directory).unwrap_err().to_string();
        assert!(text.contains("NAS") && text.contains("make ft CLASS=A"), "{text}");
        let file = directory.join("ft.A.x");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let found = find(&directory).unwrap();
        assert_eq!((found.len(), found[0].ranks), (1, 8));
        fs::remove_dir_all(&directory).unwrap();
        assert!(find(&directory).unwrap_err().to_string().contains("cannot read the directory"));
    }
}
