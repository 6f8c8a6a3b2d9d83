//! Turns, by a clock of their own.

use super::*;

mod late;
mod order;
mod told;

const RATE: f64 = 2_000_000.0;
const LARGE: Ask = Ask {
    backlog: 1 << 20,
    left: 1 << 20,
    frame: 1 << 20,
    is_young: false,
    is_untold: false,
    share: 1.0,
};
const YOUNG: Ask = Ask { is_young: true, ..LARGE };

/// A message of so many bytes, of which nothing is written.
pub(crate) fn all_of(bytes: u64) -> Ask {
    Ask { backlog: bytes, left: bytes, frame: bytes, ..LARGE }
}

/// Of an interface that carries so much, after a pause.
fn slack(interface: f64, pause: f64) -> Slack {
    Slack { interface, pause, ..Slack::UNKNOWN }
}

/// Connections that always have something to write, and a clock.
struct World {
    pacer: Pacer,
    now: Instant,
    written: Vec<f64>,
}

impl World {
    fn new(peers: usize) -> Self {
        let now = Instant::now();
        Self { pacer: Pacer::new(RATE, ProcId(0), now), now, written: vec![0.0; peers] }
    }

    fn ask(&mut self, peer: u32, backlog: u64) -> Turn {
        self.pacer.ask(ProcId(peer), all_of(backlog), self.now)
    }

    /// Writes as long as it may.
    fn go(&mut self, peer: u32) {
        while let Turn::Now(most) = self.ask(peer, 1 << 30) {
            self.written[peer as usize] += most as f64;
            self.pacer.wrote(ProcId(peer), most, self.now);
        }
    }

    /// Runs for so long, every wake-up being late by `late`.
    fn run(&mut self, time: Duration, late: Duration) {
        let end = self.now + time;
        while let Some(due) = self.pacer.due().filter(|&due| due + late < end) {
            self.now = self.now.max(due + late);
            while let Some(peer) = self.pacer.next(self.now) {
                self.go(peer.0);
            }
        }
        self.now = end;
    }
}

#[test]
fn together_they_keep_to_the_rate_and_share_it() {
    for peers in [1, 2, 8] {
        let mut world = World::new(peers);
        (0..peers).for_each(|peer| world.go(peer as u32));
        world.run(Duration::from_secs(3), Duration::from_micros(100));
        let all: f64 = world.written.iter().sum();
        let turn = world.pacer.turn() as f64;
        assert!((all - 3.0 * RATE).abs() < 2.0 * turn, "{peers}: {all}");
        for share in &world.written {
            assert!((share - all / peers as f64).abs() <= 2.0 * turn, "{:?}", world.written);
        }
    }
}

#[test]
fn a_turn_begins_when_the_one_before_has_nearly_left() {
    let mut world = World::new(2);
    let Turn::Now(most) = world.ask(0, 1 << 20) else { panic!("nobody is before it") };
    world.pacer.wrote(ProcId(0), most, world.now);
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    assert_eq!(world.pacer.next(world.now), None);
    let due = world.pacer.due().unwrap();
    world.now = due;
    assert_eq!(world.pacer.next(due), Some(ProcId(1)));
    assert!((world.pacer.level - LEAD).abs() < 1.0, "{}", world.pacer.level);
}

