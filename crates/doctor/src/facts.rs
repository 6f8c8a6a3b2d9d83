//! What was seen, before anybody judges it. Much of it comes from other nodes: `is_sound` says whether it keeps to its bounds.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Longest text that a node may tell.
const MAX_TEXT: usize = 1000;
/// Most interfaces that are looked at.
pub(crate) const MAX_INTERFACES: usize = 256;
/// Most addresses of one interface.
pub(crate) const MAX_ADDRESSES: usize = 64;
const MAX_TOLD: usize = 16;
const MAX_SETTINGS: usize = 64;
const MAX_RELAYS: usize = 64;
const MAX_IDLE: usize = 16;

/// A node: which machine of which cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Its cluster.
    pub cluster: String,
    /// Its host name.
    pub host: String,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cluster.is_empty() {
            f.write_str(&self.host)
        } else {
            write!(f, "{}/{}", self.cluster, self.host)
        }
    }
}

/// Everything that was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Each machine by itself.
    pub machines: Vec<Machine>,
    /// What nodes see of each other, each direction for itself.
    pub paths: Vec<Path>,
    /// What nodes see of their relays.
    pub relays: Vec<RelayFact>,
    /// Circuits between nodes through relays.
    pub circuits: Vec<Circuit>,
    /// What a relay's host sees of the relays that it dials.
    pub peers: Vec<PeerFact>,
    /// What it sees of the relays that it tells processes of.
    pub beside: Vec<BesideFact>,
    /// What is said of, and was measured between, clusters.
    pub links: Vec<Link>,
    /// Relays at which the machine of the command waits for clusters that cannot come to it.
    #[serde(default)]
    pub job_relays: Vec<JobRelay>,
    /// What could not be looked at.
    pub troubles: Vec<Trouble>,
    /// Processes that the whole job has, if that is known.
    pub processes: Option<u32>,
}

/// A relay at which the machine of the command waits for clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRelay {
    /// Where it is.
    pub relay: SocketAddr,
    /// Why it cannot be used; none also while nothing is known.
    pub problem: Option<String>,
}

/// What could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Of which cluster, if of one.
    pub cluster: Option<String>,
    /// What happened.
    pub what: String,
    /// Addresses to which its nodes should have come.
    pub at: Vec<SocketAddr>,
    /// What to look at before anything else.
    #[serde(default)]
    pub hint: Option<String>,
}

/// Kinds of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `lo`.
    Loopback,
    /// A network card, or what looks like one.
    Card,
    /// A bridge of containers or virtual machines: its network exists on this machine only, and again on others.
    Containers,
    /// A tunnel or private network over others.
    Tunnel,
    /// InfiniBand.
    InfiniBand,
}

/// Who spaces packets out, where a rate holds a connection back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacedBy {
    /// TCP itself.
    Tcp,
    /// The `fq` discipline.
    Fq,
    /// The card, by what `fq` leaves to it.
    Card,
}

/// How an interface queues what leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queueing {
    /// The root discipline, as `tc` calls it.
    pub discipline: String,
    /// Who paces.
    pub paced_by: PacedBy,
}

/// An interface of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it is up.
    pub is_up: bool,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// What it says it carries, bit/s.
    pub speed: Option<u64>,
    /// How it queues what leaves, if the kernel says so.
    pub queueing: Option<Queueing>,
    /// Its own `rp_filter`: the kernel takes the larger of it and the one of all.
    #[serde(default)]
    pub reverse_path: Option<i64>,
    /// Its addresses and how many bits of each name the network.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// One machine by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Which.
    pub node: Node,
    /// Its kernel's run and its network namespace: the same for whoever has the same interfaces, and for nobody else.
    #[serde(default)]
    pub stack: Option<String>,
    /// The interface or network that the job names.
    pub wanted: Option<String>,
    /// The addresses that its processes tell others, in the order in which they are tried.
    pub told: Vec<SocketAddr>,
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// The kernel's settings, by their names for `sysctl`.
    pub settings: BTreeMap<String, String>,
    /// Open files a process may have: as it is, and as far as it may raise it itself.
    pub open_files: Option<(u64, u64)>,
    /// Bytes a process may lock; `None`: no limit.
    pub locked_memory: Option<u64>,
    /// Whether it has InfiniBand or another RDMA device.
    pub has_rdma: bool,
    /// Whether something keeps its clock right, if that can be told.
    pub clock_is_kept: Option<bool>,
    /// The congestion control that the user names.
    pub congestion: Option<String>,
    /// The tool by which its firewall is set.
    pub firewall: Option<String>,
}

