//! How circuits come about and end.

use gridmpi_wire::{CircuitId, Errand, JobId, LegNotice, LegRequest, LegVerdict, ProcId};

use super::circuit::{Circuit, End, Side, State};
use super::link::{Kind, Link};
use super::{Action, Bound, CircuitKey, Core, LinkKey, Wire};
use crate::cell::{Cell, FIRST_WINDOW, MAX_HOPS, Reason, RelayId, Span};

/// Who wants a circuit to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) job: JobId,
    pub(super) from: ProcId,
    pub(super) to: ProcId,
    pub(super) hops: u8,
}

impl Core {
    /// A process that has proven itself asks for something. The connection is the core's from here on, unless it is refused:
    /// then `None`.
    pub fn ask(&mut self, wire: Wire, request: &LegRequest) -> Option<LinkKey> {
        let (job, from) = (request.job, request.from);
        let result = match request.errand {
            _ if self.is_draining => Err(LegVerdict::Draining),
            Errand::Register { first, count } => {
                self.register(wire, from, Span { job, first, count })
            }
            Errand::Open { to } => {
                let wanted = Wanted { job, from, to, hops: MAX_HOPS as u8 };
                self.open_from_leg(wire, wanted)
            }
            Errand::Accept { circuit } => self.accept(wire, job, from, circuit),
        };
        match result {
            Ok(key) => Some(key),
            Err(verdict) => {
                self.refuse(wire, verdict);
                None
            }
        }
    }

    /// The process that asks has proven a token that is not good for its job.
    pub fn forbid(&mut self, wire: Wire) {
        self.refuse(wire, LegVerdict::JobNotAllowed);
    }

    fn refuse(&mut self, wire: Wire, verdict: LegVerdict) {
        self.count_refusal(verdict);
        self.actions.push_back(Action::Answer(wire, verdict));
    }

    pub(super) fn count_refusal(&mut self, verdict: LegVerdict) {
        if let Some(count) = self.counts.refused.get_mut(verdict as usize) {
            *count += 1;
        }
    }

    fn register(&mut self, wire: Wire, process: ProcId, span: Span) -> Result<LinkKey, LegVerdict> {
        let job = span.job;
        let before = self.registered.get(&(job, process)).copied();
        let own = before.and_then(|key| match &self.links.get(key)?.kind {
            Kind::Registered { span, .. } => Some(*span),
            _ => None,
        });
        if !self.routes.may_add_local(span, own) {
            return Err(self.full(Bound::Clusters));
        }
        // Who comes again takes his own place: the leg that he had is dead, whether this relay knows it yet or not.
        if let Some(before) = before {
            if let Some(link) = self.links.get(before) {
                self.actions.push_back(Action::Close(link.wire));
            }
            self.strike(before);
        } else if !self.places.take(job, 1) {
            return Err(self.full(Bound::Connections));
        }
        let key = self.links.insert(Link::new(wire, Kind::Registered { job, process, span }));
        self.registered.insert((job, process), key);
        self.actions.push_back(Action::Answer(wire, LegVerdict::Accepted));
        for relay in &self.beside {
            self.actions.push_back(Action::Notice(wire, LegNotice::Beside(*relay)));
        }
        self.routes.add_local(span);
        self.spread_news();
        Ok(key)
    }

    pub(super) fn unregister(&mut self, key: LinkKey) {
        if let Some(job) = self.strike(key) {
            self.places.give(job, 1);
        }
    }

    /// Takes a registration off the books, but for its place. Whose it was.
    fn strike(&mut self, key: LinkKey) -> Option<JobId> {
        let Kind::Registered { job, process, span } = self.links.remove(key)?.kind else {
            return None;
        };
        self.registered.remove(&(job, process));
        self.routes.remove_local(span);
        self.spread_news();
        Some(job)
    }

    fn open_from_leg(&mut self, wire: Wire, wanted: Wanted) -> Result<LinkKey, LegVerdict> {
        let circuit = self.open(wanted, None, |core, circuit| {
            let kind = Kind::Leg { circuit, side: Side::Opener };
            End::Leg(core.links.insert(Link::new(wire, kind)))
        })?;
        let found = self.circuits.get_mut(circuit).ok_or(LegVerdict::Full)?;
        found.flows[Side::Opener as usize].leg = Some(wire);
        let key = found.ends[Side::Opener as usize].link().ok_or(LegVerdict::Full)?;
        // What it has sent behind its request is in its socket.
        self.readable(key);
        Ok(key)
    }

