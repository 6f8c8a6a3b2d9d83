//! A process keeps to its rate over all its connections, whatever it sends to whom.

mod common;

use std::time::Instant;

use common::{finish, nets_with, pattern, receive, send};
use gridmpi_net::Pacing;
use gridmpi_rate::Rate;

const EACH: usize = 600_000;

/// Process 0 is a cluster of its own, the others are the other cluster.
fn paced(bits_per_second: f64) -> Pacing {
    Pacing {
        clusters: vec![0, 1, 1, 1],
        rates: vec![None, Rate::from_bits_per_second(bits_per_second)],
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
    // The kernel lets the first segments of three connections and half a turn go as they come.
    let least = (3 * EACH - 100_000) as f64 * 8.0 * (1538.0 / 1448.0) / rate;
    let took = seconds(rate);
    assert!(took >= least, "{took} s, {least} at least");
}

#[test]
fn without_a_bound_nothing_is_paced() {
    let took = seconds(f64::INFINITY);
    assert!(took < 20.0, "{took} s");
}
