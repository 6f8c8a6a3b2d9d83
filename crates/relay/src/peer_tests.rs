//! Another relay that has proven itself and then does what it may not, over real sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gridmpi_wire::{JobKey, ProcId};
use rustix::net::SendFlags;
use rustls::{ClientConnection, Connection, StreamOwned};

use crate::cell::{Cell, FIRST_WINDOW, MAX_DATA, RelayId, Span, data_head};
use crate::channel::Channel;
use crate::dial::CONNECT;
use crate::greet::{GreetStep, Greeting, Means};
use crate::poller::Interest;
use crate::sockets::{Socket, SocketKey, Trunk, TrunkStage};
use crate::{Config, Daemon, Handle, Identity, Limits, Peer, Proof};

const PATIENCE: Duration = Duration::from_secs(10);

fn secret() -> JobKey {
    JobKey::new([4; 32])
}

/// A relay that runs in a thread until it is dropped.
struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    fn start(config: Config) -> Self {
        let daemon = Daemon::new(config).unwrap();
        let (address, handle) = (daemon.addresses()[0], daemon.handle());
        Self { address, handle, thread: Some(std::thread::spawn(move || daemon.run())) }
    }

    /// Connections that the core has.
    fn connections(&self) -> usize {
        self.handle.snapshot(PATIENCE).unwrap().gauges.connections
    }

    fn wait_for_connections(&self, count: usize) {
        let since = Instant::now();
        while self.connections() != count {
            assert!(since.elapsed() < PATIENCE, "{}, not {count}", self.connections());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.end();
        self.handle.end();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
    }
}

