//! Where programs run: labs of two clusters, which live no longer than this process.

use crate::error::BenchError;
use crate::process::{self, Running, Said};
use crate::programs::Mpi;
use gridmpi_lab::spec::{LoadError, Spec};
use gridmpi_lab::state::LabDir;
use gridmpi_lab::up::{self, Lifeline};
use gridmpi_lab::{error::LabError, plan};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The interface towards the other cluster.
pub const INTERFACE: &str = "eth1";
/// Of relays on gateways.
pub const RELAY_PORT: u16 = 7118;
/// The host that private clusters reach.
const PUBLIC: &str = "pub";

/// The path between the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A virtual cable.
    Plain,
    /// A virtual cable, and interfaces of 160 Mbit/s: a slow path that costs no processor time.
    Shaped,
    /// 10 ms one way and 160 Mbit/s.
    Slow,
    /// 10 ms one way, as fast as the emulator carries.
    Fast,
    /// A virtual cable, and interfaces of 1 Gbit/s.
    Gigabit,
    /// Several nodes in each cluster.
    Site(Site),
    /// Clusters behind gateways.
    Gateways(Gateways),
}

/// Two private clusters of one node each, behind gateways with interfaces of 20 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateways {
    /// Of each cluster.
    pub gateways: u32,
    /// Between the clusters, one way, ms.
    pub delay_ms: u32,
}

impl Gateways {
    fn text(self) -> String {
        let Self { gateways, delay_ms } = self;
        let cluster = |name: &str| {
            format!(
                "[[cluster]]\nname = \"{name}\"\nnodes = 1\nprivate = true\ngateways = {gateways}\nnat = true\n\
                 gateway_interface = \"20 Mbit/s\"\nfirewall = \"open\"\n"
            )
        };
        let link = |between: &str, how: &str| format!("[[link]]\nbetween = {between}\n{how}\n");
        let wide = match delay_ms {
            0 => "emulate = false".to_owned(),
            delay => format!("delay = \"{delay} ms\""),
        };
        let links = link("[\"a\", \"b\"]", &wide)
            + &link("[\"a\", \"pub\"]", "emulate = false")
            + &link("[\"b\", \"pub\"]", "emulate = false");
        format!("{}{}[[host]]\nname = \"{PUBLIC}\"\n{links}", cluster("a"), cluster("b"))
    }
}

/// How seldom packets of a link wake a node: cards of 1 Gbit/s and less do no other. For each packet by itself, the two processors that carry 16 nodes and the
/// link are busy with little else.
const COALESCE: &str = "100 us";

/// Two clusters of nodes with an interface each, and the link between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Nodes in each.
    pub nodes: u32,
    /// Rate of a node's interface, Mbit/s; none: no limit.
    pub interface_mbit: Option<u32>,
    /// Bandwidth of the link, Mbit/s.
    pub link_mbit: u32,
    /// One way, ms.
    pub delay_ms: u32,
    /// The link's buffer, KiB.
    pub buffer_kib: u32,
    /// The buffer in front of each node, KiB, if what comes in is limited, too.
    pub inlet_kib: Option<u32>,
    /// Whether the arrival of each frame is recorded.
    pub records_frames: bool,
}

