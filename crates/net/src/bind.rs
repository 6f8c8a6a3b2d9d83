//! Listening sockets, and the addresses that peers can reach them at.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::options::shorten_timeouts;

/// How many connections the kernel holds until we accept them.
const BACKLOG: i32 = 1024;

/// Where to listen.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// Only there: an interface's name, an address, or a network as `address/prefix`. `None`: on
    /// every interface.
    pub interface: Option<String>,
    /// The port; 0 lets the kernel choose.
    pub port: u16,
}

/// Why listening is not possible. The configuration's or the machine's fault.
#[derive(Debug, Error)]
pub enum BindError {
    /// The setting names nothing on this machine.
    #[error(
        "no interface or address of {host} fits \"{wanted}\" (there are {present}); let `interface` in the job file, or GRIDMPI_INTERFACE, \
         name an interface, an address or a network such as 10.0.0.0/8"
    )]
    NoSuchInterface {
        /// This machine.
        host: String,
        /// The setting.
        wanted: String,
        /// What there is.
        present: String,
    },
    /// The machine has no address at all.
    #[error("this machine has no network interface that is up")]
    NoInterface,
    /// The kernel refuses.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// The kernel does not tell the interfaces.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(io::Error),
}

/// Listening sockets, from before the job's table is known until [`Net::start`](crate::Net::start).
/// Peers that dial meanwhile wait in the kernel.
#[derive(Debug)]
pub struct Bound {
    pub(crate) listeners: Vec<OwnedFd>,
    addresses: Vec<SocketAddr>,
}

impl Bound {
    /// The addresses to tell the peers, in the order to try: wide before narrow, loopback last.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The sockets, which do not block, for others than [`Net`](crate::Net).
    #[must_use]
    pub fn into_listeners(self) -> Vec<OwnedFd> {
        self.listeners
    }
}

/// One usable address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    ip: IpAddr,
}

/// Listens as `listen` says.
///
/// # Errors
/// See [`BindError`].
pub fn bind(listen: &Listen) -> Result<Bound, BindError> {
    let mut present = interfaces()?;
    present.sort_by_key(|interface| preference(interface.ip));
    let Some(wanted) = &listen.interface else {
        return bind_everywhere(listen.port, &present);
    };
    let chosen: Vec<IpAddr> =
        present.iter().filter(|i| fits(i, wanted)).map(|interface| interface.ip).collect();
    if chosen.is_empty() {
        let names: Vec<String> = present.iter().map(|i| format!("{} {}", i.name, i.ip)).collect();
        return Err(BindError::NoSuchInterface {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            wanted: wanted.clone(),
            present: names.join(", "),
        });
    }
    bind_to(&chosen, listen.port)
}

fn bind_to(chosen: &[IpAddr], wanted: u16) -> Result<Bound, BindError> {
    let mut bound = Bound { listeners: Vec::new(), addresses: Vec::new() };
    let mut port = wanted;
    for &ip in chosen {
        // One port for all, where the kernel chose the first and the others have it free.
        let listening = match listen_on(SocketAddr::new(ip, port)) {
            Err(_) if wanted == 0 && port != 0 => listen_on(SocketAddr::new(ip, 0)),
            listening => listening,
        };
        let (listener, address) = listening?;
        port = address.port();
        bound.listeners.push(listener);
        bound.addresses.push(address);
    }
    Ok(bound)
}

fn bind_everywhere(port: u16, present: &[Interface]) -> Result<Bound, BindError> {
    if present.is_empty() {
        return Err(BindError::NoInterface);
    }
    // One socket for both families, unless the kernel has no IPv6.
    let both = listen_on(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
    let (listener, address, has_v6) = match both {
        Ok((listener, address)) => (listener, address, true),
        Err(_) => {
            let (listener, address) =
                listen_on(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
            (listener, address, false)
        }
    };
    let usable = present.iter().filter(|interface| has_v6 || interface.ip.is_ipv4());
    let addresses = usable.map(|i| SocketAddr::new(i.ip, address.port())).collect();
    Ok(Bound { listeners: vec![listener], addresses })
}

fn listen_on(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), BindError> {
    let listen = || -> io::Result<(OwnedFd, SocketAddr)> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(!address.ip().is_unspecified())?;
        }
        shorten_timeouts(&socket);
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let local = socket.local_addr()?.as_socket();
        Ok((socket.into(), local.ok_or(io::ErrorKind::Unsupported)?))
    };
    listen().map_err(|error| BindError::Listen { address, error })
}

