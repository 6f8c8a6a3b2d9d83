//! The rate broker of a cluster: who is active, and what each may send.
//!
//! Processes of the cluster say when a transfer begins and when it has ended ([`Broker::begin`], [`Broker::end`]), the brokers of
//! other clusters what of theirs meets ours ([`Broker::heard`]). [`Broker::step`] turns that into grants: a max–min fair
//! allocation in which nodes count alike, however many they send to, and the processes of a node share what it gets.
//! Brokers that have heard the same grant rates that fit together: nobody decides for another cluster.

use crate::crowd::Crowds;
use crate::inlets::{Inlets, Load};
use crate::limits::Limits;
use crate::links::{Correction, Granted, Links};
use crate::rivals::{Notice, Portion, Rival, Told, portions};
use crate::{Allocator, ClusterId, Network, NodeId, Rate, Seen, Transfer};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::time::{Duration, Instant};

/// A process, by its number in the job.
pub type Process = u32;

/// A node sends to a node.
pub(crate) type Pair = (NodeId, NodeId);

/// What a process may send to a cluster in all, bits per second, and to how many nodes.
type Sums = BTreeMap<(Process, ClusterId), (f64, u32)>;

/// A grant that differs by less is not worth a message, nor is a share.
const WORTH_TELLING: f64 = 0.01;
const WORTH_TELLING_SHARE: f64 = 0.02;

/// The weight of a node, shared by its transfers: whole parts of it for up to 16, nearly so for more.
const NODE: u32 = 720_720;

/// What a process of the cluster is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// So fast may all its transfers to the nodes of a cluster be together.
    Grant {
        /// The receiving cluster.
        to: ClusterId,
        /// How fast.
        rate: Rate,
        /// Whether that may be more than they begin with: others who begin at nearly the same time would be known.
        is_settled: bool,
    },
    /// The part of one of its transfers in that, by what an equal one would be; 1 until this is told.
    Share {
        /// The receiving node.
        to: NodeId,
        /// More than 0.
        share: f64,
    },
    /// As long as it has no grant for a cluster it may send so fast.
    Start {
        /// The receiving cluster.
        to: ClusterId,
        /// How fast.
        rate: Rate,
        /// What the link there is believed to carry.
        link: Rate,
    },
}

/// So long after a process has begun to send it is young. Where many begin nearly at once the first would be granted what will be the
/// others', and what is sent too fast by then fills the link's buffer.
const YOUNG: Duration = Duration::from_micros(3500);

/// The broker of one cluster. No I/O and no clock: its owner carries notices and orders, and steps when it likes.
#[derive(Clone, Debug)]
pub struct Broker {
    cluster: ClusterId,
    /// Those whose brokers are told of our transfers.
    rivals: Vec<ClusterId>,
    network: Network,
    links: Links,
    inlets: Inlets,
    limits: Limits,
    allocator: Allocator,
    /// Who of our processes sends, and how many transfers it has there.
    ours: BTreeMap<Pair, BTreeMap<Process, u32>>,
    /// What other clusters' brokers have told.
    theirs: BTreeMap<ClusterId, Rival>,
    /// And what they were told of parts and limits.
    told: Told,
    /// The last grant of each, bits per second, and whether it was settled.
    granted: HashMap<(Process, ClusterId), (f64, bool)>,
    /// When somebody's youth ends, in order.
    young: VecDeque<Instant>,
    /// When the latest youth of each ends or has ended.
    old_from: HashMap<(Process, ClusterId), Instant>,
    /// Shares that were told; not a number if one has been since it ended.
    shares: HashMap<(Process, NodeId), f64>,
    notices: Vec<(ClusterId, Notice)>,
    /// Who wants to know what to begin with, and where they are.
    members: BTreeMap<Process, NodeId>,
    /// Those who share the links out of the cluster.
    crowds: Crowds,
    /// Clusters to which transfers begin with something else since the last step, and who has joined.
    restarted: BTreeSet<ClusterId>,
    joined: BTreeSet<Process>,
    has_changed: bool,
}

