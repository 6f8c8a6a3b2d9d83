//! Connections that are cut while messages pass: nothing is lost, doubled or damaged.

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use gridmpi_net::{Bound, Net, NetConfig, Way};
use proxy::Proxy;

/// Two networks that reach each other only through proxies.
fn proxied(adjust: impl Fn(&mut NetConfig)) -> (Vec<Net>, Vec<Proxy>) {
    proxied_by(Proxy::new, adjust)
}

fn proxied_by(
    proxy: fn(SocketAddr) -> Proxy,
    adjust: impl Fn(&mut NetConfig),
) -> (Vec<Net>, Vec<Proxy>) {
    let bound: Vec<Bound> = (0..2).map(|_| loopback()).collect();
    let proxies: Vec<Proxy> = bound.iter().map(|b| proxy(b.addresses()[0])).collect();
    let table: Vec<_> = proxies.iter().map(|proxy| vec![proxy.address]).collect();
    let start = |(me, bound)| {
        let mut config = config(me, table.clone());
        adjust(&mut config);
        Net::start(bound, config).unwrap()
    };
    ((0..2).zip(bound).map(start).collect(), proxies)
}

/// Both sides send and receive while connections are cut; returns how many were.
fn traffic_under_cuts(nets: &[Net], proxies: &[Proxy], rounds: u64, every: Duration) -> usize {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = Ending(&is_over);
        let cutter = scope.spawn(|| {
            let mut cuts = 0;
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(every);
                cuts += proxies.iter().map(Proxy::cut).sum::<usize>();
            }
            cuts
        });
        let sides: Vec<_> = (0..2u32)
            .map(|me| {
                let net = &nets[me as usize];
                scope.spawn(move || exchange(net, me, rounds))
            })
            .collect();
        for side in sides {
            side.join().unwrap();
        }
        drop(ending);
        cutter.join().unwrap()
    })
}

fn exchange(net: &Net, me: u32, rounds: u64) {
    let len = |round: u64| [0, 10, 3_000, 400_000, 2_000_000][round as usize % 5];
    for round in 0..rounds {
        let sent = send(net, me, 1 - me, 0, pattern(round << 1 | u64::from(me), len(round)));
        let received = receive(net, 1 - me, 0, len(round));
        let (completion, bytes) = finish(net, received);
        assert_eq!(completion.error, None);
        let expected = pattern(round << 1 | u64::from(1 - me), len(round));
        assert!(bytes == Some(expected), "round {round}: the bytes differ");
        assert_eq!(finish(net, sent).0.error, None);
    }
}

#[test]
fn streams_resume_after_cuts() {
    // Handshakes are cut, too: that is no refusal.
    let (nets, proxies) = proxied(|config| config.limits.dial_refused = PATIENCE);
    let cuts = traffic_under_cuts(&nets, &proxies, 150, Duration::from_millis(15));
    assert!(cuts >= 3, "only {cuts} connections were cut");
    assert!(nets[0].stats().connections > 3);
    shutdown(nets);
}

#[test]
fn a_cut_of_an_idle_connection_is_repaired_though_nobody_sends() {
    let (nets, proxies) = proxied(|_| {});
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1]));
    finish(&nets[1], receive(&nets[1], 0, 0, 1));
    let wanted = receive(&nets[1], 0, 0, 3);
    assert_eq!(proxies.iter().map(Proxy::cut).sum::<usize>(), 1);
    eventually("a second connection", || nets.iter().all(|net| net.stats().connections == 2));
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1, 2, 3]));
    assert_eq!(finish(&nets[1], wanted).1, Some(vec![1, 2, 3]));
    shutdown(nets);
}

#[test]
fn a_stopped_peer_is_waited_for_longer_than_one_that_is_away() {
    let (nets, proxies) = proxied(|config| {
        config.limits.dial_address = Duration::from_millis(100);
        config.limits.reconnect = Duration::from_millis(100);
    });
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1]));
    finish(&nets[1], receive(&nets[1], 0, 0, 1));
    let wanted = receive(&nets[1], 0, 0, 1);
    proxies.iter().for_each(|proxy| proxy.freeze(true));
    // Five times what would be enough.
    std::thread::sleep(Duration::from_millis(500));
    assert!(nets.iter().all(|net| net.failure().is_none()));
    proxies.iter().for_each(|proxy| proxy.freeze(false));
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![2]));
    assert_eq!(finish(&nets[1], wanted).1, Some(vec![2]));
    shutdown(nets);
}

