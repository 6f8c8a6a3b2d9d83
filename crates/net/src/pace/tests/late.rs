//! What becomes of wake-ups, and kernels, that are late.

use super::*;

/// All that is made up for.
const LATE: f64 = 2.0 * SEGMENT as f64;

fn bounded() -> Slack {
    Slack { late: LATE, ..Slack::UNKNOWN }
}

#[test]
fn late_wake_ups_are_made_up_for_as_far_as_others_may_be_late_too() {
    let late = Duration::from_millis(4);
    for (slack, most) in [(Slack::UNKNOWN, f64::INFINITY), (bounded(), LATE)] {
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
fn what_was_missed_counts_no_more_when_less_may_be_made_up_for() {
    let mut world = World::new(2);
    (0..2).for_each(|peer| world.go(peer));
    world.now = world.pacer.due().unwrap() + Duration::from_millis(4);
    assert!(world.pacer.next(world.now).is_some());
    assert!(world.pacer.missed > LATE);
    world.pacer.set_slack(bounded());
    assert_eq!(world.pacer.missed, LATE);
}

#[test]
fn a_kernel_that_stood_still_once_sends_what_it_has_before_others_do() {
    let mut world = going_on();
    world.pacer.set_slack(bounded());
    let turn = world.pacer.turn();
    let rate = world.pacer.socket_rate(ProcId(0), turn);
    // It has sent a quarter of the turn that is over.
    world.now += Duration::from_millis(3);
    world.pacer.looked(ProcId(0), Some(busy(turn / 4)), world.now);
    assert!(!world.pacer.is_held_up());
    assert_eq!(world.pacer.next(world.now), None);
    let wait = (world.pacer.due().unwrap() - world.now).as_secs_f64() * RATE;
    assert!(wait > turn as f64 / 8.0 && wait < turn as f64, "{wait} of {turn}");
    // The next turn is no faster than what late wake-ups are worth.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    let made_up = world.pacer.socket_rate(ProcId(0), turn) as f64 / rate as f64;
    let most = turn as f64 / (turn as f64 - LATE);
    assert!(made_up > 1.0 && made_up <= most * 1.001, "{made_up} of {most}");
}
