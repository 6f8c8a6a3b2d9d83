//! Frames on their way out: kept until acknowledged, and which of them no connection has yet.

use std::collections::VecDeque;

use gridmpi_buffer::SendBuffer;
use gridmpi_wire::{Frame, HEADER_LEN, Head, MAX_DATA_BEFORE};

use crate::runs::{Runs, Walk};

/// A frame and its payload, until the far process has it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) frame: Frame,
    pub(crate) payload: SendBuffer,
    /// Of `Data`: the number of the frame that began its message, 0 if that is no matter.
    opened_by: u64,
    data_before: u16,
    /// The far process has it; those before it are still kept.
    is_acknowledged: bool,
    /// It was written whole at least once.
    is_written: bool,
    /// It was given to another connection than the main one, or to that though `Data` right before it waited.
    is_away: bool,
}

impl Kept {
    pub(crate) fn payload_len(&self) -> u64 {
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
        self.frame.encode_behind(self.data_before, seq, ack, self.payload_len() as u32)
    }

    pub(crate) const fn is_ordered(&self) -> bool {
        self.frame.kind().is_ordered()
    }

    pub(crate) const fn opened_by(&self) -> u64 {
        self.opened_by
    }

    pub(crate) const fn is_away(&self) -> bool {
        self.is_away
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

/// Places among the frames that no connection has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    ordered: Walk,
    data: Walk,
}

/// The frames not yet acknowledged, in order.
#[derive(Debug)]
pub(crate) struct Queue {
    kept: VecDeque<Kept>,
    /// Number of `kept[0]`.
    first: u64,
    /// Those that no connection has begun to carry: that must be in order, and the others.
    ordered: Runs,
    data: Runs,
    /// The number of the last pushed frame that must be in order.
    last_ordered: u64,
    /// All up to this one were written whole at least once.
    written: u64,
    kept_bytes: u64,
    waiting_bytes: u64,
    away: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            first: 1,
            ordered: Runs::default(),
            data: Runs::default(),
            last_ordered: 0,
            written: 0,
            kept_bytes: 0,
            waiting_bytes: 0,
            away: 0,
        }
    }
}

/// An idle queue keeps no more room than this many frames.
const IDLE_CAPACITY: usize = 64;

impl Queue {
    pub(crate) fn push(&mut self, frame: Frame, payload: SendBuffer, opened_by: u64) -> u64 {
        debug_assert!(frame.kind().is_sequenced(), "{frame:?} is not numbered");
        debug_assert!(payload.len() <= u64::from(gridmpi_wire::MAX_PAYLOAD));
        let seq = self.end();
        let mut data_before = 0;
        if frame.kind().is_ordered() {
            let between = seq - self.last_ordered - 1;
            data_before = between.min(MAX_DATA_BEFORE.into()) as u16;
            self.last_ordered = seq;
            self.ordered.insert(seq);
        } else {
            self.data.insert(seq);
        }
        self.kept_bytes += payload.len();
        self.waiting_bytes += payload.len();
        let (is_acknowledged, is_written, is_away) = (false, false, false);
        self.kept.push_back(Kept {
            frame,
            payload,
            opened_by,
            data_before,
            is_acknowledged,
            is_written,
            is_away,
        });
        seq
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

    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Payload bytes that no connection has begun to carry.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Whether frames wait for a connection.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.ordered.is_empty() || !self.data.is_empty()
    }

    /// The highest number up to which all were written whole at least once.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The frame is written whole.
    pub(crate) fn wrote(&mut self, seq: u64) {
        self.kept[(seq - self.first) as usize].is_written = true;
        // What is acknowledged was written, so the next one is kept.
        let next = |written: u64| self.kept.get((written + 1 - self.first) as usize);
        while next(self.written).is_some_and(|kept| kept.is_written) {
            self.written += 1;
        }
    }

    /// How many of the frames from the first on were given to other connections than the main one, or to that though `Data` right
    /// before them waited.
    pub(crate) fn away(&self) -> u64 {
        self.away
    }

    /// The frame with this number, which is kept.
    pub(crate) fn at(&self, seq: u64) -> &Kept {
        &self.kept[(seq - self.first) as usize]
    }

    /// Payload bytes from a place on to the end of its frame.
    pub(crate) fn left_of(&self, cursor: Cursor) -> u64 {
        let kept = self.at(cursor.seq);
        kept.payload_len() - cursor.at.saturating_sub(kept.head_len()) as u64
    }

