//! The endpoint: what its callers may do.

use crate::early::Early;
use crate::incoming::Incoming;
use crate::lanes::Pattern;
use crate::matching::{Posted, Unexpected};
use crate::peer::{Peer, Peers};
use crate::request::{Requests, State, Waiting};
use crate::slab::{Key, Slab};
use crate::wildcard::Held;
use crate::{
    Completion, Config, LocalMatch, MessageId, Mode, PeerMisbehaved, Probed, Progress, RequestId,
    Source, TagMatch, Word,
};
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_trunk::{Patience, Stream};
use gridmpi_wire::{ContextId, Envelope, Frame, Header, ProcId, Rank, Strand};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

/// Where the payload of a frame goes; from [`Endpoint::frame`] to [`Endpoint::frame_end`].
#[derive(Debug)]
pub struct Sink {
    pub(crate) strand: Strand,
    pub(crate) header: Header,
    pub(crate) frame: Frame,
    pub(crate) target: Target,
    pub(crate) len: u32,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// It is a repetition or unsequenced: its payload, if any, is discarded.
    Nothing,
    /// It has no payload and takes effect at its end.
    Deliver,
    /// Its payload belongs to a message, from `offset` on.
    Message { key: Key, offset: u64 },
    /// Its payload belongs to a message that has not begun.
    Early { key: Key },
}

impl Sink {
    /// Bytes of payload that it takes.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether the frame has no payload: `frame_end` may be called at once.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// All messaging state of one process: matching, requests, and a stream of frames to and from each
/// process of another cluster that it has talked to.
///
/// It does no I/O and has no clock. The program's side calls `send`, `receive`, `probe`, `take` …
/// and, while [`has_held`](Self::has_held), `poll_local`. The network's side calls
/// * `wants_connection` for peers to connect to, then `connected`, or `disconnected` to be told again,
///   or `peer_lost`; a peer may have up to [`Strand::MAX`] connections, each under its number, and more are
///   the network's to make, where [`unwritten_bytes`](Self::unwritten_bytes) are many;
/// * for each frame read: `frame`, then `sink_slices` (or `sink_write`) until the payload is stored,
///   then `frame_end`; nothing for a frame that a cut connection left unfinished but `disconnected`;
/// * `wants_transmit` for connected peers that have something to write, then `transmit`;
/// * `tick` so long after `wants_tick` became true as it was asked for;
/// * `heard` for what peers say about rates, and `tell` for answers.
///
/// Every call may complete requests; [`completions`](Self::completions) tells whether one did.
/// Not synchronised: share it behind a lock. No call blocks; all are short but for copying payload.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) requests: Requests,
    pub(crate) posted: Posted,
    pub(crate) unexpected: Unexpected,
    pub(crate) incoming: Slab<Incoming>,
    pub(crate) early: Slab<Early>,
    pub(crate) held: Held,
    pub(crate) peers: Peers,
    /// Posted receives that any peer can serve.
    pub(crate) awaiting_any: usize,
    pub(crate) closing: bool,
    /// What peers have said about rates.
    pub(crate) heard: VecDeque<(ProcId, Word)>,
    pub(crate) overtaken: Vec<(ProcId, Strand)>,
    /// Takes payload that nobody wants.
    waste: RecvBuffer,
}

