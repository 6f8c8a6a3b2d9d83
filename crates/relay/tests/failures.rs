//! What a relay does when others are slow, silent or gone.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_relay::Limits;

/// Writes without end from a thread; how much the other side has taken is what counts.
fn pour(mut stream: TcpStream) -> Arc<std::sync::atomic::AtomicU64> {
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        let bytes = noise(3, 64 * 1024);
        while let Ok(written) = stream.write(&bytes) {
            counter.fetch_add(written as u64, Ordering::Relaxed);
        }
    });
    count
}

#[test]
fn a_slow_reader_stops_only_its_own_sender_and_memory_stays_within_its_bound() {
    let memory = 4 << 20;
    let settings = |dials: &[SocketAddr]| {
        let mut config = config(dials);
        config.limits = Limits { memory, ..Limits::default() };
        config
    };
    let first = Relay::start(settings(&[]));
    let second = Relay::start(settings(&[first.address]));
    let mut b = register(second.address, 100);
    // Ten whose readers read nothing, and one whose reader does.
    let stuck: Vec<_> = (0..10).map(|n| circuit(first.address, n, &mut b)).collect();
    let poured: Vec<_> = stuck.iter().map(|(a, _)| pour(a.try_clone().unwrap())).collect();
    let (mut a, mut c) = circuit(first.address, 50, &mut b);
    let sender = std::thread::spawn(move || {
        let bytes = noise(4, 1 << 20);
        (0..60).for_each(|_| a.write_all(&bytes).unwrap());
        a
    });
    let mut space = vec![0; 1 << 20];
    for _ in 0..60 {
        c.read_exact(&mut space).unwrap();
        for relay in [&first, &second] {
            let [held, granted, budget] = relay.handle.snapshot(PATIENCE).unwrap().memory();
            assert!(held <= granted && granted <= budget && budget == memory, "{held} {granted}");
        }
    }
    drop(sender.join().unwrap());
    // What the stuck ones got rid of is in the kernel's buffers on the way; it does not grow.
    let sum = || poured.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let before = sum();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(sum(), before, "a stuck circuit still takes bytes");
}

/// Passes bytes on between whoever connects and `to`, until it is told to stop; then it keeps the connections open in silence.
fn proxy(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = Arc::clone(&is_silent);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let other = TcpStream::connect(to).unwrap();
            for (mut from, mut to) in
                [(stream.try_clone().unwrap(), other.try_clone().unwrap()), (other, stream)]
            {
                let silent = Arc::clone(&silent);
                std::thread::spawn(move || {
                    let mut space = [0; 65536];
                    while let Ok(count @ 1..) = from.read(&mut space) {
                        if silent.load(Ordering::Relaxed) {
                            std::thread::sleep(PATIENCE);
                            return;
                        }
                        to.write_all(&space[..count]).unwrap();
                    }
                });
            }
        }
    });
    (address, is_silent)
}

fn is_reset_within(stream: &mut TcpStream, time: Duration) -> bool {
    let since = Instant::now();
    let result = stream.read(&mut [0; 16]);
    matches!(result, Err(error) if error.kind() == ErrorKind::ConnectionReset)
        && since.elapsed() <= time
}

#[test]
fn a_silent_relay_is_found_and_its_circuits_are_reset_at_both_ends() {
    let first = Relay::dialing(&[]);
    let (address, is_silent) = proxy(first.address);
    let second = Relay::dialing(&[address]);
    let mut b = register(second.address, 1);
    let (mut a, mut b) = circuit(first.address, 0, &mut b);
    a.write_all(b"heard").unwrap();
    b.read_exact(&mut [0; 5]).unwrap();
    is_silent.store(true, Ordering::Relaxed);
    a.write_all(b"not heard").unwrap();
    // After some 1.7 s; TCP itself would take 30.
    assert!(is_reset_within(&mut a, Duration::from_secs(5)));
    // The other side has sent nothing, but pings go unanswered.
    assert!(is_reset_within(&mut b, Duration::from_secs(12)));
}

#[test]
fn a_killed_relay_resets_its_circuits_at_once_and_is_met_again_when_it_is_back() {
    let first = Relay::dialing(&[]);
    let address = first.address;
    let second = Relay::dialing(&[address]);
    let mut b = register(second.address, 1);
    let (_a, mut leg) = circuit(address, 0, &mut b);
    first.kill();
    // Silence would be found after 1.25 s at the earliest.
    assert!(is_reset_within(&mut leg, Duration::from_millis(1200)));
    let mut again = config(&[]);
    again.listen = vec![address];
    let first = Relay::start_when_free(again);
    let (mut a, mut leg) = circuit(first.address, 0, &mut b);
    a.write_all(b"again").unwrap();
    leg.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn two_paths_and_a_circle_one_of_them_lost() {
    // a - b - d and a - c - d, and b - c: circles.
    let d = Relay::dialing(&[]);
    let b = Relay::dialing(&[d.address]);
    let c = Relay::dialing(&[d.address, b.address]);
    let a = Relay::dialing(&[b.address, c.address]);
    let mut home = register(d.address, 1);
    let (mut x, mut y) = circuit(a.address, 0, &mut home);
    x.write_all(b"one").unwrap();
    y.read_exact(&mut [0; 3]).unwrap();
    b.kill();
    let (mut x, mut y) = circuit(a.address, 0, &mut home);
    x.write_all(b"two").unwrap();
    y.read_exact(&mut [0; 3]).unwrap();
    c.kill();
    let since = Instant::now();
    loop {
        match open(a.address, 0, 1, &[]) {
            Err(Refused::Verdict(gridmpi_wire::LegVerdict::NoRoute)) => break,
            _ => assert!(since.elapsed() < PATIENCE, "a way that is gone is still believed in"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