#[test]
fn an_endless_row_of_small_messages_leaves_a_large_one_its_turns() {
    let mut world = World::new(3);
    world.go(0);
    world.go(1);
    let (mut small, mut turns) = (0, 0);
    for _ in 0..10_000 {
        // There is always another one.
        while let Turn::Now(_) = world.ask(2, SMALL) {
            world.pacer.wrote(ProcId(2), SMALL as usize, world.now);
            small += SMALL;
        }
        let Some(due) = world.pacer.due() else { panic!("somebody waits") };
        world.now = world.now.max(due);
        while let Some(peer) = world.pacer.next(world.now) {
            if peer.0 == 2 {
                assert!(matches!(world.ask(2, SMALL), Turn::Now(_)));
                world.pacer.wrote(ProcId(2), SMALL as usize, world.now);
                small += SMALL;
            } else {
                let Turn::Now(most) = world.ask(peer.0, 1 << 30) else { panic!("it was called") };
                world.pacer.wrote(peer, most, world.now);
                world.written[peer.0 as usize] += most as f64;
                assert_eq!(world.ask(peer.0, 1 << 30), Turn::Later);
                turns += 1;
            }
        }
    }
    // They alternate, a turn's worth of small ones and a turn.
    let large: f64 = world.written[..2].iter().sum();
    assert!(turns > 100 && small > 0, "{turns} turns");
    let apart = (world.written[0] - world.written[1]).abs();
    assert!(apart <= 2.0 * world.pacer.turn() as f64, "{:?}", world.written);
    let part = large / (large + small as f64);
    assert!((0.4..0.75).contains(&part), "{part} is the large ones'");
}

#[test]
fn small_messages_pass_by_those_who_wait_but_are_counted() {
    let mut world = World::new(2);
    world.go(0);
    world.now = world.pacer.due().unwrap() - Duration::from_micros(50);
    let mut passed = 0;
    while let Turn::Now(_) = world.ask(1, 100) {
        world.pacer.wrote(ProcId(1), 1000, world.now);
        passed += 1;
    }
    assert!((1..=6).contains(&passed), "{passed}");
    // It goes before the large ones now.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
}

#[test]
fn words_of_the_stream_never_wait() {
    let mut world = World::new(2);
    world.go(0);
    assert_eq!(world.ask(0, 0), Turn::Now(usize::MAX));
    assert_eq!(world.ask(1, 0), Turn::Now(usize::MAX));
}

#[test]
fn whose_turn_it_is_does_not_change_with_words_that_others_write() {
    let mut world = World::new(2);
    let turn = world.pacer.turn();
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    world.pacer.said(100, world.now);
    assert!((world.pacer.level - (turn + 100) as f64).abs() < 1.0, "they are counted");
    assert_eq!(world.pacer.writer(), Some(ProcId(0)));
    // Half of the turn of the first is in the kernel still: the other would meet it, the first goes on.
    world.now += TURN / 2;
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    assert!((world.pacer.due().unwrap() - world.now).as_secs_f64() * RATE > turn as f64 / 4.0);
    assert_eq!(world.pacer.over(world.pacer.due().unwrap()), Some(ProcId(0)));
    let mut world = World::new(2);
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    world.now += TURN * 2 / 3;
    world.pacer.said(100, world.now);
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    // Nor is it a turn in which nothing could be written.
    world.pacer.wrote(ProcId(1), 0, world.now);
    assert_eq!(world.pacer.writer(), Some(ProcId(0)));
}

#[test]
fn late_wake_ups_are_made_up_for_and_idle_time_is_not() {
    let late = Duration::from_micros(500);
    let mut world = World::new(8);
    (0..8).for_each(|peer| world.go(peer));
    world.run(Duration::from_secs(2), late);
    let all: f64 = world.written.iter().sum();
    assert!(all > 2.0 * RATE - 3.0 * world.pacer.turn() as f64, "{all}");
    let mut world = World::new(1);
    world.now += Duration::from_secs(60);
    world.go(0);
    assert!(world.written[0] <= 2.0 * world.pacer.turn() as f64, "{:?}", world.written);
}

