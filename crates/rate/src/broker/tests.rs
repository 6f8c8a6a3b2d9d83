//! Brokers that are told of transfers, and what they grant.

use super::*;

fn mbit(value: f64) -> Rate {
    Rate::from_bits_per_second(value * 1e6).unwrap()
}

/// Clusters of four nodes, interfaces of 50 Mbit/s, each pair joined by 160 Mbit/s.
fn site(clusters: u32) -> (Network, Vec<ClusterId>, Vec<Vec<NodeId>>, Instant) {
    site_of(clusters, mbit(50.0))
}

/// The same with such interfaces.
fn site_of(clusters: u32, interface: Rate) -> (Network, Vec<ClusterId>, Vec<Vec<NodeId>>, Instant) {
    let mut network = Network::new();
    let ids: Vec<_> = (0..clusters).map(|_| network.add_cluster()).collect();
    let mut add = |&id: &ClusterId| (0..4).map(|_| network.add_node(id, interface)).collect();
    let nodes: Vec<Vec<NodeId>> = ids.iter().map(&mut add).collect();
    for &from in &ids {
        for &to in ids.iter().filter(|&&to| to != from) {
            network.add_link(mbit(160.0), &[(from, to)]);
        }
    }
    (network, ids, nodes, Instant::now())
}

/// A step when what comes to receivers has piled up there for a while.
fn later(broker: &mut Broker, now: Instant) -> Vec<(Process, Order)> {
    broker.step(now);
    broker.step(now + 10 * YOUNG)
}

/// What some of the orders say, and to whom.
fn told<T>(orders: &[(Process, Order)], what: impl Fn(Order) -> Option<T>) -> Vec<(Process, T)> {
    orders.iter().filter_map(|&(process, order)| Some((process, what(order)?))).collect()
}

/// Grants, by whether it is quiet.
fn is_quiet(orders: Vec<(Process, Order)>) -> Vec<(Process, bool)> {
    told(&orders, |order| match order {
        Order::Grant { grant, .. } => Some(grant.is_quiet),
        _ => None,
    })
}

/// Grants, in Mbit/s.
fn rates(orders: &[(Process, Order)]) -> Vec<(Process, f64)> {
    told(orders, |order| match order {
        Order::Grant { grant: Grant { rate, .. }, .. } => {
            Some((rate.bits_per_second() / 1e5).round() / 10.0)
        }
        _ => None,
    })
}

#[test]
fn a_lone_sender_has_its_interface_and_gives_way() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 50.0)]);
    assert!(broker.step(now + YOUNG).is_empty() && !broker.wants_step(now));
    // Four nodes fill the link; each sends to one.
    (1..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 40.0), (1, 40.0), (2, 40.0), (3, 40.0)]);
    broker.end(2, nodes[0][2], nodes[1][2]);
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 50.0), (1, 50.0), (3, 50.0)]);
    assert!(broker.notices().is_empty(), "with two clusters nobody else is concerned");
}

#[test]
fn nodes_count_alike_and_their_processes_share() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    // Node 0 has two processes that send to one node, node 1 one that sends to all.
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    broker.begin(1, nodes[0][0], nodes[1][0], now);
    nodes[1].iter().for_each(|&to| broker.begin(2, nodes[0][1], to, now));
    // All of the receiver's interface that is wanted: 5 parts, of which node 1 has one; it fills its own interface.
    let orders = later(&mut broker, now);
    assert_eq!(rates(&orders), [(0, 20.0), (1, 20.0), (2, 50.0)]);
    let of_node = |(_, order): &(Process, Order)| match *order {
        Order::Grant { grant: Grant { node, .. }, .. } => {
            Some((node.bits_per_second() / 1e6).round())
        }
        _ => None,
    };
    assert_eq!(orders.iter().filter_map(of_node).collect::<Vec<_>>(), [40.0, 40.0, 50.0]);
    let share = |(process, order): &(Process, Order)| match *order {
        Order::Share { to, share } => Some((*process, to, (share * 100.0).round() / 100.0)),
        _ => None,
    };
    // Of 50, 10 and three times 13.3.
    let mut wanted: Vec<_> = nodes[1][1..].iter().map(|&to| (2, to, 1.07)).collect();
    wanted.insert(0, (2, nodes[1][0], 0.8));
    assert_eq!(orders.iter().filter_map(share).collect::<Vec<_>>(), wanted);
}

