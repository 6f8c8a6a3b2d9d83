//! The rate broker of a cluster: who is active, and what each may send.
//!
//! Processes of the cluster say when a transfer begins and when it has ended ([`Broker::begin`], [`Broker::end`]), the brokers of
//! other clusters what of theirs meets ours ([`Broker::heard`]). [`Broker::step`] turns that into grants: a max–min fair
//! allocation in which nodes count alike, however many they send to, and the processes of a node share what it gets.
//! Brokers that have heard the same grant rates that fit together: nobody decides for another cluster.

use crate::claims::{FAIR, Start};
use crate::crowd::Crowds;
use crate::inlets::{Inlets, Load};
use crate::limits::Limits;
use crate::links::{Correction, Granted, Links, Parts};
use crate::lull::{Lull, Sender};
use crate::rivals::{Notice, Portion, Rival, Told, portions};
use crate::room::RollCall;
use crate::{Allocator, ClusterId, Grant, Network, NodeId, Rate, Seen, Transfer, unclaimed};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::time::{Duration, Instant};

/// A process, by its number in the job.
pub type Process = u32;

/// A node sends to a node.
pub(crate) type Pair = (NodeId, NodeId);

/// A process sends to a node, so many bits per second.
type Part = (Process, Pair, f64);

/// What goes to a cluster.
#[derive(Default)]
struct Sums {
    /// What each process may send there in all.
    processes: BTreeMap<(Process, ClusterId), Sum>,
    /// And all processes of a node together, bits per second.
    nodes: HashMap<(NodeId, ClusterId), f64>,
}

/// What one process may send, bits per second; to how many nodes, and from which.
struct Sum {
    rate: f64,
    count: u32,
    node: NodeId,
}

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
        /// How fast; settled if others who begin at nearly the same time would be known.
        grant: Grant,
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
        /// How fast, and what the link there carries.
        start: Start,
    },
    /// For a while so much is left there to each of those that send at the same time: what is over soon by that need not be claimed.
    Room {
        /// The receiving cluster.
        to: ClusterId,
        /// How fast.
        rate: Rate,
    },
}

impl Order {
    /// What goes to this cluster is meant.
    #[must_use]
    pub fn cluster(self, network: &Network) -> ClusterId {
        match self {
            Self::Grant { to, .. } | Self::Start { to, .. } | Self::Room { to, .. } => to,
            Self::Share { to, .. } => network.cluster(to),
        }
    }
}

/// So long after a process has begun to send it is young. Where many begin nearly at once the first would be granted what will be the
/// others', and what is sent too fast by then fills the link's buffer.
pub(crate) const YOUNG: Duration = Duration::from_micros(3500);

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
    lull: Lull,
    allocator: Allocator,
    /// How many nodes the cluster has, and how many processes are known on each.
    nodes: usize,
    mates: HashMap<NodeId, usize>,
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
    /// Clusters to which transfers may begin with something else since the last step.
    restarted: BTreeSet<ClusterId>,
    /// How many send to each cluster at the same time; and what that leaves to one, where it has been counted since the last step.
    roll_calls: HashMap<ClusterId, RollCall>,
    rooms: BTreeMap<ClusterId, Rate>,
    /// What members have been told of what to begin with, and of the link.
    started: HashMap<(Process, ClusterId), Start>,
    has_changed: bool,
}

impl Broker {
    /// That of `cluster`, nobody being active. Where several nodes send, only these parts of what they share are theirs.
    #[must_use]
    pub fn new(cluster: ClusterId, network: Network, parts: Parts) -> Self {
        let nodes = network.nodes_of(cluster);
        Self {
            cluster,
            rivals: network.rivals(cluster),
            links: Links::new(cluster, &network, parts),
            nodes,
            mates: HashMap::new(),
            crowds: Crowds::new(cluster, &network),
            network,
            inlets: Inlets::default(),
            limits: Limits::default(),
            lull: Lull::new(unclaimed::ahead_of_all() / nodes.max(1) as f64),
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
            roll_calls: HashMap::new(),
            rooms: BTreeMap::new(),
            started: HashMap::new(),
            has_changed: false,
        }
    }