#[test]
fn what_the_interface_lets_out_hardly_sooner_needs_no_spacing() {
    let mut world = World::new(1);
    let turn = world.pacer.turn() as u64;
    // Of an interface nothing is known: only a short message.
    assert!(world.pacer.need_no_spacing(SMALL) && !world.pacer.need_no_spacing(SMALL + 1));
    // Half of what it has let out would not have left yet.
    world.pacer.set_slack(slack(RATE * 2.0, 0.0));
    let most = 2 * SMALL;
    assert!(most < turn, "{most} of {turn}");
    assert!(world.pacer.need_no_spacing(most) && !world.pacer.need_no_spacing(most + 1));
    assert!(world.pacer.needs_no_more_spacing(), "the kernel has nothing");
    // Of what it has twice as much may, as the rate may have been higher.
    world.pacer.wrote(ProcId(0), 2 * most as usize, world.now);
    assert!(world.pacer.needs_no_more_spacing());
    world.pacer.wrote(ProcId(0), 10, world.now);
    assert!(!world.pacer.needs_no_more_spacing());
    // It carries no more than the rate. What goes on has to give way when it is told to.
    world.pacer.set_slack(slack(RATE, 0.0));
    assert!(world.pacer.need_no_spacing(turn) && !world.pacer.need_no_spacing(turn + 1));
    assert!(world.pacer.needs_no_more_spacing());
}

#[test]
fn what_comes_in_takes_its_acknowledgements() {
    let mut world = World::new(1);
    world.go(0);
    for _ in 0..1000 {
        world.pacer.received((RATE / 1000.0) as usize, world.now);
        world.run(Duration::from_millis(1), Duration::ZERO);
    }
    let share = world.written[0] / RATE;
    assert!((0.95..0.985).contains(&share), "{share}");
}

#[test]
fn nobody_waits_long_however_much_comes_in() {
    let mut world = World::new(1);
    let turn = world.pacer.turn();
    let step = Duration::from_micros(100);
    // A hundred times as much as may go out: for its acknowledgements alone that is nearly three times too much.
    let comes = |world: &mut World| {
        world.now += step;
        world.pacer.received((100.0 * RATE * step.as_secs_f64()) as usize, world.now);
    };
    let waited = |backlog, most: Duration, world: &mut World| {
        let began = world.now;
        if world.ask(0, backlog) == Turn::Later {
            while world.pacer.next(world.now).is_none() {
                comes(world);
                let wait = world.now - began;
                assert!(wait <= most + step, "{wait:?}");
            }
            assert!(matches!(world.ask(0, backlog), Turn::Now(_)));
        }
        // Words of the stream are no turns.
        for _ in 0..20 {
            assert_eq!(world.ask(0, 0), Turn::Now(usize::MAX));
            world.pacer.said(10, world.now);
            comes(world);
        }
    };
    for _ in 0..1000 {
        // Also the first one after a long time.
        (0..20).for_each(|_| comes(&mut world));
        waited(100, TURN, &mut world);
        world.pacer.wrote(ProcId(0), 1000, world.now);
    }
    for _ in 0..1000 {
        waited(1 << 20, 3 * TURN, &mut world);
        world.pacer.wrote(ProcId(0), turn, world.now);
    }
}

#[test]
fn young_connections_send_little_at_a_time() {
    let mut world = World::new(1);
    assert_eq!(world.pacer.ask(ProcId(0), YOUNG, world.now), Turn::Now(TURN_YOUNG));
    world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
    assert_eq!(world.pacer.ask(ProcId(0), YOUNG, world.now), Turn::Later);
}

#[test]
fn young_connections_that_wait_do_not_go_on_before_what_they_sent_has_left() {
    let mut world = World::new(1);
    assert_eq!(world.pacer.ask(ProcId(0), YOUNG, world.now), Turn::Now(TURN_YOUNG));
    world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
    for _ in 0..5 {
        assert_eq!(world.pacer.ask(ProcId(0), YOUNG, world.now), Turn::Later);
        assert_eq!(world.pacer.next(world.now), None);
        let due = world.pacer.due().unwrap();
        let left = (due - world.now).as_secs_f64() * RATE;
        assert!(left > TURN_YOUNG as f64 - LEAD - 1.0, "{left}");
        world.now = due;
        assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
        assert_eq!(world.pacer.ask(ProcId(0), YOUNG, world.now), Turn::Now(TURN_YOUNG));
        world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
    }
}

