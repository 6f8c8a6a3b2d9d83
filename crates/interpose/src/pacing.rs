//! How fast this process may send to each other cluster.

use crate::error::tell;
use gridmpi_bootstrap::{JobTable, Pacing as Setting, ProcInfo, Registration};
use gridmpi_net::{Congestion, Online, Pacing};
use gridmpi_rate::{ClusterId, Network, NodeId, Rate};
use gridmpi_wire::ProcId;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) setting: Setting,
    pub(crate) congestion: Congestion,
    /// Of each node, bits per second.
    pub(crate) matb: Option<u64>,
}

impl Wish {
    /// What of it cannot be on this node is put right, and said.
    pub(crate) fn checked(mut self, table: &JobTable, ours: usize, tell: impl Fn(&str)) -> Self {
        let interface = table.network.interface(ours);
        if let (Some(matb), Some(interface)) = (self.matb, interface)
            && matb > interface
        {
            tell(&format!(
                "GRIDMPI_MATB: {matb} bit/s is more than the node's interface carries (`interface_bandwidth`); it is {interface} bit/s now"
            ));
            self.matb = Some(interface);
        }
        if let Congestion::Named(name) = &self.congestion
            && let Err(error) = gridmpi_net::try_congestion_control(name)
        {
            let problem = match error.kind() {
                ErrorKind::NotFound => "this node's kernel does not have it".to_owned(),
                ErrorKind::PermissionDenied => "this node's kernel does not allow it".to_owned(),
                _ => error.to_string(),
            };
            tell(&format!(
                "GRIDMPI_CONGESTION: no `{name}`: {problem}; connections go on with what the system has. Name one of \
                 `sysctl net.ipv4.tcp_allowed_congestion_control`; `gridmpi doctor` says how to have another"
            ));
            self.congestion = Congestion::Usual;
        }
        self
    }
}

/// What the job's table and the user's wish come to for process `me` of cluster `ours`.
pub(crate) fn of(wish: Wish, table: &JobTable, ours: usize, me: ProcId) -> Pacing {
    let Wish { setting, congestion, matb } = wish;
    let own = matb.and_then(|matb| node_rate(table, ours, me, matb as f64));
    let (rates, online) = match (own, setting) {
        (Some(rate), _) => {
            ((0..table.clusters.len()).map(|to| (to != ours).then_some(rate)).collect(), None)
        }
        (None, Setting::Off) => (vec![None; table.clusters.len()], None),
        (None, Setting::Static) => (static_rates(table, ours, me), None),
        (None, Setting::Auto) => (static_rates(table, ours, me), online(table)),
    };
    Pacing { clusters: clusters(table), rates, congestion, online }
}

/// The part of process `me` in what its node may send.
pub(crate) fn node_rate(table: &JobTable, ours: usize, me: ProcId, node: f64) -> Option<Rate> {
    Rate::from_bits_per_second(node / mates(table, ours, me).1 as f64)
}

/// Whether process `me` of cluster `ours` is the first on its node.
pub(crate) fn is_first_of_node(table: &JobTable, ours: usize, me: ProcId) -> bool {
    let (procs, place) = placed(table, ours, me);
    procs.get(place).is_some_and(|own| procs[..place].iter().all(|p| p.host != own.host))
}

/// How many nodes cluster `ours` has, and how many of its processes are on that of `me`.
pub(crate) fn mates(table: &JobTable, ours: usize, me: ProcId) -> (usize, usize) {
    let (procs, place) = placed(table, ours, me);
    let nodes: HashSet<_> = procs.iter().map(|p| p.host.as_str()).collect();
    let host = procs.get(place).map(|p| p.host.as_str());
    let here = procs.iter().filter(|p| Some(p.host.as_str()) == host).count();
    (nodes.len(), here.max(1))
}

/// The processes of cluster `ours`, and the place of `me` among them.
fn placed(table: &JobTable, ours: usize, me: ProcId) -> (&[ProcInfo], usize) {
    let before: usize = table.clusters[..ours].iter().map(|c| c.procs.len()).sum();
    (&table.clusters[ours].procs, (me.0 as usize).wrapping_sub(before))
}

/// The cluster of each process of the job.
fn clusters(table: &JobTable) -> Vec<u16> {
    let sizes = (0u16..).zip(&table.clusters).map(|(cluster, c)| (cluster, c.procs.len()));
    sizes.flat_map(|(cluster, count)| std::iter::repeat_n(cluster, count)).collect()
}

