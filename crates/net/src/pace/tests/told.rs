//! What sockets are told, turn by turn.

use super::*;

#[test]
fn a_late_turn_is_faster_by_what_was_missed() {
    let mut world = World::new(2);
    let turn = world.pacer.turn();
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    assert_eq!(world.pacer.socket_rate(ProcId(0), turn), RATE as u64);
    world.now = world.pacer.due().unwrap() + Duration::from_millis(1);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    // 1 ms less the lead.
    let missed = RATE / 1e3 - LEAD;
    let wanted = RATE * turn as f64 / (turn as f64 - missed);
    assert!((world.pacer.socket_rate(ProcId(1), turn) as f64 - wanted).abs() < 2.0);
    world.pacer.wrote(ProcId(1), turn, world.now);
    // The kernel has it out sooner by that, and the next one begins sooner.
    assert!((world.pacer.level - (turn as f64 - missed)).abs() < 1.0, "{}", world.pacer.level);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    assert_eq!(world.pacer.next(world.now + Duration::from_secs(1)), Some(ProcId(0)));
    assert_eq!(world.pacer.socket_rate(ProcId(0), turn), (RATE / (1.0 - CREDIT)) as u64);
    // One who comes later missed nothing.
    world.now += Duration::from_secs(2);
    assert_eq!(world.ask(1, 1 << 20), Turn::Now(turn));
    assert_eq!(world.pacer.socket_rate(ProcId(1), turn), RATE as u64);
}

#[test]
fn a_turn_that_follows_another_is_spread_out_as_its_first_segment_takes_half_the_time() {
    let mut world = World::new(2);
    let turn = world.pacer.turn();
    assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(world.ask(1, 1 << 20), Turn::Later);
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    // When all of it has left, the first half of a segment for nothing, it is the next one's turn.
    for bytes in [turn, 3 * SEGMENT - 100] {
        let takes = (bytes - SEGMENT / 2) as f64 / world.pacer.socket_rate(ProcId(1), bytes) as f64;
        assert!((takes * RATE / bytes as f64 - 1.0).abs() < 1e-3, "{bytes}: {takes}");
    }
    // A socket that goes on is not forgiven anything, nor is there another gap where one segment is all.
    assert_eq!(world.pacer.socket_rate(ProcId(0), turn), RATE as u64);
    assert_eq!(world.pacer.socket_rate(ProcId(1), SEGMENT), RATE as u64);
}

#[test]
fn a_pause_is_worth_what_it_took_and_no_more_than_allowed() {
    const ALLOWANCE: f64 = 2.0 * SEGMENT as f64;
    for (pause, worth) in
        [(Duration::from_micros(500), 1000.0), (Duration::from_secs(1), ALLOWANCE)]
    {
        let mut world = World::new(1);
        world.pacer.set_slack(slack(f64::INFINITY, ALLOWANCE));
        let turn = world.pacer.turn();
        // It has begun with nothing saved.
        assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
        assert_eq!(world.pacer.socket_rate(ProcId(0), turn), RATE as u64);
        world.pacer.wrote(ProcId(0), turn, world.now);
        world.now += Duration::from_secs_f64(turn as f64 / RATE) + pause;
        assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
        let wanted = RATE * turn as f64 / (turn as f64 - worth);
        assert!(
            (world.pacer.socket_rate(ProcId(0), turn) as f64 - wanted).abs() < 10.0,
            "{pause:?}"
        );
        world.pacer.wrote(ProcId(0), turn, world.now);
        assert!((world.pacer.level - (turn as f64 - worth)).abs() < 1.0, "{}", world.pacer.level);
        // It counts once.
        world.now += Duration::from_secs_f64(world.pacer.level / RATE);
        assert!(matches!(world.ask(0, 1 << 20), Turn::Now(_)));
        assert!((world.pacer.socket_rate(ProcId(0), turn) as f64 - RATE).abs() < 10.0);
    }
}

