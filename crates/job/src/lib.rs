//! Jobs over several clusters: the job file, launching through the clusters' own launchers,
//! supervision until the last process has gone.
//!
//! [`run`] and [`join()`] are the commands `gridmpi run` and `gridmpi join`; they talk to the user on
//! stderr and return an exit code. A program that calls them calls [`play_hidden_part`] first, since
//! launchers are started through itself.
#![forbid(unsafe_code)]

mod address;
mod compose;
mod console;
mod crew;
mod display;
mod doctor;
mod elf;
pub mod file;
#[doc(hidden)]
pub mod fuzz;
mod head;
mod hidden;
mod input;
mod join;
mod launcher;
mod ledger;
mod library;
mod measure;
mod output;
mod patient;
mod private;
mod program;
mod pumps;
mod relays;
mod resolve;
mod run;
mod sessions;
mod shell;
mod short;
mod signals;
mod spec;
mod supervise;
mod sweep;
mod token;

pub use address::{own_addresses, parse_coordinators, parse_listen};
pub use doctor::examine;
pub use gridmpi_settings::{FileError, LONGEST};
pub use hidden::play as play_hidden_part;
pub use join::{JoinOptions, join};
pub use measure::{Pair, measurable, measure};
pub use output::OutputOptions;
pub use run::{BAD_JOB, RunOptions, run};
pub use short::parse_cluster;
pub use spec::{ClusterSpec, Family, JobSpec, Launcher, Style};
pub use token::{read as read_token, write as write_token};
