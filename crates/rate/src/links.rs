//! What the links between clusters are believed to carry: the networks that transfers share.

use crate::backlog::{Backlogs, Senders};
use crate::estimate::{ELSEWHERE, Estimate};
use crate::network::Resource;
use crate::{ClusterId, Network, NodeId, Rate, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A link has turned out to carry something else than was said of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// The cluster it leads to.
    pub to: ClusterId,
    /// What was said.
    pub said: Rate,
    /// What is believed from now on.
    pub found: Rate,
}

/// A correction by less than this, or than this since it was last told, is not worth a word to people; the second word, since the first one comes
/// as soon as something is known, by less than that.
const WORTH_A_WORD: f64 = 1.5;
const WORTH_ANOTHER: f64 = 1.15;

/// Whoever asks is left this part of a link at least.
const LEAST_LEFT: f64 = 1e-3;

/// What people believe that a link carries, bits per second, and after how many words.
#[derive(Clone, Copy, Debug)]
struct Told {
    rate: f64,
    words: u32,
}

/// What is known of a link.
#[derive(Clone, Debug)]
struct Known {
    /// What is believed of it, and what people were told last, or have said.
    estimate: Estimate,
    told: Told,
    /// Other links on the way; and whether one of them is full by what goes elsewhere, and may lose something.
    others: Vec<Resource>,
    is_crossed: bool,
}

/// What is granted towards a cluster, bits per second, and to whom.
pub(crate) type Granted = BTreeMap<ClusterId, (f64, BTreeSet<NodeId>)>;

/// What is granted of what several nodes share, by what it carries: above 0, and 1 at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Of a link before which nothing waits. A queue that was not reckoned with drains by the rest.
    pub links: f64,
    /// Of one before which something waits: that drains by the rest.
    pub draining: f64,
    /// Of one that has lost something lately, or that others send over, too, of whom is not known when they begin.
    pub wary: f64,
    /// Of a receiver's interface, which binds only when it may not hold more.
    pub receivers: f64,
}

impl Parts {
    /// All.
    pub const ALL: Self = Self { links: 1.0, draining: 1.0, wary: 1.0, receivers: 1.0 };

    /// What brokers grant.
    pub const GRANTED: Self = Self { links: 0.998, draining: 0.97, wary: 0.98, receivers: 0.99 };
}

/// The links as the broker of one cluster knows them.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    cluster: ClusterId,
    /// The network, open to what comes to receivers: when only one node sends, and with what is granted of each link when several do.
    pub(crate) lone: Network,
    pub(crate) shared: Network,
    pub(crate) parts: Parts,
    /// Of each link out of the cluster what is left beside those who send unasked: above 0, and 1 at most.
    left: f64,
    backlogs: Backlogs,
    /// What is known of the link to each cluster.
    known: BTreeMap<ClusterId, Known>,
    corrections: Vec<Correction>,
}

impl Links {
    pub(crate) fn new(cluster: ClusterId, network: &Network, parts: Parts) -> Self {
        let lone = network.with_open_receivers();
        // Ours are reckoned at each step; of others' brokers the same is to be expected.
        let part = |is_shared| if is_shared { parts.wary } else { parts.links };
        let shared = lone.with_links_scaled(part);
        let backlogs = Backlogs::new(cluster, network, parts);
        Self {
            cluster,
            lone,
            shared,
            parts,
            left: 1.0,
            backlogs,
            known: BTreeMap::new(),
            corrections: Vec::new(),
        }
    }

    /// What ours to a cluster is believed to carry.
    pub(crate) fn to(&self, to: ClusterId) -> Rate {
        let left = self.lone.between(self.cluster, to);
        left.scaled(1.0 / self.left)
    }

    /// Somebody sends over all links out of the cluster unasked from now on: such a part of each is theirs.
    pub(crate) fn reserve(&mut self, part: f64) {
        let left = (self.left - part).max(LEAST_LEFT);
        let links: BTreeSet<_> =
            self.lone.ways(self.cluster).flat_map(|(_, links)| links).collect();
        for network in [&mut self.lone, &mut self.shared] {
            for &link in &links {
                network.set_capacity(link, network.capacity(link).scaled(left / self.left));
            }
        }
        self.left = left;
    }

