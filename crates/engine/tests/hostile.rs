//! A peer that is authenticated and hostile: it is refused, never believed; nothing panics, and it
//! takes no more memory than it was given credit for.

mod common;

use common::{A, B, CONTEXT, ONE, Pair, bytes, read, received, small, written};
use gridmpi_buffer::RecvBuffer;
use gridmpi_engine::{Config, Endpoint, Mode, PeerMisbehaved, Sink, Source, TagMatch};
use gridmpi_wire::{
    ContextId, Envelope, Frame, Grant, Header, ProcId, Rank, Strand, Transfer, parse,
};
use proptest::prelude::*;
use std::time::Duration;

fn envelope(message: u64, len: u64, eager: u64) -> Envelope {
    Envelope { context: CONTEXT, source: Rank(0), tag: 1, message, len, eager, synchronous: false }
}

fn data(message: u64, offset: u64) -> Frame {
    Frame::Data { message, offset }
}

const GRANT: Grant = Grant { cluster: 1, rate: 1, node: 1, is_settled: true, is_quiet: false };

/// Feeds frames (with payload lengths) to a fresh endpoint, which has received from a peer nothing
/// and sent it one short message. What it says to the last one.
fn reply(frames: &[(Frame, u32)]) -> String {
    let mut b = Endpoint::new(small(B));
    b.connected(A, ONE, 1).unwrap();
    b.send(A, CONTEXT, Rank(1), 1, Mode::Standard, bytes(b"hello"));
    written(&mut b, A);
    b.receive(CONTEXT, Source::Remote(Rank(7), ProcId(7)), TagMatch::Any, RecvBuffer::owned(9));
    let mut data_before = 0;
    for (number, &(frame, len)) in (1..).zip(frames) {
        let bytes = encode_behind(data_before, frame, number, len);
        data_before = if frame.kind().is_ordered() { 0 } else { data_before + 1 };
        match read(&mut b, A, &bytes) {
            Err(error) if number == frames.len() as u64 => return error.to_string(),
            result => result.expect("good so far"),
        }
    }
    "fine".to_owned()
}

fn encode(frame: Frame, seq: u64, len: u32) -> Vec<u8> {
    encode_behind(0, frame, seq, len)
}

fn encode_behind(data_before: u16, frame: Frame, seq: u64, len: u32) -> Vec<u8> {
    let seq = if frame.kind().is_sequenced() { seq } else { 0 };
    let data_before = if frame.kind().is_ordered() { data_before } else { 0 };
    let mut bytes = frame.encode_behind(data_before, seq, 0, len).to_vec();
    bytes.resize(bytes.len() + len as usize, 0xaa);
    bytes
}

/// One that three connections lead to.
fn on_three() -> (Endpoint, Vec<Strand>) {
    let mut b = Endpoint::new(small(B));
    let strands: Vec<Strand> = Strand::first(3).collect();
    strands.iter().for_each(|strand| b.connected(A, *strand, 1).unwrap());
    (b, strands)
}

/// The head of a frame comes, and nothing of its payload.
fn head(
    b: &mut Endpoint,
    strand: Strand,
    frame: Frame,
    seq: u64,
    len: u32,
) -> Result<Sink, PeerMisbehaved> {
    let bytes = encode(frame, seq, len);
    let parsed = parse(&bytes).unwrap().unwrap();
    b.frame(A, strand, &parsed.header, parsed.frame)
}

#[test]
fn what_has_half_come_of_a_message_that_has_begun_is_not_held_against_its_sender() {
    let (mut b, strands) = on_three();
    // Each is more than half of what may be held.
    head(&mut b, strands[2], data(1, 8), 2, 92).unwrap();
    head(&mut b, strands[0], Frame::Envelope(envelope(1, 100, 100)), 1, 8).unwrap();
    head(&mut b, strands[1], data(2, 0), 4, 100).unwrap();
    b.disconnected(A, strands[2]);
    b.connected(A, strands[2], 1).unwrap();
    let refused = head(&mut b, strands[2], data(3, 0), 6, 100).unwrap_err();
    assert!(refused.to_string().contains("have not begun"), "{refused}");
}

