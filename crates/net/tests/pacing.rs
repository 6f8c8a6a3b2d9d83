//! A process keeps to its rate over all its connections, whatever it sends to whom.

mod common;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{eventually, finish, nets_with, pattern, receive, seconds_at, send, shutdown};
use gridmpi_net::{Congestion, Net, Online, Pacing};
use gridmpi_rate::{Network, Rate};
use gridmpi_wire::ProcId;

const EACH: usize = 600_000;

/// Process 0 is a cluster of its own, the others are the other cluster.
fn paced(bits_per_second: f64) -> Pacing {
    Pacing {
        clusters: vec![0, 1, 1, 1],
        rates: vec![None, Rate::from_bits_per_second(bits_per_second)],
        congestion: Congestion::Usual,
        online: None,
    }
}

/// Seconds until three messages at a time, with small ones between, have arrived.
fn seconds(rate: f64) -> f64 {
    let nets = nets_with(4, |config| {
        if config.me.0 == 0 {
            config.pacing = paced(rate);
        }
    });
    let started = Instant::now();
    let mut sends = Vec::new();
    for to in 1..4 {
        sends.push(send(&nets[0], 0, to, 1, pattern(to.into(), EACH)));
        sends.extend((0..20).map(|i| send(&nets[0], 0, to, 2, vec![i; 100])));
    }
    for (to, net) in (1u32..).zip(&nets[1..]) {
        for i in 0..20 {
            let (_, small) = finish(net, receive(net, 0, 2, 100));
            assert_eq!(small, Some(vec![i; 100]));
        }
        let (_, large) = finish(net, receive(net, 0, 1, EACH));
        assert!(large == Some(pattern(to.into(), EACH)), "wrong data at {to}");
    }
    let seconds = started.elapsed().as_secs_f64();
    for request in sends {
        finish(&nets[0], request);
    }
    seconds
}

#[test]
fn nothing_is_faster_than_the_rate_allows() {
    let rate = 80e6;
    // The kernel lets the first segments of three connections and half a turn go as they come, 70 KB.
    let least = seconds_at(rate, 3 * EACH - 100_000);
    let took = seconds(rate);
    assert!(took >= least, "{took} s, {least} at least");
}

/// Two processes of two clusters, of which the first sends at so many bits per second.
fn two_at(rate: f64) -> Vec<Net> {
    nets_with(2, |config| {
        config.pacing = Pacing {
            clusters: vec![0, 1],
            rates: vec![None, Rate::from_bits_per_second(rate)],
            ..Pacing::default()
        };
    })
}

#[test]
fn what_crosses_and_what_waits_is_counted() {
    let nets = two_at(40e6);
    let (came, request) =
        (receive(&nets[1], 0, 1, EACH), send(&nets[0], 0, 1, 1, pattern(1, EACH)));
    finish(&nets[1], came);
    finish(&nets[0], request);
    let (from, to) = (nets[0].counts(), nets[1].counts());
    assert!(from.sent > EACH as u64 && to.received > EACH as u64, "{from:?} {to:?}");
    assert!(to.sent < EACH as u64 && from.grants == 0, "{from:?} {to:?}");
    // 600 KB take 120 ms, but for what goes at once.
    assert!(from.stalled >= Duration::from_millis(60), "{from:?}");
    assert_eq!(to.stalled, Duration::ZERO);
    let stalled = nets[0].counts().stalled;
    assert_eq!((nets[0].counts().stalled, nets[0].retransmits()), (stalled, nets[0].retransmits()));
    shutdown(nets);
}

#[test]
fn without_a_bound_nothing_is_paced() {
    let took = seconds(f64::INFINITY);
    assert!(took < 20.0, "{took} s");
}

#[test]
fn who_waits_by_a_low_rate_goes_on_at_once_when_the_program_puts_a_higher_one() {
    let nets = two_at(100.0);
    let (came, sent) = (receive(&nets[1], 0, 1, EACH), send(&nets[0], 0, 1, 1, pattern(1, EACH)));
    // The next turn would come in two minutes.
    eventually("it waits for its turn", || nets[0].counts().stalled > Duration::ZERO);
    nets[0].hold(Rate::from_bits_per_second(80e6));
    assert!(finish(&nets[1], came).1 == Some(pattern(1, EACH)));
    finish(&nets[0], sent);
    shutdown(nets);
}