#[test]
fn an_old_share_is_taken_back_even_if_it_was_told_late() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    let to = nodes[1][0];
    let share = |orders: Vec<(Process, Order)>| {
        let of_it = |(process, order): (Process, Order)| match order {
            Order::Share { to: node, share } if (process, node) == (2, to) => Some(share),
            _ => None,
        };
        orders.into_iter().find_map(of_it)
    };
    (0..2).for_each(|process| broker.begin(process, nodes[0][0], to, now));
    nodes[1].iter().for_each(|&to| broker.begin(2, nodes[0][1], to, now));
    assert!(share(later(&mut broker, now)).is_some_and(|share| share < 0.9));
    // The word is on its way while it ends and begins again, and now all of its are alike.
    broker.end(2, nodes[0][1], to);
    (0..2).for_each(|process| broker.end(process, nodes[0][0], to));
    broker.begin(2, nodes[0][1], to, now);
    assert_eq!(share(broker.step(now + 20 * YOUNG)), Some(1.0));
    broker.lost(2);
    assert!(broker.shares.keys().all(|of| of.0 != 2), "nothing is kept of who is gone");
}

#[test]
fn an_uplink_that_several_share_is_left_as_it_was_said() {
    let (mut network, now) = (Network::new(), Instant::now());
    let ids = [0; 3].map(|_| network.add_cluster());
    let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, mbit(50.0))));
    network.add_link(mbit(1000.0), &[(ids[0], ids[1]), (ids[0], ids[2])]);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..2).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
    for window in 0..100 {
        let at = now + YOUNG + Duration::from_millis(200 * window);
        broker.step(at);
        broker.seen(
            ids[1],
            Seen { arrived: 1000, resent: if window < 50 { 200 } else { 0 }, queued: None },
            Seen::every(8),
            at,
        );
    }
    assert_eq!(broker.corrections(), []);
}

#[test]
fn what_a_full_uplink_loses_is_not_taken_for_a_links() {
    let (mut network, now) = (Network::new(), Instant::now());
    let ids = [0; 3].map(|_| network.add_cluster());
    let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, mbit(200.0))));
    network.add_link(mbit(100.0), &[(ids[0], ids[1])]);
    network.add_link(mbit(100.0), &[(ids[0], ids[2])]);
    network.add_link(mbit(100.0), &[(ids[0], ids[1]), (ids[0], ids[2])]);
    let mut broker =
        Broker::new(ids[0], network, Parts { draining: 0.9, wary: 0.95, ..Parts::ALL });
    let (mut at, mut granted) = (now + YOUNG, BTreeMap::new());
    let mut lose = |broker: &mut Broker, to| {
        for _ in 0..80 {
            at += Duration::from_millis(50);
            granted.extend(rates(&broker.step(at)));
            let seen = Seen { arrived: 100, resent: 20, queued: None };
            broker.seen(to, seen, Seen::every(8), at);
        }
        granted.values().sum::<f64>().round()
    };
    let pairs = [1, 2].map(|to| [0, 1].map(|n| (nodes[0][n], nodes[to][n])));
    for (process, (from, to)) in (0..).zip(pairs.into_iter().flatten()) {
        broker.begin(process, from, to, now);
    }
    assert_eq!(lose(&mut broker, ids[1]), 95.0, "the uplink has lost it, and is granted with care");
    assert_eq!(broker.links.to(ids[1]), mbit(100.0), "two clusters are sent to");
    (2..).zip(pairs[1]).for_each(|(process, (from, to))| broker.end(process, from, to));
    lose(&mut broker, ids[1]);
    assert!(broker.links.to(ids[1]) < mbit(100.0), "nobody else fills it");
}

/// What all are granted of a link of 160 Mbit/s, as a part of it.
fn part(granted: &mut BTreeMap<Process, f64>, orders: &[(Process, Order)]) -> f64 {
    granted.extend(rates(orders));
    (granted.values().sum::<f64>() / 160.0 * 1e3).round() / 1e3
}

