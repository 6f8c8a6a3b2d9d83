//! `gridmpi join`: takes part in a job with a launcher started here.

use crate::compose::Surroundings;
use crate::console::{self, say};
use crate::crew::{Crew, LAST_OUTPUT, Streams};
use crate::head;
use crate::hidden::NODE;
use crate::input::Input;
use crate::measure;
use crate::output::{Reading, Sink};
use crate::relays;
use crate::resolve::{self, Resolved};
use crate::run::{BAD_JOB, own_interface};
use crate::signals;
use crate::spec::{ClusterSpec, Family, Launcher, Style};
use crate::supervise::GRACE;
use crate::token;
use gridmpi_bootstrap::line::Pass;
use gridmpi_bootstrap::{
    ClusterName, JobEnv, JoinControl, JoinOrder, JoinRequest, JoinTerms, RelayAccess, RelayToken,
    Secret, Settings,
};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest time until the coordinator has answered.
const ANSWER: Duration = Duration::from_secs(30);

/// What the command line says.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Our own program file; the launcher is started through it.
    pub gridmpi: PathBuf,
    /// The cluster that this is.
    pub cluster: ClusterName,
    /// Where `gridmpi run` listens.
    pub coordinators: Vec<SocketAddr>,
    /// The launcher's command line, program included.
    pub line: Vec<String>,
    /// Links are to be measured first, by nodes that the same launcher starts.
    pub measure: bool,
    /// The launcher is described by `gridmpi run` in the environment instead.
    pub described: bool,
    /// The file that holds the join token; else it is in the environment.
    pub token_file: Option<PathBuf>,
    /// Relays of this cluster, as `host:port`.
    pub relays: Vec<String>,
    /// The file with their token.
    pub relay_token: Option<PathBuf>,
    /// Kind of the launcher, where its `--version` does not tell.
    pub style: Option<Style>,
    /// Family of the program's MPI, where the program does not tell.
    pub mpi: Option<Family>,
}

enum Happening {
    Signal(i32),
    Order(JoinOrder),
}

/// Takes part in a job until it or the launcher ends. Returns the exit code.
#[must_use]
pub fn join(options: &JoinOptions) -> i32 {
    let code = match start(options) {
        Ok(part) => part.run(),
        Err((problem, code)) => {
            say!("cluster `{}`: {problem}", options.cluster);
            code
        }
    };
    console::flush();
    code
}

/// Our part in the job.
struct Part {
    cluster: ClusterName,
    crew: Crew,
    member: usize,
    control: JoinControl,
    happenings: Receiver<Happening>,
    interrupts: u32,
    /// The job's end, as told: its exit code and since when.
    ending: Option<(i32, Instant)>,
    killed: bool,
}

fn start(options: &JoinOptions) -> Result<Part, (String, i32)> {
    let bad = |problem: String| (problem, BAD_JOB);
    let failed = |problem: String| (problem, 1);
    let secret = token::read(options.token_file.as_deref()).map_err(bad)?;
    let resolved = resolve(options).map_err(bad)?;
    let relays = relay_access(options).map_err(bad)?;
    let settings = settings(options).map_err(bad)?;
    if options.measure {
        be_measured(options, &secret, relays.clone()).map_err(failed)?;
    }
    let (sender, happenings) = channel();
    let orders = sender.clone();
    let (terms, control) = gridmpi_bootstrap::join(
        &options.coordinators,
        relays.as_ref(),
        &secret,
        request(&options.cluster),
        measure::listening_after(options.measure),
        Instant::now() + ANSWER,
        move |order| drop(orders.send(Happening::Order(order))),
    )
    .map_err(|error| failed(error.to_string()))?;
    signals::watch(move |number| drop(sender.send(Happening::Signal(number))))
        .map_err(|error| failed(format!("cannot catch signals: {error}")))?;
    let env = env(options, &secret, terms, settings, relays);
    let clusters = [options.cluster.clone()];
    let mut crew = Crew::new(&options.gridmpi, env.job, &clusters)
        .map_err(|error| failed(format!("cannot prepare to launch: {error}")))?;
    let input = Input::Ours { first: Vec::new(), ours: true };
    let (out, err) = sinks(options);
    let streams = Streams { input, out, err };
    let mut line = resolved.command(&env);
    line.unset.push(head::DESCRIPTION);
    let member = match crew.launch(&line, streams) {
        Ok(member) => member,
        Err(error) => {
            crew.finish();
            control.exited(1);
            return Err(failed(format!("cannot launch: {error}")));
        }
    };
    let cluster = options.cluster.clone();
    let (interrupts, ending, killed) = (0, None, false);
    Ok(Part { cluster, crew, member, control, happenings, interrupts, ending, killed })
}

