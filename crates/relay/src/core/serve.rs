//! Passing on.

use std::ops::Range;

use smallvec::SmallVec;

use super::circuit::{Circuit, End, Flow, Side};
use super::link::{Kind, Link};
use super::{Action, CircuitKey, Core, LinkKey, Piece, Pull, Wire, Wires};
use crate::cell::{Cell, MAX_DATA, data_head};
use crate::fair::QUANTUM;

/// Most bytes of circuits in one push; what is pulled between two is never more.
pub const BATCH: usize = 256 * 1024;

/// Most bytes on one connection before others get their turn.
const TURN: usize = 1 << 20;

/// Pieces after which a push is made. Few enough for one system call, with those that the last circuit adds.
const PIECES: usize = 768;

/// Most pieces of one cell of data.
const PIECES_OF_CELL: usize = 64;

/// As a small message needs no more, it takes no memory.
type Pieces<'a> = SmallVec<[Piece<'a>; 4]>;

/// What goes in one push.
#[derive(Debug, Default)]
struct Batch<'a> {
    pieces: Pieces<'a>,
    bytes: usize,
    /// Cells of data.
    cells: u64,
    /// Flows of which something was passed on.
    passed: SmallVec<[(CircuitKey, Side); 2]>,
    /// Circuits of which an end was passed on.
    ended: Vec<CircuitKey>,
}