#[test]
fn what_several_leave_of_a_link_lets_drain_what_waits_or_is_for_what_it_loses() {
    let (network, ids, nodes, now) = site_of(2, mbit(160.0));
    let parts = Parts { links: 0.99, draining: 0.9, wary: 0.95, receivers: 1.0 };
    let (mut broker, mut granted) = (Broker::new(ids[0], network, parts), BTreeMap::new());
    (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
    assert_eq!(part(&mut granted, &broker.step(now)), 0.9);
    let settled = now + YOUNG;
    broker.step(settled);
    // In between nothing changes.
    let due = broker.due().unwrap();
    assert!(due > settled && !broker.wants_step(settled) && broker.wants_step(due));
    assert_eq!(part(&mut granted, &broker.step(due)), 0.99);
    assert_eq!(broker.due(), None);
    let lost = Seen { arrived: 600, resent: 9, queued: None };
    let (every, lost_at) = (Duration::from_millis(50), due + Duration::from_millis(200));
    broker.seen(ids[1], lost, every, due);
    assert!(!broker.wants_step(due));
    broker.seen(ids[1], lost, every, lost_at);
    assert!(broker.wants_step(lost_at));
    assert_eq!(part(&mut granted, &broker.step(lost_at)), 0.95);
    let trusted = broker.due().unwrap();
    assert_eq!(part(&mut granted, &broker.step(trusted)), 0.99);
    assert_eq!(broker.due(), None);
}

#[test]
fn nothing_waits_before_a_link_that_has_room_for_all_but_a_few() {
    let (network, ids, nodes, now) = site(2);
    let parts = Parts { links: 0.99, draining: 0.9, wary: 0.95, receivers: 1.0 };
    let (mut broker, mut granted) = (Broker::new(ids[0], network, parts), BTreeMap::new());
    // Three have room, and of the fourth a fifth part.
    for n in 0..4 {
        broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now);
        part(&mut granted, &broker.step(now));
    }
    assert_eq!(granted.len(), 4);
    assert_eq!(part(&mut granted, &[]), 0.99);
}

#[test]
fn a_lone_sender_has_all_of_a_link_and_several_leave_something() {
    let (mut network, ids, _, now) = site(2);
    let fast = network.add_node(ids[0], mbit(1000.0));
    let other = network.add_node(ids[0], mbit(1000.0));
    let far = [1000.0, 1000.0].map(|rate| network.add_node(ids[1], mbit(rate)));
    let mut broker = Broker::new(
        ids[0],
        network,
        Parts { links: 0.95, draining: 0.95, wary: 0.95, ..Parts::ALL },
    );
    far.iter().for_each(|&to| broker.begin(0, fast, to, now));
    assert_eq!(rates(&broker.step(now)), [(0, 160.0)]);
    broker.begin(1, other, far[0], now);
    assert_eq!(rates(&broker.step(now)), [(0, 76.0), (1, 76.0)]);
}

#[test]
fn a_lone_sender_has_all_of_a_receiver_and_several_leave_something() {
    let (mut network, ids, mut nodes, now) = site(2);
    let fast = network.add_node(ids[0], mbit(100.0));
    nodes[0].push(fast);
    let mut broker = Broker::new(ids[0], network, Parts { receivers: 0.9, ..Parts::ALL });
    broker.begin(0, fast, nodes[1][0], now);
    assert_eq!(rates(&later(&mut broker, now)), [(0, 50.0)]);
    broker.begin(1, nodes[0][0], nodes[1][0], now + 10 * YOUNG);
    assert_eq!(rates(&broker.step(now + 10 * YOUNG)), [(0, 22.5), (1, 22.5)]);
}

