//! The claims of a process, told of grants.

use super::*;
use crate::Network;

const MBIT: f64 = 1e6;
const MS: Duration = Duration::from_millis(1);
/// Bits that are never over soon.
pub(crate) const MUCH: f64 = 1e9;

fn mbit(value: f64) -> Rate {
    Rate::from_bits_per_second(value * MBIT).unwrap()
}

/// The same for what is over soon.
pub(crate) fn start(rate: Rate, link: Rate) -> Start {
    Start { rate, short: rate, link }
}

fn grant(claims: &mut Claims, rate: Rate, is_settled: bool, now: Instant) {
    claims.grant(Grant { rate, node: rate, is_settled, is_quiet: false }, now);
}

fn claims() -> (Claims, Vec<NodeId>, Instant) {
    let mut network = Network::new();
    let cluster = network.add_cluster();
    let nodes = (0..4).map(|_| network.add_node(cluster, Rate::UNBOUNDED)).collect();
    (Claims::new(mbit(20.0)), nodes, Instant::now())
}

/// By an interface of so much, over a link of 160 Mbit/s.
fn path(node: NodeId, interface: f64) -> Path {
    Path { node, interface: mbit(interface), link: mbit(160.0) }
}

/// A process of each node.
fn one_of_each(nodes: &[NodeId]) -> Vec<(NodeId, Process)> {
    (0..).zip(nodes).map(|(number, &node)| (node, number)).collect()
}

#[test]
fn a_lone_transfer_starts_at_the_base_rate_and_rises_when_its_grant_is_settled() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 7, MUCH, now);
    assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: true }]);
    assert_eq!(claims.rate(), mbit(20.0));
    grant(&mut claims, mbit(50.0), false, now);
    assert_eq!(claims.rate(), mbit(25.0));
    grant(&mut claims, mbit(10.0), false, now);
    assert!(claims.rate() == mbit(10.0) && claims.is_young());
    grant(&mut claims, mbit(50.0), true, now);
    assert!(claims.rate() == mbit(50.0) && !claims.is_young());
}

#[test]
fn what_is_over_soon_begins_as_if_few_did_and_no_more_of_it_than_a_small_switch_holds_if_all_do() {
    let (mut claims, nodes, now) = claims();
    claims.go_over(path(nodes[3], 50.0), Rate::UNBOUNDED);
    let (rate, short) = (mbit(20.0), mbit(32.0));
    claims.begin_with(Start { rate, short, link: mbit(160.0) });
    // Eight of them are ahead of what all may have by as much as their buffer holds.
    let most = SOON * PAUSE / 8.0 / (1.0 - 20.0 / 32.0);
    claims.begin(nodes[0], 7, 0.6 * most, now);
    assert_eq!(claims.rate(), short);
    grant(&mut claims, mbit(50.0), false, now);
    assert_eq!(claims.rate(), mbit(40.0));
    // What has gone counts, whoever it was for, and what waits.
    claims.went(0.6 * most, now);
    assert!(!claims.grow(0.4 * most) && claims.grow(0.41 * most));
    assert_eq!(claims.rate(), mbit(25.0));
    claims.end(nodes[0], 7);
    assert_eq!(claims.rate(), short);
    claims.begin(nodes[0], 7, 0.6 * most, now);
    claims.begin(nodes[1], 8, 0.6 * most, now);
    assert_eq!(claims.rate(), rate, "together they take long");
    claims.end(nodes[0], 7);
    claims.end(nodes[1], 8);
    claims.resent(PROBES + 1, now);
    assert_eq!(claims.rate(), rate, "something was lost");
    claims.resent(0, now + CAREFUL);
    assert_eq!(claims.rate(), short);
    claims.forsake();
    assert_eq!(claims.rate(), mbit(20.0));
}

#[test]
fn an_end_is_told_when_nobody_uses_it_and_what_comes_late_counts_for_nothing() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 7, MUCH, now);
    claims.begin(nodes[0], 8, MUCH, now);
    assert_eq!(claims.users(), 2);
    grant(&mut claims, mbit(30.0), true, now);
    claims.end(nodes[0], 7);
    claims.end(nodes[0], 7);
    assert_eq!(claims.told().len(), 1);
    claims.end(nodes[0], 8);
    assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: false }]);
    grant(&mut claims, mbit(1.0), true, now);
    claims.set_share(nodes[0], 0.1);
    assert_eq!(claims.rate(), mbit(20.0));
    assert_eq!(claims.share(nodes[0]), 1.0);
}

