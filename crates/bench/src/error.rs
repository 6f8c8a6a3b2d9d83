//! Why a figure was not measured.

use gridmpi_lab::error::LabError;
use std::time::Duration;

/// Why a figure was not measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something is not installed.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What.
        what: String,
        /// How to get it.
        remedy: &'static str,
    },
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program did not compile.
    #[error("{program} does not compile: {message}")]
    Compile {
        /// Its name.
        program: String,
        /// The compiler's complaint.
        message: String,
    },
    /// A command could not be started.
    #[error("cannot run {command}: {error}")]
    Start {
        /// The command.
        command: String,
        /// Why.
        error: std::io::Error,
    },
    /// A command failed.
    #[error("{command} ended with {code}: {message}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit code or signal.
        code: String,
        /// The end of what it said.
        message: String,
    },
    /// A command did not end in time.
    #[error("{command} did not end within {} s", limit.as_secs())]
    Late {
        /// The command.
        command: String,
        /// How long it had.
        limit: Duration,
    },
    /// The run's time is over.
    #[error("the time is over; run without --quick, or only this by --only")]
    NoTime,
    /// A program said something else than expected.
    #[error("{0}")]
    Output(String),
    /// A file.
    #[error("{what}: {error}")]
    File {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: std::io::Error,
    },
    /// Figures that were not seen.
    #[error("cannot write to the standard output: {0}")]
    Unprinted(std::io::Error),
}
