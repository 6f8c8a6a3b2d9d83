//! How two relays meet, before cells: `TrunkHello`, and where there is no TLS a proof that both know the secret. Without I/O.
//! Specified in `docs/relay.md`.

use gridmpi_wire::{JobKey, Nonce, Role, TokenId};
use thiserror::Error;

use crate::cell::RelayId;
use crate::config::MOST_CONNECTIONS;

/// The first bytes of a connection between relays.
pub(crate) const TRUNK_MAGIC: [u8; 8] = *b"\x8aGridTrk";

/// The only version of the protocol between relays so far.
const VERSION: u16 = 1;

/// Bytes of a hello.
pub(crate) const HELLO: usize = 8 + 2 + 2 + 16 + 16 + 32;

/// Bytes of a proof.
const PROOF: usize = 32;

/// Why two relays did not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GreetError {
    /// Not our protocol.
    #[error("the other side does not speak the protocol of GridMPI's relays")]
    Magic,
    /// Versions without an overlap.
    #[error(
        "the other relay runs another version of GridMPI (it speaks {0} to {1} of the relays' protocol, this one 1)"
    )]
    Version(u16, u16),
    /// It names a secret that is not ours.
    #[error("the other relay proves another secret: both need the same `secret_file`")]
    Secret,
    /// The proof is wrong.
    #[error("the other relay does not know the secret that it names")]
    NotGenuine,
    /// It says that it is somebody else than its certificate says.
    #[error("the other relay is not the one that its certificate names")]
    Name,
    /// It was in the settings when it began, and is not any more.
    #[error("the other relay is no longer in the settings")]
    Unknown,
    /// It has made as many connections as it may.
    #[error(
        "the other relay has made {} connections already, and may not have more",
        MOST_CONNECTIONS
    )]
    TooMany,
    /// It is ourselves.
    #[error("this is the relay itself: an `address` of a [[peer]] leads back here")]
    Itself,
}

/// What proves the other side.
#[derive(Clone, Debug)]
pub(crate) enum Means {
    /// TLS has done it: it must be the relay of this name.
    Tls(RelayId),
    /// One of these secrets; the dialler has only one.
    Secrets(Vec<JobKey>),
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Hello,
    Proof { theirs: [u8; HELLO] },
    Done,
}

/// A meeting under way.
#[derive(Debug)]
pub(crate) struct Greeting {
    is_dialer: bool,
    me: RelayId,
    ours: [u8; HELLO],
    means: Means,
    secret: Option<JobKey>,
    stage: Stage,
    bytes: [u8; HELLO],
    have: usize,
}

/// What comes of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GreetStep {
    More,
    /// Done: this is the other relay. Cells follow.
    Met {
        peer: RelayId,
        secret: Option<TokenId>,
    },
}

impl Greeting {
    /// We have dialled: send the bytes that are put into `out`, here and later. `nonce` must be fresh.
    pub(crate) fn dial(me: RelayId, means: Means, nonce: Nonce, out: &mut Vec<u8>) -> Self {
        let secret = match &means {
            Means::Secrets(secrets) => secrets.first().cloned(),
            Means::Tls(_) => None,
        };
        let name = secret.as_ref().map(JobKey::token_id).unwrap_or_default();
        let ours = hello(me, name, nonce);
        out.extend_from_slice(&ours);
        Self {
            is_dialer: true,
            me,
            ours,
            means,
            secret,
            stage: Stage::Hello,
            bytes: [0; HELLO],
            have: 0,
        }
    }

    /// We were dialled.
    pub(crate) fn answer(me: RelayId, means: Means, nonce: Nonce) -> Self {
        let ours = hello(me, TokenId::default(), nonce);
        Self {
            is_dialer: false,
            me,
            ours,
            means,
            secret: None,
            stage: Stage::Hello,
            bytes: [0; HELLO],
            have: 0,
        }
    }

