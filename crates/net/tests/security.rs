//! Connections with TLS: what passes arrives, and whoever has no certificate of the job gets nothing.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::*;
use gridmpi_net::{Net, NetConfig, Relays, Security, Way};
use gridmpi_wire::{JobKey, ProcId};
use relay::Relay;

fn security(key: u8) -> Option<Security> {
    Some(Security::of_job(JOB, &JobKey::new([key; 32])).unwrap())
}

fn secure_nets(count: u32, adjust: impl Fn(&mut NetConfig)) -> Vec<Net> {
    nets_with(count, |config| {
        config.security = security(9);
        adjust(config);
    })
}

/// Messages of all sizes both ways at once.
fn exchange(nets: &[Net], seed: u64) {
    let sizes = [0, 1, 100, 16_384, 16_385, 100_000, 3_000_000];
    let mut wanted = Vec::new();
    for (number, &len) in sizes.iter().enumerate() {
        for (from, to) in [(0u32, 1u32), (1, 0)] {
            let bytes = pattern(seed + number as u64 * 2 + u64::from(from), len);
            let sent = send(&nets[from as usize], from, to, number as i32, bytes.clone());
            let received = receive(&nets[to as usize], from, number as i32, len);
            wanted.push((from, to, sent, received, bytes));
        }
    }
    for (from, to, sent, received, bytes) in wanted {
        assert!(finish(&nets[to as usize], received).1 == Some(bytes), "{from} to {to}");
        assert_eq!(finish(&nets[from as usize], sent).0.error, None);
    }
}

#[test]
fn messages_pass_encrypted() {
    let nets = secure_nets(2, |_| {});
    (0..20).for_each(|round| exchange(&nets, round * 100));
    shutdown(nets);
}

#[test]
fn messages_pass_encrypted_by_polling_and_with_small_socket_buffers() {
    let nets = secure_nets(2, |config| config.limits.socket_buffer = Some(32 * 1024));
    let sent = send(&nets[0], 0, 1, 0, pattern(1, 2_000_000));
    let received = receive(&nets[1], 0, 0, 2_000_000);
    assert!(finish_polling(&nets[1], received).1 == Some(pattern(1, 2_000_000)));
    finish_polling(&nets[0], sent);
    exchange(&nets, 7);
    shutdown(nets);
}

#[test]
fn circuits_are_encrypted_from_end_to_end() {
    let token = JobKey::new([4; 32]);
    let relay = Relay::new(token.clone());
    let nets = secure_nets(2, |config| {
        config.peers.iter_mut().for_each(|ways| *ways = vec![Way::Relay(0)]);
        config.relays = Some(Relays {
            addresses: vec![relay.address],
            token: token.clone(),
            first: config.me,
            count: 1,
            takes_more: true,
        });
    });
    (0..3).for_each(|round| exchange(&nets, round));
    for _ in 0..5 {
        relay.cut();
        exchange(&nets, 50);
    }
    shutdown(nets);
}

#[test]
fn a_peer_without_tls_is_refused_and_named() {
    let nets = nets_with(2, |config| {
        config.security = (config.me == ProcId(1)).then(|| security(9)).flatten();
        config.limits.dial_refused = Duration::from_millis(200);
        config.limits.dial_total = Duration::from_secs(3);
    });
    let wanted = receive(&nets[0], 1, 0, 1);
    send(&nets[0], 0, 1, 0, vec![1]);
    assert!(finish(&nets[0], wanted).0.error.is_some());
    assert!(nets[1].stats().rejected > 0);
    assert_eq!(nets[1].stats().last_rejection.as_deref(), Some("rank 0 does not speak TLS"));
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let nets = nets_with(2, |config| {
        // The job's key is the same, so only TLS can tell them apart.
        config.security = security(if config.me == ProcId(1) { 9 } else { 8 });
        config.limits.dial_refused = Duration::from_millis(200);
        config.limits.dial_total = Duration::from_secs(3);
    });
    let wanted = receive(&nets[0], 1, 0, 1);
    send(&nets[0], 0, 1, 0, vec![1]);
    assert!(finish(&nets[0], wanted).0.error.is_some());
    let failure = nets[0].failure().unwrap().to_string();
    assert!(failure.contains("TLS"), "{failure}");
}

#[test]
fn noise_behind_a_tls_byte_is_dropped_and_others_are_served() {
    let bound = [loopback(), loopback()];
    let table: Vec<_> = bound.iter().map(|b| b.addresses().to_vec()).collect();
    let victim = table[1][0];
    let start = |(me, bound)| {
        let mut config = config(me, table.clone());
        config.security = security(9);
        Net::start(bound, config).unwrap()
    };
    let nets: Vec<Net> = (0..2).zip(bound).map(start).collect();
    for noise in
        [&[0x16u8, 3, 1, 0xff, 0xff, 1][..], &[0x16; 4000], &[0x16], b"\x16\x03\x01\x00\x05hello"]
    {
        let mut stranger = TcpStream::connect(victim).unwrap();
        stranger.write_all(noise).unwrap();
        // The victim may have hung up by now: it needs no more than the first bytes.
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        // At most an alert comes back, and then the end.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    exchange(&nets, 3);
    assert!(nets[1].stats().rejected >= 4);
    shutdown(nets);
}
