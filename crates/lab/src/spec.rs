//! What a lab is made of, read from its TOML file.
//!
//! ```toml
//! name = "two"                  # default: the file's name
//! gso = false                   # pass super-packets whole (high rates, no packet fidelity)
//! seed = 1                      # of random loss; default: drawn, and printed
//! arrivals = false              # record when each frame came to an emulated link
//!
//! [[cluster]]
//! name = "a"
//! nodes = 4
//! interface = "50 Mbit/s"       # of each node towards the wide area; default: no limit
//! interface_buffer = "64 KiB"   # what comes in is limited, too, and this is the switch's buffer; default: it is not
//!
//! [[link]]                      # without `between`: every pair that no other link joins
//! between = ["a", "b"]
//! bandwidth = "160 Mbit/s"      # default: no limit
//! delay = "10 ms"               # one way; default: 0
//! buffer = "64 KiB"             # default: what the link carries in a round trip, 64 KiB at least
//! loss = "0.1 %"                # default: none
//! emulate = true                # default: when one of the four above asks for it
//!
//! [tcp]                         # in every node
//! congestion = "cubic"
//! rmem = 3000000                # default buffer of a socket, bytes
//! wmem = 3000000
//! ```
//!
//! Unknown keys and values that cannot work are errors that name the line.

use gridmpi_report::units::{self, UnitError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

/// Highest number of clusters in a lab.
pub const MAX_CLUSTERS: usize = 50;
/// Highest number of nodes in one cluster (the last byte of an address is the node's number).
pub const MAX_NODES: u16 = 250;
/// Highest number of nodes in a lab: every node knows every other's address by heart.
pub const MAX_TOTAL: usize = 512;
/// Longest Ethernet frame without super-packets, bytes.
pub const MTU_FRAME: u64 = 1514;
/// Longest super-packet, bytes with headers.
pub const GSO_FRAME: u64 = 61_440;

const MIN_BUFFER: u64 = 65_536;
const MAX_DELAY: Duration = Duration::from_secs(30);
const MAX_RATE: u64 = 1_000_000_000_000;

/// A whole lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Names the lab among those on this machine.
    pub name: String,
    /// Seed of random loss.
    pub seed: u64,
    /// Whether super-packets cross whole.
    pub gso: bool,
    /// Whether the arrival of every frame at an emulated link is recorded.
    pub arrivals: bool,
    /// The clusters, in the file's order.
    pub clusters: Vec<Cluster>,
    /// The links; no two join the same pair.
    pub links: Vec<Link>,
    /// TCP in every node.
    pub tcp: Tcp,
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// Number of nodes, 1 to [`MAX_NODES`].
    pub nodes: u16,
    /// Rate of each node's interface towards the wide area, bit/s on the wire; none: no limit.
    pub interface: Option<u64>,
    /// Drop-tail buffer of the switch in front of each node, bytes of frames; none: what comes in is not limited.
    pub interface_buffer: Option<u64>,
}

/// One link between two clusters, the same both ways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Indices of the two clusters.
    pub between: (usize, usize),
    /// Rate each way, bit/s on the wire; none: no limit.
    pub bandwidth: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
    /// Drop-tail buffer each way, bytes of frames.
    pub buffer: u64,
    /// Probability that a packet is lost after the bottleneck.
    pub loss: f64,
    /// Whether the emulator carries it; else a plain virtual cable.
    pub emulate: bool,
}

/// TCP settings of every node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Congestion control.
    pub congestion: String,
    /// Whether the file asked for it by name (else a system without it is only a warning).
    pub congestion_named: bool,
    /// Default receive buffer, bytes.
    pub rmem: u64,
    /// Default send buffer, bytes.
    pub wmem: u64,
}

/// What is wrong with a lab file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct SpecError {
    file: String,
    line: usize,
    message: String,
}

