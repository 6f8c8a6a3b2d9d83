//! Several processes' networks in one process, over loopback.
#![allow(dead_code)] // each test file uses its part

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::{Completion, Config, Mode, RequestId, Source, TagMatch};
use gridmpi_net::{Bound, Limits, Listen, Net, NetConfig, Pacing, Way, bind};
use gridmpi_wire::{ContextId, JobKey, ProcId, Rank};

/// A bound for everything that must happen at all; far above what it takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where nobody listens: no system gives this port away, so that no listener of another test has it meanwhile.
pub const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

pub const JOB: [u8; 16] = [7; 16];

pub fn loopback() -> Bound {
    bind(&Listen { interface: Some("127.0.0.1".into()), port: 0 }).unwrap()
}

pub fn config(me: u32, peers: Vec<Vec<SocketAddr>>) -> NetConfig {
    let me = ProcId(me);
    NetConfig {
        me,
        job: JOB,
        key: JobKey::new([9; 32]),
        engine: Config::new(me),
        peers: peers.into_iter().map(|addresses| vec![Way::Direct(addresses)]).collect(),
        security: None,
        relays: None,
        limits: Limits::default(),
        pacing: Pacing::default(),
        warn: |message| println!("warning: {message}"),
        tells_of_absence: None,
        lost: None,
        forked: None,
    }
}

/// `count` networks that know each other; `adjust` may change their settings.
pub fn nets_with(count: u32, adjust: impl Fn(&mut NetConfig)) -> Vec<Net> {
    let bound: Vec<Bound> = (0..count).map(|_| loopback()).collect();
    let table: Vec<Vec<SocketAddr>> = bound.iter().map(|b| b.addresses().to_vec()).collect();
    let start = |(me, bound)| {
        let mut config = config(me, table.clone());
        adjust(&mut config);
        Net::start(bound, config).unwrap()
    };
    (0..count).zip(bound).map(start).collect()
}

pub fn nets(count: u32) -> Vec<Net> {
    nets_with(count, |_| {})
}

/// Seconds that so many bytes take at so many bits per second. Loopback's packets carry 64 KB beside their headers, which are next to nothing of it:
/// a wire of frames would take 6 % longer.
pub fn seconds_at(bits: f64, bytes: usize) -> f64 {
    bytes as f64 * 8.0 / bits
}

/// Bytes that differ by `seed` and place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn send(net: &Net, me: u32, to: u32, tag: i32, bytes: Vec<u8>) -> RequestId {
    let buffer = SendBuffer::from_bytes(Bytes::from(bytes));
    net.lock().send(ProcId(to), ContextId::WORLD, Rank(me), tag, Mode::Standard, buffer)
}

pub fn receive(net: &Net, from: u32, tag: i32, len: usize) -> RequestId {
    let source = Source::Remote(Rank(from), ProcId(from));
    net.lock().receive(ContextId::WORLD, source, TagMatch::Is(tag), RecvBuffer::owned(len as u64))
}

/// Waits for a request, asleep.
pub fn finish(net: &Net, request: RequestId) -> (Completion, Option<Vec<u8>>) {
    finish_by(net, request, |net, epoch, deadline| {
        net.wait(epoch, deadline);
    })
}

/// Waits for a request by polling.
pub fn finish_polling(net: &Net, request: RequestId) -> (Completion, Option<Vec<u8>>) {
    finish_by(net, request, |net, _, _| {
        net.poll();
    })
}

fn finish_by(
    net: &Net,
    request: RequestId,
    pause: impl Fn(&Net, gridmpi_net::Epoch, Instant),
) -> (Completion, Option<Vec<u8>>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut guard = net.lock();
        if let Some((completion, buffer)) = guard.take_with_buffer(request) {
            let bytes = buffer.and_then(RecvBuffer::into_bytes).map(|bytes| bytes.to_vec());
            return (completion, bytes);
        }
        let epoch = guard.epoch();
        drop(guard);
        assert!(Instant::now() < deadline, "a request never completed: {:?}", net.failure());
        pause(net, epoch, deadline);
    }
}

/// Waits until `done`, with a bound.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends all networks, which must find everything delivered.
pub fn shutdown(nets: Vec<Net>) {
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        for net in &nets {
            scope.spawn(move || {
                assert!(net.shutdown(deadline), "not drained: {:?}", net.failure());
                assert_eq!(net.failure(), None);
            });
        }
    });
}

/// Sets its flag when it goes, also where a test fails: who looks at it ends.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
