//! Where receivers are the neck: `auto` beside the best static rate of a sweep.

use super::burst::{Outcome, try_all};
use super::conditions::Conditions;
use super::mode::{Mode, SWEEP};
use super::patterns::{ALL, Burst, INCAST};
use super::sites::{INLETS, SLOW_INLETS};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::Site;
use crate::samples::median;
use crate::session::Session;

/// What ours may take at most, by the best static rate.
const BOUND: f64 = 1.03;

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let places = [
        (INCAST, INLETS),
        (Burst { name: "8 to 1, 256 KiB each", bytes: 256 << 10, ..INCAST }, INLETS),
        (Burst { name: "8 to 8, 32 KiB each, interfaces 15 Mbit/s", ..ALL }, SLOW_INLETS),
    ];
    let mut figures = Vec::new();
    for (burst, site) in &places {
        for delay_ms in session.delays(&[10], &[0, 10]) {
            figures.extend(sweep(session, burst, &Site { delay_ms, ..*site }));
        }
    }
    Ok(figures)
}

fn sweep(session: &mut Session, burst: &Burst, site: &Site) -> Vec<Figure> {
    let place = format!("{}, {} ms", burst.name, site.delay_ms);
    let modes = [&[Mode::Off][..], &SWEEP, &[Mode::Auto]].concat();
    match try_all(session, burst, site, &place, &modes) {
        Some((conditions, outcomes)) => {
            figures(burst, site, &place, &conditions, &modes.into_iter().zip(outcomes).collect())
        }
        None => Vec::new(),
    }
}

fn figures(
    burst: &Burst,
    site: &Site,
    place: &str,
    conditions: &Conditions,
    results: &Vec<(Mode, Outcome)>,
) -> Vec<Figure> {
    // One that failed has no time, which is not the least.
    let is_swept = |result: &&(Mode, Outcome)| {
        matches!(result.0, Mode::Swept(..)) && !result.1.milliseconds.is_empty()
    };
    let time = |outcome: &Outcome| median(&outcome.milliseconds);
    let swept = results.iter().filter(is_swept);
    let best = swept.min_by(|a, b| time(&a.1).total_cmp(&time(&b.1)));
    let least = [burst.least_ms(site)];
    let mut figures = Vec::new();
    for (mode, outcome) in results {
        let name = format!("{place}: {}", mode.name());
        let figure = match best {
            Some((best, swept)) if *mode == Mode::Auto => {
                let bound = Bound::RatioAtMost(BOUND);
                Figure::new(
                    &name,
                    "ms",
                    &outcome.milliseconds,
                    best.name(),
                    &swept.milliseconds,
                    bound,
                )
            }
            _ => Figure::new(
                &name,
                "ms",
                &outcome.milliseconds,
                "least possible",
                &least,
                Bound::Told,
            ),
        };
        figures.push(figure.with_network(outcome.network(burst, conditions, *mode)));
    }
    figures
}
