//! What TCP has done in each node, as the kernel counts it: a node's network namespace has counters of its own.

use crate::error::{Doing as _, LabError};
use crate::network::NodeHandles;
use crate::sys::namespace;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::{Add, Sub};
use std::os::fd::AsFd as _;
use std::thread;

/// TCP's counters of a network namespace, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Segments sent for the first time (`OutSegs`).
    pub segments: u64,
    /// Segments sent again (`RetransSegs`).
    pub retransmits: u64,
    /// Times that a connection waited in vain until its retransmission timer ran out (`TCPTimeouts`).
    pub timeouts: u64,
    /// Probes sent in place of waiting for that (`TCPLossProbes`).
    pub loss_probes: u64,
}

impl Tcp {
    /// From the texts of `/proc/net/snmp` and `/proc/net/netstat`; what the kernel does not count is 0.
    #[must_use]
    pub fn parse(snmp: &str, netstat: &str) -> Self {
        Self {
            segments: counter(snmp, "Tcp:", "OutSegs"),
            retransmits: counter(snmp, "Tcp:", "RetransSegs"),
            timeouts: counter(netstat, "TcpExt:", "TCPTimeouts"),
            loss_probes: counter(netstat, "TcpExt:", "TCPLossProbes"),
        }
    }

    fn combine(self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            segments: by(self.segments, other.segments),
            retransmits: by(self.retransmits, other.retransmits),
            timeouts: by(self.timeouts, other.timeouts),
            loss_probes: by(self.loss_probes, other.loss_probes),
        }
    }
}

impl Add for Tcp {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }
}

impl Sub for Tcp {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.combine(before, u64::saturating_sub)
    }
}

/// A value of those files: a line of names, and below it one of values, both beginning with `group`.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let mut values = lines.next().unwrap_or_default().split_whitespace();
    let place = names.into_iter().position(|known| known == name);
    place.and_then(|place| values.nth(place)?.parse().ok()).unwrap_or(0)
}

/// The counters of these nodes, in their order.
///
/// # Errors
/// When a namespace cannot be entered or read.
pub(crate) fn of_nodes(nodes: &[NodeHandles]) -> Result<Vec<Tcp>, LabError> {
    // A thread of its own, which ends in the last node's namespace.
    let read = || nodes.iter().map(of_node).collect::<io::Result<Vec<_>>>();
    let ended = thread::scope(|scope| scope.spawn(read).join());
    let counters = ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    counters.doing("cannot read the nodes' TCP counters")
}

fn of_node(node: &NodeHandles) -> io::Result<Tcp> {
    namespace::join(node.net.as_fd(), namespace::NET)?;
    let text = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    Ok(Tcp::parse(&text("snmp")?, &text("netstat")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                        Tcp: MaxConn ActiveOpens OutSegs RetransSegs\nTcp: -1 2 300 4\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent TCPTimeouts TCPLossProbes\nTcpExt: 9 5 6\n\
                           IpExt: InNoRoutes\nIpExt: 0\n";

    #[test]
    fn counters_are_found_by_name() {
        let tcp = Tcp::parse(SNMP, NETSTAT);
        assert_eq!(tcp, Tcp { segments: 300, retransmits: 4, timeouts: 5, loss_probes: 6 });
        assert_eq!(Tcp::parse("", "TcpExt: TCPTimeouts\n"), Tcp::default());
    }

    #[test]
    fn what_happened_is_the_difference() {
        let before = Tcp { segments: 100, retransmits: 1, timeouts: 5, loss_probes: 0 };
        let since = Tcp::parse(SNMP, NETSTAT) - before;
        assert_eq!(since, Tcp { segments: 200, retransmits: 3, timeouts: 0, loss_probes: 6 });
        assert_eq!(since + before, Tcp::parse(SNMP, NETSTAT));
    }
}
