//! What a job is made of, whether it came from a file or the command line.

use gridmpi_bootstrap::env::LEAST_RATE;
use gridmpi_bootstrap::{ClusterName, LinkInfo, NetworkInfo, Pacing};
use gridmpi_report::units::format_rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Says what is wrong with a rate that is too low, and that is called `name`.
pub(crate) fn check_rate(name: &str, rate: u64) -> Result<(), String> {
    if rate >= LEAST_RATE {
        return Ok(());
    }
    let (rate, least) = (format_rate(rate as f64), format_rate(LEAST_RATE as f64));
    Err(format!("{name}, {rate}, is too low for a job to get on: it must be at least {least}"))
}

/// A whole job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// The clusters; ranks of `MPI_COMM_WORLD` count through them in this order.
    pub clusters: Vec<ClusterSpec>,
    /// What is known about the paths between them.
    pub links: Vec<LinkInfo>,
    /// Paths that are to be measured before the job starts.
    pub measure: Vec<[u16; 2]>,
    /// How what crosses them is held back.
    pub pacing: Option<Pacing>,
    /// How long a lost connection is tried to be made again.
    pub reconnect: Option<Duration>,
    /// Whether connections between clusters use TLS; they do unless this says otherwise.
    pub tls: Option<bool>,
    /// What each node may send to each other cluster, bits per second, where a cluster has no rate of its own.
    pub matb: Option<u64>,
    /// How many connections two processes of different clusters may have at a time.
    pub connections: Option<u32>,
    /// Whether processes use relays that the job does not name; they do unless this says otherwise.
    pub new_relays: Option<bool>,
    /// Program and arguments of every cluster that names none of its own.
    pub command: Vec<String>,
    /// Variables for the ranks of every cluster.
    pub env: BTreeMap<String, String>,
    /// How long clusters wait for each other.
    pub wait: Option<Duration>,
    /// How long the job may run.
    pub timeout: Option<Duration>,
    /// Where the coordinator listens, as `address:port`.
    pub listen: Option<String>,
    /// Relays through which clusters reach the coordinator, as `host:port`.
    pub relays: Vec<String>,
    /// The file with the relays' token, where a cluster has none of its own.
    pub relay_token: Option<PathBuf>,
}

impl JobSpec {
    /// What the ranks are told of the network.
    #[must_use]
    pub fn network(&self) -> NetworkInfo {
        let interfaces = self.clusters.iter().map(|cluster| cluster.interface_bandwidth);
        NetworkInfo {
            links: self.links.clone(),
            interfaces: interfaces.collect(),
            uplinks: self.clusters.iter().map(|cluster| cluster.uplink_bandwidth).collect(),
            pacing: self.pacing,
            tls: self.tls,
            reconnect_s: self.reconnect.map(|reconnect| reconnect.as_secs().max(1)),
            matb: self.clusters.iter().map(|cluster| self.matb(cluster)).collect(),
            connections: self.connections,
            new_relays: self.new_relays,
        }
    }

    /// What each node of a cluster may send to each other cluster, as far as the job file settles it.
    #[must_use]
    pub fn matb(&self, cluster: &ClusterSpec) -> Option<u64> {
        cluster.matb.or(self.matb)
    }

    /// Two clusters between which the bandwidth is not known, and that have no rate of their own, if there are.
    #[must_use]
    pub fn unknown_link(&self) -> Option<(&ClusterName, &ClusterName)> {
        let is_held = |cluster: usize| self.matb(&self.clusters[cluster]).is_some();
        let is_known = |a, b| {
            let is_it = |link: &LinkInfo| link.bandwidth_bits_per_s.is_some() && link.joins(a, b);
            let has_uplink = |at: usize| self.clusters[at].uplink_bandwidth.is_some();
            (is_held(a) && is_held(b))
                || has_uplink(a)
                || has_uplink(b)
                || self.links.iter().any(is_it)
        };
        let mut pairs = (0..self.clusters.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let (a, b) = pairs.find(|&(a, b)| !is_known(a, b))?;
        Some((&self.clusters[a].name, &self.clusters[b].name))
    }
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Its name.
    pub name: ClusterName,
    /// How its ranks are started.
    pub launcher: Launcher,
    /// Number of ranks; `None` leaves it to the launcher.
    pub ranks: Option<u32>,
    /// More arguments for the launcher, before the program.
    pub launcher_args: Vec<String>,
    /// What kind of launcher it is, where its `--version` does not tell.
    pub style: Option<Style>,
    /// Nodes to run on; empty leaves it to the launcher.
    pub hosts: Vec<String>,
    /// Ranks on each of `hosts`.
    pub ranks_per_host: Option<u32>,
    /// A program used like ssh to reach `hosts`.
    pub remote_shell: Option<String>,
    /// `user@host` on which the launcher is run, by ssh.
    pub head: Option<String>,
    /// The command `gridmpi` on `head`.
    pub head_gridmpi: Option<String>,
    /// Working directory.
    pub directory: Option<PathBuf>,
    /// Variables for its ranks.
    pub env: BTreeMap<String, String>,
    /// The interface or network towards the wide area.
    pub interface: Option<String>,
    /// What that carries on each node, bits per second.
    #[serde(default)]
    pub interface_bandwidth: Option<u64>,
    /// What all its links carry together, each way, bits per second.
    #[serde(default)]
    pub uplink_bandwidth: Option<u64>,
    /// What each of its nodes may send to each other cluster, bits per second.
    #[serde(default)]
    pub matb: Option<u64>,
    /// The relays that its nodes use, as `host:port`.
    #[serde(default)]
    pub relays: Vec<String>,
    /// The file with their token, on the machine of `gridmpi run`.
    #[serde(default)]
    pub relay_token: Option<PathBuf>,
    /// Program of its own.
    pub program: Option<String>,
    /// Arguments of its own.
    pub args: Option<Vec<String>>,
    /// Family of the program's MPI, where the program does not tell.
    pub mpi: Option<Family>,
}

/// How a cluster is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launcher {
    /// By the user, through `gridmpi join`.
    Join,
    /// By this command; words after the first are arguments.
    Command(Vec<String>),
}

