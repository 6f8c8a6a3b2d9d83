//! What the clusters of a job tell each other.

use crate::secret::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Most processes one cluster may have; bounds what a peer can make us hold.
const MAX_PROCS: usize = 1 << 20;
const MAX_ADDRESSES: usize = 16;
const MAX_TEXT: usize = 255;
const MAX_NAME: usize = 64;

/// A value that breaks a bound of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub(crate) String);

/// A cluster's name: 1 to 64 letters, digits, `-`, `_` or `.`, not starting with `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

/// One process of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcInfo {
    /// Where it listens for the other clusters, in order of preference.
    pub addresses: Vec<SocketAddr>,
    /// The node it runs on.
    pub host: String,
    /// Its process identifier on that node.
    pub pid: u32,
}

/// Byte order of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// How a machine lays out C's types. Clusters of one job must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataModel {
    /// Byte order.
    pub endian: Endian,
    /// Bytes of `long`.
    pub long: u8,
    /// Bytes of a pointer.
    pub pointer: u8,
    /// Bytes of `long double`.
    pub long_double: u8,
}

/// What local rank 0 of a cluster says about its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The cluster's name in the job.
    pub cluster: ClusterName,
    /// Its processes, by rank in the cluster's own `MPI_COMM_WORLD`.
    pub procs: Vec<ProcInfo>,
    /// How its machines lay out data.
    pub data_model: DataModel,
    /// Its MPI, as `MPI_Get_library_version` names it (first line).
    pub vendor: String,
    /// Its `MPI_TAG_UB` (MPI 4.1 §9.1.2); the job's is the least of all.
    pub tag_ub: i32,
    /// Its setting `GRIDMPI_CREDIT`, bytes; the job's is the least of all.
    #[serde(default)]
    pub credit: Option<u64>,
    /// It has relays.
    #[serde(default)]
    pub has_relays: bool,
}

/// What the job file says about the path between two clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// Positions of the two clusters in the job's order.
    pub between: [u16; 2],
    /// Bits per second each way, if stated.
    pub bandwidth_bits_per_s: Option<u64>,
    /// One-way delay in microseconds, if stated.
    pub delay_us: Option<u64>,
    /// Which way it is, if stated.
    #[serde(default)]
    pub via: Option<Via>,
    /// The one of the two clusters whose processes make the connections, if only they can: its position.
    #[serde(default)]
    pub dial: Option<u16>,
}

/// How processes of two clusters reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// They connect to each other.
    Direct,
    /// Through relays of both clusters.
    Relays,
}

/// Whether what leaves for other clusters is held to a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pacing {
    /// As fast as may be.
    Off,
    /// Each node to an equal share of the link's bandwidth.
    Static,
    /// Those who send share links and interfaces, as they come and go.
    #[default]
    Auto,
}

/// What the job file says of the network, and how it is to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkInfo {
    /// What is known about the paths between the clusters.
    pub links: Vec<LinkInfo>,
    /// Bits per second of each node's interface towards the wide area, by cluster, if stated.
    pub interfaces: Vec<Option<u64>>,
    /// Bits per second that all of a cluster's links carry together, each way, by cluster, if stated.
    pub uplinks: Vec<Option<u64>>,
    /// How senders are held back, if stated.
    pub pacing: Option<Pacing>,
    /// What each node may send to each other cluster, bits per second, by cluster, if stated: nothing else counts then.
    pub matb: Vec<Option<u64>>,
    /// Seconds that a lost connection is tried to be made again, if stated.
    pub reconnect_s: Option<u64>,
    /// Whether connections between clusters use TLS, if stated.
    pub tls: Option<bool>,
    /// How many connections two processes of different clusters may have at a time, if stated: 1 to [`MOST_CONNECTIONS`].
    pub connections: Option<u32>,
    /// Whether processes use relays that the job does not name when relays tell of them, if stated.
    pub new_relays: Option<bool>,
}

impl Via {
    /// All, by name.
    pub const NAMES: [&str; 2] = ["direct", "relays"];

    /// The one with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "direct" => Some(Self::Direct),
            "relays" => Some(Self::Relays),
            _ => None,
        }
    }
}

/// Most connections that two processes may have at a time.
pub const MOST_CONNECTIONS: u32 = 16;

impl Pacing {
    /// All, by name.
    pub const NAMES: [&str; 3] = ["off", "static", "auto"];

    /// The one with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Off, Self::Static, Self::Auto].into_iter().find(|pacing| pacing.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Static => "static",
            Self::Auto => "auto",
        }
    }
}

impl NetworkInfo {
    /// How long a lost connection is tried to be made again, between processes and with `gridmpi run`.
    #[must_use]
    pub fn reconnect(&self) -> Duration {
        Duration::from_secs(self.reconnect_s.unwrap_or(60))
    }

    /// What the interface of each node of a cluster carries, if it is stated, bits per second.
    #[must_use]
    pub fn interface(&self, cluster: usize) -> Option<u64> {
        self.interfaces.get(cluster).copied().flatten()
    }

