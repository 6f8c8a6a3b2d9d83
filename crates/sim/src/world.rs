//! The simulated processes, and the loop of events in virtual time.

use crate::mutation::Mutation;
use crate::network::Link;
use crate::plan::{Op, Plan};
use crate::program::Thread;
use crate::rng::Rng;
use crate::rules::{MessageIndex, ReceiveIndex, Rules, Stage};
use crate::vendor::{Access, Queues};
use gridmpi_buffer::Layout;
use gridmpi_engine::{Config, Endpoint, Patience, RequestId};
use gridmpi_wire::{ProcId, Strand};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// A run with more events than this does not end.
const MOST_EVENTS: u64 = 3_000_000;

/// Between a process's wish for a tick and the tick.
const TICK: u64 = 50;

/// What happens at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A thread makes its next call, or looks again at what it waits for.
    Step { process: usize, thread: usize },
    /// A process writes to its connections.
    Drive { process: usize },
    /// A process gives its held receives what the vendor has.
    Poll { process: usize },
    /// Some milliseconds have passed for a process.
    Tick { process: usize },
    /// A message inside a cluster arrives.
    Arrive { from: usize, to: usize },
    /// The vendor completes a receive.
    ReceiveDone { receive: ReceiveIndex },
    /// The vendor completes a send.
    SendDone { message: MessageIndex },
    /// A connection is made.
    Connect { link: usize },
    /// The second end of a new connection learns of it.
    Connected { link: usize, side: usize, epoch: u32, peer_expects: u64 },
    /// Bytes written by a side have crossed.
    Cross { link: usize, side: usize, epoch: u32, bytes: usize },
    /// What has crossed from a side is read.
    Read { link: usize, side: usize, epoch: u32 },
    /// A connection is cut.
    Cut { link: usize },
    /// One of those that stand is.
    CutAny,
    /// A side notices that it was.
    Notice { link: usize, side: usize, epoch: u32 },
}

/// A simulated process.
pub struct Process {
    /// The engine under test.
    pub endpoint: Endpoint,
    /// Its vendor's queues.
    pub vendor: Queues,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// The receive behind each request of the engine.
    pub receives: BTreeMap<RequestId, ReceiveIndex>,
    /// Peers that may be written to.
    pub ready: Vec<ProcId>,
    /// Something happened that a thread may wait for.
    pub stirred: bool,
    completions: u64,
    pub drive_due: bool,
    poll_due: bool,
    tick_due: bool,
}

/// What a run is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages sent.
    pub messages: u64,
    /// Events.
    pub events: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Those of them that one end had not heard of yet.
    pub half_cuts: u64,
    /// Those of them that bore the end of a stream.
    pub last_cuts: u64,
    /// Connections made beside others that stood.
    pub joins: u64,
    /// Calls that could not end by themselves, and were ended when nothing moved.
    pub releases: u64,
}

impl Stats {
    /// Of two runs.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            events: self.events + other.events,
            cuts: self.cuts + other.cuts,
            half_cuts: self.half_cuts + other.half_cuts,
            last_cuts: self.last_cuts + other.last_cuts,
            joins: self.joins + other.joins,
            releases: self.releases + other.releases,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Threads make calls.
    Running,
    /// What they left is received.
    Draining,
    /// The streams end.
    Closing,
}

/// A run.
pub struct World {
    /// What the seed means.
    pub plan: Plan,
    /// Decides everything that the plan leaves open.
    pub rng: Rng,
    /// The processes.
    pub processes: Vec<Process>,
    /// The model.
    pub rules: Rules,
    /// Of one byte.
    pub layout: Arc<Layout>,
    /// How far the run is.
    pub phase: Phase,
    /// Receives that nobody of the program posted, to end what could not end by itself.
    pub janitor: Vec<(usize, ReceiveIndex)>,
    /// What is deliberately wrong.
    pub mutation: Mutation,
    /// Counts.
    pub stats: Stats,
    /// By sender and receiver: the messages, in the order of sending.
    pub pairs: BTreeMap<(usize, usize), Vec<MessageIndex>>,
    /// By sender and receiver: how many of them have arrived.
    pub arrived: BTreeMap<(usize, usize), u64>,
    /// For every two processes of different clusters as many as they may have connections, in a row.
    pub links: Vec<Link>,
    /// Virtual time.
    pub now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    /// What happened, if it is wanted.
    pub trace: Option<Vec<String>>,
}

