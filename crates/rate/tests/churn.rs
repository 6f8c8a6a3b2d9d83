//! Processes and brokers of several clusters while transfers come and go, in virtual time with messages that take theirs: once all is heard,
//! what everybody was granted fits together and is what one who knew all would have granted, and nothing is said any more.

use gridmpi_rate::{
    Allocator, Broker, Claims, ClusterId, Network, NodeId, Notice, Order, Process, Rate, Transfer,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::time::{Duration, Instant};

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
    /// A broker tells a process.
    Ordered { process: Process, order: Order },
    /// A process tells its broker what it can use.
    Wants { process: Process, to: ClusterId, rate: Rate },
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
    /// What each process knows, for each cluster that it has sent to.
    claims: BTreeMap<(Process, ClusterId), Claims>,
    epoch: Instant,
    orders: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let count = 2 + dice.roll(3);
        Self::of(dice, count)
    }

    /// Two clusters, and nothing that is shared by both directions: each broker knows all that concerns it.
    fn of_two(seed: u64) -> Self {
        Self::of(Dice(seed), 2)
    }

    fn of(mut dice: Dice, count: u64) -> Self {
        let rate = |mbit: u64| Rate::from_bits_per_second(mbit as f64 * 1e6).unwrap();
        let mut network = Network::new();
        let ids: Vec<_> = (0..count).map(|_| network.add_cluster()).collect();
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
        if count > 2 && dice.roll(2) == 0 {
            let all: Vec<_> = ids.iter().flat_map(pairs).collect();
            network.add_link(rate(200), &all);
        }
        let brokers = ids.iter().map(|&id| Broker::new(id, network.clone(), 1.0)).collect();
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
            claims: BTreeMap::new(),
            epoch: Instant::now(),
            orders: 0,
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
        let now = self.epoch + Duration::from_micros(self.now);
        let claims = self.claims.entry((process, self.network.cluster(to)));
        let claims =
            claims.or_insert_with(|| Claims::new(Rate::from_bits_per_second(1e6).unwrap()));
        if self.active.remove(&(process, to)) {
            claims.end(to, 0);
        } else {
            self.active.insert((process, to));
            claims.begin(to, 0, now);
        }
        for claimed in claims.told() {
            let (to, is_active) = (claimed.to, claimed.is_active);
            self.at(self.now + LOCAL_US, Event::Said { process, to, is_active });
        }
    }

    /// Some of those who send can use less than they get; the others all of it.
    fn limit(&mut self) -> BTreeMap<(Process, ClusterId), f64> {
        let mut limits = BTreeMap::new();
        let keys: BTreeSet<_> =
            self.active.iter().map(|&(process, to)| (process, self.network.cluster(to))).collect();
        for (process, to) in keys {
            let rate = if self.dice.roll(3) == 0 {
                let bits = 1e5 * (1 + self.dice.roll(400)) as f64;
                limits.insert((process, to), bits);
                Rate::from_bits_per_second(bits).unwrap()
            } else {
                Rate::UNBOUNDED
            };
            self.at(self.now + LOCAL_US, Event::Wants { process, to, rate });
        }
        limits
    }

    /// What each may send to each node.
    fn rates(&self) -> Vec<(Process, NodeId, f64)> {
        let mut counts: BTreeMap<(Process, ClusterId), f64> = BTreeMap::new();
        let cluster = |to| self.network.cluster(to);
        self.active.iter().for_each(|&(p, to)| *counts.entry((p, cluster(to))).or_default() += 1.0);
        let rate = |&(process, to): &(Process, NodeId)| {
            let claims = &self.claims[&(process, cluster(to))];
            let equal = claims.rate().bits_per_second() / counts[&(process, cluster(to))];
            (process, to, equal * claims.share(to))
        };
        self.active.iter().map(rate).collect()
    }

    /// Nobody has more than it can use, and who has less than that is held up by something full.
    fn check_limits(
        &self,
        seed: u64,
        limits: &BTreeMap<(Process, ClusterId), f64>,
        has_settled: bool,
    ) {
        let rates = self.rates();
        let mut sums: BTreeMap<(Process, ClusterId), f64> = BTreeMap::new();
        let mut used: BTreeMap<(&str, usize, usize), f64> = BTreeMap::new();
        for &(process, to, rate) in &rates {
            let (from, cluster) = (self.node_of(process), self.network.cluster(to));
            *sums.entry((process, cluster)).or_default() += rate;
            *used.entry(("out", from.index(), 0)).or_default() += rate;
            *used.entry(("in", to.index(), 0)).or_default() += rate;
            let pair = (self.network.cluster(from).index(), cluster.index());
            *used.entry(("link", pair.0, pair.1)).or_default() += rate;
        }
        let capacity = |key: &(&str, usize, usize)| match key.0 {
            "link" => 160e6,
            _ => self.network.interface(self.nodes[key.1]).bits_per_second(),
        };
        for (key, used) in &used {
            // Receivers' switches take what is too much for a moment.
            let is_bound = has_settled || key.0 != "in";
            assert!(!is_bound || *used <= 1.03 * capacity(key), "seed {seed}: {used} of {key:?}");
        }
        let is_full = |key| used[&key] >= 0.93 * capacity(&key);
        for &(process, to, rate) in &rates {
            let (from, cluster) = (self.node_of(process), self.network.cluster(to));
            let limit = limits.get(&(process, cluster)).copied().unwrap_or(f64::INFINITY);
            let sum = sums[&(process, cluster)];
            assert!(sum <= 1.03 * limit, "seed {seed}: {process} has {sum}, and uses {limit}");
            let pair = (self.network.cluster(from).index(), cluster.index());
            let is_held = is_full(("out", from.index(), 0))
                || is_full(("in", to.index(), 0))
                || is_full(("link", pair.0, pair.1));
            assert!(
                is_held || sum >= 0.93 * limit,
                "seed {seed}: {process} has {rate} to {to:?} for nothing"
            );
        }
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
                    let now = self.epoch + Duration::from_micros(self.now);
                    self.brokers[broker].begin(process, from, to, now);
                } else {
                    self.brokers[broker].end(process, from, to);
                }
                broker
            }
            Event::Wants { process, to, rate } => {
                let broker = self.broker_of(process);
                self.brokers[broker].demand(process, to, rate);
                broker
            }
            Event::Told { from, to, notice } => {
                self.brokers[to].heard(from, notice);
                to
            }
            Event::Ordered { process, order } => {
                self.obey(process, order);
                return;
            }
            Event::Step(broker) => {
                self.step(broker);
                return;
            }
        };
        let now = self.epoch + Duration::from_micros(self.now);
        if self.brokers[broker].wants_step(now) {
            self.step_at(broker, self.now + STEP_US);
        }
    }

    fn step(&mut self, broker: usize) {
        let now = self.epoch + Duration::from_micros(self.now);
        let orders = self.brokers[broker].step(now);
        if let Some(due) = self.brokers[broker].due() {
            let after = due.duration_since(self.epoch).as_micros() as u64 + 1;
            self.step_at(broker, after.max(self.now + STEP_US));
        }
        for (process, order) in orders {
            self.orders += 1;
            self.at(self.now + LOCAL_US, Event::Ordered { process, order });
        }
        for (cluster, notice) in self.brokers[broker].notices() {
            let to = self.ids.iter().position(|&id| id == cluster).unwrap();
            let sent = self.now + 1 + self.dice.roll(WIDE_US);
            let at = sent.max(self.arrived.get(&(broker, to)).copied().unwrap_or(0));
            self.arrived.insert((broker, to), at);
            self.at(at, Event::Told { from: self.ids[broker], to, notice });
        }
    }

    /// Sees to a step by then.
    fn step_at(&mut self, broker: usize, time: u64) {
        let is_its = |event: &Event| matches!(event, Event::Step(of) if *of == broker);
        if !self.events.range(..(time + 1, 0)).any(|(_, event)| is_its(event)) {
            self.at(time, Event::Step(broker));
        }
    }

    fn obey(&mut self, process: Process, order: Order) {
        let cluster = match order {
            Order::Grant { to, .. } | Order::Start { to, .. } => to,
            Order::Share { to, .. } => self.network.cluster(to),
        };
        let now = self.epoch + Duration::from_micros(self.now);
        let claims = self.claims.get_mut(&(process, cluster)).unwrap();
        match order {
            Order::Grant { rate, is_settled, .. } => claims.grant(rate, is_settled, now),
            Order::Share { to, share } => claims.set_share(to, share),
            Order::Start { rate, link, .. } => claims.begin_with(rate, link),
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

    fn check(&mut self, seed: u64) {
        let ideal = self.ideal();
        let mut sums: BTreeMap<(Process, ClusterId), (f64, f64)> = BTreeMap::new();
        for (&(process, to), due) in &ideal {
            let sum = sums.entry((process, self.network.cluster(to))).or_default();
            *sum = (sum.0 + due, sum.1 + 1.0);
        }
        // What differs by less is not told.
        let check = |who: &dyn std::fmt::Debug, has: f64, due: f64, worth: f64| {
            let is_near = has == due || (has - due).abs() <= worth * has.max(due);
            assert!(is_near, "seed {seed} at {} µs: {who:?} has {has}, {due} is due", self.now);
        };
        for (key, (due, _)) in &sums {
            check(key, self.claims[key].rate().bits_per_second(), *due, 0.0101);
        }
        for (&(process, to), due) in ideal.iter().filter(|(_, due)| due.is_finite()) {
            let key = (process, self.network.cluster(to));
            let claims = &self.claims[&key];
            let has = claims.rate().bits_per_second() * claims.share(to) / sums[&key].1;
            check(&(process, to), has, *due, 0.06);
        }
    }
}

#[test]
fn grants_converge_after_churn_and_then_rest() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        for _ in 0..6 {
            for _ in 0..40 {
                world.churn();
                let pause = world.dice.roll(500);
                world.run_until(world.now + pause);
            }
            // Everything that is under way is heard, and stepped on; what is too much for a receiver has piled up there.
            world.run_until(world.now + 10_000_000);
            world.check(seed);
            let orders = world.orders;
            world.run_until(world.now + 1_000_000);
            assert_eq!(world.orders, orders, "seed {seed}: orders with nothing to cause them");
        }
    }
}