#[test]
fn many_short_turns_after_a_late_wake_up_do_not_leave_at_once() {
    let now = Instant::now();
    let mut pacer = Pacer::new(RATE, ProcId(0), now);
    pacer.wrote(ProcId(9), 10 * SEGMENT, now);
    (0..8).for_each(|peer| assert_eq!(pacer.ask(ProcId(peer), LARGE, now), Turn::Later));
    // All that can be made up for has been missed. Windows let each have one segment.
    let late = now + Duration::from_secs(1);
    let mut at_once = 0;
    while let Some(peer) = pacer.next(late) {
        assert!(matches!(pacer.ask(peer, LARGE, late), Turn::Now(_)));
        pacer.wrote(peer, SEGMENT, late);
        at_once += 1;
    }
    assert_eq!(at_once, 2);
    // They leave faster, but one by one.
    let gap = (pacer.due().unwrap() - late).as_secs_f64() * RATE;
    assert!(gap > 0.0 && gap < SEGMENT as f64, "{gap}");
    assert_eq!(pacer.socket_rate(ProcId(1), SEGMENT), (RATE / (1.0 - CREDIT)) as u64);
}

#[test]
fn what_comes_in_is_taken_off_what_was_missed() {
    let mut world = World::new(2);
    world.go(0);
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    world.now += Duration::from_secs(1);
    world.pacer.settle(world.now);
    let missed = world.pacer.missed;
    assert_eq!(missed, CREDIT * world.pacer.turn() as f64);
    world.pacer.received(10_000, world.now);
    assert!((missed - world.pacer.missed - 10_000.0 * ACKNOWLEDGEMENT).abs() < 1e-6);
    world.pacer.owe(missed);
    assert_eq!(world.pacer.missed, 0.0);
    assert!((world.pacer.level - 10_000.0 * ACKNOWLEDGEMENT).abs() < 1e-6);
}

#[test]
fn a_turn_takes_along_what_would_be_left_for_a_short_one() {
    let mut world = World::new(1);
    let turn = world.pacer.turn();
    let all = turn + (REST * turn as f64) as usize;
    assert_eq!(world.ask(0, all as u64), Turn::Now(all));
    assert_eq!(world.ask(0, all as u64 + 1), Turn::Now(turn));
    // 32 KiB by messages of that size at 40 Mbit/s, as eight of them share 320.
    let mut pacer = Pacer::new(39.2e6 / 8.0 * 1448.0 / 1538.0, ProcId(0), world.now);
    let ask = all_of((32 << 10) + 65);
    assert!(
        matches!(pacer.ask(ProcId(0), ask, world.now), Turn::Now(most) if most as u64 >= ask.backlog)
    );
}

#[test]
fn turns_are_as_long_as_their_shares_and_a_new_rate_counts_at_once() {
    let mut world = World::new(1);
    let ask = |share, world: &mut World| {
        world.now = world.pacer.due().unwrap_or(world.now) + Duration::from_secs(1);
        world.pacer.ask(ProcId(0), Ask { backlog: 1 << 30, share, ..LARGE }, world.now)
    };
    let bytes = RATE * TURN.as_secs_f64();
    let whole = bytes as usize / SEGMENT * SEGMENT;
    assert_eq!(ask(1.0, &mut world), Turn::Now(whole));
    assert_eq!(ask(2.5, &mut world), Turn::Now((2.5 * bytes) as usize / SEGMENT * SEGMENT));
    assert_eq!(ask(1e-9, &mut world), Turn::Now(TURN_LEAST));
    world.pacer.wrote(ProcId(0), whole, world.now);
    let before = world.pacer.level;
    world.pacer.set_rate(4.0 * RATE, world.now);
    world.now += TURN / 4;
    world.pacer.settle(world.now);
    assert!((before - world.pacer.level - whole as f64).abs() < 1.0, "{}", world.pacer.level);
    assert_eq!(world.pacer.rate(), 4.0 * RATE);
}

