//! Options of sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};
use socket2::{SockRef, TcpKeepalive};

sockopt_impl!(MaxPacingRate, SetOnly, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, usize);
sockopt_impl!(NotSentLowat, SetOnly, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32);
sockopt_impl!(TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, Info);

/// The beginning of the kernel's `struct tcp_info` (linux/tcp.h), as Linux 4.6 and all later have it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    states: [u8; 8],
    before_rates: [u32; 24],
    rates: [u64; 2],
    acknowledged: u64,
    received: u64,
}

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
    let idle = keepalive.max(Duration::from_secs(1));
    socket.set_tcp_user_timeout(Some(SILENCE.max(2 * keepalive)))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3),
    )
}

/// For a connection to another relay.
pub(crate) fn prepare_trunk(fd: &OwnedFd) {
    // Where the kernel does not know it turns are decided earlier.
    let _ = setsockopt(fd, NotSentLowat, &NOT_SENT);
}

/// Paces a connection, bytes per second; `None`: as fast as may be.
pub(crate) fn set_rate(fd: &OwnedFd, bytes_per_second: Option<u64>) {
    let rate = bytes_per_second.and_then(|rate| usize::try_from(rate).ok());
    let _ = setsockopt(fd, MaxPacingRate, &rate.unwrap_or(usize::MAX));
}

/// Makes the other side see a reset when the socket is closed.
pub(crate) fn reset_on_close(fd: &OwnedFd) {
    let _ = SockRef::from(fd).set_linger(Some(Duration::ZERO));
}

/// Bytes that the other side's host has acknowledged.
pub(crate) fn acknowledged(fd: &OwnedFd) -> Option<u64> {
    Some(getsockopt(fd, TcpInfo).ok()?.acknowledged)
}
