//! The client: what local rank 0 of a cluster does.

use crate::channel::{ChannelError, Reader, Writer};
use crate::connect::Dialer;
use crate::env::JobEnv;
use crate::error::BootstrapError;
use crate::handshake::{self, HandshakeError, Role};
use crate::message::{FromCoordinator, ToCoordinator, bounded};
use crate::model::{ClusterName, JobTable, ProcInfo, Registration};
use crate::relay::{RelayAccess, RelayError};
use crate::secret::{JobId, JobKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for reaching the coordinator: an unreachable one must be reported within seconds.
const REACH: Duration = Duration::from_secs(20);
/// Pause before relays are asked again for a coordinator that they do not know.
pub(crate) const RELAY_PAUSE: Duration = Duration::from_millis(100);
/// Longest time for one short message on an open connection.
const SHORT: Duration = Duration::from_secs(10);

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
    let (mut reader, mut writer) = reach(env, Role::Rank, deadline)?;
    let what = "sending this cluster's registration to the coordinator";
    let hello = ToCoordinator::Register(registration);
    writer.send(&hello, deadline).map_err(|error| broken(error, what))?;
    match receive(&mut reader, deadline, "MPI_Init of every other cluster")? {
        FromCoordinator::Table(table) if table.job == env.job.0 => {
            Ok((table, Control::new(env.cluster.clone(), reader, writer)?))
        }
        FromCoordinator::Refused { reason } | FromCoordinator::Ended { reason, .. } => {
            Err(BootstrapError::Refused(reason))
        }
        other => Err(BootstrapError::Protocol(format!("{other:?} instead of the job's table"))),
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
/// end its process right after.
///
/// # Errors
/// As [`register`]; the caller aborts anyway.
pub fn abort(env: &JobEnv, code: i32, reason: &str) -> Result<(), BootstrapError> {
    let cluster = env.cluster.clone();
    tell(env, &ToCoordinator::Abort { cluster, code, reason: bounded(reason) })
}

/// One message over a connection of its own.
fn tell(env: &JobEnv, message: &ToCoordinator) -> Result<(), BootstrapError> {
    let deadline = Instant::now() + SHORT;
    let (mut reader, mut writer) = reach(env, Role::Messenger, deadline)?;
    writer.send(message, deadline).map_err(|error| broken(error, "sending a failure"))?;
    // The coordinator takes the message and closes the connection.
    match receive(&mut reader, deadline, "an answer to a failure") {
        Ok(_) | Err(BootstrapError::Gone(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn reach(env: &JobEnv, role: Role, deadline: Instant) -> Result<(Reader, Writer), BootstrapError> {
    reach_at(&env.coordinators, env.relays.as_ref(), role, env.job, &env.key, deadline)
}

/// Connects to the first of `addresses`, or through the first of the relays, that leads to what proves to be the job's
/// coordinator.
pub(crate) fn reach_at(
    addresses: &[SocketAddr],
    relays: Option<&RelayAccess>,
    role: Role,
    job: JobId,
    key: &JobKey,
    deadline: Instant,
) -> Result<(Reader, Writer), BootstrapError> {
    let deadline = deadline.min(Instant::now() + REACH);
    let through = relays.map_or(Ok(Vec::new()), RelayAccess::resolve);
    let through = through.map_err(BootstrapError::Relays)?;
    loop {
        let ways = Ways { direct: addresses, through: &through, relays };
        match reach_once(&ways, role, job, key, deadline) {
            // The coordinator, or news of it, may still be on the way to the relays.
            Err(Missed::Early(_)) if Instant::now() + RELAY_PAUSE < deadline => {
                std::thread::sleep(RELAY_PAUSE);
            }
            Err(Missed::Early(error) | Missed::For(error)) => return Err(error),
            Ok(halves) => return Ok(halves),
        }
    }
}

/// Ways to the coordinator.
struct Ways<'a> {
    direct: &'a [SocketAddr],
    through: &'a [SocketAddr],
    relays: Option<&'a RelayAccess>,
}

/// Why nothing came of it.
enum Missed {
    /// A relay does not know the coordinator, which may be so for a while.
    Early(BootstrapError),
    For(BootstrapError),
}

impl Ways<'_> {
    /// Asks for a circuit where the connection leads to a relay. Whether it leads to the coordinator now.
    fn pass(
        &self,
        stream: &TcpStream,
        address: SocketAddr,
        job: JobId,
        deadline: Instant,
    ) -> Result<(), RelayError> {
        match self.relays {
            Some(relays) if self.through.contains(&address) => {
                relays.to_coordinator(stream, job, deadline)
            }
            _ => Ok(()),
        }
    }
}

fn reach_once(
    ways: &Ways<'_>,
    role: Role,
    job: JobId,
    key: &JobKey,
    deadline: Instant,
) -> Result<(Reader, Writer), Missed> {
    let mut dialer = Dialer::new(&[ways.direct, ways.through].concat(), deadline);
    let mut telling = None;
    let mut is_early = false;
    while let Some((address, stream)) = dialer.next() {
        if let Err(error) = ways.pass(&stream, address, job, deadline) {
            is_early |= error.is_early();
            dialer.failed(address, format!("as a relay: {error}"));
            continue;
        }
        match handshake::connect(stream, role, job, key, deadline) {
            Ok(channel) => {
                let gone = |error: std::io::Error| BootstrapError::Gone(error.to_string());
                return channel.split().map_err(|error| Missed::For(gone(error)));
            }
            Err(HandshakeError::Version(theirs)) => {
                let ours = handshake::VERSION;
                telling = Some(BootstrapError::Version { address, theirs, ours });
            }
            Err(HandshakeError::OtherJob) => telling = Some(BootstrapError::OtherJob(address)),
            Err(HandshakeError::WrongKey) => telling = Some(BootstrapError::WrongKey(address)),
            Err(error) => dialer.failed(address, error.to_string()),
        }
    }
    let error = telling.unwrap_or(BootstrapError::Unreachable { tried: dialer.failures });
    Err(if is_early { Missed::Early(error) } else { Missed::For(error) })
}

pub(crate) fn receive(
    reader: &mut Reader,
    deadline: Instant,
    what: &'static str,
) -> Result<FromCoordinator, BootstrapError> {
    reader.receive(deadline).map_err(|error| broken(error, what))
}

pub(crate) fn broken(error: ChannelError, what: &'static str) -> BootstrapError {
    match error {
        error if error.is_timeout() => BootstrapError::Timeout(what),
        ChannelError::Io(error) => BootstrapError::Gone(error.to_string()),
        error => BootstrapError::Protocol(error.to_string()),
    }
}

/// The open connection of a registered cluster to its job. Every method may be called from any
/// thread; none takes longer than a few seconds.
pub struct Control {
    cluster: ClusterName,
    fd: OwnedFd,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
}

/// What the job tells a cluster after it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The job is being ended: another cluster aborted or failed, or the user stopped it.
    Ended {
        /// The exit code of the job.
        code: i32,
        /// Why, for the user.
        reason: String,
    },
    /// `gridmpi run` itself has gone away; this cluster should end too.
    Gone,
}

impl Control {
    fn new(cluster: ClusterName, reader: Reader, writer: Writer) -> Result<Self, BootstrapError> {
        let fd = reader.stream().try_clone().map_err(|e| BootstrapError::Gone(e.to_string()))?;
        let (reader, writer) = (Mutex::new(reader), Mutex::new(writer));
        Ok(Self { cluster, fd: fd.into(), reader, writer })
    }

    /// Tells the job that the program aborts with `code` (MPI 4.1 §9.7). Failures to tell are
    /// ignored: the connection's end tells the same, without the code.
    pub fn abort(&self, code: i32, reason: &str) {
        let cluster = self.cluster.clone();
        self.send(&ToCoordinator::Abort { cluster, code, reason: bounded(reason) });
    }

    /// Tells the job that this cluster saw a process of another fail. Unlike [`Control::abort`]
    /// this does not claim to be the cause: the exit code of the job comes from whoever failed.
    pub fn suspect(&self, reason: &str) {
        let cluster = self.cluster.clone();
        self.send(&ToCoordinator::Suspect { cluster, reason: bounded(reason) });
    }

    /// Tells the job that this cluster has finalized, so that its end is no failure.
    pub fn finalized(&self) {
        self.send(&ToCoordinator::Finalized);
    }

    /// What the job has said since, if anything. Does not wait. To learn when to ask, poll
    /// [`AsFd::as_fd`] for input.
    pub fn notice(&self) -> Option<Notice> {
        let mut reader = lock(&self.reader);
        if !readable(reader.stream().as_fd()) {
            return None;
        }
        match reader.receive(Instant::now() + SHORT) {
            Ok(FromCoordinator::Ended { code, reason }) => Some(Notice::Ended { code, reason }),
            Ok(FromCoordinator::Refused { reason }) => Some(Notice::Ended { code: 1, reason }),
            Ok(_) => None,
            Err(_) => Some(Notice::Gone),
        }
    }

    fn send(&self, message: &ToCoordinator) {
        let _ = lock(&self.writer).send(message, Instant::now() + SHORT);
    }
}

impl AsFd for Control {
    /// The connection, to poll for input; never to be read or written.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while sending leaves at worst a broken connection, which shows.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&at_once)), Ok(1..))
}
