//! What several connections of a peer share.

use std::net::TcpStream;

use bytes::Bytes;
use gridmpi_buffer::SendBuffer;
use gridmpi_engine::Mode;
use gridmpi_rate::{Network, Rate};
use gridmpi_wire::{ContextId, Rank};

use super::*;
use crate::link::YOUNG;
use crate::pace::Slack;
use crate::pace::tests::all_of;
use crate::paces::tests::{FAR, meet, state};

/// A process with so many connections to another, and much to send to it; and their far ends.
fn with_links(count: usize) -> (State, Vec<TcpStream>) {
    with_links_and(count, 8 << 20)
}

fn with_links_and(count: usize, bytes: usize) -> (State, Vec<TcpStream>) {
    let mut state = state(8e6);
    state.config.limits.connections = Some(count);
    let far = Strand::first(count).map(|strand| meet(&mut state, (FAR, strand))).collect();
    let message = SendBuffer::from_bytes(Bytes::from(vec![0; bytes]));
    state.endpoint.send(FAR, ContextId::WORLD, Rank(0), 1, Mode::Standard, message);
    // As if the loopback interface had frames of a usual size.
    for (_, token) in state.peer(FAR).links.clone() {
        let link = link(&mut state, token);
        link.weigh(SEGMENT as u32);
    }
    (state, far)
}

fn link(state: &mut State, token: Token) -> &mut Link {
    let Some(Socket::Link(link)) = state.sockets.get(token) else { panic!("it is lost") };
    link
}

/// Of the only connection, once all but its first segments have been written: what was, and what the kernel was told of.
fn only(state: &mut State) -> (u64, Option<u64>) {
    state.transmit(FAR);
    let token = state.peer(FAR).links[0].1;
    let link = link(state, token);
    (link.written - YOUNG, link.paced_to)
}

#[test]
fn a_message_by_parts_leaves_the_kernel_without_a_rate_and_a_longer_one_does_not() {
    for (segments, is_told) in [(7, false), (20, true)] {
        let (mut state, _far) = with_links_and(1, segments * SEGMENT);
        let token = state.peer(FAR).links[0].1;
        let link = link(&mut state, token);
        assert!(link.is_short(), "the loopback interface");
        link.written = YOUNG;
        let pacer = &mut state.paces.get(1).unwrap().pacer;
        let interface = 2.5 * pacer.rate();
        pacer.set_slack(Slack { interface, ..Slack::UNKNOWN });
        let (written, told) = only(&mut state);
        assert!((1..segments * SEGMENT).contains(&(written as usize)), "{written}");
        assert_eq!(told.is_some(), is_told, "{segments}: {told:?}");
        let until = Instant::now() + Duration::from_secs(20);
        while state.endpoint.unwritten_bytes(FAR) > 0 {
            assert!(Instant::now() < until, "it waits for ever");
            std::thread::sleep(Duration::from_millis(1));
            state.turn_due(1);
        }
        assert_eq!(only(&mut state).1.is_some(), is_told);
    }
}

/// What was written on each of its connections.
fn written(state: &mut State) -> Vec<u64> {
    let State { peers, sockets, .. } = state;
    let written = |&(_, token): &(Strand, Token)| match sockets.get(token) {
        Some(Socket::Link(link)) => link.written,
        _ => panic!("it is lost"),
    };
    peers[&FAR].links.iter().map(written).collect()
}

#[test]
fn a_turn_that_is_too_short_for_all_is_had_by_some_and_then_by_the_others() {
    for is_bounded in [true, false] {
        let (mut state, _far) = with_links(16);
        let turn = SharedTurn {
            most: 4 * SEGMENT,
            all: 4 * SEGMENT,
            rate: 1_000_000,
            has_others: is_bounded,
            is_bounded,
            is_counted: true,
            began: Instant::now(),
        };
        for turns in 1..=4 {
            let links = state.free_links(FAR);
            let wrote = state.write_turn(FAR, &turn, links);
            assert_eq!(wrote, turn.most, "in turn {turns}");
            let all: u64 = written(&mut state).iter().sum();
            assert_eq!(all, (turns * turn.most) as u64, "what was written is what is told");
        }
        assert_eq!(written(&mut state), [SEGMENT as u64; 16]);
    }
}