#[test]
fn that_it_is_quiet_no_longer_is_no_answer_to_a_claim() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 0, MUCH, now);
    let (rate, since) = (claims.rate(), claims.asked);
    let node = Rate::UNBOUNDED;
    let notice = Grant { rate: node, node, is_settled: false, is_quiet: false };
    assert!(!claims.grant(notice, now), "it is no rate");
    assert_eq!((claims.rate(), claims.asked, claims.granted), (rate, since, None));
    assert!(claims.grant(Grant { rate: mbit(30.0), ..notice }, now));
    claims.end(nodes[0], 0);
    assert!(!claims.grant(Grant { rate: mbit(30.0), ..notice }, now), "it was for what has ended");
}

#[test]
fn a_broker_that_does_not_answer_is_taken_for_none_until_it_does() {
    let (mut claims, nodes, now) = claims();
    claims.begin_with(start(mbit(50.0), mbit(160.0)));
    claims.begin(nodes[0], 0, MUCH, now);
    claims.used(0.0, now + UNANSWERED / 2);
    assert_eq!(claims.rate(), mbit(50.0));
    claims.used(0.0, now + UNANSWERED);
    assert_eq!(claims.rate(), mbit(20.0));
    // The next transfer does not try it again.
    claims.end(nodes[0], 0);
    claims.begin(nodes[0], 0, MUCH, now + 2 * UNANSWERED);
    assert_eq!(claims.rate(), mbit(20.0));
    grant(&mut claims, mbit(40.0), true, now + 2 * UNANSWERED);
    assert_eq!(claims.rate(), mbit(40.0));
    claims.end(nodes[0], 0);
    assert_eq!(claims.rate(), mbit(50.0));
}

#[test]
fn who_has_more_than_everybodys_share_asks_whether_that_is_so_still() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 0, MUCH, now);
    claims.told();
    // All that it may.
    let asks = |claims: &mut Claims, now| {
        claims.used(1e8, now);
        claims.told().iter().map(|it| (it.to, it.is_active)).collect::<Vec<_>>()
    };
    let question = [(nodes[0], true), (nodes[0], false)];
    grant(&mut claims, mbit(50.0), true, now);
    assert_eq!(asks(&mut claims, now + UNANSWERED / 2), []);
    assert_eq!(asks(&mut claims, now + UNANSWERED), question);
    let answered = now + UNANSWERED + UNANSWERED / 2;
    assert_eq!(asks(&mut claims, answered), [], "it has asked");
    grant(&mut claims, mbit(50.0), true, answered);
    assert_eq!(asks(&mut claims, answered + UNANSWERED), question);
    assert_eq!(claims.rate(), mbit(50.0));
    // It hangs.
    assert_eq!(asks(&mut claims, answered + 2 * UNANSWERED), []);
    assert_eq!(claims.rate(), mbit(20.0));
    // It uses what it may, which is no word on what it could.
    for looks in 1..20 {
        claims.used(2e6, answered + 2 * UNANSWERED + looks * Duration::from_millis(100));
    }
    assert_eq!(claims.demand(), None);
    let now = answered + 3 * UNANSWERED;
    grant(&mut claims, mbit(20.0), true, now);
    assert_eq!(asks(&mut claims, now + 2 * UNANSWERED), [], "that is everybody's");
}

#[test]
fn the_programs_own_rate_counts_before_all_others() {
    let (mut claims, nodes, now) = claims();
    claims.hold(Some(mbit(7.0)));
    claims.begin(nodes[0], 0, MUCH, now);
    grant(&mut claims, mbit(50.0), true, now);
    assert_eq!(claims.rate(), mbit(7.0));
    claims.hold(None);
    assert_eq!(claims.rate(), mbit(50.0));
}