#[test]
fn one_is_gone_when_its_last_byte_has_left_whoever_comes_after_it() {
    let mut world = World::new(2);
    let turn = world.pacer.turn();
    world.pacer.wrote(ProcId(0), turn, world.now);
    world.pacer.leave(ProcId(0));
    let began = world.now;
    assert_eq!(world.pacer.gone(began), None);
    // The next one's turn, and acknowledgements, leave after it.
    world.now += TURN / 2;
    world.pacer.wrote(ProcId(1), turn, world.now);
    world.pacer.received(100_000, world.now);
    assert!(world.pacer.due().unwrap() - began < TURN + 2 * LATE);
    // What is left of it leaves at a quarter of the rate.
    world.pacer.set_rate(RATE / 4.0, world.now);
    let due = world.pacer.due().unwrap();
    let wanted = (turn as f64 / RATE + 2.0 * LATE.as_secs_f64() - TURN.as_secs_f64() / 2.0) * 4.0;
    assert!(((due - world.now).as_secs_f64() - wanted).abs() < 1e-6, "{wanted}");
    assert_eq!(world.pacer.gone(due - Duration::from_micros(1)), None);
    world.pacer.leave(ProcId(1));
    assert_eq!(world.pacer.gone(due), Some(ProcId(0)));
    assert_eq!(world.pacer.gone(due), None, "once");
    // More is to be sent to the other before it is gone.
    world.pacer.stay(ProcId(1));
    assert_eq!((world.pacer.due(), world.pacer.gone(due + 100 * TURN)), (None, None));
}

#[test]
fn one_that_the_kernel_still_has_bytes_of_is_named_again_but_not_all_the_time() {
    let mut world = World::new(1);
    world.pacer.leave(ProcId(0));
    assert_eq!(world.pacer.gone(world.now), None);
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.gone(world.now), Some(ProcId(0)));
    for (bytes, least) in [(RATE as usize / 100, Duration::from_millis(10)), (1, TURN / 5)] {
        world.pacer.linger(ProcId(0), bytes);
        let due = world.pacer.due().unwrap();
        assert!(due - world.now >= least && due - world.now < 2 * least, "{bytes}");
        world.now = due;
        assert_eq!(world.pacer.gone(due), Some(ProcId(0)));
    }
}

#[test]
fn the_first_turn_after_a_rest_is_bounded_by_its_window_and_a_lone_one_goes_on_by_itself() {
    let mut world = World::new(2);
    let turn = world.pacer.turn();
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    assert!(world.pacer.is_bounded_by_window());
    // Its window lets out less: that has left before it goes on, and others would have asked by then.
    world.pacer.cut();
    world.pacer.wrote(ProcId(0), 2 * SEGMENT, world.now);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    assert!(!world.pacer.is_bounded_by_window());
    // It keeps the kernel supplied.
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    assert!(world.pacer.due().unwrap() - world.now < TURN * 3 / 5);
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    assert!(world.pacer.is_bounded_by_window());
}

#[test]
fn where_windows_are_shut_others_go_first_and_none_is_asked_all_the_time() {
    let mut world = World::new(0);
    world.pacer.wrote(ProcId(99), 10 * SEGMENT, world.now);
    (0..20).for_each(|peer| assert_eq!(world.ask(peer, 1 << 20), Turn::Later));
    world.now += Duration::from_secs(1);
    let round = |world: &mut World, open: Option<u32>| {
        let mut asked = Vec::new();
        while let Some(peer) = world.pacer.next(world.now) {
            assert!(matches!(world.ask(peer.0, 1 << 20), Turn::Now(_)));
            asked.push(peer.0);
            if Some(peer.0) == open {
                world.pacer.wrote(peer, world.pacer.turn(), world.now);
            } else {
                world.pacer.put_back(peer, LARGE, world.now);
            }
        }
        let due = world.pacer.due().unwrap();
        assert!(due > world.now + TURN / 20, "{:?}", due - world.now);
        world.now = due;
        asked
    };
    assert_eq!(round(&mut world, None), (0..8).collect::<Vec<_>>());
    assert_eq!(round(&mut world, None), (8..16).collect::<Vec<_>>());
    // All come by in turn; who may write does.
    assert_eq!(round(&mut world, Some(19)), [16, 17, 18, 19]);
    assert!(!world.pacer.waiting.contains_key(&ProcId(19)) && world.pacer.waiting.len() == 19);
}

