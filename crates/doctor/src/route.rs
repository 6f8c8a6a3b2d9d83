//! Which way the kernel sends to an address.

use crate::facts::Route;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::{Command, Stdio};

/// Where `ip` may be: the search path of a batch job seldom has all of them.
const TOOLS: [&str; 3] = ["ip", "/sbin/ip", "/usr/sbin/ip"];

/// The kernel's way to `ip`; without the tool `ip`, only the source is known.
#[must_use]
pub fn to(ip: IpAddr) -> Route {
    let source = source(ip);
    let said = TOOLS.iter().find_map(|tool| ask(tool, ip));
    let mut route = said.map_or_else(Route::default, |said| read(&said));
    route.source = route.source.or(source);
    route
}

fn ask(tool: &str, ip: IpAddr) -> Option<String> {
    let mut command = Command::new(tool);
    command.args(["-o", "route", "get", &ip.to_string()]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `10.1.0.2 via 10.0.0.1 dev eth1 src 10.0.0.5 uid 0 \    cache mtu 1400`.
fn read(said: &str) -> Route {
    let words: Vec<&str> = said.split_whitespace().collect();
    let after = |name: &str| {
        let found = words.iter().position(|word| *word == name);
        found.and_then(|index| words.get(index + 1)).copied()
    };
    Route {
        interface: after("dev").map(str::to_owned),
        gateway: after("via").and_then(|word| word.parse().ok()),
        source: after("src").and_then(|word| word.parse().ok()),
        mtu: after("mtu").and_then(|word| word.parse().ok()),
    }
}

/// The address that the kernel would send from: connecting a UDP socket sends nothing.
fn source(ip: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((ip, 9)).ok()?;
    socket.local_addr().ok().map(|at| at.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tool_says_is_read() {
        let said = "10.1.0.2 via 10.0.0.1 dev eth1 src 10.0.0.5 uid 0 \\    cache mtu 1400 \n";
        let route = read(said);
        assert_eq!(route.interface.as_deref(), Some("eth1"));
        assert_eq!(route.gateway, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(route.source, Some("10.0.0.5".parse().unwrap()));
        assert_eq!(route.mtu, Some(1400));
        assert_eq!(read("RTNETLINK answers: Network is unreachable dev"), Route::default());
    }

    #[test]
    fn the_way_to_oneself_is_known() {
        let here = Ipv4Addr::LOCALHOST.into();
        assert_eq!(to(here).source, Some(here));
    }
}