/// Which way the kernel sends to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// By this interface.
    pub interface: Option<String>,
    /// To this router.
    pub gateway: Option<IpAddr>,
    /// From this address.
    pub source: Option<IpAddr>,
    /// With packets of at most so many bytes.
    pub mtu: Option<u32>,
}

/// What became of a connection to one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The node that was looked for.
    Reached,
    /// Nobody listens there, or a firewall says so.
    Refused,
    /// Nothing came back.
    Silent,
    /// There is no way there, as the kernel or a router says.
    NoWay(String),
    /// The kernel has a way there, and it is said at once that none is let through: by a firewall, or by a router with no way on.
    Rejected(String),
    /// It takes connections but says nothing.
    Mute,
    /// It is none of ours.
    Stranger(String),
    /// Another node of ours.
    Other(Node),
    /// The dialer itself.
    Oneself,
}

/// One address of a node, tried by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The address.
    pub address: SocketAddr,
    /// How it went.
    pub outcome: Outcome,
    /// The kernel's way there.
    pub route: Route,
}

/// What became of 32 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bulk {
    /// Crossed in so many microseconds, an answer included.
    Passed(u32),
    /// Did not arrive in time, though small messages did.
    Stalled,
    /// The connection broke.
    Broken(String),
}

/// What was seen on a connection that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// The far end.
    pub address: SocketAddr,
    /// Our end, as we see it.
    pub local: SocketAddr,
    /// Our end, as the far end sees it.
    pub seen: SocketAddr,
    /// Fastest round trip, microseconds.
    pub trip_us: u32,
    /// By how much the far clock is ahead of ours, microseconds.
    pub ahead_us: i64,
    /// How wrong that may be.
    pub ahead_error_us: u32,
    /// From here to there.
    pub outward: Bulk,
    /// From there to here.
    pub inward: Bulk,
    /// Largest packets that passed both ways, bytes; looked for only where something stalled.
    pub passing: Option<u32>,
    /// The largest packet that the kernel counts on here.
    pub path_mtu: Option<u32>,
    /// Congestion control of the connection here.
    pub congestion: Option<String>,
}

/// What one node sees of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Every address that the other tells, in its order.
    pub attempts: Vec<Attempt>,
    /// Of the first that leads there.
    pub depth: Option<Depth>,
}

/// A connection that was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// For so many seconds.
    pub seconds: u32,
    /// Whether it could be used afterwards.
    pub is_alive: bool,
}

/// What one node sees of another, with who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Who looks.
    pub from: Node,
    /// At whom.
    pub to: Node,
    /// What it sees.
    pub visit: Visit,
    /// Connections left alone.
    pub idle: Vec<Idle>,
}

/// Why a relay cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayProblem {
    /// Its name is not known.
    Name(String),
    /// Nothing answers there.
    Connect(String),
    /// It does not know our token, or we not its.
    Token,
    /// It does not take this job.
    NotAllowed,
    /// It does not know the other end, nor a relay that does.
    NoRoute,
    /// The other end does not come.
    Unanswered,
    /// Anything else that it says.
    Refused(String),
    /// The circuit stood, but the other end did not prove itself on it.
    Circuit(String),
    /// It stood, and small messages crossed it, but 32 KiB did not.
    Stalled,
}

/// A relay of a node's cluster, as the node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayFact {
    /// Who looks.
    pub node: Node,
    /// The relay's name.
    pub relay: String,
    /// Where that is.
    pub address: Option<SocketAddr>,
    /// The kernel's way there.
    pub route: Route,
    /// Round trip, microseconds.
    pub trip_us: Option<u32>,
    /// Why it cannot be used.
    pub problem: Option<RelayProblem>,
}