impl Broker {
    /// That of `cluster`, nobody being active. Where several nodes send, only the part `part` of a link is theirs: a queue that
    /// has come about where they met drains by the rest.
    #[must_use]
    pub fn new(cluster: ClusterId, network: Network, part: f64) -> Self {
        Self {
            cluster,
            rivals: network.rivals(cluster),
            links: Links::new(cluster, &network, part),
            crowds: Crowds::new(cluster, &network),
            network,
            inlets: Inlets::default(),
            limits: Limits::default(),
            allocator: Allocator::new(),
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            told: Told::default(),
            granted: HashMap::new(),
            young: VecDeque::new(),
            old_from: HashMap::new(),
            shares: HashMap::new(),
            notices: Vec::new(),
            members: BTreeMap::new(),
            restarted: BTreeSet::new(),
            joined: BTreeSet::new(),
            has_changed: false,
        }
    }

    /// A process on node `node` of this cluster wants to know what its transfers may begin with.
    pub fn join(&mut self, process: Process, node: NodeId) {
        if self.members.insert(process, node).is_none() {
            self.joined.insert(process);
        }
    }

    /// A process on node `from` of this cluster begins to send to node `to`: once more, if it does already. It gets a grant by the
    /// next step, even if nothing has changed for it.
    ///
    /// # Panics
    /// If `from` or `to` is of another network, or `from` of another cluster.
    pub fn begin(&mut self, process: Process, from: NodeId, to: NodeId, now: Instant) {
        assert_eq!(self.network.cluster(from), self.cluster, "{from:?} is not ours");
        assert!(self.network.has(to), "{to:?} is of another network");
        let senders = self.ours.entry((from, to)).or_default();
        let is_first = senders.is_empty();
        let count = senders.entry(process).or_default();
        *count = count.saturating_add(1);
        self.has_changed = true;
        let cluster = self.network.cluster(to);
        if self.crowds.begin(process, cluster, self.members.len()) {
            self.young.push_back(now + YOUNG);
            self.old_from.insert((process, cluster), now + YOUNG);
            self.restarted.extend(self.crowds.news(cluster));
        }
        if is_first {
            self.tell(Notice::Transfer { from, to, is_active: true });
        }
    }

    /// One of those transfers has ended. Nothing if there was none.
    pub fn end(&mut self, process: Process, from: NodeId, to: NodeId) {
        let Some(senders) = self.ours.get_mut(&(from, to)) else { return };
        let Some(count) = senders.get_mut(&process) else { return };
        *count -= 1;
        let is_over = *count == 0;
        let cluster = self.network.cluster(to);
        if self.crowds.end(process, cluster) {
            self.granted.remove(&(process, cluster));
            self.limits.set(self.cluster, process, cluster, Rate::UNBOUNDED);
            self.old_from.remove(&(process, cluster));
        }
        if !is_over {
            return;
        }
        senders.remove(&process);
        // It begins anew with an equal one, unless it is told that just then.
        let told = self.shares.get_mut(&(process, to)).filter(|told| **told != 1.0);
        told.into_iter().for_each(|told| *told = f64::NAN);
        self.has_changed = true;
        if senders.is_empty() {
            self.ours.remove(&(from, to));
            self.told.forget((from, to));
            self.tell(Notice::Transfer { from, to, is_active: false });
        }
    }

    /// A process is gone, and all it did.
    pub fn lost(&mut self, process: Process) {
        self.members.remove(&process);
        let of_it =
            self.ours.iter().filter_map(|(&pair, senders)| Some((pair, *senders.get(&process)?)));
        let all: Vec<(Pair, u32)> = of_it.collect();
        for ((from, to), count) in all {
            (0..count).for_each(|_| self.end(process, from, to));
        }
        self.shares.retain(|(of, _), _| *of != process);
    }

    /// A process can use so much of what it is granted, or all ([`Rate::UNBOUNDED`]), until it has nothing to send there any more.
    /// Nothing if it has nothing.
    pub fn demand(&mut self, process: Process, to: ClusterId, rate: Rate) {
        if self.granted.contains_key(&(process, to)) {
            self.has_changed |= self.limits.set(self.cluster, process, to, rate);
        }
    }

    /// A process of this cluster has seen this of its connections to another, and looks so often.
    pub fn seen(&mut self, to: ClusterId, seen: Seen, every: Duration, now: Instant) {
        let seen = (seen, every);
        let Some(rate) = self.links.see(to, seen, &self.network, now) else { return };
        self.has_changed = true;
        self.tell(Notice::Link { to, rate });
        self.restarted.insert(to);
    }

    /// What people are to be told of links since this was last asked.
    pub fn corrections(&mut self) -> Vec<Correction> {
        self.links.corrections()
    }

