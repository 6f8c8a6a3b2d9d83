//! Memory of a process that knows many others.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::Route;
use crate::samples::Samples;
use crate::session::Session;

const PEERS: u32 = 64;
const MB: f64 = 1e-6;

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let (mut ours, mut alone) = (Samples::default(), Samples::default());
    for _ in 0..session.choose(1, 3) {
        ours.append(&session.job(Route::Plain, "idle", &[], [1, PEERS])?);
        alone.append(&session.alone(Route::Plain, "idle", &[], 1)?);
    }
    let figure = |name: &str, key: &str, bound| -> Result<Figure, BenchError> {
        let (mine, its) = (ours.scaled(key, MB)?, alone.scaled(key, MB)?);
        Ok(Figure::new(name, "MB", &mine, "vendor alone", &its, bound))
    };
    Ok(vec![
        figure("resident, idle, 64 remote peers", "rss", Bound::DifferenceAtMost(16.0))?,
        figure("of these its own", "private", Bound::Told)?,
    ])
}
