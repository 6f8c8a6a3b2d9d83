//! How algorithms write schedules down.
//!
//! Every method that adds a step takes the steps it must wait for and returns what waits for *it*: a
//! [`Done`], which is empty if there was nothing to do. Both sides of a message know its length, so
//! both leave out an empty one.

use gridmpi_wire::Rank;

use crate::schedule::{
    BufferId, LocalCollective, Schedule, Senders, Span, Step, StepId, Temporary,
};
use crate::shape::Shape;

/// The one tag needed: no algorithm sends two messages from one rank to another.
const TAG: u32 = 0;

/// Steps to wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done(Vec<StepId>);

impl Done {
    /// Nothing to wait for.
    pub(crate) fn now() -> Self {
        Self::default()
    }

    /// Both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Waits for `other` too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.extend(other.0.iter().filter(|step| !self.0.contains(step)).collect::<Vec<_>>());
    }
}

/// A schedule being written.
#[derive(Default)]
pub(crate) struct Builder {
    schedule: Schedule,
}

impl Builder {
    /// Of a collective in which these of a cluster send; without it one does.
    pub(crate) fn among(senders: Senders) -> Self {
        Self { schedule: Schedule { senders, ..Schedule::default() } }
    }

    /// Memory for `len` bytes.
    pub(crate) fn bytes(&mut self, len: u64) -> Span {
        self.temporary(Temporary::Bytes(len), len)
    }

    /// Memory for `len` bytes of elements of `size` bytes each.
    pub(crate) fn elements(&mut self, len: u64, size: u64) -> Span {
        debug_assert!(len.is_multiple_of(size), "whole elements");
        self.temporary(Temporary::Elements(len / size), len)
    }

    fn temporary(&mut self, temporary: Temporary, len: u64) -> Span {
        let index = self.schedule.temporaries.len() as u16;
        self.schedule.temporaries.push(temporary);
        Span::new(BufferId::temporary(index), 0, len)
    }

    /// Sends `data`, unless it is empty.
    pub(crate) fn send(&mut self, to: Rank, data: impl IntoSpans, after: &Done) -> Done {
        let data = data.into_spans();
        if data.is_empty() {
            Done::now()
        } else {
            self.step(Step::Send { to, data, tag: TAG }, after)
        }
    }

    /// Receives `into`, unless it is empty.
    pub(crate) fn receive(&mut self, from: Rank, into: impl IntoSpans, after: &Done) -> Done {
        let into = into.into_spans();
        if into.is_empty() {
            return Done::now();
        }
        self.step(Step::Receive { from, into, tag: TAG }, after)
    }

    /// Sends a message without data.
    pub(crate) fn signal(&mut self, to: Rank, after: &Done) -> Done {
        self.step(Step::Send { to, data: Vec::new(), tag: TAG }, after)
    }

    /// Receives a message without data.
    pub(crate) fn await_signal(&mut self, from: Rank) -> Done {
        self.step(Step::Receive { from, into: Vec::new(), tag: TAG }, &Done::now())
    }

    /// Copies, unless there is nothing to copy. Done after `after` in any case.
    pub(crate) fn copy(&mut self, from: Span, to: Span, after: &Done) -> Done {
        debug_assert_eq!(from.len, to.len, "a copy keeps its length");
        if from.len == 0 || from == to {
            return after.clone();
        }
        self.step(Step::Copy { from, to }, after)
    }

    /// `into = from OP into`, unless that is empty. Done after `after` in any case.
    pub(crate) fn reduce(&mut self, from: Span, into: Span, after: &Done) -> Done {
        debug_assert_eq!(from.len, into.len, "operands have one length");
        if from.len == 0 { after.clone() } else { self.step(Step::Reduce { from, into }, after) }
    }

    /// Enters a local collective.
    pub(crate) fn local(&mut self, collective: LocalCollective, after: &Done) -> Done {
        self.step(Step::Local(collective), after)
    }

    /// Copies `last` of `parts` to `into` and combines the parts before it, so that
    /// `into = parts[0] OP parts[1] OP …`. The last part may be in `into` already.
    pub(crate) fn combine(&mut self, parts: &[(Span, Done)], into: Span) -> Done {
        let Some(((last, arrived), before)) = parts.split_last() else { return Done::now() };
        let mut done = self.copy(*last, into, arrived);
        for (part, arrived) in before.iter().rev() {
            done = self.reduce(*part, into, &done.and(arrived));
        }
        done
    }

    /// Copies `parts` one after the other into `to`. Done after `after` in any case.
    pub(crate) fn pack(&mut self, parts: &[Span], to: Span, after: &Done) -> Done {
        let (mut done, mut next) = (after.clone(), 0);
        for part in parts {
            done.add(&self.copy(*part, to.part(next, part.len), after));
            next += part.len;
        }
        done
    }

    /// What every cluster has to combine into `into`, by cluster: this one has `mine` when that is done,
    /// the others send theirs from `peer`. The last cluster's is received where the result will be, once
    /// `mine` is done, because an operand may lie there.
    pub(crate) fn receive_parts(
        &mut self,
        shape: &Shape,
        (mine, reduced): (Span, &Done),
        into: Span,
        size: u64,
        peer: impl Fn(usize) -> Rank,
    ) -> Vec<(Span, Done)> {
        let part = |cluster| {
            let from = peer(cluster);
            if cluster == shape.my_cluster() {
                (mine, reduced.clone())
            } else if cluster + 1 == shape.clusters() {
                (into, self.receive(from, into, reduced))
            } else {
                let slot = self.elements(into.len, size);
                (slot, self.receive(from, slot, &Done::now()))
            }
        };
        (0..shape.clusters()).map(part).collect()
    }

    /// The schedule.
    pub(crate) fn finish(self) -> Schedule {
        self.schedule
    }

    fn step(&mut self, step: Step, after: &Done) -> Done {
        let id = StepId(self.schedule.steps.len() as u32);
        self.schedule.steps.push(step);
        self.schedule.after.push(after.0.clone());
        Done(vec![id])
    }
}

/// One span or several; empty ones are left out and adjacent ones joined.
pub(crate) trait IntoSpans {
    /// The spans.
    fn into_spans(self) -> Vec<Span>;
}

impl IntoSpans for Span {
    fn into_spans(self) -> Vec<Span> {
        vec![self].into_spans()
    }
}

impl IntoSpans for Vec<Span> {
    fn into_spans(self) -> Vec<Span> {
        let mut joined: Vec<Span> = Vec::with_capacity(self.len());
        for span in self.into_iter().filter(|span| span.len > 0) {
            match joined.last_mut() {
                Some(last) if last.buffer == span.buffer && last.end() == span.offset => {
                    last.len += span.len;
                }
                _ => joined.push(span),
            }
        }
        joined
    }
}