impl Site {
    fn text(&self) -> String {
        let Self {
            nodes,
            interface_mbit,
            link_mbit,
            delay_ms,
            buffer_kib,
            inlet_kib,
            records_frames,
        } = self;
        let inlet = inlet_kib
            .map_or_else(String::new, |size| format!("interface_buffer = \"{size} KiB\"\n"));
        let interface = interface_mbit
            .map_or_else(String::new, |rate| format!("interface = \"{rate} Mbit/s\"\n"));
        let cluster = |name: &str| {
            format!("[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n{interface}{inlet}")
        };
        format!(
            "arrivals = {records_frames}\n{}{}[[link]]\nbandwidth = \"{link_mbit} Mbit/s\"\ndelay = \"{delay_ms} ms\"\n\
             coalesce = \"{COALESCE}\"\n\
             buffer = \"{buffer_kib} KiB\"\n[tcp]\ncongestion = \"cubic\"\n",
            cluster("a"),
            cluster("b")
        )
    }
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Shaped => "shaped",
            Self::Slow => "slow",
            Self::Fast => "fast",
            Self::Gigabit => "gigabit",
            Self::Site(_) => "site",
            Self::Gateways(_) => "gateways",
        }
    }

    fn text(self) -> String {
        let (interface, link) = match self {
            Self::Plain => ("", "emulate = false"),
            Self::Shaped => ("interface = \"160 Mbit/s\"\n", "emulate = false"),
            Self::Slow => ("", "delay = \"10 ms\"\nbandwidth = \"160 Mbit/s\""),
            Self::Fast => ("", "delay = \"10 ms\""),
            Self::Gigabit => ("interface = \"1 Gbit/s\"\n", "emulate = false"),
            Self::Site(site) => return site.text(),
            Self::Gateways(site) => return site.text(),
        };
        let cluster =
            |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n{interface}");
        let gso = self != Self::Slow;
        format!("gso = {gso}\n{}{}[[link]]\n{link}\n", cluster("a"), cluster("b"))
    }

    /// What a lab of this name with this path is made of.
    ///
    /// # Errors
    /// It makes no lab.
    pub(crate) fn spec(self, name: &str) -> Result<Spec, BenchError> {
        let parsed = Spec::parse(&self.text(), "the bench's lab", name);
        let spec = parsed.map_err(|error| LabError::Load(LoadError::Spec(error)))?;
        Ok(Spec { name: name.to_owned(), ..spec })
    }
}

/// A lab of two clusters: nodes `a1` …, `b1` … It goes down when this is dropped.
#[derive(Debug)]
pub struct Lab {
    directory: LabDir,
    spec: Spec,
    lifeline: Option<Lifeline>,
}

impl Lab {
    /// Brings it up.
    ///
    /// # Errors
    /// The system does not allow it, or a tool is missing.
    pub fn up(path: Route) -> Result<Self, BenchError> {
        let name = format!("bench-{}-{}", std::process::id(), path.name());
        let spec = path.spec(&name)?;
        let (directory, lifeline) = up::up_bound(&spec)?;
        Ok(Self { directory, spec, lifeline: Some(lifeline) })
    }

    /// A node's address towards the other cluster.
    #[must_use]
    pub fn wide_address(&self, node: &str) -> String {
        let nodes = plan::nodes(&self.spec);
        let found = nodes.iter().find(|known| known.name == node);
        let address = found.and_then(plan::Node::wan);
        address.map_or_else(String::new, |address| address.to_string())
    }