#[test]
fn of_two_connections_with_one_frame_the_first_is_to_be_ended() {
    let (mut b, strands) = on_three();
    let opening = Frame::Envelope(envelope(1, 100, 100));
    let opened = head(&mut b, strands[0], opening, 1, 8).unwrap();
    assert_eq!(b.overtaken(), None);
    head(&mut b, strands[1], data(1, 8), 2, 92).unwrap();
    assert_eq!(b.overtaken(), None);
    head(&mut b, strands[2], data(1, 8), 2, 92).unwrap();
    assert_eq!(b.overtaken(), Some((A, strands[1])));
    head(&mut b, strands[1], opening, 1, 8).unwrap();
    assert_eq!(b.overtaken(), Some((A, ONE)));
    b.frame_end(A, opened).unwrap();
    // What has come whole is no matter any more.
    head(&mut b, strands[2], opening, 1, 8).unwrap();
    assert_eq!(b.overtaken(), None);
}

#[test]
fn a_connection_that_is_gone_is_not_to_be_ended_though_another_has_its_number() {
    let (mut b, strands) = on_three();
    let opening = Frame::Envelope(envelope(1, 100, 100));
    head(&mut b, strands[0], opening, 1, 8).unwrap();
    head(&mut b, strands[1], data(1, 8), 2, 92).unwrap();
    head(&mut b, strands[2], data(1, 8), 2, 92).unwrap();
    b.disconnected(A, strands[1]);
    b.connected(A, strands[1], 1).unwrap();
    assert_eq!(b.overtaken(), None);
}

#[test]
fn whatever_breaks_the_rules_is_named() {
    let first = (Frame::Envelope(envelope(1, 40, 40)), 16);
    let long = (Frame::Envelope(envelope(1, 100, 20)), 16);
    let refused: &[(&[(Frame, u32)], &str)] = &[
        (&[(data(1, 0), 1), (Frame::Envelope(envelope(1, 1, 1)), 1)], "expects none"),
        (&[(data(1, 9), 3), (Frame::Envelope(envelope(1, 11, 11)), 9)], "not cleared"),
        (&[(data(9, 0), 200), (data(9, 200), 200)], "have not begun"),
        (&[first, (data(1, 15), 1)], "twice"),
        (&[first, (data(1, 20), 8), (data(1, 27), 2)], "twice"),
        (&[first, (data(1, 20), 8), (data(1, 18), 3)], "twice"),
        (&[first, (data(1, u64::MAX - 1), 1)], "not cleared"),
        (&[first, (data(1, 16), 25)], "not cleared"),
        (&[first, (data(1, 16), 24), (data(1, 40), 1)], "expects none"),
        (&[long, (data(1, 16), 4), (data(1, 20), 1)], "not cleared"),
        (&[(Frame::Envelope(envelope(2, 1, 1)), 1)], "misnumbered"),
        (&[first, first], "misnumbered"),
        (&[(Frame::Envelope(envelope(1, u64::MAX, 0)), 0)], "impossible length"),
        (&[(Frame::Envelope(envelope(1, 1 << 40, 201)), 0)], "more bytes than it has credit"),
        (&[(Frame::ClearToSend { message: 1 }, 0)], "does not wait"),
        (&[(Frame::ClearToSend { message: 77 }, 0)], "does not wait"),
        (&[(Frame::Matched { message: 1 }, 0)], "does not wait"),
        (&[(Frame::Matched { message: u64::MAX }, 0)], "does not wait"),
        (
            &[
                (Frame::Credit { envelopes: 5, bytes: 5 }, 0),
                (Frame::Credit { envelopes: 4, bytes: 6 }, 0),
            ],
            "took credit back",
        ),
        (&[(Frame::Close, 0), (Frame::Envelope(envelope(1, 1, 1)), 1)], "after its end"),
        (&[(Frame::Close, 0), (Frame::Close, 0)], "after its end"),
        (&[(Frame::Close, 0), (Frame::Credit { envelopes: 0, bytes: 0 }, 0)], "after its end"),
        (&[(Frame::Close, 0), (Frame::Matched { message: 1 }, 0)], "after its end"),
        (&[(Frame::Close, 0), (Frame::Grant(GRANT), 0)], "after its end"),
        (&[first, (Frame::Close, 0), (data(1, 16), 24)], "after its end"),
        (&[(Frame::Close, 0), (data(1, 0), 24)], "after its end"),
        (
            &[(Frame::Envelope(Envelope { source: Rank(7), ..envelope(1, 1, 1) }), 1)],
            "another's rank",
        ),
    ];
    for (frames, what) in refused {
        let said = reply(frames);
        assert!(said.contains(what), "{frames:?}: {said}");
    }
    assert_eq!(reply(&[first, (data(1, 16), 24)]), "fine");
    assert_eq!(reply(&[first, (data(1, 16), 24), (Frame::Close, 0), (Frame::Ping, 0)]), "fine");
    assert_eq!(reply(&[(Frame::Credit { envelopes: u64::MAX, bytes: u64::MAX }, 0)]), "fine");
}

