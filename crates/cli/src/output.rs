//! What commands print.

use std::io::{ErrorKind, Write};

/// Prints a result. A reader that has seen enough of it, as a pager does that is left early, is no failure; what else keeps it from
/// being printed is said.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = printed
        && error.kind() != ErrorKind::BrokenPipe
    {
        complain(format!("cannot write to the standard output: {error}"));
    }
}

/// Tells the user something beside results.
pub(crate) fn complain(message: impl std::fmt::Display) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr().lock(), "gridmpi: {message}");
}
