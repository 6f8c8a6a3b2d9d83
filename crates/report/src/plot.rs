//! Time series in stacked panels over one time axis.

use crate::svg::{Anchor, Svg};

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line through the values.
    Line,
    /// The area under the values.
    Area,
    /// A mark at the foot of the panel wherever the value is not zero.
    Marks,
}

/// Values at equal steps of time.
#[derive(Debug, Clone)]
pub struct Series {
    /// Shown in the legend.
    pub name: String,
    /// Any SVG colour.
    pub colour: &'static str,
    /// How it is drawn.
    pub style: Style,
    /// One value for each step; what is missing at the end counts as zero.
    pub values: Vec<f64>,
}

/// One panel: series that share a vertical axis.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Written above the panel.
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: String,
    /// Lower bound of the axis's top, in that unit; the data may raise it.
    pub at_least: f64,
    /// Upper bound of the axis's top; what lies above is cut off.
    pub at_most: f64,
    /// What is drawn, in that order.
    pub series: Vec<Series>,
}

/// A picture: panels from top to bottom over `steps` steps of `step_seconds`.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Written at the top.
    pub title: String,
    /// Seconds from one value to the next.
    pub step_seconds: f64,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 80.0;
const INNER: f64 = 1000.0;
const TOP: f64 = 40.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 44.0;
/// Highest number of points drawn across a panel; more values are gathered, keeping peaks.
const COLUMNS: usize = 1000;

impl Plot {
    /// Draws the picture as an SVG document.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let height = TOP + self.panels.len() as f64 * (PANEL + GAP) + 10.0;
        let mut svg = Svg::new(WIDTH, height);
        svg.text((LEFT, 22.0), Anchor::Start, 15.0, &self.title);
        let steps = self.steps();
        for (index, panel) in self.panels.iter().enumerate() {
            let top = TOP + 16.0 + index as f64 * (PANEL + GAP);
            Frame { top, seconds: steps as f64 * self.step_seconds, steps }.draw(&mut svg, panel);
        }
        svg.finish()
    }

    fn steps(&self) -> usize {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        series.map(|series| series.values.len()).max().unwrap_or(0).max(1)
    }
}

/// Where one panel lies on the picture.
struct Frame {
    top: f64,
    seconds: f64,
    steps: usize,
}

impl Frame {
    fn draw(&self, svg: &mut Svg, panel: &Panel) {
        let drawn = panel.series.iter().filter(|series| series.style != Style::Marks);
        let peak = drawn.flat_map(|series| &series.values).copied().fold(panel.at_least, f64::max);
        let peak = peak.min(panel.at_most);
        let step = nice_step(peak, 4.0);
        let top_value = ((peak / step).ceil() * step).max(step);
        svg.rectangle((LEFT, self.top), (INNER, PANEL), "#f6f6f6");
        self.value_axis(svg, step, top_value);
        self.time_axis(svg);
        for series in &panel.series {
            self.series(svg, series, top_value);
        }
        self.legend(svg, panel);
    }

    fn value_axis(&self, svg: &mut Svg, step: f64, top_value: f64) {
        let lines = (top_value / step).round() as usize;
        for line in 0..=lines {
            let y = self.top + PANEL * (1.0 - line as f64 / lines as f64);
            svg.line((LEFT, y), (LEFT + INNER, y), "#ddd", 1.0);
            let label = short(line as f64 * step);
            svg.text((LEFT - 5.0, y + 4.0), Anchor::End, 10.0, &label);
        }
    }

    fn time_axis(&self, svg: &mut Svg) {
        let step = nice_step(self.seconds, 10.0);
        let mut tick = 0;
        while tick as f64 * step <= self.seconds * 1.0001 && tick < 100 {
            let x = LEFT + INNER * tick as f64 * step / self.seconds;
            svg.line((x, self.top + PANEL), (x, self.top + PANEL + 4.0), "#888", 1.0);
            let label = format!("{} s", short(tick as f64 * step));
            svg.text((x, self.top + PANEL + 15.0), Anchor::Middle, 10.0, &label);
            tick += 1;
        }
    }

