//! Ping-pong and streaming between two processes over loopback, side by side with raw TCP sockets.
//!
//! `cargo run --release -p gridmpi-net --example measure [ROUNDS [GIGABYTES]]`

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::{Config, Mode, RequestId, Source, TagMatch};
use gridmpi_net::{Limits, Listen, Net, NetConfig, Pacing, Way, bind};
use gridmpi_wire::{ContextId, JobKey, ProcId, Rank};
use rustix::time::{ClockId, clock_gettime};

const MIB: usize = 1 << 20;

/// Processor seconds of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[derive(Clone, Copy)]
enum Wait {
    Asleep,
    Polling,
}

struct Process {
    net: Net,
    me: u32,
}

impl Process {
    fn send(&self, bytes: &Bytes) -> RequestId {
        let (to, buffer) = (ProcId(1 - self.me), SendBuffer::from_bytes(bytes.clone()));
        self.net.lock().send(to, ContextId::WORLD, Rank(self.me), 0, Mode::Standard, buffer)
    }

    fn receive(&self, buffer: RecvBuffer) -> RequestId {
        let source = Source::Remote(Rank(1 - self.me), ProcId(1 - self.me));
        self.net.lock().receive(ContextId::WORLD, source, TagMatch::Any, buffer)
    }

    fn finish(&self, request: RequestId, wait: Wait) -> Option<RecvBuffer> {
        loop {
            let mut guard = self.net.lock();
            if let Some((completion, buffer)) = guard.take_with_buffer(request) {
                assert_eq!(completion.error, None);
                return buffer;
            }
            let epoch = guard.epoch();
            drop(guard);
            match wait {
                Wait::Asleep => drop(self.net.wait(epoch, Instant::now() + Duration::from_secs(9))),
                // As the library does where cores are short.
                Wait::Polling if !self.net.poll() => std::thread::yield_now(),
                Wait::Polling => {}
            }
        }
    }

