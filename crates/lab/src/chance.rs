//! Random loss: a seeded generator that gives the same losses to the same packets in order.

/// Decides for each packet in turn whether it is lost.
#[derive(Debug, Clone)]
pub struct Chance {
    state: u64,
    /// A packet is lost when the next random number lies below this; 2^64 means always.
    threshold: u128,
}

impl Chance {
    /// Loses packets with `probability`; `seed` and `stream` (a number for each direction of
    /// each link) decide which.
    #[must_use]
    pub fn new(seed: u64, stream: u64, probability: f64) -> Self {
        let threshold = (probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u128;
        let mut chance = Self { state: seed, threshold };
        chance.state = chance.next() ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        chance
    }

    /// The next number of the SplitMix64 sequence (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        self.threshold != 0 && u128::from(self.next()) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(seed: u64, stream: u64, probability: f64) -> Vec<bool> {
        let mut chance = Chance::new(seed, stream, probability);
        (0..100_000).map(|_| chance.loses()).collect()
    }

    #[test]
    fn the_rate_is_near_the_probability() {
        for probability in [0.0, 0.001, 0.1, 1.0] {
            let count = lost(1, 0, probability).iter().filter(|lost| **lost).count() as f64;
            let expected = probability * 1e5;
            // Five standard deviations of a binomial distribution.
            let bound = 5.0 * (expected * (1.0 - probability)).sqrt();
            assert!((count - expected).abs() <= bound, "{probability}: {count}");
        }
    }

    #[test]
    fn seed_and_stream_decide() {
        assert_eq!(lost(1, 0, 0.5), lost(1, 0, 0.5));
        assert_ne!(lost(1, 0, 0.5), lost(2, 0, 0.5));
        assert_ne!(lost(1, 0, 0.5), lost(1, 1, 0.5));
    }
}
