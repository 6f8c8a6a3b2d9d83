//! Allocations against the definition of max–min fairness, and against the same done slowly.

use gridmpi_rate::{Allocator, ClusterId, Network, NodeId, Rate, Transfer};
use proptest::prelude::*;
use std::num::NonZero;

/// A network in a form that the test can look into.
#[derive(Clone, Debug)]
struct Case {
    /// Of each cluster, its nodes' interfaces.
    clusters: Vec<Vec<f64>>,
    /// Bandwidth, and the pairs of clusters that it carries.
    links: Vec<(f64, Vec<(usize, usize)>)>,
    /// From, to, weight, demand; nodes by number.
    transfers: Vec<(usize, usize, u32, f64)>,
}

fn bandwidth() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (1u32..20).prop_map(f64::from),
        2 => 1e-3..1e12f64,
        1 => Just(f64::INFINITY),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let clusters = prop::collection::vec(prop::collection::vec(bandwidth(), 1..5), 2..5);
    clusters.prop_flat_map(|clusters| {
        let (count, nodes) = (clusters.len(), clusters.iter().map(Vec::len).sum::<usize>());
        let pair = (0..count, 1..count).prop_map(move |(from, on)| (from, (from + on) % count));
        let pairs =
            prop::collection::hash_set(pair, 1..4).prop_map(|set| set.into_iter().collect());
        let links = prop::collection::vec((bandwidth(), pairs), 0..6);
        let transfer =
            (0..nodes, 0..nodes, prop_oneof![Just(1u32), 1u32..=u32::MAX, 1u32..5], bandwidth());
        let transfers = prop::collection::vec(transfer, 0..30);
        (Just(clusters), links, transfers).prop_map(|(clusters, links, transfers)| Case {
            clusters,
            links,
            transfers,
        })
    })
}

impl Case {
    fn network(&self) -> (Network, Vec<Transfer>) {
        let rate = |bits| Rate::from_bits_per_second(bits).unwrap();
        let mut network = Network::new();
        let ids: Vec<ClusterId> = self.clusters.iter().map(|_| network.add_cluster()).collect();
        let mut nodes: Vec<NodeId> = Vec::new();
        for (cluster, interfaces) in ids.iter().zip(&self.clusters) {
            nodes.extend(interfaces.iter().map(|&bits| network.add_node(*cluster, rate(bits))));
        }
        for (bits, pairs) in &self.links {
            let pairs: Vec<_> = pairs.iter().map(|&(from, to)| (ids[from], ids[to])).collect();
            network.add_link(rate(*bits), &pairs);
        }
        let transfer = |&(from, to, weight, demand): &(usize, usize, u32, f64)| Transfer {
            weight: NonZero::new(weight).unwrap(),
            demand: rate(demand),
            ..Transfer::new(nodes[from], nodes[to])
        };
        let transfers = self.transfers.iter().map(transfer).collect();
        (network, transfers)
    }

    /// Every resource: its capacity and which transfers use it.
    fn resources(&self) -> Vec<(f64, Vec<usize>)> {
        let owner: Vec<(usize, f64)> = (0..)
            .zip(&self.clusters)
            .flat_map(|(cluster, nodes)| nodes.iter().map(move |&bits| (cluster, bits)))
            .collect();
        let users = |wanted: &dyn Fn(usize, usize) -> bool| -> Vec<usize> {
            let all = self.transfers.iter().enumerate();
            all.filter(|(_, t)| wanted(t.0, t.1)).map(|(index, _)| index).collect()
        };
        let mut all = Vec::new();
        for (node, &(_, bits)) in owner.iter().enumerate() {
            all.push((bits, users(&|from, _| from == node)));
            all.push((bits, users(&|_, to| to == node)));
        }
        for (bits, pairs) in &self.links {
            all.push((*bits, users(&|from, to| pairs.contains(&(owner[from].0, owner[to].0)))));
        }
        all
    }