/// The addresses of interfaces that are up. Link-local ones are left out: a peer could not say
/// through which of its own interfaces to reach them.
fn interfaces() -> Result<Vec<Interface>, BindError> {
    let all = getifaddrs().map_err(|errno| BindError::Interfaces(errno.into()))?;
    Ok(all.filter_map(|interface| usable(&interface)).collect())
}

fn usable(interface: &InterfaceAddress) -> Option<Interface> {
    if !interface.flags.contains(InterfaceFlags::IFF_UP) {
        return None;
    }
    let storage = interface.address.as_ref()?;
    let ip = if let Some(v4) = storage.as_sockaddr_in() {
        IpAddr::V4(v4.ip())
    } else {
        IpAddr::V6(storage.as_sockaddr_in6()?.ip())
    };
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    (!is_link_local).then(|| Interface { name: interface.interface_name.clone(), ip })
}

/// Lower is tried earlier.
fn preference(ip: IpAddr) -> u8 {
    match ip {
        _ if ip.is_loopback() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

fn fits(interface: &Interface, wanted: &str) -> bool {
    if interface.name == wanted {
        return true;
    }
    let (network, prefix) = match wanted.split_once('/') {
        Some((network, prefix)) => (network, prefix.parse().ok()),
        None => (wanted, Some(128)),
    };
    match (network.parse(), prefix) {
        (Ok(network), Some(prefix)) => in_network(interface.ip, network, prefix),
        _ => false,
    }
}

/// Whether `ip` and `network` agree in their first `prefix` bits, or in all they have.
fn in_network(ip: IpAddr, network: IpAddr, prefix: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differs = ip.to_bits() ^ network.to_bits();
            differs.leading_zeros() >= prefix.min(32)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differs = ip.to_bits() ^ network.to_bits();
            differs.leading_zeros() >= prefix.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_sock::TcpInfo;

    fn on(name: &str, ip: &str) -> Interface {
        Interface { name: name.into(), ip: ip.parse().unwrap() }
    }

    #[test]
    fn an_interface_is_named_by_name_address_or_network() {
        let eth = on("eth0", "10.1.2.3");
        for wanted in ["eth0", "10.1.2.3", "10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0"] {
            assert!(fits(&eth, wanted), "{wanted}");
        }
        for wanted in ["eth1", "10.1.2.4", "10.1.2.4/32", "11.0.0.0/8", "::/0", "10.0.0.0/x", ""] {
            assert!(!fits(&eth, wanted), "{wanted}");
        }
        assert!(fits(&on("e", "fd00::1"), "fd00::/16") && !fits(&on("e", "fd00::1"), "fe00::/16"));
    }

    #[test]
    fn who_is_accepted_waits_no_longer_for_a_first_acknowledgement_than_who_has_dialled() {
        let loopback = Listen { interface: Some("127.0.0.1".into()), port: 0 };
        let bound = bind(&loopback).unwrap();
        let address = bound.addresses()[0];
        let kind = Type::STREAM.cloexec();
        let dialler = Socket::new(Domain::IPV4, kind, Some(Protocol::TCP)).unwrap();
        shorten_timeouts(&dialler);
        dialler.connect(&address.into()).unwrap();
        let listener = Socket::from(bound.into_listeners().remove(0));
        listener.set_nonblocking(false).unwrap();
        let accepted = listener.accept().unwrap().0;
        // The first round trip counts three times, and may be long on a loaded machine; beyond it the kernel's own waits for 200 ms.
        let is_short = |socket: &Socket| {
            let info = TcpInfo::of(socket).unwrap();
            info.rto.saturating_sub(3 * info.rtt) < 100_000
        };
        assert_eq!(is_short(&accepted), is_short(&dialler));
    }

    #[test]
    fn loopback_is_advertised_last_and_an_unknown_interface_is_named() {
        let bound = bind(&Listen::default()).unwrap();
        let first_loopback = bound.addresses().iter().position(|a| a.ip().is_loopback());
        let last_other = bound.addresses().iter().rposition(|a| !a.ip().is_loopback());
        assert!(first_loopback > last_other || last_other.is_none());
        let wrong = Listen { interface: Some("nosuch0".into()), port: 0 };
        assert!(bind(&wrong).unwrap_err().to_string().contains("nosuch0"));
        let loopback = Listen { interface: Some("127.0.0.0/8".into()), port: 0 };
        assert!(bind(&loopback).unwrap().addresses().iter().all(|a| a.ip().is_loopback()));
    }
}
