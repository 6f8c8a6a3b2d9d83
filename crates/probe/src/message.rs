//! What the conductor and the nodes tell each other over their lines, and the bounds that each side holds the other to.

use crate::reach::Reach;
use gridmpi_doctor::{Circuit, Idle, Machine, Node, RelayFact, Visit};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most addresses of one node.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Most connections that one order may ask of a node.
pub(crate) const MAX_STREAMS: u32 = 256;
/// Most echoes of one order.
pub(crate) const MAX_ECHOES: u32 = 1000;
/// Longest transfer, milliseconds.
pub(crate) const MAX_TRANSFER_MS: u32 = 60_000;
/// Longest time that a connection is left alone, seconds, and most of them.
pub(crate) const MAX_IDLE_S: u32 = 600;
const MAX_IDLE: usize = 16;
/// Most ways to one node that are left alone at a time.
pub(crate) const MAX_WAYS: usize = 8;
const MAX_NAME: usize = 255;
/// Longest text of a complaint.
const MAX_REASON: usize = 1000;

/// The first message on a line: what the line is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// Orders from the conductor to a node that was dialled.
    Orders,
    /// Words of a node that has dialled the conductor.
    Words,
    /// What comes is to be sent back.
    Echo,
    /// A connection to be filled.
    Stream {
        /// Of this round.
        round: u32,
        /// By whoever dialled it; else by whoever was dialled.
        dialer_sends: bool,
    },
    /// A look at the path (`visit`).
    Visit,
}

/// What the conductor asks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// What does your clock say?
    Clock,
    /// Send small messages to and fro.
    Echo {
        /// With one node.
        to: Reach,
        /// How many.
        count: u32,
        /// Microseconds between two.
        every_us: u32,
        /// Not longer than this, milliseconds.
        for_ms: u32,
    },
    /// Make connections, and wait for some.
    Open {
        /// Number of the transfer.
        round: u32,
        /// To be made.
        dials: Vec<Dial>,
        /// To be waited for.
        expects: u32,
        /// Congestion control of what this node sends; else the system's.
        congestion: Option<String>,
    },
    /// Fill the connections.
    Go {
        /// At most so long, milliseconds.
        for_ms: u32,
    },
    /// What is your machine like?
    Examine,
    /// What do you see of another node?
    Visit(Target),
    /// Leave connections to another node alone for so many seconds each, and use them then.
    Idle {
        /// The node.
        to: Target,
        /// The ways there, each for itself.
        by: Vec<Reach>,
        /// Seconds.
        seconds: Vec<u32>,
    },
    /// Be registered at the relays of your cluster.
    Register {
        /// As this process.
        me: u32,
        /// The cluster's lowest.
        first: u32,
        /// How many it has.
        count: u32,
    },
    /// Ask each of those relays for a circuit to another node.
    Circuits {
        /// The node.
        to: Target,
        /// As which process it is registered.
        process: u32,
    },
    /// The next order may be so long in coming.
    Stay {
        /// Seconds.
        for_s: u32,
    },
    /// It is enough.
    Stop,
    /// There will be no more orders.
    Leave,
}

/// A node to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Its addresses, best first.
    pub(crate) to: Vec<SocketAddr>,
    /// What it says of itself on every connection.
    pub(crate) id: u64,
    /// Who it is.
    pub(crate) node: Node,
}

/// Connections to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dial {
    /// The way there.
    pub(crate) to: Reach,
    /// How many connections.
    pub(crate) connections: u32,
    /// Whether the dialer sends.
    pub(crate) sends: bool,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// First of all.
    Hello(Hello),
    /// What its clock says, microseconds.
    Clock(u64),
    /// Round trips, microseconds.
    Echoed(Vec<u32>),
    /// All connections are there.
    Ready,
    /// Bytes that have come in all at this moment of its clock.
    Received {
        /// Microseconds.
        at_us: u64,
        /// Bytes.
        bytes: u64,
    },
    /// It has stopped sending and receiving.
    Done(Tally),
    /// Its machine.
    Machine(Box<Machine>),
    /// What it sees of another node.
    Visited(Box<Visit>),
    /// Connections that were left alone, way by way.
    Idled(Vec<Vec<Idle>>),
    /// Its relays.
    Registered(Vec<RelayFact>),
    /// Circuits, one through each of its relays.
    Circuits(Vec<Circuit>),
    /// It cannot do what it was asked.
    Failed(String),
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The cluster it belongs to.
    pub(crate) cluster: String,
    /// The machine.
    pub(crate) host: String,
    /// Of how many that its launcher has started, if it was told.
    pub(crate) of: Option<u32>,
    /// Where others reach it.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Tells it from all others, whatever their addresses.
    pub(crate) id: u64,
}

/// What the kernel says of the connections that a node has filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Segments with data, those sent again included.
    pub(crate) segments: u64,
    /// Segments sent again.
    pub(crate) retransmitted: u64,
    /// Name of the congestion control.
    pub(crate) congestion: Option<String>,
}

impl Target {
    fn is_sound(&self) -> bool {
        (1..=MAX_ADDRESSES).contains(&self.to.len())
            && self.node.cluster.len() <= MAX_NAME
            && self.node.host.len() <= MAX_NAME
    }
}

