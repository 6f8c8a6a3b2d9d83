//! The plain model: MPI's matching rules (MPI 4.1 §3.5), by lists searched from the front.
//!
//! It is told every call and every arrival, decides itself what matches what where the rules leave no
//! choice, checks the choice where they leave one (which message of this cluster a held receive
//! takes), and knows what must be over when nothing moves any more.

use crate::memory::Memory;
use crate::plan::Comm;
use gridmpi_engine::{Completion, Fault, Mode, RequestId, TagMatch};
use gridmpi_wire::Rank;
use std::collections::BTreeMap;

/// Index of a message among all that were sent.
pub type MessageIndex = usize;
/// Index of a receive among all that were posted.
pub type ReceiveIndex = usize;

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Sent; not at the receiver.
    Flying,
    /// At the receiver, unmatched.
    Arrived,
    /// Claimed by a matching probe.
    Claimed,
    /// A receive has it.
    Matched(ReceiveIndex),
}

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Sender and receiver: processes.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The communicator.
    pub comm: usize,
    /// The sender's rank in it.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// Bytes.
    pub len: usize,
    /// How it was sent.
    pub mode: Mode,
    /// Sender and receiver are in one cluster.
    pub is_local: bool,
    /// Where it is.
    pub place: Where,
    /// Its bytes up to here have come while it was unmatched, or some of them.
    pub reached: u64,
    /// The sender's buffer, if the engine sends it.
    pub memory: Option<Memory>,
    /// The engine's request, unless it was freed.
    pub request: Option<RequestId>,
    /// The program has seen the send complete.
    pub is_sent: bool,
    /// The vendor has completed the send.
    pub vendor_done: bool,
}

/// How far a receive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Posted, unmatched.
    Pending,
    /// Matched with this message.
    Matched(MessageIndex),
    /// The program has seen it complete.
    Done,
    /// Cancelled.
    Cancelled,
}

/// A receive.
#[derive(Debug)]
pub struct Receive {
    /// The process that posted it.
    pub process: usize,
    /// The communicator.
    pub comm: usize,
    /// A rank of it, or any.
    pub source: Option<u32>,
    /// A tag, or any.
    pub tag: TagMatch,
    /// Bytes of its buffer.
    pub capacity: usize,
    /// Its buffer.
    pub memory: Memory,
    /// How far it is.
    pub stage: Stage,
    /// The engine's request, if the engine has it.
    pub request: Option<RequestId>,
    /// The program has freed the request: nobody sees it complete.
    pub is_freed: bool,
    /// The vendor has completed it.
    pub vendor_done: bool,
}

/// All messages and receives of a run, and what was found wrong first.
#[derive(Debug)]
pub struct Rules {
    comms: Vec<Comm>,
    /// In the order of sending.
    pub messages: Vec<Message>,
    /// In the order of posting.
    pub receives: Vec<Receive>,
    /// By process and communicator.
    queues: Vec<Vec<Queues>>,
    /// By sender and receiver in different clusters.
    unmatched: BTreeMap<(usize, usize), Unmatched>,
    failure: Option<String>,
}

/// What a process has unmatched in one communicator.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// Receives, in the order of posting.
    pending: Vec<ReceiveIndex>,
    /// Messages here, in the order of arrival.
    arrived: Vec<MessageIndex>,
    /// Messages sent and unmatched, in the order of sending, here or not.
    sent: Vec<MessageIndex>,
}

