//! Two streams over a model of a connection that cuts, delays and writes in parts: the far side sees
//! exactly the pushed frames, in order, once.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use gridmpi_buffer::SendBuffer;
use gridmpi_trunk::{Progress, Receive, Stream, StreamError};
use gridmpi_wire::{
    ContextId, Envelope, Frame, HEADER_LEN, Header, Kind, MAX_PAYLOAD, Rank, parse,
};
use proptest::prelude::*;

/// One side: its stream, the bytes on their way to it, and what it has seen.
#[derive(Default)]
struct Side {
    stream: Stream,
    arriving: VecDeque<u8>,
    read: Vec<u8>,
    pushed: Vec<(Frame, Vec<u8>)>,
    seen: Vec<(Frame, Vec<u8>)>,
}

impl Side {
    fn push(&mut self, kind: u8, len: usize) {
        let message = self.pushed.len() as u64 + 1;
        let len = len.min(MAX_PAYLOAD as usize);
        let (frame, len) = match kind % 4 {
            0 => (Frame::Envelope(envelope(message, len as u64)), len),
            1 => (Frame::Data { message, offset: 9 }, len.max(1)),
            2 => (Frame::Credit { envelopes: message, bytes: 1 }, 0),
            _ => (Frame::ClearToSend { message }, 0),
        };
        let payload: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + message) as u8).collect();
        let buffer = SendBuffer::from_bytes(Bytes::from(payload.clone()));
        assert_eq!(self.stream.push(frame, buffer), message);
        self.pushed.push((frame, payload));
    }

    /// Parses what has arrived, `count` bytes of it.
    fn take(&mut self, count: usize) {
        let count = count.min(self.arriving.len());
        self.read.extend(self.arriving.drain(..count));
        let mut at = 0;
        while let Some(parsed) = parse(&self.read[at..]).expect("a peer of ours") {
            let header = parsed.header;
            let end = at + HEADER_LEN + header.body_len as usize;
            if self.read.len() < end {
                break;
            }
            match self.stream.receive(&header).expect("a peer of ours") {
                Receive::Deliver => {
                    self.seen.push((parsed.frame, self.read[at + header.head_len()..end].to_vec()));
                    self.stream.received(&header);
                }
                Receive::Duplicate => {}
                Receive::Control => assert!(!header.kind.is_sequenced()),
            }
            at = end;
        }
        self.read.drain(..at);
    }
}

fn envelope(message: u64, len: u64) -> Envelope {
    let (context, source) = (ContextId::WORLD, Rank(3));
    Envelope { context, source, tag: -5, message, len, eager: len, synchronous: false }
}

/// Writes at most `accept` bytes of what `from` offers into the far side's pipe.
fn transmit(from: &mut Side, to: &mut Side, max: usize, accept: usize) -> Progress {
    let write = |slices: &[io::IoSlice<'_>]| {
        assert!(!slices.is_empty(), "an empty write");
        if accept == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).take(accept).collect();
        assert!(!bytes.is_empty(), "slices without bytes");
        to.arriving.extend(&bytes);
        Ok(bytes.len())
    };
    from.stream.transmit(max, write).expect("the model does not fail")
}

fn reconnect(a: &mut Side, b: &mut Side) {
    for side in [&mut *a, &mut *b] {
        side.stream.disconnect();
        side.arriving.clear();
        side.read.clear();
        assert!(!side.stream.wants_transmit());
    }
    a.stream.resume(b.stream.expects()).unwrap();
    b.stream.resume(a.stream.expects()).unwrap();
}

#[derive(Clone, Debug)]
enum Action {
    Push { kind: u8, len: usize },
    Transmit { max: usize, accept: usize },
    Take { count: usize },
    Tick,
    Ping,
    Own { message: u64 },
    Cut,
}

fn action() -> impl Strategy<Value = (bool, Action)> {
    let len = prop_oneof![4 => 0usize..200, 2 => 0usize..9000, 1 => 0usize..=MAX_PAYLOAD as usize];
    let accept = prop_oneof![1 => Just(0usize), 4 => 0usize..300, 2 => 0usize..1_000_000];
    let action = prop_oneof![
        6 => (any::<u8>(), len).prop_map(|(kind, len)| Action::Push { kind, len }),
        6 => (1usize..600_000, accept).prop_map(|(max, accept)| Action::Transmit { max, accept }),
        6 => (0usize..400_000).prop_map(|count| Action::Take { count }),
        1 => Just(Action::Tick),
        1 => Just(Action::Ping),
        1 => (1u64..20).prop_map(|message| Action::Own { message }),
        1 => Just(Action::Cut),
    ];
    (any::<bool>(), action)
}

fn act(x: &mut Side, y: &mut Side, action: Action) {
    match action {
        Action::Push { kind, len } => x.push(kind, len),
        Action::Transmit { max, accept } => drop(transmit(x, y, max, accept)),
        Action::Take { count } => x.take(count),
        Action::Tick => drop(x.stream.tick()),
        Action::Ping => x.stream.ping(),
        Action::Own { message } => x.stream.own_message(message),
        Action::Cut => reconnect(x, y),
    }
}

