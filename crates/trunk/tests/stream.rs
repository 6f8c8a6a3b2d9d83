//! Two streams over models of connections that cut, delay and write in parts: the far side sees exactly the
//! pushed frames, once, and those in order that must be.

mod common;

use std::io;

use common::*;
use gridmpi_trunk::{Bounds, Patience, Progress, Receive, Stream, StreamError};
use gridmpi_wire::{Header, Kind, MAX_PAYLOAD, Strand};
use proptest::prelude::*;

const ONE: Strand = Strand::FIRST;

#[derive(Clone, Debug)]
enum Action {
    Push {
        kind: u8,
        len: usize,
    },
    Transmit {
        strand: Strand,
        max: usize,
        accept: usize,
    },
    Take {
        strand: Strand,
        count: usize,
    },
    Tick {
        patience: Patience,
    },
    Ping,
    Pong {
        strand: Strand,
    },
    Own {
        message: u64,
    },
    /// What it expects is said in some handshake.
    Say,
    /// A connection is lost at one side.
    Lose {
        strand: Strand,
    },
    /// One is made; `is_old`: with what was said before.
    Connect {
        strand: Strand,
        is_old: bool,
    },
    Rate {
        strand: Strand,
        rate: f64,
    },
    Reach {
        strand: Strand,
        bytes: u64,
    },
}

fn action(strands: usize) -> impl Strategy<Value = (bool, Action)> {
    let len = prop_oneof![4 => 0usize..200, 2 => 0usize..9000, 1 => 0usize..=MAX_PAYLOAD as usize];
    let accept = prop_oneof![1 => Just(0usize), 4 => 0usize..300, 2 => 0usize..1_000_000];
    let strand = move || (0..strands).prop_map(|number| Strand::new(number).unwrap());
    let action = prop_oneof![
        6 => (any::<u8>(), len).prop_map(|(kind, len)| Action::Push { kind, len }),
        9 => (strand(), 1usize..600_000, accept)
            .prop_map(|(strand, max, accept)| Action::Transmit { strand, max, accept }),
        9 => (strand(), 0usize..400_000).prop_map(|(strand, count)| Action::Take { strand, count }),
        1 => prop::sample::select(&Patience::ALL).prop_map(|patience| Action::Tick { patience }),
        1 => Just(Action::Ping),
        1 => strand().prop_map(|strand| Action::Pong { strand }),
        1 => (1u64..20).prop_map(|message| Action::Own { message }),
        1 => Just(Action::Say),
        1 => strand().prop_map(|strand| Action::Lose { strand }),
        2 => (strand(), any::<bool>()).prop_map(|(strand, is_old)| Action::Connect { strand, is_old }),
        1 => (strand(), 0u64..500_000).prop_map(|(strand, bytes)| Action::Reach { strand, bytes }),
        1 => (strand(), 0.0..9.0f64).prop_map(|(strand, rate)| Action::Rate { strand, rate: rate.exp() }),
    ];
    (any::<bool>(), action)
}

/// `said`: by the side that acts, and by the other.
fn act(x: &mut Side, y: &mut Side, said: [&mut u64; 2], action: Action) {
    match action {
        Action::Push { kind, len } => x.push(kind, len),
        Action::Transmit { strand, max, accept } => drop(transmit(x, y, strand, max, accept)),
        Action::Take { strand, count } => x.take(strand, count),
        Action::Tick { patience } => drop(x.stream.tick(patience)),
        Action::Ping => x.stream.ping(),
        Action::Pong { strand } => x.stream.pong(strand),
        Action::Own { message } => x.stream.own_message(message),
        Action::Say => (*said[0], *said[1]) = (x.stream.expects(), y.stream.expects()),
        Action::Lose { strand } => lose(x, strand),
        Action::Connect { strand, is_old: true } => connect(x, y, strand, said.map(|said| *said)),
        Action::Connect { strand, is_old: false } => connect_now(x, y, strand),
        Action::Reach { strand, bytes } => x.stream.set_reach(strand, bytes),
        Action::Rate { strand, rate } => x.stream.set_rate(strand, rate),
    }
}

