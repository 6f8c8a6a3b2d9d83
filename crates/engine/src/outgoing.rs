//! Messages to peers: envelope, eager bytes under credit, the rest when it is cleared.

use crate::endpoint::Endpoint;
use crate::peer::Peer;
use crate::request::{Requests, State};
use crate::{Completion, Config, Mode, PeerMisbehaved, Progress, RequestId};
use gridmpi_buffer::SendBuffer;
use gridmpi_wire::{Envelope, Frame, ProcId, Strand};
use std::io::{self, IoSlice};

/// A message that is not over for the sender.
pub(crate) struct Outgoing {
    envelope: Envelope,
    mode: Mode,
    buffer: SendBuffer,
    /// To complete when the message allows; `None` if that has happened.
    request: Option<RequestId>,
    /// The number of the frame that began it.
    opening: u64,
    /// Bytes pushed to the stream.
    pushed: u64,
    /// Bytes that may be pushed: the eager ones, or all.
    limit: u64,
    /// Its last frame must be written before the program has its buffer back.
    borrows: bool,
    /// A receive must match first (MPI 4.1 §3.4).
    awaits_match: bool,
}

impl Outgoing {
    fn is_pushed(&self) -> bool {
        self.pushed == self.envelope.len
    }
}

/// How much a stream may have on its way when a send gives the program its buffer back.
pub(crate) struct Tail {
    limit: u64,
    /// The next send to end has more, and waits.
    is_awaited: bool,
}

impl Tail {
    pub(crate) fn new(config: &Config) -> Self {
        Self { limit: config.tail_limit, is_awaited: false }
    }

    fn grow(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            self.limit = self.limit.saturating_mul(2);
        }
    }
}

/// The completion of a send of `len` bytes.
fn sent(len: u64) -> Completion {
    Completion { len, ..Completion::none() }
}

impl Endpoint {
    pub(crate) fn start_send(
        &mut self,
        to: ProcId,
        envelope: Envelope,
        mode: Mode,
        buffer: SendBuffer,
    ) -> RequestId {
        let peer = self.peers.open(to, &self.config);
        let request = self.requests.insert(State::Sending);
        let closed = || peer.closed.ours.then(|| "our stream to it has ended".into());
        if let Some(reason) = peer.lost.clone().or_else(closed) {
            self.requests.fail(request, crate::Fault::PeerLost { peer: to, reason });
            return request;
        }
        peer.messages_sent += 1;
        let envelope = Envelope { message: peer.messages_sent, ..envelope };
        let mut outgoing = Outgoing {
            envelope,
            mode,
            buffer,
            request: Some(request),
            opening: 0,
            pushed: 0,
            limit: 0,
            borrows: false,
            awaits_match: envelope.synchronous,
        };
        // Envelopes go in the order of their sends: never past one that waits for credit.
        if peer.waiting.is_empty() && peer.send_credit.take_envelope() {
            peer.start(outgoing, &self.config, &mut self.requests);
            self.peers.attend(to);
        } else {
            if mode == Mode::Buffered {
                outgoing.own(&mut self.requests);
            }
            peer.waiting.push_back(outgoing);
        }
        request
    }

    /// Writes what is next for `peer` on a connection, and feeds the stream before.
    pub(crate) fn write_to(
        &mut self,
        id: ProcId,
        strand: Strand,
        max: usize,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        let Some(peer) = self.peers.get_mut(id) else { return Ok(Progress::Idle) };
        if !peer.stream.is_connected() || peer.lost.is_some() {
            return Ok(Progress::Idle);
        }
        peer.feed(max as u64, &self.config, &mut self.requests);
        if self.closing {
            peer.close_when_idle();
        }
        let progress = peer.stream.transmit(strand, max, peer.unfed, write)?;
        peer.settle_written(&self.config, &mut self.requests);
        if self.closing {
            peer.close_when_idle();
        }
        if progress != Progress::Idle {
            return Ok(progress);
        }
        peer.feed(max as u64, &self.config, &mut self.requests);
        let more = peer.stream.has_for(strand, peer.unfed);
        Ok(if more { Progress::More } else { Progress::Idle })
    }

