//! A figure: ours, what it is compared to, the bound and whether it is met.

use crate::network::Network;
use crate::samples::{median, quantile, ratio_range};
use gridmpi_report::table::Table;
use serde::Serialize;

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Ours less the other's, in the figure's unit.
    DifferenceAtMost(f64),
    /// Ours by the other's.
    RatioAtMost(f64),
    /// Ours by the other's.
    RatioAtLeast(f64),
    /// Ours, in the figure's unit.
    AtMost(f64),
    /// It is only told.
    Told,
}

/// Whom ours is compared to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// Who.
    pub whom: String,
    /// The median of its samples, in the figure's unit.
    pub value: f64,
}

/// First and third quartile of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Of ours.
    pub ours: [f64; 2],
    /// Of the other's.
    pub against: [f64; 2],
    /// How many samples each has, the fewer.
    pub samples: usize,
}

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What is measured.
    pub name: String,
    /// Unit of `ours`, of `against.value` and of `spread`.
    pub unit: &'static str,
    /// The median of our samples.
    pub ours: f64,
    /// Whom ours is compared to.
    pub against: Against,
    /// What it must be.
    pub bound: Bound,
    /// Ours by the other's; not a number (`null`) where the other's is not above 0, and then no bound on it is met.
    pub ratio: f64,
    /// The range that holds the ratio with a probability of 95 %, where there are samples enough to say; where ours is held against the best
    /// of several, of that of them by which the bound is harder to meet, end by end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely: Option<[f64; 2]>,
    /// Ours less the other's: the median over pairs where samples come in pairs.
    pub difference: f64,
    /// Quartiles.
    pub spread: Spread,
    /// Whether the bound is met; `None` without a bound.
    pub met: Option<bool>,
    /// What the network did meanwhile, where that was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Its place in the table of programs, if it belongs there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Whether there were the samples that it needs. Without, nothing of it means anything.
    #[serde(skip)]
    pub is_measured: bool,
}

/// A place in the table of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// What ran, and where.
    pub row: String,
    /// How.
    pub column: &'static str,
}

fn quartiles(samples: &[f64]) -> [f64; 2] {
    [quantile(samples, 0.25), quantile(samples, 0.75)]
}

impl Figure {
    /// Of samples that were taken by turns: medians are compared.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        ours: &[f64],
        whom: &str,
        against: &[f64],
        bound: Bound,
    ) -> Self {
        let difference = median(ours) - median(against);
        Self::judged(name.into(), unit, ours, whom, against, bound, difference)
            .among(ours, &[against])
    }

    /// The same where the other is the best of these: each of them may be, so that the range is theirs together.
    #[must_use]
    pub fn among(self, ours: &[f64], others: &[impl AsRef<[f64]>]) -> Self {
        let ranges = others.iter().map(|other| ratio_range(ours, other.as_ref()));
        let ranges: Option<Vec<_>> = ranges.collect();
        let likely = ranges.and_then(|ranges| self.bound.hardest(ranges));
        Self { likely, ..self }
    }

    /// Of samples in pairs, each pair taken within a moment: what disturbs both counts for neither.
    #[must_use]
    pub fn paired(
        name: impl Into<String>,
        unit: &'static str,
        ours: &[f64],
        whom: &str,
        against: &[f64],
        bound: Bound,
    ) -> Self {
        let pairs: Vec<f64> = ours.iter().zip(against).map(|(o, a)| o - a).collect();
        Self::judged(name.into(), unit, ours, whom, against, bound, median(&pairs))
    }

    fn judged(
        name: String,
        unit: &'static str,
        ours: &[f64],
        whom: &str,
        against: &[f64],
        bound: Bound,
        difference: f64,
    ) -> Self {
        let value = median(against);
        let ratio = if value > 0.0 { (value + difference) / value } else { f64::NAN };
        let samples = ours.len().min(against.len());
        let is_measured = !(ours.is_empty() || bound.compares() && against.is_empty());
        Self {
            is_measured,
            name,
            unit,
            ours: median(ours),
            against: Against { whom: whom.to_owned(), value },
            bound,
            ratio,
            likely: None,
            difference,
            spread: Spread { ours: quartiles(ours), against: quartiles(against), samples },
            met: bound.met(median(ours), difference, ratio).filter(|_| is_measured),
            network: None,
            cell: None,
        }
    }

    /// The ratio with so many digits behind the point, if there is one.
    pub(crate) fn ratio_text(&self, digits: usize) -> String {
        if self.ratio.is_nan() { "-".to_owned() } else { format!("{:.digits$}", self.ratio) }
    }

    /// The same, and the range that it is likely to be in.
    fn likely_text(&self) -> String {
        let ratio = self.ratio_text(3);
        self.likely.map_or(ratio.clone(), |[low, high]| format!("{ratio} ({low:.3}–{high:.3})"))
    }

    /// Whether the bound is met by less than samples differ, or missed.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.met.is_some() && self.likely.is_some() && !self.is_told()
    }

    /// Whether samples tell that its bound on the ratio is met, or missed.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let is_outside = |(bound, [low, high]): (f64, [f64; 2])| bound < low || high < bound;
        self.bound.of_ratio().zip(self.likely).is_some_and(is_outside)
    }

    fn verdict(&self) -> String {
        let Some(met) = self.met else { return String::new() };
        let doubt = if self.is_doubtful() { "?" } else { "" };
        format!("{}{doubt}", if met { "yes" } else { "NO" })
    }

    /// The same in the table of programs.
    #[must_use]
    pub fn in_cell(self, cell: Cell) -> Self {
        Self { cell: Some(cell), ..self }
    }

    /// The same with what the network did meanwhile.
    #[must_use]
    pub fn with_network(self, network: Network) -> Self {
        Self { network: Some(network), ..self }
    }
}