/// Notes what happens, if a trace is wanted.
macro_rules! trace {
    ($world:expr, $($what:tt)*) => {
        if $world.trace.is_some() {
            $world.note(format!($($what)*));
        }
    };
}
pub(crate) use trace;

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64, mutation: Mutation, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let count = plan.cluster_of.len();
        let threads = plan.threads.clone();
        let processes = threads.into_iter().enumerate();
        let config = mutation.grant(&plan.config);
        let mut world = Self {
            processes: processes.map(|(p, ops)| Process::new(p, ops, &config)).collect(),
            rules: Rules::new(&plan.comms, count),
            layout: Arc::new(Layout::bytes(1)),
            phase: Phase::Running,
            janitor: Vec::new(),
            mutation,
            stats: Stats::default(),
            pairs: BTreeMap::new(),
            arrived: BTreeMap::new(),
            links: links(&plan),
            now: 0,
            heap: BinaryHeap::new(),
            scheduled: 0,
            trace: traced.then(Vec::new),
            plan,
            rng,
        };
        trace!(world, "{:#?}", world.plan);
        world.begin();
        world
    }

    fn begin(&mut self) {
        for process in 0..self.processes.len() {
            for thread in 0..self.processes[process].threads.len() {
                self.step_later(process, thread);
            }
        }
        for _ in 0..self.plan.cuts.first {
            let link = self.rng.index(self.links.len());
            let horizon = 40 * (self.plan.delays.call + self.plan.delays.link);
            self.later(horizon, Event::Cut { link });
        }
    }

    /// What stood still goes on: connections are cut then, too, while there is something on them.
    pub fn cut_again(&mut self) {
        let call = if self.phase == Phase::Running { self.plan.delays.call } else { 0 };
        // The last acknowledgement goes two ticks later.
        let horizon = 4 * (call + self.plan.delays.link) + 2 * TICK;
        for _ in 0..self.rng.within(0, self.plan.cuts.again) {
            self.later(horizon, Event::CutAny);
        }
    }

    pub(crate) fn note(&mut self, what: String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>8} {what}"));
        }
    }

    /// Schedules an event after at most `most` ticks.
    pub fn later(&mut self, most: u64, event: Event) {
        let at = self.now + self.rng.within(0, most);
        self.at(at, event);
    }

    /// Schedules an event at a time.
    pub fn at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse((time, self.scheduled, event)));
    }

    /// Runs until nothing moves or something is wrong.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((now, _, event))) = self.heap.pop() {
            self.now = now;
            self.stats.events += 1;
            self.handle(event);
            self.check()?;
        }
        Ok(())
    }

    /// Whether all is well so far.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(failure) = self.rules.failure() {
            return Err(failure.clone());
        }
        if self.stats.events > MOST_EVENTS {
            return Err("it does not end".to_owned());
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step { process, thread } => self.step(process, thread),
            Event::Drive { process } => self.drive(process),
            Event::Poll { process } => self.poll(process),
            Event::Tick { process } => {
                self.processes[process].tick_due = false;
                // Virtual time does not mind who is patient.
                for patience in Patience::ALL {
                    self.processes[process].endpoint.tick(patience);
                }
                self.attend(process);
            }
            Event::Arrive { from, to } => {
                let overtakes = self.mutation.strikes(Mutation::Overtake, &mut self.rng);
                self.processes[to].vendor.arrive(from, overtakes, &mut self.rules);
                self.attend(to);
            }
            Event::ReceiveDone { receive } => self.vendor_received(receive),
            Event::SendDone { message } => self.vendor_sent(message),
            Event::Connect { link } => self.connect(link),
            Event::Connected { link, side, epoch, peer_expects } => {
                if self.links[link].epoch == epoch {
                    self.connected(link, side, peer_expects);
                }
            }
            Event::Cross { link, side, epoch, bytes } => {
                if self.links[link].epoch == epoch {
                    self.links[link].pipes[side].deliver(bytes);
                    self.at(self.now, Event::Read { link, side, epoch });
                }
            }
            Event::Read { link, side, epoch } => {
                if self.links[link].epoch == epoch {
                    self.read(link, side);
                }
            }
            Event::Cut { link } => self.cut(link),
            Event::CutAny => self.cut_any(),
            Event::Notice { link, side, epoch } => {
                if self.links[link].epoch == epoch {
                    self.notice(link, side);
                }
            }
        }
    }

    /// After anything that happened to a process: schedules what follows from it.
    pub fn attend(&mut self, process: usize) {
        let p = &mut self.processes[process];
        p.endpoint.wants_transmit(&mut p.ready);
        let completions = p.endpoint.completions();
        let vendor_stirred = std::mem::take(&mut p.vendor.stirred);
        let changed = std::mem::replace(&mut p.completions, completions) != completions;
        let heard = changed && !self.mutation.strikes(Mutation::LoseSign, &mut self.rng);
        let stirred = std::mem::take(&mut p.stirred) || heard || vendor_stirred;
        let matched = std::mem::take(&mut p.vendor.matched);
        let drive = !p.ready.is_empty() && !p.drive_due;
        p.drive_due |= drive;
        let poll = stirred && p.endpoint.has_held() && !p.poll_due;
        p.poll_due |= poll;
        let tick = Patience::ALL.iter().any(|&it| p.endpoint.wants_tick(it)) && !p.tick_due;
        p.tick_due |= tick;
        while let Some(peer) = self.processes[process].endpoint.wants_connection() {
            self.dial(process, peer.0 as usize);
        }
        if drive {
            self.later(3, Event::Drive { process });
        }
        if poll {
            self.later(self.plan.delays.local, Event::Poll { process });
        }
        if tick {
            self.at(self.now + TICK, Event::Tick { process });
        }
        for receive in matched {
            self.vendor_matched(receive);
        }
        if stirred {
            for thread in 0..self.processes[process].threads.len() {
                if self.processes[process].threads[thread].is_blocked() {
                    self.step_later(process, thread);
                }
            }
        }
    }

    /// What the vendor hands the engine of a process, beside the engine.
    pub fn access(&mut self, process: usize) -> (&mut Endpoint, Access<'_>) {
        let p = &mut self.processes[process];
        let access = Access {
            queues: &mut p.vendor,
            rules: &mut self.rules,
            rng: &mut self.rng,
            comms: &self.plan.comms,
            receives: &p.receives,
        };
        (&mut p.endpoint, access)
    }

    /// Gives held receives what the vendor has. Whether anything moved.
    pub fn poll_now(&mut self, process: usize) -> bool {
        let (endpoint, mut access) = self.access(process);
        let moved = endpoint.poll_local(&mut access);
        if moved {
            trace!(self, "p{process} polls the vendor");
        }
        self.processes[process].stirred |= moved;
        self.attend(process);
        moved
    }

    fn poll(&mut self, process: usize) {
        self.processes[process].poll_due = false;
        self.poll_now(process);
    }

    fn vendor_matched(&mut self, receive: ReceiveIndex) {
        self.later(self.plan.delays.local, Event::ReceiveDone { receive });
        if let Stage::Matched(message) = self.rules.receives[receive].stage {
            trace!(self, "the vendor gives message {message} to receive {receive}");
            self.later(self.plan.delays.local, Event::SendDone { message });
        }
    }

    fn vendor_received(&mut self, receive: ReceiveIndex) {
        let Stage::Matched(message) = self.rules.receives[receive].stage else {
            return self.rules.fail(format!("the vendor completed receive {receive} unmatched"));
        };
        let completion = self.rules.expected(receive, message);
        let len = self.rules.messages[message].len;
        let r = &mut self.rules.receives[receive];
        r.memory.store(message, len);
        r.vendor_done = true;
        let process = r.process;
        let p = &mut self.processes[process];
        if let Some(request) = r.request {
            p.endpoint.local_completed(request, completion);
        }
        p.stirred = true;
        self.attend(process);
    }

    fn vendor_sent(&mut self, message: MessageIndex) {
        let m = &mut self.rules.messages[message];
        m.vendor_done = true;
        let process = m.from;
        self.processes[process].stirred = true;
        self.attend(process);
    }
}

impl Process {
    fn new(id: usize, threads: Vec<Vec<Op>>, config: &Config) -> Self {
        let config = Config { me: ProcId(id as u32), ..config.clone() };
        Self {
            endpoint: Endpoint::new(config),
            vendor: Queues::default(),
            threads: threads.into_iter().map(Thread::new).collect(),
            receives: BTreeMap::new(),
            ready: Vec::new(),
            stirred: false,
            completions: 0,
            drive_due: false,
            poll_due: false,
            tick_due: false,
        }
    }
}

/// The links of every two processes of different clusters.
fn links(plan: &Plan) -> Vec<Link> {
    let count = plan.cluster_of.len();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
    let apart = pairs.filter(|&[a, b]| plan.cluster_of[a] != plan.cluster_of[b]);
    let paths = || Strand::first(Strand::MAX).zip(plan.paths.iter().copied());
    apart
        .flat_map(|ends| paths().map(move |(strand, path)| Link::new(ends, strand, path)))
        .collect()
}
