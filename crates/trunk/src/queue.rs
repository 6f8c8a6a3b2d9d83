//! Frames on their way out: kept until acknowledged, with a cursor where writing stands.

use std::collections::VecDeque;

use gridmpi_buffer::SendBuffer;
use gridmpi_wire::{Frame, HEADER_LEN, Head};

use crate::StreamError;

/// A frame and its payload, until the far process has it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) frame: Frame,
    pub(crate) payload: SendBuffer,
}

impl Kept {
    fn payload_len(&self) -> u64 {
        self.payload.len()
    }

    pub(crate) fn head_len(&self) -> usize {
        HEADER_LEN + self.frame.kind().fields_len()
    }

    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.head_len() + self.payload_len() as usize
    }

    pub(crate) fn encode(&self, seq: u64, ack: u64) -> Head {
        self.frame.encode(seq, ack, self.payload_len() as u32)
    }
}

/// A place in the bytes to write: `at` bytes into frame `seq`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) seq: u64,
    pub(crate) at: usize,
    /// The acknowledgement that the frame's head was begun with, when `at` is not 0: the rest of
    /// the head must come from the same encoding.
    pub(crate) ack: u64,
}

impl Cursor {
    const fn start_of(seq: u64) -> Self {
        Self { seq, at: 0, ack: 0 }
    }

    /// The start of the next frame.
    pub(crate) const fn after(self) -> Self {
        Self::start_of(self.seq + 1)
    }
}

/// The frames not yet acknowledged, in order.
#[derive(Debug)]
pub(crate) struct Queue {
    kept: VecDeque<Kept>,
    /// Number of `kept[0]`.
    first: u64,
    cursor: Cursor,
    /// The highest number ever written whole.
    written: u64,
    kept_bytes: u64,
    unwritten_bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            first: 1,
            cursor: Cursor::start_of(1),
            written: 0,
            kept_bytes: 0,
            unwritten_bytes: 0,
        }
    }
}

/// An idle queue keeps no more room than this many frames.
const IDLE_CAPACITY: usize = 64;

impl Queue {
    pub(crate) fn push(&mut self, frame: Frame, payload: SendBuffer) -> u64 {
        debug_assert!(frame.kind().is_sequenced(), "{frame:?} is not numbered");
        debug_assert!(payload.len() <= u64::from(gridmpi_wire::MAX_PAYLOAD));
        self.kept_bytes += payload.len();
        self.unwritten_bytes += payload.len();
        self.kept.push_back(Kept { frame, payload });
        self.end() - 1
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The number the next pushed frame will bear.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        self.kept_bytes
    }

    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        self.cursor.seq < self.end()
    }

    pub(crate) fn holds(&self, cursor: Cursor) -> bool {
        cursor.seq < self.end()
    }

    /// The frame under `cursor`, which must be held.
    pub(crate) fn at(&self, seq: u64) -> &Kept {
        &self.kept[(seq - self.first) as usize]
    }

    /// Moves the cursor over `bytes` written, at most to the end of its frame, whose head bore `ack`
    /// if it begins now. Returns the bytes left over.
    pub(crate) fn wrote(&mut self, bytes: usize, ack: u64) -> usize {
        let kept = self.at(self.cursor.seq);
        let (left_in_frame, payload_len) = (kept.len() - self.cursor.at, kept.payload_len());
        if bytes < left_in_frame {
            if self.cursor.at == 0 {
                self.cursor.ack = ack;
            }
            self.cursor.at += bytes;
            return 0;
        }
        self.unwritten_bytes -= payload_len;
        self.written = self.written.max(self.cursor.seq);
        self.cursor = self.cursor.after();
        bytes - left_in_frame
    }

    /// The far process has every frame up to `ack`.
    pub(crate) fn acknowledge(&mut self, ack: u64) -> Result<(), StreamError> {
        if ack >= self.cursor.seq {
            let written = self.cursor.seq - 1;
            return Err(StreamError::AckOfUnwritten { acknowledged: ack, written });
        }
        self.drop_below(ack + 1);
        Ok(())
    }

    fn drop_below(&mut self, seq: u64) {
        while self.first < seq {
            let Some(kept) = self.kept.pop_front() else { break };
            self.first += 1;
            self.kept_bytes -= kept.payload_len();
        }
        if self.kept.is_empty() && self.kept.capacity() > IDLE_CAPACITY {
            self.kept.shrink_to(IDLE_CAPACITY);
        }
    }

    /// Everything kept is to be written again.
    pub(crate) fn rewind_all(&mut self) {
        self.cursor = Cursor::start_of(self.first);
        self.unwritten_bytes = self.kept_bytes;
    }

    /// The far process has every frame below `peer_expects`; write on from there.
    pub(crate) fn rewind(&mut self, peer_expects: u64) -> Result<(), StreamError> {
        let last = self.written + 1;
        if !(self.first..=last).contains(&peer_expects) {
            let (wanted, first) = (peer_expects, self.first);
            return Err(StreamError::CannotResume { wanted, first, last });
        }
        self.drop_below(peer_expects);
        self.rewind_all();
        Ok(())
    }

    pub(crate) fn own_message(&mut self, message: u64) {
        for kept in &mut self.kept {
            if kept.frame.message() == Some(message) && !kept.payload.is_owned() {
                kept.payload = kept.payload.to_owned();
            }
        }
    }
}
