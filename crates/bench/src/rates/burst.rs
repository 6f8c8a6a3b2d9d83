//! Bursts: all nodes of a cluster begin to send at the same instant.

use super::conditions::Conditions;
use super::mode::{ALL_MODES, Mode, OFF_AND_AUTO};
use super::patterns::{
    ALL, ALL_BY_TWO, Beside, Burst, FEWER, PAIRS, PAIRS_BY_TWO, RESTED_LONE, RESTED_PAIRS,
};
use super::picture::Scene;
use super::sites::{DEEPER, FASTER, FEW, SITE};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{Route, Site};
use crate::samples::{Samples, median};
use crate::session::Session;
use crate::watched::{Counters, Recording, bits_from};
use std::slice;

/// Of a million packets, how many may be dropped.
const DROPS: f64 = 100.0;
const LEAST: &str = "least possible";

/// How many times faster than the vendor alone some bursts are to be: the name, the delay, ms.
const GAINS: [(&str, u32, f64); 2] = [(ALL.name, 0, 4.0), (PAIRS.name, 10, 2.0)];

/// What came of one mode.
#[derive(Default)]
pub(super) struct Outcome {
    /// Of each burst but the first.
    pub(super) milliseconds: Vec<f64>,
    /// Of those in which connections are made.
    first_ms: Vec<f64>,
    /// Of a million packets.
    dropped: Vec<f64>,
    /// Part of what the link can carry, of each burst.
    utilisation: Vec<f64>,
    /// Of all bursts, the first ones included.
    counters: Counters,
    bursts: u32,
}

pub(super) fn measure(session: &mut Session, burst: &Burst) -> Result<Vec<Figure>, BenchError> {
    // The first is what others are compared to.
    let modes = [session.choose(&OFF_AND_AUTO[..], &ALL_MODES), &[Mode::Vendor]].concat();
    Ok(compare_all(session, slice::from_ref(burst), &[0, 2, 5, 10], &modes))
}

/// Bursts where all is twice as fast, with as much buffer and with four times that; and half as many nodes that are as fast each: 16 of
/// them and the emulator keep two processors busy.
pub(super) fn measure_faster(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let cases = [(PAIRS, FASTER), (PAIRS, DEEPER), (ALL, FASTER), (ALL, DEEPER), (FEWER, FEW)];
    let mut figures = Vec::new();
    for (burst, site) in &cases {
        for delay_ms in session.delays(&[0, 10], &[0, 2, 5, 10]) {
            figures.extend(compare(session, burst, Site { delay_ms, ..*site }, &OFF_AND_AUTO));
        }
    }
    Ok(figures)
}

/// Bursts with long pauses between them, also as on kernels that do not let us have BBR.
pub(super) fn measure_rested(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let modes = [Mode::Off, Mode::Auto, Mode::WithoutBbr, Mode::Vendor];
    Ok(compare_all(session, &[RESTED_PAIRS, RESTED_LONE], &[10], &modes))
}

/// Bursts as they are elsewhere: on kernels that do not let us have BBR, where the job file does not say what interfaces carry, and where nodes
/// have several ranks.
pub(super) fn measure_elsewhere(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let modes = [Mode::Off, Mode::Auto, Mode::WithoutBbr, Mode::WithoutInterfaces];
    Ok(compare_all(session, &[PAIRS, ALL, PAIRS_BY_TWO, ALL_BY_TWO], &[0, 10], &modes))
}

/// Each of these bursts at each of these delays, ms; quickly at 10 only.
fn compare_all(
    session: &mut Session,
    bursts: &[Burst],
    delays: &[u32],
    modes: &[Mode],
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for burst in bursts {
        for delay_ms in session.delays(&[10], delays) {
            figures.extend(compare(session, burst, Site { delay_ms, ..SITE }, modes));
        }
    }
    figures
}

fn compare(session: &mut Session, burst: &Burst, site: Site, modes: &[Mode]) -> Vec<Figure> {
    let place = place(burst, &site);
    let Some((conditions, outcomes)) = try_all(session, burst, &site, &place, modes) else {
        return Vec::new();
    };
    let figures = modes
        .iter()
        .zip(&outcomes)
        .map(|(mode, outcome)| figures(burst, &site, &conditions, (*mode, outcome), &outcomes[0]));
    figures.flatten().chain(gain(burst, &site, modes, &outcomes)).collect()
}

