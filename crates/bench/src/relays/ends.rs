//! What runs at both ends of a path: the same blocking sockets, whatever lies between them.
//!
//! The near end dials every way before it measures, then uses them by turns, so that what disturbs one disturbs all.
//! A conversation: 8 bytes, little-endian. 0 is answered by 8 bytes at once; any other number of bytes follows, and
//! is answered when all of them have come.

use super::cost::computed;
use gridmpi_leg::{Ask, AskStep, Asker, LegError};
use gridmpi_report::terminal::tell;
use gridmpi_wire::{Errand, JobKey, LegNotice, ProcId};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// The job whose processes the two ends are, to the relays.
pub(super) const JOB: [u8; 16] = *b"gridmpi relays b";
/// The near end, to the relays.
const NEAR: ProcId = ProcId(0);
/// How long a way may take to come about, and anything on it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between attempts to dial what has only been started.
const AGAIN: Duration = Duration::from_millis(20);
/// Round trips that are one sample.
const ROUNDS: u32 = 100;
/// Written and read at a time.
const PIECE: usize = 256 << 10;

/// The end that is dialled.
#[derive(Debug, clap::Args)]
pub struct Far {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// `PROCESS@ADDRESS`: a relay where it registers as that process.
    #[arg(long)]
    relay: Vec<Registration>,
    /// The relays' token.
    #[arg(long)]
    token: PathBuf,
}

/// The end that dials and measures.
#[derive(Debug, clap::Args)]
pub struct Near {
    /// `NAME=ADDRESS`, or `NAME=PROCESS@ADDRESS` through the relay there; `+PID` for each process between whose time counts.
    #[arg(long)]
    way: Vec<Way>,
    /// The relays' token.
    #[arg(long)]
    token: PathBuf,
    /// Bytes of a transfer; 0: ping-pong.
    #[arg(long)]
    bytes: u64,
    /// Samples of each way.
    #[arg(long)]
    samples: u32,
}

/// A process at a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registration {
    process: u32,
    relay: SocketAddr,
}

impl FromStr for Registration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not PROCESS@ADDRESS");
        let (process, relay) = text.split_once('@').ok_or_else(wrong)?;
        let process = process.parse().map_err(|_| wrong())?;
        Ok(Self { process, relay: relay.parse().map_err(|_| wrong())? })
    }
}

/// A way to the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    name: String,
    at: SocketAddr,
    process: Option<ProcId>,
    between: Vec<u32>,
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not NAME=[PROCESS@]ADDRESS[+PID]...");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let mut words = rest.split('+');
        let target = words.next().ok_or_else(wrong)?;
        let between = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let (at, process) = if target.contains('@') {
            let registration: Registration = target.parse()?;
            (registration.relay, Some(ProcId(registration.process)))
        } else {
            (target.parse().map_err(|_| wrong())?, None)
        };
        Ok(Self { name: name.to_owned(), at, process, between })
    }
}

/// Says what went wrong.
pub fn end(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("gridmpi bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Answers until it is ended.
///
/// # Errors
/// It cannot listen, or a relay does not take it.
pub fn far(args: &Far) -> io::Result<()> {
    let token = read_token(&args.token)?;
    let listener = TcpListener::bind(args.listen)?;
    for registration in &args.relay {
        let me = ProcId(registration.process);
        let asker = Asker { me, job: JOB, token: token.clone() };
        let errand = Errand::Register { first: me, count: 1 };
        let relay = registration.relay;
        let leg = persist(|| ask(relay, &asker, errand))?;
        leg.set_read_timeout(None)?;
        thread::spawn(move || accept_circuits(leg, relay, &asker));
    }
    println!("ready");
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || answer(stream));
    }
    Ok(())
}

