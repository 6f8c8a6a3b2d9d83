//! Where receivers are the neck: `auto` beside the best static rate of a sweep.

use super::burst::{Outcome, run};
use super::conditions::Conditions;
use super::mode::{Mode, SWEEP};
use super::patterns::{ALL, Burst, INCAST};
use super::sites::{INLETS, SLOW_INLETS};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Route, Site};
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
        for &delay_ms in session.choose(&[10][..], &[0, 10]) {
            figures.extend(sweep(session, burst, &Site { delay_ms, ..*site })?);
        }
    }
    Ok(figures)
}

fn sweep(session: &mut Session, burst: &Burst, site: &Site) -> Result<Vec<Figure>, BenchError> {
    let until = session.until()?;
    let conditions = Conditions::of(session.lab(Route::Site(*site))?, until)?;
    let modes = [&[Mode::Off][..], &SWEEP, &[Mode::Auto]].concat();
    let mut outcomes: Vec<Outcome> = modes.iter().map(|_| Outcome::default()).collect();
    for _ in 0..session.choose(1, 2) {
        for (mode, outcome) in modes.iter().zip(&mut outcomes) {
            run(session, burst, site, *mode, outcome)?;
        }
    }
    let swept = || modes.iter().zip(&outcomes).filter(|(mode, _)| matches!(mode, Mode::Swept(..)));
    let time = |outcome: &Outcome| median(&outcome.milliseconds);
    let best = swept().min_by(|a, b| time(a.1).total_cmp(&time(b.1)));
    let least = [burst.least_ms(site)];
    let mut figures = Vec::new();
    for (mode, outcome) in modes.iter().zip(&outcomes) {
        let name = format!("{}, {} ms: {}", burst.name, site.delay_ms, mode.name());
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
        figures.push(figure.with_network(outcome.network(burst, &conditions, *mode)));
    }
    Ok(figures)
}
