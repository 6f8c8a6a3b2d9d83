//! What the kernel says of a connection.

use crate::message::Tally;
use gridmpi_sock::TcpInfo;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{getsockopt, setsockopt};
use std::ffi::OsString;
use std::net::TcpStream;

/// Asks for a congestion control by name.
pub(crate) fn choose(stream: &TcpStream, name: &str) -> Result<(), String> {
    setsockopt(stream, TcpCongestion, &OsString::from(name)).map_err(|error| {
        format!("cannot use congestion control `{name}` ({error}): it must be among net.ipv4.tcp_allowed_congestion_control")
    })
}

/// What has arrived on a connection.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// In order or not: what is read comes in bursts where a lost segment is waited for, which says nothing of the path.
    Segments(u32),
    /// In order: a relay sends on what it has, in segments of all sizes, and has waited for what was lost before it.
    Bytes(u64),
}

impl Arrived {
    /// Counts from now on.
    pub(crate) fn at(stream: &TcpStream, is_circuit: bool) -> Self {
        let info = TcpInfo::of(stream).ok();
        if is_circuit {
            Self::Bytes(info.map_or(0, |info| info.bytes_received))
        } else {
            Self::Segments(info.map_or(0, |info| info.data_segs_in))
        }
    }

    /// Bytes since the last time.
    pub(crate) fn more(&mut self, stream: &TcpStream) -> u64 {
        let Ok(info) = TcpInfo::of(stream) else { return 0 };
        match self {
            Self::Segments(before) => {
                // The kernel counts in 32 bits, and on.
                let new =
                    info.data_segs_in.wrapping_sub(std::mem::replace(before, info.data_segs_in));
                u64::from(new) * u64::from(info.rcv_mss)
            }
            Self::Bytes(before) => {
                info.bytes_received.saturating_sub(std::mem::replace(before, info.bytes_received))
            }
        }
    }
}

/// The largest packet that the kernel counts on, and its fastest round trip in microseconds.
pub(crate) fn packet_and_trip(stream: &TcpStream) -> Option<(u32, u32)> {
    let info = TcpInfo::of(stream).ok()?;
    Some((info.pmtu, info.min_rtt))
}

/// The congestion control of a connection.
pub(crate) fn control(stream: &TcpStream) -> Option<String> {
    let name = getsockopt(stream, TcpCongestion).ok()?;
    let name = name.to_string_lossy().trim_end_matches('\0').to_owned();
    (name.len() < 16).then_some(name)
}

/// Adds a connection to what is known of all.
pub(crate) fn count(stream: &TcpStream, tally: &mut Tally) {
    if let Ok(info) = TcpInfo::of(stream) {
        tally.segments += u64::from(info.data_segs_out);
        tally.retransmitted += u64::from(info.total_retrans);
    }
    tally.congestion = tally.congestion.take().or_else(|| control(stream));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn segments_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.write_all(&[0; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let mut tally = Tally::default();
        count(&near, &mut tally);
        assert!(tally.segments >= 1 && tally.retransmitted == 0, "{tally:?}");
        assert!(tally.congestion.is_some_and(|name| !name.is_empty()));
        let (packet, trip) = packet_and_trip(&near).unwrap();
        assert!((576..=65536).contains(&packet) && trip < 10_000_000, "{packet} {trip}");
        let mut arrived = [false, true].map(|is_circuit| Arrived::at(&far, is_circuit));
        assert_eq!(arrived.each_mut().map(|arrived| arrived.more(&far)), [0, 0]);
        near.write_all(&[0; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        let [about, exactly] = arrived.each_mut().map(|arrived| arrived.more(&far));
        assert!(about >= 50_000 && exactly == 100_000, "{about} {exactly}");
        assert_eq!(arrived.each_mut().map(|arrived| arrived.more(&far)), [0, 0]);
        assert!(choose(&near, "nosuch").unwrap_err().contains("nosuch"));
    }
}
