//! What another relay says.

use std::ops::Range;

use gridmpi_wire::LegVerdict;

use super::circuit::{End, Side, State};
use super::link::{Kind, Link, Trunk};
use super::opening::Wanted;
use super::{CircuitKey, Core, LinkKey, Violation};
use crate::cell::{Cell, CellError, FIRST_WINDOW, Item, MAX_WINDOW, Reason};

impl Core {
    /// Bytes came on a connection to another relay: `range` of `inbound`, which is to be handed to [`Self::flush`] after one or
    /// several of these.
    ///
    /// # Errors
    /// The other relay does not keep to the protocol: close the connection and say [`Self::gone`].
    pub fn receive(
        &mut self,
        key: LinkKey,
        inbound: &[u8],
        range: Range<usize>,
    ) -> Result<(), Violation> {
        let now = self.now;
        let bytes = inbound.get(..range.end).unwrap_or_default();
        let mut at = range.start;
        loop {
            let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(key) else {
                return Ok(());
            };
            trunk.seen(now);
            let Some(item) = trunk.parser.next(bytes, &mut at)? else { return Ok(()) };
            self.counts.cells_in += 1;
            match item {
                Item::Data(number, range) => self.data(key, number, range)?,
                Item::Cell(number, cell) => {
                    let is_asking =
                        matches!(cell, Cell::Open { .. } | Cell::Route(..) | Cell::Withdraw(_));
                    self.counts.asking_in += u64::from(is_asking);
                    self.cell(key, number, cell)?;
                }
            }
            if at == bytes.len() {
                return Ok(());
            }
        }
    }

    fn trunk(&mut self, key: LinkKey) -> Option<&mut Trunk> {
        match self.links.get_mut(key) {
            Some(Link { kind: Kind::Trunk(trunk), .. }) => Some(trunk),
            _ => None,
        }
    }

    /// The circuit of this number; `None` when it has ended here, which the other side may not know yet.
    fn find(&mut self, key: LinkKey, number: u32) -> Result<Option<(CircuitKey, Side)>, Violation> {
        let Some(trunk) = self.trunk(key) else { return Ok(None) };
        match trunk.numbers.get(&number) {
            Some(found) => Ok(Some(*found)),
            None if trunk.was_opened(number) => Ok(None),
            None => Err(CellError::NeverOpened(number)),
        }
    }

    fn data(&mut self, key: LinkKey, number: u32, range: Range<usize>) -> Result<(), Violation> {
        let count = range.len();
        let Some((circuit, side)) = self.find(key, number)? else { return Ok(()) };
        let now = self.now;
        let Some(found) = self.circuits.get_mut(circuit) else { return Ok(()) };
        let may_send = side == Side::Opener || found.is_standing();
        let flow = &mut found.flows[side as usize];
        if flow.has_ended || !may_send {
            return Err(CellError::Turn(number, "data"));
        }
        flow.granted = flow.granted.checked_sub(count).ok_or(CellError::Credit(number))?;
        flow.since_growth = flow.since_growth.saturating_add(count);
        flow.used = now;
        if flow.fresh.is_empty() {
            self.fresh.push((circuit, side));
        }
        flow.fresh.push_back(range);
        self.counts.bytes_in += count as u64;
        self.wake(circuit, side);
        Ok(())
    }