    /// Starts a command on a node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start<S: AsRef<OsStr>>(&self, node: &str, command: &[S]) -> Result<Running, BenchError> {
        let name = command.first().map_or("", |word| word.as_ref().to_str().unwrap_or("it"));
        let short = Path::new(name).file_name().and_then(OsStr::to_str).unwrap_or(name);
        process::start(short, self.command(node)?.args(command))
    }

    /// Runs a command on a node to its end.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        node: &str,
        command: &[S],
        until: Instant,
    ) -> Result<Said, BenchError> {
        self.start(node, command)?.finish(until)
    }

    fn command(&self, node: &str) -> Result<Command, BenchError> {
        let mut command = Command::new(own_program()?);
        command.args(["lab", "exec", "--name", &self.directory.name(), node, "--"]);
        Ok(command)
    }

    /// Runs an MPI program over both clusters, with so many ranks in each.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn job(&self, job: &Job<'_>, until: Instant) -> Result<Said, BenchError> {
        self.start_job(job)?.finish(until)
    }

    /// Starts one.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_job(&self, job: &Job<'_>) -> Result<Running, BenchError> {
        let text = self.job_file(job);
        fs::write(job.file, text).map_err(|error| {
            let what = format!("cannot write {}", job.file.display());
            BenchError::File { what, error }
        })?;
        let gridmpi = own_program()?;
        let (run, dashes) = (OsStr::new("run"), OsStr::new("--"));
        let settings: Vec<_> =
            job.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut command = vec![OsStr::new("env")];
        command.extend(settings.iter().map(OsStr::new));
        command.extend([gridmpi.as_os_str(), run, job.file.as_os_str(), dashes]);
        command.push(job.program.as_os_str());
        command.extend(job.arguments.iter().map(OsStr::new));
        // Private clusters cannot be reached from anywhere, and reach only a public host.
        self.start(if job.relayed.is_some() { PUBLIC } else { plan::HEAD }, &command)
    }

    fn job_file(&self, job: &Job<'_>) -> String {
        let nodes = plan::nodes(&self.spec);
        let token = |relayed: Relayed<'_>| format!("[job]\nrelay_token = {:?}\n", relayed.token);
        let mut text = job.relayed.map_or_else(String::new, token);
        for (index, cluster) in self.spec.clusters.iter().enumerate() {
            let is_here =
                |node: &&plan::Node| node.cluster == index && node.role == plan::Role::Node;
            let mine = nodes.iter().filter(is_here);
            let addresses = mine.filter_map(plan::Node::lan);
            let hosts: Vec<_> = addresses.map(|address| address.to_string()).collect();
            let ranks = job.ranks[index.min(1)];
            let each = (ranks as usize).div_ceil(hosts.len().max(1)).max(1);
            text += &format!(
                "[[cluster]]\nname = \"{}\"\nlauncher = \"{}\"\nlauncher_args = {:?}\n\
                 ranks = {ranks}\nranks_per_host = {each}\nhosts = {hosts:?}\n\
                 remote_shell = \"lab-ssh\"\n{}{}{}[cluster.env]\n",
                cluster.name,
                job.mpi.launcher,
                launcher_arguments(job.mpi, index, hosts.len()),
                self.ways_out(index, &cluster.name),
                job.directory.map_or_else(String::new, |path| format!("directory = {path:?}\n")),
                self.own_interface(index)
                    .filter(|_| job.stated.has_interfaces)
                    .map_or_else(String::new, |rate| {
                        format!("interface_bandwidth = \"{rate} bit/s\"\n")
                    }),
            );
            if hosts.len() > 1 {
                let variables = job.mpi.variables.iter();
                variables.for_each(|(name, value)| text += &format!("{name} = \"{value}\"\n"));
            }
            job.variables.iter().for_each(|(name, value)| text += &format!("{name} = {value:?}\n"));
        }
        for link in &self.spec.links {
            let Some(bandwidth) = link.bandwidth else { continue };
            let bandwidth =
                job.stated.bandwidth_mbit.map_or(bandwidth, |mbit| u64::from(mbit) * 1_000_000);
            let [a, b] = [link.between.0, link.between.1].map(|c| &self.spec.clusters[c].name);
            text += &format!(
                "[[link]]\nbetween = [\"{a}\", \"{b}\"]\nbandwidth = \"{bandwidth} bit/s\"\n"
            );
        }
        text
    }

    /// Rate of the nodes' interfaces towards the other cluster; private clusters' rate is their gateways'.
    fn own_interface(&self, index: usize) -> Option<u64> {
        let cluster = self.spec.clusters.get(index)?;
        cluster.interface.filter(|_| cluster.private.is_none())
    }

    /// What a cluster's processes use to reach the other.
    fn ways_out(&self, index: usize, name: &str) -> String {
        if self.spec.private(index).is_none() {
            return format!("interface = \"{INTERFACE}\"\n");
        }
        let nodes = plan::nodes(&self.spec);
        let is_gateway =
            |node: &&plan::Node| node.cluster == index && node.role == plan::Role::Gateway;
        let relay = |node: &plan::Node| format!("{}:{RELAY_PORT}", node.name);
        let relays: Vec<_> = nodes.iter().filter(is_gateway).map(relay).collect();
        format!(
            "interface = \"eth0\"\nhead = \"{}\"\nrelays = {relays:?}\n",
            plan::cluster_head(name)
        )
    }

    /// Where the lab keeps what it has seen.
    pub(crate) fn directory(&self) -> &LabDir {
        &self.directory
    }

    /// What it is made of.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Runs an MPI program on the first node by the vendor alone.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn alone(&self, job: &Job<'_>, until: Instant) -> Result<Said, BenchError> {
        let ranks = job.ranks[0].to_string();
        let mut command = vec![OsStr::new(job.mpi.launcher.as_ref())];
        command.extend(job.mpi.arguments.iter().map(OsStr::new));
        command.extend([OsStr::new("-n"), OsStr::new(&ranks), job.program.as_os_str()]);
        command.extend(job.arguments.iter().map(OsStr::new));
        self.run("a1", &command, until)
    }

    /// Runs an MPI program by the vendor alone with a rank on each node of all clusters, by their interfaces towards each other.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn flat(
        &self,
        mpi: &Mpi,
        program: &Path,
        arguments: &[String],
        until: Instant,
    ) -> Result<Said, BenchError> {
        let nodes = plan::nodes(&self.spec);
        let ranks = nodes.iter().filter(|node| node.role == plan::Role::Node);
        let hosts: Vec<_> = ranks.filter_map(plan::Node::wan).map(|wan| wan.to_string()).collect();
        let mut command = vec![mpi.launcher.to_string(), "-n".to_owned(), hosts.len().to_string()];
        command.extend(["--host".to_owned(), hosts.join(",")]);
        command.extend(["--mca", "plm_rsh_agent", "lab-ssh"].map(str::to_owned));
        command.extend(over_nodes(mpi, gridmpi_lab::private::WIDE_AREA));
        for (name, value) in mpi.variables {
            command.extend(["-x".to_owned(), format!("{name}={value}")]);
        }
        command.push(program.display().to_string());
        command.extend(arguments.iter().cloned());
        self.run("a1", &command, until)
    }
}

