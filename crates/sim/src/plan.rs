//! What a seed means: clusters, communicators, limits, delays, faults, and the program of each thread.

use crate::network::Path;
use crate::rng::Rng;
use gridmpi_engine::{Bounds, Config, Mode, TagMatch};
use gridmpi_wire::{ContextId, Plane, ProcId};

/// A communicator.
#[derive(Clone, Debug)]
pub struct Comm {
    /// Its context.
    pub context: ContextId,
    /// The process of each rank.
    pub members: Vec<usize>,
}

impl Comm {
    /// The rank of a process that is a member.
    #[must_use]
    pub fn rank_of(&self, process: usize) -> Option<u32> {
        self.members.iter().position(|&member| member == process).map(|rank| rank as u32)
    }
}

/// What becomes of a request that a call has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The call blocks until it is over.
    Wait,
    /// Some later call waits for it.
    Later,
    /// It is freed (`MPI_Request_free`).
    Free,
    /// It is cancelled at once, then waited for (receives only).
    Cancel,
}

/// Whom a receive or probe accepts: ranks and tags of one communicator.
#[derive(Clone, Copy, Debug)]
pub struct Accepts {
    /// Which communicator.
    pub comm: usize,
    /// A rank, or any.
    pub source: Option<u32>,
    /// A tag, or any.
    pub tag: TagMatch,
}

/// One call, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Op {
    /// A send.
    Send { comm: usize, to: u32, tag: i32, len: usize, mode: Mode, then: Then },
    /// A receive.
    Receive { accepts: Accepts, capacity: usize, then: Then },
    /// A probe and, if it finds something and `capacity` is given, the receive of it.
    Probe { accepts: Accepts, blocking: bool, capacity: Option<usize>, then: Then },
    /// A matching probe and, if it finds something, the receive of the message.
    Claim { accepts: Accepts, blocking: bool, capacity: usize, then: Then },
    /// Waits for all requests of the thread.
    WaitAll,
    /// Waits for any one of them.
    WaitAny,
    /// Tests any one of them.
    Test,
    /// Looks at any one of them and leaves it (`MPI_Request_get_status`).
    Status,
    /// Cancels any one of them that is a receive.
    Cancel,
}

/// Delays, in ticks of virtual time.
#[derive(Clone, Debug)]
pub struct Delays {
    /// Between two calls of a thread, at most.
    pub call: u64,
    /// One way between clusters, at least.
    pub link: u64,
    /// Added to it, at most.
    pub jitter: u64,
    /// One way inside a cluster, at most.
    pub local: u64,
}