/// To two peers of a cluster that nothing is known of the way to, with so many connections to each.
fn held_and_let_go(connections: usize) {
    let nets = nets_with(3, |config| {
        config.limits.connections = Some(connections);
        if config.me.0 == 0 {
            config.pacing =
                Pacing { clusters: vec![0, 1, 1], rates: vec![None; 2], ..Pacing::default() };
        }
    });
    let hold = |rate| nets[0].hold(Rate::from_bits_per_second(rate));
    let begin = |len| {
        let came = [1, 2].map(|to: u32| receive(&nets[to as usize], 0, 1, len));
        (came, [1, 2].map(|to| send(&nets[0], 0, to, 1, pattern(to.into(), len))))
    };
    let end = |(came, sent): ([_; 2], [_; 2]), len| {
        for (to, (came, sent)) in (1..).zip(came.into_iter().zip(sent)) {
            assert!(finish(&nets[to], came).1 == Some(pattern(to as u64, len)));
            finish(&nets[0], sent);
        }
    };
    for _ in 0..2 {
        hold(1e6);
        // It would take more than a quarter of an hour, for one who is forgotten and for one whose socket keeps the rate.
        let long = 60_000_000;
        let before = nets[0].stats().bytes_out;
        let both = begin(long);
        eventually("it begins", || nets[0].stats().bytes_out > before + 30_000);
        assert!(nets[0].rates()[1].is_some());
        nets[0].hold(None);
        assert_eq!(nets[0].rates(), [None, None]);
        end(both, long);
    }
    // A rate that is put later counts as the first one did.
    hold(80e6);
    let started = Instant::now();
    end(begin(EACH), EACH);
    let least = seconds_at(80e6, 2 * EACH - 100_000);
    let took = started.elapsed().as_secs_f64();
    assert!(took >= least, "{took} s, {least} at least");
    shutdown(nets);
}

#[test]
fn a_rate_that_the_program_takes_back_leaves_nothing_behind_where_nothing_was_paced() {
    held_and_let_go(1);
}

#[test]
fn nor_does_it_where_there_are_several_connections() {
    held_and_let_go(4);
}

/// What users were told.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Processes 0 and 1 are a cluster, 2 and 3 another, each on a node of its own; 80 Mbit/s join them.
fn online() -> Pacing {
    online_over(80e6)
}

/// The same over a link that is said to carry so many bits per second.
fn online_over(link: f64) -> Pacing {
    online_of([0, 0, 1, 1], link)
}

/// Of these two clusters, which their lowest processes regulate.
fn online_of(clusters: [u16; 4], link: f64) -> Pacing {
    let mut network = Network::new();
    let ids = [network.add_cluster(), network.add_cluster()];
    let nodes = clusters.map(|cluster| network.add_node(ids[cluster as usize], Rate::UNBOUNDED));
    let rate = |bits| Rate::from_bits_per_second(bits);
    for pair in [(ids[0], ids[1]), (ids[1], ids[0])] {
        network.add_link(rate(link).unwrap(), &[pair]);
    }
    let first = clusters.iter().filter(|&&cluster| cluster == 0).count();
    Pacing {
        clusters: clusters.to_vec(),
        rates: vec![rate(link / first as f64); 2],
        congestion: Congestion::Usual,
        online: Some(Online {
            network,
            nodes: nodes.to_vec(),
            brokers: vec![ProcId(0), ProcId(first as u32)],
            names: vec!["a".into(), "b".into()],
            warn: |text| WARNINGS.lock().unwrap().push(text.to_owned()),
        }),
    }
}

fn rate_of(net: &Net) -> f64 {
    net.rates()[1].unwrap() / 1e6
}

#[test]
fn a_lone_sender_has_the_link_and_shares_it_with_the_next() {
    let nets = nets_with(4, |config| config.pacing = online());
    let long = 12_000_000;
    assert_eq!(rate_of(&nets[1]), 40.0);
    let first = send(&nets[1], 1, 3, 1, pattern(1, long));
    eventually("it has all of the link", || rate_of(&nets[1]) == 80.0);
    let second = send(&nets[0], 0, 2, 1, pattern(2, long));
    let has_half = |net: &Net| (38.0..=40.0).contains(&rate_of(net));
    eventually("both have half of it", || has_half(&nets[0]) && has_half(&nets[1]));
    let came = [receive(&nets[3], 1, 1, long), receive(&nets[2], 0, 1, long)];
    assert!(finish(&nets[3], came[0]).1 == Some(pattern(1, long)));
    assert!(finish(&nets[2], came[1]).1 == Some(pattern(2, long)));
    finish(&nets[1], first);
    finish(&nets[0], second);
    eventually("nobody has more than they began with", || {
        rate_of(&nets[0]) == 40.0 && rate_of(&nets[1]) == 40.0
    });
    let is_idle = |(from, to): (usize, u32)| nets[from].lock().is_idle(ProcId(to));
    eventually("all words are acknowledged", || {
        [(0, 1), (1, 0), (2, 3), (3, 2)].into_iter().all(is_idle)
    });
    shutdown(nets);
}

