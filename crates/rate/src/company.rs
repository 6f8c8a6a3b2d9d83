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
    senders: BTreeMap<(NodeId, Process), Count>,
    /// What one of those who only may send was granted in the last collective of such, and is in the present ones.
    usual: Option<Rate>,
    granted: Option<Granted>,
}

/// In how many collectives somebody sends, and in how many it may.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    surely: u32,
    perhaps: u32,
}

/// The least that was granted, and whether it was settled once that others have nothing of it.
#[derive(Clone, Copy, Debug)]
struct Granted {
    least: Rate,
    is_settled: bool,
}

/// What transfers may begin with in collectives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// However many send of those who may.
    least: Rate,
    /// If they are as few as they can be, and as they were lately.
    most: Rate,
}

impl Bounds {
    /// The rate, if it would be `usual` otherwise.
    pub(crate) fn around(self, usual: Rate) -> Rate {
        let rate = usual.min(self.most);
        if rate > self.least { rate } else { self.least }
    }
}

impl Count {
    fn of(&mut self, is_sure: bool) -> &mut u32 {
        if is_sure { &mut self.surely } else { &mut self.perhaps }
    }
}

impl Company {
    /// One more, in which these send, or at most these.
    pub(crate) fn enter(&mut self, senders: &[(NodeId, Process)], is_sure: bool) {
        for sender in senders {
            *self.senders.entry(*sender).or_default().of(is_sure) += 1;
        }
    }

    /// One less.
    pub(crate) fn leave(&mut self, senders: &[(NodeId, Process)], is_sure: bool) {
        for sender in senders {
            if let Some(count) = self.senders.get_mut(sender) {
                let one = count.of(is_sure);
                *one = one.saturating_sub(1);
                if count.surely + count.perhaps == 0 {
                    self.senders.remove(sender);
                }
            }
        }
        if !self.is_open() {
            self.learn();
        }
    }

    /// The broker has granted so much. Where few of those who may do send that is more than the share of one of all, and what the next such
    /// collective may begin with.
    pub(crate) fn granted(&mut self, rate: Rate, is_settled: bool) {
        if self.is_open() {
            let before = self.granted.unwrap_or(Granted { least: rate, is_settled });
            let is_settled = is_settled || before.is_settled;
            self.granted = Some(Granted { least: before.least.min(rate), is_settled });
        }
    }

    /// Nothing was settled in a short one: it may have been less than usual, not more.
    fn learn(&mut self) {
        if let Some(Granted { least, is_settled }) = self.granted.take() {
            let usual = if is_settled { Some(least) } else { self.usual };
            self.usual = usual.map(|usual| usual.min(least));
        }
    }

    /// Whether there are no collectives.
    pub(crate) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Whether there are such as only may send.
    fn is_open(&self) -> bool {
        self.senders.values().any(|count| count.surely == 0)
    }

    /// Whether there are several, and all of them surely send.
    pub(crate) fn all_send(&self) -> bool {
        self.senders.len() > 1 && !self.is_open()
    }

    /// What one process of the node may begin with. `None` where nobody sends.
    pub(crate) fn bounds(&self, path: &Path) -> Option<Bounds> {
        let least = self.share(path, |_| true)?;
        let most = if self.is_open() {
            let surely = self.share(path, |count| count.surely > 0);
            self.usual.map_or(least, |usual| usual.min(surely.unwrap_or(Rate::UNBOUNDED)))
        } else {
            least
        };
        Some(Bounds { least, most })
    }

