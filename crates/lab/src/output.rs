//! What commands print.

use crate::error::LabError;
use std::io::{self, ErrorKind, Write as _};

/// Prints a result. A reader that has seen enough of it, as a pager does that is left early, is no failure.
///
/// # Errors
/// When something else keeps it from being printed.
pub(crate) fn print(text: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(LabError::Output(error)),
        _ => Ok(()),
    }
}

/// Tells the user something beside results.
pub(crate) fn complain(message: impl std::fmt::Display) {
    log(format_args!("gridmpi lab: {message}"));
}

/// Writes a line to the standard error.
pub(crate) fn log(line: impl std::fmt::Display) {
    // Nobody may be there to read it, or the disk be full.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