#[test]
fn without_the_broker_equal_shares_are_left_and_it_is_said() {
    let mut nets = nets_with(4, |config| {
        config.pacing = online();
        config.limits.dial_refused = Duration::from_millis(300);
    });
    let long = 6_000_000;
    let first = send(&nets[1], 1, 3, 1, pattern(1, long));
    eventually("it has all of the link", || rate_of(&nets[1]) == 80.0);
    drop(nets.remove(0));
    let is_said = |said: &String| said.contains("rank 0") && said.contains("equal share");
    eventually("the loss is said", || WARNINGS.lock().unwrap().iter().any(is_said));
    assert_eq!(rate_of(&nets[0]), 40.0);
    let came = receive(&nets[2], 1, 1, long);
    assert!(finish(&nets[2], came).1 == Some(pattern(1, long)));
    finish(&nets[0], first);
    // For the program nothing has failed.
    assert_eq!(nets[0].failure(), None);
}

#[test]
fn who_cannot_be_reached_any_more_may_still_send_at_its_share() {
    let mut nets = nets_with(4, |config| {
        config.pacing = online_of([0, 0, 0, 1], 90e6);
        config.limits.dial_refused = Duration::from_millis(300);
    });
    let transfer = |from: &Net, me: u32, to: &Net, rate: f64| {
        let came = receive(to, me, 1, 30_000_000);
        let sent = send(from, me, 3, 1, pattern(me.into(), 30_000_000));
        eventually("it has what there is", || (rate_of(from) - rate).abs() < 0.1);
        (came, sent)
    };
    // The broker knows it.
    transfer(&nets[1], 1, &nets[3], 90.0);
    // It is gone without a word, and what it was sending.
    drop(nets.remove(1));
    let (came, sent) = transfer(&nets[0], 0, &nets[2], 60.0);
    assert!(finish(&nets[2], came).1 == Some(pattern(0, 30_000_000)));
    finish(&nets[0], sent);
}

#[test]
fn in_a_collective_everybody_begins_at_the_share_of_its_senders() {
    let nets = nets_with(4, |config| config.pacing = online());
    let far = [(ProcId(2), 600_000), (ProcId(3), 600_000)];
    let (lone, both) = ([ProcId(1)], [ProcId(0), ProcId(1)]);
    assert_eq!(rate_of(&nets[1]), 40.0);
    // Too little, or nothing for another cluster.
    assert!(nets[1].enter([(ProcId(2), 5000)], lone, true).is_none());
    assert!(nets[1].enter([(ProcId(0), 600_000)], lone, true).is_none());
    let bcast = nets[1].enter(far, lone, true).unwrap();
    assert_eq!(rate_of(&nets[1]), 80.0);
    {
        let _alltoall = nets[1].enter(far, both, true).unwrap();
        assert_eq!(rate_of(&nets[1]), 40.0);
        // What is sent meanwhile, of a collective or not, is granted as always.
        let sent = send(&nets[1], 1, 3, 1, pattern(1, EACH));
        let came = receive(&nets[3], 1, 1, EACH);
        assert!(finish(&nets[3], came).1 == Some(pattern(1, EACH)));
        finish(&nets[1], sent);
    }
    eventually("the other one's share is back", || rate_of(&nets[1]) == 80.0);
    drop(bcast);
    // What was granted counts until the last of it has left.
    eventually("nobody has more than they began with", || {
        rate_of(&nets[0]) == 40.0 && rate_of(&nets[1]) == 40.0
    });
    shutdown(nets);
}

#[test]
fn who_alone_sends_in_collectives_in_which_all_may_begins_with_what_it_was_granted() {
    let nets = nets_with(4, |config| config.pacing = online());
    let enter = |is_sure| {
        let (far, both) = ([(ProcId(3), 600_000)], [ProcId(0), ProcId(1)]);
        nets[1].enter(far, both, is_sure).unwrap()
    };
    // Where nothing is granted each of the two has half.
    let is_over = || {
        let _all = enter(true);
        rate_of(&nets[1]) == 40.0
    };
    let begins = || {
        eventually("the last one is over", is_over);
        let _some = enter(false);
        let rate = rate_of(&nets[1]);
        let sent = send(&nets[1], 1, 3, 1, pattern(1, EACH));
        let came = receive(&nets[3], 1, 1, EACH);
        assert!(finish(&nets[3], came).1 == Some(pattern(1, EACH)));
        finish(&nets[1], sent);
        rate
    };
    assert_eq!(begins(), 40.0);
    eventually("it begins with all of the link", || begins() == 80.0);
    eventually("the last one is over", is_over);
    shutdown(nets);
}

