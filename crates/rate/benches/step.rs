//! How long a step of a broker takes in a grid of 2,000 nodes in 8 clusters: `cargo bench -p gridmpi-rate`. Ends with 1 if one takes longer than
//! [`MOST`]; the median of many, since the machine may do something else meanwhile. Where each node sends to four, which is four times as many
//! transfers, it is shown only: then a broker steps the more seldom.

use gridmpi_rate::{Broker, ClusterId, Network, NodeId, Notice, Parts, Rate};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const CLUSTERS: usize = 8;
const NODES: usize = 250;
const STEPS: u32 = 200;
const MOST: Duration = Duration::from_millis(1);

/// Clusters with a link between each two, or with an uplink each.
struct Grid {
    network: Network,
    ids: Vec<ClusterId>,
    nodes: Vec<Vec<NodeId>>,
}

fn mbit(value: f64) -> Rate {
    Rate::from_bits_per_second(value * 1e6).expect("a rate")
}

fn grid(has_uplinks: bool) -> Grid {
    let mut network = Network::new();
    let ids: Vec<_> = (0..CLUSTERS).map(|_| network.add_cluster()).collect();
    let add = |&id: &ClusterId| (0..NODES).map(|_| network.add_node(id, mbit(1000.0))).collect();
    let nodes = ids.iter().map(add).collect();
    for &from in &ids {
        let to: Vec<_> = ids.iter().filter(|&&to| to != from).map(|&to| (from, to)).collect();
        if has_uplinks {
            network.add_link(mbit(20_000.0), &to);
        } else {
            for &pair in &to {
                network.add_link(mbit(10_000.0), &[pair]);
            }
        }
    }
    Grid { network, ids, nodes }
}

/// A broker that knows of transfers of all nodes, each to `fan` nodes of as many other clusters.
fn broker(grid: &Grid, fan: usize, now: Instant) -> Broker {
    let mut broker = Broker::new(grid.ids[0], grid.network.clone(), Parts::GRANTED);
    for (cluster, nodes) in grid.nodes.iter().enumerate() {
        for (place, &from) in nodes.iter().enumerate() {
            for step in 1..=fan {
                let other = (cluster + 1 + (place + step) % (CLUSTERS - 1)) % CLUSTERS;
                let to = grid.nodes[other][(7 * place + step) % NODES];
                if cluster == 0 {
                    broker.begin(place as u32, from, to, now);
                } else {
                    broker.heard(grid.ids[cluster], Notice::Transfer { from, to, is_active: true });
                }
            }
        }
    }
    broker
}

/// The median time of steps, each after something has changed: a transfer of another cluster, or what one of ours can use.
fn median(grid: &Grid, broker: &mut Broker, limited: usize, start: Instant) -> Duration {
    for process in 0..limited {
        let to = grid.ids[1 + (process + 1) % (CLUSTERS - 1)];
        broker.demand(process as u32, to, mbit(5.0 + process as f64 / 10.0));
    }
    let mut times: Vec<Duration> = Vec::new();
    for step in 0..STEPS {
        let now = start + Duration::from_millis(u64::from(10 * (step + 1)));
        let (from, to) = (grid.nodes[1][17], grid.nodes[2][17]);
        broker.heard(grid.ids[1], Notice::Transfer { from, to, is_active: step % 2 == 0 });
        let began = Instant::now();
        std::hint::black_box(broker.step(now));
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let mut is_met = true;
    for (name, has_uplinks, fan, limited) in [
        ("a link between each two, each node sends to one", false, 1, 0),
        ("the same, 60 processes use less than they get", false, 1, 60),
        ("the same, all 250 do", false, 1, 250),
        ("the same, each node sends to four", false, 4, 0),
        ("an uplink each, each node sends to one", true, 1, 0),
        ("the same, 60 processes use less than they get", true, 1, 60),
        ("the same, all 250 do", true, 1, 250),
        ("the same, each node sends to four", true, 4, 0),
    ] {
        let (grid, now) = (grid(has_uplinks), Instant::now());
        let mut broker = broker(&grid, fan, now);
        broker.step(now + Duration::from_millis(5));
        let time = median(&grid, &mut broker, limited, now + Duration::from_millis(5));
        is_met &= time <= MOST || fan > 1;
        println!("{:6.0} µs  {name}", time.as_secs_f64() * 1e6);
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