/// A circuit through one relay of the dialer's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuit {
    /// Who asks for it.
    pub from: Node,
    /// To whom.
    pub to: Node,
    /// At which relay.
    pub relay: String,
    /// Round trip, microseconds.
    pub trip_us: Option<u32>,
    /// Why there is none.
    pub problem: Option<RelayProblem>,
    /// Further ones there, left alone.
    #[serde(default)]
    pub idle: Vec<Idle>,
}

/// A relay that another one dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFact {
    /// The host of the one that dials.
    pub node: Node,
    /// What its settings call the other.
    pub peer: String,
    /// Where they say that it is.
    pub address: String,
    /// Where that is.
    pub at: Option<SocketAddr>,
    /// Round trip, microseconds.
    pub trip_us: Option<u32>,
    /// Why the two do not come together.
    pub problem: Option<PeerProblem>,
}

/// What keeps two relays from each other. Fingerprints as they are written in settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerProblem {
    /// Its name is not known here.
    Name(String),
    /// No connection.
    Connect(String),
    /// No TLS is spoken there.
    NoTls(String),
    /// It has another certificate than the settings say.
    OtherCertificate {
        /// Its own.
        theirs: String,
        /// What was expected.
        expected: String,
    },
    /// It does not know the dialer's certificate, which is this.
    Unknown(String),
}

/// A relay that another one tells processes of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideFact {
    /// The host of the one that tells.
    pub node: Node,
    /// Where the other is.
    pub at: SocketAddr,
    /// Round trip, microseconds.
    pub trip_us: Option<u32>,
    /// Why processes do not use it.
    pub problems: Vec<BesideProblem>,
}

/// What keeps processes from using a relay that they are told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BesideProblem {
    /// No connection.
    Connect(String),
    /// What is there is no relay.
    NoRelay(String),
    /// It is of another release.
    Release,
    /// It does not know a token of the one that tells, which this one calls so.
    Token(String),
    /// It is the one that tells.
    Own,
    /// The address is a loopback one, and not all processes are on that host.
    Loopback,
    /// The one that tells has no token, so that nobody is told.
    NoToken,
}

/// What was measured between two clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Of the lesser direction, bit/s, as job files have it.
    pub bandwidth: u64,
    /// Whether it is the link's own; else the link carries at least so much.
    pub is_links_own: bool,
    /// Part of the segments that were sent again, in thousandths, of the worse direction; unknown where relays sent them on.
    pub again_permille: Option<u32>,
}

/// Two clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Which.
    pub between: [String; 2],
    /// What the job file says, bit/s.
    pub bandwidth: Option<u64>,
    /// What it says, microseconds one way.
    pub delay_us: Option<u64>,
    /// The one that makes the connections, if only one can.
    pub dialler: Option<String>,
    /// What was measured.
    pub measured: Option<Measured>,
}

impl Trouble {
    /// Whether a cluster has not come.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        !self.at.is_empty()
    }
}

