//! A side of a stream, and models of the connections to the other.
#![allow(dead_code)] // each test file uses its part

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use bytes::Bytes;
use gridmpi_buffer::SendBuffer;
use gridmpi_trunk::{Bounds, Patience, Progress, Receive, Stream};
use gridmpi_wire::{ContextId, Demand, Envelope, Frame, Header, MAX_PAYLOAD, Rank, Strand, parse};

/// What comes over one connection.
#[derive(Default)]
pub struct Line {
    pub arriving: VecDeque<u8>,
    read: Vec<u8>,
    landing: Option<(Header, Frame, Receive)>,
}

/// One side: its stream, the bytes on their way to it, and what it has seen.
#[derive(Default)]
pub struct Side {
    pub stream: Stream,
    pub bounds: Bounds,
    pub lines: BTreeMap<Strand, Line>,
    pub pushed: Vec<(Frame, Vec<u8>)>,
    /// By number.
    pub seen: BTreeMap<u64, (Frame, Vec<u8>)>,
    /// Numbers of the frames that must be in order, as they came.
    pub order: Vec<u64>,
    /// The last message begun, and by which frame.
    message: u64,
    opening: u64,
    /// Messages whose beginning has come, and what came before it of others.
    begun: BTreeSet<u64>,
    held: BTreeMap<u64, u64>,
    pub most_held: u64,
}

impl Side {
    pub fn new(bounds: Bounds) -> Self {
        Self { stream: Stream::new(bounds), bounds, ..Self::default() }
    }

    pub fn push(&mut self, kind: u8, len: usize) {
        let number = self.pushed.len() as u64 + 1;
        let len = len.min(MAX_PAYLOAD as usize);
        let (frame, len) = match kind % 5 {
            0 => (Frame::Envelope(envelope(number, len as u64)), len),
            1 if self.message > 0 => (Frame::Data { message: self.message, offset: 9 }, len.max(1)),
            2 => (Frame::Credit { envelopes: number, bytes: 1 }, 0),
            3 => (Frame::ClearToSend { message: number }, 0),
            _ => (Frame::Demand(Demand { cluster: 1, rate: number }), 0),
        };
        let payload: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + number) as u8).collect();
        let buffer = SendBuffer::from_bytes(Bytes::from(payload.clone()));
        let seq = match frame {
            Frame::Data { .. } => self.stream.push_data(frame, buffer, self.opening),
            _ => self.stream.push(frame, buffer),
        };
        assert_eq!(seq, number);
        if matches!(frame, Frame::Envelope(_)) {
            (self.message, self.opening) = (number, seq);
        }
        self.pushed.push((frame, payload));
    }

    /// Parses what has arrived over a connection, `count` bytes of it.
    pub fn take(&mut self, strand: Strand, count: usize) {
        let Some(mut line) = self.lines.remove(&strand) else { return };
        let count = count.min(line.arriving.len());
        line.read.extend(line.arriving.drain(..count));
        let mut at = 0;
        loop {
            if line.landing.is_none() {
                let Some(parsed) = parse(&line.read[at..]).expect("a peer of ours") else { break };
                at += parsed.header.head_len();
                let receive = self.stream.receive(strand, &parsed.header).expect("a peer of ours");
                line.landing = Some((parsed.header, parsed.frame, receive));
                self.head(&parsed.frame, receive);
            }
            let Some((header, frame, receive)) = line.landing else { break };
            let end = at + header.payload_len() as usize;
            if line.read.len() < end {
                break;
            }
            self.landed(strand, &header, frame, receive, line.read[at..end].to_vec());
            line.landing = None;
            at = end;
        }
        line.read.drain(..at);
        self.lines.insert(strand, line);
    }

    fn head(&mut self, frame: &Frame, receive: Receive) {
        if let (Frame::Envelope(envelope), Receive::Deliver) = (frame, receive) {
            self.begun.insert(envelope.message);
            self.held.remove(&envelope.message);
        }
    }

    fn landed(
        &mut self,
        strand: Strand,
        header: &Header,
        frame: Frame,
        receive: Receive,
        payload: Vec<u8>,
    ) {
        if receive == Receive::Control {
            assert!(!header.kind.is_sequenced());
            return;
        }
        let is_new = self.stream.received(strand, header).expect("a peer of ours");
        assert!(receive != Receive::Duplicate || !is_new);
        if !is_new {
            return;
        }
        let held = Bounds::held(payload.len() as u64);
        assert!(self.seen.insert(header.seq, (frame, payload)).is_none(), "{frame:?} came twice");
        if header.kind.is_ordered() {
            self.order.push(header.seq);
        } else if let Frame::Data { message, .. } = frame
            && !self.begun.contains(&message)
        {
            *self.held.entry(message).or_default() += held;
            let all = self.held.values().sum();
            assert!(all <= self.bounds.early, "{all} bytes held");
            self.most_held = self.most_held.max(all);
        }
    }

    /// All that `from` pushed was seen, and those in order that must be.
    pub fn has_seen_all_of(&self, from: &Self) {
        assert!(self.seen.keys().copied().eq(1..=from.pushed.len() as u64));
        assert!(self.seen.values().eq(&from.pushed), "other frames came");
        assert!(self.order.is_sorted(), "{:?}", self.order);
    }
}

