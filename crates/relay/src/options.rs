//! Options of sockets.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use gridmpi_sock::{TcpInfo, bound_unsent, set_pacing_rate};
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
    let idle = spread(fd.as_raw_fd(), keepalive);
    socket.set_tcp_user_timeout(Some(SILENCE.max(2 * keepalive)))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3),
    )
}

/// After how long this socket looks after a connection that rests: `keepalive` at most, half of it at least, by whole seconds as the kernel
/// counts. Thousands that came about together would look together; so many packets at once overflow queues, and who is not answered three
/// times is lost.
fn spread(fd: RawFd, keepalive: Duration) -> Duration {
    let whole = keepalive.as_secs().max(1);
    // Sockets that are made one after the other have numbers one after the other.
    let less = u64::from(fd.unsigned_abs()) % (whole / 2 + 1);
    Duration::from_secs(whole - less)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_made_together_do_not_look_together_nor_late() {
        let seconds = |keepalive: f64| {
            let of = |fd| spread(fd, Duration::from_secs_f64(keepalive)).as_secs();
            let all: std::collections::BTreeSet<_> = (10..60).map(of).collect();
            all.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(seconds(10.0), [5, 6, 7, 8, 9, 10]);
        assert_eq!(seconds(30.0), (15..=30).collect::<Vec<_>>());
        assert_eq!(seconds(1.0), [1]);
        assert_eq!(seconds(0.2), [1]);
    }
}
