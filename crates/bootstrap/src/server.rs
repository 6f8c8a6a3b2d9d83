//! The coordinator: the place at which the clusters of a job meet, inside `gridmpi run`.
//!
//! One thread accepts, one thread serves each connection; strangers get a fixed number of bytes
//! and seconds. What happens is reported through a channel; the job decides what follows.

mod members;
#[cfg(test)]
mod tests;

use self::members::Member;
use crate::connect::tune;
use crate::handshake::{self, HandshakeError};
use crate::join::{JoinRequest, JoinTerms};
use crate::listen::listen;
use crate::lock;
use crate::message::{FromCoordinator, bounded};
use crate::model::{JobTable, NetworkInfo};
use crate::relay::{Door, RelayAccess};
use crate::roster::{Expected, Progress, Roster};
use crate::secret::{JobId, JobKey, Secret};
use crate::strangers::{Stranger, Strangers};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a connection has to prove membership.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time that a member has for its first messages, and we for an answer to them.
const MEMBER: Duration = Duration::from_secs(30);
/// Connections served before they have proved membership; then somebody makes room, or is turned away and may come again.
const MAX_STRANGERS: usize = 128;
/// Strangers are reported at most this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Time for what was said last to leave when we close.
const LAST: Duration = Duration::from_secs(2);
/// Signals beyond so many that wait for a connection are let go, as the system does with signals of one kind.
const MOST_WAITING: usize = 64;

const CROWDED: &str = "came while too many had not proved membership; a member comes again";
const ENDED: &str = "had not proved membership when others came; a member comes again";

/// What a coordinator is told at its start.
pub struct CoordinatorConfig {
    /// The job's secret.
    pub secret: Secret,
    /// Where to listen; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The job's clusters in the order of their ranks.
    pub clusters: Vec<Expected>,
    /// What is known about the network between them.
    pub network: NetworkInfo,
    /// Addresses under which ranks may reach us, without a port, best first; handed to those who
    /// join.
    pub reachable: Vec<IpAddr>,
    /// Relays through which clusters may come that cannot reach us directly.
    pub relays: Option<RelayAccess>,
    /// How long ranks wait for other clusters, for those who join; 0 for as long as it takes.
    pub wait_s: u64,
}

/// Who an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Position among the job's clusters.
    pub cluster: usize,
    /// Where the connection comes from.
    pub peer: SocketAddr,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The other end has closed it: its process has ended, most likely.
    Closed,
    /// Something on the way.
    Broken,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// All ranks of a cluster have called `MPI_Init`.
    Registered(Participant),
    /// Every cluster has come and been told of the others.
    Complete(JobTable),
    /// Somebody who is not of this job, and how many more since the last report.
    Stranger {
        /// Where it came from.
        peer: SocketAddr,
        /// What gave it away.
        problem: String,
        /// Strangers not reported one by one.
        others: u64,
    },
    /// A member was turned away; the job goes on.
    Refused {
        /// Where it came from.
        peer: SocketAddr,
        /// What it was told.
        reason: String,
    },
    /// The job cannot go on.
    Failed(String),
    /// A program called `MPI_Abort` or a rank saw a failure.
    Aborted {
        /// Position of its cluster.
        cluster: usize,
        /// The code it gave.
        code: i32,
        /// Why.
        reason: String,
    },
    /// A cluster saw another fail.
    Suspected {
        /// Position of the cluster that saw it.
        cluster: usize,
        /// What it saw.
        reason: String,
    },
    /// A cluster has finalized.
    Finalized(Participant),
    /// The connection with a registered cluster has ended; it may come back.
    Away(Participant, Parting),
    /// It is back, and nothing it said is lost.
    Back(Participant),
    /// A launcher elsewhere has joined.
    Joined(Participant, JoinRequest),
    /// A joined launcher has ended with this code.
    JoinExited(Participant, i32),
    /// The connection with a joined launcher's `gridmpi join` has ended; it may come back.
    JoinAway(Participant, Parting),
    /// It is back, and nothing it said is lost.
    JoinBack(Participant),
    /// One of our relays cannot be used at present; it is tried on.
    RelayLost {
        /// Where it should listen.
        relay: SocketAddr,
        /// What is wrong.
        problem: String,
    },
}