#[test]
fn more_gaps_in_messages_than_connections_can_leave_are_refused() {
    let most = small(B).bounds.most_gaps();
    // As long as may be, and a receive for a little of each: what does not fit is discarded.
    let begin = || {
        let mut b = Endpoint::new(small(B));
        b.connected(A, ONE, 1).unwrap();
        for message in 1..=2 {
            b.receive(CONTEXT, Source::Remote(Rank(0), A), TagMatch::Any, RecvBuffer::owned(8));
            let opening = Frame::Envelope(envelope(message, 1 << 62, 0));
            read(&mut b, A, &encode(opening, message, 0)).unwrap();
        }
        b
    };
    // Of one message, and of two: all that is kept of a peer counts.
    for messages in [1, 2] {
        let mut b = begin();
        let byte = |n: u64| encode(data(1 + n % messages, 1 + 2 * (n / messages)), 3 + n, 1);
        for n in 0..most {
            read(&mut b, A, &byte(n)).unwrap();
        }
        let refused = read(&mut b, A, &byte(most)).unwrap_err();
        assert!(refused.to_string().contains("more gaps"), "{refused}");
        assert_eq!(refused.peer, A);
    }
    // Gaps that are filled are none.
    let mut b = begin();
    let pieces = (0..most).flat_map(|n| [data(1, 1 + 2 * n), data(1, 2 * n)]).zip(3..);
    for (frame, seq) in pieces {
        read(&mut b, A, &encode(frame, seq, 1)).unwrap();
    }
    read(&mut b, A, &encode(data(1, 1 << 40), 3 + 2 * most, 1)).unwrap();
}

/// Processor time that this thread has had: others at the machine take none of it.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The least time that this takes of three.
fn least_time(mut work: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| work()).min().unwrap()
}

/// Processor time for a thousand messages to begin, while so many frames of another are held that has not.
fn begin_beside(held: u64) -> Duration {
    let mut b = Endpoint::new(Config::new(B));
    b.connected(A, ONE, 1).unwrap();
    for n in 0..held {
        read(&mut b, A, &encode(data(1 << 40, n), 1001 + n, 1)).unwrap();
    }
    let opening = |n| encode(Frame::Envelope(envelope(n, 1, 1)), n, 1);
    let all: Vec<_> = (1..=1000).map(opening).collect();
    let began = processor_time();
    all.iter().for_each(|opening| read(&mut b, A, opening).unwrap());
    processor_time() - began
}

