//! Real programs, unmodified, in every mode: a table of them, each with how it is run and how its figure is read.

mod found;
mod hpcc;
mod imb;
pub(crate) mod own;
pub(super) mod trial;

use crate::error::BenchError;
use crate::figure::Figure;
use crate::programs::Mpi;
use crate::samples::Samples;
use crate::session::Session;
use gridmpi_report::terminal::tell;
use std::path::PathBuf;
use trial::{Enough, OF_ALL, Peers, Reading, Trial, WITHOUT_COLLISIONS};

/// Ranks in each cluster, a node each.
const RANKS: u32 = 4;

/// How a program is started.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Compiled here, from the bench's own sources.
    Compiled(&'static str),
    /// By the Python that has mpi4py and numpy.
    Python(&'static str, &'static str),
    /// Intel's benchmarks, by Intel's MPI.
    Imb,
    /// On the search path; it reads the first file and writes the second, and has done what is wanted with that text.
    Installed {
        command: &'static str,
        reads: (&'static str, &'static str),
        writes: &'static str,
        enough: &'static str,
    },
}

/// Reads what a program with these arguments has said.
type Read = fn(&[&str], &str) -> Result<Vec<Reading>, BenchError>;

struct Program {
    name: &'static str,
    how: How,
    arguments: &'static [&'static str],
    read: Read,
    peers: Peers,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "IMB Alltoall, 64 KiB",
        how: How::Imb,
        arguments: &["Alltoall", "-msglog", "16:16"],
        read: imb::read,
        peers: OF_ALL,
    },
    Program {
        name: "IMB Allgather, 64 KiB",
        how: How::Imb,
        arguments: &["Allgather", "-msglog", "16:16"],
        read: imb::read,
        peers: OF_ALL,
    },
    Program {
        name: "IMB Exchange, 256 KiB",
        how: How::Imb,
        arguments: &["Exchange", "-msglog", "18:18"],
        read: imb::read,
        peers: OF_ALL,
    },
    Program {
        name: "IMB Bcast, 256 KiB",
        how: How::Imb,
        arguments: &["Bcast", "-msglog", "18:18"],
        read: imb::read,
        peers: OF_ALL,
    },
    Program {
        name: "hpcc",
        how: How::Installed {
            command: "hpcc",
            reads: ("hpccinf.txt", hpcc::INPUT),
            writes: "hpccoutf.txt",
            enough: hpcc::ENOUGH,
        },
        arguments: &[],
        read: hpcc::read,
        peers: OF_ALL,
    },
    Program {
        name: "FFT in Python, 512 × 512",
        how: How::Python("transpose.py", include_str!("../../../programs/transpose.py")),
        arguments: &["512", "4"],
        read: seconds,
        peers: OF_ALL,
    },
    Program {
        name: "halo, rows of 128 KiB",
        how: How::Compiled("halo"),
        arguments: &["8", "16384", "40"],
        read: seconds,
        peers: OF_ALL,
    },
    Program {
        name: "one pair, 16 × 512 KiB",
        how: How::Compiled("stream"),
        arguments: &["524288", "16", "1"],
        read: seconds,
        peers: WITHOUT_COLLISIONS,
    },
    Program {
        name: "pipeline, 64 × 16 KiB",
        how: How::Compiled("pipeline"),
        arguments: &["16384", "64"],
        read: seconds,
        peers: WITHOUT_COLLISIONS,
    },
];

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for program in wanted(session.wishes.program.as_deref())? {
        session.until()?;
        match run(session, program) {
            Ok(found) => figures.extend(found),
            Err(error) => {
                session.has_gaps = true;
                tell(format_args!("gridmpi bench: {}: not measured: {error}", program.name));
            }
        }
    }
    Ok(figures)
}

/// Those whose names contain the text.
fn wanted(text: Option<&str>) -> Result<Vec<&'static Program>, BenchError> {
    let is_wanted = |program: &&Program| text.is_none_or(|text| program.name.contains(text));
    let wanted: Vec<_> = PROGRAMS.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        let message = format!("no program has that in its name: {}", known.join("; "));
        return Err(BenchError::Output(message));
    }
    Ok(wanted)
}

/// What a program needs, made ready.
struct Ready {
    mpi: Mpi,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
    /// Where it writes, and what that holds when it has done enough.
    writes: Option<(PathBuf, &'static str)>,
}

fn run(session: &mut Session, program: &Program) -> Result<Vec<Figure>, BenchError> {
    tell(format_args!("gridmpi bench: programs: {}", program.name));
    let ready = prepare(session, program)?;
    let enough = ready.writes.as_ref().map(|(file, text)| Enough { file, text });
    let trial = Trial {
        name: program.name,
        mpi: ready.mpi,
        program: &ready.program,
        arguments: &ready.arguments,
        ranks: [RANKS; 2],
        variables: &ready.variables,
        directory: ready.directory.as_deref(),
        enough,
        read: &|said, _| (program.read)(program.arguments, said),
        peers: program.peers,
    };
    Ok(trial::measure(session, &trial))
}

fn prepare(session: &Session, program: &Program) -> Result<Ready, BenchError> {
    let mut ready = Ready {
        mpi: session.mpi.clone(),
        program: PathBuf::new(),
        arguments: program.arguments.iter().map(|word| (*word).to_owned()).collect(),
        variables: Vec::new(),
        directory: None,
        writes: None,
    };
    match program.how {
        How::Compiled(name) => ready.program = session.program(name)?,
        How::Python(name, text) => {
            ready.program = found::python()?;
            let file = session.files().write(name, text)?;
            ready.arguments.insert(0, file.display().to_string());
            // Ranks outnumber the cores.
            ready.variables = vec![("OPENBLAS_NUM_THREADS", "1".to_owned())];
        }
        How::Imb => {
            let intel = found::intel()?;
            ready.arguments.extend(imb::arguments(2 * RANKS));
            (ready.program, ready.mpi, ready.variables) =
                (intel.benchmarks, intel.mpi, intel.variables);
        }
        How::Installed { command, reads: (file, text), writes, enough } => {
            ready.program = found::installed(command)?;
            let input = session.files().write(&format!("{command}/{file}"), text)?;
            let directory = input.parent().map(PathBuf::from).unwrap_or_default();
            ready.writes = Some((directory.join(writes), enough));
            ready.directory = Some(directory);
        }
    }
    Ok(ready)
}

/// Of the bench's own programs, which end with an error where data is wrong.
fn seconds(_arguments: &[&str], said: &str) -> Result<Vec<Reading>, BenchError> {
    let samples = Samples::parse(said);
    Ok(vec![Reading::seconds("", samples.get("seconds")?[0])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_chosen_by_name() {
        assert_eq!(wanted(Some("IMB")).unwrap().len(), 4);
        assert_eq!(wanted(None).unwrap().len(), PROGRAMS.len());
        assert!(wanted(Some("no such")).is_err_and(|error| error.to_string().contains("hpcc")));
    }

    #[test]
    fn a_program_that_says_nothing_is_an_error() {
        assert_eq!(seconds(&[], "@seconds 0.5\n").unwrap(), [Reading::seconds("", 0.5)]);
        assert!(PROGRAMS.iter().all(|program| (program.read)(program.arguments, "").is_err()));
    }
}
