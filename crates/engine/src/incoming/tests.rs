use super::*;
use crate::Config;
use gridmpi_wire::{ContextId, Rank};

const A: ProcId = ProcId(0);
const ONE: Strand = Strand::FIRST;

fn envelope(message: u64, len: u64, eager: u64) -> Envelope {
    let (context, source) = (ContextId::WORLD, Rank(0));
    Envelope { context, source, tag: 1, message, len, eager, synchronous: false }
}

/// How often the heap of an unexpected message grows while its bytes come one by one.
#[test]
fn a_heap_grows_seldom_however_short_the_frames_and_never_beyond_what_may_come() {
    let unexpected = || Place::Unexpected { handle: 0, heap: RecvBuffer::empty() };
    for eager in [1, 2, 3000, 4096, 5000] {
        let mut incoming = Incoming::new(A, envelope(1, 10_000, eager), unexpected());
        let mut growths = 0;
        for len in 1..=eager {
            let before = incoming.buffer().capacity();
            incoming.make_room(len);
            let after = incoming.buffer().capacity();
            assert!(len <= after && after <= eager, "{after} for {len} of {eager}");
            growths += u32::from(after != before);
        }
        assert!(growths <= 14, "{growths} times for {eager} bytes");
        assert_eq!(incoming.reached, eager);
    }
    // Of long ones it takes a block at a time.
    let mut incoming = Incoming::new(A, envelope(1, 16 << 20, 16 << 20), unexpected());
    let mut growths = 0;
    for len in (1..=16 << 20).step_by(1000).chain([16 << 20]) {
        let before = incoming.buffer().capacity();
        incoming.make_room(len);
        let after = incoming.buffer().capacity();
        assert!(after <= len + MOST_AHEAD);
        growths += u32::from(after != before);
    }
    assert!(growths <= 18 + 64, "{growths} times");
}

/// Frames come whole, one after another, from number `seq` on.
fn come(endpoint: &mut Endpoint, seq: u64, frames: &[(Frame, u32)]) {
    let mut data_before = 0;
    for (seq, &(frame, len)) in (seq..).zip(frames) {
        let kind = frame.kind();
        let body_len = kind.fields_len() as u32 + len;
        let before = if kind.is_ordered() { data_before } else { 0 };
        let header = Header { kind, body_len, seq, data_before: before, ack: 0 };
        data_before = if kind.is_ordered() { 0 } else { data_before + 1 };
        let sink = endpoint.frame(A, ONE, &header, frame).unwrap();
        endpoint.sink_write(&sink, 0, &vec![7; len as usize]);
        endpoint.frame_end(A, sink).unwrap();
    }
}

/// The messages of A of which bytes are to come, as they are counted.
fn arriving(endpoint: &Endpoint) -> usize {
    endpoint.peers.get(A).map_or(0, |peer| peer.arriving.len())
}

#[test]
fn of_messages_that_have_come_nothing_is_to_come() {
    let mut b = Endpoint::new(Config::new(ProcId(1)));
    b.connected(A, ONE, 1).unwrap();
    let data = |message, offset| Frame::Data { message, offset };
    // All of it with its beginning; part of it; all in one frame behind it, and in two; nothing.
    let all = [(10, 10), (10, 4), (10, 0), (10, 0), (0, 0)];
    let mut frames = Vec::new();
    for (message, (len, inline)) in (1..).zip(all) {
        frames.push((Frame::Envelope(envelope(message, len, len)), inline));
    }
    come(&mut b, 1, &frames);
    assert_eq!(arriving(&b), 3);
    let seq = b.expects(A);
    come(&mut b, seq, &[(data(2, 4), 6), (data(3, 0), 10), (data(4, 5), 5), (data(4, 0), 5)]);
    assert_eq!(arriving(&b), 0);
}
