//! A program of the user's own.

use super::found;
use super::trial::{self, MOST_NODES, OF_ALL, Reading, Trial};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::samples::Samples;
use crate::session::Session;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// As the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// A file, or a command of the search path.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<String>,
    /// Its ranks, 2 at least: one half in each cluster.
    pub ranks: u32,
}

pub(crate) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let Some(Own { program, arguments, ranks }) = session.wishes.own.clone() else {
        return Err(BenchError::Output("which program is not said: --run PROGRAM".to_owned()));
    };
    let here = std::env::current_dir();
    let here = here.map_err(|error| BenchError::File {
        what: "cannot tell where this is".to_owned(),
        error,
    })?;
    let path = path_of(&program)?;
    let words = program.file_name().into_iter().map(|name| name.to_string_lossy().into_owned());
    let name: Vec<_> = words.chain(arguments.iter().cloned()).collect();
    if !fills_nodes(ranks) {
        let message = format!(
            "--ranks {ranks}: nodes are to have as many ranks each as others: name an even number up to 16, or a multiple of 16"
        );
        return Err(BenchError::Output(message));
    }
    let trial = Trial {
        name: &name.join(" "),
        mpi: session.mpi.clone(),
        program: &path,
        arguments: &arguments,
        ranks: [ranks / 2; 2],
        variables: &[],
        directory: Some(&here),
        enough: None,
        read: &read,
        peers: OF_ALL,
    };
    Ok(trial::measure(session, &trial))
}

/// Seen from wherever its ranks run.
fn path_of(program: &Path) -> Result<PathBuf, BenchError> {
    if program.components().count() == 1 && !program.is_file() {
        return found::installed(&program.to_string_lossy());
    }
    // By the name it was given: programs go by it, as Python does by its environment.
    let found = std::fs::metadata(program).and_then(|_| std::path::absolute(program));
    found.map_err(|error| {
        let what = format!("cannot find the program {}", program.display());
        BenchError::File { what, error }
    })
}

/// Whether as many ranks run on each node of both clusters.
const fn fills_nodes(ranks: u32) -> bool {
    let all = 2 * MOST_NODES;
    ranks.is_multiple_of(2) && (ranks <= all || ranks.is_multiple_of(all))
}

/// The time that it says itself, or that its run has taken, launching included.
fn read(said: &str, took: Duration) -> Result<Vec<Reading>, BenchError> {
    let samples = Samples::parse(said);
    let own = samples.get("seconds").ok().and_then(|values| values.last().copied());
    let seconds = own.unwrap_or(took.as_secs_f64());
    Ok(vec![Reading::seconds(if own.is_some() { "" } else { "(the whole run)" }, seconds)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_time_counts_before_that_of_the_run() {
        let took = Duration::from_millis(2500);
        let value = |said| read(said, took).unwrap()[0].value;
        assert_eq!([value(""), value("@seconds 0.5\n"), value("@seconds x\n")], [2.5, 0.5, 2.5]);
    }

    #[test]
    fn nodes_have_as_many_ranks_each() {
        let fit = [2, 3, 8, 9, 16, 18, 20, 32, 64].map(fills_nodes);
        assert_eq!(fit, [true, false, true, false, true, false, false, true, true]);
    }

    #[test]
    fn a_program_is_a_file_or_a_command() {
        assert!(path_of(Path::new("sh")).unwrap().is_absolute());
        let missing = path_of(Path::new("./no such program")).unwrap_err().to_string();
        assert!(missing.contains("no such program"), "{missing}");
        assert!(path_of(Path::new("no-such-command")).is_err());
    }
}
