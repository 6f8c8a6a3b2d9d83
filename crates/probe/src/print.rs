//! What people are shown.

use crate::result::{Bound, PathReport, Transfer};
use gridmpi_report::table::Table;
use gridmpi_report::units::{format_duration, format_rate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

fn time(us: u32) -> String {
    format_duration(Duration::from_micros(us.into()))
}

/// Every transfer of every path, for reading.
#[must_use]
pub fn table(reports: &[PathReport]) -> String {
    let mut table = Table::new([
        "from → to",
        "nodes",
        "bandwidth",
        "goodput",
        "sent again",
        "queueing",
        "control",
    ]);
    let mut text = String::new();
    for report in reports {
        let trip = report.round_trip;
        let (least, median) = (time(trip.least_us), time(trip.median_us));
        let [a, b] = &report.between;
        let _ = writeln!(text, "{a} ↔ {b}: round trip {least} at least, {median} in the middle");
        for from in 0..2 {
            let nodes = [report.nodes[from], report.nodes[1 - from]];
            table.row(row(report, from, nodes, &report.together[from], report.bound(from)));
            if nodes[0] > 1 {
                table.row(row(report, from, [1, nodes[1]], &report.alone[from], Bound::Link));
            }
        }
    }
    text + &table.to_text()
}

fn row(
    report: &PathReport,
    from: usize,
    nodes: [u32; 2],
    transfer: &Transfer,
    bound: Bound,
) -> [String; 7] {
    let least = if bound == Bound::Interfaces { "at least " } else { "" };
    let rate = |bits: u64| format_rate(bits as f64);
    let again = transfer.retransmitted as f64 * 100.0 / transfer.segments.max(1) as f64;
    let queueing = |q: crate::Queueing| format!("{} to {}", time(q.least_us), time(q.median_us));
    [
        format!("{} → {}", report.between[from], report.between[1 - from]),
        format!("{} → {}", nodes[0], nodes[1]),
        format!("{least}{}", rate(transfer.bandwidth_bits_per_s)),
        rate(transfer.goodput_bits_per_s),
        format!("{again:.2} %"),
        transfer.queueing.map_or_else(String::new, queueing),
        transfer.congestion.clone().unwrap_or_default(),
    ]
}

/// Everything, and what follows from it.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a PathReport,
    /// For the job file.
    bandwidth_bits_per_s: u64,
    /// Whether that is the path's own; else it carries at least so much.
    is_links_own: bool,
    delay_us: u64,
    /// Of each node of either cluster, where that is less than the path.
    interface_bandwidth_bits_per_s: [Option<u64>; 2],
}

/// Every figure, for programs.
#[must_use]
pub fn json(reports: &[PathReport]) -> String {
    let whole = |report| Whole {
        report,
        bandwidth_bits_per_s: PathReport::bandwidth(report),
        is_links_own: report.is_links_own(),
        delay_us: report.delay_us(),
        interface_bandwidth_bits_per_s: [0, 1].map(|side| report.interface(side)),
    };
    let all: Vec<_> = reports.iter().map(whole).collect();
    // Numbers and texts only: there is nothing that could not be written.
    serde_json::to_string_pretty(&all).unwrap_or_default()
}

/// Lines for the job file.
#[must_use]
pub fn job_lines(reports: &[PathReport]) -> String {
    let mut text = String::new();
    for report in reports {
        let rate = format_rate(report.bandwidth() as f64);
        let remark = if report.is_links_own() {
            ""
        } else {
            "  # at least: all that the nodes' interfaces carry together"
        };
        let delay = time(u32::try_from(report.delay_us()).unwrap_or(u32::MAX) / 10 * 10);
        let [a, b] = &report.between;
        let _ = writeln!(
            text,
            "[[link]]\nbetween = [\"{a}\", \"{b}\"]\nbandwidth = \"{rate}\"{remark}\ndelay = \"{delay}\"\n"
        );
    }
    for (cluster, rate) in interfaces(reports) {
        let rate = format_rate(rate as f64);
        let _ =
            writeln!(text, "interface_bandwidth = \"{rate}\"  # in the [[cluster]] `{cluster}`");
    }
    text
}

/// The most that one node of a cluster was seen to send, where that was less than the path carries.
fn interfaces(reports: &[PathReport]) -> BTreeMap<&str, u64> {
    let mut found = BTreeMap::new();
    for report in reports {
        for side in 0..2 {
            if let Some(rate) = report.interface(side) {
                let known = found.entry(report.between[side].as_str()).or_insert(rate);
                *known = rate.max(*known);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::report;

    #[test]
    fn the_lines_say_what_was_found_and_no_more() {
        let lines = job_lines(&[report([8, 8], [160, 159], [50, 49])]);
        assert_eq!(
            lines,
            "[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = \"157.4 Mbit/s\"\ndelay = \"10.06 ms\"\n\n\
             interface_bandwidth = \"49.5 Mbit/s\"  # in the [[cluster]] `a`\n\
             interface_bandwidth = \"48.51 Mbit/s\"  # in the [[cluster]] `b`\n"
        );
        let few = job_lines(&[report([3, 3], [150, 150], [50, 50])]);
        assert!(few.contains("# at least"), "{few}");
    }

    #[test]
    fn the_table_has_every_transfer() {
        let text = table(&[report([8, 1], [160, 159], [50, 159])]);
        assert_eq!(text.lines().count(), 1 + 1 + 3, "{text}");
        assert!(
            text.contains("1 → 8") && text.contains("cubic") && text.contains("0.50 %"),
            "{text}"
        );
    }
}
