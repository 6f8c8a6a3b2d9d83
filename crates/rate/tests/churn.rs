//! Brokers of several clusters while transfers come and go, in virtual time with messages that take theirs: once all is heard,
//! what everybody was granted fits together and is what one who knew all would have granted, and nothing changes any more.

use gridmpi_rate::{
    Allocator, Broker, ClusterId, Network, NodeId, Notice, Process, Rate, Transfer,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

/// Between processes and their broker, and between a broker's steps, µs.
const LOCAL_US: u64 = 100;
const STEP_US: u64 = 200;
/// Between brokers at most, µs.
const WIDE_US: u64 = 10_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process tells its broker.
    Said { process: Process, to: NodeId, is_active: bool },
    /// One broker tells another.
    Told { from: ClusterId, to: usize, notice: Notice },
    /// A broker's time to step.
    Step(usize),
}

struct World {
    dice: Dice,
    now: u64,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    /// When what one broker has told another has last arrived: order is kept.
    arrived: BTreeMap<(usize, usize), u64>,
    network: Network,
    ids: Vec<ClusterId>,
    nodes: Vec<NodeId>,
    brokers: Vec<Broker>,
    active: BTreeSet<(Process, NodeId)>,
    rates: BTreeMap<(Process, NodeId), f64>,
    grants: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let rate = |mbit: u64| Rate::from_bits_per_second(mbit as f64 * 1e6).unwrap();
        let mut network = Network::new();
        let ids: Vec<_> = (0..2 + dice.roll(3)).map(|_| network.add_cluster()).collect();
        let mut nodes = Vec::new();
        for &id in &ids {
            let interface =
                [rate(20), rate(50), rate(1000), Rate::UNBOUNDED][dice.roll(4) as usize];
            (0..1 + dice.roll(8)).for_each(|_| nodes.push(network.add_node(id, interface)));
        }
        let pairs = |&from: &ClusterId| {
            ids.iter().filter(move |&&to| to != from).map(move |&to| (from, to)).collect::<Vec<_>>()
        };
        for from in &ids {
            // A cluster has an uplink of its own, or a link to each other one.
            if dice.roll(2) == 0 {
                network.add_link(rate(160), &pairs(from));
            } else {
                for pair in pairs(from) {
                    network.add_link(rate(160), &[pair]);
                }
            }
        }
        if dice.roll(2) == 0 {
            let all: Vec<_> = ids.iter().flat_map(pairs).collect();
            network.add_link(rate(200), &all);
        }
        let brokers = ids.iter().map(|&id| Broker::new(id, network.clone())).collect();
        Self {
            dice,
            now: 0,
            next: 0,
            events: BTreeMap::new(),
            arrived: BTreeMap::new(),
            network,
            ids,
            nodes,
            brokers,
            active: BTreeSet::new(),
            rates: BTreeMap::new(),
            grants: 0,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.insert((time, self.next), event);
        self.next += 1;
    }

    /// Two processes on each node.
    fn node_of(&self, process: Process) -> NodeId {
        self.nodes[process as usize / 2]
    }

    fn broker_of(&self, process: Process) -> usize {
        let cluster = self.network.cluster(self.node_of(process));
        self.ids.iter().position(|&id| id == cluster).unwrap()
    }

    /// Some process begins or ends some transfer, and says so.
    fn churn(&mut self) {
        let process = self.dice.roll(2 * self.nodes.len() as u64) as Process;
        let to = self.nodes[self.dice.roll(self.nodes.len() as u64) as usize];
        if self.network.cluster(to) == self.network.cluster(self.node_of(process)) {
            return;
        }
        let is_active = !self.active.remove(&(process, to));
        if is_active {
            self.active.insert((process, to));
        } else {
            self.rates.remove(&(process, to));
        }
        self.at(self.now + LOCAL_US, Event::Said { process, to, is_active });
    }

