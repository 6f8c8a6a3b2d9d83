//! Runs random MPI programs on the engine in virtual time and holds every result against a plain
//! model of MPI's matching rules. One seed, one run: the same each time.
//!
//! `plan` says what a seed means; `world` is the loop of events; `program` makes the calls as the
//! preloaded library does; `vendor`, `network` and `traffic` are what is around the engine; `rules` is the model;
//! `finish` says what must hold in the end. [`Mutation`] makes it fail.

mod finish;
#[allow(unsafe_code)] // buffers by address, as a real program hands them over
mod memory;
mod mutation;
mod network;
mod plan;
mod program;
mod rng;
mod rules;
mod traffic;
mod vendor;
mod world;

pub use mutation::Mutation;
pub use world::Stats;

use world::World;

/// A run that went wrong.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What was found wrong first.
    pub what: String,
    /// What happened up to then, if a trace was wanted.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// What was found wrong first.
pub fn run(seed: u64, mutation: Mutation, traced: bool) -> Result<(Stats, Vec<String>), Failure> {
    let mut world = World::new(seed, mutation, traced);
    let result = world.run_to_end();
    let trace = world.trace.take().unwrap_or_default();
    match result {
        Ok(()) => Ok((world.stats, trace)),
        Err(what) => Err(Failure { seed, what, trace }),
    }
}