/// Two sides do as they are told; then everything must arrive.
fn check(bounds: Bounds, actions: Vec<(bool, Action)>) {
    let (mut a, mut b) = (Side::new(bounds), Side::new(bounds));
    let (mut said_a, mut said_b) = (1, 1);
    connect_now(&mut a, &mut b, ONE);
    for (swap, action) in actions {
        if swap {
            act(&mut b, &mut a, [&mut said_b, &mut said_a], action);
        } else {
            act(&mut a, &mut b, [&mut said_a, &mut said_b], action);
        }
    }
    settle(&mut a, &mut b);
    a.has_seen_all_of(&b);
    b.has_seen_all_of(&a);
    for side in [&a, &b] {
        assert_eq!(side.stream.unacknowledged_bytes(), 0);
        assert_eq!((side.stream.queued_bytes(), side.stream.waiting_bytes()), (0, 0));
        assert_eq!(side.stream.written(), side.pushed.len() as u64);
        assert_eq!(side.stream.acknowledged(), side.pushed.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_far_side_sees_what_was_pushed(actions in prop::collection::vec(action(1), 1..120)) {
        check(Bounds::default(), actions);
    }

    #[test]
    fn so_it_does_over_several_connections_that_come_and_go(
        actions in prop::collection::vec(action(4), 1..250),
        early in 0u64..4000,
        away in prop_oneof![Just(0u64), 1..4u64, Just(4096)],
    ) {
        check(Bounds { early, away }, actions);
    }
}

#[test]
fn many_small_frames_leave_in_one_write_of_one_slice() {
    let mut side = Side::new(Bounds::default());
    side.stream.resume(ONE, 1).unwrap();
    for _ in 0..100 {
        side.push(0, 8);
    }
    let mut writes = Vec::new();
    let progress = side.stream.transmit(ONE, 1 << 20, 0, |slices| {
        writes.push(slices.len());
        Ok(slices.iter().map(|s| s.len()).sum())
    });
    assert_eq!((progress.unwrap(), writes), (Progress::Idle, vec![1]));
    assert_eq!(side.stream.written(), 100);
}

#[test]
fn an_acknowledgement_rides_on_frames_and_else_waits_for_a_tick() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.push(0, 8);
    transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
    b.take(ONE, usize::MAX);
    assert!(!b.stream.wants_transmit() && b.stream.wants_tick(Patience::Brief));
    assert!(!b.stream.tick(Patience::Brief), "less than a whole interval may have passed");
    assert!(b.stream.tick(Patience::Brief) && b.stream.wants_transmit());
    transmit(&mut b, &mut a, ONE, 1 << 20, usize::MAX);
    assert_eq!(a.lines[&ONE].arriving[0], Kind::Ack as u8);
    a.take(ONE, usize::MAX);
    assert!(a.stream.is_drained() && !b.stream.wants_tick(Patience::Brief));

    a.push(0, 8);
    transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
    b.take(ONE, usize::MAX);
    b.push(0, 8);
    transmit(&mut b, &mut a, ONE, 1 << 20, usize::MAX);
    assert!(!b.stream.wants_tick(Patience::Brief), "the frame carried it");
    a.take(ONE, usize::MAX);
    assert!(a.stream.is_drained());
}

#[test]
fn a_pong_that_nobody_has_asked_for_says_nothing() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.stream.pong(Strand::new(1).unwrap());
    assert!(!a.stream.wants_transmit(), "there is no such connection");
    a.stream.pong(ONE);
    a.stream.pong(ONE);
    transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
    let arriving = &b.lines[&ONE].arriving;
    assert_eq!((arriving[0], arriving.len()), (Kind::Pong as u8, 24));
    b.take(ONE, usize::MAX);
    assert!(!a.stream.wants_transmit() && !b.stream.wants_transmit());
    assert!(!b.stream.wants_tick(Patience::Brief) && a.stream.is_drained());
}

