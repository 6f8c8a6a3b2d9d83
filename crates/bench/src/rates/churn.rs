//! Senders that come and go: how long until a lone sender has all that it can have, and until it gives way, seen frame by frame where the
//! link begins.
//!
//! The lone sender's frames are told from others' by their size: its interface takes smaller ones.

use super::conditions::observed;
use super::mode::Mode;
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{INTERFACE, Route, Site};
use crate::session::Session;
use gridmpi_lab::arrivals::Arrival;
use gridmpi_lab::flow::WIRE_OVERHEAD;
use gridmpi_lab::spec::MTU_FRAME;

/// What the lone sender's interface takes, and a full frame of it, bytes.
const MTU: u64 = 1400;
const FRAME: u64 = MTU + 14;

/// What ours may take, ms.
const WITHIN_MS: f64 = 5.0;

/// The others do not end all at once: before the last of them has, the lone sender may have more, ms.
const ENDING_MS: f64 = 5.0;

/// A rate is that of so many frames: less says nothing of it.
const FRAMES: usize = 8;
/// It is reached when it is this near, and kept to while it is not exceeded by more than this.
const NEAR: f64 = 0.95;
const EXCEEDED: f64 = 1.05;

/// Between two visits nothing of the others comes for so long, ms; and so many times the delay, if that is longer: within one they may wait for a
/// round trip.
const QUIET_MS: u32 = 60;
const QUIET_DELAYS: u32 = 4;

/// From one visit to the next, in the same way: a few round trips, and the quiet between.
const PERIOD_MS: u32 = 250;
const PERIOD_DELAYS: u32 = 10;

/// Who joins the lone sender, and what is left to each then.
#[derive(Clone, Copy, Debug)]
struct Visit {
    name: &'static str,
    others: u32,
    bytes: u32,
    interface_mbit: Option<u32>,
}

const VISITS: [Visit; 2] = [
    // 7 join one who has its interface.
    Visit { name: "7 join one", others: 7, bytes: 160 << 10, interface_mbit: SITE.interface_mbit },
    // One joins one who has the link.
    Visit { name: "1 joins one", others: 1, bytes: 640 << 10, interface_mbit: None },
];

impl Visit {
    fn whole_mbit(&self) -> f64 {
        f64::from(self.interface_mbit.unwrap_or(SITE.link_mbit).min(SITE.link_mbit))
    }

    fn share_mbit(&self) -> f64 {
        f64::from(SITE.link_mbit) / f64::from(self.others + 1)
    }
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for visit in &VISITS {
        for delay_ms in session.delays(&[10], &[0, 10]) {
            let name = format!("{}, {delay_ms} ms", visit.name);
            let seen = session.part(&name, |session| run(session, visit, delay_ms));
            let Some((seen, network)) = seen else { continue };
            let [median, worst] = of(&format!("{name}: gives way"), &seen.gave_way);
            figures.extend([median.with_network(network), worst]);
            figures.extend(of(&format!("{name}: has all again"), &seen.had_all));
            figures.extend(rates(&name, visit, &seen));
        }
    }
    Ok(figures)
}

/// What was seen of the lone sender, visit by visit.
#[derive(Debug)]
struct Seen {
    /// How long it took to give way, and to have all again after it, ms.
    gave_way: Vec<f64>,
    had_all: Vec<f64>,
    /// Its mean rate from then on, Mbit/s: while the others send, and between two visits.
    shared_mbit: Vec<f64>,
    alone_mbit: Vec<f64>,
}

/// What was seen of it, and what the network did.
fn run(session: &mut Session, visit: &Visit, delay_ms: u32) -> Result<(Seen, Network), BenchError> {
    let interface_mbit = visit.interface_mbit;
    let nodes = visit.others + 1;
    let site = Site { nodes, delay_ms, interface_mbit, records_frames: true, ..SITE };
    let count = session.choose(16u32, 40);
    let numbers = [count, visit.bytes, visit.others].map(|number| number.to_string());
    let period = f64::from(PERIOD_MS.max(PERIOD_DELAYS * delay_ms)) / 1e3;
    let arguments: Vec<_> = numbers.into_iter().chain([period.to_string()]).collect();
    // Its record begins with this.
    session.drop_lab();
    let (until, route, mtu) = (session.until()?, Route::Site(site), MTU.to_string());
    let smaller = ["ip", "link", "set", "dev", INTERFACE, "mtu", &mtu];
    session.lab(route)?.run("a1", &smaller, until)?;
    let settings = [("GRIDMPI_PACING", "auto")];
    let (_, network) = observed(session, &site, Mode::Auto, (&["a"], nodes), |session| {
        session.job_with(route, "churn", &arguments, [nodes; 2], &settings)
    })?;
    let frames = session.lab(route)?.frames("a")?;
    Ok((seen(&frames, visit, count, delay_ms)?, network))
}

