//! Relays that know each other by their certificates.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_relay::{Config, Identity, Peer, Proof};
use gridmpi_wire::LegVerdict;

fn with_identity(identity: &Identity, peers: &[(&Identity, Option<SocketAddr>)]) -> Config {
    let peer = |(identity, address): &(&Identity, Option<SocketAddr>)| Peer {
        name: "other".to_owned(),
        address: address.map(|address| address.to_string()),
        proof: Proof::Fingerprint(identity.fingerprint()),
        connections: 1,
        rate: None,
        jobs: None,
    };
    Config {
        identity: Some(identity.clone()),
        peers: peers.iter().map(peer).collect(),
        ..config(&[])
    }
}

fn exchange(mut a: TcpStream, mut b: TcpStream, count: usize) {
    let there = noise(1, count);
    let sent = there.clone();
    let sender = std::thread::spawn(move || {
        a.write_all(&sent).unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        a.read_to_end(&mut got).unwrap();
        got
    });
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert!(got == there, "what came is not what was sent");
    b.write_all(&got).unwrap();
    drop(b);
    assert!(sender.join().unwrap() == there, "what came back is not what was sent");
}

#[test]
fn circuits_cross_encrypted_connections() {
    let (one, two) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let first = Relay::start(with_identity(&one, &[(&two, None)]));
    let second = Relay::start(with_identity(&two, &[(&one, Some(first.address))]));
    let mut b = register(second.address, 1);
    let (a, b) = circuit(first.address, 0, &mut b);
    exchange(a, b, 20 << 20);
}

#[test]
fn several_connections_carry_the_circuits_of_one_peer() {
    let (one, two) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let first = Relay::start(with_identity(&one, &[(&two, None)]));
    let mut config = with_identity(&two, &[(&one, Some(first.address))]);
    config.peers[0].connections = 3;
    let second = Relay::start(config);
    let mut b = register(second.address, 1);
    let circuits: Vec<_> = (0..6).map(|n| circuit(first.address, 10 + n, &mut b)).collect();
    let threads = circuits.into_iter().map(|(a, b)| std::thread::spawn(|| exchange(a, b, 2 << 20)));
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    for relay in [&first, &second] {
        let peers = relay.handle.snapshot(PATIENCE).unwrap().peers;
        let path = peers[0].path;
        // 12 MiB went by segments of 64 KiB at most.
        assert!(path.packet.is_some_and(|packet| packet >= 576) && path.sent >= 192, "{path:?}");
        assert!(path.resent <= path.sent, "{path:?}");
    }
}

/// Whether the first relay sends the second away, and has no way to a process there.
fn is_refused(first: &Relay, second: &Relay) -> bool {
    let _b = register(second.address, 1);
    let since = Instant::now();
    // It is tried again and again.
    while first.handle.snapshot(PATIENCE).unwrap().unproven().1 < 2 {
        assert!(since.elapsed() < PATIENCE, "nobody was sent away");
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_alone = [first, second].iter().all(|relay| {
        let peers = relay.handle.snapshot(PATIENCE).unwrap().peers;
        peers.iter().all(|peer| peer.connections == 0)
    });
    // With a way it would wait for somebody to accept.
    let opened = open(first.address, 0, 1, &[]);
    is_alone && matches!(opened, Err(Refused::Verdict(LegVerdict::NoRoute)))
}

#[test]
fn another_certificate_is_refused_by_whoever_meets_it() {
    let [one, two, other] = [(); 3].map(|()| Identity::generate().unwrap());
    // The listener does not know who dials.
    let first = Relay::start(with_identity(&one, &[(&other, None)]));
    let second = Relay::start(with_identity(&two, &[(&one, Some(first.address))]));
    assert!(is_refused(&first, &second));
    // The dialler expects somebody else.
    let first = Relay::start(with_identity(&one, &[(&two, None)]));
    let second = Relay::start(with_identity(&two, &[(&other, Some(first.address))]));
    assert!(is_refused(&first, &second));
    // A relay without TLS where one with TLS is expected.
    let first = Relay::start(with_identity(&one, &[(&two, None)]));
    let second = Relay::dialing(&[first.address]);
    assert!(is_refused(&first, &second));
    // And the two that expect each other meet.
    let first = Relay::start(with_identity(&one, &[(&two, None)]));
    let second = Relay::start(with_identity(&two, &[(&one, Some(first.address))]));
    let mut b = register(second.address, 1);
    let (a, b) = circuit(first.address, 0, &mut b);
    exchange(a, b, 1000);
}
