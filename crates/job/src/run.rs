//! `gridmpi run`: checks a job, starts it, and supervises it to its end.

use crate::address::{self, ANYWHERE};
use crate::compose::Surroundings;
use crate::console::{self, say};
use crate::crew::{Crew, Streams};
use crate::doctor;
use crate::head::{self, Description};
use crate::input::Input;
use crate::measure::{self, ByHand};
use crate::output::{Bases, Files, OutputOptions};
use crate::relays;
use crate::resolve::{self, CommandLine, Resolved};
use crate::shell;
use crate::signals;
use crate::spec::{ClusterSpec, JobSpec, Launcher};
use crate::supervise::{DEFAULT_WAIT, Happening, Limits, Mode, Seat, Supervisor};
use crate::token::TokenFile;
use gridmpi_bootstrap::env::{INTERFACE, TOKEN};
use gridmpi_bootstrap::{
    ClusterName, Coordinator, CoordinatorConfig, Expected, JobEnv, NetworkInfo, Pacing,
    RelayAccess, Secret, Settings,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Exit code for a job that cannot be started as described.
pub const BAD_JOB: i32 = 2;

const UNENCRYPTED: &str = "warning: TLS is off: whoever is on the way between the clusters can read and change what \
                           the program sends";

/// What the command line says beyond the job itself.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Our own program file; launchers are started through it.
    pub gridmpi: PathBuf,
    /// Where output goes.
    pub output: OutputOptions,
    /// Say where the ranks are.
    pub display_map: bool,
    /// Write the join token here instead of showing it.
    pub token_file: Option<PathBuf>,
    /// Measure every link whose bandwidth is not said.
    pub measure: bool,
    /// Look at nodes and links first, and start only if nothing is in the way.
    pub doctor: bool,
    /// The job file, if it says all by itself about how clusters are started: for `gridmpi doctor`, when they do not come.
    pub file: Option<PathBuf>,
    /// How what crosses between clusters is held back, whatever job file and environment say.
    pub pacing: Option<Pacing>,
    /// Whether connections between clusters use TLS, whatever job file and environment say.
    pub tls: Option<bool>,
}

/// Runs a job. Tells the user about everything on stderr; returns the exit code.
#[must_use]
pub fn run(spec: &JobSpec, options: &RunOptions) -> i32 {
    let code = match start(spec, options) {
        Ok(supervisor) => supervisor.run(),
        Err(problems) => {
            problems.iter().for_each(|problem| say!("{problem}"));
            BAD_JOB
        }
    };
    console::flush();
    code
}

type Problems = Vec<String>;

/// How a cluster will be started.
enum Plan {
    Local(Box<Resolved>),
    Head(String),
    Outside,
}

fn start(spec: &JobSpec, options: &RunOptions) -> Result<Supervisor, Problems> {
    let one = |problem: String| vec![problem];
    check(spec)?;
    check_token_file(spec, options).map_err(one)?;
    let plans = plans(spec, options)?;
    let access = relay_access(spec)?;
    let files = options.output.prepare(&spec.clusters).map_err(one)?;
    let mut settings = Settings::from_process().map_err(|error| one(error.to_string()))?;
    settings.pacing = options.pacing.or(settings.pacing).or(spec.pacing);
    settings.tls = options.tls.or(settings.tls).or(spec.tls);
    if settings.tls == Some(false) && spec.clusters.len() > 1 {
        say!("{UNENCRYPTED}");
    }
    if options.doctor {
        doctor::before(spec, &options.gridmpi)?;
    }
    let secret = Secret::random().map_err(|error| one(error.to_string()))?;
    let handing = Handing::prepare(options, &secret).map_err(one)?;
    let invited = RefCell::new(BTreeSet::new());
    let invite_some = |who: &[usize], at: &[SocketAddr]| {
        invited.borrow_mut().extend(who.iter().copied());
        invite(spec, &handing, at, who, " --measure")
    };
    let by_hand = ByHand { secret: &secret, invite: &invite_some };
    let spec = &measured(spec, options, &settings, &by_hand)?;
    if let Some(warning) = unpaced(spec, &settings) {
        say!("{warning}");
    }
    let connections = settings.connections.or(spec.connections);
    let (pacing, tls) = (settings.pacing, settings.tls);
    let network = NetworkInfo { pacing, tls, connections, ..spec.network() };
    let (sender, events) = channel();
    let meeting = Meeting::start(spec, network, &secret, sender.clone()).map_err(one)?;
    signals::watch(move |number| drop(sender.send(Happening::Signal(number))))
        .map_err(|error| one(format!("cannot catch signals: {error}")))?;
    let names: Vec<ClusterName> = spec.clusters.iter().map(|c| c.name.clone()).collect();
    let crew = Crew::new(&options.gridmpi, secret.job(), &names)
        .map_err(|error| one(format!("cannot prepare to launch: {error}")))?;
    let sizes: Vec<_> = spec.clusters.iter().map(ClusterSpec::rank_count).collect();
    let mut starter = Starter {
        spec,
        options,
        secret: &secret,
        settings,
        at: meeting.at.clone(),
        relays: access,
        bases: Bases::new(&sizes),
        files,
        crew,
    };
    let mut seats = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        match starter.seat(index, plan) {
            Ok(seat) => seats.push(seat),
            Err(problem) => {
                starter.crew.finish();
                return Err(one(problem));
            }
        }
    }
    let reconnect = spec.network().reconnect();
    let limits = Limits { wait: spec.wait, timeout: spec.timeout, reconnect };
    let Starter { crew, bases, .. } = starter;
    let is_uninvited =
        |n: &usize| spec.clusters[*n].launcher == Launcher::Join && !invited.borrow().contains(n);
    let who: Vec<usize> = (0..spec.clusters.len()).filter(is_uninvited).collect();
    invite(spec, &handing, &meeting.at, &who, "").map_err(one)?;
    let map = options.display_map;
    let doctor = doctor::later(spec, options);
    let supervisor = Supervisor::new(seats, crew, meeting.coordinator, events, bases, map, limits);
    Ok(supervisor.calling(doctor))
}

