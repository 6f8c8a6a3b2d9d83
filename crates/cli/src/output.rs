//! What commands print.

use std::io::{ErrorKind, Write};

/// Prints a result. A reader that has seen enough of it, as a pager does that is left early, is no failure; what else keeps it from
/// being printed is said, and gives false.
pub(crate) fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    is_taken(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Whether what was printed so has gone where it should; says why not.
pub(crate) fn is_taken(printed: std::io::Result<()>) -> bool {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(format!("cannot write to the standard output: {error}"));
            false
        }
        _ => true,
    }
}

/// Tells the user something beside results.
pub(crate) fn complain(message: impl std::fmt::Display) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr().lock(), "gridmpi: {message}");
}