    /// Makes a circuit, and sees to it that its other end comes. `opener` makes the end that asks, once all else is well.
    /// `except`: the relay that asks.
    pub(super) fn open(
        &mut self,
        wanted: Wanted,
        except: Option<RelayId>,
        opener: impl FnOnce(&mut Self, CircuitKey) -> End,
    ) -> Result<CircuitKey, LegVerdict> {
        if self.is_draining {
            return Err(LegVerdict::Draining);
        }
        let is_from_leg = except.is_none();
        let Wanted { job, from, to, hops } = wanted;
        if !self.shares.has_room(job, 1) {
            return Err(self.full(Bound::Circuits));
        }
        let registered = self.registered.get(&(job, to)).copied();
        // Who is called has a place that nobody else gets.
        let places = usize::from(is_from_leg) + usize::from(registered.is_some());
        if places > 0 && !self.places.has_room(job, places) {
            return Err(self.full(Bound::Connections));
        }
        let next = match registered {
            Some(_) => None,
            None => Some(self.choose(wanted, except).ok_or(LegVerdict::NoRoute)?),
        };
        let state = match next {
            None => State::Waiting(CircuitId(self.next_name), self.now + self.limits.accept),
            Some(_) => State::Asked(self.now + self.limits.answer),
        };
        let mut circuit = Circuit::new(job, from, to, End::Nobody, state);
        circuit.clusters = [from, to].map(|process| self.routes.cluster(job, process));
        // What comes from a relay is granted; what goes between two legs may be held.
        let windows = [!is_from_leg || next.is_none(), next.is_some() || is_from_leg];
        if !self.charge(job, &mut circuit.flows, windows) {
            return Err(self.full(Bound::Memory));
        }
        circuit.places = places;
        let is_taken = self.shares.take(job, 1) && (places == 0 || self.places.take(job, places));
        debug_assert!(is_taken, "what was there is gone");
        let key = self.circuits.insert(circuit);
        let end = opener(self, key);
        if let Some(circuit) = self.circuits.get_mut(key) {
            circuit.ends[Side::Opener as usize] = end;
            if matches!(end, End::Trunk(..)) {
                circuit.flows[Side::Other as usize].credit = FIRST_WINDOW;
            }
        }
        match (registered, next) {
            (Some(link), _) => self.notify(key, link, from),
            (None, Some(link)) => {
                self.ask_next(key, link, Wanted { hops: hops.saturating_sub(1), ..wanted })
            }
            (None, None) => {}
        }
        Ok(key)
    }

    fn notify(&mut self, key: CircuitKey, link: LinkKey, from: ProcId) {
        let name = CircuitId(self.next_name);
        self.next_name += 1;
        self.waiting.insert(name, key);
        self.until.insert((self.now + self.limits.accept, key));
        self.is_sooner = true;
        if let Some(link) = self.links.get(link) {
            self.actions
                .push_back(Action::Notice(link.wire, LegNotice::Called { from, circuit: name }));
        }
    }

    /// The connection to the relay through which the circuit goes on: of those with the fewest relays to come the one with
    /// the least in line. Those by which the process was not found lately come last; after more relays, however, only where it was not for
    /// long.
    fn choose(&self, wanted: Wanted, except: Option<RelayId>) -> Option<LinkKey> {
        let Wanted { job, to, hops, .. } = wanted;
        if hops == 0 {
            return None;
        }
        let is_missed = |link: LinkKey| self.missed.has((job, to, link), self.now);
        let is_elsewhere = |link: LinkKey| self.missed.has_long((job, to, link), self.now);
        let fresh = |ways: &[LinkKey]| {
            let ways = ways.iter().copied().filter(|link| !is_missed(*link)).collect();
            self.least_in_line(ways)
        };
        let shortest = self.routes.towards((job, to), except, |_| true);
        if shortest.is_empty() {
            return None;
        }
        if let Some(found) = fresh(&shortest) {
            return Some(found);
        }
        let likely = self.routes.towards((job, to), except, |link| !is_elsewhere(link));
        let found = fresh(&likely).or_else(|| self.least_in_line(likely));
        found.or_else(|| self.least_in_line(shortest))
    }

    /// One that is half deaf takes no new circuits: so nobody can make it deaf by what he has it told.
    fn least_in_line(&self, ways: Vec<LinkKey>) -> Option<LinkKey> {
        let most = self.limits.cells / 2;
        let in_line = |key: &LinkKey| match self.links.get(*key) {
            Some(Link { kind: Kind::Trunk(trunk), is_blocked, .. })
                if trunk.next.is_some() && trunk.waiting_cells() < most =>
            {
                Some((*is_blocked, trunk.fair.len(), trunk.numbers.len()))
            }
            _ => None,
        };
        let usable = ways.into_iter().filter_map(|key| Some((in_line(&key)?, key)));
        usable.min().map(|(_, key)| key)
    }