fn accept_circuits(mut leg: TcpStream, relay: SocketAddr, asker: &Asker) -> io::Result<()> {
    loop {
        let mut bytes = [0; LegNotice::LEN];
        leg.read_exact(&mut bytes)?;
        let notice = LegNotice::decode(&bytes).map_err(io::Error::other)?;
        let LegNotice::Called { circuit, .. } = notice else { continue };
        // One that its opener has given up is no reason not to take the next.
        if let Ok(stream) = ask(relay, asker, Errand::Accept { circuit }) {
            stream.set_read_timeout(None)?;
            thread::spawn(move || answer(stream));
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut piece = vec![0; PIECE];
    loop {
        let mut count = [0; 8];
        stream.read_exact(&mut count)?;
        let mut left = u64::from_le_bytes(count);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let read = stream.read(piece.get_mut(..most).unwrap_or_default())?;
            if read == 0 {
                return Ok(());
            }
            left -= read as u64;
        }
        stream.write_all(&count)?;
    }
}

/// Measures every way by turns and says the samples: `@NAME` one way, or the transfer, s; `@NAME.cpu` of what is between, s.
///
/// # Errors
/// A way does not come about, or breaks.
pub fn near(args: &Near) -> io::Result<()> {
    let asker = Asker { me: NEAR, job: JOB, token: read_token(&args.token)? };
    let piece = vec![7; PIECE];
    let mut ways = Vec::new();
    for way in &args.way {
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", way.name));
        ways.push((way, persist(|| dial(way, &asker)).map_err(named)?, Vec::new(), Vec::new()));
    }
    // The first turn opens windows and counts for nothing.
    for turn in 0..=args.samples {
        for (way, stream, took, cpu) in &mut ways {
            let before = busy(&way.between);
            let seconds = match args.bytes {
                0 => ping_pong(stream)?,
                bytes => transfer(stream, bytes, &piece)?,
            };
            if turn > 0 {
                took.push(seconds);
                cpu.extend(busy(&way.between).zip(before).map(|(after, before)| after - before));
            }
        }
    }
    for (way, _, took, cpu) in &ways {
        println!("@{} {}", way.name, words(took));
        println!("@{}.cpu {}", way.name, words(cpu));
    }
    Ok(())
}

fn words(values: &[f64]) -> String {
    values.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

/// Seconds that these processes have computed; `None` of none, or where the kernel does not say.
fn busy(processes: &[u32]) -> Option<f64> {
    if processes.is_empty() {
        return None;
    }
    processes.iter().map(|pid| computed(*pid)).sum()
}

/// Seconds one way.
fn ping_pong(stream: &mut TcpStream) -> io::Result<f64> {
    let since = Instant::now();
    for _ in 0..ROUNDS {
        ping(stream)?;
    }
    Ok(since.elapsed().as_secs_f64() / f64::from(ROUNDS) / 2.0)
}

fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&0u64.to_le_bytes())?;
    stream.read_exact(&mut [0; 8])
}

/// Seconds from the first byte to the answer.
fn transfer(stream: &mut TcpStream, bytes: u64, piece: &[u8]) -> io::Result<f64> {
    let since = Instant::now();
    stream.write_all(&bytes.to_le_bytes())?;
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        stream.write_all(piece.get(..count).unwrap_or_default())?;
        left -= count as u64;
    }
    stream.read_exact(&mut [0; 8])?;
    Ok(since.elapsed().as_secs_f64())
}

/// A way is there when the far end has answered on it.
fn dial(way: &Way, asker: &Asker) -> io::Result<TcpStream> {
    let mut stream = match way.process {
        Some(to) => ask(way.at, asker, Errand::Open { to })?,
        None => connect(way.at)?,
    };
    ping(&mut stream)?;
    Ok(stream)
}

/// What was only just started does not answer at once, and nothing of it tells when it will.
fn persist<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(_) if since.elapsed() < PATIENCE => thread::sleep(AGAIN),
            result => return result,
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(relay: SocketAddr, asker: &Asker, errand: Errand) -> io::Result<TcpStream> {
    let mut stream = connect(relay)?;
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let (mut ask, hello) = Ask::new(asker, errand, nonce);
    stream.write_all(&hello)?;
    loop {
        let count = stream.read(ask.space())?;
        if count == 0 {
            return Err(io::Error::other("the relay has closed the connection"));
        }
        match ask.read(count, asker).map_err(|error: LegError| io::Error::other(error))? {
            AskStep::More => {}
            AskStep::Send(request) => stream.write_all(&request)?,
            AskStep::Done => return Ok(stream),
        }
    }
}

pub(super) fn read_token(path: &Path) -> io::Result<JobKey> {
    let text = std::fs::read_to_string(path)?;
    let wrong = || io::Error::other(format!("{} must hold 64 hexadecimal digits", path.display()));
    let digits = text.trim();
    let mut key = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(wrong());
    }
    for (index, byte) in key.iter_mut().enumerate() {
        let pair = digits.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(JobKey::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read() {
        let at: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let way = |process, between: &[u32]| {
            Ok(Way { name: "x".into(), at, process, between: between.to_vec() })
        };
        assert_eq!("x=10.0.0.1:9".parse(), way(None, &[]));
        assert_eq!("x=3@10.0.0.1:9+12+13".parse(), way(Some(ProcId(3)), &[12, 13]));
        assert!("x=10.0.0.1".parse::<Way>().is_err() && "10.0.0.1:9".parse::<Way>().is_err());
    }

    #[test]
    fn both_ends_talk() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let far = thread::spawn(move || answer(accepted));
        assert!(ping_pong(&mut stream).unwrap() > 0.0);
        assert!(transfer(&mut stream, 3 * PIECE as u64 + 1, &[1; PIECE]).unwrap() > 0.0);
        ping(&mut stream).unwrap();
        drop(stream);
        assert!(far.join().unwrap().is_err());
    }
}
