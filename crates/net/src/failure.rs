//! Failures: what happened, to whom, and what may help.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gridmpi_engine::PeerMisbehaved;
use gridmpi_leg::LegError;
use gridmpi_wire::{LegVerdict, ProcId, Verdict, WireError};
use thiserror::Error;

/// A way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// It listens there.
    Direct(SocketAddr),
    /// A relay of ours, that listens there, knows a way.
    Relay(SocketAddr),
}

impl Target {
    /// Whether trying on seldom helps. A relay that is away may come back.
    pub(crate) fn is_refusal(self, error: &DialError) -> bool {
        match (self, error) {
            (Self::Relay(_), DialError::Connect(_) | DialError::Closed) => false,
            _ => error.is_refusal(),
        }
    }

    /// Whether it says that a peer which was about to end has ended. A relay's own refusal does not: it may be the relay that has.
    pub(crate) fn says_gone(self, error: &DialError) -> bool {
        match self {
            Self::Direct(_) => error.is_answer(),
            Self::Relay(_) => error.is_of_one_gone(),
        }
    }

    /// Whether it looks so. A peer that no relay knows may not have come back to one that was away.
    pub(crate) fn seems_gone(self, error: &DialError) -> bool {
        let is_unknown = matches!(error, DialError::Leg(LegError::Refused(LegVerdict::NoRoute)));
        is_unknown || self.says_gone(error) || self.is_refusal(error)
    }

    pub(crate) const fn is_circuit(self) -> bool {
        matches!(self, Self::Relay(_))
    }

    pub(crate) const fn address(self) -> SocketAddr {
        match self {
            Self::Direct(address) | Self::Relay(address) => address,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(address) => write!(f, "{address}"),
            Self::Relay(address) => write!(f, "through the relay {address}"),
        }
    }
}

/// Why an address did not lead to the peer.
#[derive(Debug, Error)]
pub enum DialError {
    /// No connection came about.
    #[error("{0}")]
    Connect(io::Error),
    /// Nothing answered in time.
    #[error("no answer in time")]
    TimedOut,
    /// There is a connection, but nobody speaks on it.
    #[error("it takes connections but does not answer in time: is the process stopped?")]
    Unanswered,
    /// The connection ended inside the handshake.
    #[error(
        "the other side closed the connection in the handshake: another job or program, or too many at once?"
    )]
    Closed,
    /// The connection failed inside the handshake.
    #[error("the connection failed in the handshake: {0}")]
    Io(io::Error),
    /// The other side said what the protocol does not allow.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The relay, or the way behind it.
    #[error("{0}")]
    Leg(#[from] LegError),
}

impl DialError {
    /// Whether something answered, be it that there is nobody.
    #[must_use]
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Closed) || self.is_refusal()
    }

    /// Whether the process itself says that it has ended, or has given us up.
    pub(crate) fn is_of_one_gone(&self) -> bool {
        matches!(self, Self::Handshake(HandshakeError::Refused(Verdict::Gone)))
    }

    /// Whether something answered and it was not what we need, so that trying on seldom helps. A connection that is closed may be one too many.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Connect(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            Self::TimedOut | Self::Unanswered | Self::Closed | Self::Io(_) => false,
            Self::Handshake(HandshakeError::Refused(Verdict::Duplicate)) => false,
            // Relays and those behind them come and go.
            Self::Leg(LegError::Refused(verdict)) => {
                matches!(verdict, LegVerdict::UnknownToken | LegVerdict::JobNotAllowed)
            }
            Self::Handshake(_) | Self::Leg(_) => true,
        }
    }
}

/// Why a handshake ended without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// Not our protocol, or values that it excludes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The dialer belongs to another job.
    #[error("the peer belongs to another job")]
    OtherJob,
    /// The dialer looks for somebody else.
    #[error("the peer was looking for {0}")]
    NotForMe(ProcId),
    /// The dialer says it is somebody that it cannot be.
    #[error("the peer says it is {0}, which cannot be")]
    WrongPeer(ProcId),
    /// The tag does not prove the job's key.
    #[error("the peer does not know this job's key (another run of the job?)")]
    NotGenuine,
    /// No version in common.
    #[error("the two sides run versions of GridMPI that do not understand each other")]
    NoCommonVersion,
    /// The listener knows us and does not want the connection.
    #[error("the peer refused the connection: {0}")]
    Refused(Verdict),
}