    /// The broker of another cluster tells of a transfer there, of a process, or of a link. Nothing if it is not one of its nodes, or
    /// a link that others use, too.
    pub fn heard(&mut self, cluster: ClusterId, notice: Notice) {
        let is_its = |from, to| {
            let network = &self.network;
            network.has(from) && network.has(to) && network.cluster(from) == cluster
        };
        let theirs = &mut self.theirs;
        self.has_changed |= match notice {
            Notice::Transfer { from, to, is_active } if is_its(from, to) => {
                theirs.entry(cluster).or_default().set((from, to), is_active)
            }
            Notice::Part { from, to, process, is_active } if is_its(from, to) => {
                theirs.entry(cluster).or_default().split((from, to), process, is_active)
            }
            Notice::Limit { process, to, rate } if cluster != self.cluster => {
                self.limits.set(cluster, process, to, rate)
            }
            Notice::Link { to, rate } if cluster != self.cluster => {
                self.links.believe(cluster, to, rate);
                true
            }
            _ => false,
        };
    }

    /// The broker of another cluster cannot be heard any more: what it has told counts no longer.
    pub fn deaf_to(&mut self, cluster: ClusterId) {
        let had_limits = cluster != self.cluster && self.limits.forget(cluster);
        let had_transfers = self.theirs.remove(&cluster).is_some_and(|rival| !rival.is_idle());
        self.has_changed |= had_limits || had_transfers;
    }

    /// Whether a step may change something.
    #[must_use]
    pub fn wants_step(&self, now: Instant) -> bool {
        let has_starts = !self.restarted.is_empty() || !self.joined.is_empty();
        self.has_changed || has_starts || self.due().is_some_and(|due| due <= now)
    }

