//! Measures what the path between two clusters carries, by plain TCP connections between their nodes: round-trip time,
//! bandwidth each way with all nodes sending at once and with one alone, what is lost, how queues rise. And looks at what
//! may be wrong with paths and machines, for `gridmpi doctor`.
//!
//! A [`node`] on each host does what it is told; the [`Conductor`] tells them and puts together what they saw. Both ends of
//! every connection prove that they hold one secret before anything else is read. Described in `docs/probe.md`.
#![forbid(unsafe_code)]

mod admission;
mod conductor;
mod echo;
mod error;
mod examine;
mod figure;
#[doc(hidden)]
pub mod fuzz;
mod info;
mod measure;
mod message;
pub mod node;
mod plan;
mod presence;
mod print;
mod reach;
mod result;
mod road;
mod started;
mod streams;
mod visit;

pub use conductor::{Conductor, Gathering, Here};
pub use error::ProbeError;
pub use examine::{How, Way};
pub use measure::Options;
pub use print::{job_lines, json, table};
pub use result::{Bound, PathReport, Queueing, RoundTrip, Transfer};
pub use started::{host, play_node};
