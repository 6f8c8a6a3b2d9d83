//! One path with different things on it: nothing, our relays, and proxies; between the same two processes, by turns.

use super::proxies::{self, Cover, Hop, Proxy};
use super::servers::{Idle, Keys, Server, Started, Trunk, wait_for_trunks};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Lab, Route, own_program};
use crate::samples::{Samples, median};
use crate::session::Session;
use std::time::Instant;

const US: f64 = 1e6;
const MB: f64 = 1e-6;
/// Of the first round: the far end's, and those behind it what is between.
const PORTS: u16 = 9000;
/// How many a round has: what the round before has left may still hold its own.
const PORTS_OF_ROUND: u16 = 50;
/// Of a transfer.
const BYTES: u64 = 256 << 20;
/// What is added by each relay at most, µs.
const ADDED: f64 = 10.0;

/// What a path leads through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Nothing,
    /// One relay at the far end's node.
    Relay,
    /// One at each end, and the trunk between.
    Relays(Trunk),
    /// The same, unencrypted, with relays that sleep at once.
    Sleepers,
    Proxy(Proxy),
    Proxies(Proxy, Trunk),
}

impl Through {
    fn key(self) -> String {
        let trunk = |trunk| if trunk == Trunk::Tls { "tls" } else { "plain" };
        match self {
            Self::Nothing => "direct".to_owned(),
            Self::Relay => "relay".to_owned(),
            Self::Relays(how) => format!("relays-{}", trunk(how)),
            Self::Sleepers => "relays-sleepers".to_owned(),
            Self::Proxy(proxy) => format!("{}-one", proxy.key()),
            Self::Proxies(proxy, how) => format!("{}-{}", proxy.key(), trunk(how)),
        }
    }
}

/// Where the processes run.
#[derive(Clone, Copy)]
struct Cores {
    /// What is between, at the near end and at the far.
    between: [&'static str; 2],
    near: &'static str,
    far: &'static str,
}

/// All that runs for a set of paths, in a lab that is up.
struct Paths<'a> {
    session: &'a Session,
    lab: &'a Lab,
    keys: &'a Keys,
    cores: Cores,
    until: Instant,
    far: String,
    /// The far end's port.
    port: u16,
    running: Vec<Started>,
    relays: Vec<(Server, Started)>,
    /// For the near end.
    ways: Vec<String>,
    /// For the far end.
    registrations: Vec<String>,
}

impl Paths<'_> {
    fn front(&self, node: &str) -> [&'static str; 3] {
        let [near, far] = self.cores.between;
        ["taskset", "-c", if node == "a1" { near } else { far }]
    }

    fn add(&mut self, through: Through, port: u16) -> Result<(), BenchError> {
        let (key, far) = (through.key(), self.far.clone());
        let near = self.lab.wide_address("a1");
        let way = match through {
            Through::Nothing => format!("{key}={far}:{}", self.port),
            Through::Relay => {
                let pid = self.relay(Server::lone("b1", port))?;
                self.registrations.push(format!("{port}@{far}:{port}"));
                format!("{key}={port}@{far}:{port}+{pid}")
            }
            Through::Relays(trunk) => {
                let pair = Server::pair(["a1", "b1"], &far, port, trunk);
                self.relays(key, port, pair)?
            }
            Through::Sleepers => {
                let pair = Server::pair(["a1", "b1"], &far, port, Trunk::Plain);
                self.relays(key, port, pair.map(|one| Server { idle: Idle::Sleeps, ..one }))?
            }
            Through::Proxy(proxy) => {
                let pid = self.proxy(proxy, "b1", port, self.port, Cover::None)?;
                format!("{key}={far}:{port}+{pid}")
            }
            Through::Proxies(proxy, trunk) => {
                let [out, inward] = match trunk {
                    Trunk::Plain => [Cover::None, Cover::None],
                    Trunk::Tls => [Cover::Out, Cover::In],
                };
                let last = self.proxy(proxy, "b1", port, self.port, inward)?;
                let first = self.proxy(proxy, "a1", port, port, out)?;
                format!("{key}={near}:{port}+{first}+{last}")
            }
        };
        self.ways.push(way);
        Ok(())
    }

    /// One at each end. What the near end is told.
    fn relays(&mut self, key: String, port: u16, pair: [Server; 2]) -> Result<String, BenchError> {
        let [dialler, other] = pair;
        let (far, near) = (self.far.clone(), self.lab.wide_address("a1"));
        let pids = [self.relay(other)?, self.relay(dialler)?];
        self.registrations.push(format!("{port}@{far}:{port}"));
        Ok(format!("{key}={port}@{near}:{port}+{}+{}", pids[0], pids[1]))
    }

    fn relay(&mut self, server: Server) -> Result<u32, BenchError> {
        let running = self.keys.start(self.lab, &server, &self.front(&server.node), self.until)?;
        let pid = running.pid;
        self.relays.push((server, running));
        Ok(pid)
    }

    /// It dials the far end's node.
    fn proxy(
        &mut self,
        proxy: Proxy,
        node: &str,
        port: u16,
        to: u16,
        cover: Cover,
    ) -> Result<u32, BenchError> {
        let to = format!("{}:{to}", self.far);
        let hop = Hop { node, port, to: &to, cover };
        let front = self.front(node);
        let running = proxy.start(self.session, self.lab, self.keys, &hop, &front, self.until)?;
        let pid = running.pid;
        self.running.push(running);
        Ok(pid)
    }

    fn measure(mut self, bytes: u64, samples: u32) -> Result<Samples, BenchError> {
        wait_for_trunks(&mut self.relays, self.until)?;
        let program = own_program()?;
        let (program, token) = (program.to_string_lossy(), self.keys.token());
        let token = token.to_string_lossy();
        let listen = format!("{}:{}", self.far, self.port);
        let begin = |core, part| vec!["taskset", "-c", core, &*program, "bench", part];
        let mut command = begin(self.cores.far, "relays-far");
        command.extend(["--listen", &listen, "--token", &token]);
        command.extend(self.registrations.iter().flat_map(|one| ["--relay", one.as_str()]));
        let mut far = self.lab.start("b1", &command)?;
        far.expect("ready", self.until)?;
        let (bytes, samples) = (bytes.to_string(), samples.to_string());
        let mut command = begin(self.cores.near, "relays-near");
        command.extend(["--bytes", &bytes, "--samples", &samples, "--token", &token]);
        command.extend(self.ways.iter().flat_map(|one| ["--way", one.as_str()]));
        let said = self.lab.run("a1", &command, self.until)?;
        Ok(Samples::parse(&said.out))
    }
}