#[test]
fn words_about_rates_wait_longer_for_what_carries_their_acknowledgement() {
    const WORD: u8 = 4;
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    let say = |a: &mut Side, b: &mut Side, kind| {
        a.push(kind, 0);
        transmit(a, b, ONE, 1 << 20, usize::MAX);
        b.take(ONE, usize::MAX);
    };
    say(&mut a, &mut b, WORD);
    assert!(!b.stream.wants_tick(Patience::Brief) && b.stream.wants_tick(Patience::Long));
    assert!(!b.stream.tick(Patience::Brief) && !b.stream.tick(Patience::Brief));
    assert!(!b.stream.tick(Patience::Long) && b.stream.tick(Patience::Long));
    transmit(&mut b, &mut a, ONE, 1 << 20, usize::MAX);
    a.take(ONE, usize::MAX);
    assert!(a.stream.is_drained() && !b.stream.wants_tick(Patience::Long));

    // What else comes takes them along.
    say(&mut a, &mut b, WORD);
    say(&mut a, &mut b, 0);
    say(&mut a, &mut b, WORD);
    assert!(b.stream.wants_tick(Patience::Brief) && !b.stream.wants_tick(Patience::Long));
    assert!(!b.stream.tick(Patience::Brief) && b.stream.tick(Patience::Brief));
    transmit(&mut b, &mut a, ONE, 1 << 20, usize::MAX);
    a.take(ONE, usize::MAX);

    // Words alone are patient again; half of a long wait is no part of a brief one.
    say(&mut a, &mut b, WORD);
    assert!(b.stream.wants_tick(Patience::Long) && !b.stream.wants_tick(Patience::Brief));
    assert!(!b.stream.tick(Patience::Long));
    say(&mut a, &mut b, 0);
    assert!(!b.stream.tick(Patience::Brief) && b.stream.tick(Patience::Brief));

    // And they are not kept without end.
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    (0..64).for_each(|_| say(&mut a, &mut b, WORD));
    assert!(b.stream.wants_transmit() && !b.stream.wants_tick(Patience::Long));
}

#[test]
fn a_full_window_is_acknowledged_at_once() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.push(0, 1);
    for _ in 0..4 {
        assert!(!b.stream.wants_transmit());
        a.push(1, MAX_PAYLOAD as usize);
        transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
        b.take(ONE, usize::MAX);
    }
    assert!(b.stream.wants_transmit());
}

#[test]
fn what_is_on_its_way_is_bounded_until_something_of_it_is_acknowledged() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.stream.set_reach(ONE, 250_000);
    b.stream.set_reach(ONE, 0);
    a.push(0, 100_000);
    (0..5).for_each(|_| a.push(1, 70_000));
    a.push(0, 10);
    let flights = |a: &Side| a.stream.carried(ONE).unwrap();
    transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
    // What must be in order is not held back.
    assert_eq!(flights(&a), (0, 240_010));
    assert!(a.stream.wants_transmit() && !a.stream.has_for(ONE, 0) && a.stream.waits_for_others());
    b.take(ONE, usize::MAX);
    assert!(b.stream.wants_transmit(), "the other side may wait for the acknowledgement");
    transmit(&mut b, &mut a, ONE, 1 << 20, usize::MAX);
    a.take(ONE, usize::MAX);
    // Where nothing is on its way any frame may go.
    a.stream.set_reach(ONE, 1);
    transmit(&mut a, &mut b, ONE, 1 << 20, usize::MAX);
    assert_eq!(flights(&a), (240_010, 70_000));
    settle(&mut a, &mut b);
    b.has_seen_all_of(&a);
}

#[test]
fn what_passes_data_that_waits_leaves_no_more_gaps_than_there_may_be() {
    for (strands, away) in [(1, 0), (1, 4), (3, 0), (3, 4)] {
        let bounds = Bounds { away, ..Bounds::default() };
        let (mut a, mut b) = (Side::new(bounds), Side::new(bounds));
        for strand in Strand::first(strands) {
            connect_now(&mut a, &mut b, strand);
            a.stream.set_reach(strand, 1);
        }
        for _ in 0..100 {
            a.push(0, 0);
            a.push(1, 10);
        }
        settle(&mut a, &mut b);
        b.has_seen_all_of(&a);
    }
}

