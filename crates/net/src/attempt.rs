//! One try to reach a peer by one address: how far its handshake is.

use std::time::Instant;

use gridmpi_leg as leg;
use gridmpi_wire::{ProcId, Strand};

use crate::carrier::Carrier;
use crate::crossing::Deference;
use crate::failure::Target;
use crate::handshake::Ask;

/// One socket on its way to a peer.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) carrier: Carrier,
    pub(crate) peer: ProcId,
    pub(crate) strand: Strand,
    pub(crate) target: Target,
    pub(crate) stage: Stage,
    /// When hello was said.
    pub(crate) asked: Instant,
    /// When our proof was given.
    pub(crate) proven: Option<Instant>,
    pub(crate) deference: Deference,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Connecting,
    /// Of the relay a circuit is wanted.
    Leg(Box<leg::Ask>),
    /// The circuit has been asked for, and our hello sent behind that.
    Opening(Box<leg::Ask>, Ask),
    Handshake(Ask),
}

impl Attempt {
    /// Whether the listener may already count this as a connection.
    pub(crate) fn has_proven(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(ask) if ask.has_proven())
    }

    /// Whether hello has been said and the answer is the next to come.
    pub(crate) fn awaits_challenge(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(ask) if !ask.has_proven())
    }

    /// Whether it is the peer, and no relay before it, that has to answer.
    pub(crate) fn awaits_peer(&self) -> bool {
        matches!(self.stage, Stage::Opening(..) | Stage::Handshake(_))
    }

    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.stage, Stage::Connecting)
    }
}
