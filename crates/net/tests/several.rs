//! Several connections between two processes at once.

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_net::{Bound, Net, NetConfig, Pacing, Security, Way};
use gridmpi_rate::Rate;
use proxy::Proxy;

const MIB: usize = 1 << 20;

fn four(count: u32) -> Vec<Net> {
    nets_with(count, |config| config.limits.connections = Some(4))
}

/// Both send so many bytes to each other at the same time.
fn swap(nets: &[Net], seed: u64, len: usize) {
    std::thread::scope(|scope| {
        for me in 0..2u32 {
            let net = &nets[me as usize];
            scope.spawn(move || {
                let wanted = receive(net, 1 - me, 7, len);
                let sent = send(net, me, 1 - me, 7, pattern(seed + u64::from(me), len));
                let (completion, bytes) = finish(net, wanted);
                assert_eq!(completion.error, None);
                assert!(bytes == Some(pattern(seed + u64::from(1 - me), len)), "the bytes differ");
                assert_eq!(finish(net, sent).0.error, None);
            });
        }
    });
}

#[test]
fn small_talk_has_one_connection_and_much_to_say_has_more() {
    let nets = four(2);
    for round in 0..200 {
        swap(&nets, round, 3000);
    }
    assert_eq!(nets.iter().map(|net| net.stats().connections).max(), Some(1));
    for round in 0..5 {
        swap(&nets, round, 24 * MIB);
    }
    eventually("they have four", || nets.iter().all(|net| net.stats().connections >= 4));
    swap(&nets, 9, 24 * MIB);
    for round in 0..50 {
        swap(&nets, round, [0, 10, 70_000, 300_000][round as usize % 4]);
    }
    shutdown(nets);
}

#[test]
fn who_may_have_one_takes_more_from_who_may() {
    let nets =
        nets_with(2, |config| config.limits.connections = Some([1, 16][config.me.0 as usize]));
    for round in 0..4 {
        swap(&nets, round, 24 * MIB);
    }
    eventually("all are made", || nets.iter().all(|net| net.stats().connections >= 16));
    swap(&nets, 8, 24 * MIB);
    shutdown(nets);
}

#[test]
fn a_way_on_which_every_connection_is_cut_is_seldom_tried_beside_one_that_stands() {
    let bound = [loopback(), loopback()];
    let at: Vec<SocketAddr> = bound.iter().map(|bound| bound.addresses()[0]).collect();
    let bad: Vec<Proxy> = at.iter().map(|address| Proxy::cutting(*address)).collect();
    let ways = |to: usize| [at[to], bad[to].address].map(|way| Way::Direct(vec![way])).to_vec();
    let start = |(me, bound)| {
        let mut config = config(me, vec![Vec::new(); 2]);
        config.peers = (0..2).map(ways).collect();
        Net::start(bound, config).unwrap()
    };
    let nets: Vec<Net> = (0..2).zip(bound).map(start).collect();
    let (began, mut round) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(1500) {
        round += 1;
        swap(&nets, round, 3 * MIB);
    }
    let made: usize = bad.iter().map(Proxy::made).sum();
    // Each at once, and once a second.
    assert!((1..=2 * 3 + 2 * began.elapsed().as_secs() as usize).contains(&made), "{made}");
    shutdown(nets);
}

#[test]
fn an_unexpected_large_message_over_several_waits_for_its_receive() {
    let nets = four(2);
    swap(&nets, 1, 40 * MIB);
    for round in 0..3 {
        let sent = pattern(round, 40 * MIB);
        let before = nets[1].stats().bytes_in;
        let request = send(&nets[0], 0, 1, 5, sent.clone());
        eventually("something arrives", || nets[1].stats().bytes_in > before + MIB as u64);
        let (_, bytes) = finish(&nets[1], receive(&nets[1], 0, 5, sent.len()));
        assert!(bytes.as_deref() == Some(&sent[..]), "the bytes differ");
        finish(&nets[0], request);
    }
    shutdown(nets);
}

#[test]
fn encrypted_connections_share_as_others_do() {
    let nets = nets_with(2, |config| {
        config.limits.connections = Some(4);
        config.security = Some(Security::of_job(config.job, &config.key).unwrap());
    });
    for round in 0..6 {
        swap(&nets, round, [24 * MIB, 10, 3 * MIB][round as usize % 3]);
    }
    eventually("they have four", || nets.iter().all(|net| net.stats().connections >= 4));
    swap(&nets, 9, 24 * MIB);
    shutdown(nets);
}

