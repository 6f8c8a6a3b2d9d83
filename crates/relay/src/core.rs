//! What a relay decides, without I/O: it is handed connections, bytes and the time, and asked what to do.
//!
//! Bytes are not kept where that can be helped: what came from another relay is passed on from the buffer it was read to,
//! and what a process sends stays in its socket until the connection that it leaves by has room and its turn has come.

mod cells;
#[cfg(any(test, fuzzing))]
mod check;
mod circuit;
mod link;
mod missed;
mod opening;
mod serve;
#[cfg(test)]
mod tests;
mod ticks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use gridmpi_wire::{CircuitId, JobId, LegNotice, LegVerdict, ProcId, RelayAddress};

use crate::arena::{Arena, Key};
use crate::budget::Budget;
use crate::cell::{Cell, CellError, FIRST_WINDOW, HEAD, Reason, RelayId};
use crate::routes::{Account, Routes};

pub use circuit::Circuit;
use circuit::{Flow, Side};
use link::Kind;
pub use link::Link;
use missed::Missed;
pub use serve::BATCH;

/// A connection, as the core knows it.
pub type LinkKey = Key<Link>;
type CircuitKey = Key<Circuit>;

/// A connection, as whoever drives the core knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wire(pub u64);

/// Pieces of a flow for which room is kept from one read to the next.
const FRESH: usize = 16;

