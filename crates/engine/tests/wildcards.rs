//! Receives from any source, and the local ones behind them, over a vendor that is probed.

mod common;

use common::{A, B, CONTEXT, Pair, Vendor, small};
use gridmpi_buffer::RecvBuffer;
use gridmpi_engine::{Completion, Endpoint, Mode, RequestId, Source, TagMatch};
use gridmpi_wire::Rank;

const ANY: TagMatch = TagMatch::Any;

fn is(tag: i32) -> TagMatch {
    TagMatch::Is(tag)
}

fn any(endpoint: &mut Endpoint, tag: TagMatch) -> RequestId {
    endpoint.receive(CONTEXT, Source::Any, tag, RecvBuffer::owned(8))
}

fn local(endpoint: &mut Endpoint, rank: u32, tag: TagMatch) -> RequestId {
    assert!(endpoint.must_hold(CONTEXT, Rank(rank), tag));
    endpoint.receive(CONTEXT, Source::Local(Rank(rank)), tag, RecvBuffer::owned(8))
}

#[test]
fn held_receives_are_satisfied_in_posting_order() {
    let mut b = Endpoint::new(small(B));
    let mut vendor = Vendor::default();
    let receives = [any(&mut b, is(1)), any(&mut b, ANY), any(&mut b, is(1))];
    vendor.queue.extend([(Rank(3), 1), (Rank(4), 1), (Rank(3), 2), (Rank(3), 1)]);
    assert!(b.poll_local(&mut vendor));
    let given = [(receives[0], Rank(3), 1), (receives[1], Rank(4), 1), (receives[2], Rank(3), 1)];
    assert_eq!(vendor.given, given);
    assert_eq!(vendor.queue, [(Rank(3), 2)]);
    assert!(!b.has_held() && !b.poll_local(&mut vendor));
    let completion =
        Completion { source: Some(Rank(3)), tag: 1, len: 8, error: None, cancelled: false };
    b.local_completed(receives[0], completion.clone());
    assert_eq!(b.take(receives[0]), Some(completion));
    assert!(!b.cancel(receives[1]));
}

#[test]
fn a_remote_message_frees_the_local_receive_behind() {
    let mut pair = Pair::new(small);
    let wildcard = any(&mut pair.b, is(1));
    let behind = local(&mut pair.b, 3, ANY);
    assert!(!pair.b.must_hold(CONTEXT, Rank(4), is(2)));
    assert!(!pair.b.must_hold(gridmpi_wire::ContextId(2), Rank(3), is(1)));
    let after = local(&mut pair.b, 3, is(2));
    let mut vendor = Vendor::default();
    assert!(!pair.b.poll_local(&mut vendor));
    pair.send(1, Mode::Standard, b"remote");
    pair.carry();
    assert!(pair.b.take(wildcard).is_some());
    assert!(pair.b.poll_local(&mut vendor));
    assert_eq!(vendor.posted, [(behind, Rank(3), ANY), (after, Rank(3), is(2))]);
    assert!(!pair.b.has_held());
}

#[test]
fn a_held_local_receive_gets_what_the_wildcard_before_it_does_not_accept() {
    let mut b = Endpoint::new(small(B));
    any(&mut b, is(1));
    let local = local(&mut b, 3, ANY);
    any(&mut b, is(2));
    let mut vendor = Vendor::default();
    vendor.queue.extend([(Rank(3), 2)]);
    assert!(b.poll_local(&mut vendor));
    assert_eq!(vendor.given, [(local, Rank(3), 2)]);
}

#[test]
fn messages_that_come_between_the_probes_do_not_overtake() {
    // The first message comes after `calls` calls, the second at once behind it. Whenever that is,
    // the receive posted first must get the first.
    for calls in 0..12 {
        let mut b = Endpoint::new(small(B));
        let first = any(&mut b, ANY);
        let second = any(&mut b, is(2));
        let third = local(&mut b, 3, ANY);
        let mut vendor = Vendor::default();
        vendor.later.extend([(calls, Rank(3), 1), (0, Rank(3), 2), (0, Rank(3), 3)]);
        for _ in 0..20 {
            b.poll_local(&mut vendor);
        }
        let got = |request| vendor.given.iter().find(|given| given.0 == request);
        assert_eq!(got(first), Some(&(first, Rank(3), 1)), "{calls}");
        assert_eq!(got(second), Some(&(second, Rank(3), 2)), "{calls}");
        assert!(got(third).is_none_or(|given| given.2 == 3), "{calls}");
    }
}

#[test]
fn an_earlier_receive_gets_its_own_first_message_not_the_one_that_was_found() {
    // Both messages come between the probe for the second receive and that for the third, which
    // finds the later one; the second accepts both, and the earlier is its own.
    for calls in 0..8 {
        let mut b = Endpoint::new(small(B));
        any(&mut b, is(9));
        let second = local(&mut b, 3, ANY);
        let third = any(&mut b, is(2));
        let mut vendor = Vendor::default();
        vendor.later.extend([(calls, Rank(3), 1), (0, Rank(3), 2)]);
        for _ in 0..20 {
            b.poll_local(&mut vendor);
        }
        let given = [(second, Rank(3), 1), (third, Rank(3), 2)];
        assert_eq!(vendor.given, given, "after {calls} calls");
    }
}

#[test]
fn a_local_probe_sees_only_what_no_held_receive_gets() {
    let mut b = Endpoint::new(small(B));
    let held = any(&mut b, is(1));
    let mut vendor = Vendor::default();
    vendor.queue.extend([(Rank(3), 1), (Rank(3), 1), (Rank(4), 2)]);
    assert_eq!(b.probe_local(&mut vendor, CONTEXT, None, ANY), Some((Rank(3), 1)));
    assert_eq!(vendor.given, [(held, Rank(3), 1)]);
    assert_eq!(b.probe_local(&mut vendor, CONTEXT, Some(Rank(4)), ANY), Some((Rank(4), 2)));
    assert_eq!(b.probe_local(&mut vendor, CONTEXT, Some(Rank(4)), is(1)), None);
    assert_eq!(vendor.queue.len(), 2);
}

#[test]
fn a_cancelled_wildcard_frees_what_it_held_back() {
    let mut b = Endpoint::new(small(B));
    let wildcard = any(&mut b, ANY);
    let behind = local(&mut b, 3, is(5));
    assert!(b.cancel(wildcard));
    let mut vendor = Vendor::default();
    assert!(b.poll_local(&mut vendor));
    assert_eq!(vendor.posted, [(behind, Rank(3), is(5))]);
}

#[test]
fn a_wildcard_takes_an_unexpected_remote_message_at_once() {
    let mut pair = Pair::new(small);
    pair.send(1, Mode::Standard, b"early");
    pair.carry();
    let wildcard = any(&mut pair.b, ANY);
    let completion = pair.b.take(wildcard).unwrap();
    assert_eq!((completion.source, completion.len), (Some(Rank(0)), 5));
    assert!(!pair.b.has_held());
    let remote = Source::Remote(Rank(0), A);
    assert!(pair.b.probe(CONTEXT, remote, ANY).is_none());
}