#[test]
fn the_young_are_settled_when_they_are_no_longer() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    let of = |process, mbits, is_settled, is_quiet| {
        let rate = mbit(mbits);
        let grant = Grant { rate, node: rate, is_settled, is_quiet };
        (process, Order::Grant { to: ids[1], grant })
    };
    let grant = |process, mbits, is_settled| of(process, mbits, is_settled, true);
    // Who has had more than the others could.
    let grant_beside_another = |process, mbits, is_settled| of(process, mbits, is_settled, false);
    let ms = Duration::from_millis(1);
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    assert_eq!(broker.step(now), [grant(0, 50.0, false)]);
    broker.begin(1, nodes[0][1], nodes[1][1], now + ms);
    assert_eq!(broker.step(now + ms), [grant(1, 50.0, false)]);
    assert_eq!(broker.due(), Some(now + YOUNG));
    assert!(!broker.wants_step(now + 2 * ms) && broker.wants_step(now + YOUNG));
    assert_eq!(broker.step(now + YOUNG), [grant(0, 50.0, true)]);
    // One that ends young and begins again is young again.
    broker.end(1, nodes[0][1], nodes[1][1]);
    broker.begin(1, nodes[0][1], nodes[1][1], now + 4 * ms);
    assert_eq!(broker.step(now + ms + YOUNG), [grant_beside_another(1, 50.0, false)]);
    assert_eq!(broker.step(now + 4 * ms + YOUNG), [grant_beside_another(1, 50.0, true)]);
    assert_eq!(broker.due(), None);
}

#[test]
fn it_stays_quiet_while_all_who_send_have_what_everybody_may() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    let at = |ms| now + Duration::from_millis(ms);
    let all = |is_quiet| (0..4).map(|n| (n, is_quiet)).collect::<Vec<_>>();
    (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
    assert_eq!(is_quiet(broker.step(now)), all(true));
    assert_eq!(is_quiet(broker.step(at(1000))), all(true), "40 of 160 Mbit/s each");
    // One has ended: the others have 50.
    broker.end(3, nodes[0][3], nodes[1][3]);
    assert_eq!(is_quiet(broker.step(at(1000))), all(true)[..3]);
    // What they have more than 40 matters when it is together a node's part of what may be ahead.
    let due = broker.due().unwrap();
    let seconds = (due - at(1000)).as_secs_f64();
    assert!((seconds - unclaimed::ahead_of_all() / 4.0 / 30e6).abs() < 1e-6, "{seconds}");
    assert_eq!(is_quiet(broker.step(due - Duration::from_micros(1))), []);
    assert!(broker.wants_step(due));
    assert_eq!(is_quiet(broker.step(due)), [(3, false)]);
    assert_eq!(broker.due(), None);
}

#[test]
fn it_is_quiet_where_no_other_has_sent_for_long() {
    let (network, ids, nodes, now) = site(3);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..3).for_each(|n| broker.join(n, nodes[0][n as usize]));
    let _ = broker.step(now);
    // So long one with 10 Mbit/s more than everybody may always have is borne.
    let long = now + Duration::from_millis(9);
    // Two that are young do not count for each other, nor does one that is no longer for itself; who has ended is told.
    (0..2).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][0], now));
    assert_eq!(is_quiet(broker.step(now)), [(0, true), (1, true)]);
    broker.end(1, nodes[0][1], nodes[1][0]);
    assert_eq!(is_quiet(broker.step(long)), [(0, true), (1, false)]);
    broker.begin(1, nodes[0][1], nodes[1][0], long);
    assert_eq!(is_quiet(broker.step(long)), [(0, true), (1, false)]);
    // Who sends to another cluster may share an uplink with them.
    broker.begin(2, nodes[0][2], nodes[2][0], long);
    assert_eq!(is_quiet(broker.step(long)), [(2, false)]);
}

#[test]
fn who_asks_what_it_is_granted_is_told_and_stays_what_it_is() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    let (from, to) = (nodes[0][0], nodes[1][0]);
    broker.begin(0, from, to, now);
    let settled = now + YOUNG;
    assert_eq!(rates(&broker.step(settled)), [(0, 50.0)]);
    broker.begin(0, from, to, settled);
    broker.end(0, from, to);
    assert!(broker.wants_step(settled));
    let orders = broker.step(settled);
    assert!(matches!(
        orders[..],
        [(0, Order::Grant { grant: Grant { is_settled: true, .. }, .. })]
    ));
    assert_eq!(rates(&orders), [(0, 50.0)]);
    broker.end(0, from, to);
    broker.begin(1, nodes[0][1], to, settled);
    let after = rates(&broker.step(settled + YOUNG));
    assert!(after.contains(&(1, 50.0)) && !after.contains(&(0, 50.0)), "{after:?}");
}

