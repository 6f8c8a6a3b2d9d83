//! Bytes that are not what was sent. The connection is given up and what it had is sent again on another, as after any loss (`losses.rs`); that is
//! counted, and said once.

use std::io;
use std::net::SocketAddr;

use gridmpi_wire::{ProcId, RecordError};

use crate::DialError;
use crate::state::State;

impl State {
    /// A handshake has failed: perhaps by what this is about. `peer`: with whom, if that is known.
    pub(crate) fn note_failed(
        &mut self,
        peer: Option<ProcId>,
        address: Option<SocketAddr>,
        error: &DialError,
    ) {
        // Another certificate, or none, is also invalid data.
        if let DialError::Io(error) = error
            && error.get_ref().is_some_and(|inner| inner.is::<RecordError>())
        {
            self.note_damage(peer, address, error);
        }
    }

    /// What came was not what was sent.
    pub(crate) fn note_damage(
        &mut self,
        peer: Option<ProcId>,
        address: Option<SocketAddr>,
        error: &io::Error,
    ) {
        self.counts.damaged += 1;
        if self.counts.damaged > 1 {
            return;
        }
        let from = match (peer, address) {
            (Some(peer), Some(address)) => format!("{peer} ({address})"),
            (Some(peer), None) => peer.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => "a peer".to_owned(),
        };
        (self.config.warn)(&format!(
            "what came from {from} was damaged on the way: {error}. Nothing is lost, it is sent again on another connection; \
             but a relay, a proxy or a machine on the way is faulty. More of this is counted (gridmpi_damaged), not said"
        ));
    }
}
