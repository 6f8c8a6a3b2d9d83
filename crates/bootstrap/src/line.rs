//! Lines: authenticated connections between any two processes that hold one secret, for those who measure paths. Handshake
//! and frames are those of the rendezvous; the secret is one of their own, so that nobody else is taken in.

use crate::channel::{Channel, ChannelError, Reader, Writer};
use crate::env::JobEnv;
use crate::error::list;
use crate::handshake::{self, HandshakeError, Role};
use crate::race::{self, Goal, Listening, Lost, PAUSE};
use crate::relay::RelayAccess;
use crate::secret::{JobId, JobKey, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// Longest message of a line.
const MAX_MESSAGE: usize = 1 << 20;

/// Why there is no line, or no more.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Nobody answers as one of ours would. Network, firewall, or nobody there.
    #[error("cannot reach {}", whom(tried, unknown))]
    Unreachable {
        /// Each address with what happened there.
        tried: Vec<(SocketAddr, String)>,
        /// What is wrong with relays whose names are not known here.
        unknown: Vec<String>,
    },
    /// Another release.
    #[error("{0} runs another release of GridMPI: install the same at both ends")]
    Version(SocketAddr),
    /// Another secret.
    #[error("{0} has another token: give both ends the same one")]
    Token(SocketAddr),
    /// Nothing came, or could be sent, in time.
    #[error("no answer in time")]
    Timeout,
    /// The far end went away.
    #[error("the connection has ended: {0}")]
    Gone(std::io::Error),
    /// The far end broke the protocol.
    #[error("it sent what is not our protocol: {0}")]
    Protocol(String),
}

fn whom(tried: &[(SocketAddr, String)], unknown: &[String]) -> String {
    let it = if tried.is_empty() { "it: " } else { "" };
    format!("{it}{}", list(tried, unknown))
}

impl From<ChannelError> for LineError {
    fn from(error: ChannelError) -> Self {
        match error {
            error if error.is_timeout() => Self::Timeout,
            ChannelError::Io(error) => Self::Gone(error),
            error => Self::Protocol(error.to_string()),
        }
    }
}

/// What both ends of a line prove to hold. Never printed.
#[derive(Clone)]
pub struct Pass {
    job: JobId,
    key: JobKey,
}

impl From<&Secret> for Pass {
    fn from(secret: &Secret) -> Self {
        Self { job: secret.job(), key: secret.key() }
    }
}

impl From<&JobEnv> for Pass {
    fn from(env: &JobEnv) -> Self {
        Self { job: env.job, key: env.key.clone() }
    }
}

impl Pass {
    /// Names the secret; no secret itself.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &JobKey {
        &self.key
    }
}

/// An open line.
pub struct Line {
    reader: LineReader,
    writer: LineWriter,
}

/// What comes in.
pub struct LineReader(Reader);

/// What goes out.
pub struct LineWriter(Writer);

/// Opens a line to the first of `addresses` that proves to hold the key. Tries again where a connection broke off: who is crowded does
/// that.
///
/// # Errors
/// Says what happened at each address.
pub fn dial(addresses: &[SocketAddr], pass: &Pass, deadline: Instant) -> Result<Line, LineError> {
    reach(addresses, None, pass, deadline)
}

/// As [`dial`], or through a relay at which the far end is ([`Door`](crate::Door)), whichever comes about first. News of the far end may
/// still be on the way to the relays: they are asked again.
///
/// # Errors
/// As [`dial`], and which relays' names are not known here.
pub fn dial_or_relay(
    addresses: &[SocketAddr],
    relays: &RelayAccess,
    pass: &Pass,
    deadline: Instant,
) -> Result<Line, LineError> {
    reach(addresses, Some(relays), pass, deadline)
}

fn reach(
    direct: &[SocketAddr],
    relays: Option<&RelayAccess>,
    pass: &Pass,
    deadline: Instant,
) -> Result<Line, LineError> {
    let (role, listening) = (Role::Probe, Listening::Now);
    let goal = Goal { direct, relays, role, job: pass.job, key: &pass.key, listening };
    loop {
        match race::run(&goal, deadline) {
            Ok(won) => return Line::new(won.channel),
            Err(lost) if lost.is_passing() && Instant::now() + PAUSE < deadline => {
                std::thread::sleep(PAUSE);
            }
            Err(lost) => return Err(missed(&lost)),
        }
    }
}