/// Connections that are cut.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Of those that there are while the program has not come to stand, so many at most.
    pub first: usize,
    /// So many of a hundred soon after they were made, perhaps before both ends have heard of them.
    pub young: u64,
    /// At most so many whenever what has come to stand goes on, to the end of the streams.
    pub again: u64,
}

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster of each process.
    pub cluster_of: Vec<usize>,
    /// The communicators; the first is the world.
    pub comms: Vec<Comm>,
    /// Limits of every endpoint; `me` is to be set.
    pub config: Config,
    /// Bytes that a connection holds in each direction.
    pub pipe: usize,
    /// How the connections are that two processes may have at a time.
    pub paths: Vec<Path>,
    /// Connections that are cut.
    pub cuts: Cuts,
    /// How long things take.
    pub delays: Delays,
    /// The threads of each process, and what they do.
    pub threads: Vec<Vec<Vec<Op>>>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let cluster_of = clusters(rng);
        let processes = cluster_of.len();
        let config = config(rng);
        let threads = (0..processes)
            .map(|_| vec![Vec::new(); if rng.chance(70) { 1 } else { rng.within(2, 3) as usize }])
            .collect();
        let slow = rng.chance(50);
        let mut plan = Self {
            comms: comms(rng, &cluster_of),
            cluster_of,
            pipe: [24, 100, 1000, 5000][rng.index(4)],
            paths: Vec::new(),
            cuts: if rng.chance(50) { Cuts::default() } else { cuts(rng) },
            delays: Delays {
                call: [1, 10, 100, 1000][rng.index(4)],
                link: if slow { 500 } else { 5 },
                jitter: rng.within(0, 200),
                local: [1, 20, 300][rng.index(3)],
            },
            config,
            threads,
        };
        plan.paths = paths(rng, plan.delays.link);
        if rng.chance(1) {
            plan.write_flood(rng);
        }
        plan.write_programs(rng);
        plan
    }

    /// A receive takes no more.
    #[must_use]
    pub const fn longest(&self) -> usize {
        6 * self.config.chunk as usize
    }

    /// More messages of one sender than its receiver may have unmatched, which waits for the last of them.
    fn write_flood(&mut self, rng: &mut Rng) {
        const LAST: i32 = 100;
        self.config.credit_envelopes = 1;
        let (from, to) = (0, self.cluster_of.len() - 1);
        let (messages, then) = (rng.within(70, 130), Then::Later);
        let capacity = self.longest();
        let receive = |tag, then| {
            let accepts = Accepts { comm: 0, source: Some(from as u32), tag: TagMatch::Is(tag) };
            Op::Receive { accepts, capacity, then }
        };
        for number in 1..=messages {
            let tag = if number == messages { LAST } else { 0 };
            let (to, len) = (to as u32, rng.index(12));
            let send = Op::Send { comm: 0, to, tag, len, mode: Mode::Standard, then };
            self.threads[from][0].push(send);
        }
        let first = if rng.chance(50) { Then::Wait } else { Then::Later };
        self.threads[to][0].push(receive(LAST, first));
        for _ in 0..rng.below(messages) {
            self.threads[to][0].push(receive(0, then));
        }
    }

    fn write_programs(&mut self, rng: &mut Rng) {
        let messages = rng.within(2, 40);
        let style = Style::new(rng);
        for _ in 0..messages {
            self.write_message(rng, &style);
            if rng.chance(style.others) {
                self.write_other(rng);
            }
        }
        for thread in self.threads.iter_mut().flatten() {
            thread.push(Op::WaitAll);
        }
    }

    /// A send somewhere, and a receive for it: not always this one will get it.
    fn write_message(&mut self, rng: &mut Rng, style: &Style) {
        let comm = rng.index(self.comms.len());
        let size = self.comms[comm].members.len();
        let from = rng.index(size);
        let to = (from + rng.within(1, size as u64 - 1) as usize) % size;
        let tag = rng.below(style.tags) as i32;
        let len = self.length(rng);
        let mode = match rng.below(10) {
            0..=5 => Mode::Standard,
            6..=8 => Mode::Synchronous,
            _ => Mode::Buffered,
        };
        let then = style.then(rng, false);
        let send = Op::Send { comm, to: to as u32, tag, len, mode, then };
        let source = (!rng.chance(style.any_source)).then_some(from as u32);
        let tag = if rng.chance(style.any_tag) { TagMatch::Any } else { TagMatch::Is(tag) };
        let receive = self.receive(rng, style, Accepts { comm, source, tag }, len);
        let (sender, receiver) = (self.comms[comm].members[from], self.comms[comm].members[to]);
        self.push(rng, sender, send);
        self.push(rng, receiver, receive);
    }

    fn receive(&self, rng: &mut Rng, style: &Style, accepts: Accepts, len: usize) -> Op {
        let capacity = if rng.chance(90) { self.longest() } else { rng.index(len + 1) };
        let then = style.then(rng, true);
        let blocking = rng.chance(70);
        match rng.below(10) {
            0..=6 => Op::Receive { accepts, capacity, then },
            7 => Op::Probe { accepts, blocking, capacity: Some(capacity), then },
            _ => Op::Claim { accepts, blocking, capacity, then },
        }
    }

    /// A call that only looks, waits or cancels.
    fn write_other(&mut self, rng: &mut Rng) {
        let process = rng.index(self.threads.len());
        let op = match rng.below(6) {
            0 => Op::WaitAll,
            1 => Op::WaitAny,
            2 => Op::Test,
            3 => Op::Status,
            4 => Op::Cancel,
            _ => {
                let source = rng.chance(50).then(|| rng.index(self.comms[0].members.len()) as u32);
                let source = source.filter(|&rank| rank as usize != process);
                let accepts = Accepts { comm: 0, source, tag: TagMatch::Any };
                Op::Probe { accepts, blocking: false, capacity: None, then: Then::Wait }
            }
        };
        self.push(rng, process, op);
    }

    fn push(&mut self, rng: &mut Rng, process: usize, op: Op) {
        let threads = &mut self.threads[process];
        let thread = rng.index(threads.len());
        threads[thread].push(op);
    }

    /// None, a few bytes, about a chunk, several chunks.
    fn length(&self, rng: &mut Rng) -> usize {
        let chunk = u64::from(self.config.chunk);
        (match rng.below(8) {
            0 => 0,
            1..=3 => rng.within(1, 12),
            4 | 5 => rng.within(1, chunk + 1),
            _ => rng.within(1, 6 * chunk),
        }) as usize
    }
}