impl Order {
    /// Whether it keeps to the bounds.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Echo { to, count, every_us, for_ms } => {
                to.is_sound()
                    && *count <= MAX_ECHOES
                    && *every_us <= 1_000_000
                    && *for_ms <= MAX_TRANSFER_MS
            }
            Self::Open { dials, expects, congestion, .. } => {
                let dialled = dials.iter().map(|dial| u64::from(dial.connections)).sum::<u64>();
                let is_short = |name: &String| name.len() < 16;
                dials.iter().all(|dial| dial.to.is_sound())
                    && dialled + u64::from(*expects) <= u64::from(MAX_STREAMS)
                    && congestion.as_ref().is_none_or(is_short)
            }
            Self::Go { for_ms } => *for_ms <= MAX_TRANSFER_MS,
            Self::Visit(to) | Self::Circuits { to, .. } => to.is_sound(),
            Self::Idle { to, by, seconds } => {
                to.is_sound()
                    && by.len() <= MAX_WAYS
                    && by.iter().all(Reach::is_sound)
                    && seconds.len() <= MAX_IDLE
                    && seconds.iter().all(|seconds| *seconds <= MAX_IDLE_S)
            }
            Self::Register { me, first, count } => {
                me.checked_sub(*first).is_some_and(|place| place < *count)
            }
            Self::Clock | Self::Examine | Self::Stay { .. } | Self::Stop | Self::Leave => true,
        }
    }
}

impl Word {
    /// Whether it keeps to the bounds.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Hello(hello) => {
                hello.cluster.len() <= MAX_NAME
                    && hello.host.len() <= MAX_NAME
                    && hello.addresses.len() <= MAX_ADDRESSES
            }
            Self::Echoed(trips) => trips.len() <= MAX_ECHOES as usize,
            Self::Done(tally) => tally.congestion.as_ref().is_none_or(|name| name.len() < 16),
            Self::Failed(reason) => reason.len() <= MAX_REASON,
            Self::Machine(machine) => machine.is_sound(),
            Self::Visited(visit) => visit.is_sound(),
            Self::Idled(ways) => {
                ways.len() <= MAX_WAYS && ways.iter().all(|idle| Idle::are_sound(idle))
            }
            Self::Registered(relays) => RelayFact::are_sound(relays),
            Self::Circuits(circuits) => Circuit::are_sound(circuits),
            Self::Clock(_) | Self::Ready | Self::Received { .. } => true,
        }
    }

    /// A complaint that keeps to the bounds.
    pub(crate) fn failed(reason: &str) -> Self {
        Self::Failed(reason.chars().take(MAX_REASON / 4).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(connections: u32, expects: u32) -> Order {
        let to = Reach::Direct(vec!["127.0.0.1:1".parse().unwrap()]);
        let dial = Dial { to, connections, sends: true };
        Order::Open { round: 1, dials: vec![dial], expects, congestion: None }
    }

    #[test]
    fn orders_out_of_bounds_are_refused() {
        assert!(open(200, 56).is_sound());
        assert!(!open(200, 57).is_sound() && !open(u32::MAX, u32::MAX).is_sound());
        assert!(!Order::Go { for_ms: MAX_TRANSFER_MS + 1 }.is_sound());
        let here = Reach::Direct(vec!["127.0.0.1:1".parse().unwrap()]);
        let echo =
            |to: &Reach, count| Order::Echo { to: to.clone(), count, every_us: 0, for_ms: 10 };
        assert!(echo(&here, 5).is_sound() && !echo(&here, 1001).is_sound());
        assert!(!echo(&Reach::Direct(Vec::new()), 5).is_sound());
    }

    #[test]
    fn orders_to_look_keep_to_bounds() {
        let node = Node { cluster: "a".into(), host: "a1".into() };
        let to = Target { to: vec!["127.0.0.1:1".parse().unwrap()], id: 1, node };
        let here = Reach::Direct(to.to.clone());
        let ways = |count, seconds| {
            let by = vec![here.clone(); count];
            Order::Idle { to: to.clone(), by, seconds }
        };
        let idle = |seconds| ways(1, seconds);
        assert!(ways(MAX_WAYS, vec![1]).is_sound() && !ways(MAX_WAYS + 1, vec![1]).is_sound());
        assert!(idle(vec![1; 16]).is_sound() && Order::Visit(to.clone()).is_sound());
        assert!(!idle(vec![1; 17]).is_sound() && !idle(vec![601]).is_sound());
        assert!(!Order::Visit(Target { to: Vec::new(), ..to }).is_sound());
        let register = |me, first, count| Order::Register { me, first, count };
        assert!(register(5, 4, 2).is_sound() && register(u32::MAX, u32::MAX, 1).is_sound());
        assert!(!register(6, 4, 2).is_sound() && !register(3, 4, 2).is_sound());
    }

    #[test]
    fn words_out_of_bounds_are_refused() {
        assert!(Word::failed(&"é".repeat(5000)).is_sound());
        assert!(!Word::Failed("x".repeat(5000)).is_sound());
        assert!(!Word::Echoed(vec![0; 1001]).is_sound());
        let tally = Tally { congestion: Some("x".repeat(16)), ..Tally::default() };
        assert!(!Word::Done(tally).is_sound());
    }
}