    fn cell(&mut self, key: LinkKey, number: u32, cell: Cell) -> Result<(), Violation> {
        match cell {
            Cell::Open { job, from, to, hops } => {
                return self.opened(key, number, Wanted { job, from, to, hops });
            }
            Cell::Route(span, path) => {
                if !self.routes.learn(key, span, path)? {
                    self.counts.routes_refused += 1;
                }
                self.spread_news();
                return Ok(());
            }
            Cell::Withdraw(span) => {
                self.routes.withdraw(key, span);
                self.spread_news();
                return Ok(());
            }
            Cell::Ping(value) => {
                // Nobody waits for the answer to one before the last.
                if let Some(trunk) = self.trunk(key) {
                    trunk.pong = Some(value);
                    self.mark(key);
                }
                return Ok(());
            }
            Cell::Pong(value) => {
                self.ponged(key, value);
                return Ok(());
            }
            _ => {}
        }
        let Some((circuit, side)) = self.find(key, number)? else { return Ok(()) };
        match cell {
            Cell::Answer(verdict) => self.answered(key, number, circuit, side, verdict),
            Cell::Credit(bytes) => self.credited(number, circuit, side, bytes as usize),
            Cell::Blocked => self.blocked(number, circuit, side),
            Cell::Return(bytes) => self.returned(number, circuit, side, bytes as usize),
            Cell::Fin => self.ended(number, circuit, side),
            Cell::Reset(reason) => {
                let verdict = match reason {
                    Reason::Ending => LegVerdict::Draining,
                    _ => LegVerdict::Unanswered,
                };
                self.cut(circuit, reason, verdict, Some(key));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn opened(&mut self, key: LinkKey, number: u32, wanted: Wanted) -> Result<(), Violation> {
        let Some(trunk) = self.trunk(key) else { return Ok(()) };
        if trunk.is_ours(number) || number <= trunk.theirs {
            return Err(CellError::Number(number));
        }
        trunk.theirs = number;
        let peer = trunk.peer;
        if !self.routes.may_cross(key, &wanted.job) {
            self.count_refusal(LegVerdict::JobNotAllowed);
            self.say(key, number, &Cell::Answer(LegVerdict::NoRoute));
            return Ok(());
        }
        let end = |core: &mut Self, circuit| {
            if let Some(trunk) = core.trunk(key) {
                trunk.numbers.insert(number, (circuit, Side::Opener));
            }
            End::Trunk(key, number)
        };
        if let Err(verdict) = self.open(wanted, Some(peer), end) {
            self.count_refusal(verdict);
            self.say(key, number, &Cell::Answer(verdict));
        }
        Ok(())
    }

    fn answered(
        &mut self,
        key: LinkKey,
        number: u32,
        circuit: CircuitKey,
        side: Side,
        verdict: LegVerdict,
    ) -> Result<(), Violation> {
        let Some(found) = self.circuits.get(circuit) else { return Ok(()) };
        if side != Side::Other || !matches!(found.state, State::Asked(_)) {
            return Err(CellError::Turn(number, "an answer"));
        }
        let what = (found.job, found.to, key);
        match verdict {
            LegVerdict::Accepted => self.missed.found(what),
            LegVerdict::NoRoute => self.missed.note(what, self.now),
            _ => {}
        }
        match verdict {
            LegVerdict::Accepted => self.stand(circuit),
            verdict => self.cut(circuit, Reason::Reset, verdict, Some(key)),
        }
        Ok(())
    }

    /// The next relay grants more of the flow that leaves by its end, `side`.
    fn credited(
        &mut self,
        number: u32,
        circuit: CircuitKey,
        side: Side,
        bytes: usize,
    ) -> Result<(), Violation> {
        let flow_side = side.across();
        if let Some(found) = self.circuits.get_mut(circuit) {
            let flow = &mut found.flows[flow_side as usize];
            flow.credit += bytes;
            if flow.credit > MAX_WINDOW {
                return Err(CellError::Credit(number));
            }
            flow.has_said_blocked = false;
            let has_grown = flow.credit > FIRST_WINDOW;
            self.wake(circuit, flow_side);
            if has_grown {
                self.watch_grown(circuit, flow_side);
            }
        }
        Ok(())
    }

    fn blocked(&mut self, number: u32, circuit: CircuitKey, side: Side) -> Result<(), Violation> {
        let Some(found) = self.circuits.get_mut(circuit) else { return Ok(()) };
        let flow = &mut found.flows[side as usize];
        if flow.blocked > flow.credits {
            return Err(CellError::Turn(number, "BLOCKED"));
        }
        flow.blocked += 1;
        self.wanting.push((circuit, side));
        Ok(())
    }

    fn returned(
        &mut self,
        number: u32,
        circuit: CircuitKey,
        side: Side,
        bytes: usize,
    ) -> Result<(), Violation> {
        let Some(found) = self.circuits.get_mut(circuit) else { return Ok(()) };
        let (job, flow) = (found.job, &mut found.flows[side as usize]);
        if bytes > flow.granted || flow.window - bytes < FIRST_WINDOW {
            return Err(CellError::Credit(number));
        }
        flow.granted -= bytes;
        flow.window -= bytes;
        self.budget.give(job, bytes);
        Ok(())
    }

    fn ended(&mut self, number: u32, circuit: CircuitKey, side: Side) -> Result<(), Violation> {
        let Some(found) = self.circuits.get_mut(circuit) else { return Ok(()) };
        let may_send = side == Side::Opener || found.is_standing();
        let flow = &mut found.flows[side as usize];
        if flow.has_ended || !may_send {
            return Err(CellError::Turn(number, "the end"));
        }
        flow.has_ended = true;
        self.wake(circuit, side);
        Ok(())
    }

    /// Looks at those whose senders have more than they may send, once it is seen what could be passed on.
    pub(super) fn grow_wanting(&mut self) {
        for (circuit, side) in std::mem::take(&mut self.wanting) {
            self.grow(circuit, side);
        }
    }

    /// The sender has more than it may send. Where that was not because of what we could not pass on it is granted more.
    fn grow(&mut self, circuit: CircuitKey, side: Side) {
        let most = (self.limits.memory / 16).clamp(FIRST_WINDOW, MAX_WINDOW);
        let Some(found) = self.circuits.get_mut(circuit) else { return };
        let sink = found.sink(side).link().and_then(|link| self.links.get(link));
        let is_way_free = sink.is_some_and(|link| !link.is_blocked);
        let (job, flow) = (found.job, &mut found.flows[side as usize]);
        let more = flow.window.min(most.saturating_sub(flow.window));
        let was_used = flow.since_growth >= flow.window / 2;
        if is_way_free
            && flow.held.is_empty()
            && was_used
            && more > 0
            && self.budget.grow(job, more)
        {
            flow.window += more;
            flow.returning += more;
            flow.since_growth = 0;
        }
        self.give_back(circuit, side, true);
    }

    /// Grants anew what was passed on, once it is worth a cell.
    pub(super) fn give_back(&mut self, circuit: CircuitKey, side: Side, is_urgent: bool) {
        let Some(found) = self.circuits.get_mut(circuit) else { return };
        let End::Trunk(link, number) = found.ends[side as usize] else { return };
        let flow = &mut found.flows[side as usize];
        let is_worth_it = is_urgent || flow.returning >= flow.window / 4;
        if flow.returning == 0 || !is_worth_it || flow.has_ended {
            return;
        }
        let bytes = std::mem::take(&mut flow.returning);
        flow.granted += bytes;
        flow.credits = flow.credits.saturating_add(1);
        self.say(link, number, &Cell::Credit(bytes as u32));
    }
}
