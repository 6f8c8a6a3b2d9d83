//! Authenticated frames over a blocking connection, every wait bounded by a deadline.
//!
//! A frame is a length (4 bytes, little-endian), so many bytes of JSON, and a tag of 32 bytes over
//! the frame's number in its direction and the JSON, under that direction's session key.

use crate::secret::{JobKey, TAG_LEN};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest frame of all: the table of a job of the largest size allowed by `model`, and what a rank registers.
pub(crate) const TABLE: usize = 256 << 20;
/// Longest frame of any other kind: a reason of 4 KiB, however it is written, or some addresses.
pub(crate) const WORD: usize = 64 << 10;
/// Memory is taken as bytes arrive, in steps of this size, whatever the length claims.
const STEP: usize = 64 << 10;

/// A stream whose reads and writes end at a deadline.
pub(crate) struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    pub(crate) const fn new(stream: &'a TcpStream, deadline: Instant) -> Self {
        Self { stream, deadline }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// Reads at least one byte.
    pub(crate) fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match (&mut &*self.stream).read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(count),
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut got = 0;
        while got < into.len() {
            got += self.read_some(&mut into[got..])?;
        }
        Ok(())
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match (&mut &*self.stream).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A socket's own time-out shows as `WouldBlock`; the deadline decides whether to go on.
fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("a frame of {0} bytes, which is too long")]
    TooLong(usize),
    #[error("a frame that claims to have {0} bytes, which are too many")]
    Claims(usize),
    #[error("a frame that was altered on its way")]
    Forged,
    #[error("a message that is none of ours: {0}")]
    Json(#[from] serde_json::Error),
    #[error("a wrong count of messages")]
    Unsaid,
}

impl ChannelError {
    /// Whether the other end has closed the connection, as the system does when a process ends.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// Whether another connection may do better.
    pub(crate) const fn is_passing(&self) -> bool {
        // A length is believed before its tag is seen.
        matches!(self, Self::Io(_) | Self::Forged | Self::Claims(_))
    }

    /// Whether our own deadline has passed. The system's time-out is another matter: the connection has broken.
    pub(crate) fn is_timeout(&self) -> bool {
        let is_ours = |error: &io::Error| error.raw_os_error().is_none();
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::TimedOut && is_ours(error))
    }
}

/// Both halves of an authenticated connection.
pub(crate) struct Channel {
    stream: TcpStream,
    out: Direction,
    inward: Direction,
}

/// The sending half.
pub(crate) struct Writer {
    stream: TcpStream,
    direction: Direction,
}

/// The receiving half.
pub(crate) struct Reader {
    stream: TcpStream,
    direction: Direction,
}

struct Direction {
    key: JobKey,
    count: u64,
}

impl Channel {
    pub(crate) const fn new(stream: TcpStream, out: JobKey, inward: JobKey) -> Self {
        let out = Direction { key: out, count: 0 };
        let inward = Direction { key: inward, count: 0 };
        Self { stream, out, inward }
    }

    /// Parts the two directions, so that one thread can wait for frames while others send.
    pub(crate) fn split(self) -> io::Result<(Reader, Writer)> {
        let stream = self.stream.try_clone()?;
        let reader = Reader { stream, direction: self.inward };
        Ok((reader, Writer { stream: self.stream, direction: self.out }))
    }
}