/// What these frames tell of the lone sender.
///
/// # Errors
/// Too few visits were seen, or too few frames of the lone sender after one of them to tell: that one may have been the worst.
fn seen(frames: &[Arrival], visit: &Visit, count: u32, delay_ms: u32) -> Result<Seen, BenchError> {
    // In the first connections are made, and in a few more the broker learns how many they are.
    let spans: Vec<_> = visits(frames, delay_ms).into_iter().skip(5).collect();
    if spans.len() < count as usize / 2 {
        let message = format!("of {count} visits {} were seen at the link", spans.len());
        return Err(BenchError::Output(message));
    }
    let lone: Vec<_> = stamps(frames, FRAME).collect();
    let (share, all) = (visit.share_mbit() / NEAR, NEAR * visit.whole_mbit());
    let between: Vec<_> = spans.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
    let gave_way = spans.iter().map(|&span| reached(&lone, span, |mbit| mbit <= share));
    let had_all = between.iter().map(|&span| reached(&lone, span, |mbit| mbit >= all));
    let shared =
        spans.iter().map(|&(begin, end)| mean(&lone, (begin, end.saturating_sub(ns(ENDING_MS)))));
    let alone = between.iter().map(|&span| mean(&lone, span));
    let seen = || {
        Some(Seen {
            gave_way: gave_way.collect::<Option<_>>()?,
            had_all: had_all.collect::<Option<_>>()?,
            shared_mbit: shared.collect::<Option<_>>()?,
            alone_mbit: alone.collect::<Option<_>>()?,
        })
    };
    seen().ok_or_else(|| {
        BenchError::Output(format!(
            "after a visit had begun or ended fewer than {} frames of {FRAME} bytes came from the lone sender: it has \
             stalled, or its frames have another size (its interface's MTU is set to {MTU})",
            FRAMES + 1
        ))
    })
}

/// When full frames of this size came, ns.
fn stamps(frames: &[Arrival], bytes: u64) -> impl Iterator<Item = u64> {
    frames.iter().filter(move |frame| frame.bytes == bytes).map(|frame| frame.stamp)
}

/// When the others' first and last full frames came, visit by visit.
fn visits(frames: &[Arrival], delay_ms: u32) -> Vec<(u64, u64)> {
    let quiet_ns = u64::from(QUIET_MS.max(QUIET_DELAYS * delay_ms)) * 1_000_000;
    let mut visits: Vec<(u64, u64)> = Vec::new();
    for stamp in stamps(frames, MTU_FRAME) {
        match visits.last_mut() {
            Some((_, last)) if stamp.saturating_sub(*last) < quiet_ns => *last = stamp,
            _ => visits.push((stamp, stamp)),
        }
    }
    visits
}

/// How long after the begin of a span a sender with these frames was first at such a rate, ms; all of the span if it never was. `None` if
/// it sent too little to tell.
fn reached(
    stamps: &[u64],
    (begin, end): (u64, u64),
    is_there: impl Fn(f64) -> bool,
) -> Option<f64> {
    let from = stamps.partition_point(|stamp| *stamp < begin);
    let within = stamps.get(from..)?;
    within.get(FRAMES)?;
    let found = within.windows(FRAMES + 1).take_while(|window| window[0] <= end);
    let at =
        found.filter(|window| rate(window).is_some_and(&is_there)).map(|window| window[0]).next();
    Some(at.unwrap_or(end).saturating_sub(begin) as f64 / 1e6)
}

/// Of frames that came then, Mbit/s: from the first to the last.
fn rate(stamps: &[u64]) -> Option<f64> {
    let (first, last) = (stamps.first()?, stamps.last()?);
    let bits = ((stamps.len() as u64 - 1) * (FRAME + WIRE_OVERHEAD) * 8) as f64;
    Some(bits / (last.saturating_sub(*first).max(1) as f64 / 1e3))
}

/// The mean rate of a sender with these frames in a span, but for the time in which it may still have another. `None` if it sent too little to tell.
fn mean(stamps: &[u64], (begin, end): (u64, u64)) -> Option<f64> {
    let at = |moment| stamps.partition_point(|stamp| *stamp < moment);
    let within = stamps.get(at(begin + ns(WITHIN_MS))..at(end))?;
    within.get(FRAMES)?;
    rate(within)
}

fn ns(milliseconds: f64) -> u64 {
    (milliseconds * 1e6) as u64
}

/// What the lone sender has from then on: by its share while others send, and by all between two visits; the median, and the worst.
fn rates(name: &str, visit: &Visit, seen: &Seen) -> [Figure; 4] {
    let figure = |what: &str, samples: &[f64], (whom, due): (&str, f64), bound| {
        Figure::new(format!("{name}: {what}"), "Mbit/s", samples, whom, &[due], bound)
    };
    let share = ("its share", visit.share_mbit());
    let all = ("all", visit.whole_mbit());
    let most: Vec<f64> = seen.shared_mbit.iter().copied().reduce(f64::max).into_iter().collect();
    let least: Vec<f64> = seen.alone_mbit.iter().copied().reduce(f64::min).into_iter().collect();
    let (at_most, at_least) = (Bound::RatioAtMost(EXCEEDED), Bound::RatioAtLeast(NEAR));
    [
        figure("from then on", &seen.shared_mbit, share, at_most),
        figure("from then on, the most", &most, share, at_most),
        figure("alone again, from then on", &seen.alone_mbit, all, at_least),
        figure("alone again, from then on, the least", &least, all, at_least),
    ]
}