/// Kinds of launchers, by the options they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// MPICH's and Intel's mpiexec.
    Hydra,
    /// Open MPI's mpiexec up to release 4 (ORTE).
    OpenMpi4,
    /// Open MPI's mpiexec from release 5 on (PRRTE).
    OpenMpi5,
    /// Slurm's srun.
    Srun,
}

/// MPIs that share one binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// MPICH, Intel MPI, MVAPICH and others of the MPICH ABI initiative.
    Mpich,
    /// Open MPI.
    OpenMpi,
}

impl ClusterSpec {
    /// A cluster with nothing but a name and a launcher.
    #[must_use]
    pub fn new(name: ClusterName, launcher: Launcher) -> Self {
        Self {
            name,
            launcher,
            ranks: None,
            launcher_args: Vec::new(),
            style: None,
            hosts: Vec::new(),
            ranks_per_host: None,
            remote_shell: None,
            head: None,
            head_gridmpi: None,
            directory: None,
            env: BTreeMap::new(),
            interface: None,
            interface_bandwidth: None,
            uplink_bandwidth: None,
            matb: None,
            relays: Vec::new(),
            relay_token: None,
            program: None,
            args: None,
            mpi: None,
        }
    }

    /// Number of ranks as far as the job file settles it.
    #[must_use]
    pub fn rank_count(&self) -> Option<u32> {
        let hosts = u32::try_from(self.hosts.len()).ok().filter(|hosts| *hosts > 0);
        self.ranks.or_else(|| hosts?.checked_mul(self.ranks_per_host.unwrap_or(1)))
    }

    /// The hosts that get ranks, and how many each, as far as the job file settles it: evenly, unless it says how many.
    #[must_use]
    pub fn spread(&self) -> Vec<(&str, Option<u32>)> {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let each = |index: u32| match (self.ranks_per_host, self.ranks) {
            (Some(each), _) => Some(each),
            (None, Some(ranks)) => Some(ranks / hosts + u32::from(index < ranks % hosts)),
            (None, None) => None,
        };
        let all = self.hosts.iter().zip(0..).map(|(host, index)| (host.as_str(), each(index)));
        all.filter(|(_, ranks)| *ranks != Some(0)).collect()
    }

    /// What is said of a cluster that joins, and that nobody would heed, as whoever starts it says it: keys of the job file.
    #[must_use]
    pub fn unheeded(&self) -> Vec<&'static str> {
        let said = [
            ("head", self.head.is_some()),
            ("hosts", !self.hosts.is_empty()),
            ("launcher_args", !self.launcher_args.is_empty()),
            ("remote_shell", self.remote_shell.is_some()),
            ("directory", self.directory.is_some()),
            ("env", !self.env.is_empty()),
            ("program", self.program.is_some()),
            ("args", self.args.is_some()),
            ("style", self.style.is_some()),
            ("mpi", self.mpi.is_some()),
        ];
        let joins = self.launcher == Launcher::Join;
        said.into_iter().filter(|(_, is_said)| joins && *is_said).map(|(key, _)| key).collect()
    }

    /// Program and arguments of this cluster, `default` being the job's.
    #[must_use]
    pub fn command(&self, default: &[String]) -> Vec<String> {
        // Arguments are none without a program, and must not be taken for one.
        let Some(program) = self.program.as_ref().or(default.first()) else { return Vec::new() };
        let args = self.args.clone().unwrap_or_else(|| default.iter().skip(1).cloned().collect());
        [program.clone()].into_iter().chain(args).collect()
    }
}

