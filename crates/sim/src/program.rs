//! The threads of the simulated program: MPI calls over the engine and the vendor, as the preloaded
//! library makes them.

use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::plan::{Accepts, Op, Then};
use crate::rules::{Message, MessageIndex, Probe, Receive, ReceiveIndex, Stage, Where};
use crate::world::{Event, Process, World, trace};
use gridmpi_engine::{Completion, MessageId, Mode, Source, TagMatch};
use gridmpi_wire::{ProcId, Rank};

/// A request of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A send.
    Send(MessageIndex),
    /// A receive.
    Receive(ReceiveIndex),
}

/// What a thread waits for inside a call.
#[derive(Clone, Debug)]
pub enum Block {
    /// All of these.
    All(Vec<Request>),
    /// Any of the thread's requests.
    Any,
    /// A message that fits.
    Probe { accepts: Accepts, capacity: Option<usize>, then: Then },
    /// A message that fits, to claim.
    Claim { accepts: Accepts, capacity: usize, then: Then },
    /// Nothing: it is to receive what it has claimed.
    Claimed { message: MessageIndex, id: Option<MessageId>, capacity: usize, then: Then },
}

/// A thread.
#[derive(Debug)]
pub struct Thread {
    ops: Vec<Op>,
    next: usize,
    /// Requests that a later call waits for.
    pub requests: Vec<Request>,
    /// What it waits for.
    pub block: Option<Block>,
    step_due: bool,
}

impl Thread {
    /// At its first call.
    #[must_use]
    pub const fn new(ops: Vec<Op>) -> Self {
        Self { ops, next: 0, requests: Vec::new(), block: None, step_due: false }
    }

    /// Whether it waits inside a call.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.block.is_some()
    }

    /// Whether it will go on by itself.
    #[must_use]
    pub const fn is_step_due(&self) -> bool {
        self.step_due
    }

    /// Whether it has made all its calls.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.block.is_none() && self.next == self.ops.len()
    }
}

/// What a probe found: the message, and the engine's name for it if it was claimed there.
type Found = (MessageIndex, Option<MessageId>);

impl World {
    fn thread(&mut self, process: usize, thread: usize) -> &mut Thread {
        &mut self.processes[process].threads[thread]
    }

    /// Schedules a thread, unless it is.
    pub fn step_later(&mut self, process: usize, thread: usize) {
        if !std::mem::replace(&mut self.thread(process, thread).step_due, true) {
            self.later(self.plan.delays.call, Event::Step { process, thread });
        }
    }

    /// A thread makes its next call, or looks again at what it waits for.
    pub fn step(&mut self, process: usize, thread: usize) {
        self.thread(process, thread).step_due = false;
        self.step_now(process, thread);
        self.attend(process);
    }

    /// Whether the thread got on.
    pub fn step_now(&mut self, process: usize, thread: usize) -> bool {
        let state = self.thread(process, thread);
        let got_on = if let Some(block) = state.block.take() {
            self.resume(process, thread, block)
        } else if let Some(op) = state.ops.get(state.next).cloned() {
            state.next += 1;
            trace!(self, "p{process}.{thread} {op:?}");
            self.call(process, thread, op);
            true
        } else {
            return false;
        };
        if got_on && !self.thread(process, thread).is_over() {
            self.step_later(process, thread);
        }
        got_on
    }