/// Runs until dropped. Methods may be called from any thread.
pub struct Coordinator {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
    door: Option<Door>,
}

struct Shared {
    job: JobId,
    key: JobKey,
    network: NetworkInfo,
    terms: JoinTerms,
    roster: Mutex<Roster>,
    /// Registered clusters.
    ranks: Vec<Slot>,
    /// Joined launchers, by cluster.
    joins: Vec<Slot>,
    events: Mutex<Box<dyn FnMut(Event) + Send>>,
    strangers: Arc<Strangers>,
    reports: Mutex<Reports>,
    /// Why the job has ended. Set before those who have come are told, and looked at under the lock of the slot of who comes.
    ended: OnceLock<String>,
    closing: AtomicBool,
}

/// Who has come for a cluster.
type Slot = Mutex<Option<Arc<Member>>>;

/// Where a connection comes from.
#[derive(Clone, Copy)]
struct Origin {
    peer: SocketAddr,
    /// Through a relay of ours, which closes it when something on the way breaks.
    is_relayed: bool,
}

/// What has been told of strangers.
#[derive(Default)]
struct Reports {
    last: Option<Instant>,
    untold: u64,
}

impl Coordinator {
    /// Starts to listen; `events` is called with each event, from any thread, and must not wait.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(
        config: CoordinatorConfig,
        events: impl FnMut(Event) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = listen(config.listen)?;
        let relays = config.relays.clone();
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(config, address.port(), Box::new(events)));
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("coordinator".to_owned())
                .spawn(move || shared.accept(&listener))?
        };
        let door = relays.map(|relays| open_door(&relays, &shared)).transpose()?;
        Ok(Self { shared, address, acceptor: Some(acceptor), door })
    }

    /// Where it listens; the address may be unspecified, the port is real.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How far each cluster has come.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        lock(&self.shared.roster).progress()
    }

    /// Tells every cluster and every joined launcher that the job ends with `code` because of
    /// `reason`. Does not wait; who is away is told when it is back, and who comes first after this is refused.
    pub fn end(&self, code: i32, reason: &str) {
        let _ = self.shared.ended.set(bounded(reason));
        let message = Arc::new(FromCoordinator::Ended { code, reason: bounded(reason) });
        self.shared.members().for_each(|member| member.session.say(Arc::clone(&message)));
    }

    /// Asks the joined launcher of `cluster` to pass on a signal. Does not wait.
    pub fn signal(&self, cluster: usize, number: i32) {
        let member = self.shared.joins.get(cluster).and_then(|slot| lock(slot).clone());
        if let Some(member) = member.filter(|member| member.session.backlog() < MOST_WAITING) {
            member.session.say(Arc::new(FromCoordinator::Signal { number }));
        }
    }
}