/// Why no specification was read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the lab file {0}: {1}")]
    Read(String, std::io::Error),
    /// The file is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpec {
    name: Option<Spanned<String>>,
    seed: Option<u64>,
    gso: Option<bool>,
    #[serde(default)]
    arrivals: bool,
    #[serde(default, rename = "cluster")]
    clusters: Vec<RawCluster>,
    #[serde(default, rename = "link")]
    links: Vec<Spanned<RawLink>>,
    #[serde(default)]
    tcp: RawTcp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCluster {
    name: Spanned<String>,
    nodes: Spanned<u64>,
    interface: Option<Spanned<Quantity>>,
    interface_buffer: Option<Spanned<Quantity>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    between: Option<[Spanned<String>; 2]>,
    bandwidth: Option<Spanned<Quantity>>,
    delay: Option<Spanned<Quantity>>,
    buffer: Option<Spanned<Quantity>>,
    loss: Option<Spanned<Quantity>>,
    emulate: Option<Spanned<bool>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawTcp {
    congestion: Option<Spanned<String>>,
    rmem: Option<Spanned<Quantity>>,
    wmem: Option<Spanned<Quantity>>,
}

/// A number, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or a text with a unit")]
enum Quantity {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

impl Quantity {
    fn text(&self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The file while it is being checked: turns byte offsets into lines.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, offset: usize, message: impl Into<String>) -> SpecError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        SpecError { file: self.file.to_owned(), line, message: message.into() }
    }

    fn at<T>(&self, place: &Spanned<T>, message: impl Into<String>) -> SpecError {
        self.error(place.span().start, message)
    }

    fn quantity<T>(
        &self,
        value: Option<&Spanned<Quantity>>,
        parse: impl FnOnce(&str) -> Result<T, UnitError>,
    ) -> Result<Option<T>, SpecError> {
        let Some(value) = value else { return Ok(None) };
        let parsed = parse(&value.get_ref().text());
        parsed.map(Some).map_err(|error| self.at(value, error.to_string()))
    }

    /// A rate that something can be carried with.
    fn rate(&self, value: Option<&Spanned<Quantity>>) -> Result<Option<u64>, SpecError> {
        let rate = self.quantity(value, units::parse_rate)?;
        match (rate, value) {
            (Some(rate), Some(place)) if !(1000..=MAX_RATE).contains(&rate) => {
                Err(self.at(place, "a rate must lie between 1 kbit/s and 1 Tbit/s"))
            }
            _ => Ok(rate),
        }
    }
}

impl Spec {
    /// Reads a lab file.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| LoadError::Read(file.clone(), e))?;
        let stem = path.file_stem().map_or("lab".into(), |stem| stem.to_string_lossy());
        Ok(Self::parse(&text, &file, &stem)?)
    }

    /// Reads the text of a lab file; `file` is what errors call it, `stem` the default name.
    ///
    /// # Errors
    /// When the text is wrong.
    pub fn parse(text: &str, file: &str, stem: &str) -> Result<Self, SpecError> {
        let source = Source { file, text };
        let raw: RawSpec = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            source.error(offset, error.message().to_owned())
        })?;
        let name = match &raw.name {
            Some(name) => {
                check_name(name.get_ref()).map_err(|message| source.at(name, message))?;
                name.get_ref().clone()
            }
            None => cleaned_name(stem),
        };
        let clusters = read_clusters(&source, &raw.clusters)?;
        let mut links = read_links(&source, &raw.links, &clusters)?;
        let is_plain = || {
            links.iter().all(|(link, _)| !link.emulate)
                && clusters.iter().all(|cluster| cluster.interface_buffer.is_none())
        };
        let gso = raw.gso.unwrap_or_else(is_plain);
        check_buffers(&source, &mut links, gso)?;
        check_interface_buffers(&source, &raw.clusters, &clusters, gso)?;
        let links = links.into_iter().map(|(link, _)| link).collect();
        let tcp = read_tcp(&source, &raw.tcp)?;
        let seed = raw.seed.unwrap_or_else(drawn_seed);
        Ok(Self { name, seed, gso, arrivals: raw.arrivals, clusters, links, tcp })
    }
}

/// A seed that differs from run to run; printed, so that a run can be repeated.
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |since| since.as_nanos() as u64);
    // Six digits are easy to copy and enough to vary.
    (nanoseconds / 1000 + u64::from(std::process::id())) % 1_000_000
}