#[test]
fn who_waits_is_told_for_whom_before_the_first_attempt_is_over() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || SAID.lock().unwrap().clone();
    let (nets, proxies) = proxied(|config| {
        config.limits.dial_address = 10 * PATIENCE;
        config.limits.reconnect = 10 * PATIENCE;
        config.warn = |text| SAID.lock().unwrap().push(text.to_owned());
        config.tells_of_absence = (config.me.0 == 0).then_some(Duration::from_millis(30));
    });
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1]));
    finish(&nets[1], receive(&nets[1], 0, 0, 1));
    proxies.iter().for_each(|proxy| proxy.freeze(true));
    eventually("it is said", || !said().is_empty());
    let address = format!("{}: no answer yet", proxies[1].address);
    let said = said().concat();
    for part in ["rank 1: the connection was lost", "tried on for up to 599 s", &address] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_peer_that_stays_away_is_a_failure_that_names_it_and_its_addresses() {
    let (nets, proxies) = proxied(|config| config.limits.dial_refused = Duration::from_secs(1));
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1]));
    finish(&nets[1], receive(&nets[1], 0, 0, 1));
    let wanted = receive(&nets[0], 1, 0, 1);
    for proxy in &proxies {
        proxy.close();
    }
    let (completion, _) = finish(&nets[0], wanted);
    assert!(completion.error.unwrap().to_string().contains("rank 1 is lost"));
    let failure = nets[0].failure().unwrap().to_string();
    for part in ["rank 1", "lost", &proxies[1].address.to_string(), "refused"] {
        assert!(failure.contains(part), "{failure}");
    }
}

#[test]
fn connections_that_are_cut_behind_each_handshake_are_few_and_end_with_a_reason() {
    let (nets, proxies) =
        proxied_by(Proxy::cutting, |config| config.limits.reconnect = Duration::from_secs(1));
    let wanted = receive(&nets[1], 0, 0, 3);
    let sent = send(&nets[0], 0, 1, 0, vec![1, 2, 3]);
    // What is short is copied, and so is sent.
    assert_eq!(finish(&nets[0], sent).0.error, None);
    assert!(finish(&nets[1], wanted).0.error.is_some());
    eventually("each gives the other up", || nets.iter().all(|net| net.failure().is_some()));
    let failures: Vec<_> = nets.iter().map(|net| net.failure().unwrap().to_string()).collect();
    let is_named = |failure: &String| {
        let parts = ["rank", "lost before anything passes", "handshake", "firewall"];
        parts.iter().all(|part| failure.contains(part))
    };
    // Who is given up may be told so by the other before it sees it itself.
    assert!(failures.iter().any(is_named), "{failures:?}");
    let made: usize = proxies.iter().map(Proxy::made).sum();
    assert!((10..40).contains(&made), "{made} connections were made");
}

#[test]
fn a_process_that_ends_without_closing_is_a_failure() {
    let mut nets = nets_with(2, |config| {
        config.limits.dial_refused = Duration::from_secs(1);
    });
    finish(&nets[0], send(&nets[0], 0, 1, 0, vec![1]));
    finish(&nets[1], receive(&nets[1], 0, 0, 1));
    let wanted = receive(&nets[0], 1, 0, 1);
    drop(nets.pop());
    assert!(finish(&nets[0], wanted).0.error.is_some());
    assert!(nets[0].failure().unwrap().what.contains("lost"));
    // And later calls fail at once.
    assert!(finish(&nets[0], send(&nets[0], 0, 1, 0, vec![2])).0.error.is_some());
}

#[test]
fn nobody_at_the_address_is_a_failure_within_the_time_set() {
    let nets = nets_with(1, |config| {
        config.peers.push(vec![Way::Direct(vec![NOBODY])]);
        config.limits.dial_refused = Duration::from_millis(100);
    });
    let sent = send(&nets[0], 0, 1, 0, vec![0; 1 << 20]);
    assert!(finish(&nets[0], receive(&nets[0], 1, 0, 1)).0.error.is_some());
    finish(&nets[0], sent);
    let failure = nets[0].failure().unwrap();
    assert!(failure.what.contains("cannot be reached") && failure.what.contains("refused"));
}
