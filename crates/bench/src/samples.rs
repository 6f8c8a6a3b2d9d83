//! What the programs say: lines `@NAME V V V ...`.

use crate::error::BenchError;
use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use super::*;

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