#[test]
fn a_pause_is_worth_the_same_part_of_a_buffer_as_the_rate_is_of_the_link() {
    let (mut claims, nodes, now) = claims();
    let slack = |claims: &Claims| (claims.allowance(), claims.rate() >= claims.interface());
    assert_eq!(slack(&claims), (0.0, false));
    let path = path(nodes[0], 50.0);
    claims.go_over(path, Rate::UNBOUNDED);
    assert_eq!(slack(&claims), (PAUSE / 8.0, false));
    claims.begin(nodes[0], 7, MUCH, now);
    grant(&mut claims, mbit(50.0), true, now);
    assert_eq!(slack(&claims), (PAUSE * 50.0 / 160.0, true));
    // Who wants a rate wants that.
    claims.hold(Some(mbit(50.0)));
    assert_eq!(slack(&claims), (0.0, false));
    claims.hold(None);
    // Somebody alone may fill the link all the time.
    claims.go_over(Path { interface: mbit(160.0), ..path }, Rate::UNBOUNDED);
    assert_eq!(slack(&claims), (0.0, false));
    claims.go_over(Path { link: Rate::UNBOUNDED, ..path }, Rate::UNBOUNDED);
    assert!(claims.allowance() < 1.0 && slack(&claims).1);
    claims.forsake();
    assert_eq!(slack(&claims), (0.0, false));
}

#[test]
fn what_is_late_is_made_up_for_as_a_pause_is_and_after_losses_too() {
    let (mut claims, nodes, now) = claims();
    let path = path(nodes[0], 50.0);
    assert_eq!(claims.late_allowance(), f64::INFINITY, "of a path nothing is known");
    claims.go_over(path, Rate::UNBOUNDED);
    assert_eq!(claims.late_allowance(), PAUSE / 8.0);
    claims.begin(nodes[0], 7, MUCH, now);
    grant(&mut claims, mbit(40.0), true, now);
    assert_eq!(claims.late_allowance(), PAUSE / 4.0);
    claims.resent(PROBES + 1, now);
    assert_eq!((claims.late_allowance(), claims.allowance()), (PAUSE / 4.0, 0.0));
    // A node alone may fill the link; what carries all that comes; who wants a rate has it.
    claims.go_over(Path { interface: mbit(160.0), ..path }, Rate::UNBOUNDED);
    assert_eq!(claims.late_allowance(), f64::INFINITY);
    claims.go_over(Path { link: Rate::UNBOUNDED, ..path }, Rate::UNBOUNDED);
    assert_eq!(claims.late_allowance(), f64::INFINITY);
    claims.go_over(path, Rate::UNBOUNDED);
    claims.hold(Some(mbit(10.0)));
    assert_eq!(claims.late_allowance(), f64::INFINITY);
}

#[test]
fn after_losses_a_pause_is_worth_nothing_for_a_while() {
    let (mut claims, nodes, now) = claims();
    claims.go_over(path(nodes[0], 50.0), Rate::UNBOUNDED);
    claims.resent(PROBES, now);
    assert!(claims.allowance() > 0.0);
    claims.resent(PROBES + 1, now);
    assert_eq!(claims.allowance(), 0.0);
    claims.resent(0, now + CAREFUL - MS);
    assert_eq!(claims.allowance(), 0.0);
    claims.resent(0, now + CAREFUL);
    assert!(claims.allowance() > 0.0);
}

#[test]
fn what_one_leaves_the_others_of_the_process_have() {
    let (mut claims, nodes, now) = claims();
    (0..).zip(&nodes).for_each(|(user, node)| claims.begin(*node, user, MUCH, now));
    grant(&mut claims, mbit(12.0), true, now);
    claims.end(nodes[0], 0);
    claims.end(nodes[1], 1);
    assert_eq!(claims.rate(), mbit(12.0));
}

#[test]
fn where_few_are_active_all_begin_faster_and_where_the_link_is_slow_slower() {
    let (mut claims, nodes, now) = claims();
    claims.begin_with(start(mbit(50.0), mbit(50.0)));
    claims.begin(nodes[0], 7, MUCH, now);
    assert_eq!(claims.rate(), mbit(50.0));
    grant(&mut claims, mbit(30.0), true, now);
    assert_eq!(claims.rate(), mbit(30.0));
    claims.end(nodes[0], 7);
    claims.go_over(path(nodes[0], 100.0), Rate::UNBOUNDED);
    claims.begin_with(start(mbit(1.0), mbit(4.0)));
    assert_eq!((claims.rate(), claims.least()), (mbit(1.0), mbit(0.5)));
    // It was a passing trouble.
    claims.begin_with(start(mbit(160.0), mbit(160.0)));
    assert_eq!(claims.least(), mbit(20.0));
}

