//! The environment by which `gridmpi run` and `gridmpi join` tell ranks of their job.

use crate::model::{ClusterName, MOST_CONNECTIONS, Pacing};
use crate::relay::{RelayAccess, RelayToken};
use crate::secret::{JobId, JobKey};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where the coordinator listens: `ip:port` separated by commas. Without it the library is inert.
pub const COORDINATOR: &str = "GRIDMPI_COORDINATOR";
/// The job's identifier: 32 hexadecimal digits.
pub const JOB: &str = "GRIDMPI_JOB";
/// The job's key: 64 hexadecimal digits. Forwarded by name, so that it never shows in arguments.
pub const KEY: &str = "GRIDMPI_KEY";
/// The name of the cluster that this process belongs to.
pub const CLUSTER: &str = "GRIDMPI_CLUSTER";
/// The relays that lead to other clusters: `host:port` separated by commas.
pub const RELAYS: &str = "GRIDMPI_RELAYS";
/// What those relays ask for: 64 hexadecimal digits. Forwarded by name, as the key is.
pub const RELAY_TOKEN: &str = "GRIDMPI_RELAY_TOKEN";
/// Which interface faces the wide area: a name such as `eth1`, or a network such as `10.1.0.0/16`.
pub const INTERFACE: &str = "GRIDMPI_INTERFACE";
/// Bytes of a message that are sent before its receiver has matched it.
pub const EAGER_LIMIT: &str = "GRIDMPI_EAGER_LIMIT";
/// Bytes that one peer may have under way to another without being received.
pub const CREDIT: &str = "GRIDMPI_CREDIT";
/// Whether waiting ranks yield the processor: `auto`, `on` or `off`.
pub const YIELD: &str = "GRIDMPI_YIELD";
/// Whether what leaves for other clusters is held to a rate: `off`, `static` or `auto`.
pub const PACING: &str = "GRIDMPI_PACING";
/// The congestion control of paced connections, as the kernel names it, or `system`; without it the system's, and bbr while they rest.
pub const CONGESTION: &str = "GRIDMPI_CONGESTION";
/// What each node may send to each other cluster, bits per second with an optional suffix k, M or G (powers of 1000): a
/// rate of the user's own, whatever is known of links.
pub const MATB: &str = "GRIDMPI_MATB";
/// Whether connections between clusters are encrypted and authenticated by TLS: `on` or `off`. Read by `gridmpi run` only, since all
/// clusters must do alike.
pub const TLS: &str = "GRIDMPI_TLS";
/// How many connections two processes of different clusters may have at a time, 1 to [`MOST_CONNECTIONS`].
pub const CONNECTIONS: &str = "GRIDMPI_CONNECTIONS";
/// How much the library tells on stderr: `0` (default) to `2`.
pub const DEBUG: &str = "GRIDMPI_DEBUG";
/// Seconds a cluster waits for the others; `0` for as long as it takes.
pub const WAIT: &str = "GRIDMPI_WAIT";
/// Read by `gridmpi` itself: the directory of the preloaded libraries.
pub const LIBDIR: &str = "GRIDMPI_LIBDIR";
/// Read by `gridmpi join`: the join token.
pub const TOKEN: &str = "GRIDMPI_TOKEN";

/// Every name a rank reads, so that launchers can be told to forward them.
pub const FORWARDED: [&str; 16] = [
    COORDINATOR,
    JOB,
    KEY,
    CLUSTER,
    RELAYS,
    RELAY_TOKEN,
    INTERFACE,
    EAGER_LIMIT,
    CREDIT,
    YIELD,
    PACING,
    CONGESTION,
    MATB,
    CONNECTIONS,
    DEBUG,
    WAIT,
];

const DEFAULT_WAIT: Duration = Duration::from_secs(600);
/// Ten years, which is no limit to anybody: clusters may join from batch queues that hold them back for days. Clocks count so far, and
/// poll and sockets are given their time in seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
const MAX_COORDINATORS: usize = 32;

/// What a rank learns from its environment.
#[derive(Clone, Debug)]
pub struct JobEnv {
    /// Where the coordinator listens, in order of preference; never empty.
    pub coordinators: Vec<SocketAddr>,
    /// The job.
    pub job: JobId,
    /// The job's key.
    pub key: JobKey,
    /// This process's cluster.
    pub cluster: ClusterName,
    /// The relays of this cluster, if it has any.
    pub relays: Option<RelayAccess>,
    /// The wide-area interface or network, if one was named.
    pub interface: Option<String>,
    /// How long to wait for the other clusters.
    pub wait: Duration,
    /// What the user tuned.
    pub settings: Settings,
}

