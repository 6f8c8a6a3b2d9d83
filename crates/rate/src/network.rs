//! What can be a bottleneck.

use crate::Rate;
use std::collections::HashMap;

/// A cluster, by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(u32);

impl ClusterId {
    /// From 0, in the order in which they were added.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node, by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// From 0, in the order in which they were added.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A link, by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

/// A number among all resources.
pub(crate) type Resource = u32;

/// Clusters of nodes, and the links between them. Interfaces are full duplex; inside a cluster nothing but the interfaces
/// is a bottleneck.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Of each resource.
    capacities: Vec<Rate>,
    nodes: Vec<Node>,
    clusters: u32,
    links: Vec<Resource>,
    /// The clusters that send over each link.
    senders: HashMap<Resource, Vec<ClusterId>>,
    /// The links from one cluster to another; none is as good as links without bounds.
    paths: HashMap<(ClusterId, ClusterId), Vec<Resource>>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    cluster: ClusterId,
    outward: Resource,
    inward: Resource,
}

impl Network {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A cluster without nodes.
    pub fn add_cluster(&mut self) -> ClusterId {
        self.clusters += 1;
        ClusterId(self.clusters - 1)
    }

    /// A node whose interface carries so much in each direction.
    ///
    /// # Panics
    /// If the cluster is of another network.
    pub fn add_node(&mut self, cluster: ClusterId, interface: Rate) -> NodeId {
        assert!(cluster.0 < self.clusters, "{cluster:?} is of another network");
        let (outward, inward) = (self.add_resource(interface), self.add_resource(interface));
        self.nodes.push(Node { cluster, outward, inward });
        NodeId(count(&self.nodes) - 1)
    }

    /// A link, or one direction of one, that carries so much in all for these pairs (from, to). A pair may have
    /// several, one after the other: a site's own uplink and what comes behind it.
    ///
    /// # Panics
    /// If a cluster is of another network, or one is paired with itself.
    pub fn add_link(&mut self, bandwidth: Rate, carries: &[(ClusterId, ClusterId)]) -> LinkId {
        let link = self.add_resource(bandwidth);
        for &(from, to) in carries {
            assert!(from != to, "a link leads from {from:?} to itself");
            assert!(from.max(to).0 < self.clusters, "{from:?} or {to:?} is of another network");
            self.paths.entry((from, to)).or_default().push(link);
            let senders = self.senders.entry(link).or_default();
            if !senders.contains(&from) {
                senders.push(from);
            }
        }
        self.links.push(link);
        LinkId(count(&self.links) - 1)
    }

    /// A link has turned out to carry more or less.
    ///
    /// # Panics
    /// If the link is of another network.
    pub fn set_bandwidth(&mut self, link: LinkId, bandwidth: Rate) {
        let resource = self.links[link.0 as usize];
        self.capacities[resource as usize] = bandwidth;
    }

    /// What links let through from one cluster to another has turned out to be this, as far as they carry nothing else.
    pub(crate) fn set_between(&mut self, from: ClusterId, to: ClusterId, bandwidth: Rate) {
        let own: Vec<_> = self.own_links(from, to).collect();
        own.into_iter().for_each(|link| self.capacities[link as usize] = bandwidth);
    }

    /// A link has turned out to carry this.
    pub(crate) fn set_capacity(&mut self, link: Resource, capacity: Rate) {
        self.capacities[link as usize] = capacity;
    }

    /// Whether a link is known between them that carries nothing else.
    pub(crate) fn has_own_link(&self, from: ClusterId, to: ClusterId) -> bool {
        self.own_links(from, to).next().is_some()
    }

    fn own_links(&self, from: ClusterId, to: ClusterId) -> impl Iterator<Item = u32> {
        let links = self.paths.get(&(from, to)).map_or(&[][..], Vec::as_slice).iter().copied();
        let carries = |link| self.paths.values().filter(|path| path.contains(&link)).count();
        links.filter(move |link| carries(*link) == 1)
    }

    /// The same network with links that carry a part of what these do, by whether several clusters send over them.
    #[must_use]
    pub(crate) fn with_links_scaled(&self, part: impl Fn(bool) -> f64) -> Self {
        let mut scaled = self.clone();
        for &link in &self.links {
            let part = part(self.senders.get(&link).is_some_and(|senders| senders.len() > 1));
            let capacity = &mut scaled.capacities[link as usize];
            *capacity = capacity.scaled(part);
        }
        scaled
    }

    /// The same network with receivers that take whatever comes.
    #[must_use]
    pub(crate) fn with_open_receivers(&self) -> Self {
        let mut open = self.clone();
        self.nodes.iter().for_each(|node| open.capacities[node.inward as usize] = Rate::UNBOUNDED);
        open
    }

    /// What comes to a node is bounded so from now on.
    pub(crate) fn set_inward(&mut self, node: NodeId, rate: Rate) {
        self.capacities[self.nodes[node.index()].inward as usize] = rate;
    }

    /// The cluster with this number.
    #[must_use]
    pub fn cluster_number(&self, index: u32) -> Option<ClusterId> {
        (index < self.clusters).then_some(ClusterId(index))
    }

    /// The node with this number.
    #[must_use]
    pub fn node(&self, index: u32) -> Option<NodeId> {
        Some(NodeId(index)).filter(|&node| self.has(node))
    }

