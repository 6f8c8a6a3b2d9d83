//! Whose turn it is among those that wait, and what of theirs is for it.

use super::*;

#[test]
fn large_ones_take_turns_from_the_cursor_on() {
    let now = Instant::now();
    let mut pacer = Pacer::new(RATE, ProcId(6), now);
    pacer.wrote(ProcId(4), 1 << 20, now);
    for peer in [4, 5, 6, 7] {
        assert_eq!(pacer.ask(ProcId(peer), LARGE, now), Turn::Later);
    }
    let later = now + Duration::from_secs(9);
    let order: Vec<_> = std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0).collect();
    assert_eq!(order, [6, 7, 4, 5]);
}

#[test]
fn who_begins_at_once_and_who_has_to_wait_go_on_in_the_same_order() {
    // What is left of the collective before, whose last part went to 4.
    for before in [0, 2 * SEGMENT] {
        let now = Instant::now();
        let mut pacer = Pacer::new(RATE, ProcId(5), now);
        pacer.wrote(ProcId(4), before, now);
        let ask = all_of(16_493);
        let mut order = Vec::new();
        for peer in [5, 6, 7, 4].map(ProcId) {
            if let Turn::Now(most) = pacer.ask(peer, ask, now) {
                pacer.wrote(peer, most, now);
                order.push(peer.0);
            }
        }
        assert_eq!(order.len(), usize::from(before == 0));
        let later = now + Duration::from_secs(9);
        order.extend(std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0));
        assert_eq!(order, [5, 6, 7, 4], "after {before}");
    }
}

#[test]
fn whose_turn_was_the_first_does_not_have_the_next_one_before_others() {
    let now = Instant::now();
    let mut pacer = Pacer::new(RATE, ProcId(5), now);
    let Turn::Now(most) = pacer.ask(ProcId(5), LARGE, now) else { panic!("nobody is before it") };
    pacer.wrote(ProcId(5), most, now);
    for peer in [5, 6, 4] {
        assert_eq!(pacer.ask(ProcId(peer), LARGE, now), Turn::Later);
    }
    let later = now + Duration::from_secs(9);
    let order: Vec<_> = std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0).collect();
    assert_eq!(order, [6, 4, 5]);
}

#[test]
fn a_turn_takes_along_the_end_of_a_frame_though_others_are_behind_it() {
    let mut world = World::new(1);
    let turn = world.pacer.turn();
    let ask = |frame: usize, world: &mut World| {
        world.now += Duration::from_secs(1);
        match world.pacer.ask(ProcId(0), Ask { frame: frame as u64, ..LARGE }, world.now) {
            Turn::Now(most) => most,
            Turn::Later => panic!("nobody is before it"),
        }
    };
    let all = turn + (REST * turn as f64) as usize;
    for frame in [turn + 1, turn + 573, turn + 3 * SEGMENT, all] {
        let most = ask(frame, &mut world);
        assert!(most >= frame && most <= (frame + FRAME_BESIDE).min(all), "{frame}: {most}");
        assert_eq!(most % SEGMENT, 0);
    }
    // It ends within the turn, or not by far.
    for frame in [0, 1, turn, all + 1, usize::MAX] {
        assert_eq!(ask(frame, &mut world), turn, "{frame}");
    }
}

/// Lets one go first, has these wait with so many bytes each, and names who is next, when nothing is before them any more.
fn waiting_behind(peers: [u32; 2], bytes: u64) -> (World, ProcId) {
    let mut world = World::new(3);
    world.pacer.wrote(ProcId(0), world.pacer.turn(), world.now);
    for peer in peers {
        assert_eq!(world.ask(peer, bytes), Turn::Later);
    }
    let next = next_later(&mut world).unwrap();
    (world, next)
}

/// Whose turn it is when all that was written has long left.
fn next_later(world: &mut World) -> Option<ProcId> {
    world.now += Duration::from_secs(1);
    world.pacer.next(world.now)
}

#[test]
fn what_has_come_behind_what_one_waited_with_is_for_its_next_turn() {
    let old = 4 * SEGMENT as u64 - 7;
    let (mut world, next) = waiting_behind([1, 2], old);
    assert_eq!(next, ProcId(1));
    // Of the next collective, say: there is as much again by now, and a turn would hold it all.
    let Turn::Now(most) = world.ask(1, 2 * old) else { panic!("it was called") };
    let with_frame = old as usize + 2 * SEGMENT;
    assert!((old as usize..=with_frame).contains(&most) && with_frame < 2 * old as usize, "{most}");
    world.pacer.wrote(next, most, world.now);
    assert_eq!(world.ask(1, 2 * old - most as u64), Turn::Later);
    assert_eq!(next_later(&mut world), Some(ProcId(2)), "its is older");
    // Behind whom nobody waits takes all.
    world.pacer.wrote(ProcId(2), SEGMENT, world.now);
    assert_eq!(next_later(&mut world), Some(ProcId(1)));
    let Turn::Now(most) = world.ask(1, 2 * old) else { panic!("it was called") };
    assert!(most as u64 >= 2 * old, "{most}");
}

