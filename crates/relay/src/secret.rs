//! Secrets in files that only their owner can read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gridmpi_wire::JobKey;
use thiserror::Error;

/// Why a file with a secret is not used. Never repeats what is in it.
#[derive(Debug, Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others can read it.
    #[error("{} can be read by others (mode {mode:o}): chmod 600 {}", path.display(), path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not ours.
    #[error("{} belongs to user {owner}, not to the one that runs this: chown it", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It holds no secret.
    #[error("{} must hold 64 hexadecimal digits: gridmpi relay token {}", path.display(), path.display())]
    Digits {
        /// The file.
        path: PathBuf,
    },
}

/// The most that is read of a file.
const MOST: u64 = 4096;

/// Reads a file that only its owner can read.
pub(crate) fn read_private(path: &Path) -> Result<String, SecretError> {
    let io = |error| SecretError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(SecretError::Open { path: path.to_owned(), mode });
    }
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if metadata.is_file() && owner != us && us != 0 {
        return Err(SecretError::Foreign { path: path.to_owned(), owner });
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

/// The secret in a file: 64 hexadecimal digits, with white space around them.
///
/// # Errors
/// Names the file and the remedy.
pub fn read_secret(path: &Path) -> Result<JobKey, SecretError> {
    let text = read_private(path)?;
    let bytes = from_hex(text.trim()).ok_or_else(|| SecretError::Digits { path: path.to_owned() });
    Ok(JobKey::new(bytes?))
}

/// So many bytes in hexadecimal digits, and nothing else.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| pair.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_nothing_else() {
        assert_eq!(from_hex("00fF10"), Some([0, 255, 16]));
        for wrong in ["00fF1", "00fF1g", "00fF100", "+0fF10", ""] {
            assert_eq!(from_hex::<3>(wrong), None, "{wrong}");
        }
        assert_eq!(to_hex(&[0, 255]), "00ff");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let directory = std::env::temp_dir().join(format!("gridmpi-secret-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("token");
        std::fs::write(&path, format!("{}\n", "5a".repeat(32))).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        mode(0o600);
        assert_eq!(read_secret(&path).unwrap().token_id(), JobKey::new([0x5a; 32]).token_id());
        std::fs::write(&path, "5a5a").unwrap();
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal digits") && !error.contains("5a5a"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