#[test]
fn what_changes_nothing_for_a_process_is_not_told() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][0], now));
    assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
    // More destinations, or fewer, of a process that is held to the link's share anyway.
    (0..4).for_each(|n| broker.end(n, nodes[0][n as usize], nodes[1][0]));
    (0..4).for_each(|n| {
        nodes[1].iter().for_each(|&to| broker.begin(n, nodes[0][n as usize], to, now))
    });
    assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
    broker.end(2, nodes[0][2], nodes[1][3]);
    broker.end(2, nodes[0][2], nodes[1][1]);
    assert_eq!(broker.step(now + YOUNG), []);
}

#[test]
fn an_incast_is_shared_with_other_clusters() {
    let (network, ids, nodes, now) = site(3);
    let mut a = Broker::new(ids[0], network.clone(), Parts::ALL);
    let mut b = Broker::new(ids[1], network, Parts::ALL);
    a.begin(0, nodes[0][0], nodes[2][0], now);
    assert_eq!(rates(&a.step(now + YOUNG)), [(0, 50.0)]);
    let told = a.notices();
    assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [ids[1], ids[2]]);
    b.heard(ids[0], told[0].1);
    b.begin(9, nodes[1][3], nodes[2][0], now);
    assert_eq!(rates(&later(&mut b, now)), [(9, 25.0)]);
    b.notices().iter().filter(|(to, _)| *to == ids[0]).for_each(|(_, n)| a.heard(ids[1], *n));
    assert_eq!(rates(&a.step(now + YOUNG)), [], "the receiver's switch holds that for a moment");
    assert_eq!(rates(&a.step(now + 2 * YOUNG)), [(0, 25.0)]);
    a.deaf_to(ids[1]);
    assert_eq!(rates(&a.step(now + 20 * YOUNG)), [(0, 50.0)]);
}

#[test]
fn a_link_that_carries_less_than_was_said_is_granted_less_and_people_are_told() {
    let (mut network, ids, nodes, now) = site(2);
    network.set_between(ids[0], ids[1], mbit(1600.0));
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
    assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
    let ms = Duration::from_millis(1);
    // 100 of the 200 Mbit/s arrive.
    for window in 1..=20 {
        let arrived = (100e6 * 0.2 / 1538.0 / 8.0) as u64;
        let granted = broker.granted[&(0, ids[1])].0 * 4.0;
        let resent = ((granted - 100e6).max(0.0) * 0.2 / 1538.0 / 8.0) as u64;
        let later = now + YOUNG + 200 * window * ms;
        broker.seen(ids[1], Seen { arrived, resent, queued: None }, Seen::every(4), later);
        broker.step(later);
    }
    let rate = broker.granted[&(0, ids[1])].0 / 1e6;
    assert!((23.0..27.0).contains(&rate), "{rate}");
    let told = broker.corrections();
    assert_eq!((told[0].to, told[0].said), (ids[1], mbit(1600.0)));
    assert!(told[0].found < mbit(110.0) && told.len() == 1, "{told:?}");
    assert!(broker.corrections().is_empty());
}

