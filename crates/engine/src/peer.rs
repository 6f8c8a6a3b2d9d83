//! What is known of each process of another cluster, and who of them wants what.

use crate::Config;
use crate::early::Earlies;
use crate::flow::{ReceiveCredit, SendCredit};
use crate::lanes::WordMap;
use crate::outgoing::{Outgoing, Tail};
use crate::slab::Key;
use gridmpi_trunk::{Patience, Stream};
use gridmpi_wire::{Envelope, ProcId};
use std::collections::VecDeque;
use std::sync::Arc;

/// One process of another cluster that we have talked to.
pub(crate) struct Peer {
    pub(crate) stream: Stream,
    /// Messages to it and from it are numbered from 1.
    pub(crate) messages_sent: u64,
    pub(crate) messages_received: u64,

    pub(crate) send_credit: SendCredit,
    /// Messages without an envelope credit, in order.
    pub(crate) waiting: VecDeque<Outgoing>,
    /// Messages begun that are not over.
    pub(crate) outgoing: WordMap<u64, Outgoing>,
    /// Those of them that have bytes to push, each once: they take turns.
    pub(crate) feeding: VecDeque<u64>,
    /// How many bytes they have to push.
    pub(crate) unfed: u64,
    /// Those pushed whole from the program's memory, with the number of their last frame.
    pub(crate) writing: VecDeque<(u64, u64)>,
    pub(crate) tail: Tail,

    pub(crate) receive_credit: ReceiveCredit,
    /// Messages of which bytes are to come.
    pub(crate) arriving: WordMap<u64, Key>,
    /// The message whose first frame has begun and not ended.
    pub(crate) opened: Option<Opened>,
    /// Bytes of messages that are to begin.
    pub(crate) early: Earlies,
    /// In how many parts bytes of its messages have come that something before is missing of.
    pub(crate) parts: u64,
    /// Posted receives that only this peer can serve.
    pub(crate) awaited: usize,

    pub(crate) closed: Closed,
    pub(crate) lost: Option<Arc<str>>,
    in_dial: bool,
    in_ready: bool,
    in_ticking: [bool; Patience::ALL.len()],
    in_exhausted: bool,
}

/// Which directions of a stream have ended.
#[derive(Default)]
pub(crate) struct Closed {
    /// `Close` is pushed.
    pub(crate) ours: bool,
    /// The number of the `Close` that has come; perhaps before what was sent before it.
    pub(crate) theirs: Option<u64>,
}

/// A message that begins, in this frame.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Opened {
    pub(crate) seq: u64,
    pub(crate) envelope: Envelope,
    pub(crate) payload_len: u32,
    pub(crate) key: Key,
}

impl Peer {
    fn new(config: &Config) -> Self {
        Self {
            stream: Stream::new(config.bounds),
            messages_sent: 0,
            messages_received: 0,
            send_credit: SendCredit::new(config),
            waiting: VecDeque::new(),
            outgoing: WordMap::default(),
            feeding: VecDeque::new(),
            unfed: 0,
            writing: VecDeque::new(),
            tail: Tail::new(config),
            receive_credit: ReceiveCredit::new(config),
            arriving: WordMap::default(),
            opened: None,
            early: Earlies::default(),
            parts: 0,
            awaited: 0,
            closed: Closed::default(),
            lost: None,
            in_dial: false,
            in_ready: false,
            in_ticking: [false; Patience::ALL.len()],
            in_exhausted: false,
        }
    }

    /// Whether `transmit` would find something to write, given a connection.
    fn has_work(&self) -> bool {
        !self.feeding.is_empty() || !self.stream.is_drained() || self.stream.wants_transmit()
    }

    /// Whether all has come that will ever come.
    pub(crate) fn has_ended(&self) -> bool {
        self.closed.theirs.is_some_and(|seq| seq < self.stream.expects())
    }

    /// Whether nothing of what was sent is on its way any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.lost.is_some()
            || (self.waiting.is_empty() && self.outgoing.is_empty() && self.stream.is_drained())
    }
}