/// The ssh that leads to us may be lost, and its pipes with it, while the job goes on: the launcher writes to pipes of ours.
fn sinks(options: &JoinOptions) -> (Sink, Sink) {
    match options.described {
        true => (Sink::Read(Reading::Pass), Sink::Read(Reading::Pass)),
        false => (Sink::Inherit, Sink::Inherit),
    }
}

/// Nodes take part in measuring this cluster's links, until `gridmpi run` lets them go.
fn be_measured(
    options: &JoinOptions,
    secret: &Secret,
    relays: Option<RelayAccess>,
) -> Result<(), String> {
    let command = [options.gridmpi.display().to_string(), NODE.to_owned()];
    let resolved = resolve::line_of_tool(&options.line, options.style, &command);
    let resolved = resolved.map_err(|error| error.to_string())?;
    let cluster = ClusterSpec::new(options.cluster.clone(), Launcher::Join);
    let env = measure::env(&Pass::from(secret), options.coordinators.clone(), &cluster, relays);
    say!("cluster `{}`: its links are measured before the job starts", options.cluster);
    let line = resolved.command(&env);
    match measure::serve(&line, secret, &options.cluster, &options.gridmpi)? {
        0 => Ok(()),
        code => Err(format!(
            "its links were not measured: the launcher of what measures ended with exit code {code}; what that said stands above. --measure \
             belongs to a job whose `gridmpi run` has printed it"
        )),
    }
}

fn resolve(options: &JoinOptions) -> Result<Resolved, String> {
    let gridmpi = &options.gridmpi;
    let resolved = if options.described {
        let described = head::description()?;
        let around = Surroundings { label: described.label, ..Surroundings::of_this_machine() };
        let (cluster, env) = (&described.cluster, &described.env);
        resolve::cluster(cluster, &described.command, env, around, gridmpi)
    } else {
        resolve::line(&options.line, options.style, options.mpi, gridmpi)
    };
    resolved.map_err(|error| error.to_string())
}

/// Those of our environment. `gridmpi run` describes its own together with the job file's variables, which ours must not override.
fn settings(options: &JoinOptions) -> Result<Settings, String> {
    if options.described {
        return Ok(Settings::default());
    }
    Settings::from_process().map_err(|error| error.to_string())
}

/// Those of the command line, or of what `gridmpi run` describes.
fn relay_access(options: &JoinOptions) -> Result<Option<RelayAccess>, String> {
    if !options.described {
        return relays::access(&options.relays, options.relay_token.as_deref(), "this cluster");
    }
    let described = head::description()?;
    let token = described.relay_token.as_deref().map(RelayToken::parse).transpose();
    let token = token.map_err(|error| format!("the relay token of `gridmpi run` {error}"))?;
    Ok(token.map(|token| RelayAccess { names: described.cluster.relays, token }))
}

fn request(cluster: &ClusterName) -> JoinRequest {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    JoinRequest { cluster: cluster.clone(), host, pid: std::process::id() }
}

fn env(
    options: &JoinOptions,
    secret: &Secret,
    terms: JoinTerms,
    settings: Settings,
    relays: Option<RelayAccess>,
) -> JobEnv {
    // What worked for us works for our ranks, most likely.
    let mut coordinators = options.coordinators.clone();
    coordinators.extend(terms.coordinators);
    let mut seen = std::collections::BTreeSet::new();
    coordinators.retain(|address| seen.insert(*address));
    coordinators.truncate(32);
    JobEnv {
        coordinators,
        job: secret.job(),
        key: secret.key(),
        cluster: options.cluster.clone(),
        relays,
        interface: terms.interface.or_else(own_interface),
        wait: Duration::from_secs(terms.wait_s),
        settings,
    }
}

