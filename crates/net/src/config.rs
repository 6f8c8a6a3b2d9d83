//! Settings of a [`Net`](crate::Net).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::Failure;
use crate::relays::Relays;
use crate::security::Security;
use gridmpi_engine::Config as EngineConfig;
use gridmpi_rate::{Network, NodeId, Rate};
use gridmpi_wire::{JobId, JobKey, ProcId};

/// Everything a [`Net`](crate::Net) is started with.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// This process.
    pub me: ProcId,
    /// The job's name, the same in all its processes; not secret.
    pub job: JobId,
    /// The job's secret.
    pub key: JobKey,
    /// Settings of the endpoint; its `me` is this process too.
    pub engine: EngineConfig,
    /// The ways to each process of the job, by [`ProcId`], in the order to try: the first connection takes any, others
    /// one each, in turn. Those of this cluster are only dialled where rates are found online
    /// ([`Pacing::online`]), and may be empty otherwise.
    pub peers: Vec<Vec<Way>>,
    /// TLS on connections with other clusters; `None`: none, and then whoever is on the way can read and change what passes;
    /// what passes through relays bears checksums then, which find accidents.
    pub security: Option<Security>,
    /// The relays of this cluster, if it has any.
    pub relays: Option<Relays>,
    /// Bounds of time and number.
    pub limits: Limits,
    /// How fast to send.
    pub pacing: Pacing,
    /// Called with what the user should know of connections, from whatever thread, under the lock.
    pub warn: fn(&str),
    /// After how long the user is told whom we try to reach in vain; `None`: another process of this cluster says so.
    pub tells_of_absence: Option<Duration>,
    /// Is told once, when the first peer is given up: by whatever thread, with a lock held, so it must not wait, nor come back here.
    pub lost: Option<Lost>,
    /// Is set in a child that `fork` makes of this process, by whoever sees to that; `None`: the system is asked at each message whether this
    /// is one, which takes its time.
    pub forked: Option<&'static AtomicBool>,
}

/// Whom to tell that a peer was given up, and why: the program may be waiting for something else.
#[derive(Clone)]
pub struct Lost(pub Arc<dyn Fn(&Failure) + Send + Sync>);

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}

/// A way to a process that others do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To where the process listens itself, at several addresses in the order to try.
    Direct(Vec<SocketAddr>),
    /// The same, but the process cannot connect to us: we do as soon as there are two of us, and again whenever that is lost.
    Called(Vec<SocketAddr>),
    /// We cannot connect to it: it does, as [`Way::Called`] says.
    Awaited,
    /// Through one of our relays, by its place among [`Relays::addresses`].
    Relay(usize),
}

/// How fast this process may send to each other cluster.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    /// The cluster of each process, by [`ProcId`].
    pub clusters: Vec<u16>,
    /// The rate towards each cluster, headers included; `None`: as fast as may be.
    pub rates: Vec<Option<Rate>>,
    /// The congestion control of paced connections.
    pub congestion: Congestion,
    /// Those rates are only where one begins: who sends, and how fast, is found online.
    pub online: Option<Online>,
}

/// Which congestion control paced connections have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// The system's; and while they rest, or their window opens, BBR where the kernel lets us have it, since that keeps the window.
    #[default]
    Usual,
    /// The system's at all times.
    System,
    /// This one at all times, as the kernel names it; the system's where the kernel does not let us have it.
    Named(String),
}

impl Congestion {
    /// What a user asks for who names this: `system`, or one that the kernel may have.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name == "system" { Self::System } else { Self::Named(name.to_owned()) }
    }
}

/// What rates that follow demand are found from.
#[derive(Clone, Debug)]
pub struct Online {
    /// The job's nodes, interfaces and links; the same in all processes.
    pub network: Network,
    /// The node of each process, by [`ProcId`].
    pub nodes: Vec<NodeId>,
    /// In each cluster the process that is its broker.
    pub brokers: Vec<ProcId>,
    /// What the user calls each cluster.
    pub names: Vec<String>,
    /// Called with what the user should know, from whatever thread.
    pub warn: fn(&str),
}

/// Bounds of time and number. The defaults suit a wide area with delays up to a second.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long one address of a peer is tried, at most (less in the first rounds), and how long
    /// whoever answers there may take for the handshake.
    pub dial_address: Duration,
    /// How long all ways to a peer are tried, again and again, before it is given up.
    pub dial_total: Duration,
    /// The same for a peer that we had a connection with, and for relays that do not answer.
    pub reconnect: Duration,
    /// The same where every address answers, but never with what we need: nobody listens there, or
    /// it is not a process of this job. Waiting longer seldom helps.
    pub dial_refused: Duration,
    /// The same for a peer that we had a connection with and that still takes connections but does
    /// not answer: it is stopped, perhaps by a debugger.
    pub dial_stopped: Duration,
    /// How long a handshake may last.
    pub handshake: Duration,
    /// How long the proof of one who calls us while we call it may take beyond a round trip, before our own call goes on.
    pub crossing: Duration,
    /// How many unauthenticated connections to the own port are kept open, at least 1. Half as many beside them may be circuits, which relays share equally.
    pub pending: usize,
    /// How long a connection may be silent to what was sent before it counts as lost.
    pub silence: Duration,
    /// How long a peer may acknowledge nothing of what went to it through a relay, though that one's host takes it, before another
    /// way is taken: the relay may hang, or have lost it. Longer where the way is slow, or turns are many (`pulse.rs`).
    pub unanswered: Duration,
    /// How long an acknowledgement waits for a frame to ride on, at least; at most twice as long.
    pub tick: Duration,
    /// The same of one for words about rates alone: whoever sent these does not wait for it.
    pub long_tick: Duration,
    /// How many connections to a process of another cluster there may be at a time, 1 to
    /// [`Strand::MAX`](gridmpi_wire::Strand::MAX); `None`: one for each way to it.
    pub connections: Option<usize>,
    /// Size of the kernel's socket buffers in bytes. `None`: the kernel fits them to the path, which
    /// is better nearly always.
    pub socket_buffer: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dial_address: Duration::from_secs(5),
            dial_total: Duration::from_secs(20),
            reconnect: Duration::from_secs(60),
            dial_refused: Duration::from_secs(3),
            dial_stopped: Duration::from_secs(3600),
            handshake: Duration::from_secs(5),
            crossing: Duration::from_millis(5),
            pending: 64,
            silence: Duration::from_secs(30),
            unanswered: Duration::from_secs(10),
            tick: Duration::from_millis(3),
            long_tick: Duration::from_millis(100),
            connections: None,
            socket_buffer: None,
        }
    }
}

/// What has happened since the start; for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes read on established connections.
    pub bytes_in: u64,
    /// Bytes written on established connections.
    pub bytes_out: u64,
    /// Connections established, those made again included.
    pub connections: u64,
    /// Connections that somebody made to our port.
    pub accepted: u64,
    /// Those of them that did not prove to be a process of this job.
    pub rejected: u64,
    /// Why the last of these was rejected.
    pub last_rejection: Option<String>,
}
