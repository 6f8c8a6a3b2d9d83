//! Relays of several clusters on the loopback interface, each connected to each by TLS, and the crowds that use them.

use super::cost::Cost;
use super::servers::{Keys, SPEAKING};
use crate::bound;
use crate::error::BenchError;
use crate::place::own_program;
use crate::process::{self, Running};
use crate::samples::Samples;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

/// How long a relay may take to say what it has counted.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most warnings that are passed on.
const WORDS: usize = 4;

/// A relay. It has no input whose end it could see, and is in no lab.
#[derive(Debug)]
struct Member {
    running: Running,
    pid: u32,
    address: SocketAddr,
    metrics: SocketAddr,
}

/// All relays.
#[derive(Debug)]
pub(super) struct Mesh(Vec<Member>);

/// A cluster's processes.
#[derive(Debug)]
struct Crowd {
    running: Running,
    orders: ChildStdin,
}

/// The processes of all clusters.
#[derive(Debug)]
pub(super) struct Crowds(Vec<Crowd>);

impl Mesh {
    /// Starts one for each cluster; when this returns each is connected to all others.
    pub(super) fn start(keys: &Keys, clusters: u32, until: Instant) -> Result<Self, BenchError> {
        let mut members: Vec<Member> = Vec::new();
        for number in 0..clusters {
            let settings = settings(keys, number, clusters, &members, until)?;
            let file = keys.write(&format!("{}.toml", name(number)), &settings)?;
            let mut command = bound::command()?;
            command.args(SPEAKING).arg(own_program()?).args(["relay", "--config"]).arg(file);
            // Its lines are read: no colours.
            command.env("NO_COLOR", "1");
            let mut running = process::start("gridmpi relay", &mut command)?;
            let address = address_in(&running.expect("listening address=", until)?)?;
            let metrics = address_in(&running.expect("serving /metrics", until)?)?;
            for _ in 0..number {
                running.expect("connected to a relay", until)?;
            }
            let pid = running.pid();
            members.push(Member { running, pid, address, metrics });
        }
        Ok(Self(members))
    }

    /// What each costs up to now.
    pub(super) fn costs(&self) -> Result<Vec<Cost>, BenchError> {
        self.0.iter().map(|member| Cost::of(member.pid)).collect()
    }

    /// What they have warned of.
    pub(super) fn words(&self) -> String {
        let lines = self.0.iter().flat_map(|member| member.running.said());
        let warnings = lines.filter(|line| line.contains("WARN") || line.contains("ERROR"));
        warnings.take(WORDS).map(|line| format!("; a relay: {line}")).collect()
    }

    /// A gauge of each.
    pub(super) fn gauges(&self, name: &str) -> Result<Vec<f64>, BenchError> {
        self.0.iter().map(|member| gauge(member.metrics, name)).collect()
    }
}

fn name(number: u32) -> String {
    format!("mesh{number}")
}

/// Of a relay that dials those before it and is dialled by those behind it.
fn settings(
    keys: &Keys,
    number: u32,
    clusters: u32,
    before: &[Member],
    until: Instant,
) -> Result<String, BenchError> {
    let own = name(number);
    keys.identity(&own, until)?;
    let mut text = format!(
        "[relay]\nlisten = [\"127.0.0.1:0\"]\nmetrics = \"127.0.0.1:0\"\nidentity = \"{own}\"\n\
         [[token]]\nname = \"bench\"\nfile = \"token\"\n"
    );
    for other in (0..clusters).filter(|other| *other != number) {
        let (_, fingerprint) = keys.identity(&name(other), until)?;
        text += &format!("[[peer]]\nname = \"{}\"\nfingerprint = \"{fingerprint}\"\n", name(other));
        if let Some(member) = before.get(other as usize) {
            text += &format!("address = \"{}\"\n", member.address);
        }
    }
    Ok(text)
}

/// Where it listens, of a line of its log.
fn address_in(line: &str) -> Result<SocketAddr, BenchError> {
    let address = line.split_once("address=").and_then(|(_, rest)| rest.trim().parse().ok());
    address.ok_or_else(|| BenchError::Output(format!("the relay said no address: `{line}`")))
}

fn gauge(address: SocketAddr, name: &str) -> Result<f64, BenchError> {
    let page = page(address).map_err(|error| {
        let what = format!("cannot read /metrics of the relay at {address}");
        BenchError::File { what, error }
    })?;
    let missing = || BenchError::Output(format!("the relay at {address} shows no {name}"));
    super::cost::field(&page, &format!("gridmpi_relay_{name} ")).ok_or_else(missing)
}

fn page(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: relay\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

impl Crowds {
    /// Starts one for each relay.
    pub(super) fn start(mesh: &Mesh, keys: &Keys, processes: u32) -> Result<Self, BenchError> {
        let start = |(number, member): (usize, &Member)| {
            let mut command = Command::new(own_program()?);
            command.args(["bench", "relays-crowd", "--relay", &member.address.to_string()]);
            command.arg("--token").arg(keys.token());
            let (number, count) = (number.to_string(), mesh.0.len().to_string());
            command.args(["--cluster", &number, "--clusters", &count]);
            command.args(["--processes", &processes.to_string()]);
            let (running, orders) = process::converse("the crowd of a cluster", &mut command)?;
            Ok(Crowd { running, orders })
        };
        mesh.0.iter().enumerate().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Lets all do something at once; what they have measured together.
    pub(super) fn order(
        &mut self,
        order: &str,
        mesh: &Mesh,
        until: Instant,
    ) -> Result<Samples, BenchError> {
        for crowd in &mut self.0 {
            // One that is gone has said why: what it says is read below.
            let _ = writeln!(crowd.orders, "{order}");
        }
        let (mut samples, mut failed) = (Samples::default(), Vec::new());
        for (number, crowd) in self.0.iter_mut().enumerate() {
            loop {
                let line = crowd.running.line("done", until)?;
                if let Some(why) = line.strip_prefix("failed ") {
                    failed.push(format!("cluster {number}: {why}"));
                    break;
                }
                if line == "done" {
                    break;
                }
                samples.read(&line);
            }
        }
        if failed.is_empty() {
            return Ok(samples);
        }
        // One that fails takes its circuits away from the others.
        let what = format!("asked to {order}: {}{}", failed.join("; "), mesh.words());
        Err(BenchError::Output(what))
    }
}