#[test]
fn what_a_link_has_turned_out_to_carry_is_known_to_brokers_whose_transfers_meet_ours() {
    let (mut network, now) = (Network::new(), Instant::now());
    let ids = [0; 3].map(|_| network.add_cluster());
    let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, mbit(500.0))));
    network.add_link(mbit(800.0), &[(ids[0], ids[2])]);
    network.add_link(mbit(1000.0), &[(ids[1], ids[2])]);
    let [mut a, mut b] = [0, 1].map(|of| Broker::new(ids[of], network.clone(), Parts::ALL));
    let begin = |broker: &mut Broker, of: usize, now| {
        let pairs = nodes[of].iter().flat_map(|&from| nodes[2].map(|to| (from, to)));
        pairs.zip(0..).for_each(|((from, to), n)| broker.begin(n / 2, from, to, now));
    };
    let tell = |from: &mut Broker, of: usize, to: &mut Broker| {
        let its = to.cluster;
        let told = from.notices().into_iter().filter(|(cluster, _)| *cluster == its);
        told.for_each(|(_, notice)| to.heard(ids[of], notice));
    };
    let granted = |broker: &Broker| broker.granted[&(0, ids[2])].0 / 1e6;
    begin(&mut a, 0, now);
    a.step(now);
    let mut at = now;
    // 100 of the 800 Mbit/s arrive.
    for _ in 0..50 {
        at += Duration::from_millis(200);
        let of = |bits: f64| (bits * 0.2 / 1538.0 / 8.0) as u64;
        let sent = 2.0 * granted(&a) * 1e6;
        let seen = Seen {
            arrived: of(sent.min(100e6)),
            resent: of((sent - 100e6).max(0.0)),
            queued: None,
        };
        a.seen(ids[2], seen, Seen::every(2), at);
        a.step(at);
    }
    tell(&mut a, 0, &mut b);
    begin(&mut b, 1, at);
    tell(&mut b, 1, &mut a);
    for broker in [&mut a, &mut b] {
        later(broker, at);
    }
    assert!((45.0..55.0).contains(&granted(&a)), "{}", granted(&a));
    assert!((445.0..455.0).contains(&granted(&b)), "{}", granted(&b));
}

#[test]
fn members_learn_how_many_are_to_be_expected() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.join(n, nodes[0][n as usize]));
    let round = |broker: &mut Broker, senders: u32| {
        let pair = |n: u32| (nodes[0][n as usize], nodes[1][n as usize]);
        (0..senders).for_each(|n| broker.begin(n, pair(n).0, pair(n).1, now));
        (0..senders).for_each(|n| broker.end(n, pair(n).0, pair(n).1));
    };
    (0..3).for_each(|_| round(&mut broker, 1));
    assert_eq!(broker.step(now + YOUNG), [], "that is too early to tell");
    round(&mut broker, 1);
    let start = |process, [rate, short]: [f64; 2]| {
        let start = Start { rate: mbit(rate), short: mbit(short), link: mbit(160.0) };
        (process, Order::Start { to: ids[1], start })
    };
    assert_eq!(broker.step(now + YOUNG), [0, 1, 2, 3].map(|process| start(process, [50.0; 2])));
    round(&mut broker, 3);
    assert_eq!(broker.step(now + YOUNG), [], "three have all of their interfaces, too");
    round(&mut broker, 4);
    assert_eq!(broker.step(now + YOUNG).last(), Some(&start(3, [40.0; 2])));
    broker.join(7, nodes[0][1]);
    broker.join(7, nodes[0][1]);
    assert!(broker.wants_step(now));
    // Were all five there they would not have nearly all of their interfaces: what is over soon begins as the mean of them leaves it.
    assert_eq!(
        broker.step(now + YOUNG),
        [0, 1, 2, 3, 7].map(|process| start(process, [40.0, 50.0]))
    );
}

/// What is over soon with no more than others, since the link leads to several clusters, or from them; Mbit/s.
fn begins_with(start: Start) -> f64 {
    assert_eq!(start.short, start.rate);
    (start.rate.bits_per_second() / 1e6).round()
}

