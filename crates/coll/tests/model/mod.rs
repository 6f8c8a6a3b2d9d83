//! All ranks' schedules run together, strictly and in random order.

mod access;
mod local;

use std::collections::HashMap;

use gridmpi_coll::{BufferId, LocalCollective, Schedule, Shape, Span, Step, StepId, Temporary};
use gridmpi_wire::{ClusterId, Rank};

pub use access::check_races;

/// An operation on packed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sum of 64-bit integers, wrapping.
    Sum,
    /// Product of 2×2 matrices of 32-bit integers, wrapping: associative, but it does not commute.
    Matrix,
    /// Sum of floats, which rounds differently in different orders.
    Float,
}

impl Operation {
    pub fn size(self) -> usize {
        match self {
            Self::Sum => 8,
            Self::Matrix => 16,
            Self::Float => 4,
        }
    }

    pub fn is_commutative(self) -> bool {
        self != Self::Matrix
    }

    /// `left OP right` for buffers of whole elements.
    pub fn apply(self, left: &[u8], right: &[u8]) -> Vec<u8> {
        assert_eq!(left.len(), right.len());
        let pairs = left.chunks_exact(self.size()).zip(right.chunks_exact(self.size()));
        pairs.flat_map(|(a, b)| self.element(a, b)).collect()
    }

    fn element(self, a: &[u8], b: &[u8]) -> Vec<u8> {
        match self {
            Self::Sum => {
                let of = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
                of(a).wrapping_add(of(b)).to_le_bytes().to_vec()
            }
            Self::Float => {
                let of = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
                (of(a) + of(b)).to_le_bytes().to_vec()
            }
            Self::Matrix => {
                let of =
                    |m: &[u8], i: usize| u32::from_le_bytes(m[4 * i..][..4].try_into().unwrap());
                let cell = |row: usize, column: usize| {
                    let term = |k| of(a, 2 * row + k).wrapping_mul(of(b, 2 * k + column));
                    term(0).wrapping_add(term(1)).to_le_bytes()
                };
                [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)].concat()
            }
        }
    }
}

/// A buffer and how it may be used.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub bytes: Vec<u8>,
    /// Whether it holds elements of the reduction.
    elements: bool,
    read_only: bool,
}

/// One rank.
pub struct Process {
    pub shape: Shape,
    schedule: Schedule,
    buffers: Vec<Memory>,
    /// By step, when done: wide-area crossings on the longest way there.
    done: Vec<Option<u32>>,
}

impl Process {
    /// `send` is never written; `recv` not either if `recv_read_only`.
    pub fn new(
        shape: Shape,
        schedule: Schedule,
        operation: Operation,
        (send, recv): (Vec<u8>, Vec<u8>),
        recv_read_only: bool,
    ) -> Self {
        let mut buffers = vec![
            Memory { bytes: send, elements: true, read_only: true },
            Memory { bytes: recv, elements: true, read_only: recv_read_only },
        ];
        buffers.extend(schedule.temporaries.iter().map(|temporary| {
            let (len, elements) = match *temporary {
                Temporary::Bytes(len) => (len as usize, false),
                Temporary::Elements(count) => (count as usize * operation.size(), true),
            };
            // Memory comes with whatever was in it.
            Memory { bytes: vec![0xA5; len], elements, read_only: false }
        }));
        let done = vec![None; schedule.steps.len()];
        let process = Self { shape, schedule, buffers, done };
        process.check();
        process
    }

    /// Whether its part is over.
    pub fn is_done(&self) -> bool {
        self.done.iter().all(Option::is_some)
    }

    pub fn received(&self) -> &[u8] {
        &self.buffers[BufferId::RECV.0 as usize].bytes
    }