    /// A process of ours has seen this of its connections to a cluster, and looks so often. What is believed now, if that is new.
    pub(crate) fn see(
        &mut self,
        to: ClusterId,
        (seen, every): (Seen, Duration),
        network: &Network,
        now: Instant,
    ) -> Option<Rate> {
        let Known { estimate, told, .. } = self.known.get_mut(&to)?;
        // Those who send unasked are not seen: they are taken to do as the others.
        let all = |segments: u64| (segments as f64 / self.left).round() as u64;
        let seen = Seen { arrived: all(seen.arrived), resent: all(seen.resent), ..seen };
        let has_changed = estimate.see(seen, every, now);
        let worth = if told.words == 1 { WORTH_ANOTHER } else { WORTH_A_WORD };
        let is_worth = |found: &f64| !(1.0 / worth..worth).contains(&(found / told.rate));
        if let Some(rate) = estimate.news().filter(is_worth)
            && let Some(found) = Rate::from_bits_per_second(rate)
        {
            *told = Told { rate, words: told.words.saturating_add(1) };
            let said = network.between(self.cluster, to);
            self.corrections.push(Correction { to, said, found });
        }
        let found = Rate::from_bits_per_second(estimate.rate()).filter(|_| has_changed)?;
        self.believe(self.cluster, to, found);
        Some(found)
    }

    /// Whether less is granted from now on, for some time, for what it has seen.
    pub(crate) fn grows_wary(
        &mut self,
        to: ClusterId,
        (seen, every): (Seen, Duration),
        now: Instant,
    ) -> bool {
        let is_to_blame = |it: &Known| it.is_crossed || it.estimate.is_to_blame(every, now);
        self.known.get(&to).is_none_or(is_to_blame) && self.backlogs.see(to, seen, now)
    }

    /// From now on a link carries so much.
    pub(crate) fn believe(&mut self, from: ClusterId, to: ClusterId, found: Rate) {
        let found = if from == self.cluster { found.scaled(self.left) } else { found };
        self.lone.set_between(from, to, found);
        self.shared.set_between(from, to, found.scaled(self.parts.links));
    }

    /// A process of ours begins to send to a cluster.
    pub(crate) fn begin(&mut self, to: ClusterId) {
        self.backlogs.begin(to);
    }

    /// Sets what several nodes may share of each link now: these transfers, in order, of so many processes of ours over a link.
    pub(crate) fn share(
        &mut self,
        is_lone: bool,
        transfers: impl Iterator<Item = (NodeId, NodeId)> + Clone,
        active: impl Fn(Resource) -> usize,
        now: Instant,
    ) {
        let Self { lone, shared, backlogs, .. } = self;
        let senders = |link| {
            let carries = lone.capacity(link).bits_per_second();
            // Where neither is bounded there is room.
            let room = (carries / lone.wanted(link, transfers.clone())).min(1.0);
            Senders { active: active(link), room }
        };
        for (link, part) in backlogs.parts(is_lone, senders, now) {
            let carries = lone.capacity(link);
            shared.set_capacity(link, carries.scaled(part));
        }
    }

    /// Processes of ours have been told that they may send so much to clusters, bits per second.
    pub(crate) fn load(&mut self, told: impl Iterator<Item = (ClusterId, f64)>, now: Instant) {
        self.backlogs.load(told, &self.lone, now);
    }

    /// When more, or less, may be shared though nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.backlogs.due()
    }

    /// So much is granted to ours; `is_full`: what comes to this node is all that it takes; `left`: so much of a link nobody has, bits per second.
    pub(crate) fn grant(
        &mut self,
        mut granted: Granted,
        network: &Network,
        is_full: impl Fn(NodeId) -> bool,
        left: impl Fn(Resource) -> f64,
        now: Instant,
    ) {
        for &to in granted.keys() {
            let said = network.between(self.cluster, to).bits_per_second();
            // What is shared with other pairs of clusters says nothing of one of them, nor could that be put right.
            if said.is_finite() && network.has_own_link(self.cluster, to) {
                self.known.entry(to).or_insert_with(|| Known {
                    estimate: Estimate::new(said),
                    told: Told { rate: said, words: 0 },
                    others: network.shared_links(self.cluster, to),
                    is_crossed: false,
                });
            }
        }
        for (to, Known { estimate, others, is_crossed, .. }) in &mut self.known {
            let (rate, receivers) = granted.remove(to).unwrap_or_default();
            // Another link on the way is full, and not by what goes there: it is there that something is lost.
            let is_neck = |&link: &Resource| {
                let carries = network.capacity(link).bits_per_second() * self.left;
                let (left, little) = (left(link), carries * ELSEWHERE);
                left < little && carries - left - rate > little
            };
            // One receiver of several may be slower than anybody has said.
            let is_on_the_way = receivers.len() >= network.nodes_of(*to).min(2)
                && !receivers.iter().any(|&node| is_full(node));
            *is_crossed = is_on_the_way && others.iter().any(is_neck);
            estimate.grant(rate / self.left, is_on_the_way && !*is_crossed, now);
        }
    }

    /// What people are to be told since this was last asked.
    pub(crate) fn corrections(&mut self) -> Vec<Correction> {
        std::mem::take(&mut self.corrections)
    }
}
