//! The stream: numbering, acknowledgement, retention, resumption.

use std::io::{self, IoSlice};

use gridmpi_buffer::SendBuffer;
use gridmpi_wire::{Frame, Header, Kind, Strand};
use thiserror::Error;

use crate::Bounds;
use crate::gather::Gather;
use crate::inbound::Received;
use crate::queue::{Cursor, Places, Queue};
use crate::spread::{Choice, Early, Laid, shared_frame};
use crate::standing::{Patience, Standing};

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
    /// It is its turn: handle it, then call [`Stream::received`] once its payload has landed.
    Deliver,
    /// Unsequenced (`Ack`, `Ping`, `Pong`): the stream has done what there was to do.
    Control,
    /// Already received over another connection: read its payload and drop it, then call
    /// [`Stream::received`].
    Duplicate,
}

/// The peer broke the rules of the stream: its fault. Nothing it sends can be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// A frame came that must be in order, and one before it has not come; or a number that cannot be.
    #[error("frame {got} came where frame {expected} was due")]
    Gap {
        /// Number due.
        expected: u64,
        /// Number that came.
        got: u64,
    },
    /// Frames came in so many places that not even several connections can be the reason.
    #[error("its frames came with {gaps} gaps between them; {most} are possible")]
    Scattered {
        /// How many gaps there are.
        gaps: u64,
        /// How many there may be.
        most: u64,
    },
    /// Frames were acknowledged that were never written.
    #[error("{acknowledged} frames were acknowledged, but only {written} were written")]
    AckOfUnwritten {
        /// How many were acknowledged on the connection.
        acknowledged: u64,
        /// How many were written on it.
        written: u64,
    },
    /// The peer wants to resume at frames that do not exist.
    #[error("the peer wants to resume at frame {wanted}; possible are 1 to {last}")]
    CannotResume {
        /// Number wanted.
        wanted: u64,
        /// The highest number that it can want.
        last: u64,
    },
}

/// One direction out and one direction in, to and from one process, over as many connections as stand.
///
/// The contract: what happened goes in by calls (`receive`, `received`, `resume`, `disconnect`,
/// `tick`), bytes come out by [`Self::transmit`]. No time but ticks, no I/O but the caller's `write`.
/// Frames are numbered from 1 as they are pushed, kept until the far process has acknowledged them,
/// and written again, on the connections that are left or the next one, when a connection is lost.
///
/// What must be in order goes over one connection, and comes in order; `Data` comes as it comes, and
/// says itself where it belongs.
#[derive(Debug, Default)]
pub struct Stream {
    queue: Queue,
    received: Received,
    /// The connections that stand.
    standing: Vec<Standing>,
    /// The one of them for what must be in order.
    main: Option<Strand>,
    early: Early,
    bounds: Bounds,
    gather: Gather,
    /// Connections to be ended: see [`Stream::overtaken`].
    overtaken: Vec<Strand>,
    /// See [`Stream::in_vain`].
    in_vain: u32,
}

impl Stream {
    /// A stream that has neither sent nor received, without a connection. The bounds are the same at
    /// both ends.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Queues a sequenced frame and returns its number. `payload` is at most
    /// [`gridmpi_wire::MAX_PAYLOAD`] long and empty for kinds without one.
    pub fn push(&mut self, frame: Frame, payload: SendBuffer) -> u64 {
        self.queue.push(frame, payload, 0)
    }

    /// Queues a frame of `Data` of a message that the frame with the number `opening` has begun; else as
    /// [`Self::push`].
    pub fn push_data(&mut self, frame: Frame, payload: SendBuffer, opening: u64) -> u64 {
        self.queue.push(frame, payload, opening)
    }

    /// Queues a [`Frame::Pong`] that nobody has asked for, which says nothing, on one connection. Nothing without that one.
    pub fn pong(&mut self, strand: Strand) {
        if let Some(at) = self.place(strand) {
            self.standing[at].control.pong = true;
        }
    }

    /// Queues a [`Frame::Ping`] on every connection; it is lost with it.
    pub fn ping(&mut self) {
        self.standing.iter_mut().for_each(|standing| standing.control.ping = true);
    }