    /// Progressive filling as the definition has it: look at everything, stop one resource or transfer, again.
    fn slowly(&self) -> Vec<f64> {
        let resources = self.resources();
        let mut rates: Vec<Option<f64>> = vec![None; self.transfers.len()];
        let weight = |flow: &usize| f64::from(self.transfers[*flow].2);
        while rates.iter().any(Option::is_none) {
            let growing = |flow: &&usize| rates[**flow].is_none();
            let level = |(capacity, users): &(f64, Vec<usize>)| {
                let used: f64 = users.iter().filter_map(|flow| rates[*flow]).sum();
                (capacity - used).max(0.0) / users.iter().filter(growing).map(weight).sum::<f64>()
            };
            let full = resources.iter().filter(|r| r.1.iter().any(|flow| rates[*flow].is_none()));
            let level = full.map(level).fold(f64::INFINITY, f64::min);
            let modest = (0..rates.len()).filter(|flow| rates[*flow].is_none());
            let modest = modest.map(|flow| (self.transfers[flow].3 / weight(&flow), flow));
            let modest = modest.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            if modest.0 <= level {
                rates[modest.1] = Some(self.transfers[modest.1].3);
                continue;
            }
            let full: Vec<usize> = resources
                .iter()
                .filter(|(capacity, users)| {
                    let used: f64 = users.iter().filter_map(|flow| rates[*flow]).sum();
                    let weights: f64 = users.iter().filter(growing).map(weight).sum();
                    weights > 0.0 && (capacity - used).max(0.0) / weights <= level
                })
                .flat_map(|resource| {
                    resource.1.iter().copied().filter(|flow| rates[*flow].is_none())
                })
                .collect();
            full.iter().for_each(|flow| rates[*flow] = Some(weight(flow) * level));
        }
        rates.into_iter().flatten().collect()
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Rates are max–min fair exactly if none is too much and every transfer has what it wants or a bottleneck: a
    /// full resource where nobody has more for his weight (Bertsekas and Gallager, §6.5.2).
    #[test]
    fn every_transfer_has_what_it_wants_or_a_bottleneck(case in case()) {
        let (network, transfers) = case.network();
        let mut allocator = Allocator::new();
        let rates = allocator.allocate(&network, &transfers);
        let resources = case.resources();
        let used = |users: &[usize]| users.iter().map(|flow| rates[*flow]).sum::<f64>();
        for (capacity, users) in &resources {
            prop_assert!(used(users) <= capacity * (1.0 + 1e-9));
        }
        let share = |flow: usize| rates[flow] / f64::from(case.transfers[flow].2);
        for (flow, transfer) in case.transfers.iter().enumerate() {
            prop_assert!(rates[flow] > 0.0 && rates[flow] <= transfer.3);
            let bottleneck = |(capacity, users): &&(f64, Vec<usize>)| {
                users.contains(&flow)
                    && close(used(users), *capacity)
                    && users.iter().all(|other| share(*other) <= share(flow) * (1.0 + 1e-6))
            };
            prop_assert!(
                rates[flow] == transfer.3 || resources.iter().any(|r| bottleneck(&r)),
                "transfer {flow} of {rates:?} has no bottleneck"
            );
        }
    }

    #[test]
    fn it_is_what_slow_filling_gives(case in case()) {
        let (network, transfers) = case.network();
        let mut allocator = Allocator::new();
        // What is left of a resource when nearly all of it is taken is known no better than all of it.
        let resources = case.resources();
        let largest = |flow: usize| {
            let used = resources.iter().filter(|(_, users)| users.contains(&flow));
            used.map(|(capacity, _)| *capacity).filter(|c| c.is_finite()).fold(0.0, f64::max)
        };
        let fast = allocator.allocate(&network, &transfers);
        for (flow, (fast, slow)) in fast.iter().zip(case.slowly()).enumerate() {
            let is_close = close(*fast, slow) || (fast - slow).abs() <= 1e-14 * largest(flow);
            prop_assert!(is_close, "{fast} and not {slow}");
        }
    }

    /// What one allocation leaves behind does not show in the next.
    #[test]
    fn steps_are_independent(first in case(), second in case()) {
        let mut used = Allocator::new();
        for case in [&first, &second, &first] {
            let (network, transfers) = case.network();
            let again = used.matb(&network, &transfers).to_vec();
            let anew = Allocator::new().matb(&network, &transfers).to_vec();
            prop_assert_eq!(again, anew);
        }
    }
}
