//! A connection as the core sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use gridmpi_wire::{JobId, ProcId};

use super::circuit::Side;
use super::{CircuitKey, Wire};
use crate::cell::{Parser, RelayId, Span};
use crate::fair::Fair;

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub(super) wire: Wire,
    pub(super) kind: Kind,
    /// It takes no bytes for now.
    pub(super) is_blocked: bool,
    /// It is in the list of those that may have something to send.
    pub(super) is_dirty: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// To a process that has registered.
    Registered { job: JobId, process: ProcId, span: Span },
    /// One end of a circuit.
    Leg { circuit: CircuitKey, side: Side },
    /// To another relay.
    Trunk(Box<Trunk>),
}

#[derive(Debug)]
pub(super) struct Trunk {
    pub(super) peer: RelayId,
    pub(super) parser: Parser,
    /// Cells that go before all data: those whose turn has begun, and those behind them.
    pub(super) ready: Bytes,
    pub(super) control: Vec<u8>,
    /// The last ping that was not answered yet.
    pub(super) pong: Option<u64>,
    /// There are ways of which it is to be told.
    pub(super) has_news: bool,
    /// More cells wait than may.
    pub(super) is_deaf: bool,
    pub(super) fair: Fair<(CircuitKey, Side)>,
    /// Circuits by number, and which of their ends this is.
    pub(super) numbers: BTreeMap<u32, (CircuitKey, Side)>,
    /// The next number that we give; `None` when all are used.
    pub(super) next: Option<u32>,
    /// The last that the other side has given.
    pub(super) theirs: u32,
    /// When something last came, and when something last went.
    pub(super) heard: Duration,
    pub(super) used: Duration,
    /// Something was sent that is not known to have arrived.
    pub(super) is_outstanding: bool,
    /// Since when something should have come from the other side.
    pub(super) waits: Option<Duration>,
    /// When the last ping went.
    pub(super) probed: Duration,
    /// When the ping went that was not answered yet.
    pub(super) pinged: Option<Duration>,
    pub(super) round_trip: Option<Duration>,
}

impl Link {
    pub(super) fn new(wire: Wire, kind: Kind) -> Self {
        Self { wire, kind, is_blocked: false, is_dirty: false }
    }

    pub(super) fn trunk(wire: Wire, peer: RelayId, is_dialer: bool, now: Duration) -> Self {
        let trunk = Trunk {
            peer,
            parser: Parser::default(),
            ready: Bytes::new(),
            control: Vec::new(),
            pong: None,
            has_news: false,
            is_deaf: false,
            fair: Fair::default(),
            numbers: BTreeMap::new(),
            next: Some(if is_dialer { 1 } else { 2 }),
            theirs: 0,
            heard: now,
            used: now,
            is_outstanding: true,
            waits: Some(now),
            probed: now,
            pinged: None,
            round_trip: None,
        };
        Self::new(wire, Kind::Trunk(Box::new(trunk)))
    }
}

impl Trunk {
    /// Whether it has anything to send, or may have.
    pub(super) fn is_waiting(&self) -> bool {
        self.fair.len() > 0 || self.waiting_cells() > 0 || self.has_news || self.pong.is_some()
    }

    /// Bytes of cells other than data that it has not taken.
    pub(super) fn waiting_cells(&self) -> usize {
        self.ready.len() + self.control.len()
    }

    /// The next of the cells other than data, at most `most` bytes; `None` if there are none.
    pub(super) fn take_cells(&mut self, most: usize) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.ready = std::mem::take(&mut self.control).into();
        }
        let cells = self.ready.split_to(self.ready.len().min(most));
        (!cells.is_empty()).then_some(cells)
    }

    /// A number for a circuit that we open.
    pub(super) fn give_number(&mut self) -> Option<u32> {
        let number = self.next?;
        self.next = number.checked_add(2);
        Some(number)
    }

    /// Whether this number is one of ours to give.
    pub(super) fn is_ours(&self, number: u32) -> bool {
        // What is given next has the same parity as all before; when none is left it is known from theirs.
        match self.next {
            Some(next) => number % 2 == next % 2,
            None => self.theirs == 0 || number % 2 != self.theirs % 2,
        }
    }

    /// Whether the number was ever given.
    pub(super) fn was_opened(&self, number: u32) -> bool {
        if self.is_ours(number) {
            self.next.is_none_or(|next| number < next)
        } else {
            number <= self.theirs
        }
    }
}
