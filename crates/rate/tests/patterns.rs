//! The plain cases, by formula: two clusters of N nodes, a link of bandwidth B.

use gridmpi_rate::{Allocator, ClusterId, Network, NodeId, Rate, Transfer};
use std::num::NonZero;

const N: usize = 8;
const B: f64 = 160e6;

fn rate(bits: f64) -> Rate {
    Rate::from_bits_per_second(bits).unwrap()
}

struct Grid {
    network: Network,
    nodes: [Vec<NodeId>; 2],
    clusters: [ClusterId; 2],
}

/// Two clusters, and a link of `B` in each direction.
fn grid(interface: f64) -> Grid {
    let mut network = Network::new();
    let clusters = [network.add_cluster(), network.add_cluster()];
    let nodes = clusters
        .map(|cluster| (0..N).map(|_| network.add_node(cluster, rate(interface))).collect());
    network.add_link(rate(B), &[(clusters[0], clusters[1])]);
    network.add_link(rate(B), &[(clusters[1], clusters[0])]);
    Grid { network, nodes, clusters }
}

fn matb(grid: &Grid, transfers: &[Transfer]) -> Vec<f64> {
    Allocator::new().matb(&grid.network, transfers).to_vec()
}

fn assert_close(got: &[f64], wanted: f64) {
    assert!(got.iter().all(|got| (got - wanted).abs() < 1e-6 * wanted), "{got:?} and not {wanted}");
}

/// Every process sends to every other: B/N for each node.
#[test]
fn all_to_all() {
    let grid = grid(50e6);
    let [here, there] = &grid.nodes;
    let pairs = here.iter().flat_map(|&a| there.iter().map(move |&b| (a, b)));
    let both = pairs.flat_map(|(a, b)| [Transfer::new(a, b), Transfer::new(b, a)]);
    assert_close(&matb(&grid, &both.collect::<Vec<_>>()), B / N as f64);
}

/// Half of the nodes send across at a time, as in CG's transposition: B/(N/2) for each.
#[test]
fn half_of_the_nodes() {
    let grid = grid(50e6);
    let [here, there] = &grid.nodes;
    let half: Vec<_> =
        here.iter().zip(there).take(N / 2).map(|(&a, &b)| Transfer::new(a, b)).collect();
    let matb = matb(&grid, &half);
    assert_close(&matb[..N / 2], B / (N as f64 / 2.0));
    assert_eq!(matb[N / 2..], [0.0; 3 * N / 2]);
}

/// One pair has the link, or what its interfaces carry.
#[test]
fn a_lone_sender() {
    for (interface, wanted) in [(50e6, 50e6), (1e9, B), (f64::INFINITY, B)] {
        let grid = grid(interface);
        let lone = Transfer::new(grid.nodes[0][3], grid.nodes[1][5]);
        assert_eq!(Allocator::new().allocate(&grid.network, &[lone]), [wanted]);
    }
}

/// Many to one: the receiver's interface is the bottleneck, and the others get what is left of the link.
#[test]
fn incast() {
    let grid = grid(50e6);
    let [here, there] = &grid.nodes;
    let mut transfers: Vec<_> =
        here[..4].iter().map(|&from| Transfer::new(from, there[0])).collect();
    transfers.extend(here[4..].iter().zip(&there[4..]).map(|(&a, &b)| Transfer::new(a, b)));
    let rates = Allocator::new().allocate(&grid.network, &transfers).to_vec();
    assert_close(&rates[..4], 50e6 / 4.0);
    assert_close(&rates[4..], (B - 50e6) / 4.0);
}

/// What one cannot use the others get, and weights count.
#[test]
fn demand_and_weight() {
    let grid = grid(1e9);
    let [here, there] = &grid.nodes;
    let mut transfers: Vec<_> = (0..3).map(|i| Transfer::new(here[i], there[i])).collect();
    transfers[0].demand = rate(10e6);
    transfers[1].weight = NonZero::new(2).unwrap();
    let rates = Allocator::new().allocate(&grid.network, &transfers).to_vec();
    assert_eq!(rates, [10e6, 100e6, 50e6]);
}

/// A third cluster behind the same uplink, and a link that is found to carry less.
#[test]
fn a_shared_uplink() {
    let mut grid = grid(1e9);
    let [a, b] = grid.clusters;
    let c = grid.network.add_cluster();
    let far = grid.network.add_node(c, rate(1e9));
    let uplink = grid.network.add_link(rate(90e6), &[(a, b), (a, c)]);
    let [here, there] = &grid.nodes;
    let transfers = [
        Transfer::new(here[0], there[0]),
        Transfer::new(here[1], there[1]),
        Transfer::new(here[2], far),
        Transfer::new(there[2], here[3]),
    ];
    assert_eq!(matb(&grid, &transfers)[..3], [30e6; 3]);
    grid.network.set_bandwidth(uplink, rate(9e6));
    let rates = Allocator::new().allocate(&grid.network, &transfers).to_vec();
    assert_eq!(rates, [3e6, 3e6, 3e6, B]);
}

#[test]
fn nothing_bounds_what_has_no_bound() {
    let mut network = Network::new();
    let (a, b) = (network.add_cluster(), network.add_cluster());
    let from = network.add_node(a, Rate::UNBOUNDED);
    let to = network.add_node(b, Rate::UNBOUNDED);
    let modest = Transfer { demand: rate(5.0), ..Transfer::new(from, to) };
    let rates = Allocator::new().allocate(&network, &[modest, Transfer::new(from, to)]).to_vec();
    assert_eq!(rates, [5.0, f64::INFINITY]);
    assert_eq!(Allocator::new().matb(&network, &[]), [0.0, 0.0]);
}
