//! Many processes and circuits at one relay, its bounds, and what strangers can do to it then.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::*;
use gridmpi_leg::Ask;
use gridmpi_wire::{Errand, JobKey, LegVerdict, ProcId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where strangers come from.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// Lets this process have so many descriptors.
fn may_open(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < count) {
        let raised = Rlimit { current: Some(count), maximum: limit.maximum };
        let told =
            format!("this test needs {count} descriptors: raise the hard limit (`ulimit -Hn`)");
        setrlimit(Resource::Nofile, raised).expect(&told);
    }
}

fn is_full(result: Result<TcpStream, Refused>) -> bool {
    matches!(result, Err(Refused::Verdict(LegVerdict::Full)))
}

fn pass(a: &mut TcpStream, b: &mut TcpStream, seed: u64, count: usize) {
    let sent = noise(seed, count);
    a.write_all(&sent).unwrap();
    let mut came = vec![0; count];
    b.read_exact(&mut came).unwrap();
    assert_eq!(sent, came);
}

#[test]
fn who_has_no_place_is_told_so_and_has_one_when_another_leaves() {
    let mut config = config(&[]);
    config.limits.connections = 5;
    let relay = Relay::start(config);
    let (mut b, c) = (register(relay.address, 1), register(relay.address, 2));
    let (mut a1, mut b1) = circuit(relay.address, 0, &mut b);
    // The job has all four places that it may have of five; an open would need two, for the other end as well.
    let again = Errand::Register { first: ProcId(3), count: 1 };
    assert!(is_full(ask(relay.address, &asker(3), again, &[])));
    assert!(is_full(open(relay.address, 0, 1, &[])));
    drop(c);
    let since = Instant::now();
    while is_full(ask(relay.address, &asker(3), again, &[])) {
        assert!(since.elapsed() < PATIENCE, "the place stays taken");
    }
    pass(&mut a1, &mut b1, 1, 100_000);
}

#[test]
fn a_circuit_that_was_announced_keeps_its_place() {
    let mut config = config(&[]);
    config.limits.connections = 4;
    let relay = Relay::start(config);
    let mut b = register(relay.address, 1);
    let target = relay.address;
    let opening = std::thread::spawn(move || open(target, 0, 1, &[]));
    let (_, circuit) = b.called();
    // One place is free, and it is for the one that was called.
    let other = Errand::Register { first: ProcId(3), count: 1 };
    assert!(is_full(ask(relay.address, &asker(3), other, &[])));
    let mut came = ask(relay.address, &asker(1), Errand::Accept { circuit }, &[]).unwrap();
    pass(&mut opening.join().unwrap().unwrap(), &mut came, 2, 1000);
}

#[test]
fn who_was_refused_and_does_not_leave_is_left() {
    let relay = Relay::dialing(&[]);
    let mut stranger = asker(5);
    stranger.token = JobKey::new([9; 32]);
    let (_, hello) = Ask::new(&stranger, Errand::Open { to: ProcId(6) }, [1; 32]);
    let mut streams: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = connect(relay.address);
            stream.write_all(&hello).unwrap();
            let mut refusal = Vec::new();
            stream.read_to_end(&mut refusal).unwrap();
            assert_eq!(refusal.len(), gridmpi_wire::LegChallenge::LEN);
            stream
        })
        .collect();
    // What is written to a closed connection is answered by a reset, and the next write fails.
    let since = Instant::now();
    while !streams.is_empty() {
        streams.retain_mut(|stream| stream.write_all(b"still here").is_ok());
        assert!(since.elapsed() < Duration::from_secs(5), "a refused connection is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn strangers_and_slow_readers_do_no_harm_to_a_thousand_circuits() {
    may_open(5000);
    let processes = 100;
    let mut config = config(&[]);
    config.limits.memory = 64 << 20;
    let relay = Relay::start(config);
    let mut all: Vec<Registered> =
        (0..processes).map(|n| register_in(relay.address, n, 0, processes)).collect();
    let mut circuits = Vec::new();
    for n in 0..1000 {
        let to = &mut all[n as usize % processes as usize];
        let address = relay.address;
        let opening = std::thread::spawn(move || open(address, 500 + n, n % processes, &[]));
        let accepted = to.accept();
        circuits.push((opening.join().unwrap().unwrap(), accepted));
    }
    // Their readers read nothing.
    let mut slow: Vec<_> = circuits.drain(..20).collect();
    let piece = noise(7, 1 << 20);
    for (writer, _) in &mut slow {
        writer.set_nonblocking(true).unwrap();
        let _ = writer.write(&piece);
    }
    let flood: Vec<TcpStream> = (0..500)
        .map(|n| {
            let mut stream = connect_from(STRANGER, relay.address).unwrap();
            let said: [&[u8]; 3] = [b"", b"\x8aGridRly\x01\0", b"noise, noise"];
            let _ = stream.write_all(said[n % 3]);
            stream
        })
        .collect();
    for (n, (a, b)) in circuits.iter_mut().enumerate() {
        pass(a, b, n as u64, 1000);
        pass(b, a, n as u64, 8);
    }
    let seen = relay.handle.snapshot(PATIENCE).unwrap();
    let [held, granted, budget] = seen.memory();
    assert!(held <= granted && granted <= budget, "{held} {granted} {budget}");
    assert!(seen.unproven().0 <= 64, "{:?}", seen.unproven());
    assert_eq!(seen.circuits(), 1000);
    let late = register(relay.address, 400);
    drop((flood, late));
}