#[test]
fn a_message_that_a_pause_covers_leaves_at_once() {
    const ALLOWANCE: f64 = 5.0 * SEGMENT as f64;
    let (mut world, short) = (World::new(1), 3 * SEGMENT);
    world.pacer.set_slack(slack(f64::INFINITY, ALLOWANCE));
    world.now += Duration::from_secs(1);
    assert!(matches!(world.ask(0, short as u64), Turn::Now(_)));
    assert_eq!(world.pacer.socket_rate_of_last(ProcId(0), short), u64::MAX);
    world.pacer.wrote(ProcId(0), short, world.now);
    assert_eq!(world.pacer.level, 0.0);
    // Two segments are left for the next one, which is spaced out for the third.
    assert!(matches!(world.ask(0, short as u64), Turn::Now(_)));
    let told = world.pacer.socket_rate_of_last(ProcId(0), short) as f64;
    assert!((told - 3.0 * RATE).abs() < 10.0, "{told}");
    world.pacer.wrote(ProcId(0), short, world.now);
    assert!((world.pacer.level - SEGMENT as f64).abs() < 1.0, "{}", world.pacer.level);
}

#[test]
fn what_the_interface_holds_back_by_itself_is_not_spaced_out_before() {
    let mut world = World::new(1);
    let (turn, all) = (world.pacer.turn(), 6 * SEGMENT);
    let faster = (RATE / (1.0 - HASTE)) as u64;
    assert_eq!(world.pacer.socket_rate_of_last(ProcId(0), all), RATE as u64);
    world.pacer.set_slack(slack(RATE, 0.0));
    assert_eq!(world.pacer.socket_rate_of_last(ProcId(0), all), faster);
    // What goes on has to give way when it is told to.
    assert_eq!(world.pacer.socket_rate(ProcId(0), turn), (RATE / (1.0 - FILL)) as u64);
    world.pacer.set_slack(slack(f64::INFINITY, 0.0));
    assert_eq!(world.pacer.socket_rate_of_last(ProcId(0), all), RATE as u64);
}

#[test]
fn what_may_leave_at_once_waits_for_nothing_and_is_what_a_pause_is_worth() {
    const ALLOWANCE: f64 = 5.0 * SEGMENT as f64;
    let (mut world, short) = (World::new(3), 3 * SEGMENT);
    world.pacer.set_slack(slack(f64::INFINITY, ALLOWANCE));
    world.now += Duration::from_secs(1);
    world.pacer.set_lead(Lead::Any);
    for peer in 0..3 {
        assert!(matches!(world.ask(peer, short as u64), Turn::Now(_)), "{peer}");
        world.pacer.wrote(ProcId(peer), short, world.now);
    }
    assert_eq!(world.pacer.level, 9.0 * SEGMENT as f64, "the pause makes up for none of it");
    // What is held back then has nothing left of the pause either, and waits, however short it is.
    world.pacer.set_lead(Lead::Least);
    world.pacer.set_slack(slack(f64::INFINITY, 2.0 * SEGMENT as f64));
    world.now += Duration::from_secs_f64(6.5 * SEGMENT as f64 / RATE);
    assert_eq!(world.ask(0, SMALL), Turn::Later);
    assert_eq!(world.pacer.next(world.now), None);
    world.now += Duration::from_secs_f64(0.6 * SEGMENT as f64 / RATE);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    // As transfers go a short one is before them.
    world.pacer.set_lead(Lead::Usual);
    world.pacer.wrote(ProcId(0), 2 * SEGMENT, world.now);
    assert!(matches!(world.ask(1, SMALL), Turn::Now(_)));
}

#[test]
fn short_ones_that_are_claimed_wait_behind_short_ones_but_not_behind_a_turn() {
    for (before, waits) in [(SMALL, true), (100 * SMALL, false)] {
        let mut world = World::new(2);
        world.pacer.set_lead(Lead::Claimed);
        assert!(matches!(world.ask(0, before), Turn::Now(_)));
        world.pacer.wrote(ProcId(0), 3 * SEGMENT, world.now);
        assert_eq!(world.ask(1, SMALL) == Turn::Later, waits, "behind {before} bytes");
        // A pause is worth nothing here: one segment is what keeps a gap from coming up.
        world.now += Duration::from_secs_f64(1.9 * SEGMENT as f64 / RATE);
        assert_eq!(world.pacer.next(world.now), None);
        world.now += Duration::from_secs_f64(0.2 * SEGMENT as f64 / RATE);
        assert_eq!(world.pacer.next(world.now), waits.then_some(ProcId(1)));
    }
}

