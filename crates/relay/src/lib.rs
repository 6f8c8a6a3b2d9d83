//! The relay: carries circuits between clusters whose processes cannot connect to each other. What it decides is in `core`,
//! without I/O; the rest drives that with sockets. Specified in `docs/relay.md`.
#![forbid(unsafe_code)]

mod accept;
mod alarm;
mod arena;
mod bounds;
mod budget;
mod cell;
mod channel;
pub mod cli;
mod clock;
mod config;
mod control;
mod core;
mod crowd;
mod daemon;
mod dial;
mod fair;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod greet;
mod held;
mod http;
mod identity;
mod journal;
mod look;
mod lookout;
mod metrics;
mod notify;
mod options;
#[cfg(test)]
mod peer_tests;
mod poller;
mod public;
mod reload;
mod routes;
mod secret;
mod signals;
mod sockets;
mod tls;
mod trunk;

pub use config::{Config, Peer, Proof, Token, Unproven};
pub use control::Handle;
pub use core::Limits;
pub use daemon::Daemon;
pub use file::{LogFormat, Settings, parse};
pub use identity::{CERTIFICATE, IdentityError, KEY, create_secret};
pub use look::{Beside, Look, Useless, Wrong, look, look_beside};
pub use metrics::{Path, PeerSeen, Snapshot};
pub use secret::{SecretError, read_secret};
pub use tls::{Fingerprint, Identity};
