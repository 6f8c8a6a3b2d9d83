//! What comes with time: who has not answered, which relay is silent, what rests.

use std::time::Duration;

use gridmpi_wire::LegVerdict;

use super::circuit::{End, Side};
use super::link::{Kind, Link, Trunk};
use super::{Action, CircuitKey, Core, Limits, LinkKey};
use crate::cell::{Cell, FIRST_WINDOW, Reason};

/// How often a relay is looked at from which something should come.
const WATCH: Duration = Duration::from_millis(100);

/// How often it is looked for what rests.
const LOOK: Duration = Duration::from_secs(1);

/// So long after something was sent a connection counts as used.
const USED: Duration = Duration::from_secs(10);

impl Trunk {
    /// Something was sent of which it must be known whether it arrives. Whether something may be due earlier by that.
    pub(super) fn sent(&mut self, now: Duration) -> bool {
        let is_first = !self.is_outstanding || self.waits.is_none();
        self.is_outstanding = true;
        self.used = now;
        self.waits.get_or_insert(now);
        is_first
    }

    /// Something has come, or was seen to arrive.
    pub(super) fn seen(&mut self, now: Duration) {
        self.heard = now;
        if self.waits.is_some() {
            self.waits = Some(now);
        }
    }

    /// When a ping is due, unless one is on its way.
    fn ping_due(&self, limits: &Limits) -> Option<Duration> {
        if self.pinged.is_some() {
            return None;
        }
        if self.is_outstanding {
            return Some(self.probed + limits.probe);
        }
        let last = self.heard.max(self.probed);
        let soon = last + limits.probe;
        Some(if soon <= self.used + USED { soon } else { last + limits.keepalive })
    }
}

impl Core {
    /// When [`Self::tick`] has to be called next at the latest.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let mut due = self.until.first().map(|(at, _)| *at);
        let mut add = |at: Option<Duration>| due = due.into_iter().chain(at).min();
        if !self.grown.is_empty() {
            add(Some(self.rested + LOOK));
        }
        for key in &self.trunks {
            if let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get(*key) {
                add(trunk.ping_due(&self.limits));
                // Before it is dead it is looked at whether its host still acknowledges.
                add(trunk.waits.map(|since| (self.tended + WATCH).min(since + self.limits.dead)));
            }
        }
        due
    }

    /// Whether, since this was last asked, something may have come to be due earlier than [`Self::next_due`] said.
    pub fn take_sooner(&mut self) -> bool {
        let is_sooner = std::mem::take(&mut self.is_sooner);
        if is_sooner {
            self.told = self.next_due();
        }
        is_sooner
    }

    /// Does what is due.
    pub fn tick(&mut self) {
        let now = self.now;
        self.is_sooner = true;
        self.tended = now;
        while let Some((at, key)) = self.until.first().copied()
            && at <= now
        {
            self.until.remove(&(at, key));
            self.cut(key, Reason::Unanswered, LegVerdict::Unanswered, None);
        }
        for key in self.trunks.clone() {
            self.tend(key);
        }
        if !self.grown.is_empty() && now >= self.rested + LOOK {
            self.rested = now;
            self.look_for_rest();
        }
    }

    /// Sees whether another relay is alive.
    fn tend(&mut self, key: LinkKey) {
        let (now, limits) = (self.now, &self.limits);
        let Some(Link { kind: Kind::Trunk(trunk), wire, .. }) = self.links.get_mut(key) else {
            return;
        };
        if trunk.waits.is_some_and(|since| now >= since + limits.dead) {
            self.actions.push_back(Action::Dead(*wire));
            self.gone(key);
            return;
        }
        if trunk.ping_due(limits).is_some_and(|at| now >= at) {
            trunk.is_outstanding = false;
            trunk.pinged = Some(now);
            trunk.probed = now;
            trunk.waits.get_or_insert(now);
            self.say(key, 0, &Cell::Ping(now.as_nanos() as u64));
        }
    }

    pub(super) fn ponged(&mut self, key: LinkKey, value: u64) {
        let now = self.now;
        let Some(Link { kind: Kind::Trunk(trunk), .. }) = self.links.get_mut(key) else { return };
        // Only what we have sent tells anything.
        let Some(sent) = trunk.pinged.filter(|sent| sent.as_nanos() as u64 == value) else {
            return;
        };
        trunk.pinged = None;
        trunk.round_trip = Some(now.saturating_sub(sent));
        trunk.waits = trunk.is_outstanding.then_some(now);
        self.is_sooner = true;
    }

    /// A flow has grown beyond its first window: it is looked at until it has given that back.
    pub(super) fn watch_grown(&mut self, key: CircuitKey, side: Side) {
        let Some(circuit) = self.circuits.get_mut(key) else { return };
        if !std::mem::replace(&mut circuit.flows[side as usize].is_grown, true) {
            self.grown.push((key, side));
            self.is_sooner = true;
        }
    }

    /// Circuits that rest give back what they may send beyond their first window, so that others can be granted it.
    fn look_for_rest(&mut self) {
        let grown = std::mem::take(&mut self.grown);
        for (key, side) in grown {
            if self.still_grown(key, side) {
                self.grown.push((key, side));
            }
        }
    }

    /// Whether the flow has to be looked at again.
    fn still_grown(&mut self, key: CircuitKey, side: Side) -> bool {
        let (now, rest) = (self.now, self.limits.rest);
        let Some(circuit) = self.circuits.get_mut(key) else { return false };
        let sink = circuit.ends[side.across() as usize];
        let (job, flow) = (circuit.job, &mut circuit.flows[side as usize]);
        let more = match sink {
            End::Trunk(..) => flow.credit,
            _ => flow.window,
        };
        let more = more.saturating_sub(FIRST_WINDOW);
        flow.is_grown = more > 0;
        if more == 0 || now < flow.used + rest || !flow.held.is_empty() || flow.is_in_line {
            return flow.is_grown;
        }
        flow.is_grown = false;
        match sink {
            End::Trunk(link, number) => {
                flow.credit = FIRST_WINDOW;
                self.say(link, number, &Cell::Return(more as u32));
            }
            End::Leg(_) | End::Nobody => {
                flow.window = FIRST_WINDOW;
                self.budget.give(job, more);
            }
        }
        false
    }
}
