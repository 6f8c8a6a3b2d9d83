//! The rate broker of a cluster: who is active, and what each may send.
//!
//! Processes of the cluster say when a transfer begins and when it has ended ([`Broker::begin`], [`Broker::end`]), the brokers of
//! other clusters what of theirs meets ours ([`Broker::heard`]). [`Broker::step`] turns that into grants: a max–min fair
//! allocation in which nodes count alike, however many they send to, and the processes of a node share what it gets.
//! Brokers that have heard the same grant rates that fit together: nobody decides for another cluster.

use crate::crowd::Crowd;
use crate::{Allocator, ClusterId, LinkId, Network, NodeId, Rate, Transfer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;

/// A process, by its number in the job.
pub type Process = u32;

/// A node sends to a node.
type Pair = (NodeId, NodeId);

/// A grant that differs by less is not worth a message.
const WORTH_TELLING: f64 = 0.01;

/// The weight of a node, shared by its transfers: whole parts of it for up to 16, nearly so for more.
const NODE: u32 = 720_720;

/// What a process may send to a node from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Who.
    pub process: Process,
    /// To whom.
    pub to: NodeId,
    /// How fast.
    pub rate: Rate,
}

/// What the transfers of a process to a cluster may begin with from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Who.
    pub process: Process,
    /// To whom.
    pub to: ClusterId,
    /// How fast.
    pub rate: Rate,
}

/// What the brokers of other clusters have to know of ours, where transfers of both can meet ([`Network::rivals`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// Whether that has begun or ended.
    pub is_active: bool,
}

/// The broker of one cluster. No I/O and no time: its owner carries notices and grants, and steps when it likes.
#[derive(Clone, Debug)]
pub struct Broker {
    cluster: ClusterId,
    /// Those whose brokers are told of our transfers.
    rivals: Vec<ClusterId>,
    network: Network,
    allocator: Allocator,
    /// Who of our processes sends, and how many transfers it has there.
    ours: BTreeMap<Pair, BTreeMap<Process, u32>>,
    /// What other clusters' brokers have told.
    theirs: BTreeMap<ClusterId, BTreeSet<Pair>>,
    /// The last grant of each, bits per second.
    granted: HashMap<(Process, NodeId), f64>,
    notices: Vec<(ClusterId, Notice)>,
    /// Who wants to know what to begin with, and where they are.
    members: BTreeMap<Process, NodeId>,
    /// The senders to each cluster, and how many were said to be expected.
    crowds: BTreeMap<ClusterId, (Crowd, Option<usize>)>,
    starts: Vec<Start>,
    has_changed: bool,
}

impl Broker {
    /// That of `cluster`, nobody being active.
    #[must_use]
    pub fn new(cluster: ClusterId, network: Network) -> Self {
        Self {
            cluster,
            rivals: network.rivals(cluster),
            network,
            allocator: Allocator::new(),
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            granted: HashMap::new(),
            notices: Vec::new(),
            members: BTreeMap::new(),
            crowds: BTreeMap::new(),
            starts: Vec::new(),
            has_changed: false,
        }
    }

    /// A process on node `node` of this cluster wants to know what its transfers may begin with.
    pub fn join(&mut self, process: Process, node: NodeId) {
        if self.members.insert(process, node).is_none() {
            let known = self.crowds.iter().filter_map(|(&to, (_, told))| Some((to, (*told)?)));
            let starts: Vec<_> =
                known.map(|(to, size)| self.start(process, node, to, size)).collect();
            self.starts.extend(starts);
        }
    }

