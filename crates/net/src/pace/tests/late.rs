//! What becomes of wake-ups, and kernels, that are late.

use super::*;

/// All that is made up for of what is late.
const MOST: f64 = 2.0 * SEGMENT as f64;

fn bounded() -> Slack {
    Slack { late: MOST, ..Slack::UNKNOWN }
}

#[test]
fn late_wake_ups_are_made_up_for_as_far_as_others_may_be_late_too() {
    let late = Duration::from_millis(4);
    for (slack, most) in [(Slack::UNKNOWN, f64::INFINITY), (bounded(), MOST)] {
        let mut world = World::new(2);
        world.pacer.set_slack(slack);
        (0..2).for_each(|peer| world.go(peer));
        world.now = world.pacer.due().unwrap() + late;
        let turn = world.pacer.turn();
        let missed = (RATE * late.as_secs_f64() - LEAD).min(CREDIT * turn as f64).min(most);
        let peer = world.pacer.next(world.now).expect("somebody waits");
        assert!((world.pacer.missed - missed).abs() < 1.0, "{} by {missed}", world.pacer.missed);
        world.pacer.wrote(peer, turn, world.now);
        assert!((world.pacer.level - (turn as f64 - missed)).abs() < 1.0);
    }
}

#[test]
fn what_wake_ups_are_usually_late_is_made_up_for_at_any_rate() {
    let rate = 100.0 * RATE;
    let mut world = World::new(8);
    world.pacer.set_rate(rate, world.now);
    world.pacer.set_slack(bounded());
    (0..8).for_each(|peer| world.go(peer));
    world.run(Duration::from_secs(2), LATE);
    let all: f64 = world.written.iter().sum();
    assert!((all / (2.0 * rate) - 1.0).abs() < 0.005, "{all}");
}

/// Two by turns, the first of which is over. The kernel has sent this part of it.
fn looked_once(part: f64) -> World {
    let mut world = World::new(2);
    world.pacer.set_slack(bounded());
    let turn = world.pacer.turn();
    assert!(matches!(world.ask(0, 1 << 20), Turn::Now(_)));
    world.pacer.begins(ProcId(0), busy(0), world.now);
    world.pacer.wrote(ProcId(0), turn, world.now);
    for peer in 0..2 {
        assert_eq!(world.ask(peer, 1 << 20), Turn::Later);
    }
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.over(world.now), Some(ProcId(0)));
    let sent = (part * turn as f64) as usize;
    let progress = Progress { unsent: turn - sent, ..busy(sent) };
    world.pacer.looked(ProcId(0), Some(progress), world.now);
    world
}

#[test]
fn a_kernel_that_stood_still_once_sends_what_it_has_before_others_do() {
    let part = 0.1;
    let mut world = looked_once(part);
    let turn = world.pacer.turn() as f64;
    assert!(!world.pacer.is_held_up());
    assert_eq!(world.pacer.next(world.now), None);
    let wait = (world.pacer.due().unwrap() - world.now).as_secs_f64() * RATE;
    assert!((wait - (1.0 - part) * turn).abs() < 2.0 * LEAD, "{wait} of {turn}");
    // The next turn is as much faster as late wake-ups would make it.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    assert!((world.pacer.missed - MOST).abs() < 1.0, "{}", world.pacer.missed);
}

#[test]
fn nobody_waits_twice_for_one_whose_peer_does_not_read() {
    let mut world = looked_once(0.0);
    assert_eq!(world.pacer.next(world.now), None);
    // Nothing has left meanwhile: that is not looked at, and the other has its turn.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.over(world.now), None);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    assert!(!world.pacer.is_held_up());
    // Of that, as of each turn, can be said again how it went.
    let Turn::Now(turn) = world.ask(1, 1 << 20) else { panic!("it was called") };
    world.pacer.wrote(ProcId(1), turn, world.now);
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.over(world.now), Some(ProcId(1)));
}

/// How many times another waits on for one that others on its interface have held up, whose peer then reads so much of a turn in the time of one,
/// up to ten; that its window is shut the kernel counts by ticks of 4 ms, of which a look has so many.
fn waits(read: f64, ticks: f64) -> usize {
    let mut world = going_on();
    let turn = world.pacer.turn();
    let mut sent = 0.1 * turn as f64;
    pass(&mut world, &mut sent, 0.1);
    pass(&mut world, &mut sent, 0.1);
    assert!(world.pacer.is_held_up());
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    let (mut progress, mut passed) = (busy(sent as usize), 0.0);
    let is_named = |_| {
        world.now = world.now.max(world.pacer.due().unwrap());
        progress.sent += (read * turn as f64) as u64;
        passed += ticks;
        progress.unread_us = 4_000 * passed as u64;
        if let Some(peer) = world.pacer.over(world.now) {
            world.pacer.looked(peer, Some(progress), world.now);
        }
        // Its own turn comes again, too, but its buffer takes nothing.
        world.pacer.next(world.now) == Some(ProcId(1))
    };
    (0..10).position(is_named).unwrap_or(10)
}

#[test]
fn nobody_waits_on_for_one_whose_peer_reads_slowly() {
    for read in [0.0, 0.05] {
        assert!(waits(read, 1.0) <= 2, "{read}: {}", waits(read, 1.0));
        // Looks that saw no tick cannot tell.
        assert!(waits(read, 0.4) <= 4, "{read}: {}", waits(read, 0.4));
        // The kernel does not say so: others are on its interface.
        assert!(waits(read, 0.0) >= 5, "{read}: {}", waits(read, 0.0));
    }
}

#[test]
fn a_packet_that_is_late_once_makes_nobody_wait() {
    let turn = World::new(1).pacer.turn() as f64;
    let mut world = looked_once(1.0 - 3.5 * SEGMENT as f64 / turn);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
}

#[test]
fn what_was_missed_while_it_was_held_up_is_not_lost_when_it_keeps_up_again() {
    let mut world = going_on();
    world.pacer.set_slack(bounded());
    let mut sent = world.pacer.turn() as f64 / 6.0;
    world.pacer.looked(ProcId(0), Some(busy(sent as usize)), world.now);
    pass(&mut world, &mut sent, 0.2);
    assert!(world.pacer.is_held_up());
    let (turn, missed) = (world.pacer.turn() as f64, world.pacer.missed);
    assert!(missed > CREDIT * turn, "{missed} of {turn}");
    pass(&mut world, &mut sent, 1.1);
    assert!(!world.pacer.is_held_up());
    world.pacer.said(0, world.now);
    assert_eq!(world.pacer.missed, CREDIT * turn);
}