#[test]
fn where_a_late_wake_up_costs_more_than_a_pause_is_worth_short_ones_wait_for_less() {
    let lead = |rate| {
        let mut pacer = Pacer::new(rate, ProcId(0), Instant::now());
        pacer.set_lead(Lead::Least);
        pacer.small_lead()
    };
    assert_eq!(lead(6.25e6), LEAD, "50 Mbit/s");
    assert!((lead(25e6) - 3750.0).abs() < 1.0, "200 Mbit/s");
    assert_eq!(lead(1.25e9), SMALL_LEAD, "10 Gbit/s");
}

/// A message of so many segments over a connection whose kernel has been told of no rate.
fn untold(segments: usize) -> Ask {
    let bytes = (segments * SEGMENT) as u64;
    Ask { is_untold: true, ..all_of(bytes) }
}

#[test]
fn a_message_of_a_few_parts_goes_by_these_and_the_kernel_is_told_of_no_rate() {
    let mut world = World::new(1);
    world.pacer.set_slack(slack(2.5 * RATE, 0.0));
    // The interface lets out three fifths of it sooner: of three segments less than two.
    let part = 3 * SEGMENT;
    let ask = |world: &mut World, segments| world.pacer.ask(ProcId(0), untold(segments), world.now);
    assert_eq!(ask(&mut world, 7), Turn::Now(part));
    world.pacer.wrote(ProcId(0), part, world.now);
    // The next part waits until that has left, as nobody spaces it out.
    assert_eq!(ask(&mut world, 4), Turn::Later);
    let wait = (world.pacer.due().unwrap() - world.now).as_secs_f64();
    assert!((wait * RATE - (part as f64 - LEAD)).abs() < 1.0, "{wait}");
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    assert_eq!(ask(&mut world, 4), Turn::Now(part));
    world.pacer.wrote(ProcId(0), part, world.now);
    // Nor does what comes after that go on at once.
    assert_eq!(ask(&mut world, 3), Turn::Later);
    let again = (world.pacer.due().unwrap() - world.now).as_secs_f64();
    assert!(again * RATE >= part as f64 - 1.0, "{again}");
}

#[test]
fn what_is_no_message_of_a_few_parts_is_spaced_out_by_the_kernel() {
    let mut world = World::new(1);
    world.pacer.set_slack(slack(2.5 * RATE, 0.0));
    let (few, segment) = (PARTS * 3, SEGMENT);
    assert_eq!(world.pacer.part_of(untold(few)), Some(3 * segment));
    assert_eq!(world.pacer.part_of(untold(few + 1)), None, "it is long");
    assert_eq!(world.pacer.part_of(untold(3)), None, "it needs none");
    assert_eq!(world.pacer.part_of(Ask { is_untold: false, ..untold(few) }), None);
    assert_eq!(world.pacer.part_of(Ask { is_young: true, ..untold(few) }), None);
    // Of an interface nothing is known, or the rate is not to be exceeded.
    world.pacer.set_slack(slack(f64::INFINITY, 0.0));
    assert_eq!(world.pacer.part_of(untold(PARTS * 2)), None);
    // It carries no more than the rate, which may fall to what everybody may always have.
    world.pacer.set_slack(Slack { least: 0.5 * RATE, ..slack(RATE, 0.0) });
    let turn = world.pacer.turn();
    assert_eq!(world.pacer.part_of(untold(turn / segment)), None, "it is a turn");
    assert_eq!(world.pacer.part_of(untold(turn / segment + 1)), Some(4 * segment));
    world.pacer.set_slack(Slack { least: RATE, ..slack(RATE, 0.0) });
    assert_eq!(world.pacer.part_of(untold(turn / segment + 1)), Some(turn));
    // Nearly all that it carries: parts are no longer than turns.
    world.pacer.set_slack(slack(1.01 * RATE, 0.0));
    assert_eq!(world.pacer.part_of(untold(turn / segment + 1)), Some(turn));
    // Each would be over before the next wake-up.
    world.pacer.set_rate(20.0 * RATE, world.now);
    world.pacer.set_slack(slack(50.0 * RATE, 0.0));
    assert_eq!(world.pacer.part_of(untold(few)), None);
}