/// Everything starts anew, so that a lucky or unlucky place of a process counts once.
fn round(
    session: &mut Session,
    all: &[Through],
    cores: Cores,
    port: u16,
    (bytes, samples): (u64, u32),
) -> Result<Samples, BenchError> {
    session.lab(Route::Plain)?;
    let keys = Keys::make(session)?;
    let until = session.until()?;
    let (session, lab) = session.with_lab()?;
    let far = lab.wide_address("b1");
    let (running, relays, ways, registrations) = (vec![], vec![], vec![], vec![]);
    let mut paths = Paths {
        session,
        lab,
        keys: &keys,
        cores,
        until,
        far,
        port,
        running,
        relays,
        ways,
        registrations,
    };
    for (port, through) in (port + 1..).zip(all) {
        paths.add(*through, port)?;
    }
    paths.measure(bytes, samples)
}

/// What all rounds that do not fail have measured.
fn rounds(
    session: &mut Session,
    what: &str,
    count: u16,
    one: impl Fn(&mut Session, u16) -> Result<Samples, BenchError>,
) -> Samples {
    let mut samples = Samples::default();
    for number in 0..count {
        let name = format!("{what}, round {} of {count}", number + 1);
        let port = PORTS + number * PORTS_OF_ROUND;
        session
            .part(&name, |session| one(session, port))
            .iter()
            .for_each(|more| samples.append(more));
    }
    samples
}

/// The proxies and what their medians are, the best first.
fn ranked(
    samples: &Samples,
    proxies: &[Proxy],
    through: impl Fn(Proxy) -> Through,
) -> Result<Vec<Proxy>, BenchError> {
    let mut ranked = Vec::new();
    for proxy in proxies {
        ranked.push((median(samples.get(&through(*proxy).key())?), *proxy));
    }
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(ranked.into_iter().map(|(_, proxy)| proxy).collect())
}