/// What has come from a process and no receive has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmatched {
    /// Messages.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Rules {
    /// Nothing sent, nothing posted.
    #[must_use]
    pub fn new(comms: &[Comm], processes: usize) -> Self {
        Self {
            comms: comms.to_vec(),
            messages: Vec::new(),
            receives: Vec::new(),
            queues: vec![vec![Queues::default(); comms.len()]; processes],
            unmatched: BTreeMap::new(),
            failure: None,
        }
    }

    /// Notes what is wrong, if nothing was before.
    pub fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// What was found wrong first.
    #[must_use]
    pub const fn failure(&self) -> Option<&String> {
        self.failure.as_ref()
    }

    fn require(&mut self, holds: bool, what: impl FnOnce(&Self) -> String) {
        if !holds && self.failure.is_none() {
            self.failure = Some(what(self));
        }
    }

    /// The process with a rank.
    #[must_use]
    pub fn member(&self, comm: usize, rank: u32) -> usize {
        self.comms[comm].members[rank as usize]
    }

    fn accepts(&self, receive: ReceiveIndex, message: MessageIndex) -> bool {
        let (r, m) = (&self.receives[receive], &self.messages[message]);
        r.process == m.to
            && r.comm == m.comm
            && r.source.is_none_or(|source| source == m.source)
            && r.tag.accepts(m.tag)
    }

    // What happens.

    /// A send is called.
    pub fn sent(&mut self, message: Message) -> MessageIndex {
        let index = self.messages.len();
        self.queues[message.to][message.comm].sent.push(index);
        self.messages.push(message);
        index
    }

    /// A receive is called. It takes a message from another cluster that is here.
    pub fn posted(&mut self, receive: Receive) -> ReceiveIndex {
        let index = self.receives.len();
        let queues = &mut self.queues[receive.process][receive.comm];
        queues.pending.push(index);
        let arrived = queues.arrived.clone();
        self.receives.push(receive);
        let fits = |&&m: &&MessageIndex| !self.messages[m].is_local && self.accepts(index, m);
        if let Some(&message) = arrived.iter().find(fits) {
            self.matched(index, message);
        }
        index
    }

    /// A message has come to its receiver: into the vendor's hands, or our own.
    pub fn arrived(&mut self, message: MessageIndex) {
        let Message { to, comm, is_local, place, .. } = self.messages[message];
        self.require(place == Where::Flying, |_| format!("message {message} came twice"));
        self.messages[message].place = Where::Arrived;
        self.queues[to][comm].arrived.push(message);
        if is_local {
            return;
        }
        let reached = self.messages[message].reached;
        let unmatched = self.unmatched_with(message);
        unmatched.messages += 1;
        unmatched.bytes += reached;
        if let Some(receive) = self.first_accepting(message) {
            self.matched(receive, message);
        }
    }

    fn unmatched_with(&mut self, message: MessageIndex) -> &mut Unmatched {
        let Message { from, to, .. } = self.messages[message];
        self.unmatched.entry((from, to)).or_default()
    }

    /// What a sender of another cluster has at a receiver.
    #[must_use]
    pub fn unmatched_of(&self, from: usize, to: usize) -> Unmatched {
        self.unmatched.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Bytes of a message come, up to `end`.
    pub fn reached(&mut self, message: MessageIndex, end: u64) {
        let Message { place, reached, .. } = self.messages[message];
        if end <= reached || matches!(place, Where::Matched(_)) {
            return;
        }
        self.messages[message].reached = end;
        if place != Where::Flying {
            self.unmatched_with(message).bytes += end - reached;
        }
    }

    /// A receive has a message: its bytes have a place of the program's.
    fn settle(&mut self, message: MessageIndex) {
        let Message { is_local, reached, .. } = self.messages[message];
        if !is_local {
            let unmatched = self.unmatched_with(message);
            unmatched.messages -= 1;
            unmatched.bytes -= reached;
        }
    }

    /// The receive posted first that accepts a message.
    fn first_accepting(&self, message: MessageIndex) -> Option<ReceiveIndex> {
        let Message { to, comm, .. } = self.messages[message];
        let pending = &self.queues[to][comm].pending;
        pending.iter().copied().find(|&receive| self.accepts(receive, message))
    }

    /// A receive gets a message. It must be the first that accepts it, and the message the first of
    /// its sender that the receive accepts.
    pub fn matched(&mut self, receive: ReceiveIndex, message: MessageIndex) {
        let first = self.first_accepting(message);
        self.require(first == Some(receive), |rules| {
            format!(
                "message {message} went to receive {receive}, which is {:?}; it is {first:?}'s",
                rules.receives[receive].stage
            )
        });
        self.check_first_sent(message, |rules, other| rules.accepts(receive, other));
        self.take(message, Where::Matched(receive));
        self.settle(message);
        let Receive { process, comm, .. } = self.receives[receive];
        self.queues[process][comm].pending.retain(|&other| other != receive);
        self.receives[receive].stage = Stage::Matched(message);
    }

    /// Of what its sender has sent to its receiver, a message must be the first that is accepted.
    fn check_first_sent(
        &mut self,
        message: MessageIndex,
        accepts: impl Fn(&Self, MessageIndex) -> bool,
    ) {
        let Message { from, to, comm, place, .. } = self.messages[message];
        let sent = &self.queues[to][comm].sent;
        let is_first = |&other: &usize| self.messages[other].from == from && accepts(self, other);
        let first = sent.iter().copied().find(is_first);
        self.require(place == Where::Arrived && first == Some(message), |_| {
            format!("message {message} ({place:?}) was taken; of its sender {first:?} is first")
        });
    }

    fn take(&mut self, message: MessageIndex, place: Where) {
        let Message { to, comm, .. } = self.messages[message];
        self.messages[message].place = place;
        let queues = &mut self.queues[to][comm];
        queues.arrived.retain(|&other| other != message);
        queues.sent.retain(|&other| other != message);
    }

    /// A probe has found something or nothing. `is_local`: which kind of messages it looked at.
    /// The message, if the probe is right.
    pub fn probed(
        &mut self,
        probe: &Probe,
        is_local: bool,
        found: Option<(Rank, i32)>,
    ) -> Option<MessageIndex> {
        let arrived = &self.queues[probe.process][probe.comm].arrived;
        let fits = |m: &Message| m.is_local == is_local && probe.accepts(m.source, m.tag);
        let Some((Rank(source), tag)) = found else {
            let missed = arrived.iter().find(|&&m| fits(&self.messages[m])).copied();
            self.require(missed.is_none(), |_| format!("a probe missed message {missed:?}"));
            return None;
        };
        let of_source = |m: &Message| fits(m) && m.source == source;
        let message = arrived.iter().copied().find(|&m| of_source(&self.messages[m]));
        let right = message.is_some_and(|m| self.messages[m].tag == tag);
        self.require(right, |_| format!("a probe found {source}, {tag}; {message:?} is first"));
        let message = message.filter(|_| right)?;
        let owner = self.first_accepting(message);
        self.require(owner.is_none(), |_| format!("a probe found {message}, {owner:?}'s"));
        self.check_first_sent(message, |rules, other| {
            let m = &rules.messages[other];
            probe.accepts(m.source, m.tag)
        });
        Some(message)
    }

    /// A matching probe takes what it found.
    pub fn claimed(&mut self, message: MessageIndex) {
        self.take(message, Where::Claimed);
    }

    /// A claimed message gets its receive.
    pub fn posted_for(&mut self, mut receive: Receive, message: MessageIndex) -> ReceiveIndex {
        let index = self.receives.len();
        receive.stage = Stage::Matched(message);
        self.receives.push(receive);
        self.messages[message].place = Where::Matched(index);
        self.settle(message);
        index
    }

    /// A cancel has succeeded or not. It must exactly if nothing has matched.
    pub fn cancelled(&mut self, receive: ReceiveIndex, success: bool) {
        let Receive { process, comm, stage, .. } = self.receives[receive];
        self.require(success == (stage == Stage::Pending), |_| {
            format!("the cancel of receive {receive}, {stage:?}, was {success}")
        });
        if success {
            self.queues[process][comm].pending.retain(|&other| other != receive);
            self.receives[receive].stage = Stage::Cancelled;
        }
    }

    /// The program sees a receive complete, and uses its buffer again.
    pub fn receive_done(&mut self, receive: ReceiveIndex, completion: &Completion) {
        self.check_receive(receive, completion);
        let r = &mut self.receives[receive];
        if let Stage::Matched(_) = r.stage {
            r.stage = Stage::Done;
        }
        r.memory.use_again();
    }

    /// How a receive is over is right, and its buffer holds what it must.
    pub fn check_receive(&mut self, receive: ReceiveIndex, completion: &Completion) {
        let Receive { stage, ref memory, .. } = self.receives[receive];
        let (expected, holds) = match stage {
            Stage::Cancelled => {
                let (source, tag, len, error) = (None, 0, 0, None);
                let nothing = Completion { source, tag, len, error, cancelled: true };
                (nothing, memory.holds(0, 0))
            }
            Stage::Matched(message) => {
                (self.expected(receive, message), self.is_received(receive, message))
            }
            Stage::Pending | Stage::Done => {
                self.fail(format!("receive {receive}, {stage:?}, completed: {completion:?}"));
                return;
            }
        };
        self.require(*completion == expected, |_| {
            format!("receive {receive} got {completion:?}, not {expected:?}")
        });
        self.require(holds, |_| {
            format!("the buffer of receive {receive}, {stage:?}, does not hold what it must")
        });
    }

    /// How a receive with this message must end.
    #[must_use]
    pub fn expected(&self, receive: ReceiveIndex, message: MessageIndex) -> Completion {
        let (m, capacity) = (&self.messages[message], self.receives[receive].capacity);
        let truncated = Fault::Truncated { message: m.len as u64, capacity: capacity as u64 };
        Completion {
            source: Some(Rank(m.source)),
            tag: m.tag,
            len: m.len.min(capacity) as u64,
            error: (m.len > capacity).then_some(truncated),
            cancelled: false,
        }
    }

    fn is_received(&self, receive: ReceiveIndex, message: MessageIndex) -> bool {
        let Receive { capacity, ref memory, .. } = self.receives[receive];
        memory.holds(message, self.messages[message].len.min(capacity))
    }

    /// The program sees a send complete, and uses its buffer again.
    pub fn send_done(&mut self, message: MessageIndex, completion: &Completion) {
        self.check_send(message, completion);
        let m = &mut self.messages[message];
        m.is_sent = true;
        if let Some(memory) = &mut m.memory {
            memory.use_again();
        }
    }

    /// How a send is over is right, and it may be.
    pub fn check_send(&mut self, message: MessageIndex, completion: &Completion) {
        let Message { len, mode, place, is_sent, .. } = self.messages[message];
        let expected = len as u64;
        let right = completion.len == expected && completion.error.is_none();
        self.require(right && !is_sent, |_| format!("send {message} ended as {completion:?}"));
        // MPI 4.1 §3.4, synchronous mode.
        let early = mode == Mode::Synchronous && !matches!(place, Where::Matched(_));
        self.require(!early, |_| format!("synchronous send {message} completed unmatched"));
    }

    /// A message's bytes are stored once more, in a buffer of a receive that is over: wrongly.
    pub fn store_again(&mut self, process: usize) {
        let is_over = |r: &&mut Receive| r.process == process && r.stage == Stage::Done;
        if let Some(receive) = self.receives.iter_mut().rfind(is_over) {
            receive.memory.store(0, receive.capacity);
        }
    }

    // What must be, when nothing moves.

    /// A receive that waits, and a message for it that was sent and is unmatched. There must be none (MPI 4.1 §3.5, "progress")
    /// but of those that `is_held_back`.
    pub fn left_waiting(
        &self,
        is_held_back: impl Fn(MessageIndex) -> bool,
    ) -> Option<(ReceiveIndex, MessageIndex)> {
        let all = self.queues.iter().flatten();
        let mut pending = all.flat_map(|queues| queues.pending.iter().map(move |&r| (queues, r)));
        pending.find_map(|(queues, receive)| {
            let is_missed = |&&m: &&MessageIndex| self.accepts(receive, m) && !is_held_back(m);
            queues.sent.iter().find(is_missed).map(|&message| (receive, message))
        })
    }

    /// Messages that a probe waits for which were sent and are unmatched.
    pub fn findable(&self, probe: &Probe) -> impl Iterator<Item = MessageIndex> {
        let sent = self.queues[probe.process][probe.comm].sent.iter().copied();
        sent.filter(move |&m| probe.accepts(self.messages[m].source, self.messages[m].tag))
    }

    /// Messages that nothing has matched, in the order of sending.
    #[must_use]
    pub fn unmatched(&self) -> Vec<MessageIndex> {
        let mut all: Vec<_> =
            self.queues.iter().flatten().flat_map(|queues| queues.sent.clone()).collect();
        all.sort_unstable();
        all
    }

    /// Receives that nothing has matched.
    #[must_use]
    pub fn pending(&self) -> Vec<ReceiveIndex> {
        self.queues.iter().flatten().flat_map(|queues| queues.pending.clone()).collect()
    }

    /// At the end every message was received, once, whole, and every receive is over.
    pub fn check_end(&mut self) {
        for message in 0..self.messages.len() {
            let Where::Matched(receive) = self.messages[message].place else {
                return self.fail(format!("message {message} was never received"));
            };
            let Receive { stage, is_freed, .. } = self.receives[receive];
            let is_right = stage == Stage::Done || is_freed && stage == Stage::Matched(message);
            self.require(is_right, |_| format!("receive {receive} ended {stage:?}"));
        }
        self.check_memory();
    }

    /// The buffer of every receive, all of which are over, is as the receive or the program has left it.
    pub fn check_memory(&mut self) {
        for receive in 0..self.receives.len() {
            let Receive { stage, ref memory, .. } = self.receives[receive];
            let is_right = match stage {
                Stage::Done => memory.is_the_programs(),
                // Whose request was freed: the program cannot know when it is over.
                Stage::Matched(message) => self.is_received(receive, message),
                Stage::Cancelled => memory.is_the_programs() || memory.holds(0, 0),
                Stage::Pending => false,
            };
            self.require(is_right, |_| {
                format!("the buffer of receive {receive}, {stage:?}, was written to")
            });
        }
    }
}

/// What a probe looks for.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The process that looks.
    pub process: usize,
    /// The communicator.
    pub comm: usize,
    /// A rank of it, or any.
    pub source: Option<u32>,
    /// A tag, or any.
    pub tag: TagMatch,
}

impl Probe {
    fn accepts(&self, source: u32, tag: i32) -> bool {
        self.source.is_none_or(|s| s == source) && self.tag.accepts(tag)
    }
}