    fn run_until(&mut self, time: u64) {
        while let Some((&(at, number), &event)) = self.events.first_key_value()
            && at <= time
        {
            self.events.remove(&(at, number));
            self.now = at;
            self.handle(event);
        }
        self.now = time;
    }

    fn handle(&mut self, event: Event) {
        let broker = match event {
            Event::Said { process, to, is_active } => {
                let (broker, from) = (self.broker_of(process), self.node_of(process));
                if is_active {
                    self.brokers[broker].begin(process, from, to);
                } else {
                    self.brokers[broker].end(process, from, to);
                }
                broker
            }
            Event::Told { from, to, notice } => {
                self.brokers[to].heard(from, notice);
                to
            }
            Event::Step(broker) => {
                self.step(broker);
                return;
            }
        };
        let has_step = self.events.values().any(|e| matches!(e, Event::Step(of) if *of == broker));
        if self.brokers[broker].wants_step() && !has_step {
            self.at(self.now + STEP_US, Event::Step(broker));
        }
    }

    fn step(&mut self, broker: usize) {
        for grant in self.brokers[broker].step() {
            self.grants += 1;
            // One that has ended meanwhile does not care.
            if self.active.contains(&(grant.process, grant.to)) {
                self.rates.insert((grant.process, grant.to), grant.rate.bits_per_second());
            }
        }
        for (cluster, notice) in self.brokers[broker].notices() {
            let to = self.ids.iter().position(|&id| id == cluster).unwrap();
            let sent = self.now + 1 + self.dice.roll(WIDE_US);
            let at = sent.max(self.arrived.get(&(broker, to)).copied().unwrap_or(0));
            self.arrived.insert((broker, to), at);
            self.at(at, Event::Told { from: self.ids[broker], to, notice });
        }
    }

    /// What one who knew all would grant.
    fn ideal(&self) -> BTreeMap<(Process, NodeId), f64> {
        let mut pairs: BTreeMap<(NodeId, NodeId), Vec<Process>> = BTreeMap::new();
        for &(process, to) in &self.active {
            pairs.entry((self.node_of(process), to)).or_default().push(process);
        }
        let fan = |node| pairs.keys().filter(|(from, _)| *from == node).count() as u32;
        let transfers: Vec<_> = pairs
            .keys()
            .map(|&(from, to)| Transfer {
                weight: NonZero::new(720_720 / fan(from)).unwrap(),
                ..Transfer::new(from, to)
            })
            .collect();
        let mut allocator = Allocator::new();
        let rates = allocator.allocate(&self.network, &transfers);
        let shares = pairs.iter().zip(rates).flat_map(|((&(_, to), processes), rate)| {
            let share = rate / processes.len() as f64;
            processes.iter().map(move |&process| ((process, to), share))
        });
        shares.collect()
    }

    fn check(&self, seed: u64) {
        let ideal = self.ideal();
        assert_eq!(
            self.rates.keys().collect::<Vec<_>>(),
            ideal.keys().collect::<Vec<_>>(),
            "seed {seed} at {} µs: who has a grant",
            self.now
        );
        for (key, rate) in &ideal {
            let granted = self.rates[key];
            // What differs by less than a hundredth is not told.
            let is_near = granted == *rate || (granted - rate).abs() <= 0.0101 * granted.max(*rate);
            assert!(
                is_near,
                "seed {seed} at {} µs: {key:?} has {granted}, {rate} is due",
                self.now
            );
        }
    }
}

#[test]
fn grants_converge_after_churn_and_then_rest() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..6 {
            for _ in 0..40 {
                world.churn();
                let pause = world.dice.roll(500);
                world.run_until(world.now + pause);
            }
            // Everything that is under way is heard, and stepped on.
            world.run_until(world.now + WIDE_US + 2 * LOCAL_US + 3 * STEP_US);
            world.check(seed);
            let grants = world.grants;
            world.run_until(world.now + 1_000_000);
            assert_eq!(world.grants, grants, "seed {seed}: grants change with nothing to cause it");
        }
    }
}
