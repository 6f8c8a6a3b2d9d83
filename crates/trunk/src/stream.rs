//! The stream: numbering, acknowledgement, retention, resumption.

use std::io::{self, IoSlice};

use gridmpi_buffer::SendBuffer;
use gridmpi_wire::{Frame, Header, Kind};
use thiserror::Error;

use crate::gather::Gather;
use crate::queue::Queue;

/// An acknowledgement is due at once when this many payload bytes are unacknowledged: the sender
/// keeps them in memory until then.
const ACK_BYTES: u64 = 1024 * 1024;

/// The same for frames, so that a sender of small messages keeps few.
const ACK_FRAMES: u32 = 64;

/// What a call of [`Stream::transmit`] leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to write is left.
    Idle,
    /// More is left and the connection takes more: call again.
    More,
    /// The connection takes no more at present (a short write or `WouldBlock`): wait for it.
    Blocked,
}

/// What to do with a frame that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// The next in order: handle it, then call [`Stream::received`] once its payload has landed.
    Deliver,
    /// Unsequenced (`Ack`, `Ping`, `Pong`): the stream has done what there was to do.
    Control,
    /// Already received over an earlier connection: read its payload and drop it.
    Duplicate,
}

/// The peer broke the rules of the stream: its fault. Nothing it sends can be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// A frame came whose number leaves a gap.
    #[error("frame {got} came where frame {expected} was due")]
    Gap {
        /// Number due.
        expected: u64,
        /// Number that came.
        got: u64,
    },
    /// Frames were acknowledged that were never written.
    #[error("frame {acknowledged} was acknowledged, but only {written} were written")]
    AckOfUnwritten {
        /// Number acknowledged.
        acknowledged: u64,
        /// Highest number written.
        written: u64,
    },
    /// The peer wants to resume at frames that it has acknowledged, or that do not exist.
    #[error("the peer wants to resume at frame {wanted}; possible are {first} to {last}")]
    CannotResume {
        /// Number wanted.
        wanted: u64,
        /// Lowest number still kept.
        first: u64,
        /// Number of the frame that would be pushed next.
        last: u64,
    },
}

/// One direction out and one direction in, to and from one process, over one connection at a time.
///
/// The contract: what happened goes in by calls (`receive`, `received`, `resume`, `disconnect`,
/// `tick`), bytes come out by [`Self::transmit`]. No time but ticks, no I/O but the caller's `write`.
/// Frames are numbered from 1 as they are pushed, kept until the far process has acknowledged them,
/// and written again when a connection is lost.
#[derive(Debug, Default)]
pub struct Stream {
    queue: Queue,
    control: Control,
    inbound: Inbound,
    connected: bool,
    gather: Gather,
}

/// Unsequenced frames to write: they go between sequenced ones and are lost with the connection.
#[derive(Debug, Default)]
struct Control {
    /// Encoded and not yet wholly written.
    bytes: Vec<u8>,
    /// How much of `bytes` is written.
    at: usize,
    ping: bool,
    pong: bool,
}

impl Control {
    /// Some bytes are written and some are not.
    fn is_begun(&self) -> bool {
        self.at > 0 && self.at < self.bytes.len()
    }

    fn is_wanted(&self) -> bool {
        self.is_begun() || self.ping || self.pong
    }

    /// Up to `bytes` more are written: those that are ours. Wishes are granted once they begin to go.
    fn wrote(&mut self, bytes: usize) -> usize {
        let ours = bytes.min(self.bytes.len() - self.at);
        if ours > 0 && self.at == 0 {
            (self.ping, self.pong) = (false, false);
        }
        self.at += ours;
        ours
    }
}

/// What has come from the far process.
#[derive(Debug, Default)]
struct Inbound {
    /// The highest number received in order.
    received: u64,
    /// Frames and payload bytes received since the last acknowledgement went out.
    frames: u32,
    bytes: u64,
    /// A tick has passed with something unacknowledged.
    ticked: bool,
    /// A second one has: acknowledge without waiting for something to piggyback on.
    overdue: bool,
}

impl Inbound {
    fn ack_due(&self) -> bool {
        self.overdue || self.frames >= ACK_FRAMES || self.bytes >= ACK_BYTES
    }

    fn acknowledged(&mut self) {
        *self = Self { received: self.received, ..Self::default() };
    }
}

impl Stream {
    /// A stream that has neither sent nor received, without a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a sequenced frame and returns its number. `payload` is at most
    /// [`gridmpi_wire::MAX_PAYLOAD`] long and empty for kinds without one.
    pub fn push(&mut self, frame: Frame, payload: SendBuffer) -> u64 {
        self.queue.push(frame, payload)
    }

    /// Queues a [`Frame::Ping`]; it is lost with the connection.
    pub fn ping(&mut self) {
        self.control.ping = self.connected;
    }