/// How each cluster gets at its relays; tells all problems at once.
fn relay_access(spec: &JobSpec) -> Result<Vec<Option<RelayAccess>>, Problems> {
    let (found, problems): (Vec<_>, Vec<_>) = spec
        .clusters
        .iter()
        .map(|cluster| relays::of_cluster(spec, cluster))
        .partition(Result::is_ok);
    let mut texts: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
    texts.dedup();
    if texts.is_empty() {
        Ok(found.into_iter().filter_map(Result::ok).collect())
    } else {
        Err(texts)
    }
}

/// The job with the bandwidths that are to be measured.
fn measured(
    spec: &JobSpec,
    options: &RunOptions,
    settings: &Settings,
    by_hand: &ByHand<'_>,
) -> Result<JobSpec, Problems> {
    let is_asked = options.measure || !spec.measure.is_empty();
    if settings.pacing != Some(Pacing::Off) {
        return measure::fill(spec, options.measure, &options.gridmpi, by_hand);
    }
    if is_asked {
        say!("nothing is paced (pacing = \"off\"), so links are not measured");
    }
    Ok(spec.clone())
}

/// Pacing is asked for, and there is a pair of clusters whose bandwidth nobody has said.
fn unpaced(spec: &JobSpec, settings: &Settings) -> Option<String> {
    // Nobody has asked for the default.
    let is_asked = settings.pacing.is_some_and(|pacing| pacing != Pacing::Off);
    let is_asked = is_asked && settings.matb.is_none();
    let (a, b) = spec.unknown_link().filter(|_| is_asked)?;
    Some(format!(
        "pacing is asked for, but the bandwidth between clusters `{a}` and `{b}` is not known: what \
         crosses there is not paced. Say it in a job file, below [[link]] and between = [\"{a}\", \"{b}\"]: \
         bandwidth = \"1 Gbit/s\""
    ))
}

/// What a job file's reader has checked already, but a command line has not.
fn check(spec: &JobSpec) -> Result<(), Problems> {
    if spec.clusters.is_empty() {
        return Err(vec![
            "no cluster: name a job file, or give --cluster NAME=LAUNCHER".to_owned(),
        ]);
    }
    for (index, cluster) in spec.clusters.iter().enumerate() {
        if spec.clusters[..index].iter().any(|other| other.name == cluster.name) {
            return Err(vec![format!("there are two clusters named `{}`", cluster.name)]);
        }
        if !cluster.unheeded().is_empty() {
            let options: Vec<_> = cluster.unheeded().iter().map(|key| format!("--{key}")).collect();
            return Err(vec![format!(
                "cluster `{}` is started by `gridmpi join`: {} would mean nothing here, and belongs to that command",
                cluster.name,
                options.join(", ")
            )]);
        }
    }
    Ok(())
}

/// A file that nobody writes would be waited for.
fn check_token_file(spec: &JobSpec, options: &RunOptions) -> Result<(), String> {
    let joins = spec.clusters.iter().any(|cluster| cluster.launcher == Launcher::Join);
    match options.token_file.is_some() && !joins {
        true => Err("--token-file is for clusters that join, and this job has none (launcher = \"join\", or --cluster NAME=join)"
            .to_owned()),
        false => Ok(()),
    }
}

