//! Messages between processes with their TLS and without.

use super::across::Pattern;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{INTERFACE, Route, Site};
use crate::samples::Samples;
use crate::session::Session;

const PATTERNS: [(Pattern, &str); 2] = [
    (Pattern { name: "across", ranks: 1, pairs: 1 }, "messages of 1 MiB, a pair of ranks"),
    (Pattern { name: "across", ranks: 4, pairs: 0 }, "all to all, 4 + 4 ranks"),
];
/// Of each measurement.
const CROSSING: u64 = 64 << 20;
/// What TLS may cost.
const BOUND: f64 = 0.05;
const WHOM: &str = "without TLS";

/// Of the link, one way. Without any, emulator and ranks would share the processors all the time.
const DELAY_MS: u32 = 1;

/// The lab's link of 1 Gbit/s between two clusters.
fn link() -> Route {
    Route::Site(Site {
        nodes: 1,
        interface_mbit: None,
        link_mbit: 1000,
        delay_ms: DELAY_MS,
        buffer_kib: 1024,
        inlet_kib: None,
        records_frames: false,
    })
}

/// What is by turns on and off.
fn settings(is_on: bool) -> [(&'static str, &'static str); 2] {
    [("GRIDMPI_PACING", "off"), ("GRIDMPI_TLS", if is_on { "on" } else { "off" })]
}

/// Samples with TLS and without.
fn both(
    session: &mut Session,
    route: Route,
    program: &str,
    arguments: &[String],
    ranks: u32,
) -> [Samples; 2] {
    let mut samples = [Samples::default(), Samples::default()];
    for _ in 0..session.choose(1, 5) {
        for (is_on, samples) in [true, false].into_iter().zip(&mut samples) {
            let set = settings(is_on);
            let name = format!("{program}, TLS {}", if is_on { "on" } else { "off" });
            let run = |session: &mut Session| {
                session.job_with(route, program, arguments, [ranks; 2], &set)
            };
            session.part(&name, run).iter().for_each(|more| samples.append(more));
        }
    }
    samples
}

/// 8 bytes one way by two ranks that spin, in so many blocks of 100 round trips.
fn latency(
    session: &mut Session,
    route: Route,
    blocks: u32,
    name: &str,
    bound: Bound,
) -> Result<Figure, BenchError> {
    let arguments = [INTERFACE.to_owned(), blocks.to_string()];
    let [on, off] = both(session, route, "latency", &arguments, 1);
    let (on, off) = (on.scaled("mpi", 1e6)?, off.scaled("mpi", 1e6)?);
    Ok(Figure::new(name, "µs", &on, WHOM, &off, bound))
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let bound = Bound::RatioAtMost(1.0 + BOUND);
    let blocks = session.choose(50, 100);
    let link_path = format!("a link of 1 Gbit/s and {DELAY_MS} ms");
    let paths = [
        (Route::Gigabit, blocks, "a cable, interfaces of 1 Gbit/s"),
        (link(), session.choose(3, 10), link_path.as_str()),
    ];
    let mut figures = Vec::new();
    for (route, blocks, path) in paths {
        let name = format!("8 B one way, {path}");
        figures.extend(session.part(&name, |s| latency(s, route, blocks, &name, bound)));
    }
    for (pattern, name) in &PATTERNS {
        let name = format!("{name}, 1 Gbit/s");
        figures.extend(session.part(&name, |session| bulk(session, pattern, &name)));
    }
    Ok(figures)
}

fn bulk(session: &mut Session, pattern: &Pattern, name: &str) -> Result<Figure, BenchError> {
    let (arguments, crossing) = pattern.arguments(CROSSING, session.choose(1, 3));
    let [on, off] = both(session, Route::Gigabit, pattern.name, &arguments, pattern.ranks);
    let speeds = |samples: &Samples| -> Result<Vec<f64>, BenchError> {
        let seconds = samples.get("seconds")?.iter();
        Ok(seconds.map(|seconds| crossing * 1e-6 / seconds).collect())
    };
    let bound = Bound::RatioAtLeast(1.0 - BOUND);
    Ok(Figure::new(name, "MB/s", &speeds(&on)?, WHOM, &speeds(&off)?, bound))
}