#[test]
fn what_is_written_of_a_frame_is_not_waited_with_again() {
    let (mut world, next) = waiting_behind([1, 2], 6 * SEGMENT as u64);
    let Turn::Now(most) = world.ask(1, 6 * SEGMENT as u64) else { panic!("it was called") };
    // Its window let out but a part.
    world.pacer.wrote(next, 3 * SEGMENT, world.now);
    assert!(most >= 6 * SEGMENT);
    let ask = |left: usize, behind: usize| {
        let whole = (6 + behind) * SEGMENT;
        let (backlog, frame) = (whole as u64, (left * SEGMENT) as u64);
        Ask { backlog, left: frame + (behind * SEGMENT) as u64, frame, ..LARGE }
    };
    assert_eq!(world.pacer.ask(next, ask(3, 0), world.now), Turn::Later);
    assert_eq!(next_later(&mut world), Some(ProcId(2)));
    assert!(matches!(world.ask(2, 6 * SEGMENT as u64), Turn::Now(_)));
    world.pacer.wrote(ProcId(2), 6 * SEGMENT, world.now);
    assert_eq!(world.ask(2, 6 * SEGMENT as u64), Turn::Later);
    assert_eq!(next_later(&mut world), Some(next));
    assert_eq!(world.pacer.ask(next, ask(3, 6), world.now), Turn::Now(5 * SEGMENT));
}

#[test]
fn what_is_sent_before_others_wait_is_no_newer_than_theirs() {
    let mut world = World::new(3);
    world.pacer.wrote(ProcId(0), world.pacer.turn(), world.now);
    let message = 2 * SEGMENT as u64 + 1;
    // Three to one, and then one to the other.
    for backlog in [message, 2 * message, 3 * message] {
        assert_eq!(world.ask(1, backlog), Turn::Later);
    }
    assert_eq!(world.ask(2, message), Turn::Later);
    assert_eq!(next_later(&mut world), Some(ProcId(1)));
    let Turn::Now(most) = world.ask(1, 3 * message) else { panic!("it was called") };
    assert!(most as u64 >= 3 * message, "{most}");
}

#[test]
fn whose_window_is_shut_waits_on_with_what_it_had() {
    let old = 4 * SEGMENT as u64;
    let (mut world, next) = waiting_behind([1, 2], old);
    let Turn::Now(most) = world.ask(1, 2 * old) else { panic!("it was called") };
    world.pacer.put_back(next, all_of(2 * old), world.now);
    // More comes, which is newer than what the other has.
    assert_eq!(world.ask(1, 3 * old), Turn::Later);
    assert_eq!(world.pacer.next(world.now), Some(ProcId(2)));
    assert!(matches!(world.ask(2, old), Turn::Now(_)));
    world.pacer.put_back(ProcId(2), all_of(old), world.now);
    assert_eq!(next_later(&mut world), Some(next));
    assert_eq!(world.ask(1, 3 * old), Turn::Now(most));
}

#[test]
fn who_is_left_alone_is_the_last_to_wait() {
    let message = 2 * SEGMENT as u64 + 1;
    let (mut world, _) = waiting_behind([2, 1], message);
    assert!(matches!(world.ask(1, message), Turn::Now(_)));
    world.pacer.wrote(ProcId(1), 8 * SEGMENT, world.now);
    // The one that came behind it has gone, and nobody else has come when more does.
    assert_eq!(world.ask(2, 3 * message), Turn::Later);
    assert_eq!(world.ask(0, message), Turn::Later);
    assert_eq!(next_later(&mut world), Some(ProcId(2)));
    let Turn::Now(most) = world.ask(2, 3 * message) else { panic!("it was called") };
    assert!(most as u64 >= 3 * message, "{most}");
}

#[test]
fn turns_are_worth_their_wake_up_however_little_was_waited_with() {
    let (mut world, next) = waiting_behind([1, 2], SMALL + 1);
    world.pacer.set_rate(100.0 * RATE, world.now);
    let turn = world.pacer.turn();
    let ask = all_of(turn as u64);
    let Turn::Now(most) = world.pacer.ask(next, ask, world.now) else { panic!("it was called") };
    assert!(most as f64 > 0.9 * TURN_OLD * turn as f64 && most < turn, "{most} of {turn}");
}

#[test]
fn what_is_long_has_usual_turns_whatever_has_come_behind_it() {
    let (mut world, _) = waiting_behind([1, 2], 1 << 20);
    assert_eq!(world.ask(1, 1 << 21), Turn::Now(world.pacer.turn()));
}

#[test]
fn who_comes_while_one_goes_by_parts_waits_for_the_end_of_these() {
    let mut world = World::new(3);
    world.pacer.set_slack(slack(2.5 * RATE, 0.0));
    let ask = |left: usize| Ask { is_untold: true, ..all_of((left * SEGMENT) as u64) };
    assert_eq!(world.pacer.ask(ProcId(1), ask(9), world.now), Turn::Now(3 * SEGMENT));
    for left in [6, 3] {
        world.pacer.wrote(ProcId(1), 3 * SEGMENT, world.now);
        assert_eq!(world.pacer.ask(ProcId(1), ask(left), world.now), Turn::Later);
        if left == 3 {
            // Those of the next collective.
            for peer in [2, 0] {
                assert_eq!(world.ask(peer, 1 << 20), Turn::Later);
            }
        }
        assert_eq!(next_later(&mut world), Some(ProcId(1)));
        let Turn::Now(most) = world.pacer.ask(ProcId(1), ask(left), world.now) else {
            panic!("it was called")
        };
        assert!(most >= 3 * SEGMENT, "{most}");
    }
    world.pacer.wrote(ProcId(1), 3 * SEGMENT, world.now);
    assert_eq!(next_later(&mut world), Some(ProcId(2)));
}