impl Style {
    /// The family of MPIs this launcher belongs to; `None` where it starts any.
    #[must_use]
    pub const fn family(self) -> Option<Family> {
        match self {
            Self::Hydra => Some(Family::Mpich),
            Self::OpenMpi4 | Self::OpenMpi5 => Some(Family::OpenMpi),
            Self::Srun => None,
        }
    }

    /// Names accepted in job files and on the command line.
    pub const NAMES: [&str; 4] = ["hydra", "openmpi4", "openmpi5", "srun"];

    /// Reads one of [`Style::NAMES`].
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "hydra" => Some(Self::Hydra),
            "openmpi4" => Some(Self::OpenMpi4),
            "openmpi5" => Some(Self::OpenMpi5),
            "srun" => Some(Self::Srun),
            _ => None,
        }
    }
}

impl Family {
    /// Names accepted in job files and on the command line.
    pub const NAMES: [&str; 2] = ["mpich", "openmpi"];

    /// Reads one of [`Family::NAMES`].
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "mpich" => Some(Self::Mpich),
            "openmpi" => Some(Self::OpenMpi),
            _ => None,
        }
    }

    /// Part of the preloaded library's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "the MPICH family",
            Self::OpenMpi => "Open MPI",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterSpec {
        ClusterSpec::new(ClusterName::new("a").unwrap(), Launcher::Join)
    }

    fn on(ranks: [Option<u32>; 3]) -> Vec<(&'static str, Option<u32>)> {
        ["x", "y", "z"].into_iter().zip(ranks).collect()
    }

    #[test]
    fn counts_follow_from_what_is_stated() {
        let mut spec = cluster();
        assert_eq!((spec.rank_count(), spec.spread()), (None, Vec::new()));
        spec.hosts = vec!["x".into(), "y".into(), "z".into()];
        assert_eq!((spec.rank_count(), spec.spread()), (Some(3), on([None; 3])));
        spec.ranks_per_host = Some(2);
        assert_eq!((spec.rank_count(), spec.spread()), (Some(6), on([Some(2); 3])));
        spec.ranks_per_host = None;
        for (ranks, each) in [(4, [2, 1, 1]), (5, [2, 2, 1]), (6, [2, 2, 2]), (7, [3, 2, 2])] {
            spec.ranks = Some(ranks);
            assert_eq!((spec.rank_count(), spec.spread()), (Some(ranks), on(each.map(Some))));
        }
        spec.ranks = Some(2);
        assert_eq!(spec.spread(), [("x", Some(1)), ("y", Some(1))]);
    }

    #[test]
    fn rates_with_which_a_job_would_stand_still_are_named() {
        assert_eq!(check_rate("x", LEAST_RATE), Ok(()));
        let said = check_rate("x", LEAST_RATE - 1).unwrap_err();
        assert!(said.starts_with("x, 99.999 kbit/s, is") && said.ends_with("100 kbit/s"), "{said}");
    }

    #[test]
    fn a_link_without_bandwidth_is_found() {
        let named = |name| ClusterSpec::new(ClusterName::new(name).unwrap(), Launcher::Join);
        let link = |between, bandwidth_bits_per_s| LinkInfo {
            between,
            bandwidth_bits_per_s,
            delay_us: None,
            via: None,
            dial: None,
        };
        let mut spec =
            JobSpec { clusters: ["a", "b", "c"].map(named).into(), ..JobSpec::default() };
        let names = |spec: &JobSpec| spec.unknown_link().map(|(a, b)| format!("{a}{b}"));
        spec.links = vec![link([1, 0], Some(1)), link([0, 2], None), link([1, 2], Some(1))];
        assert_eq!(names(&spec).as_deref(), Some("ac"));
        spec.links[1].bandwidth_bits_per_s = Some(1);
        assert_eq!(names(&spec), None);
        spec.links[1].bandwidth_bits_per_s = None;
        spec.clusters[2].uplink_bandwidth = Some(1);
        assert_eq!(names(&spec), None);
        spec.clusters[2].uplink_bandwidth = None;
        spec.clusters[0].matb = Some(1);
        assert_eq!(names(&spec).as_deref(), Some("ac"));
        spec.clusters[2].matb = Some(1);
        assert_eq!(names(&spec), None);
        spec.clusters.truncate(1);
        assert_eq!(names(&spec), None);
    }

    #[test]
    fn a_clusters_own_program_and_arguments_come_first() {
        let default = ["prog".to_owned(), "1".to_owned()];
        let mut spec = cluster();
        assert_eq!(spec.command(&default), ["prog", "1"]);
        spec.program = Some("other".into());
        assert_eq!(spec.command(&default), ["other", "1"]);
        spec.args = Some(vec!["2".into()]);
        assert_eq!(spec.command(&default), ["other", "2"]);
        spec.program = None;
        assert_eq!(spec.command(&default), ["prog", "2"]);
        assert!(spec.command(&[]).is_empty());
    }
}
