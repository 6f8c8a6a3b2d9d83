//! From what receivers say they have received to one figure: how much arrives in all, once it flows.

/// Longest series of one receiver.
const MAX_SAMPLES: usize = 10_000;
/// Windows that must agree, or of which the best is taken.
const WINDOWS: usize = 4;
/// How well they must agree.
const SPREAD: f64 = 0.03;
/// Most windows that are looked at.
const MAX_WINDOWS: u64 = 10_000;

/// Which parts of a transfer count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first part, which does not count: connections open their windows.
    pub(crate) discard_us: u64,
    /// Length of one window.
    pub(crate) width_us: u64,
}

/// What came of a transfer so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// Whether the last windows agree.
    pub(crate) is_stable: bool,
    /// Seconds that were looked at.
    pub(crate) seconds: f64,
}

/// What each receiver has received in all, by the conductor's clock.
#[derive(Debug)]
pub(crate) struct Series {
    receivers: Vec<Vec<(u64, u64)>>,
}

impl Series {
    pub(crate) fn new(receivers: usize) -> Self {
        Self { receivers: vec![Vec::new(); receivers] }
    }

    /// A receiver had so many bytes in all at this microsecond. What goes back in time or takes bytes back does not count.
    pub(crate) fn add(&mut self, receiver: usize, at_us: u64, bytes: u64) {
        let Some(series) = self.receivers.get_mut(receiver) else { return };
        let is_later = series.last().is_none_or(|(at, had)| at_us > *at && bytes >= *had);
        if is_later && series.len() < MAX_SAMPLES {
            series.push((at_us, bytes));
        }
    }

    /// The figure; `None` until there is a whole window.
    pub(crate) fn figure(&self, window: Window) -> Option<Figure> {
        let from = self.begin()?.checked_add(window.discard_us)?;
        let until = self.receivers.iter().map(|s| s.last().map_or(0, |(at, _)| *at)).min()?;
        let windows = (until.checked_sub(from)? / window.width_us.max(1)).min(MAX_WINDOWS);
        let width = window.width_us as f64;
        let edge = |number: u64| self.total(from as f64 + number as f64 * width);
        let rate = |number| (edge(number + 1) - edge(number)) / width * 1e6;
        let rates: Vec<f64> = (0..windows).map(rate).collect();
        let last = rates.get(rates.len().saturating_sub(WINDOWS)..)?;
        let best = rates.windows(WINDOWS.min(rates.len().max(1))).map(mean).fold(0.0, f64::max);
        // Connections that have just lost something send less for a while: that says nothing of the path.
        let is_at_best = mean(last) >= best * (1.0 - SPREAD);
        let is_stable = last.len() == WINDOWS && agree(last) && is_at_best;
        let rate = if is_stable { mean(last) } else { best };
        let seconds = windows as f64 * width / 1e6;
        (windows > 0).then_some(Figure { rate, is_stable, seconds })
    }

    /// Whether anything has arrived.
    pub(crate) fn has_any(&self) -> bool {
        self.receivers.iter().flatten().any(|(_, bytes)| *bytes > 0)
    }

    /// When the first bytes came.
    fn begin(&self) -> Option<u64> {
        let first =
            |series: &Vec<(u64, u64)>| series.iter().find(|(_, b)| *b > 0).map(|(at, _)| *at);
        self.receivers.iter().filter_map(first).min()
    }

    fn total(&self, at: f64) -> f64 {
        self.receivers.iter().map(|series| interpolate(series, at)).sum()
    }
}

fn interpolate(series: &[(u64, u64)], at: f64) -> f64 {
    let after = series.partition_point(|(t, _)| (*t as f64) <= at);
    let Some(&(t0, b0)) = after.checked_sub(1).and_then(|before| series.get(before)) else {
        return 0.0;
    };
    let Some(&(t1, b1)) = series.get(after) else { return b0 as f64 };
    b0 as f64 + (b1 - b0) as f64 * (at - t0 as f64) / (t1 - t0) as f64
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn agree(rates: &[f64]) -> bool {
    let (least, most) =
        rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), r| (low.min(*r), high.max(*r)));
    most > 0.0 && most - least <= SPREAD * mean(rates)
}

/// The middle of several.
pub(crate) fn median(values: &[u32]) -> Option<u32> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { discard_us: 200_000, width_us: 100_000 };

    /// Receivers whose clocks tick apart, each at its rate (bytes per second by time), from 1 s on.
    fn flows(rates: &[fn(f64) -> f64], seconds: f64) -> Series {
        let mut series = Series::new(rates.len());
        for (receiver, rate) in rates.iter().enumerate() {
            let mut bytes = 0.0;
            for tick in 0..(seconds / 0.001) as u64 {
                bytes += rate(tick as f64 * 0.001) * 0.001;
                if tick % 25 == receiver as u64 {
                    series.add(receiver, 1_000_000 + tick * 1000, bytes as u64);
                }
            }
        }
        series
    }

    #[test]
    fn the_sum_of_all_is_found_after_what_is_discarded() {
        let series = flows(&[|t| if t < 0.2 { 1e5 } else { 1e6 }, |_| 3e6], 1.0);
        let figure = series.figure(WINDOW).unwrap();
        assert!(figure.is_stable, "{figure:?}");
        assert!((figure.rate / 4e6 - 1.0).abs() < 0.001, "{figure:?}");
    }

    #[test]
    fn what_never_agrees_has_its_best_part() {
        let saw: fn(f64) -> f64 = |t| if t % 0.8 < 0.4 { 1e6 } else { 5e5 };
        let figure = flows(&[saw], 2.5).figure(WINDOW).unwrap();
        assert!((figure.rate / 1e6 - 1.0).abs() < 0.13, "{figure:?}");
    }

    #[test]
    fn too_little_is_no_figure() {
        assert_eq!(Series::new(2).figure(WINDOW), None);
        assert_eq!(Series::new(0).figure(WINDOW), None);
        assert_eq!(flows(&[|_| 1e6], 0.25).figure(WINDOW), None);
        let mut silent = flows(&[|_| 1e6, |_| 0.0], 1.0);
        assert!(silent.has_any());
        silent.add(7, 1, 1);
        let figure = silent.figure(WINDOW).unwrap();
        assert!((figure.rate / 1e6 - 1.0).abs() < 0.001, "{figure:?}");
    }

    #[test]
    fn clocks_that_go_back_and_huge_numbers_do_no_harm() {
        let mut series = Series::new(1);
        for (at, bytes) in [(5, 1), (4, 2), (6, 0), (u64::MAX, u64::MAX)] {
            series.add(0, at, bytes);
        }
        let _ = series.figure(WINDOW);
        let _ = series.figure(Window { discard_us: u64::MAX, width_us: 0 });
        assert_eq!(median(&[3, 1, 2]), Some(2));
        assert_eq!(median(&[]), None);
    }
}
