//! The job's secret, and the identifier and key derived from it.
//!
//! One random secret stands behind a job. The ranks get the identifier and key by environment;
//! a cluster that joins by hand gets the secret itself as a token, and derives the same two, so that
//! nothing secret ever crosses the network.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// Bytes of a HMAC-SHA-256 tag.
pub(crate) const TAG_LEN: usize = 32;
const SECRET_LEN: usize = 16;

/// Identifies a job; no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId(pub [u8; 16]);

/// Proves membership of a job. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

/// What [`JobId`] and [`JobKey`] are derived from: the join token. Never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_LEN]);

/// Why a text is no identifier, key or token. Never repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {expected} hexadecimal digits, but has {got} characters or another character")]
pub struct SecretError {
    expected: usize,
    got: usize,
}

impl JobId {
    /// Reads 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        Ok(Self(from_hex(text)?))
    }
}

impl JobKey {
    /// Takes the key as it is.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key itself, for the connections between the ranks.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        Ok(Self(from_hex(text)?))
    }

    /// The 64 digits that [`JobKey::parse`] reads. For an environment only, never for an argument
    /// or a message.
    #[must_use]
    pub fn reveal(&self) -> String {
        to_hex(&self.0)
    }

    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_LEN] {
        mac(&self.0, parts).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub(crate) fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        mac(&self.0, parts).verify_slice(tag).is_ok()
    }
}

impl Secret {
    /// A new secret from the system's random source.
    ///
    /// # Errors
    /// When the system has no random source.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; SECRET_LEN];
        getrandom::fill(&mut bytes)
            .map_err(|_| std::io::Error::other("the system has no random source"))?;
        Ok(Self(bytes))
    }

    /// Reads a join token; white space around it does not matter.
    pub fn parse(token: &str) -> Result<Self, SecretError> {
        Ok(Self(from_hex(token.trim())?))
    }

    /// The token to hand to those who may join. For a file, an environment or the user's eyes.
    #[must_use]
    pub fn reveal(&self) -> String {
        to_hex(&self.0)
    }

    /// The job's public identifier.
    #[must_use]
    pub fn job(&self) -> JobId {
        let tag: [u8; TAG_LEN] = mac(&self.0, &[b"gridmpi job id"]).finalize().into_bytes().into();
        let mut id = [0; 16];
        id.copy_from_slice(&tag[..16]);
        JobId(id)
    }

    /// The job's key.
    #[must_use]
    pub fn key(&self) -> JobKey {
        JobKey(mac(&self.0, &[b"gridmpi job key"]).finalize().into_bytes().into())
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of any length (RFC 2104 §2), so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts every key length");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], SecretError> {
    let wrong = SecretError { expected: 2 * N, got: text.chars().count() };
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong)?;
    }
    Ok(bytes)
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(hidden)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_the_same_identifier_and_key_everywhere() {
        let secret = Secret::random().unwrap();
        let again = Secret::parse(&format!(" {}\n", secret.reveal())).unwrap();
        assert_eq!(secret.job(), again.job());
        assert_eq!(secret.key(), again.key());
        assert_eq!(JobKey::parse(&secret.key().reveal()).unwrap(), secret.key());
        assert_eq!(JobId::parse(&secret.job().to_string()).unwrap(), secret.job());
    }

    #[test]
    fn debug_output_hides_secrets() {
        let secret = Secret([0xab; SECRET_LEN]);
        let shown = format!("{secret:?} {:?}", secret.key());
        assert!(!shown.contains("abab") && !shown.contains(&secret.key().reveal()), "{shown}");
    }

    #[test]
    fn hexadecimal_of_the_wrong_length_or_alphabet_is_refused_without_repeating_it() {
        for text in ["", "00", "zz", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            let message = JobKey::parse(text).unwrap_err().to_string();
            assert!(text.len() < 3 || !message.contains(text));
        }
    }

    #[test]
    fn parts_of_a_tag_do_not_run_together() {
        let key = JobKey([7; 32]);
        assert_ne!(key.tag(&[b"ab", b"c"]), key.tag(&[b"a", b"bc"]));
    }
}