/// What the user tuned; `None` leaves the choice to the library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a message sent eagerly.
    pub eager_limit: Option<u64>,
    /// Bytes of credit for each peer.
    pub credit: Option<u64>,
    /// Whether waiting ranks yield the processor.
    pub yielding: Yielding,
    /// Whether what leaves for other clusters is held to a rate; the job's choice otherwise.
    pub pacing: Option<Pacing>,
    /// The congestion control of paced connections.
    pub congestion: Option<String>,
    /// What each node may send to each other cluster, bits per second, more than 0.
    pub matb: Option<u64>,
    /// Whether connections between clusters use TLS; the job's choice otherwise. Not handed on to ranks: the job's table says it.
    pub tls: Option<bool>,
    /// How many connections two processes of different clusters may have at a time; the job's choice otherwise.
    pub connections: Option<u32>,
    /// How much to tell on stderr, 0 to 2.
    pub debug: u8,
}

/// Whether waiting ranks yield the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Yielding {
    /// When ranks outnumber processors.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// A variable that cannot be understood. The key's value is never repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name}: {problem}. {}", remedy(.name))]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// Users set settings, and may; who a process is in a job is none of these.
fn remedy(name: &str) -> &'static str {
    if [COORDINATOR, JOB, KEY, CLUSTER, RELAYS, RELAY_TOKEN].contains(&name) {
        "It is set by `gridmpi run` or `gridmpi join`; start the program by one of them, or unset GRIDMPI_COORDINATOR to run it alone"
    } else {
        "Correct it, or unset it for the default"
    }
}

impl JobEnv {
    /// Reads this process's environment. `Ok(None)`: not started by GridMPI.
    ///
    /// # Errors
    /// Names the first variable that is missing or malformed.
    pub fn from_process() -> Result<Option<Self>, EnvError> {
        Self::parse(|name| std::env::var_os(name))
    }

    /// Reads the environment that `lookup` answers for.
    ///
    /// # Errors
    /// As [`JobEnv::from_process`].
    pub fn parse(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, EnvError> {
        let get = |name: &'static str| text(name, lookup(name));
        let Some(coordinators) = get(COORDINATOR)? else { return Ok(None) };
        let required = |name| get(name)?.ok_or_else(|| error(name, "is missing"));
        Ok(Some(Self {
            coordinators: addresses(&coordinators)?,
            job: JobId::parse(&required(JOB)?).map_err(|e| error(JOB, e))?,
            key: JobKey::parse(&required(KEY)?).map_err(|e| error(KEY, e))?,
            cluster: ClusterName::new(required(CLUSTER)?).map_err(|e| error(CLUSTER, e))?,
            relays: relays(get(RELAYS)?, get(RELAY_TOKEN)?)?,
            interface: get(INTERFACE)?,
            wait: wait(get(WAIT)?)?,
            settings: Settings::read(get)?,
        }))
    }

    /// The moment at which waiting for the other clusters ends, counted from now.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.wait
    }

    /// The variables that make this environment, the key's included: to be set in the environment
    /// of a launcher, never in its arguments.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let coordinators: Vec<_> = self.coordinators.iter().map(SocketAddr::to_string).collect();
        let mut all = vec![
            (COORDINATOR, coordinators.join(",")),
            (JOB, self.job.to_string()),
            (KEY, self.key.reveal()),
            (CLUSTER, self.cluster.to_string()),
            (WAIT, self.wait.as_secs().to_string()),
        ];
        if let Some(relays) = &self.relays {
            all.push((RELAYS, relays.names.join(",")));
            all.push((RELAY_TOKEN, relays.token.reveal()));
        }
        all.extend(self.interface.clone().map(|interface| (INTERFACE, interface)));
        all.extend(self.settings.variables());
        all
    }
}

impl Settings {
    /// Reads the settings out of this process's environment.
    ///
    /// # Errors
    /// Names the first malformed variable.
    pub fn from_process() -> Result<Self, EnvError> {
        Self::read(|name| text(name, std::env::var_os(name)))
    }