    /// A process on node `from` of this cluster begins to send to node `to`: once more, if it does already. It gets a grant by the
    /// next step, even if nothing has changed for it.
    ///
    /// # Panics
    /// If `from` or `to` is of another network, or `from` of another cluster.
    pub fn begin(&mut self, process: Process, from: NodeId, to: NodeId) {
        assert_eq!(self.network.cluster(from), self.cluster, "{from:?} is not ours");
        assert!(self.network.has(to), "{to:?} is of another network");
        let senders = self.ours.entry((from, to)).or_default();
        let is_first = senders.is_empty();
        let count = senders.entry(process).or_default();
        *count = count.saturating_add(1);
        self.has_changed = true;
        let cluster = self.network.cluster(to);
        self.crowds.entry(cluster).or_default().0.begin(process, self.members.len());
        self.tell_crowd(cluster);
        if is_first {
            self.tell(from, to, true);
        }
    }

    /// One of those transfers has ended. Nothing if there was none.
    pub fn end(&mut self, process: Process, from: NodeId, to: NodeId) {
        let Some(senders) = self.ours.get_mut(&(from, to)) else { return };
        let Some(count) = senders.get_mut(&process) else { return };
        *count -= 1;
        let is_over = *count == 0;
        if let Some((crowd, _)) = self.crowds.get_mut(&self.network.cluster(to)) {
            crowd.end(process);
        }
        if !is_over {
            return;
        }
        senders.remove(&process);
        self.granted.remove(&(process, to));
        self.has_changed = true;
        if senders.is_empty() {
            self.ours.remove(&(from, to));
            self.tell(from, to, false);
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
    }

    /// The broker of another cluster tells of a transfer there. Nothing if it is not one of its nodes.
    pub fn heard(&mut self, cluster: ClusterId, notice: Notice) {
        let Notice { from, to, is_active } = notice;
        if !self.network.has(from) || !self.network.has(to) || self.network.cluster(from) != cluster
        {
            return;
        }
        let known = self.theirs.entry(cluster).or_default();
        self.has_changed |=
            if is_active { known.insert((from, to)) } else { known.remove(&(from, to)) };
    }

    /// The broker of another cluster cannot be heard any more: what it has told counts no longer.
    pub fn deaf_to(&mut self, cluster: ClusterId) {
        self.has_changed |= self.theirs.remove(&cluster).is_some_and(|known| !known.is_empty());
    }

    /// A link has turned out to carry more or less.
    ///
    /// # Panics
    /// If it is of another network.
    pub fn set_bandwidth(&mut self, link: LinkId, bandwidth: Rate) {
        self.network.set_bandwidth(link, bandwidth);
        self.has_changed = true;
    }

    /// Whether a step may change something.
    #[must_use]
    pub fn wants_step(&self) -> bool {
        self.has_changed || !self.starts.is_empty()
    }

    /// What has changed since the last step: grants to processes of this cluster that are new or differ by a hundredth.
    pub fn step(&mut self) -> Vec<Grant> {
        if !std::mem::take(&mut self.has_changed) {
            return Vec::new();
        }
        let transfers = self.transfers();
        let rates = self.allocator.allocate(&self.network, &transfers);
        let mut grants = Vec::new();
        for ((&(_, to), senders), rate) in self.ours.iter().zip(rates) {
            let share = rate / senders.len() as f64;
            for &process in senders.keys() {
                let granted = self.granted.entry((process, to)).or_insert(f64::NAN);
                let is_near =
                    *granted == share || (share - *granted).abs() < WORTH_TELLING * *granted;
                if let Some(rate) = Rate::from_bits_per_second(share).filter(|_| !is_near) {
                    *granted = share;
                    grants.push(Grant { process, to, rate });
                }
            }
        }
        grants
    }

    /// What other brokers have to know since this was last asked, in order.
    pub fn notices(&mut self) -> Vec<(ClusterId, Notice)> {
        std::mem::take(&mut self.notices)
    }

    /// What members are to begin with, since this was last asked.
    pub fn starts(&mut self) -> Vec<Start> {
        std::mem::take(&mut self.starts)
    }

    /// Tells the members if more or fewer are to be expected.
    fn tell_crowd(&mut self, to: ClusterId) {
        let Some((crowd, told)) = self.crowds.get_mut(&to) else { return };
        let size = crowd.size();
        if size == *told {
            return;
        }
        *told = size;
        let Some(size) = size else { return };
        let starts: Vec<_> = self
            .members
            .iter()
            .map(|(&process, &node)| self.start(process, node, to, size))
            .collect();
        self.starts.extend(starts);
    }

    fn start(&self, process: Process, node: NodeId, to: ClusterId, size: usize) -> Start {
        let link = self.network.between(self.cluster, to).bits_per_second();
        let share = Rate::from_bits_per_second(link / size.max(1) as f64);
        let rate = share.unwrap_or(Rate::UNBOUNDED).min(self.network.interface(node));
        Start { process, to, rate }
    }

    /// Ours, in order, and then theirs.
    fn transfers(&self) -> Vec<Transfer> {
        let pairs = || self.ours.keys().chain(self.theirs.values().flatten());
        let mut fans: HashMap<NodeId, u32> = HashMap::new();
        pairs().for_each(|(from, _)| *fans.entry(*from).or_default() += 1);
        let weight = |from| NonZero::new(NODE / fans[from]).unwrap_or(NonZero::<u32>::MIN);
        pairs()
            .map(|(from, to)| Transfer { weight: weight(from), ..Transfer::new(*from, *to) })
            .collect()
    }

    fn tell(&mut self, from: NodeId, to: NodeId, is_active: bool) {
        let notice = Notice { from, to, is_active };
        self.notices.extend(self.rivals.iter().map(|&cluster| (cluster, notice)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * 1e6).unwrap()
    }

    /// Clusters of four nodes, interfaces of 50 Mbit/s, each pair joined by 160 Mbit/s.
    fn site(clusters: u32) -> (Network, Vec<ClusterId>, Vec<Vec<NodeId>>) {
        let mut network = Network::new();
        let ids: Vec<_> = (0..clusters).map(|_| network.add_cluster()).collect();
        let mut add = |&id: &ClusterId| (0..4).map(|_| network.add_node(id, mbit(50.0))).collect();
        let nodes: Vec<Vec<NodeId>> = ids.iter().map(&mut add).collect();
        for &from in &ids {
            for &to in ids.iter().filter(|&&to| to != from) {
                network.add_link(mbit(160.0), &[(from, to)]);
            }
        }
        (network, ids, nodes)
    }

    fn rates(grants: &[Grant]) -> Vec<(Process, f64)> {
        let mut all: Vec<_> = grants
            .iter()
            .map(|g| (g.process, (g.rate.bits_per_second() / 1e5).round() / 10.0))
            .collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all
    }

    #[test]
    fn a_lone_sender_has_its_interface_and_gives_way() {
        let (network, ids, nodes) = site(2);
        let mut broker = Broker::new(ids[0], network);
        broker.begin(0, nodes[0][0], nodes[1][0]);
        assert_eq!(rates(&broker.step()), [(0, 50.0)]);
        assert!(broker.step().is_empty() && !broker.wants_step());
        // Four nodes fill the link; each sends to one.
        (1..4).for_each(|n| broker.begin(n, nodes[0][n as usize], nodes[1][n as usize]));
        assert_eq!(rates(&broker.step()), [(0, 40.0), (1, 40.0), (2, 40.0), (3, 40.0)]);
        broker.end(2, nodes[0][2], nodes[1][2]);
        assert_eq!(rates(&broker.step()), [(0, 50.0), (1, 50.0), (3, 50.0)]);
        assert!(broker.notices().is_empty(), "with two clusters nobody else is concerned");
    }

    #[test]
    fn nodes_count_alike_and_their_processes_share() {
        let (network, ids, nodes) = site(2);
        let mut broker = Broker::new(ids[0], network);
        // Node 0 has two processes that send to one node, node 1 one that sends to all.
        broker.begin(0, nodes[0][0], nodes[1][0]);
        broker.begin(1, nodes[0][0], nodes[1][0]);
        nodes[1].iter().for_each(|&to| broker.begin(2, nodes[0][1], to));
        let grants = broker.step();
        let of = |process| {
            grants
                .iter()
                .filter(|g| g.process == process)
                .map(|g| g.rate.bits_per_second() / 1e6)
                .sum::<f64>()
        };
        assert!((of(0) - of(1)).abs() < 1e-6);
        // All of the receiver's interface that is wanted: 5 parts, of which node 1 has one.
        assert!((of(0) + of(1) - 40.0).abs() < 0.1, "{}", of(0) + of(1));
        assert!((of(2) - 50.0).abs() < 0.1, "{}", of(2));
    }

    #[test]
    fn an_incast_is_shared_with_other_clusters() {
        let (network, ids, nodes) = site(3);
        let mut a = Broker::new(ids[0], network.clone());
        let mut b = Broker::new(ids[1], network);
        a.begin(0, nodes[0][0], nodes[2][0]);
        assert_eq!(rates(&a.step()), [(0, 50.0)]);
        let told = a.notices();
        assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [ids[1], ids[2]]);
        b.heard(ids[0], told[0].1);
        b.begin(9, nodes[1][3], nodes[2][0]);
        assert_eq!(rates(&b.step()), [(9, 25.0)]);
        b.notices().iter().filter(|(to, _)| *to == ids[0]).for_each(|(_, n)| a.heard(ids[1], *n));
        assert_eq!(rates(&a.step()), [(0, 25.0)]);
        a.deaf_to(ids[1]);
        assert_eq!(rates(&a.step()), [(0, 50.0)]);
    }

    #[test]
    fn members_learn_how_many_are_to_be_expected() {
        let (network, ids, nodes) = site(2);
        let mut broker = Broker::new(ids[0], network);
        (0..4).for_each(|n| broker.join(n, nodes[0][n as usize]));
        let round = |broker: &mut Broker, senders: u32| {
            let pair = |n: u32| (nodes[0][n as usize], nodes[1][n as usize]);
            (0..senders).for_each(|n| broker.begin(n, pair(n).0, pair(n).1));
            (0..senders).for_each(|n| broker.end(n, pair(n).0, pair(n).1));
        };
        (0..15).for_each(|_| round(&mut broker, 1));
        assert!(broker.starts().is_empty(), "that is too early to tell");
        round(&mut broker, 1);
        let start = |process, mbits| Start { process, to: ids[1], rate: mbit(mbits) };
        assert_eq!(broker.starts(), [0, 1, 2, 3].map(|process| start(process, 50.0)));
        round(&mut broker, 4);
        assert_eq!(broker.starts().last(), Some(&start(3, 40.0)));
        broker.join(7, nodes[0][1]);
        broker.join(7, nodes[0][1]);
        assert_eq!(broker.starts(), [start(7, 40.0)]);
    }

    #[test]
    fn what_is_gone_counts_no_longer_and_nonsense_never_did() {
        let (network, ids, nodes) = site(2);
        let mut broker = Broker::new(ids[0], network);
        broker.begin(0, nodes[0][0], nodes[1][0]);
        broker.begin(0, nodes[0][0], nodes[1][0]);
        broker.begin(1, nodes[0][1], nodes[1][0]);
        assert_eq!(rates(&broker.step()), [(0, 25.0), (1, 25.0)]);
        broker.lost(0);
        assert_eq!(rates(&broker.step()), [(1, 50.0)]);
        broker.end(0, nodes[0][0], nodes[1][0]);
        broker.end(1, nodes[0][0], nodes[1][0]);
        // A node that is not the teller's own.
        broker.heard(ids[1], Notice { from: nodes[0][0], to: nodes[1][0], is_active: true });
        assert!(!broker.wants_step());
    }
}
