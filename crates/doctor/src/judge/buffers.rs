//! Socket buffers against what is on its way on a long link.

use super::machine_of;
use super::path::nodes;
use crate::facts::{Depth, Facts, Link, Machine, Node};
use crate::finding::{Finding, Place, Severity};
use gridmpi_report::units::{format_duration, format_rate, format_size};
use std::time::Duration;

/// Where nobody says what a link carries.
const USUAL: u64 = 1_000_000_000;
/// The kernel lets about half of a buffer be data, the rest is its own.
const OVERHEAD: u64 = 2;
const STEP: u64 = 1 << 20;
/// Ends below this are too small for links of other sites, and what to set then.
const FEW: u64 = 2 << 20;
const USUAL_END: u64 = 32 << 20;

/// What one connection can carry in one direction.
pub(super) fn judge((from, to): (&Node, &Node), depth: &Depth, facts: &Facts) -> Vec<Finding> {
    let place = Place::way(from, to);
    let link = facts.links.iter().find(|link| link.joins(&from.cluster, &to.cluster));
    let (from, to) = (machine_of(facts, from), machine_of(facts, to));
    let known = link.and_then(carries);
    let trip = Duration::from_micros(depth.trip_us.into());
    let flow = known.unwrap_or(USUAL) as f64 / 8.0 * trip.as_secs_f64();
    let needed = (flow as u64).saturating_mul(OVERHEAD);
    let ends = [(from, "net.ipv4.tcp_wmem", "send"), (to, "net.ipv4.tcp_rmem", "receive")];
    let end = |(machine, name, verb): (Option<&Machine>, &str, &str)| {
        let has = machine?.last_number(name)?;
        if has >= needed {
            return None;
        }
        let most = has as f64 / OVERHEAD as f64 * 8.0 / trip.as_secs_f64();
        let severity = if known.is_some() { Severity::Warning } else { Severity::Note };
        let what = format!(
            "{verb} buffers are too small for the link: one connection carries less than it could"
        );
        let link = known.map_or_else(
            || "a link of 1 Gbit/s".to_owned(),
            |rate| format!("the link of {}", format_rate(rate as f64)),
        );
        let evidence = format!(
            "{name} ends at {}: at most {} at a round trip of {}; {link} has {} on its way",
            format_size(has),
            format_rate(most),
            format_duration(trip),
            format_size(flow as u64),
        );
        let finding = Finding::new(severity, "buffers", place.clone(), what, evidence);
        Some(finding.remedy(format!(
            "on {}: {}",
            nodes(&machine?.node),
            sysctl(machine?, name, needed)
        )))
    };
    ends.into_iter().filter_map(end).collect()
}

/// Where no path was looked at: what one connection can carry at usual distances.
pub(super) fn alone(machine: &Machine) -> Option<Finding> {
    let names = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
    let ends = names.map(|name| machine.last_number(name));
    let [Some(receive), Some(send)] = ends else { return None };
    let least = receive.min(send);
    let at = |ms: f64| format_rate(least as f64 / OVERHEAD as f64 * 8.0 / (ms / 1000.0));
    let evidence = format!(
        "one connection carries at most {} at a round trip of 10 ms, {} at 100 ms; {} ends at {}, {} at {}",
        at(10.0),
        at(100.0),
        names[0],
        format_size(receive),
        names[1],
        format_size(send),
    );
    let place = Place::at(&machine.node);
    if least >= FEW {
        return Some(Finding::new(Severity::Ok, "buffers", place, "socket buffers", evidence));
    }
    let what = "socket buffers are too small for long links";
    let small = names.iter().zip([receive, send]).filter(|(_, end)| *end < FEW);
    let lines: Vec<String> = small.map(|(name, _)| sysctl(machine, name, USUAL_END)).collect();
    let finding = Finding::new(Severity::Note, "buffers", place, what, evidence);
    Some(finding.remedy(lines.join("; ")))
}

/// The same setting with a larger end.
fn sysctl(machine: &Machine, name: &str, needed: u64) -> String {
    let wanted = needed.div_ceil(STEP).saturating_mul(STEP);
    let now = machine.setting(name);
    let mut words: Vec<&str> = now.split(' ').collect();
    words.pop();
    format!("sysctl -w {name}=\"{} {wanted}\"", words.join(" "))
}

fn carries(link: &Link) -> Option<u64> {
    link.measured.as_ref().map(|measured| measured.bandwidth).or(link.bandwidth)
}