/// Towards each cluster an equal share: B / N for each of the N nodes of this cluster, as if all sent at once (the maximum allowable
/// transmission bandwidth of an all-to-all) but no more than its interface carries, and that of a node for each of its processes alike.
fn static_rates(table: &JobTable, ours: usize, me: ProcId) -> Vec<Option<Rate>> {
    let (nodes, here) = mates(table, ours, me);
    let interface = table.network.interface(ours);
    let interface = interface.map_or(f64::INFINITY, |bits| bits as f64);
    let rate = |to| {
        let link = if to == ours { None } else { table.network.carried(ours, to) };
        let node = link? as f64 / nodes.max(1) as f64;
        Rate::from_bits_per_second(node.min(interface) / here as f64)
    };
    (0..table.clusters.len()).map(rate).collect()
}

/// Nodes, interfaces and links as all processes of the job number them. Nothing where no link is known.
fn online(table: &JobTable) -> Option<Online> {
    let is_known = |link: &gridmpi_bootstrap::LinkInfo| link.bandwidth_bits_per_s.is_some();
    let has_uplink = table.network.uplinks.iter().any(Option::is_some);
    if !has_uplink && !table.network.links.iter().any(is_known) {
        return None;
    }
    let mut network = Network::new();
    let mut nodes = Vec::with_capacity(table.size());
    let mut brokers = Vec::new();
    let mut ids = Vec::new();
    for (index, cluster) in table.clusters.iter().enumerate() {
        let id = network.add_cluster();
        ids.push(id);
        brokers.push(ProcId(nodes.len() as u32));
        let interface = table.network.interface(index);
        let interface = interface.and_then(|bits| Rate::from_bits_per_second(bits as f64));
        add_nodes(&mut network, id, cluster, interface.unwrap_or(Rate::UNBOUNDED), &mut nodes);
    }
    add_links(&mut network, table, &ids);
    let names = table.clusters.iter().map(|cluster| cluster.cluster.to_string()).collect();
    Some(Online { network, nodes, brokers, names, warn: tell })
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

/// Each direction of each link and of each cluster's uplink whose bandwidth is known.
fn add_links(network: &mut Network, table: &JobTable, ids: &[ClusterId]) {
    for (from, &one) in ids.iter().enumerate() {
        for (to, &other) in ids.iter().enumerate().filter(|&(to, _)| to != from) {
            let bandwidth = table.network.bandwidth(from, to).map(|bits| bits as f64);
            if let Some(bandwidth) = bandwidth.and_then(Rate::from_bits_per_second) {
                network.add_link(bandwidth, &[(one, other)]);
            }
        }
    }
    for (cluster, &one) in ids.iter().enumerate() {
        let uplink = table.network.uplink(cluster).map(|bits| bits as f64);
        let Some(uplink) = uplink.and_then(Rate::from_bits_per_second) else { continue };
        let others = || ids.iter().copied().filter(|&other| other != one);
        network.add_link(uplink, &others().map(|other| (one, other)).collect::<Vec<_>>());
        network.add_link(uplink, &others().map(|other| (other, one)).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{ClusterName, DataModel, Endian, LinkInfo, NetworkInfo};

    fn cluster(name: &str, hosts: &[&str]) -> Registration {
        let proc = |host: &&str| ProcInfo { addresses: vec![], host: (*host).into(), pid: 1 };
        Registration {
            cluster: ClusterName::new(name).unwrap(),
            procs: hosts.iter().map(proc).collect(),
            data_model: DataModel { endian: Endian::Little, long: 8, pointer: 8, long_double: 16 },
            vendor: String::new(),
            tag_ub: 32767,
            credit: None,
            has_relays: false,
        }
    }

    fn wish(setting: Setting) -> Wish {
        Wish { setting, ..Wish::default() }
    }

    fn table() -> JobTable {
        let link = |between, bandwidth_bits_per_s| LinkInfo {
            between,
            bandwidth_bits_per_s,
            delay_us: None,
            via: None,
            dial: None,
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
                tls: None,
                reconnect_s: None,
                links: vec![link([0, 1], Some(160_000_000)), link([1, 2], None)],
                interfaces: vec![None, Some(50_000_000)],
                uplinks: vec![],
                pacing: None,
                matb: vec![],
                connections: None,
                new_relays: None,
            },
        }
    }

    #[test]
    fn the_link_is_shared_by_nodes_and_a_node_by_its_processes() {
        let rates = |me| of(wish(Setting::Static), &table(), 1, ProcId(me)).rates;
        let rate = |bits| Rate::from_bits_per_second(bits);
        assert_eq!(rates(1), [rate(20e6), None, None]);
        assert_eq!(rates(3), [rate(40e6), None, None]);
        assert_eq!(
            of(wish(Setting::Static), &table(), 1, ProcId(1)).clusters,
            [0, 1, 1, 1, 1, 1, 2]
        );
        assert_eq!(of(wish(Setting::Off), &table(), 1, ProcId(1)).rates, [None, None, None]);
        let own = Wish { matb: Some(10_000_000), ..Wish::default() };
        let own = of(own, &table(), 1, ProcId(1));
        assert!(own.online.is_none());
        assert_eq!(own.rates, [rate(5e6), None, rate(5e6)]);
    }

    #[test]
    fn the_congestion_control_is_the_usual_one_the_systems_or_what_was_named() {
        let named = |name: Option<&str>| {
            let congestion = name.map(Congestion::named).unwrap_or_default();
            let wish = Wish { congestion, ..Wish::default() };
            of(wish, &table(), 1, ProcId(1)).congestion
        };
        assert_eq!(named(None), Congestion::Usual);
        assert_eq!(named(Some("system")), Congestion::System);
        assert_eq!(named(Some("reno")), Congestion::Named("reno".into()));
    }

    #[test]
    fn what_cannot_be_is_put_right_and_said() {
        let said = std::cell::RefCell::new(Vec::new());
        let usual = || Congestion::Usual;
        let checked = |matb, congestion| {
            let wish = Wish { matb, congestion, ..Wish::default() };
            let wish = wish.checked(&table(), 1, |text| said.borrow_mut().push(text.to_owned()));
            (wish.matb, wish.congestion)
        };
        let reno = || Congestion::named("reno");
        assert_eq!(checked(Some(50_000_000), reno()), (Some(50_000_000), reno()));
        assert!(said.borrow().is_empty());
        assert_eq!(checked(Some(50_000_001), usual()), (Some(50_000_000), usual()));
        assert_eq!(checked(None, Congestion::named("system")), (None, Congestion::System));
        assert_eq!(checked(None, Congestion::named("nonsense")), (None, usual()));
        let said = said.into_inner();
        assert!(said[0].starts_with("GRIDMPI_MATB: 50000001 bit/s is more"), "{said:?}");
        assert!(said[1].contains("no `nonsense`: this node's kernel does not have it"), "{said:?}");
        assert_eq!(said.len(), 2);
        let first = |me| is_first_of_node(&table(), 1, ProcId(me));
        assert_eq!([1, 2, 3, 5].map(first), [true, false, true, true]);
    }

    #[test]
    fn every_process_numbers_nodes_alike() {
        let online = of(wish(Setting::Auto), &table(), 1, ProcId(3)).online.unwrap();
        let numbers: Vec<_> = online.nodes.iter().map(|node| node.index()).collect();
        assert_eq!(numbers, [0, 1, 1, 2, 3, 4, 5]);
        assert_eq!(online.brokers, [ProcId(0), ProcId(1), ProcId(6)]);
        let transfer = |from: usize, to: usize| {
            gridmpi_rate::Transfer::new(online.nodes[from], online.nodes[to])
        };
        let mut allocator = gridmpi_rate::Allocator::new();
        let rates = allocator.allocate(&online.network, &[transfer(0, 3), transfer(3, 0)]).to_vec();
        assert_eq!(rates, [50e6, 50e6]);
        let all = [transfer(0, 1), transfer(0, 3), transfer(0, 4), transfer(0, 5)];
        let rates = allocator.allocate(&online.network, &all);
        assert!((rates.iter().sum::<f64>() - 160e6).abs() < 1.0, "{rates:?}");
        let mut table = table();
        // What goes to one cluster leaves less for another where both share an uplink.
        table.network.uplinks = vec![None, Some(40_000_000), None];
        let online = of(wish(Setting::Auto), &table, 1, ProcId(3)).online.unwrap();
        let transfer = |from: usize, to: usize| {
            gridmpi_rate::Transfer::new(online.nodes[from], online.nodes[to])
        };
        let rates = allocator.allocate(&online.network, &[transfer(1, 0), transfer(3, 6)]);
        assert_eq!(rates, [20e6, 20e6]);
        let numbers = online.nodes.iter().map(|&node| online.network.cluster(node));
        let clusters: std::collections::BTreeSet<_> = numbers.collect();
        let all: Vec<_> = clusters.into_iter().collect();
        assert_eq!(online.network.rivals(all[0]), [all[2]]);
        let rates = of(wish(Setting::Static), &table, 1, ProcId(3)).rates;
        let rate = Rate::from_bits_per_second(10e6);
        assert_eq!(rates, [rate, None, rate]);
        table.network.links.clear();
        table.network.uplinks.clear();
        assert!(of(wish(Setting::Auto), &table, 1, ProcId(3)).online.is_none());
    }
}
