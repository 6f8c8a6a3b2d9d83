//! What commands print.

use crate::error::LabError;
use gridmpi_report::terminal;
pub(crate) use terminal::tell as log;

/// Prints a result.
///
/// # Errors
/// When it cannot be printed, unless its reader has left.
pub(crate) fn print(text: &str) -> Result<(), LabError> {
    terminal::print(text).map_err(LabError::Output)
}

/// Tells the user something beside results.
pub(crate) fn complain(message: impl std::fmt::Display) {
    log(format_args!("gridmpi lab: {message}"));
}