    /// How many bytes are due at most; what follows them is not the meeting's.
    pub(crate) fn due(&self) -> usize {
        self.due_in_all() - self.have
    }

    fn due_in_all(&self) -> usize {
        match self.stage {
            Stage::Hello => HELLO,
            Stage::Proof { .. } => PROOF,
            Stage::Done => 0,
        }
    }

    /// At most as many bytes as are due.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<GreetStep, GreetError> {
        let count = bytes.len().min(self.due());
        self.bytes[self.have..self.have + count].copy_from_slice(&bytes[..count]);
        self.have += count;
        if let Stage::Hello = self.stage {
            let compared = self.have.min(TRUNK_MAGIC.len());
            if self.bytes[..compared] != TRUNK_MAGIC[..compared] {
                return Err(GreetError::Magic);
            }
        }
        if self.due() > 0 {
            return Ok(GreetStep::More);
        }
        self.have = 0;
        match self.stage {
            Stage::Hello => self.read_hello(out),
            Stage::Proof { theirs } => self.read_proof(&theirs, out),
            Stage::Done => Ok(GreetStep::More),
        }
    }

    fn read_hello(&mut self, out: &mut Vec<u8>) -> Result<GreetStep, GreetError> {
        let theirs = self.bytes;
        let number = |at: usize| u16::from_le_bytes([theirs[at], theirs[at + 1]]);
        let (least, most) = (number(8), number(10));
        if least > VERSION || most < VERSION {
            return Err(GreetError::Version(least, most));
        }
        let peer = name_of(&theirs);
        if peer == self.me {
            return Err(GreetError::Itself);
        }
        match &self.means {
            Means::Tls(expected) => {
                if peer != *expected {
                    return Err(GreetError::Name);
                }
                if !self.is_dialer {
                    out.extend_from_slice(&self.ours);
                }
                self.stage = Stage::Done;
                return Ok(GreetStep::Met { peer, secret: None });
            }
            Means::Secrets(secrets) => {
                let wanted = &theirs[28..44];
                let found = secrets.iter().find(|secret| secret.token_id() == wanted);
                let secret = found.ok_or(GreetError::Secret)?.clone();
                if !self.is_dialer {
                    self.ours[28..44].copy_from_slice(wanted);
                    out.extend_from_slice(&self.ours);
                    out.extend_from_slice(&self.tag(&secret, &theirs, false));
                }
                self.secret = Some(secret);
            }
        }
        self.stage = Stage::Proof { theirs };
        Ok(GreetStep::More)
    }

    fn read_proof(
        &mut self,
        theirs: &[u8; HELLO],
        out: &mut Vec<u8>,
    ) -> Result<GreetStep, GreetError> {
        let secret = self.secret.clone().ok_or(GreetError::Secret)?;
        let mut tag = [0; PROOF];
        tag.copy_from_slice(&self.bytes[..PROOF]);
        let (role, parts) = self.signed(theirs, !self.is_dialer);
        if !secret.verify(role, &parts, &tag) {
            return Err(GreetError::NotGenuine);
        }
        if self.is_dialer {
            out.extend_from_slice(&self.tag(&secret, theirs, true));
        }
        self.stage = Stage::Done;
        Ok(GreetStep::Met { peer: name_of(theirs), secret: Some(secret.token_id()) })
    }

    /// What the dialler, or the other, signs: its role and both hellos.
    fn signed<'a>(&'a self, theirs: &'a [u8; HELLO], by_dialer: bool) -> (Role, [&'a [u8]; 2]) {
        let (dialer, other) =
            if self.is_dialer { (&self.ours, theirs) } else { (theirs, &self.ours) };
        let role = if by_dialer { Role::TrunkDialer } else { Role::TrunkListener };
        (role, [dialer, other])
    }

    fn tag(&self, secret: &JobKey, theirs: &[u8; HELLO], by_dialer: bool) -> [u8; PROOF] {
        let (role, parts) = self.signed(theirs, by_dialer);
        secret.sign(role, &parts)
    }
}