    /// Whether it is a node of this network, as far as its number tells.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        node.index() < self.nodes.len()
    }

    /// The cluster of a node.
    ///
    /// # Panics
    /// If it is of another network.
    #[must_use]
    pub fn cluster(&self, node: NodeId) -> ClusterId {
        self.nodes[node.index()].cluster
    }

    /// What a node's interface carries.
    ///
    /// # Panics
    /// If it is of another network.
    #[must_use]
    pub fn interface(&self, node: NodeId) -> Rate {
        self.capacities[self.nodes[node.index()].outward as usize]
    }

    /// What may come to a node.
    pub(crate) fn inward(&self, node: NodeId) -> Rate {
        self.capacities[self.nodes[node.index()].inward as usize]
    }

    /// What the links from one cluster to another let through.
    #[must_use]
    pub fn between(&self, from: ClusterId, to: ClusterId) -> Rate {
        let links = self.paths.get(&(from, to)).map_or(&[][..], Vec::as_slice);
        let capacities = links.iter().map(|&link| self.capacities[link as usize]);
        capacities.fold(Rate::UNBOUNDED, Rate::min)
    }

    /// The same of those of them that carry what other clusters exchange, too.
    #[must_use]
    pub fn shared_between(&self, from: ClusterId, to: ClusterId) -> Rate {
        let shared = self.shared_links(from, to).into_iter();
        shared.map(|link| self.capacity(link)).fold(Rate::UNBOUNDED, Rate::min)
    }

    /// The links from one cluster to another that carry what other clusters exchange, too.
    pub(crate) fn shared_links(&self, from: ClusterId, to: ClusterId) -> Vec<Resource> {
        let own: Vec<_> = self.own_links(from, to).collect();
        let links = self.paths.get(&(from, to)).map_or(&[][..], Vec::as_slice);
        links.iter().copied().filter(|link| !own.contains(link)).collect()
    }

    /// The other clusters whose transfers can have a part in what those of `ours` get: they can meet at a link that carries both
    /// or at the interface of a receiver, or both can meet those of a third.
    #[must_use]
    pub fn rivals(&self, ours: ClusterId) -> Vec<ClusterId> {
        let mut found = vec![ours];
        let mut next = 0;
        while let Some(&known) = found.get(next) {
            let others = (0..self.clusters).map(ClusterId).filter(|other| !found.contains(other));
            let new: Vec<_> = others.filter(|&other| self.can_meet(known, other)).collect();
            found.extend(new);
            next += 1;
        }
        found.remove(0);
        found
    }

    fn can_meet(&self, one: ClusterId, other: ClusterId) -> bool {
        let is_neck = |node: &Node| self.capacities[node.inward as usize] < Rate::UNBOUNDED;
        let is_third = |node: &Node| node.cluster != one && node.cluster != other;
        self.nodes.iter().any(|node| is_third(node) && is_neck(node))
            || self.senders.values().any(|link| link.contains(&one) && link.contains(&other))
    }

    /// The clusters that links from this one lead to, and these links.
    pub(crate) fn ways(&self, from: ClusterId) -> impl Iterator<Item = (ClusterId, Vec<Resource>)> {
        let of = move |(&(one, to), links): (&(ClusterId, _), &Vec<_>)| {
            (one == from).then(|| (to, links.clone()))
        };
        self.paths.iter().filter_map(of)
    }

    /// Whether nobody but this cluster sends over a link.
    pub(crate) fn is_only_of(&self, link: Resource, cluster: ClusterId) -> bool {
        self.senders.get(&link).is_some_and(|senders| *senders == [cluster])
    }

    /// What something carries.
    pub(crate) fn capacity(&self, resource: Resource) -> Rate {
        self.capacities[resource as usize]
    }

    /// What the interfaces of those who send over a link carry together, bits per second. In order: what a node sends comes together.
    pub(crate) fn wanted(
        &self,
        link: Resource,
        transfers: impl Iterator<Item = (NodeId, NodeId)>,
    ) -> f64 {
        let (mut last, mut sum) = (None, 0.0);
        for (from, to) in transfers {
            if last != Some(from) && self.path(from, to).any(|on| on == link) {
                last = Some(from);
                sum += self.interface(from).bits_per_second();
            }
        }
        sum
    }

    /// How many nodes a cluster has.
    pub(crate) fn nodes_of(&self, cluster: ClusterId) -> usize {
        self.nodes.iter().filter(|node| node.cluster == cluster).count()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn add_resource(&mut self, capacity: Rate) -> Resource {
        self.capacities.push(capacity);
        count(&self.capacities) - 1
    }

    pub(crate) fn capacities(&self) -> impl Iterator<Item = f64> {
        self.capacities.iter().map(|capacity| capacity.bits_per_second())
    }

    /// What a transfer takes its share of.
    pub(crate) fn path(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = Resource> {
        let (from, to) = (self.nodes[from.index()], self.nodes[to.index()]);
        let links = self.paths.get(&(from.cluster, to.cluster)).map_or(&[][..], Vec::as_slice);
        [from.outward, to.inward].into_iter().chain(links.iter().copied())
    }
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("fewer than 2^32 resources")
}