/// Lets everything arrive. A bound on the rounds, so that a lost acknowledgement fails the test.
fn settle(a: &mut Side, b: &mut Side) {
    for _ in 0..10_000 {
        for swap in [false, true] {
            let (x, y) = if swap { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            transmit(x, y, 1 << 20, usize::MAX);
            y.take(usize::MAX);
            x.stream.tick();
        }
        if a.stream.is_drained() && b.stream.is_drained() {
            return;
        }
    }
    panic!("the streams never drain");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_far_side_sees_what_was_pushed(actions in prop::collection::vec(action(), 1..120)) {
        let (mut a, mut b) = (Side::default(), Side::default());
        reconnect(&mut a, &mut b);
        for (swap, action) in actions {
            if swap { act(&mut b, &mut a, action) } else { act(&mut a, &mut b, action) }
        }
        settle(&mut a, &mut b);
        prop_assert_eq!(&a.pushed, &b.seen);
        prop_assert_eq!(&b.pushed, &a.seen);
        for side in [&a, &b] {
            prop_assert_eq!(side.stream.unacknowledged_bytes(), 0);
            prop_assert_eq!(side.stream.queued_bytes(), 0);
            prop_assert_eq!(side.stream.written(), side.pushed.len() as u64);
            prop_assert_eq!(side.stream.acknowledged(), side.pushed.len() as u64);
        }
    }
}

#[test]
fn many_small_frames_leave_in_one_write_of_one_slice() {
    let mut side = Side::default();
    side.stream.resume(1).unwrap();
    for _ in 0..100 {
        side.push(0, 8);
    }
    let mut writes = Vec::new();
    let progress = side.stream.transmit(1 << 20, |slices| {
        writes.push(slices.len());
        Ok(slices.iter().map(|s| s.len()).sum())
    });
    assert_eq!((progress.unwrap(), writes), (Progress::Idle, vec![1]));
    assert_eq!(side.stream.written(), 100);
}

#[test]
fn an_acknowledgement_rides_on_frames_and_else_waits_for_a_tick() {
    let (mut a, mut b) = (Side::default(), Side::default());
    reconnect(&mut a, &mut b);
    a.push(0, 8);
    transmit(&mut a, &mut b, 1 << 20, usize::MAX);
    b.take(usize::MAX);
    assert!(!b.stream.wants_transmit() && b.stream.wants_tick());
    assert!(!b.stream.tick(), "less than a whole interval may have passed");
    assert!(b.stream.tick() && b.stream.wants_transmit());
    transmit(&mut b, &mut a, 1 << 20, usize::MAX);
    assert_eq!(a.arriving[0], Kind::Ack as u8);
    a.take(usize::MAX);
    assert!(a.stream.is_drained() && !b.stream.wants_tick());

    a.push(0, 8);
    transmit(&mut a, &mut b, 1 << 20, usize::MAX);
    b.take(usize::MAX);
    b.push(0, 8);
    transmit(&mut b, &mut a, 1 << 20, usize::MAX);
    assert!(!b.stream.wants_tick(), "the frame carried it");
    a.take(usize::MAX);
    assert!(a.stream.is_drained());
}

#[test]
fn a_full_window_is_acknowledged_at_once() {
    let (mut a, mut b) = (Side::default(), Side::default());
    reconnect(&mut a, &mut b);
    for _ in 0..4 {
        assert!(!b.stream.wants_transmit());
        a.push(1, MAX_PAYLOAD as usize);
        transmit(&mut a, &mut b, 1 << 20, usize::MAX);
        b.take(usize::MAX);
    }
    assert!(b.stream.wants_transmit());
}

#[test]
fn a_peer_that_breaks_the_rules_is_named() {
    let mut side = Side::default();
    side.stream.resume(1).unwrap();
    let header = |seq, ack| Header { kind: Kind::Close, body_len: 0, seq, ack };
    assert_eq!(side.stream.receive(&header(2, 0)), Err(StreamError::Gap { expected: 1, got: 2 }));
    side.push(3, 0);
    let unwritten = StreamError::AckOfUnwritten { acknowledged: 1, written: 0 };
    assert_eq!(side.stream.receive(&header(1, 1)), Err(unwritten));
    let cannot = StreamError::CannotResume { wanted: 2, first: 1, last: 1 };
    assert_eq!(side.stream.resume(2), Err(cannot));
    assert!(side.stream.resume(0).is_err());
}

#[test]
fn a_failed_write_is_the_connections_fault_and_nothing_is_lost() {
    let (mut a, mut b) = (Side::default(), Side::default());
    reconnect(&mut a, &mut b);
    a.push(0, 100);
    let error = a.stream.transmit(1000, |_| Err(io::ErrorKind::ConnectionReset.into()));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(a.stream.transmit(1000, |_| Ok(0)).unwrap_err().kind(), io::ErrorKind::WriteZero);
    reconnect(&mut a, &mut b);
    settle(&mut a, &mut b);
    assert_eq!(a.pushed, b.seen);
}