impl Link {
    /// Whether it joins the two.
    #[must_use]
    pub fn joins(&self, a: &str, b: &str) -> bool {
        let [x, y] = &self.between;
        (x == a && y == b) || (x == b && y == a)
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_TEXT
}

impl Node {
    fn is_sound(&self) -> bool {
        is_short(&self.cluster) && is_short(&self.host)
    }
}

impl Route {
    fn is_sound(&self) -> bool {
        self.interface.as_deref().is_none_or(is_short)
    }
}

impl Interface {
    /// What the kernel calls it: addresses may have labels of their own, such as `eth0:1`.
    #[must_use]
    pub fn device(&self) -> &str {
        self.name.split_once(':').map_or(&self.name, |(device, _)| device)
    }
}

impl Machine {
    /// Whether it keeps to the bounds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let interface = |one: &Interface| {
            is_short(&one.name)
                && one.addresses.len() <= MAX_ADDRESSES
                && one.queueing.as_ref().is_none_or(|queueing| is_short(&queueing.discipline))
        };
        self.node.is_sound()
            && self.told.len() <= MAX_TOLD
            && self.interfaces.len() <= MAX_INTERFACES
            && self.interfaces.iter().all(interface)
            && self.settings.len() <= MAX_SETTINGS
            && self.settings.iter().all(|(name, value)| is_short(name) && is_short(value))
            && [&self.stack, &self.wanted, &self.congestion, &self.firewall]
                .into_iter()
                .all(|text| text.as_deref().is_none_or(is_short))
    }

    /// Whether both have the same interfaces. Machines at two sites may have one host name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.stack, &other.stack) {
            (Some(own), Some(others)) => own == others,
            _ => self.node.host == other.node.host,
        }
    }

    /// The interface that has an address.
    #[must_use]
    pub fn with(&self, ip: IpAddr) -> Option<&Interface> {
        let has = |one: &&Interface| one.addresses.iter().any(|(own, _)| *own == ip);
        self.interfaces.iter().find(has)
    }

    /// A setting of the kernel's, by its name for `sysctl`; empty where that is not known.
    #[must_use]
    pub fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    /// A setting that is one number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.settings.get(name)?.parse().ok()
    }

    /// The last number of a setting that is several, such as `net.ipv4.tcp_rmem`.
    #[must_use]
    pub fn last_number(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.split_whitespace().last()?.parse().ok()
    }
}

impl Outcome {
    fn is_sound(&self) -> bool {
        match self {
            Self::NoWay(text) | Self::Rejected(text) | Self::Stranger(text) => is_short(text),
            Self::Other(node) => node.is_sound(),
            _ => true,
        }
    }
}

impl Bulk {
    fn is_sound(&self) -> bool {
        !matches!(self, Self::Broken(text) if !is_short(text))
    }
}

impl Visit {
    /// Whether it keeps to the bounds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let attempt = |one: &Attempt| one.outcome.is_sound() && one.route.is_sound();
        let depth = |depth: &Depth| {
            depth.outward.is_sound()
                && depth.inward.is_sound()
                && depth.congestion.as_deref().is_none_or(is_short)
        };
        self.attempts.len() <= MAX_TOLD
            && self.attempts.iter().all(attempt)
            && self.depth.as_ref().is_none_or(depth)
    }
}

impl fmt::Display for RelayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoute => "no route",
            Self::Unanswered => "no answer from the other end",
            Self::Token => "another token",
            Self::NotAllowed => "not allowed for this job",
            Self::Stalled => "32 KiB did not arrive, small messages do",
            Self::Name(why) | Self::Connect(why) | Self::Refused(why) | Self::Circuit(why) => why,
        })
    }
}

impl RelayProblem {
    fn is_sound(&self) -> bool {
        match self {
            Self::Name(text) | Self::Connect(text) | Self::Refused(text) | Self::Circuit(text) => {
                is_short(text)
            }
            _ => true,
        }
    }
}

impl RelayFact {
    /// Whether these keep to the bounds.
    #[must_use]
    pub fn are_sound(all: &[Self]) -> bool {
        let one = |fact: &Self| {
            fact.node.is_sound()
                && is_short(&fact.relay)
                && fact.route.is_sound()
                && fact.problem.as_ref().is_none_or(RelayProblem::is_sound)
        };
        all.len() <= MAX_RELAYS && all.iter().all(one)
    }
}

impl Circuit {
    /// Whether these keep to the bounds.
    #[must_use]
    pub fn are_sound(all: &[Self]) -> bool {
        let one = |circuit: &Self| {
            circuit.from.is_sound()
                && circuit.to.is_sound()
                && is_short(&circuit.relay)
                && circuit.problem.as_ref().is_none_or(RelayProblem::is_sound)
                && Idle::are_sound(&circuit.idle)
        };
        all.len() <= MAX_RELAYS && all.iter().all(one)
    }
}

impl Idle {
    /// Whether these keep to the bounds.
    #[must_use]
    pub fn are_sound(all: &[Self]) -> bool {
        all.len() <= MAX_IDLE
    }
}
