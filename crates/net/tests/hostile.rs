//! Who is not of the job, or does not behave, gets nothing and harms nobody.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_net::handshake::{Ask, AskStep, Claim, Identity};
use gridmpi_net::{HandshakeError, Net, NetConfig, Way};
use gridmpi_wire::{
    Challenge, ContextId, Envelope, Frame, Hello, JobKey, MAGIC, MAX_PAYLOAD, ProcId, Rank, Strand,
    VERSION_MAX, Verdict,
};
use socket2::{Domain, Type};

/// A network and where it listens. Rank 1 exists in its table but not in truth.
fn victim(adjust: impl Fn(&mut NetConfig)) -> (Net, SocketAddr) {
    let bound = loopback();
    let address = bound.addresses()[0];
    let mut config = config(0, vec![vec![address], Vec::new()]);
    adjust(&mut config);
    (Net::start(bound, config).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the other side closes, having sent nothing.
fn is_closed_silently(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

const FIRST: Claim = Claim::new(1, Strand::FIRST);

fn identity(key: u8) -> Identity {
    Identity { me: ProcId(1), procs: 2, job: JOB, key: JobKey::new([key; 32]) }
}

/// The handshake of a peer, by blocking calls.
fn try_authenticate(
    stream: &mut TcpStream,
    us: &Identity,
    claim: Claim,
) -> Result<u64, HandshakeError> {
    let (mut ask, hello) = Ask::new(us, ProcId(0), [5; 32]);
    stream.write_all(&hello).unwrap();
    loop {
        let count = stream.read(ask.space()).unwrap();
        assert_ne!(count, 0, "refused");
        match ask.read(count, us, claim)? {
            AskStep::More => {}
            AskStep::Send(proof) => stream.write_all(&proof).unwrap(),
            AskStep::Welcomed(resume) => return Ok(resume),
        }
    }
}

fn authenticate(stream: &mut TcpStream, us: &Identity) {
    assert_eq!(try_authenticate(stream, us, FIRST), Ok(1));
}

/// As our own dialers: who is turned away comes again. `from`: the address to come from.
fn come_in(address: SocketAddr, from: IpAddr) -> TcpStream {
    let us = identity(9);
    let mut stream = None;
    eventually("rank 1 is let in", || {
        let mut coming = connect_from(address, from);
        let (mut ask, hello) = Ask::new(&us, ProcId(0), [5; 32]);
        if coming.write_all(&hello).is_err() {
            return false;
        }
        loop {
            let Ok(count @ 1..) = coming.read(ask.space()) else { return false };
            match ask.read(count, &us, FIRST).unwrap() {
                AskStep::More => {}
                AskStep::Send(proof) => {
                    if coming.write_all(&proof).is_err() {
                        return false;
                    }
                }
                AskStep::Welcomed(_) => break,
            }
        }
        stream = Some(coming);
        true
    });
    stream.unwrap()
}

fn connect_from(address: SocketAddr, from: IpAddr) -> TcpStream {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

/// A message from the authenticated rank 1 still arrives.
fn still_serves(net: &Net, address: SocketAddr) {
    still_serves_from(net, address, address.ip());
}

fn still_serves_from(net: &Net, address: SocketAddr, from: IpAddr) {
    let wanted = receive(net, 1, 3, 4);
    let mut peer = come_in(address, from);
    let envelope = Envelope {
        context: ContextId::WORLD,
        source: Rank(1),
        tag: 3,
        message: 1,
        len: 4,
        eager: 4,
        synchronous: false,
    };
    peer.write_all(&Frame::Envelope(envelope).encode(1, 0, 4)).unwrap();
    peer.write_all(b"abcd").unwrap();
    assert_eq!(finish(net, wanted).1.as_deref(), Some(&b"abcd"[..]));
}

#[test]
fn one_wrong_byte_of_magic_is_enough_to_be_cut() {
    let (net, address) = victim(|_| {});
    for first in [b'G', MAGIC[0] ^ 1, 0x16] {
        let mut stream = connect(address);
        stream.write_all(&[first]).unwrap();
        assert!(is_closed_silently(&mut stream));
    }
    // A scanner that says nothing and goes.
    drop(connect(address));
    eventually("all are rejected", || net.stats().rejected == 4);
    assert_eq!(net.failure(), None);
    still_serves(&net, address);
}

#[test]
fn half_open_handshakes_make_room_and_end() {
    let (net, address) = victim(|config| {
        config.limits.pending = 4;
        config.limits.handshake = Duration::from_millis(900);
    });
    // Far more than may be pending; some stop inside the hello.
    let mut idle: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    for stream in idle.iter_mut().step_by(2) {
        stream.write_all(&MAGIC).unwrap();
    }
    still_serves(&net, address);
    for stream in &mut idle {
        assert!(is_closed_silently(stream));
    }
}

#[test]
fn a_flood_that_says_valid_hellos_keeps_nobody_out() {
    let (net, address) = victim(|config| {
        config.limits.pending = 8;
        // None of them goes by itself.
        config.limits.handshake = 2 * PATIENCE;
    });
    // All that a hello needs is public.
    let flood = |_| {
        let mut stream = connect(address);
        let _ = stream.write_all(&Ask::new(&identity(9), ProcId(0), [5; 32]).1);
        stream
    };
    let mut places: Vec<TcpStream> = (0..8).map(flood).collect();
    for stream in &mut places {
        stream.read_exact(&mut [0; Challenge::LEN]).unwrap();
    }
    let more: Vec<TcpStream> = (0..100).map(flood).collect();
    eventually("all have come", || net.stats().accepted == 108);
    let began = Instant::now();
    still_serves_from(&net, address, [127, 0, 0, 2].into());
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert_eq!(net.stats().rejected, 101, "its own, and one to make room");
    drop(more);
    // Their places are theirs, but for one: the oldest.
    assert!(is_closed_silently(&mut places[0]));
    for stream in &mut places[1..] {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn a_handshake_without_proof_times_out() {
    let (net, address) = victim(|config| config.limits.handshake = Duration::from_millis(300));
    let mut stream = connect(address);
    let (_, hello) = Ask::new(&identity(9), ProcId(0), [5; 32]);
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut [0; Challenge::LEN]).unwrap();
    assert!(is_closed_silently(&mut stream));
    assert!(net.stats().last_rejection.unwrap().contains("too long"));
}

#[test]
fn a_proof_with_another_key_is_rejected() {
    let (net, address) = victim(|_| {});
    let right = identity(9);
    let mut stream = connect(address);
    let (mut ask, hello) = Ask::new(&right, ProcId(0), [5; 32]);
    stream.write_all(&hello).unwrap();
    let mut proof = loop {
        let count = stream.read(ask.space()).unwrap();
        if let AskStep::Send(proof) = ask.read(count, &right, FIRST).unwrap() {
            break proof;
        }
    };
    proof[20] ^= 1;
    stream.write_all(&proof).unwrap();
    assert!(is_closed_silently(&mut stream));
    assert!(net.stats().last_rejection.unwrap().contains("key"));
    // Nor does a challenge hold for another dialer.
    let wrong = identity(8);
    let mut stream = connect(address);
    let (mut ask, hello) = Ask::new(&wrong, ProcId(0), [5; 32]);
    stream.write_all(&hello).unwrap();
    stream.read_exact(ask.space()).unwrap();
    assert!(ask.read(Challenge::LEN, &wrong, FIRST).unwrap_err().to_string().contains("key"));
}

#[test]
fn a_build_of_another_version_is_told_so_and_says_so() {
    let (net, address) = victim(|_| {});
    let us = identity(9);
    let (mut ask, _) = Ask::new(&us, ProcId(0), [5; 32]);
    let hello = Hello {
        magic: MAGIC,
        version_min: VERSION_MAX + 1,
        version_max: VERSION_MAX + 2,
        from: us.me,
        to: ProcId(0),
        job: us.job,
        nonce: [5; 32],
    };
    let mut stream = connect(address);
    stream.write_all(&hello.encode()).unwrap();
    let mut bytes = [0; Challenge::LEN];
    stream.read_exact(&mut bytes).unwrap();
    let challenge = Challenge::decode(&bytes).unwrap();
    assert!(challenge.is_genuine(&us.key, &hello));
    assert_eq!((challenge.version, challenge.verdict), (0, Verdict::NoCommonVersion));
    assert!(is_closed_silently(&mut stream));
    assert!(net.stats().last_rejection.unwrap().contains("versions"));
    // A dialer that gets this answer names the reason.
    let (_, own) = Ask::new(&us, ProcId(0), [5; 32]);
    let refused = Challenge { mac: [0; 32], ..challenge };
    let refused = refused.signed(&us.key, &Hello::decode(&own).unwrap());
    ask.space().copy_from_slice(&refused.encode());
    let error = ask.read(Challenge::LEN, &us, FIRST).unwrap_err();
    assert_eq!(error, HandshakeError::NoCommonVersion);
}

#[test]
fn another_jobs_process_is_not_answered() {
    let (net, address) = victim(|_| {});
    let others = [
        (Identity { job: [0; 16], ..identity(9) }, 0),
        (identity(9), 1),
        (Identity { me: ProcId(0), ..identity(9) }, 0),
        (Identity { me: ProcId(2), ..identity(9) }, 0),
    ];
    for (us, to) in others {
        let mut stream = connect(address);
        stream.write_all(&Ask::new(&us, ProcId(to), [5; 32]).1).unwrap();
        assert!(is_closed_silently(&mut stream), "{us:?} to {to}");
    }
    assert_eq!(net.stats().rejected, 4);
}

#[test]
fn wrong_key_is_a_failure_that_says_so() {
    let nets = nets_with(2, |config| {
        config.key = JobKey::new([config.me.0 as u8; 32]);
        config.limits.dial_refused = Duration::from_millis(100);
    });
    let wanted = receive(&nets[0], 1, 0, 1);
    let sent = send(&nets[0], 0, 1, 0, vec![1]);
    assert!(finish(&nets[0], wanted).0.error.is_some());
    finish(&nets[0], sent);
    let failure = nets[0].failure().unwrap().to_string();
    assert!(failure.contains("key") && failure.contains("join token"), "{failure}");
}

/// After the handshake, bytes that no peer of ours would send: the peer is given up, by name.
fn misbehaves(bytes: &[u8], complaint: &str) {
    let (net, address) = victim(|_| {});
    let wanted = receive(&net, 1, 99, 1);
    let mut peer = connect(address);
    authenticate(&mut peer, &identity(9));
    peer.write_all(bytes).unwrap();
    assert!(finish(&net, wanted).0.error.is_some());
    let failure = net.failure().unwrap().to_string();
    assert!(failure.contains("rank 1") && failure.contains(complaint), "{failure}");
    // It does not come back.
    let mut peer = connect(address);
    peer.write_all(&Ask::new(&identity(9), ProcId(0), [6; 32]).1).unwrap();
    peer.read_exact(&mut [0; Challenge::LEN]).unwrap();
    drop(peer);
    assert_eq!(net.stats().connections, 1);
}

#[test]
fn an_oversize_frame_is_refused() {
    let mut head = Frame::Data { message: 1, offset: 0 }.encode(1, 0, MAX_PAYLOAD).to_vec();
    head[4..8].copy_from_slice(&(MAX_PAYLOAD + 17).to_le_bytes());
    misbehaves(&head, "body of");
}

#[test]
fn a_peer_that_wants_frames_that_never_were_is_refused() {
    let (net, address) = victim(|_| {});
    let refused =
        try_authenticate(&mut connect(address), &identity(9), Claim::new(5, Strand::FIRST));
    assert_eq!(refused, Err(HandshakeError::Refused(Verdict::CannotResume)));
    eventually("it is given up", || net.failure().is_some());
    assert!(net.failure().unwrap().what.contains("resume"), "{:?}", net.failure());
}

#[test]
fn a_gap_in_the_numbers_is_refused() {
    misbehaves(&Frame::Close.encode(2, 0, 0), "frame 2 came");
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_refused() {
    misbehaves(&Frame::Ack.encode(0, 77, 0), "77 frames were acknowledged");
}

#[test]
fn noise_after_the_handshake_is_refused() {
    misbehaves(&pattern(6, 4000), "no frame");
}

#[test]
fn a_listener_that_never_answers_is_a_failure_in_bounded_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (net, _) = victim(|config| {
        config.peers[1] = vec![Way::Direct(vec![address])];
        config.limits.dial_address = Duration::from_millis(50);
        config.limits.dial_total = Duration::from_millis(300);
    });
    let started = Instant::now();
    let sent = send(&net, 0, 1, 0, vec![1]);
    assert!(finish(&net, receive(&net, 1, 0, 1)).0.error.is_some());
    finish(&net, sent);
    assert!(started.elapsed() < PATIENCE / 2);
    let what = net.failure().unwrap().what;
    assert!(what.contains("does not answer in time"), "{what}");
}

fn strand(number: usize) -> Strand {
    Strand::new(number).unwrap()
}

fn data(message: u64, seq: u64, payload: u32) -> Vec<u8> {
    let mut bytes = Frame::Data { message, offset: 0 }.encode(seq, 0, payload).to_vec();
    bytes.resize(bytes.len() + payload as usize, 7);
    bytes
}

#[test]
fn a_further_connection_needs_its_own_proof_and_a_number_that_there_is() {
    let (net, address) = victim(|_| {});
    let mut first = connect(address);
    authenticate(&mut first, &identity(9));
    let us = identity(9);
    // The number is the byte behind that of the frame; the tag covers it.
    for (number, complaint) in [(3, "key"), (16, "strand"), (255, "strand")] {
        let mut stream = connect(address);
        let (mut ask, hello) = Ask::new(&us, ProcId(0), [5; 32]);
        stream.write_all(&hello).unwrap();
        let mut proof = loop {
            let count = stream.read(ask.space()).unwrap();
            if let AskStep::Send(proof) = ask.read(count, &us, Claim::new(1, strand(1))).unwrap() {
                break proof;
            }
        };
        proof[8] = number;
        stream.write_all(&proof).unwrap();
        assert!(is_closed_silently(&mut stream));
        assert!(net.stats().last_rejection.unwrap().contains(complaint), "{number}");
    }
    // A whole one that claims less than all stands beside the first, and the first is as it was.
    let mut second = connect(address);
    let claim = Claim::new(1, strand(1)).with(Strand::FIRST);
    assert_eq!(try_authenticate(&mut second, &us, claim), Ok(1));
    let wanted = receive(&net, 1, 3, 4);
    let envelope = Envelope {
        context: ContextId::WORLD,
        source: Rank(1),
        tag: 3,
        message: 1,
        len: 4,
        eager: 4,
        synchronous: false,
    };
    first.write_all(&Frame::Envelope(envelope).encode(1, 0, 4)).unwrap();
    first.write_all(b"abcd").unwrap();
    assert_eq!(finish(&net, wanted).1.as_deref(), Some(&b"abcd"[..]));
    assert_eq!((net.failure(), net.stats().connections), (None, 2));
    // A third that has lost the first ends it.
    let mut third = connect(address);
    let claim = Claim::new(1, strand(2)).with(strand(1));
    assert_eq!(try_authenticate(&mut third, &us, claim), Ok(2));
    // What was to be acknowledged on it is said no more.
    let mut rest = Vec::new();
    let _ = first.read_to_end(&mut rest);
    assert_eq!(net.failure(), None);
}

/// On a second connection, what is too far ahead of the first: the peer is given up, by name.
fn runs_ahead(bytes: &[u8], complaint: &str) {
    let (net, address) = victim(|_| {});
    let wanted = receive(&net, 1, 99, 1);
    let mut first = connect(address);
    authenticate(&mut first, &identity(9));
    let mut second = connect(address);
    let claim = Claim::new(1, strand(1)).with(Strand::FIRST);
    assert_eq!(try_authenticate(&mut second, &identity(9), claim), Ok(1));
    let before = gridmpi_engine::Config::new(ProcId(0)).bounds;
    assert_eq!((before.early, before.away), (4 << 20, 4096));
    // It may be cut off while it writes.
    let _ = second.write_all(bytes);
    assert!(finish(&net, wanted).0.error.is_some());
    let failure = net.failure().unwrap().to_string();
    assert!(failure.contains("rank 1") && failure.contains(complaint), "{failure}");
    assert!(is_closed_silently(&mut first));
}

#[test]
fn more_ahead_of_a_messages_beginning_than_may_be_held_is_refused() {
    let all: Vec<u8> = (0..17).flat_map(|n| data(5, 2 + n, MAX_PAYLOAD)).collect();
    runs_ahead(&all, "have not begun");
}

#[test]
fn frames_that_leave_more_gaps_than_connections_can_are_refused() {
    let all: Vec<u8> = (0..9000).flat_map(|n| data(5, 2 + 2 * n, 1)).collect();
    runs_ahead(&all, "gaps");
}
