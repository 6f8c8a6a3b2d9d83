//! Two processes of which only one can connect to the other: that one does so by itself, and again when the connection is lost.

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_net::{Bound, Lost, Net, NetConfig, Way};
use proxy::Proxy;

/// Process 0 cannot be connected to; it reaches process 1 through the proxy.
fn one_way(adjust: impl Fn(&mut NetConfig)) -> (Vec<Net>, Proxy) {
    let bound: Vec<Bound> = (0..2).map(|_| loopback()).collect();
    let proxy = Proxy::new(bound[1].addresses()[0]);
    let start = |(me, bound): (u32, Bound)| {
        let mut config = config(me, vec![Vec::new(), Vec::new()]);
        config.peers[1 - me as usize] =
            vec![if me == 0 { Way::Called(vec![proxy.address]) } else { Way::Awaited }];
        adjust(&mut config);
        Net::start(bound, config).unwrap()
    };
    let nets = (0..2).zip(bound).map(start).collect();
    (nets, proxy)
}

/// Process 1, which is the one that cannot connect, speaks first.
fn say(nets: &[Net], byte: u8) {
    finish(&nets[1], send(&nets[1], 1, 0, 0, vec![byte]));
    assert_eq!(finish(&nets[0], receive(&nets[0], 1, 0, 1)).1, Some(vec![byte]));
}

#[test]
fn who_cannot_connect_is_connected_to_before_anybody_sends() {
    let (nets, _proxy) = one_way(|_| {});
    eventually("a connection", || nets.iter().all(|net| net.stats().connections == 1));
    say(&nets, 1);
    shutdown(nets);
}

#[test]
fn those_who_had_nothing_to_say_part_at_once() {
    let (nets, _proxy) = one_way(|_| {});
    eventually("a connection", || nets.iter().all(|net| net.stats().connections == 1));
    let began = Instant::now();
    shutdown(nets);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "one waits for the other: {:?}",
        began.elapsed()
    );
}

#[test]
fn what_is_lost_is_made_again_from_the_same_side() {
    let (nets, proxy) = one_way(|config| config.limits.connections = Some(2));
    say(&nets, 1);
    for round in 2..6 {
        assert!(proxy.cut() > 0);
        say(&nets, round);
    }
    assert!(nets[0].stats().accepted == 0, "process 1 has no way to process 0");
    shutdown(nets);
}

#[test]
fn who_is_awaited_and_does_not_come_is_a_failure_that_says_so_and_is_told_of_unasked() {
    let told = Arc::new(AtomicUsize::new(0));
    let (nets, proxy) = one_way(|config| {
        config.limits.reconnect = Duration::from_millis(300);
        let told = Arc::clone(&told);
        config.lost = Some(Lost(Arc::new(move |failure| {
            assert!(!failure.remedy.is_empty());
            told.fetch_add(1, Ordering::SeqCst);
        })));
    });
    say(&nets, 1);
    proxy.close();
    // Nobody waits in one of them, nor polls.
    eventually("both have told", || told.load(Ordering::SeqCst) == 2);
    let failure = nets[1].failure().unwrap().to_string();
    for part in ["rank 0", "the connection was lost", "has not connected to this process", "`dial`"]
    {
        assert!(failure.contains(part), "{failure}");
    }
    assert!(nets[0].failure().unwrap().what.contains(&proxy.address.to_string()));
}

#[test]
fn who_waits_is_told_for_whom_long_before_giving_up_though_it_cannot_try() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || SAID.lock().unwrap().clone();
    let (nets, proxy) = one_way(|config| {
        config.limits.reconnect = 10 * PATIENCE;
        config.warn = |text| SAID.lock().unwrap().push(text.to_owned());
        let is_awaiting = config.me.0 == 1;
        config.tells_of_absence = is_awaiting.then_some(Duration::from_millis(30));
    });
    say(&nets, 1);
    proxy.close();
    eventually("it is said", || !said().is_empty());
    let said = said().concat();
    let parts = ["rank 0: the connection was lost", "not connected", "waited for up to 599 s"];
    for part in parts.iter().chain(&["`dial`", "ended? look at"]) {
        assert!(said.contains(part), "{said}");
    }
}
