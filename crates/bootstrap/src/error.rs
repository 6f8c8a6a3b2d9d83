//! What can go wrong on the client's side of a rendezvous, each saying whose fault it is.

use std::io;
use std::net::SocketAddr;

/// Why a cluster could not register with its job.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// No address of the coordinator could be reached. Network or firewall.
    #[error(
        "cannot reach the coordinator of this job (`gridmpi run`): {}. Check that this node can \
         open TCP connections to one of these addresses, or name a reachable one by \
         `gridmpi run --listen ADDRESS:PORT`. `gridmpi doctor` on both machines says more",
        list(tried, unknown)
    )]
    Unreachable {
        /// Each address with what happened there.
        tried: Vec<(SocketAddr, String)>,
        /// What is wrong with relays whose names are not known here.
        unknown: Vec<String>,
    },
    /// The coordinator is another release of GridMPI.
    #[error(
        "the coordinator at {address} speaks version {theirs} of the rendezvous protocol, this \
         library version {ours}: install the same release of GridMPI at every cluster"
    )]
    Version {
        /// Where it listens.
        address: SocketAddr,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// The coordinator belongs to another job.
    #[error(
        "the coordinator at {0} runs another job: this process was started for a job that has \
         ended, or GRIDMPI_JOB and GRIDMPI_COORDINATOR come from different jobs"
    )]
    OtherJob(SocketAddr),
    /// The coordinator holds another key.
    #[error(
        "the coordinator at {0} does not hold this job's key: GRIDMPI_KEY (or the join token) \
         belongs to another job"
    )]
    WrongKey(SocketAddr),
    /// The coordinator says why this cluster or this job cannot go on.
    #[error("{0}")]
    Refused(String),
    /// The deadline has passed.
    #[error("{0} did not happen within the time given (set it by `gridmpi run --wait SECONDS`)")]
    Timeout(&'static str),
    /// The far end broke the protocol.
    #[error("the coordinator sent something that is not our protocol: {0}")]
    Protocol(String),
    /// The far end went away.
    #[error("the coordinator (`gridmpi run`) has gone away: {0}")]
    Gone(String),
    /// What we were asked to register is not acceptable. A fault of ours.
    #[error("this cluster's registration is malformed: {0}")]
    Registration(#[from] crate::ModelError),
}

/// What happened at each address, and what is wrong with names; never empty.
pub(crate) fn list(tried: &[(SocketAddr, String)], unknown: &[String]) -> String {
    if tried.is_empty() && unknown.is_empty() {
        return "it has no address".to_owned();
    }
    let tried = tried.iter().map(|(address, why)| format!("{address}: {why}"));
    tried.chain(unknown.iter().cloned()).collect::<Vec<_>>().join("; ")
}

impl BootstrapError {
    /// The system says that a connection, or what one needs, is gone.
    pub(crate) fn gone(error: io::Error) -> Self {
        Self::Gone(error.to_string())
    }
}