    /// A process on node `node` of this cluster wants to know what its transfers may begin with.
    pub fn join(&mut self, process: Process, node: NodeId) {
        if self.members.insert(process, node).is_none() {
            self.restarted.extend(self.crowds.clusters());
            *self.mates.entry(node).or_default() += 1;
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
        let is_once_more = *count > 0;
        *count = count.saturating_add(1);
        self.has_changed = true;
        let cluster = self.network.cluster(to);
        if is_once_more && let Some((rate, _)) = self.granted.get_mut(&(process, cluster)) {
            // It asks what that is.
            *rate = f64::NAN;
        }
        if self.crowds.begin(process, cluster, self.members.len()) {
            self.links.begin(cluster);
            self.young.push_back(now + YOUNG);
            self.old_from.insert((process, cluster), now + YOUNG);
            self.restarted.extend(self.crowds.news(cluster));
            self.call_the_roll(cluster, now);
        }
        if is_first {
            self.tell(Notice::Transfer { from, to, is_active: true });
        }
    }

    /// A process has begun to send to a cluster. There is no room beside somebody who sends for long, nor where a receiver binds.
    fn call_the_roll(&mut self, to: ClusterId, now: Instant) {
        let Some(active) = self.crowds.alone(to) else { return };
        let roll_call = self.roll_calls.entry(to).or_default();
        let Some(most) = roll_call.begin(active, self.members.len(), now) else { return };
        let is_old = |(of, from): (&(Process, ClusterId), &Instant)| of.1 == to && *from <= now;
        if !self.inlets.bind() && !self.old_from.iter().any(is_old) {
            let link = self.links.lone.between(self.cluster, to);
            self.rooms.insert(to, link.scaled(1.0 / most as f64));
            roll_call.told(now);
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

    /// A process cannot be heard any more, though it may still be there: it sends at its share of all there is (`Claims::forsake`), which nobody
    /// else gets from now on.
    ///
    /// # Panics
    /// If `node` is of another network or cluster.
    pub fn cut_off(&mut self, process: Process, node: NodeId) {
        assert_eq!(self.network.cluster(node), self.cluster, "{node:?} is not ours");
        self.join(process, node);
        // It still has a part of what its node may have.
        let mates = self.mates[&node];
        self.lost(process);
        self.mates.insert(node, mates);
        self.links.reserve(1.0 / (self.nodes * mates) as f64);
        self.has_changed = true;
        self.restarted.extend(self.crowds.clusters());
    }

    /// A process is gone, and all it did.
    pub fn lost(&mut self, process: Process) {
        if let Some(node) = self.members.remove(&process)
            && let Some(mates) = self.mates.get_mut(&node)
        {
            *mates = mates.saturating_sub(1);
        }
        self.lull.forget(process);
        let of_it =
            self.ours.iter().filter_map(|(&pair, senders)| Some((pair, *senders.get(&process)?)));
        let all: Vec<(Pair, u32)> = of_it.collect();
        for ((from, to), count) in all {
            (0..count).for_each(|_| self.end(process, from, to));
        }
        self.shares.retain(|(of, _), _| *of != process);
        self.started.retain(|(of, _), _| *of != process);
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
        self.has_changed |= self.links.grows_wary(to, seen, now);
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
                let is_new = theirs.entry(cluster).or_default().set((from, to), is_active);
                if is_new {
                    self.meet((cluster, from), self.network.cluster(to), is_active);
                }
                is_new
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

    fn meet(&mut self, from: (ClusterId, NodeId), to: ClusterId, is_active: bool) {
        if is_active {
            self.crowds.meet(from, to);
            self.restarted.extend(self.crowds.news(to));
        } else {
            self.crowds.part(from, to);
        }
    }

    /// The broker of another cluster cannot be heard any more: what it has told counts no longer.
    pub fn deaf_to(&mut self, cluster: ClusterId) {
        self.crowds.part_from(cluster);
        let had_limits = cluster != self.cluster && self.limits.forget(cluster);
        let had_transfers = self.theirs.remove(&cluster).is_some_and(|rival| !rival.is_idle());
        self.has_changed |= had_limits || had_transfers;
    }

    /// Whether a step may change something.
    #[must_use]
    pub fn wants_step(&self, now: Instant) -> bool {
        let has_starts = !self.restarted.is_empty() || !self.rooms.is_empty();
        self.has_changed || has_starts || self.due().is_some_and(|due| due <= now)
    }

    /// When a step may change something though nothing happens.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let of_youth = self.young.front().copied();
        let others = [self.inlets.due(), self.links.due(), self.lull.due()];
        of_youth.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// What processes of this cluster are to be told since the last step: what is new, or differs by more than
    /// is worth a message.
    pub fn step(&mut self, now: Instant) -> Vec<(Process, Order)> {
        let mut orders = self.starts();
        while self.young.pop_front_if(|until| *until <= now).is_some() {
            self.has_changed = true;
        }
        self.has_changed |= self.due().is_some_and(|due| due <= now);
        if !std::mem::take(&mut self.has_changed) {
            return orders;
        }
        let parts = self.parts(now);
        let mut sums = Sums::default();
        for &(process, (from, to), part) in &parts {
            let cluster = self.network.cluster(to);
            let sum = sums.processes.entry((process, cluster));
            let sum = sum.or_insert(Sum { rate: 0.0, count: 0, node: from });
            sum.rate += part;
            sum.count += 1;
            *sums.nodes.entry((from, cluster)).or_default() += part;
        }
        self.grant(&sums, now, &mut orders);
        // What differs too little to be told counts as it was told.
        let told = self.granted.iter().map(|(&(_, to), &(rate, _))| (to, rate));
        self.links.load(told.filter(|(_, rate)| !rate.is_nan()), now);
        self.divide(&sums, &parts, &mut orders);
        orders
    }

    /// What each process may send to each node that it sends to, bits per second.
    fn parts(&mut self, now: Instant) -> Vec<Part> {
        let own = self.own();
        if !self.rivals.is_empty() {
            let news = self.told.news(&own, self.cluster, &self.limits);
            news.into_iter().for_each(|notice| self.tell(notice));
        }
        let rates = self.allocate(&own, now);
        let mut parts = Vec::with_capacity(own.len());
        for (Portion { pair, only, .. }, rate) in own.iter().zip(rates) {
            match (only, self.ours.get(pair)) {
                (Some(process), _) => parts.push((*process, *pair, rate)),
                (None, Some(senders)) => {
                    let part = rate / senders.len() as f64;
                    parts.extend(senders.keys().map(|&process| (process, *pair, part)));
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
        let pairs = self.ours.keys().copied();
        self.links.share(is_lone, pairs, |link| self.crowds.active(link), now);
        let Links { lone, shared, parts, .. } = &mut self.links;
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
                let part = if loads[&node].senders > 1 { parts.receivers } else { 1.0 };
                network.set_inward(node, self.network.inward(node).scaled(part));
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
        let left = |link| self.allocator.left(link);
        self.links.grant(granted, &self.network, is_full, left, now);
    }

    fn grant(&mut self, sums: &Sums, now: Instant, orders: &mut Vec<(Process, Order)>) {
        let has_rivals = self.theirs.values().any(|rival| !rival.is_idle());
        // Also those to other clusters: they may share an uplink.
        let senders = sums.processes.iter().map(|(&of, sum)| (of, self.sender(of, sum, now)));
        let senders: Vec<_> = senders.collect();
        self.lull.note(&senders, has_rivals, now);
        let is_old =
            |of: &(Process, ClusterId)| self.old_from.get(of).is_none_or(|from| *from <= now);
        for (&(process, to), &Sum { rate: sum, node, .. }) in &sums.processes {
            let is_settled = is_old(&(process, to));
            let granted = self.granted.entry((process, to)).or_insert((f64::NAN, false));
            let is_known = is_near(granted.0, sum, WORTH_TELLING) && granted.1 == is_settled;
            if let Some(rate) = Rate::from_bits_per_second(sum).filter(|_| !is_known) {
                *granted = (sum, is_settled);
                let node = sums.nodes.get(&(node, to)).copied();
                let node = node.and_then(Rate::from_bits_per_second).unwrap_or(rate);
                let is_quiet = self.lull.answer((process, to), now);
                let grant = Grant { rate, node, is_settled, is_quiet };
                orders.push((process, Order::Grant { to, grant }));
            }
        }
        // They may have begun to send meanwhile: nothing is said of a rate.
        let (rate, is_settled, is_quiet) = (Rate::UNBOUNDED, false, false);
        let grant = Grant { rate, node: rate, is_settled, is_quiet };
        let ended = self.lull.ended(|of| sums.processes.contains_key(of), now);
        orders.extend(ended.into_iter().map(|(process, to)| (process, Order::Grant { to, grant })));
    }

    /// What one of ours is granted, by what everybody may always have.
    fn sender(&self, of: (Process, ClusterId), sum: &Sum, now: Instant) -> Sender {
        let mates = self.mates.get(&sum.node).copied().unwrap_or(1).max(1) as f64;
        let link = self.links.to(of.1).bits_per_second() / self.nodes as f64;
        // Who has all that its interface carries has nothing to give to those whose interfaces carry no more.
        let fair = link.min(self.network.interface(sum.node).bits_per_second()) / mates;
        let old_from = self.old_from.get(&of).copied().unwrap_or(now);
        // Others need what it could not have, or there is no bound.
        let is_fair = sum.rate >= FAIR * fair && fair.is_finite();
        // Who has no more than that has not what it had for ever.
        let more = match sum.rate - fair {
            _ if !is_fair => f64::INFINITY,
            more if more > 0.0 => more,
            less => less.min((FAIR - 1.0) * fair),
        };
        Sender { old_from, fair, more }
    }

    fn divide(&mut self, sums: &Sums, parts: &[Part], orders: &mut Vec<(Process, Order)>) {
        for &(process, (_, to), part) in parts {
            let Sum { rate: sum, count, .. } = sums.processes[&(process, self.network.cluster(to))];
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

    /// What the members are to be told since the last step of what their transfers begin with, and which need not be claimed.
    fn starts(&mut self) -> Vec<(Process, Order)> {
        let mut orders = Vec::new();
        for (to, rate) in std::mem::take(&mut self.rooms) {
            // Where a node alone can fill the link nothing goes unclaimed.
            let link = self.links.to(to);
            let may = |(_, node): &(&Process, &NodeId)| self.network.interface(**node) < link;
            let members = self.members.iter().filter(may);
            orders.extend(members.map(|(&process, _)| (process, Order::Room { to, rate })));
        }
        for to in std::mem::take(&mut self.restarted) {
            let left = self.crowds.left(to, self.members.len(), &self.links.lone);
            let Some(left) = left else { continue };
            let link = self.links.to(to);
            for (&process, &node) in &self.members {
                let (rate, short) = left.begins_with(self.network.interface(node), link);
                let start = Start { rate, short, link };
                if self.started.insert((process, to), start) != Some(start) {
                    orders.push((process, Order::Start { to, start }));
                }
            }
        }
        orders
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
mod tests;
