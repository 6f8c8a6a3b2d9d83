//! What the system allows, and what is said when there is too little of something.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::field::{DisplayValue, display};
use tracing::{info, warn};

use crate::config::Config;
use crate::core::Bound;
use crate::daemon::Daemon;
use crate::sockets::CLOSING_MOST;

/// Descriptors beside those of connections and listeners: standard streams, the event queue, `/metrics`, names being looked up.
const OWN: usize = 32;

/// Fewer connections than these are no relay.
const LEAST: usize = 16;

/// How often the same is said.
const AGAIN: Duration = Duration::from_secs(60);

/// So many lines of one kind in a second: a flood of connections must not become one of the log.
const LINES: u32 = 10;

/// What was said of connections that came or went in this second, or in the last in which there were any.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Lines {
    /// Another one came. Whether to tell of it, and how many nobody was told of in the second before.
    pub(crate) fn another(&mut self, now: Instant) -> (bool, u64) {
        let mut before = 0;
        if self.since.is_none_or(|since| now >= since + Duration::from_secs(1)) {
            (self.since, self.told) = (Some(now), 0);
            before = std::mem::take(&mut self.untold);
        }
        let is_told = self.told < LINES;
        if is_told {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        (is_told, before)
    }
}

/// What was said of lately.
#[derive(Debug, Default)]
pub(crate) struct Said(BTreeMap<Bound, Instant>);

impl Said {
    /// Whether it is to be said now.
    fn is_news(&mut self, what: Bound, now: Instant) -> bool {
        let is_news = self.0.get(&what).is_none_or(|last| now >= *last + AGAIN);
        if is_news {
            self.0.insert(what, now);
        }
        is_news
    }
}

/// Lets this process use as many descriptors as it may: what is there by default is for programs that wait by `select`.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!("cannot raise the limit of file descriptors: {error}");
        }
    }
}

/// Descriptors that this process may use; `None`: no limit.
fn descriptors() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The most connections that so many descriptors leave room for.
fn most_connections(descriptors: usize, config: &Config) -> io::Result<usize> {
    let dialled: usize = config.peers.iter().map(|peer| peer.connections).sum();
    let others = OWN + config.listen.len() + config.unproven.most + CLOSING_MOST + dialled;
    let most = descriptors.saturating_sub(others);
    if most < LEAST {
        return Err(io::Error::other(format!(
            "RLIMIT_NOFILE allows {descriptors} file descriptors, and a relay needs {} at the least: raise it (`ulimit -n`, LimitNOFILE= of \
             its systemd unit)",
            others + LEAST
        )));
    }
    Ok(most)
}

/// Bounds connections by the descriptors that there are, so that a relay never runs out of those: who cannot be served is
/// told so, and connections to other relays can always be made anew.
///
/// # Errors
/// There are too few.
pub(crate) fn bound_connections(config: &mut Config) -> io::Result<()> {
    let Some(descriptors) = descriptors() else { return Ok(()) };
    let most = most_connections(descriptors, config)?;
    config.limits.connections = config.limits.connections.min(most);
    info!(connections = most, descriptors, "bounded by RLIMIT_NOFILE");
    Ok(())
}

/// As people write it: a peer of IPv4 by its own address, also where a socket takes both families.
pub(crate) fn shown(address: Option<SocketAddr>) -> Option<DisplayValue<SocketAddr>> {
    address.map(|at| display(SocketAddr::new(at.ip().to_canonical(), at.port())))
}

impl Daemon {
    /// Somebody was sent away who has not proven himself.
    pub(crate) fn rejected(&mut self, from: Option<SocketAddr>, why: &dyn Display) {
        self.counts.rejected += 1;
        let (is_told, before) = self.strangers.another(Instant::now());
        if before > 0 {
            info!(count = before, "more connections were refused");
        }
        if is_told {
            info!(from = shown(from), "connection refused: {why}");
        }
    }

    /// A process's connection is lost since its host does not answer.
    pub(crate) fn given_up(&mut self, process: Option<SocketAddr>) {
        self.counts.silent += 1;
        let (is_told, before) = self.silent.another(Instant::now());
        if before > 0 {
            warn!(count = before, "more connections of processes were given up");
        }
        if is_told {
            warn!(
                process = shown(process),
                "a process's connection is given up: its host, or the way there, does not answer"
            );
        }
    }

    /// Says why processes are refused, if they are.
    pub(crate) fn say_what_is_full(&mut self) {
        let Some(bound) = self.core.take_full() else { return };
        if !self.said.is_news(bound, Instant::now()) {
            return;
        }
        let limits = &self.config.limits;
        let (circuits, connections) = (self.core.circuits(), limits.connections);
        match bound {
            Bound::Memory => warn!(
                circuits,
                "FULL: `memory` of {} MB is granted to senders, and new circuits are refused: raise `memory`, or share the \
                 processes among more relays",
                limits.memory / 1_000_000
            ),
            Bound::Circuits => warn!(
                "FULL: {circuits} circuits stand of {} that may (a job leaves some for others), and new ones are refused: raise \
                 `circuits`, or share the processes among more relays",
                limits.circuits
            ),
            Bound::Connections => warn!(
                circuits,
                "FULL: RLIMIT_NOFILE leaves room for {connections} connections (a job leaves some for others), and new ones are refused: \
                 raise it (LimitNOFILE= of the systemd unit, `ulimit -Hn`), or share the processes among more relays"
            ),
            Bound::Clusters => warn!(
                "FULL: processes of a job register as of more than 64 clusters, and those beyond are refused: use several relays, or see \
                 who has the token"
            ),
        }
    }

    /// The system gives no descriptor for a connection that waits.
    pub(crate) fn cannot_accept(&mut self, why: rustix::io::Errno) {
        if self.said.is_news(Bound::Connections, Instant::now()) {
            warn!(
                "connections wait unanswered: {why}: the system is short of descriptors or memory (sysctl fs.file-max, LimitNOFILE=)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_leave_room_for_all_that_is_no_connection() {
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], ..Config::default() };
        assert_eq!(most_connections(1024, &config).unwrap(), 1024 - 32 - 1 - 64 - 256);
        let text = most_connections(256, &config).unwrap_err().to_string();
        assert!(
            text.contains("256") && text.contains("369") && text.contains("LimitNOFILE"),
            "{text}"
        );
    }

    #[test]
    fn a_flood_is_told_of_by_its_size() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        let told = (0..1000).filter(|_| lines.another(now).0).count();
        assert_eq!(told, 10);
        assert_eq!(lines.another(now + Duration::from_secs(2)), (true, 990));
        assert_eq!(lines.another(now + Duration::from_secs(4)), (true, 0));
    }

    #[test]
    fn the_same_is_said_once_a_minute() {
        let (mut said, now) = (Said::default(), Instant::now());
        assert!(said.is_news(Bound::Memory, now) && said.is_news(Bound::Circuits, now));
        assert!(!said.is_news(Bound::Memory, now + AGAIN / 2));
        assert!(said.is_news(Bound::Memory, now + AGAIN));
    }
}
