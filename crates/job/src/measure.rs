//! Measures the links of a job before it starts: a node of `gridmpi probe` on every host, started by the clusters' own
//! launchers.

use crate::address::{self, ANYWHERE};
use crate::compose::Surroundings;
use crate::console::say;
use crate::crew::{Crew, Streams};
use crate::doctor::way;
use crate::head::{self, Description};
use crate::hidden::{NODE, NODES};
use crate::input::Input;
use crate::output::Sink;
use crate::relays;
use crate::resolve::{self, CommandLine};
use crate::run::own_interface;
use crate::spec::{ClusterSpec, JobSpec, Launcher};
use gridmpi_bootstrap::line::Pass;
use gridmpi_bootstrap::{
    ClusterName, JobEnv, LinkInfo, Listening, RelayAccess, RelayToken, Secret, Settings,
};
use gridmpi_probe::{Conductor, Gathering, Options, PathReport, Way};
use gridmpi_report::units::{format_duration, format_rate};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Launchers may take so long to start the nodes, unless the job says otherwise.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// People may take so long to start theirs, unless the job says otherwise: nodes that are there already are told to stay.
const WAIT_BY_HAND: Duration = Duration::from_secs(540);
/// And so long to end after them.
const END: Duration = Duration::from_secs(5);

/// Two clusters, by their positions.
pub type Pair = [u16; 2];

/// Tells people how to start clusters, by their positions, that come to these addresses.
type Invite<'a> = dyn Fn(&[usize], &[SocketAddr]) -> Result<(), String> + 'a;

/// How clusters take part that are started by hand.
pub(crate) struct ByHand<'a> {
    /// What they prove to hold: the job's own secret, since people are given one command for both.
    pub(crate) secret: &'a Secret,
    /// To be called before anybody is waited for.
    pub(crate) invite: &'a Invite<'a>,
}

/// Every pair of clusters that this machine can start nodes in, and the clusters that it cannot.
#[must_use]
pub fn measurable(spec: &JobSpec) -> (Vec<Pair>, Vec<&ClusterName>) {
    let can = |index: &usize| spec.clusters[*index].launcher != Launcher::Join;
    let (ours, others): (Vec<_>, Vec<_>) = (0..spec.clusters.len()).partition(can);
    let ours: Vec<u16> = ours.iter().filter_map(|index| u16::try_from(*index).ok()).collect();
    let pairs = ours.iter().enumerate().flat_map(|(n, a)| ours[n + 1..].iter().map(|b| [*a, *b]));
    (pairs.collect(), others.into_iter().map(|index| &spec.clusters[index].name).collect())
}

/// Measures the paths between `pairs` of the job's clusters, one after the other. `gridmpi` is our own program file.
///
/// # Errors
/// What is wrong, each problem in a line for the user.
pub fn measure(
    spec: &JobSpec,
    pairs: &[Pair],
    gridmpi: &Path,
    options: &Options,
) -> Result<Vec<PathReport>, Vec<String>> {
    let one = |problem: String| vec![problem];
    involved(pairs).into_iter().try_for_each(|n| check(&spec.clusters[n])).map_err(one)?;
    let listening = listen(spec).map_err(one)?;
    measure_at(spec, pairs, gridmpi, options, listening, None)
}

/// The clusters of these pairs, by their positions.
fn involved(pairs: &[Pair]) -> BTreeSet<usize> {
    pairs.iter().flatten().map(|n| usize::from(*n)).collect()
}

