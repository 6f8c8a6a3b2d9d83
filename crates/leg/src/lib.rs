//! How a process asks a relay for a circuit: the handshake of a *leg*, the connection between the two. Both sides, without
//! I/O. Each reads exactly the bytes of the message that is due, since a circuit's bytes follow. Specified in
//! `docs/relay.md`.
#![forbid(unsafe_code)]

mod ask;
mod host;
mod notices;

pub use ask::{Ask, AskStep, Asker};
pub use host::{Host, HostStep, Request};
pub use notices::Notices;

use gridmpi_wire::{LegVerdict, WireError};
use thiserror::Error;

/// Why a leg did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LegError {
    /// Not our protocol, or values that it excludes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side does not prove the token that it was asked for.
    #[error("the other side does not know the relay's token")]
    NotGenuine,
    /// The relay does not do it.
    #[error("{0}")]
    Refused(LegVerdict),
}
