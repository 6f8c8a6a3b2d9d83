//! Builds a lab's network, from inside the holder's namespaces.
//!
//! The holder's own network namespace is the head: it has an address in every cluster that is not
//! private, and the switches. For each cluster there is a bridge of the nodes' `eth0` and one of their `eth1`;
//! a link is a cable between two bridges of the second sort, or two cables with the emulator
//! between their far ends. Forwarding tables and neighbours are fixed: no ARP, no flooding, no
//! loops.

use crate::error::{Doing as _, LabError};
use crate::firewall;
use crate::plan::{self, Interface, Node, Role};
use crate::spec::{GSO_FRAME, Spec, Tcp};
use crate::sys::carrier::Watch;
use crate::sys::{device, namespace};
use crate::tools::{batch, filter, set_variable};
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// So long may a cable take until it passes frames, once it has both ends.
const CABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Open descriptors of one node's namespaces; they exist as long as these.
#[derive(Debug)]
pub struct NodeHandles {
    /// Network.
    pub net: OwnedFd,
    /// Host name.
    pub uts: OwnedFd,
    /// Inter-process communication.
    pub ipc: OwnedFd,
    /// Mounts.
    pub mount: OwnedFd,
}

/// Builds everything but the emulator. What was not to be had goes to `notes`; files for nodes go
/// to the directory `home`.
///
/// # Errors
/// When a step fails.
pub fn build(
    spec: &Spec,
    home: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<NodeHandles>, LabError> {
    let nodes = plan::nodes(spec);
    own_view(plan::HEAD, notes)?;
    settle_kernel(&spec.tcp, notes)?;
    switch_without_filters(notes);
    batch("ip", &switches(spec))?;
    let here = watch()?;
    let (mut handles, mut watches) = (Vec::new(), Vec::new());
    for node in &nodes {
        let (made, watch) = make_node(spec, &nodes, node, home, notes)?;
        handles.push(made);
        watches.push(watch);
    }
    batch("ip", &ports(spec, &nodes))?;
    batch("ip", &cables(spec))?;
    if !spec.gso {
        no_super_packets(spec, &nodes)?;
    }
    await_cables(&here, plan::HEAD, &far_ends(spec, &nodes))?;
    for (node, watch) in nodes.iter().zip(&watches) {
        await_cables(watch, &node.name, &near_ends(node))?;
    }
    // Both wait until the kernel's link watch, which started the last queue, has let the switch know, too.
    batch("bridge", &forwarding(spec, &nodes))?;
    batch("tc", &switch_rates(spec, &nodes))?;
    Ok(handles)
}

/// Of the calling thread's network namespace.
fn watch() -> Result<Watch, LabError> {
    Watch::here().doing("cannot watch network devices")
}

/// Waits until devices of one namespace pass frames.
fn await_cables(watch: &Watch, node: &str, devices: &[String]) -> Result<(), LabError> {
    let idle = watch.first_idle(devices, CABLE_TIMEOUT);
    match idle.doing(format!("cannot ask for the network devices of {node}"))? {
        None => Ok(()),
        Some(device) => Err(LabError::NotUp(format!(
            "{device} of {node} passes no frames {} s after its cable was there: is this machine overloaded?",
            CABLE_TIMEOUT.as_secs()
        ))),
    }
}

/// The ends of a node's cables in its own namespace.
fn near_ends(node: &Node) -> Vec<String> {
    let lan = node.lan_interface().map(|_| "eth0".to_owned());
    let wan = node.wan_interface().map(|_| "eth1".to_owned());
    lan.into_iter().chain(wan).collect()
}

/// The ends of all cables in the holder's namespace, and the head's way to the nodes.
fn far_ends(spec: &Spec, nodes: &[Node]) -> Vec<String> {
    let lan_ports = nodes.iter().filter_map(Node::lan_interface).map(|lan| lan.port.clone());
    let bridges = plan::head_clusters(spec).map(plan::lan_bridge);
    lan_ports.chain(wan_ports(nodes)).chain(link_ends(spec)).chain(bridges).collect()
}

/// The switches' ends of the nodes' cables towards the wide area.
fn wan_ports(nodes: &[Node]) -> impl Iterator<Item = String> {
    nodes.iter().filter_map(Node::wan_interface).map(|wan| wan.port.clone())
}

/// The ends of the links' cables.
fn link_ends(spec: &Spec) -> Vec<String> {
    let mut devices = Vec::new();
    for (index, link) in spec.links.iter().enumerate() {
        for second in [false, true] {
            devices.push(plan::link_port(index, second));
            if link.emulate {
                devices.push(plan::emulator_port(index, second));
            }
        }
    }
    devices
}

/// Shows the names that mean something in the cluster `here`, in the calling thread's mounts.
///
/// # Errors
/// When the file cannot be written.
pub fn show_hosts(
    spec: &Spec,
    home: &Path,
    here: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<(), LabError> {
    let name = here.map_or_else(String::new, |cluster| format!("-{}", spec.site_name(cluster)));
    let hosts = home.join(format!("hosts{name}"));
    fs::write(&hosts, plan::hosts_file(spec, here)).doing("cannot write the host names")?;
    let bound = namespace::bind(&hosts, Path::new("/etc/hosts"));
    note(notes, bound, "host names are not resolved in the lab");
    Ok(())
}

/// Gives the calling thread's mount namespace a `/sys` that shows its network devices and a
/// `/dev/shm` of its own, and sets its host name.
fn own_view(name: &str, notes: &mut Vec<String>) -> Result<(), LabError> {
    namespace::set_host_name(name).doing("cannot set a host name")?;
    let cgroups = namespace::copy_mounts(Path::new("/sys/fs/cgroup"));
    let mounted = namespace::mount_fresh("sysfs", Path::new("/sys"));
    if let (Ok(()), Ok(tree)) = (&mounted, &cgroups) {
        // A fresh sysfs would hide the control groups.
        let _ = namespace::attach_mounts(tree, Path::new("/sys/fs/cgroup"));
    }
    note(notes, mounted, "nodes see the machine's own /sys");
    let shared = namespace::mount_fresh("tmpfs", Path::new("/dev/shm"));
    note(notes, shared, "nodes share /dev/shm");
    Ok(())
}

fn note(notes: &mut Vec<String>, result: io::Result<()>, effect: &str) {
    if let Err(error) = result {
        let note = format!("{effect} ({error})");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Kernel settings of the calling thread's network namespace.
fn settle_kernel(tcp: &Tcp, notes: &mut Vec<String>) -> Result<(), LabError> {
    // Autotuning may go beyond the default size where a fast long link needs it.
    let window = |size: u64| format!("4096 {size} {}", (2 * size).max(33_554_432));
    let settings = [
        ("net/ipv4/tcp_rmem", window(tcp.rmem)),
        ("net/ipv4/tcp_wmem", window(tcp.wmem)),
        ("net/ipv4/tcp_no_metrics_save", "1".into()),
        ("net/ipv4/tcp_sack", "1".into()),
        ("net/ipv4/ip_forward", "0".into()),
        ("net/ipv4/conf/all/rp_filter", "0".into()),
        ("net/ipv4/conf/default/rp_filter", "0".into()),
        ("net/ipv4/ping_group_range", "0 0".into()),
        ("net/ipv6/conf/all/disable_ipv6", "1".into()),
        ("net/ipv6/conf/default/disable_ipv6", "1".into()),
        ("net/ipv6/conf/lo/disable_ipv6", "0".into()),
    ];
    for (name, value) in settings {
        note(notes, set_variable(name, &value), &format!("{name} stays as it is"));
    }
    let wanted = &tcp.congestion;
    let Err(error) = set_variable("net/ipv4/tcp_congestion_control", wanted) else { return Ok(()) };
    let remedy = format!(
        "congestion control `{wanted}` is not allowed here ({error}): as root, run \
         `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno {wanted}\"`"
    );
    if tcp.congestion_named {
        return Err(LabError::NotUp(format!(
            "{remedy}, or name another in the lab file's [tcp] table"
        )));
    }
    if !notes.contains(&remedy) {
        notes.push(remedy);
    }
    Ok(())
}

/// What a bridge forwards passes no packet filter: where something has loaded `br_netfilter` (as Docker does) each frame would go through its
/// hooks, at 4 % of all processor time.
fn switch_without_filters(notes: &mut Vec<String>) {
    for name in ["iptables", "ip6tables", "arptables"] {
        let name = format!("net/bridge/bridge-nf-call-{name}");
        match set_variable(&name, "0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => note(notes, outcome, &format!("{name} stays as it is")),
        }
    }
}

/// The head's loopback and the bridges.
fn switches(spec: &Spec) -> Vec<String> {
    let mut commands = vec!["link set lo up".to_owned()];
    for site in 0..spec.sites() {
        let wan = plan::wan_bridge(site);
        commands.push(format!("link add {wan} type bridge ageing_time 0 mcast_snooping 0"));
        commands.push(format!("link set {wan} up"));
    }
    for cluster in 0..spec.clusters.len() {
        let lan = plan::lan_bridge(cluster);
        let mac = plan::head_mac(cluster);
        commands.push(format!("link add {lan} address {mac} type bridge mcast_snooping 0"));
        commands.push(format!("link set {lan} up"));
    }
    for cluster in plan::head_clusters(spec) {
        let (lan, address) = (plan::lan_bridge(cluster), plan::head_address(cluster));
        commands.push(format!("address add {address}/16 dev {lan}"));
    }
    commands
}

/// Makes a node's namespaces and what is in them, on a thread that enters them for that.
fn make_node(
    spec: &Spec,
    nodes: &[Node],
    node: &Node,
    home: &Path,
    notes: &mut Vec<String>,
) -> Result<(NodeHandles, Watch), LabError> {
    let on_thread = || {
        let kinds = namespace::NET | namespace::UTS | namespace::IPC | namespace::MOUNT;
        namespace::unshare(kinds).doing("cannot make a node's namespaces")?;
        own_view(&node.name, notes)?;
        settle_kernel(&spec.tcp, notes)?;
        if spec.private(node.cluster).is_some() {
            show_hosts(spec, home, Some(node.cluster), notes)?;
        }
        batch("ip", &interfaces(spec, nodes, node))?;
        if !spec.gso && node.wan_interface().is_some() {
            device::no_super_packets("eth1").doing("cannot turn offloads of eth1 off")?;
        }
        batch("tc", &interface_rate(spec, node))?;
        let is_way_out = plan::way_out(spec, nodes, node.cluster) == Some(node);
        guard(spec, node, is_way_out)?;
        Ok((handles()?, watch()?))
    };
    thread::scope(|scope| {
        let thread = scope.spawn(on_thread);
        thread.join().unwrap_or_else(|_| Err(LabError::NotUp("a thread panicked".into())))
    })
}

fn handles() -> Result<NodeHandles, LabError> {
    let open = |kind: &str| {
        let path = format!("/proc/thread-self/ns/{kind}");
        File::open(&path).map(OwnedFd::from).doing(format!("cannot open {path}"))
    };
    Ok(NodeHandles { net: open("net")?, uts: open("uts")?, ipc: open("ipc")?, mount: open("mnt")? })
}

/// Makes a gateway do what the lab file asks of it.
fn guard(spec: &Spec, node: &Node, is_way_out: bool) -> Result<(), LabError> {
    let (Some(private), Role::Gateway) = (spec.private(node.cluster), node.role) else {
        return Ok(());
    };
    if let Some(rules) = firewall::rules(private, node.number) {
        filter(&rules)?;
    }
    if is_way_out {
        set_variable("net/ipv4/ip_forward", "1").doing("cannot let a gateway forward")?;
    }
    Ok(())
}

/// A node's interfaces; their far ends go to the holder, process 1 of the lab.
fn interfaces(spec: &Spec, nodes: &[Node], node: &Node) -> Vec<String> {
    let super_packets =
        if spec.gso { format!("gso_max_size {GSO_FRAME}") } else { "gso_max_segs 1".to_owned() };
    let mut commands = vec!["link set lo up".to_owned()];
    let mut add = |device: &str, interface: &Interface| {
        let Interface { address, prefix, mac, port } = interface;
        commands
            .push(format!("link add {device} address {mac} type veth peer name {port} netns 1"));
        if device == "eth1" {
            commands.push(format!("link set eth1 {super_packets}"));
        }
        commands.push(format!("address add {address}/{prefix} dev {device}"));
        commands.push(format!("link set {device} up"));
    };
    node.lan_interface().into_iter().for_each(|lan| add("eth0", lan));
    node.wan_interface().into_iter().for_each(|wan| add("eth1", wan));
    commands.extend(neighbours(spec, nodes, node));
    let way_out = plan::way_out(spec, nodes, node.cluster).and_then(Node::lan);
    if let (Some(gateway), None) = (way_out, node.wan()) {
        commands.push(format!("route add default via {gateway} dev eth0"));
    }
    commands
}

/// Everybody whom a node can reach directly.
fn neighbours(spec: &Spec, nodes: &[Node], node: &Node) -> Vec<String> {
    let mut commands = Vec::new();
    if let (Some(_), None) = (node.lan(), spec.private(node.cluster)) {
        let head = plan::head_address(node.cluster);
        commands.push(neighbour(&head, &plan::head_mac(node.cluster), "eth0"));
    }
    let mut add = |here: Option<&Interface>, there: Option<&Interface>, device: &str| {
        if let (Some(_), Some(there)) = (here, there) {
            commands.push(neighbour(&there.address, &there.mac, device));
        }
    };
    for other in nodes.iter().filter(|other| *other != node) {
        if other.cluster == node.cluster {
            add(node.lan_interface(), other.lan_interface(), "eth0");
        }
        add(node.wan_interface(), other.wan_interface(), "eth1");
    }
    commands
}

fn neighbour(address: &Ipv4Addr, mac: &str, device: &str) -> String {
    format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent")
}

/// Gives a node, whose namespace the calling thread is in, another address towards the wide area instead of its own.
///
/// # Errors
/// When a step fails.
pub(crate) fn renumber(from: Ipv4Addr, to: Ipv4Addr, prefix: u8) -> Result<(), LabError> {
    // Never without an address: with the last one the kernel forgets all neighbours.
    set_variable("net/ipv4/conf/eth1/promote_secondaries", "1")
        .doing("cannot let a second address take the place of the first")?;
    let commands = [
        format!("address add {to}/{prefix} dev eth1"),
        format!("address del {from}/{prefix} dev eth1"),
    ];
    batch("ip", &commands)
}

/// Tells a node, whose namespace the calling thread is in, where that address is.
///
/// # Errors
/// When it cannot be told.
pub(crate) fn know(address: Ipv4Addr, mac: &str) -> Result<(), LabError> {
    batch("ip", &[neighbour(&address, mac, "eth1")])
}

/// A node's rate towards the wide area.
fn interface_rate(spec: &Spec, node: &Node) -> Vec<String> {
    let (Some(rate), Some(_)) = (spec.wide_interface(node.cluster).0, node.wan()) else {
        return Vec::new();
    };
    let limit = 4_000_000.max(2 * bucket(spec, rate));
    vec![token_bucket(spec, "eth1", rate, limit)]
}

/// The rates at which switches hand on what comes to the nodes, and their buffers.
fn switch_rates(spec: &Spec, nodes: &[Node]) -> Vec<String> {
    let limited = nodes.iter().filter_map(|node| {
        let (rate, buffer) = spec.wide_interface(node.cluster);
        Some(token_bucket(spec, &node.wan_interface()?.port, rate?, buffer?))
    });
    limited.collect()
}

fn token_bucket(spec: &Spec, device: &str, rate: u64, limit: u64) -> String {
    let (burst, overhead) = (bucket(spec, rate), crate::flow::WIRE_OVERHEAD);
    format!(
        "qdisc replace dev {device} root tbf rate {rate}bit burst {burst} limit {limit} overhead {overhead}"
    )
}

/// Of three packets, or of a tenth of a millisecond where that is more (timers are not finer), or of a super-packet.
fn bucket(spec: &Spec, rate: u64) -> u64 {
    let least = if spec.gso { 2 * GSO_FRAME } else { 4_542 };
    least.max(rate / 8 / 10_000)
}

/// The switches' ends of the nodes' cables.
fn ports(spec: &Spec, nodes: &[Node]) -> Vec<String> {
    let mut commands = Vec::new();
    for node in nodes {
        let (lan, wan) = (plan::lan_bridge(node.cluster), plan::wan_bridge(node.cluster));
        if let Some(Interface { port, address, mac, .. }) = node.lan_interface() {
            commands.push(format!("link set {port} master {lan} up"));
            // The head is not in a private cluster.
            if spec.private(node.cluster).is_none() {
                commands.push(neighbour(address, mac, &lan));
            }
        }
        if let Some(Interface { port, .. }) = node.wan_interface() {
            commands.push(format!("link set {port} master {wan} up"));
        }
    }
    commands
}

/// The links' cables.
fn cables(spec: &Spec) -> Vec<String> {
    let mut commands = Vec::new();
    for (index, link) in spec.links.iter().enumerate() {
        let ports = [plan::link_port(index, false), plan::link_port(index, true)];
        if link.emulate {
            for second in [false, true] {
                let emulator = plan::emulator_port(index, second);
                let port = &ports[usize::from(second)];
                commands.push(format!("link add {port} type veth peer name {emulator}"));
                commands.push(format!("link set {emulator} arp off up"));
            }
        } else {
            commands.push(format!("link add {} type veth peer name {}", ports[0], ports[1]));
        }
        for (port, cluster) in ports.iter().zip([link.between.0, link.between.1]) {
            commands.push(format!("link set {port} master {} up", plan::wan_bridge(cluster)));
        }
    }
    commands
}

/// Every packet on the wide area is one of the medium: no device there joins or splits.
fn no_super_packets(spec: &Spec, nodes: &[Node]) -> Result<(), LabError> {
    wan_ports(nodes).chain(link_ends(spec)).try_for_each(|name| {
        device::no_super_packets(&name).doing(format!("cannot turn offloads of {name} off"))
    })
}

/// The wide-area bridges' fixed tables: each node by its port, every other by the first link on
/// the shortest way to it.
fn forwarding(spec: &Spec, nodes: &[Node]) -> Vec<String> {
    let mut commands = Vec::new();
    let quiet = "learning off flood off mcast_flood off bcast_flood off";
    let links =
        (0..spec.links.len()).flat_map(|l| [plan::link_port(l, false), plan::link_port(l, true)]);
    for port in wan_ports(nodes).chain(links) {
        commands.push(format!("link set dev {port} {quiet}"));
    }
    for to in 0..spec.sites() {
        let ways = plan::ways_to(spec, to);
        let mine = nodes.iter().filter(|node| node.cluster == to);
        for wan in mine.filter_map(Node::wan_interface) {
            let entry = |port: &str| format!("fdb add {} dev {port} master static", wan.mac);
            commands.push(entry(&wan.port));
            for (site, way) in ways.iter().enumerate() {
                let port =
                    way.map(|link| plan::link_port(link, spec.links[link].between.1 == site));
                commands.extend(port.map(|port| entry(&port)));
            }
        }
    }
    commands
}
