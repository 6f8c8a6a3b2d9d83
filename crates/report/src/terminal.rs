//! What commands print: results to the standard output, all else to the standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// Prints a result, at once.
///
/// # Errors
/// As [`unless_left`].
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    unless_left(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A reader that has seen enough of a result, as a pager does that is left early, is no failure.
///
/// # Errors
/// What else kept it from being `printed`.
pub fn unless_left(printed: io::Result<()>) -> io::Result<()> {
    printed.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// Tells the user something beside results, in one line. Nobody may be there to read it, or the disk be full.
pub fn tell(line: impl Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_left_may_miss_a_result() {
        assert!(unless_left(Err(ErrorKind::BrokenPipe.into())).is_ok());
        let full = unless_left(Err(ErrorKind::StorageFull.into()));
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
