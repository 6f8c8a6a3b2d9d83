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
//! [[cluster]]                   # whose nodes have no wide-area interface: see [`crate::private`]
//! name = "p"
//! nodes = 4
//! private = true
//!
//! [[host]]                      # a single machine on the wide area
//! name = "pub"
//! interface = "1 Gbit/s"
//!
//! [[link]]                      # without `between`: every pair that no other link joins
//! between = ["a", "b"]
//! bandwidth = "160 Mbit/s"      # default: no limit
//! delay = "10 ms"               # one way; default: 0
//! buffer = "64 KiB"             # default: what the link carries in a round trip, 64 KiB at least
//! loss = "0.1 %"                # default: none
//! coalesce = "100 us"           # the far side is woken that seldom at most; default: for each packet
//! emulate = true                # default: when one of the five above asks for it
//!
//! [tcp]                         # in every node
//! congestion = "cubic"
//! rmem = 3000000                # default buffer of a socket, bytes
//! wmem = 3000000
//!
//! [[fault]]                     # see [`crate::fault`]
//! at = "3 s"                    # since the lab came up
//! what = "cut a-pub"
//! for = "2 s"                   # default: until it is undone
//! ```
//!
//! Unknown keys and values that cannot work are errors that name the line.

use crate::fault::{self, Fault};
use crate::plan;
use crate::private::{self, Private};
use gridmpi_report::units::{self, UnitError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

/// Highest number of clusters and public hosts in a lab.
pub const MAX_CLUSTERS: usize = 50;
/// Highest number of nodes in one cluster (the last byte of an address is the node's number).
pub const MAX_NODES: u16 = 250;
/// Highest number of nodes, gateways and hosts in a lab: each knows every other's address by heart.
pub const MAX_TOTAL: usize = 512;
/// Longest Ethernet frame without super-packets, bytes.
pub const MTU_FRAME: u64 = 1514;
/// Longest super-packet, bytes with headers.
pub const GSO_FRAME: u64 = 61_440;

const MIN_BUFFER: u64 = 65_536;
const MAX_DELAY: Duration = Duration::from_secs(30);
const MAX_COALESCE: Duration = Duration::from_millis(10);
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
    /// Machines that are on the wide area only, in the file's order.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// The links; no two join the same pair.
    pub links: Vec<Link>,
    /// TCP in every node.
    pub tcp: Tcp,
    /// Faults that the lab makes by itself, by time.
    #[serde(default)]
    pub faults: Vec<Planned>,
}

/// A fault that the lab file asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// When, since the lab came up.
    pub at: Duration,
    /// What, in the words of [`Fault::read`], which takes them.
    pub what: String,
    /// How long; none: until it is undone.
    pub lasts: Option<Duration>,
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
    /// How the nodes are hidden from the wide area; then the two above are of each gateway. None: every node is on it.
    #[serde(default)]
    pub private: Option<Private>,
}

/// A machine on the wide area, in no cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// Rate of its interface, bit/s on the wire; none: no limit.
    pub interface: Option<u64>,
    /// Drop-tail buffer of the switch in front of it, bytes of frames; none: what comes in is not limited.
    pub interface_buffer: Option<u64>,
}

