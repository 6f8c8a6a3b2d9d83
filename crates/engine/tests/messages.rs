//! Messages between two endpoints: modes, sizes, matching, credit, cancel, loss.

mod common;

use common::{A, B, CONTEXT, ONE, Pair, bytes, read, received, small, written};
use gridmpi_buffer::RecvBuffer;
use gridmpi_engine::{Completion, Config, Endpoint, Fault, Mode, Patience, Source, TagMatch, Word};
use gridmpi_wire::{ContextId, Grant, ProcId, Rank, Transfer};

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

#[test]
fn every_length_arrives_posted_or_unexpected() {
    for len in [0, 1, 15, 16, 17, 32, 199, 200, 201, 1000] {
        for early in [true, false] {
            let mut pair = Pair::new(small);
            let posted = early.then(|| pair.receive(5, 1000));
            let send = pair.send(5, Mode::Standard, &data(len));
            pair.carry();
            let receive = posted.unwrap_or_else(|| pair.receive(5, 1000));
            pair.carry();
            let (completion, got) = received(&mut pair.b, receive).expect("received");
            assert_eq!(got, data(len), "{len} early {early}");
            assert_eq!((completion.source, completion.tag), (Some(Rank(0)), 5));
            assert_eq!(pair.a.take(send).unwrap().len, len as u64);
            assert_eq!(pair.b.unexpected_of(A), (0, 0));
        }
    }
}

#[test]
fn a_synchronous_send_completes_only_with_a_match() {
    for len in [3, 1000] {
        let mut pair = Pair::new(small);
        let send = pair.send(5, Mode::Synchronous, &data(len));
        pair.carry();
        assert_eq!(pair.a.peek(send), None);
        let receive = pair.receive(5, 1000);
        pair.carry();
        assert!(pair.a.take(send).is_some());
        assert_eq!(received(&mut pair.b, receive).unwrap().1, data(len));
    }
}

#[test]
fn a_short_standard_send_completes_at_once_and_a_buffered_one_always() {
    let mut pair = Pair::new(small);
    for _ in 0..4 {
        let send = pair.send(1, Mode::Standard, &data(9));
        assert!(pair.a.take(send).is_some());
    }
    let without_credit = pair.send(1, Mode::Standard, &data(9));
    let buffered = pair.send(1, Mode::Buffered, &data(500));
    assert_eq!(pair.a.peek(without_credit), None);
    assert!(pair.a.take(buffered).is_some());
}

#[test]
fn a_message_past_the_envelope_credit_reaches_a_receive_that_waits() {
    let mut pair = Pair::new(small);
    for _ in 0..30 {
        pair.send(1, Mode::Standard, &data(20));
    }
    pair.send(2, Mode::Standard, &data(7));
    pair.carry();
    assert_eq!(pair.b.unexpected_of(A).0, 4, "no more than the credit unasked");
    let late = pair.receive(2, 7);
    pair.carry();
    assert_eq!(received(&mut pair.b, late).unwrap().1, data(7));
    for _ in 0..30 {
        let receive = pair.receive(1, 20);
        pair.carry();
        assert_eq!(received(&mut pair.b, receive).unwrap().1, data(20));
    }
    assert_eq!(pair.b.unexpected_of(A), (0, 0));
}

#[test]
fn a_message_past_the_envelope_credit_reaches_a_probe() {
    let mut pair = Pair::new(small);
    for _ in 0..30 {
        pair.send(1, Mode::Standard, &data(20));
    }
    pair.send(2, Mode::Standard, &data(7));
    for source in [Source::Any, Source::Remote(Rank(0), A)] {
        let mut found = None;
        for _ in 0..100 {
            found = pair.b.probe(CONTEXT, source, TagMatch::Is(2));
            pair.carry();
        }
        assert_eq!(found.expect("found").len, 7);
    }
}

#[test]
fn a_longer_message_is_truncated_and_the_next_is_whole() {
    for len in [40, 1000] {
        for early in [true, false] {
            let mut pair = Pair::new(small);
            let posted = early.then(|| pair.receive(5, 33));
            pair.send(5, Mode::Standard, &data(len));
            pair.send(5, Mode::Standard, &data(12));
            pair.carry();
            let first = posted.unwrap_or_else(|| pair.receive(5, 33));
            let next = pair.receive(5, 33);
            pair.carry();
            let (completion, got) = received(&mut pair.b, first).unwrap();
            assert_eq!(got, data(len)[..33]);
            let fault = Fault::Truncated { message: len as u64, capacity: 33 };
            assert_eq!(completion.error, Some(fault));
            assert_eq!(received(&mut pair.b, next).unwrap().1, data(12));
        }
    }
}

