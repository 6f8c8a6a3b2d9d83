//! Names, addresses and ways of a lab's nodes: everything that follows from the [`Spec`].
//!
//! `eth0` (inside the cluster): node n of cluster c is `10.c.0.n`, the head `10.c.0.254`.
//! `eth1` (wide area): `10.100.c.n`, all on one link-layer network; which link a frame takes
//! is decided by the bridges' fixed tables, by the fewest links. c and n count from 1.

use crate::spec::Spec;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// What the lab's own host is called.
pub const HEAD: &str = "head";
/// The head's number in every cluster's address range.
const HEAD_NUMBER: u8 = 254;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Host name: the cluster's name and the number, with `-` between where the name ends in a
    /// digit, so that no two nodes share a name.
    pub name: String,
    /// Index of its cluster.
    pub cluster: usize,
    /// Number in the cluster, from 1.
    pub number: u8,
}

/// A hardware address.
pub type Mac = String;

fn mac(network: u8, cluster: usize, number: u8) -> Mac {
    format!("02:67:{network:02x}:{:02x}:00:{number:02x}", cluster + 1)
}

impl Node {
    /// Address inside the cluster.
    #[must_use]
    pub fn lan(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.cluster as u8 + 1, 0, self.number)
    }

    /// Address towards the wide area.
    #[must_use]
    pub fn wan(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 100, self.cluster as u8 + 1, self.number)
    }

    /// Hardware address of `eth0`.
    #[must_use]
    pub fn lan_mac(&self) -> Mac {
        mac(0, self.cluster, self.number)
    }

    /// Hardware address of `eth1`.
    #[must_use]
    pub fn wan_mac(&self) -> Mac {
        mac(1, self.cluster, self.number)
    }

    /// The end of its `eth0` at the switch.
    #[must_use]
    pub fn lan_port(&self) -> String {
        format!("l{}n{}", self.cluster + 1, self.number)
    }

    /// The end of its `eth1` at the switch.
    #[must_use]
    pub fn wan_port(&self) -> String {
        format!("w{}n{}", self.cluster + 1, self.number)
    }
}

/// The head's address in a cluster.
#[must_use]
pub fn head_address(cluster: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, cluster as u8 + 1, 0, HEAD_NUMBER)
}

/// The head's hardware address in a cluster.
#[must_use]
pub fn head_mac(cluster: usize) -> Mac {
    mac(0, cluster, HEAD_NUMBER)
}

/// The bridge inside a cluster.
#[must_use]
pub fn lan_bridge(cluster: usize) -> String {
    format!("lan{}", cluster + 1)
}

/// The bridge of a cluster's wide-area interfaces.
#[must_use]
pub fn wan_bridge(cluster: usize) -> String {
    format!("wan{}", cluster + 1)
}

/// The bridge port of a link at its first or second cluster.
#[must_use]
pub fn link_port(link: usize, second: bool) -> String {
    format!("k{}{}", link + 1, if second { 'b' } else { 'a' })
}

/// The emulator's end of a link at its first or second cluster.
#[must_use]
pub fn emulator_port(link: usize, second: bool) -> String {
    format!("e{}{}", link + 1, if second { 'b' } else { 'a' })
}

/// All nodes, cluster by cluster.
#[must_use]
pub fn nodes(spec: &Spec) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (cluster, described) in spec.clusters.iter().enumerate() {
        for number in 1..=described.nodes as u8 {
            nodes.push(Node { name: node_name(&described.name, number), cluster, number });
        }
    }
    nodes
}

fn node_name(cluster: &str, number: u8) -> String {
    let dash = if cluster.ends_with(|c: char| c.is_ascii_digit()) { "-" } else { "" };
    format!("{cluster}{dash}{number}")
}

/// For each cluster the link that a frame leaves it by towards cluster `to`; `None` for `to`
/// itself and where no way leads there.
#[must_use]
pub fn ways_to(spec: &Spec, to: usize) -> Vec<Option<usize>> {
    let mut ways = vec![None; spec.clusters.len()];
    let mut seen = vec![false; spec.clusters.len()];
    seen[to] = true;
    let mut reached = VecDeque::from([to]);
    while let Some(cluster) = reached.pop_front() {
        for (index, link) in spec.links.iter().enumerate() {
            let neighbour = match link.between {
                (first, second) if first == cluster => second,
                (first, second) if second == cluster => first,
                _ => continue,
            };
            if !seen[neighbour] {
                seen[neighbour] = true;
                ways[neighbour] = Some(index);
                reached.push_back(neighbour);
            }
        }
    }
    ways
}

