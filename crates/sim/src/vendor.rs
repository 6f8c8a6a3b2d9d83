//! A model of the vendor's MPI: the matching queues of one process for messages of its cluster.

use crate::plan::Comm;
use crate::rng::Rng;
use crate::rules::{MessageIndex, ReceiveIndex, Rules};
use gridmpi_engine::{LocalMatch, RequestId, TagMatch};
use gridmpi_wire::{ContextId, Rank};
use std::collections::{BTreeMap, VecDeque};

/// The queues of one process.
#[derive(Debug, Default)]
pub struct Queues {
    /// Posted receives, in order.
    posted: Vec<ReceiveIndex>,
    /// Messages here that nothing matched, in the order of arrival.
    unexpected: Vec<MessageIndex>,
    /// Messages on their way, by sender; each in the order of sending.
    flying: BTreeMap<usize, VecDeque<MessageIndex>>,
    /// Receives that got a message since this was last emptied: they are to complete.
    pub matched: Vec<ReceiveIndex>,
    /// Something came or went that a held receive may wait for.
    pub stirred: bool,
}

impl Queues {
    /// A message is sent to this process.
    pub fn send(&mut self, from: usize, message: MessageIndex) {
        self.flying.entry(from).or_default().push_back(message);
    }

    /// The next message of a sender arrives, if one is on its way; wrongly the last, if it `overtakes`.
    pub fn arrive(&mut self, from: usize, overtakes: bool, rules: &mut Rules) {
        let pop = if overtakes { VecDeque::pop_back } else { VecDeque::pop_front };
        let next = self.flying.get_mut(&from).and_then(pop);
        let Some(message) = next else { return };
        rules.arrived(message);
        self.stirred = true;
        let accepting = self.posted.iter().position(|&receive| fits(rules, receive, message));
        if let Some(at) = accepting {
            let receive = self.posted.remove(at);
            self.matched(rules, receive, message);
        } else {
            self.unexpected.push(message);
        }
    }

    /// Some message on its way arrives.
    fn arrive_any(&mut self, rng: &mut Rng, rules: &mut Rules) {
        let senders = self.flying.iter().filter(|entry| !entry.1.is_empty());
        let senders: Vec<usize> = senders.map(|entry| *entry.0).collect();
        if !senders.is_empty() {
            self.arrive(senders[rng.index(senders.len())], false, rules);
        }
    }

    fn matched(&mut self, rules: &mut Rules, receive: ReceiveIndex, message: MessageIndex) {
        rules.matched(receive, message);
        self.matched.push(receive);
    }

    /// A receive is posted.
    pub fn post(&mut self, receive: ReceiveIndex, rules: &mut Rules) {
        let first = self.unexpected.iter().position(|&message| fits(rules, receive, message));
        if let Some(at) = first {
            let message = self.unexpected.remove(at);
            self.matched(rules, receive, message);
        } else {
            self.posted.push(receive);
        }
    }

    /// Cancels a posted receive. Whether it was unmatched.
    pub fn cancel(&mut self, receive: ReceiveIndex) -> bool {
        let before = self.posted.len();
        self.posted.retain(|&other| other != receive);
        self.posted.len() < before
    }

    /// A message that a receive with this pattern may get now: the first of its sender that fits. Of
    /// which sender is the vendor's choice, and may be another each time.
    fn find(
        &self,
        rules: &Rules,
        rng: &mut Rng,
        comm: usize,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<usize> {
        let mut firsts: Vec<(u32, usize)> = Vec::new();
        for (at, &message) in self.unexpected.iter().enumerate() {
            let m = &rules.messages[message];
            let fits =
                m.comm == comm && source.is_none_or(|s| s.0 == m.source) && tag.accepts(m.tag);
            if fits && firsts.iter().all(|first| first.0 != m.source) {
                firsts.push((m.source, at));
            }
        }
        (!firsts.is_empty()).then(|| firsts[rng.index(firsts.len())].1)
    }

    /// Takes a message out of matching (`MPI_Improbe`).
    pub fn claim(&mut self, message: MessageIndex) {
        self.unexpected.retain(|&other| other != message);
    }
}

fn fits(rules: &Rules, receive: ReceiveIndex, message: MessageIndex) -> bool {
    let (r, m) = (&rules.receives[receive], &rules.messages[message]);
    r.comm == m.comm && r.source.is_none_or(|s| s == m.source) && r.tag.accepts(m.tag)
}

/// What the engine of one process is given to call. Messages arrive between any two of its calls.
pub struct Access<'a> {
    /// The queues of the process.
    pub queues: &'a mut Queues,
    /// The model to tell.
    pub rules: &'a mut Rules,
    /// Decides what arrives when.
    pub rng: &'a mut Rng,
    /// The communicators.
    pub comms: &'a [Comm],
    /// The receive behind each request of the engine of this process.
    pub receives: &'a BTreeMap<RequestId, ReceiveIndex>,
}

impl Access<'_> {
    fn comm(&self, context: ContextId) -> usize {
        self.comms.iter().position(|comm| comm.context == context).unwrap_or(usize::MAX)
    }

    fn between_calls(&mut self) {
        if self.rng.chance(30) {
            for _ in 0..self.rng.within(1, 3) {
                self.queues.arrive_any(self.rng, self.rules);
            }
        }
    }

    fn receive_of(&mut self, request: RequestId) -> Option<ReceiveIndex> {
        let receive = self.receives.get(&request).copied();
        if receive.is_none() {
            self.rules.fail(format!("the engine hands the vendor {request:?}, no receive"));
        }
        receive
    }
}

impl LocalMatch for Access<'_> {
    fn iprobe(
        &mut self,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)> {
        self.between_calls();
        let at = self.queues.find(self.rules, self.rng, self.comm(context), source, tag)?;
        let message = &self.rules.messages[self.queues.unexpected[at]];
        Some((Rank(message.source), message.tag))
    }

    fn improbe_receive(
        &mut self,
        request: RequestId,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)> {
        self.between_calls();
        let at = self.queues.find(self.rules, self.rng, self.comm(context), source, tag)?;
        let receive = self.receive_of(request)?;
        let message = self.queues.unexpected.remove(at);
        self.queues.matched(self.rules, receive, message);
        let message = &self.rules.messages[message];
        Some((Rank(message.source), message.tag))
    }

    fn post(&mut self, request: RequestId, _: ContextId, _: Rank, _: TagMatch) {
        self.between_calls();
        if let Some(receive) = self.receive_of(request) {
            self.queues.post(receive, self.rules);
        }
    }
}
