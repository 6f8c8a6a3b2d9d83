//! What the programs say: lines `@NAME V V V ...`.

use crate::error::BenchError;
use std::collections::BTreeMap;

/// Fewer samples can never tell two series apart with the probability asked for.
const LEAST_SAMPLES: usize = 4;

/// How many standard deviations hold 95 % of what is distributed normally, on both sides.
const NORMAL_95: f64 = 1.96;

/// Series of samples by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    /// Reads every such line of `text`; a series that comes again is continued.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut samples = Self::default();
        samples.read(text);
        samples
    }

    /// Adds what another text has.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            let Some(rest) = line.strip_prefix('@') else { continue };
            let mut words = rest.split_ascii_whitespace();
            let Some(name) = words.next() else { continue };
            let values = words.filter_map(|word| word.parse::<f64>().ok());
            let values = values.filter(|value| value.is_finite());
            self.0.entry(name.to_owned()).or_default().extend(values);
        }
    }

    /// Adds another's samples, series by series.
    pub fn append(&mut self, other: &Self) {
        for (name, values) in &other.0 {
            self.0.entry(name.clone()).or_default().extend(values);
        }
    }

    /// A series.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn get(&self, name: &str) -> Result<&[f64], BenchError> {
        match self.0.get(name) {
            Some(values) if !values.is_empty() => Ok(values),
            _ => Err(BenchError::Output(format!("the program did not say @{name}"))),
        }
    }

    /// A series in other units.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn scaled(&self, name: &str, factor: f64) -> Result<Vec<f64>, BenchError> {
        Ok(self.get(name)?.iter().map(|value| value * factor).collect())
    }
}

/// The value that a fraction `at` (0 to 1) of the values lies below; 0 of none.
#[must_use]
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = at.clamp(0.0, 1.0) * last as f64;
    let low = place.floor() as usize;
    let value = |index: usize| sorted.get(index.min(last)).copied().unwrap_or(0.0);
    value(low) + (value(low + 1) - value(low)) * (place - low as f64)
}

/// The median; 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The range that holds the ratio of one series to another with a probability of 95 %, whatever the distribution; `None` of fewer than four
/// samples each, or where one is not above 0. Hodges and Lehmann, "Estimates of Location Based on Rank Tests" (1963): the middle of the ratios of
/// all pairs, as the rank-sum test bounds it.
#[must_use]
pub fn ratio_range(ours: &[f64], others: &[f64]) -> Option<[f64; 2]> {
    let is_usable = |samples: &[f64]| {
        samples.len() >= LEAST_SAMPLES && samples.iter().all(|value| *value > 0.0)
    };
    if !is_usable(ours) || !is_usable(others) {
        return None;
    }
    let mut ratios: Vec<f64> =
        ours.iter().flat_map(|ours| others.iter().map(move |other| ours / other)).collect();
    ratios.sort_by(f64::total_cmp);
    let [count, other_count] = [ours, others].map(|samples| samples.len() as f64);
    let pairs = count * other_count;
    let deviation = (pairs * (count + other_count + 1.0) / 12.0).sqrt();
    let outside = (pairs / 2.0 - NORMAL_95 * deviation).floor().max(1.0) as usize;
    Some([*ratios.get(outside - 1)?, *ratios.get(ratios.len() - outside)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_ratio_is_that_of_the_rank_sum_test() {
        // Two of 25 pairs lie outside on each side (the test's 5 % for five and five).
        let (ours, others) = ([2.0, 4.0, 6.0, 8.0, 10.0], [1.0; 5]);
        assert_eq!(ratio_range(&ours, &others), Some([2.0, 10.0]));
        let others = [1.0, 1.0, 1.0, 1.0, 2.0];
        assert_eq!(ratio_range(&ours, &others), Some([2.0, 10.0]));
        // Of many alike it is narrow, and the middle lies in it.
        let many: Vec<f64> = (0..40).map(|n| 1.0 + f64::from(n * 7 % 40) / 400.0).collect();
        let [low, high] = ratio_range(&many, &many).unwrap();
        assert!(low < 1.0 && 1.0 < high && high - low < 0.03, "{low} {high}");
        let twice: Vec<f64> = many.iter().map(|value| 2.0 * value).collect();
        let [low, high] = ratio_range(&twice, &many).unwrap();
        assert!(low < 2.0 && 2.0 < high, "{low} {high}");
        assert!(ratio_range(&many, &[1.0; 3]).is_none());
        assert!(ratio_range(&[1.0, 1.0, 0.0, 1.0], &many).is_none());
    }

    #[test]
    fn lines_of_samples_are_found_between_others() {
        let samples = Samples::parse("hello\n@a 1 2.5\nnoise @a 9\n@b x nan 3\n@a 4\n@\n");
        assert_eq!(samples.get("a").unwrap(), [1.0, 2.5, 4.0]);
        assert_eq!(samples.scaled("b", 2.0).unwrap(), [6.0]);
        assert!(samples.get("c").is_err());
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert_eq!((quantile(&[7.0], 1.0), median(&[])), (7.0, 0.0));
    }
}