/// What pacing gains on the vendor alone, where that was measured.
fn gain(burst: &Burst, site: &Site, modes: &[Mode], outcomes: &[Outcome]) -> Option<Figure> {
    let of = |wanted| modes.iter().position(|mode| *mode == wanted).map(|at| &outcomes[at]);
    let (ours, vendor) = (of(Mode::Auto)?, of(Mode::Vendor)?);
    let asked =
        GAINS.iter().find(|(name, delay_ms, _)| *name == burst.name && *delay_ms == site.delay_ms);
    let bound = asked.map_or(Bound::Told, |(_, _, times)| Bound::RatioAtMost(1.0 / times));
    let (name, whom) = (format!("{}: auto, gained", place(burst, site)), Mode::Vendor.name());
    Some(Figure::new(name, "ms", &ours.milliseconds, whom, &vendor.milliseconds, bound))
}

/// What comes of each mode, by turns. What fails is told, and the rest goes on.
pub(super) fn try_all(
    session: &mut Session,
    burst: &Burst,
    site: &Site,
    place: &str,
    modes: &[Mode],
) -> Option<(Conditions, Vec<Outcome>)> {
    let conditions = Conditions::at(session, place, site)?;
    let mut outcomes: Vec<Outcome> = modes.iter().map(|_| Outcome::default()).collect();
    for _ in 0..session.choose(1, 2) {
        for (mode, outcome) in modes.iter().zip(&mut outcomes) {
            let name = format!("{place}: {}", mode.name());
            session.part(&name, |session| run(session, burst, site, *mode, outcome));
        }
    }
    Some((conditions, outcomes))
}

fn place(burst: &Burst, site: &Site) -> String {
    let Site { delay_ms, link_mbit, buffer_kib, .. } = site;
    match site {
        Site { link_mbit: 160, buffer_kib: 64, .. } => format!("{}, {delay_ms} ms", burst.name),
        _ => format!("{}, {delay_ms} ms, {link_mbit} Mbit/s, {buffer_kib} KiB", burst.name),
    }
}

/// Of one mode, beside what was not paced.
fn figures(
    burst: &Burst,
    site: &Site,
    conditions: &Conditions,
    (mode, outcome): (Mode, &Outcome),
    unpaced: &Outcome,
) -> Vec<Figure> {
    let least = [burst.least_ms(site)];
    let (whom, reference) = match burst.beside {
        Beside::LeastPossible => (LEAST, &least[..]),
        Beside::Unpaced => (Mode::Off.name(), &unpaced.milliseconds[..]),
    };
    let judged = |bound| if mode == Mode::Auto { bound } else { Bound::Told };
    let name = format!("{}: {}", place(burst, site), mode.name());
    let bound = judged(Bound::RatioAtMost(burst.bound));
    let time = Figure::new(&name, "ms", &outcome.milliseconds, whom, reference, bound);
    let mut figures = vec![time.with_network(outcome.network(burst, conditions, mode))];
    if burst.is_rested() {
        let name = format!("{name}, the first");
        figures.push(Figure::new(name, "ms", &outcome.first_ms, LEAST, &least, Bound::Told));
    }
    if mode != Mode::Off {
        let mut beside = |what: &str, unit, of: fn(&Outcome) -> Vec<f64>, most| {
            let (name, off, bound) =
                (format!("{name}, {what}"), Mode::Off.name(), judged(Bound::AtMost(most)));
            figures.push(Figure::new(name, unit, &of(outcome), off, &of(unpaced), bound));
        };
        beside("dropped", "ppm", |of| of.dropped.clone(), DROPS);
        beside("retransmission timeouts", "", Outcome::timeouts, 0.0);
    }
    figures
}

impl Outcome {
    /// Of all bursts together, if there were any: a few that wait for one leave median and drops as they are.
    fn timeouts(&self) -> Vec<f64> {
        if self.bursts == 0 { Vec::new() } else { vec![self.counters.tcp.timeouts as f64] }
    }

