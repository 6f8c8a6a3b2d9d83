//! Ways to the coordinator: its addresses, and circuits through relays.

use crate::channel::Channel;
use crate::error::BootstrapError;
use crate::handshake::{self, HandshakeError, Role};
use crate::model::ClusterName;
use crate::race::{self, Goal, Listening, Lost, PAUSE};
use crate::relay::RelayAccess;
use crate::secret::{JobId, JobKey};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longest time for reaching the coordinator: an unreachable one must be reported within seconds.
pub(crate) const REACH: Duration = Duration::from_secs(20);
/// Longest time for its first answer on a connection that has come about. A relay on the way may have hung meanwhile, whose kernel
/// goes on: then another way may do better.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

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
    pub(crate) listening: Listening,
}

/// A connection that leads to what has proved to be the job's coordinator.
pub(crate) struct Reached {
    pub(crate) channel: Channel,
    /// Where it listens, or the relay that led to it.
    address: SocketAddr,
    is_relayed: bool,
}

impl Reached {
    /// Where it listens, unless a relay is between.
    pub(crate) fn direct(&self) -> Option<SocketAddr> {
        (!self.is_relayed).then_some(self.address)
    }

    /// Has `open` do what comes first there, for so long at most.
    pub(crate) fn open<T>(
        self,
        answer: Duration,
        deadline: Instant,
        open: impl FnOnce(Self, Instant) -> Result<T, BootstrapError>,
    ) -> Result<T, Missed> {
        let (address, is_relayed) = (self.address, self.is_relayed);
        open(self, deadline.min(Instant::now() + answer)).map_err(|error| match error {
            BootstrapError::Timeout(_) => Missed::mute(address, is_relayed),
            error => error.into(),
        })
    }
}

/// Why nothing came of it.
pub(crate) struct Missed {
    pub(crate) error: BootstrapError,
    /// It may help to try again soon: a relay does not know the coordinator yet, or a connection broke off.
    pub(crate) is_passing: bool,
    /// Where the coordinator certainly is not, of its own addresses.
    pub(crate) deserted: Vec<SocketAddr>,
    /// It is nowhere at present: nobody listens at any of its addresses, nor does a relay know it.
    pub(crate) is_nowhere: bool,
}

impl Missed {
    /// By a way that led there, and then nothing came.
    fn mute(address: SocketAddr, is_relay: bool) -> Self {
        let why = race::told("it led to the coordinator and then brought no answer", is_relay);
        let error =
            BootstrapError::Unreachable { tried: vec![(address, why)], unknown: Vec::new() };
        Self { is_passing: true, ..error.into() }
    }
}

impl From<BootstrapError> for Missed {
    fn from(error: BootstrapError) -> Self {
        let is_passing = matches!(error, BootstrapError::Gone(_));
        Self { error, is_passing, deserted: Vec::new(), is_nowhere: false }
    }
}

impl Caller {
    /// Connects by the first way that leads to the coordinator, and has `open` do what comes first there, for `answer` at most. Tries
    /// again where that may help.
    pub(crate) fn reach<T>(
        &self,
        answer: Duration,
        deadline: Instant,
        mut open: impl FnMut(Reached, Instant) -> Result<T, BootstrapError>,
    ) -> Result<T, BootstrapError> {
        let until = match self.listening {
            Listening::Now => deadline.min(Instant::now() + REACH),
            Listening::Soon => deadline,
        };
        loop {
            let reached = self.reach_once(until);
            match reached.and_then(|reached| reached.open(answer, deadline, &mut open)) {
                // The coordinator, or news of it, may still be on the way to the relays.
                Err(missed) if missed.is_passing && Instant::now() + PAUSE < until => {
                    std::thread::sleep(PAUSE);
                }
                outcome => return outcome.map_err(|missed| missed.error),
            }
        }
    }

    /// Tries all ways at once, for as long as one may still lead there.
    pub(crate) fn reach_once(&self, deadline: Instant) -> Result<Reached, Missed> {
        let goal = Goal {
            direct: &self.direct,
            relays: self.relays.as_ref(),
            role: self.role,
            job: self.job,
            key: &self.key,
            listening: self.listening,
        };
        let won = race::run(&goal, deadline)?;
        let race::Won { channel, address, is_relayed } = won;
        Ok(Reached { channel, address, is_relayed })
    }
}

impl From<Lost> for Missed {
    fn from(lost: Lost) -> Self {
        let error = lost.other().and_then(|(address, error)| other(address, error));
        let error = error.unwrap_or_else(|| BootstrapError::Unreachable {
            tried: lost.failures(),
            unknown: lost.unknown.clone(),
        });
        let (is_passing, is_nowhere) = (lost.is_passing(), lost.is_nowhere());
        Self { error, is_passing, deserted: lost.deserted(), is_nowhere }
    }
}

/// Who is there in the coordinator's place.
fn other(address: SocketAddr, error: &HandshakeError) -> Option<BootstrapError> {
    match error {
        HandshakeError::Version(theirs) => {
            let (theirs, ours) = (*theirs, handshake::VERSION);
            Some(BootstrapError::Version { address, theirs, ours })
        }
        HandshakeError::OtherJob => Some(BootstrapError::OtherJob(address)),
        HandshakeError::WrongKey => Some(BootstrapError::WrongKey(address)),
        HandshakeError::Io(_) | HandshakeError::Noise | HandshakeError::Left => None,
    }
}
