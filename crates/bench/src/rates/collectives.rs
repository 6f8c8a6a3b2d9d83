//! Collectives by turns: those in which one node of a cluster sends, and those in which all do. Who remembers the last ones begins too fast
//! or too slowly.

use super::conditions::Conditions;
use super::mode::Mode;
use super::patterns::BOTH;
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{Route, Site};
use crate::session::Session;
use crate::watched::Watched;

/// One node of each cluster sends so much to the other.
const LONE_BYTES: u32 = 128 << 10;
/// Calls of that sort before one of the other: it is forgotten what that was like.
const LONES: u32 = 20;
/// Between calls, ms; and so many times the delay, if that is longer: who is far must have been told when the next one begins.
const PAUSE_MS: u32 = 50;
const PAUSE_DELAYS: u32 = 3;

/// What ours may take at most: where all send by the least possible, where one does by what is not paced.
const ALL_BOUND: f64 = 1.1;
const LONE_BOUND: f64 = 1.02;

const MODES: [Mode; 3] = [Mode::Off, Mode::Static, Mode::Auto];

/// What came of one mode.
#[derive(Default)]
struct Outcome {
    lone_ms: Vec<f64>,
    all_ms: Vec<f64>,
    watched: Vec<Watched>,
    calls: u32,
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for delay_ms in session.delays(&[10], &[0, 10]) {
        let site = Site { delay_ms, ..SITE };
        let name = format!("collectives, {delay_ms} ms");
        let Some(conditions) = Conditions::at(session, &name, &site) else { continue };
        let mut outcomes: Vec<Outcome> = MODES.iter().map(|_| Outcome::default()).collect();
        for _ in 0..session.choose(1, 2) {
            for (mode, outcome) in MODES.iter().zip(&mut outcomes) {
                let name = format!("{name}: {}", mode.name());
                session.part(&name, |session| run(session, &site, *mode, outcome));
            }
        }
        for (mode, outcome) in MODES.iter().zip(&outcomes) {
            figures.extend(of(*mode, &site, &conditions, outcome, &outcomes[0]));
        }
    }
    Ok(figures)
}

fn run(
    session: &mut Session,
    site: &Site,
    mode: Mode,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let rounds = session.choose(4, 8);
    let numbers = [LONE_BYTES, LONES, BOTH.bytes, rounds].map(|number| number.to_string());
    let pause = f64::from(PAUSE_MS.max(PAUSE_DELAYS * site.delay_ms)) / 1e3;
    let arguments: Vec<_> = numbers.into_iter().chain([pause.to_string()]).collect();
    let settings = mode.settings(site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let route = Route::Site(*site);
    let watch = session.lab(route)?.watch(BOTH.sending())?;
    let samples = session.job_with(route, "collectives", &arguments, [site.nodes; 2], &settings)?;
    outcome.watched.push(session.lab(route)?.watched(&watch)?);
    // In the first ones connections are made, and the second is that of those who have just begun.
    outcome.lone_ms.extend(samples.scaled("lone", 1e3)?.iter().skip(LONES as usize));
    outcome.all_ms.extend(samples.scaled("all", 1e3)?.iter().skip(1));
    outcome.calls += rounds * (LONES + 1);
    Ok(())
}

fn of(
    mode: Mode,
    site: &Site,
    conditions: &Conditions,
    outcome: &Outcome,
    unpaced: &Outcome,
) -> [Figure; 2] {
    let nodes = 2 * site.nodes;
    let network = conditions.network_of(mode, &outcome.watched, nodes, site.link_mbit);
    let network = Network { count: outcome.calls, ..network };
    let judged = |bound| if mode == Mode::Auto { bound } else { Bound::Told };
    let name = |what: &str| format!("{what}, {} ms: {}", site.delay_ms, mode.name());
    let least = [BOTH.least_ms(site)];
    let (off, lone, all) = (Mode::Off.name(), name("one of 8 sends, 128 KiB"), name("all to all"));
    let bound = judged(Bound::RatioAtMost(LONE_BOUND));
    let lone = Figure::new(lone, "ms", &outcome.lone_ms, off, &unpaced.lone_ms, bound);
    let bound = judged(Bound::RatioAtMost(ALL_BOUND));
    let all = Figure::new(all, "ms", &outcome.all_ms, "least possible", &least, bound);
    [lone, all.with_network(network)]
}