/// Blocking sockets directly, through a pair of relays, and through a pair of proxies.
pub(super) fn latency(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let proxies = proxies::installed();
    let trunks = [Trunk::Plain, Trunk::Tls];
    let mut all = vec![Through::Nothing];
    all.extend(trunks.map(Through::Relays));
    all.push(Through::Sleepers);
    for trunk in trunks {
        all.extend(proxies.iter().map(|proxy| Through::Proxies(*proxy, trunk)));
    }
    let blocks = session.choose(40, 100);
    let count = session.choose(1, 3);
    // A core for each end and what stands there, as if they were hosts.
    let cores = Cores { between: ["0", "1"], near: "0", far: "1" };
    let one = |session: &mut Session, port| round(session, &all, cores, port, (0, blocks));
    let samples = rounds(session, "ping-pong", count, one);
    let direct = samples.scaled("direct", US)?;
    // Two stand on the way: each adds half.
    let added = |through: Through| -> Result<Vec<f64>, BenchError> {
        let took = samples.scaled(&through.key(), US)?;
        Ok(took.iter().zip(&direct).map(|(through, direct)| (through - direct) / 2.0).collect())
    };
    let mut figures = Vec::new();
    for (trunk, name) in [(Trunk::Plain, "trunk unencrypted"), (Trunk::Tls, "trunk by TLS")] {
        let ours = samples.scaled(&Through::Relays(trunk).key(), US)?;
        figures.push(Figure::paired(
            format!("8 B one way through 2 relays, {name}"),
            "µs",
            &ours,
            "no relay",
            &direct,
            Bound::DifferenceAtMost(2.0 * ADDED),
        ));
        let ours = added(Through::Relays(trunk))?;
        let ranked = ranked(&samples, &proxies, |proxy| Through::Proxies(proxy, trunk))?;
        for (place, proxy) in ranked.into_iter().enumerate() {
            figures.push(Figure::new(
                format!("added by each, {name}"),
                "µs",
                &ours,
                proxy.name(),
                &added(Through::Proxies(proxy, trunk))?,
                if place == 0 { Bound::DifferenceAtMost(0.0) } else { Bound::Told },
            ));
        }
    }
    let best = ranked(&samples, &proxies, |proxy| Through::Proxies(proxy, Trunk::Plain))?;
    if let Some(proxy) = best.first() {
        figures.push(Figure::new(
            "added by each, busy_poll = \"0 s\", trunk unencrypted".to_owned(),
            "µs",
            &added(Through::Sleepers)?,
            proxy.name(),
            &added(Through::Proxies(*proxy, Trunk::Plain))?,
            Bound::Told,
        ));
    }
    Ok(figures)
}

/// One core for what is between, another for both ends.
pub(super) fn throughput(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    type Way = fn(Proxy) -> Through;
    let proxies = proxies::installed();
    let cases: [(Through, Way, &str); 3] = [
        (Through::Relay, Through::Proxy, "one, unencrypted"),
        (Through::Relays(Trunk::Plain), |p| Through::Proxies(p, Trunk::Plain), "two, unencrypted"),
        (Through::Relays(Trunk::Tls), |p| Through::Proxies(p, Trunk::Tls), "two, TLS between"),
    ];
    let mut all = vec![Through::Nothing];
    for (ours, theirs, _) in cases {
        all.push(ours);
        all.extend(proxies.iter().map(|proxy| theirs(*proxy)));
    }
    let (transfers, count) = (session.choose(2, 4), session.choose(1, 3));
    let bytes = session.choose(BYTES / 4, BYTES);
    let cores = Cores { between: ["0", "0"], near: "1", far: "1" };
    let one = |session: &mut Session, port| round(session, &all, cores, port, (bytes, transfers));
    let samples = rounds(session, "bulk", count, one);
    let speed = |key: &str| -> Result<Vec<f64>, BenchError> {
        Ok(samples.get(key)?.iter().map(|seconds| bytes as f64 * MB / seconds).collect())
    };
    let mut figures = Vec::new();
    let cost = |key: &str| samples.scaled(&format!("{key}.cpu"), 1e9 / bytes as f64);
    for (ours, theirs, name) in cases {
        let ranked = ranked(&samples, &proxies, theirs)?;
        for (place, proxy) in ranked.iter().enumerate() {
            let bound = if place == 0 { Bound::RatioAtLeast(1.0) } else { Bound::Told };
            let (mine, its) = (speed(&ours.key())?, speed(&theirs(*proxy).key())?);
            let name = format!("bulk, {name}: goodput");
            figures.push(Figure::new(name, "MB/s", &mine, proxy.name(), &its, bound));
        }
        for proxy in ranked {
            // A kernel may not count it.
            let (mine, its) = (cost(&ours.key()), cost(&theirs(proxy).key()));
            let (Ok(mine), Ok(its)) = (mine, its) else { continue };
            let name = format!("bulk, {name}: processor time");
            figures.push(Figure::new(name, "s/GB", &mine, proxy.name(), &its, Bound::Told));
        }
        if proxies.is_empty() {
            let (mine, direct) = (speed(&ours.key())?, speed("direct")?);
            let name = format!("bulk, {name}: goodput");
            figures.push(Figure::new(name, "MB/s", &mine, "no relay", &direct, Bound::Told));
        }
    }
    Ok(figures)
}
