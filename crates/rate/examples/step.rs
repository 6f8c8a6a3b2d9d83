//! How long one step of the allocation takes: 2,000 nodes in 8 clusters, so many transfers from each to any of another
//! cluster, one of them another one at each step.
//!
//!     cargo run --release -p gridmpi-rate --example step

use gridmpi_rate::{Allocator, ClusterId, Network, NodeId, Rate, Transfer};
use std::time::Instant;

const CLUSTERS: u64 = 8;
const NODES: u64 = 2000;
const STEPS: usize = 400;

/// Numbers without order (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn rate(bits: f64) -> Rate {
    Rate::from_bits_per_second(bits).unwrap_or(Rate::UNBOUNDED)
}

fn network() -> (Network, Vec<NodeId>) {
    let mut network = Network::new();
    let clusters: Vec<ClusterId> = (0..CLUSTERS).map(|_| network.add_cluster()).collect();
    let cluster = |node: u64| clusters[(node % CLUSTERS) as usize];
    let nodes = (0..NODES).map(|node| network.add_node(cluster(node), rate(10e9))).collect();
    for (i, &from) in clusters.iter().enumerate() {
        for (j, &to) in clusters.iter().enumerate().filter(|(j, _)| *j != i) {
            network.add_link(rate(1e9 * (1 + i + j) as f64), &[(from, to)]);
        }
    }
    (network, nodes)
}

fn another(numbers: &mut Numbers, nodes: &[NodeId], from: u64) -> Transfer {
    // Node numbers go round the clusters: a difference that they do not divide leads to another one.
    let on = CLUSTERS * numbers.below(NODES / CLUSTERS - 1) + 1 + numbers.below(CLUSTERS - 1);
    let to = (from + on) % NODES;
    let demand = if numbers.below(3) == 0 {
        rate(1e6 * (1 + numbers.below(100)) as f64)
    } else {
        Rate::UNBOUNDED
    };
    Transfer { demand, ..Transfer::new(nodes[from as usize], nodes[to as usize]) }
}

fn main() {
    let (network, nodes) = network();
    println!("transfers  median_us  p99_us");
    for each in [1, 2, 4] {
        let mut numbers = Numbers(each);
        let mut transfers: Vec<Transfer> =
            (0..each * NODES).map(|index| another(&mut numbers, &nodes, index % NODES)).collect();
        let mut allocator = Allocator::new();
        let mut took: Vec<f64> = (0..STEPS)
            .map(|_| {
                let changed = numbers.below(each * NODES);
                transfers[changed as usize] = another(&mut numbers, &nodes, changed % NODES);
                let start = Instant::now();
                std::hint::black_box(allocator.allocate(&network, &transfers));
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        took.sort_by(f64::total_cmp);
        println!("{:9}  {:9.0}  {:6.0}", transfers.len(), took[STEPS / 2], took[STEPS * 99 / 100]);
    }
}