    fn call(&mut self, process: usize, thread: usize, op: Op) {
        match op {
            Op::Send { comm, to, tag, len, mode, then } => {
                let message = self.send(process, comm, to, tag, len, mode);
                self.dispose(process, thread, Request::Send(message), then);
            }
            Op::Receive { accepts, capacity, then } => {
                let receive = self.receive(process, accepts, capacity);
                self.dispose(process, thread, Request::Receive(receive), then);
            }
            Op::Probe { accepts, blocking, capacity, then } => {
                let block = Block::Probe { accepts, capacity, then };
                self.look_or(process, thread, block, blocking);
            }
            Op::Claim { accepts, blocking, capacity, then } => {
                let block = Block::Claim { accepts, capacity, then };
                self.look_or(process, thread, block, blocking);
            }
            Op::WaitAll => {
                let requests = std::mem::take(&mut self.thread(process, thread).requests);
                self.thread(process, thread).block = Some(Block::All(requests));
            }
            Op::WaitAny => {
                if !self.thread(process, thread).requests.is_empty() {
                    self.thread(process, thread).block = Some(Block::Any);
                }
            }
            Op::Test | Op::Status | Op::Cancel => self.on_some(process, thread, &op),
        }
    }

    /// Looks once for what `block` waits for; waits for it if the call is blocking.
    fn look_or(&mut self, process: usize, thread: usize, block: Block, blocking: bool) {
        let found = self.resume(process, thread, block);
        if !found && !blocking {
            self.thread(process, thread).block = None;
        }
    }

    /// A call on one of the thread's requests.
    fn on_some(&mut self, process: usize, thread: usize, op: &Op) {
        let count = self.thread(process, thread).requests.len();
        if count == 0 {
            return;
        }
        let at = self.rng.index(count);
        let request = self.thread(process, thread).requests[at];
        match (op, request) {
            (Op::Test, _) if self.is_over(request) => {
                self.thread(process, thread).requests.remove(at);
                self.finish(request);
            }
            (Op::Cancel, Request::Receive(receive)) => self.cancel(receive),
            (Op::Status, _) => self.check_status(request),
            _ => {}
        }
    }

    /// What the engine shows of a request that is over is what it gives in the end.
    fn check_status(&mut self, request: Request) {
        let (process, id) = match request {
            Request::Send(message) => {
                let m = &self.rules.messages[message];
                (m.from, m.request)
            }
            Request::Receive(receive) => {
                let r = &self.rules.receives[receive];
                (r.process, r.request)
            }
        };
        let shown = id.and_then(|id| self.processes[process].endpoint.peek(id));
        match (request, shown) {
            (Request::Send(message), Some(shown)) => self.rules.check_send(message, shown),
            (Request::Receive(receive), Some(shown)) => self.rules.check_receive(receive, shown),
            (_, None) => {}
        }
    }

    fn dispose(&mut self, process: usize, thread: usize, request: Request, then: Then) {
        match (then, request) {
            (Then::Later, _) => self.thread(process, thread).requests.push(request),
            (Then::Free, _) => self.free(request),
            (Then::Cancel, Request::Receive(receive)) => {
                self.cancel(receive);
                self.thread(process, thread).block = Some(Block::All(vec![request]));
            }
            _ => self.thread(process, thread).block = Some(Block::All(vec![request])),
        }
    }

    /// Looks again at what a thread waits for. Whether it waits no more.
    fn resume(&mut self, process: usize, thread: usize, block: Block) -> bool {
        match block {
            Block::All(mut requests) => {
                requests.retain(|&request| !self.finish_if_over(request));
                if requests.is_empty() {
                    return true;
                }
                self.thread(process, thread).block = Some(Block::All(requests));
            }
            Block::Any => {
                let requests = self.thread(process, thread).requests.clone();
                if let Some(at) = requests.iter().position(|&request| self.finish_if_over(request))
                {
                    self.thread(process, thread).requests.remove(at);
                    return true;
                }
                self.thread(process, thread).block = Some(Block::Any);
            }
            Block::Probe { accepts, capacity, then } => {
                if let Some((message, _)) = self.look(process, accepts, false) {
                    if let Some(capacity) = capacity {
                        self.receive_probed(process, thread, message, capacity, then);
                    }
                    return true;
                }
                self.thread(process, thread).block = Some(block);
            }
            Block::Claim { accepts, capacity, then } => {
                if let Some((message, id)) = self.look(process, accepts, true) {
                    let claimed = Block::Claimed { message, id, capacity, then };
                    self.thread(process, thread).block = Some(claimed);
                    return true;
                }
                self.thread(process, thread).block = Some(block);
            }
            Block::Claimed { message, id, capacity, then } => {
                let receive = self.receive_claimed(process, message, id, capacity);
                self.dispose(process, thread, Request::Receive(receive), then);
                return true;
            }
        }
        false
    }

