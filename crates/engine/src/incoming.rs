//! Messages from peers: frames checked, payload to its place, credit back.
//!
//! A peer is authenticated but not trusted: every number it sends is checked against our state, and
//! memory is taken for what it has credit for and no more.

use crate::endpoint::{Endpoint, Sink, Target};
use crate::extent::Extent;
use crate::lanes::Pattern;
use crate::peer::Opened;
use crate::request::State;
use crate::slab::Key;
use crate::{Completion, Fault, PeerMisbehaved, RequestId, Word};
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_trunk::Receive;
use gridmpi_wire::{Envelope, Frame, Header, ProcId, Strand};

/// A message from a peer that no receive has finished.
pub(crate) struct Incoming {
    peer: ProcId,
    envelope: Envelope,
    /// Bytes of frames that have ended.
    received: Extent,
    /// No frame that has begun reaches beyond this.
    reached: u64,
    place: Place,
}

/// What the heap of a message grows by at most, beyond what has to be there: a block.
const MOST_AHEAD: u64 = 256 << 10;

/// Where a message stands, and its bytes.
enum Place {
    /// Among the unexpected ones, under this handle; the bytes that came are kept on the heap, which
    /// grows with the frames: often a receive takes over after the first.
    Unexpected { handle: u32, heap: RecvBuffer },
    /// Claimed by a matched probe.
    Claimed { heap: RecvBuffer },
    /// A receive has it. `buffer` takes the whole message; `capacity` bytes of it are the program's.
    Matched { request: RequestId, buffer: RecvBuffer, capacity: u64 },
}

impl Place {
    /// With a receive, for a message of `len` bytes.
    fn matched(request: RequestId, buffer: RecvBuffer, len: u64) -> Self {
        let capacity = buffer.capacity();
        Self::Matched { request, buffer: extend(buffer, len), capacity }
    }
}

impl Incoming {
    fn new(peer: ProcId, envelope: Envelope, place: Place) -> Self {
        Self { peer, envelope, received: Extent::default(), reached: 0, place }
    }

    pub(crate) const fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn is_complete(&self) -> bool {
        self.received.count() == self.envelope.len
    }

    /// Bytes that may come now: all once a receive has matched.
    const fn limit(&self) -> u64 {
        match self.place {
            Place::Matched { .. } => self.envelope.len,
            _ => self.envelope.eager,
        }
    }

    pub(crate) const fn buffer(&self) -> &RecvBuffer {
        match &self.place {
            Place::Unexpected { heap, .. } | Place::Claimed { heap } => heap,
            Place::Matched { buffer, .. } => buffer,
        }
    }

    pub(crate) const fn buffer_mut(&mut self) -> &mut RecvBuffer {
        match &mut self.place {
            Place::Unexpected { heap, .. } | Place::Claimed { heap } => heap,
            Place::Matched { buffer, .. } => buffer,
        }
    }

    /// Makes its place at least `len` bytes long, which it may have; one with a receive takes the whole message. The heap doubles, up to what it
    /// may have in all: many short frames cost no more than a few long ones.
    fn make_room(&mut self, len: u64) {
        self.reached = self.reached.max(len);
        let most = self.envelope.eager;
        if let Place::Unexpected { heap, .. } | Place::Claimed { heap } = &mut self.place
            && len > heap.capacity()
        {
            let had = heap.capacity();
            let wanted = (had + had.min(MOST_AHEAD)).min(most).max(len);
            let more = RecvBuffer::room(wanted - had);
            *heap = RecvBuffer::concat(vec![std::mem::replace(heap, RecvBuffer::empty()), more]);
        }
    }
}

fn exact(envelope: &Envelope) -> Pattern {
    Pattern::exact(envelope.context, envelope.source, envelope.tag)
}

/// `buffer`, made long enough for a message of `len` bytes; what does not fit is discarded.
fn extend(buffer: RecvBuffer, len: u64) -> RecvBuffer {
    let capacity = buffer.capacity();
    if len <= capacity {
        return buffer;
    }
    RecvBuffer::concat(vec![buffer, RecvBuffer::discard(len - capacity)])
}