    pub(super) fn network(&self, burst: &Burst, conditions: &Conditions, mode: Mode) -> Network {
        Network {
            utilisation: Some(median(&self.utilisation)),
            connections: Some((burst.ranks_per_node * burst.peers).into()),
            ..conditions.network(mode, self.bursts, self.counters)
        }
    }
}

fn run(
    session: &mut Session,
    burst: &Burst,
    site: &Site,
    mode: Mode,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let site = mode.site(site);
    // A lone one is believed to be alone after as many transfers as there are nodes.
    let count = session.choose(8, 16) + burst.senders.map_or(0, |_| 2 * site.nodes);
    let arguments = arguments(burst, count);
    let route = Route::Site(site);
    let before = session.lab(route)?.counters(burst.sending())?;
    let settings = mode.settings(&site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let samples = match mode {
        Mode::Vendor => session.flat(route, "burst", &arguments)?,
        _ => {
            let ranks = [site.nodes * burst.ranks_per_node; 2];
            let stated = mode.stated();
            let said = session.job_told(route, "burst", &arguments, ranks, &settings, stated)?;
            Samples::parse(&said.out)
        }
    };
    let pictures = session.wishes.pictures.clone();
    let lab = session.lab(route)?;
    let (counters, recording) = (lab.counters(burst.sending())?.since(before), lab.recording()?);
    let milliseconds = samples.scaled("seconds", 1e3)?;
    outcome.first_ms.extend(milliseconds.first());
    outcome.milliseconds.extend(milliseconds.iter().skip(1));
    outcome.dropped.push(counters.dropped as f64 / counters.packets.max(1) as f64 * 1e6);
    let spans = spans(&samples)?;
    if let Some(directory) = pictures {
        let scene = Scene { name: burst.name, site: &site, mode };
        scene.draw(&directory, lab.spec(), &recording, &spans)?;
    }
    outcome.utilisation.extend(utilisation(&spans, &recording, burst, &site));
    outcome.counters.add(counters);
    outcome.bursts += count;
    Ok(())
}

/// What the program is told: so many of these.
pub(super) fn arguments(burst: &Burst, count: u32) -> [String; 4] {
    [burst.pattern, &burst.bytes.to_string(), &count.to_string(), burst.pause].map(str::to_owned)
}

/// When each burst began and ended, but for the first, in which connections are made.
fn spans(samples: &Samples) -> Result<Vec<(f64, f64)>, BenchError> {
    let (begins, seconds) = (samples.get("begin")?, samples.get("seconds")?);
    let spans = begins.iter().zip(seconds).map(|(begin, seconds)| (*begin, begin + seconds));
    Ok(spans.skip(1).collect())
}

/// Of each burst, how much of what the link carries in its time it did carry.
fn utilisation(
    spans: &[(f64, f64)],
    recording: &Recording,
    burst: &Burst,
    site: &Site,
) -> Vec<f64> {
    let senders = burst.sending();
    let part = |&(begin, end): &(f64, f64)| {
        let rows = recording.between(begin, end);
        let bits: f64 = senders.iter().map(|from| bits_from(&rows, from)).sum();
        bits / (f64::from(site.link_mbit) * 1e6 * (end - begin) * senders.len() as f64)
    };
    spans.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::patterns::{BOTH, LONE};
    use gridmpi_lab::flow::{Sample, Traffic, Volume};
    use gridmpi_lab::tcp::Tcp;
    use gridmpi_lab::traffic::Row;

    #[test]
    fn the_gain_on_the_vendor_alone_is_judged_where_it_is_asked_for() {
        let took = |ms: f64| Outcome { milliseconds: vec![ms], ..Outcome::default() };
        let gain = |burst, delay_ms, vendor_ms| {
            let outcomes = [took(200.0), took(100.0), took(vendor_ms)];
            let modes = [Mode::Off, Mode::Auto, Mode::Vendor];
            gain(burst, &Site { delay_ms, ..SITE }, &modes, &outcomes)
        };
        let is_met = |burst, delay_ms, ms| gain(burst, delay_ms, ms).unwrap().met;
        assert_eq!((is_met(&ALL, 0, 410.0), is_met(&ALL, 0, 390.0)), (Some(true), Some(false)));
        assert_eq!(
            (is_met(&PAIRS, 10, 210.0), is_met(&PAIRS, 10, 190.0)),
            (Some(true), Some(false))
        );
        assert_eq!((is_met(&ALL, 10, 90.0), is_met(&PAIRS, 0, 90.0)), (None, None));
        assert_eq!(is_met(&RESTED_PAIRS, 10, 90.0), None);
        let unmeasured = super::gain(&ALL, &SITE, &OFF_AND_AUTO, &[took(1.0), took(1.0)]);
        assert!(unmeasured.is_none());
    }

    #[test]
    fn one_timeout_is_one_too_many() {
        let outcome = |timeouts| {
            let tcp = Tcp { timeouts, ..Tcp::default() };
            let counters = Counters { packets: 30_000, dropped: 2, tcp, ..Counters::default() };
            let (milliseconds, dropped) = (vec![125.0; 30], vec![67.0]);
            Outcome { milliseconds, dropped, counters, bursts: 32, ..Outcome::default() }
        };
        let met = |mode, outcome: &Outcome| {
            let figures = figures(&PAIRS, &SITE, &Conditions::none(), (mode, outcome), outcome);
            figures.iter().map(|figure| figure.met).collect::<Vec<_>>()
        };
        assert_eq!(met(Mode::Auto, &outcome(0)), [Some(true); 3]);
        assert_eq!(met(Mode::Auto, &outcome(1)), [Some(true), Some(true), Some(false)]);
        assert_eq!(met(Mode::Static, &outcome(1)), [None; 3]);
        // Of what failed nothing is known.
        assert_eq!(met(Mode::Auto, &Outcome::default()), [None; 3]);
    }

    #[test]
    fn bursts_after_a_rest_are_held_against_the_bound_and_the_first_is_told() {
        let took = |ms| {
            let (milliseconds, first_ms) = (vec![ms; 7], vec![900.0]);
            Outcome { milliseconds, first_ms, dropped: vec![0.0], bursts: 8, ..Outcome::default() }
        };
        let of = |burst, mode, ms| {
            let conditions = Conditions::none();
            let figures = figures(burst, &SITE, &conditions, (mode, &took(ms)), &took(400.0));
            figures.into_iter().map(|it| (it.ours, it.against.whom, it.met)).take(2)
        };
        let told = |ms, met| (ms, LEAST.to_owned(), met);
        let lone = |mode, ms| of(&RESTED_LONE, mode, ms).collect::<Vec<_>>();
        assert_eq!(lone(Mode::Auto, 205.0), [told(205.0, Some(true)), told(900.0, None)]);
        assert_eq!(lone(Mode::Auto, 210.0)[0], told(210.0, Some(false)));
        assert_eq!(lone(Mode::WithoutBbr, 210.0)[0], told(210.0, None));
        // Without a rest its peer is another, and of the first nothing is said.
        let figures: Vec<_> = of(&LONE, Mode::Auto, 403.0).collect();
        assert_eq!(figures[0], (403.0, Mode::Off.name().to_owned(), Some(true)));
        assert_eq!(figures[1].0, 0.0);
    }

    #[test]
    fn a_full_link_is_used_wholly() {
        // 13 frames a millisecond are 159.95 Mbit/s.
        let left = Volume { bytes: 13 * 1514, packets: 13 };
        let row = |millisecond| Row {
            from: "a".to_owned(),
            to: "b".to_owned(),
            sample: Sample { millisecond, traffic: Traffic { left, ..Traffic::default() } },
        };
        let recording = Recording { origin_ns: 1_000_000_000, rows: (0..3000).map(row).collect() };
        let samples = Samples::parse("@begin 1.5 2\n@seconds 0.1 1\n");
        let spans = spans(&samples).unwrap();
        let part = |burst| utilisation(&spans, &recording, burst, &SITE);
        assert!(part(&ALL).len() == 1 && (part(&ALL)[0] - 1.0).abs() < 0.01, "{:?}", part(&ALL));
        assert!((part(&BOTH)[0] - 0.5).abs() < 0.01, "{:?}", part(&BOTH));
    }
}