#[test]
fn without_a_broker_all_together_keep_to_what_the_link_was_found_to_carry() {
    let (mut claims, nodes, _) = claims();
    claims.go_over(path(nodes[0], 1000.0), Rate::UNBOUNDED);
    // One has been sending alone: eight would at 16 Mbit/s each.
    claims.begin_with(start(mbit(16.0), mbit(16.0)));
    assert_eq!((claims.rate(), claims.least()), (mbit(16.0), mbit(2.0)));
    claims.forsake();
    assert_eq!(claims.rate(), mbit(2.0));
    // It carries more than was said.
    claims.begin_with(start(mbit(320.0), mbit(320.0)));
    assert_eq!(claims.least(), mbit(20.0));
    let mut endless = Claims::new(Rate::UNBOUNDED);
    endless.go_over(
        Path { link: Rate::UNBOUNDED, node: nodes[0], interface: mbit(1000.0) },
        Rate::UNBOUNDED,
    );
    endless.begin_with(start(mbit(1000.0), Rate::UNBOUNDED));
    assert_eq!(endless.least(), mbit(1000.0));
}

#[test]
fn in_a_collective_the_senders_are_known_as_long_as_there_is_a_broker() {
    let (mut claims, nodes, now) = claims();
    let everybody = one_of_each(&nodes);
    // Nobody has said what they go over.
    claims.enter(&everybody[..1], true);
    assert_eq!(claims.rate(), mbit(20.0));
    claims.leave(&everybody[..1], true);
    claims.go_over(path(nodes[0], 100.0), Rate::UNBOUNDED);
    claims.enter(&everybody[..1], true);
    assert_eq!(claims.rate(), mbit(100.0));
    // Another thread's; and the link turns out to carry less.
    claims.enter(&everybody, true);
    assert_eq!(claims.rate(), mbit(40.0));
    claims.begin_with(start(mbit(20.0), mbit(80.0)));
    assert_eq!(claims.rate(), mbit(20.0));
    claims.leave(&everybody, true);
    assert_eq!(claims.rate(), mbit(80.0));
    // Others send at the same time: what is granted counts.
    claims.begin(nodes[0], 7, MUCH, now);
    grant(&mut claims, mbit(30.0), false, now);
    assert_eq!(claims.rate(), mbit(30.0));
    grant(&mut claims, mbit(75.0), true, now);
    assert_eq!(claims.rate(), mbit(75.0));
    claims.forsake();
    assert_eq!(claims.rate(), mbit(10.0));
    claims.leave(&everybody[..1], true);
    assert_eq!(claims.rate(), mbit(10.0));
}

#[test]
fn clusters_that_collectives_send_to_share_an_uplink() {
    let mut network = Network::new();
    let clusters = [(); 4].map(|()| network.add_cluster());
    let [ours, others @ ..] = clusters;
    let nodes = [(); 4].map(|()| network.add_node(ours, Rate::UNBOUNDED));
    let links = [mbit(40.0), mbit(300.0), mbit(300.0)];
    let pairs = others.map(|other| (ours, other));
    pairs.iter().zip(links).for_each(|(&pair, link)| _ = network.add_link(link, &[pair]));
    network.add_link(mbit(160.0), &pairs);
    let mut claims = others.map(|other| {
        let mut claims = Claims::new(mbit(20.0));
        let (link, shared) = (network.between(ours, other), network.shared_between(ours, other));
        claims.go_over(Path { node: nodes[0], interface: mbit(1000.0), link }, shared);
        claims
    });
    let everybody = one_of_each(&nodes);
    let enter = |claims: &mut [Claims]| {
        claims.iter_mut().for_each(|claims| claims.enter(&everybody, true));
        let entered = claims.iter().filter(|claims| claims.is_entered()).count() as u32;
        claims.iter_mut().for_each(|claims| claims.share_links(entered));
    };
    // To one of them it is all that the link, or the uplink, leaves to one of four nodes.
    enter(&mut claims[..1]);
    assert_eq!(claims[0].rate(), mbit(10.0));
    claims[0].leave(&everybody, true);
    assert!(!claims[0].is_entered());
    enter(&mut claims[1..2]);
    assert_eq!(claims[1].rate(), mbit(40.0));
    claims[1].leave(&everybody, true);
    // To all a third of the uplink; the first has a link of its own that carries less.
    enter(&mut claims);
    let rates = claims.each_ref().map(Claims::rate);
    let third = Rate::from_bits_per_second(160e6 / 3.0 / 4.0).unwrap();
    assert_eq!(rates, [mbit(10.0), third, third]);
    // It has turned out to carry less, and what is its own is not divided.
    claims[0].begin_with(start(mbit(20.0), mbit(20.0)));
    assert_eq!(claims[0].rate(), mbit(5.0));
}