impl Core {
    /// The flow from this side may have something to pass on.
    pub(super) fn wake(&mut self, key: CircuitKey, side: Side) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        let (job, cluster) = (circuit.job, circuit.clusters[side as usize]);
        let sink = circuit.sink(side);
        let flow = &mut circuit.flows[side as usize];
        let (has_bytes, is_at_end) = (flow.has_bytes(), flow.is_at_end());
        match sink {
            End::Leg(link) if has_bytes || is_at_end => self.mark(link),
            End::Trunk(link, number) => {
                if flow.is_in_line {
                    self.mark(link);
                } else if (has_bytes && flow.credit > 0) || is_at_end {
                    if let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(link) {
                        flow.is_in_line = true;
                        trunk.fair.enter(job, cluster, (key, side));
                        self.mark(link);
                    }
                } else if has_bytes && !flow.has_said_blocked {
                    flow.has_said_blocked = true;
                    self.say(link, number, &Cell::Blocked);
                }
            }
            _ => {}
        }
    }

    /// Sends what the connection has to send, as far as it takes it.
    pub(super) fn serve(&mut self, key: LinkKey, inbound: &[u8], wires: &mut impl Wires) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.is_dirty = false;
        if matches!(&link.kind, Kind::Trunk(trunk) if trunk.is_deaf) {
            self.actions.push_back(Action::Deaf(link.wire));
            self.gone(key);
            return;
        }
        if link.is_blocked {
            return;
        }
        let wire = link.wire;
        let is_unfinished = match &link.kind {
            Kind::Trunk(_) => self.serve_trunk(key, wire, inbound, wires),
            Kind::Leg { circuit, side } => {
                let (circuit, side) = (*circuit, side.across());
                self.serve_leg(key, wire, circuit, side, inbound, wires)
            }
            Kind::Registered { .. } => false,
        };
        if is_unfinished && let Some(link) = self.links.get_mut(key) {
            link.is_dirty = true;
            self.again.push(key);
        }
    }

    /// Whether its turn ended before its bytes.
    fn serve_trunk(
        &mut self,
        key: LinkKey,
        wire: Wire,
        inbound: &[u8],
        wires: &mut impl Wires,
    ) -> bool {
        let mut sent = 0;
        while sent < TURN {
            let mut batch = Batch::default();
            self.gather(key, inbound, wires, &mut batch);
            if !batch.pieces.is_empty() {
                let pushed = wires.push(wire, &batch.pieces);
                if pushed.is_blocked
                    && let Some(link) = self.links.get_mut(key)
                {
                    link.is_blocked = true;
                }
            }
            sent += batch.bytes;
            self.counts.bytes_out += batch.bytes as u64;
            self.counts.cells_out += batch.cells;
            batch.passed.iter().for_each(|(circuit, side)| self.give_back(*circuit, *side, false));
            batch.ended.iter().for_each(|circuit| self.finish(*circuit));
            let may_go_on = self.links.get(key).is_some_and(|link| match &link.kind {
                Kind::Trunk(trunk) => !link.is_blocked && trunk.is_waiting(),
                _ => false,
            });
            if batch.pieces.is_empty() || !may_go_on {
                return false;
            }
        }
        true
    }

    /// Takes from those in line what goes in the next push.
    fn gather<'a>(
        &mut self,
        key: LinkKey,
        inbound: &'a [u8],
        wires: &mut impl Wires,
        batch: &mut Batch<'a>,
    ) {
        let Self { links, circuits, routes, counts, now, is_sooner, .. } = self;
        let Some(Link { kind: Kind::Trunk(trunk), .. }) = links.get_mut(key) else { return };
        if std::mem::take(&mut trunk.has_news) {
            for cell in routes.news(key) {
                cell.encode(0, &mut trunk.control);
                *is_sooner |= trunk.sent(*now);
                counts.cells_out += 1;
            }
        }
        if let Some(value) = trunk.pong.take() {
            Cell::Pong(value).encode(0, &mut trunk.control);
            counts.cells_out += 1;
        }
        if let Some(cells) = trunk.take_cells(BATCH) {
            batch.pieces.push(Piece::Held(cells));
            if trunk.waiting_cells() > 0 {
                // A cell may be cut here.
                return;
            }
        }
        while batch.bytes < BATCH && batch.pieces.len() < PIECES {
            let Some((key, side)) = trunk.fair.turn() else { break };
            let found = circuits.get_mut(key);
            let Some((circuit, number)) = found.and_then(|circuit| {
                let End::Trunk(_, number) = circuit.ends[side.across() as usize] else {
                    return None;
                };
                Some((circuit, number))
            }) else {
                // It was cut while it was in line.
                trunk.fair.leave();
                continue;
            };
            let is_from_trunk = matches!(circuit.ends[side as usize], End::Trunk(..));
            let flow = &mut circuit.flows[side as usize];
            let quantum = if trunk.fair.len() == 1 { BATCH } else { QUANTUM };
            let most = flow.credit.min(quantum).min(BATCH - batch.bytes);
            let before = batch.bytes;
            batch.take(flow, number, most, inbound, wires);
            let sent = batch.bytes - before;
            flow.credit -= sent;
            if sent > 0 {
                flow.passed += sent as u64;
                flow.used = *now;
                *is_sooner |= trunk.sent(*now);
            }
            if is_from_trunk && sent > 0 {
                flow.returning += sent;
                batch.passed.push((key, side));
            }
            // Never nothing: somebody whose leg gives nothing must not keep the turn.
            trunk.fair.spent(sent.max(64));
            if flow.has_bytes() && flow.credit > 0 {
                continue;
            }
            trunk.fair.leave();
            flow.is_in_line = false;
            batch.end_turn(flow, key, number);
        }
    }

    /// Whether its turn ended before its bytes. `side`: where those come from.
    fn serve_leg(
        &mut self,
        key: LinkKey,
        wire: Wire,
        circuit: CircuitKey,
        side: Side,
        inbound: &[u8],
        wires: &mut impl Wires,
    ) -> bool {
        let mut sent = 0;
        while sent < TURN {
            let Some(found) = self.circuits.get_mut(circuit) else { return false };
            if matches!(found.sink(side), End::Nobody) {
                return false;
            }
            let flow = &mut found.flows[side as usize];
            let mut pulled = None;
            if flow.held.is_empty() && flow.fresh.is_empty() {
                pulled = pull_for_leg(flow, wires);
            }
            let mut pieces = Pieces::new();
            flow.show(inbound, pulled.as_ref(), &mut pieces);
            let count: usize = pieces.iter().map(Piece::len).sum();
            if count == 0 {
                drop(pieces);
                self.shut_leg(wire, circuit, side);
                return false;
            }
            let pushed = wires.push(wire, &pieces);
            drop(pieces);
            let pushed_bytes = pushed.bytes.min(count);
            sent += pushed_bytes;
            let is_all = pushed_bytes == count;
            flow.consume(pushed_bytes, pulled, wires);
            flow.used = self.now;
            let may_go_on = flow.has_bytes() || flow.is_at_end();
            self.passed_to_leg(circuit, side, pushed_bytes, is_all);
            if pushed.is_blocked || !is_all {
                if let Some(link) = self.links.get_mut(key) {
                    link.is_blocked = true;
                }
                return false;
            }
            if !may_go_on {
                return false;
            }
        }
        true
    }

    /// Books what a leg has taken.
    fn passed_to_leg(&mut self, key: CircuitKey, side: Side, count: usize, is_all: bool) {
        self.counts.bytes_out += count as u64;
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        let is_from_trunk = matches!(circuit.ends[side as usize], End::Trunk(..));
        let flow = &mut circuit.flows[side as usize];
        flow.passed += count as u64;
        if is_from_trunk {
            flow.returning += count;
            self.give_back(key, side, false);
        } else {
            self.counts.bytes_in += count as u64;
            // All that the window let in has left at once.
            if is_all
                && count >= flow.window
                && count < BATCH
                && self.budget.grow(circuit.job, flow.window)
            {
                flow.window *= 2;
                self.watch_grown(key, side);
            }
        }
    }

    /// There are no more bytes for a leg: perhaps since there will be none.
    fn shut_leg(&mut self, wire: Wire, key: CircuitKey, side: Side) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        let flow = &mut circuit.flows[side as usize];
        if flow.is_at_end() {
            flow.is_done = true;
            self.actions.push_back(Action::Shutdown(wire));
            self.finish(key);
        }
    }
}