    /// What each node of a cluster may send to each other cluster, if it is stated, bits per second.
    #[must_use]
    pub fn matb(&self, cluster: usize) -> Option<u64> {
        self.matb.get(cluster).copied().flatten()
    }

    /// The bandwidth between two clusters, if it is known, bits per second.
    #[must_use]
    pub fn bandwidth(&self, one: usize, other: usize) -> Option<u64> {
        self.links.iter().find(|link| link.joins(one, other))?.bandwidth_bits_per_s
    }

    /// The bandwidth of a cluster's uplink, if it is known, bits per second.
    #[must_use]
    pub fn uplink(&self, cluster: usize) -> Option<u64> {
        self.uplinks.get(cluster).copied().flatten()
    }

    /// What gets from one cluster to another at most, if anything of it is known: by the link between them, and by the uplinks of both.
    #[must_use]
    pub fn carried(&self, one: usize, other: usize) -> Option<u64> {
        let necks = [self.bandwidth(one, other), self.uplink(one), self.uplink(other)];
        necks.into_iter().flatten().min()
    }
}

impl LinkInfo {
    /// Whether it is the path between these two clusters, by their positions, in either order.
    #[must_use]
    pub fn joins(&self, one: usize, other: usize) -> bool {
        let ends = self.between.map(usize::from);
        ends == [one, other] || ends == [other, one]
    }
}

/// Everything a process must know about its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTable {
    /// The job's identifier.
    pub job: [u8; 16],
    /// The clusters in the job's order: ranks of `MPI_COMM_WORLD` count through them.
    pub clusters: Vec<Registration>,
    /// What is known about the network between them.
    pub network: NetworkInfo,
}

impl ClusterName {
    /// Accepts `name` if it keeps to the rule above.
    ///
    /// # Errors
    /// Names the rule.
    pub fn new(name: impl Into<String>) -> Result<Self, ModelError> {
        let name = name.into();
        let ok = !name.is_empty()
            && name.len() <= MAX_NAME
            && !name.starts_with('-')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if ok {
            return Ok(Self(name));
        }
        let shown: String = name.chars().take(MAX_NAME).collect();
        Err(ModelError(format!(
            "{shown:?} is no cluster name: 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`"
        )))
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClusterName {
    type Error = ModelError;
    fn try_from(name: String) -> Result<Self, ModelError> {
        Self::new(name)
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DataModel {
    /// The model of the machine this was compiled for. Rust has no `long double`, so the caller,
    /// who knows the MPI's `MPI_LONG_DOUBLE`, says its size.
    #[must_use]
    pub const fn native(long_double: u8) -> Self {
        let endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
        let long = size_of::<std::ffi::c_long>() as u8;
        Self { endian, long, pointer: size_of::<usize>() as u8, long_double }
    }
}

impl fmt::Display for DataModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endian = match self.endian {
            Endian::Little => "little-endian",
            Endian::Big => "big-endian",
        };
        write!(
            f,
            "{endian}, long {} bytes, pointer {} bytes, long double {} bytes",
            self.long, self.pointer, self.long_double
        )
    }
}

impl Registration {
    /// Checks every bound of the protocol.
    ///
    /// # Errors
    /// Names the first value out of bounds.
    pub fn check(&self) -> Result<(), ModelError> {
        let wrong = |what: String| Err(ModelError(what));
        if self.procs.is_empty() || self.procs.len() > MAX_PROCS {
            return wrong(format!("{} processes (1 to {MAX_PROCS} allowed)", self.procs.len()));
        }
        if self.vendor.len() > MAX_TEXT {
            return wrong(format!("the MPI's name has {} bytes", self.vendor.len()));
        }
        if self.tag_ub < 32767 {
            return wrong(format!("MPI_TAG_UB {} is below 32767 (MPI 4.1 §9.1.2)", self.tag_ub));
        }
        self.procs.iter().enumerate().try_for_each(|(rank, proc)| proc.check(rank))
    }
}

impl ProcInfo {
    /// Leaves out the addresses that the protocol has no room for: the least preferred.
    pub(crate) fn fit(&mut self) {
        self.addresses.truncate(MAX_ADDRESSES);
    }

    fn check(&self, rank: usize) -> Result<(), ModelError> {
        if self.addresses.is_empty() || self.addresses.len() > MAX_ADDRESSES {
            let count = self.addresses.len();
            return Err(ModelError(format!(
                "rank {rank} has {count} addresses (1 to {MAX_ADDRESSES} allowed)"
            )));
        }
        if self.host.len() > MAX_TEXT {
            return Err(ModelError(format!("rank {rank}: host name too long")));
        }
        Ok(())
    }
}

impl JobTable {
    /// The job's identifier in its printable type.
    #[must_use]
    pub const fn job_id(&self) -> JobId {
        JobId(self.job)
    }

    /// Number of processes of the whole job.
    #[must_use]
    pub fn size(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.procs.len()).sum()
    }

    /// How processes of two clusters reach each other: as the job says, else through relays where both have some.
    #[must_use]
    pub fn via(&self, one: usize, other: usize) -> Via {
        let stated = self.network.links.iter().find(|link| link.joins(one, other));
        let said = |link: &LinkInfo| link.via.or(link.dial.map(|_| Via::Direct));
        stated.and_then(said).unwrap_or_else(|| {
            let has_relays = |at: usize| self.clusters.get(at).is_some_and(|it| it.has_relays);
            if has_relays(one) && has_relays(other) { Via::Relays } else { Via::Direct }
        })
    }

    /// Which of two clusters, that reach each other directly, makes the connections, if only that one can.
    #[must_use]
    pub fn dialler(&self, one: usize, other: usize) -> Option<usize> {
        let stated = self.network.links.iter().find(|link| link.joins(one, other));
        stated.and_then(|link| link.dial).map(usize::from)
    }

    /// Whether connections between clusters use TLS: unless the job says otherwise.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.network.tls.unwrap_or(true)
    }