    /// Writes at most about `max` bytes on a connection through `write` (`writev` or a model of it), many
    /// small frames in one call, going on where the last write stopped. `write` is called at most once,
    /// with at most twice [`gridmpi_buffer::MAX_SLICES`] slices, and not at all when there is nothing
    /// to write. `behind`: bytes that will be pushed when there is room, so that the connections can share them.
    ///
    /// `Idle` without that connection, and where others are to carry what there is.
    ///
    /// # Errors
    /// `write`'s own, but for `WouldBlock` (`Blocked`) and `Interrupted` (`More`). A write of 0 bytes
    /// is `WriteZero`.
    pub fn transmit(
        &mut self,
        strand: Strand,
        max: usize,
        behind: u64,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        let Some(at) = self.place(strand).filter(|&at| self.has_for_place(at, behind)) else {
            return Ok(Progress::Idle);
        };
        self.plan(at, max, behind);
        let done = match self.gather.write(&self.queue, write) {
            Ok(done) => done,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Blocked);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Progress::More),
            Err(error) => return Err(error),
        };
        self.account(at, done.written);
        Ok(match (done.is_short, self.has_for_place(at, behind)) {
            (true, _) => Progress::Blocked,
            (false, true) => Progress::More,
            (false, false) => {
                self.gather.release();
                Progress::Idle
            }
        })
    }

    fn place(&self, strand: Strand) -> Option<usize> {
        self.standing.iter().position(|standing| standing.strand == strand)
    }

    fn choice(&self, behind: u64) -> Choice<'_> {
        let Self { queue, standing, early, bounds, main, .. } = self;
        Choice { queue, standing, early, bounds, main: *main, behind }
    }

    /// Whether [`Self::transmit`] would find something for this connection.
    #[must_use]
    pub fn has_for(&self, strand: Strand, behind: u64) -> bool {
        self.place(strand).is_some_and(|at| self.has_for_place(at, behind))
    }

    fn has_for_place(&self, at: usize, behind: u64) -> bool {
        let standing = &self.standing[at];
        standing.cursor.is_some()
            || standing.control.is_wanted()
            || standing.inbound.ack_due(self.is_shared())
            || self.has_frame_for(at, behind)
    }

    /// Whether several connections share what there is, or may do so soon.
    fn is_shared(&self) -> bool {
        self.standing.len() > 1 || self.standing.iter().any(|standing| standing.reach.is_some())
    }

    fn has_frame_for(&self, at: usize, behind: u64) -> bool {
        let next = || self.choice(behind).next(at, Places::default(), &Laid::default());
        self.queue.has_waiting() && next().is_some()
    }

    /// Lays out the next bytes: the rest of a frame begun, control frames, then whole frames.
    fn plan(&mut self, at: usize, max: usize, behind: u64) {
        let carries_ack = self.standing[at].cursor.is_some() || self.has_frame_for(at, behind);
        let is_shared = self.is_shared();
        let standing = &mut self.standing[at];
        let ack = standing.inbound.ack();
        let is_alone = standing.inbound.ack_due(is_shared) && !carries_ack;
        standing.control.encode(ack, is_alone);
        let mut gather = std::mem::take(&mut self.gather);
        gather.begin(max, ack);
        let standing = &self.standing[at];
        if let Some(cursor) = standing.cursor {
            gather.frame(&self.queue, cursor);
        }
        gather.bytes(standing.control.rest());
        let choice = self.choice(behind);
        let (mut places, mut laid) = (Places::default(), Laid::default());
        while !gather.is_full()
            && let Some((seq, is_ordered)) = choice.next(at, places, &laid)
        {
            gather.whole(&self.queue, seq);
            choice.lay(at, seq, places, &mut laid);
            places = self.queue.step(places, is_ordered);
        }
        self.gather = gather;
    }

    /// `written` bytes of the plan have gone, in the same order.
    fn account(&mut self, at: usize, written: usize) {
        let Self { queue, standing, gather, early, main, .. } = self;
        let standing = &mut standing[at];
        let mut rest = written;
        if let Some(cursor) = standing.cursor.take() {
            let left = queue.at(cursor.seq).len() - cursor.at;
            if rest < left {
                standing.cursor = Some(Cursor { at: cursor.at + rest, ..cursor });
                return;
            }
            rest -= left;
            queue.wrote(cursor.seq);
            standing.wrote(cursor.seq);
        }
        let was_begun = standing.control.is_begun();
        let control = standing.control.wrote(rest);
        rest -= control;
        let ack = standing.inbound.ack();
        if rest > 0 || (control > 0 && !was_begun) {
            // A head encoded for this write has begun to go, and bears the newest number.
            standing.inbound.acknowledged();
        }
        let is_main = *main == Some(standing.strand);
        for seq in gather.begun().iter().cloned().flatten() {
            if rest == 0 {
                break;
            }
            let kept = queue.at(seq);
            let (len, payload) = (kept.len(), kept.payload_len());
            if !is_main {
                early.begin(seq, queue);
            }
            queue.take(seq, is_main);
            standing.begin(payload);
            if rest < len {
                standing.cursor = Some(Cursor { seq, at: rest, ack });
                break;
            }
            queue.wrote(seq);
            standing.wrote(seq);
            rest -= len;
        }
    }

    /// Whether [`Self::transmit`] has something to write on one of the connections: frames, a due
    /// acknowledgement, a `Pong`.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        let is_shared = self.is_shared();
        let has_own = |standing: &Standing| {
            standing.cursor.is_some()
                || standing.control.is_wanted()
                || standing.inbound.ack_due(is_shared)
        };
        self.is_connected() && (self.queue.has_waiting() || self.standing.iter().any(has_own))
    }

    /// The highest number whose frame, and so every one before it, has been handed to a connection
    /// whole at least once. Never falls, not even when a connection is lost.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.queue.written()
    }

    /// The number up to which the far process has acknowledged all; perhaps others, too.
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

    /// Payload bytes pushed and not wholly written on a connection that stands (whole frames).
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        let begun = self.standing.iter().filter_map(|standing| standing.cursor);
        let begun = begun.map(|cursor| self.queue.at(cursor.seq).payload_len());
        self.queue.waiting_bytes() + begun.sum::<u64>()
    }

    /// The same without what is written of frames that connections have begun.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.queue.waiting_bytes() + self.begun_bytes().unwrap_or(0)
    }

    /// Payload bytes to the end of the frames that connections have begun, or else of the one that goes next.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        let next = || self.queue.first_waiting().map(|seq| self.queue.at(seq).payload_len());
        self.begun_bytes().or_else(next).unwrap_or(0)
    }

    fn begun_bytes(&self) -> Option<u64> {
        let begun = self.standing.iter().filter_map(|standing| standing.cursor);
        begun.map(|cursor| self.queue.left_of(cursor)).reduce(u64::saturating_add)
    }

    /// Payload bytes pushed that no connection has begun to carry.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.waiting_bytes()
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
    pub fn receive(&mut self, strand: Strand, header: &Header) -> Result<Receive, StreamError> {
        if let Some(at) = self.place(strand) {
            let standing = &mut self.standing[at];
            if standing.acknowledge(header.ack, &mut self.queue)? {
                self.in_vain = 0;
            }
            if !header.kind.is_sequenced() {
                standing.control.pong |= header.kind == Kind::Ping;
            }
            self.early.settle(&self.queue);
        }
        if !header.kind.is_sequenced() {
            return Ok(Receive::Control);
        }
        let receive = self.received.begins(header)?;
        if receive == Receive::Deliver && header.payload_len() > 0 {
            self.lands(strand, header.seq);
        }
        Ok(receive)
    }

    fn lands(&mut self, strand: Strand, seq: u64) {
        for standing in &mut self.standing {
            if standing.strand == strand {
                standing.inbound.landing = Some(seq);
            } else if standing.inbound.landing == Some(seq) {
                self.overtaken.push(standing.strand);
            }
        }
    }

    /// A connection in the midst of a frame that another one has begun to bring: the far process has lost it. It must be ended
    /// before more is read from it, for both would write to the same place, and what comes by the one may be damaged,
    /// which is not known before its next checksum.
    pub fn overtaken(&mut self) -> Option<Strand> {
        self.overtaken.pop()
    }

    /// A numbered frame that [`Self::receive`] has named has landed whole. Whether it counts: it may have
    /// come over another connection meanwhile.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub fn received(&mut self, strand: Strand, header: &Header) -> Result<bool, StreamError> {
        if let Some(at) = self.place(strand) {
            self.standing[at].inbound.received(header);
        }
        self.received.landed(header, &self.bounds)
    }

    /// The lowest number that has not come from the far process: what a handshake tells it.
    #[must_use]
    pub fn expects(&self) -> u64 {
        self.received.expects()
    }

    /// A connection is there, on which the far process has said that it expects frame `peer_expects` next;
    /// it may have got and acknowledged others since. One with the same number that stood is lost.
    ///
    /// # Errors
    /// That frame does not exist.
    pub fn resume(&mut self, strand: Strand, peer_expects: u64) -> Result<(), StreamError> {
        let last = self.written() + 1;
        if !(1..=last).contains(&peer_expects) {
            return Err(StreamError::CannotResume { wanted: peer_expects, last });
        }
        self.disconnect(strand);
        if self.standing.is_empty() {
            if peer_expects > self.queue.first() {
                self.in_vain = 0;
            }
            self.queue.acknowledge_below(peer_expects);
            self.early.settle(&self.queue);
        }
        self.standing.push(Standing::new(strand));
        self.main.get_or_insert(strand);
        Ok(())
    }

    /// A connection is lost. What it had and is not acknowledged is written again, on those that are left or on
    /// the next.
    pub fn disconnect(&mut self, strand: Strand) {
        let Some(at) = self.place(strand) else { return };
        let lost = self.standing.swap_remove(at);
        if lost.frames().1 > 0 {
            self.in_vain = self.in_vain.saturating_add(1);
        }
        lost.end(&mut self.queue);
        self.overtaken.retain(|&other| other != strand);
        if self.main == Some(strand) {
            self.main = self.standing.iter().map(|standing| standing.strand).min();
        }
        self.gather.release();
    }

    /// Whether a connection is there.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.standing.is_empty()
    }

    /// The connections that stand.
    pub fn strands(&self) -> impl Iterator<Item = Strand> + '_ {
        self.standing.iter().map(|standing| standing.strand)
    }

    /// Payload bytes that the far process has acknowledged on a connection since it was made, and those that
    /// have begun to go and are not acknowledged; `None` without it.
    #[must_use]
    pub fn carried(&self, strand: Strand) -> Option<(u64, u64)> {
        let standing = &self.standing[self.place(strand)?];
        Some((standing.delivered(), standing.flight()))
    }

    /// Frames that were acknowledged on a connection since it was made, and those that are written and are not.
    #[must_use]
    pub fn frames(&self, strand: Strand) -> Option<(u64, u64)> {
        Some(self.standing[self.place(strand)?].frames())
    }

    /// How many connections were lost with frames on their way since the far process is known to have got any.
    #[must_use]
    pub const fn in_vain(&self) -> u32 {
        self.in_vain
    }

    /// How fast a connection has been seen to carry, bytes per second: what it gets of `Data` follows it.
    pub fn set_rate(&mut self, strand: Strand, bytes_per_second: f64) {
        if let Some(at) = self.place(strand) {
            self.standing[at].rate = Some(bytes_per_second.max(1.0));
        }
    }

    /// How many payload bytes a connection may have on its way, begun and not acknowledged, before more `Data` is given to
    /// it; at least one frame. Without a call it has no bound of its own. The path would hold the bytes that the others
    /// could carry: relays and the system hold megabytes.
    pub fn set_reach(&mut self, strand: Strand, bytes: u64) {
        if let Some(at) = self.place(strand) {
            self.standing[at].reach = Some(bytes);
        }
    }

    /// The longest frames of `Data` that are good for the connections which share what there is; `None` where one carries all.
    #[must_use]
    pub fn shared_frame(&self) -> Option<u32> {
        self.is_shared().then(|| shared_frame(&self.standing))
    }

    /// Whether frames may wait for acknowledgements of others.
    #[must_use]
    pub fn waits_for_others(&self) -> bool {
        self.queue.has_waiting() && self.is_shared()
    }

    /// Whether [`Self::tick`] wants to be called so long from now: something received is unacknowledged and nothing has
    /// gone back that could carry the acknowledgement.
    #[must_use]
    pub fn wants_tick(&self, patience: Patience) -> bool {
        self.standing.iter().any(|standing| standing.inbound.wants_tick(patience))
    }

    /// So long has passed: what was unacknowledged at the last tick is due now. Whether [`Self::wants_transmit`] now holds
    /// because of it.
    pub fn tick(&mut self, patience: Patience) -> bool {
        let ticks = self.standing.iter_mut().map(|standing| standing.inbound.tick(patience));
        ticks.fold(false, |any, due| any | due)
    }
}
