//! What commands print.

use gridmpi_report::terminal;

/// Prints a result. That it cannot be printed is said, and gives false.
pub(crate) fn print(text: &str) -> bool {
    is_taken(terminal::print(text))
}

/// Whether what was printed so has gone where it should; says why not.
pub(crate) fn is_taken(printed: std::io::Result<()>) -> bool {
    let printed = terminal::unless_left(printed);
    printed
        .map_err(|error| complain(format!("cannot write to the standard output: {error}")))
        .is_ok()
}

/// Tells the user something beside results.
pub(crate) fn complain(message: impl std::fmt::Display) {
    terminal::tell(format_args!("gridmpi: {message}"));
}
