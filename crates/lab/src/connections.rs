//! Over how many TCP connections a direction of a link has been sent.

use std::collections::HashMap;

/// Bytes that TCP has carried of a connection before it counts: more than handshakes and a few words.
const WORTH: u64 = 16 * 1024;
/// So many are kept in mind, or all are forgotten: a lab may be up for days.
const MOST: usize = 1 << 16;

/// What one connection sends: where from and to.
type Way = ([u8; 8], [u8; 4]);

/// Those of one direction.
#[derive(Debug, Default)]
pub struct Connections {
    bytes: HashMap<Way, u64>,
    count: u64,
}

impl Connections {
    /// A frame, with Ethernet's header.
    pub fn note(&mut self, frame: &[u8]) {
        let Some((way, bytes)) = segment(frame).filter(|(_, bytes)| *bytes > 0) else { return };
        if self.bytes.len() >= MOST {
            self.bytes.clear();
        }
        let sent = self.bytes.entry(way).or_default();
        let before = *sent;
        *sent = before.saturating_add(bytes);
        if before < WORTH && *sent >= WORTH {
            self.count += 1;
        }
    }

    /// On how many 16 KiB or more have been sent since the lab came up.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Addresses and ports of a frame with TCP over IPv4, and how much it carries, if it is one.
fn segment(frame: &[u8]) -> Option<(Way, u64)> {
    let packet = frame.get(14..)?;
    let words = |byte: u8| usize::from(byte & 15) * 4;
    let is_tcp = frame[12..14] == [8, 0] && packet.first()? >> 4 == 4 && *packet.get(9)? == 6;
    let head = words(packet[0]);
    let ports = packet.get(head..head + 4)?.try_into().ok()?;
    let heads = head + words(packet.get(head + 12)? >> 4);
    let addresses = packet.get(12..20)?.try_into().ok()?;
    // A short frame is padded, and a super-packet may not say how long it is.
    let carried = packet.len().saturating_sub(heads) as u64;
    let length = u16::from_be_bytes([packet[2], packet[3]]);
    let said = usize::from(length).checked_sub(heads).map_or(carried, |said| said as u64);
    is_tcp.then_some(((addresses, ports), carried.min(said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With so much of a payload.
    fn frame(port: u8, protocol: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0; 5]);
        frame.extend([protocol, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1, 200, port, 0, 80]);
        frame.extend([0; 8]);
        frame.extend([0x50, 0, 0, 0, 0, 0, 0, 0]);
        frame.resize((frame.len() + payload).max(60), 0);
        frame
    }

    #[test]
    fn a_connection_counts_once_when_it_has_sent_enough() {
        let mut connections = Connections::default();
        for _ in 0..10 {
            connections.note(&frame(1, 6, 1460));
        }
        assert_eq!(connections.count(), 0);
        for _ in 0..1000 {
            connections.note(&frame(1, 6, 1460));
            connections.note(&frame(2, 17, 1460));
            // Acknowledgements, padded.
            connections.note(&frame(3, 6, 0));
        }
        assert_eq!(connections.count(), 1);
        connections.note(&frame(4, 6, WORTH as usize));
        assert_eq!(connections.count(), 2);
    }

    #[test]
    fn what_is_no_tcp_over_ipv4_is_no_connection() {
        let whole = frame(1, 6, 100);
        assert!(segment(&whole).is_some_and(|(_, bytes)| bytes == 100));
        assert_eq!(segment(&frame(1, 17, 100)), None);
        for length in 0..47 {
            assert_eq!(segment(&whole[..length]), None, "{length}");
        }
        let mut other = whole;
        other[13] = 6;
        assert_eq!(segment(&other), None);
        // It says that it is shorter than its heads: as long as it is, then.
        let mut other = frame(1, 6, 100);
        other[16..18].copy_from_slice(&[0, 0]);
        assert!(segment(&other).is_some_and(|(_, bytes)| bytes == 100));
    }

    #[test]
    fn all_are_forgotten_before_there_are_too_many() {
        let mut connections = Connections::default();
        let mut frame = frame(1, 6, WORTH as usize);
        for number in 0..=MOST as u32 {
            frame[26..30].copy_from_slice(&number.to_be_bytes());
            connections.note(&frame);
        }
        assert_eq!(connections.count(), MOST as u64 + 1);
        assert_eq!(connections.bytes.len(), 1);
    }
}
