//! The join token: how it is handed over without showing in anybody's arguments.

use crate::private;
use gridmpi_bootstrap::Secret;
use gridmpi_bootstrap::env::TOKEN;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A token file that can be written, and is not there yet. Until then the token is in no file: nobody would remove that if this
/// process were killed.
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Beside its place, and never there for long.
    ready: PathBuf,
    secret: Secret,
}

impl TokenFile {
    /// Writes as much where nobody looks for it, which shows whether it can be written at all, and removes it again.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub(crate) fn prepare(path: &Path, secret: &Secret) -> Result<Self, String> {
        let name = path.file_name().filter(|_| !path.is_dir());
        let name = name.ok_or_else(|| cannot(path, io::ErrorKind::IsADirectory.into()))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let ready = path.with_file_name(hidden);
        let file = Self { path: path.to_owned(), ready, secret: secret.clone() };
        let nothing = "0".repeat(secret.reveal().len());
        let tried = file.write(&nothing).and_then(|()| std::fs::remove_file(&file.ready));
        tried.map_err(|error| cannot(path, error))?;
        Ok(file)
    }

    /// Puts the token into its place, as often as somebody is told of it. An existing file is replaced, as it may be open to others.
    ///
    /// # Errors
    /// As [`TokenFile::prepare`].
    pub(crate) fn publish(&self) -> Result<(), String> {
        let written = self.write(&self.secret.reveal());
        let done = written.and_then(|()| std::fs::rename(&self.ready, &self.path));
        done.map_err(|error| {
            // The token is not left lying about.
            let _ = std::fs::remove_file(&self.ready);
            cannot(&self.path, error)
        })
    }

    /// Writes the hidden file, which only its owner may read.
    fn write(&self, text: &str) -> io::Result<()> {
        // Left by one who was killed and had our number.
        match std::fs::remove_file(&self.ready) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.ready)?;
        let written = writeln!(file, "{text}");
        if written.is_err() {
            let _ = std::fs::remove_file(&self.ready);
        }
        written
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn cannot(path: &Path, error: io::Error) -> String {
    format!("cannot write the token file {}: {error}", path.display())
}

/// Writes the token into a file that only its owner may read. An existing file is replaced, as it
/// may be open to others.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn write(path: &Path, secret: &Secret) -> Result<(), String> {
    TokenFile::prepare(path, secret)?.publish()
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
    fn a_token_file_appears_when_it_is_published() {
        let directory = std::env::temp_dir().join(format!("gridmpi-tokens-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let entries = || std::fs::read_dir(&directory).unwrap().count();
        let (path, secret) = (directory.join("token"), Secret::random().unwrap());
        let file = TokenFile::prepare(&path, &secret).unwrap();
        assert_eq!(entries(), 0, "a killed process would leave it");
        file.publish().unwrap();
        file.publish().unwrap();
        assert_eq!((read(Some(&path)).unwrap().job(), entries()), (secret.job(), 1));
        for bad in [&directory, Path::new("/proc/none/token"), Path::new("/"), Path::new("")] {
            assert!(TokenFile::prepare(bad, &secret).is_err(), "{}", bad.display());
        }
        // What cannot be replaced after all leaves the token nowhere.
        let taken = TokenFile::prepare(&directory.join("taken"), &secret).unwrap();
        std::fs::create_dir(directory.join("taken")).unwrap();
        assert!(taken.publish().is_err());
        assert_eq!(entries(), 2);
        std::fs::remove_dir_all(&directory).unwrap();
    }

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