impl Part {
    fn run(mut self) -> i32 {
        let launcher = loop {
            if let Some((_, code)) = self.crew.reap().into_iter().find(|(m, _)| *m == self.member) {
                break code;
            }
            let patience = match self.ending {
                Some((_, since)) if !self.killed => GRACE.saturating_sub(since.elapsed()),
                _ => Duration::from_secs(60),
            };
            match self.happenings.recv_timeout(patience) {
                Ok(Happening::Signal(number)) => self.signal(number),
                Ok(Happening::Order(order)) => self.order(order),
                Err(_) => self.press(),
            }
        };
        self.crew.sweep();
        let told = self.control.exited(launcher);
        self.crew.close(Some(LAST_OUTPUT));
        let ending = self.ending.map(|(code, _)| code).or_else(|| {
            let (code, reason) =
                if told { None } else { why_lost(&self.happenings, &self.cluster) }?;
            say!("{reason}");
            Some(code)
        });
        ending.filter(|code| *code != 0).unwrap_or(launcher)
    }

    fn order(&mut self, order: JoinOrder) {
        match order {
            JoinOrder::Signal(number) => self.pass(number),
            JoinOrder::Ended { code, reason } => self.end(code, &reason),
            // It leaves.
            JoinOrder::Away(_) | JoinOrder::Back if self.ending.is_some() => {}
            JoinOrder::Away(why) => say!(
                "cluster `{}`: lost the connection with `gridmpi run` ({why}); dialling again, the \
                 launcher goes on",
                self.cluster
            ),
            JoinOrder::Back => {
                say!("cluster `{}`: the connection with `gridmpi run` is back", self.cluster);
            }
            JoinOrder::Gone(why) => self.end(1, &gone(&why, &self.cluster)),
        }
    }

    fn end(&mut self, code: i32, reason: &str) {
        if self.ending.is_none() {
            self.ending = Some((code, Instant::now()));
            self.crew.terminate(self.member);
            say!("{reason}");
        }
    }

    fn press(&mut self) {
        if self.ending.is_some_and(|(_, since)| since.elapsed() >= GRACE) && !self.killed {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        self.crew.kill(self.member);
    }

    /// A signal that somebody here has sent.
    fn signal(&mut self, number: i32) {
        self.pass(number);
        if signals::named(number) == Some(Signal::TSTP) {
            signals::stop_self();
        }
    }

    /// Does with the launcher what a signal asks for, whoever it came from. `gridmpi run` stops and goes on by itself: we
    /// stay awake, or would never hear the order to go on.
    fn pass(&mut self, number: i32) {
        let Some(signal) = signals::named(number) else { return };
        match signal {
            Signal::INT | Signal::QUIT => {
                self.interrupts += 1;
                match self.interrupts {
                    1 => self.crew.forward(self.member, signal),
                    _ => self.kill(),
                }
            }
            Signal::TERM | Signal::HUP => {
                self.end(128 + number, &format!("stopped by signal {number}"))
            }
            _ => self.crew.forward(self.member, signal),
        }
    }
}

fn gone(why: &str, cluster: &ClusterName) -> String {
    format!("`gridmpi run` has gone away ({why}), so cluster `{cluster}` ends")
}

/// Why the job has not heard of the launcher's end, which is said at about the same time.
fn why_lost(happenings: &Receiver<Happening>, cluster: &ClusterName) -> Option<(i32, String)> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match happenings.recv_timeout(until.saturating_duration_since(Instant::now())).ok()? {
            Happening::Order(JoinOrder::Gone(why)) => return Some((1, gone(&why, cluster))),
            Happening::Order(JoinOrder::Ended { code, reason }) => return Some((code, reason)),
            _ => {}
        }
    }
}