fn config(proof: Proof) -> Config {
    let name = "peer".to_owned();
    let peer = Peer { name, address: None, proof, connections: 1, rate: None, jobs: None };
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    Config { listen, peers: vec![peer], ..Config::default() }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A relay without a process of ours that has met the one at this address, but for the last word, which is to be sent.
fn almost_meet(address: SocketAddr) -> (TcpStream, Vec<u8>) {
    almost_meet_as(RelayId([9; 16]), address)
}

fn almost_meet_as(name: RelayId, address: SocketAddr) -> (TcpStream, Vec<u8>) {
    let mut stream = connect(address);
    let mut out = Vec::new();
    let means = Means::Secrets(vec![secret()]);
    let mut greeting = Greeting::dial(name, means, [1; 32], &mut out);
    loop {
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let mut bytes = vec![0; greeting.due()];
        stream.read_exact(&mut bytes).unwrap();
        if let GreetStep::Met { .. } = greeting.read(&bytes, &mut out).unwrap() {
            return (stream, out);
        }
    }
}

fn meet(address: SocketAddr) -> TcpStream {
    let (mut stream, last) = almost_meet(address);
    stream.write_all(&last).unwrap();
    stream
}

/// Says it; whether the relay then ends the connection.
fn is_cut_off(mut stream: TcpStream, bytes: &[u8]) -> bool {
    // It may be cut off before all is said.
    let _ = stream.write_all(bytes);
    ends(stream)
}

/// Whether the relay ends the connection, whatever it says before.
fn ends(mut stream: impl Read) -> bool {
    let mut space = [0; 4096];
    loop {
        match stream.read(&mut space) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return is_end(&error),
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

#[test]
fn a_peer_that_breaks_the_protocol_is_cut_off_and_others_go_on() {
    let relay = Running::start(config(Proof::Secret(secret())));
    let address = relay.address;
    let mut honest = meet(address);
    let cell = |circuit, cell: Cell| {
        let mut bytes = Vec::new();
        cell.encode(circuit, &mut bytes);
        bytes
    };
    let open = |circuit| {
        cell(circuit, Cell::Open { job: [0; 16], from: ProcId(0), to: ProcId(1), hops: 3 })
    };
    let cases = [
        vec![0xff; 100],
        // A length beyond what a cell may have, and one that its kind cannot have.
        [&data_head(1, MAX_DATA + 1)[..], &[0; 100]].concat(),
        vec![7, 1, 0, 0, 1, 0, 0, 0],
        // A circuit that was never opened, one that is not the sender's to open, the same number twice.
        [&data_head(5, 1)[..], &[0]].concat(),
        cell(7, Cell::Credit(1)),
        open(2),
        [open(3), open(3)].concat(),
        // A way by somebody else.
        cell(
            0,
            Cell::Route(Span { job: [0; 16], first: ProcId(0), count: 1 }, vec![RelayId([1; 16])]),
        ),
    ];
    for bytes in cases {
        assert!(is_cut_off(meet(address), &bytes), "{bytes:?}");
    }
    // What is refused, not forbidden: nobody is there, and the data behind it is dropped.
    let much = vec![0; FIRST_WINDOW];
    honest
        .write_all(
            &[open(1), data_head(1, much.len()).to_vec(), much, cell(0, Cell::Ping(77))].concat(),
        )
        .unwrap();
    let (answer, pong) =
        (cell(1, Cell::Answer(gridmpi_wire::LegVerdict::NoRoute)), cell(0, Cell::Pong(77)));
    let mut got = Vec::new();
    let holds = |got: &[u8], part: &[u8]| got.windows(part.len()).any(|some| some == part);
    while !(holds(&got, &answer) && holds(&got, &pong)) {
        let mut space = [0; 100];
        let count = honest.read(&mut space).unwrap();
        assert!(count > 0, "the honest one was cut off too");
        got.extend_from_slice(&space[..count]);
    }
    let seen = relay.handle.snapshot(PATIENCE).unwrap();
    assert_eq!((seen.circuits(), seen.memory()[1]), (0, 0));
}

#[test]
fn who_goes_by_two_names_may_not_tell_twice_as_much() {
    let relay = Running::start(config(Proof::Secret(secret())));
    let streams = [8, 9].map(|n| {
        let name = RelayId([n; 16]);
        let (mut stream, mut said) = almost_meet_as(name, relay.address);
        for first in 0..40 {
            let span = Span { job: [0; 16], first: ProcId(100 * u32::from(n) + first), count: 1 };
            Cell::Route(span, vec![name]).encode(0, &mut said);
        }
        stream.write_all(&said).unwrap();
        stream
    });
    let since = Instant::now();
    loop {
        let seen = relay.handle.snapshot(PATIENCE).unwrap();
        if seen.gauges.routes as u64 + seen.counts.routes_refused == 80 {
            assert_eq!((seen.gauges.routes, seen.counts.routes_refused), (72, 8));
            break;
        }
        assert!(since.elapsed() < PATIENCE, "what it was told is not all there");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(streams);
}

/// Whether the relay ends the connection, and says nothing more on it.
fn is_left(mut stream: impl Read) -> bool {
    match stream.read(&mut [0; 100]) {
        Ok(count) => count == 0,
        Err(error) => is_end(&error),
    }
}

#[test]
fn who_goes_from_the_settings_while_he_proves_to_know_the_secret_stays_outside() {
    let relay = Running::start(config(Proof::Secret(secret())));
    let (mut stays, last) = almost_meet(relay.address);
    stays.write_all(&last).unwrap();
    relay.wait_for_connections(1);
    let (mut late, last) = almost_meet(relay.address);
    relay.handle.reload(config(Proof::Secret(JobKey::new([5; 32]))));
    assert!(ends(stays), "one that has met us goes on");
    late.write_all(&last).unwrap();
    assert!(is_left(late), "one that has not met us is let in");
    relay.wait_for_connections(0);
}

/// A relay that has met us by TLS, as far as we know; what we say to that is still to be sent.
fn almost_meet_by_tls(
    us: &Identity,
    relay: &Running,
    to: &Identity,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut stream = connect(relay.address);
    let Connection::Client(mut tls) = crate::tls::dial(us, to.fingerprint()).unwrap() else {
        panic!("a connection that is dialled is a client's");
    };
    while tls.wants_write() {
        tls.write_tls(&mut stream).unwrap();
    }
    while tls.is_handshaking() {
        assert!(tls.read_tls(&mut stream).unwrap() > 0, "it is not answered");
        tls.process_new_packets().unwrap();
    }
    let mut hello = Vec::new();
    let means = Means::Tls(to.fingerprint().relay());
    Greeting::dial(us.fingerprint().relay(), means, [1; 32], &mut hello);
    tls.writer().write_all(&hello).unwrap();
    StreamOwned::new(tls, stream)
}

#[test]
fn who_goes_from_the_settings_while_tls_shakes_hands_stays_outside() {
    let [one, two, other] = [(); 3].map(|()| Identity::generate().unwrap());
    let config = |peer: &Identity| Config {
        identity: Some(one.clone()),
        ..config(Proof::Fingerprint(peer.fingerprint()))
    };
    let relay = Running::start(config(&two));
    let mut stays = almost_meet_by_tls(&two, &relay, &one);
    stays.flush().unwrap();
    assert!(!is_left(&mut stays), "one that is in the settings is not let in");
    relay.wait_for_connections(1);
    let mut late = almost_meet_by_tls(&two, &relay, &one);
    relay.handle.reload(config(&other));
    assert!(ends(&mut stays), "one that has met us goes on");
    late.flush().unwrap();
    assert!(is_left(&mut late), "one that has not met us is let in");
    relay.wait_for_connections(0);
}

#[test]
fn many_who_begin_with_tls_at_once_have_their_turns_and_each_is_answered() {
    let [one, two] = [(); 2].map(|()| Identity::generate().unwrap());
    let config =
        Config { identity: Some(one.clone()), ..config(Proof::Fingerprint(two.fingerprint())) };
    let mut daemon = Daemon::new(config).unwrap();
    let address = daemon.addresses()[0];
    let begin = |_| {
        let mut stream = connect(address);
        let mut tls = crate::tls::dial(&two, one.fingerprint()).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..14).map(begin).collect();
    let count = || streams.iter().filter(|stream| stream.peek(&mut [0]).is_ok()).count();
    let (since, mut ready, mut answered) = (Instant::now(), Vec::new(), Vec::new());
    while answered.iter().sum::<usize>() < streams.len() {
        assert!(since.elapsed() < PATIENCE, "{answered:?}");
        let (before, has_more) = (count(), !daemon.strange.is_empty());
        daemon.sockets.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        daemon.dispatch_all(&mut ready);
        let now = count() - before;
        assert!(now <= 4 && (now > 0 || !has_more), "{now} after {answered:?}");
        answered.extend((now > 0).then_some(now));
    }
    assert_eq!(answered, [4, 4, 4, 2]);
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen_at_once() {
    let long = Duration::from_secs(60);
    let limits = Limits { probe: long, dead: long, keepalive: long, ..Limits::default() };
    let relay = Running::start(Config { limits, ..config(Proof::Secret(secret())) });
    let stream = meet(relay.address);
    relay.wait_for_connections(1);
    let mut ping = Vec::new();
    Cell::Ping(1).encode(0, &mut ping);
    // One segment carries both.
    rustix::net::send(&stream, &ping, SendFlags::MORE).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    relay.wait_for_connections(0);
}

/// The next connection that comes.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let since = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        assert!(since.elapsed() < PATIENCE, "nobody dials");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answers a relay that has dialled.
fn answer(stream: &mut TcpStream) {
    let mut greeting = Greeting::answer(RelayId([9; 16]), Means::Secrets(vec![secret()]), [1; 32]);
    let mut out = Vec::new();
    loop {
        let mut bytes = vec![0; greeting.due()];
        stream.read_exact(&mut bytes).unwrap();
        let step = greeting.read(&bytes, &mut out).unwrap();
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        if let GreetStep::Met { .. } = step {
            return;
        }
    }
}

#[test]
fn a_connection_that_failed_while_another_was_being_made_is_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(Proof::Secret(secret()));
    config.peers[0].address = Some(listener.local_addr().unwrap().to_string());
    config.peers[0].connections = 2;
    let relay = Running::start(config);
    let (fails, mut stays) = (accept(&listener), accept(&listener));
    drop(fails);
    // What came before a question is seen before the next one.
    assert_eq!(relay.connections() + relay.connections(), 0);
    answer(&mut stays);
    relay.wait_for_connections(1);
    let mut again = accept(&listener);
    answer(&mut again);
    relay.wait_for_connections(2);
}

#[test]
fn who_greets_and_closes_is_dialled_ever_more_seldom() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(Proof::Secret(secret()));
    config.peers[0].address = Some(listener.local_addr().unwrap().to_string());
    // Several fail at once, and never all: the pause is one for all of them.
    config.peers[0].connections = 2;
    let _relay = Running::start(config);
    let began = Instant::now();
    for _ in 0..10 {
        answer(&mut accept(&listener));
    }
    // After the first pair 0.1 s, then 0.2, 0.4 and 0.8; an attempt that is under way when the other one ends may come before the pause.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(700), "ten connections within {took:?}");
}

#[test]
fn one_that_stood_for_long_is_made_again_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(Proof::Secret(secret()));
    config.peers[0].address = Some(listener.local_addr().unwrap().to_string());
    let relay = Running::start(config);
    for _ in 0..4 {
        answer(&mut accept(&listener));
    }
    let mut stays = accept(&listener);
    answer(&mut stays);
    relay.wait_for_connections(1);
    std::thread::sleep(Duration::from_millis(1100));
    drop(stays);
    let began = Instant::now();
    answer(&mut accept(&listener));
    answer(&mut accept(&listener));
    // The pause between the two begins anew; it would have been 1.6 s.
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn a_relay_has_64_connections_and_no_more() {
    let relay = Running::start(config(Proof::Secret(secret())));
    let mut streams: Vec<TcpStream> = (0..64).map(|_| meet(relay.address)).collect();
    relay.wait_for_connections(64);
    assert!(ends(meet(relay.address)), "a 65th is let in");
    assert_eq!(relay.connections(), 64);
    // One that goes makes room for another.
    streams.truncate(63);
    relay.wait_for_connections(63);
    streams.push(meet(relay.address));
    relay.wait_for_connections(64);
}

#[test]
fn new_settings_for_which_there_are_too_few_descriptors_lift_no_bound() {
    let relay = Running::start(config(Proof::Secret(secret())));
    let most = || relay.handle.snapshot(PATIENCE).unwrap().gauges.most_connections;
    let before = most();
    assert!(before < 1 << 40, "descriptors are not limited here: nothing can be seen");
    let mut greedy = config(Proof::Secret(secret()));
    // Places for those that it dials are set aside.
    greedy.peers[0].connections = 1 << 40;
    relay.handle.reload(greedy);
    assert_eq!(most(), before);
}

/// A connection with the relay that this one knows; the far end, and which it is.
fn joined(daemon: &mut Daemon, listener: &TcpListener) -> (TcpStream, SocketKey) {
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let known = daemon.known.keys()[0];
    let add = |fd| {
        Socket::Trunk(Box::new(Trunk {
            channel: Channel::plain(fd),
            stage: TrunkStage::Connecting,
            address: None,
            is_dialer: false,
            known: Some(known),
            since: Instant::now(),
            has_ended: false,
            is_blocked: false,
            acknowledged: 0,
            is_active: false,
            is_asking: false,
            rate: None,
        }))
    };
    let fd = listener.accept().unwrap().0.into();
    let key = daemon.sockets.add(fd, Interest::Read, add).unwrap();
    let name = RelayId([9; 16]);
    let link = daemon.core.trunk_up(key.into(), (name, name.into()), false, None);
    daemon.sockets.trunk(key).unwrap().stage = TrunkStage::Up(link);
    daemon.peer_is_up(known, false);
    daemon.share_rates();
    (far, key)
}

#[test]
fn a_connection_that_is_left_has_the_rate_of_those_that_are_lost() {
    let mut config = config(Proof::Secret(secret()));
    config.peers[0].rate = Some(3_000_000);
    let mut daemon = Daemon::new(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let all: Vec<_> = (0..3).map(|_| joined(&mut daemon, &listener)).collect();
    let rate = |daemon: &mut Daemon| daemon.sockets.trunk(all[0].1).unwrap().rate;
    assert_eq!(rate(&mut daemon), Some(1_000_000));
    for (lost, left) in [(1, 1_500_000), (2, 3_000_000)] {
        daemon.end_trunk(all[lost].1, "it is lost");
        daemon.look_after_lost();
        assert_eq!(rate(&mut daemon), Some(left));
    }
}

#[test]
fn who_does_not_answer_is_dialled_anew_before_the_system_has_asked_thrice() {
    let mut daemon = Daemon::new(config(Proof::Secret(secret()))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut is_kept = |stage, ago: Duration| {
        let (_far, key) = joined(&mut daemon, &listener);
        let trunk = daemon.sockets.trunk(key).unwrap();
        (trunk.stage, trunk.since) = (stage, Instant::now().checked_sub(ago).unwrap());
        daemon.pending_due(key);
        daemon.sockets.trunk(key).is_some()
    };
    assert!(is_kept(TrunkStage::Connecting, CONNECT / 2));
    assert!(!is_kept(TrunkStage::Connecting, CONNECT));
    assert!(is_kept(TrunkStage::Shaking, CONNECT));
    let end = Config::default().unproven.end;
    assert!(CONNECT < end && !is_kept(TrunkStage::Shaking, end));
}

#[test]
fn who_asks_for_much_is_read_a_little_at_a_time() {
    let mut daemon = Daemon::new(config(Proof::Secret(secret()))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut far, key) = joined(&mut daemon, &listener);
    let mut number = 1;
    let mut ask = |count: u32| {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let (from, to) = (ProcId(0), ProcId(1));
            Cell::Open { job: [0; 16], from, to, hops: 3 }.encode(number, &mut bytes);
            number += 2;
        }
        far.write_all(&bytes).unwrap();
        bytes.len() / count as usize
    };
    let cells = |daemon: &Daemon| daemon.core.counts().cells_in;
    ask(300);
    daemon.read_trunk(key);
    assert_eq!((cells(&daemon), daemon.again.len()), (300, 0));
    let len = ask(1500) as u64;
    let mut turns = 0;
    while cells(&daemon) < 1800 {
        let before = cells(&daemon);
        daemon.again.clear();
        daemon.read_trunk(key);
        turns += 1;
        assert!((cells(&daemon) - before) * len <= 35 * 1024, "too many in one turn");
        assert!(cells(&daemon) == 1800 || daemon.again == [key], "it is not read on");
    }
    assert!(turns > 1);
}
