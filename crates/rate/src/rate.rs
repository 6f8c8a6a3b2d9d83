//! A rate that something can have.

use std::fmt;

/// Bits per second of payload and headers alike: more than 0, at most infinite (no bound is known).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// No bound.
    pub const UNBOUNDED: Self = Self(f64::INFINITY);

    /// `None` unless the number is more than 0.
    #[must_use]
    pub fn from_bits_per_second(bits: f64) -> Option<Self> {
        (bits > 0.0).then_some(Self(bits))
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> f64 {
        self.0
    }

    /// So many times as much: itself where that is no rate.
    #[must_use]
    pub(crate) fn scaled(self, by: f64) -> Self {
        Self::from_bits_per_second(self.0 * by).unwrap_or(self)
    }

    /// The lesser of the two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The greater.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            bits if bits.is_infinite() => return f.write_str("unbounded"),
            bits if bits >= 1e9 => (1e9, "Gbit/s"),
            bits if bits >= 1e6 => (1e6, "Mbit/s"),
            bits if bits >= 1e3 => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        let value = self.0 / unit;
        let digits = if value >= 100.0 { 0 } else { 1 };
        write!(f, "{value:.digits$} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_rate_is_one() {
        for bits in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Rate::from_bits_per_second(bits), None, "{bits}");
        }
        assert_eq!(Rate::from_bits_per_second(f64::INFINITY), Some(Rate::UNBOUNDED));
    }

    #[test]
    fn a_part_of_a_rate_is_a_rate() {
        let rate = Rate(160e6);
        assert_eq!([0.25, 1.0, 2.0].map(|by| rate.scaled(by).0), [40e6, 160e6, 320e6]);
        assert_eq!([0.0, -1.0, f64::NAN].map(|by| rate.scaled(by)), [rate; 3]);
        assert_eq!(Rate::UNBOUNDED.scaled(0.5), Rate::UNBOUNDED);
    }

    #[test]
    fn units() {
        let rate = |bits| Rate::from_bits_per_second(bits).unwrap();
        let said = [999.0, 1e3, 12.34e6, 160e6, 1e9, 400e9].map(|bits| rate(bits).to_string());
        let wanted =
            ["999 bit/s", "1.0 kbit/s", "12.3 Mbit/s", "160 Mbit/s", "1.0 Gbit/s", "400 Gbit/s"];
        assert_eq!(said, wanted);
        assert_eq!(Rate::UNBOUNDED.to_string(), "unbounded");
    }
}
