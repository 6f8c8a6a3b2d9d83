//! The coordinator: the place at which the clusters of a job meet, inside `gridmpi run`.
//!
//! One thread accepts, one thread serves each connection; strangers get a fixed number of bytes
//! and seconds. What happens is reported through a channel; the job decides what follows.

use crate::channel::{Channel, ChannelError, Reader, Writer};
use crate::client::lock;
use crate::connect::tune;
use crate::handshake::{self, HandshakeError, Role};
use crate::join::{JoinRequest, JoinTerms};
use crate::message::{FromCoordinator, ToCoordinator, bounded};
use crate::model::{ClusterName, JobTable, NetworkInfo, Registration};
use crate::relay::{Door, RelayAccess};
use crate::roster::{Expected, Progress, Refusal, Roster};
use crate::secret::{JobId, JobKey, Secret};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a connection has to prove membership.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time that a member has for its first message, and each write to it for itself.
const MEMBER: Duration = Duration::from_secs(30);
/// Connections served before they have proved membership; others wait in the kernel's queue.
const MAX_STRANGERS: usize = 128;
/// Strangers are reported at most this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// A day at a time is "for ever": the connection's end wakes the reader.
const LONG: Duration = Duration::from_secs(24 * 3600);

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
    /// How long ranks wait for other clusters, for those who join; 0 for a day.
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
    /// A registered cluster's connection ended before it had finalized.
    Lost(Participant),
    /// A launcher elsewhere has joined.
    Joined(Participant, JoinRequest),
    /// A joined launcher has ended with this code.
    JoinExited(Participant, i32),
    /// A joined launcher's connection ended before the launcher had.
    JoinLost(Participant),
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
    /// Connections of registered clusters, by cluster.
    ranks: Vec<Mutex<Option<Writer>>>,
    /// Connections of joined launchers, by cluster.
    joins: Vec<Mutex<Option<Writer>>>,
    events: Mutex<Box<dyn FnMut(Event) + Send>>,
    strangers: Mutex<Strangers>,
    room: Condvar,
    closing: AtomicBool,
}

#[derive(Default)]
struct Strangers {
    being_served: usize,
    reported: Option<Instant>,
    unreported: u64,
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
    /// `reason`. Takes at most a few seconds.
    pub fn end(&self, code: i32, reason: &str) {
        let message = FromCoordinator::Ended { code, reason: bounded(reason) };
        for writer in self.shared.ranks.iter().chain(&self.shared.joins) {
            if let Some(writer) = lock(writer).as_mut() {
                let _ = writer.send(&message, Instant::now() + Duration::from_secs(2));
            }
        }
    }

    /// Asks the joined launcher of `cluster` to pass on a signal.
    pub fn signal(&self, cluster: usize, number: i32) {
        let Some(writer) = self.shared.joins.get(cluster) else { return };
        if let Some(writer) = lock(writer).as_mut() {
            let _ = writer.send(&FromCoordinator::Signal { number }, Instant::now() + HANDSHAKE);
        }
    }
}

/// Lets clusters in that come through relays.
fn open_door(relays: &RelayAccess, shared: &Arc<Shared>) -> io::Result<Door> {
    let addresses = relays.resolve().map_err(io::Error::other)?;
    let (serving, telling) = (Arc::clone(shared), Arc::clone(shared));
    let came = move |stream: TcpStream| {
        let Ok(peer) = stream.peer_addr() else { return };
        if serving.wait_for_room() {
            lock(&serving.strangers).being_served += 1;
            serving.serve(stream, peer);
        }
    };
    let trouble = move |relay, problem| telling.tell(Event::RelayLost { relay, problem });
    Door::open(relays, addresses, shared.job, came, trouble)
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.door = None;
        self.shared.closing.store(true, Ordering::Release);
        self.shared.room.notify_all();
        for writer in self.shared.ranks.iter().chain(&self.shared.joins) {
            if let Some(writer) = lock(writer).take() {
                writer.shutdown();
            }
        }
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

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(1024)?;
    Ok(socket.into())
}