impl Bound {
    /// Whether it is of ours and the other's.
    fn compares(self) -> bool {
        match self {
            Self::DifferenceAtMost(_) | Self::RatioAtMost(_) | Self::RatioAtLeast(_) => true,
            Self::AtMost(_) | Self::Told => false,
        }
    }

    /// What the ratio must be at most or at least.
    fn of_ratio(self) -> Option<f64> {
        match self {
            Self::RatioAtMost(bound) | Self::RatioAtLeast(bound) => Some(bound),
            Self::DifferenceAtMost(_) | Self::AtMost(_) | Self::Told => None,
        }
    }

    /// Of ranges of a ratio the end on each side that is hardest on it; `None` of none, or if it is not on a ratio.
    fn hardest(self, ranges: Vec<[f64; 2]>) -> Option<[f64; 2]> {
        let harder = match self {
            Self::RatioAtMost(_) => f64::max,
            Self::RatioAtLeast(_) => f64::min,
            Self::DifferenceAtMost(_) | Self::AtMost(_) | Self::Told => return None,
        };
        ranges.into_iter().reduce(|a, b| [harder(a[0], b[0]), harder(a[1], b[1])])
    }

    fn met(self, ours: f64, difference: f64, ratio: f64) -> Option<bool> {
        match self {
            Self::DifferenceAtMost(most) => Some(difference <= most),
            Self::RatioAtMost(most) => Some(ratio <= most),
            Self::RatioAtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ours <= most),
            Self::Told => None,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Self::DifferenceAtMost(most) => format!("+{} {unit} at most", short(most)),
            Self::RatioAtMost(most) => format!("× {most} at most"),
            Self::RatioAtLeast(least) => format!("× {least} at least"),
            Self::AtMost(most) => format!("{} {unit} at most", short(most)),
            Self::Told => String::new(),
        }
    }
}

/// Three figures or so.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn range([low, high]: [f64; 2]) -> String {
    format!("{}–{}", short(low), short(high))
}

