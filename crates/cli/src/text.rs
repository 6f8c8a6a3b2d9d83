//! Files that users name and we read whole.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most that is read of one: nobody writes more by hand.
const MOST: u64 = 16 << 20;

/// Reads `what`, which is in such a file.
///
/// # Errors
/// Names the file. `instead` says what was meant, perhaps, where it is no such text.
pub(crate) fn read(path: &Path, what: &str, instead: &str) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read the {what} {shown}: {error}");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    match String::from_utf8(bytes) {
        Ok(text) if text.len() as u64 <= MOST => Ok(text),
        Ok(_) => Err(format!("{shown} is no {what}: it has more than {} MiB{instead}", MOST >> 20)),
        Err(error) if error.as_bytes().contains(&0) => {
            Err(format!("{shown} is no {what}: it is no text{instead}"))
        }
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            Err(format!(
                "cannot read the {what} {shown}: its byte {at} is not UTF-8; save it in that encoding"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_and_what_never_ends_is_named() {
        let said = |path: &str| read(Path::new(path), "job file", ". A hint").unwrap_err();
        let program = std::env::current_exe().unwrap();
        let told = said(&program.display().to_string());
        assert!(told.contains("is no job file: it") && told.ends_with(". A hint"), "{told}");
        assert_eq!(said("/dev/zero"), "/dev/zero is no job file: it has more than 16 MiB. A hint");
        let latin = std::env::temp_dir().join(format!("gridmpi-latin-{}", std::process::id()));
        std::fs::write(&latin, b"# f\xfcr b").unwrap();
        let told = said(latin.to_str().unwrap());
        std::fs::remove_file(&latin).unwrap();
        assert!(told.contains("its byte 3 is not UTF-8"), "{told}");
        assert!(said("/none").starts_with("cannot read the job file /none: "));
    }
}