#[test]
fn a_part_of_a_turn_has_its_part_of_the_rate_however_much_that_is() {
    let turn = |rate, most| SharedTurn {
        most,
        all: most,
        rate,
        has_others: false,
        is_bounded: false,
        is_counted: true,
        began: Instant::now(),
    };
    assert_eq!(turn(2_000_000, 10_000).rate_of(2_500), 500_000);
    assert_eq!(turn(2_000_000, 0).rate_of(2_500), 2_000_000);
    for (rate, most) in [(u64::MAX, usize::MAX), (1 << 60, 1 << 52)] {
        let part = turn(rate, most).rate_of(most / 4);
        assert!(part.abs_diff(rate / 4) <= 1, "{part}");
    }
    assert_eq!(turn(u64::MAX, 1 << 20).rate_of(1 << 21), u64::MAX);
}

#[test]
fn a_message_that_is_short_of_a_turn_has_all_of_the_rate() {
    for bytes in [1000, 5 * SEGMENT] {
        let (mut state, _far) = with_links_and(4, bytes);
        let waits = usize::try_from(state.endpoint.unwritten_bytes(FAR)).unwrap();
        let turn = SharedTurn {
            most: 16 * SEGMENT,
            all: waits,
            rate: 1_000_000,
            has_others: false,
            is_bounded: false,
            is_counted: true,
            began: Instant::now(),
        };
        let links = state.free_links(FAR);
        for &token in &links {
            let link = link(&mut state, token);
            link.written = YOUNG;
        }
        let wrote = state.write_turn(FAR, &turn, links.clone());
        assert!(wrote >= waits && state.endpoint.unwritten_bytes(FAR) == 0, "{wrote}");
        let others = written(&mut state)[1..].iter().all(|&written| written == YOUNG);
        assert!(others, "it goes by one of them");
        let link = link(&mut state, links[0]);
        assert_eq!(link.paced_to, Some(1_000_000), "{bytes}");
    }
}

#[test]
fn words_neither_are_a_turn_nor_end_one() {
    let (now, [first, other]) = (Instant::now(), [0, 1].map(ProcId));
    let rate = |bits| Rate::from_bits_per_second(bits).unwrap();
    let mut paced = Paced::new(rate(17e6), first, now);
    let link = rate(160e6);
    let mut network = Network::new();
    let cluster = network.add_cluster();
    let node = network.add_node(cluster, rate(50e6));
    let path = gridmpi_rate::Path { node, interface: rate(50e6), link };
    paced.claims.go_over(path, link);
    let ask = all_of(1 << 20);
    let Turn::Now(most) = paced.pacer.ask(first, ask, now) else { panic!("nobody is before it") };
    let turn = SharedTurn {
        most,
        all: most,
        rate: 2_000_000,
        has_others: false,
        is_bounded: paced.pacer.is_bounded_by_window(),
        is_counted: true,
        began: now,
    };
    turn.end(&mut paced, first, most);
    SharedTurn { most: usize::MAX, is_counted: false, ..turn }.end(&mut paced, other, 100);
    assert_eq!(paced.pacer.writer(), Some(first));
    paced.claims.hurry(1.0, true, now);
    assert!(matches!(paced.claims.pace(), gridmpi_rate::Pace::Held(_)), "so much has gone");
    // It goes on when half of it has left, as one does whom no window has cut short.
    let later = now + Duration::from_micros(3500);
    assert!(matches!(paced.pacer.ask(first, ask, later), Turn::Now(_)));
}

#[test]
fn a_speed_is_what_came_in_the_time_that_something_was_on_its_way() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut speed = Speed::new(start);
    assert_eq!(speed.look((0, 0), at(500)), None);
    assert_eq!(speed.look((0, 1000), at(501)), None);
    assert_eq!(speed.look((900, 100), at(503)), None, "too short a time");
    assert_eq!(speed.look((1000, 100), at(510)), Some(100_000.0));
    let both = speed.look((3000, 100), at(520)).unwrap();
    assert!((150_000.0..155_000.0).contains(&both), "3000 bytes in 20 ms: {both}");
    assert_eq!(speed.look((3000, 0), at(800)), None);
    assert_eq!(speed.look((3000, 1000), at(801)), None);
    // Nothing has come for long.
    let late = speed.look((3000, 1000), at(820)).unwrap();
    assert!((late - 50_000.0).abs() < 1.0, "{late}");
}