#[test]
fn those_who_send_to_several_clusters_begin_with_what_one_uplink_leaves_them() {
    let mut network = Network::new();
    let ids = [(); 3].map(|()| network.add_cluster());
    let nodes: Vec<_> = (0..4).map(|_| network.add_node(ids[0], mbit(50.0))).collect();
    let far = [network.add_node(ids[1], mbit(50.0)), network.add_node(ids[2], mbit(50.0))];
    network.add_link(mbit(160.0), &[(ids[0], ids[1]), (ids[0], ids[2])]);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.join(n, nodes[n as usize]));
    let now = Instant::now();
    for round in 1..=5 {
        let transfers = (0..4).flat_map(|n| far.map(|to| (n, nodes[n as usize], to)));
        transfers.clone().for_each(|(n, from, to)| broker.begin(n, from, to, now));
        let told = broker.step(now);
        let starts = told.iter().filter_map(|(process, order)| match order {
            Order::Start { to, start } => Some((*process, *to, begins_with(*start))),
            _ => None,
        });
        // Told once each, however often it has changed until then.
        let all = ids[1..].iter().flat_map(|&to| (0..4).map(move |n| (n, to, 20.0)));
        let expected: Vec<_> = all.filter(|_| round == 1).collect();
        assert_eq!(starts.collect::<Vec<_>>(), expected, "round {round}");
        transfers.for_each(|(n, from, to)| broker.end(n, from, to));
    }
}

#[test]
fn what_is_gone_counts_no_longer_and_nonsense_never_did() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    broker.begin(1, nodes[0][1], nodes[1][0], now);
    assert_eq!(rates(&later(&mut broker, now)), [(0, 25.0), (1, 25.0)]);
    broker.lost(0);
    assert_eq!(rates(&broker.step(now + 20 * YOUNG)), [(1, 50.0)]);
    broker.end(0, nodes[0][0], nodes[1][0]);
    broker.end(1, nodes[0][0], nodes[1][0]);
    // A node that is not the teller's own.
    let nonsense = Notice::Transfer { from: nodes[0][0], to: nodes[1][0], is_active: true };
    broker.heard(ids[1], nonsense);
    assert!(!broker.wants_step(now));
}

#[test]
fn who_cannot_be_heard_any_more_keeps_its_share_of_what_there_is() {
    let (network, ids, nodes, now) = site_of(2, mbit(200.0));
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    // Node 3 has two processes, and so has node 2, of one of which nothing was heard so far.
    for (process, node) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)] {
        broker.join(process, nodes[0][node]);
    }
    broker.step(now);
    broker.begin(0, nodes[0][0], nodes[1][0], now);
    broker.begin(3, nodes[0][3], nodes[1][1], now);
    broker.step(now);
    broker.cut_off(3, nodes[0][3]);
    // Half of a quarter of the link is left to it.
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 140.0)]);
    // Its mate has the other half; one of whom nothing was ever heard shares a quarter, too.
    broker.cut_off(4, nodes[0][3]);
    broker.cut_off(5, nodes[0][2]);
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 100.0)]);
    [(2, 2), (1, 1)]
        .into_iter()
        .for_each(|(process, node)| broker.cut_off(process, nodes[0][node]));
    assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 40.0)]);
}

#[test]
fn what_a_link_turns_out_to_carry_is_shared_with_who_cannot_be_heard() {
    let (network, ids, ..) = site(2);
    let mut links = Links::new(ids[0], &network, Parts::ALL);
    links.reserve(0.25);
    links.believe(ids[0], ids[1], mbit(80.0));
    assert_eq!((links.to(ids[1]), links.lone.between(ids[0], ids[1])), (mbit(80.0), mbit(60.0)));
    links.believe(ids[1], ids[0], mbit(80.0));
    assert_eq!(links.lone.between(ids[1], ids[0]), mbit(80.0));
}

#[test]
fn those_who_gather_into_one_cluster_begin_with_what_its_uplink_leaves_them_all() {
    let mut network = Network::new();
    let ids = [(); 3].map(|()| network.add_cluster());
    let mut add = |id| (0..4).map(|_| network.add_node(id, mbit(50.0))).collect::<Vec<_>>();
    let [ours, theirs, far] = ids.map(&mut add);
    network.add_link(mbit(160.0), &[(ids[0], ids[2]), (ids[1], ids[2])]);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.join(n, ours[n as usize]));
    let now = Instant::now();
    let starts = |broker: &mut Broker| {
        told(&broker.step(now), |order| match order {
            Order::Start { start, .. } => Some(begins_with(start)),
            _ => None,
        })
    };
    let all = |rate: f64| (0..4).map(|process| (process, rate)).collect::<Vec<_>>();
    (0..4).for_each(|n| broker.begin(n, ours[n as usize], far[n as usize], now));
    assert_eq!(starts(&mut broker), all(40.0));
    for node in &theirs {
        let notice = Notice::Transfer { from: *node, to: far[0], is_active: true };
        broker.heard(ids[1], notice);
        broker.heard(ids[1], notice);
    }
    assert_eq!(starts(&mut broker), all(20.0));
    // Who cannot be heard any more is still remembered for a while, and then not.
    broker.deaf_to(ids[1]);
    assert_eq!(starts(&mut broker), []);
    for _ in 0..4 {
        broker.end(0, ours[0], far[0]);
        broker.begin(0, ours[0], far[0], now);
    }
    assert_eq!(starts(&mut broker), []);
    for _ in 0..4 {
        broker.end(0, ours[0], far[0]);
        broker.begin(0, ours[0], far[0], now);
    }
    assert_eq!(starts(&mut broker), all(40.0));
}

