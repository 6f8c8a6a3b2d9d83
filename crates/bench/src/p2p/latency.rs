//! Ping-pong between clusters.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{INTERFACE, Route};
use crate::samples::Samples;
use crate::session::Session;

const US: f64 = 1e6;

/// Within one pair of processes by turns: MPI, and blocking sockets.
pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut samples = Samples::default();
    let arguments = [INTERFACE.to_owned(), session.choose(150, 400).to_string()];
    for _ in 0..session.choose(1, 5) {
        samples.append(&session.job(Route::Plain, "latency", &arguments, [1, 1])?);
    }
    let (ours, raw) = (samples.scaled("mpi", US)?, samples.scaled("raw", US)?);
    let name = "8 B one way between clusters, virtual cable";
    let bound = Bound::DifferenceAtMost(10.0);
    Ok(vec![Figure::paired(name, "µs", &ours, "blocking sockets", &raw, bound)])
}
