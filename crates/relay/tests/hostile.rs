//! Those who should not be there: refused, bounded, and nobody else disturbed.

mod common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_leg::{Ask, AskStep};
use gridmpi_relay::{Identity, Proof, Token};
use gridmpi_wire::{Errand, JobKey, LegVerdict, ProcId};

/// Whether the relay closes within the time, in whatever way.
fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    let mut space = [0; 1024];
    loop {
        match stream.read(&mut space) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Less than the 5 s after which it would be closed for having said too little.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Where a flood comes from.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// A circuit that must go on undisturbed.
struct Witness(TcpStream, TcpStream);

impl Witness {
    fn new(relay: &Relay) -> Self {
        let mut b = register(relay.address, 900);
        let (a, b) = circuit(relay.address, 901, &mut b);
        Self(a, b)
    }

    fn check(&mut self) {
        let since = Instant::now();
        self.0.write_all(b"here").unwrap();
        self.1.read_exact(&mut [0; 4]).unwrap();
        assert!(since.elapsed() < AT_ONCE, "others are disturbed");
    }
}

#[test]
fn noise_is_closed_at_once() {
    let relay = Relay::dialing(&[]);
    let mut witness = Witness::new(&relay);
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\0",
        b"\x8aGridX",
        b"\x8aGridRl\0",
        b"\x16\x03\x01\x02\x00",
        &[0xff; 4000],
    ] {
        let mut stream = connect(relay.address);
        stream.write_all(noise).unwrap();
        assert!(is_closed_within(&mut stream, AT_ONCE), "{noise:?}");
        witness.check();
    }
}

#[test]
fn who_says_nothing_is_closed_in_time_however_long_the_relay_looks_for_more() {
    let mut config = config(&[]);
    config.busy_poll = Duration::from_secs(20);
    config.unproven.end = Duration::from_millis(200);
    let relay = Relay::start(config);
    assert!(is_closed_within(&mut connect(relay.address), AT_ONCE));
}

#[test]
fn tokens_are_checked_and_their_jobs() {
    let mut config = config(&[]);
    config.tokens.push(Token {
        name: "one job".to_owned(),
        key: JobKey::new([8; 32]),
        jobs: Some(vec![[9; 16]]),
    });
    let relay = Relay::start(config);
    let register = |job, token| {
        let asker = gridmpi_leg::Asker { me: ProcId(0), job, token: JobKey::new(token) };
        ask(relay.address, &asker, Errand::Register { first: ProcId(0), count: 1 }, &[])
    };
    assert!(register([9; 16], [8; 32]).is_ok());
    let verdict = |result| match result {
        Err(Refused::Verdict(verdict)) => verdict,
        other => panic!("{other:?}"),
    };
    assert_eq!(verdict(register([1; 16], [8; 32])), LegVerdict::JobNotAllowed);
    assert_eq!(verdict(register([9; 16], [99; 32])), LegVerdict::UnknownToken);
}

#[test]
fn a_name_of_a_token_is_not_the_token_and_what_was_overheard_is_of_no_use() {
    let relay = Relay::dialing(&[]);
    // What a process that knows the token says.
    let asker = asker(5);
    let (mut ask, hello) =
        Ask::new(&asker, Errand::Register { first: ProcId(5), count: 1 }, [1; 32]);
    let mut stream = connect(relay.address);
    stream.write_all(&hello).unwrap();
    let request = loop {
        let count = stream.read(ask.space()).unwrap();
        if let AskStep::Send(request) = ask.read(count, &asker).unwrap() {
            break request;
        }
    };
    stream.write_all(&request).unwrap();
    // The same again: the relay's nonce is another.
    let mut replayed = connect(relay.address);
    replayed.write_all(&hello).unwrap();
    replayed.write_all(&request).unwrap();
    let mut space = Vec::new();
    let _ = replayed.read_to_end(&mut space);
    assert_eq!(space.len(), gridmpi_wire::LegChallenge::LEN, "no answer but the challenge");
    // And one that differs in a bit.
    let mut wrong = connect(relay.address);
    wrong.write_all(&hello).unwrap();
    wrong.read_exact(&mut [0; gridmpi_wire::LegChallenge::LEN]).unwrap();
    let mut bent = request;
    bent[3] ^= 1;
    wrong.write_all(&bent).unwrap();
    assert!(is_closed_within(&mut wrong, AT_ONCE));
}

#[test]
fn half_open_floods_are_bounded_and_let_others_in() {
    let mut config = config(&[]);
    config.identity = Some(Identity::generate().unwrap());
    config.unproven.most = 16;
    let relay = Relay::start(config);
    let mut witness = Witness::new(&relay);
    let hello = hello();
    let mut flood = Vec::new();
    for n in 0..200 {
        let mut stream = connect_from(STRANGER, relay.address).unwrap();
        // Nothing, half a leg's hello, all of it, the begin of TLS, half a relay's hello.
        let said: [&[u8]; 5] =
            [b"", &hello[..30], &hello, b"\x16\x03\x01\x02\x00\x01\x00", b"\x8aGridTrk\x01\0"];
        let _ = stream.write_all(said[n % 5]);
        flood.push(stream);
        let (unproven, _) = relay.handle.snapshot(PATIENCE).unwrap().unproven();
        assert!(unproven <= 16, "{unproven}");
    }
    witness.check();
    // Somebody honest gets in while they all wait.
    let since = Instant::now();
    let _registered = register(relay.address, 7);
    assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
    // From the same address one has to try again, perhaps.
    let errand = Errand::Register { first: ProcId(8), count: 1 };
    while let Err(refused) = ask_from(STRANGER, relay.address, &asker(8), errand) {
        assert!(since.elapsed() < PATIENCE, "{refused:?}");
    }
    drop(flood);
}