/// Checks a name of a lab or a cluster: it becomes a host name and a file name.
///
/// # Errors
/// Says what is wrong.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if plain && begins && !name.ends_with('-') && name.len() <= 40 {
        return Ok(());
    }
    Err(format!("`{name}` is no name: letters, digits and `-`, a letter first, at most 40"))
}

/// A lab's name made from a file's name.
fn cleaned_name(stem: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = stem.chars().map(plain).take(40).collect();
    let name = name.trim_matches('-');
    if check_name(name).is_ok() { name.to_owned() } else { "lab".to_owned() }
}

fn read_clusters(source: &Source<'_>, raw: &[RawCluster]) -> Result<Vec<Cluster>, SpecError> {
    if raw.is_empty() {
        return Err(source.error(0, "no cluster: write a [[cluster]] with `name` and `nodes`"));
    }
    let mut clusters: Vec<Cluster> = Vec::new();
    for cluster in raw {
        let name = cluster.name.get_ref();
        check_name(name).map_err(|message| source.at(&cluster.name, message))?;
        if name == "head" {
            return Err(source.at(&cluster.name, "`head` is the name of the lab's own host"));
        }
        if clusters.iter().any(|other| other.name == *name) {
            return Err(source.at(&cluster.name, format!("a second cluster `{name}`")));
        }
        let nodes = u16::try_from(*cluster.nodes.get_ref()).unwrap_or(0);
        if !(1..=MAX_NODES).contains(&nodes) {
            let message = format!("a cluster has 1 to {MAX_NODES} nodes");
            return Err(source.at(&cluster.nodes, message));
        }
        let interface = source.rate(cluster.interface.as_ref())?;
        let interface_buffer =
            source.quantity(cluster.interface_buffer.as_ref(), units::parse_size)?;
        clusters.push(Cluster { name: name.clone(), nodes, interface, interface_buffer });
        let total: usize = clusters.iter().map(|cluster| usize::from(cluster.nodes)).sum();
        if total > MAX_TOTAL || clusters.len() > MAX_CLUSTERS {
            let message =
                format!("a lab has at most {MAX_CLUSTERS} clusters and {MAX_TOTAL} nodes");
            return Err(source.at(&cluster.nodes, message));
        }
    }
    Ok(clusters)
}

/// A link and where its buffer, or else the link itself, stands in the file.
type Placed = (Link, usize);

fn read_links(
    source: &Source<'_>,
    raw: &[Spanned<RawLink>],
    clusters: &[Cluster],
) -> Result<Vec<Placed>, SpecError> {
    let mut links: Vec<Placed> = Vec::new();
    let mut for_the_rest: Option<&Spanned<RawLink>> = None;
    for link in raw {
        let Some(between) = &link.get_ref().between else {
            if for_the_rest.replace(link).is_some() {
                return Err(source.at(link, "a second [[link]] without `between`"));
            }
            continue;
        };
        let pair = read_pair(source, between, clusters)?;
        if links.iter().any(|(other, _)| other.between == pair) {
            return Err(source.at(&between[0], "a second link between the same two clusters"));
        }
        links.push(read_link(source, link, pair)?);
    }
    // With no link at all every pair is joined by a plain cable; links that are written down
    // are the whole wide area, and what they do not join directly goes over several of them.
    let plain = toml::from_str::<Spanned<RawLink>>("").ok().filter(|_| raw.is_empty());
    let Some(rest) = for_the_rest.or(plain.as_ref()) else { return Ok(links) };
    for second in 1..clusters.len() {
        for first in 0..second {
            if !links.iter().any(|(other, _)| other.between == (first, second)) {
                links.push(read_link(source, rest, (first, second))?);
            }
        }
    }
    Ok(links)
}

fn read_pair(
    source: &Source<'_>,
    between: &[Spanned<String>; 2],
    clusters: &[Cluster],
) -> Result<(usize, usize), SpecError> {
    let find = |name: &Spanned<String>| {
        let found = clusters.iter().position(|cluster| cluster.name == *name.get_ref());
        found.ok_or_else(|| source.at(name, format!("there is no cluster `{}`", name.get_ref())))
    };
    let (first, second) = (find(&between[0])?, find(&between[1])?);
    if first == second {
        return Err(source.at(&between[1], "a link joins two different clusters"));
    }
    Ok((first.min(second), first.max(second)))
}