/// Lets clusters in that come through relays.
fn open_door(relays: &RelayAccess, shared: &Arc<Shared>) -> io::Result<Door> {
    let addresses = relays.resolve().map_err(io::Error::other)?;
    let (serving, telling) = (Arc::clone(shared), Arc::clone(shared));
    let came = move |stream: TcpStream| {
        let Ok(peer) = stream.peer_addr() else { return };
        let origin = Origin { peer: canonical(peer), is_relayed: true };
        if let Some(stranger) = serving.let_in(&stream, origin) {
            serving.serve(stream, stranger, origin);
        }
    };
    let trouble = move |relay, problem| telling.tell(Event::RelayLost { relay, problem });
    Door::open(relays, addresses, shared.job, came, trouble)
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.door = None;
        self.shared.closing.store(true, Ordering::Release);
        self.shared.members().for_each(|member| member.session.close());
        let last = Instant::now() + LAST;
        self.shared.members().for_each(|member| member.session.wait_idle(last));
        // Wakes the acceptor; should it fail, the thread ends with the process.
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        };
        let own = SocketAddr::new(ip, self.address.port());
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn new(config: CoordinatorConfig, port: u16, events: Box<dyn FnMut(Event) + Send>) -> Self {
        let empty = |_: &Expected| Mutex::new(None);
        let at = |ip: IpAddr| SocketAddr::new(ip, port);
        Self {
            job: config.secret.job(),
            key: config.secret.key(),
            terms: JoinTerms {
                coordinators: config.reachable.into_iter().map(at).collect(),
                wait_s: config.wait_s,
                interface: None,
                reconnect_s: config.network.reconnect().as_secs(),
            },
            network: config.network,
            ranks: config.clusters.iter().map(empty).collect(),
            joins: config.clusters.iter().map(empty).collect(),
            roster: Mutex::new(Roster::new(config.clusters)),
            events: Mutex::new(events),
            strangers: Arc::new(Strangers::new(MAX_STRANGERS)),
            reports: Mutex::default(),
            ended: OnceLock::new(),
            closing: AtomicBool::new(false),
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            let Ok((stream, peer)) = accepted else {
                // Out of descriptors, most likely: let others close theirs.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            let origin = Origin { peer: canonical(peer), is_relayed: false };
            let Some(stranger) = self.let_in(&stream, origin) else { continue };
            let shared = Arc::clone(self);
            // If there is no thread the place is free again, and who has come may come again.
            let _ = std::thread::Builder::new()
                .name("rendezvous".to_owned())
                .stack_size(512 << 10)
                .spawn(move || shared.serve(stream, stranger, origin));
        }
    }

    /// A place among the strangers, if there is one for whoever comes from there.
    fn let_in(&self, stream: &TcpStream, origin: Origin) -> Option<Stranger> {
        let stranger = self.strangers.come(stream, origin.peer.ip());
        if stranger.is_none() {
            self.report_stranger(origin.peer, CROWDED);
        }
        stranger
    }

    /// Everybody who has come.
    fn members(&self) -> impl Iterator<Item = Arc<Member>> {
        self.ranks.iter().chain(&self.joins).filter_map(|slot| lock(slot).clone())
    }

    fn serve(&self, stream: TcpStream, stranger: Stranger, origin: Origin) {
        let deadline = Instant::now() + HANDSHAKE;
        let stream = Socket::from(stream);
        let met = tune(&stream)
            .map_err(HandshakeError::from)
            .and_then(|()| handshake::accept(stream.into(), self.job, &self.key, deadline));
        let was_ended = !stranger.leave();
        match met {
            _ if was_ended => self.report_stranger(origin.peer, ENDED),
            Ok((role, channel)) => {
                if let Ok((reader, writer)) = channel.split() {
                    self.welcome(role, reader, writer, origin);
                }
            }
            // It races several ways to us, and another has won.
            Err(HandshakeError::Left) => {}
            Err(error) => self.report_stranger(origin.peer, &describe(&error)),
        }
    }

    fn report_stranger(&self, peer: SocketAddr, problem: &str) {
        let mut reports = lock(&self.reports);
        let now = Instant::now();
        if reports.last.is_some_and(|last| now < last + REPORT_EVERY) {
            reports.untold += 1;
            return;
        }
        reports.last = Some(now);
        let others = std::mem::take(&mut reports.untold);
        drop(reports);
        self.tell(Event::Stranger { peer, problem: problem.to_owned(), others });
    }

    fn tell(&self, event: Event) {
        (lock(&self.events))(event);
    }
}

/// One form for each address, whichever family the socket has.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

fn describe(error: &HandshakeError) -> String {
    match error {
        HandshakeError::WrongKey => {
            "knows this job's identifier but holds another key (GRIDMPI_KEY)".to_owned()
        }
        HandshakeError::OtherJob => "belongs to another job, or has a wrong token".to_owned(),
        HandshakeError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            format!("did not prove membership within {} s", HANDSHAKE.as_secs())
        }
        HandshakeError::Io(_) => "left before it had proved membership".to_owned(),
        error => error.to_string(),
    }
}
