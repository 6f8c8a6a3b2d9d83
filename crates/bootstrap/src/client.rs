//! The client: what local rank 0 of a cluster does.

use crate::channel::ChannelError;
use crate::env::JobEnv;
use crate::error::BootstrapError;
use crate::handshake::Role;
use crate::keeper::{Keeper, News};
use crate::message::{FromCoordinator, ToCoordinator, bounded};
use crate::model::{ClusterName, JobTable, ProcInfo, Registration};
use crate::race::Listening;
use crate::reach::{ANSWER, Caller, Reached};
use crate::session::Envelope;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time for one short message.
pub(crate) const SHORT: Duration = Duration::from_secs(10);
/// A connection that has fallen silent is noticed within this time; then it is tried to be made again.
pub(crate) const NOTICED: Duration = Duration::from_secs(20);

/// Registers a cluster and waits for all others of the job.
///
/// Called by local rank 0 of each cluster, once. The connection stays open inside [`Control`].
///
/// # Errors
/// Says whose fault it is and what to do; see [`BootstrapError`]. After an error the job cannot go
/// on: the caller ends its cluster.
pub fn register(
    env: &JobEnv,
    mut registration: Registration,
    deadline: Instant,
) -> Result<(JobTable, Control), BootstrapError> {
    registration.procs.iter_mut().for_each(ProcInfo::fit);
    registration.check()?;
    let (sender, news) = channel();
    // Nobody listens once the table has come: who ends the job ends this cluster by its launcher.
    let tell = move |new| drop(sender.send(new));
    let caller = Caller { cluster: registration.cluster.clone(), ..caller(env, Role::Rank) };
    let first = ToCoordinator::Register(registration);
    let keeper = Keeper::start(caller, first, deadline, tell)?;
    let what = "MPI_Init of every other cluster";
    match first_word(&news, deadline, what)? {
        FromCoordinator::Table(table) if table.job == env.job.0 => {
            let (cluster, patience) = (env.cluster.clone(), table.network.reconnect());
            Ok((table, Control { cluster, keeper, patience }))
        }
        other => Err(BootstrapError::Protocol(format!("{other:?} instead of the job's table"))),
    }
}

/// The first thing that the coordinator says, unless that is an end.
pub(crate) fn first_word(
    news: &Receiver<News>,
    deadline: Instant,
    what: &'static str,
) -> Result<FromCoordinator, BootstrapError> {
    loop {
        match news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(News::Away(_) | News::Back) => {}
            Ok(News::Said(
                FromCoordinator::Refused { reason } | FromCoordinator::Ended { reason, .. },
            )) => return Err(BootstrapError::Refused(reason)),
            Ok(News::Said(word)) => return Ok(word),
            Ok(News::Gone(why)) => return Err(BootstrapError::Gone(why)),
            Err(RecvTimeoutError::Timeout) => return Err(BootstrapError::Timeout(what)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(BootstrapError::Gone("the session has ended".to_owned()));
            }
        }
    }
}

/// Tells the coordinator what [`Control::suspect`] tells, as [`abort`] does.
///
/// # Errors
/// As [`abort`].
pub fn suspect(env: &JobEnv, reason: &str) -> Result<(), BootstrapError> {
    let cluster = env.cluster.clone();
    tell(env, &ToCoordinator::Suspect { cluster, reason: bounded(reason) })
}

/// Tells the coordinator that the program aborts (MPI 4.1 §9.7), over a connection of its own: for
/// ranks that hold no [`Control`]. Waits until the coordinator has taken it, so that the caller may
/// end its process right after; a connection that breaks is made again, for 10 s in all.
///
/// # Errors
/// As [`register`]; the caller aborts anyway.
pub fn abort(env: &JobEnv, code: i32, reason: &str) -> Result<(), BootstrapError> {
    let cluster = env.cluster.clone();
    tell(env, &ToCoordinator::Abort { cluster, code, reason: bounded(reason) })
}

/// One message over a connection of its own.
fn tell(env: &JobEnv, message: &ToCoordinator) -> Result<(), BootstrapError> {
    let caller = caller(env, Role::Messenger);
    let deadline = Instant::now() + SHORT;
    caller.reach(ANSWER, deadline, |reached, deadline| tell_at(reached, message, deadline))
}

fn tell_at(
    reached: Reached,
    message: &ToCoordinator,
    deadline: Instant,
) -> Result<(), BootstrapError> {
    let (mut reader, mut writer) = reached.channel.split().map_err(BootstrapError::gone)?;
    let envelope = Envelope::saying(0, 0, message);
    writer.send(&envelope, deadline).map_err(broken)?;
    let answer = reader.receive(deadline).map_err(broken)?;
    match answer {
        Envelope::<FromCoordinator> { received: 1, message: None, .. } => Ok(()),
        other => Err(BootstrapError::Protocol(format!("{other:?} for an answer"))),
    }
}

fn caller(env: &JobEnv, role: Role) -> Caller {
    Caller {
        direct: env.coordinators.clone(),
        relays: env.relays.clone(),
        role,
        cluster: env.cluster.clone(),
        job: env.job,
        key: env.key.clone(),
        listening: Listening::Now,
    }
}

pub(crate) fn broken(error: ChannelError) -> BootstrapError {
    match error {
        error if error.is_timeout() => BootstrapError::Timeout("the coordinator's answer"),
        ChannelError::Io(error) => BootstrapError::gone(error),
        error => BootstrapError::Protocol(error.to_string()),
    }
}

/// The open connection of a registered cluster to its job, which is made again when it is lost. Every method may be called from
/// any thread.
pub struct Control {
    cluster: ClusterName,
    keeper: Keeper,
    /// How long a lost connection is tried to be made again.
    patience: Duration,
}

impl Control {
    /// Tells the job that the program aborts with `code` (MPI 4.1 §9.7). Waits until the job knows, at most 10 s. Failures to
    /// tell are ignored: the end of the cluster tells the same, without the code.
    pub fn abort(&self, code: i32, reason: &str) {
        let cluster = self.cluster.clone();
        self.say(ToCoordinator::Abort { cluster, code, reason: bounded(reason) }, SHORT);
    }

    /// Tells the job that this cluster saw a process of another fail. Unlike [`Control::abort`]
    /// this does not claim to be the cause: the exit code of the job comes from whoever failed.
    pub fn suspect(&self, reason: &str) {
        let cluster = self.cluster.clone();
        self.say(ToCoordinator::Suspect { cluster, reason: bounded(reason) }, SHORT);
    }

    /// Tells the job that this cluster has finalized, so that its end is no failure. Waits until the job knows; if it cannot be
    /// reached, for as long as the job file's `reconnect` says.
    pub fn finalized(&self) {
        self.say(ToCoordinator::Finalized, NOTICED + self.patience);
    }

    fn say(&self, message: ToCoordinator, most: Duration) {
        self.keeper.say(message, Instant::now() + most);
    }
}
