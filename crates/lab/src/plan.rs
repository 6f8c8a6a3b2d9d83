//! Names, addresses and ways of a lab's machines: everything that follows from the [`Spec`].
//!
//! `eth0` (inside the cluster): node n of cluster c is `10.c.0.n`, the head `10.c.0.254`.
//! `eth1` (wide area): `10.100.c.n`, all on one link-layer network; which link a frame takes
//! is decided by the bridges' fixed tables, by the fewest links. c and n count from 1.
//!
//! A private cluster's nodes have `eth0` only, in a network that other clusters may have, too; so
//! the lab's head is not in it, and it has a head of its own (`c-head`, the 254th address). Its
//! gateways (`c-gw1`, ...) are the 257th address and those that follow, and `10.100.c.g` outside.
//! Public hosts count as further clusters, and have `eth1` only.

use crate::private::{self, Network, WIDE_AREA};
use crate::spec::Spec;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// What the lab's own host is called.
pub const HEAD: &str = "head";
/// The head's number in every cluster's address range.
const HEAD_NUMBER: u8 = 254;
/// Gateways' addresses inside begin behind this.
const BEFORE_GATEWAYS: u32 = 256;

/// What a machine is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ranks run on it.
    Node,
    /// It joins a private cluster with the wide area.
    Gateway,
    /// Launchers of a private cluster run on it.
    Head,
    /// It is on the wide area, in no cluster.
    Public,
}

/// One machine of the lab, but for [`HEAD`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Host name: the cluster's name and the number, with `-` between where the name ends in a
    /// digit, so that no two nodes share a name.
    pub name: String,
    /// Its site: index of its cluster, or number of clusters and index of the public host.
    pub cluster: usize,
    /// What it is there for.
    pub role: Role,
    /// Number among those of its cluster and role, from 1.
    pub number: u8,
    lan: Option<Interface>,
    wan: Option<Interface>,
}

/// One of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of it that all addresses on the same network share.
    pub prefix: u8,
    /// Hardware address.
    pub mac: Mac,
    /// The cable's end at the switch.
    pub port: String,
}

/// A hardware address.
pub type Mac = String;

fn mac(network: u8, cluster: usize, kind: u8, number: u8) -> Mac {
    format!("02:67:{network:02x}:{:02x}:{kind:02x}:{number:02x}", cluster + 1)
}

impl Node {
    fn new(name: String, cluster: usize, role: Role, number: u8) -> Self {
        Self { name, cluster, role, number, lan: None, wan: None }
    }

    fn letter(&self) -> (u8, char) {
        match self.role {
            Role::Node | Role::Public => (0, 'n'),
            Role::Gateway => (1, 'g'),
            Role::Head => (2, 'h'),
        }
    }

    /// Gives it an `eth0`.
    fn inside(mut self, network: Network, address: u32) -> Self {
        let ((kind, letter), site, number) = (self.letter(), self.cluster, self.number);
        self.lan = Some(Interface {
            address: network.address(address),
            prefix: network.prefix,
            mac: mac(0, site, kind, number),
            port: format!("l{}{letter}{number}", site + 1),
        });
        self
    }

    /// Gives it an `eth1`.
    fn outside(mut self) -> Self {
        let ((kind, letter), site, number) = (self.letter(), self.cluster, self.number);
        self.wan = Some(Interface {
            address: WIDE_AREA.address((site as u32 + 1) * 256 + u32::from(number)),
            prefix: WIDE_AREA.prefix,
            mac: mac(1, site, kind, number),
            port: format!("w{}{letter}{number}", site + 1),
        });
        self
    }

    /// `eth0`, inside the cluster.
    #[must_use]
    pub fn lan_interface(&self) -> Option<&Interface> {
        self.lan.as_ref()
    }

    /// `eth1`, towards the wide area.
    #[must_use]
    pub fn wan_interface(&self) -> Option<&Interface> {
        self.wan.as_ref()
    }

    /// Address inside the cluster; public hosts have none.
    #[must_use]
    pub fn lan(&self) -> Option<Ipv4Addr> {
        self.lan.as_ref().map(|interface| interface.address)
    }