fn measure_at(
    spec: &JobSpec,
    pairs: &[Pair],
    gridmpi: &Path,
    options: &Options,
    (listener, at): (TcpListener, Vec<SocketAddr>),
    by_hand: Option<&ByHand<'_>>,
) -> Result<Vec<PathReport>, Vec<String>> {
    let one = |problem: String| vec![problem];
    let involved = involved(pairs);
    let (others, ours): (Vec<usize>, Vec<usize>) =
        involved.iter().partition(|n| spec.clusters[**n].launcher == Launcher::Join);
    let clusters: Vec<&ClusterSpec> = ours.iter().map(|n| &spec.clusters[*n]).collect();
    let secret = by_hand.map_or_else(Secret::random, |by_hand| Ok(by_hand.secret.clone()));
    let secret = secret.map_err(|error| one(error.to_string()))?;
    let names: Vec<ClusterName> = clusters.iter().map(|cluster| cluster.name.clone()).collect();
    let mut crew = Crew::new(gridmpi, secret.job(), &names)
        .map_err(|error| one(format!("cannot prepare to launch: {error}")))?;
    let invited = match by_hand {
        Some(by_hand) if !others.is_empty() => (by_hand.invite)(&others, &at),
        _ => Ok(()),
    };
    let wait = if others.is_empty() { WAIT } else { WAIT_BY_HAND };
    let relays = relays::of_coordinator(spec).map_err(one)?;
    relays.as_ref().map_or(Ok(Vec::new()), RelayAccess::resolve).map_err(one)?;
    let settings = Settings::default();
    let starter = Starter { spec, gridmpi, secret: &secret, at, settings };
    let launched = invited
        .and_then(|()| clusters.iter().try_for_each(|cluster| starter.launch(cluster, &mut crew)));
    let found = launched.and_then(|()| {
        let expected = |n: &usize| {
            let cluster = &spec.clusters[*n];
            (cluster.name.to_string(), nodes(cluster).rank_count().filter(|_| !others.contains(n)))
        };
        let gathering = Gathering {
            listeners: vec![listener],
            relays,
            pass: Pass::from(&secret),
            clusters: involved.iter().map(expected).collect(),
            wait: spec.wait.unwrap_or(wait),
        };
        conduct(gathering, &mut crew, &clusters, pairs, spec, options)
    });
    crew.finish();
    found.map_err(one)
}

fn check(cluster: &ClusterSpec) -> Result<(), String> {
    if cluster.launcher != Launcher::Join {
        return Ok(());
    }
    let name = &cluster.name;
    Err(format!(
        "cluster `{name}` is started by hand (launcher = \"join\"), so its links cannot be measured from here: run \
         `gridmpi probe --listen` on nodes of `{name}` and `gridmpi probe HOST:PORT ...` on one of the other cluster, and \
         write what it prints into the job file. A guess will do, too: `bandwidth = \"...\"` is put right while the job runs (pacing = \
         \"auto\")"
    ))
}

/// Where nodes come to: as the job says, so that a port that a firewall lets through serves both.
pub(crate) fn listen(spec: &JobSpec) -> Result<(TcpListener, Vec<SocketAddr>), String> {
    let listen = spec.listen.as_deref().map(address::parse_listen).transpose();
    let listen = listen.map_err(|error| format!("--listen: {error}"))?.unwrap_or(ANYWHERE);
    let bound = gridmpi_bootstrap::listen(listen).and_then(|l| l.local_addr().map(|at| (l, at)));
    let (listener, at) = bound.map_err(|error| {
        format!("cannot listen on {listen}: {error}. Give another address by --listen")
    })?;
    Ok((listener, address::own_addresses(at)))
}

/// The cluster with one process on each host, as far as the job file names hosts.
pub(crate) fn nodes(cluster: &ClusterSpec) -> ClusterSpec {
    let mut nodes = cluster.clone();
    if !nodes.hosts.is_empty() {
        nodes.ranks = u32::try_from(nodes.hosts.len()).ok();
        nodes.ranks_per_host = Some(1);
    }
    nodes
}

/// Starts nodes.
pub(crate) struct Starter<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) gridmpi: &'a Path,
    pub(crate) secret: &'a Secret,
    pub(crate) at: Vec<SocketAddr>,
    /// What nodes are told of the user's tuning.
    pub(crate) settings: Settings,
}