    fn read(
        get: impl Fn(&'static str) -> Result<Option<String>, EnvError>,
    ) -> Result<Self, EnvError> {
        Ok(Self {
            eager_limit: get(EAGER_LIMIT)?.map(|v| size(EAGER_LIMIT, &v)).transpose()?,
            credit: get(CREDIT)?.map(|v| size(CREDIT, &v)).transpose()?,
            yielding: yielding(get(YIELD)?.as_deref())?,
            pacing: pacing(get(PACING)?.as_deref())?,
            congestion: congestion(get(CONGESTION)?)?,
            matb: get(MATB)?.map(|v| rate(MATB, &v)).transpose()?,
            tls: get(TLS)?.map(|value| switch(TLS, &value)).transpose()?,
            connections: get(CONNECTIONS)?.map(|v| connections(&v)).transpose()?,
            debug: debug(get(DEBUG)?.as_deref())?,
        })
    }

    /// The variables that say so to ranks; none for what is left to the library.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        all.extend(self.eager_limit.map(|bytes| (EAGER_LIMIT, bytes.to_string())));
        all.extend(self.credit.map(|bytes| (CREDIT, bytes.to_string())));
        match self.yielding {
            Yielding::Auto => {}
            Yielding::On => all.push((YIELD, "on".to_owned())),
            Yielding::Off => all.push((YIELD, "off".to_owned())),
        }
        all.extend(self.matb.map(|rate| (MATB, rate.to_string())));
        all.extend(self.connections.map(|count| (CONNECTIONS, count.to_string())));
        all.extend(self.congestion.clone().map(|name| (CONGESTION, name)));
        all.extend(self.pacing.map(|pacing| (PACING, pacing.name().to_owned())));
        if self.debug > 0 {
            all.push((DEBUG, self.debug.to_string()));
        }
        all
    }
}

/// Empty counts as unset: some launchers cannot unset a variable.
fn text(name: &'static str, value: Option<OsString>) -> Result<Option<String>, EnvError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| error(name, "is not UTF-8"))
}