fn read_link(
    source: &Source<'_>,
    place: &Spanned<RawLink>,
    between: (usize, usize),
) -> Result<Placed, SpecError> {
    let raw = place.get_ref();
    let bandwidth = source.rate(raw.bandwidth.as_ref())?;
    let delay = source.quantity(raw.delay.as_ref(), units::parse_duration)?.unwrap_or_default();
    if let (true, Some(at)) = (delay > MAX_DELAY, &raw.delay) {
        return Err(source.at(at, "a delay is at most 30 s"));
    }
    let loss = source.quantity(raw.loss.as_ref(), units::parse_fraction)?.unwrap_or(0.0);
    let buffer = source.quantity(raw.buffer.as_ref(), units::parse_size)?;
    if let (Some(at), None) = (&raw.buffer, bandwidth) {
        return Err(source.at(at, "a buffer does nothing without a bandwidth"));
    }
    let wanted = bandwidth.is_some() || !delay.is_zero() || loss > 0.0;
    let emulate = raw.emulate.as_ref().map_or(wanted, |emulate| *emulate.get_ref());
    if let (true, false, Some(at)) = (wanted, emulate, &raw.emulate) {
        let message = "a link with bandwidth, delay or loss needs the emulator";
        return Err(source.at(at, message));
    }
    let round_trip = 2 * u64::try_from(delay.as_millis()).unwrap_or(0);
    let carried = bandwidth.map_or(0, |rate| rate / 8000 * round_trip);
    let link = Link {
        between,
        bandwidth,
        delay,
        buffer: buffer.unwrap_or(carried.max(MIN_BUFFER)),
        loss,
        emulate,
    };
    let offset = raw.buffer.as_ref().map_or(place.span().start, |at| at.span().start);
    Ok((link, offset))
}

fn check_buffers(source: &Source<'_>, links: &mut [Placed], gso: bool) -> Result<(), SpecError> {
    let least = least_buffer(gso);
    match links.iter().find(|(link, _)| link.buffer < least) {
        Some((_, offset)) => Err(source.error(*offset, too_small(least))),
        None => Ok(()),
    }
}

fn check_interface_buffers(
    source: &Source<'_>,
    raw: &[RawCluster],
    clusters: &[Cluster],
    gso: bool,
) -> Result<(), SpecError> {
    let least = least_buffer(gso);
    for (raw, cluster) in raw.iter().zip(clusters) {
        match (&raw.interface_buffer, cluster.interface_buffer) {
            (Some(at), _) if cluster.interface.is_none() => {
                return Err(source.at(at, "a buffer does nothing without an `interface` rate"));
            }
            (Some(at), Some(buffer)) if buffer < least => {
                return Err(source.at(at, too_small(least)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// One packet, bytes of frames.
fn least_buffer(gso: bool) -> u64 {
    if gso { GSO_FRAME } else { MTU_FRAME }
}

fn too_small(least: u64) -> String {
    format!("a buffer must hold one packet: {least} bytes at least")
}

fn read_tcp(source: &Source<'_>, raw: &RawTcp) -> Result<Tcp, SpecError> {
    let size = |value: Option<&Spanned<Quantity>>| {
        let size = source.quantity(value, units::parse_size)?.unwrap_or(3_000_000);
        match value {
            Some(place) if !(4096..=1 << 30).contains(&size) => {
                Err(source.at(place, "a socket buffer lies between 4 KiB and 1 GiB"))
            }
            _ => Ok(size),
        }
    };
    if let Some(name) = &raw.congestion
        && !name.get_ref().chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        return Err(source.at(name, "not a congestion control's name"));
    }
    let named = raw.congestion.as_ref().map(|name| name.get_ref().clone());
    Ok(Tcp {
        congestion_named: named.is_some(),
        congestion: named.unwrap_or_else(|| "cubic".to_owned()),
        rmem: size(raw.rmem.as_ref())?,
        wmem: size(raw.wmem.as_ref())?,
    })
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
