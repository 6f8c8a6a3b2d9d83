//! Looks at this machine.

use crate::facts::{
    Interface, Kind, MAX_ADDRESSES, MAX_INTERFACES, Machine, Node, PacedBy, Queueing,
};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is read of the kernel's settings.
const SETTINGS: [&str; 18] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];
/// Tools that set firewalls, the one to be used first where there are several.
const FIREWALLS: [&str; 4] = ["firewall-cmd", "ufw", "iptables", "nft"];
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Programs that keep a clock right.
const CLOCK_KEEPERS: [&str; 6] =
    ["chronyd", "ntpd", "ntpsec", "openntpd", "ptp4l", "systemd-timesyn"];
/// Names that containers, virtual machines and their networks give to bridges and cables.
const CONTAINERS: [&str; 12] = [
    "docker", "br-", "virbr", "lxcbr", "lxdbr", "podman", "cni", "flannel", "cali", "vmnet",
    "vboxnet", "kube",
];
/// Names of tunnels and private networks over others.
const TUNNELS: [&str; 9] =
    ["tun", "tap", "wg", "zt", "tailscale", "ppp", "nebula", "utun", "ipsec"];
/// ARPHRD_* of linux/if_arp.h.
const INFINIBAND: u32 = 32;
const TUNNEL_TYPES: [u32; 6] = [512, 768, 769, 776, 778, 65534];

/// Everything about this machine that matters. `told`: the addresses that its processes tell others.
#[must_use]
pub fn look(node: Node, wanted: Option<String>, told: Vec<SocketAddr>) -> Machine {
    let files = getrlimit(Resource::Nofile);
    let open_files = files.current.map(|soft| (soft, files.maximum.unwrap_or(u64::MAX)));
    Machine {
        node,
        stack: stack(),
        wanted,
        told,
        interfaces: interfaces(),
        settings: settings(),
        open_files,
        locked_memory: getrlimit(Resource::Memlock).current,
        has_rdma: fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some()),
        clock_is_kept: clock_is_kept(),
        congestion: congestion(),
        firewall: firewall(),
    }
}

/// What the user names as congestion control.
fn congestion() -> Option<String> {
    std::env::var("GRIDMPI_CONGESTION").ok().filter(|name| !name.is_empty())
}

/// Containers on one host have its kernel, but interfaces of their own.
fn stack() -> Option<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{} {}", kernel.trim(), space.display()))
}

fn settings() -> BTreeMap<String, String> {
    let read = |name: &&str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let text = fs::read_to_string(path).ok()?;
        let text: Vec<&str> = text.split_whitespace().collect();
        Some(((*name).to_owned(), text.join(" ").chars().take(400).collect()))
    };
    SETTINGS.iter().filter_map(read).collect()
}

fn interfaces() -> Vec<Interface> {
    let mut all: Vec<Interface> = Vec::new();
    for one in getifaddrs().into_iter().flatten() {
        let name = &one.interface_name;
        let index = match all.iter().position(|known| known.name == *name) {
            Some(index) => index,
            None if all.len() == MAX_INTERFACES => continue,
            None => {
                all.push(interface(&one));
                all.len() - 1
            }
        };
        let addresses = &mut all[index].addresses;
        if let Some(address) = address(&one).filter(|_| addresses.len() < MAX_ADDRESSES) {
            addresses.push(address);
        }
    }
    all
}

fn reverse_path(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")).ok()?;
    text.trim().parse().ok()
}

