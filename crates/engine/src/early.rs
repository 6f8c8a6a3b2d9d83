//! Bytes of messages that come before the message's beginning does: it goes over one connection, and they over faster ones.
//!
//! They are held, within a bound that their sender keeps, and go to their place when the beginning has come.

use std::collections::BTreeMap;

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
    /// By their message: when one begins only its own are looked at. No list is empty.
    by_message: BTreeMap<u64, Vec<Key>>,
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
        peer.early.by_message.entry(message).or_default().push(key);
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
        if self.peers.get(id).is_none_or(|peer| peer.early.by_message.is_empty()) {
            return Ok(());
        }
        for mut early in self.take_whole(id, message) {
            let len = early.bytes.capacity();
            let Target::Message { key, offset } =
                self.find_place(id, message, early.offset, len)?
            else {
                continue;
            };
            self.store(key, offset, &mut early.bytes);
            self.landed(id, key, (offset, len), false)?;
        }
        Ok(())
    }

    /// Those of a message that have come whole. For the others its sender does not count any more: he takes them for come once he knows
    /// that the message has begun.
    fn take_whole(&mut self, id: ProcId, message: u64) -> Vec<Early> {
        let Self { peers, early: all, .. } = self;
        let Some(Earlies { by_message, held }) = peers.get_mut(id).map(|peer| &mut peer.early)
        else {
            return Vec::new();
        };
        let Some(mut keys) = by_message.remove(&message) else { return Vec::new() };
        let mut whole = Vec::new();
        keys.retain(|&key| {
            let Some(early) = all.get_mut(key) else { return false };
            *held -= std::mem::take(&mut early.charged);
            if early.is_whole {
                whole.extend(all.remove(key));
                return false;
            }
            true
        });
        if !keys.is_empty() {
            by_message.insert(message, keys);
        }
        whole
    }

    fn take_early(&mut self, id: ProcId, key: Key) -> Option<Early> {
        let early = self.early.remove(key)?;
        let Earlies { by_message, held } = &mut self.peers.open(id, &self.config).early;
        *held -= early.charged;
        if let Some(keys) = by_message.get_mut(&early.message) {
            // What has come twice is among the last, as a rule.
            if let Some(at) = keys.iter().rposition(|&other| other == key) {
                keys.swap_remove(at);
            }
            if keys.is_empty() {
                by_message.remove(&early.message);
            }
        }
        Some(early)
    }

    /// The connection is gone: what it half brought will come again. Or all are, for good.
    pub(crate) fn forget_early(&mut self, id: ProcId, strand: Option<Strand>) {
        let Self { peers, early: all, .. } = self;
        let Some(peer) = peers.get_mut(id) else { return };
        let Earlies { by_message, held } = &mut peer.early;
        let is_gone = |early: &Early| match strand {
            Some(strand) => early.strand == strand && !early.is_whole,
            None => true,
        };
        by_message.retain(|_, keys| {
            keys.retain(|&key| {
                let is_gone = all.get(key).is_none_or(is_gone);
                *held -= if is_gone { all.remove(key).map_or(0, |early| early.charged) } else { 0 };
                !is_gone
            });
            !keys.is_empty()
        });
    }
}
