//! Files with secrets, which nobody but their owner may read.

use crate::shell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The most that is read of one.
const MAX_FILE: u64 = 4096;

/// Reads `what`, which is in such a file; pipes have no others who could read them.
///
/// # Errors
/// Names the file, and the remedy if others can read it.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot read the {what} file {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & 0o077 != 0 {
        let word = shell::word(&shown.to_string());
        return Err(format!(
            "the {what} file {shown} can be read by others (mode {mode:03o}): chmod 600 {word}"
        ));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