/// An MPI program and how it is started.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Whose it is.
    pub mpi: &'a Mpi,
    /// Where the job file may be written.
    pub file: &'a Path,
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Ranks in each cluster.
    pub ranks: [u32; 2],
    /// Settings of the library.
    pub settings: &'a [(&'a str, &'a str)],
    /// What its job file says of the network.
    pub stated: Stated,
    /// Variables for its ranks.
    pub variables: &'a [(&'a str, String)],
    /// Where its ranks run; none: here.
    pub directory: Option<&'a Path>,
    /// Whether private clusters meet through the relays on their gateways.
    pub relayed: Option<Relayed<'a>>,
}

/// What a job file says of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// What the links carry, Mbit/s, which they need not; none: what they do.
    pub bandwidth_mbit: Option<u32>,
    /// Whether it says what the interfaces carry.
    pub has_interfaces: bool,
}

impl Stated {
    /// All, as it is.
    pub const ALL: Self = Self { bandwidth_mbit: None, has_interfaces: true };
}

/// How a job's processes use relays.
#[derive(Clone, Copy, Debug)]
pub struct Relayed<'a> {
    /// The relays' token.
    pub token: &'a Path,
}

/// What the launcher is told in the lab's cluster `index` of so many nodes.
fn launcher_arguments(mpi: &Mpi, index: usize, nodes: usize) -> Vec<String> {
    if nodes > 1 {
        // Inside the cluster, counted from 1 (docs/lab.md).
        return over_nodes(mpi, format!("10.{}.0.0/16", index + 1));
    }
    mpi.arguments.iter().map(|word| (*word).to_owned()).collect()
}

/// What the launcher is told where ranks reach each other by this network.
fn over_nodes(mpi: &Mpi, network: impl std::fmt::Display) -> Vec<String> {
    let words = mpi.over_nodes.unwrap_or_default().iter();
    words.map(|word| word.replace("{network}", &network.to_string())).collect()
}

pub(crate) fn own_program() -> Result<std::path::PathBuf, BenchError> {
    std::env::current_exe().map_err(|error| {
        let what = "cannot find this program's own file".to_owned();
        BenchError::File { what, error }
    })
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = up::down(&self.directory);
        // What could not be taken down in order goes with its lifeline.
        self.lifeline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_a_lab() {
        let site = Route::Site(Site {
            nodes: 1,
            interface_mbit: Some(50),
            link_mbit: 160,
            delay_ms: 0,
            buffer_kib: 64,
            inlet_kib: None,
            records_frames: true,
        });
        let gateways = Route::Gateways(Gateways { gateways: 8, delay_ms: 10 });
        let spec = Spec::parse(&gateways.text(), "t", "t").unwrap();
        assert!(spec.private(1).is_some() && spec.links[0].emulate && !spec.links[1].emulate);
        for path in [Route::Plain, Route::Shaped, Route::Slow, Route::Fast, Route::Gigabit, site] {
            let spec = Spec::parse(&path.text(), "t", "t").unwrap();
            assert_eq!(spec.clusters.len(), 2);
            assert_eq!(
                spec.links[0].emulate,
                !matches!(path, Route::Plain | Route::Shaped | Route::Gigabit)
            );
            assert_eq!(spec.gso, !matches!(path, Route::Slow | Route::Site(_)));
        }
    }
}
