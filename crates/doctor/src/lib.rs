//! What is wrong with machines and with the paths between them, and the remedy.
//!
//! [`machine`] looks at this machine; what nodes see of each other is gathered by `crates/probe`. Both are [`Facts`].
//! [`findings`] judges facts without any I/O. Described in `docs/doctor.md`.
#![forbid(unsafe_code)]

mod facts;
mod finding;
mod judge;
pub mod machine;
mod print;
pub mod route;

pub use facts::{
    Attempt, BesideFact, BesideProblem, Bulk, Circuit, Depth, Facts, Idle, Interface, JobRelay,
    Kind, Link, Machine, Measured, Node, Outcome, Path, PeerFact, PeerProblem, RelayFact,
    RelayProblem, Route, Trouble, Visit,
};
pub use finding::{Finding, Place, Severity};
pub use judge::findings;
pub use print::{json, text, worst};