impl Endpoint {
    /// An endpoint that has talked to nobody.
    ///
    /// # Panics
    /// On a configuration outside its documented ranges.
    #[must_use]
    pub fn new(config: Config) -> Self {
        assert!(config.credit_envelopes > 0 && config.credit_envelopes <= u64::from(u32::MAX));
        assert!(config.chunk > 0 && config.chunk <= gridmpi_wire::MAX_PAYLOAD);
        Self {
            config,
            requests: Requests::new(),
            posted: Posted::new(),
            unexpected: Unexpected::new(),
            incoming: Slab::new(),
            early: Slab::new(),
            held: Held::new(),
            peers: Peers::new(),
            awaiting_any: 0,
            closing: false,
            heard: VecDeque::new(),
            overtaken: Vec::new(),
            waste: RecvBuffer::discard(u64::from(u32::MAX)),
        }
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    // The program's side.

    /// Starts to send `buffer` to `to`, as rank `source` of `context`'s communicator.
    /// Completes as `mode` says, or with `PeerLost`.
    pub fn send(
        &mut self,
        to: ProcId,
        context: ContextId,
        source: Rank,
        tag: i32,
        mode: Mode,
        buffer: SendBuffer,
    ) -> RequestId {
        let envelope = Envelope {
            context,
            source,
            tag,
            message: 0,
            len: buffer.len(),
            eager: 0,
            synchronous: mode == Mode::Synchronous,
        };
        self.start_send(to, envelope, mode, buffer)
    }

    /// Posts a receive. `Source::Any` is held here (see `poll_local`). `Source::Local` is for
    /// receives that `must_hold` names; others go to the vendor directly.
    pub fn receive(
        &mut self,
        context: ContextId,
        source: Source,
        tag: TagMatch,
        buffer: RecvBuffer,
    ) -> RequestId {
        let pattern = pattern(context, source, tag);
        if !matches!(source, Source::Local(_))
            && let Some(key) = self.find_unexpected(&pattern)
        {
            self.claim_message(key);
            return self.receive_message(key, buffer);
        }
        self.post(pattern, source, buffer)
    }

    /// Whether a receive from the local `source` must be held here because a held receive that was
    /// posted before could match the same message. To be asked and acted on under one lock.
    #[must_use]
    pub fn must_hold(&self, context: ContextId, source: Rank, tag: TagMatch) -> bool {
        !self.held.is_empty() && self.held.competes(&pattern(context, Source::Local(source), tag))
    }

    /// The unexpected message of a peer that a receive with this pattern would get now, if any.
    /// `Source::Local` finds nothing here.
    pub fn probe(&mut self, context: ContextId, source: Source, tag: TagMatch) -> Option<Probed> {
        self.look(context, source, tag).map(|found| found.1)
    }

    /// Like `probe`, for messages of this cluster (`source`: of one rank, or of any): the vendor's
    /// first message that no held receive accepts; held receives get theirs on the way.
    pub fn probe_local(
        &mut self,
        vendor: &mut dyn LocalMatch,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)> {
        self.probe_vendor(vendor, Pattern { context, source, tag })
    }

    /// Like `probe`, and takes the message out of matching (MPI 4.1 §3.8.2, matching probe).
    pub fn claim(
        &mut self,
        context: ContextId,
        source: Source,
        tag: TagMatch,
    ) -> Option<(MessageId, Probed)> {
        let (key, probed) = self.look(context, source, tag)?;
        self.claim_message(key);
        Some((MessageId(key), probed))
    }

    /// Receives a claimed message.
    ///
    /// # Panics
    /// If `message` was received already.
    pub fn receive_claimed(&mut self, message: MessageId, buffer: RecvBuffer) -> RequestId {
        self.receive_message(message.0, buffer)
    }

    /// Cancels a receive that has not matched: it completes as cancelled, and `true` is returned.
    /// Changes nothing otherwise; sends are never cancelled (MPI 4.1 §3.8.4). A receive that was
    /// handed to the vendor is the vendor's to cancel, then `local_completed` is told.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let Some(buffer) = self.unpost(request, State::Receiving) else { return false };
        let completion = Completion { cancelled: true, ..Completion::none() };
        self.requests.complete(request, completion, Some(buffer));
        true
    }

    /// How the request ended, if it has.
    ///
    /// # Panics
    /// On a request that was taken or detached.
    #[must_use]
    pub fn peek(&self, request: RequestId) -> Option<&Completion> {
        self.requests.peek(request)
    }