    /// When a step may change something though nothing happens.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let of_youth = self.young.front().copied();
        of_youth.into_iter().chain(self.inlets.due()).min()
    }

    /// What processes of this cluster are to be told since the last step: what is new, or differs by more than
    /// is worth a message.
    pub fn step(&mut self, now: Instant) -> Vec<(Process, Order)> {
        let mut orders = self.starts();
        while self.young.pop_front_if(|until| *until <= now).is_some() {
            self.has_changed = true;
        }
        self.has_changed |= self.inlets.due().is_some_and(|due| due <= now);
        if !std::mem::take(&mut self.has_changed) {
            return orders;
        }
        let parts = self.parts(now);
        let mut sums: Sums = BTreeMap::new();
        for &(process, to, part) in &parts {
            let sum = sums.entry((process, self.network.cluster(to))).or_default();
            *sum = (sum.0 + part, sum.1 + 1);
        }
        self.grant(&sums, now, &mut orders);
        self.divide(&sums, &parts, &mut orders);
        orders
    }

    /// What each process may send to each node that it sends to, bits per second.
    fn parts(&mut self, now: Instant) -> Vec<(Process, NodeId, f64)> {
        let own = self.own();
        if !self.rivals.is_empty() {
            let news = self.told.news(&own, self.cluster, &self.limits);
            news.into_iter().for_each(|notice| self.tell(notice));
        }
        let rates = self.allocate(&own, now);
        let mut parts = Vec::with_capacity(own.len());
        for (Portion { pair, only, .. }, rate) in own.iter().zip(rates) {
            let to = pair.1;
            match (only, self.ours.get(pair)) {
                (Some(process), _) => parts.push((*process, to, rate)),
                (None, Some(senders)) => {
                    let part = rate / senders.len() as f64;
                    parts.extend(senders.keys().map(|&process| (process, to, part)));
                }
                (None, None) => {}
            }
        }
        parts
    }

    /// Our transfers, in order.
    fn own(&self) -> Vec<Portion> {
        let mut own = Vec::with_capacity(self.ours.len());
        for (&pair, senders) in &self.ours {
            let to = self.network.cluster(pair.1);
            let is_limited = |&process: &Process| self.limits.has(self.cluster, process, to);
            let is_split = senders.keys().any(is_limited);
            own.extend(portions(pair, senders.keys().copied(), is_split));
        }
        own
    }

    /// The rate of each transfer of ours.
    fn allocate(&mut self, own: &[Portion], now: Instant) -> Vec<f64> {
        let theirs = self.theirs.values().flat_map(Rival::portions);
        let all: Vec<_> = own.iter().copied().chain(theirs).collect();
        let mut transfers = self.transfers(&all);
        let is_lone = transfers.iter().all(|transfer| transfer.from == transfers[0].from);
        let Links { lone, shared, part, .. } = &mut self.links;
        let network = if is_lone { lone } else { shared };
        let capacity = |node| self.network.inward(node).bits_per_second();
        let mut binding = Vec::new();
        self.inlets.begin(now);
        let (rates, loads) = loop {
            let rates = self.limits.allocate(&mut self.allocator, network, &mut transfers, &all);
            let loads = loads(&transfers, rates);
            let more = self.inlets.more(&loads, capacity);
            if more.is_empty() {
                break (rates.to_vec(), loads);
            }
            for &node in &more {
                let part = if loads[&node].senders > 1 { *part } else { 1.0 };
                let bound = Rate::from_bits_per_second(capacity(node) * part);
                network.set_inward(node, bound.unwrap_or_else(|| self.network.inward(node)));
            }
            binding.extend(more);
        };
        self.inlets.fill(&loads, capacity);
        binding.iter().for_each(|&node| network.set_inward(node, Rate::UNBOUNDED));
        self.estimate(&transfers[..own.len()], &rates, now);
        rates
    }

    /// Tells the links what is granted to ours.
    fn estimate(&mut self, transfers: &[Transfer], rates: &[f64], now: Instant) {
        let mut granted = Granted::new();
        for (transfer, rate) in transfers.iter().zip(rates) {
            let sum = granted.entry(self.network.cluster(transfer.to)).or_default();
            sum.0 += rate;
            sum.1.insert(transfer.to);
        }
        let is_full = |node| self.inlets.is_full(node);
        self.links.grant(granted, &self.network, is_full, now);
    }

    fn grant(&mut self, sums: &Sums, now: Instant, orders: &mut Vec<(Process, Order)>) {
        for (&(process, to), &(sum, _)) in sums {
            let is_settled = self.old_from.get(&(process, to)).is_none_or(|from| *from <= now);
            let granted = self.granted.entry((process, to)).or_insert((f64::NAN, false));
            let is_known = is_near(granted.0, sum, WORTH_TELLING) && granted.1 == is_settled;
            if let Some(rate) = Rate::from_bits_per_second(sum).filter(|_| !is_known) {
                *granted = (sum, is_settled);
                orders.push((process, Order::Grant { to, rate, is_settled }));
            }
        }
    }

    fn divide(
        &mut self,
        sums: &Sums,
        parts: &[(Process, NodeId, f64)],
        orders: &mut Vec<(Process, Order)>,
    ) {
        for &(process, to, part) in parts {
            let (sum, count) = sums[&(process, self.network.cluster(to))];
            // Infinite ones are alike.
            let share = Some(part * f64::from(count) / sum).filter(|share| share.is_finite());
            let share = share.unwrap_or(1.0);
            let told = self.shares.entry((process, to)).or_insert(1.0);
            if !is_near(*told, share, WORTH_TELLING_SHARE) {
                *told = share;
                orders.push((process, Order::Share { to, share }));
            }
        }
    }

    /// What other brokers have to know since this was last asked, in order.
    pub fn notices(&mut self) -> Vec<(ClusterId, Notice)> {
        std::mem::take(&mut self.notices)
    }

    /// What the members are to be told since the last step of what their transfers begin with.
    fn starts(&mut self) -> Vec<(Process, Order)> {
        let (restarted, joined) =
            (std::mem::take(&mut self.restarted), std::mem::take(&mut self.joined));
        let is_new = |process, to| restarted.contains(&to) || joined.contains(&process);
        let mut orders = Vec::new();
        if restarted.is_empty() && joined.is_empty() {
            return orders;
        }
        for to in self.crowds.clusters() {
            let told = self.members.iter().filter(|&(&process, _)| is_new(process, to));
            let start = |(&process, &node)| Some((process, self.start(node, to)?));
            orders.extend(told.filter_map(start));
        }
        orders
    }

    /// What transfers from a node to a cluster begin with.
    fn start(&self, node: NodeId, to: ClusterId) -> Option<Order> {
        let left = self.crowds.left(to, &self.links.lone)?;
        let rate = left.min(self.network.interface(node));
        Some(Order::Start { to, rate, link: self.links.to(to) })
    }

    /// What shares the network, in order.
    fn transfers(&self, all: &[Portion]) -> Vec<Transfer> {
        let theirs = self.theirs.values().flat_map(Rival::pairs);
        let mut fans: HashMap<NodeId, u32> = HashMap::new();
        self.ours.keys().chain(theirs).for_each(|(from, _)| *fans.entry(*from).or_default() += 1);
        let transfer = |portion: &Portion| {
            let (from, to) = portion.pair;
            let weight = NonZero::new(NODE / fans[&from] / portion.of.max(1));
            let weight = weight.unwrap_or(NonZero::<u32>::MIN);
            Transfer { weight, ..Transfer::new(from, to) }
        };
        all.iter().map(transfer).collect()
    }

    fn tell(&mut self, notice: Notice) {
        self.notices.extend(self.rivals.iter().map(|&cluster| (cluster, notice)));
    }
}