/// All peers; an idle one costs a null pointer.
pub(crate) struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    dial: VecDeque<ProcId>,
    ready: Vec<ProcId>,
    /// By their patience.
    ticking: [Vec<ProcId>; Patience::ALL.len()],
    /// Peers that may be out of envelope credit.
    exhausted: Vec<ProcId>,
}

impl Peers {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            dial: VecDeque::new(),
            ready: Vec::new(),
            ticking: [const { Vec::new() }; Patience::ALL.len()],
            exhausted: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: ProcId) -> Option<&Peer> {
        self.slots.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: ProcId) -> Option<&mut Peer> {
        self.slots.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// The peer, made if it is new.
    pub(crate) fn open(&mut self, id: ProcId, config: &Config) -> &mut Peer {
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index].get_or_insert_with(|| Box::new(Peer::new(config)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(Option::as_deref)
    }

    /// Those that exist, in the order of their ids.
    pub(crate) fn ids(&self) -> Vec<ProcId> {
        let present =
            |(id, slot): (usize, &Option<Box<Peer>>)| slot.is_some().then_some(ProcId(id as u32));
        self.slots.iter().enumerate().filter_map(present).collect()
    }

    /// Notes whatever the peer may want now: a connection, a write, a tick.
    pub(crate) fn attend(&mut self, id: ProcId) {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_deref_mut);
        let Some(peer) = slot else { return };
        if peer.lost.is_some() {
            return;
        }
        if !peer.stream.is_connected() {
            if !peer.in_dial && peer.has_work() {
                peer.in_dial = true;
                self.dial.push_back(id);
            }
            return;
        }
        if !peer.in_ready && (peer.stream.wants_transmit() || !peer.feeding.is_empty()) {
            peer.in_ready = true;
            self.ready.push(id);
        }
        for patience in Patience::ALL {
            let is_known = &mut peer.in_ticking[patience as usize];
            if !*is_known && peer.stream.wants_tick(patience) {
                *is_known = true;
                self.ticking[patience as usize].push(id);
            }
        }
    }

    /// The next peer to connect to. Its mark stays, so that it is not named again.
    pub(crate) fn next_dial(&mut self) -> Option<ProcId> {
        while let Some(id) = self.dial.pop_front() {
            let peer = self.get(id)?;
            if peer.lost.is_none() && !peer.stream.is_connected() {
                return Some(id);
            }
        }
        None
    }

    /// The connection has gone: the peer may be dialled again.
    pub(crate) fn forget_dial(&mut self, id: ProcId) {
        self.dial.retain(|&other| other != id);
        if let Some(peer) = self.get_mut(id) {
            peer.in_dial = false;
        }
    }

    /// Moves the connected peers that want to write to `out`.
    pub(crate) fn drain_ready(&mut self, out: &mut Vec<ProcId>) {
        let mut ready = std::mem::take(&mut self.ready);
        for id in ready.drain(..) {
            let Some(peer) = self.get_mut(id) else { continue };
            peer.in_ready = false;
            if peer.lost.is_none() && peer.stream.is_connected() {
                out.push(id);
            }
        }
        self.ready = ready;
    }

    /// Remembers a peer that may be out of envelope credit.
    pub(crate) fn note_exhausted(&mut self, id: ProcId) {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_deref_mut);
        if let Some(peer) = slot.filter(|peer| !peer.in_exhausted) {
            peer.in_exhausted = true;
            self.exhausted.push(id);
        }
    }

    /// The peers remembered so, which are so no more.
    pub(crate) fn take_exhausted(&mut self) -> Vec<ProcId> {
        let all = std::mem::take(&mut self.exhausted);
        for &id in &all {
            if let Some(peer) = self.get_mut(id) {
                peer.in_exhausted = false;
            }
        }
        all
    }

    pub(crate) fn wants_tick(&self, patience: Patience) -> bool {
        !self.ticking[patience as usize].is_empty()
    }

    /// So long has passed: acknowledgements that nothing carried become due.
    pub(crate) fn tick(&mut self, patience: Patience) {
        for id in std::mem::take(&mut self.ticking[patience as usize]) {
            if let Some(peer) = self.get_mut(id) {
                peer.in_ticking[patience as usize] = false;
                peer.stream.tick(patience);
            }
            self.attend(id);
        }
    }
}