    /// How the request ended, if it has; it is gone then.
    ///
    /// # Panics
    /// Like [`peek`](Self::peek).
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        self.requests.take(request).map(|done| done.0)
    }

    /// Like `take`, with the buffer back, of a receive that a peer served or that was cancelled.
    ///
    /// # Panics
    /// Like [`peek`](Self::peek).
    pub fn take_with_buffer(
        &mut self,
        request: RequestId,
    ) -> Option<(Completion, Option<RecvBuffer>)> {
        self.requests.take(request)
    }

    /// Lets the request complete by itself and then go (`MPI_Request_free`).
    pub fn detach(&mut self, request: RequestId) {
        self.requests.detach(request);
    }

    /// Requests that completed since the endpoint was made: a change means something to look at.
    #[must_use]
    pub const fn completions(&self) -> u64 {
        self.requests.completions()
    }

    // The vendor's side.

    /// Whether `poll_local` has something to look for.
    #[must_use]
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Satisfies held receives from the vendor's messages and posts those that are free to be.
    /// Returns whether anything moved.
    pub fn poll_local(&mut self, vendor: &mut dyn LocalMatch) -> bool {
        self.has_held() && self.poll_vendor(vendor)
    }

    /// The vendor has completed a receive that `LocalMatch` was given.
    pub fn local_completed(&mut self, request: RequestId, completion: Completion) {
        self.requests.complete(request, completion, None);
    }

    // The network's side.

    /// Peers that frames wait for and that have no connection: each is named once until the next
    /// `disconnected`.
    pub fn wants_connection(&mut self) -> Option<ProcId> {
        self.peers.next_dial()
    }

    /// A connection to `peer` stands; another of its number is gone. `peer_expects` is the number of the first frame
    /// that the peer has said it has not received: where this is the only connection, all from there on are written
    /// again.
    ///
    /// # Errors
    /// A number that cannot be: the connection is to be closed.
    pub fn connected(
        &mut self,
        peer: ProcId,
        strand: Strand,
        peer_expects: u64,
    ) -> Result<(), PeerMisbehaved> {
        self.forget_early(peer, Some(strand));
        let state = self.peers.open(peer, &self.config);
        if state.lost.is_some() {
            return Err(PeerMisbehaved::new(peer, "it was given up"));
        }
        let resumed = state.stream.resume(strand, peer_expects);
        resumed.map_err(|error| PeerMisbehaved::new(peer, error.to_string()))?;
        self.acknowledged(peer);
        self.peers.attend(peer);
        Ok(())
    }

    /// A connection to `peer` is gone; its unfinished frame is forgotten. What it had goes over those that are left; if
    /// none is, the peer is named in `wants_connection` again.
    pub fn disconnected(&mut self, peer: ProcId, strand: Strand) {
        self.forget_early(peer, Some(strand));
        // The next one of its number has overtaken nobody.
        self.overtaken.retain(|&other| other != (peer, strand));
        let Some(state) = self.peers.get_mut(peer) else { return };
        state.stream.disconnect(strand);
        if !state.stream.is_connected() {
            self.peers.forget_dial(peer);
        }
        self.peers.attend(peer);
    }

    /// The number of the next frame expected from `peer`, for the handshake.
    #[must_use]
    pub fn expects(&self, peer: ProcId) -> u64 {
        self.peers.get(peer).map_or(1, |peer| peer.stream.expects())
    }

    /// Grows with what comes from `peer` for the first time, and with what it is known to have.
    #[must_use]
    pub fn progress(&self, peer: ProcId) -> u64 {
        let progress =
            |peer: &Peer| peer.stream.expects().saturating_add(peer.stream.acknowledged());
        self.peers.get(peer).map_or(1, progress)
    }

    /// Whether `peer` has acknowledged all frames that there were for it so far.
    #[must_use]
    pub fn is_idle(&self, peer: ProcId) -> bool {
        self.peers.get(peer).is_none_or(|peer| peer.stream.is_drained())
    }

    /// A frame's header and fields have been read on a connection; its payload follows and goes
    /// where the sink says.
    ///
    /// # Errors
    /// What the protocol does not allow: close the connection and call `peer_lost`.
    pub fn frame(
        &mut self,
        peer: ProcId,
        strand: Strand,
        header: &Header,
        frame: Frame,
    ) -> Result<Sink, PeerMisbehaved> {
        self.begin_frame(peer, strand, header, frame)
    }

    /// A connection that [`Endpoint::frame`] has found to be lost to its peer: what is half read from it comes by another one. To be
    /// ended before more is read from it.
    pub fn overtaken(&mut self) -> Option<(ProcId, Strand)> {
        self.overtaken.pop()
    }

    /// Hands `f` memory to read the payload into, from its byte `offset` on. It may cover less than
    /// the rest. Ask again after every release of the lock: a receive may have matched meanwhile.
    ///
    /// # Panics
    /// If `offset` is beyond the payload.
    pub fn sink_slices<R>(
        &mut self,
        sink: &Sink,
        offset: u32,
        f: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
    ) -> R {
        assert!(offset <= sink.len, "beyond the payload");
        let left = u64::from(sink.len - offset);
        let (buffer, start) = self.landing_place(sink);
        buffer.with_io_slices_mut(start + u64::from(offset), left, f)
    }

    /// Stores payload that was read elsewhere, from byte `offset` of the payload on.
    ///
    /// # Panics
    /// If the data reaches beyond the payload.
    pub fn sink_write(&mut self, sink: &Sink, offset: u32, data: &[u8]) {
        assert!(offset as usize + data.len() <= sink.len as usize, "beyond the payload");
        let (buffer, start) = self.landing_place(sink);
        buffer.write_at(start + u64::from(offset), data);
    }

    /// Whether the memory is in pieces so short that reading elsewhere and `sink_write` is better.
    #[must_use]
    pub fn sink_is_fragmented(&self, sink: &Sink) -> bool {
        match sink.target {
            Target::Message { key, .. } => {
                self.incoming.get(key).is_some_and(|message| message.buffer().is_fragmented())
            }
            _ => false,
        }
    }

    /// All payload of the frame is stored.
    ///
    /// # Errors
    /// What the protocol does not allow: close the connection and call `peer_lost`.
    pub fn frame_end(&mut self, peer: ProcId, sink: Sink) -> Result<(), PeerMisbehaved> {
        self.end_frame(peer, &sink)
    }

    /// Offers `write` what is to be written next on a connection, at most about `max` bytes, and takes note of how
    /// much it wrote. `write` is called at most once; `WouldBlock` ends in `Progress::Blocked`.
    ///
    /// # Errors
    /// Those of `write` but for `WouldBlock` and `Interrupted`.
    pub fn transmit(
        &mut self,
        peer: ProcId,
        strand: Strand,
        max: usize,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        self.write_to(peer, strand, max, write)
    }

    /// Payload bytes that `peer` has acknowledged on a connection since it was made, and those that have begun to go and
    /// are not acknowledged; `None` without it.
    #[must_use]
    pub fn carried(&self, peer: ProcId, strand: Strand) -> Option<(u64, u64)> {
        self.peers.get(peer)?.stream.carried(strand)
    }

    /// Frames that `peer` has acknowledged on a connection since it was made, and those that are written and are not; `None`
    /// without it.
    #[must_use]
    pub fn frames(&self, peer: ProcId, strand: Strand) -> Option<(u64, u64)> {
        self.peers.get(peer)?.stream.frames(strand)
    }

    /// How many connections to `peer` were lost with frames on their way since it is known to have got any.
    #[must_use]
    pub fn in_vain(&self, peer: ProcId) -> u32 {
        self.peers.get(peer).map_or(0, |peer| peer.stream.in_vain())
    }

    /// How fast a connection to `peer` has been seen to carry, bytes per second: long messages spread over connections
    /// by that. Changes nothing where it is the only one.
    pub fn set_rate(&mut self, peer: ProcId, strand: Strand, bytes_per_second: f64) {
        if let Some(state) = self.peers.get_mut(peer) {
            state.stream.set_rate(strand, bytes_per_second);
        }
        // Another connection may be the one for what waits.
        self.peers.attend(peer);
    }

    /// How many payload bytes a connection to `peer` may have on its way, unacknowledged, before it is given more of long
    /// messages; where this is not called there is no such bound.
    pub fn set_reach(&mut self, peer: ProcId, strand: Strand, bytes: u64) {
        if let Some(state) = self.peers.get_mut(peer) {
            state.stream.set_reach(strand, bytes);
        }
        self.peers.attend(peer);
    }

    /// Bytes of messages that may be written to `peer` and have not been on a present connection, by whole frames.
    #[must_use]
    pub fn unwritten_bytes(&self, peer: ProcId) -> u64 {
        self.peers.get(peer).map_or(0, |peer| peer.stream.queued_bytes() + peer.unfed)
    }

    /// The same without what is written of frames that go now; all ones where newer messages may go before the end of a long one.
    #[must_use]
    pub fn left_bytes(&self, peer: ProcId) -> u64 {
        let left = |peer: &Peer| if peer.unfed == 0 { peer.stream.left_bytes() } else { u64::MAX };
        self.peers.get(peer).map_or(0, left)
    }

    /// Bytes of messages for `peer` to the end of the frame that is partly written, or else of the one that goes next.
    #[must_use]
    pub fn frame_bytes(&self, peer: ProcId) -> u64 {
        self.peers.get(peer).map_or(0, |peer| peer.stream.frame_bytes())
    }

    /// Says something about rates to `peer`, behind what is queued; nothing once the stream to it is closing or it is lost.
    pub fn tell(&mut self, peer: ProcId, word: Word) {
        let state = self.peers.open(peer, &self.config);
        if self.closing || state.lost.is_some() {
            return;
        }
        state.stream.push(word.into(), SendBuffer::empty());
        self.peers.attend(peer);
    }

    /// What a peer has said about rates, in the order in which it came.
    pub fn heard(&mut self) -> Option<(ProcId, Word)> {
        self.heard.pop_front()
    }

    /// Appends the connected peers that got something to write since they were last named.
    pub fn wants_transmit(&mut self, peers: &mut Vec<ProcId>) {
        self.peers.drain_ready(peers);
    }

    /// Whether `tick` has something to do so long from now.
    #[must_use]
    pub fn wants_tick(&self, patience: Patience) -> bool {
        self.peers.wants_tick(patience)
    }

    /// So long has passed: acknowledgements that nothing could carry become due. They show in `wants_transmit`.
    pub fn tick(&mut self, patience: Patience) {
        self.peers.tick(patience);
    }

    /// There is something to be written on a connection to `peer`, if that stands: a [`gridmpi_wire::Frame::Pong`], which says nothing.
    pub fn pong(&mut self, peer: ProcId, strand: Strand) {
        if let Some(state) = self.peers.get_mut(peer) {
            state.stream.pong(strand);
        }
    }

    /// Asks `peer` for a sign of life, if it is connected.
    pub fn ping(&mut self, peer: ProcId) {
        if let Some(state) = self.peers.get_mut(peer) {
            state.stream.ping();
        }
        self.peers.attend(peer);
    }

    /// Ends every stream in order, each when what was sent before is out (`MPI_Finalize`).
    pub fn close(&mut self) {
        self.closing = true;
        for id in self.peers.ids() {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.close_when_idle();
            }
            self.peers.attend(id);
        }
    }

    /// Whether every peer that is not lost has acknowledged all that was sent to it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.peers.iter().all(Peer::is_drained)
    }

    /// Whether `peer` has said that nothing will follow: the end of its connection is no failure.
    #[must_use]
    pub fn peer_closed(&self, peer: ProcId) -> bool {
        self.peers.get(peer).is_some_and(Peer::has_ended)
    }

    /// Gives `peer` up: its requests complete with `PeerLost`, and so does every later one. Messages
    /// of it that have come whole can still be received.
    pub fn peer_lost(&mut self, peer: ProcId, reason: &str) {
        let state = self.peers.open(peer, &self.config);
        if state.lost.is_some() {
            return;
        }
        state.lost = Some(reason.into());
        // What it kept refers to memory of the program, which gets its buffers back now.
        let has_ended = state.has_ended();
        state.stream = Stream::new(self.config.bounds);
        state.closed.theirs = has_ended.then_some(0);
        let Some(fault) = self.fault_of(peer) else { return };
        self.fail_sends(peer, &fault);
        self.forget_early(peer, None);
        self.fail_arriving(peer);
        for request in self.requests.waiting_for(peer) {
            self.unpost(request, State::Receiving);
            self.requests.fail(request, fault.clone());
        }
    }

    /// Unexpected messages and bytes that `peer` has here at most (credit it has used and not got
    /// back), for reports and tests.
    #[must_use]
    pub fn unexpected_of(&self, peer: ProcId) -> (u64, u64) {
        self.peers.get(peer).map_or((0, 0), |peer| peer.receive_credit.outstanding())
    }

    /// Requests that were not taken, and messages that were not received, for reports and tests.
    #[must_use]
    pub const fn live(&self) -> (usize, usize) {
        (self.requests.len(), self.incoming.len())
    }

    // Shared by both sides.

    fn post(&mut self, pattern: Pattern, source: Source, buffer: RecvBuffer) -> RequestId {
        let peer = match source {
            Source::Remote(_, peer) => Some(peer),
            _ => None,
        };
        let waiting = Waiting { pattern, posted: None, peer, held: None, buffer };
        let request = self.requests.insert(State::Waiting(waiting));
        let is_local = matches!(source, Source::Local(_));
        let posted = (!is_local).then(|| self.posted.push(pattern, request.0));
        let held = peer.is_none().then(|| self.held.push(pattern, request));
        if let Some(waiting) = self.requests.waiting_mut(request) {
            (waiting.posted, waiting.held) = (posted, held);
        }
        match source {
            Source::Local(_) => {}
            Source::Any => {
                self.awaiting_any += 1;
                self.lend_to_all();
            }
            Source::Remote(_, peer) => self.await_peer(request, peer),
        }
        request
    }

    fn await_peer(&mut self, request: RequestId, peer: ProcId) {
        self.peers.open(peer, &self.config).awaited += 1;
        if let Some(fault) = self.fault_of(peer) {
            self.unpost(request, State::Receiving);
            self.requests.fail(request, fault);
        } else {
            self.lend(peer);
        }
    }

    /// Takes a receive that waits out of all queues; it becomes `next`. Its buffer, or `None` if it
    /// does not wait.
    pub(crate) fn unpost(&mut self, request: RequestId, next: State) -> Option<RecvBuffer> {
        let waiting = self.requests.match_waiting(request, next)?;
        if let Some(handle) = waiting.posted {
            self.posted.remove(&waiting.pattern, handle);
        }
        if let Some(order) = waiting.held {
            self.held.remove(order);
        }
        match (waiting.peer.and_then(|peer| self.peers.get_mut(peer)), waiting.posted) {
            (Some(peer), _) => peer.awaited -= 1,
            (None, Some(_)) => self.awaiting_any -= 1,
            (None, None) => {}
        }
        Some(waiting.buffer)
    }

    fn look(&mut self, context: ContextId, source: Source, tag: TagMatch) -> Option<(Key, Probed)> {
        if matches!(source, Source::Local(_)) {
            return None;
        }
        let Some(key) = self.find_unexpected(&pattern(context, source, tag)) else {
            // MPI 4.1 §3.8.1: a probe that is repeated finds a message that was sent.
            match source {
                Source::Remote(_, peer) => self.lend(peer),
                _ => self.lend_to_all(),
            }
            return None;
        };
        let Envelope { source, tag, len, .. } = *self.incoming.get(key)?.envelope();
        Some((key, Probed { source, tag, len }))
    }

    /// The buffer and the offset in it that a frame's payload goes to.
    fn landing_place(&mut self, sink: &Sink) -> (&mut RecvBuffer, u64) {
        if let Target::Message { key, offset } = sink.target
            && let Some(message) = self.incoming.get_mut(key)
        {
            return (message.buffer_mut(), offset);
        }
        if let Target::Early { key } = sink.target
            && let Some(early) = self.early.get_mut(key)
        {
            return (early.buffer_mut(), 0);
        }
        (&mut self.waste, 0)
    }
}

fn pattern(context: ContextId, source: Source, tag: TagMatch) -> Pattern {
    let source = match source {
        Source::Any => None,
        Source::Local(rank) | Source::Remote(rank, _) => Some(rank),
    };
    Pattern { context, source, tag }
}