    /// The share of one process of the node: nodes count alike, and their processes. `None` where none of those sends.
    fn share(&self, path: &Path, is_of: impl Fn(&Count) -> bool) -> Option<Rate> {
        let (mut nodes, mut mates, mut before) = (0u32, 0u32, None);
        for (&(node, _), _) in self.senders.iter().filter(|(_, count)| is_of(count)) {
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

    /// Where the senders are sure it does not matter what is usual.
    fn share(company: &Company, node: NodeId) -> Option<Rate> {
        let bounds = company.bounds(&path(node))?;
        let [low, high] = [1.0, 1000.0].map(|usual| bounds.around(mbit(usual)));
        assert_eq!(low, high);
        Some(low)
    }

    #[test]
    fn a_lone_one_has_all_that_it_can_use_and_many_share() {
        let nodes = nodes(8);
        let mut company = Company::default();
        assert_eq!(share(&company, nodes[0]), None);
        let lone = [(nodes[0], 0)];
        company.enter(&lone, true);
        assert_eq!(share(&company, nodes[0]), Some(mbit(50.0)));
        // The other process of the node takes part in another one.
        let all: Vec<_> = (0..).zip(&nodes).map(|(process, &node)| (node, process)).collect();
        company.enter(&all, true);
        assert_eq!(share(&company, nodes[0]), Some(mbit(20.0)));
        company.leave(&lone, true);
        assert_eq!(share(&company, nodes[0]), Some(mbit(20.0)));
        company.leave(&all, true);
        company.leave(&all, true);
        assert_eq!(share(&company, nodes[0]), None);
    }

    #[test]
    fn nodes_count_alike_however_many_processes_they_have() {
        let nodes = nodes(4);
        let mut company = Company::default();
        company.enter(
            &[(nodes[0], 0), (nodes[0], 1), (nodes[1], 2), (nodes[2], 3), (nodes[3], 4)],
            true,
        );
        assert_eq!(share(&company, nodes[0]), Some(mbit(20.0)));
        assert_eq!(share(&company, nodes[1]), Some(mbit(40.0)));
        let endless = Path { link: Rate::UNBOUNDED, interface: Rate::UNBOUNDED, ..path(nodes[1]) };
        let bounds = company.bounds(&endless).unwrap();
        assert_eq!(bounds.around(mbit(1.0)), Rate::UNBOUNDED);
    }

    #[test]
    fn where_all_may_send_and_few_do_the_next_one_begins_with_what_was_granted() {
        let nodes = nodes(8);
        let mut company = Company::default();
        let all: Vec<_> = (0..).zip(&nodes).map(|(process, &node)| (node, process)).collect();
        let begins =
            |company: &Company, usual| company.bounds(&path(nodes[0])).unwrap().around(mbit(usual));
        company.enter(&all, false);
        assert_eq!(begins(&company, 50.0), mbit(20.0));
        company.granted(mbit(49.0), false);
        company.granted(mbit(49.0), true);
        company.leave(&all, false);
        company.enter(&all, false);
        assert_eq!(begins(&company, 50.0), mbit(49.0));
        // Many have sent at the same time of late, in collectives or not.
        assert_eq!(begins(&company, 30.0), mbit(30.0));
        assert_eq!(begins(&company, 1.0), mbit(20.0));
        // Where it is sure who sends that counts, be there others or not.
        company.enter(&all, true);
        assert_eq!(begins(&company, 50.0), mbit(20.0));
        company.leave(&all, true);
        assert_eq!(begins(&company, 50.0), mbit(49.0));
        // All did, though nothing was settled; the last had all to itself.
        company.granted(mbit(25.0), false);
        company.granted(mbit(50.0), false);
        company.leave(&all, false);
        company.enter(&all, false);
        assert_eq!(begins(&company, 50.0), mbit(25.0));
        // That others may still begin is no reason to take it for more.
        company.granted(mbit(50.0), false);
        company.leave(&all, false);
        company.enter(&all, false);
        assert_eq!(begins(&company, 50.0), mbit(25.0));
    }

    #[test]
    fn what_is_granted_where_the_senders_are_sure_says_nothing_of_where_they_are_not() {
        let nodes = nodes(8);
        let mut company = Company::default();
        let all: Vec<_> = (0..).zip(&nodes).map(|(process, &node)| (node, process)).collect();
        for is_within in [false, true] {
            company.granted(mbit(50.0), true);
            if is_within {
                company.enter(&all, true);
                company.granted(mbit(50.0), true);
                company.leave(&all, true);
            }
        }
        company.enter(&all, false);
        assert_eq!(share(&company, nodes[0]), Some(mbit(20.0)));
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
            calls.iter().for_each(|call| company.enter(call, true));
            let senders: Vec<_> = company.senders.keys().copied().collect();
            let share = |node| share(&company, node).unwrap().bits_per_second();
            let sum: f64 = senders.iter().map(|&(node, _)| share(node)).sum();
            prop_assert!(sum <= 160e6 * 1.000_001);
            for &node in &nodes {
                let of_it: f64 = senders.iter().filter(|s| s.0 == node).map(|s| share(s.0)).sum();
                prop_assert!(of_it <= 50e6 * 1.000_001);
            }
            calls.iter().rev().for_each(|call| company.leave(call, true));
            prop_assert!(company.senders.is_empty());
        }
    }
}
