//! Options of sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use gridmpi_sock::{TcpInfo, bound_unsent, rest_of, set_pacing_rate};
use socket2::{SockRef, TcpKeepalive};

/// What the kernel may hold of a connection between relays that has not left: enough to keep it busy, little enough that whose
/// turn it is is decided late.
const NOT_SENT: u32 = 256 * 1024;

/// How long the other side's host may acknowledge nothing of what was sent, or take nothing, before the connection is lost; the
/// same as processes wait for each other. A host that has vanished says nothing of itself.
const SILENCE: Duration = Duration::from_secs(30);

/// For all connections that carry circuits: nothing waits for more to come, what stands between keeps the connection, and it does
/// not outlive the host at its other end for long.
pub(crate) fn prepare(fd: &OwnedFd, keepalive: Duration) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_tcp_nodelay(true)?;
    let interval = (keepalive / 2).max(Duration::from_secs(1));
    let idle = rest_of(fd, keepalive);
    socket.set_tcp_user_timeout(Some(SILENCE.max(2 * keepalive)))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3),
    )
}

/// For a connection to another relay.
pub(crate) fn prepare_trunk(fd: &OwnedFd) {
    // Where the kernel does not know it turns are decided earlier.
    let _ = bound_unsent(fd, NOT_SENT);
}

/// Paces a connection, bytes per second; `None`: as fast as may be.
pub(crate) fn set_rate(fd: &OwnedFd, bytes_per_second: Option<u64>) {
    let _ = set_pacing_rate(fd, bytes_per_second.unwrap_or(u64::MAX));
}

/// Makes the other side see a reset when the socket is closed.
pub(crate) fn reset_on_close(fd: &OwnedFd) {
    let _ = SockRef::from(fd).set_linger(Some(Duration::ZERO));
}

/// Bytes that the other side's host has acknowledged.
pub(crate) fn acknowledged(fd: &OwnedFd) -> Option<u64> {
    Some(TcpInfo::of(fd).ok()?.bytes_acked)
}