    /// Some frames are acknowledged: sends that waited for that are over.
    pub(crate) fn acknowledged(&mut self, id: ProcId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        if !peer.writing.is_empty() {
            peer.settle_written(&self.config, &mut self.requests);
        }
        let waits = peer.stream.waits_for_others();
        if self.closing {
            peer.close_when_idle();
        }
        if waits || self.closing {
            self.peers.attend(id);
        }
    }

    /// `ClearToSend`: the receiver has matched the message and has room for all of it.
    pub(crate) fn cleared(&mut self, id: ProcId, message: u64) -> Result<(), PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        let outgoing = peer.outgoing.get_mut(&message);
        let Some(outgoing) = outgoing.filter(|o| o.limit < o.envelope.len) else {
            return Err(PeerMisbehaved::new(id, "it cleared a message that does not wait for it"));
        };
        if outgoing.pushed == outgoing.limit {
            peer.feeding.push_back(message);
        }
        peer.unfed += outgoing.envelope.len - outgoing.limit;
        outgoing.limit = outgoing.envelope.len;
        outgoing.awaits_match = false;
        self.peers.attend(id);
        Ok(())
    }

    /// `Matched`: a receive has matched a synchronous message that has gone eagerly.
    pub(crate) fn matched(&mut self, id: ProcId, message: u64) -> Result<(), PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        let outgoing = peer.outgoing.get_mut(&message);
        let Some(outgoing) = outgoing.filter(|o| o.awaits_match) else {
            return Err(PeerMisbehaved::new(id, "it matched a message that does not wait for it"));
        };
        outgoing.awaits_match = false;
        peer.settle(message, &mut self.requests);
        Ok(())
    }

    /// `Credit`: the receiver's totals. Messages that waited for an envelope start.
    pub(crate) fn credited(
        &mut self,
        id: ProcId,
        envelopes: u64,
        bytes: u64,
    ) -> Result<(), PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        let report = peer.send_credit.report(envelopes, bytes);
        report.map_err(|what| PeerMisbehaved::new(id, what))?;
        while !peer.waiting.is_empty() && peer.send_credit.take_envelope() {
            let Some(outgoing) = peer.waiting.pop_front() else { break };
            peer.start(outgoing, &self.config, &mut self.requests);
        }
        self.peers.attend(id);
        Ok(())
    }

    /// Ends the sends to a peer that is lost.
    pub(crate) fn fail_sends(&mut self, id: ProcId, fault: &crate::Fault) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let mut pending: Vec<Outgoing> = peer.outgoing.drain().map(|entry| entry.1).collect();
        pending.sort_by_key(|outgoing| outgoing.envelope.message);
        pending.extend(peer.waiting.drain(..));
        peer.feeding.clear();
        peer.unfed = 0;
        peer.writing.clear();
        for request in pending.into_iter().filter_map(|outgoing| outgoing.request) {
            self.requests.fail(request, fault.clone());
        }
    }
}

impl Outgoing {
    /// Copies the data and completes the send: the program may use its buffer.
    fn own(&mut self, requests: &mut Requests) {
        if !self.buffer.is_owned() {
            self.buffer = self.buffer.to_owned();
        }
        if let Some(request) = self.request.take_if(|_| !self.awaits_match) {
            requests.complete(request, sent(self.envelope.len), None);
        }
    }
}

impl Peer {
    /// Pushes the envelope of a message that has its envelope credit, with the first bytes.
    fn start(&mut self, mut outgoing: Outgoing, config: &Config, requests: &mut Requests) {
        let len = outgoing.envelope.len;
        let eager = self.send_credit.take_bytes(len, config);
        outgoing.envelope.eager = eager;
        outgoing.limit = eager;
        // A short message that goes at once is copied: cheaper than to follow it. One that cannot
        // stays where it is, so that the program's memory bounds ours (MPI 4.1 §3.4, standard mode).
        let copied = outgoing.mode == Mode::Buffered || (eager == len && len <= config.copy_limit);
        if copied || outgoing.buffer.is_owned() {
            outgoing.own(requests);
        } else {
            outgoing.borrows = true;
        }
        let inline = eager.min(self.chunk(config));
        let payload =
            if inline == len { outgoing.buffer.clone() } else { outgoing.buffer.slice(0, inline) };
        let seq = self.stream.push(Frame::Envelope(outgoing.envelope), payload);
        outgoing.opening = seq;
        outgoing.pushed = inline;
        self.follow(outgoing, seq);
    }