    fn ask_next(&mut self, key: CircuitKey, link: LinkKey, wanted: Wanted) {
        let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(link) else { return };
        let Some(number) = trunk.give_number() else {
            self.cut(key, Reason::Ending, LegVerdict::Full, None);
            return;
        };
        trunk.numbers.insert(number, (key, Side::Other));
        if let Some(circuit) = self.circuits.get_mut(key) {
            circuit.ends[Side::Other as usize] = End::Trunk(link, number);
            circuit.flows[Side::Opener as usize].credit = FIRST_WINDOW;
        }
        self.until.insert((self.now + self.limits.answer, key));
        self.is_sooner = true;
        let Wanted { job, from, to, hops } = wanted;
        self.say(link, number, &Cell::Open { job, from, to, hops });
        self.wake(key, Side::Opener);
    }

    fn accept(
        &mut self,
        wire: Wire,
        job: JobId,
        from: ProcId,
        name: CircuitId,
    ) -> Result<LinkKey, LegVerdict> {
        let key = self.waiting.get(&name).copied().ok_or(LegVerdict::NoSuchCircuit)?;
        let circuit = self.circuits.get_mut(key).ok_or(LegVerdict::NoSuchCircuit)?;
        // A name guessed by somebody else is no name.
        if (circuit.job, circuit.to) != (job, from) {
            return Err(LegVerdict::NoSuchCircuit);
        }
        let leg = self.links.insert(Link::new(wire, Kind::Leg { circuit: key, side: Side::Other }));
        circuit.attach_leg(Side::Other, leg, wire);
        self.actions.push_back(Action::Answer(wire, LegVerdict::Accepted));
        self.stand(key);
        self.readable(leg);
        Ok(leg)
    }

    /// Both ends are there: the opener is told, and bytes flow.
    pub(super) fn stand(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        match std::mem::replace(&mut circuit.state, State::Standing) {
            State::Waiting(name, until) => {
                self.waiting.remove(&name);
                self.until.remove(&(until, key));
            }
            State::Asked(until) => {
                self.until.remove(&(until, key));
            }
            State::Standing => return,
        }
        self.counts.opened += 1;
        match circuit.ends[Side::Opener as usize] {
            End::Leg(leg) => {
                if let Some(link) = self.links.get(leg) {
                    self.actions.push_back(Action::Answer(link.wire, LegVerdict::Accepted));
                }
            }
            End::Trunk(link, number) => {
                self.say(link, number, &Cell::Answer(LegVerdict::Accepted));
            }
            End::Nobody => {}
        }
        Side::BOTH.into_iter().for_each(|side| self.wake(key, side));
    }

    /// Ends a circuit before its time. Both ends are told, but not `except`, from where it came. `verdict` is for an opener
    /// that still waits.
    pub(super) fn cut(
        &mut self,
        key: CircuitKey,
        reason: Reason,
        verdict: LegVerdict,
        except: Option<LinkKey>,
    ) {
        let Some(circuit) = self.forget(key) else { return };
        if circuit.is_standing() {
            self.counts.resets[reason as usize] += 1;
        } else {
            self.count_refusal(verdict);
        }
        for side in Side::BOTH {
            let end = circuit.ends[side as usize];
            if end.link().is_some() && end.link() == except {
                continue;
            }
            let is_waiting = side == Side::Opener && !circuit.is_standing();
            match end {
                End::Leg(leg) => {
                    let Some(link) = self.links.remove(leg) else { continue };
                    self.actions.push_back(if is_waiting {
                        Action::Answer(link.wire, verdict)
                    } else {
                        Action::Reset(link.wire)
                    });
                }
                End::Trunk(link, number) if is_waiting => {
                    self.say(link, number, &Cell::Answer(verdict));
                }
                End::Trunk(link, number) => self.say(link, number, &Cell::Reset(reason)),
                End::Nobody => {}
            }
        }
    }

    /// Takes a circuit out of all books.
    fn forget(&mut self, key: CircuitKey) -> Option<Circuit> {
        let circuit = self.circuits.remove(key)?;
        self.budget.give(circuit.job, circuit.charged());
        self.shares.give(circuit.job, 1);
        self.places.give(circuit.job, circuit.places);
        match circuit.state {
            State::Waiting(name, until) => {
                self.waiting.remove(&name);
                self.until.remove(&(until, key));
            }
            State::Asked(until) => {
                self.until.remove(&(until, key));
            }
            State::Standing => {}
        }
        for end in circuit.ends {
            if let End::Trunk(link, number) = end
                && let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(link)
            {
                trunk.numbers.remove(&number);
            }
        }
        Some(circuit)
    }

    /// If both directions have ended the circuit is over.
    pub(super) fn finish(&mut self, key: CircuitKey) {
        let is_over = |circuit: &Circuit| circuit.flows.iter().all(|flow| flow.is_done);
        if !self.circuits.get(key).is_some_and(is_over) {
            return;
        }
        let Some(circuit) = self.forget(key) else { return };
        for end in circuit.ends {
            if let End::Leg(leg) = end
                && let Some(link) = self.links.remove(leg)
            {
                self.actions.push_back(Action::Close(link.wire));
            }
        }
    }
}
