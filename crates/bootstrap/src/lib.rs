//! Rendezvous of a job: how the clusters of one job find each other and agree.
//!
//! Local rank 0 of each cluster gathers what the others must know about its cluster (a
//! [`Registration`]) and calls [`register`]. The coordinator inside `gridmpi run` waits until every
//! cluster of the job has come, checks that they can work together, and answers each with the
//! [`JobTable`]. The connection stays open as [`Control`] for the life of the job: an abort on one
//! side and the end of the job on the other cross it. When the connection is lost it is made again, and nothing said is lost with
//! it (`session`).
//!
//! Both ends prove that they hold the job's key before anything else is read. The room is linked
//! into the preloaded library, so it keeps to blocking sockets and few dependencies.
//! The protocol is specified in `docs/rendezvous.md`.
#![forbid(unsafe_code)]

mod aside;
mod bell;
mod channel;
mod client;
mod connect;
pub mod env;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod join;
mod keeper;
pub mod line;
mod listen;
mod message;
mod model;
mod names;
mod race;
mod reach;
mod relay;
mod roster;
mod secret;
mod server;
mod session;
mod strangers;
mod taking;

pub use client::{Control, abort, register, suspect};
pub use env::{EnvError, JobEnv, Settings, Yielding};
pub use error::BootstrapError;
pub use join::{JoinControl, JoinOrder, JoinRequest, JoinTerms, join};
pub use listen::{EVERYWHERE, listen};
pub use model::{
    ClusterName, DataModel, Endian, JobTable, LinkInfo, MOST_CONNECTIONS, ModelError, NetworkInfo,
    Pacing, ProcInfo, Registration, Via,
};
pub use race::Listening;
pub use relay::{Door, MAX_RELAYS, RelayAccess, RelayError, RelayToken};
pub use roster::{Expected, Progress};
pub use secret::{JobId, JobKey, Secret, SecretError};
pub use server::{Coordinator, CoordinatorConfig, Event, Participant, Parting};
pub use strangers::{Stranger, Strangers};
pub use taking::Taking;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread that panicked left behind is used as it is: nothing here is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
