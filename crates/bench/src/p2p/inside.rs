//! What the library costs inside a cluster.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::Route;
use crate::samples::Samples;
use crate::session::Session;

const NS: f64 = 1e9;

const CALLS: [(&str, &str); 3] = [
    ("rank", "MPI_Comm_rank on a one-cluster communicator"),
    ("send", "MPI_Send to MPI_PROC_NULL on a one-cluster communicator"),
    ("iprobe", "MPI_Iprobe on a one-cluster communicator"),
];

const PINGPONGS: [(&str, &str); 4] = [
    ("cluster.8", "8 B one way inside a cluster, one-cluster communicator"),
    ("world.8", "8 B one way inside a cluster, MPI_COMM_WORLD"),
    ("cluster.64k", "64 KiB one way inside a cluster, one-cluster communicator"),
    ("world.64k", "64 KiB one way inside a cluster, MPI_COMM_WORLD"),
];

/// In a cluster whose first rank is not the world's, so that ranks are translated.
const SECOND: (&str, &str) = ("second.8", "8 B one way inside the second cluster, MPI_COMM_WORLD");

/// Within one process by turns: the linked procedure (ours) and the vendor's own below it. And the
/// same program by the vendor alone, to see whether its own speed has changed.
pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let (mut ours, mut alone) = (Samples::default(), Samples::default());
    for _ in 0..session.choose(1, 7) {
        let (mine, its) = (
            session.job(Route::Plain, "local", &[], [2, 1])?,
            session.alone(Route::Plain, "local", &[], 2)?,
        );
        ours.append(&mine);
        ours.append(&session.job(Route::Plain, "local", &["second".to_owned()], [1, 2])?);
        alone.append(&its);
    }
    let mut figures = Vec::new();
    for (key, name) in CALLS {
        figures.push(in_process(&ours, key, name, Bound::DifferenceAtMost(10.0))?);
    }
    for (key, name) in PINGPONGS.into_iter().chain([SECOND]) {
        figures.push(in_process(&ours, key, name, Bound::RatioAtMost(1.01))?);
    }
    for (key, name) in PINGPONGS {
        let (mine, its) = (ours.scaled(&of_ours(key), NS)?, alone.scaled(&of_ours(key), NS)?);
        let name = format!("{name}, other runs");
        figures.push(Figure::new(name, "ns", &mine, "vendor alone", &its, Bound::Told));
    }
    Ok(figures)
}

fn of_ours(key: &str) -> String {
    format!("{key}.ours")
}

fn in_process(
    samples: &Samples,
    key: &str,
    name: &str,
    bound: Bound,
) -> Result<Figure, BenchError> {
    let ours = samples.scaled(&of_ours(key), NS)?;
    let vendor = samples.scaled(&format!("{key}.vendor"), NS)?;
    Ok(Figure::paired(name, "ns", &ours, "vendor's procedure", &vendor, bound))
}