    // Sends.

    fn send(
        &mut self,
        from: usize,
        comm: usize,
        to: u32,
        tag: i32,
        len: usize,
        mode: Mode,
    ) -> MessageIndex {
        let to = self.rules.member(comm, to);
        let source = self.plan.comms[comm].rank_of(from).expect("a member sends");
        let is_local = self.plan.cluster_of[from] == self.plan.cluster_of[to];
        let message = self.rules.sent(Message {
            from,
            to,
            comm,
            source,
            tag,
            len,
            mode,
            is_local,
            place: Where::Flying,
            reached: 0,
            memory: None,
            request: None,
            is_sent: false,
            vendor_done: false,
        });
        self.stats.messages += 1;
        trace!(self, "p{from} sends message {message} to p{to}: {comm} {source} {tag} {len}");
        if is_local {
            self.send_local(message);
        } else {
            self.send_remote(message);
        }
        message
    }

    fn send_local(&mut self, message: MessageIndex) {
        let Message { from, to, mode, .. } = self.rules.messages[message];
        self.processes[to].vendor.send(from, message);
        self.later(self.plan.delays.local, Event::Arrive { from, to });
        let eager = mode == Mode::Standard && self.rng.chance(70);
        if eager || mode == Mode::Buffered {
            self.later(self.plan.delays.local, Event::SendDone { message });
        }
    }

    fn send_remote(&mut self, message: MessageIndex) {
        let Message { from, to, comm, source, tag, len, mode, .. } = self.rules.messages[message];
        let memory = Memory::message(message, len);
        let mut buffer = memory.send_buffer(&self.layout);
        if self.rng.chance(15) {
            // As a collective algorithm sends: bytes of our own.
            buffer = buffer.to_owned();
        }
        let context = self.plan.comms[comm].context;
        let endpoint = &mut self.processes[from].endpoint;
        let to_process = ProcId(to as u32);
        let request = endpoint.send(to_process, context, Rank(source), tag, mode, buffer);
        self.pairs.entry((from, to)).or_default().push(message);
        let m = &mut self.rules.messages[message];
        m.request = Some(request);
        let memory = m.memory.insert(memory);
        if self.mutation == Mutation::ReuseEarly {
            memory.use_again();
        }
    }

    // Receives.

    /// Posts a receive.
    pub fn receive(&mut self, process: usize, accepts: Accepts, capacity: usize) -> ReceiveIndex {
        let Accepts { comm, source, tag } = accepts;
        let receive = self.rules.posted(self.new_receive(process, accepts, capacity));
        trace!(self, "p{process} posts receive {receive}: {comm} {source:?} {tag:?}");
        let context = self.plan.comms[comm].context;
        let source = self.source(process, accepts);
        let p = &mut self.processes[process];
        p.stirred = true;
        if let Source::Local(rank) = source {
            let hold = p.endpoint.must_hold(context, rank, tag);
            if !hold || self.mutation == Mutation::IgnoreHold {
                p.vendor.post(receive, &mut self.rules);
                return receive;
            }
        }
        let r = &mut self.rules.receives[receive];
        let buffer = r.memory.receive_buffer(&self.layout);
        let request = p.endpoint.receive(context, source, tag, buffer);
        p.receives.insert(request, receive);
        r.request = Some(request);
        receive
    }

    fn new_receive(&self, process: usize, accepts: Accepts, capacity: usize) -> Receive {
        Receive {
            process,
            comm: accepts.comm,
            source: accepts.source,
            tag: accepts.tag,
            capacity,
            memory: Memory::room(capacity),
            stage: Stage::Pending,
            request: None,
            is_freed: false,
            vendor_done: false,
        }
    }