fn error(name: &'static str, problem: impl ToString) -> EnvError {
    EnvError { name, problem: problem.to_string() }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, EnvError> {
    let parse = |part: &str| {
        part.trim()
            .parse()
            .map_err(|_| error(COORDINATOR, format!("{part:?} is no address of the form ip:port")))
    };
    let all: Vec<SocketAddr> = text.split(',').map(parse).collect::<Result<_, _>>()?;
    if all.len() > MAX_COORDINATORS {
        return Err(error(COORDINATOR, format!("more than {MAX_COORDINATORS} addresses")));
    }
    Ok(all)
}

fn relays(names: Option<String>, token: Option<String>) -> Result<Option<RelayAccess>, EnvError> {
    let Some(names) = names else { return Ok(None) };
    let names = RelayAccess::parse_names(&names).map_err(|e| error(RELAYS, e))?;
    let token = token.ok_or_else(|| error(RELAY_TOKEN, "is missing"))?;
    let token = RelayToken::parse(&token).map_err(|e| error(RELAY_TOKEN, e))?;
    Ok(Some(RelayAccess { names, token }))
}

fn wait(value: Option<String>) -> Result<Duration, EnvError> {
    let Some(value) = value else { return Ok(DEFAULT_WAIT) };
    match value.trim().parse::<u64>() {
        Ok(0) => Ok(LONGEST_WAIT),
        Ok(seconds) => Ok(Duration::from_secs(seconds).min(LONGEST_WAIT)),
        Err(_) => Err(error(WAIT, format!("{value:?} is no number of seconds"))),
    }
}

/// A whole number with an optional suffix k (or K), M or G, by what these stand for; `None` where there is no such number.
fn scaled(text: &str, [kilo, mega, giga]: [u64; 3]) -> Option<u64> {
    let text = text.trim();
    let factors = [("k", kilo), ("K", kilo), ("M", mega), ("G", giga)];
    let found = factors.into_iter().find_map(|(suffix, by)| Some((text.strip_suffix(suffix)?, by)));
    let (digits, factor) = found.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes, with an optional suffix K, M or G (powers of 1024), in small letters, too.
fn size(name: &'static str, text: &str) -> Result<u64, EnvError> {
    let bytes = scaled(&text.to_uppercase(), [1 << 10, 1 << 20, 1 << 30]);
    bytes.ok_or_else(|| error(name, format!("{text:?} is no size in bytes such as 65536 or 64K")))
}

/// What a job needs of a rate, bits per second: with less it would stand still without a word.
pub const LEAST_RATE: u64 = 100_000;

/// Reads bits per second, more than 0, with an optional suffix k, M or G (powers of 1000).
#[must_use]
pub fn parse_rate(text: &str) -> Option<u64> {
    scaled(text, [1_000, 1_000_000, 1_000_000_000]).filter(|rate| *rate > 0)
}

fn rate(name: &'static str, text: &str) -> Result<u64, EnvError> {
    let wanted = "is no rate in bits per second, more than 0, such as 20000000 or 20M";
    let rate = parse_rate(text).ok_or_else(|| error(name, format!("{text:?} {wanted}")))?;
    if rate < LEAST_RATE {
        let least = LEAST_RATE / 1000;
        let problem = format!("{text:?} is too low for a job to get on: at least {least}k");
        return Err(error(name, problem));
    }
    Ok(rate)
}

fn connections(text: &str) -> Result<u32, EnvError> {
    let count = text.trim().parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
    let wanted = || format!("{text:?} is no number of connections from 1 to {MOST_CONNECTIONS}");
    count.ok_or_else(|| error(CONNECTIONS, wanted()))
}

fn yielding(value: Option<&str>) -> Result<Yielding, EnvError> {
    match value.map(str::trim) {
        None | Some("auto") => Ok(Yielding::Auto),
        Some("on" | "1") => Ok(Yielding::On),
        Some("off" | "0") => Ok(Yielding::Off),
        Some(other) => Err(error(YIELD, format!("{other:?} is none of auto, on, off"))),
    }
}

/// Reads `on` or `off`.
#[must_use]
pub fn parse_switch(text: &str) -> Option<bool> {
    match text.trim() {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ => None,
    }
}

fn switch(name: &'static str, text: &str) -> Result<bool, EnvError> {
    parse_switch(text).ok_or_else(|| error(name, format!("{text:?} is none of on, off")))
}

fn pacing(value: Option<&str>) -> Result<Option<Pacing>, EnvError> {
    let Some(name) = value.map(str::trim) else { return Ok(None) };
    let names = Pacing::NAMES.join(", ");
    let problem = || error(PACING, format!("{name:?} is none of {names}"));
    Pacing::parse(name).map(Some).ok_or_else(problem)
}

/// Linux has names of up to 15 bytes (`TCP_CA_NAME_MAX`).
fn congestion(value: Option<String>) -> Result<Option<String>, EnvError> {
    let is_name = |name: &str| {
        name.len() < 16 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    match value {
        Some(name) if !is_name(&name) => {
            let problem = "is no name of a congestion control such as cubic or bbr";
            Err(error(CONGESTION, format!("{name:?} {problem}")))
        }
        value => Ok(value),
    }
}

fn debug(value: Option<&str>) -> Result<u8, EnvError> {
    match value.map(str::trim) {
        None => Ok(0),
        Some("0") => Ok(0),
        Some("1") => Ok(1),
        Some("2") => Ok(2),
        Some(other) => Err(error(DEBUG, format!("{other:?} is none of 0, 1, 2"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use std::collections::HashMap;

    fn good() -> HashMap<&'static str, String> {
        let secret = Secret::parse(&"5".repeat(32)).unwrap();
        let mut all = HashMap::new();
        all.insert(COORDINATOR, "127.0.0.1:5, [::1]:6".to_owned());
        all.insert(JOB, secret.job().to_string());
        all.insert(KEY, secret.key().reveal());
        all.insert(CLUSTER, "a".to_owned());
        all
    }

    fn parse(all: &HashMap<&'static str, String>) -> Result<Option<JobEnv>, EnvError> {
        JobEnv::parse(|name| all.get(name).map(OsString::from))
    }

    #[test]
    fn without_a_coordinator_the_library_is_inert() {
        let mut all = good();
        all.remove(COORDINATOR);
        assert!(parse(&all).unwrap().is_none());
        all.insert(COORDINATOR, String::new());
        assert!(parse(&all).unwrap().is_none());
    }

    #[test]
    fn what_is_written_is_read() {
        let mut all = good();
        all.insert(EAGER_LIMIT, "64k".to_owned());
        all.insert(CREDIT, "16M".to_owned());
        all.insert(YIELD, "off".to_owned());
        all.insert(PACING, "static".to_owned());
        all.insert(CONGESTION, "cubic".to_owned());
        all.insert(MATB, "20M".to_owned());
        all.insert(CONNECTIONS, "16".to_owned());
        all.insert(DEBUG, "2".to_owned());
        all.insert(INTERFACE, "eth1".to_owned());
        all.insert(WAIT, "7".to_owned());
        all.insert(RELAYS, "gw1:70,gw2:70".to_owned());
        all.insert(RELAY_TOKEN, "6".repeat(64));
        let first = parse(&all).unwrap().unwrap();
        assert_eq!(first.coordinators.len(), 2);
        assert_eq!(first.settings.eager_limit, Some(65536));
        assert_eq!(first.settings.connections, Some(16));
        assert_eq!(first.wait, Duration::from_secs(7));
        let second = parse(&first.variables().into_iter().collect()).unwrap().unwrap();
        assert_eq!(second.settings, first.settings);
        assert_eq!((second.interface, &second.relays), (first.interface.clone(), &first.relays));
        assert_eq!(first.relays.as_ref().unwrap().names, ["gw1:70", "gw2:70"]);
        assert_eq!((second.job, second.key.clone()), (first.job, first.key.clone()));
        let names: Vec<_> = first.variables().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| FORWARDED.contains(name)));
    }

    #[test]
    fn a_wait_is_as_long_as_it_was_said() {
        let read = |text: &str| {
            let mut all = good();
            all.insert(WAIT, text.to_owned());
            parse(&all).unwrap().unwrap()
        };
        assert_eq!(read("200000").wait, Duration::from_secs(200_000));
        for endless in ["0", "316224060", "18446744073709551615"] {
            let read = read(endless);
            assert_eq!(read.wait, LONGEST_WAIT);
            assert!(read.deadline() > Instant::now() + Duration::from_secs(9 * 366 * 24 * 3600));
        }
        assert_eq!(parse(&good()).unwrap().unwrap().wait, DEFAULT_WAIT);
    }

    #[test]
    fn who_has_set_a_setting_is_not_sent_to_the_launcher() {
        let mut all = good();
        all.insert(PACING, "warp".to_owned());
        let told = parse(&all).unwrap_err().to_string();
        assert!(
            told.contains("GRIDMPI_PACING")
                && told.ends_with("Correct it, or unset it for the default"),
            "{told}"
        );
        all.remove(KEY);
        let told = parse(&all).unwrap_err().to_string();
        assert!(told.contains("GRIDMPI_KEY") && told.contains("start the program by"), "{told}");
    }

    #[test]
    fn errors_name_the_variable_and_never_the_key() {
        let cases = [
            (COORDINATOR, "nowhere", "nowhere"),
            (JOB, "12", "32 hexadecimal"),
            (KEY, "topsecret", "64 hexadecimal"),
            (RELAYS, "gw", "host:port"),
            (CLUSTER, "a b", "cluster name"),
            (EAGER_LIMIT, "many", "many"),
            (CREDIT, "99999999999G", "bytes"),
            (YIELD, "maybe", "auto"),
            (PACING, "fast", "off, static, auto"),
            (TLS, "maybe", "on, off"),
            (CONGESTION, "no such thing", "cubic or bbr"),
            (MATB, "0", "more than 0"),
            (MATB, "-5M", "more than 0"),
            (MATB, "99999", "at least 100k"),
            (CONNECTIONS, "0", "from 1 to 16"),
            (CONNECTIONS, "17", "from 1 to 16"),
            (CONNECTIONS, "many", "many"),
            (DEBUG, "9", "0, 1, 2"),
            (WAIT, "soon", "seconds"),
        ];
        for (name, value, expected) in cases {
            let mut all = good();
            all.insert(name, value.to_owned());
            let message = parse(&all).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(expected), "{message}");
            assert!(!message.contains("topsecret"));
        }
        for name in [JOB, KEY, CLUSTER] {
            let mut all = good();
            all.remove(name);
            assert!(parse(&all).unwrap_err().to_string().contains("is missing"));
        }
    }
}