/// All figures as a table but those that have a cell in another; `None` if that leaves none.
#[must_use]
pub fn table(figures: &[Figure]) -> Option<Table> {
    let mut table = Table::new([
        "figure",
        "unit",
        "ours",
        "quartiles",
        "against",
        "value",
        "quartiles",
        "added",
        "ratio (likely)",
        "bound",
        "met",
    ]);
    let mut is_empty = true;
    for figure in figures.iter().filter(|figure| figure.cell.is_none()) {
        is_empty = false;
        table.row([
            figure.name.clone(),
            figure.unit.to_owned(),
            short(figure.ours),
            range(figure.spread.ours),
            figure.against.whom.clone(),
            short(figure.against.value),
            range(figure.spread.against),
            short(figure.difference),
            figure.likely_text(),
            figure.bound.text(figure.unit),
            figure.verdict(),
        ]);
    }
    (!is_empty).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_judged() {
        let figure = |bound| Figure::new("f", "ns", &[12.0, 11.0, 13.0], "v", &[10.0], bound);
        assert_eq!(figure(Bound::DifferenceAtMost(2.0)).met, Some(true));
        assert_eq!(figure(Bound::DifferenceAtMost(1.9)).met, Some(false));
        assert_eq!(figure(Bound::RatioAtMost(1.1)).met, Some(false));
        assert_eq!(figure(Bound::RatioAtLeast(1.1)).met, Some(true));
        assert_eq!(figure(Bound::Told).met, None);
    }

    #[test]
    fn what_lacks_samples_is_not_judged() {
        let figure = |ours: &[f64], against: &[f64], bound| {
            let figure = Figure::new("f", "ns", ours, "v", against, bound);
            (figure.is_measured, figure.met)
        };
        assert_eq!(figure(&[], &[1.0], Bound::AtMost(2.0)), (false, None));
        assert_eq!(figure(&[1.0], &[], Bound::RatioAtMost(2.0)), (false, None));
        assert_eq!(figure(&[1.0], &[], Bound::AtMost(2.0)), (true, Some(true)));
        assert_eq!(figure(&[1.0], &[], Bound::Told), (true, None));
    }

    #[test]
    fn what_samples_cannot_tell_is_in_doubt() {
        let samples = |by: f64| [0.9, 1.0, 1.1, 1.05, 0.95].map(|value| value * by);
        let figure = |by, bound| Figure::new("f", "s", &samples(by), "v", &samples(1.0), bound);
        let verdict = |by, bound| figure(by, bound).verdict();
        let most = Bound::RatioAtMost(1.02);
        assert_eq!([0.5, 1.01, 1.1, 2.0].map(|by| verdict(by, most)), ["yes", "yes?", "NO?", "NO"]);
        assert_eq!(verdict(2.0, Bound::Told), "");
        // Not clearly slower than the best, but perhaps than another; clearly slower than a third.
        let likely = |others: &[f64], bound| {
            let others: Vec<_> = others.iter().map(|by| samples(*by).to_vec()).collect();
            figure(1.0, bound).among(&samples(1.0), &others).likely.unwrap()
        };
        let [low, high] = likely(&[1.0], most);
        assert_eq!(likely(&[1.0, 0.5], most), [2.0 * low, 2.0 * high]);
        assert_eq!(likely(&[1.0, 0.5], Bound::RatioAtLeast(0.98)), [low, high]);
        assert!(figure(1.0, most).among(&samples(1.0), &[vec![1.0]]).likely.is_none());
    }

    #[test]
    fn nothing_is_by_nothing() {
        let figure = |bound| Figure::new("f", "s", &[1.0], "v", &[0.0], bound);
        assert_eq!(figure(Bound::RatioAtMost(1.1)).met, Some(false));
        assert_eq!(figure(Bound::RatioAtLeast(0.9)).met, Some(false));
        let figure = figure(Bound::AtMost(1.0));
        assert_eq!((figure.met, figure.ratio_text(3)), (Some(true), "-".to_owned()));
        assert!(serde_json::to_value(&figure).unwrap()["ratio"].is_null());
    }

    #[test]
    fn pairs_are_compared_pair_by_pair() {
        // A slow phase of the machine hits both of a pair.
        let (ours, against) = ([11.0, 51.0, 52.0, 11.0, 51.0], [10.0, 50.0, 50.0, 10.0, 10.0]);
        let figure = Figure::paired("f", "ns", &ours, "v", &against, Bound::Told);
        assert_eq!(figure.difference, 1.0);
    }

    #[test]
    fn a_figure_becomes_an_object_and_a_row() {
        let figure = Figure::new("f", "MB/s", &[1.0], "v", &[2.0], Bound::RatioAtLeast(0.95));
        let json = serde_json::to_value(&figure).unwrap();
        assert_eq!(json["against"]["value"], 2.0);
        assert_eq!(json["bound"]["ratio_at_least"], 0.95);
        assert_eq!(json["met"], false);
        assert!(table(&[figure]).unwrap().to_text().contains("× 0.95 at least   NO"));
        assert_eq!(
            (short(0.1234), short(1234.5), short(10.0)),
            ("0.123".into(), "1234".into(), "10".into())
        );
    }
}