    fn source(&self, process: usize, accepts: Accepts) -> Source {
        let Some(rank) = accepts.source else { return Source::Any };
        let peer = self.rules.member(accepts.comm, rank);
        if self.plan.cluster_of[process] == self.plan.cluster_of[peer] {
            Source::Local(Rank(rank))
        } else {
            Source::Remote(Rank(rank), ProcId(peer as u32))
        }
    }

    fn receive_probed(
        &mut self,
        process: usize,
        thread: usize,
        message: MessageIndex,
        capacity: usize,
        then: Then,
    ) {
        let Message { comm, source, tag, .. } = self.rules.messages[message];
        let accepts = Accepts { comm, source: Some(source), tag: TagMatch::Is(tag) };
        let receive = self.receive(process, accepts, capacity);
        self.dispose(process, thread, Request::Receive(receive), then);
    }

    fn receive_claimed(
        &mut self,
        process: usize,
        message: MessageIndex,
        id: Option<MessageId>,
        capacity: usize,
    ) -> ReceiveIndex {
        let Message { comm, source, tag, .. } = self.rules.messages[message];
        let accepts = Accepts { comm, source: Some(source), tag: TagMatch::Is(tag) };
        let new = self.new_receive(process, accepts, capacity);
        let receive = self.rules.posted_for(new, message);
        trace!(self, "p{process} receives claimed message {message}: receive {receive}");
        let p = &mut self.processes[process];
        p.stirred = true;
        if let Some(id) = id {
            let r = &mut self.rules.receives[receive];
            let buffer = r.memory.receive_buffer(&self.layout);
            let request = p.endpoint.receive_claimed(id, buffer);
            p.receives.insert(request, receive);
            r.request = Some(request);
        } else {
            p.vendor.matched.push(receive);
        }
        receive
    }

    /// Cancels a receive.
    pub fn cancel(&mut self, receive: ReceiveIndex) {
        let Receive { process, request, .. } = self.rules.receives[receive];
        let p = &mut self.processes[process];
        let mut success = request.is_some_and(|request| p.endpoint.cancel(request));
        if !success && p.vendor.cancel(receive) {
            success = true;
            if let Some(request) = request {
                p.endpoint.local_completed(request, cancelled());
            }
        }
        p.stirred = true;
        trace!(self, "p{process} cancels receive {receive}: {success}");
        let was_cancelled = self.rules.receives[receive].stage == Stage::Cancelled;
        if !was_cancelled {
            self.rules.cancelled(receive, success);
        }
    }

    /// Looks for a message. `claim`: and takes it.
    fn look(&mut self, process: usize, accepts: Accepts, claim: bool) -> Option<Found> {
        let local_first = self.rng.chance(50);
        match self.source(process, accepts) {
            Source::Local(_) => self.look_local(process, accepts, claim),
            Source::Remote(..) => self.look_remote(process, accepts, claim),
            Source::Any if local_first => self
                .look_local(process, accepts, claim)
                .or_else(|| self.look_remote(process, accepts, claim)),
            Source::Any => self
                .look_remote(process, accepts, claim)
                .or_else(|| self.look_local(process, accepts, claim)),
        }
    }

    fn look_remote(&mut self, process: usize, accepts: Accepts, claim: bool) -> Option<Found> {
        let (context, tag) = (self.plan.comms[accepts.comm].context, accepts.tag);
        let source = self.source(process, accepts);
        let endpoint = &mut self.processes[process].endpoint;
        let (id, probed) = if claim {
            endpoint.claim(context, source, tag).map(|(id, probed)| (Some(id), probed)).unzip()
        } else {
            (None, endpoint.probe(context, source, tag))
        };
        let found = probed.map(|probed| (probed.source, probed.tag));
        let message = self.rules.probed(&probe(process, accepts), false, found)?;
        let len = self.rules.messages[message].len as u64;
        if probed.is_some_and(|probed| probed.len != len) {
            self.rules.fail(format!("a probe found another length of message {message}"));
        }
        if claim {
            self.rules.claimed(message);
        }
        trace!(self, "p{process} finds message {message}, claim {claim}");
        Some((message, id.flatten()))
    }

