//! TCP's account of a connection, and options that no library names.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};

sockopt_impl!(MaxPacingRate, SetOnly, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, PacingRate);
sockopt_impl!(NotSentLowat, SetOnly, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32);
sockopt_impl!(Account, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo);

/// A word of the machine's, bytes per second. Half a word would end at 34 Gbit/s.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct PacingRate(usize);

/// The beginning of the kernel's `struct tcp_info` (linux/tcp.h), as Linux 4.10 and all later have it. Names, units and meanings are the
/// kernel's: times in microseconds unless they say otherwise, windows in segments, rates in bytes per second.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the kernel's own
pub struct TcpInfo {
    pub states: [u8; 8],
    pub rto: u32,
    pub ato: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    pub last_data_sent_ms: u32,
    pub last_ack_sent_ms: u32,
    pub last_data_recv_ms: u32,
    pub last_ack_recv_ms: u32,
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    pub rcv_rtt: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivery_rate: u64,
    pub busy_time: u64,
    pub rwnd_limited: u64,
}

impl TcpInfo {
    /// Of a connection, now.
    ///
    /// # Errors
    /// It is no TCP socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(getsockopt(socket, Account)?)
    }
}

/// Makes the kernel space out what TCP carries on a connection, bytes per second (all ones: as fast as may be). At once,
/// and without the `fq` discipline, too (socket(7), `SO_MAX_PACING_RATE`).
///
/// # Errors
/// The kernel does not know it.
pub fn set_pacing_rate(socket: &impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    // The kernel takes a word of the machine's.
    let rate = usize::try_from(bytes_per_second).unwrap_or(usize::MAX);
    Ok(setsockopt(socket, MaxPacingRate, &PacingRate(rate))?)
}

/// Lets the kernel hold so many bytes of a connection that its window does not let out yet, and take no more until they are fewer.
///
/// # Errors
/// The kernel does not know it.
pub fn bound_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    Ok(setsockopt(socket, NotSentLowat, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_account_lies_as_the_kernel_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        set_pacing_rate(&near, 123_456_789).unwrap();
        bound_unsent(&near, 100_000).unwrap();
        near.write_all(&[0; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[0; 77]).unwrap();
        near.read_exact(&mut [0; 77]).unwrap();
        // Fields from one end of the structure to the other that are known, so that none between is missing.
        let info = TcpInfo::of(&near).unwrap();
        assert!(info.snd_mss >= 500 && info.pmtu >= 500 && info.pmtu <= 65_536, "{info:?}");
        assert!((2..=1024).contains(&info.snd_cwnd) && info.total_retrans == 0, "{info:?}");
        assert_eq!((info.max_pacing_rate, info.bytes_received), (123_456_789, 77));
        assert_eq!((info.notsent_bytes, info.data_segs_in), (0, 1));
        assert!(info.data_segs_out >= 1 && info.min_rtt < 10_000_000, "{info:?}");
        assert!(TcpInfo::of(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