#[test]
fn one_that_keeps_us_waiting_is_not_taken_for_as_fast_as_its_path() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut speed = Speed::new(start);
    assert_eq!(speed.told(|| Some(70_000.0)), None, "nothing was seen of it");
    speed.look((1000, 5000), at(10));
    assert_eq!(speed.told(|| Some(70_000.0)), Some(70_000.0));
    assert_eq!(speed.told(|| None), Some(100_000.0), "no path is known");
    speed.look((1000, 5000), at(510));
    assert_eq!(speed.told(|| Some(70_000.0)), Some(10_000.0));
    speed.look((6000, 0), at(520));
    assert_eq!(speed.told(|| Some(70_000.0)), Some(70_000.0));
}

#[test]
fn what_may_be_on_its_way_follows_the_rate_and_the_round_trip() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let reach = |speed: &Speed| reach(speed.seen.unwrap(), speed.lag.known());
    // 1 MB/s: the half of a second that an answer takes and a quarter, not the quarter that is the least.
    let mut speed = Speed::new(start);
    speed.begin((0, 0), at(0));
    for ms in 500..=2500 {
        speed.look((1000 * (ms - 499), 500_000), at(ms));
    }
    assert!((740_000..760_000).contains(&reach(&speed)), "{}", reach(&speed));
    // A quick one, and a slow one.
    for (per_ms, least) in [(10_000, 2_499_000), (10, REACH_LEAST)] {
        let mut speed = Speed::new(start);
        for ms in 1..=500 {
            speed.look((per_ms * ms, 10 * per_ms), at(ms));
        }
        assert!((least..=least + least / 50).contains(&reach(&speed)), "{}", reach(&speed));
    }
}

#[test]
fn twice_a_round_trip_is_on_its_way_and_no_more_than_a_quarter_of_a_second_beyond_one() {
    let of = |ms| reach(10e6, Some(Duration::from_millis(ms))) / 10_000;
    assert_eq!(
        [of(0), of(20), of(125), of(200), of(250), of(300), of(2000)],
        [250, 250, 250, 400, 500, 550, 2250]
    );
    assert_eq!(reach(10e6, None), 2_500_000);
}

#[test]
fn how_soon_a_connection_answers_is_told_by_what_had_nothing_before_it() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut speed = Speed::new(start);
    // Nothing was taken of it at first.
    speed.begin((0, 0), at(90));
    speed.begin((0, 0), at(100));
    // All that was given to it at once is acknowledged from 300 to 310 ms later.
    speed.begin((0, 50_000), at(101));
    for ms in 1..=10 {
        speed.look((5000 * ms, 50_000 - 5000 * ms), at(400 + ms));
    }
    assert_eq!(speed.lag.known(), Some(Duration::from_millis(301)));
    // One that never rests is seen, too.
    speed.begin((50_000, 20_000), at(500));
    speed.look((70_000, 30_000), at(590));
    assert_eq!(speed.mark, Some((70_001, at(500))));
    speed.begin((70_000, 30_000), at(595));
    speed.look((75_000, 25_000), at(600));
    assert_eq!(speed.lag.known(), Some(Duration::from_millis(100)));
    assert_eq!(speed.waited.take(), Some(Duration::from_millis(100)), "the shortest is told");
}

#[test]
fn one_that_nothing_was_seen_of_may_have_as_much_on_its_way_as_the_others() {
    let (mut state, _far) = with_links(4);
    let (_, token) = state.peers[&FAR].links[0];
    let Some(Socket::Link(mut link)) = state.sockets.take(token) else { panic!("it is lost") };
    let now = Instant::now();
    (link.speed.seen, link.speed.lately) = (Some(40_000.0), (40_000.0, 1.0));
    state.tell_rates(&mut link, 40_000.0, now);
    state.sockets.put(token, Socket::Link(link));
    let turn = SharedTurn {
        most: 4 << 20,
        all: 4 << 20,
        rate: 1_000_000,
        has_others: false,
        is_bounded: false,
        is_counted: false,
        began: now,
    };
    let links = state.free_links(FAR);
    state.write_turn(FAR, &turn, links);
    let written = written(&mut state);
    let heads = REACH_LEAST / 64;
    let is_bounded = |written: &u64| (1..=REACH_LEAST + heads).contains(written);
    assert!(written[1..].iter().all(is_bounded), "{written:?}");
}