/// Bounds of what a relay takes on.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that may be granted to senders together, and so be held.
    pub memory: usize,
    /// Circuits at a time. Of these, of `memory` and of `connections` one job leaves an eighth for others.
    pub circuits: usize,
    /// Connections at a time, legs and those to other relays together: as many as descriptors allow. Only legs are refused.
    pub connections: usize,
    /// Paths that one connection to another relay may tell.
    pub routes: usize,
    /// Bytes of cells other than data that may wait for another relay to read.
    pub cells: usize,
    /// How long a process has to accept a circuit.
    pub accept: Duration,
    /// How long another relay has to answer.
    pub answer: Duration,
    /// How long after something was sent on a connection between relays it must be seen to arrive; and how often an unused
    /// one is tried while processes use this relay, so that none is led a way that is no more.
    pub probe: Duration,
    /// How long a connection may rest otherwise before it is used, so that whatever stands between keeps it.
    pub keepalive: Duration,
    /// Silence after which a connection is dead.
    pub dead: Duration,
    /// How long a circuit has to rest before it gives back what it may send beyond its first window.
    pub rest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256_000_000,
            circuits: 65_536,
            connections: usize::MAX,
            routes: 4096,
            cells: 16 << 20,
            accept: Duration::from_secs(10),
            answer: Duration::from_secs(12),
            probe: Duration::from_millis(250),
            keepalive: Duration::from_secs(10),
            dead: Duration::from_millis(1250),
            rest: Duration::from_secs(5),
        }
    }
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::circuits`].
    Circuits,
    /// [`Limits::connections`].
    Connections,
    /// Clusters of one job whose processes register here.
    Clusters,
}

/// What is to be done with a connection. `Close`, `Reset` and a refusal are the last that is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a leg what has come of its request; close it after a refusal.
    Answer(Wire, LegVerdict),
    /// Tell a process that has registered.
    Notice(Wire, LegNotice),
    /// Nothing more will be sent: pass that on.
    Shutdown(Wire),
    /// Close in order.
    Close(Wire),
    /// Close so that the other side sees a reset.
    Reset(Wire),
    /// Another relay has fallen silent: close.
    Dead(Wire),
    /// Another relay does not read what it is told: close.
    Deaf(Wire),
}

/// What a leg's socket has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Bytes, where [`Wires::pulled`] shows them until the next push. `is_last`: there are no more for now, and who drives
    /// the core will say [`Core::readable`] when there are.
    Bytes {
        /// Where they are.
        range: Range<usize>,
        /// Whether the socket is empty.
        is_last: bool,
    },
    /// None for now.
    Empty,
    /// The other side will send no more.
    End,
    /// The connection is gone; who drives the core will say so.
    Failed,
}

/// Bytes to be sent.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// The head of a cell.
    Head([u8; HEAD]),
    /// Bytes as they came in.
    Slice(&'a [u8]),
    /// Bytes pulled from a leg.
    Pulled(Range<usize>),
    /// Bytes that were kept.
    Held(Bytes),
}

impl Piece<'_> {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Head(head) => head.len(),
            Self::Slice(slice) => slice.len(),
            Self::Pulled(range) => range.len(),
            Self::Held(bytes) => bytes.len(),
        }
    }
}

/// What has become of bytes to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// How many were taken, from the first on. A connection to another relay takes all, and keeps what it cannot send.
    pub bytes: usize,
    /// No more is to be pushed until [`Core::writable`].
    pub is_blocked: bool,
}

/// The connections, as the core uses them. Nothing of it waits. What fails is told to the core later, by [`Core::gone`]; until
/// then bytes for it are taken and dropped.
pub trait Wires {
    /// Takes at most `most` bytes, at least 1, from a leg.
    fn pull(&mut self, wire: Wire, most: usize) -> Pull;
    /// What was pulled since the last push.
    fn pulled(&self, range: Range<usize>) -> &[u8];
    /// Sends.
    fn push(&mut self, wire: Wire, pieces: &[Piece<'_>]) -> Pushed;
    /// Does it.
    fn act(&mut self, action: Action);
}

/// What has been done so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Circuits that stood.
    pub opened: u64,
    /// Requests of legs and of other relays refused, by verdict's code.
    pub refused: [u64; 16],
    /// Circuits that ended before their time, by reason's code.
    pub resets: [u64; Reason::ALL.len()],
    /// Bytes of circuits that came in.
    pub bytes_in: u64,
    /// Bytes of circuits that went out.
    pub bytes_out: u64,
    /// Bytes that had to be kept, and so copied.
    pub bytes_held: u64,
    /// Cells that came.
    pub cells_in: u64,
    /// Those of them that ask for more than to pass something on: circuits that are to be opened, ways.
    pub asking_in: u64,
    /// Cells that went.
    pub cells_out: u64,
    /// Paths that were not kept since a peer told too many.
    pub routes_refused: u64,
}

/// What stands now.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    /// Circuits that stand or are being opened.
    pub circuits: usize,
    /// Processes that have registered.
    pub registered: usize,
    /// Connections of processes and to other relays.
    pub connections: usize,
    /// Most that they may be.
    pub most_connections: usize,
    /// Spans of processes for which there is a way.
    pub routes: usize,
    /// Ways of which other relays are still to be told.
    pub untold: usize,
    /// Bytes that senders are granted together.
    pub granted: usize,
    /// Most that they may be.
    pub budget: usize,
    /// Bytes that are held.
    pub held: usize,
    /// Circuits and bytes passed on so far of each job that has any.
    pub jobs: BTreeMap<JobId, JobUse>,
}

/// What one job uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobUse {
    /// Circuits that stand or are being opened.
    pub circuits: usize,
    /// Bytes passed on by those.
    pub bytes: u64,
}

/// A relay's decisions.
#[derive(Debug)]
pub struct Core {
    limits: Limits,
    now: Duration,
    budget: Budget,
    /// Connections of processes, and places for those that were called to make one.
    places: Budget,
    /// Circuits, as jobs share them.
    shares: Budget,
    links: Arena<Link>,
    /// Those of them that lead to other relays.
    trunks: Vec<LinkKey>,
    circuits: Arena<Circuit>,
    registered: HashMap<(JobId, ProcId), LinkKey>,
    /// Other relays that processes are told of.
    beside: Vec<RelayAddress>,
    routes: Routes,
    missed: Missed,
    /// Circuits that wait for a process to accept, by name.
    waiting: HashMap<CircuitId, CircuitKey>,
    /// When those that do not stand yet are given up.
    until: BTreeSet<(Duration, CircuitKey)>,
    next_name: u64,
    /// Connections that may have something to send now.
    dirty: VecDeque<LinkKey>,
    /// The same whose turn is over for now.
    again: Vec<LinkKey>,
    /// Flows with bytes in the buffer that is being read.
    fresh: Vec<(CircuitKey, Side)>,
    /// Flows whose senders have more than they may send.
    wanting: Vec<(CircuitKey, Side)>,
    /// Flows that may have more than their first window, and have to give it back when they rest.
    grown: Vec<(CircuitKey, Side)>,
    actions: VecDeque<Action>,
    rested: Duration,
    tended: Duration,
    /// What [`Self::next_due`] said when it was last asked whether that may have changed.
    told: Option<Duration>,
    /// Something may be due earlier by now.
    is_sooner: bool,
    is_draining: bool,
    /// Why somebody was refused lately.
    full: Option<Bound>,
    counts: Counts,
}

impl Core {
    /// A relay with this name.
    #[must_use]
    pub fn new(me: RelayId, limits: Limits) -> Self {
        Self {
            now: Duration::ZERO,
            budget: Budget::new(limits.memory),
            places: Budget::new(limits.connections),
            shares: Budget::new(limits.circuits),
            links: Arena::default(),
            trunks: Vec::new(),
            circuits: Arena::default(),
            registered: HashMap::new(),
            beside: Vec::new(),
            routes: Routes::new(me, limits.routes),
            missed: Missed::default(),
            waiting: HashMap::new(),
            until: BTreeSet::new(),
            next_name: 1,
            dirty: VecDeque::new(),
            again: Vec::new(),
            fresh: Vec::new(),
            wanting: Vec::new(),
            grown: Vec::new(),
            actions: VecDeque::new(),
            rested: Duration::ZERO,
            tended: Duration::ZERO,
            told: None,
            is_sooner: true,
            is_draining: false,
            full: None,
            counts: Counts::default(),
            limits,
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What stands now. Looks at every circuit.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            circuits: self.circuits.len(),
            registered: self.registered.len(),
            connections: self.links.len(),
            most_connections: self.limits.connections,
            routes: self.routes.all().count(),
            untold: self.routes.untold(),
            granted: self.budget.used(),
            budget: self.budget.total(),
            ..Gauges::default()
        };
        for (_, circuit) in self.circuits.iter() {
            gauges.held += circuit.flows.iter().map(|flow| flow.held.len()).sum::<usize>();
            let of_job = gauges.jobs.entry(circuit.job).or_default();
            of_job.circuits += 1;
            of_job.bytes += circuit.flows.iter().map(|flow| flow.passed).sum::<u64>();
        }
        gauges
    }

    /// What there was too little of since this was last asked, so that somebody was refused.
    pub fn take_full(&mut self) -> Option<Bound> {
        self.full.take()
    }

    /// How many circuits stand or are being opened.
    #[must_use]
    pub fn circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Other bounds from now on. What is above them stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.budget.set_total(limits.memory);
        self.shares.set_total(limits.circuits);
        self.limits = limits;
        self.share_places();
        self.is_sooner = true;
    }

    /// What connections to other relays leave is for processes.
    fn share_places(&mut self) {
        self.places.set_total(self.limits.connections.saturating_sub(self.trunks.len()));
    }

    /// Other relays that processes may use as well: those that are registered are told of the new ones now, those that will
    /// be of all. What is named no longer is told to nobody else; who uses it goes on. Returns how many processes are told now.
    pub fn set_beside(&mut self, beside: Vec<RelayAddress>) -> usize {
        let fresh: Vec<_> =
            beside.iter().filter(|relay| !self.beside.contains(relay)).copied().collect();
        self.beside = beside;
        if fresh.is_empty() {
            return 0;
        }
        for link in self.registered.values().filter_map(|key| self.links.get(*key)) {
            let told = fresh.iter().map(|relay| LegNotice::Beside(*relay));
            self.actions.extend(told.map(|notice| Action::Notice(link.wire, notice)));
        }
        self.registered.len()
    }

    /// Takes nothing new from now on; those who have registered are sent away.
    pub fn drain(&mut self) {
        self.is_draining = true;
        for key in self.links.keys() {
            if let Some(link) = self.links.get(key)
                && matches!(link.kind, Kind::Registered { .. })
            {
                self.actions.push_back(Action::Close(link.wire));
                self.unregister(key);
            }
        }
        self.routes.fall_silent();
        self.spread_news();
    }

    /// Ends every circuit.
    pub fn end(&mut self) {
        for key in self.circuits.keys() {
            self.cut(key, Reason::Ending, LegVerdict::Draining, None);
        }
    }

    /// A connection between relays stands. `peer`: the other's name, and what it has proven. `is_dialer`: we have dialled.
    /// `jobs`: those that may cross it; `None`: all.
    pub fn trunk_up(
        &mut self,
        wire: Wire,
        peer: (RelayId, Account),
        is_dialer: bool,
        jobs: Option<Vec<JobId>>,
    ) -> LinkKey {
        let now = self.now;
        let key = self.links.insert(Link::trunk(wire, peer.0, is_dialer, now));
        self.trunks.push(key);
        self.share_places();
        self.is_sooner = true;
        self.routes.link_up(key, peer, jobs);
        self.spread_news();
        key
    }

    /// Other jobs may cross a connection between relays from now on. Circuits that stand go on.
    pub fn set_jobs(&mut self, key: LinkKey, jobs: Option<Vec<JobId>>) {
        self.routes.set_jobs(key, jobs);
        self.spread_news();
    }

    /// The time, as it goes on since some beginning. To be told before all else that happens at that time.
    pub fn at(&mut self, now: Duration) {
        self.now = now;
    }

    /// A connection is gone, in whatever way.
    pub fn gone(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else { return };
        match &mut link.kind {
            Kind::Registered { .. } => self.unregister(key),
            Kind::Leg { circuit, .. } => {
                let circuit = *circuit;
                self.cut(circuit, Reason::Reset, LegVerdict::Unanswered, Some(key));
                self.links.remove(key);
            }
            Kind::Trunk(trunk) => {
                let circuits: Vec<_> =
                    trunk.numbers.values().map(|(circuit, _)| *circuit).collect();
                for circuit in circuits {
                    self.cut(circuit, Reason::Lost, LegVerdict::Unanswered, Some(key));
                }
                self.links.remove(key);
                self.trunks.retain(|other| *other != key);
                self.share_places();
                self.routes.link_down(key);
                self.spread_news();
            }
        }
    }

    /// A leg's socket may have bytes, or its end.
    pub fn readable(&mut self, key: LinkKey) {
        let Some(Link { kind: Kind::Leg { circuit, side }, .. }) = self.links.get(key) else {
            return;
        };
        let (circuit, side) = (*circuit, *side);
        if let Some(found) = self.circuits.get_mut(circuit) {
            found.flows[side as usize].is_readable = true;
            self.wake(circuit, side);
        }
    }

    /// A connection takes bytes again.
    pub fn writable(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key) {
            link.is_blocked = false;
            self.mark(key);
        }
    }

    /// Something was seen of the other relay's host, though it may have said nothing.
    pub fn heard(&mut self, key: LinkKey) {
        let now = self.now;
        if let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(key) {
            trunk.seen(now);
        }
    }

    /// The connections to other relays that stand.
    pub fn trunks(&self) -> impl Iterator<Item = (LinkKey, Wire)> {
        self.trunks.iter().filter_map(|key| Some((*key, self.links.get(*key)?.wire)))
    }

    /// The round trip to another relay as last measured.
    #[must_use]
    pub fn round_trip(&self, key: LinkKey) -> Option<Duration> {
        match &self.links.get(key)?.kind {
            Kind::Trunk(trunk) => trunk.round_trip,
            _ => None,
        }
    }

    /// Whether there is more to do at once than the last [`Self::flush`] had time for.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.dirty.is_empty() || !self.actions.is_empty()
    }

    /// Passes on everything that can be passed on. `inbound` holds what [`Self::receive`] was handed; it may be used anew
    /// afterwards.
    pub fn flush(&mut self, inbound: &[u8], wires: &mut impl Wires) {
        if self.is_idle() {
            return;
        }
        loop {
            while let Some(action) = self.actions.pop_front() {
                wires.act(action);
            }
            let Some(key) = self.dirty.pop_front() else { break };
            self.serve(key, inbound, wires);
        }
        self.settle(inbound);
        self.grow_wanting();
        self.dirty.extend(self.again.drain(..));
    }

    /// Whether nothing is left to be done that was begun.
    fn is_idle(&self) -> bool {
        self.dirty.is_empty()
            && self.actions.is_empty()
            && self.fresh.is_empty()
            && self.wanting.is_empty()
    }

    /// The connection may have something to send.
    fn mark(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !link.is_dirty
        {
            link.is_dirty = true;
            self.dirty.push_back(key);
        }
    }

    /// Tells other relays what has changed.
    fn spread_news(&mut self) {
        for key in self.routes.with_news() {
            if let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(key) {
                trunk.has_news = true;
                self.mark(key);
            }
        }
    }

    /// Puts a cell other than data on its way.
    fn say(&mut self, key: LinkKey, circuit: u32, cell: &Cell) {
        if let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(key) {
            if trunk.waiting_cells() >= self.limits.cells {
                // It ends when its turn comes.
                trunk.is_deaf = true;
            } else {
                cell.encode(circuit, &mut trunk.control);
            }
            if !matches!(cell, Cell::Ping(_)) {
                self.is_sooner |= trunk.sent(self.now);
            }
            self.counts.cells_out += 1;
            self.mark(key);
        }
    }

    /// What came of a circuit's bytes that could not be passed on is kept.
    fn settle(&mut self, inbound: &[u8]) {
        for (key, side) in self.fresh.drain(..) {
            let Some(circuit) = self.circuits.get_mut(key) else { continue };
            let flow = &mut circuit.flows[side as usize];
            let mut count = 0;
            for range in flow.fresh.drain(..) {
                let bytes = inbound.get(range).unwrap_or_default();
                flow.held.push(bytes);
                count += bytes.len();
            }
            if flow.fresh.capacity() > FRESH {
                flow.fresh = VecDeque::new();
            }
            self.counts.bytes_held += count as u64;
        }
    }

    /// Somebody is refused for want of it.
    fn full(&mut self, bound: Bound) -> LegVerdict {
        self.full = Some(bound);
        LegVerdict::Full
    }

    fn charge(&mut self, job: JobId, flows: &mut [Flow; 2], windows: [bool; 2]) -> bool {
        let count = windows.iter().filter(|has| **has).count();
        if !self.budget.take(job, count * FIRST_WINDOW) {
            return false;
        }
        for (flow, has) in flows.iter_mut().zip(windows) {
            if has {
                flow.window = FIRST_WINDOW;
                flow.granted = FIRST_WINDOW;
            }
        }
        true
    }
}

/// Why a peer's cells end its connection.
pub type Violation = CellError;
