//! How fast this process may send to each other cluster.

use gridmpi_bootstrap::{JobTable, Pacing as Setting, Registration};
use gridmpi_net::{Online, Pacing};
use gridmpi_rate::{ClusterId, Network, NodeId, Rate};
use gridmpi_wire::ProcId;
use std::collections::{HashMap, HashSet};
use std::io::Write as _;

/// Of a link's bandwidth what brokers grant. A queue that has come about where senders came together drains by the rest.
const GRANTED: f64 = 0.98;

/// What the job's table and the setting come to for process `me` of cluster `ours`.
pub(crate) fn of(
    setting: Setting,
    congestion: Option<String>,
    table: &JobTable,
    ours: usize,
    me: ProcId,
) -> Pacing {
    let online = match setting {
        Setting::Off => return Pacing::default(),
        Setting::Static => None,
        Setting::Auto => online(table),
    };
    let (clusters, rates) = (clusters(table), static_rates(table, ours, me));
    Pacing { clusters, rates, congestion, online }
}

/// The cluster of each process of the job.
fn clusters(table: &JobTable) -> Vec<u16> {
    let sizes = (0u16..).zip(&table.clusters).map(|(cluster, c)| (cluster, c.procs.len()));
    sizes.flat_map(|(cluster, count)| std::iter::repeat_n(cluster, count)).collect()
}

/// Towards each cluster an equal share: B / N for each of the N nodes of this cluster, as if all sent at once (the maximum allowable
/// transmission bandwidth of an all-to-all), and that of a node for each of its processes alike.
fn static_rates(table: &JobTable, ours: usize, me: ProcId) -> Vec<Option<Rate>> {
    let share = share(table, ours, me);
    let rate = |to| Rate::from_bits_per_second(table.network.bandwidth(ours, to)? as f64 * share);
    (0..table.clusters.len()).map(rate).collect()
}

/// This process's part of what its cluster sends.
fn share(table: &JobTable, ours: usize, me: ProcId) -> f64 {
    let before: usize = table.clusters[..ours].iter().map(|c| c.procs.len()).sum();
    let procs = &table.clusters[ours].procs;
    let nodes: HashSet<_> = procs.iter().map(|p| p.host.as_str()).collect();
    let host = procs.get((me.0 as usize).wrapping_sub(before)).map(|p| p.host.as_str());
    let here = procs.iter().filter(|p| Some(p.host.as_str()) == host).count();
    1.0 / (nodes.len() * here).max(1) as f64
}

/// Nodes, interfaces and links as all processes of the job number them. Nothing where no link is known.
fn online(table: &JobTable) -> Option<Online> {
    let is_known = |link: &gridmpi_bootstrap::LinkInfo| link.bandwidth_bits_per_s.is_some();
    table.network.links.iter().find(|link| is_known(link))?;
    let mut network = Network::new();
    let mut nodes = Vec::with_capacity(table.size());
    let mut brokers = Vec::new();
    let mut ids = Vec::new();
    for (index, cluster) in table.clusters.iter().enumerate() {
        let id = network.add_cluster();
        ids.push(id);
        brokers.push(ProcId(nodes.len() as u32));
        let interface = table.network.interfaces.get(index).copied().flatten();
        let interface = interface.and_then(|bits| Rate::from_bits_per_second(bits as f64));
        add_nodes(&mut network, id, cluster, interface.unwrap_or(Rate::UNBOUNDED), &mut nodes);
    }
    add_links(&mut network, table, &ids);
    Some(Online { network, nodes, brokers, warn })
}