/// Three clusters of a process each, which is its broker. Between these, by their numbers, there is one link of 80 Mbit/s, which is what each sends
/// at to those that are receivers of any.
fn over_one_link(pairs: [[usize; 2]; 2]) -> Vec<Net> {
    let mut network = Network::new();
    let clusters = [(); 3].map(|()| network.add_cluster());
    let nodes = clusters.map(|cluster| network.add_node(cluster, Rate::UNBOUNDED)).to_vec();
    let rate = Rate::from_bits_per_second(80e6).unwrap();
    network.add_link(rate, &pairs.map(|[from, to]| (clusters[from], clusters[to])));
    let mut rates = vec![None; 3];
    pairs.iter().for_each(|&[_, to]| rates[to] = Some(rate));
    nets_with(3, |config| {
        let online = Online {
            network: network.clone(),
            nodes: nodes.clone(),
            brokers: (0..3).map(ProcId).collect(),
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            warn: |_| {},
        };
        let (clusters, online) = (vec![0, 1, 2], Some(online));
        let congestion = Congestion::Usual;
        config.pacing = Pacing { clusters, rates: rates.clone(), congestion, online };
    })
}

#[test]
fn in_a_collective_the_clusters_that_it_sends_to_share_the_uplink() {
    let nets = over_one_link([[0, 1], [0, 2]]);
    let enter = |to: &[u32]| {
        let sends = to.iter().map(|&to| (ProcId(to), 600_000));
        nets[0].enter(sends, [ProcId(0)], true).unwrap()
    };
    let rates = || nets[0].rates()[1..].iter().map(|rate| rate.unwrap() / 1e6).collect::<Vec<_>>();
    {
        let _one = enter(&[2]);
        assert_eq!(rates(), [80.0, 80.0]);
        let _both = enter(&[1, 2]);
        assert_eq!(rates(), [40.0, 40.0]);
    }
    let one = enter(&[1]);
    assert_eq!(rates(), [80.0, 80.0]);
    // Another thread's, which is of others.
    let other = enter(&[2]);
    assert_eq!(rates(), [40.0, 40.0]);
    drop(one);
    assert_eq!(rates(), [80.0, 80.0]);
    drop(other);
    shutdown(nets);
}

#[test]
fn brokers_of_two_clusters_share_the_way_into_a_third() {
    let nets = over_one_link([[0, 2], [1, 2]]);
    let into = |from: usize| nets[from].rates()[2].unwrap() / 1e6;
    let begin = |from: u32, len: usize| {
        let came = receive(&nets[2], from, 1, len);
        (came, send(&nets[from as usize], from, 2, 1, vec![1; len]))
    };
    // Of what brokers share they grant a little less.
    let has_all = |from| (76.0..=80.0).contains(&into(from));
    let has_half = |from| (38.0..=40.0).contains(&into(from));
    let first = begin(0, 15_000_000);
    eventually("it is alone", || has_all(0));
    let second = begin(1, 30_000_000);
    eventually("it shares with one of another cluster", || has_half(0) && has_half(1));
    let end = |from: usize, (came, sent)| {
        assert_eq!(finish(&nets[2], came).0.error, None);
        finish(&nets[from], sent);
    };
    end(0, first);
    eventually("the other is alone", || has_all(1));
    end(1, second);
    shutdown(nets);
}

/// The link is said to carry 20 Mbit/s and carries much more. When all has gone well for ten seconds more is tried: so what each process sees of
/// its connections has come to the broker.
#[test]
fn what_a_link_really_carries_is_found() {
    let nets = nets_with(4, |config| config.pacing = online_over(20e6));
    // To two nodes: one alone may have an interface that carries no more.
    let long = 20_000_000;
    let came = [2, 3].map(|to: u32| receive(&nets[to as usize], 1, 1, long));
    let sent = [2, 3].map(|to| send(&nets[1], 1, to, 1, vec![1; long]));
    eventually("it has all of the link", || rate_of(&nets[1]) == 20.0);
    let until = Instant::now() + Duration::from_secs(40);
    while rate_of(&nets[1]) <= 20.0 {
        assert!(Instant::now() < until, "nothing that was seen of the link has come to the broker");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (to, (came, sent)) in (2..).zip(came.into_iter().zip(sent)) {
        finish(&nets[to], came);
        finish(&nets[1], sent);
    }
    shutdown(nets);
}
