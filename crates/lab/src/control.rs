//! Talking to a lab's holder: one line asked, one line of JSON answered, over a local socket.

use crate::error::{Doing as _, LabError};
use crate::flow::{Traffic, Volume};
use crate::state::LabDir;
use crate::tcp::Tcp;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Name of the socket in a lab's directory.
pub const SOCKET: &str = "control.sock";
/// The holder answers at once unless the machine is overloaded.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest line that a holder reads, bytes.
pub const MAX_LINE: u64 = 8_192;

/// What a holder is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Counters of every direction; the recording is complete up to now when it is answered.
    Status,
    /// The same and TCP's counters of every node.
    Nodes,
    /// To end the lab.
    Stop,
    /// To make a fault; answered by [`Done`] or why not.
    Fault(Ask),
}

/// A fault that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// In the words of [`crate::fault::Fault::read`].
    pub words: Vec<String>,
    /// How long; none: until it is undone.
    pub lasts: Option<Duration>,
}

/// A fault that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// When, in milliseconds since the lab came up.
    pub at_ms: u64,
    /// What was done.
    pub what: String,
}

impl Request {
    /// As it stands on the line.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Status => "status".to_owned(),
            Self::Nodes => "nodes".to_owned(),
            Self::Stop => "stop".to_owned(),
            Self::Fault(ask) => format!("fault {}", serde_json::to_string(ask).unwrap_or_default()),
        }
    }

    /// From the line.
    #[must_use]
    pub fn of(line: &str) -> Option<Self> {
        if let Some(ask) = line.strip_prefix("fault ") {
            return serde_json::from_str(ask).ok().map(Self::Fault);
        }
        let all = [Self::Status, Self::Nodes, Self::Stop];
        all.into_iter().find(|request| request.line() == line.trim())
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
    /// The faults at work, in words.
    #[serde(default)]
    pub faults: Vec<String>,
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
    /// TCP connections over which 16 KiB or more have been sent since the lab came up.
    #[serde(default)]
    pub connections: u64,
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

/// Asks the holder of `lab` for anything but a fault.
///
/// # Errors
/// When it does not answer in ten seconds.
pub fn ask(lab: &LabDir, request: Request) -> Result<Status, LabError> {
    talk(lab, &request)
}

/// Asks it for a fault.
///
/// # Errors
/// When it does not answer in ten seconds, or says why there can be no such fault.
pub fn make_fault(lab: &LabDir, ask: Ask) -> Result<Done, LabError> {
    let request = Request::Fault(ask);
    if request.line().len() as u64 >= MAX_LINE {
        return Err(LabError::Usage("these are too many words for a fault".to_owned()));
    }
    talk::<Result<Done, String>>(lab, &request)?.map_err(LabError::Usage)
}

fn talk<T: for<'a> Deserialize<'a>>(lab: &LabDir, request: &Request) -> Result<T, LabError> {
    let what = format!("cannot talk to the lab `{}`", lab.name());
    let talk = || {
        let mut stream = UnixStream::connect(lab.join(SOCKET))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        writeln!(stream, "{}", request.line())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    talk().map_err(|error| in_words(error, TIMEOUT)).doing(what)
}

/// What the system calls a resource that is unavailable is a holder that has not answered.
fn in_words(error: io::Error, waited: Duration) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let what = format!(
        "it has not answered for {} s; is more at work here than the processors can do?",
        waited.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, what)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_holder_that_does_not_answer_is_told_of_in_words() {
        let (mut near, _far) = UnixStream::pair().unwrap();
        let waited = Duration::from_secs(1);
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let error = in_words(near.read(&mut [0]).unwrap_err(), waited);
        assert!(error.to_string().starts_with("it has not answered for 1 s"), "{error}");
        let gone = in_words(io::ErrorKind::ConnectionRefused.into(), waited);
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn requests_survive_the_line() {
        let words = vec!["kill".to_owned(), "a1".to_owned(), "two\nlines \"".to_owned()];
        let ask = Ask { words, lasts: Some(Duration::from_millis(1_500)) };
        for request in [Request::Status, Request::Nodes, Request::Stop, Request::Fault(ask)] {
            assert!(!request.line().contains('\n'));
            assert_eq!(Request::of(&(request.line() + "\n")), Some(request));
        }
        assert_eq!(Request::of("fault {}"), None);
        assert_eq!(Request::of(""), None);
    }
}