pub fn envelope(message: u64, len: u64) -> Envelope {
    let (context, source) = (ContextId::WORLD, Rank(3));
    Envelope { context, source, tag: -5, message, len, eager: len, synchronous: false }
}

/// Writes at most `accept` bytes of what `from` offers on a connection into the far side's pipe, if that has one.
pub fn transmit(
    from: &mut Side,
    to: &mut Side,
    strand: Strand,
    max: usize,
    accept: usize,
) -> Progress {
    let mut line = to.lines.get_mut(&strand);
    let write = |slices: &[io::IoSlice<'_>]| {
        assert!(!slices.is_empty(), "an empty write");
        if accept == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).take(accept).collect();
        assert!(!bytes.is_empty(), "slices without bytes");
        if let Some(line) = &mut line {
            line.arriving.extend(&bytes);
        }
        Ok(bytes.len())
    };
    from.stream.transmit(strand, max, 0, write).expect("the model does not fail")
}

/// One side has lost a connection; the other still reads what is on its way.
pub fn lose(side: &mut Side, strand: Strand) {
    side.stream.disconnect(strand);
    side.lines.remove(&strand);
    assert!(side.stream.is_connected() || !side.stream.wants_transmit());
}

/// Both know of a new connection. `said`: what each expects, or did some time ago.
pub fn connect(a: &mut Side, b: &mut Side, strand: Strand, said: [u64; 2]) {
    lose(a, strand);
    lose(b, strand);
    a.stream.resume(strand, said[1]).unwrap();
    b.stream.resume(strand, said[0]).unwrap();
    a.lines.insert(strand, Line::default());
    b.lines.insert(strand, Line::default());
}

pub fn connect_now(a: &mut Side, b: &mut Side, strand: Strand) {
    let said = [a.stream.expects(), b.stream.expects()];
    connect(a, b, strand, said);
}

/// Lets everything arrive over what stands at both ends. A bound on the rounds, so that a lost acknowledgement fails the
/// test.
pub fn settle(a: &mut Side, b: &mut Side) {
    for strand in Strand::first(Strand::MAX) {
        if a.lines.contains_key(&strand) != b.lines.contains_key(&strand) {
            lose(a, strand);
            lose(b, strand);
        }
    }
    if a.lines.is_empty() {
        connect_now(a, b, Strand::FIRST);
    }
    for _ in 0..10_000 {
        for swap in [false, true] {
            let (x, y) = if swap { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            for strand in Strand::first(Strand::MAX) {
                transmit(x, y, strand, 1 << 20, usize::MAX);
                y.take(strand, usize::MAX);
            }
            for patience in Patience::ALL {
                x.stream.tick(patience);
            }
        }
        if a.stream.is_drained() && b.stream.is_drained() {
            return;
        }
    }
    panic!("the streams never drain");
}