/// What comes to each receiver.
fn loads(transfers: &[Transfer], rates: &[f64]) -> BTreeMap<NodeId, Load> {
    let mut loads: BTreeMap<NodeId, Load> = BTreeMap::new();
    for (transfer, rate) in transfers.iter().zip(rates) {
        let load = loads.entry(transfer.to).or_default();
        load.rate += rate;
        load.senders += 1;
    }
    loads
}

fn is_near(told: f64, now: f64, worth: f64) -> bool {
    told == now || (now - told).abs() < worth * told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * 1e6).unwrap()
    }

    /// Clusters of four nodes, interfaces of 50 Mbit/s, each pair joined by 160 Mbit/s.
    fn site(clusters: u32) -> (Network, Vec<ClusterId>, Vec<Vec<NodeId>>, Instant) {
        let mut network = Network::new();
        let ids: Vec<_> = (0..clusters).map(|_| network.add_cluster()).collect();
        let mut add = |&id: &ClusterId| (0..4).map(|_| network.add_node(id, mbit(50.0))).collect();
        let nodes: Vec<Vec<NodeId>> = ids.iter().map(&mut add).collect();
        for &from in &ids {
            for &to in ids.iter().filter(|&&to| to != from) {
                network.add_link(mbit(160.0), &[(from, to)]);
            }
        }
        (network, ids, nodes, Instant::now())
    }

    /// A step when what comes to receivers has piled up there for a while.
    fn later(broker: &mut Broker, now: Instant) -> Vec<(Process, Order)> {
        broker.step(now);
        broker.step(now + 10 * YOUNG)
    }

    /// Grants, in Mbit/s.
    fn rates(orders: &[(Process, Order)]) -> Vec<(Process, f64)> {
        let grants = orders.iter().filter_map(|&(process, order)| match order {
            Order::Grant { rate, .. } => {
                Some((process, (rate.bits_per_second() / 1e5).round() / 10.0))
            }
            _ => None,
        });
        grants.collect()
    }

    #[test]
    fn a_lone_sender_has_its_interface_and_gives_way() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        broker.begin(0, nodes[0][0], nodes[1][0], now);
        assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 50.0)]);
        assert!(broker.step(now + YOUNG).is_empty() && !broker.wants_step(now));
        // Four nodes fill the link; each sends to one.
        (1..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
        assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 40.0), (1, 40.0), (2, 40.0), (3, 40.0)]);
        broker.end(2, nodes[0][2], nodes[1][2]);
        assert_eq!(rates(&broker.step(now + YOUNG)), [(0, 50.0), (1, 50.0), (3, 50.0)]);
        assert!(broker.notices().is_empty(), "with two clusters nobody else is concerned");
    }

    #[test]
    fn nodes_count_alike_and_their_processes_share() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        // Node 0 has two processes that send to one node, node 1 one that sends to all.
        broker.begin(0, nodes[0][0], nodes[1][0], now);
        broker.begin(1, nodes[0][0], nodes[1][0], now);
        nodes[1].iter().for_each(|&to| broker.begin(2, nodes[0][1], to, now));
        // All of the receiver's interface that is wanted: 5 parts, of which node 1 has one; it fills its own interface.
        let orders = later(&mut broker, now);
        assert_eq!(rates(&orders), [(0, 20.0), (1, 20.0), (2, 50.0)]);
        let share = |(process, order): &(Process, Order)| match *order {
            Order::Share { to, share } => Some((*process, to, (share * 100.0).round() / 100.0)),
            _ => None,
        };
        // Of 50, 10 and three times 13.3.
        let mut wanted: Vec<_> = nodes[1][1..].iter().map(|&to| (2, to, 1.07)).collect();
        wanted.insert(0, (2, nodes[1][0], 0.8));
        assert_eq!(orders.iter().filter_map(share).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn an_old_share_is_taken_back_even_if_it_was_told_late() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        let to = nodes[1][0];
        let share = |orders: Vec<(Process, Order)>| {
            let of_it = |(process, order): (Process, Order)| match order {
                Order::Share { to: node, share } if (process, node) == (2, to) => Some(share),
                _ => None,
            };
            orders.into_iter().find_map(of_it)
        };
        (0..2).for_each(|process| broker.begin(process, nodes[0][0], to, now));
        nodes[1].iter().for_each(|&to| broker.begin(2, nodes[0][1], to, now));
        assert!(share(later(&mut broker, now)).is_some_and(|share| share < 0.9));
        // The word is on its way while it ends and begins again, and now all of its are alike.
        broker.end(2, nodes[0][1], to);
        (0..2).for_each(|process| broker.end(process, nodes[0][0], to));
        broker.begin(2, nodes[0][1], to, now);
        assert_eq!(share(broker.step(now + 20 * YOUNG)), Some(1.0));
        broker.lost(2);
        assert!(broker.shares.keys().all(|of| of.0 != 2), "nothing is kept of who is gone");
    }

    #[test]
    fn an_uplink_that_several_share_is_left_as_it_was_said() {
        let (mut network, now) = (Network::new(), Instant::now());
        let ids = [0; 3].map(|_| network.add_cluster());
        let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, mbit(50.0))));
        network.add_link(mbit(1000.0), &[(ids[0], ids[1]), (ids[0], ids[2])]);
        let mut broker = Broker::new(ids[0], network, 1.0);
        (0..2).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
        for window in 0..100 {
            let at = now + YOUNG + Duration::from_millis(200 * window);
            broker.step(at);
            broker.seen(
                ids[1],
                Seen { arrived: 1000, resent: if window < 50 { 200 } else { 0 } },
                Seen::every(8),
                at,
            );
        }
        assert_eq!(broker.corrections(), []);
    }

    #[test]
    fn a_lone_sender_has_all_of_a_link_and_several_leave_something() {
        let (mut network, ids, _, now) = site(2);
        let fast = network.add_node(ids[0], mbit(1000.0));
        let other = network.add_node(ids[0], mbit(1000.0));
        let far = [1000.0, 1000.0].map(|rate| network.add_node(ids[1], mbit(rate)));
        let mut broker = Broker::new(ids[0], network, 0.95);
        far.iter().for_each(|&to| broker.begin(0, fast, to, now));
        assert_eq!(rates(&broker.step(now)), [(0, 160.0)]);
        broker.begin(1, other, far[0], now);
        assert_eq!(rates(&broker.step(now)), [(0, 76.0), (1, 76.0)]);
    }

    #[test]
    fn the_young_are_settled_when_they_are_no_longer() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        let grant = |process, mbits, is_settled| {
            (process, Order::Grant { to: ids[1], rate: mbit(mbits), is_settled })
        };
        let ms = Duration::from_millis(1);
        broker.begin(0, nodes[0][0], nodes[1][0], now);
        assert_eq!(broker.step(now), [grant(0, 50.0, false)]);
        broker.begin(1, nodes[0][1], nodes[1][1], now + ms);
        assert_eq!(broker.step(now + ms), [grant(1, 50.0, false)]);
        assert_eq!(broker.due(), Some(now + YOUNG));
        assert!(!broker.wants_step(now + 2 * ms) && broker.wants_step(now + YOUNG));
        assert_eq!(broker.step(now + YOUNG), [grant(0, 50.0, true)]);
        // One that ends young and begins again is young again.
        broker.end(1, nodes[0][1], nodes[1][1]);
        broker.begin(1, nodes[0][1], nodes[1][1], now + 4 * ms);
        assert_eq!(broker.step(now + ms + YOUNG), [grant(1, 50.0, false)]);
        assert_eq!(broker.step(now + 4 * ms + YOUNG), [grant(1, 50.0, true)]);
        assert_eq!(broker.due(), None);
    }

    #[test]
    fn what_changes_nothing_for_a_process_is_not_told() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][0], now));
        assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
        // More destinations, or fewer, of a process that is held to the link's share anyway.
        (0..4).for_each(|n| broker.end(n, nodes[0][n as usize], nodes[1][0]));
        (0..4).for_each(|n| {
            nodes[1].iter().for_each(|&to| broker.begin(n, nodes[0][n as usize], to, now))
        });
        assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
        broker.end(2, nodes[0][2], nodes[1][3]);
        broker.end(2, nodes[0][2], nodes[1][1]);
        assert_eq!(broker.step(now + YOUNG), []);
    }

    #[test]
    fn an_incast_is_shared_with_other_clusters() {
        let (network, ids, nodes, now) = site(3);
        let mut a = Broker::new(ids[0], network.clone(), 1.0);
        let mut b = Broker::new(ids[1], network, 1.0);
        a.begin(0, nodes[0][0], nodes[2][0], now);
        assert_eq!(rates(&a.step(now + YOUNG)), [(0, 50.0)]);
        let told = a.notices();
        assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [ids[1], ids[2]]);
        b.heard(ids[0], told[0].1);
        b.begin(9, nodes[1][3], nodes[2][0], now);
        assert_eq!(rates(&later(&mut b, now)), [(9, 25.0)]);
        b.notices().iter().filter(|(to, _)| *to == ids[0]).for_each(|(_, n)| a.heard(ids[1], *n));
        assert_eq!(
            rates(&a.step(now + YOUNG)),
            [],
            "the receiver's switch holds that for a moment"
        );
        assert_eq!(rates(&a.step(now + 2 * YOUNG)), [(0, 25.0)]);
        a.deaf_to(ids[1]);
        assert_eq!(rates(&a.step(now + 20 * YOUNG)), [(0, 50.0)]);
    }

    #[test]
    fn a_link_that_carries_less_than_was_said_is_granted_less_and_people_are_told() {
        let (mut network, ids, nodes, now) = site(2);
        network.set_between(ids[0], ids[1], mbit(1600.0));
        let mut broker = Broker::new(ids[0], network, 1.0);
        (0..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize], now));
        assert_eq!(rates(&broker.step(now + YOUNG)).len(), 4);
        let ms = Duration::from_millis(1);
        // 100 of the 200 Mbit/s arrive.
        for window in 1..=20 {
            let arrived = (100e6 * 0.2 / 1538.0 / 8.0) as u64;
            let granted = broker.granted[&(0, ids[1])].0 * 4.0;
            let resent = ((granted - 100e6).max(0.0) * 0.2 / 1538.0 / 8.0) as u64;
            let later = now + YOUNG + 200 * window * ms;
            broker.seen(ids[1], Seen { arrived, resent }, Seen::every(4), later);
            broker.step(later);
        }
        let rate = broker.granted[&(0, ids[1])].0 / 1e6;
        assert!((23.0..27.0).contains(&rate), "{rate}");
        let told = broker.corrections();
        assert_eq!((told[0].to, told[0].said), (ids[1], mbit(1600.0)));
        assert!(told[0].found < mbit(110.0) && told.len() == 1, "{told:?}");
        assert!(broker.corrections().is_empty());
    }

    #[test]
    fn what_a_link_has_turned_out_to_carry_is_known_to_brokers_whose_transfers_meet_ours() {
        let (mut network, now) = (Network::new(), Instant::now());
        let ids = [0; 3].map(|_| network.add_cluster());
        let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, mbit(500.0))));
        network.add_link(mbit(800.0), &[(ids[0], ids[2])]);
        network.add_link(mbit(1000.0), &[(ids[1], ids[2])]);
        let [mut a, mut b] = [0, 1].map(|of| Broker::new(ids[of], network.clone(), 1.0));
        let begin = |broker: &mut Broker, of: usize, now| {
            let pairs = nodes[of].iter().flat_map(|&from| nodes[2].map(|to| (from, to)));
            pairs.zip(0..).for_each(|((from, to), n)| broker.begin(n / 2, from, to, now));
        };
        let tell = |from: &mut Broker, of: usize, to: &mut Broker| {
            let its = to.cluster;
            let told = from.notices().into_iter().filter(|(cluster, _)| *cluster == its);
            told.for_each(|(_, notice)| to.heard(ids[of], notice));
        };
        let granted = |broker: &Broker| broker.granted[&(0, ids[2])].0 / 1e6;
        begin(&mut a, 0, now);
        a.step(now);
        let mut at = now;
        // 100 of the 800 Mbit/s arrive.
        for _ in 0..50 {
            at += Duration::from_millis(200);
            let of = |bits: f64| (bits * 0.2 / 1538.0 / 8.0) as u64;
            let sent = 2.0 * granted(&a) * 1e6;
            let seen = Seen { arrived: of(sent.min(100e6)), resent: of((sent - 100e6).max(0.0)) };
            a.seen(ids[2], seen, Seen::every(2), at);
            a.step(at);
        }
        tell(&mut a, 0, &mut b);
        begin(&mut b, 1, at);
        tell(&mut b, 1, &mut a);
        for broker in [&mut a, &mut b] {
            later(broker, at);
        }
        assert!((45.0..55.0).contains(&granted(&a)), "{}", granted(&a));
        assert!((445.0..455.0).contains(&granted(&b)), "{}", granted(&b));
    }

    #[test]
    fn members_learn_how_many_are_to_be_expected() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        (0..4).for_each(|n| broker.join(n, nodes[0][n as usize]));
        let round = |broker: &mut Broker, senders: u32| {
            let pair = |n: u32| (nodes[0][n as usize], nodes[1][n as usize]);
            (0..senders).for_each(|n| broker.begin(n, pair(n).0, pair(n).1, now));
            (0..senders).for_each(|n| broker.end(n, pair(n).0, pair(n).1));
        };
        (0..3).for_each(|_| round(&mut broker, 1));
        assert_eq!(broker.step(now + YOUNG), [], "that is too early to tell");
        round(&mut broker, 1);
        let start = |process, mbits| {
            (process, Order::Start { to: ids[1], rate: mbit(mbits), link: mbit(160.0) })
        };
        assert_eq!(broker.step(now + YOUNG), [0, 1, 2, 3].map(|process| start(process, 50.0)));
        round(&mut broker, 4);
        assert_eq!(broker.step(now + YOUNG).last(), Some(&start(3, 40.0)));
        broker.join(7, nodes[0][1]);
        broker.join(7, nodes[0][1]);
        assert!(broker.wants_step(now));
        assert_eq!(broker.step(now + YOUNG), [start(7, 40.0)]);
    }

    #[test]
    fn those_who_send_to_several_clusters_begin_with_what_one_uplink_leaves_them() {
        let mut network = Network::new();
        let ids = [(); 3].map(|()| network.add_cluster());
        let nodes: Vec<_> = (0..4).map(|_| network.add_node(ids[0], mbit(50.0))).collect();
        let far = [network.add_node(ids[1], mbit(50.0)), network.add_node(ids[2], mbit(50.0))];
        network.add_link(mbit(160.0), &[(ids[0], ids[1]), (ids[0], ids[2])]);
        let mut broker = Broker::new(ids[0], network, 1.0);
        (0..4).for_each(|n| broker.join(n, nodes[n as usize]));
        let now = Instant::now();
        for round in 1..=5 {
            let transfers = (0..4).flat_map(|n| far.map(|to| (n, nodes[n as usize], to)));
            transfers.clone().for_each(|(n, from, to)| broker.begin(n, from, to, now));
            let told = broker.step(now);
            let starts = told.iter().filter_map(|(process, order)| match order {
                Order::Start { to, rate, .. } => {
                    Some((*process, *to, (rate.bits_per_second() / 1e6).round()))
                }
                _ => None,
            });
            // Told once each, however often it has changed until then.
            let all = ids[1..].iter().flat_map(|&to| (0..4).map(move |n| (n, to, 20.0)));
            let expected: Vec<_> = all.filter(|_| round == 1).collect();
            assert_eq!(starts.collect::<Vec<_>>(), expected, "round {round}");
            transfers.for_each(|(n, from, to)| broker.end(n, from, to));
        }
    }

    #[test]
    fn what_is_gone_counts_no_longer_and_nonsense_never_did() {
        let (network, ids, nodes, now) = site(2);
        let mut broker = Broker::new(ids[0], network, 1.0);
        broker.begin(0, nodes[0][0], nodes[1][0], now);
        broker.begin(0, nodes[0][0], nodes[1][0], now);
        broker.begin(1, nodes[0][1], nodes[1][0], now);
        assert_eq!(rates(&later(&mut broker, now)), [(0, 25.0), (1, 25.0)]);
        broker.lost(0);
        assert_eq!(rates(&broker.step(now + 20 * YOUNG)), [(1, 50.0)]);
        broker.end(0, nodes[0][0], nodes[1][0]);
        broker.end(1, nodes[0][0], nodes[1][0]);
        // A node that is not the teller's own.
        let nonsense = Notice::Transfer { from: nodes[0][0], to: nodes[1][0], is_active: true };
        broker.heard(ids[1], nonsense);
        assert!(!broker.wants_step(now));
    }
}
