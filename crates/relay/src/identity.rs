//! A relay's identity on disk: a certificate that it has signed itself, and its key.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use crate::secret::{SecretError, read_private, to_hex};
use crate::tls::Identity;

/// The file of the certificate in a relay's directory; anybody may read it.
pub const CERTIFICATE: &str = "relay.crt";

/// The file of the key; only the relay may read it.
pub const KEY: &str = "relay.key";

/// Why there is no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// There is none in the directory.
    #[error("no identity in {}: make one by `gridmpi relay init --directory {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    /// There is one already.
    #[error("{} is there already: other relays know this one by it; remove it to make another", .0.display())]
    Exists(PathBuf),
    /// There is a secret already.
    #[error("{} is there already: processes and relays that use it need it; remove it to make another", .0.display())]
    SecretExists(PathBuf),
    /// A file is not what it should be.
    #[error("{} holds no {what} in PEM form: make a new identity by `gridmpi relay init`", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
    },
    /// The key cannot be read, or by too many.
    #[error(transparent)]
    Key(#[from] SecretError),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
}

fn at(path: &Path) -> impl Fn(io::Error) -> IdentityError + '_ {
    move |error| IdentityError::Io { path: path.to_owned(), error }
}

impl Identity {
    /// A new one, in memory only.
    ///
    /// # Errors
    /// No random numbers.
    pub fn generate() -> Result<Self, IdentityError> {
        let (certificate, key) = make()?;
        let content = |what| IdentityError::Content { path: PathBuf::from("a new identity"), what };
        Ok(Self {
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes())
                .map_err(|_| content("certificate"))?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| content("key"))?,
        })
    }

    /// Makes one and writes it into a directory, which is made if it is not there.
    ///
    /// # Errors
    /// There is one already, or the files cannot be written.
    pub fn create(directory: &Path) -> Result<Self, IdentityError> {
        let (certificate_path, key_path) = (directory.join(CERTIFICATE), directory.join(KEY));
        if let Some(there) = [&certificate_path, &key_path].into_iter().find(|path| path.exists()) {
            return Err(IdentityError::Exists(there.clone()));
        }
        if !directory.exists() {
            fs::create_dir_all(directory).map_err(at(directory))?;
            fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(at(directory))?;
        }
        let (certificate, key) = make()?;
        write_new(&key_path, PRIVATE, &key).map_err(at(&key_path))?;
        write_new(&certificate_path, PUBLIC, &certificate).map_err(|error| {
            // Alone it is of no use, and stands in the way of the next attempt.
            let _ = fs::remove_file(&key_path);
            at(&certificate_path)(error)
        })?;
        Self::load(directory)
    }

    /// Reads the one in a directory.
    ///
    /// # Errors
    /// Names the file and the remedy.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let (certificate_path, key_path) = (directory.join(CERTIFICATE), directory.join(KEY));
        if !certificate_path.exists() && !key_path.exists() {
            return Err(IdentityError::Missing(directory.to_owned()));
        }
        let content = |path: &Path, what| IdentityError::Content { path: path.to_owned(), what };
        let text = fs::read(&certificate_path).map_err(at(&certificate_path))?;
        let certificate = CertificateDer::from_pem_slice(&text)
            .map_err(|_| content(&certificate_path, "certificate"))?;
        let text = read_private(&key_path)?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| content(&key_path, "key"))?;
        Ok(Self { certificate, key })
    }
}

/// A certificate and its key, as PEM.
fn make() -> Result<(String, String), IdentityError> {
    let made = rcgen::generate_simple_self_signed(vec!["relay.gridmpi.invalid".to_owned()])
        .map_err(|error| IdentityError::Make(error.to_string()))?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// The mode of a file that only its owner can read.
const PRIVATE: u32 = 0o600;

/// That of one for anybody, as far as the user's mask lets it.
const PUBLIC: u32 = 0o666;

/// Writes a new file. What cannot be written wholly is removed: it would stand in the way of the next attempt.
fn write_new(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Writes a new secret into a new file that only its owner can read.
///
/// # Errors
/// The file is there, or cannot be written.
pub fn create_secret(path: &Path) -> Result<(), IdentityError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| at(path)(io::Error::other(error)))?;
    match write_new(path, PRIVATE, &format!("{}\n", to_hex(&bytes))) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(IdentityError::SecretExists(path.to_owned()))
        }
        result => result.map_err(at(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_read_again_and_its_key_is_private() {
        let directory =
            std::env::temp_dir().join(format!("gridmpi-identity-{}", std::process::id()));
        let missing = Identity::load(&directory).unwrap_err().to_string();
        assert!(missing.contains("gridmpi relay init"), "{missing}");
        let made = Identity::create(&directory).unwrap();
        assert_eq!(Identity::load(&directory).unwrap().fingerprint(), made.fingerprint());
        assert!(matches!(Identity::create(&directory), Err(IdentityError::Exists(_))));
        let key = directory.join(KEY);
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Identity::load(&directory), Err(IdentityError::Key(_))));
        let secret = directory.join("token");
        create_secret(&secret).unwrap();
        crate::read_secret(&secret).unwrap();
        let said = create_secret(&secret).unwrap_err().to_string();
        assert!(said.contains("token is there already: processes and relays"), "{said}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