/// Two networks with so many ways to each other, each through a proxy of its own.
fn proxied(ways: usize, adjust: impl Fn(&mut NetConfig)) -> (Vec<Net>, Vec<Vec<Proxy>>) {
    let bound: Vec<Bound> = (0..2).map(|_| loopback()).collect();
    let to = |address: SocketAddr| (0..ways).map(|_| Proxy::new(address)).collect::<Vec<_>>();
    let proxies: Vec<Vec<Proxy>> = bound.iter().map(|b| to(b.addresses()[0])).collect();
    let way = |proxy: &Proxy| Way::Direct(vec![proxy.address]);
    let table: Vec<Vec<Way>> = proxies.iter().map(|ways| ways.iter().map(way).collect()).collect();
    let start = |(me, bound)| {
        let mut config = config(me, vec![Vec::new(); 2]);
        config.peers = table.clone();
        config.limits.connections = Some(ways.max(4));
        adjust(&mut config);
        Net::start(bound, config).unwrap()
    };
    ((0..2).zip(bound).map(start).collect(), proxies)
}

#[test]
fn streams_go_on_while_connections_are_cut_one_by_one_and_all_at_once() {
    // Handshakes are cut, too: that is no refusal.
    let (nets, proxies) = proxied(1, |config| config.limits.dial_refused = PATIENCE);
    let (is_over, mut cuts) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let ending = Ending(&is_over);
        let cutter = scope.spawn(|| {
            let (mut cuts, mut round) = (0, 0);
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(7));
                round += 1;
                for proxy in proxies.iter().flatten() {
                    cuts += if round % 6 == 0 { proxy.cut() } else { proxy.cut_one(round) };
                }
            }
            cuts
        });
        for round in 0..60 {
            swap(&nets, round, [3 * MIB, 10, 300_000, 8 * MIB, 0][round as usize % 5]);
        }
        drop(ending);
        cuts = cutter.join().unwrap();
    });
    assert!(cuts >= 20, "only {cuts} connections were cut");
    shutdown(nets);
}

#[test]
fn each_connection_takes_another_way_and_the_ways_that_are_left_carry_on() {
    let (nets, proxies) = proxied(4, |config| {
        config.limits.dial_refused = Duration::from_millis(300);
        config.limits.dial_total = Duration::from_secs(5);
    });
    let mut round = 0;
    eventually("all ways are used", || {
        swap(&nets, round, 16 * MIB);
        round += 1;
        (0..4).all(|way| proxies.iter().any(|ways| ways[way].count() > 0))
    });
    for way in 0..3 {
        proxies.iter().for_each(|ways| ways[way].close());
        for round in 0..4 {
            swap(&nets, round, 8 * MIB);
        }
        assert!(nets.iter().all(|net| net.failure().is_none()), "after way {way}");
    }
    // The last way is the only one; a new connection finds it.
    proxies.iter().for_each(|ways| assert!(ways[3].cut() < 9));
    swap(&nets, 5, 8 * MIB);
    let wanted = receive(&nets[0], 1, 0, 1);
    proxies.iter().for_each(|ways| ways[3].close());
    assert!(finish(&nets[0], wanted).0.error.is_some());
    let failure = nets[0].failure().unwrap().to_string();
    for ways in &proxies[1] {
        assert!(failure.contains(&ways.address.to_string()), "{failure}");
    }
}

/// Four messages of so many bytes to two peers, with so many connections to each.
fn keep_to_the_rate(bits: f64, connections: usize, len: usize) {
    let nets = nets_with(3, |config| {
        config.limits.connections = Some(connections);
        if config.me.0 == 0 {
            config.pacing = Pacing {
                clusters: vec![0, 1, 1],
                rates: vec![None, Rate::from_bits_per_second(bits)],
                ..Pacing::default()
            };
        }
    });
    let started = Instant::now();
    let sends = [1, 2, 1, 2].map(|to| (to, send(&nets[0], 0, to, 1, pattern(to.into(), len))));
    for (to, _) in sends {
        let net = &nets[to as usize];
        assert!(finish(net, receive(net, 0, 1, len)).1 == Some(pattern(to.into(), len)));
    }
    let took = started.elapsed().as_secs_f64();
    for (_, request) in sends {
        finish(&nets[0], request);
    }
    let all = 2 * connections;
    eventually("all connections to each", || nets[0].stats().connections == all as u64);
    // The kernel lets the first segments of a connection go as they come, and half a turn.
    let least = seconds_at(bits, 4 * len - all * 10 * 1448 - 100_000);
    assert!(took >= least, "{took} s, {least} at least");
    println!("{took} s of {least}");
    // Others may have the processors.
    assert!(took < 3.0 * seconds_at(bits, 4 * len) + 1.0, "{took} s, {least} at least");
    shutdown(nets);
}

#[test]
fn all_connections_of_a_peer_together_keep_to_the_rate() {
    keep_to_the_rate(160e6, 4, 3 * MIB);
}

#[test]
fn so_do_more_of_them_than_a_turn_has_segments() {
    keep_to_the_rate(8e6, 16, 3 * MIB / 4);
}
