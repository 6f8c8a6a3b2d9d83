//! What a lab's user gets to keep: the recording, its picture, and a summary in words.

use crate::arrivals;
use crate::control::Status;
use crate::error::{Doing as _, LabError};
use crate::spec::Spec;
use crate::state::LabDir;
use crate::traffic::{self, Row};
use crate::troubles;
use gridmpi_report::plot::{Panel, Plot, Series, Style};
use gridmpi_report::table::Table;
use gridmpi_report::units::{format_rate, format_size};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Name of the picture.
pub const PICTURE: &str = "traffic.svg";
/// Colour of what was dropped.
const DROPS: &str = "#c0392b";
/// Name of the summary.
pub const SUMMARY: &str = "summary.txt";
/// A picture shows at most this many milliseconds; a longer recording is cut at its quiet ends
/// and then at this length.
const MOST_STEPS: u64 = 600_000;

/// Writes recording, picture and summary into `directory`; returns the summary. The status must
/// have been asked for just now, so that the recording is complete.
///
/// # Errors
/// When something cannot be read or written.
pub fn save(
    lab: &LabDir,
    spec: &Spec,
    status: &Status,
    directory: &Path,
) -> Result<String, LabError> {
    let what = format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).doing(&what)?;
    let recording = directory.join(traffic::FILE);
    fs::copy(lab.join(traffic::FILE), &recording).doing(&what)?;
    fs::copy(lab.join(troubles::FILE), directory.join(troubles::FILE)).doing(&what)?;
    if spec.arrivals {
        fs::copy(lab.join(arrivals::FILE), directory.join(arrivals::FILE)).doing(&what)?;
    }
    let rows = traffic::read(&recording)?;
    fs::write(directory.join(PICTURE), picture(spec, &rows)).doing(&what)?;
    let summary = summary(spec, status, &rows);
    fs::write(directory.join(SUMMARY), &summary).doing(&what)?;
    Ok(summary)
}

/// What crossed, how fast at most, what was dropped, and how late the emulator was.
#[must_use]
pub fn summary(spec: &Spec, status: &Status, rows: &[Row]) -> String {
    let peaks = peaks(rows);
    let mut table = Table::new([
        "direction",
        "crossed",
        "packets",
        "peak of 10 ms",
        "dropped",
        "lost",
        "queue peak",
        "late p50",
        "p99",
        "max",
    ]);
    for direction in &status.directions {
        let name = format!("{} -> {}", direction.from, direction.to);
        let delivered = direction.delivered;
        let mut cells = vec![name, format_size(delivered.bytes), delivered.packets.to_string()];
        if direction.emulated {
            let key = (direction.from.clone(), direction.to.clone());
            let peak = peaks.get(&key).copied().unwrap_or(0);
            let late = |us: f64| format!("{us:.0} us");
            cells.extend([
                format_rate(peak as f64 * 8.0 * 100.0),
                direction.traffic.dropped.packets.to_string(),
                direction.traffic.lost.packets.to_string(),
                format_size(direction.traffic.queue_peak),
                late(direction.lateness_p50_us),
                late(direction.lateness_p99_us),
                late(direction.lateness_max_us),
            ]);
        }
        table.row(cells);
    }
    let mut text = table.to_text();
    warnings(spec, status).iter().for_each(|warning| text += &format!("warning: {warning}\n"));
    text
}

/// What makes a run doubtful.
fn warnings(spec: &Spec, status: &Status) -> Vec<String> {
    let at_work = |fault: &String| format!("a fault is at work: {fault}");
    let mut warnings: Vec<String> = status.faults.iter().map(at_work).collect();
    for direction in status.directions.iter().filter(|direction| direction.emulated) {
        let name = format!("{} -> {}", direction.from, direction.to);
        if direction.failures > 0 {
            let count = direction.failures;
            warnings.push(format!("{name}: the emulator itself lost {count} frames"));
        }
        let delay = spec.links.iter().find(|link| {
            let names = [link.between.0, link.between.1].map(|site| spec.site_name(site));
            names.contains(&direction.from.as_str()) && names.contains(&direction.to.as_str())
        });
        let delay_us = delay.map_or(0.0, |link| link.delay.as_secs_f64() * 1e6);
        if direction.lateness_p99_us > (delay_us / 10.0).max(1_000.0) {
            let late_ms = direction.lateness_p99_us / 1e3;
            warnings.push(format!(
                "{name}: one delivery in a hundred was late by {late_ms:.1} ms or more (the \
                 machine is busy): do not trust times measured in this run"
            ));
        }
    }
    if status.directions.iter().any(|direction| direction.emulated && !direction.realtime) {
        warnings.push("the emulator has no real-time priority here".to_owned());
    }
    warnings
}

/// Most bytes that left each direction's bottleneck in ten milliseconds.
fn peaks(rows: &[Row]) -> BTreeMap<(String, String), u64> {
    let mut windows: BTreeMap<(&str, &str, u64), u64> = BTreeMap::new();
    for row in rows {
        let window = row.sample.millisecond / 10;
        *windows.entry((&row.from, &row.to, window)).or_default() += row.sample.traffic.left.bytes;
    }
    let mut peaks = BTreeMap::new();
    for ((from, to, _), bytes) in windows {
        let peak: &mut u64 = peaks.entry((from.to_owned(), to.to_owned())).or_default();
        *peak = (*peak).max(bytes);
    }
    peaks
}

