//! Messages that cross while the program computes.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::Route;
use crate::samples::Samples;
use crate::session::Session;

/// 8 MB take 0.42 s at 160 Mbit/s: who does not overlap pays that much more than the second.
const BYTES: u64 = 8_000_000;

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let arguments = [BYTES.to_string(), session.choose(2, 10).to_string()];
    let mut samples = Samples::default();
    for _ in 0..session.choose(1, 3) {
        samples.append(&session.job(Route::Shaped, "overlap", &arguments, [1, 1])?);
    }
    let mut figures = Vec::new();
    for (rank, side) in [(0, "sender"), (1, "receiver")] {
        let series = |what: &str| samples.get(&format!("{what}.{rank}"));
        let name = format!("1 s of computing over 8 MB at 160 Mbit/s, {side}");
        let (ours, alone) = (series("behind")?, series("alone")?);
        let bound = Bound::RatioAtMost(1.05);
        figures.push(Figure::paired(name, "s", ours, "computing alone", alone, bound));
    }
    Ok(figures)
}