    /// Address towards the wide area; private nodes have none.
    #[must_use]
    pub fn wan(&self) -> Option<Ipv4Addr> {
        self.wan.as_ref().map(|interface| interface.address)
    }

    /// The address towards the wide area that it has instead when it was renumbered.
    #[must_use]
    pub fn other_wan(&self) -> Option<Ipv4Addr> {
        // Sites are 50 at most, so that this half of the range is nobody's.
        let other = (self.cluster as u32 + 129) * 256 + u32::from(self.number);
        self.wan.as_ref().map(|_| WIDE_AREA.address(other))
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        [self.lan(), self.wan(), self.other_wan()].contains(&Some(address))
    }
}

/// The head's address in a cluster that is not private.
#[must_use]
pub fn head_address(cluster: usize) -> Ipv4Addr {
    private::default_network(cluster).address(u32::from(HEAD_NUMBER))
}

/// The head's hardware address in a cluster.
#[must_use]
pub fn head_mac(cluster: usize) -> Mac {
    mac(0, cluster, 0, HEAD_NUMBER)
}

/// The clusters that the head is in: all that are not private.
pub fn head_clusters(spec: &Spec) -> impl Iterator<Item = usize> {
    (0..spec.clusters.len()).filter(|cluster| spec.private(*cluster).is_none())
}

/// The bridge inside a cluster.
#[must_use]
pub fn lan_bridge(cluster: usize) -> String {
    format!("lan{}", cluster + 1)
}

/// The bridge of a site's wide-area interfaces.
#[must_use]
pub fn wan_bridge(cluster: usize) -> String {
    format!("wan{}", cluster + 1)
}

/// The bridge port of a link at its first or second site.
#[must_use]
pub fn link_port(link: usize, second: bool) -> String {
    format!("k{}{}", link + 1, if second { 'b' } else { 'a' })
}

/// The emulator's end of a link at its first or second site.
#[must_use]
pub fn emulator_port(link: usize, second: bool) -> String {
    format!("e{}{}", link + 1, if second { 'b' } else { 'a' })
}

/// All machines but the head: cluster by cluster its nodes, gateways and own head; then the public
/// hosts.
#[must_use]
pub fn nodes(spec: &Spec) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (index, cluster) in spec.clusters.iter().enumerate() {
        let private = cluster.private.as_ref();
        let network = private.map_or(private::default_network(index), |private| private.network);
        for number in 1..=cluster.nodes as u8 {
            let name = node_name(&cluster.name, number);
            let node = Node::new(name, index, Role::Node, number);
            let node = node.inside(network, u32::from(number));
            nodes.push(if private.is_none() { node.outside() } else { node });
        }
        let Some(private) = private else { continue };
        for number in 1..=private.gateways {
            let name = format!("{}-gw{number}", cluster.name);
            let gateway = Node::new(name, index, Role::Gateway, number);
            let address = BEFORE_GATEWAYS + u32::from(number);
            nodes.push(gateway.inside(network, address).outside());
        }
        let head = Node::new(cluster_head(&cluster.name), index, Role::Head, 1);
        nodes.push(head.inside(network, u32::from(HEAD_NUMBER)));
    }
    for (index, host) in spec.hosts.iter().enumerate() {
        let site = spec.clusters.len() + index;
        nodes.push(Node::new(host.name.clone(), site, Role::Public, 1).outside());
    }
    nodes
}

fn node_name(cluster: &str, number: u8) -> String {
    let dash = if cluster.ends_with(|c: char| c.is_ascii_digit()) { "-" } else { "" };
    format!("{cluster}{dash}{number}")
}

/// What the head of a private cluster is called.
#[must_use]
pub fn cluster_head(cluster: &str) -> String {
    format!("{cluster}-head")
}

/// The gateway that a private cluster's nodes dial out through, if they can.
#[must_use]
pub fn way_out<'a>(spec: &Spec, nodes: &'a [Node], cluster: usize) -> Option<&'a Node> {
    spec.private(cluster).filter(|private| private.nat)?;
    nodes.iter().find(|node| node.cluster == cluster && node.role == Role::Gateway)
}

