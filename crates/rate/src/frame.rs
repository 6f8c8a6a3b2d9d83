//! What data takes of a link: rates are those of whole frames on the wire, while TCP and programs count payload.
//!
//! For Ethernet's usual frames of 1,500 bytes. Larger ones are paced some 5 % slower than they may be; smaller ones count more ([`weight`]).

/// What TCP carries in a full frame, with its timestamps: bytes.
pub const SEGMENT: usize = 1448;

/// What a full frame takes of the wire, with preamble, checksum and the gap after it: bytes.
pub const FRAME: usize = 1538;

/// Of a full frame, what TCP carries.
pub const PAYLOAD: f64 = SEGMENT as f64 / FRAME as f64;

/// What a byte takes of the wire by what one of a usual full segment does, where full segments carry so many bytes: 1 at least. Smaller
/// ones, as of tunnels, have as many headers each.
#[must_use]
pub fn weight(segment: u32) -> f64 {
    // The least that TCP goes down to (RFC 9293 §3.7.1).
    let segment = f64::from(segment.max(536));
    let headers = (FRAME - SEGMENT) as f64;
    ((segment + headers) / segment * PAYLOAD).max(1.0)
}

/// What the acknowledgement of a received byte takes on the way back: one bare frame of 90 bytes for two full ones.
pub const ACKNOWLEDGEMENT: f64 = 90.0 / (2 * FRAME) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_small_frames_carry_takes_more_of_the_wire() {
        assert_eq!([1448, 8948, u32::MAX].map(weight), [1.0; 3]);
        // Frames of 1,400 bytes.
        assert!((weight(1348) - 1.0043).abs() < 1e-4, "{}", weight(1348));
        assert!((weight(536) - 1.0996).abs() < 1e-4 && weight(0) == weight(536), "{}", weight(536));
    }
}