/// Takes bytes from the leg at the other end, no more than may be held.
fn pull_for_leg(flow: &mut Flow, wires: &mut impl Wires) -> Option<Range<usize>> {
    let leg = flow.leg?;
    if !flow.is_readable || flow.window == 0 {
        return None;
    }
    match wires.pull(leg, flow.window.min(BATCH)) {
        Pull::Bytes { range, is_last } => {
            flow.is_readable = !is_last;
            return Some(range);
        }
        Pull::End => flow.has_ended = true,
        Pull::Empty | Pull::Failed => {}
    }
    flow.is_readable = false;
    None
}

impl Flow {
    /// What a leg is to take next: what was held, is fresh and was pulled.
    fn show<'a>(
        &'a self,
        inbound: &'a [u8],
        pulled: Option<&Range<usize>>,
        pieces: &mut Pieces<'a>,
    ) {
        if !self.held.is_empty() {
            pieces.extend(self.held.slices(PIECES).map(Piece::Slice));
        }
        for range in &self.fresh {
            if pieces.len() >= PIECES {
                break;
            }
            pieces.push(Piece::Slice(inbound.get(range.clone()).unwrap_or_default()));
        }
        if let Some(range) = pulled {
            pieces.push(Piece::Pulled(range.clone()));
        }
    }

    /// A leg has taken so many of the bytes that were held, fresh or pulled; of what was pulled the rest is kept.
    fn consume(&mut self, mut count: usize, pulled: Option<Range<usize>>, wires: &impl Wires) {
        if !self.held.is_empty() {
            let from_held = count.min(self.held.len());
            self.held.consume(from_held);
            count -= from_held;
        }
        while let Some(range) = self.fresh.front_mut() {
            if range.len() > count {
                range.start += count;
                return;
            }
            count -= range.len();
            self.fresh.pop_front();
        }
        if let Some(range) = pulled {
            self.held.push(wires.pulled(range.start + count.min(range.len())..range.end));
        }
    }
}

impl<'a> Batch<'a> {
    /// Takes up to `most` bytes of a flow, as cells.
    fn take(
        &mut self,
        flow: &mut Flow,
        number: u32,
        most: usize,
        inbound: &'a [u8],
        wires: &mut impl Wires,
    ) {
        let end = self.bytes + most;
        while self.bytes < end && self.pieces.len() < PIECES {
            let room = (end - self.bytes).min(MAX_DATA);
            if let Some(bytes) = flow.held.take(room) {
                self.cell(number, bytes.len());
                self.pieces.push(Piece::Held(bytes));
            } else if !flow.fresh.is_empty() {
                self.take_fresh(flow, number, room, inbound);
            } else if let (Some(leg), true) = (flow.leg, flow.is_readable) {
                self.take_pulled(flow, number, leg, end - self.bytes, wires);
            } else {
                return;
            }
        }
    }

    fn cell(&mut self, number: u32, len: usize) {
        self.pieces.push(Piece::Head(data_head(number, len)));
        self.bytes += len;
        self.cells += 1;
    }

    /// One cell of what is being read, from however many cells it came in.
    fn take_fresh(&mut self, flow: &mut Flow, number: u32, room: usize, inbound: &'a [u8]) {
        let lens = flow.fresh.iter().take(PIECES_OF_CELL).map(|range| range.len());
        let mut left = lens.sum::<usize>().min(room);
        self.cell(number, left);
        while left > 0
            && let Some(range) = flow.fresh.front_mut()
        {
            let count = range.len().min(left);
            let slice = inbound.get(range.start..range.start + count).unwrap_or_default();
            self.pieces.push(Piece::Slice(slice));
            range.start += count;
            left -= count;
            if range.start >= range.end {
                flow.fresh.pop_front();
            }
        }
    }

    fn take_pulled(
        &mut self,
        flow: &mut Flow,
        number: u32,
        leg: Wire,
        most: usize,
        wires: &mut impl Wires,
    ) {
        match wires.pull(leg, most) {
            Pull::Bytes { range, is_last } => {
                let mut start = range.start;
                while start < range.end {
                    let until = range.end.min(start + MAX_DATA);
                    self.cell(number, until - start);
                    self.pieces.push(Piece::Pulled(start..until));
                    start = until;
                }
                flow.is_readable = !is_last;
                return;
            }
            Pull::End => flow.has_ended = true,
            Pull::Empty | Pull::Failed => {}
        }
        flow.is_readable = false;
    }

    /// The flow leaves the line: why, the other side may have to know.
    fn end_turn(&mut self, flow: &mut Flow, key: CircuitKey, number: u32) {
        let cell = if flow.has_bytes() {
            if std::mem::replace(&mut flow.has_said_blocked, true) {
                return;
            }
            Cell::Blocked
        } else if flow.is_at_end() {
            flow.is_done = true;
            self.ended.push(key);
            Cell::Fin
        } else {
            return;
        };
        let mut bytes = Vec::new();
        cell.encode(number, &mut bytes);
        self.pieces.push(Piece::Held(bytes.into()));
    }
}

impl Circuit {
    /// A leg is the end of this side from now on.
    pub(super) fn attach_leg(&mut self, side: Side, link: LinkKey, wire: Wire) {
        self.ends[side as usize] = End::Leg(link);
        self.flows[side as usize].leg = Some(wire);
    }
}