#[test]
fn a_peer_that_breaks_the_rules_is_named() {
    let mut side = Side::new(Bounds::default());
    side.stream.resume(ONE, 1).unwrap();
    let header = |seq, ack| Header { kind: Kind::Close, body_len: 0, seq, data_before: 0, ack };
    let receive = |side: &mut Side, header: Header| side.stream.receive(ONE, &header);
    let gap = |expected, got| Err(StreamError::Gap { expected, got });
    assert_eq!(receive(&mut side, header(2, 0)), gap(1, 2));
    side.push(3, 0);
    let unwritten = StreamError::AckOfUnwritten { acknowledged: 1, written: 0 };
    assert_eq!(receive(&mut side, header(1, 1)), Err(unwritten));
    let cannot = StreamError::CannotResume { wanted: 2, last: 1 };
    assert_eq!(side.stream.resume(ONE, 2), Err(cannot));
    assert!(side.stream.resume(ONE, 0).is_err());
    // What came before must be said truly.
    let data = |seq| Header { kind: Kind::Data, body_len: 17, seq, data_before: 0, ack: 0 };
    let after = |seq, data_before| Header { data_before, ..header(seq, 0) };
    for (seq, data_before, is_right) in
        [(2, 1, true), (2, 0, false), (3, 1, false), (1, 0, true), (3, 3, false)]
    {
        let mut side = Side::new(Bounds::default());
        side.stream.resume(ONE, 1).unwrap();
        side.stream.received(ONE, &data(4)).unwrap();
        let said = receive(&mut side, after(seq, data_before));
        let right = if is_right { Ok(Receive::Deliver) } else { gap(1, seq) };
        assert_eq!(said, right, "{seq} after {data_before}");
    }
    // A peer that leaves more gaps than connections can.
    let mut stream = Stream::new(Bounds { early: 0, away: 10 });
    stream.resume(ONE, 1).unwrap();
    let mut came = (1..99).map(|n| stream.received(ONE, &data(2 * n)));
    assert_eq!(came.find(Result::is_err), Some(Err(StreamError::Scattered { gaps: 37, most: 36 })));
    assert!(stream.receive(ONE, &data(u64::MAX)).is_err());
}

#[test]
fn a_run_of_very_many_data_frames_is_followed_by_what_must_be_in_order() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.push(0, 1);
    for count in [65_534, 65_535, 65_536, 70_000] {
        (0..count).for_each(|_| a.push(1, 1));
        a.push(2, 0);
    }
    settle(&mut a, &mut b);
    b.has_seen_all_of(&a);
}

#[test]
fn a_failed_write_is_the_connections_fault_and_nothing_is_lost() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    connect_now(&mut a, &mut b, ONE);
    a.push(0, 100);
    let error = a.stream.transmit(ONE, 1000, 0, |_| Err(io::ErrorKind::ConnectionReset.into()));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(
        a.stream.transmit(ONE, 1000, 0, |_| Ok(0)).unwrap_err().kind(),
        io::ErrorKind::WriteZero
    );
    connect_now(&mut a, &mut b, ONE);
    settle(&mut a, &mut b);
    b.has_seen_all_of(&a);
}

#[test]
fn what_a_lost_connection_had_goes_over_the_others_at_once() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    let [two, three] = [1, 2].map(|number| Strand::new(number).unwrap());
    for strand in [ONE, two, three] {
        connect_now(&mut a, &mut b, strand);
    }
    a.push(0, 1000);
    (0..40).for_each(|_| a.push(1, 100_000));
    a.push(0, 10);
    let all = [ONE, two, three];
    all.iter().for_each(|&strand| a.stream.set_rate(strand, 1e6));
    write_all(&mut a, &mut b, &all);
    // The main one, of which nothing has come, and then the next.
    for (strand, left) in [(ONE, &all[1..]), (two, &all[2..])] {
        let had = a.stream.carried(strand).unwrap().1;
        lose(&mut a, strand);
        lose(&mut b, strand);
        assert_eq!(a.stream.waiting_bytes(), had);
        assert!(had > 1_000_000 && a.stream.is_connected());
        write_all(&mut a, &mut b, left);
    }
    settle(&mut a, &mut b);
    b.has_seen_all_of(&a);
}

#[test]
fn connections_that_were_lost_in_vain_are_counted_until_something_has_come() {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    for times in 0..3 {
        connect_now(&mut a, &mut b, ONE);
        assert_eq!(a.stream.in_vain(), times);
        a.push(0, 10);
        write_all(&mut a, &mut b, &[ONE]);
    }
    // The far side says so when it comes again, or on the connection.
    b.take(ONE, usize::MAX);
    connect_now(&mut a, &mut b, ONE);
    assert_eq!((a.stream.in_vain(), b.stream.in_vain()), (0, 0));
    for is_told in [false, true] {
        a.push(0, 10);
        write_all(&mut a, &mut b, &[ONE]);
        if is_told {
            settle(&mut a, &mut b);
        }
        connect_now(&mut a, &mut b, ONE);
        assert_eq!(a.stream.in_vain(), u32::from(!is_told), "with nothing on its way none is");
    }
}

/// Without a word from the far side.
fn write_all(a: &mut Side, b: &mut Side, strands: &[Strand]) {
    for _ in 0..10 {
        for &strand in strands {
            while transmit(a, b, strand, 1 << 20, usize::MAX) == Progress::More {}
        }
    }
    assert_eq!(a.stream.waiting_bytes(), 0);
}
