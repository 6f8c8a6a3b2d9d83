//! `--display map`: where the ranks are.

use gridmpi_bootstrap::{JobTable, Registration};
use std::fmt::Write;

/// Hosts and processes by cluster, with ranks of `MPI_COMM_WORLD`.
pub(crate) fn map(table: &JobTable) -> String {
    let mut text = format!("{} ranks in {} clusters\n", table.size(), table.clusters.len());
    let mut base = 0;
    for cluster in &table.clusters {
        let end = base + cluster.procs.len();
        let name = &cluster.cluster;
        let vendor = short(&cluster.vendor);
        let _ = writeln!(text, "  cluster {name}: {}, {vendor}", ranks(base, end));
        for (from, to) in runs(cluster) {
            let pids: Vec<_> = cluster.procs[from..to].iter().map(|p| p.pid.to_string()).collect();
            let (host, at) = (&cluster.procs[from].host, cluster.procs[from].addresses.first());
            let at = at.map_or_else(String::new, |address| format!(" ({})", address.ip()));
            let ranks = ranks(base + from, base + to);
            let _ = writeln!(text, "    {host}{at}: {ranks}, pid {}", pids.join(" "));
        }
        base = end;
    }
    text
}

fn ranks(from: usize, to: usize) -> String {
    if to - from == 1 { format!("rank {from}") } else { format!("ranks {from}-{}", to - 1) }
}

/// Product and version; vendors go on with how they were built.
fn short(vendor: &str) -> String {
    let first = vendor.split([',', '\n']).next().unwrap_or_default();
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Neighbouring ranks on one host.
fn runs(cluster: &Registration) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (rank, proc) in cluster.procs.iter().enumerate() {
        match runs.last_mut() {
            Some((from, to)) if cluster.procs[*from].host == proc.host => *to = rank + 1,
            _ => runs.push((rank, rank + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{ClusterName, DataModel, NetworkInfo, ProcInfo};

    fn cluster(name: &str, hosts: &[&str]) -> Registration {
        let proc = |(index, host): (usize, &&str)| ProcInfo {
            addresses: vec!["192.0.2.1:5".parse().unwrap()],
            host: (*host).to_owned(),
            pid: 100 + index as u32,
        };
        Registration {
            cluster: ClusterName::new(name).unwrap(),
            procs: hosts.iter().enumerate().map(proc).collect(),
            data_model: DataModel::native(16),
            vendor: "Some MPI\tv1, built by somebody".to_owned(),
            tag_ub: i32::MAX,
            credit: None,
            has_relays: false,
        }
    }

    #[test]
    fn ranks_count_through_the_clusters() {
        let clusters = vec![cluster("a", &["x", "x", "y"]), cluster("b", &["z"])];
        let text = map(&JobTable { job: [0; 16], clusters, network: NetworkInfo::default() });
        let expected = "\
4 ranks in 2 clusters
  cluster a: ranks 0-2, Some MPI v1
    x (192.0.2.1): ranks 0-1, pid 100 101
    y (192.0.2.1): rank 2, pid 102
  cluster b: rank 3, Some MPI v1
    z (192.0.2.1): rank 3, pid 100
";
        assert_eq!(text, expected);
    }
}
