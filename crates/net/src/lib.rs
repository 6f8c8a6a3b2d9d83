//! The driver: owns the sockets to the processes of other clusters, moves frames between them and an
//! [`Endpoint`](gridmpi_engine::Endpoint), and never calls the vendor's MPI.
//!
//! * [`bind`] listens and tells the addresses to advertise; [`Net::start`] begins once the job's table
//!   is known; [`Net::lock`] gives the endpoint to the program's threads.
//! * **Progress** is whoever's is nearest: a program thread inside MPI polls the sockets itself
//!   ([`Net::poll`], [`Net::wait`]), so that a short message costs no hand-over between threads; when
//!   none does, the driver thread takes over within about a millisecond (`driver`).
//! * **Connections** are made when first needed, by trying the peer's addresses in turn; each begins
//!   with a handshake in which both sides prove the job's key (`handshake`); a lost one is made again
//!   and the streams resume. Where a cluster has relays, its processes ask those for circuits (`relays`).
//! * **What passes** is TLS (`security`); where that is off, records with a checksum through relays (`checked`), and frames as they are else.
//! * **Failures** are sticky and say who, where, what and what may help ([`Failure`]).
#![forbid(unsafe_code)]

mod absence;
mod accept;
mod attempt;
mod beside;
mod bind;
mod carrier;
mod checked;
mod collective;
mod config;
mod counts;
mod crossing;
mod damage;
mod dial;
mod discipline;
mod driver;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
mod link;
mod links;
mod lock;
mod losses;
mod net;
mod opening;
mod options;
mod owner;
mod pace;
mod paces;
mod paths;
mod poller;
mod pulse;
mod regulation;
mod relays;
mod security;
mod seen;
mod spread;
mod state;
mod timers;

pub use absence::UNSAID;
pub use bind::{BindError, Bound, Listen, bind};
pub use collective::Entered;
pub use config::{Congestion, Limits, Lost, NetConfig, Online, Pacing, Stats, Way};
pub use counts::Counts;
pub use discipline::{PacedBy, Queueing, queueing};
pub use failure::{DialError, Failure, HandshakeError, LinkError};
pub use net::{Epoch, Guard, Net};
pub use options::try_congestion_control;
pub use relays::Relays;
pub use security::{Security, SecurityError};