    /// The first frame that no connection has begun to carry.
    pub(crate) fn first_waiting(&self) -> Option<u64> {
        self.ordered.front().into_iter().chain(self.data.front()).min()
    }

    /// Whether the far process has the frame.
    pub(crate) fn has_come(&self, seq: u64) -> bool {
        seq < self.first
            || self.kept.get((seq - self.first) as usize).is_some_and(|kept| kept.is_acknowledged)
    }

    /// Whether the frame is written on some connection, or has been begun there.
    pub(crate) fn is_begun(&self, seq: u64) -> bool {
        self.ordered.front().is_none_or(|front| seq < front)
    }

    /// The next waiting frames at `places`: that must be in order, and other.
    pub(crate) fn next(&self, places: Places) -> (Option<u64>, Option<u64>) {
        (self.ordered.at(places.ordered), self.data.at(places.data))
    }

    /// The places behind one of those two.
    pub(crate) fn step(&self, places: Places, is_ordered: bool) -> Places {
        if is_ordered {
            Places { ordered: self.ordered.step(places.ordered), ..places }
        } else {
            Places { data: self.data.step(places.data), ..places }
        }
    }

    /// Whether the frame right before one is `Data` that waits, when all before `places` has gone: a gap at the far side.
    pub(crate) fn leaves_gap(&self, seq: u64, places: Places) -> bool {
        let waits = |data| data < seq && self.data.contains(seq - 1);
        self.data.at(places.data).is_some_and(waits)
    }

    /// A connection begins to carry the frame, which waits and is the first of its sort.
    pub(crate) fn take(&mut self, seq: u64, is_main: bool) {
        let goes_away = !is_main || self.leaves_gap(seq, Places::default());
        let kept = &mut self.kept[(seq - self.first) as usize];
        self.waiting_bytes -= kept.payload.len();
        if goes_away && !kept.is_away {
            kept.is_away = true;
            self.away += 1;
        }
        let runs = if kept.is_ordered() { &mut self.ordered } else { &mut self.data };
        debug_assert_eq!(runs.front(), Some(seq));
        runs.pop();
    }

    /// The connection that carried the frame, which is not acknowledged, is gone: it waits again.
    pub(crate) fn give_back(&mut self, seq: u64) {
        let kept = self.at(seq);
        debug_assert!(!kept.is_acknowledged);
        let (len, is_ordered) = (kept.payload_len(), kept.is_ordered());
        self.waiting_bytes += len;
        let runs = if is_ordered { &mut self.ordered } else { &mut self.data };
        runs.insert(seq);
    }

    /// The far process has the frame, which does not wait. The bytes of its payload.
    pub(crate) fn acknowledge(&mut self, seq: u64) -> u64 {
        let kept = &mut self.kept[(seq - self.first) as usize];
        let len = kept.payload.len();
        self.kept_bytes -= len;
        kept.is_acknowledged = true;
        if seq > self.first {
            kept.payload = SendBuffer::empty();
        } else {
            self.drop_front();
        }
        len
    }

    /// The far process has every frame below `seq`. No connection carries any.
    pub(crate) fn acknowledge_below(&mut self, seq: u64) {
        while self.first < seq {
            let Some(kept) = self.kept.front_mut() else { break };
            if !kept.is_acknowledged {
                self.kept_bytes -= kept.payload.len();
                self.waiting_bytes -= kept.payload.len();
                kept.is_acknowledged = true;
            }
            self.drop_front();
        }
        self.ordered.drop_below(seq);
        self.data.drop_below(seq);
    }

    /// Forgets the first frames that are acknowledged.
    fn drop_front(&mut self) {
        while let Some(kept) = self.kept.pop_front_if(|kept| kept.is_acknowledged) {
            self.first += 1;
            self.away -= u64::from(kept.is_away);
        }
        if self.kept.is_empty() && self.kept.capacity() > IDLE_CAPACITY {
            self.kept.shrink_to(IDLE_CAPACITY);
        }
    }

    pub(crate) fn own_message(&mut self, message: u64) {
        for kept in &mut self.kept {
            if kept.frame.message() == Some(message) && !kept.payload.is_owned() {
                kept.payload = kept.payload.to_owned();
            }
        }
    }
}