/// Processor time for the beginning of a message to come of which so many frames are held.
fn begin_behind(held: u64) -> Duration {
    let mut b = Endpoint::new(Config::new(B));
    b.connected(A, ONE, 1).unwrap();
    for n in 0..held {
        read(&mut b, A, &encode(data(1, n), 2 + n, 1)).unwrap();
    }
    let opening = encode(Frame::Envelope(envelope(1, held, held)), 1, 0);
    let began = processor_time();
    read(&mut b, A, &opening).unwrap();
    processor_time() - began
}

#[test]
fn what_is_held_of_messages_that_have_not_begun_costs_others_no_time_and_itself_little() {
    // As many as may be held of one byte each.
    let most = (4 << 20) / 257;
    let [alone, beside] = [0, most].map(|held| least_time(|| begin_beside(held)));
    assert!(beside < 8 * alone, "{beside:?}, and {alone:?} without them");
    let [few, many] = [most / 16, most].map(|held| least_time(|| begin_behind(held)));
    assert!(many < 64 * few, "{many:?} for 16 times as many as in {few:?}");
}

#[test]
fn no_more_messages_than_credit() {
    let envelopes = |count| (1..=count).map(|n| (Frame::Envelope(envelope(n, 1, 0)), 0));
    assert_eq!(reply(&envelopes(4).collect::<Vec<_>>()), "fine");
    let said = reply(&envelopes(5).collect::<Vec<_>>());
    assert!(said.contains("more messages than it has credit"), "{said}");
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let mut pair = Pair::new(small);
    assert!(pair.b.connected(A, ONE, 99).is_err());
    let gap = encode(Frame::Close, 5, 0);
    assert!(read(&mut pair.b, A, &gap).is_err());
    let ack = Frame::Ack.encode(0, 17, 0);
    assert!(read(&mut pair.b, A, &ack).is_err());
}

#[test]
fn a_frame_repeated_with_other_content_is_refused() {
    for again in [Frame::Envelope(envelope(1, 41, 40)), data(1, 0)] {
        let mut b = Endpoint::new(small(B));
        b.connected(A, ONE, 1).unwrap();
        let half = encode(Frame::Envelope(envelope(1, 40, 40)), 1, 16);
        read(&mut b, A, &half[..half.len() - 1]).unwrap();
        b.disconnected(A, ONE);
        b.connected(A, ONE, 1).unwrap();
        let error = read(&mut b, A, &encode(again, 1, 16)).unwrap_err();
        assert!(error.to_string().contains("other content"), "{error}");
    }
}

#[test]
fn a_message_cleared_twice_is_refused() {
    let mut pair = Pair::new(small);
    pair.send(1, Mode::Synchronous, &[7; 1000]);
    pair.carry();
    let next = pair.a.expects(B);
    let clear = |n| encode(Frame::ClearToSend { message: 1 }, next + n, 0);
    read(&mut pair.a, B, &clear(0)).unwrap();
    assert!(read(&mut pair.a, B, &clear(1)).is_err());
}

#[test]
fn what_is_read_after_a_loss_goes_nowhere() {
    let mut pair = Pair::new(small);
    let receive = pair.receive(1, 40);
    let header = Header {
        kind: gridmpi_wire::Kind::Envelope,
        body_len: 16 + 47,
        seq: 1,
        data_before: 0,
        ack: 0,
    };
    let frame = Frame::Envelope(envelope(1, 40, 40));
    let sink = pair.b.frame(A, ONE, &header, frame).unwrap();
    pair.b.peer_lost(A, "cut");
    assert!(pair.b.take(receive).unwrap().error.is_some());
    pair.b.sink_write(&sink, 0, &[1; 16]);
    pair.b.sink_slices(&sink, 3, |slices| assert!(!slices.is_empty()));
    pair.b.frame_end(A, sink).unwrap();
    assert!(pair.b.frame(A, ONE, &header, frame).is_err());
}