impl Starter<'_> {
    pub(crate) fn launch(&self, cluster: &ClusterSpec, crew: &mut Crew) -> Result<(), String> {
        let name = &cluster.name;
        let named = |problem: String| format!("cluster `{name}`: {problem}");
        let relays = relays::of_cluster(self.spec, cluster)?;
        let (line, first) = match &cluster.head {
            Some(head) => self.by_head(head, cluster, relays).map_err(named)?,
            None => {
                let env = env(&Pass::from(self.secret), self.at.clone(), cluster, relays);
                let env = JobEnv { settings: self.settings.clone(), ..env };
                let line = command_line(cluster, &self.spec.env, self.gridmpi, &env);
                (line.map_err(named)?, Vec::new())
            }
        };
        let (input, (out, err)) = match first.is_empty() {
            true => (Input::Null, (Sink::File(to_stderr()?), Sink::Inherit)),
            false => (Input::Ours { first, ours: false }, Sink::of_ssh()),
        };
        let streams = Streams { input, out, err };
        let launched = crew.launch(&line, streams);
        launched.map(drop).map_err(|error| named(format!("cannot launch: {error}")))
    }

    fn by_head(
        &self,
        head: &str,
        cluster: &ClusterSpec,
        relays: Option<RelayAccess>,
    ) -> Result<(CommandLine, Vec<u8>), String> {
        let words = head::command(head, self.spec.network().reconnect());
        let mut there = cluster.clone();
        there.head = None;
        // There they are variables like others, so what the job file says goes before them.
        let settings = self.settings.variables().into_iter();
        let mut env: BTreeMap<_, _> =
            settings.map(|(name, value)| (name.to_owned(), value)).collect();
        env.extend(self.spec.env.clone());
        let description = Description {
            cluster: there,
            command: Vec::new(),
            env,
            label: false,
            relay_token: relays.map(|relays| relays.token.reveal()),
        };
        let secrets = (self.secret, &description);
        let first = head::order(cluster, &self.at, self.gridmpi, NODES, secrets)?;
        Ok((CommandLine::of_ours(words), first))
    }
}

pub(crate) fn env(
    pass: &Pass,
    coordinators: Vec<SocketAddr>,
    cluster: &ClusterSpec,
    relays: Option<RelayAccess>,
) -> JobEnv {
    JobEnv {
        coordinators,
        job: pass.job(),
        key: pass.key().clone(),
        cluster: cluster.name.clone(),
        relays,
        interface: cluster.interface.clone().or_else(own_interface),
        wait: WAIT,
        settings: Settings::default(),
    }
}

fn command_line(
    cluster: &ClusterSpec,
    variables: &BTreeMap<String, String>,
    gridmpi: &Path,
    env: &JobEnv,
) -> Result<CommandLine, String> {
    let command = [gridmpi.display().to_string(), NODE.to_owned()];
    let around = Surroundings::of_this_machine();
    let resolved = resolve::tool(&nodes(cluster), &command, variables, around);
    Ok(resolved.map_err(|error| error.to_string())?.command(env))
}

/// What launchers print is for people; our own output is for results.
pub(crate) fn to_stderr() -> Result<File, String> {
    let copy = std::io::stderr().as_fd().try_clone_to_owned();
    copy.map(File::from).map_err(|error| format!("cannot use the standard error: {error}"))
}

fn conduct(
    gathering: Gathering,
    crew: &mut Crew,
    launched: &[&ClusterSpec],
    pairs: &[Pair],
    spec: &JobSpec,
    options: &Options,
) -> Result<Vec<PathReport>, String> {
    let mut watch = || match crew.reap().first() {
        Some((member, code)) => {
            Err(head::ended(launched[*member], *code, "before the measurement was over"))
        }
        None => Ok(()),
    };
    let mut conductor =
        Conductor::gather(gathering, &mut watch).map_err(|error| error.to_string())?;
    let ways: Vec<Way> = pairs.iter().map(|pair| way(spec, pair.map(usize::from))).collect();
    let reports = conductor.measure_all(&ways, options).map_err(|error| error.to_string())?;
    conductor.leave();
    let_end(crew, launched.len());
    Ok(reports)
}