    /// The rules of schedules that can be seen without running them.
    fn check(&self) {
        let Schedule { steps, after, .. } = &self.schedule;
        assert_eq!(steps.len(), after.len());
        for (index, after) in after.iter().enumerate() {
            assert!(
                after.iter().all(|step| (step.0 as usize) < index),
                "steps wait for earlier ones"
            );
        }
        let mut sent: Vec<_> = Vec::new();
        let mut received: Vec<_> = Vec::new();
        for step in steps {
            match step {
                Step::Send { to, tag, .. } => {
                    assert!(!self.shape.is_local(*to), "local messages are the vendor's");
                    assert!(!sent.contains(&(to, tag)), "tags tell messages apart");
                    sent.push((to, tag));
                }
                Step::Receive { from, tag, .. } => {
                    assert!(!received.contains(&(from, tag)));
                    received.push((from, tag));
                }
                _ => {}
            }
        }
        let mut after_receive = vec![false; steps.len()];
        for (index, step) in steps.iter().enumerate() {
            let waits = after[index].iter().any(|step| after_receive[step.0 as usize]);
            assert!(!waits || !matches!(step, Step::Send { .. }), "no send waits for a receive");
            after_receive[index] = waits || matches!(step, Step::Receive { .. });
        }
        check_races(&self.schedule, self.shape.my_local_rank());
    }

    fn is_ready(&self, step: usize) -> bool {
        let waits = &self.schedule.after[step];
        self.done[step].is_none() && waits.iter().all(|step| self.done[step.0 as usize].is_some())
    }

    /// Crossings before a ready step.
    fn time_before(&self, step: usize) -> u32 {
        let waits = &self.schedule.after[step];
        waits.iter().map(|step| self.done[step.0 as usize].unwrap()).max().unwrap_or(0)
    }

    /// The local collective that is next in order, if it is ready.
    fn next_local(&self) -> Option<(usize, &LocalCollective)> {
        let mut steps = self.schedule.steps.iter().enumerate();
        let next = steps.find_map(|(index, step)| match step {
            Step::Local(local) if self.done[index].is_none() => Some((index, local)),
            _ => None,
        });
        next.filter(|(index, _)| self.is_ready(*index))
    }

    fn read(&self, span: Span) -> Vec<u8> {
        let memory = &self.buffers[span.buffer.0 as usize].bytes;
        memory[span.offset as usize..span.end() as usize].to_vec()
    }

    fn read_all(&self, spans: &[Span]) -> Vec<u8> {
        spans.iter().flat_map(|span| self.read(*span)).collect()
    }

    fn write(&mut self, span: Span, data: &[u8]) {
        let memory = &mut self.buffers[span.buffer.0 as usize];
        assert!(!memory.read_only || data.is_empty(), "written to what may only be read");
        assert_eq!(span.len, data.len() as u64, "lengths match");
        memory.bytes[span.offset as usize..span.end() as usize].copy_from_slice(data);
    }

    fn check_elements(&self, span: Span, operation: Operation) {
        let size = operation.size() as u64;
        assert!(self.buffers[span.buffer.0 as usize].elements, "operations run on elements");
        assert!(
            span.offset.is_multiple_of(size) && span.len.is_multiple_of(size),
            "whole elements"
        );
    }
}

struct Message {
    data: Vec<u8>,
    sent: u32,
}

/// What a run was like.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Wide-area crossings one after another.
    pub crossings: u32,
    /// Bytes from cluster to cluster.
    pub bytes: HashMap<(usize, usize), u64>,
    /// Messages between clusters.
    pub messages: u64,
}

impl Traffic {
    pub fn total(&self) -> u64 {
        self.bytes.values().sum()
    }
}

/// A small generator of random order (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// Something that can happen next.
enum Event {
    Step(usize, usize),
    Local(usize),
}

/// Runs all processes to the end, in an order of `seed`.
pub fn run(processes: &mut [Process], operation: Operation, seed: u64) -> Traffic {
    let (mut traffic, network) = run_without(processes, None, operation, seed);
    for process in processes.iter() {
        let stuck = process.done.iter().position(Option::is_none);
        let step = stuck.map(|step| &process.schedule.steps[step]);
        assert_eq!(step, None, "rank {} waits for ever", process.shape.me().0);
        let last = process.done.iter().flatten().max().copied().unwrap_or(0);
        traffic.crossings = traffic.crossings.max(last);
    }
    assert_eq!(network, 0, "every message is received");
    traffic
}