impl Shared {
    fn new(config: CoordinatorConfig, port: u16, events: Box<dyn FnMut(Event) + Send>) -> Self {
        let empty = |_: &Expected| Mutex::new(None);
        let at = |ip: IpAddr| SocketAddr::new(ip, port);
        Self {
            job: config.secret.job(),
            key: config.secret.key(),
            network: config.network,
            terms: JoinTerms {
                coordinators: config.reachable.into_iter().map(at).collect(),
                wait_s: config.wait_s,
                interface: None,
            },
            ranks: config.clusters.iter().map(empty).collect(),
            joins: config.clusters.iter().map(empty).collect(),
            roster: Mutex::new(Roster::new(config.clusters)),
            events: Mutex::new(events),
            strangers: Mutex::default(),
            room: Condvar::new(),
            closing: AtomicBool::new(false),
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while self.wait_for_room() {
            let Ok((stream, peer)) = listener.accept() else {
                // Out of descriptors, most likely: let others close theirs.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            lock(&self.strangers).being_served += 1;
            let shared = Arc::clone(self);
            let served = std::thread::Builder::new()
                .name("rendezvous".to_owned())
                .stack_size(512 << 10)
                .spawn(move || shared.serve(stream, peer));
            if served.is_err() {
                self.leave_strangers();
            }
        }
    }

    /// False when the coordinator closes.
    fn wait_for_room(&self) -> bool {
        let mut strangers = lock(&self.strangers);
        while strangers.being_served >= MAX_STRANGERS && !self.closing.load(Ordering::Acquire) {
            strangers = self.room.wait(strangers).unwrap_or_else(PoisonError::into_inner);
        }
        !self.closing.load(Ordering::Acquire)
    }

    fn leave_strangers(&self) {
        lock(&self.strangers).being_served -= 1;
        self.room.notify_one();
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let deadline = Instant::now() + HANDSHAKE;
        let stream = Socket::from(stream);
        let met = tune(&stream)
            .map_err(HandshakeError::from)
            .and_then(|()| handshake::accept(stream.into(), self.job, &self.key, deadline));
        self.leave_strangers();
        match met {
            Ok((role, channel)) => self.welcome(role, channel, peer),
            Err(error) => self.report_stranger(peer, &error),
        }
    }

    fn report_stranger(&self, peer: SocketAddr, error: &HandshakeError) {
        let mut strangers = lock(&self.strangers);
        let now = Instant::now();
        if strangers.reported.is_some_and(|last| now < last + REPORT_EVERY) {
            strangers.unreported += 1;
            return;
        }
        strangers.reported = Some(now);
        let others = std::mem::take(&mut strangers.unreported);
        drop(strangers);
        self.tell(Event::Stranger { peer, problem: describe(error), others });
    }

    fn tell(&self, event: Event) {
        (lock(&self.events))(event);
    }

    fn welcome(&self, role: Role, channel: Channel, peer: SocketAddr) {
        let Ok((mut reader, writer)) = channel.split() else { return };
        let first = reader.receive(Instant::now() + MEMBER);
        match (role, first) {
            (Role::Rank, Ok(ToCoordinator::Register(registration))) => {
                self.register(registration, reader, writer, peer);
            }
            (Role::Join, Ok(ToCoordinator::Join(request))) => {
                self.join(request, reader, writer, peer);
            }
            (Role::Messenger, Ok(ToCoordinator::Abort { cluster, code, reason })) => {
                self.aborted(&cluster, code, &reason);
            }
            (Role::Messenger, Ok(ToCoordinator::Suspect { cluster, reason })) => {
                self.suspected(&cluster, &reason);
            }
            (_, Ok(_)) => self.refused(writer, peer, "sent a message out of turn".to_owned()),
            (_, Err(error)) => {
                self.tell(Event::Refused { peer, reason: no_first_message(&error) });
            }
        }
    }

    fn refused(&self, mut writer: Writer, peer: SocketAddr, reason: String) {
        let message = FromCoordinator::Refused { reason: bounded(&reason) };
        let _ = writer.send(&message, Instant::now() + MEMBER);
        self.tell(Event::Refused { peer, reason });
    }

    fn register(&self, new: Registration, reader: Reader, writer: Writer, peer: SocketAddr) {
        let outcome = lock(&self.roster).register(new);
        let cluster = match outcome {
            Ok(cluster) => cluster,
            Err(Refusal { reason, fatal }) => {
                if fatal {
                    self.tell(Event::Failed(reason.clone()));
                }
                return self.refused(writer, peer, reason);
            }
        };
        *lock(&self.ranks[cluster]) = Some(writer);
        self.tell(Event::Registered(Participant { cluster, peer }));
        self.announce_if_complete();
        self.attend_cluster(cluster, reader, peer);
    }

    /// Whoever comes last tells everybody, each in its own thread: one slow link must not hold up
    /// the others.
    fn announce_if_complete(&self) {
        let Some(table) = self.complete() else { return };
        let message = FromCoordinator::Table(table.clone());
        std::thread::scope(|scope| {
            for writer in &self.ranks {
                scope.spawn(|| {
                    if let Some(writer) = lock(writer).as_mut() {
                        let _ = writer.send(&message, Instant::now() + MEMBER);
                    }
                });
            }
        });
        self.tell(Event::Complete(table));
    }

    /// The table, once; `None` while somebody's connection is not yet in place.
    fn complete(&self) -> Option<JobTable> {
        let mut roster = lock(&self.roster);
        let ready = roster.is_complete() && self.ranks.iter().all(|w| lock(w).is_some());
        if !ready || !roster.announce() {
            return None;
        }
        roster.table(self.job, &self.network)
    }

    fn attend_cluster(&self, cluster: usize, mut reader: Reader, peer: SocketAddr) {
        let mut finalized = false;
        loop {
            match reader.receive(Instant::now() + LONG) {
                Ok(ToCoordinator::Abort { cluster, code, reason }) => {
                    self.aborted(&cluster, code, &reason);
                }
                Ok(ToCoordinator::Suspect { cluster, reason }) => {
                    self.suspected(&cluster, &reason);
                }
                Ok(ToCoordinator::Finalized) => {
                    finalized = true;
                    self.tell(Event::Finalized(Participant { cluster, peer }));
                }
                Ok(_) => {}
                Err(error) if error.is_timeout() => {}
                Err(_) => break,
            }
        }
        lock(&self.ranks[cluster]).take();
        if !finalized && !self.closing.load(Ordering::Acquire) {
            self.tell(Event::Lost(Participant { cluster, peer }));
        }
    }

    fn aborted(&self, cluster: &ClusterName, code: i32, reason: &str) {
        if let Ok(cluster) = lock(&self.roster).find(cluster) {
            self.tell(Event::Aborted { cluster, code, reason: bounded(reason) });
        }
    }

    fn suspected(&self, cluster: &ClusterName, reason: &str) {
        if let Ok(cluster) = lock(&self.roster).find(cluster) {
            self.tell(Event::Suspected { cluster, reason: bounded(reason) });
        }
    }

    fn join(&self, request: JoinRequest, reader: Reader, mut writer: Writer, peer: SocketAddr) {
        let outcome = lock(&self.roster).join(request.clone());
        let cluster = match outcome {
            Ok(cluster) => cluster,
            Err(Refusal { reason, .. }) => return self.refused(writer, peer, reason),
        };
        let interface = lock(&self.roster).expected(cluster).and_then(|e| e.interface.clone());
        let terms = JoinTerms { interface, ..self.terms.clone() };
        let _ = writer.send(&FromCoordinator::Joined(terms), Instant::now() + MEMBER);
        *lock(&self.joins[cluster]) = Some(writer);
        self.tell(Event::Joined(Participant { cluster, peer }, request));
        self.attend_launcher(cluster, reader, peer);
    }

    fn attend_launcher(&self, cluster: usize, mut reader: Reader, peer: SocketAddr) {
        let who = Participant { cluster, peer };
        let event = loop {
            match reader.receive(Instant::now() + LONG) {
                Ok(ToCoordinator::Exited { code }) => break Event::JoinExited(who, code),
                Ok(_) => {}
                Err(error) if error.is_timeout() => {}
                Err(_) => break Event::JoinLost(who),
            }
        };
        lock(&self.joins[cluster]).take();
        if !self.closing.load(Ordering::Acquire) {
            self.tell(event);
        }
    }
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

fn no_first_message(error: &ChannelError) -> String {
    format!("proved membership but sent no valid message: {error}")
}