/// Those who are told what need not be claimed, and how much is left to each, Mbit/s.
fn rooms(orders: &[(Process, Order)]) -> Vec<(Process, f64)> {
    told(orders, |order| match order {
        Order::Room { rate, .. } => Some((rate.bits_per_second() / 1e6).round()),
        _ => None,
    })
}

#[test]
fn where_few_send_at_the_same_time_all_are_told_for_how_many_there_is_room() {
    let (network, ids, nodes, now) = site(2);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.join(n, nodes[0][n as usize]));
    let pair = |n: u32| (nodes[0][n as usize], nodes[1][n as usize]);
    let begin = |broker: &mut Broker, n, now| broker.begin(n, pair(n).0, pair(n).1, now);
    let round = |broker: &mut Broker, senders: u32, now| {
        (0..senders).for_each(|n| begin(broker, n, now));
        let orders = broker.step(now);
        (0..senders).for_each(|n| broker.end(n, pair(n).0, pair(n).1));
        rooms(&orders)
    };
    // The first call is a long one, of eight transfers for each.
    assert_eq!([1; 31].map(|senders| round(&mut broker, senders, now)), [const { vec![] }; 31]);
    let told = |rate: f64| [0, 1, 2, 3].map(|process| (process, rate)).to_vec();
    assert_eq!(round(&mut broker, 1, now), told(80.0));
    // Until that has lapsed nobody counts, and where all send there is none.
    assert_eq!([4; 4].map(|senders| round(&mut broker, senders, now)), [const { vec![] }; 4]);
    let now = now + 2 * crate::room::HOLDS;
    assert_eq!([4; 4].map(|senders| round(&mut broker, senders, now)), [const { vec![] }; 4]);
    // Nor beside one that sends for long.
    begin(&mut broker, 3, now);
    let now = now + YOUNG;
    assert_eq!([2; 4].map(|senders| round(&mut broker, senders, now)), [const { vec![] }; 4]);
    broker.end(3, pair(3).0, pair(3).1);
    assert_eq!([2; 4].map(|senders| round(&mut broker, senders, now)).last(), Some(&told(80.0)));
}

#[test]
fn nobody_is_told_of_room_on_an_uplink_that_leads_to_several_or_that_others_use() {
    for other in [(0, 2), (2, 1)] {
        is_told_of_no_room(other);
    }
}

/// Where the link from the first of three clusters to the second is also this one's.
fn is_told_of_no_room((from_other, to_other): (usize, usize)) {
    let mut network = Network::new();
    let ids = [(); 3].map(|()| network.add_cluster());
    let from = [(); 4].map(|()| network.add_node(ids[0], mbit(50.0)));
    let to = network.add_node(ids[1], mbit(50.0));
    network.add_node(ids[2], mbit(50.0));
    network.add_link(mbit(160.0), &[(ids[0], ids[1]), (ids[from_other], ids[to_other])]);
    let mut broker = Broker::new(ids[0], network, Parts::ALL);
    (0..4).for_each(|n| broker.join(n, from[n as usize]));
    let now = Instant::now();
    for _ in 0..20 {
        broker.begin(0, from[0], to, now);
        assert_eq!(rooms(&broker.step(now)), []);
        broker.end(0, from[0], to);
    }
}