/// What anybody can say who has overheard a process.
fn hello() -> Vec<u8> {
    Ask::new(&asker(5), Errand::Open { to: ProcId(6) }, [1; 32]).1.to_vec()
}

/// One address makes up to 1000 connections in a second, and says this on each, until it is told to stop; how many they were. More would
/// fill the kernel's queue before anybody sees them.
fn flood(address: SocketAddr, said: Vec<u8>) -> impl FnOnce() -> usize {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let flooding = std::thread::spawn(move || {
        let (mut streams, mut count) = (VecDeque::new(), 0);
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            let Some(mut stream) = connect_from(STRANGER, address) else { continue };
            let _ = stream.write_all(&said);
            count += 1;
            streams.push_back(stream);
            if streams.len() > 300 {
                streams.pop_front();
            }
        }
        count
    });
    move || {
        is_over.store(true, Ordering::Relaxed);
        flooding.join().unwrap()
    }
}

#[test]
fn a_flood_from_one_address_keeps_nobody_else_out() {
    for said in [Vec::new(), hello()] {
        let relay = Relay::dialing(&[]);
        let mut witness = Witness::new(&relay);
        let stop = flood(relay.address, said);
        let since = Instant::now();
        while relay.handle.snapshot(PATIENCE).unwrap().unproven().0 < 64 {
            assert!(since.elapsed() < PATIENCE, "it is no flood");
        }
        let (began, mut slow) = (Instant::now(), Vec::new());
        for n in 0.. {
            let since = Instant::now();
            let mut came = register(relay.address, n);
            let _circuit = circuit(relay.address, 1000 + n, &mut came);
            let took = since.elapsed();
            assert!(took < AT_ONCE, "{n}: {took:?}");
            slow.extend((took > Duration::from_millis(800)).then_some(took));
            if began.elapsed() > Duration::from_secs(3) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // It takes a second to see that it is one.
        assert!(slow.len() <= 1, "{slow:?}");
        witness.check();
        assert!(stop() > 300);
    }
}

#[test]
fn many_of_one_address_wait_for_their_turn_and_none_is_turned_away() {
    let relay = Relay::dialing(&[]);
    let address = relay.address;
    let before = relay.handle.snapshot(PATIENCE).unwrap().unproven().1;
    let errand = Errand::Register { first: ProcId(0), count: 1000 };
    // All of them have connected before any says its first word, as where processors are few.
    let connected: Vec<_> = (0..300).map(|_| connect(address)).collect();
    let since = Instant::now();
    let mut registered = Vec::new();
    for (n, stream) in connected.into_iter().enumerate() {
        registered.push(ask_on(stream, &asker(n as u32), errand, &[]).unwrap());
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(relay.handle.snapshot(PATIENCE).unwrap().unproven().1, before);
}

#[test]
fn relays_without_the_secret_are_refused_and_legs_do_not_pass_for_relays() {
    let relay = Relay::dialing(&[]);
    let mut witness = Witness::new(&relay);
    let mut stranger = config(&[relay.address]);
    for peer in &mut stranger.peers {
        peer.proof = Proof::Secret(JobKey::new([66; 32]));
    }
    let stranger = Relay::start(stranger);
    let _b = register(stranger.address, 1);
    let since = Instant::now();
    while relay.handle.snapshot(PATIENCE).unwrap().unproven().1 < 2 {
        assert!(since.elapsed() < PATIENCE, "nobody was refused");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(open(relay.address, 0, 1, &[]), Err(Refused::Verdict(LegVerdict::NoRoute))));
    let peers = relay.handle.snapshot(PATIENCE).unwrap().peers;
    assert!(peers.iter().all(|peer| peer.connections == 0));
    witness.check();
    // Cells where a hello is due.
    let mut stream = connect(relay.address);
    stream.write_all(b"\x8aGridTrk").unwrap();
    stream.write_all(&[0xff; 200]).unwrap();
    assert!(is_closed_within(&mut stream, AT_ONCE));
    witness.check();
}

#[test]
fn a_registered_process_that_talks_out_of_turn_is_dropped() {
    let relay = Relay::dialing(&[]);
    let mut witness = Witness::new(&relay);
    let mut talks = register(relay.address, 3);
    talks.stream.write_all(b"hello?").unwrap();
    assert!(is_closed_within(&mut talks.stream, AT_ONCE));
    assert!(matches!(open(relay.address, 0, 3, &[]), Err(Refused::Verdict(LegVerdict::NoRoute))));
    witness.check();
}

#[test]
fn a_peer_that_is_the_relay_itself_is_refused() {
    let relay = Relay::dialing(&[]);
    let mut witness = Witness::new(&relay);
    relay.handle.reload(config(&[relay.address]));
    let since = Instant::now();
    // It has met itself, and once more.
    while relay.handle.snapshot(PATIENCE).unwrap().unproven().1 < 2 {
        assert!(since.elapsed() < PATIENCE, "nobody was refused");
        std::thread::sleep(Duration::from_millis(5));
    }
    let peers = relay.handle.snapshot(PATIENCE).unwrap().peers;
    assert_eq!(peers.len(), 2);
    assert!(peers.iter().all(|peer| peer.connections == 0));
    witness.check();
}
