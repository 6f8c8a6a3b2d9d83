//! Talking to a lab's holder: one line asked, one line of JSON answered, over a local socket.

use crate::error::{Doing as _, LabError};
use crate::flow::{Traffic, Volume};
use crate::state::LabDir;
use crate::tcp::Tcp;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Name of the socket in a lab's directory.
pub const SOCKET: &str = "control.sock";
/// The holder answers at once unless the machine is overloaded.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a holder is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Counters of every direction; the recording is complete up to now when it is answered.
    Status,
    /// The same and TCP's counters of every node.
    Nodes,
    /// To end the lab.
    Stop,
}

impl Request {
    /// As it stands on the line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Nodes => "nodes",
            Self::Stop => "stop",
        }
    }

    /// From the line.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let all = [Self::Status, Self::Nodes, Self::Stop];
        all.into_iter().find(|request| request.word() == word.trim())
    }
}

/// What a holder answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    /// How long the lab has been up, ms.
    pub up_ms: u64,
    /// When the lab's first millisecond began, of the clock that never steps (`CLOCK_MONOTONIC`), ns.
    #[serde(default)]
    pub origin_ns: u64,
    /// Every direction of every link.
    pub directions: Vec<DirectionStatus>,
    /// Every node, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
}

/// One node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// What TCP has done there, on all interfaces.
    pub tcp: Tcp,
}

/// One direction of a link.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// The cluster that it leads from.
    pub from: String,
    /// The cluster that it leads to.
    pub to: String,
    /// Whether the emulator carries it; of a plain cable only `delivered` is known.
    pub emulated: bool,
    /// Whether the emulator has real-time priority.
    pub realtime: bool,
    /// Counters at the bottleneck.
    pub traffic: Traffic,
    /// Bytes in its buffer now.
    pub queued: u64,
    /// What reached the other side.
    pub delivered: Volume,
    /// Frames that the emulator itself lost: none in a sound run.
    pub failures: u64,
    /// Median of how late deliveries were, µs.
    pub lateness_p50_us: f64,
    /// 99th percentile of the same, µs.
    pub lateness_p99_us: f64,
    /// The worst, µs.
    pub lateness_max_us: f64,
}

/// Asks the holder of `lab`.
///
/// # Errors
/// When it does not answer in ten seconds.
pub fn ask(lab: &LabDir, request: Request) -> Result<Status, LabError> {
    let what = format!("cannot talk to the lab `{}`", lab.name());
    let talk = || {
        let mut stream = UnixStream::connect(lab.join(SOCKET))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        writeln!(stream, "{}", request.word())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    talk().doing(what)
}
