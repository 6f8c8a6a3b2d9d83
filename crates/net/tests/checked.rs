//! Circuits without TLS: what a relay damages is found by its checksum, and sent again.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError::Timeout;
use std::time::Duration;

use common::*;
use gridmpi_leg::{Ask, AskStep, Asker};
use gridmpi_net::Net;
use gridmpi_wire::{Errand, JobKey, ProcId};
use relay::{Relay, TOKEN, Trouble, relayed, use_relays};

fn relays(count: usize) -> Vec<Relay> {
    (0..count).map(|_| Relay::new(JobKey::new(TOKEN))).collect()
}

/// Messages of all sizes both ways at once, some of them unexpected.
fn exchange(nets: &[Net], seed: u64) {
    let sizes = [0, 1, 100, 2_047, 9_000, 16_385, 100_000, 70_000, 700_000];
    let mut wanted = Vec::new();
    for (number, &len) in sizes.iter().enumerate() {
        for (from, to) in [(0u32, 1u32), (1, 0)] {
            let bytes = pattern(seed + number as u64 * 2 + u64::from(from), len);
            let post = || receive(&nets[to as usize], from, number as i32, len);
            let before = (number % 3 != 0).then(post);
            let sent = send(&nets[from as usize], from, to, number as i32, bytes.clone());
            let received = before.unwrap_or_else(post);
            wanted.push((from, to, sent, received, bytes));
        }
    }
    for (from, to, sent, received, bytes) in wanted {
        let len = bytes.len();
        let (completion, arrived) = finish(&nets[to as usize], received);
        assert_eq!(completion.error, None, "{from} to {to}, {len} bytes");
        assert!(arrived == Some(bytes), "{from} to {to}: {len} bytes are not what was sent");
        assert_eq!(finish(&nets[from as usize], sent).0.error, None);
    }
}

/// Somewhere from 0 to `below`, by these numbers.
fn somewhere(below: u64, numbers: [u64; 2]) -> u64 {
    let x = (numbers[0] << 32 ^ numbers[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % below
}

/// Of every `every` bytes of a direction one is struck, wherever it is: what happens to the rest of its piece `strike` says.
fn sometimes(every: u64, strike: impl Fn(&mut Vec<u8>, usize) + Send + Sync + 'static) -> Trouble {
    Arc::new(move |number, at, piece| {
        let (first, last) = (at / every, (at + piece.len() as u64) / every);
        for stretch in (first..=last).rev() {
            let place = stretch * every + somewhere(every, [number, stretch]);
            if let Some(place) = place.checked_sub(at)
                && (place as usize) < piece.len()
            {
                strike(piece, place as usize);
            }
        }
    })
}

fn flip(piece: &mut [u8], at: usize) {
    piece[at] ^= 1 << (at % 8);
}

fn damaged(nets: &[Net]) -> u64 {
    nets.iter().map(|net| net.counts().damaged).sum()
}

/// Exchanges messages through a relay that strikes until it has been found out `times` times.
fn survive(nets: &[Net], times: u64) {
    let mut round = 0;
    eventually("damage, often enough", || {
        round += 1;
        exchange(nets, round * 100);
        damaged(nets) >= times
    });
}

/// While that is done a word goes each way now and then, whatever becomes of it: of what is lost at the very end nobody knows before
/// more comes.
fn chattering(nets: &[Net], work: impl FnOnce()) {
    const TAG: i32 = 1000;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut said = Vec::new();
            while ended.recv_timeout(Duration::from_millis(20)).is_err_and(|e| e == Timeout) {
                for (from, to) in [(0u32, 1u32), (1, 0)] {
                    let receiver = &nets[to as usize];
                    said.push((receiver, receive(receiver, from, TAG, 1)));
                    said.push((
                        &nets[from as usize],
                        send(&nets[from as usize], from, to, TAG, vec![0]),
                    ));
                }
            }
            for (net, request) in said {
                assert_eq!(finish(net, request).0.error, None);
            }
        });
        work();
        drop(end);
    });
}

#[test]
fn circuits_pass_all_there_is() {
    let relays = relays(1);
    let nets = relayed(&relays, |_| {});
    (0..10).for_each(|round| exchange(&nets, round * 100));
    assert_eq!(damaged(&nets), 0);
    shutdown(nets);
}

#[test]
fn circuits_pass_all_there_is_by_polling_and_with_small_socket_buffers() {
    let relays = relays(1);
    let nets = relayed(&relays, |config| config.limits.socket_buffer = Some(16 * 1024));
    let sent = send(&nets[0], 0, 1, 0, pattern(1, 2_000_000));
    let received = receive(&nets[1], 0, 0, 2_000_000);
    assert!(finish_polling(&nets[1], received).1 == Some(pattern(1, 2_000_000)));
    finish_polling(&nets[0], sent);
    (0..5).for_each(|round| exchange(&nets, round * 100));
    assert_eq!(damaged(&nets), 0);
    shutdown(nets);
}

