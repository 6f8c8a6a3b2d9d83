//! Options of sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use gridmpi_sock::{TcpInfo, bound_unsent, look_after, set_pacing_rate};
use socket2::SockRef;

use crate::metrics::Path;

/// What the kernel may hold of a connection between relays that has not left: enough to keep it busy, little enough that whose
/// turn it is is decided late.
const NOT_SENT: u32 = 256 * 1024;

/// How long the other side's host may acknowledge nothing of what was sent, or take nothing, before the connection is lost; the
/// same as processes wait for each other. A host that has vanished says nothing of itself.
const SILENCE: Duration = Duration::from_secs(30);
/// How soon, at most, it is looked again after a connection that rests and does not answer. Often before it is lost: a gateway's
/// queues may be full of such questions.
const AGAIN: Duration = Duration::from_secs(3);

/// For all connections that carry circuits: nothing waits for more to come, what stands between keeps the connection, and it does
/// not outlive the host at its other end for long.
pub(crate) fn prepare(fd: &OwnedFd, keepalive: Duration) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_tcp_nodelay(true)?;
    // How often it is looked is not counted where this is set.
    socket.set_tcp_user_timeout(Some(SILENCE.max(2 * keepalive)))?;
    Ok(look_after(fd, keepalive, AGAIN)?)
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

/// What the kernel says of the way of a connection; nothing where it does not.
pub(crate) fn path(fd: &OwnedFd) -> Path {
    let of = |info: TcpInfo| Path {
        packet: Some(info.pmtu),
        sent: info.data_segs_out.into(),
        resent: info.total_retrans.into(),
    };
    TcpInfo::of(fd).map_or_else(|_| Path::default(), of)
}

/// Whether the kernel has given the connection up since nobody answered, or the host was not even found.
pub(crate) fn is_unanswered(fd: &OwnedFd) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    let error = SockRef::from(fd).take_error().ok().flatten();
    error.is_some_and(|error| {
        matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable)
    })
}