/// Runs all processes but `absent`, which never enters, as far as they get. Returns what crossed and how
/// many messages nobody received.
pub fn run_without(
    processes: &mut [Process],
    absent: Option<Rank>,
    operation: Operation,
    seed: u64,
) -> (Traffic, usize) {
    let mut network: HashMap<(Rank, Rank, u32), Message> = HashMap::new();
    let (mut traffic, mut dice) = (Traffic::default(), Dice::new(seed));
    loop {
        let events = possible(processes, &network, absent);
        if events.is_empty() {
            break;
        }
        match events[dice.below(events.len())] {
            Event::Step(rank, step) => {
                one_step(processes, rank, step, operation, &mut network, &mut traffic);
            }
            Event::Local(cluster) => local::run(processes, cluster, operation),
        }
    }
    (traffic, network.len())
}

fn possible(
    processes: &[Process],
    network: &HashMap<(Rank, Rank, u32), Message>,
    absent: Option<Rank>,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (rank, process) in processes.iter().enumerate() {
        if Some(process.shape.me()) == absent {
            continue;
        }
        for step in (0..process.done.len()).filter(|&step| process.is_ready(step)) {
            let can = match &process.schedule.steps[step] {
                Step::Receive { from, tag, .. } => {
                    network.contains_key(&(*from, process.shape.me(), *tag))
                }
                Step::Local(_) => false,
                _ => true,
            };
            if can {
                events.push(Event::Step(rank, step));
            }
        }
    }
    let clusters = processes[0].shape.clusters();
    let all_enter = |cluster: &usize| {
        let mut members = processes[0].shape.members(*cluster).iter();
        members
            .all(|rank| Some(*rank) != absent && processes[rank.0 as usize].next_local().is_some())
    };
    events.extend((0..clusters).filter(all_enter).map(Event::Local));
    events
}

fn one_step(
    processes: &mut [Process],
    rank: usize,
    step: usize,
    operation: Operation,
    network: &mut HashMap<(Rank, Rank, u32), Message>,
    traffic: &mut Traffic,
) {
    let process = &mut processes[rank];
    let mut time = process.time_before(step);
    let me = process.shape.me();
    match process.schedule.steps[step].clone() {
        Step::Send { to, data, tag } => {
            let data = process.read_all(&data);
            let link = (process.shape.my_cluster(), process.shape.cluster_of(to));
            *traffic.bytes.entry(link).or_default() += data.len() as u64;
            traffic.messages += 1;
            network.insert((me, to, tag), Message { data, sent: time });
        }
        Step::Receive { from, into, tag } => {
            let message = network.remove(&(from, me, tag)).unwrap();
            let len: u64 = into.iter().map(|span| span.len).sum();
            assert_eq!(message.data.len() as u64, len, "a message is as long as its place");
            let mut rest = &message.data[..];
            for span in into {
                let (part, after) = rest.split_at(span.len as usize);
                process.write(span, part);
                rest = after;
            }
            time = time.max(message.sent + 1);
        }
        Step::Copy { from, to } => {
            let data = process.read(from);
            process.write(to, &data);
        }
        Step::Reduce { from, into } => {
            process.check_elements(from, operation);
            process.check_elements(into, operation);
            let result = operation.apply(&process.read(from), &process.read(into));
            process.write(into, &result);
        }
        Step::Local(_) => unreachable!("entered by whole clusters"),
    }
    process.done[step] = Some(time);
}

/// The cluster of each rank, for tests.
pub fn shapes(clusters: &[u16]) -> Vec<Shape> {
    let ids: Vec<_> = clusters.iter().copied().map(ClusterId).collect();
    (0..clusters.len() as u32).map(|me| Shape::new(Rank(me), &ids)).collect()
}

/// The steps as waited for, for [`access`].
fn waits(schedule: &Schedule, step: usize) -> &[StepId] {
    &schedule.after[step]
}