    /// Keeps a message in the tables that it still needs after a push under number `seq`.
    fn follow(&mut self, outgoing: Outgoing, seq: u64) {
        let message = outgoing.envelope.message;
        if outgoing.pushed < outgoing.limit {
            self.feeding.push_back(message);
            self.unfed += outgoing.limit - outgoing.pushed;
        } else if outgoing.is_pushed() && outgoing.borrows {
            self.writing.push_back((seq, message));
        } else if outgoing.is_pushed() && !outgoing.awaits_match {
            return;
        }
        self.outgoing.insert(message, outgoing);
    }

    /// Pushes bytes, a frame of each message in turn, until about `room` wait to be written: late,
    /// so that a short message waits behind few frames of long ones.
    fn feed(&mut self, room: u64, config: &Config, requests: &mut Requests) {
        let chunk = self.chunk(config);
        let room = room.max(chunk);
        while self.stream.waiting_bytes() < room && self.feed_one(chunk, requests) {}
    }

    /// Bytes of a frame: fewer where connections share them, to be done at the same time.
    fn chunk(&self, config: &Config) -> u64 {
        config.chunk.min(self.stream.shared_frame().unwrap_or(u32::MAX)).into()
    }

    fn feed_one(&mut self, chunk: u64, requests: &mut Requests) -> bool {
        let Some(message) = self.feeding.pop_front() else { return false };
        let Some(outgoing) = self.outgoing.get_mut(&message) else { return true };
        let offset = outgoing.pushed;
        let bytes = chunk.min(outgoing.limit - offset);
        let payload = outgoing.buffer.slice(offset, bytes);
        outgoing.pushed += bytes;
        self.unfed -= bytes;
        let data = Frame::Data { message, offset };
        let seq = self.stream.push_data(data, payload, outgoing.opening);
        if outgoing.pushed < outgoing.limit {
            self.feeding.push_back(message);
        } else if outgoing.is_pushed() && outgoing.borrows {
            self.writing.push_back((seq, message));
        } else {
            self.settle(message, requests);
        }
        true
    }

    /// Gives the program back the buffers whose last frame is written; what the far process has not
    /// acknowledged of them is copied. If that were much, the send waits for acknowledgements instead: fresh
    /// memory costs more than the network does to say that it has the bytes. Who sends on and on is
    /// allowed twice as much each time, so that waiting does not keep a long fast path empty.
    fn settle_written(&mut self, config: &Config, requests: &mut Requests) {
        let written = self.stream.written();
        while let Some(&(seq, message)) = self.writing.front() {
            if seq > written {
                break;
            }
            if seq > self.stream.acknowledged() {
                if self.stream.unacknowledged_bytes() > self.tail.limit {
                    self.tail.is_awaited = true;
                    break;
                }
                self.stream.own_message(message);
            }
            self.tail.grow();
            self.writing.pop_front();
            if let Some(outgoing) = self.outgoing.get_mut(&message) {
                outgoing.borrows = false;
            }
            self.settle(message, requests);
        }
        if self.stream.is_drained() {
            self.tail = Tail::new(config);
        }
    }

    /// Ends a message if nothing is left to be done for it.
    fn settle(&mut self, message: u64, requests: &mut Requests) {
        let Some(outgoing) = self.outgoing.get_mut(&message) else { return };
        if outgoing.borrows || outgoing.awaits_match {
            return;
        }
        if let Some(request) = outgoing.request.take() {
            requests.complete(request, sent(outgoing.envelope.len), None);
        }
        if outgoing.is_pushed() {
            self.outgoing.remove(&message);
        }
    }