/// How a program is written.
struct Style {
    tags: u64,
    any_source: u64,
    any_tag: u64,
    wait: u64,
    free: u64,
    cancel: u64,
    others: u64,
}

impl Style {
    fn new(rng: &mut Rng) -> Self {
        Self {
            tags: rng.within(1, 4),
            any_source: [0, 30, 60, 100][rng.index(4)],
            any_tag: [0, 20, 60][rng.index(3)],
            wait: [0, 30, 70][rng.index(3)],
            free: [0, 5, 30][rng.index(3)],
            cancel: [0, 0, 10][rng.index(3)],
            others: [0, 20, 60][rng.index(3)],
        }
    }

    fn then(&self, rng: &mut Rng, is_receive: bool) -> Then {
        if is_receive && rng.chance(self.cancel) {
            Then::Cancel
        } else if rng.chance(self.free) {
            Then::Free
        } else if rng.chance(self.wait) {
            Then::Wait
        } else {
            Then::Later
        }
    }
}

/// 2 to 4 clusters of 1 to 3 processes.
fn clusters(rng: &mut Rng) -> Vec<usize> {
    let clusters = rng.within(2, 4) as usize;
    (0..clusters).flat_map(|c| vec![c; rng.within(1, 3) as usize]).collect()
}

/// The world, and up to 3 more that span clusters, in any order of ranks.
fn comms(rng: &mut Rng, cluster_of: &[usize]) -> Vec<Comm> {
    let world = Comm { context: ContextId::WORLD, members: (0..cluster_of.len()).collect() };
    let mut comms = vec![world];
    for count in 1..=rng.below(4) as u32 {
        let mut members: Vec<usize> = (0..cluster_of.len()).filter(|_| rng.chance(70)).collect();
        for at in (1..members.len()).rev() {
            members.swap(at, rng.index(at + 1));
        }
        let spans = members.iter().any(|&p| cluster_of[p] != cluster_of[members[0]]);
        let plane = if rng.chance(20) { Plane::Collective } else { Plane::PointToPoint };
        if spans {
            let context = ContextId::reserved(ProcId(0), count).on(plane);
            comms.push(Comm { context, members });
        }
    }
    comms
}

fn cuts(rng: &mut Rng) -> Cuts {
    Cuts {
        first: rng.within(1, 12) as usize,
        young: [0, 10, 30][rng.index(3)],
        again: [0, 1, 3][rng.index(3)],
    }
}

/// One path or several, alike or not.
fn paths(rng: &mut Rng, delay: u64) -> Vec<Path> {
    let count = if rng.chance(40) { 1 } else { rng.within(2, 5) };
    let (is_alike, per_tick) = (rng.chance(30), [0, 1, 10, 100][rng.index(4)]);
    let path = |_| {
        if is_alike {
            return Path { delay, per_tick };
        }
        let times = [1, 1, 3, 10][rng.index(4)];
        Path { delay: delay * times, per_tick: [0, 1, 10, 100][rng.index(4)] }
    };
    (0..count).map(path).collect()
}

/// Limits so small that flow control is at work in most runs.
fn config(rng: &mut Rng) -> Config {
    let chunk = [8, 16, 64][rng.index(3)];
    let credit_bytes = [0, 40, 200, 2000][rng.index(4)];
    Config {
        chunk,
        credit_bytes,
        credit_envelopes: [1, 2, 4, 64][rng.index(4)],
        eager_limit: [0, 20, 100, 5000][rng.index(4)],
        copy_limit: [0, 10, 1000][rng.index(3)],
        tail_limit: [0, 30, 300, 1 << 20][rng.index(4)],
        bounds: Bounds {
            early: [0, 300, 700, 1 << 20][rng.index(4)],
            away: [0, 1, 4, 50, 4096][rng.index(5)],
        },
        ..Config::new(ProcId(0))
    }
}
