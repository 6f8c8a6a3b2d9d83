//! Ways to the coordinator: its addresses, and circuits through relays.

use crate::channel::Channel;
use crate::connect::Dialer;
use crate::error::BootstrapError;
use crate::handshake::{self, HandshakeError, Role};
use crate::model::ClusterName;
use crate::relay::{RelayAccess, RelayError};
use crate::secret::{JobId, JobKey};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest time for reaching the coordinator: an unreachable one must be reported within seconds.
pub(crate) const REACH: Duration = Duration::from_secs(20);
/// Pause before what may help is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Who wants to reach the coordinator, and where it may be.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Its addresses.
    pub(crate) direct: Vec<SocketAddr>,
    pub(crate) relays: Option<RelayAccess>,
    pub(crate) role: Role,
    pub(crate) cluster: ClusterName,
    pub(crate) job: JobId,
    pub(crate) key: JobKey,
}

/// A connection that leads to what has proved to be the job's coordinator.
pub(crate) struct Reached {
    pub(crate) channel: Channel,
    /// Where it listens, unless a relay is between.
    pub(crate) direct: Option<SocketAddr>,
}

/// Why nothing came of it.
pub(crate) struct Missed {
    pub(crate) error: BootstrapError,
    /// It may help to try again soon: a relay does not know the coordinator yet, or a connection broke off.
    pub(crate) is_passing: bool,
    /// Where the coordinator certainly is not, of its own addresses.
    pub(crate) deserted: Vec<SocketAddr>,
    /// It is nowhere: nobody listens at any of its addresses, nor does a relay know it.
    pub(crate) is_nowhere: bool,
}

impl From<BootstrapError> for Missed {
    fn from(error: BootstrapError) -> Self {
        let is_passing = matches!(error, BootstrapError::Gone(_));
        Self { error, is_passing, deserted: Vec::new(), is_nowhere: false }
    }
}

impl Caller {
    /// Connects by the first way that leads to the coordinator, and has `open` do what comes first there. Tries again where that
    /// may help.
    pub(crate) fn reach<T>(
        &self,
        deadline: Instant,
        mut open: impl FnMut(Reached, Instant) -> Result<T, BootstrapError>,
    ) -> Result<T, BootstrapError> {
        let until = deadline.min(Instant::now() + REACH);
        loop {
            let reached = self.reach_once(until);
            match reached.and_then(|reached| Ok(open(reached, deadline)?)) {
                // The coordinator, or news of it, may still be on the way to the relays.
                Err(missed) if missed.is_passing && Instant::now() + PAUSE < until => {
                    std::thread::sleep(PAUSE);
                }
                outcome => return outcome.map_err(|missed| missed.error),
            }
        }
    }

    /// Tries each way once.
    pub(crate) fn reach_once(&self, deadline: Instant) -> Result<Reached, Missed> {
        let through = self.relays.as_ref().map_or(Ok(Vec::new()), RelayAccess::resolve);
        let through = through.map_err(BootstrapError::Relays)?;
        let mut dialer = Dialer::new(&[self.direct.as_slice(), &through].concat(), deadline);
        let mut telling = None;
        let (mut unknown_at, mut is_passing) = (Vec::new(), false);
        while let Some((address, stream)) = dialer.next() {
            let relays = self.relays.as_ref().filter(|_| through.contains(&address));
            if let Err(error) = self.pass(relays, &stream, deadline) {
                if error.is_early() {
                    unknown_at.push(address);
                }
                dialer.failed(address, format!("as a relay: {error}"));
                continue;
            }
            match handshake::connect(stream, self.role, self.job, &self.key, deadline) {
                Ok(channel) => {
                    return Ok(Reached { channel, direct: relays.is_none().then_some(address) });
                }
                Err(HandshakeError::Version(theirs)) => {
                    let ours = handshake::VERSION;
                    telling = Some(BootstrapError::Version { address, theirs, ours });
                }
                Err(HandshakeError::OtherJob) => telling = Some(BootstrapError::OtherJob(address)),
                Err(HandshakeError::WrongKey) => telling = Some(BootstrapError::WrongKey(address)),
                Err(error) => {
                    is_passing |= error.is_break();
                    dialer.failed(address, error.to_string());
                    continue;
                }
            }
            // Somebody else is there.
            dialer.deserted.push(address);
        }
        let is_gone = |all: &[SocketAddr]| {
            all.iter().all(|at| dialer.deserted.contains(at) || unknown_at.contains(at))
        };
        let is_nowhere = !self.direct.is_empty() && is_gone(&self.direct) && is_gone(&through);
        let deserted = dialer.deserted;
        let error = telling.unwrap_or(BootstrapError::Unreachable { tried: dialer.failures });
        is_passing |= !unknown_at.is_empty();
        Err(Missed { error, is_passing, deserted, is_nowhere })
    }

    /// Asks for a circuit where the connection leads to a relay, so that it leads to the coordinator now.
    fn pass(
        &self,
        relays: Option<&RelayAccess>,
        stream: &TcpStream,
        deadline: Instant,
    ) -> Result<(), RelayError> {
        relays.map_or(Ok(()), |relays| relays.to_coordinator(stream, self.job, deadline))
    }
}
