//! Draining and new settings.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use common::*;
use gridmpi_leg::Asker;
use gridmpi_relay::Token;
use gridmpi_wire::{Errand, JobKey, LegNotice, LegVerdict, ProcId, RelayAddress};

#[test]
fn a_relay_that_drains_takes_nothing_new_and_ends_with_its_last_circuit() {
    let relay = Relay::dialing(&[]);
    let mut b = register(relay.address, 1);
    let (mut a, mut leg) = circuit(relay.address, 0, &mut b);
    relay.handle.end();
    assert_eq!(b.stream.read(&mut [0; 1]).unwrap(), 0, "who has registered is told");
    let refused = open(relay.address, 5, 1, &[]);
    assert!(matches!(refused, Err(Refused::Verdict(LegVerdict::Draining))), "{refused:?}");
    a.write_all(b"still here").unwrap();
    leg.read_exact(&mut [0; 10]).unwrap();
    a.shutdown(Shutdown::Write).unwrap();
    leg.shutdown(Shutdown::Write).unwrap();
    assert_eq!(leg.read(&mut [0; 1]).unwrap(), 0);
    relay.join();
}

#[test]
fn a_drain_ends_in_time_and_at_once_when_asked_again() {
    let mut settings = config(&[]);
    settings.drain = Duration::from_millis(300);
    let relay = Relay::start(settings);
    let mut b = register(relay.address, 1);
    let (mut a, _leg) = circuit(relay.address, 0, &mut b);
    let since = Instant::now();
    relay.handle.end();
    assert_eq!(a.read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(2), "{took:?}");
    relay.join();

    let relay = Relay::dialing(&[]);
    let mut b = register(relay.address, 1);
    let _circuit = circuit(relay.address, 0, &mut b);
    let since = Instant::now();
    relay.handle.end();
    relay.handle.end();
    relay.join();
    assert!(since.elapsed() < Duration::from_secs(2));
}

#[test]
fn new_settings_hold_for_what_is_new_and_what_stands_goes_on() {
    let first = Relay::dialing(&[]);
    let second = Relay::dialing(&[first.address]);
    let mut b = register(second.address, 1);
    let (mut a, mut leg) = circuit(first.address, 0, &mut b);
    // Another token.
    let mut settings = config(&[]);
    settings.tokens =
        vec![Token { name: "new".to_owned(), key: JobKey::new([77; 32]), jobs: None }];
    first.handle.reload(settings);
    let since = Instant::now();
    while !matches!(open(first.address, 5, 1, &[]), Err(Refused::Verdict(LegVerdict::UnknownToken)))
    {
        assert!(since.elapsed() < PATIENCE);
    }
    a.write_all(b"goes on").unwrap();
    leg.read_exact(&mut [0; 7]).unwrap();
    // Without its peers: the connection to them ends, and the circuit with it.
    let mut settings = config(&[]);
    settings.peers.clear();
    first.handle.reload(settings);
    assert_eq!(leg.read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    // And with them again: they come back by themselves.
    first.handle.reload(config(&[]));
    let (mut a, mut leg) = circuit(first.address, 0, &mut b);
    a.write_all(b"back").unwrap();
    leg.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn more_connections_to_a_relay_do_not_cut_those_that_stand() {
    let far = Relay::dialing(&[]);
    let with = |connections| {
        let mut settings = config(&[far.address]);
        settings.peers[1].connections = connections;
        settings
    };
    let near = Relay::start(with(1));
    let mut b = register(far.address, 1);
    let (mut a, mut leg) = circuit(near.address, 0, &mut b);
    near.handle.reload(with(3));
    let since = Instant::now();
    let made =
        || near.handle.snapshot(PATIENCE).unwrap().peers.iter().map(|it| it.connections).max();
    while made() < Some(3) {
        assert!(since.elapsed() < PATIENCE, "no more are made");
        std::thread::sleep(Duration::from_millis(5));
    }
    a.write_all(b"goes on").unwrap();
    leg.read_exact(&mut [0; 7]).unwrap();
}

#[test]
fn processes_are_told_of_other_relays_when_they_register_and_by_new_settings() {
    let address = |text: &str| RelayAddress::new(text.parse().unwrap()).unwrap();
    let [first, second] = ["10.0.0.1:7118", "10.0.0.2:7118"].map(address);
    let with = |beside: &[RelayAddress]| {
        let mut settings = config(&[]);
        settings.beside = beside.to_vec();
        settings
    };
    let relay = Relay::start(with(&[first]));
    let mut a = register(relay.address, 0);
    let mut b = register(relay.address, 1);
    for registered in [&mut a, &mut b] {
        assert_eq!(registered.notice(), LegNotice::Beside(first));
    }
    relay.handle.reload(with(&[first, second]));
    for registered in [&mut a, &mut b] {
        assert_eq!(registered.notice(), LegNotice::Beside(second));
    }
    // What is known is not said again, and circuits are as before.
    relay.handle.reload(with(&[second]));
    let (mut near, mut far) = circuit(relay.address, 0, &mut b);
    near.write_all(b"as before").unwrap();
    far.read_exact(&mut [0; 9]).unwrap();
}

#[test]
fn the_jobs_that_may_cross_to_another_relay_are_settings_that_can_change() {
    const OTHER: [u8; 16] = [1; 16];
    let with = |jobs: &[[u8; 16]]| {
        let mut settings = config(&[]);
        settings.peers[0].jobs = Some(jobs.to_vec());
        settings
    };
    let first = Relay::start(with(&[OTHER]));
    let second = Relay::dialing(&[first.address]);
    let mut b = register(second.address, 1);
    // Of the one that has registered later it is known already.
    let of_other = |me| Asker { job: OTHER, ..asker(me) };
    let errand = Errand::Register { first: ProcId(2), count: 1 };
    let mut c = Registered {
        me: 2,
        address: second.address,
        stream: ask(second.address, &of_other(2), errand, &[]).unwrap(),
    };
    let since = Instant::now();
    let refused = |result| matches!(result, Err(Refused::Verdict(LegVerdict::NoRoute)));
    let opening = std::thread::spawn(move || {
        let open = || ask(first.address, &of_other(0), Errand::Open { to: ProcId(2) }, &[]);
        while refused(open()) {
            assert!(since.elapsed() < PATIENCE, "a job that may cross does not");
            std::thread::sleep(Duration::from_millis(5));
        }
        first
    });
    c.called();
    drop(c);
    let first = opening.join().unwrap();
    assert!(refused(open(first.address, 0, 1, &[])), "a job crosses that may not");
    first.handle.reload(with(&[JOB]));
    let (mut near, mut far) = circuit(first.address, 0, &mut b);
    first.handle.reload(with(&[OTHER]));
    let since = Instant::now();
    while !refused(open(first.address, 0, 1, &[])) {
        assert!(since.elapsed() < PATIENCE, "a job still crosses that may not");
    }
    near.write_all(b"goes on").unwrap();
    far.read_exact(&mut [0; 7]).unwrap();
}