fn frame() -> impl Strategy<Value = (Frame, u32)> {
    let small = || prop_oneof![4 => 0..8u64, 2 => 0..300u64, 1 => any::<u64>()];
    let envelope = (0..3u64, 0..3u32, 0..3i32, small(), small(), any::<bool>(), 0..40u32).prop_map(
        |(context, source, tag, len, eager, synchronous, payload)| {
            let (context, source) = (ContextId(context), Rank(source));
            let eager = eager.min(len);
            // Mostly the right number: 0 stands for it.
            let envelope = Envelope { context, source, tag, message: 0, len, eager, synchronous };
            (Frame::Envelope(envelope), payload.min(eager as u32))
        },
    );
    let data = (small(), small(), 1..40u32)
        .prop_map(|(message, offset, len)| (Frame::Data { message, offset }, len));
    let control = (small(), small(), 0..6).prop_map(|(message, bytes, kind)| match kind {
        0 => (Frame::ClearToSend { message }, 0),
        1 => (Frame::Matched { message }, 0),
        2 => (Frame::Credit { envelopes: message, bytes }, 0),
        3 => (
            Frame::Grant(Grant {
                cluster: message as u32,
                rate: bytes,
                node: bytes,
                is_settled: true,
                is_quiet: false,
            }),
            0,
        ),
        4 => (
            Frame::Transfer(Transfer { from: message as u32, to: bytes as u32, is_active: true }),
            0,
        ),
        _ => (Frame::Close, 0),
    });
    prop_oneof![6 => envelope, 3 => data, 1 => control]
}

proptest! {
    /// Any frames, between any calls of the program: refused or handled, within the credit.
    #[test]
    fn no_frame_panics_or_takes_more_than_its_credit(
        steps in prop::collection::vec((frame(), 0..8u8), 1..120)
    ) {
        let mut b = Endpoint::new(small(B));
        b.connected(A, ONE, 1).unwrap();
        let (mut messages, mut data_before, mut claimed) = (0, 0, Vec::new());
        for ((frame, len), action) in steps {
            let frame = match frame {
                Frame::Envelope(e) => Frame::Envelope(Envelope { message: messages + 1, ..e }),
                other => other,
            };
            let seq = b.expects(A);
            let header = Header {
                kind: frame.kind(),
                body_len: frame.kind().fields_len() as u32 + len,
                seq,
                data_before: if frame.kind().is_ordered() { data_before } else { 0 },
                ack: 0,
            };
            if let Ok(sink) = b.frame(A, ONE, &header, frame) {
                messages += u64::from(matches!(frame, Frame::Envelope(_)));
                data_before = if frame.kind().is_ordered() { 0 } else { data_before + 1 };
                b.sink_write(&sink, 0, &vec![1; len as usize]);
                let _ = b.frame_end(A, sink);
            }
            let (source, tag) = (Source::Remote(Rank(0), A), TagMatch::Is(1));
            match action {
                0 => { b.receive(ContextId(0), source, tag, RecvBuffer::owned(100)); }
                1 => { b.receive(ContextId(1), Source::Any, TagMatch::Any, RecvBuffer::owned(3)); }
                2 => claimed.extend(b.claim(ContextId(0), Source::Any, TagMatch::Any)),
                3 => if let Some((message, _)) = claimed.pop() {
                    b.receive_claimed(message, RecvBuffer::owned(8));
                },
                4 => {
                    b.disconnected(A, ONE);
                    // Its own frames cannot have been received: it has acknowledged none.
                    b.connected(A, ONE, 1).unwrap();
                }
                5 => { b.send(A, ContextId(0), Rank(1), 1, Mode::Synchronous, bytes(&[1; 50])); }
                _ => {}
            }
            let (envelopes, eager) = b.unexpected_of(A);
            prop_assert!(eager <= 200 && envelopes <= 4 * 64, "{envelopes} {eager}");
        }
    }
}

#[test]
fn honest_messages_still_pass() {
    let mut pair = Pair::new(small);
    let receive = pair.receive(1, 9);
    pair.send(1, Mode::Standard, b"honest");
    pair.carry();
    assert_eq!(received(&mut pair.b, receive).unwrap().1, b"honest");
}