/// Settles every cluster before anything is started; tells all problems at once.
fn plans(spec: &JobSpec, options: &RunOptions) -> Result<Vec<Plan>, Problems> {
    let around = surroundings(spec, options.output.wants_ranks());
    let plan = |cluster: &ClusterSpec| {
        let command = cluster.command(&spec.command);
        match (&cluster.launcher, &cluster.head) {
            (Launcher::Join, _) => Ok(Plan::Outside),
            (_, Some(_)) if command.is_empty() => Err(resolve::ResolveError::NoProgram),
            (_, Some(head)) => Ok(Plan::Head(head.clone())),
            _ => resolve::cluster(cluster, &command, &spec.env, around, &options.gridmpi)
                .map(|resolved| Plan::Local(Box::new(resolved))),
        }
        .map_err(|error| format!("cluster `{}`: {error}", cluster.name))
    };
    let (plans, problems): (Vec<_>, Vec<_>) =
        spec.clusters.iter().map(plan).partition(Result::is_ok);
    if problems.is_empty() {
        return Ok(plans.into_iter().filter_map(Result::ok).collect());
    }
    let mut texts: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
    texts.dedup();
    Err(texts)
}

fn surroundings(spec: &JobSpec, label: bool) -> Surroundings {
    let here = |cluster: &&ClusterSpec| {
        cluster.head.is_none() && cluster.hosts.is_empty() && cluster.launcher != Launcher::Join
    };
    let shared = spec.clusters.iter().filter(here).count() > 1;
    Surroundings { shared, label, ..Surroundings::of_this_machine() }
}

/// Where the clusters meet.
struct Meeting {
    coordinator: Coordinator,
    at: Vec<SocketAddr>,
}

impl Meeting {
    fn start(
        spec: &JobSpec,
        network: NetworkInfo,
        secret: &Secret,
        events: Sender<Happening>,
    ) -> Result<Self, String> {
        let listen = spec.listen.as_deref().map(address::parse_listen).transpose();
        let listen = listen.map_err(|error| format!("--listen: {error}"))?.unwrap_or(ANYWHERE);
        let reachable: Vec<IpAddr> = address::reachable(listen.ip());
        let relays = relays::of_coordinator(spec)?;
        // Said here, where the reason is not taken for that of listening.
        relays.as_ref().map_or(Ok(Vec::new()), RelayAccess::resolve)?;
        let config = CoordinatorConfig {
            secret: secret.clone(),
            listen,
            clusters: spec.clusters.iter().map(expected).collect(),
            network,
            reachable: reachable.clone(),
            relays,
            wait_s: wait(spec).as_secs(),
        };
        let tell = move |event| drop(events.send(Happening::Meeting(event)));
        let coordinator = Coordinator::start(config, tell).map_err(|error| {
            format!("cannot listen on {listen}: {error}. Give another address by --listen")
        })?;
        let port = coordinator.address().port();
        let at = reachable.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        Ok(Self { coordinator, at })
    }
}

/// The user's own choice for every cluster without one in the job file.
pub(crate) fn own_interface() -> Option<String> {
    std::env::var(INTERFACE).ok().filter(|name| !name.is_empty())
}

fn expected(cluster: &ClusterSpec) -> Expected {
    Expected {
        name: cluster.name.clone(),
        ranks: cluster.rank_count(),
        joins: cluster.launcher == Launcher::Join || cluster.head.is_some(),
        interface: cluster.interface.clone(),
    }
}

/// How long ranks wait: a little longer than we do, so that they are told why.
fn wait(spec: &JobSpec) -> Duration {
    let by_hand = spec.clusters.iter().any(|cluster| cluster.launcher == Launcher::Join);
    match spec.wait.or((!by_hand).then_some(DEFAULT_WAIT)) {
        Some(wait) => wait + Duration::from_secs(60),
        // To ranks 0 means as long as it takes.
        None => Duration::ZERO,
    }
}

/// Starts clusters one after another.
struct Starter<'a> {
    spec: &'a JobSpec,
    options: &'a RunOptions,
    secret: &'a Secret,
    settings: Settings,
    at: Vec<SocketAddr>,
    /// Of each cluster.
    relays: Vec<Option<RelayAccess>>,
    bases: Bases,
    /// Of each cluster, for its output.
    files: Vec<Option<Files>>,
    crew: Crew,
}

