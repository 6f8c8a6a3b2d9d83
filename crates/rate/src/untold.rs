//! Short transfers that a broker need not be told of: they are over before a grant could count, and take nothing from anybody.
//!
//! What goes untold is no more than everybody's share of the link, which all may send at any time, and no more at once than may pile up
//! before the link if all do the same. No clock: the moment is an argument.

use crate::Rate;
use std::time::Instant;

/// One in so many is told of all the same: by these the broker sees how many send at the same time.
pub(crate) const TOLD: u32 = 8;

/// What one process has sent to one cluster so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untold {
    in_a_row: u32,
    /// Bits by which it is ahead of its share, and when that was so.
    ahead: f64,
    at: Option<Instant>,
}

/// Up to what a process may do so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// What every process may always have.
    pub(crate) share: Rate,
    /// Bits that it may be ahead of that.
    pub(crate) most: f64,
}

impl Untold {
    /// Whether a transfer of so many bits, which begins now, may. To be asked once for each.
    pub(crate) fn admit(&mut self, bits: f64, bounds: Bounds, now: Instant) -> bool {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let left = self.ahead - bounds.share.bits_per_second() * passed;
        (self.ahead, self.at) = (left.max(0.0), Some(now));
        if self.ahead + bits > bounds.most || self.in_a_row + 1 >= TOLD {
            self.in_a_row = 0;
            return false;
        }
        self.ahead += bits;
        self.in_a_row += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MESSAGE: f64 = 14e3 * 8.0;

    fn bounds() -> Bounds {
        Bounds { share: Rate::from_bits_per_second(40e6).unwrap(), most: 20e3 * 8.0 }
    }

    #[test]
    fn one_in_eight_is_told_of() {
        let (mut untold, mut now) = (Untold::default(), Instant::now());
        let told = (0..4 * TOLD).filter(|_| {
            now += Duration::from_millis(10);
            !untold.admit(MESSAGE, bounds(), now)
        });
        assert_eq!(told.collect::<Vec<_>>(), [7, 15, 23, 31]);
    }

    #[test]
    fn no_more_goes_untold_than_everybody_may_always_send() {
        let (mut untold, began) = (Untold::default(), Instant::now());
        let mut bits = 0.0;
        for us in (0..1_000_000).step_by(1000) {
            let now = began + Duration::from_micros(us);
            bits += if untold.admit(MESSAGE, bounds(), now) { MESSAGE } else { 0.0 };
        }
        assert!((30e6..=40e6 + bounds().most).contains(&bits), "{bits}");
        assert!(!untold.admit(bounds().most + 1.0, bounds(), began + Duration::from_secs(60)));
    }
}