/// Why an established connection ended. Not a failure by itself: it is made again.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The other side closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// A relay acknowledges nothing any more.
    #[error("the relay does not answer any more")]
    Silent,
    /// The relay's host does, but nothing comes of what was sent.
    #[error("the peer acknowledges nothing that goes through the relay")]
    Unanswered,
    /// What it was made from is no address of this machine any more.
    #[error("this machine has no longer the address {0}")]
    Moved(std::net::IpAddr),
    /// The system says it failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What arrived is not what was sent: its checksum, or what TLS has in its place, is wrong.
    #[error("{0}")]
    Damaged(io::Error),
    /// What arrived is no frame. Final.
    #[error("the peer sent what is no frame: {0}")]
    Wire(#[from] WireError),
    /// The peer broke the protocol. Final.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
}

impl From<rustix::io::Errno> for LinkError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl LinkError {
    /// Whether the peer can no longer be trusted.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Wire(_) | Self::Misbehaved(_))
    }

    /// Whether it says more than that the connection has ended.
    pub(crate) fn says_more(&self) -> bool {
        self.is_final() || matches!(self, Self::Damaged(_))
    }
}

/// A peer is given up. Kept by the [`Net`](crate::Net) once it has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which peer.
    pub peer: ProcId,
    /// What happened, with addresses.
    pub what: String,
    /// What may help.
    pub remedy: &'static str,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.peer, self.what, self.remedy)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// No address of the peer led to it. `lost` says how an earlier connection ended.
    pub(crate) fn unreachable(
        peer: ProcId,
        tried: &[(Target, Option<DialError>)],
        seconds: u64,
        lost: Option<&str>,
    ) -> Self {
        let mut what = match lost {
            Some(lost) => format!("the connection was lost ({lost}) and could not be made again"),
            None => "cannot be reached".to_owned(),
        };
        what.push_str(&format!(" within {seconds} s: {}", attempts(tried, "not tried in time")));
        Self { peer, what, remedy: remedy(tried) }
    }

    /// No address of the peer has led to it for so long, and each is tried for so long yet. As [`Failure::unreachable`].
    pub(crate) fn absent(
        peer: ProcId,
        tried: &[(Target, Option<DialError>)],
        (spent, left): (Duration, Duration),
        lost: Option<&str>,
    ) -> Self {
        let (spent, left) = (spent.as_secs_f64(), left.as_secs());
        let begin = match lost {
            Some(lost) => format!("the connection was lost ({lost}) and cannot be made again for"),
            None => "cannot be reached for".to_owned(),
        };
        let tried_at = attempts(tried, "no answer yet");
        let what = format!(
            "{begin} {spent:.1} s; it is tried on for up to {left} s, and nothing is lost until then: {tried_at}"
        );
        Self { peer, what, remedy: remedy(tried) }
    }

    /// It was the peer's part to connect to us. `lost` says how an earlier connection ended.
    pub(crate) fn never_came(peer: ProcId, seconds: u64, lost: Option<&str>) -> Self {
        let lost = and_lost(lost);
        let what = format!(
            "{lost}it has not connected to this process within {seconds} s, which is its part (`dial` in [[link]])"
        );
        Self { peer, what, remedy: CHECK_FROM_THERE }
    }

    /// It is the peer's part to connect to us; it has not for so long, and is waited for so long yet. As [`Failure::never_came`].
    pub(crate) fn awaited(
        peer: ProcId,
        (spent, left): (Duration, Duration),
        lost: Option<&str>,
    ) -> Self {
        let (lost, spent, left) = (and_lost(lost), spent.as_secs_f64(), left.as_secs());
        let what = format!(
            "{lost}it has not connected to this process for {spent:.1} s, which is its part (`dial` in [[link]]); it is \
             waited for up to {left} s, and nothing is lost until then"
        );
        Self { peer, what, remedy: CHECK_FROM_THERE }
    }

    /// The peer broke the protocol.
    pub(crate) fn misbehaved(peer: ProcId, address: Option<SocketAddr>, error: &LinkError) -> Self {
        let at = address.map(|address| format!(" from {address}")).unwrap_or_default();
        let what = format!("the connection{at} was closed: {error}");
        let remedy = "run the same version of GridMPI in every cluster; if it is the same, this is a \
                      defect of GridMPI or damaged data: please report it";
        Self { peer, what, remedy }
    }
}

impl Failure {
    /// So many connections that were made have been lost in so many seconds, the last because of this, and nothing has come by any.
    pub(crate) fn cut(
        peer: ProcId,
        address: Option<SocketAddr>,
        (times, seconds): (u32, u64),
        error: &LinkError,
    ) -> Self {
        let at = address.map(|address| format!(" ({address})")).unwrap_or_default();
        let what = format!(
            "connections with it{at} are lost before anything passes, {times} within {seconds} s: {error}"
        );
        let remedy = "a firewall, proxy or relay on the way breaks them off behind the handshake: lead the job round it (`gridmpi doctor \
                      JOB.toml` looks at the ways)";
        Self { peer, what, remedy }
    }