fn hello(me: RelayId, secret: TokenId, nonce: Nonce) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..8].copy_from_slice(&TRUNK_MAGIC);
    hello[8..10].copy_from_slice(&VERSION.to_le_bytes());
    hello[10..12].copy_from_slice(&VERSION.to_le_bytes());
    hello[12..28].copy_from_slice(&me.0);
    hello[28..44].copy_from_slice(&secret);
    hello[44..].copy_from_slice(&nonce);
    hello
}

fn name_of(hello: &[u8; HELLO]) -> RelayId {
    let mut name = [0; 16];
    name.copy_from_slice(&hello[12..28]);
    RelayId(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RelayId = RelayId([1; 16]);
    const B: RelayId = RelayId([2; 16]);

    fn key(n: u8) -> JobKey {
        JobKey::new([n; 32])
    }

    #[test]
    fn those_who_know_the_secret_meet_and_no_others() {
        let secrets = |n| Means::Secrets(vec![key(n)]);
        let [a, b] = meet(secrets(1), Means::Secrets(vec![key(9), key(1)]));
        assert_eq!(a, Ok(GreetStep::Met { peer: B, secret: Some(key(1).token_id()) }));
        assert_eq!(b, Ok(GreetStep::Met { peer: A, secret: Some(key(1).token_id()) }));
        let [_, b] = meet(secrets(1), secrets(2));
        assert_eq!(b, Err(GreetError::Secret));
    }

    /// Lets two meet; what each makes of it.
    fn meet(dialer: Means, other: Means) -> [Result<GreetStep, GreetError>; 2] {
        let mut to_other = Vec::new();
        let mut a = Greeting::dial(A, dialer, [1; 32], &mut to_other);
        let mut b = Greeting::answer(B, other, [2; 32]);
        let (mut met_a, mut met_b) = (Ok(GreetStep::More), Ok(GreetStep::More));
        let mut to_dialer = Vec::new();
        while !to_other.is_empty() || !to_dialer.is_empty() {
            for byte in std::mem::take(&mut to_other) {
                if met_b == Ok(GreetStep::More) {
                    met_b = b.read(&[byte], &mut to_dialer);
                }
            }
            for byte in std::mem::take(&mut to_dialer) {
                if met_a == Ok(GreetStep::More) {
                    met_a = a.read(&[byte], &mut to_other);
                }
            }
        }
        [met_a, met_b]
    }

    #[test]
    fn what_was_heard_proves_nothing_elsewhere() {
        // Somebody who only repeats what the dialler said to him, as if he had dialled it.
        let mut said = Vec::new();
        let mut dialer = Greeting::dial(A, Means::Secrets(vec![key(1)]), [1; 32], &mut said);
        let mut other = Greeting::answer(B, Means::Secrets(vec![key(1)]), [2; 32]);
        let mut answer = Vec::new();
        assert_eq!(other.read(&said, &mut answer), Ok(GreetStep::More));
        let (hello, proof) = answer.split_at(HELLO);
        let mut out = Vec::new();
        assert_eq!(dialer.read(hello, &mut out), Ok(GreetStep::More));
        // The listener's own tag, sent back to it.
        assert_eq!(other.read(proof, &mut out), Err(GreetError::NotGenuine));
        assert!(matches!(dialer.read(proof, &mut out), Ok(GreetStep::Met { .. })));
    }

    #[test]
    fn tls_needs_the_name_that_the_certificate_has() {
        let [a, b] = meet(Means::Tls(B), Means::Tls(A));
        assert_eq!(a, Ok(GreetStep::Met { peer: B, secret: None }));
        assert_eq!(b, Ok(GreetStep::Met { peer: A, secret: None }));
        let [_, b] = meet(Means::Tls(B), Means::Tls(RelayId([3; 16])));
        assert_eq!(b, Err(GreetError::Name));
    }
}
