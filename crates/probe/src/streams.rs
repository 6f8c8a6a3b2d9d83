//! Connections that are filled and emptied as fast as they will go.

use crate::info::{self, Arrived};
use crate::message::Tally;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BLOCK: usize = 64 << 10;
/// How soon the end is noticed by who can neither send nor receive.
const LOOK: Duration = Duration::from_millis(100);

/// One connection of a transfer.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    /// Whether we fill it.
    pub(crate) sends: bool,
    /// Whether it is a circuit: what ends here is the last part of the way only.
    pub(crate) is_circuit: bool,
}

/// A transfer under way on one node.
pub(crate) struct Streams {
    /// Where we receive, and what has come there.
    inward: Vec<(TcpStream, Arrived)>,
    received: u64,
    over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Result<Tally, String>>>,
}

impl Streams {
    /// Begins to fill and to empty, for at most `limit`. `over` ends it sooner.
    pub(crate) fn start(streams: Vec<Stream>, limit: Duration, over: Arc<AtomicBool>) -> Self {
        let deadline = Instant::now() + limit;
        let work = |stream: Stream| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let is_over = || over.load(Ordering::Acquire) || Instant::now() >= deadline;
                if stream.sends {
                    fill(stream.socket, is_over)
                } else {
                    empty(stream.socket, is_over);
                    Ok(Tally::default())
                }
            })
        };
        let copy = |stream: &Stream| {
            let socket = stream.socket.try_clone().ok()?;
            let arrived = Arrived::at(&socket, stream.is_circuit);
            Some((socket, arrived))
        };
        let inward = streams.iter().filter(|stream| !stream.sends).filter_map(copy).collect();
        let workers = streams.into_iter().map(work).collect();
        Self { inward, received: 0, over, workers }
    }

    /// Bytes that have come.
    pub(crate) fn received(&mut self) -> u64 {
        let more = self.inward.iter_mut().map(|(socket, arrived)| arrived.more(socket));
        self.received += more.sum::<u64>();
        self.received
    }

    /// Whether every worker has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Ends it; what the kernel counted.
    pub(crate) fn finish(self) -> Result<Tally, String> {
        self.over.store(true, Ordering::Release);
        let mut sum = Tally::default();
        for worker in self.workers {
            let tally = worker.join().map_err(|_| "a fault of ours while sending".to_owned())??;
            sum.segments += tally.segments;
            sum.retransmitted += tally.retransmitted;
            sum.congestion = sum.congestion.or(tally.congestion);
        }
        Ok(sum)
    }
}

/// Bytes that no link can make smaller (Marsaglia's xorshift).
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; BLOCK];
    for chunk in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    block
}

fn is_slow(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn fill(mut socket: TcpStream, is_over: impl Fn() -> bool) -> Result<Tally, String> {
    let broken = |error: std::io::Error| format!("a connection broke while sending: {error}");
    let block = noise();
    socket.set_write_timeout(Some(LOOK)).map_err(broken)?;
    while !is_over() {
        match socket.write(&block) {
            Ok(_) => {}
            Err(error) if is_slow(&error) => {}
            // The far end may have heard of the end before us.
            Err(_) if is_over() => break,
            Err(error) => return Err(broken(error)),
        }
    }
    let mut tally = Tally::default();
    info::count(&socket, &mut tally);
    // What is still in the kernel is not to go: the next transfer wants an empty path.
    let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    Ok(tally)
}

fn empty(mut socket: TcpStream, is_over: impl Fn() -> bool) {
    let mut block = vec![0; BLOCK];
    if socket.set_read_timeout(Some(LOOK)).is_err() {
        return;
    }
    while !is_over() {
        match socket.read(&mut block) {
            // The sender has ended; what became of it, it tells itself.
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if is_slow(&error) => {}
            Err(_) => return,
        }
    }
}
