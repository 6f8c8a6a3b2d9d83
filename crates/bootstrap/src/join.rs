//! The client inside `gridmpi join`: takes part with a launcher that the user starts elsewhere.

use crate::client::{NOTICED, first_word};
use crate::error::BootstrapError;
use crate::handshake::Role;
use crate::keeper::{Keeper, News};
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::ClusterName;
use crate::race::Listening;
use crate::reach::Caller;
use crate::relay::RelayAccess;
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

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
    /// Seconds that ranks wait for other clusters; 0 for as long as it takes.
    pub wait_s: u64,
    /// The wide-area interface of this cluster, if the job names one.
    pub interface: Option<String>,
    /// Seconds that a lost connection with the job is tried to be made again.
    pub reconnect_s: u64,
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
    /// The connection is lost, for this reason; it is dialled again while the launcher goes on.
    Away(String),
    /// It stands again; nothing has been missed.
    Back,
    /// `gridmpi run` has gone away, or was not to be reached for too long: end the launcher.
    Gone(String),
}

/// The open connection of `gridmpi join` to its job, which is made again when it is lost.
pub struct JoinControl {
    keeper: Keeper,
    /// How long that is tried.
    patience: Duration,
}

/// Asks the coordinator, at one of `addresses` or through one of the relays, to take part. Then hands each order of the job to
/// `orders` from a thread of its own, until the job is lost ([`JoinOrder::Gone`] is the last). Where the coordinator listens
/// [soon](Listening::Soon) it is waited for until the deadline.
///
/// # Errors
/// As [`crate::register`].
pub fn join(
    addresses: &[SocketAddr],
    relays: Option<&RelayAccess>,
    secret: &Secret,
    request: JoinRequest,
    listening: Listening,
    deadline: Instant,
    mut orders: impl FnMut(JoinOrder) + Send + 'static,
) -> Result<(JoinTerms, JoinControl), BootstrapError> {
    let caller = Caller {
        direct: addresses.to_vec(),
        relays: relays.cloned(),
        role: Role::Join,
        cluster: request.cluster.clone(),
        job: secret.job(),
        key: secret.key(),
        listening,
    };
    let (sender, news) = channel();
    let tell = move |new| drop(sender.send(new));
    let keeper = Keeper::start(caller, ToCoordinator::Join(request), deadline, tell)?;
    let terms = match first_word(&news, deadline, "an answer to the request to join")? {
        FromCoordinator::Joined(terms) => terms,
        other => return Err(BootstrapError::Protocol(format!("{other:?} instead of terms"))),
    };
    std::thread::spawn(move || news.iter().filter_map(order).for_each(&mut orders));
    let patience = Duration::from_secs(terms.reconnect_s);
    Ok((terms, JoinControl { keeper, patience }))
}

fn order(new: News) -> Option<JoinOrder> {
    match new {
        News::Said(FromCoordinator::Signal { number }) => Some(JoinOrder::Signal(number)),
        News::Said(FromCoordinator::Ended { code, reason }) => {
            Some(JoinOrder::Ended { code, reason })
        }
        News::Said(FromCoordinator::Refused { reason }) | News::Gone(reason) => {
            Some(JoinOrder::Gone(reason))
        }
        News::Said(_) => None,
        News::Away(why) => Some(JoinOrder::Away(why)),
        News::Back => Some(JoinOrder::Back),
    }
}

impl JoinControl {
    /// Reports the launcher's exit status: its code, or 128 + n for signal n. Waits until the job knows, which is what it returns;
    /// if the job cannot be reached, for as long as the job file's `reconnect` says.
    pub fn exited(&self, code: i32) -> bool {
        let deadline = Instant::now() + NOTICED + self.patience;
        self.keeper.say(ToCoordinator::Exited { code }, deadline)
    }
}
