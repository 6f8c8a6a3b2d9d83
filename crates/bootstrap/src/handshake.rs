//! The first bytes of a connection: both ends prove that they hold the job's key.
//!
//! Fixed-size messages, so that nothing a stranger sends is parsed, allocated for or waited on
//! beyond them; the magic comes first, so that noise is dropped on its first bytes.
//!
//! ```text
//! Hello      client → server   magic 8, version 2, role 1, 0, job 16, nonce 32
//! Challenge  server → client   magic 8, version 2, verdict 1, 0, nonce 32, tag 32
//! Proof      client → server   tag 32
//! ```
//! Tags are HMAC-SHA-256 under the job's key over a label, the Hello and the Challenge without its
//! tag; integers are little-endian. Each direction then gets its own session key, and every frame
//! after the handshake carries a tag (`channel`).

use crate::channel::{Channel, Timed};
use crate::secret::{JobId, JobKey, TAG_LEN};
use std::io;
use std::net::TcpStream;
use std::time::Instant;

/// Version of this protocol.
pub(crate) const VERSION: u16 = 2;
const MAGIC: &[u8; 8] = b"GMPI-RDV";
const NONCE_LEN: usize = 32;
pub(crate) const HELLO_LEN: usize = 60;
const CHALLENGE_LEN: usize = 44;

/// Who speaks to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Local rank 0 of a cluster.
    Rank,
    /// `gridmpi join`.
    Join,
    /// Any rank with a single message.
    Messenger,
    /// A process that measures a path; no coordinator takes it.
    Probe,
}

/// Why a handshake ended without a channel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("does not speak our protocol")]
    Noise,
    #[error("speaks version {0} of the protocol, not {VERSION}")]
    Version(u16),
    #[error("belongs to another job")]
    OtherJob,
    #[error("holds another key")]
    WrongKey,
}

impl HandshakeError {
    /// Whether the connection broke off.
    pub(crate) fn is_break(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() != io::ErrorKind::TimedOut)
    }
}

const VERDICT_GO_ON: u8 = 0;
const VERDICT_VERSION: u8 = 1;
const VERDICT_OTHER_JOB: u8 = 2;

impl Role {
    const fn code(self) -> u8 {
        match self {
            Self::Rank => 1,
            Self::Join => 2,
            Self::Messenger => 3,
            Self::Probe => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Rank),
            2 => Some(Self::Join),
            3 => Some(Self::Messenger),
            4 => Some(Self::Probe),
            _ => None,
        }
    }
}

/// The client's part.
pub(crate) fn connect(
    stream: TcpStream,
    role: Role,
    job: JobId,
    key: &JobKey,
    deadline: Instant,
) -> Result<Channel, HandshakeError> {
    let mut wire = Timed::new(&stream, deadline);
    let hello = hello(role, job)?;
    wire.write_all(&hello)?;
    let mut challenge = [0; CHALLENGE_LEN];
    read_magic(&mut wire, &mut challenge)?;
    parse_challenge(&challenge)?;
    let mut tag = [0; TAG_LEN];
    wire.read_exact(&mut tag)?;
    if !key.verify(&[b"server", &hello, &challenge], &tag) {
        // Tells the coordinator why we leave; a tag under our key would tell it more.
        let _ = wire.write_all(&[0; TAG_LEN]);
        return Err(HandshakeError::WrongKey);
    }
    wire.write_all(&key.tag(&[b"client", &hello, &challenge]))?;
    let out = session_key(key, b"to server", &hello, &challenge);
    let inward = session_key(key, b"to client", &hello, &challenge);
    Ok(Channel::new(stream, out, inward))
}

/// The coordinator's part. Returns who is at the other end.
pub(crate) fn accept(
    stream: TcpStream,
    job: JobId,
    key: &JobKey,
    deadline: Instant,
) -> Result<(Role, Channel), HandshakeError> {
    let mut wire = Timed::new(&stream, deadline);
    let mut hello = [0; HELLO_LEN];
    read_magic(&mut wire, &mut hello)?;
    let role = match parse_hello(&hello, job) {
        Ok(role) => role,
        Err(error) => {
            if let Some(verdict) = verdict(&error) {
                wire.write_all(&refusal(verdict))?;
            }
            return Err(error);
        }
    };
    let challenge = challenge(VERDICT_GO_ON, &nonce()?);
    wire.write_all(&challenge)?;
    wire.write_all(&key.tag(&[b"server", &hello, &challenge]))?;
    let mut proof = [0; TAG_LEN];
    wire.read_exact(&mut proof)?;
    if !key.verify(&[b"client", &hello, &challenge], &proof) {
        return Err(HandshakeError::WrongKey);
    }
    let out = session_key(key, b"to client", &hello, &challenge);
    let inward = session_key(key, b"to server", &hello, &challenge);
    Ok((role, Channel::new(stream, out, inward)))
}

