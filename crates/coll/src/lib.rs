//! Collectives over several clusters as *schedules*: what each process sends, receives and asks of its
//! cluster's own MPI, and in which order. Executed elsewhere; nothing here does I/O.
#![forbid(unsafe_code)]

mod algorithms;
mod builder;
mod collective;
mod lanes;
mod schedule;
mod select;
mod shape;

pub use collective::{Blocks, Collective, Elements};
pub use schedule::{BufferId, LocalCollective, Schedule, Senders, Span, Step, StepId, Temporary};
pub use select::{Tuning, algorithm, schedule};
pub use shape::Shape;
