//! What data takes of a link: rates are those of whole frames on the wire, while TCP and programs count payload.
//!
//! For Ethernet's usual frames of 1,500 bytes and IPv4. Smaller ones count more and larger ones less, and those of IPv6 more ([`Weight`]).

/// What TCP carries in a full frame, with its timestamps: bytes.
pub const SEGMENT: usize = 1448;

/// What a full frame takes of the wire, with preamble, checksum and the gap after it: bytes.
pub const FRAME: usize = 1538;

/// Of a full frame, what TCP carries.
pub const PAYLOAD: f64 = SEGMENT as f64 / FRAME as f64;

/// What a full frame takes of the wire beside that: bytes.
pub const HEADERS: usize = FRAME - SEGMENT;

/// The same of a frame of IPv6, whose header has 40 bytes (RFC 8200 §3) instead of 20.
pub const HEADERS_IPV6: usize = HEADERS + 20;

/// What a connection's bytes take of the wire by what those of usual full segments do: more where its segments are smaller, as in tunnels, less
/// where they are larger. Rates, and what turns are of, are as of usual ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight(f64);

/// Of a byte: less is a matter of how numbers are rounded.
const ROUNDING: f64 = 1e-3;

impl Weight {
    /// That of usual ones.
    pub const USUAL: Self = Self(1.0);

    /// Of full segments that carry `segment` bytes and have so many of headers each.
    #[must_use]
    pub fn new(segment: u32, headers: usize) -> Self {
        // The least that TCP goes down to (RFC 9293 §3.7.1).
        let segment = f64::from(segment.max(536));
        Self((segment + headers as f64) * SEGMENT as f64 / (segment * FRAME as f64))
    }

    /// What so many bytes of its take, in those of usual ones.
    #[must_use]
    pub fn weighed(self, bytes: usize) -> usize {
        (bytes as f64 * self.0 - ROUNDING).ceil() as usize
    }

    /// How many of its bytes take that.
    #[must_use]
    pub fn bytes(self, weighed: usize) -> usize {
        (weighed as f64 / self.0 - ROUNDING).ceil() as usize
    }

    /// At which rate its bytes leave where usual ones leave at this; 1 at least.
    #[must_use]
    pub fn rate(self, usual: u64) -> u64 {
        ((usual as f64 / self.0) as u64).max(1)
    }
}

/// What the acknowledgement of a received byte takes on the way back: one bare frame for two full ones.
pub const ACKNOWLEDGEMENT: f64 = HEADERS as f64 / (2 * FRAME) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_small_frames_carry_takes_more_of_the_wire_and_what_large_ones_do_less() {
        let is = |segment, wanted: f64| {
            let Weight(weight) = Weight::new(segment, HEADERS);
            assert!((weight - wanted).abs() < 1e-4, "{segment}: {weight}");
        };
        assert_eq!(Weight::new(SEGMENT as u32, HEADERS), Weight::USUAL);
        // Frames of 1,400 and of 9,000 bytes.
        is(1348, 1.0043);
        is(8948, 0.9510);
        is(536, 1.0996);
        is(0, 1.0996);
        is(u32::MAX, PAYLOAD);
    }

    #[test]
    fn as_many_segments_of_ipv6_are_the_same_turn() {
        let of_ipv6 = Weight::new(1428, HEADERS_IPV6);
        for segments in [1, 8, 70, 700] {
            assert_eq!(of_ipv6.bytes(segments * SEGMENT), segments * 1428);
            assert_eq!(of_ipv6.weighed(segments * 1428), segments * SEGMENT);
        }
        assert_eq!(of_ipv6.rate(1448), 1428);
        assert_eq!(of_ipv6.rate(0), 1);
    }

    #[test]
    fn a_turn_that_is_used_up_is_seen_to_be() {
        for segment in [536, 1348, 1428, 1448, 4052, 8948, 65_483] {
            let weight = Weight::new(segment, HEADERS);
            for turn in [1, 2, 1447, 1448, 11_584, 31_856, 1 << 20, (1 << 30) - 1] {
                let weighed = weight.weighed(weight.bytes(turn));
                assert!((turn..=turn + 2).contains(&weighed), "{segment}, {turn}: {weighed}");
            }
            assert_eq!(weight.bytes(usize::MAX) >> 62, 3, "no bound is none");
            assert_eq!((weight.bytes(0), weight.weighed(0)), (0, 0));
        }
    }
}