#[test]
fn a_rate_of_next_to_nothing_is_slow_and_no_more() {
    let now = Instant::now();
    let mut pacer = Pacer::new(1e-9, ProcId(0), now);
    pacer.wrote(ProcId(0), 1 << 20, now);
    assert_eq!(pacer.ask(ProcId(1), LARGE, now), Turn::Later);
    assert!(pacer.due().unwrap() > now + Duration::from_secs(86400));
    assert_eq!(pacer.socket_rate(ProcId(0), 1), 1);
}

#[test]
fn a_rate_beyond_all_bounds_is_one_long_turn() {
    let now = Instant::now();
    for rate in [1e30, f64::MAX] {
        let mut pacer = Pacer::new(rate, ProcId(0), now);
        let ask = all_of(u64::MAX);
        assert!(matches!(pacer.ask(ProcId(1), ask, now), Turn::Now(most) if most > usize::MAX / 2));
    }
}

#[test]
fn at_a_rate_beyond_all_bounds_nobody_is_asked_all_the_time_whose_window_is_shut() {
    let mut now = Instant::now();
    let mut pacer = Pacer::new(f64::MAX, ProcId(0), now);
    for _ in 0..10 {
        [0, 1].map(ProcId).into_iter().for_each(|peer| pacer.put_back(peer, LARGE, now));
        assert_eq!(pacer.next(now + Duration::from_micros(100)), None);
        now += TURN;
        for peer in [0, 1].map(ProcId) {
            assert_eq!(pacer.next(now), Some(peer));
            assert!(matches!(pacer.ask(peer, LARGE, now), Turn::Now(_)));
        }
    }
}

/// A kernel that has sent so much, with enough to go on with.
fn busy(sent: usize) -> Progress {
    let (sent, unsent, pace) = (sent as u64, 20 * SEGMENT, RATE as u64);
    Progress { sent, unsent, is_open: true, unread_us: 0, pace }
}

/// One that has begun, waits for its second turn, and may go on now.
fn going_on() -> World {
    let mut world = World::new(1);
    let Turn::Now(turn) = world.ask(0, 1 << 20) else { panic!("nobody is before it") };
    world.pacer.begins(ProcId(0), busy(0), world.now);
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    assert_eq!(world.pacer.over(world.now), None);
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.over(world.now), Some(ProcId(0)));
    world
}

/// Time passes in which the kernel sends so many turns of it.
fn pass(world: &mut World, sent: &mut f64, turns: f64) {
    let turn = world.pacer.turn();
    *sent += turns * turn as f64;
    world.now += TURN;
    world.pacer.looked(ProcId(0), Some(busy(*sent as usize)), world.now);
}