impl Starter<'_> {
    fn seat(&mut self, index: usize, plan: &Plan) -> Result<Seat, String> {
        let cluster = &self.spec.clusters[index];
        let (mode, line, first) = match plan {
            Plan::Outside => (Mode::Outside, None, Vec::new()),
            Plan::Local(resolved) => {
                (Mode::Local, Some(resolved.command(&self.env(index))), Vec::new())
            }
            Plan::Head(head) => {
                let words = head::command(head, self.spec.network().reconnect());
                let (line, secrets) =
                    (CommandLine::of_ours(words), (self.secret, &self.describe(index)));
                let gridmpi = &self.options.gridmpi;
                let first = head::order(cluster, &self.at, gridmpi, head::JOIN, secrets)?;
                (Mode::Head, Some(line), first)
            }
        };
        let member = line.map(|line| self.launch(index, &line, first)).transpose()?;
        Ok(Seat::new(cluster.clone(), mode, member))
    }

    fn launch(
        &mut self,
        index: usize,
        line: &CommandLine,
        first: Vec<u8>,
    ) -> Result<usize, String> {
        let name = &self.spec.clusters[index].name;
        let failed = |error: std::io::Error| format!("cluster `{name}`: cannot launch: {error}");
        // Rank 0 of MPI_COMM_WORLD is in the first cluster, and mpiexec gives stdin to rank 0.
        let ours = index == 0;
        let input =
            if ours || !first.is_empty() { Input::Ours { first, ours } } else { Input::Null };
        let files = self.files[index].take();
        let is_ssh = self.spec.clusters[index].head.is_some();
        let sinks = self.options.output.sinks(index, name.as_str(), &self.bases, files, is_ssh);
        let (out, err) = sinks.map_err(failed)?;
        self.crew.launch(line, Streams { input, out, err }).map_err(failed)
    }

    fn env(&self, index: usize) -> JobEnv {
        let cluster = &self.spec.clusters[index];
        JobEnv {
            coordinators: self.at.clone(),
            job: self.secret.job(),
            key: self.secret.key(),
            cluster: cluster.name.clone(),
            relays: self.relays[index].clone(),
            interface: cluster.interface.clone().or_else(own_interface),
            wait: wait(self.spec),
            settings: self.settings.clone(),
        }
    }

    fn describe(&self, index: usize) -> Description {
        let mut cluster = self.spec.clusters[index].clone();
        let command = cluster.command(&self.spec.command);
        cluster.head = None;
        let label = self.options.output.wants_ranks();
        let relay_token = self.relays[index].as_ref().map(|relays| relays.token.reveal());
        // There they are variables like others, so what the job file says goes before them.
        let settings = self.settings.variables().into_iter();
        let mut env: BTreeMap<_, _> =
            settings.map(|(name, value)| (name.to_owned(), value)).collect();
        env.extend(self.spec.env.clone());
        Description { cluster, command, env, label, relay_token }
    }
}

/// How people get the token who start clusters by hand.
enum Handing {
    Shown(Secret),
    File(TokenFile),
}

impl Handing {
    /// A file that cannot be written is found out before anything is started.
    fn prepare(options: &RunOptions, secret: &Secret) -> Result<Self, String> {
        match &options.token_file {
            Some(path) => TokenFile::prepare(path, secret).map(Self::File),
            None => Ok(Self::Shown(secret.clone())),
        }
    }

    /// What goes before the command of who joins, and into it.
    fn words(&self) -> Result<(String, String), String> {
        match self {
            Self::Shown(secret) => Ok((format!("{TOKEN}={} ", secret.reveal()), String::new())),
            Self::File(file) => {
                file.publish()?;
                let path = file.path().display().to_string();
                Ok((String::new(), format!(" --token-file {}", shell::word(&path))))
            }
        }
    }
}

/// Tells the user how to start these clusters, which come by hand; `more` are options of `gridmpi join`.
fn invite(
    spec: &JobSpec,
    handing: &Handing,
    at: &[SocketAddr],
    who: &[usize],
    more: &str,
) -> Result<(), String> {
    let names: Vec<_> = who.iter().map(|n| spec.clusters[*n].name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (before, option) = handing.words()?;
    let at = address::word(at);
    let command = |name: &&str| {
        format!("{before}gridmpi join{more} --cluster {name} {at}{option} -- LAUNCHER ... PROGRAM")
    };
    let commands: Vec<_> = names.iter().map(command).collect();
    say!("waiting for others to join:\n{}{}{}", commands.join("\n"), by_relay(spec), unset(spec));
    Ok(())
}

/// What those set who come: values may be nobody else's business, and do not leave this machine by themselves.
fn unset(spec: &JobSpec) -> String {
    let names: Vec<&str> = spec.env.keys().map(String::as_str).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "\nthe `env` of [job] does not reach their ranks, so that it is to be set there as well: {}",
            names.join(", ")
        ),
    }
}

/// What those add who come through relays of their own, which nobody here knows.
fn by_relay(spec: &JobSpec) -> &'static str {
    if spec.relays.is_empty() {
        return "";
    }
    "\nwhere these addresses are not to be reached, with --relay HOST:PORT --relay-token-file FILE of a relay there, before --"
}