/// One link between two sites (clusters, public hosts), the same both ways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The two sites: indices of clusters, and behind those of hosts ([`Spec::site_name`]).
    pub between: (usize, usize),
    /// Rate each way, bit/s on the wire; none: no limit.
    pub bandwidth: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
    /// Drop-tail buffer each way, bytes of frames.
    pub buffer: u64,
    /// Probability that a packet is lost after the bottleneck.
    pub loss: f64,
    /// A packet is held this long at most, so that others are delivered with it.
    pub coalesce: Duration,
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
    #[serde(default, rename = "host")]
    hosts: Vec<RawHost>,
    #[serde(default, rename = "link")]
    links: Vec<Spanned<RawLink>>,
    #[serde(default)]
    tcp: RawTcp,
    #[serde(default, rename = "fault")]
    faults: Vec<RawFault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCluster {
    pub(crate) name: Spanned<String>,
    nodes: Spanned<u64>,
    pub(crate) interface: Option<Spanned<Quantity>>,
    interface_buffer: Option<Spanned<Quantity>>,
    pub(crate) private: Option<Spanned<bool>>,
    pub(crate) gateways: Option<Spanned<u64>>,
    pub(crate) gateway_interface: Option<Spanned<Quantity>>,
    pub(crate) network: Option<Spanned<String>>,
    pub(crate) nat: Option<Spanned<bool>>,
    pub(crate) nat_timeout: Option<Spanned<Quantity>>,
    pub(crate) firewall: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    name: Spanned<String>,
    interface: Option<Spanned<Quantity>>,
    interface_buffer: Option<Spanned<Quantity>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    at: Spanned<Quantity>,
    what: Spanned<String>,
    #[serde(rename = "for")]
    lasts: Option<Spanned<Quantity>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    between: Option<[Spanned<String>; 2]>,
    bandwidth: Option<Spanned<Quantity>>,
    delay: Option<Spanned<Quantity>>,
    buffer: Option<Spanned<Quantity>>,
    loss: Option<Spanned<Quantity>>,
    coalesce: Option<Spanned<Quantity>>,
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
pub(crate) enum Quantity {
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
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    pub(crate) fn error(&self, offset: usize, message: impl Into<String>) -> SpecError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        SpecError { file: self.file.to_owned(), line, message: message.into() }
    }

    pub(crate) fn at<T>(&self, place: &Spanned<T>, message: impl Into<String>) -> SpecError {
        self.error(place.span().start, message)
    }

    pub(crate) fn quantity<T>(
        &self,
        value: Option<&Spanned<Quantity>>,
        parse: impl FnOnce(&str) -> Result<T, UnitError>,
    ) -> Result<Option<T>, SpecError> {
        let Some(value) = value else { return Ok(None) };
        let parsed = parse(&value.get_ref().text());
        parsed.map(Some).map_err(|error| self.at(value, error.to_string()))
    }

    /// A rate that something can be carried with.
    pub(crate) fn rate(&self, value: Option<&Spanned<Quantity>>) -> Result<Option<u64>, SpecError> {
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
        let hosts = read_hosts(&source, &raw.hosts, clusters.len())?;
        let names: Vec<&Spanned<String>> =
            raw.clusters.iter().map(|c| &c.name).chain(raw.hosts.iter().map(|h| &h.name)).collect();
        let mut links = read_links(&source, &raw.links, &names)?;
        let buffers = interface_buffers(&source, &raw, &clusters, &hosts)?;
        let is_plain = || links.iter().all(|(link, _)| !link.emulate) && buffers.is_empty();
        let gso = raw.gso.unwrap_or_else(is_plain);
        check_buffers(&source, &mut links, gso)?;
        check_interface_buffers(&source, &buffers, gso)?;
        let links = links.into_iter().map(|(link, _)| link).collect();
        let tcp = read_tcp(&source, &raw.tcp)?;
        let seed = raw.seed.unwrap_or_else(drawn_seed);
        let (arrivals, faults) = (raw.arrivals, Vec::new());
        let mut spec = Self { name, seed, gso, arrivals, clusters, hosts, links, tcp, faults };
        check_machines(&source, &spec, &names)?;
        spec.faults = read_faults(&source, &raw.faults, &spec)?;
        Ok(spec)
    }

    /// Number of clusters and public hosts.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.clusters.len() + self.hosts.len()
    }

    /// Name of a cluster, or of the host that many behind the clusters; empty beyond those.
    #[must_use]
    pub fn site_name(&self, site: usize) -> &str {
        let host = || self.hosts.get(site.checked_sub(self.clusters.len())?);
        let cluster = self.clusters.get(site).map(|cluster| cluster.name.as_str());
        cluster.or_else(|| host().map(|host| host.name.as_str())).unwrap_or_default()
    }

    /// How the nodes of a site are hidden, if it is a cluster that hides them.
    #[must_use]
    pub fn private(&self, site: usize) -> Option<&Private> {
        self.clusters.get(site)?.private.as_ref()
    }

    /// Rate and incoming buffer of a site's interfaces on the wide area.
    #[must_use]
    pub fn wide_interface(&self, site: usize) -> (Option<u64>, Option<u64>) {
        let host = || self.hosts.get(site.checked_sub(self.clusters.len())?);
        match self.clusters.get(site) {
            Some(cluster) => (cluster.interface, cluster.interface_buffer),
            None => host().map_or((None, None), |host| (host.interface, host.interface_buffer)),
        }
    }
}

