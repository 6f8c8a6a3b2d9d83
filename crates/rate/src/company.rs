//! Collectives under way: inside one the senders are known, so that nobody has to guess what transfers may begin with.

use crate::{NodeId, Process, Rate};
use std::collections::BTreeMap;

/// What a process's transfers to a cluster go over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Where the process is.
    pub node: NodeId,
    /// What that node's interface carries.
    pub interface: Rate,
    /// What the link to the cluster carries, as far as is known.
    pub link: Rate,
}

/// The senders of all collectives that a process sends in, towards one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Company {
    /// In how many of them each is.
    senders: BTreeMap<(NodeId, Process), u32>,
}

impl Company {
    /// One more, in which these send.
    pub(crate) fn enter(&mut self, senders: &[(NodeId, Process)]) {
        for sender in senders {
            *self.senders.entry(*sender).or_default() += 1;
        }
    }

    /// One less.
    pub(crate) fn leave(&mut self, senders: &[(NodeId, Process)]) {
        for sender in senders {
            if let Some(count) = self.senders.get_mut(sender) {
                *count -= 1;
                if *count == 0 {
                    self.senders.remove(sender);
                }
            }
        }
    }

    /// The share of one process of the node: nodes count alike, and their processes. `None` where nobody sends.
    pub(crate) fn share(&self, path: &Path) -> Option<Rate> {
        let (mut nodes, mut mates, mut before) = (0u32, 0u32, None);
        for &(node, _) in self.senders.keys() {
            nodes += u32::from(before != Some(node));
            mates += u32::from(node == path.node);
            before = Some(node);
        }
        before?;
        let part = path.link.bits_per_second() / f64::from(nodes);
        let part = part.min(path.interface.bits_per_second()) / f64::from(mates.max(1));
        Some(Rate::from_bits_per_second(part).unwrap_or(path.link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use proptest::prelude::*;

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * 1e6).unwrap()
    }

    fn nodes(count: u32) -> Vec<NodeId> {
        let mut network = Network::new();
        let cluster = network.add_cluster();
        (0..count).map(|_| network.add_node(cluster, Rate::UNBOUNDED)).collect()
    }

    fn path(node: NodeId) -> Path {
        Path { node, interface: mbit(50.0), link: mbit(160.0) }
    }

    #[test]
    fn a_lone_one_has_all_that_it_can_use_and_many_share() {
        let nodes = nodes(8);
        let mut company = Company::default();
        assert_eq!(company.share(&path(nodes[0])), None);
        let lone = [(nodes[0], 0)];
        company.enter(&lone);
        assert_eq!(company.share(&path(nodes[0])), Some(mbit(50.0)));
        // The other process of the node takes part in another one.
        let all: Vec<_> = (0..).zip(&nodes).map(|(process, &node)| (node, process)).collect();
        company.enter(&all);
        assert_eq!(company.share(&path(nodes[0])), Some(mbit(20.0)));
        company.leave(&lone);
        assert_eq!(company.share(&path(nodes[0])), Some(mbit(20.0)));
        company.leave(&all);
        company.leave(&all);
        assert_eq!(company.share(&path(nodes[0])), None);
    }

    #[test]
    fn nodes_count_alike_however_many_processes_they_have() {
        let nodes = nodes(4);
        let mut company = Company::default();
        company.enter(&[(nodes[0], 0), (nodes[0], 1), (nodes[1], 2), (nodes[2], 3), (nodes[3], 4)]);
        assert_eq!(company.share(&path(nodes[0])), Some(mbit(20.0)));
        assert_eq!(company.share(&path(nodes[1])), Some(mbit(40.0)));
        let endless = Path { link: Rate::UNBOUNDED, interface: Rate::UNBOUNDED, ..path(nodes[1]) };
        assert_eq!(company.share(&endless), Some(Rate::UNBOUNDED));
    }

    proptest! {
        /// Whatever collectives there are, those in them fit the link and their interfaces together, and nothing is left of the first
        /// when it has been left.
        #[test]
        fn those_who_know_the_same_fit(
            calls in prop::collection::vec(prop::collection::btree_set((0usize..6, 0u32..3), 1..9), 1..5),
        ) {
            let nodes = nodes(6);
            let calls: Vec<Vec<_>> = calls.iter()
                .map(|call| call.iter().map(|&(node, mate)| (nodes[node], 3 * node as u32 + mate)).collect())
                .collect();
            let mut company = Company::default();
            calls.iter().for_each(|call| company.enter(call));
            let senders: Vec<_> = company.senders.keys().copied().collect();
            let share = |node| company.share(&path(node)).unwrap().bits_per_second();
            let sum: f64 = senders.iter().map(|&(node, _)| share(node)).sum();
            prop_assert!(sum <= 160e6 * 1.000_001);
            for &node in &nodes {
                let of_it: f64 = senders.iter().filter(|s| s.0 == node).map(|s| share(s.0)).sum();
                prop_assert!(of_it <= 50e6 * 1.000_001);
            }
            calls.iter().rev().for_each(|call| company.leave(call));
            prop_assert!(company.senders.is_empty());
        }
    }
}