#[test]
fn a_kernel_that_others_hold_up_is_made_faster_and_not_handed_more() {
    let mut world = going_on();
    let (turn, rate) = (world.pacer.turn(), world.pacer.socket_rate(ProcId(0), 1));
    let mut sent = turn as f64 / 6.0;
    world.pacer.looked(ProcId(0), Some(busy(sent as usize)), world.now);
    // Once may be a processor that was busy.
    assert!(!world.pacer.is_held_up());
    pass(&mut world, &mut sent, 0.5);
    assert!(world.pacer.is_held_up());
    assert!(world.pacer.socket_rate(ProcId(0), 1) as f64 > 2.9 * rate as f64);
    // It waits for what the kernel has missed, and makes up for some of it: without both half a turn.
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    let wait = world.pacer.due().unwrap() - world.now;
    assert!(wait > TURN / 2, "{wait:?}");
    // Too soon nothing can be said.
    world.now += Duration::from_micros(100);
    world.pacer.looked(ProcId(0), Some(busy(sent as usize)), world.now);
    assert!(world.pacer.is_held_up());
    // It goes on as long as that is so, and no longer.
    pass(&mut world, &mut sent, 0.5);
    assert!(world.pacer.is_held_up());
    pass(&mut world, &mut sent, 1.1);
    assert!(!world.pacer.is_held_up());
    // Late and in time by turns is no more than late once.
    for turns in [0.5, 1.0, 0.5, 1.0, 0.5] {
        pass(&mut world, &mut sent, turns);
        assert!(!world.pacer.is_held_up());
    }
}

/// Two by turns; the kernel sends that part of each, and has so many bytes left when it is over.
fn by_turns(part: f64, unsent: usize) -> World {
    let mut world = World::new(2);
    let mut sent = [0.0; 2];
    let progress = |sent: f64| Progress { unsent, ..busy(sent as usize) };
    assert!(matches!(world.ask(0, 1 << 20), Turn::Now(_)));
    for peer in [0, 1, 0, 1].map(ProcId) {
        let turn = world.pacer.turn();
        let mine = &mut sent[peer.0 as usize];
        world.pacer.begins(peer, progress(*mine), world.now);
        world.pacer.wrote(peer, turn, world.now);
        for waits in [peer.0, 1 - peer.0] {
            assert_eq!(world.ask(waits, 1 << 20), Turn::Later);
        }
        assert_eq!(world.pacer.over(world.now), None);
        world.now = world.pacer.due().unwrap();
        assert_eq!(world.pacer.over(world.now), Some(peer));
        *mine += part * turn as f64;
        world.pacer.looked(peer, Some(progress(*mine)), world.now);
        world.now = world.now.max(world.pacer.due().unwrap());
        let next = world.pacer.next(world.now).expect("somebody waits");
        assert_ne!(next, peer);
        assert!(matches!(world.ask(next.0, 1 << 20), Turn::Now(_)));
    }
    world
}

#[test]
fn a_kernel_that_falls_behind_with_each_of_several_is_held_up() {
    assert!(by_turns(0.1, 20 * SEGMENT).pacer.is_held_up());
    assert!(!by_turns(0.9, 20 * SEGMENT).pacer.is_held_up());
    // What it does not have it cannot be late with.
    assert!(!by_turns(0.1, SEGMENT).pacer.is_held_up());
}

#[test]
fn of_what_cannot_be_said_nothing_is_kept_in_mind() {
    let mut world = by_turns(0.1, 20 * SEGMENT);
    assert!(world.pacer.is_held_up());
    world.pacer.looked(ProcId(0), None, world.now);
    assert!(!world.pacer.is_held_up());
}

#[test]
fn nobody_waits_longer_than_for_what_the_kernel_has_left() {
    let unsent = 3 * SEGMENT;
    let mut world = by_turns(0.2, unsent);
    let turn = world.pacer.turn();
    world.pacer.begins(ProcId(0), Progress { unsent, ..busy(1 << 20) }, world.now);
    world.pacer.wrote(ProcId(0), turn, world.now);
    world.now = world.pacer.due().unwrap() + Duration::from_millis(2);
    world.pacer.looked(ProcId(0), Some(Progress { unsent, ..busy(1 << 20) }), world.now);
    let wait = world.pacer.due().unwrap().saturating_duration_since(world.now).as_secs_f64();
    assert!(wait > 0.0 && wait * RATE <= unsent as f64, "{wait}");
}

