//! Several relays of a cluster at once: one pair of ranks, eight, and all to all.

use super::across::Pattern;
use super::servers::{Keys, Server, Trunk, wait_for_trunks};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Gateways, Job, RELAY_PORT, Relayed, Route, Stated};
use crate::samples::Samples;
use crate::session::Session;

const PATTERNS: [Pattern; 3] = [
    Pattern { name: "one pair", ranks: 8, pairs: 1 },
    Pattern { name: "8 pairs", ranks: 8, pairs: 8 },
    Pattern { name: "all to all", ranks: 8, pairs: 0 },
];
/// What crosses for each relay: at 20 Mbit/s some 3.5 s, of which the beginning, when sixteen ranks seal all at once on the processors of one
/// machine, is a small part. And with `--quick`.
const CROSSING: u64 = 8 << 20;
const QUICK_CROSSING: u64 = 1 << 20;
/// With eight relays at least.
const BOUND: f64 = 7.6;

/// What is measured: the delays, ms, and how many relays each cluster has, the first of which the others are compared to.
struct Range {
    delays: &'static [u32],
    counts: &'static [u32],
}

const WHOLE: Range = Range { delays: &[0, 10], counts: &[1, 2, 4, 8] };
const QUICK: Range = Range { delays: &[0], counts: &[1, 8] };

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let range = session.choose(QUICK, WHOLE);
    let text = session.wishes.case.clone();
    let is_wanted = |name: &str| text.as_ref().is_none_or(|text| name.contains(text));
    check(&range, is_wanted)?;
    let mut figures = Vec::new();
    for &delay_ms in range.delays {
        let (lone, more) = range.counts.split_first().ok_or(BenchError::NoTime)?;
        let of = |pattern: &Pattern, gateways| is_wanted(&name(pattern, gateways, delay_ms));
        let any = |pattern: &Pattern| more.iter().any(|&gateways| of(pattern, gateways));
        let mut speeds = |gateways, is_wanted: &dyn Fn(&Pattern) -> bool| {
            let part = format!("{gateways} relays, {delay_ms} ms");
            let site = Gateways { gateways, delay_ms };
            session.part(&part, |session| speeds_with(session, site, is_wanted))
        };
        let alone = speeds(*lone, &any).unwrap_or_default();
        for &gateways in more {
            let site = Gateways { gateways, delay_ms };
            let ours = speeds(gateways, &|pattern| of(pattern, gateways)).unwrap_or_default();
            figures.extend(compare(&ours, &alone, site));
        }
    }
    Ok(figures)
}

fn name(pattern: &Pattern, gateways: u32, delay_ms: u32) -> String {
    format!("{}, {gateways} relays of 20 Mbit/s, {delay_ms} ms", pattern.name)
}

/// Refuses a wish that nothing fulfils.
fn check(range: &Range, is_wanted: impl Fn(&str) -> bool) -> Result<(), BenchError> {
    let counts = || range.counts.iter().skip(1);
    let sites = range.delays.iter().flat_map(|delay| counts().map(move |count| (*count, *delay)));
    let names = |(count, delay)| PATTERNS.iter().map(move |pattern| name(pattern, count, delay));
    let names: Vec<_> = sites.flat_map(names).collect();
    if names.iter().any(|name| is_wanted(name)) {
        return Ok(());
    }
    let message = format!("no case has that in its name: {}", names.join("; "));
    Err(BenchError::Output(message))
}

/// Mbit/s of each pattern that was measured, by its place.
type Speeds = Vec<(usize, Vec<f64>)>;

fn compare(ours: &Speeds, alone: &Speeds, site: Gateways) -> Vec<Figure> {
    let Gateways { gateways, delay_ms } = site;
    let mut figures = Vec::new();
    for (index, ours) in ours {
        let found = alone.iter().find(|(other, _)| other == index);
        let (Some(pattern), Some((_, alone))) = (PATTERNS.get(*index), found) else { continue };
        let bound = if gateways == 8 { Bound::RatioAtLeast(BOUND) } else { Bound::Told };
        let name = name(pattern, gateways, delay_ms);
        figures.push(Figure::new(name, "Mbit/s", ours, "1 relay", alone, bound));
    }
    figures
}

/// Of each wanted pattern, Mbit/s of what the program sends.
fn speeds_with(
    session: &mut Session,
    site: Gateways,
    is_wanted: impl Fn(&Pattern) -> bool,
) -> Result<Speeds, BenchError> {
    let patterns = PATTERNS.iter().enumerate().filter(|(_, pattern)| is_wanted(pattern));
    let patterns: Vec<_> = patterns.collect();
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let route = Route::Gateways(site);
    session.lab(route)?;
    let keys = Keys::make(session)?;
    let program = session.program("across")?;
    let until = session.until()?;
    let few = session.choose(1, 2);
    let repeat = if session.wishes.case.is_some() { 2 * few } else { few };
    let crossing = session.choose(QUICK_CROSSING, CROSSING) * u64::from(site.gateways);
    let (session, lab) = session.with_lab()?;
    let mut relays = Vec::new();
    for number in 1..=site.gateways {
        let [near, far] = ["a", "b"].map(|cluster| format!("{cluster}-gw{number}"));
        let address = lab.wide_address(&far);
        let [dialler, other] = Server::pair([&near, &far], &address, RELAY_PORT, Trunk::Tls);
        for server in [other, dialler] {
            let running = keys.start(lab, &server, &[], until)?;
            relays.push((server, running));
        }
    }
    wait_for_trunks(&mut relays, until)?;
    let (file, token) = (session.files().place("job.toml"), keys.token());
    let mut all = Vec::new();
    for (index, pattern) in patterns {
        let (arguments, crossing) = pattern.arguments(crossing, repeat);
        let job = Job {
            mpi: &session.mpi,
            file: &file,
            program: &program,
            arguments: &arguments,
            ranks: [pattern.ranks; 2],
            settings: &[],
            stated: Stated::ALL,
            variables: &[],
            directory: None,
            relayed: Some(Relayed { token: &token }),
        };
        let said = lab.job(&job, session.until()?)?;
        let seconds = Samples::parse(&said.out);
        let speed = |seconds: &f64| crossing * 8e-6 / seconds;
        all.push((index, seconds.get("seconds")?.iter().map(speed).collect()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_wished_for_by_a_part_of_its_name() {
        let with = |text: &'static str| check(&WHOLE, |name| name.contains(text));
        assert!(with("all to all, 8 relays of 20 Mbit/s, 10 ms").is_ok());
        assert!(with("8 pairs").is_ok());
        let text = with("9 pairs").unwrap_err().to_string();
        assert!(text.contains("one pair, 4 relays of 20 Mbit/s, 10 ms"), "{text}");
        // Of the first count nothing is told.
        assert!(with("1 relay").is_err());
    }
}