/// For each site the link that a frame leaves it by towards site `to`; `None` for `to`
/// itself and where no way leads there.
#[must_use]
pub fn ways_to(spec: &Spec, to: usize) -> Vec<Option<usize>> {
    let mut ways = vec![None; spec.sites()];
    let mut seen = vec![false; spec.sites()];
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
    let name = |(first, second)| format!("{}-{}", spec.site_name(first), spec.site_name(second));
    spec.links.get(link).map_or_else(String::new, |link| name(link.between))
}

/// A machine that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The lab's head.
    Head,
    /// The machine of this index among [`nodes`].
    Node(usize),
}

/// The machine called `host`, by name or by address. `here` is the cluster that is asking: in a
/// private one its own addresses come first.
///
/// # Errors
/// When there is none, or when several clusters have this address: says so.
pub fn find(spec: &Spec, nodes: &[Node], host: &str, here: Option<usize>) -> Result<Found, String> {
    if host == HEAD || host == "localhost" {
        // Launchers run on heads, and mean their own.
        let is_own = |node: &Node| node.role == Role::Head && Some(node.cluster) == here;
        let own = nodes.iter().position(is_own).filter(|_| host != HEAD);
        return Ok(own.map_or(Found::Head, Found::Node));
    }
    let Ok(address) = host.parse::<Ipv4Addr>() else {
        let named = nodes.iter().position(|node| node.name == host);
        return named.map(Found::Node).ok_or_else(|| unknown(nodes, host));
    };
    let having: Vec<_> = nodes.iter().enumerate().filter(|(_, node)| node.has(address)).collect();
    let near = having.iter().find(|(_, node)| Some(node.cluster) == here);
    if let Some((index, _)) = near.filter(|(_, node)| spec.private(node.cluster).is_some()) {
        return Ok(Found::Node(*index));
    }
    let is_head = head_clusters(spec).any(|cluster| head_address(cluster) == address);
    match (having.as_slice(), is_head) {
        ([], true) => Ok(Found::Head),
        ([(index, _)], false) => Ok(Found::Node(*index)),
        ([], false) => Err(unknown(nodes, host)),
        (several, _) => {
            let head = is_head.then_some(HEAD);
            let names: Vec<_> = head
                .into_iter()
                .chain(several.iter().map(|(_, node)| node.name.as_str()))
                .collect();
            Err(format!(
                "several machines have the address {host}; say which by name: {}",
                names.join(", ")
            ))
        }
    }
}

fn unknown(nodes: &[Node], host: &str) -> String {
    let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    format!("no node `{host}`: {HEAD}, {}", names.join(", "))
}

