//! What is checked in is what the generators write.

mod common;

use gridmpi_apigen::{Table, api_dir, emit};
use std::process::Command;

#[test]
fn coverage_is_up_to_date() {
    let written = std::fs::read_to_string(common::root().join("docs/coverage.md")).unwrap();
    let fresh = emit::coverage::markdown(&Table::load(&api_dir()).unwrap());
    assert!(
        written == fresh,
        "run: cargo run -p gridmpi-apigen --bin apigen coverage > docs/coverage.md"
    );
}

/// Only where the package with the standard's facts is installed; it is needed to move to a newer standard, not to build.
#[test]
fn standard_is_up_to_date() {
    let has_package = Command::new("python3").args(["-c", "import pympistandard"]).output();
    if !has_package.is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: the Python package pympistandard is not installed");
        return;
    }
    compare("extract-standard", "standard.json");
}

#[test]
fn extensions_are_up_to_date() {
    compare("extract-extensions", "extensions.json");
}

/// Runs a tool that writes a file of `api/`, elsewhere.
fn compare(tool: &str, file: &str) {
    let fresh = common::scratch("regenerate").join(file);
    let run = Command::new(common::root().join("tools").join(tool)).arg(&fresh).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (written, fresh) = (std::fs::read(api_dir().join(file)), std::fs::read(fresh));
    assert!(written.unwrap() == fresh.unwrap(), "run tools/{tool}");
}
