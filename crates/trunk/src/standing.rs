//! What belongs to one of the connections that a stream stands on, and is lost with it.

use gridmpi_wire::{Frame, Header, Strand};

use crate::StreamError;
use crate::queue::{Cursor, Queue};
use crate::runs::Line;

/// An acknowledgement is due at once when this many payload bytes are unacknowledged: the sender
/// keeps them in memory until then.
const ACK_BYTES: u64 = 1024 * 1024;

/// The same where what a connection may have on its way is bounded, at this side or, as there are several, at the other.
const ACK_BYTES_SOON: u64 = 128 * 1024;

/// The same for frames, so that a sender of small messages keeps few.
const ACK_FRAMES: u32 = 64;

/// How long what has come may wait for a frame that carries its acknowledgement, before that goes alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patience {
    /// Some milliseconds: the far side keeps what it sent, and may wait.
    Brief,
    /// Much longer: words about rates, of which nobody waits to hear that they have come.
    #[default]
    Long,
}

impl Patience {
    /// Each.
    pub const ALL: [Self; 2] = [Self::Brief, Self::Long];
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) strand: Strand,
    /// A frame that is partly written.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) control: Control,
    pub(crate) inbound: Inbound,
    /// Frames that are written whole and not acknowledged, as they went.
    carried: Line,
    /// How many frames were written whole, and how many of them have come.
    written: u64,
    acknowledged: u64,
    /// Payload bytes of frames begun and not acknowledged, and of all that were acknowledged.
    flight: u64,
    delivered: u64,
    /// How fast it was seen to carry, bytes per second, if it was.
    pub(crate) rate: Option<f64>,
    /// Payload bytes that it may have on its way before more `Data` begins, if that is bounded.
    pub(crate) reach: Option<u64>,
}

impl Standing {
    pub(crate) fn new(strand: Strand) -> Self {
        Self {
            strand,
            cursor: None,
            control: Control::default(),
            inbound: Inbound::default(),
            carried: Line::default(),
            written: 0,
            acknowledged: 0,
            flight: 0,
            delivered: 0,
            rate: None,
            reach: None,
        }
    }

    pub(crate) const fn flight(&self) -> u64 {
        self.flight
    }

    /// Whether a frame of `Data` with `len` bytes goes beyond what it may have on its way, with so many bytes that are about
    /// to be written. Where there is nothing yet any frame may go.
    pub(crate) fn is_out_of_reach(&self, laid: u64, len: u64) -> bool {
        let had = self.flight + laid;
        had > 0 && self.reach.is_some_and(|reach| had + len > reach)
    }

    /// Frames that have come, and those that are written and have not, as far as is known.
    pub(crate) const fn frames(&self) -> (u64, u64) {
        (self.acknowledged, self.written - self.acknowledged)
    }

    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A frame with so much payload begins to go.
    pub(crate) fn begin(&mut self, payload: u64) {
        self.flight += payload;
    }

    /// A frame is written whole.
    pub(crate) fn wrote(&mut self, seq: u64) {
        self.carried.push(seq);
        self.written += 1;
    }

    /// So many frames have come whole over this connection. Whether that is more than was known.
    pub(crate) fn acknowledge(
        &mut self,
        count: u64,
        queue: &mut Queue,
    ) -> Result<bool, StreamError> {
        if count > self.written {
            let (acknowledged, written) = (count, self.written);
            return Err(StreamError::AckOfUnwritten { acknowledged, written });
        }
        let is_more = self.acknowledged < count;
        while self.acknowledged < count {
            let Some(seq) = self.carried.pop() else { break };
            self.acknowledged += 1;
            let payload = queue.acknowledge(seq);
            self.flight -= payload;
            self.delivered += payload;
        }
        Ok(is_more)
    }

    /// The connection is gone: what it had waits for another one.
    pub(crate) fn end(mut self, queue: &mut Queue) {
        while let Some(seq) = self.carried.pop() {
            queue.give_back(seq);
        }
        if let Some(cursor) = self.cursor {
            queue.give_back(cursor.seq);
        }
    }
}

/// Unsequenced frames to write: they go between sequenced ones and are lost with the connection.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Encoded and not yet wholly written.
    bytes: Vec<u8>,
    /// How much of `bytes` is written.
    at: usize,
    pub(crate) ping: bool,
    pub(crate) pong: bool,
}

impl Control {
    /// Some bytes are written and some are not.
    pub(crate) fn is_begun(&self) -> bool {
        self.at > 0 && self.at < self.bytes.len()
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_begun() || self.ping || self.pong
    }

    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Turns wishes into bytes, anew as long as none of them is written, so that they bear the newest
    /// number. A lone acknowledgement only where no frame will carry it.
    pub(crate) fn encode(&mut self, ack: u64, is_ack_alone: bool) {
        if self.is_begun() {
            return;
        }
        self.bytes.clear();
        self.at = 0;
        if self.pong {
            self.bytes.extend_from_slice(&Frame::Pong.encode(0, ack, 0));
        }
        if self.ping {
            self.bytes.extend_from_slice(&Frame::Ping.encode(0, ack, 0));
        }
        if self.bytes.is_empty() && is_ack_alone {
            self.bytes.extend_from_slice(&Frame::Ack.encode(0, ack, 0));
        }
    }

    /// Up to `bytes` more are written: those that are ours. Wishes are granted once they begin to go.
    pub(crate) fn wrote(&mut self, bytes: usize) -> usize {
        let ours = bytes.min(self.bytes.len() - self.at);
        if ours > 0 && self.at == 0 {
            (self.ping, self.pong) = (false, false);
        }
        self.at += ours;
        ours
    }
}

/// What has come over the connection.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Numbered frames that have come whole.
    count: u64,
    /// The one whose payload is being read.
    pub(crate) landing: Option<u64>,
    /// Frames and payload bytes received since the last acknowledgement went out.
    frames: u32,
    bytes: u64,
    /// How long these may wait.
    patience: Patience,
    /// A tick of that has passed with something unacknowledged.
    ticked: bool,
    /// A second one has: acknowledge without waiting for something to piggyback on.
    overdue: bool,
}

impl Inbound {
    /// What the next head says.
    pub(crate) const fn ack(&self) -> u64 {
        self.count
    }

    /// `soon`: the far side may wait for it before it goes on.
    pub(crate) fn ack_due(&self, soon: bool) -> bool {
        let bytes = if soon { ACK_BYTES_SOON } else { ACK_BYTES };
        self.overdue || self.frames >= ACK_FRAMES || self.bytes >= bytes
    }

    /// A numbered frame has come whole.
    pub(crate) fn received(&mut self, header: &Header) {
        self.landing = None;
        self.count += 1;
        self.frames += 1;
        self.bytes += u64::from(header.payload_len());
        if !header.kind.is_about_rates() && self.patience == Patience::Long {
            (self.patience, self.ticked) = (Patience::Brief, false);
        }
    }

    pub(crate) fn acknowledged(&mut self) {
        *self = Self { count: self.count, landing: self.landing, ..Self::default() };
    }

    pub(crate) fn wants_tick(&self, patience: Patience) -> bool {
        self.frames > 0 && !self.ack_due(false) && patience == self.patience
    }

    /// Whether an acknowledgement is due because of it.
    pub(crate) fn tick(&mut self, patience: Patience) -> bool {
        if !self.wants_tick(patience) {
            return false;
        }
        self.overdue = self.ticked;
        self.ticked = true;
        self.overdue
    }
}