    /// Pushes `Close` once nothing else will follow; never where a connection would have to be made for that.
    pub(crate) fn close_when_idle(&mut self) {
        let idle = self.waiting.is_empty() && self.outgoing.is_empty();
        let is_used = self.stream.next_seq() > 1 || self.stream.expects() > 1;
        let has_begun = is_used || self.stream.is_connected();
        if idle && has_begun && !self.closed.ours && self.lost.is_none() {
            self.closed.ours = true;
            self.stream.push(Frame::Close, SendBuffer::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peers;
    use gridmpi_wire::{ContextId, Rank, parse};

    const CHUNK: u64 = 10;

    struct Sender {
        peers: Peers,
        requests: Requests,
        config: Config,
    }

    impl Sender {
        fn new(tail_limit: u64) -> Self {
            let config = Config { tail_limit, ..Config::new(ProcId(0)) };
            let mut sender = Self { peers: Peers::new(), requests: Requests::new(), config };
            sender.peer().stream.resume(Strand::FIRST, 1).unwrap();
            sender
        }

        fn peer(&mut self) -> &mut Peer {
            self.peers.open(ProcId(1), &self.config)
        }

        /// Writes a message of so many chunks that the program lends.
        fn write(&mut self, message: u64, chunks: u64) -> RequestId {
            let request = self.requests.insert(State::Sending);
            let peer = self.peers.open(ProcId(1), &self.config);
            let mut seq = 0;
            for offset in (0..chunks).map(|chunk| chunk * CHUNK) {
                let payload = SendBuffer::from_bytes(vec![7; CHUNK as usize].into());
                seq = peer.stream.push(Frame::Data { message, offset }, payload);
            }
            let envelope = Envelope {
                context: ContextId::WORLD,
                source: Rank(0),
                tag: 0,
                message,
                len: chunks * CHUNK,
                eager: chunks * CHUNK,
                synchronous: false,
            };
            let outgoing = Outgoing {
                envelope,
                mode: Mode::Standard,
                buffer: SendBuffer::empty(),
                request: Some(request),
                opening: 0,
                pushed: envelope.len,
                limit: envelope.len,
                borrows: true,
                awaits_match: false,
            };
            peer.outgoing.insert(message, outgoing);
            peer.writing.push_back((seq, message));
            let all = |slices: &[IoSlice<'_>]| Ok(slices.iter().map(|slice| slice.len()).sum());
            while peer.stream.transmit(Strand::FIRST, 1 << 16, 0, all).unwrap() != Progress::Idle {}
            peer.settle_written(&self.config, &mut self.requests);
            request
        }

        /// How many chunks are acknowledged in all when the send is over.
        fn over_at(&mut self, request: RequestId) -> u64 {
            loop {
                let acknowledged = self.peer().stream.acknowledged();
                if self.requests.peek(request).is_some() {
                    return acknowledged;
                }
                self.acknowledge(acknowledged + 1);
            }
        }

        fn acknowledge(&mut self, seq: u64) {
            let head = Frame::Ack.encode(0, seq, 0);
            let header = parse(&head).unwrap().unwrap().header;
            let peer = self.peers.open(ProcId(1), &self.config);
            peer.stream.receive(Strand::FIRST, &header).unwrap();
            peer.settle_written(&self.config, &mut self.requests);
        }
    }

    #[test]
    fn a_long_send_waits_until_little_is_left_to_copy_and_one_after_another_less() {
        let mut sender = Sender::new(2 * CHUNK);
        let short = sender.write(1, 2);
        assert_eq!(sender.over_at(short), 0, "at once");
        sender.acknowledge(2);
        let first = sender.write(2, 10);
        assert_eq!(sender.over_at(first), 2 + 8);
        let second = sender.write(3, 10);
        assert_eq!(sender.over_at(second), 12 + 6);
        let third = sender.write(4, 10);
        assert_eq!(sender.over_at(third), 22 + 2);
        let fourth = sender.write(5, 8);
        assert_eq!(sender.over_at(fourth), 24, "16 chunks are its now");
        sender.acknowledge(40);
        let later = sender.write(6, 10);
        assert_eq!(sender.over_at(later), 40 + 8, "it begins anew");
    }
}
