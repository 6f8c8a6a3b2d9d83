//! How fast this process may send to each other cluster.

use gridmpi_bootstrap::{JobTable, Pacing as Setting};
use gridmpi_net::Pacing;
use gridmpi_rate::Rate;
use gridmpi_wire::ProcId;
use std::collections::HashSet;

/// What the job's table and the setting come to for process `me` of cluster `ours`.
pub(crate) fn of(setting: Setting, table: &JobTable, ours: usize, me: ProcId) -> Pacing {
    match setting {
        Setting::Off => Pacing::default(),
        Setting::Static => {
            Pacing { clusters: clusters(table), rates: static_rates(table, ours, me) }
        }
    }
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
    let rate = |to| Rate::from_bits_per_second(bandwidth(table, ours, to)? as f64 * share);
    (0..table.clusters.len()).map(rate).collect()
}

/// The bandwidth of the link between two clusters, if the job file says it, bits per second.
fn bandwidth(table: &JobTable, ours: usize, to: usize) -> Option<u64> {
    table.links.iter().find(|link| link.joins(ours, to))?.bandwidth_bits_per_s
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

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{ClusterName, DataModel, Endian, LinkInfo, ProcInfo, Registration};

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

    #[test]
    fn the_link_is_shared_by_nodes_and_a_node_by_its_processes() {
        let link = |between, bandwidth_bits_per_s| LinkInfo {
            between,
            bandwidth_bits_per_s,
            delay_us: None,
        };
        let table = JobTable {
            job: [0; 16],
            clusters: vec![
                cluster("a", &["x"]),
                cluster("b", &["n1", "n1", "n2", "n3", "n4"]),
                cluster("c", &["y"]),
            ],
            links: vec![link([0, 1], Some(160_000_000)), link([1, 2], None)],
        };
        let rates = |me| of(Setting::Static, &table, 1, ProcId(me)).rates;
        let rate = |bits| Rate::from_bits_per_second(bits);
        assert_eq!(rates(1), [rate(20e6), None, None]);
        assert_eq!(rates(3), [rate(40e6), None, None]);
        assert_eq!(of(Setting::Static, &table, 1, ProcId(1)).clusters, [0, 1, 1, 1, 1, 1, 2]);
        assert_eq!(of(Setting::Off, &table, 1, ProcId(1)).rates, []);
    }
}