/// No two machines may have one name, nor be too many.
fn check_machines(
    source: &Source<'_>,
    spec: &Spec,
    names: &[&Spanned<String>],
) -> Result<(), SpecError> {
    let mut seen = std::collections::HashSet::new();
    for (index, name) in names.iter().enumerate() {
        if names.iter().take(index).any(|other| other.get_ref() == name.get_ref()) {
            return Err(source.at(name, format!("a second site `{}`", name.get_ref())));
        }
    }
    let nodes = plan::nodes(spec);
    for (count, node) in nodes.iter().enumerate() {
        let Some(place) = names.get(node.cluster) else { continue };
        if !seen.insert(node.name.as_str()) {
            let message = format!("two machines would be called `{}`: rename one", node.name);
            return Err(source.at(place, message));
        }
        if count >= MAX_TOTAL {
            return Err(source.at(place, too_many()));
        }
    }
    Ok(())
}

fn too_many() -> String {
    format!(
        "a lab has at most {MAX_CLUSTERS} clusters and hosts, and {MAX_TOTAL} nodes, gateways and hosts"
    )
}

fn read_faults(
    source: &Source<'_>,
    raw: &[RawFault],
    spec: &Spec,
) -> Result<Vec<Planned>, SpecError> {
    let mut faults = Vec::new();
    for fault in raw {
        let at = source.quantity(Some(&fault.at), units::parse_duration)?.unwrap_or_default();
        let lasts = source.quantity(fault.lasts.as_ref(), units::parse_duration)?;
        let words: Vec<&str> = fault.what.get_ref().split_whitespace().collect();
        let read = Fault::read(&words, spec).map_err(|why| source.at(&fault.what, why))?;
        if let (false, Some(place)) = (read.lasts(), &fault.lasts) {
            let message = "only cut, silence and loss last: leave `for` out";
            return Err(source.at(place, message));
        }
        if let (Some(Duration::ZERO), Some(place)) = (lasts, &fault.lasts) {
            return Err(source.at(place, fault::TOO_SHORT));
        }
        faults.push(Planned { at, what: words.join(" "), lasts });
    }
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

/// A seed that differs from run to run; printed, so that a run can be repeated.
pub(crate) fn drawn_seed() -> u64 {
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
        check_site(source, &cluster.name, clusters.len())?;
        if clusters.iter().any(|other| other.name == *name) {
            return Err(source.at(&cluster.name, format!("a second cluster `{name}`")));
        }
        let nodes = u16::try_from(*cluster.nodes.get_ref()).unwrap_or(0);
        if !(1..=MAX_NODES).contains(&nodes) {
            let message = format!("a cluster has 1 to {MAX_NODES} nodes");
            return Err(source.at(&cluster.nodes, message));
        }
        let private = private::read(source, cluster, clusters.len())?;
        // What a private cluster has towards the wide area are its gateways.
        let interface = match private {
            Some(_) => source.rate(cluster.gateway_interface.as_ref())?,
            None => source.rate(cluster.interface.as_ref())?,
        };
        let interface_buffer =
            source.quantity(cluster.interface_buffer.as_ref(), units::parse_size)?;
        clusters.push(Cluster { name: name.clone(), nodes, interface, interface_buffer, private });
        let total: usize = clusters.iter().map(|cluster| usize::from(cluster.nodes)).sum();
        if total > MAX_TOTAL {
            return Err(source.at(&cluster.nodes, too_many()));
        }
    }
    Ok(clusters)
}

/// Checks the name of a cluster or public host before which there are `before`.
fn check_site(source: &Source<'_>, name: &Spanned<String>, before: usize) -> Result<(), SpecError> {
    check_name(name.get_ref()).map_err(|message| source.at(name, message))?;
    if name.get_ref() == plan::HEAD {
        return Err(source.at(name, "`head` is the name of the lab's own host"));
    }
    if before >= MAX_CLUSTERS {
        return Err(source.at(name, too_many()));
    }
    Ok(())
}