/// `/etc/hosts` as it is seen in the cluster `here`, or on the head. Names mean addresses inside
/// where those can be reached, else addresses on the wide area.
#[must_use]
pub fn hosts_file(spec: &Spec, here: Option<usize>) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
    let here = here.filter(|cluster| spec.private(*cluster).is_some());
    if here.is_none() {
        for cluster in head_clusters(spec) {
            text += &format!("{} {HEAD}\n", head_address(cluster));
        }
    }
    for node in nodes(spec) {
        let is_near = here == Some(node.cluster) || spec.private(node.cluster).is_none();
        let lan = node.lan().filter(|_| is_near);
        if let Some(address) = lan.or(node.wan()) {
            text += &format!("{address} {}\n", node.name);
        }
        if let Some(address) = node.wan() {
            text += &format!("{address} {}-wan\n", node.name);
        }
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
        assert_eq!(all(|n| n.lan().unwrap().to_string()), 48);
        assert_eq!(all(|n| n.wan().unwrap().to_string()), 48);
        assert_eq!(all(|n| n.lan_interface().unwrap().mac.clone()), 48);
        assert_eq!(all(|n| n.wan_interface().unwrap().mac.clone()), 48);
        assert_eq!(all(|n| n.wan_interface().unwrap().port.clone()), 48);
    }

    #[test]
    fn nodes_are_found_by_name_and_address() {
        let spec = spec("");
        let nodes = nodes(&spec);
        let name = |host: &str| match find(&spec, &nodes, host, None) {
            Ok(Found::Node(index)) => nodes[index].name.clone(),
            Ok(Found::Head) => HEAD.to_owned(),
            Err(why) => why,
        };
        assert_eq!(name("10.1.0.3"), "a3");
        assert_eq!(name("10.100.2.3"), "a1-3");
        assert_eq!(name("a1-3"), "a1-3");
        assert_eq!((name("head").as_str(), name("10.4.0.254").as_str()), (HEAD, HEAD));
        assert!(name("nowhere").starts_with("no node `nowhere`: head, a1, "));
        assert!(name("10.5.0.254").starts_with("no node"));
        assert!(hosts_file(&spec, None).contains("\n10.2.0.3 a1-3\n"));
    }

    const PRIVATE: &str = "[[cluster]]\nname = \"p\"\nnodes = 2\nprivate = true\ngateways = 2\nnat = true\nnetwork = \"10.9.0.0/16\"\n\
                           [[cluster]]\nname = \"q\"\nnodes = 2\nprivate = true\nnetwork = \"10.9.0.0/16\"\n\
                           [[cluster]]\nname = \"r\"\nnodes = 1\n[[host]]\nname = \"pub\"\n";

    #[test]
    fn private_clusters_may_share_addresses() {
        let spec = Spec::parse(PRIVATE, "t", "t").unwrap();
        let nodes = nodes(&spec);
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(
            names,
            ["p1", "p2", "p-gw1", "p-gw2", "p-head", "q1", "q2", "q-gw1", "q-head", "r1", "pub"]
        );
        let find = |host: &str, here| match find(&spec, &nodes, host, here)? {
            Found::Node(index) => Ok(names[index]),
            Found::Head => Ok(HEAD),
        };
        assert_eq!(find("10.9.0.2", Some(0)), Ok("p2"));
        assert_eq!(find("10.9.0.2", Some(1)), Ok("q2"));
        assert_eq!(find("10.9.1.2", None), Ok("p-gw2"));
        assert_eq!(find("10.100.2.1", Some(0)), Ok("q-gw1"));
        assert_eq!(find("10.100.4.1", None), Ok("pub"));
        assert_eq!(find("10.3.0.254", Some(0)), Ok(HEAD));
        assert_eq!((find("localhost", Some(1)), find("localhost", None)), (Ok("q-head"), Ok(HEAD)));
        assert_eq!((find("localhost", Some(2)), find("head", Some(1))), (Ok(HEAD), Ok(HEAD)));
        let unclear: Result<&str, String> = find("10.9.0.254", None);
        assert!(unclear.unwrap_err().ends_with("say which by name: p-head, q-head"));
        assert_eq!(nodes[0].wan(), None);
        assert_eq!(nodes[10].lan(), None);
        assert_eq!(way_out(&spec, &nodes, 0).map(|node| node.name.as_str()), Some("p-gw1"));
        assert_eq!((way_out(&spec, &nodes, 1), way_out(&spec, &nodes, 2)), (None, None));
    }

    #[test]
    fn names_mean_what_can_be_reached() {
        let spec = Spec::parse(PRIVATE, "t", "t").unwrap();
        let (head, inside) = (hosts_file(&spec, None), hosts_file(&spec, Some(0)));
        for line in ["10.3.0.254 head", "10.100.1.1 p-gw1", "10.100.4.1 pub", "10.3.0.1 r1"] {
            assert!(head.contains(&format!("\n{line}\n")), "{line}: {head}");
        }
        assert!(!head.contains(" p1\n") && !head.contains("10.9."), "{head}");
        for line in [
            "10.9.0.1 p1",
            "10.9.1.2 p-gw2",
            "10.100.1.2 p-gw2-wan",
            "10.9.0.254 p-head",
            "10.100.2.1 q-gw1",
        ] {
            assert!(inside.contains(&format!("\n{line}\n")), "{line}: {inside}");
        }
        assert!(!inside.contains(" q1\n") && !inside.contains(" head\n"), "{inside}");
        assert_eq!(hosts_file(&spec, Some(2)), head);
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
