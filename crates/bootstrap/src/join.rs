//! The client inside `gridmpi join`: takes part with a launcher that the user starts elsewhere.

use crate::channel::Writer;
use crate::client::{broken, lock, reach_at, receive};
use crate::error::BootstrapError;
use crate::handshake::Role;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::ClusterName;
use crate::relay::RelayAccess;
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(10);

/// Who asks to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The cluster that this launcher will start.
    pub cluster: ClusterName,
    /// The node on which `gridmpi join` runs.
    pub host: String,
    /// Its process identifier there.
    pub pid: u32,
}

/// What the job lays down for a cluster that joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTerms {
    /// Where the coordinator listens, as far as it knows itself.
    pub coordinators: Vec<SocketAddr>,
    /// Seconds that ranks wait for other clusters; 0 for a day.
    pub wait_s: u64,
    /// The wide-area interface of this cluster, if the job names one.
    pub interface: Option<String>,
}

/// What the job asks of a joined launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOrder {
    /// Forward this signal to the launcher.
    Signal(i32),
    /// End the launcher: the job is over.
    Ended {
        /// The job's exit code.
        code: i32,
        /// Why, for the user.
        reason: String,
    },
    /// `gridmpi run` has gone away: end the launcher.
    Gone(String),
}

/// The open connection of `gridmpi join` to its job.
#[derive(Clone)]
pub struct JoinControl {
    writer: Arc<Mutex<Writer>>,
}

/// Asks the coordinator, at one of `addresses` or through one of the relays, to take part. Then hands each order of the job to
/// `orders` from a thread of its own, until the connection ends ([`JoinOrder::Gone`] is the last).
///
/// # Errors
/// As [`crate::register`].
pub fn join(
    addresses: &[SocketAddr],
    relays: Option<&RelayAccess>,
    secret: &Secret,
    request: JoinRequest,
    deadline: Instant,
    mut orders: impl FnMut(JoinOrder) + Send + 'static,
) -> Result<(JoinTerms, JoinControl), BootstrapError> {
    let (mut reader, mut writer) =
        reach_at(addresses, relays, Role::Join, secret.job(), &secret.key(), deadline)?;
    let what = "sending the request to join";
    writer.send(&ToCoordinator::Join(request), deadline).map_err(|e| broken(e, what))?;
    let terms = match receive(&mut reader, deadline, "an answer to the request to join")? {
        FromCoordinator::Joined(terms) => terms,
        FromCoordinator::Refused { reason } | FromCoordinator::Ended { reason, .. } => {
            return Err(BootstrapError::Refused(reason));
        }
        other => return Err(BootstrapError::Protocol(format!("{other:?} instead of terms"))),
    };
    std::thread::spawn(move || {
        loop {
            // The job may run for long; keep-alive probes end the wait when the far end is gone.
            let long = Instant::now() + Duration::from_secs(24 * 3600);
            let order = match reader.receive(long) {
                Ok(FromCoordinator::Signal { number }) => JoinOrder::Signal(number),
                Ok(FromCoordinator::Ended { code, reason }) => JoinOrder::Ended { code, reason },
                Ok(_) => continue,
                Err(error) if error.is_timeout() => continue,
                Err(error) => {
                    orders(JoinOrder::Gone(error.to_string()));
                    return;
                }
            };
            orders(order);
        }
    });
    Ok((terms, JoinControl { writer: Arc::new(Mutex::new(writer)) }))
}

impl JoinControl {
    /// Reports the launcher's exit status: its code, or 128 + n for signal n.
    pub fn exited(&self, code: i32) {
        let _ = lock(&self.writer).send(&ToCoordinator::Exited { code }, Instant::now() + SHORT);
    }
}