/// What a link is called: `a-b`.
#[must_use]
pub fn link_name(spec: &Spec, link: usize) -> String {
    let (first, second) = spec.links[link].between;
    format!("{}-{}", spec.clusters[first].name, spec.clusters[second].name)
}

/// The node called `host`: by name or by either address.
#[must_use]
pub fn find<'a>(nodes: &'a [Node], host: &str) -> Option<&'a Node> {
    let address: Option<Ipv4Addr> = host.parse().ok();
    nodes.iter().find(|node| match address {
        Some(address) => node.lan() == address || node.wan() == address,
        None => node.name == host,
    })
}

/// Whether `host` means the head: by name or by any of its addresses.
#[must_use]
pub fn is_head(spec: &Spec, host: &str) -> bool {
    let address: Option<Ipv4Addr> = host.parse().ok();
    let is_address = |address| (0..spec.clusters.len()).any(|c| head_address(c) == address);
    host == HEAD || host == "localhost" || address.is_some_and(is_address)
}

/// The lab's `/etc/hosts`: every node by its address inside the cluster.
#[must_use]
pub fn hosts_file(spec: &Spec) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for cluster in 0..spec.clusters.len() {
        text += &format!("{} {HEAD}\n", head_address(cluster));
    }
    for node in nodes(spec) {
        text += &format!("{} {}\n{} {}-wan\n", node.lan(), node.name, node.wan(), node.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn spec(text: &str) -> Spec {
        let cluster = |name| format!("[[cluster]]\nname = \"{name}\"\nnodes = 12\n");
        let clusters: String = ["a", "a1", "c", "d"].map(cluster).concat();
        Spec::parse(&format!("{clusters}{text}"), "t", "t").unwrap()
    }

    #[test]
    fn no_two_nodes_share_anything() {
        let nodes = nodes(&spec(""));
        assert_eq!(nodes.len(), 48);
        assert_eq!((nodes[0].name.as_str(), nodes[12].name.as_str()), ("a1", "a1-1"));
        let all = |f: fn(&Node) -> String| nodes.iter().map(f).collect::<HashSet<_>>().len();
        assert_eq!(all(|n| n.name.clone()), 48);
        assert_eq!(all(|n| n.lan().to_string()), 48);
        assert_eq!(all(|n| n.wan().to_string()), 48);
        assert_eq!(all(Node::lan_mac), 48);
        assert_eq!(all(Node::wan_mac), 48);
        assert_eq!(all(Node::wan_port), 48);
    }

    #[test]
    fn nodes_are_found_by_name_and_address() {
        let spec = spec("");
        let nodes = nodes(&spec);
        assert_eq!(find(&nodes, "10.1.0.3").unwrap().name, "a3");
        assert_eq!(find(&nodes, "10.100.2.3").unwrap().name, "a1-3");
        assert_eq!(find(&nodes, "a1-3").unwrap().wan().to_string(), "10.100.2.3");
        assert!(find(&nodes, "nowhere").is_none());
        assert!(is_head(&spec, "head") && is_head(&spec, "10.4.0.254"));
        assert!(!is_head(&spec, "10.5.0.254"));
        assert!(hosts_file(&spec).contains("\n10.2.0.3 a1-3\n"));
    }

    #[test]
    fn frames_take_the_fewest_links() {
        let link = |a, b| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\n");
        let chain = spec(&[link("a", "a1"), link("a1", "c"), link("a", "c")].concat());
        assert_eq!(ways_to(&chain, 2), [Some(2), Some(1), None, None]);
        assert_eq!(ways_to(&chain, 3), [None; 4]);
        let line = spec(&[link("a", "a1"), link("a1", "c"), link("c", "d")].concat());
        assert_eq!(ways_to(&line, 3), [Some(0), Some(1), Some(2), None]);
        assert_eq!(link_name(&line, 1), "a1-c");
    }
}