    /// One way in microseconds; the lowest of several runs.
    fn ping_pong(&self, rounds: u32, wait: Wait) -> f64 {
        let ball = Bytes::from_static(b"8 bytes!");
        let mut buffer = Some(RecvBuffer::owned(8));
        least(|| {
            let start = Instant::now();
            for _ in 0..rounds {
                if self.me == 0 {
                    self.finish(self.send(&ball), wait);
                }
                let taken = buffer.take().unwrap_or_else(|| RecvBuffer::owned(8));
                buffer = self.finish(self.receive(taken), wait);
                if self.me == 1 {
                    self.finish(self.send(&ball), wait);
                }
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / 2.0
        })
    }

    /// `count` messages of `len` bytes from 0 to 1, two at a time.
    fn stream(&self, count: usize, len: usize) {
        let bytes = Bytes::from(vec![7; len]);
        let mut earlier = None;
        let mut spare = None;
        for _ in 0..count {
            let request = if self.me == 0 {
                self.send(&bytes)
            } else {
                self.receive(spare.take().unwrap_or_else(|| RecvBuffer::owned(len as u64)))
            };
            if let Some(earlier) = earlier.replace(request) {
                spare = self.finish(earlier, Wait::Asleep);
            }
        }
        earlier.map(|request| self.finish(request, Wait::Asleep));
        // The last word says that all has arrived.
        if self.me == 0 {
            self.finish(self.receive(RecvBuffer::owned(8)), Wait::Asleep);
        } else {
            self.finish(self.send(&Bytes::from_static(b"all here")), Wait::Asleep);
        }
    }
}

fn least(mut run: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn start(me: u32, listen: gridmpi_net::Bound, peers: Vec<Vec<SocketAddr>>) -> Process {
    let config = NetConfig {
        me: ProcId(me),
        job: [1; 16],
        key: JobKey::new([2; 32]),
        engine: Config::new(ProcId(me)),
        peers: peers.into_iter().map(|addresses| vec![Way::Direct(addresses)]).collect(),
        security: None,
        relays: None,
        limits: Limits::default(),
        pacing: Pacing::default(),
        warn: |message| eprintln!("{message}"),
        tells_of_absence: None,
        lost: None,
        forked: None,
    };
    Process { net: Net::start(listen, config).expect("the network starts"), me }
}

fn bound() -> gridmpi_net::Bound {
    bind(&Listen { interface: Some("127.0.0.1".into()), port: 0 }).expect("loopback is there")
}

struct Settings {
    rounds: u32,
    bytes: usize,
}

const LENS: [usize; 3] = [MIB, 64 * MIB, 64 << 10];

/// Rank 1: does what rank 0 does, and tells its processor time after each stream.
fn child(settings: &Settings, zero: SocketAddr, raw: SocketAddr) {
    let listen = bound();
    println!("{}", listen.addresses()[0]);
    let mine = listen.addresses().to_vec();
    let process = start(1, listen, vec![vec![zero], mine]);
    let mut socket = TcpStream::connect(raw).expect("the parent listens");
    socket.set_nodelay(true).expect("an option of TCP");
    for _ in 0..5 * settings.rounds {
        let mut ball = [0; 8];
        socket.read_exact(&mut ball).expect("a ball");
        socket.write_all(&ball).expect("a ball");
    }
    for wait in [Wait::Asleep, Wait::Polling] {
        process.ping_pong(settings.rounds, wait);
    }
    for len in LENS {
        let before = cpu_seconds();
        process.stream(settings.bytes / len, len);
        println!("{}", cpu_seconds() - before);
    }
    let before = cpu_seconds();
    let mut space = vec![0; 128 << 10];
    let mut rest = settings.bytes;
    while rest > 0 {
        rest -= socket.read(&mut space).expect("bytes");
    }
    socket.write_all(&[1]).expect("the last word");
    println!("{}", cpu_seconds() - before);
    process.net.shutdown(Instant::now() + Duration::from_secs(5));
}

fn spawn(settings: &Settings, zero: SocketAddr, raw: SocketAddr) -> Child {
    let own = std::env::current_exe().expect("this program has a path");
    let arguments = [
        settings.rounds.to_string(),
        settings.bytes.to_string(),
        zero.to_string(),
        raw.to_string(),
    ];
    let mut command = Command::new(own);
    command.arg("child").args(arguments).stdout(Stdio::piped());
    command.spawn().expect("this program starts again")
}

fn parent(settings: &Settings) {
    let (listen, raw) = (bound(), TcpListener::bind("127.0.0.1:0").expect("loopback is there"));
    let zero = listen.addresses()[0];
    let mut child = spawn(settings, zero, raw.local_addr().expect("it is bound"));
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map(|line| line.expect("text"));
    let mut next = || lines.next().expect("the child says more");
    let one: SocketAddr = next().parse().expect("an address");
    let process = start(0, listen, vec![vec![zero], vec![one]]);
    let (mut socket, _) = raw.accept().expect("the child connects");
    socket.set_nodelay(true).expect("an option of TCP");

    println!("8-byte ping-pong, one way, lowest of 5 runs:");
    let bare = least(|| raw_ping_pong(&mut socket, settings.rounds));
    println!("  raw TCP, blocking   {bare:7.2} us");
    for (name, wait) in [("asleep ", Wait::Asleep), ("polling", Wait::Polling)] {
        let ours = process.ping_pong(settings.rounds, wait);
        println!("  ours, {name}       {ours:7.2} us  {:+.2}", ours - bare);
    }
    println!("stream of {} MiB, processor time of both sides:", settings.bytes / MIB);
    let mut report = |name: &str, run: &mut dyn FnMut()| {
        let (start, before) = (Instant::now(), cpu_seconds());
        run();
        let (wall, own) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
        let far: f64 = next().parse().expect("seconds");
        let gigabytes = settings.bytes as f64 * 1e-9;
        let (cpu, rate) = ((own + far) / gigabytes, gigabytes / wall);
        println!("  {name:22} {cpu:.3} s/GB (send {own:.3} receive {far:.3})  {rate:.2} GB/s");
    };
    for len in LENS {
        let name = format!("ours, {} KiB messages", len >> 10);
        report(&name, &mut || process.stream(settings.bytes / len, len));
    }
    report("raw TCP, 128 KiB", &mut || raw_stream(&mut socket, settings.bytes));
    process.net.shutdown(Instant::now() + Duration::from_secs(5));
    child.wait().expect("the child ends");
}

fn raw_ping_pong(socket: &mut TcpStream, rounds: u32) -> f64 {
    let mut ball = *b"8 bytes!";
    let start = Instant::now();
    for _ in 0..rounds {
        socket.write_all(&ball).expect("a ball");
        socket.read_exact(&mut ball).expect("a ball");
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / 2.0
}

fn raw_stream(socket: &mut TcpStream, bytes: usize) {
    let piece = vec![7; 128 << 10];
    let mut rest = bytes;
    while rest > 0 {
        let count = rest.min(piece.len());
        socket.write_all(&piece[..count]).expect("bytes go");
        rest -= count;
    }
    socket.read_exact(&mut [0]).expect("the last word");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, rounds, bytes, zero, raw] = &arguments[..]
        && word == "child"
    {
        let (rounds, bytes) = (rounds.parse().expect("rounds"), bytes.parse().expect("bytes"));
        let (zero, raw) = (zero.parse().expect("address"), raw.parse().expect("address"));
        return child(&Settings { rounds, bytes }, zero, raw);
    }
    let number = |index: usize, default: usize| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    parent(&Settings { rounds: number(1, 10_000) as u32, bytes: number(2, 1) << 30 });
}