fn interface(one: &InterfaceAddress) -> Interface {
    let mut interface = Interface {
        name: one.interface_name.clone(),
        kind: Kind::Card,
        is_up: one.flags.contains(InterfaceFlags::IFF_UP),
        mtu: None,
        speed: None,
        reverse_path: None,
        queueing: None,
        addresses: Vec::new(),
    };
    let name = interface.device().to_owned();
    let read = |what: &str| {
        let text = fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    let speed = read("speed").and_then(|mbit| u64::try_from(mbit).ok());
    let hardware = read("type").and_then(|kind| u32::try_from(kind).ok());
    interface.kind = kind(&name, one.flags, hardware);
    interface.mtu = read("mtu").and_then(|mtu| u32::try_from(mtu).ok());
    interface.speed = speed.and_then(|mbit| mbit.checked_mul(1_000_000)).filter(|rate| *rate > 0);
    interface.reverse_path = reverse_path(&name);
    interface.queueing = gridmpi_net::queueing(&name).ok().flatten().map(Queueing::from);
    interface
}

impl From<gridmpi_net::Queueing> for Queueing {
    fn from(seen: gridmpi_net::Queueing) -> Self {
        let paced_by = match seen.paced_by {
            gridmpi_net::PacedBy::Tcp => PacedBy::Tcp,
            gridmpi_net::PacedBy::Fq => PacedBy::Fq,
            gridmpi_net::PacedBy::Card => PacedBy::Card,
        };
        Self { discipline: seen.discipline, paced_by }
    }
}

fn kind(name: &str, flags: InterfaceFlags, hardware: Option<u32>) -> Kind {
    let has = |what: &str| Path::new(&format!("/sys/class/net/{name}/{what}")).exists();
    let is_of = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    let is_tunnel_type = hardware.is_some_and(|of| TUNNEL_TYPES.contains(&of));
    if flags.contains(InterfaceFlags::IFF_LOOPBACK) {
        Kind::Loopback
    } else if hardware == Some(INFINIBAND) {
        Kind::InfiniBand
    } else if is_of(&CONTAINERS) {
        Kind::Containers
    } else if is_of(&TUNNELS) || has("tun_flags") || is_tunnel_type {
        Kind::Tunnel
    } else {
        Kind::Card
    }
}

fn ip(storage: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = storage.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
}

fn address(one: &InterfaceAddress) -> Option<(IpAddr, u8)> {
    let own = ip(one.address.as_ref()?)?;
    let bits = match one.netmask.as_ref().and_then(ip) {
        Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
        Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
        None if own.is_ipv4() => 32,
        None => 128,
    };
    Some((own, u8::try_from(bits).unwrap_or(128)))
}

fn firewall() -> Option<String> {
    let is_here = |tool: &&&str| PLACES.iter().any(|place| Path::new(place).join(tool).exists());
    FIREWALLS.iter().find(is_here).map(|tool| (*tool).to_owned())
}

/// What systemd knows; else whether one of the usual programs runs.
fn clock_is_kept() -> Option<bool> {
    let mut command = Command::new("timedatectl");
    command.args(["show", "-p", "NTPSynchronized", "--value"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().ok().map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    match said.as_deref().map(str::trim) {
        Some("yes") => Some(true),
        Some("no") => Some(false),
        // Absence shows nothing: in a container the clock is kept by others.
        _ => is_running(&CLOCK_KEEPERS).then_some(true),
    }
}

fn is_running(names: &[&str]) -> bool {
    let is_one = |entry: fs::DirEntry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        names.contains(&name.trim())
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_are_known_by_their_names() {
        let none = InterfaceFlags::empty();
        for (name, hardware, expected) in [
            ("docker0", Some(1), Kind::Containers),
            ("br-1f2e", Some(1), Kind::Containers),
            ("virbr0", Some(1), Kind::Containers),
            ("tun9", None, Kind::Tunnel),
            ("tailscale0", Some(65534), Kind::Tunnel),
            ("vpn", Some(65534), Kind::Tunnel),
            ("ztabc", Some(1), Kind::Tunnel),
            ("ib0", Some(32), Kind::InfiniBand),
            ("eth-nosuch", Some(1), Kind::Card),
        ] {
            assert_eq!(kind(name, none, hardware), expected, "{name}");
        }
        assert_eq!(kind("lo", InterfaceFlags::IFF_LOOPBACK, Some(772)), Kind::Loopback);
    }

    #[test]
    fn an_address_with_a_label_is_on_the_device_before_it() {
        let loopback = |one: &InterfaceAddress| one.interface_name == "lo";
        let mut labelled = getifaddrs().unwrap().find(loopback).unwrap();
        labelled.interface_name = "lo:1".to_owned();
        let interface = interface(&labelled);
        assert_eq!((interface.name.as_str(), interface.device()), ("lo:1", "lo"));
        assert!(interface.mtu.is_some() && interface.reverse_path.is_some(), "{interface:?}");
    }

    #[test]
    fn this_machine_is_seen() {
        let node = Node { cluster: String::new(), host: "here".to_owned() };
        let machine = look(node, None, Vec::new());
        assert!(machine.is_sound());
        let loopback = machine.with("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!((loopback.kind, loopback.is_up), (Kind::Loopback, true));
        assert!(loopback.queueing.is_some(), "{loopback:?}");
        assert!(loopback.reverse_path.is_some(), "{loopback:?}");
        assert!(loopback.addresses.contains(&("127.0.0.1".parse().unwrap(), 8)));
        assert!(machine.last_number("net.ipv4.tcp_rmem").unwrap() > 0);
        assert!(machine.open_files.is_some());
        assert!(machine.stack.is_some());
        assert!(machine.is_same(&look(machine.node.clone(), None, Vec::new())));
    }
}