/// Launchers end by themselves when their nodes have been let go.
pub(crate) fn let_end(crew: &mut Crew, members: usize) {
    let deadline = Instant::now() + END;
    while (0..members).any(|member| crew.is_running(member)) && Instant::now() < deadline {
        crew.reap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The part of this program on a head node: starts the nodes of the cluster that `gridmpi` elsewhere describes.
pub(crate) fn play_head(name: &str, at: &str) -> Result<i32, String> {
    let secret = crate::token::read(None)?;
    let described = head::description()?;
    let at = address::parse_coordinators(at)?;
    let gridmpi = std::env::current_exe().map_err(|error| error.to_string())?;
    let cluster = &described.cluster;
    if cluster.name.as_str() != name {
        return Err(format!("asked for cluster `{name}`, but told of `{}`", cluster.name));
    }
    let token = described.relay_token.as_deref().map(RelayToken::parse).transpose();
    let token = token.map_err(|error| format!("cluster `{name}`: its relay token {error}"))?;
    let relays = token.map(|token| RelayAccess { names: cluster.relays.clone(), token });
    let env = env(&Pass::from(&secret), at, cluster, relays);
    let mut line = command_line(cluster, &described.env, &gridmpi, &env)?;
    line.unset.push(head::DESCRIPTION);
    serve(&line, &secret, &cluster.name, &gridmpi)
}

/// Starts nodes by their launcher here, and waits until that has ended. Its exit code.
pub(crate) fn serve(
    line: &CommandLine,
    secret: &Secret,
    cluster: &ClusterName,
    gridmpi: &Path,
) -> Result<i32, String> {
    let failed = |error: std::io::Error| format!("cannot launch: {error}");
    let clusters = [cluster.clone()];
    let mut crew = Crew::new(gridmpi, secret.job(), &clusters).map_err(failed)?;
    let streams = Streams { input: Input::Null, out: Sink::File(to_stderr()?), err: Sink::Inherit };
    let member = crew.launch(line, streams).map_err(failed)?;
    // Nodes leave when the far end has gone, so their launcher ends in any case.
    let code = loop {
        if let Some((_, code)) = crew.reap().into_iter().find(|(ended, _)| *ended == member) {
            break code;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    crew.finish();
    Ok(code)
}

/// Whether `gridmpi run` listens for those who join: when it has measured it closes its port, and opens it again for the job.
pub(crate) const fn listening_after(measured: bool) -> Listening {
    if measured { Listening::Soon } else { Listening::Now }
}

/// Measures what the job file wants measured (all links of unknown bandwidth, if `all`), and puts it into the job. Where people were told to
/// start clusters by hand, the job listens where these came.
pub(crate) fn fill(
    spec: &JobSpec,
    all: bool,
    gridmpi: &Path,
    by_hand: &ByHand<'_>,
) -> Result<JobSpec, Vec<String>> {
    let one = |problem: String| vec![problem];
    let pairs = wanted(spec, all);
    let mut spec = spec.clone();
    if pairs.is_empty() {
        return Ok(spec);
    }
    say!("measuring {} before the job starts", names(&spec, &pairs));
    let listening = listen(&spec).map_err(one)?;
    let at = listening.0.local_addr().map_err(|error| one(error.to_string()))?;
    let reports =
        measure_at(&spec, &pairs, gridmpi, &Options::default(), listening, Some(by_hand))?;
    if involved(&pairs).into_iter().any(|n| spec.clusters[n].launcher == Launcher::Join) {
        spec.listen = Some(at.to_string());
    }
    for (pair, report) in pairs.iter().zip(&reports) {
        enter(&mut spec, *pair, report);
        say!("{}", told(report, way(&spec, pair.map(usize::from)).by_relays));
    }
    Ok(spec)
}

fn names(spec: &JobSpec, pairs: &[Pair]) -> String {
    let name = |index: u16| spec.clusters[usize::from(index)].name.to_string();
    let link = |pair: &Pair| format!("{} ↔ {}", name(pair[0]), name(pair[1]));
    pairs.iter().map(link).collect::<Vec<_>>().join(", ")
}

fn wanted(spec: &JobSpec, all: bool) -> Vec<Pair> {
    let mut pairs = spec.measure.clone();
    if all {
        let count = u16::try_from(spec.clusters.len()).unwrap_or(u16::MAX);
        let every = (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
        let is_wanted = |[a, b]: &Pair| pairs.contains(&[*a, *b]) || pairs.contains(&[*b, *a]);
        let network = spec.network();
        let is_known = |[a, b]: &Pair| network.bandwidth((*a).into(), (*b).into()).is_some();
        let more: Vec<Pair> = every.filter(|pair| !is_wanted(pair) && !is_known(pair)).collect();
        pairs.extend(more);
    }
    pairs
}

/// What the job file says itself counts.
fn enter(spec: &mut JobSpec, pair: Pair, report: &PathReport) {
    let [a, b] = pair.map(usize::from);
    let found = spec.links.iter_mut().find(|link| link.joins(a, b));
    let (bandwidth, delay) = (Some(report.bandwidth()), Some(report.delay_us()));
    match found {
        Some(link) => {
            link.bandwidth_bits_per_s = bandwidth;
            link.delay_us = link.delay_us.or(delay);
        }
        None => spec.links.push(LinkInfo {
            between: pair,
            bandwidth_bits_per_s: bandwidth,
            delay_us: delay,
            via: None,
            dial: None,
        }),
    }
    for (side, cluster) in [a, b].into_iter().enumerate() {
        let known = &mut spec.clusters[cluster].interface_bandwidth;
        *known = known.or(report.interface(side));
    }
}

fn told(report: &PathReport, by_relays: bool) -> String {
    let rate = |bits: u64| format_rate(bits as f64);
    let [a, b] = &report.between;
    let least = if report.is_links_own() { "" } else { "at least " };
    let delay = format_duration(Duration::from_micros(report.delay_us() / 10 * 10));
    let mut text =
        format!("measured: {a} ↔ {b}: {least}{}, {delay} one way", rate(report.bandwidth()));
    for side in 0..2 {
        if let Some(interface) = report.interface(side) {
            text += &format!("; each node of {}: {}", report.between[side], rate(interface));
        }
    }
    if by_relays {
        text += "; through relays, which pace themselves by `rate` in their own settings: 6 % less, divided among those of a cluster";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> JobSpec {
        crate::file::parse("job.toml", text).unwrap()
    }

    const CLUSTERS: &str = "[[cluster]]\nname = \"a\"\nhosts = [\"x\", \"y\"]\nranks_per_host = 4\n\
                            [[cluster]]\nname = \"b\"\n[[cluster]]\nname = \"c\"\nlauncher = \"join\"\n";

    #[test]
    fn one_node_is_started_on_each_host() {
        let spec = spec(CLUSTERS);
        let nodes = nodes(&spec.clusters[0]);
        let each = vec![("x", Some(1)), ("y", Some(1))];
        assert_eq!((nodes.rank_count(), nodes.spread()), (Some(2), each));
        let (pairs, others) = measurable(&spec);
        assert_eq!((pairs, others.len()), (vec![[0, 1]], 1));
    }

    #[test]
    fn every_address_that_is_told_answers() {
        let (listener, told) = listen(&spec(CLUSTERS)).unwrap();
        let is_wide = listener.local_addr().unwrap().is_ipv6();
        assert!(told.iter().any(SocketAddr::is_ipv4));
        let of_this_machine: std::net::IpAddr = std::net::Ipv6Addr::LOCALHOST.into();
        assert!(!is_wide || told.iter().any(|at| at.ip() == of_this_machine), "{told:?}");
        for at in told {
            std::net::TcpStream::connect(at).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }

    #[test]
    fn what_is_wanted_is_what_is_not_known() {
        let links = "[[link]]\nbetween = [\"b\", \"a\"]\nbandwidth = \"measure\"\n\
                     [[link]]\nbetween = [\"a\", \"c\"]\nbandwidth = \"1 Gbit/s\"\n";
        let spec = spec(&format!("{CLUSTERS}{links}"));
        assert_eq!(wanted(&spec, false), [[1, 0]]);
        assert_eq!(wanted(&spec, true), [[1, 0], [1, 2]]);
    }

    #[test]
    fn clusters_that_come_by_hand_have_a_remedy() {
        let spec = spec(CLUSTERS);
        let problems = measure(&spec, &[[0, 2]], Path::new("x"), &Options::default()).unwrap_err();
        assert!(problems[0].contains("`c`") && problems[0].contains("gridmpi probe --listen"));
    }

    #[test]
    fn nodes_behind_a_head_are_told_of_the_users_tuning_beside_the_jobs_own() {
        let of = |job: &str| {
            let head = "[[cluster]]\nname = \"a\"\nlauncher = \"mpiexec\"\nhead = \"h\"\n";
            let spec = spec(&format!("{job}{head}[[cluster]]\nname = \"b\"\n"));
            let settings = Settings { congestion: Some("bbr".to_owned()), ..Settings::default() };
            let secret = Secret::random().unwrap();
            let (gridmpi, at) = (Path::new("x"), vec!["192.0.2.1:1".parse().unwrap()]);
            let starter = Starter { spec: &spec, gridmpi, secret: &secret, at, settings };
            let (_, first) = starter.by_head("h", &spec.clusters[0], None).unwrap();
            String::from_utf8(first).unwrap()
        };
        assert!(of("").contains("\"GRIDMPI_CONGESTION\":\"bbr\""), "{}", of(""));
        let own = of("[job]\nenv = { GRIDMPI_CONGESTION = \"reno\" }\n");
        assert!(own.contains("\"GRIDMPI_CONGESTION\":\"reno\""), "{own}");
    }
}
