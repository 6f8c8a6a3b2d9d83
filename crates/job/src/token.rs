//! The join token: how it is handed over without showing in anybody's arguments.

use crate::private;
use gridmpi_bootstrap::Secret;
use gridmpi_bootstrap::env::TOKEN;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes the token into a file that only its owner may read. An existing file is replaced, as it
/// may be open to others.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn write(path: &Path, secret: &Secret) -> Result<(), String> {
    let create = || -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", secret.reveal())
    };
    create().map_err(|error| format!("cannot write the token file {}: {error}", path.display()))
}

/// Reads the token from `file`, or from the environment.
///
/// # Errors
/// Says where the token is to be put. Never repeats what was read.
pub fn read(file: Option<&Path>) -> Result<Secret, String> {
    let (text, place) = match file {
        Some(path) => (private::read(path, "token")?, format!("the token file {}", path.display())),
        None => {
            let text = std::env::var(TOKEN).map_err(|_| {
                format!(
                    "no join token: set {TOKEN} to the token that the other side (`gridmpi run`, `gridmpi probe \
                     --listen`) printed, or name its file by --token-file"
                )
            })?;
            (text, format!("the environment variable {TOKEN}"))
        }
    };
    Secret::parse(&text).map_err(|error| format!("{place} holds no join token: it {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_file_is_private_and_read_back() {
        let path = std::env::temp_dir().join(format!("gridmpi-token-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let secret = Secret::random().unwrap();
        write(&path, &secret).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(Some(&path)).unwrap().job(), secret.job());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = read(Some(&path)).unwrap_err();
        assert!(error.contains("can be read by others (mode 640): chmod 600 /"), "{error}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, "not a token").unwrap();
        let error = read(Some(&path)).unwrap_err();
        assert!(error.contains("holds no join token") && !error.contains("not a token"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(read(Some(&path)).unwrap_err().contains("cannot read"));
    }
}
