//! Quantiles of times in fixed memory: sixteen steps to each power of two.

/// Counts of values, exact to 1/16.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    highest: u64,
}

const STEPS: u64 = 16;
const SIZE: usize = 61 * STEPS as usize;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; SIZE], total: 0, highest: 0 }
    }
}

fn index(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = value.ilog2() - STEPS.ilog2();
    ((u64::from(power) + 1) * STEPS + (value >> power) - STEPS) as usize
}

/// The least value of a step.
fn value(index: usize) -> u64 {
    let (power, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if power == 0 { step } else { (STEPS + step) << (power - 1) }
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.counts[index(value).min(SIZE - 1)] += 1;
        self.total += 1;
        self.highest = self.highest.max(value);
    }

    /// Adds another's counts and empties it.
    pub fn take_from(&mut self, other: &mut Self) {
        if other.total == 0 {
            return;
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&mut other.counts) {
            *mine += std::mem::take(theirs);
        }
        self.total += std::mem::take(&mut other.total);
        self.highest = self.highest.max(std::mem::take(&mut other.highest));
    }

    /// The value that a fraction `quantile` of all values does not exceed; 0 when there is none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = (quantile * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return value(index + 1).saturating_sub(1).min(self.highest);
            }
        }
        self.highest
    }

    /// The highest value.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.99), 0);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_step(x in any::<u64>()) {
            let step = index(x);
            prop_assert!(step < SIZE);
            prop_assert!(value(step) <= x);
            prop_assert!(step + 1 == SIZE || x < value(step + 1));
        }

        #[test]
        fn quantiles_are_near(mut values in proptest::collection::vec(0..1u64 << 40, 1..200)) {
            let (mut histogram, mut other) = (Histogram::default(), Histogram::default());
            for (i, value) in values.iter().enumerate() {
                if i % 2 == 0 { histogram.add(*value) } else { other.add(*value) }
            }
            histogram.take_from(&mut other);
            values.sort_unstable();
            for q in [0.5, 0.99, 1.0] {
                let exact = values[((q * values.len() as f64).ceil() as usize).max(1) - 1];
                let found = histogram.quantile(q);
                prop_assert!(found >= exact && found <= exact + exact / 16 + 1, "{} {}", found, exact);
            }
            prop_assert_eq!(histogram.highest(), *values.last().unwrap());
        }
    }
}
