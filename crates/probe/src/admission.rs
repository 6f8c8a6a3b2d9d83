//! Who is let in at an open port: whoever proves to hold the secret, within bounds of number and time.

use gridmpi_bootstrap::line::{self, Line, Pass};
use gridmpi_bootstrap::{RelayAccess, Stranger, Strangers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a connection has to prove itself and to say what it is for.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections served before they have proven themselves; then somebody makes room, or is turned away and may come again.
const MAX_STRANGERS: usize = 64;
/// Strangers are told of one by one, in each second so many: people read it.
const MOST_TOLD: u32 = 16;
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
    /// Where they are.
    pub(crate) at: Vec<SocketAddr>,
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
    let strangers = Arc::new(Strangers::new(MAX_STRANGERS));
    let told = Mutex::new((Instant::now(), 0));
    let hall = Arc::new(Hall { pass: pass.clone(), strangers, told, visit });
    let mut door = Door { closing, keepers: Vec::new(), relays: None };
    if let Some(Outpost { relays, at, trouble }) = outpost {
        let own = Arc::clone(&hall);
        let came = move |stream: TcpStream| own.welcome(stream);
        door.relays = Some(gridmpi_bootstrap::Door::open(&relays, at, pass.job(), came, trouble)?);
    }
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let (hall, closing) = (Arc::clone(&hall), Arc::clone(&door.closing));
        door.keepers.push(std::thread::spawn(move || {
            while !closing.load(Ordering::Acquire) {
                if is_ready(&listener) {
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
    strangers: Arc<Strangers>,
    /// How many were told of since then.
    told: Mutex<(Instant, u32)>,
    visit: V,
}

impl<V: Fn(Visitor) + Send + Sync + 'static> Hall<V> {
    fn accept(hall: &Arc<Self>, listener: &TcpListener) {
        let Ok((stream, peer)) = listener.accept() else {
            // Out of descriptors, perhaps: the next one comes when some are back.
            std::thread::sleep(Duration::from_millis(5));
            return;
        };
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let Some(stranger) = hall.strangers.come(&stream, peer.ip()) else { return };
        let own = Arc::clone(hall);
        // If there is no thread the place is free again.
        let _ = std::thread::Builder::new().spawn(move || own.serve(stream, peer, stranger));
    }

    /// Somebody has come through a relay.
    fn welcome(&self, stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return };
        if let Some(stranger) = self.strangers.come(&stream, peer.ip()) {
            self.serve(stream, peer, stranger);
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, stranger: Stranger) {
        let deadline = Instant::now() + HANDSHAKE;
        let proven = stream
            .set_nonblocking(false)
            .map_err(|error| error.to_string())
            .and_then(|()| line::answer(stream, &self.pass, deadline));
        let was_ended = !stranger.leave();
        let problem = match proven {
            _ if was_ended => "had to make room for others".to_owned(),
            Ok(line) => return (self.visit)(Visitor::Proven(line)),
            Err(problem) => problem,
        };
        if self.may_tell(Instant::now()) {
            (self.visit)(Visitor::Stranger(peer, problem));
        }
    }

    /// Whether people are to hear of one more stranger.
    fn may_tell(&self, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(told.0) >= Duration::from_secs(1) {
            *told = (now, 0);
        }
        told.1 += 1;
        told.1 <= MOST_TOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::Secret;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicU32;

    fn from(ip: Ipv4Addr, to: SocketAddr) -> TcpStream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
        socket.connect(&to.into()).unwrap();
        socket.into()
    }

    #[test]
    fn silent_strangers_make_room_for_who_comes_from_elsewhere_and_at_last_for_their_own() {
        let pass = Pass::from(&Secret::random().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let told = Arc::new(AtomicU32::new(0));
        let tell = Arc::clone(&told);
        let visit = move |visitor| {
            tell.fetch_add(u32::from(matches!(visitor, Visitor::Stranger(..))), Ordering::AcqRel);
        };
        let _door = open(vec![listener], &pass, None, visit).unwrap();
        let other = Ipv4Addr::new(127, 0, 0, 2);
        let _silent: Vec<_> = (0..2 * MAX_STRANGERS).map(|_| from(other, at)).collect();
        let (began, in_time) = (Instant::now(), HANDSHAKE / 2);
        line::dial(&[at], &pass, began + in_time).map(drop).unwrap();
        while line::open(from(other, at), &pass, began + in_time).is_err() {
            assert!(began.elapsed() < in_time, "nobody comes in from where the silent ones are");
        }
        // In up to four seconds begun.
        assert!((1..=4 * MOST_TOLD).contains(&told.load(Ordering::Acquire)), "{told:?}");
    }
}