/// For the user's eyes.
fn warn(text: &str) {
    let line = format!("gridmpi: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The nodes of a cluster, by the first process on each.
fn add_nodes(
    network: &mut Network,
    cluster: ClusterId,
    registration: &Registration,
    interface: Rate,
    nodes: &mut Vec<NodeId>,
) {
    let mut known = HashMap::new();
    for proc in &registration.procs {
        let node = known.entry(proc.host.as_str());
        nodes.push(*node.or_insert_with(|| network.add_node(cluster, interface)));
    }
}

/// Each direction of each link whose bandwidth is known.
fn add_links(network: &mut Network, table: &JobTable, ids: &[ClusterId]) {
    for (from, &one) in ids.iter().enumerate() {
        for (to, &other) in ids.iter().enumerate().filter(|&(to, _)| to != from) {
            let bandwidth = table.network.bandwidth(from, to).map(|bits| bits as f64 * GRANTED);
            if let Some(bandwidth) = bandwidth.and_then(Rate::from_bits_per_second) {
                network.add_link(bandwidth, &[(one, other)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{ClusterName, DataModel, Endian, LinkInfo, NetworkInfo, ProcInfo};

    fn cluster(name: &str, hosts: &[&str]) -> Registration {
        let proc = |host: &&str| ProcInfo { addresses: vec![], host: (*host).into(), pid: 1 };
        Registration {
            cluster: ClusterName::new(name).unwrap(),
            procs: hosts.iter().map(proc).collect(),
            data_model: DataModel { endian: Endian::Little, long: 8, pointer: 8, long_double: 16 },
            vendor: String::new(),
            tag_ub: 32767,
            credit: None,
        }
    }

    fn table() -> JobTable {
        let link = |between, bandwidth_bits_per_s| LinkInfo {
            between,
            bandwidth_bits_per_s,
            delay_us: None,
        };
        JobTable {
            job: [0; 16],
            clusters: vec![
                cluster("a", &["x"]),
                cluster("b", &["n1", "n1", "n2", "n3", "n4"]),
                // Names alone do not tell nodes of different clusters apart.
                cluster("c", &["n1"]),
            ],
            network: NetworkInfo {
                links: vec![link([0, 1], Some(160_000_000)), link([1, 2], None)],
                interfaces: vec![None, Some(50_000_000)],
                pacing: None,
            },
        }
    }

    #[test]
    fn the_link_is_shared_by_nodes_and_a_node_by_its_processes() {
        let rates = |me| of(Setting::Static, None, &table(), 1, ProcId(me)).rates;
        let rate = |bits| Rate::from_bits_per_second(bits);
        assert_eq!(rates(1), [rate(20e6), None, None]);
        assert_eq!(rates(3), [rate(40e6), None, None]);
        assert_eq!(
            of(Setting::Static, None, &table(), 1, ProcId(1)).clusters,
            [0, 1, 1, 1, 1, 1, 2]
        );
        assert_eq!(of(Setting::Off, None, &table(), 1, ProcId(1)).rates, []);
    }

    #[test]
    fn every_process_numbers_nodes_alike() {
        let online = of(Setting::Auto, None, &table(), 1, ProcId(3)).online.unwrap();
        let numbers: Vec<_> = online.nodes.iter().map(|node| node.index()).collect();
        assert_eq!(numbers, [0, 1, 1, 2, 3, 4, 5]);
        assert_eq!(online.brokers, [ProcId(0), ProcId(1), ProcId(6)]);
        let transfer = |from: usize, to: usize| {
            gridmpi_rate::Transfer::new(online.nodes[from], online.nodes[to])
        };
        let mut allocator = gridmpi_rate::Allocator::new();
        let rates = allocator.allocate(&online.network, &[transfer(0, 3), transfer(3, 0)]).to_vec();
        assert_eq!(rates, [50e6, 50e6]);
        let rates = allocator.allocate(
            &online.network,
            &[transfer(0, 3), transfer(0, 4), transfer(0, 5), transfer(0, 5)],
        );
        assert!((rates.iter().sum::<f64>() - 160e6 * GRANTED).abs() < 1.0, "{rates:?}");
        let mut table = table();
        table.network.links.clear();
        assert!(of(Setting::Auto, None, &table, 1, ProcId(3)).online.is_none());
    }
}
