//! What the job file says of links, beside what was seen.

use crate::facts::{Facts, Link, Measured};
use crate::finding::{Finding, Place, Severity};
use gridmpi_report::units::{format_duration, format_rate};
use std::time::Duration;

/// How far what is said may be from what is seen, in parts of a hundred.
const SLACK: u64 = 3;
/// Delays are compared to this part, and not below a millisecond.
const DELAY_SLACK_US: u64 = 1000;

const WRITE: &str = "in the job file, beside what else it says of this link, the lines below";
const WRITE_BOTH: &str = "6 % less, divided among a cluster's relays, as `rate` in their settings; and in the job file, beside what else it says of this link, \
                          the lines below";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for link in &facts.links {
        let place = Place::link(&link.between[0], &link.between[1]);
        all.extend(link.measured.as_ref().and_then(|measured| bandwidth(link, measured, &place)));
        all.extend(fastest(facts, link).and_then(|trip| delay(link, trip / 2, place.clone())));
    }
    all
}

fn fastest(facts: &Facts, link: &Link) -> Option<u64> {
    let ours = facts.paths.iter().filter(|path| link.joins(&path.from.cluster, &path.to.cluster));
    let direct = ours.filter_map(|path| Some(path.visit.depth.as_ref()?.trip_us));
    let through =
        facts.circuits.iter().filter(|one| link.joins(&one.from.cluster, &one.to.cluster));
    direct.chain(through.filter_map(|circuit| circuit.trip_us)).min().map(u64::from)
}

fn bandwidth(link: &Link, measured: &Measured, place: &Place) -> Option<Finding> {
    let rate = |bits: u64| format_rate(bits as f64);
    let least = if measured.is_links_own { "" } else { "at least " };
    let again = |permille| format!(", {:.1} % sent again", f64::from(permille) / 10.0);
    let again = measured.again_permille.map_or(", through relays".to_owned(), again);
    let seen = format!("measured {least}{}{again}", rate(measured.bandwidth));
    let [a, b] = &link.between;
    let line = format!("bandwidth = \"{}\"", rate(measured.bandwidth));
    let is_more = |said: u64| {
        measured.is_links_own && said > measured.bandwidth.saturating_mul(100 + SLACK) / 100
    };
    let is_less = |said: u64| said.saturating_mul(100 + SLACK) / 100 < measured.bandwidth;
    let finding = |severity, code, what: &str| {
        Finding::new(severity, code, place.clone(), what, seen.clone())
    };
    let write = if measured.again_permille.is_some() { WRITE } else { WRITE_BOTH };
    let mended = |finding: Finding| finding.remedy(write).of_link([a, b], line);
    Some(match link.bandwidth {
        Some(said) if is_more(said) => {
            let what =
                format!("the job file says more of this link than it carries: {}", rate(said));
            mended(finding(Severity::Warning, "bandwidth", &what))
        }
        Some(said) if is_less(said) => {
            let what =
                format!("the job file says less of this link than it carries: {}", rate(said));
            mended(finding(Severity::Note, "bandwidth", &what))
        }
        Some(_) => finding(Severity::Ok, "bandwidth", "bandwidth"),
        None => mended(finding(
            Severity::Note,
            "bandwidth",
            "the job file does not say what this link carries: it is not paced",
        )),
    })
}

fn delay(link: &Link, seen_us: u64, place: Place) -> Option<Finding> {
    let said = link.delay_us?;
    let apart = said.abs_diff(seen_us);
    if apart <= DELAY_SLACK_US || apart * 5 <= seen_us.max(said) {
        return None;
    }
    let show = |us: u64| format_duration(Duration::from_micros(us));
    let what = format!("the job file says {} of this link's delay", show(said));
    let [a, b] = &link.between;
    let finding = Finding::new(
        Severity::Note,
        "delay",
        place,
        what,
        format!("seen {} one way", show(seen_us)),
    );
    Some(finding.remedy(WRITE).of_link([a, b], format!("delay = \"{}\"", show(seen_us))))
}