#[test]
fn a_kernel_that_keeps_up_or_waits_for_its_congestion_control_or_for_us_is_not_held_up() {
    let shut = Progress { is_open: false, ..busy(0) };
    let slow = Progress { pace: RATE as u64 / 2, ..busy(0) };
    let idle = Progress { unsent: SEGMENT, ..busy(0) };
    for progress in [Some(shut), Some(slow), Some(idle), None] {
        let mut world = going_on();
        let mut sent = 0.0;
        for _ in 0..5 {
            pass(&mut world, &mut sent, if progress.is_some() { 0.1 } else { 0.9 });
            // What a window held back, or we, is not counted later.
            if let Some(progress) = progress {
                world.pacer.looked(ProcId(0), Some(progress), world.now);
            }
            assert!(!world.pacer.is_held_up(), "{progress:?}");
        }
        assert_eq!(world.pacer.next(world.now), Some(ProcId(0)), "{progress:?}");
    }
}

#[test]
fn what_was_seen_counts_for_one_peer_one_rate_and_no_rest() {
    for what in ["a peer", "a rate", "a connection"] {
        let mut world = going_on();
        let mut sent = 10.0 * world.pacer.turn() as f64;
        // A connection that takes another's place has sent less.
        let turns = if what == "a connection" { -0.2 } else { 0.2 };
        for _ in 0..5 {
            pass(&mut world, &mut sent, turns);
            match what {
                "a peer" => world.pacer.looked(ProcId(1), Some(busy(0)), world.now),
                "a rate" => world.pacer.set_rate(world.pacer.rate() * 1.01, world.now),
                _ => {}
            }
            assert!(!world.pacer.is_held_up(), "{what}");
        }
    }
    let world = rested();
    assert!(!world.pacer.is_held_up(), "after a rest all begins anew");
}

/// One that was held up, and begins after a rest.
fn rested() -> World {
    let mut world = going_on();
    let mut sent = 0.0;
    for _ in 0..2 {
        pass(&mut world, &mut sent, 0.2);
    }
    assert!(world.pacer.is_held_up());
    world.now += Duration::from_secs(1);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    assert!(matches!(world.ask(0, SEGMENT as u64), Turn::Now(_)));
    world.pacer.wrote(ProcId(0), SEGMENT, world.now);
    world.now += Duration::from_secs(1);
    assert!(matches!(world.ask(0, 1 << 20), Turn::Now(_)));
    world
}

#[test]
fn who_fills_the_interface_is_told_of_as_much_after_a_rest_as_before() {
    let is_hastened =
        |world: &World| world.pacer.socket_rate(ProcId(0), SEGMENT) as f64 > 2.9 * RATE;
    let filling = || {
        let mut world = rested();
        world.pacer.set_slack(slack(RATE, 0.0));
        world
    };
    let mut world = filling();
    assert!(is_hastened(&world) && !world.pacer.is_held_up());
    world.pacer.set_slack(slack(RATE * 1.1, 0.0));
    assert!(!is_hastened(&world), "it would leave faster than the rate");
    // Until it is seen to have sent all, or twice to be in time, or nothing can be said of it any more.
    let has_sent_all = Progress { unsent: SEGMENT, ..busy(0) };
    for progress in [Some(has_sent_all), None] {
        let mut world = filling();
        world.pacer.looked(ProcId(0), progress, world.now);
        assert!(!is_hastened(&world), "{progress:?}");
    }
    let (mut world, mut sent) = (filling(), 0.0);
    pass(&mut world, &mut sent, 1.0);
    for is_so in [true, false] {
        pass(&mut world, &mut sent, 1.0);
        assert_eq!(is_hastened(&world), is_so);
    }
    let (mut world, mut sent) = (filling(), 0.0);
    pass(&mut world, &mut sent, 1.0);
    let unread = Progress { unread_us: 1, ..busy(sent as usize) };
    world.now += TURN;
    world.pacer.looked(ProcId(0), Some(unread), world.now);
    assert!(!is_hastened(&world), "its peer does not read");
}