    /// Writes at most about `max` bytes through `write` (`writev` or a model of it), many small
    /// frames in one call, going on where the last write stopped. `write` is called at most once,
    /// with at most twice [`gridmpi_buffer::MAX_SLICES`] slices, and not at all when there is nothing
    /// to write. Answers `Idle` without a connection.
    ///
    /// # Errors
    /// `write`'s own, but for `WouldBlock` (`Blocked`) and `Interrupted` (`More`). A write of 0 bytes
    /// is `WriteZero`.
    pub fn transmit(
        &mut self,
        max: usize,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        if !self.wants_transmit() {
            return Ok(Progress::Idle);
        }
        self.gather(max);
        let done = match self.gather.write(&self.queue, write) {
            Ok(done) => done,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Blocked);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Progress::More),
            Err(error) => return Err(error),
        };
        self.account(done.written);
        Ok(match (done.is_short, self.wants_transmit()) {
            (true, _) => Progress::Blocked,
            (false, true) => Progress::More,
            (false, false) => {
                self.gather.release();
                Progress::Idle
            }
        })
    }

    /// Lays out the next bytes: the rest of a frame begun, control frames, then whole frames.
    fn gather(&mut self, max: usize) {
        self.encode_control();
        self.gather.begin(max, self.inbound.received);
        let mut next = self.queue.cursor();
        if next.at > 0 {
            self.gather.frame(&self.queue, next);
            next = next.after();
        }
        self.gather.bytes(&self.control.bytes[self.control.at..]);
        while self.queue.holds(next) && !self.gather.is_full() {
            self.gather.frame(&self.queue, next);
            next = next.after();
        }
    }

    /// Turns wishes into bytes, anew as long as none of them is written, so that they bear the newest
    /// number. A lone acknowledgement only where no frame will carry it.
    fn encode_control(&mut self) {
        if self.control.is_begun() {
            return;
        }
        let (control, ack) = (&mut self.control, self.inbound.received);
        control.bytes.clear();
        control.at = 0;
        if control.pong {
            control.bytes.extend_from_slice(&Frame::Pong.encode(0, ack, 0));
        }
        if control.ping {
            control.bytes.extend_from_slice(&Frame::Ping.encode(0, ack, 0));
        }
        if control.bytes.is_empty() && self.inbound.ack_due() && !self.queue.has_unwritten() {
            control.bytes.extend_from_slice(&Frame::Ack.encode(0, ack, 0));
        }
    }

    /// `written` bytes of what `gather` laid out have gone, in the same order.
    fn account(&mut self, written: usize) {
        let mut rest = written;
        if self.queue.cursor().at > 0 {
            rest = self.queue.wrote(rest, 0);
        }
        let was_begun = self.control.is_begun();
        let control = self.control.wrote(rest);
        rest -= control;
        if rest > 0 || (control > 0 && !was_begun) {
            // A head encoded for this write has begun to go, and bears the newest number.
            self.inbound.acknowledged();
        }
        while rest > 0 {
            rest = self.queue.wrote(rest, self.inbound.received);
        }
    }

    /// Whether [`Self::transmit`] has something to write: frames, a due acknowledgement, a `Pong`.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.connected
            && (self.queue.has_unwritten() || self.control.is_wanted() || self.inbound.ack_due())
    }

    /// The highest number whose frame, and so every one before it, has been handed to a connection
    /// whole at least once. Never falls, not even when a connection is lost.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.queue.written()
    }

    /// The highest number the far process has acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.queue.first() - 1
    }

    /// The number the next pushed frame will bear.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.queue.end()
    }

    /// Copies what is kept of a message's payload and still lies in the program's memory, so that the
    /// program may have its buffer back. Costs nothing for acknowledged frames.
    pub fn own_message(&mut self, message: u64) {
        self.queue.own_message(message);
    }

    /// Payload bytes pushed and not acknowledged.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> u64 {
        self.queue.unacknowledged_bytes()
    }

    /// Payload bytes pushed and not wholly written on the present connection (whole frames).
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queue.unwritten_bytes()
    }

    /// Whether every pushed frame has been acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// A frame's header (with its fields) has arrived: handles its acknowledgement and answers what
    /// to do with the frame. Changes nothing else: a frame counts as received only when
    /// [`Self::received`] says so, since a connection can be lost inside a payload.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub fn receive(&mut self, header: &Header) -> Result<Receive, StreamError> {
        self.queue.acknowledge(header.ack)?;
        if !header.kind.is_sequenced() {
            self.control.pong |= header.kind == Kind::Ping;
            return Ok(Receive::Control);
        }
        let expected = self.expects();
        match header.seq.cmp(&expected) {
            std::cmp::Ordering::Less => Ok(Receive::Duplicate),
            std::cmp::Ordering::Equal => Ok(Receive::Deliver),
            std::cmp::Ordering::Greater => Err(StreamError::Gap { expected, got: header.seq }),
        }
    }

    /// The frame that [`Self::receive`] said to deliver has landed whole.
    pub fn received(&mut self, header: &Header) {
        debug_assert_eq!(header.seq, self.expects(), "a frame landed out of order");
        self.inbound.received = header.seq;
        self.inbound.frames += 1;
        self.inbound.bytes += u64::from(header.payload_len());
    }

    /// The number of the next frame expected from the far process: what a handshake tells it.
    #[must_use]
    pub fn expects(&self) -> u64 {
        self.inbound.received.saturating_add(1)
    }

    /// A connection is there, on which the far process expects frame `peer_expects` next.
    ///
    /// # Errors
    /// That frame does not exist or has been acknowledged and dropped.
    pub fn resume(&mut self, peer_expects: u64) -> Result<(), StreamError> {
        self.disconnect();
        self.queue.rewind(peer_expects)?;
        self.connected = true;
        Ok(())
    }

    /// The connection is lost. Whatever is unacknowledged will be written again on the next.
    pub fn disconnect(&mut self) {
        self.connected = false;
        self.control = Control::default();
        // The next handshake says how far we have received.
        self.inbound.acknowledged();
        self.queue.rewind_all();
        self.gather.release();
    }

    /// Whether a connection is there.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether [`Self::tick`] wants to be called some milliseconds from now: something received is
    /// unacknowledged and nothing has gone back that could carry the acknowledgement.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.connected && self.inbound.frames > 0 && !self.inbound.ack_due()
    }

    /// Some milliseconds have passed: what was unacknowledged at the last tick is due now. Whether
    /// [`Self::wants_transmit`] now holds because of it.
    pub fn tick(&mut self) -> bool {
        if !self.wants_tick() {
            return false;
        }
        self.inbound.overdue = self.inbound.ticked;
        self.inbound.ticked = true;
        self.inbound.overdue
    }
}