/// The median, and the worst.
fn of(name: &str, milliseconds: &[f64]) -> [Figure; 2] {
    let figure = |name: String, samples: &[f64]| {
        let bound = Bound::AtMost(WITHIN_MS);
        Figure::new(name, "ms", samples, "asked for", &[WITHIN_MS], bound)
    };
    let worst: Vec<f64> = milliseconds.iter().copied().reduce(f64::max).into_iter().collect();
    [figure(name.to_owned(), milliseconds), figure(format!("{name}, the worst"), &worst)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of a size from `from` to `until` ms, at a rate.
    fn stream(bytes: u64, mbit: f64, from: f64, until: f64) -> Vec<Arrival> {
        let gap = ((bytes + WIRE_OVERHEAD) * 8) as f64 / mbit / 1e3;
        let count = ((until - from) / gap) as usize;
        let stamp = |number: usize| ((from + gap * number as f64) * 1e6) as u64;
        (0..count).map(|number| Arrival { stamp: stamp(number), bytes, packets: 1 }).collect()
    }

    fn lone(parts: &[(f64, f64, f64)]) -> Vec<u64> {
        let frames = parts.iter().flat_map(|&(mbit, from, until)| stream(FRAME, mbit, from, until));
        frames.map(|frame| frame.stamp).collect()
    }

    #[test]
    fn visits_are_told_by_the_size_of_their_frames() {
        let mut frames = stream(MTU_FRAME, 20.0, 100.0, 160.0);
        frames.extend(stream(FRAME, 50.0, 0.0, 500.0));
        frames.extend(stream(MTU_FRAME, 20.0, 350.0, 400.0));
        frames.sort_by_key(|frame| frame.stamp);
        // Over a long path it may be one that waited for a round trip.
        assert_eq!(visits(&frames, 50).len(), 1);
        let visits = visits(&frames, 10);
        assert_eq!(visits.len(), 2);
        assert_eq!((visits[0].0, visits[1].0), (100_000_000, 350_000_000));
        assert!((159_000_000..160_000_000).contains(&visits[0].1), "{visits:?}");
    }

    /// 16 visits, and a lone sender with frames of a size until a moment, ms.
    fn visited(bytes: u64, until: f64) -> Result<Seen, BenchError> {
        let others = (1..=16).map(|k| 250.0 * f64::from(k));
        let mut frames: Vec<_> =
            others.flat_map(|at| stream(MTU_FRAME, 20.0, at, at + 60.0)).collect();
        frames.extend(stream(bytes, 50.0, 0.0, until));
        frames.sort_by_key(|frame| frame.stamp);
        seen(&frames, &VISITS[0], 16, 10)
    }

    #[test]
    fn every_visit_has_its_time_or_nothing_is_told() {
        let seen = visited(FRAME, 4250.0).unwrap();
        let counts = [&seen.gave_way, &seen.had_all, &seen.shared_mbit, &seen.alone_mbit];
        assert_eq!(counts.map(Vec::len), [11, 10, 11, 10]);
        // It never gave way.
        let met = rates("it", &VISITS[0], &seen).map(|figure| figure.met);
        assert_eq!(met, [Some(false), Some(false), Some(true), Some(true)]);
        let text = visited(FRAME + 40, 4250.0).unwrap_err().to_string();
        assert!(text.contains("1414 bytes"), "{text}");
        // One that has stalled for good is not left out.
        assert!(visited(FRAME, 3900.0).is_err());
    }

    #[test]
    fn it_is_found_when_a_rate_is_reached() {
        let stamps = lone(&[(50.0, 0.0, 103.0), (20.0, 103.0, 162.0), (50.0, 162.0, 300.0)]);
        let gave_way = reached(&stamps, (100_000_000, 160_000_000), |mbit| mbit <= 21.0);
        assert!((gave_way.unwrap() - 3.0).abs() < 0.7, "{gave_way:?}");
        let had_all = reached(&stamps, (160_000_000, 300_000_000), |mbit| mbit >= 47.5);
        assert!((had_all.unwrap() - 2.0).abs() < 0.7, "{had_all:?}");
        let never = reached(&stamps, (160_000_000, 200_000_000), |mbit| mbit >= 99.0);
        assert_eq!(never, Some(40.0));
        assert_eq!(reached(&stamps, (299_900_000, 400_000_000), |_| true), None);
        // What it had before it had given way does not count.
        let shared = mean(&stamps, (100_000_000, 160_000_000)).unwrap();
        let alone = mean(&stamps, (160_000_000, 300_000_000)).unwrap();
        assert!((shared - 20.0).abs() < 0.1 && (alone - 50.0).abs() < 0.1, "{shared} {alone}");
        assert_eq!(mean(&stamps, (100_000_000, 106_000_000)), None);
    }
}
