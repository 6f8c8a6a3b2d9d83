//! Random loss: a seeded generator that gives the same losses to the same packets in order.

/// Random numbers, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the SplitMix64 sequence (Steele, Lea, Flood 2014).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        // The highest bits of the product: even to one in 2^64 divided by the bound.
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }
}

/// Decides for each packet in turn whether it is lost.
#[derive(Debug, Clone)]
pub struct Chance {
    numbers: Numbers,
    /// A packet is lost when the next random number lies below this; 2^64 means always.
    threshold: u128,
}

impl Chance {
    /// Loses packets with `probability`; `seed` and `stream` (a number for each direction of
    /// each link) decide which.
    #[must_use]
    pub fn new(seed: u64, stream: u64, probability: f64) -> Self {
        let first = Numbers::new(seed).draw() ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut chance = Self { numbers: Numbers::new(first), threshold: 0 };
        chance.set(probability);
        chance
    }

    /// Loses packets with another probability from now on.
    pub fn set(&mut self, probability: f64) {
        self.threshold = (probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u128;
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        self.threshold != 0 && u128::from(self.numbers.draw()) < self.threshold
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
    fn numbers_are_spread_evenly() {
        let mut numbers = Numbers::new(3);
        let mut counts = [0; 5];
        (0..10_000).for_each(|_| counts[numbers.below(5)] += 1);
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
        assert_eq!((numbers.below(1), numbers.below(0)), (0, 0));
    }

    #[test]
    fn seed_and_stream_decide() {
        assert_eq!(lost(1, 0, 0.5), lost(1, 0, 0.5));
        assert_ne!(lost(1, 0, 0.5), lost(2, 0, 0.5));
        assert_ne!(lost(1, 0, 0.5), lost(1, 1, 0.5));
    }
}
