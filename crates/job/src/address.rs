//! Under which addresses the coordinator may be reached, and how users write addresses.

use crate::shell;
use gridmpi_bootstrap::EVERYWHERE;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// More are of no use: who reaches none of these reaches none.
const MAX_ADDRESSES: usize = 24;

/// Where to listen if the user does not say.
pub(crate) const ANYWHERE: SocketAddr = SocketAddr::new(EVERYWHERE, 0);

/// The addresses behind which a socket on `listening` answers, best first, as ranks would tell theirs.
#[must_use]
pub fn own_addresses(listening: SocketAddr) -> Vec<SocketAddr> {
    let at = |ip| SocketAddr::new(ip, listening.port());
    reachable(listening.ip()).into_iter().map(at).collect()
}

/// Addresses as `gridmpi join` reads them.
pub(crate) fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

/// The same in a command line for people, whose shell may take brackets for a pattern.
pub(crate) fn word(addresses: &[SocketAddr]) -> String {
    shell::word(&list(addresses))
}

/// Addresses of this machine behind which a socket on `listen` answers, best first: those that
/// other machines may know before those that only we do.
pub(crate) fn reachable(listen: IpAddr) -> Vec<IpAddr> {
    if !listen.is_unspecified() {
        return vec![listen];
    }
    let found = getifaddrs().map(|all| all.collect::<Vec<_>>()).unwrap_or_default();
    let up = found.iter().filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let all = up.filter_map(|one| {
        let address = one.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    choose(all, listen.is_ipv4())
}

fn choose(all: impl Iterator<Item = IpAddr>, only_v4: bool) -> Vec<IpAddr> {
    let useful = all.filter(|ip| (ip.is_ipv4() || !only_v4) && !is_link_local(*ip));
    let mut ranked: Vec<(u8, IpAddr)> = useful.map(|ip| (rank(ip), ip)).collect();
    ranked.push((rank(Ipv4Addr::LOCALHOST.into()), Ipv4Addr::LOCALHOST.into()));
    // Stable: interfaces keep the system's order.
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut seen = BTreeSet::new();
    let unique = ranked.into_iter().map(|(_, ip)| ip).filter(|ip| seen.insert(*ip));
    unique.take(MAX_ADDRESSES).collect()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        // Would need the interface's number, which means nothing elsewhere.
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

const fn rank(ip: IpAddr) -> u8 {
    match ip {
        _ if ip.is_loopback() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

/// Reads `address:port`, `:port` or `port` to listen on.
///
/// # Errors
/// Says how to write it.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port_only = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    if let Ok(port) = port_only {
        return Ok(SocketAddr::new(ANYWHERE.ip(), port));
    }
    resolve(text)?.into_iter().next().ok_or_else(|| format!("{text:?} has no address"))
}

/// Reads `host:port`, or several separated by commas.
///
/// # Errors
/// Names what is wrong.
pub fn parse_coordinators(text: &str) -> Result<Vec<SocketAddr>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        all.extend(resolve(part.trim())?);
    }
    Ok(all)
}

fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    if text.rsplit_once(':').is_none_or(|(host, _)| host.is_empty()) {
        return Err(format!("{text:?} is no address: write HOST:PORT"));
    }
    let found = text.to_socket_addrs();
    let found = found.map_err(|error| format!("cannot find the address {text:?}: {error}"))?;
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_that_others_know_come_first() {
        let all =
            ips(&["127.0.0.1", "fe80::1", "2001:db8::1", "10.0.0.1", "169.254.1.1", "10.0.0.1"]);
        let chosen = choose(all.clone().into_iter(), false);
        assert_eq!(chosen, ips(&["10.0.0.1", "2001:db8::1", "127.0.0.1"]));
        assert_eq!(choose(all.into_iter(), true), ips(&["10.0.0.1", "127.0.0.1"]));
        assert_eq!(choose([].into_iter(), true), ips(&["127.0.0.1"]));
    }

    #[test]
    fn a_given_address_is_the_only_one() {
        assert_eq!(reachable("192.0.2.7".parse().unwrap()), ips(&["192.0.2.7"]));
        assert!(!reachable(ANYWHERE.ip()).is_empty());
    }

    /// As far as these go: 16 at the most.
    #[test]
    fn own_addresses_are_those_that_ranks_tell_in_their_order() {
        let ranks = gridmpi_probe::Here::listening(None).unwrap();
        let ranks: Vec<IpAddr> = ranks.addresses.iter().map(SocketAddr::ip).collect();
        let ours: Vec<_> = own_addresses("[::]:7".parse().unwrap());
        assert!(ours.iter().all(|at| at.port() == 7));
        let ours: Vec<IpAddr> = ours.iter().map(SocketAddr::ip).collect();
        assert_eq!(ours[..ours.len().min(16)], ranks);
    }

    #[test]
    fn a_shell_takes_a_list_of_addresses_for_one_word() {
        let list = |text| word(&parse_coordinators(text).unwrap());
        assert_eq!(list("10.0.0.1:1,10.0.0.2:1"), "10.0.0.1:1,10.0.0.2:1");
        assert_eq!(list("10.0.0.1:1,[fd00::1]:1"), "'10.0.0.1:1,[fd00::1]:1'");
    }

    #[test]
    fn users_may_leave_out_the_address_to_listen_on() {
        for text in ["7000", ":7000", "[::]:7000"] {
            assert_eq!(parse_listen(text).unwrap(), "[::]:7000".parse().unwrap());
        }
        assert_eq!(parse_listen("0.0.0.0:7000").unwrap(), "0.0.0.0:7000".parse().unwrap());
        for text in ["", "x", "127.0.0.1", "127.0.0.1:99999", ":"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
        assert_eq!(parse_coordinators("127.0.0.1:1, [::1]:2").unwrap().len(), 2);
        assert!(parse_coordinators("127.0.0.1:1,").is_err());
    }
}
