//! A circuit: two ends, and a flow of bytes each way.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use gridmpi_wire::{CircuitId, JobId, ProcId};

use super::{LinkKey, Wire};
use crate::held::Held;

/// One of the two ends, and the flow that comes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Where it was opened from.
    Opener = 0,
    /// Where it leads to.
    Other = 1,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Opener, Self::Other];

    pub(super) fn across(self) -> Self {
        match self {
            Self::Opener => Self::Other,
            Self::Other => Self::Opener,
        }
    }
}

/// What a circuit ends in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody has come yet.
    Nobody,
    Leg(LinkKey),
    Trunk(LinkKey, u32),
}

impl End {
    pub(super) fn link(self) -> Option<LinkKey> {
        match self {
            Self::Nobody => None,
            Self::Leg(link) | Self::Trunk(link, _) => Some(link),
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The process it leads to has been told.
    Waiting(CircuitId, Duration),
    /// The next relay was asked.
    Asked(Duration),
    Standing,
}

/// A two-way flow of bytes between two processes.
#[derive(Debug)]
pub struct Circuit {
    pub(super) job: JobId,
    pub(super) to: ProcId,
    pub(super) state: State,
    /// By [`Side`].
    pub(super) ends: [End; 2],
    /// By the side that they come from.
    pub(super) flows: [Flow; 2],
    /// The clusters of both sides, by their lowest process.
    pub(super) clusters: [ProcId; 2],
    /// How many places for connections it takes: its legs', those that are still to come as well.
    pub(super) places: usize,
}

/// What goes one way.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Came, and could not be passed on yet.
    pub(super) held: Held,
    /// The same in the buffer that is being read.
    pub(super) fresh: VecDeque<Range<usize>>,
    /// What the sender was granted and has not been given anew: `granted`, what is held or fresh, and `returning` together.
    /// Of what comes from a leg and goes to a leg, most that is held. Charged to the budget.
    pub(super) window: usize,
    /// Of it the sender may still send so much.
    pub(super) granted: usize,
    /// Of it so much was passed on, and is to be granted anew.
    pub(super) returning: usize,
    /// Came since the window last grew.
    pub(super) since_growth: usize,
    /// So much may be sent to the next relay.
    pub(super) credit: usize,
    /// How often the sender has said that it has more, and was granted something: it may say so once after each time.
    pub(super) blocked: u32,
    pub(super) credits: u32,
    /// The next relay knows that there is more.
    pub(super) has_said_blocked: bool,
    /// The leg it comes from.
    pub(super) leg: Option<Wire>,
    /// That may have bytes.
    pub(super) is_readable: bool,
    /// It is in line on the connection that it leaves by.
    pub(super) is_in_line: bool,
    /// It is among those that may have more than their first window.
    pub(super) is_grown: bool,
    /// Its end has come.
    pub(super) has_ended: bool,
    /// Its end was passed on.
    pub(super) is_done: bool,
    pub(super) passed: u64,
    pub(super) used: Duration,
}

impl Flow {
    /// Whether there are bytes to pass on, perhaps.
    pub(super) fn has_bytes(&self) -> bool {
        !self.held.is_empty() || !self.fresh.is_empty() || self.is_readable
    }

    /// Whether the end is all that is to be passed on.
    pub(super) fn is_at_end(&self) -> bool {
        self.has_ended && !self.is_done && !self.has_bytes()
    }
}

impl Circuit {
    pub(super) fn new(job: JobId, from: ProcId, to: ProcId, opener: End, state: State) -> Self {
        Self {
            job,
            to,
            state,
            ends: [opener, End::Nobody],
            flows: [Flow::default(), Flow::default()],
            clusters: [from, to],
            places: 0,
        }
    }

    pub(super) fn is_standing(&self) -> bool {
        self.state == State::Standing
    }

    /// What the flow from this side leaves by, if it may already.
    pub(super) fn sink(&self, side: Side) -> End {
        match side {
            Side::Other if !self.is_standing() => End::Nobody,
            _ => self.ends[side.across() as usize],
        }
    }

    pub(super) fn charged(&self) -> usize {
        self.flows.iter().map(|flow| flow.window).sum()
    }
}