#[test]
fn what_some_do_not_use_others_get_and_all_is_given_back() {
    for seed in 0..200 {
        let mut world = World::of_two(seed);
        let mut most = 0;
        for _ in 0..4 {
            for _ in 0..30 {
                world.churn();
                let pause = world.dice.roll(500);
                world.run_until(world.now + pause);
            }
            world.run_until(world.now + 10_000_000);
            let limits = world.limit();
            most = most.max(limits.len());
            world.run_until(world.now + 10_000_000);
            world.check_limits(seed, &limits, true);
            let orders = world.orders;
            world.run_until(world.now + 1_000_000);
            assert_eq!(world.orders, orders, "seed {seed}: orders with nothing to cause them");
            // All want more again: that takes a step, and the way of two words inside the cluster.
            let all: Vec<_> = limits.keys().copied().collect();
            for (process, to) in all {
                let rate = Rate::UNBOUNDED;
                world.at(world.now + LOCAL_US, Event::Wants { process, to, rate });
            }
            world.run_until(world.now + 2 * LOCAL_US + STEP_US);
            world.check_limits(seed, &BTreeMap::new(), false);
            world.run_until(world.now + 10_000_000);
            world.check(seed);
        }
        assert!(most > 0 || world.nodes.len() < 5, "seed {seed}: nobody was limited");
    }
}
