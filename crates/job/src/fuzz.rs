//! Entry points for fuzzing: whatever files hold must end in a value or an error.

use std::io::Cursor;

/// A program's headers.
pub fn elf(bytes: &[u8]) {
    for class in [1, 2] {
        crate::elf::parse(Cursor::new(bytes), class);
    }
}

/// A job file.
pub fn job_file(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = crate::file::parse("fuzz", text);
    }
}
