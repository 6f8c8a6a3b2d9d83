//! Bytes of messages that come before the message's beginning does: it goes over one connection, and they over faster ones.
//!
//! They are held, within a bound that their sender keeps, and go to their place when the beginning has come.

use crate::PeerMisbehaved;
use crate::endpoint::{Endpoint, Target};
use crate::slab::Key;
use gridmpi_buffer::RecvBuffer;
use gridmpi_trunk::Bounds;
use gridmpi_wire::{ProcId, Strand};

/// A frame of `Data` whose message has not begun.
pub(crate) struct Early {
    strand: Strand,
    message: u64,
    offset: u64,
    bytes: RecvBuffer,
    /// It has come whole.
    is_whole: bool,
    /// What its sender counts of it. Nothing once the message has begun: then there is one at most of each connection, half come.
    charged: u64,
}

impl Early {
    pub(crate) const fn buffer_mut(&mut self) -> &mut RecvBuffer {
        &mut self.bytes
    }
}

/// What a peer has here of them.
#[derive(Default)]
pub(crate) struct Earlies {
    keys: Vec<Key>,
    held: u64,
}

impl Endpoint {
    /// Bytes of a message begin that has not begun.
    pub(crate) fn begin_early(
        &mut self,
        id: ProcId,
        strand: Strand,
        (message, offset): (u64, u64),
        payload_len: u32,
    ) -> Result<Target, PeerMisbehaved> {
        let peer = self.peers.open(id, &self.config);
        let held = Bounds::held(payload_len.into());
        if peer.early.held + held > self.config.bounds.early {
            return Err(PeerMisbehaved::new(
                id,
                "it sent more of messages that have not begun than it may",
            ));
        }
        let bytes = RecvBuffer::room(payload_len.into());
        let early = Early { strand, message, offset, bytes, is_whole: false, charged: held };
        let key = self.early.insert(early);
        peer.early.held += held;
        peer.early.keys.push(key);
        Ok(Target::Early { key })
    }

    /// They have come whole; `is_new`: and not over another connection before.
    pub(crate) fn end_early(
        &mut self,
        id: ProcId,
        key: Key,
        is_new: bool,
    ) -> Result<(), PeerMisbehaved> {
        let Some(early) = self.early.get_mut(key) else { return Ok(()) };
        early.is_whole = true;
        let message = early.message;
        let peer = self.peers.open(id, &self.config);
        if !is_new {
            self.take_early(id, key);
        } else if message <= peer.messages_received {
            self.place_early(id, message)?;
        }
        Ok(())
    }

    /// The message has begun: what has come of it goes to its place.
    pub(crate) fn place_early(&mut self, id: ProcId, message: u64) -> Result<(), PeerMisbehaved> {
        let Some(peer) = self.peers.get(id).filter(|peer| !peer.early.keys.is_empty()) else {
            return Ok(());
        };
        let is_of =
            |key: &&Key| self.early.get(**key).is_some_and(|early| early.message == message);
        let keys: Vec<Key> = peer.early.keys.iter().filter(is_of).copied().collect();
        for key in keys {
            let Some(early) = self.early.get_mut(key) else { continue };
            if !early.is_whole {
                // The sender takes it for come once it knows that the message has begun.
                let charged = std::mem::take(&mut early.charged);
                self.peers.open(id, &self.config).early.held -= charged;
                continue;
            }
            let Some(mut early) = self.take_early(id, key) else { continue };
            let len = early.bytes.capacity();
            let Target::Message { key, offset } =
                self.find_place(id, message, early.offset, len)?
            else {
                continue;
            };
            self.store(key, offset, &mut early.bytes);
            self.landed(id, key, offset, len)?;
        }
        Ok(())
    }

    fn take_early(&mut self, id: ProcId, key: Key) -> Option<Early> {
        let early = self.early.remove(key)?;
        let peer = self.peers.open(id, &self.config);
        peer.early.held -= early.charged;
        peer.early.keys.retain(|&other| other != key);
        Some(early)
    }

    /// The connection is gone: what it half brought will come again. Or all are, for good.
    pub(crate) fn forget_early(&mut self, id: ProcId, strand: Option<Strand>) {
        let Some(peer) = self.peers.get(id).filter(|peer| !peer.early.keys.is_empty()) else {
            return;
        };
        let is_gone = |early: &Early| match strand {
            Some(strand) => early.strand == strand && !early.is_whole,
            None => true,
        };
        let keys = peer.early.keys.iter().filter(|&&key| self.early.get(key).is_some_and(is_gone));
        for key in keys.copied().collect::<Vec<_>>() {
            self.take_early(id, key);
        }
    }
}