impl Writer {
    /// Sends a frame. How many bytes it has.
    pub(crate) fn send<M: Serialize>(
        &mut self,
        message: &M,
        deadline: Instant,
    ) -> Result<usize, ChannelError> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= TABLE);
        let length = length.ok_or(ChannelError::TooLong(body.len()))?;
        let tag = self.direction.tag(&body);
        let mut frame = Vec::with_capacity(4 + body.len() + TAG_LEN);
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&body);
        frame.extend_from_slice(&tag);
        self.direction.count += 1;
        Timed::new(&self.stream, deadline).write_all(&frame)?;
        Ok(frame.len())
    }

    /// Ends both directions of the connection; readers in other threads wake.
    pub(crate) fn shutdown(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Reader {
    /// The next message, which is a [`WORD`] at most. After an error the connection is of no further use, except that a
    /// time-out before the first byte of a frame leaves it whole.
    pub(crate) fn receive<M: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<M, ChannelError> {
        self.receive_within(WORD, deadline)
    }

    /// As [`Reader::receive`], for messages of at most so many bytes.
    pub(crate) fn receive_within<M: DeserializeOwned>(
        &mut self,
        most: usize,
        deadline: Instant,
    ) -> Result<M, ChannelError> {
        let mut wire = Timed::new(&self.stream, deadline);
        let mut length = [0; 4];
        wire.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            return Err(ChannelError::Claims(length));
        }
        let mut body = Vec::new();
        while body.len() < length {
            let from = body.len();
            body.resize(length.min(from + STEP), 0);
            wire.read_exact(&mut body[from..])?;
        }
        let mut tag = [0; TAG_LEN];
        wire.read_exact(&mut tag)?;
        self.direction.check(&body, &tag)?;
        self.direction.count += 1;
        Ok(serde_json::from_slice(&body)?)
    }

    /// The connection, to wait on beside others.
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl Direction {
    fn tag(&self, body: &[u8]) -> [u8; TAG_LEN] {
        self.key.tag(&[&self.count.to_le_bytes(), body])
    }

    fn check(&self, body: &[u8], tag: &[u8]) -> Result<(), ChannelError> {
        let genuine = self.key.verify(&[&self.count.to_le_bytes(), body], tag);
        if genuine { Ok(()) } else { Err(ChannelError::Forged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// A writer with its raw connection, and the reader at the far end.
    fn pair() -> (Writer, TcpStream, Reader) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let key = |byte| JobKey::from_bytes([byte; 32]);
        let (_, writer) = Channel::new(near.try_clone().unwrap(), key(1), key(2)).split().unwrap();
        let (reader, _) = Channel::new(far, key(2), key(1)).split().unwrap();
        (writer, near, reader)
    }

    /// The bytes of a frame that holds `text`, the `count`-th of its direction.
    fn frame(text: &str, count: u64) -> Vec<u8> {
        let direction = Direction { key: JobKey::from_bytes([1; 32]), count };
        let body = serde_json::to_vec(text).unwrap();
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(&body);
        bytes.extend(direction.tag(&body));
        bytes
    }

    fn offered(bytes: &[u8]) -> Result<String, ChannelError> {
        offered_within(WORD, bytes)
    }

    fn offered_within(most: usize, bytes: &[u8]) -> Result<String, ChannelError> {
        let (_, mut raw, mut reader) = pair();
        raw.write_all(bytes).unwrap();
        raw.shutdown(std::net::Shutdown::Write).unwrap();
        reader.receive_within(most, soon())
    }

    #[test]
    fn what_is_sent_is_received_in_order() {
        let (mut writer, _, mut reader) = pair();
        let long = "x".repeat(3 * STEP);
        let sender = std::thread::spawn(move || {
            writer.send(&"first", soon()).unwrap();
            writer.send(&long, soon()).unwrap();
        });
        assert_eq!(reader.receive::<String>(soon()).unwrap(), "first");
        assert_eq!(reader.receive_within::<String>(TABLE, soon()).unwrap().len(), 3 * STEP);
        sender.join().unwrap();
    }

    #[test]
    fn an_altered_repeated_or_cut_frame_is_noticed() {
        let good = frame("hello", 0);
        assert_eq!(offered(&good).unwrap(), "hello");
        for position in 4..good.len() {
            let mut altered = good.clone();
            altered[position] ^= 1;
            assert!(matches!(offered(&altered), Err(ChannelError::Forged)), "byte {position}");
        }
        assert!(matches!(offered(&frame("again", 1)), Err(ChannelError::Forged)));
        for end in 0..good.len() {
            assert!(matches!(offered(&good[..end]), Err(ChannelError::Io(_))), "cut at {end}");
        }
    }

    #[test]
    fn a_claimed_length_takes_no_memory_before_its_bytes_come() {
        for (most, longer) in [(WORD, WORD + 1), (TABLE, TABLE + 1)] {
            let mut bytes = (most as u32).to_le_bytes().to_vec();
            bytes.extend([0; 100]);
            assert!(matches!(offered_within(most, &bytes), Err(ChannelError::Io(_))));
            let long = (longer as u32).to_le_bytes();
            let error = offered_within(most, &long).unwrap_err();
            assert!(matches!(error, ChannelError::Claims(length) if length == longer));
            // Whoever is on the way can say so: another connection may do better.
            assert!(error.is_passing());
        }
        assert!(matches!(offered(&(TABLE as u32).to_le_bytes()), Err(ChannelError::Claims(_))));
    }

    #[test]
    fn a_wait_ends_at_its_deadline_which_is_told_from_the_systems() {
        let (_writer, _raw, mut reader) = pair();
        let error = reader.receive::<String>(Instant::now() + Duration::from_millis(20));
        assert!(error.unwrap_err().is_timeout());
        let system = io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error());
        let broken = ChannelError::from(system);
        assert!(!broken.is_timeout() && broken.is_passing());
    }
}
