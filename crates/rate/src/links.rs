//! What the links between clusters are believed to carry: the networks that transfers share.

use crate::estimate::Estimate;
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

/// A correction by less than this, or than this since it was last told, is not worth a word to people.
const WORTH_A_WORD: f64 = 1.5;

/// What is granted towards a cluster, bits per second, and to whom.
pub(crate) type Granted = BTreeMap<ClusterId, (f64, BTreeSet<NodeId>)>;

/// The links as the broker of one cluster knows them.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    cluster: ClusterId,
    /// The network, open to what comes to receivers: when only one node sends, and with what is granted of each link when several do.
    pub(crate) lone: Network,
    pub(crate) shared: Network,
    /// What is granted of receivers and of most links where several nodes send, by what they carry.
    pub(crate) part: f64,
    /// The clusters to which ours are granted wholly: they are seen to lose nothing.
    clean: BTreeSet<ClusterId>,
    /// What is believed of the link to each cluster, and what people were told of it last, or by the job file.
    estimates: BTreeMap<ClusterId, (Estimate, f64)>,
    corrections: Vec<Correction>,
}

impl Links {
    pub(crate) fn new(cluster: ClusterId, network: &Network, part: f64) -> Self {
        let lone = network.with_open_receivers();
        let shared = lone.with_links_scaled(part);
        let (clean, estimates, corrections) = Default::default();
        Self { cluster, lone, shared, part, clean, estimates, corrections }
    }

    /// What ours to a cluster is believed to carry.
    pub(crate) fn to(&self, to: ClusterId) -> Rate {
        self.lone.between(self.cluster, to)
    }

    /// A process of ours has seen this of its connections to a cluster, and looks so often. What is believed now, if that is new.
    pub(crate) fn see(
        &mut self,
        to: ClusterId,
        (seen, every): (Seen, Duration),
        network: &Network,
        now: Instant,
    ) -> Option<Rate> {
        let (estimate, told) = self.estimates.get_mut(&to)?;
        let has_changed = estimate.see(seen, every, now);
        let is_worth = |found: &f64| !(1.0 / WORTH_A_WORD..WORTH_A_WORD).contains(&(found / *told));
        if let Some(rate) = estimate.news().filter(is_worth)
            && let Some(found) = Rate::from_bits_per_second(rate)
        {
            *told = rate;
            let said = network.between(self.cluster, to);
            self.corrections.push(Correction { to, said, found });
        }
        let found = Rate::from_bits_per_second(estimate.rate()).filter(|_| has_changed)?;
        self.believe(self.cluster, to, found);
        Some(found)
    }

    /// From now on a link carries so much.
    pub(crate) fn believe(&mut self, from: ClusterId, to: ClusterId, found: Rate) {
        self.lone.set_between(from, to, found);
        self.share(from, to, found);
    }

    /// So much of a link is granted where several nodes send.
    fn share(&mut self, from: ClusterId, to: ClusterId, of: Rate) {
        let is_clean = from == self.cluster && self.clean.contains(&to);
        let part = if is_clean { 1.0 } else { self.part };
        let shared = Rate::from_bits_per_second(of.bits_per_second() * part);
        self.shared.set_between(from, to, shared.unwrap_or(of));
    }

    /// Leaves nothing of links that are seen to lose nothing, something of the others. Whether that is new of one.
    pub(crate) fn spare(&mut self, now: Instant) -> bool {
        let is_clean = |(_, (estimate, _)): &(_, &(Estimate, _))| estimate.is_clean(now);
        let clean = self.estimates.iter().filter(is_clean).map(|(&to, _)| to).collect();
        let before = std::mem::replace(&mut self.clean, clean);
        let changed: Vec<_> = before.symmetric_difference(&self.clean).copied().collect();
        for &to in &changed {
            self.share(self.cluster, to, self.to(to));
        }
        !changed.is_empty()
    }

    /// So much is granted to ours; `is_full`: what comes to this node is all that it takes.
    pub(crate) fn grant(
        &mut self,
        mut granted: Granted,
        network: &Network,
        is_full: impl Fn(NodeId) -> bool,
        now: Instant,
    ) {
        for &to in granted.keys() {
            let said = network.between(self.cluster, to).bits_per_second();
            // What is shared with other pairs of clusters says nothing of one of them, nor could that be put right.
            if said.is_finite() && network.has_own_link(self.cluster, to) {
                self.estimates.entry(to).or_insert_with(|| (Estimate::new(said), said));
            }
        }
        for (to, (estimate, _)) in &mut self.estimates {
            let (rate, receivers) = granted.remove(to).unwrap_or_default();
            // One receiver of several may be slower than anybody has said.
            let is_ours = receivers.len() >= network.nodes_of(*to).min(2)
                && !receivers.iter().any(|&node| is_full(node));
            estimate.grant(rate, is_ours, now);
        }
    }

    /// What people are to be told since this was last asked.
    pub(crate) fn corrections(&mut self) -> Vec<Correction> {
        std::mem::take(&mut self.corrections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * 1e6).unwrap()
    }

    #[test]
    fn only_what_is_seen_to_lose_nothing_is_granted_wholly() {
        let mut network = Network::new();
        let ids = [0; 3].map(|_| network.add_cluster());
        let nodes = ids.map(|id| [0, 1].map(|_| network.add_node(id, Rate::UNBOUNDED)));
        network.add_link(mbit(100.0), &[(ids[0], ids[1])]);
        network.add_link(mbit(200.0), &[(ids[0], ids[2]), (ids[1], ids[2])]);
        let mut links = Links::new(ids[0], &network, 0.9);
        let shared = |links: &Links, to| links.shared.between(ids[0], to);
        assert_eq!([1, 2].map(|to| shared(&links, ids[to])), [mbit(90.0), mbit(180.0)]);

        let (start, every) = (Instant::now(), Seen::every(2));
        let second = Duration::from_secs(1);
        let lose = |links: &mut Links, resent, now: Instant| {
            let granted = Granted::from([(ids[1], (50e6, BTreeSet::from(nodes[1])))]);
            links.grant(granted, &network, |_| false, now - second);
            assert_eq!(
                links.see(ids[1], (Seen { arrived: 8000, resent }, every), &network, now),
                None
            );
            links.spare(now)
        };
        assert!(lose(&mut links, 0, start + second));
        assert_eq!([1, 2].map(|to| shared(&links, ids[to])), [mbit(100.0), mbit(180.0)]);
        assert!(lose(&mut links, 20, start + 3 * second));
        assert_eq!(shared(&links, ids[1]), mbit(90.0));
        assert_eq!(links.lone.between(ids[0], ids[1]), mbit(100.0), "who is alone meets nobody");
        assert!(!lose(&mut links, 0, start + 5 * second), "that is not forgotten so soon");
        links.believe(ids[0], ids[1], mbit(50.0));
        assert_eq!(shared(&links, ids[1]), mbit(45.0));
        assert!(!links.spare(start + 32 * second) && links.spare(start + 34 * second));
        assert_eq!(shared(&links, ids[1]), mbit(50.0));
    }
}