#[test]
fn of_all_who_may_send_in_a_collective_a_lone_one_need_not_find_out_each_time() {
    let (mut claims, nodes, now) = claims();
    let everybody = one_of_each(&nodes);
    claims.go_over(path(nodes[0], 1000.0), Rate::UNBOUNDED);
    claims.begin_with(start(mbit(160.0), mbit(160.0)));
    for begins in [40.0, 160.0, 160.0] {
        claims.enter(&everybody, false);
        assert_eq!(claims.rate(), mbit(begins));
        claims.begin(nodes[0], 7, MUCH, now);
        grant(&mut claims, mbit(160.0), false, now);
        grant(&mut claims, mbit(160.0), true, now);
        claims.leave(&everybody, false);
        claims.end(nodes[0], 7);
    }
    // One in which all do begins as ever.
    claims.enter(&everybody, true);
    assert_eq!(claims.rate(), mbit(40.0));
}

#[test]
fn who_is_early_in_a_collective_in_which_all_send_takes_for_a_while_no_more_than_who_has_just_begun()
 {
    let (mut claims, nodes, now) = claims();
    let everybody = one_of_each(&nodes);
    claims.go_over(path(nodes[0], 100.0), Rate::UNBOUNDED);
    claims.begin_with(start(mbit(100.0), mbit(160.0)));
    let mut begin = |senders: usize, is_sure: bool| {
        let before = claims.clone();
        claims.enter(&everybody[..senders], is_sure);
        claims.begin(nodes[0], 7, MUCH, now);
        grant(&mut claims, mbit(90.0), true, now);
        std::mem::replace(&mut claims, before)
    };
    let mut early = begin(4, true);
    assert!(early.rate() == mbit(50.0) && early.is_young());
    // Less is granted when others are seen.
    grant(&mut early, mbit(40.0), true, now);
    assert_eq!(early.rate(), mbit(40.0));
    grant(&mut early, mbit(90.0), true, now);
    assert!(!early.used(0.0, now + ALL_BEGIN - MS) && early.is_young());
    // More of it, right behind, is of the same collective.
    early.end(nodes[0], 7);
    early.begin(nodes[0], 7, MUCH, now + ALL_BEGIN - MS);
    grant(&mut early, mbit(90.0), true, now + ALL_BEGIN - MS);
    assert!(early.used(0.0, now + ALL_BEGIN), "the rate is another one");
    assert!(early.rate() == mbit(90.0) && !early.is_young());
    // Nobody else does; others need not; it is over.
    assert_eq!([begin(1, true), begin(4, false)].map(|claims| claims.rate()), [mbit(90.0); 2]);
    let mut over = begin(4, true);
    over.leave(&everybody, true);
    assert_eq!(over.rate(), mbit(90.0));
}

#[test]
fn what_was_sent_too_fast_while_a_word_was_on_its_way_is_a_debt() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 7, MUCH, now);
    grant(&mut claims, mbit(50.0), true, now + MS);
    grant(&mut claims, mbit(30.0), true, now + 9 * MS);
    assert!((claims.debt() - 20.0 * MBIT * 1e-3).abs() < 1.0);
    assert_eq!(claims.debt(), 0.0);
    // A late word of the second claim counts for a quarter.
    claims.end(nodes[0], 7);
    claims.begin(nodes[0], 7, MUCH, now);
    grant(&mut claims, mbit(50.0), true, now + 9 * MS);
    assert_eq!((claims.debt(), claims.lag), (0.0, (3 * MS + LAG_MOST) / 4));
}

#[test]
fn destinations_have_the_parts_they_were_granted() {
    let (mut claims, nodes, now) = claims();
    claims.begin(nodes[0], 0, MUCH, now);
    claims.begin(nodes[1], 1, MUCH, now);
    claims.begin(nodes[1], 2, MUCH, now);
    // Two processes of a node share what is its.
    assert_eq!([0, 1, 3].map(|n| claims.share(nodes[n])), [1.5, 0.75, 1.0]);
    grant(&mut claims, mbit(10.0), true, now);
    claims.set_share(nodes[0], 0.4);
    claims.set_share(nodes[1], 1.6);
    // 2, 4 and 4 of 10.
    assert!((claims.share(nodes[0]) - 0.6).abs() < 1e-9);
    assert!((claims.share(nodes[1]) - 1.2).abs() < 1e-9);
    claims.forsake();
    assert_eq!((claims.rate(), claims.share(nodes[0])), (mbit(20.0), 1.5));
}