fn read_hosts(
    source: &Source<'_>,
    raw: &[RawHost],
    clusters: usize,
) -> Result<Vec<Host>, SpecError> {
    let mut hosts: Vec<Host> = Vec::new();
    for host in raw {
        check_site(source, &host.name, clusters + hosts.len())?;
        let interface = source.rate(host.interface.as_ref())?;
        let interface_buffer =
            source.quantity(host.interface_buffer.as_ref(), units::parse_size)?;
        hosts.push(Host { name: host.name.get_ref().clone(), interface, interface_buffer });
    }
    Ok(hosts)
}

/// A link and where its buffer, or else the link itself, stands in the file.
type Placed = (Link, usize);

fn read_links(
    source: &Source<'_>,
    raw: &[Spanned<RawLink>],
    sites: &[&Spanned<String>],
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
        let pair = read_pair(source, between, sites)?;
        if links.iter().any(|(other, _)| other.between == pair) {
            return Err(source.at(&between[0], "a second link between the same two"));
        }
        links.push(read_link(source, link, pair)?);
    }
    // With no link at all every pair is joined by a plain cable; links that are written down
    // are the whole wide area, and what they do not join directly goes over several of them.
    let plain = toml::from_str::<Spanned<RawLink>>("").ok().filter(|_| raw.is_empty());
    let Some(rest) = for_the_rest.or(plain.as_ref()) else { return Ok(links) };
    for second in 1..sites.len() {
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
    sites: &[&Spanned<String>],
) -> Result<(usize, usize), SpecError> {
    let find = |name: &Spanned<String>| {
        let found = sites.iter().position(|site| site.get_ref() == name.get_ref());
        found.ok_or_else(|| {
            source.at(name, format!("there is no cluster `{}`, nor a host", name.get_ref()))
        })
    };
    let (first, second) = (find(&between[0])?, find(&between[1])?);
    if first == second {
        return Err(source.at(&between[1], "a link joins two different clusters or hosts"));
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
    let coalesce =
        source.quantity(raw.coalesce.as_ref(), units::parse_duration)?.unwrap_or_default();
    if let (true, Some(at)) = (coalesce > MAX_COALESCE, &raw.coalesce) {
        return Err(source.at(at, "packets are held together for 10 ms at most"));
    }
    let buffer = source.quantity(raw.buffer.as_ref(), units::parse_size)?;
    if let (Some(at), None) = (&raw.buffer, bandwidth) {
        return Err(source.at(at, "a buffer does nothing without a bandwidth"));
    }
    let wanted = bandwidth.is_some() || !delay.is_zero() || loss > 0.0 || !coalesce.is_zero();
    let emulate = raw.emulate.as_ref().map_or(wanted, |emulate| *emulate.get_ref());
    if let (true, false, Some(at)) = (wanted, emulate, &raw.emulate) {
        let message = "a link with bandwidth, delay, loss or coalesce needs the emulator";
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
        coalesce,
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

/// The incoming buffers of interfaces, and where they stand.
fn interface_buffers<'a>(
    source: &Source<'_>,
    raw: &'a RawSpec,
    clusters: &[Cluster],
    hosts: &[Host],
) -> Result<Vec<(&'a Spanned<Quantity>, u64)>, SpecError> {
    let rates = clusters.iter().map(|c| c.interface).chain(hosts.iter().map(|h| h.interface));
    let sizes =
        clusters.iter().map(|c| c.interface_buffer).chain(hosts.iter().map(|h| h.interface_buffer));
    let places = raw.clusters.iter().map(|c| (c.interface_buffer.as_ref(), c.private.is_some()));
    let places = places.chain(raw.hosts.iter().map(|h| (h.interface_buffer.as_ref(), false)));
    let mut buffers = Vec::new();
    for ((rate, size), (place, is_private)) in rates.zip(sizes).zip(places) {
        let (Some(size), Some(place)) = (size, place) else { continue };
        if rate.is_none() {
            let key = if is_private { "gateway_interface" } else { "interface" };
            let message = format!("a buffer does nothing without an `{key}` rate");
            return Err(source.at(place, message));
        }
        buffers.push((place, size));
    }
    Ok(buffers)
}

fn check_interface_buffers(
    source: &Source<'_>,
    buffers: &[(&Spanned<Quantity>, u64)],
    gso: bool,
) -> Result<(), SpecError> {
    let least = least_buffer(gso);
    match buffers.iter().find(|(_, size)| *size < least) {
        Some((place, _)) => Err(source.at(place, too_small(least))),
        None => Ok(()),
    }
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
