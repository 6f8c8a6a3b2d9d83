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
use gridmpi_wire::Inbox;
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
    /// A client that said whom it wants and did not prove that it may: it may have found another way.
    #[error("left before it had proven itself")]
    Left,
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

/// The client's part, without I/O: a connection was made, and [`Self::hello`] sent.
pub(crate) struct Greeting {
    hello: [u8; HELLO_LEN],
    inbox: Inbox<CHALLENGE_LEN>,
    /// What has come; its tag is due.
    challenge: Option<[u8; CHALLENGE_LEN]>,
}

/// What a client does next.
pub(crate) enum Met {
    /// Read on.
    More,
    /// The other end has proved the key: send this, and the connection is good for a [`Channel`] with these keys.
    Proven { proof: [u8; TAG_LEN], out: JobKey, inward: JobKey },
}

/// What a client sends before it leaves a server with another key. A tag under our own would tell it more.
pub(crate) const FAREWELL: [u8; TAG_LEN] = [0; TAG_LEN];

impl Greeting {
    pub(crate) fn new(role: Role, job: JobId) -> io::Result<Self> {
        Ok(Self { hello: hello(role, job)?, inbox: Inbox::new(CHALLENGE_LEN), challenge: None })
    }

    /// What is sent first.
    pub(crate) const fn hello(&self) -> &[u8; HELLO_LEN] {
        &self.hello
    }

    /// Where to read to, and at most how much; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// So many bytes were read into [`Self::space`].
    pub(crate) fn read(&mut self, count: usize, key: &JobKey) -> Result<Met, HandshakeError> {
        let Some(challenge) = self.challenge else {
            if let Some(challenge) = self.inbox.filled(count) {
                parse_challenge(&challenge)?;
                self.challenge = Some(challenge);
                self.inbox = Inbox::new(TAG_LEN);
            } else {
                self.inbox.check_magic(MAGIC).map_err(|_| HandshakeError::Noise)?;
            }
            return Ok(Met::More);
        };
        let Some(tag) = self.inbox.filled::<TAG_LEN>(count) else { return Ok(Met::More) };
        if !key.verify(&[b"server", &self.hello, &challenge], &tag) {
            return Err(HandshakeError::WrongKey);
        }
        let proof = key.tag(&[b"client", &self.hello, &challenge]);
        let out = session_key(key, b"to server", &self.hello, &challenge);
        let inward = session_key(key, b"to client", &self.hello, &challenge);
        Ok(Met::Proven { proof, out, inward })
    }
}

/// The client's part on a connection of its own, waiting for the other end.
pub(crate) fn connect(
    stream: TcpStream,
    role: Role,
    job: JobId,
    key: &JobKey,
    deadline: Instant,
) -> Result<Channel, HandshakeError> {
    let mut wire = Timed::new(&stream, deadline);
    let mut greeting = Greeting::new(role, job)?;
    wire.write_all(greeting.hello())?;
    loop {
        let count = wire.read_some(greeting.space())?;
        match greeting.read(count, key) {
            Ok(Met::More) => {}
            Ok(Met::Proven { proof, out, inward }) => {
                wire.write_all(&proof)?;
                return Ok(Channel::new(stream, out, inward));
            }
            Err(error) => {
                if matches!(error, HandshakeError::WrongKey) {
                    let _ = wire.write_all(&FAREWELL);
                }
                return Err(error);
            }
        }
    }
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
    let mut ours = [0; CHALLENGE_LEN + TAG_LEN];
    ours[..CHALLENGE_LEN].copy_from_slice(&challenge);
    ours[CHALLENGE_LEN..].copy_from_slice(&key.tag(&[b"server", &hello, &challenge]));
    let left = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => HandshakeError::Io(error),
        _ => HandshakeError::Left,
    };
    wire.write_all(&ours).map_err(left)?;
    let mut proof = [0; TAG_LEN];
    wire.read_exact(&mut proof).map_err(left)?;
    if !key.verify(&[b"client", &hello, &challenge], &proof) {
        return Err(HandshakeError::WrongKey);
    }
    let out = session_key(key, b"to client", &hello, &challenge);
    let inward = session_key(key, b"to server", &hello, &challenge);
    Ok((role, Channel::new(stream, out, inward)))
}

/// Whether the server goes on.
fn parse_challenge(challenge: &[u8; CHALLENGE_LEN]) -> Result<(), HandshakeError> {
    if challenge[..8] != MAGIC[..] {
        return Err(HandshakeError::Noise);
    }
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