#[test]
fn a_receive_is_cancelled_only_before_it_matches() {
    let mut pair = Pair::new(small);
    let cancelled = pair.receive(5, 100);
    assert!(pair.b.cancel(cancelled));
    let completion = pair.b.take(cancelled).unwrap();
    assert_eq!(
        completion,
        Completion { source: None, tag: 0, len: 0, error: None, cancelled: true }
    );
    let matched = pair.receive(5, 100);
    let send = pair.send(5, Mode::Standard, &data(50));
    assert!(!pair.a.cancel(send));
    pair.carry();
    assert!(!pair.b.cancel(matched));
    assert_eq!(received(&mut pair.b, matched).unwrap().1, data(50));
}

#[test]
fn a_claimed_message_is_out_of_matching() {
    let mut pair = Pair::new(small);
    pair.send(5, Mode::Standard, &data(300));
    pair.send(5, Mode::Standard, &data(2));
    pair.carry();
    let source = Source::Remote(Rank(0), A);
    let (message, probed) = pair.b.claim(CONTEXT, source, TagMatch::Any).unwrap();
    assert_eq!(probed.len, 300);
    let next = pair.receive(5, 300);
    assert_eq!(received(&mut pair.b, next).unwrap().1, data(2));
    let claimed = pair.b.receive_claimed(message, RecvBuffer::owned(300));
    pair.carry();
    assert_eq!(received(&mut pair.b, claimed).unwrap().1, data(300));
}

#[test]
fn detached_requests_complete_by_themselves() {
    let mut pair = Pair::new(small);
    let receive = pair.receive(5, 300);
    pair.b.detach(receive);
    let send = pair.send(5, Mode::Synchronous, &data(300));
    pair.a.detach(send);
    let before = (pair.a.completions(), pair.b.completions());
    pair.carry();
    assert_eq!((pair.a.completions(), pair.b.completions()), (before.0 + 1, before.1 + 1));
}

#[test]
fn a_receive_that_comes_while_a_frame_is_read_gets_all_of_it() {
    for cut in 1..120 {
        let mut pair = Pair::new(small);
        pair.send(5, Mode::Standard, &data(16));
        pair.send(5, Mode::Standard, &data(150));
        let out = written(&mut pair.a, B);
        // A first piece whose last frame stops somewhere, then the receive, then the rest anew.
        read(&mut pair.b, A, &out[..cut.min(out.len())]).unwrap();
        let receives = [pair.receive(5, 16), pair.receive(5, 150)];
        pair.a.disconnected(B, ONE);
        pair.b.disconnected(A, ONE);
        pair.connect();
        pair.carry();
        assert_eq!(received(&mut pair.b, receives[0]).unwrap().1, data(16));
        assert_eq!(received(&mut pair.b, receives[1]).unwrap().1, data(150));
    }
}

#[test]
fn contexts_are_separate() {
    let mut pair = Pair::new(small);
    pair.a.send(B, ContextId(2), Rank(0), 5, Mode::Standard, bytes(b"other"));
    pair.send(5, Mode::Standard, b"this");
    pair.carry();
    let receive = pair.receive(5, 10);
    assert_eq!(received(&mut pair.b, receive).unwrap().1, b"this");
}