/// Copies the first `len` bytes, to `offset`.
fn copy(from: &mut RecvBuffer, to: &mut RecvBuffer, offset: u64, len: u64) {
    let mut at = 0;
    while at < len {
        from.with_io_slices_mut(at, len - at, |slices| {
            for slice in slices {
                to.write_at(offset + at, slice);
                at += slice.len() as u64;
            }
        });
    }
}

impl Endpoint {
    /// A frame begins: check it, and find the place of its payload.
    pub(crate) fn begin_frame(
        &mut self,
        id: ProcId,
        strand: Strand,
        header: &Header,
        frame: Frame,
    ) -> Result<Sink, PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        if peer.lost.is_some() {
            return Err(PeerMisbehaved::new(id, "it was given up"));
        }
        let receive = peer.stream.receive(strand, header);
        let receive = receive.map_err(|error| PeerMisbehaved::new(id, error.to_string()))?;
        while let Some(strand) = peer.stream.overtaken() {
            self.overtaken.push((id, strand));
        }
        self.acknowledged(id);
        let target = match receive {
            Receive::Control => {
                self.peers.attend(id);
                Target::Nothing
            }
            Receive::Duplicate => Target::Nothing,
            Receive::Deliver => self.begin_new(id, strand, header, frame)?,
        };
        Ok(Sink { strand, header: *header, frame, target, len: header.payload_len() })
    }

    /// A frame begins that has not come before.
    fn begin_new(
        &mut self,
        id: ProcId,
        strand: Strand,
        header: &Header,
        frame: Frame,
    ) -> Result<Target, PeerMisbehaved> {
        let payload_len = header.payload_len();
        let peer = self.peers.open(id, &self.config);
        if peer.closed.theirs.is_some_and(|end| header.seq > end) {
            return Err(PeerMisbehaved::new(id, "it sent more after its end"));
        }
        if let Some(opened) = peer.opened
            && (header.kind.is_ordered() || header.seq == opened.seq)
        {
            // It has begun before, on a connection that did not bring all of it, or is at it still.
            let again = Opened { seq: header.seq, payload_len, ..opened };
            if again != opened || frame != Frame::Envelope(opened.envelope) {
                return Err(PeerMisbehaved::new(id, "it repeated a frame with other content"));
            }
            return Ok(Target::Message { key: opened.key, offset: 0 });
        }
        match frame {
            Frame::Envelope(envelope) => self.open_message(id, envelope, header),
            Frame::Data { message, .. } if message > peer.messages_received => {
                let Frame::Data { offset, .. } = frame else { return Ok(Target::Deliver) };
                self.begin_early(id, strand, (message, offset), payload_len)
            }
            Frame::Data { message, offset } => {
                self.find_place(id, message, offset, payload_len.into())
            }
            _ => Ok(Target::Deliver),
        }
    }

    /// An envelope: match it, or keep it as unexpected.
    fn open_message(
        &mut self,
        id: ProcId,
        envelope: Envelope,
        header: &Header,
    ) -> Result<Target, PeerMisbehaved> {
        let wrong = |what| Err(PeerMisbehaved::new(id, what));
        let peer = self.peers.open(id, &self.config);
        let payload_len = header.payload_len();
        let inline = u64::from(payload_len);
        if envelope.message != peer.messages_received.wrapping_add(1) {
            return wrong("its messages are misnumbered");
        }
        if envelope.eager > envelope.len || envelope.len > i64::MAX as u64 {
            return wrong("it announced a message of an impossible length");
        }
        if inline > envelope.eager {
            return wrong("it sent bytes of a message that was not cleared");
        }
        peer.receive_credit.take(envelope.eager).map_err(|what| PeerMisbehaved::new(id, what))?;
        peer.messages_received = envelope.message;
        let key = self.place(id, envelope)?;
        let peer = self.peers.open(id, &self.config);
        peer.opened = Some(Opened { seq: header.seq, envelope, payload_len, key });
        if inline < envelope.len {
            peer.arriving.insert(envelope.message, key);
        }
        self.make_room(key, inline);
        self.place_early(id, envelope.message)?;
        Ok(Target::Message { key, offset: 0 })
    }

    /// Finds a new message its receive, or room on the heap.
    fn place(&mut self, id: ProcId, envelope: Envelope) -> Result<Key, PeerMisbehaved> {
        let pattern = exact(&envelope);
        let found = self.posted.find(&pattern).map(RequestId);
        if let Some(request) = found {
            // A receive that names a process gets no message of another that claims its rank.
            if let Some(State::Waiting(waiting)) = self.requests.state(request)
                && waiting.peer.is_some_and(|peer| peer != id)
            {
                return Err(PeerMisbehaved::new(id, "it sent under another's rank"));
            }
            if let Some(buffer) = self.unpost(request, State::Receiving) {
                let place = Place::matched(request, buffer, envelope.len);
                let key = self.incoming.insert(Incoming::new(id, envelope, place));
                self.acknowledge_match(id, &envelope);
                return Ok(key);
            }
        }
        let place = Place::Unexpected { handle: 0, heap: RecvBuffer::empty() };
        let key = self.incoming.insert(Incoming::new(id, envelope, place));
        let entered = self.unexpected.push(&pattern, key);
        if let Some(Incoming { place: Place::Unexpected { handle, .. }, .. }) =
            self.incoming.get_mut(key)
        {
            *handle = entered;
        }
        self.lend_if_awaited(id);
        Ok(key)
    }

    /// The place of more bytes of a message that has begun.
    pub(crate) fn find_place(
        &mut self,
        id: ProcId,
        message: u64,
        offset: u64,
        len: u64,
    ) -> Result<Target, PeerMisbehaved> {
        let wrong = |what| Err(PeerMisbehaved::new(id, what));
        let peer = self.peers.open(id, &self.config);
        let Some(&key) = peer.arriving.get(&message) else {
            return wrong("it sent bytes of a message that expects none");
        };
        let Some(incoming) = self.incoming.get(key) else {
            return wrong("it sent bytes of a message that is gone");
        };
        let end = offset.checked_add(len).filter(|&end| end <= incoming.limit());
        let Some(end) = end.filter(|_| len > 0) else {
            return wrong("it sent bytes of a message that was not cleared");
        };
        self.make_room(key, end);
        Ok(Target::Message { key, offset })
    }

    /// The message has room for its bytes up to `end`.
    fn make_room(&mut self, key: Key, end: u64) {
        if let Some(incoming) = self.incoming.get_mut(key) {
            incoming.make_room(end);
        }
    }

    /// Copies bytes that were held to their place.
    pub(crate) fn store(&mut self, key: Key, offset: u64, bytes: &mut RecvBuffer) {
        if let Some(incoming) = self.incoming.get_mut(key) {
            let len = bytes.capacity();
            copy(bytes, incoming.buffer_mut(), offset, len);
        }
    }

    /// The frame is whole: it counts now, and only now.
    pub(crate) fn end_frame(&mut self, id: ProcId, sink: &Sink) -> Result<(), PeerMisbehaved> {
        if !sink.header.kind.is_sequenced() {
            return Ok(());
        }
        let peer = self.peers.open(id, &self.config);
        if peer.lost.is_some() {
            return Ok(());
        }
        let is_new = peer.stream.received(sink.strand, &sink.header);
        let is_new = is_new.map_err(|error| PeerMisbehaved::new(id, error.to_string()))?;
        let result = match sink.target {
            Target::Early { key } => self.end_early(id, key, is_new),
            _ if is_new => self.handle(id, sink),
            _ => Ok(()),
        };
        self.peers.attend(id);
        result
    }

    /// Does what a frame says that has come for the first time.
    fn handle(&mut self, id: ProcId, sink: &Sink) -> Result<(), PeerMisbehaved> {
        match (sink.target, sink.frame) {
            (Target::Message { key, offset }, frame) => {
                let begins = matches!(frame, Frame::Envelope(_));
                if begins {
                    self.peers.open(id, &self.config).opened = None;
                }
                self.landed(id, key, (offset, u64::from(sink.len)), begins)
            }
            (_, Frame::ClearToSend { message }) => self.cleared(id, message),
            (_, Frame::Matched { message }) => self.matched(id, message),
            (_, Frame::Credit { envelopes, bytes }) => self.credited(id, envelopes, bytes),
            (_, Frame::Transfer(transfer)) => self.keep_word(id, Word::Transfer(transfer)),
            (_, Frame::Grant(grant)) => self.keep_word(id, Word::Grant(grant)),
            (_, Frame::Share(share)) => self.keep_word(id, Word::Share(share)),
            (_, Frame::Start(start)) => self.keep_word(id, Word::Start(start)),
            (_, Frame::Seen(seen)) => self.keep_word(id, Word::Seen(seen)),
            (_, Frame::Demand(demand)) => self.keep_word(id, Word::Demand(demand)),
            (_, Frame::Part(part)) => self.keep_word(id, Word::Part(part)),
            (_, Frame::Limit(limit)) => self.keep_word(id, Word::Limit(limit)),
            (_, Frame::Carries(carries)) => self.keep_word(id, Word::Carries(carries)),
            (_, Frame::Room(room)) => self.keep_word(id, Word::Room(room)),
            (_, Frame::Close) => {
                self.peers.open(id, &self.config).closed.theirs = Some(sink.header.seq);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn keep_word(&mut self, id: ProcId, word: Word) -> Result<(), PeerMisbehaved> {
        self.heard.push_back((id, word));
        Ok(())
    }

    /// `len` more bytes of a message from `offset` on are in their place. `begins`: they came in the frame that begins it.
    pub(crate) fn landed(
        &mut self,
        id: ProcId,
        key: Key,
        (offset, len): (u64, u64),
        begins: bool,
    ) -> Result<(), PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        let is_opened = peer.opened.is_some_and(|opened| opened.key == key);
        let Some(incoming) = self.incoming.get_mut(key) else { return Ok(()) };
        let parts = incoming.received.parts();
        if !incoming.received.add(offset, len) {
            return Err(PeerMisbehaved::new(id, "it sent bytes of a message twice"));
        }
        peer.parts = peer.parts + incoming.received.parts() - parts;
        if peer.parts > self.config.bounds.most_gaps() {
            return Err(PeerMisbehaved::new(id, "it left more gaps in its messages than it may"));
        }
        if !incoming.is_complete() || is_opened {
            return Ok(());
        }
        let has_come_at_once = begins && len == incoming.envelope.len;
        if !has_come_at_once {
            peer.arriving.remove(&incoming.envelope.message);
        }
        if matches!(incoming.place, Place::Matched { .. }) {
            self.finish(key);
        }
        Ok(())
    }

    /// A matched message is complete.
    fn finish(&mut self, key: Key) {
        let Some(incoming) = self.incoming.remove(key) else { return };
        let Place::Matched { request, buffer, capacity } = incoming.place else { return };
        let envelope = incoming.envelope;
        // MPI 4.1 §3.2.4: a message longer than the buffer is an error; what fits is kept.
        let error = (envelope.len > capacity)
            .then_some(Fault::Truncated { message: envelope.len, capacity });
        let buffer = if error.is_some() { buffer.split_at(capacity).0 } else { buffer };
        let completion = Completion {
            source: Some(envelope.source),
            tag: envelope.tag,
            len: envelope.len.min(capacity),
            error,
            cancelled: false,
        };
        self.requests.complete(request, completion, Some(buffer));
    }

    /// The unexpected message that a receive with this pattern gets, if any.
    pub(crate) fn find_unexpected(&self, pattern: &Pattern) -> Option<Key> {
        self.unexpected.find(pattern)
    }

    /// Takes an unexpected message out of matching.
    pub(crate) fn claim_message(&mut self, key: Key) {
        let Some(incoming) = self.incoming.get_mut(key) else { return };
        let place =
            std::mem::replace(&mut incoming.place, Place::Claimed { heap: RecvBuffer::empty() });
        if let Place::Unexpected { handle, heap } = place {
            self.unexpected.remove(handle);
            incoming.place = Place::Claimed { heap };
        } else {
            incoming.place = place;
        }
    }

    /// Gives a claimed message to a receive.
    pub(crate) fn receive_message(&mut self, key: Key, buffer: RecvBuffer) -> RequestId {
        let request = self.requests.insert(State::Receiving);
        let incoming = self.incoming.get_mut(key).expect("a message that was not received before");
        let capacity = buffer.capacity();
        let mut buffer = extend(buffer, incoming.envelope.len);
        let (peer, envelope) = (incoming.peer, incoming.envelope);
        if let Place::Claimed { heap } = &mut incoming.place {
            let mut heap = std::mem::replace(heap, RecvBuffer::empty());
            // What frames have half brought counts too: the rest of it will land in the new place.
            let have = heap.capacity().min(incoming.reached);
            copy(&mut heap, &mut buffer, 0, have);
        }
        incoming.place = Place::Matched { request, buffer, capacity };
        let complete = incoming.is_complete() && !self.is_opened(peer, key);
        self.acknowledge_match(peer, &envelope);
        if complete {
            self.finish(key);
        } else {
            self.fail_if_lost(peer, key);
        }
        request
    }

    /// Whether the first frame of this message has not ended.
    fn is_opened(&self, peer: ProcId, key: Key) -> bool {
        self.peers.get(peer).and_then(|peer| peer.opened).is_some_and(|opened| opened.key == key)
    }

    /// A receive has matched: tell the sender if it waits for that, and give its credit back.
    fn acknowledge_match(&mut self, id: ProcId, envelope: &Envelope) {
        let peer = self.peers.open(id, &self.config);
        peer.receive_credit.give_back(envelope.eager);
        if peer.lost.is_some() || peer.closed.ours {
            return;
        }
        let message = envelope.message;
        if envelope.eager < envelope.len {
            peer.stream.push(Frame::ClearToSend { message }, SendBuffer::empty());
        } else if envelope.synchronous {
            // MPI 4.1 §3.4: a synchronous send completes only once the receive has started.
            peer.stream.push(Frame::Matched { message }, SendBuffer::empty());
        }
        if peer.receive_credit.is_report_due() {
            self.report_credit(id);
        }
        self.peers.attend(id);
        // What was given back may have paid a loan, and the peer is where it was.
        self.lend_if_awaited(id);
    }

    fn report_credit(&mut self, id: ProcId) {
        let peer = self.peers.open(id, &self.config);
        if peer.lost.is_some() || peer.closed.ours {
            return;
        }
        let (envelopes, bytes) = peer.receive_credit.report();
        peer.stream.push(Frame::Credit { envelopes, bytes }, SendBuffer::empty());
        self.peers.attend(id);
    }

    /// Lends to a peer without envelopes if a receive waits for it.
    fn lend_if_awaited(&mut self, id: ProcId) {
        let peer = self.peers.open(id, &self.config);
        if !peer.receive_credit.is_exhausted() {
            return;
        }
        let awaited = peer.awaited > 0 || self.awaiting_any > 0;
        if awaited {
            self.lend(id);
        }
        self.peers.note_exhausted(id);
    }

    /// Lends envelopes to `peer` if it has none: it may be holding back what is waited for.
    pub(crate) fn lend(&mut self, id: ProcId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        if peer.receive_credit.is_exhausted() && peer.receive_credit.lend() {
            self.report_credit(id);
        }
    }

    /// Lends to every peer without envelopes: any of them may hold back what is waited for.
    pub(crate) fn lend_to_all(&mut self) {
        for id in self.peers.take_exhausted() {
            self.lend(id);
            let exhausted = |peer: &crate::peer::Peer| peer.receive_credit.is_exhausted();
            if self.peers.get(id).is_some_and(exhausted) {
                self.peers.note_exhausted(id);
            }
        }
    }

    /// Ends what cannot come any more from a lost peer.
    pub(crate) fn fail_arriving(&mut self, id: ProcId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let mut keys: Vec<Key> = peer.arriving.drain().map(|entry| entry.1).collect();
        keys.extend(peer.opened.take().map(|opened| opened.key));
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            match self.incoming.get(key).map(|incoming| &incoming.place) {
                Some(&Place::Unexpected { handle, .. }) => {
                    self.unexpected.remove(handle);
                    self.incoming.remove(key);
                }
                // Its receive will find out.
                Some(Place::Claimed { .. }) | None => {}
                Some(Place::Matched { .. }) => self.fail_if_lost(id, key),
            }
        }
    }

    /// Fails the receive of an incomplete message whose sender is lost.
    fn fail_if_lost(&mut self, id: ProcId, key: Key) {
        let Some(fault) = self.fault_of(id) else { return };
        if let Some(incoming) = self.incoming.remove(key)
            && let Place::Matched { request, .. } = incoming.place
        {
            self.requests.fail(request, fault);
        }
    }

    /// Why a peer's requests fail, if it is lost.
    pub(crate) fn fault_of(&self, id: ProcId) -> Option<Fault> {
        let reason = self.peers.get(id)?.lost.clone()?;
        Some(Fault::PeerLost { peer: id, reason })
    }
}

#[cfg(test)]
mod tests;