fn missed(lost: &Lost) -> LineError {
    match lost.other() {
        Some((address, HandshakeError::Version(_))) => LineError::Version(address),
        Some((address, _)) => LineError::Token(address),
        None => LineError::Unreachable { tried: lost.failures(), unknown: lost.unknown.clone() },
    }
}

/// As [`dial`], on a connection that the caller has made.
///
/// # Errors
/// What is at the other end, if it is not one of ours.
pub fn open(stream: TcpStream, pass: &Pass, deadline: Instant) -> Result<Line, LineError> {
    stream.set_nodelay(true).map_err(LineError::Gone)?;
    let address = stream.peer_addr().map_err(LineError::Gone)?;
    match handshake::connect(stream, Role::Probe, pass.job, &pass.key, deadline) {
        Ok(channel) => Line::new(channel),
        Err(HandshakeError::Version(_)) => Err(LineError::Version(address)),
        Err(HandshakeError::OtherJob | HandshakeError::WrongKey) => Err(LineError::Token(address)),
        Err(HandshakeError::Io(error)) => Err(ChannelError::Io(error).into()),
        Err(error @ (HandshakeError::Noise | HandshakeError::Left)) => {
            Err(LineError::Protocol(error.to_string()))
        }
    }
}

/// The other end of [`dial`], on a connection that was accepted.
///
/// # Errors
/// What gave a stranger away.
pub fn answer(stream: TcpStream, pass: &Pass, deadline: Instant) -> Result<Line, String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    match handshake::accept(stream, pass.job, &pass.key, deadline) {
        Ok((Role::Probe, channel)) => Line::new(channel).map_err(|error| error.to_string()),
        Ok(_) => Err("is a process of a job".to_owned()),
        Err(HandshakeError::OtherJob | HandshakeError::WrongKey) => {
            Err("has another token".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Line {
    fn new(channel: Channel) -> Result<Self, LineError> {
        let (reader, writer) = channel.split().map_err(LineError::Gone)?;
        Ok(Self { reader: LineReader(reader), writer: LineWriter(writer) })
    }

    /// The connection under it, for its addresses and options.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        self.reader.0.stream()
    }

    /// Both directions, for two threads.
    #[must_use]
    pub fn split(self) -> (LineReader, LineWriter) {
        (self.reader, self.writer)
    }

    /// As [`LineWriter::send`].
    ///
    /// # Errors
    /// See [`LineError`].
    pub fn send<M: Serialize>(&mut self, message: &M, deadline: Instant) -> Result<(), LineError> {
        self.writer.send(message, deadline)
    }

    /// As [`LineReader::receive`].
    ///
    /// # Errors
    /// See [`LineError`].
    pub fn receive<M: DeserializeOwned>(&mut self, deadline: Instant) -> Result<M, LineError> {
        self.reader.receive(deadline)
    }

    /// The bare connection: what follows are plain bytes.
    ///
    /// # Errors
    /// When the process has no more file descriptors.
    pub fn into_stream(self) -> std::io::Result<TcpStream> {
        self.reader.0.stream().try_clone()
    }
}

impl LineReader {
    /// The next message, of at most 1 MiB.
    ///
    /// # Errors
    /// See [`LineError`]; the line is of no further use then.
    pub fn receive<M: DeserializeOwned>(&mut self, deadline: Instant) -> Result<M, LineError> {
        Ok(self.0.receive_within(MAX_MESSAGE, deadline)?)
    }
}

impl LineWriter {
    /// Sends a message.
    ///
    /// # Errors
    /// See [`LineError`]; the line is of no further use then.
    pub fn send<M: Serialize>(&mut self, message: &M, deadline: Instant) -> Result<(), LineError> {
        self.0.send(message, deadline)?;
        Ok(())
    }

    /// Ends the line; a reader in another thread wakes.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use crate::race::tests::NOBODY;
    use std::net::TcpListener;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn answering(secret: Secret) -> (SocketAddr, std::thread::JoinHandle<Result<Line, String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            answer(listener.accept().unwrap().0, &Pass::from(&secret), soon())
        });
        (address, answering)
    }

    #[test]
    fn both_ends_of_a_line_talk_and_then_have_the_bare_connection() {
        let secret = Secret::random().unwrap();
        let (address, answering) = answering(secret.clone());
        let mut near = dial(&[address], &Pass::from(&secret), soon()).unwrap();
        let mut far = answering.join().unwrap().unwrap();
        near.send(&"hello", soon()).unwrap();
        assert_eq!(far.receive::<String>(soon()).unwrap(), "hello");
        let (near, mut far) = (near.into_stream().unwrap(), far.into_stream().unwrap());
        drop(near);
        assert_eq!(std::io::Read::read(&mut far, &mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_connection_made_by_the_caller_says_what_is_at_the_other_end() {
        let secret = Secret::random().unwrap();
        let pass = Pass::from(&secret);
        let (address, answering) = answering(secret);
        let near = open(TcpStream::connect(address).unwrap(), &pass, soon()).unwrap();
        assert_eq!(near.stream().peer_addr().unwrap(), address);
        assert!(answering.join().unwrap().is_ok());
        let (address, answering) = self::answering(Secret::random().unwrap());
        let error = open(TcpStream::connect(address).unwrap(), &pass, soon()).err().unwrap();
        assert!(matches!(error, LineError::Token(_)), "{error}");
        assert!(answering.join().unwrap().is_err());
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(silent.local_addr().unwrap()).unwrap();
        let error = open(stream, &pass, Instant::now() + Duration::from_millis(50)).err().unwrap();
        assert!(matches!(error, LineError::Timeout), "{error}");
        let stream = TcpStream::connect(silent.local_addr().unwrap()).unwrap();
        drop(silent.accept().unwrap());
        let mut far = silent.accept().unwrap().0;
        std::io::Write::write_all(&mut far, b"SSH-2.0-OpenSSH_9.2p1").unwrap();
        let error = open(stream, &pass, soon()).err().unwrap();
        assert!(matches!(error, LineError::Protocol(_)), "{error}");
    }

    #[test]
    fn a_silent_address_keeps_no_other_back_and_who_is_turned_away_comes_again() {
        let secret = Secret::random().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let crowded = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = [silent.local_addr().unwrap(), crowded.local_addr().unwrap()];
        let pass = Pass::from(&secret);
        let answering = std::thread::spawn(move || {
            (0..3).for_each(|_| drop(crowded.accept().unwrap()));
            answer(crowded.accept().unwrap().0, &Pass::from(&secret), soon())
        });
        let began = Instant::now();
        let line = dial(&at, &pass, soon()).unwrap();
        assert_eq!(line.stream().peer_addr().unwrap(), at[1]);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(answering.join().unwrap().is_ok());
    }

    #[test]
    fn an_unknown_relay_is_named_beside_what_happened_elsewhere() {
        let token = crate::RelayToken::random().unwrap();
        let relays = RelayAccess { names: vec!["no.such.host.invalid:1".to_owned()], token };
        let pass = Pass::from(&Secret::random().unwrap());
        let error = dial_or_relay(&[NOBODY], &relays, &pass, soon()).err().unwrap().to_string();
        for part in [NOBODY.to_string().as_str(), "refused", "no.such.host.invalid", "name it as"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn another_token_is_named_at_both_ends() {
        let (address, answering) = answering(Secret::random().unwrap());
        let other = Secret::random().unwrap();
        let error = dial(&[address], &Pass::from(&other), soon()).err().unwrap();
        assert!(matches!(error, LineError::Token(_)), "{error}");
        assert!(answering.join().unwrap().err().unwrap().contains("another token"));
    }

    #[test]
    fn long_messages_and_processes_of_jobs_are_turned_away() {
        let secret = Secret::random().unwrap();
        let (address, answering) = answering(secret.clone());
        let mut near = dial(&[address], &Pass::from(&secret), soon()).unwrap();
        let mut far = answering.join().unwrap().unwrap();
        std::thread::spawn(move || near.send(&"x".repeat(MAX_MESSAGE), soon()));
        assert!(matches!(far.receive::<String>(soon()), Err(LineError::Protocol(_))));
        let (address, answering) = self::answering(secret.clone());
        let stream = TcpStream::connect(address).unwrap();
        let rank = handshake::connect(stream, Role::Rank, secret.job(), &secret.key(), soon());
        assert!(rank.is_ok() && answering.join().unwrap().is_err());
    }
}
