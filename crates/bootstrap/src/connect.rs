//! Opens a connection to whichever of several addresses answers first.
//!
//! Attempts are started one after another, a quarter of a second apart (as RFC 8305 does), so that
//! an address that swallows packets costs little and a wrong one does not win over a right one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const STAGGER: Duration = Duration::from_millis(250);

/// How long a connection may rest before the kernel sends a sign of life, and how often again: NATs and firewalls forget what
/// rests, the impatient ones after 30 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long a connection that can be made again may be silent to what was sent, and the second sign of life follows the first.
const SILENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(5);

/// Attempts under way and still to come.
pub(crate) struct Dialer {
    waiting: VecDeque<SocketAddr>,
    under_way: Vec<(SocketAddr, Socket)>,
    deadline: Instant,
    /// Each address that failed, and how.
    pub(crate) failures: Vec<(SocketAddr, String)>,
    /// Those of them where nobody listens.
    pub(crate) deserted: Vec<SocketAddr>,
}

impl Dialer {
    pub(crate) fn new(addresses: &[SocketAddr], deadline: Instant) -> Self {
        let waiting = addresses.iter().copied().collect();
        let (under_way, failures, deserted) = (Vec::new(), Vec::new(), Vec::new());
        Self { waiting, under_way, deadline, failures, deserted }
    }

    /// The next connection that opens; `None` when no address is left or the deadline has passed.
    pub(crate) fn next(&mut self) -> Option<(SocketAddr, TcpStream)> {
        loop {
            if Instant::now() >= self.deadline {
                self.give_up();
                return None;
            }
            if let Some(address) = self.waiting.pop_front() {
                match start(address) {
                    Ok(socket) => self.under_way.push((address, socket)),
                    Err(error) => self.failed_so(address, &error),
                }
            }
            if self.under_way.is_empty() && self.waiting.is_empty() {
                return None;
            }
            if let Some(open) = self.wait() {
                return Some(open);
            }
        }
    }

    /// Notes that the connection to `address` was of no use.
    pub(crate) fn failed(&mut self, address: SocketAddr, why: String) {
        self.failures.push((address, why));
    }

    fn failed_so(&mut self, address: SocketAddr, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.deserted.push(address);
        }
        self.failures.push((address, describe(error)));
    }

    fn give_up(&mut self) {
        let unfinished = self.under_way.drain(..).map(|(address, _)| address);
        let all: Vec<_> = unfinished.chain(self.waiting.drain(..)).collect();
        self.failures.extend(all.into_iter().map(|address| (address, "no answer".to_owned())));
    }

    /// Waits for an attempt to end, or for the moment to start the next one.
    fn wait(&mut self) -> Option<(SocketAddr, TcpStream)> {
        let mut left = self.deadline.saturating_duration_since(Instant::now());
        if !self.waiting.is_empty() {
            left = left.min(STAGGER);
        }
        let ready = ready(&self.under_way, left);
        let index = ready?;
        let (address, socket) = self.under_way.swap_remove(index);
        match finish(socket) {
            Ok(stream) => Some((address, stream)),
            Err(error) => {
                self.failed_so(address, &error);
                None
            }
        }
    }
}

fn start(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Position of the first attempt that has ended, well or badly.
fn ready(attempts: &[(SocketAddr, Socket)], left: Duration) -> Option<usize> {
    if attempts.is_empty() {
        std::thread::sleep(left);
        return None;
    }
    let mut fds: Vec<_> =
        attempts.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    // An interrupted wait counts as one in which nothing happened: the caller looks at the clock.
    poll(&mut fds, Some(&timeout)).unwrap_or(0);
    fds.iter().position(|fd| !fd.revents().is_empty())
}

fn finish(socket: Socket) -> io::Result<TcpStream> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)?;
    tune(&socket)?;
    Ok(socket.into())
}

/// Small messages leave at once, a peer that vanished is noticed within two minutes, and NATs on the way that forget after half a
/// minute do not.
pub(crate) fn tune(socket: &Socket) -> io::Result<()> {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(11);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_nodelay(true)
}

/// For a connection that is made again when it is lost: one that has fallen silent is given up after 10 s when something was
/// sent, after 15 s when it rests.
pub(crate) fn tune_briskly(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(AGAIN);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(SILENCE))
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_refused_address_does_not_hide_a_good_one() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let mut dialer = Dialer::new(&[closed, good], soon());
        assert_eq!(dialer.next().unwrap().0, good);
        assert_eq!(dialer.failures, [(closed, "connection refused".to_owned())]);
        assert!(dialer.next().is_none());
    }

    #[test]
    fn no_address_and_a_past_deadline_end_at_once() {
        assert!(Dialer::new(&[], soon()).next().is_none());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialer = Dialer::new(&[listener.local_addr().unwrap()], Instant::now());
        assert!(dialer.next().is_none());
        assert_eq!(dialer.failures.len(), 1);
    }
}