    /// So many connections have been given up in so many seconds because of what came over them, and nothing else has come.
    pub(crate) fn damaged(
        peer: ProcId,
        address: Option<SocketAddr>,
        (times, seconds): (u32, u64),
        error: &io::Error,
    ) -> Self {
        let at = address.map(|address| format!(" ({address})")).unwrap_or_default();
        let what = format!(
            "what comes from it{at} is damaged on the way, on {times} connections within {seconds} s: {error}"
        );
        let remedy = "a relay, a proxy or a machine on the way is faulty: replace it, or lead the job round it";
        Self { peer, what, remedy }
    }
}

/// What may help where the other side does not connect.
const CHECK_FROM_THERE: &str = "has that process ended? look at its cluster's output; else check routes and firewalls from \
                                there to here: `gridmpi doctor JOB.toml` says what is wrong";

fn and_lost(lost: Option<&str>) -> String {
    lost.map(|lost| format!("the connection was lost ({lost}), and ")).unwrap_or_default()
}

/// Each way, and what came of it; `nothing` where that is nothing.
fn attempts(tried: &[(Target, Option<DialError>)], nothing: &str) -> String {
    if tried.is_empty() {
        return "it has told no address".to_owned();
    }
    let one = |(way, error): &(Target, Option<DialError>)| match error {
        Some(error) => format!("{way}: {error}"),
        None => format!("{way}: {nothing}"),
    };
    tried.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A relay of our own cluster that cannot be connected to.
const fn is_silent_relay((target, error): &(Target, Option<DialError>)) -> bool {
    let is_connect = matches!(error, Some(DialError::Connect(_) | DialError::TimedOut) | None);
    matches!(target, Target::Relay(_)) && is_connect
}

fn remedy(tried: &[(Target, Option<DialError>)]) -> &'static str {
    let is_elsewhere = |e: &DialError| e.is_refusal() || matches!(e, DialError::Closed);
    let any = |test: fn(&DialError) -> bool| tried.iter().flat_map(|(_, e)| e).any(test);
    if any(|e| matches!(e, DialError::Handshake(HandshakeError::NotGenuine))) {
        "start all clusters with the same job file or join token"
    } else if any(|e| matches!(e, DialError::Leg(LegError::Refused(LegVerdict::UnknownToken)))) {
        "give the job the relays' token (relay_token in the job file), and start all relays with it"
    } else if any(|e| matches!(e, DialError::Leg(LegError::Refused(LegVerdict::NoRoute)))) {
        "are the relays of that process's cluster running, and joined to this one? their logs and \
         /metrics say"
    } else if !tried.is_empty() && tried.iter().all(is_silent_relay) {
        "is `gridmpi relay` running there, and does no firewall stand before its port? `gridmpi doctor JOB.toml` tells"
    } else if any(|e| matches!(e, DialError::Handshake(HandshakeError::NoCommonVersion))) {
        "install the same version of GridMPI in every cluster"
    } else if any(|e| matches!(e, DialError::Handshake(HandshakeError::Refused(_)))) {
        "the reason is in the output of that process's cluster"
    } else if !tried.is_empty() && tried.iter().flat_map(|(_, e)| e).all(is_elsewhere) {
        "has that process ended? look at its cluster's output; else a firewall refuses the port \
         (`gridmpi doctor JOB.toml` tells)"
    } else {
        "check routes and firewalls between the clusters, or name the interface to use with \
         GRIDMPI_INTERFACE; if only that cluster can connect to this one, say so: `dial` in [[link]]; if neither can, both \
         need `relays`; `gridmpi doctor JOB.toml` says what is wrong"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_connect_to_a_relay_is_sent_there() {
        let refused = || Some(DialError::Connect(io::ErrorKind::ConnectionRefused.into()));
        let at = ([10, 9, 1, 1], 7118).into();
        let told = |tried: &[_]| Failure::unreachable(ProcId(2), tried, 20, None).to_string();
        let relay = told(&[(Target::Relay(at), refused())]);
        assert!(relay.contains("through the relay 10.9.1.1:7118: connection refused"), "{relay}");
        assert!(relay.contains("is `gridmpi relay` running there"), "{relay}");
        let process = told(&[(Target::Relay(at), refused()), (Target::Direct(at), refused())]);
        assert!(process.contains("has that process ended"), "{process}");
        let unknown = DialError::Leg(LegError::Refused(LegVerdict::UnknownToken));
        let token = told(&[(Target::Relay(at), Some(unknown))]);
        assert!(token.contains("10.9.1.1:7118: the relay does not know the token ("), "{token}");
    }
}