/// Draws the recording: for each direction what left the bottleneck, and its buffer with drops.
#[must_use]
pub fn picture(spec: &Spec, rows: &[Row]) -> String {
    let first = rows.iter().map(|row| row.sample.millisecond).min().unwrap_or(0);
    let title = format!("Lab {}: each millisecond from {first} ms on", spec.name);
    titled_picture(spec, rows, title)
}

/// The same under another title.
#[must_use]
pub fn titled_picture(spec: &Spec, rows: &[Row], title: String) -> String {
    let first = rows.iter().map(|row| row.sample.millisecond).min().unwrap_or(0);
    let last = rows.iter().map(|row| row.sample.millisecond).max().unwrap_or(0);
    let steps = (last - first + 1).min(MOST_STEPS);
    let mut panels = Vec::new();
    for link in spec.links.iter().filter(|link| link.emulate) {
        let (a, b) = (spec.site_name(link.between.0), spec.site_name(link.between.1));
        let limit = link.bandwidth.unwrap_or(0) as f64 / 1e6;
        for (from, to) in [(a, b), (b, a)] {
            let mine: Vec<&Row> =
                rows.iter().filter(|row| row.from == from && row.to == to).collect();
            let values = |value: &dyn Fn(&Row) -> f64| {
                let mut values = vec![0.0; steps as usize];
                for row in &mine {
                    let step = row.sample.millisecond - first;
                    if let Some(slot) = values.get_mut(step as usize) {
                        *slot = value(row);
                    }
                }
                values
            };
            panels.push(rate_panel(from, to, limit, &values));
            panels.push(queue_panel(from, to, link.buffer, &values));
        }
    }
    Plot { title, step_seconds: 0.001, panels }.to_svg()
}

/// Turns a column of the recording into one value a millisecond.
type Values<'a> = dyn Fn(&dyn Fn(&Row) -> f64) -> Vec<f64> + 'a;

fn series_of(name: &str, colour: &'static str, style: Style, values: Vec<f64>) -> Series {
    Series { name: name.to_owned(), colour, style, values }
}

fn rate_panel(from: &str, to: &str, limit: f64, values: &Values<'_>) -> Panel {
    let rate = |bytes: u64| bytes as f64 * 8.0 * 1000.0 / 1e6;
    let crossed = values(&|row| rate(row.sample.traffic.left.bytes));
    let offered = values(&|row| rate(row.sample.traffic.arrived.bytes));
    let drops = values(&|row| row.sample.traffic.dropped.packets as f64);
    let mut series = vec![
        series_of("arrived", "#f0b27a", Style::Line, offered),
        series_of("left", "#2874a6", Style::Line, crossed),
        series_of("drops", DROPS, Style::Marks, drops),
    ];
    if limit > 0.0 {
        let line = vec![limit; series[0].values.len()];
        series.push(series_of("bandwidth", "#7f8c8d", Style::Line, line));
    }
    Panel {
        title: format!("{from} to {to}"),
        unit: "Mbit/s".to_owned(),
        at_least: limit,
        // Bursts arrive at the nodes' own rates, far above what is of interest.
        at_most: if limit > 0.0 { 2.0 * limit } else { f64::MAX },
        series,
    }
}

fn queue_panel(from: &str, to: &str, buffer: u64, values: &Values<'_>) -> Panel {
    let queue = values(&|row| row.sample.traffic.queue_peak as f64 / 1e3);
    let drops = values(&|row| row.sample.traffic.dropped.packets as f64);
    let series = vec![
        series_of("queue", "#a9dfbf", Style::Area, queue),
        series_of("drops", DROPS, Style::Marks, drops),
    ];
    Panel {
        title: format!("buffer {from} to {to}"),
        unit: "KB".to_owned(),
        at_least: buffer as f64 / 1e3,
        at_most: f64::MAX,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::DirectionStatus;
    use crate::flow::{Sample, Traffic, Volume};

    fn spec() -> Spec {
        let text = "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
                    [[link]]\nbandwidth = \"80 Mbit/s\"\n";
        Spec::parse(text, "t", "t").unwrap()
    }

    fn row(millisecond: u64, bytes: u64) -> Row {
        let volume = Volume { bytes, packets: 1 };
        let traffic = Traffic { left: volume, dropped: volume, ..Traffic::default() };
        let sample = Sample { millisecond, traffic };
        Row { from: "a".into(), to: "b".into(), sample }
    }

    #[test]
    fn a_picture_has_two_panels_a_direction() {
        let svg = picture(&spec(), &[row(1_000, 10_000), row(1_003, 5_000)]);
        for title in ["a to b", "buffer a to b", "b to a", "buffer b to a"] {
            assert!(svg.contains(&format!(">{title}, ")), "{title}");
        }
        assert_eq!(svg.matches(">bandwidth</text>").count(), 2);
        assert!(picture(&spec(), &[]).contains("</svg>"));
        assert!(titled_picture(&spec(), &[], "a burst".to_owned()).contains(">a burst</text>"));
    }

    #[test]
    fn the_summary_shows_the_peak_and_warns() {
        let direction = DirectionStatus {
            from: "a".into(),
            to: "b".into(),
            emulated: true,
            failures: 3,
            lateness_p99_us: 5_000.0,
            ..DirectionStatus::default()
        };
        let status = Status { up_ms: 1, directions: vec![direction], ..Status::default() };
        let text = summary(&spec(), &status, &[row(11, 60_000), row(12, 40_000), row(25, 10)]);
        assert!(text.contains("80 Mbit/s"), "{text}");
        assert!(text.contains("itself lost 3 frames") && text.contains("late by 5.0 ms"), "{text}");
        assert!(text.contains("real-time"), "{text}");
    }
}
