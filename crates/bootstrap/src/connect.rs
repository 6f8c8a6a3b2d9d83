//! Opens connections, and says how they are kept.

use gridmpi_sock::rest_of;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may rest, at most, before the kernel sends a sign of life, and how often again: NATs and firewalls forget what
/// rests, the impatient ones after 30 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long a connection that can be made again may be silent to what was sent, and the second sign of life follows the first.
const SILENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(5);

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
    let rest = rest_of(socket, KEEPALIVE);
    let keepalive = TcpKeepalive::new().with_time(rest).with_interval(KEEPALIVE).with_retries(11);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_nodelay(true)
}

/// For a connection that is made again when it is lost: one that has fallen silent is given up after 10 s when something was
/// sent, after 15 s when it rests.
pub(crate) fn tune_briskly(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(rest_of(stream, KEEPALIVE)).with_interval(AGAIN);
    socket.set_tcp_keepalive(&keepalive)?;
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