#[test]
fn flipped_bits_are_found_and_everything_arrives_right() {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    let relays = relays(1);
    relays[0].trouble(Some(sometimes(1_000_000, |piece, at| flip(piece, at))));
    let nets = relayed(&relays, |config| {
        config.warn = |message| {
            assert!(message.contains("damaged on the way"), "{message}");
            SAID.fetch_add(1, Ordering::SeqCst);
        };
    });
    survive(&nets, 20);
    let found = nets.iter().filter(|net| net.counts().damaged > 0).count();
    assert_eq!(SAID.load(Ordering::SeqCst), found, "each process says it once");
    relays[0].trouble(None);
    relays[0].cut();
    exchange(&nets, 1);
    shutdown(nets);
}

#[test]
fn flipped_bits_are_found_on_each_of_several_connections() {
    let relays = relays(2);
    for relay in &relays {
        relay.trouble(Some(sometimes(2_000_000, |piece, at| flip(piece, at))));
    }
    let nets = relayed(&relays, |config| config.limits.connections = Some(4));
    survive(&nets, 20);
    shutdown(nets);
}

#[test]
fn what_is_lost_doubled_or_exchanged_on_a_circuit_is_found() {
    let strikes: [fn(&mut Vec<u8>, usize); 3] = [
        |piece, at| drop(piece.drain(at..piece.len().min(at + 100))),
        |piece, at| piece.extend_from_within(at..),
        |piece, at| piece.rotate_left(at),
    ];
    for strike in strikes {
        let relays = relays(1);
        relays[0].trouble(Some(sometimes(1_000_000, strike)));
        let nets = relayed(&relays, |_| {});
        chattering(&nets, || survive(&nets, 3));
        relays[0].trouble(None);
        relays[0].cut();
        shutdown(nets);
    }
}

#[test]
fn damage_without_end_has_an_end() {
    let relays = relays(1);
    // The handshake passes.
    relays[0].trouble(Some(Arc::new(|_, at, piece| {
        let place = 1_000_u64.checked_sub(at).map(|place| place as usize);
        if let Some(byte) = place.and_then(|place| piece.get_mut(place)) {
            *byte ^= 1;
        }
    })));
    let nets = relayed(&relays, |config| config.limits.reconnect = Duration::from_secs(5));
    let received = receive(&nets[1], 0, 0, 100_000);
    send(&nets[0], 0, 1, 0, pattern(1, 100_000));
    assert!(finish(&nets[1], received).0.error.is_some());
    let failure = nets[1].failure().unwrap().to_string();
    assert!(failure.contains("damaged on the way"), "{failure}");
    assert!(failure.contains("faulty"), "{failure}");
    // Ever later, and so not many.
    assert!((5..40).contains(&nets[1].counts().damaged), "{}", nets[1].counts().damaged);
}

/// Where a circuit to `to` can be dialled as if it listened there itself.
fn door(relay: SocketAddr, from: ProcId, to: ProcId) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, mut near) in listener.incoming().flatten().enumerate() {
            let asker = Asker { me: from, job: JOB, token: JobKey::new(TOKEN) };
            let nonce = pattern(1000 + number as u64, 32).try_into().unwrap();
            let (mut ask, hello) = Ask::new(&asker, Errand::Open { to }, nonce);
            let mut far = TcpStream::connect(relay).unwrap();
            far.write_all(&hello).unwrap();
            loop {
                let Ok(count @ 1..) = far.read(ask.space()) else { return };
                match ask.read(count, &asker) {
                    Ok(AskStep::More) => {}
                    Ok(AskStep::Send(request)) => far.write_all(&request).unwrap(),
                    Ok(AskStep::Done) => break,
                    Err(_) => return,
                }
            }
            let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
            std::thread::spawn(move || std::io::copy(&mut near, &mut far));
        }
    });
    address
}

#[test]
fn a_peer_that_sends_no_checksums_through_a_relay_is_refused_and_named() {
    let relays = relays(1);
    let listening = nets_with(2, |config| {
        if config.me == ProcId(1) {
            use_relays(config, &relays);
        }
    });
    eventually("the registration", || relays[0].registered() == 1);
    let way = door(relays[0].address, ProcId(0), ProcId(1));
    let mut dialling = config(0, vec![Vec::new(), vec![way]]);
    dialling.limits.dial_total = Duration::from_secs(3);
    let dialler = Net::start(loopback(), dialling).unwrap();
    let wanted = receive(&dialler, 1, 0, 1);
    send(&dialler, 0, 1, 0, vec![1]);
    assert!(finish(&dialler, wanted).0.error.is_some());
    let stats = listening[1].stats();
    assert_eq!(
        stats.last_rejection.as_deref(),
        Some("rank 0 sends no checksums through a relay: another version?")
    );
}

#[test]
fn noise_in_the_place_of_records_is_dropped_and_others_are_served() {
    let relays = relays(1);
    let nets = relayed(&relays, |_| {});
    eventually("the registrations", || relays[0].registered() == 2);
    let way = door(relays[0].address, ProcId(0), ProcId(1));
    let whole = [&[0xc5, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0; 70_000]].concat();
    for noise in [&[0xc5][..], &[0xc5; 4000], b"\xc5\xff\xff\xff", &whole] {
        let mut stranger = TcpStream::connect(way).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stranger.write_all(noise);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        drop(stranger);
    }
    eventually("all are refused", || nets[1].stats().rejected >= 4);
    exchange(&nets, 3);
    shutdown(nets);
}
