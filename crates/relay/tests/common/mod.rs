//! Relays on the loopback interface, and processes that ask them, as the job's would.
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gridmpi_leg::{Ask, AskStep, Asker, LegError};
use gridmpi_relay::{Config, Daemon, Handle, Limits, Peer, Proof, Token};
use gridmpi_wire::{CircuitId, Errand, JobKey, LegNotice, LegVerdict, ProcId};
use socket2::{Domain, Socket, Type};

/// Longer than anything that works takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const JOB: [u8; 16] = [7; 16];

pub fn token() -> JobKey {
    JobKey::new([3; 32])
}

pub fn secret() -> JobKey {
    JobKey::new([4; 32])
}

/// A relay that runs in a thread until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    pub handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// A relay's settings, with these others to dial.
pub fn config(dials: &[SocketAddr]) -> Config {
    let peer = |address: Option<String>| Peer {
        name: address.clone().unwrap_or_else(|| "those who dial".to_owned()),
        address,
        proof: Proof::Secret(secret()),
        connections: 1,
        rate: None,
        jobs: None,
    };
    let mut peers = vec![peer(None)];
    peers.extend(dials.iter().map(|address| peer(Some(address.to_string()))));
    Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tokens: vec![Token { name: "test".to_owned(), key: token(), jobs: None }],
        peers,
        limits: Limits::default(),
        drain: Duration::from_secs(5),
        ..Config::default()
    }
}

impl Relay {
    pub fn start(config: Config) -> Self {
        Self::run(Daemon::new(config).unwrap())
    }

    fn run(daemon: Daemon) -> Self {
        let (address, handle) = (daemon.addresses()[0], daemon.handle());
        let thread = Some(std::thread::spawn(move || daemon.run()));
        Self { address, handle, thread }
    }

    /// As soon as the addresses that it listens on are nobody else's.
    pub fn start_when_free(config: Config) -> Self {
        let since = Instant::now();
        loop {
            match Daemon::new(config.clone()) {
                Ok(daemon) => return Self::run(daemon),
                Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn dialing(dials: &[SocketAddr]) -> Self {
        Self::start(config(dials))
    }

    /// Waits for the relay to have ended by itself.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.end();
            self.handle.end();
            let _ = thread.join();
        }
    }
}

/// What a leg came to.
#[derive(Debug)]
pub enum Refused {
    Verdict(LegVerdict),
    Other(String),
}

pub fn asker(me: u32) -> Asker {
    Asker { me: ProcId(me), job: JOB, token: token() }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection from another address of this machine, if the relay takes it soon.
pub fn connect_from(source: [u8; 4], address: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect_timeout(&address.into(), Duration::from_millis(200)).ok()?;
    Some(socket.into())
}

/// Asks; `early` follows the request at once.
pub fn ask(
    address: SocketAddr,
    asker: &Asker,
    errand: Errand,
    early: &[u8],
) -> Result<TcpStream, Refused> {
    ask_on(connect(address), asker, errand, early)
}

/// Asks from another address of this machine.
pub fn ask_from(
    source: [u8; 4],
    address: SocketAddr,
    asker: &Asker,
    errand: Errand,
) -> Result<TcpStream, Refused> {
    let stream = connect_from(source, address).ok_or(Refused::Other("not taken".to_owned()))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ask_on(stream, asker, errand, &[])
}

/// Asks on a connection that is there.
pub fn ask_on(
    mut stream: TcpStream,
    asker: &Asker,
    errand: Errand,
    early: &[u8],
) -> Result<TcpStream, Refused> {
    let other = |error: io::Error| Refused::Other(error.to_string());
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).unwrap();
    let (mut ask, hello) = Ask::new(asker, errand, nonce);
    stream.write_all(&hello).map_err(other)?;
    loop {
        let count = stream.read(ask.space()).map_err(other)?;
        if count == 0 {
            return Err(Refused::Other("closed".to_owned()));
        }
        match ask.read(count, asker) {
            Ok(AskStep::More) => {}
            Ok(AskStep::Send(request)) => {
                stream.write_all(&[&request, early].concat()).map_err(other)?;
            }
            Ok(AskStep::Done) => return Ok(stream),
            Err(LegError::Refused(verdict)) => return Err(Refused::Verdict(verdict)),
            Err(error) => return Err(Refused::Other(error.to_string())),
        }
    }
}

/// A process that has registered, alone in its cluster.
pub struct Registered {
    pub me: u32,
    pub address: SocketAddr,
    pub stream: TcpStream,
}

pub fn register(address: SocketAddr, me: u32) -> Registered {
    register_in(address, me, me, 1)
}

pub fn register_in(address: SocketAddr, me: u32, first: u32, count: u32) -> Registered {
    let errand = Errand::Register { first: ProcId(first), count };
    let stream = ask(address, &asker(me), errand, &[]).expect("registered");
    Registered { me, address, stream }
}

impl Registered {
    pub fn notice(&mut self) -> LegNotice {
        let mut bytes = [0; LegNotice::LEN];
        self.stream.read_exact(&mut bytes).expect("a notice");
        LegNotice::decode(&bytes).unwrap()
    }

    /// Who opens a circuit, and which.
    pub fn called(&mut self) -> (u32, CircuitId) {
        match self.notice() {
            LegNotice::Called { from, circuit } => (from.0, circuit),
            other => panic!("{other:?}"),
        }
    }

    pub fn accept(&mut self) -> TcpStream {
        let (_, circuit) = self.called();
        ask(self.address, &asker(self.me), Errand::Accept { circuit }, &[]).expect("accepted")
    }
}

pub fn open(address: SocketAddr, me: u32, to: u32, early: &[u8]) -> Result<TcpStream, Refused> {
    ask(address, &asker(me), Errand::Open { to: ProcId(to) }, early)
}

/// Opens again while the way is not known yet.
pub fn open_soon(address: SocketAddr, me: u32, to: u32, early: &[u8]) -> TcpStream {
    let since = Instant::now();
    loop {
        match open(address, me, to, early) {
            Ok(stream) => return stream,
            Err(Refused::Verdict(LegVerdict::NoRoute)) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A circuit from process `me` at one relay to a process that has registered.
pub fn circuit(from: SocketAddr, me: u32, to: &mut Registered) -> (TcpStream, TcpStream) {
    let target = to.me;
    let opening = std::thread::spawn(move || open_soon(from, me, target, &[]));
    let accepted = to.accept();
    (opening.join().unwrap(), accepted)
}

/// Bytes that follow from a seed.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}
