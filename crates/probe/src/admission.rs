//! Who is let in at an open port: whoever proves to hold the secret, within bounds of number and time.

use gridmpi_bootstrap::RelayAccess;
use gridmpi_bootstrap::line::{self, Line, Pass};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a connection has to prove itself and to say what it is for.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections served before they have proven themselves; others wait in the kernel's queue.
const MAX_STRANGERS: u32 = 64;
/// How soon the end of a door is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Somebody at the door.
pub(crate) enum Visitor {
    /// Has proven itself.
    Proven(Line),
    /// Has not.
    Stranger(SocketAddr, String),
}

/// Open ports, until dropped.
pub(crate) struct Door {
    closing: Arc<AtomicBool>,
    keepers: Vec<JoinHandle<()>>,
    /// For those who come through relays.
    relays: Option<gridmpi_bootstrap::Door>,
}

/// Relays at which this process is in the place of a job's coordinator, and who is told of those that cannot be used.
pub(crate) struct Outpost {
    pub(crate) relays: RelayAccess,
    pub(crate) trouble: Box<dyn Fn(SocketAddr, String) + Send + Sync>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        self.relays = None;
        // The ports are free afterwards: a job may want the same.
        for keeper in self.keepers.drain(..) {
            let _ = keeper.join();
        }
    }
}

/// Lets people in; `visit` is called in a thread of each visitor's own.
pub(crate) fn open(
    listeners: Vec<TcpListener>,
    pass: &Pass,
    outpost: Option<Outpost>,
    visit: impl Fn(Visitor) + Send + Sync + 'static,
) -> std::io::Result<Door> {
    let closing = Arc::new(AtomicBool::new(false));
    let hall = Arc::new(Hall { pass: pass.clone(), strangers: AtomicU32::new(0), visit });
    let mut door = Door { closing, keepers: Vec::new(), relays: None };
    if let Some(Outpost { relays, trouble }) = outpost {
        let at = relays.resolve().map_err(std::io::Error::other)?;
        let own = Arc::clone(&hall);
        let came = move |stream: TcpStream| own.welcome(stream);
        door.relays = Some(gridmpi_bootstrap::Door::open(&relays, at, pass.job(), came, trouble)?);
    }
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let (hall, closing) = (Arc::clone(&hall), Arc::clone(&door.closing));
        door.keepers.push(std::thread::spawn(move || {
            while !closing.load(Ordering::Acquire) {
                if hall.has_room() && is_ready(&listener) {
                    Hall::accept(&hall, &listener);
                }
            }
        }));
    }
    Ok(door)
}

fn is_ready(listener: &TcpListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    matches!(poll(&mut fds, Some(&timeout)), Ok(1..))
}

struct Hall<V> {
    pass: Pass,
    strangers: AtomicU32,
    visit: V,
}

impl<V: Fn(Visitor) + Send + Sync + 'static> Hall<V> {
    fn has_room(&self) -> bool {
        let has_room = self.strangers.load(Ordering::Acquire) < MAX_STRANGERS;
        if !has_room {
            std::thread::sleep(LOOK);
        }
        has_room
    }

    fn accept(hall: &Arc<Self>, listener: &TcpListener) {
        let Ok((stream, peer)) = listener.accept() else {
            // Out of descriptors, perhaps: the next one comes when some are back.
            std::thread::sleep(Duration::from_millis(5));
            return;
        };
        hall.strangers.fetch_add(1, Ordering::AcqRel);
        let own = Arc::clone(hall);
        let serving = std::thread::Builder::new().spawn(move || own.serve(stream, peer));
        if serving.is_err() {
            hall.strangers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Somebody has come through a relay.
    fn welcome(&self, stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return };
        if self.strangers.fetch_add(1, Ordering::AcqRel) < MAX_STRANGERS {
            self.serve(stream, peer);
        } else {
            self.strangers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let deadline = Instant::now() + HANDSHAKE;
        let proven = stream
            .set_nonblocking(false)
            .map_err(|error| error.to_string())
            .and_then(|()| line::answer(stream, &self.pass, deadline));
        self.strangers.fetch_sub(1, Ordering::AcqRel);
        (self.visit)(match proven {
            Ok(line) => Visitor::Proven(line),
            Err(problem) => Visitor::Stranger(peer, problem),
        });
    }
}