    /// The job's `MPI_TAG_UB`: what every cluster's MPI can carry.
    #[must_use]
    pub fn tag_ub(&self) -> i32 {
        self.clusters.iter().map(|cluster| cluster.tag_ub).min().unwrap_or(32767)
    }

    /// Bytes of unexpected messages that a process may have at each other one, where a cluster has set it. Both ends
    /// of every stream start from the same number, so one counts for all.
    #[must_use]
    pub fn credit(&self) -> Option<u64> {
        self.clusters.iter().filter_map(|cluster| cluster.credit).min()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(cluster: &str, ranks: u32) -> Registration {
        let procs = (0..ranks)
            .map(|rank| ProcInfo {
                addresses: vec!["192.0.2.1:7000".parse().unwrap()],
                host: format!("{cluster}{rank}"),
                pid: 100 + rank,
            })
            .collect();
        Registration {
            cluster: ClusterName::new(cluster).unwrap(),
            procs,
            data_model: DataModel::native(16),
            vendor: "Test MPI 1".to_owned(),
            tag_ub: 1 << 28,
            credit: None,
            has_relays: false,
        }
    }

    #[test]
    fn names_keep_to_the_rule() {
        for good in ["a", "site-1", "x.y_z", &"n".repeat(64)] {
            assert!(ClusterName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a b", "a/b", "é", "a=b", &"n".repeat(65)] {
            assert!(ClusterName::new(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ClusterName>("\"a b\"").is_err());
    }

    #[test]
    fn the_least_credit_counts_for_all() {
        let mut table = JobTable {
            job: [0; 16],
            clusters: vec![sample("a", 1), sample("b", 1), sample("c", 1)],
            network: NetworkInfo::default(),
        };
        assert_eq!(table.credit(), None);
        (table.clusters[0].credit, table.clusters[2].credit) = (Some(1 << 20), Some(1 << 18));
        assert_eq!(table.credit(), Some(1 << 18));
    }

    #[test]
    fn relays_are_used_where_both_have_some_unless_the_job_says_otherwise() {
        let mut table = JobTable {
            job: [0; 16],
            clusters: vec![sample("a", 1), sample("b", 1), sample("c", 1)],
            network: NetworkInfo::default(),
        };
        (table.clusters[0].has_relays, table.clusters[2].has_relays) = (true, true);
        let via = |table: &JobTable| [(0, 1), (2, 0), (1, 2)].map(|(a, b)| table.via(a, b));
        assert_eq!(via(&table), [Via::Direct, Via::Relays, Via::Direct]);
        table.clusters[1].has_relays = true;
        let link = |between, via| LinkInfo {
            between,
            bandwidth_bits_per_s: None,
            delay_us: None,
            via,
            dial: None,
        };
        table.network.links = vec![link([0, 2], Some(Via::Direct)), link([1, 2], None)];
        assert_eq!(via(&table), [Via::Relays, Via::Direct, Via::Relays]);
        table.network.links = vec![LinkInfo { dial: Some(2), ..link([2, 0], None) }];
        assert_eq!(
            via(&table),
            [Via::Relays, Via::Direct, Via::Relays],
            "who dials needs no relay"
        );
        assert_eq!((table.dialler(0, 2), table.dialler(0, 1)), (Some(2), None));
    }

    #[test]
    fn bounds_of_a_registration_are_checked() {
        assert!(sample("a", 3).check().is_ok());
        assert!(sample("a", 0).check().is_err());
        let mut no_address = sample("a", 2);
        no_address.procs[1].addresses.clear();
        assert!(no_address.check().unwrap_err().to_string().contains("rank 1"));
        let mut small = sample("a", 1);
        small.tag_ub = 5;
        assert!(small.check().unwrap_err().to_string().contains("MPI_TAG_UB"));
    }
}
