//! Opens connections, and says how they are kept.

use gridmpi_sock::look_after;
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may rest, at most, before the kernel sends a sign of life: NATs and firewalls forget what rests, the
/// impatient ones after 30 s. And how soon, at most, it sends the next when nobody answers.
const KEEPALIVE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(5);
/// How long a connection that rests may leave signs of life unanswered.
const VANISHED: Duration = Duration::from_secs(110);
/// The same of a connection that can be made again: less, with as many signs of life in it as will do if some are lost.
const SILENCE: Duration = Duration::from_secs(10);
const BRISK_KEEPALIVE: Duration = Duration::from_secs(5);
const BRISK_AGAIN: Duration = Duration::from_secs(2);

/// A connection to one address.
pub(crate) fn open(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.connect_timeout(&SockAddr::from(address), left)?;
    tune(&socket)?;
    Ok(socket.into())
}

/// Begins to connect, without waiting; [`finish`] is due when the socket can be written to.
pub(crate) fn start(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// What has come of an attempt to connect; on success the socket is as we want it, but that it still does not block.
pub(crate) fn finish(socket: &Socket) -> io::Result<()> {
    match socket.take_error()? {
        Some(error) => Err(error),
        None => tune(socket),
    }
}

/// Small messages leave at once, a peer that vanished is noticed within two minutes, and NATs on the way that forget after half a
/// minute do not.
pub(crate) fn tune(socket: &Socket) -> io::Result<()> {
    look_after(socket, KEEPALIVE, AGAIN)?;
    // Not by a limit for what was sent: a process that is stopped and does not read may go on later.
    let again = sockopt::tcp_keepintvl(socket)?.as_secs().max(1);
    sockopt::set_tcp_keepcnt(
        socket,
        u32::try_from(VANISHED.as_secs() / again).unwrap_or(u32::MAX),
    )?;
    socket.set_tcp_nodelay(true)
}

/// For a connection that is made again when it is lost: one that has fallen silent is given up after 10 s when something was
/// sent, after 12 s when it rests.
pub(crate) fn tune_briskly(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    look_after(stream, BRISK_KEEPALIVE, BRISK_AGAIN)?;
    socket.set_tcp_user_timeout(Some(SILENCE))
}

/// What the system says, in words.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        _ => error.to_string(),
    }
}
