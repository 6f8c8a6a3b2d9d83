//! Proof that a peer knows the job's key, without showing it.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Bytes of a [`Mac`].
pub const MAC_LEN: usize = 32;

/// An HMAC-SHA256 tag as it crosses the wire. Compare only through [`JobKey::verify`], which takes
/// the same time whatever differs.
pub type Mac = [u8; MAC_LEN];

/// What a tag vouches for. Each is made over its own label, so that none can pass for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The listener's answer to a hello.
    Challenge,
    /// The dialer's answer to the challenge.
    Proof,
    /// The listener's last word.
    Welcome,
    /// Not a tag: what the key of the job's certificate authority is made from.
    Authority,
    /// A relay token's name.
    TokenId,
    /// A relay's answer to a process's hello.
    LegChallenge,
    /// The process's answer to it.
    LegRequest,
    /// The relay's last word.
    LegAnswer,
    /// A relay that has dialled another one, without TLS.
    TrunkDialer,
    /// The other one.
    TrunkListener,
}

impl Role {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Challenge => b"gridmpi challenge",
            Self::Proof => b"gridmpi proof",
            Self::Welcome => b"gridmpi welcome",
            Self::Authority => b"gridmpi authority",
            Self::TokenId => b"gridmpi token id",
            Self::LegChallenge => b"gridmpi leg challenge",
            Self::LegRequest => b"gridmpi leg request",
            Self::LegAnswer => b"gridmpi leg answer",
            Self::TrunkDialer => b"gridmpi trunk dialer",
            Self::TrunkListener => b"gridmpi trunk listener",
        }
    }
}

/// The secret that every process of a job shares. Never shown by `Debug`.
#[derive(Clone)]
pub struct JobKey([u8; 32]);

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

impl JobKey {
    /// The key with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A tag over `parts`. Each part's length is covered too, so that two lists of parts with the
    /// same concatenation have different tags.
    #[must_use]
    pub fn sign(&self, role: Role, parts: &[&[u8]]) -> Mac {
        self.over(role, parts).finalize().into_bytes().into()
    }

    /// Whether `mac` is [`Self::sign`] of the same arguments, compared in constant time.
    #[must_use]
    pub fn verify(&self, role: Role, parts: &[&[u8]], mac: &Mac) -> bool {
        self.over(role, parts).verify_slice(mac).is_ok()
    }

    fn over(&self, role: Role, parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC takes keys of every length, so this cannot fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key length is valid");
        for part in std::iter::once(&role.label()).chain(parts) {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}