#[test]
fn a_lost_peer_fails_what_depends_on_it_and_nothing_else() {
    let mut pair = Pair::new(small);
    pair.send(1, Mode::Standard, b"whole");
    let half = pair.send(2, Mode::Synchronous, &data(1000));
    pair.carry();
    let claimed = pair.b.claim(CONTEXT, Source::Any, TagMatch::Is(2)).unwrap().0;
    let waits = pair.receive(9, 10);
    let any = pair.b.receive(CONTEXT, Source::Any, TagMatch::Is(7), RecvBuffer::owned(9));
    let other = Source::Remote(Rank(2), ProcId(2));
    let other = pair.b.receive(CONTEXT, other, TagMatch::Any, RecvBuffer::owned(9));
    pair.b.peer_lost(A, "it was unplugged");
    pair.a.peer_lost(B, "so was it");
    let lost = |completion: Option<Completion>| match completion.and_then(|c| c.error) {
        Some(Fault::PeerLost { reason, .. }) => reason.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(lost(pair.b.take(waits)), "it was unplugged");
    let claimed = pair.b.receive_claimed(claimed, RecvBuffer::owned(1000));
    assert_eq!(lost(pair.b.take(claimed)), "it was unplugged");
    assert_eq!(lost(pair.a.take(half)), "so was it");
    let later = pair.send(1, Mode::Standard, b"late");
    assert_eq!(lost(pair.a.take(later)), "so was it");
    let whole = pair.receive(1, 10);
    assert_eq!(received(&mut pair.b, whole).unwrap().1, b"whole");
    let later = pair.receive(1, 10);
    assert_eq!(lost(pair.b.take(later)), "it was unplugged");
    assert_eq!((pair.b.peek(any), pair.b.peek(other)), (None, None));
    assert!(pair.a.is_drained() && pair.b.is_drained());
}

#[test]
fn close_follows_everything_else() {
    let mut pair = Pair::new(small);
    let long = pair.send(5, Mode::Standard, &data(1000));
    pair.a.detach(long);
    pair.a.close();
    pair.b.close();
    pair.carry();
    assert!(!pair.b.peer_closed(A) && !pair.a.is_drained());
    // The other end has closed and yet answers nothing more: so receive before it does.
    let mut pair = Pair::new(small);
    let long = pair.send(5, Mode::Standard, &data(1000));
    pair.a.detach(long);
    pair.a.close();
    let receive = pair.receive(5, 1000);
    pair.carry();
    assert_eq!(received(&mut pair.b, receive).unwrap().1, data(1000));
    pair.b.close();
    pair.carry();
    assert!(pair.b.peer_closed(A) && pair.a.peer_closed(B));
    for _ in 0..4 {
        pair.a.tick(Patience::Brief);
        pair.b.tick(Patience::Brief);
        pair.carry();
    }
    assert!(pair.a.is_drained() && pair.b.is_drained());
}

#[test]
fn nothing_is_dialled_to_be_ended_and_what_is_ended_is_not_used() {
    let mut alone = Endpoint::new(small(B));
    let never = Source::Remote(Rank(2), ProcId(2));
    let waits = alone.receive(CONTEXT, never, TagMatch::Any, RecvBuffer::owned(1));
    assert!(alone.cancel(waits));
    alone.close();
    assert_eq!(alone.wants_connection(), None);
    // A connection over which nothing was said is ended in order: the other side is not gone, it has nothing to say.
    let mut pair = Pair::new(small);
    pair.b.close();
    pair.a.close();
    pair.carry();
    assert!(pair.b.peer_closed(A) && pair.a.peer_closed(B));
    // Used from one side, it is ended from both, whenever the message comes.
    let mut pair = Pair::new(small);
    pair.b.close();
    pair.send(1, Mode::Standard, b"late");
    pair.a.close();
    pair.carry();
    assert!(pair.b.peer_closed(A) && pair.a.peer_closed(B));
    let late = pair.send(1, Mode::Standard, b"too late");
    assert!(matches!(pair.a.take(late).unwrap().error, Some(Fault::PeerLost { .. })));
}

#[test]
fn peers_are_dialled_once_and_named_when_they_have_something_to_write() {
    let mut a = Endpoint::new(small(A));
    a.send(B, CONTEXT, Rank(0), 1, Mode::Standard, bytes(b"x"));
    a.send(B, CONTEXT, Rank(0), 1, Mode::Standard, bytes(b"x"));
    assert_eq!(a.wants_connection(), Some(B));
    assert_eq!(a.wants_connection(), None);
    a.disconnected(B, ONE);
    assert_eq!(a.wants_connection(), Some(B));
    a.connected(B, ONE, 1).unwrap();
    let mut ready = Vec::new();
    a.wants_transmit(&mut ready);
    a.wants_transmit(&mut ready);
    assert_eq!(ready, [B]);
}

#[test]
fn ten_thousand_unexpected_messages_are_received_in_any_order_quickly() {
    let config = |me| Config { credit_envelopes: 20_000, ..Config::new(me) };
    let mut pair = Pair::new(config);
    for tag in 0..10_000 {
        pair.send(tag, Mode::Standard, &data(8));
    }
    pair.carry();
    for tag in (0..10_000).rev() {
        let receive = pair.receive(tag, 8);
        assert!(pair.b.take(receive).is_some());
    }
}

#[test]
fn words_about_rates_come_in_order_and_none_follows_the_end() {
    let mut pair = Pair::new(Config::new);
    let words = [
        Word::Transfer(Transfer { from: 1, to: 2, is_active: true }),
        Word::Grant(Grant {
            cluster: 2,
            rate: u64::MAX,
            node: u64::MAX,
            is_settled: true,
            is_quiet: false,
        }),
        Word::Transfer(Transfer { from: 1, to: 2, is_active: false }),
    ];
    words.iter().for_each(|word| pair.a.tell(B, *word));
    pair.carry();
    let heard: Vec<_> = std::iter::from_fn(|| pair.b.heard()).collect();
    assert_eq!(heard, words.map(|word| (A, word)));
    pair.a.close();
    pair.carry();
    pair.a.tell(B, words[0]);
    pair.carry();
    assert!(pair.b.peer_closed(A) && pair.b.heard().is_none());
}

#[test]
fn words_about_rates_are_acknowledged_by_ticks_of_their_own() {
    let mut pair = Pair::new(Config::new);
    let word = Word::Transfer(Transfer { from: 1, to: 2, is_active: true });
    let is_ticking = |end: &Endpoint| Patience::ALL.map(|patience| end.wants_tick(patience));
    pair.a.tell(B, word);
    pair.carry();
    assert_eq!(is_ticking(&pair.b), [false, true]);
    pair.send(1, Mode::Standard, &data(8));
    pair.carry();
    // The peer is known to both, until its tick has passed.
    assert_eq!(is_ticking(&pair.b), [true, true]);
    pair.b.tick(Patience::Long);
    assert_eq!(is_ticking(&pair.b), [true, false]);
    (0..2).for_each(|_| pair.b.tick(Patience::Brief));
    pair.carry();
    assert!(pair.a.is_idle(B) && is_ticking(&pair.b) == [false, false]);
    pair.a.tell(B, word);
    pair.carry();
    (0..2).for_each(|_| pair.b.tick(Patience::Long));
    pair.carry();
    assert!(pair.a.is_idle(B) && is_ticking(&pair.b) == [false, false]);
}

#[test]
fn the_end_of_the_frame_that_goes_is_known_to_the_byte() {
    let config = |me| Config { chunk: 1 << 16, eager_limit: 1 << 16, ..Config::new(me) };
    let mut pair = Pair::new(config);
    assert_eq!(pair.a.frame_bytes(B), 0);
    [500, 70].into_iter().for_each(|len| {
        pair.send(1, Mode::Standard, &data(len));
    });
    let (mut seen, mut left) = (vec![pair.a.frame_bytes(B)], vec![pair.a.left_bytes(B)]);
    while pair.a.unwritten_bytes(B) > 0 {
        pair.a.transmit(B, ONE, 1 << 16, |_| Ok(1)).unwrap();
        seen.push(pair.a.frame_bytes(B));
        left.push(pair.a.left_bytes(B));
    }
    // Heads take none of it.
    seen.dedup();
    left.dedup();
    assert_eq!(left, (0..=570).rev().collect::<Vec<_>>());
    assert_eq!(seen, (1..=500).rev().chain((1..=70).rev()).chain([0]).collect::<Vec<_>>());
}

#[test]
fn where_newer_messages_pass_the_end_of_a_long_one_nothing_is_said_of_what_is_left() {
    let config = |me| Config { chunk: 64, eager_limit: 1 << 16, ..Config::new(me) };
    let mut pair = Pair::new(config);
    pair.send(1, Mode::Standard, &data(64));
    assert_eq!(pair.a.left_bytes(B), 64);
    pair.send(2, Mode::Standard, &data(200));
    assert_eq!(pair.a.left_bytes(B), u64::MAX);
    pair.carry();
    assert_eq!(pair.a.left_bytes(B), 0);
}

#[test]
fn what_is_to_be_written_is_known_to_the_byte() {
    let mut pair = Pair::new(small);
    let sends =
        [pair.send(1, Mode::Standard, &data(150)), pair.send(2, Mode::Standard, &data(500))];
    // All of the first, and of the second what may go before it is matched.
    let eager = pair.a.unwritten_bytes(B) - 150;
    assert!(eager < 500);
    pair.carry();
    assert_eq!(pair.a.unwritten_bytes(B), 0);
    let receives = [pair.receive(1, 150), pair.receive(2, 500)];
    let back = written(&mut pair.b, A);
    read(&mut pair.a, B, &back).unwrap();
    assert_eq!(pair.a.unwritten_bytes(B), 500 - eager);
    pair.carry();
    assert_eq!(pair.a.unwritten_bytes(B), 0);
    assert!(receives.iter().all(|receive| pair.b.take(*receive).is_some()));
    assert!(sends.iter().all(|send| pair.a.take(*send).is_some()));
}
