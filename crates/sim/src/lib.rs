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

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
/// What was found wrong first; a panic is a failure like others.
pub fn run(seed: u64, mutation: Mutation, traced: bool) -> Result<(Stats, Vec<String>), Failure> {
    let mut world = None;
    let to_end = || world.insert(World::new(seed, mutation, traced)).run_to_end();
    // What is half changed is looked at for its trace alone.
    let result = catch_unwind(AssertUnwindSafe(to_end)).unwrap_or_else(|panic| Err(said(&*panic)));
    let (trace, stats) =
        world.map(|world| (world.trace.unwrap_or_default(), world.stats)).unwrap_or_default();
    match result {
        Ok(()) => Ok((stats, trace)),
        Err(what) => Err(Failure { seed, what, trace }),
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a word"))
}