    /// The largest value of each drawn column, with its horizontal place.
    fn columns(&self, values: &[f64]) -> Vec<(f64, f64)> {
        let columns = self.steps.min(COLUMNS);
        let column = |index: usize| {
            let from = index * self.steps / columns;
            let to = ((index + 1) * self.steps / columns).max(from + 1);
            let within = values.get(from..to.min(values.len())).unwrap_or(&[]);
            let x = LEFT + INNER * (from as f64 + 0.5) / self.steps as f64;
            (x, within.iter().copied().fold(0.0, f64::max))
        };
        (0..columns).map(column).collect()
    }

    fn series(&self, svg: &mut Svg, series: &Series, top_value: f64) {
        let columns = self.columns(&series.values);
        if series.style == Style::Marks {
            for (x, _) in columns.iter().filter(|(_, value)| *value > 0.0) {
                svg.line((*x, self.top + 1.0), (*x, self.top + 9.0), series.colour, 1.0);
            }
            return;
        }
        let place =
            |(x, value): &(f64, f64)| (*x, self.top + PANEL * (1.0 - (value / top_value).min(1.0)));
        let points: Vec<_> = columns.iter().map(place).collect();
        let base = (series.style == Style::Area).then_some(self.top + PANEL);
        svg.path(&points, series.colour, base);
    }

    fn legend(&self, svg: &mut Svg, panel: &Panel) {
        let title = format!("{}, {}", panel.title, panel.unit);
        svg.text((LEFT, self.top - 6.0), Anchor::Start, 12.0, &title);
        let mut x = LEFT + INNER;
        for series in panel.series.iter().rev() {
            svg.text((x, self.top - 5.0), Anchor::End, 11.0, &series.name);
            x -= series.name.chars().count() as f64 * 6.4 + 16.0;
            svg.rectangle((x, self.top - 13.0), (9.0, 9.0), series.colour);
            x -= 12.0;
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `range` into at most `parts`.
fn nice_step(range: f64, parts: f64) -> f64 {
    if !(range.is_finite() && range > 0.0) {
        return 1.0;
    }
    let raw = range / parts;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= raw * 0.999_999);
    factor.unwrap_or(10.0) * power
}

fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(160.0, 4.0), 50.0);
        assert_eq!(nice_step(1.0, 10.0), 0.1);
        assert_eq!(nice_step(0.0, 4.0), 1.0);
        assert_eq!(nice_step(f64::NAN, 4.0), 1.0);
    }

    #[test]
    fn peaks_survive_gathering() {
        let mut values = vec![0.0; 10_000];
        values[7_777] = 9.0;
        let frame = Frame { top: 0.0, seconds: 10.0, steps: values.len() };
        let columns = frame.columns(&values);
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!(columns.iter().filter(|(_, value)| *value == 9.0).count(), 1);
    }

    #[test]
    fn an_empty_plot_is_still_a_picture() {
        let plot = Plot { title: "none".into(), step_seconds: 0.001, panels: vec![] };
        assert!(plot.to_svg().contains("none"));
        let panel = Panel {
            title: "p".into(),
            unit: "u".into(),
            at_least: 0.0,
            at_most: 9.0,
            series: vec![],
        };
        let plot = Plot { panels: vec![panel], ..plot };
        assert!(plot.to_svg().ends_with("</svg>\n"));
    }

    #[test]
    fn what_lies_above_the_axis_is_cut_off() {
        let series =
            Series { name: "s".into(), colour: "red", style: Style::Line, values: vec![50.0] };
        let panel = Panel {
            title: "p".into(),
            unit: "u".into(),
            at_least: 1.0,
            at_most: 10.0,
            series: vec![series],
        };
        let plot = Plot { title: "t".into(), step_seconds: 1.0, panels: vec![panel] };
        let svg = plot.to_svg();
        assert!(svg.contains(">10</text>") && !svg.contains(">50</text>"), "{svg}");
        assert!(svg.contains(&format!("M{:.1} {:.1}", LEFT + INNER / 2.0, TOP + 16.0)), "{svg}");
    }
}