    fn look_local(&mut self, process: usize, accepts: Accepts, claim: bool) -> Option<Found> {
        let (context, tag) = (self.plan.comms[accepts.comm].context, accepts.tag);
        let (endpoint, mut access) = self.access(process);
        let found = endpoint.probe_local(&mut access, context, accepts.source.map(Rank), tag);
        let p = &mut self.processes[process];
        p.stirred |= !p.vendor.matched.is_empty();
        let message = self.rules.probed(&probe(process, accepts), true, found)?;
        if claim {
            self.processes[process].vendor.claim(message);
            self.rules.claimed(message);
        }
        trace!(self, "p{process} finds local message {message}, claim {claim}");
        Some((message, None))
    }

    // Requests.

    /// Whether a request is over.
    #[must_use]
    pub fn is_over(&self, request: Request) -> bool {
        match request {
            Request::Send(message) => {
                let m = &self.rules.messages[message];
                let endpoint = &self.processes[m.from].endpoint;
                m.request.map_or(m.vendor_done, |request| endpoint.peek(request).is_some())
            }
            Request::Receive(receive) => {
                let r = &self.rules.receives[receive];
                let endpoint = &self.processes[r.process].endpoint;
                let at_vendor = r.vendor_done || r.stage == Stage::Cancelled;
                r.request.map_or(at_vendor, |request| endpoint.peek(request).is_some())
            }
        }
    }

    /// Ends a request if it is over. Whether it was.
    pub fn finish_if_over(&mut self, request: Request) -> bool {
        let over = self.is_over(request);
        if over {
            self.finish(request);
        }
        over
    }

    fn finish(&mut self, request: Request) {
        trace!(self, "{request:?} is over");
        match request {
            Request::Send(message) => {
                let Message { from, len, request, .. } = self.rules.messages[message];
                let local = Completion { len: len as u64, cancelled: false, ..cancelled() };
                let completion = self.processes[from].take(request, local);
                self.rules.send_done(message, &completion);
            }
            Request::Receive(receive) => {
                let Receive { process, request, stage, .. } = self.rules.receives[receive];
                let local = match stage {
                    Stage::Matched(message) => self.rules.expected(receive, message),
                    _ => cancelled(),
                };
                let completion = self.processes[process].take(request, local);
                self.rules.receive_done(receive, &completion);
            }
        }
    }

    fn free(&mut self, request: Request) {
        match request {
            Request::Send(message) => {
                let m = &mut self.rules.messages[message];
                if let Some(request) = m.request.take() {
                    self.processes[m.from].endpoint.detach(request);
                }
            }
            Request::Receive(receive) => {
                let r = &mut self.rules.receives[receive];
                r.is_freed = true;
                if let Some(request) = r.request {
                    self.processes[r.process].endpoint.detach(request);
                }
            }
        }
    }
}

impl Process {
    /// The completion of a request of the engine, which is over; or of the vendor's, as given.
    fn take(
        &mut self,
        request: Option<gridmpi_engine::RequestId>,
        local: Completion,
    ) -> Completion {
        match request {
            Some(request) => self.endpoint.take(request).expect("a request that is over"),
            None => local,
        }
    }
}

/// How a cancelled receive ends.
const fn cancelled() -> Completion {
    Completion { source: None, tag: 0, len: 0, error: None, cancelled: true }
}

const fn probe(process: usize, accepts: Accepts) -> Probe {
    Probe { process, comm: accepts.comm, source: accepts.source, tag: accepts.tag }
}