#[test]
fn an_interface_that_parts_fill_is_not_left_idle_between_them() {
    let mut world = World::new(1);
    world.pacer.set_slack(Slack { least: 0.8 * RATE, ..slack(RATE, 0.0) });
    let turn = world.pacer.turn();
    let ask = |world: &mut World, segments| world.pacer.ask(ProcId(0), untold(segments), world.now);
    assert_eq!(ask(&mut world, 20), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    assert_eq!(ask(&mut world, 14), Turn::Later);
    let wait = (world.pacer.due().unwrap() - world.now).as_secs_f64();
    assert!((wait * RATE - 0.75 * turn as f64).abs() < 1.0, "{wait}");
    // What it has then may leave as it was to when the rate falls to what everybody has, and no lower.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    assert_eq!(ask(&mut world, 14), Turn::Now(turn));
    world.pacer.wrote(ProcId(0), turn, world.now);
    world.pacer.set_rate(0.8 * RATE, world.now);
    assert!(world.pacer.needs_no_more_spacing());
    world.pacer.set_rate(0.1 * RATE, world.now);
    assert!(!world.pacer.needs_no_more_spacing());
}

#[test]
fn what_was_let_go_leaves_so_when_a_rate_counts_again_and_what_follows_waits_for_it() {
    let mut world = World::new(1);
    world.pacer.set_slack(slack(RATE, 0.0));
    world.pacer.set_lead(Lead::Any);
    let bytes = 20 * SEGMENT;
    assert!(matches!(world.pacer.ask(ProcId(0), untold(20), world.now), Turn::Now(_)));
    assert!(world.pacer.is_unspaced());
    world.pacer.wrote(ProcId(0), bytes, world.now);
    world.pacer.set_lead(Lead::Claimed);
    for (rate, needs_none) in [(0.7, true), (0.5, false)] {
        world.pacer.set_rate(rate * RATE, world.now);
        assert_eq!(world.pacer.needs_no_more_spacing(), needs_none, "{rate}");
    }
    assert_eq!(world.pacer.ask(ProcId(0), untold(20), world.now), Turn::Later);
    let wait = (world.pacer.due().unwrap() - world.now).as_secs_f64();
    assert!((wait * 0.5 * RATE - (bytes as f64 - LEAD)).abs() < 1.0, "{wait}");
    // Nothing that was so of it is so of the next.
    world.now = world.pacer.due().unwrap();
    assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
    assert_eq!(world.pacer.ask(ProcId(0), LARGE, world.now), Turn::Now(world.pacer.turn()));
    assert!(!world.pacer.is_unspaced());
}

#[test]
fn who_waits_behind_others_has_all_of_its_message_in_a_turn() {
    let mut world = World::new(2);
    world.pacer.set_slack(slack(2.5 * RATE, 2.0 * SEGMENT as f64));
    world.go(0);
    assert_eq!(world.ask(0, 1 << 20), Turn::Later);
    assert_eq!(world.pacer.ask(ProcId(1), untold(5), world.now), Turn::Later);
    world.now += Duration::from_millis(10);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    let Turn::Now(most) = world.pacer.ask(ProcId(1), untold(5), world.now) else {
        panic!("it was called")
    };
    // Three of five segments leave sooner.
    assert!(most >= 5 * SEGMENT && world.pacer.is_unspaced(), "{most}");
}

#[test]
fn behind_others_little_is_let_go_as_it_is() {
    let mut world = World::new(2);
    world.pacer.set_slack(slack(2.5 * RATE, 2.0 * SEGMENT as f64));
    world.pacer.set_rate(2.0 * RATE, world.now);
    let turn = world.pacer.turn();
    // A fifth of it leaves sooner.
    assert_eq!(world.pacer.all_of(untold(turn / SEGMENT)), Some(turn));
    assert_eq!(world.pacer.all_of(untold(turn / SEGMENT + 1)), None, "it is more than a turn");
    assert_eq!(world.pacer.all_of(untold(3)), None, "it needs none");
    assert_eq!(world.pacer.all_of(Ask { is_untold: false, ..untold(turn / SEGMENT) }), None);
    world.pacer.set_rate(RATE, world.now);
    assert_eq!(world.pacer.all_of(untold(6)), Some(world.pacer.turn()));
    assert_eq!(world.pacer.all_of(untold(7)), None, "too much leaves sooner");
    // One of many, of whom a pause is worth less; and after losses.
    world.pacer.set_slack(slack(2.5 * RATE, 1.1 * SEGMENT as f64));
    let turn = world.pacer.turn();
    assert_eq!([5, 6].map(|few| world.pacer.all_of(untold(few))), [Some(turn), None]);
    world.pacer.set_slack(slack(2.5 * RATE, 0.0));
    assert_eq!(world.pacer.all_of(untold(4)), None);
}