/// Whether the server goes on.
fn parse_challenge(challenge: &[u8; CHALLENGE_LEN]) -> Result<(), HandshakeError> {
    let version = u16::from_le_bytes([challenge[8], challenge[9]]);
    match challenge[10] {
        _ if version != VERSION => Err(HandshakeError::Version(version)),
        VERDICT_GO_ON if challenge[11] == 0 => Ok(()),
        VERDICT_VERSION => Err(HandshakeError::Version(version)),
        VERDICT_OTHER_JOB => Err(HandshakeError::OtherJob),
        _ => Err(HandshakeError::Noise),
    }
}

/// What a client wants, if it is one of `job`.
pub(crate) fn parse_hello(hello: &[u8; HELLO_LEN], job: JobId) -> Result<Role, HandshakeError> {
    if hello[..8] != MAGIC[..] {
        return Err(HandshakeError::Noise);
    }
    let version = u16::from_le_bytes([hello[8], hello[9]]);
    if version != VERSION {
        return Err(HandshakeError::Version(version));
    }
    let role = Role::from_code(hello[10]).filter(|_| hello[11] == 0);
    let role = role.ok_or(HandshakeError::Noise)?;
    if hello[12..28] != job.0 {
        return Err(HandshakeError::OtherJob);
    }
    Ok(role)
}

/// What a client may be told before it has proved anything.
const fn verdict(error: &HandshakeError) -> Option<u8> {
    match error {
        HandshakeError::Version(_) => Some(VERDICT_VERSION),
        HandshakeError::OtherJob => Some(VERDICT_OTHER_JOB),
        _ => None,
    }
}

fn hello(role: Role, job: JobId) -> io::Result<[u8; HELLO_LEN]> {
    let mut hello = [0; HELLO_LEN];
    hello[..8].copy_from_slice(MAGIC);
    hello[8..10].copy_from_slice(&VERSION.to_le_bytes());
    hello[10] = role.code();
    hello[12..28].copy_from_slice(&job.0);
    hello[28..].copy_from_slice(&nonce()?);
    Ok(hello)
}

fn challenge(verdict: u8, nonce: &[u8; NONCE_LEN]) -> [u8; CHALLENGE_LEN] {
    let mut challenge = [0; CHALLENGE_LEN];
    challenge[..8].copy_from_slice(MAGIC);
    challenge[8..10].copy_from_slice(&VERSION.to_le_bytes());
    challenge[10] = verdict;
    challenge[12..].copy_from_slice(nonce);
    challenge
}

/// A challenge that proves nothing, for one who will not be let in anyway.
fn refusal(verdict: u8) -> [u8; CHALLENGE_LEN + TAG_LEN] {
    let mut whole = [0; CHALLENGE_LEN + TAG_LEN];
    whole[..CHALLENGE_LEN].copy_from_slice(&challenge(verdict, &[0; NONCE_LEN]));
    whole
}

/// Fills `message`, giving up on the first bytes that are not our magic.
fn read_magic(wire: &mut Timed<'_>, message: &mut [u8]) -> Result<(), HandshakeError> {
    let mut got = 0;
    while got < message.len() {
        got += wire.read_some(&mut message[got..])?;
        let known = got.min(MAGIC.len());
        if message[..known] != MAGIC[..known] {
            return Err(HandshakeError::Noise);
        }
    }
    Ok(())
}

fn nonce() -> io::Result<[u8; NONCE_LEN]> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|_| io::Error::other("the system has no random source"))?;
    Ok(nonce)
}

fn session_key(key: &JobKey, label: &[u8], hello: &[u8], challenge: &[u8]) -> JobKey {
    JobKey::from_bytes(key.tag(&[b"session", label, hello, challenge]))
}
