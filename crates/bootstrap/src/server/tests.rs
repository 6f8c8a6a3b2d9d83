//! Members who do not keep to the protocol: each is refused, or its connection ends, and nobody else minds.

use super::{CROWDED, Coordinator, CoordinatorConfig, Event, HANDSHAKE, MAX_STRANGERS};
use crate::channel::{Reader, Writer};
use crate::handshake::{self, Role};
use crate::join::JoinRequest;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::tests::sample;
use crate::model::{ClusterName, NetworkInfo};
use crate::race::PAUSE;
use crate::roster::Expected;
use crate::secret::Secret;
use crate::session::{Envelope, Opening, SessionId};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

struct Job {
    secret: Secret,
    coordinator: Coordinator,
    events: Receiver<Event>,
}

/// A connection that says what it is told to.
struct Raw {
    reader: Reader,
    writer: Writer,
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn name(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

/// Clusters `a` and `b`, of which `b` joins.
fn job() -> Job {
    let secret = Secret::random().unwrap();
    let expect = |text: &str| Expected {
        name: name(text),
        ranks: None,
        joins: text == "b",
        interface: None,
    };
    let config = CoordinatorConfig {
        secret: secret.clone(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clusters: ["a", "b"].map(expect).into(),
        network: NetworkInfo::default(),
        reachable: Vec::new(),
        relays: None,
        wait_s: 0,
    };
    let (sender, events) = channel();
    let coordinator = Coordinator::start(config, move |event| drop(sender.send(event))).unwrap();
    Job { secret, coordinator, events }
}

impl Job {
    fn dial(&self, role: Role) -> Raw {
        let stream = TcpStream::connect(self.coordinator.address()).unwrap();
        let (job, key) = (self.secret.job(), self.secret.key());
        let channel = handshake::connect(stream, role, job, &key, soon()).unwrap();
        let (reader, writer) = channel.split().unwrap();
        Raw { reader, writer }
    }

    /// With an opening.
    fn open(&self, role: Role, session: SessionId, cluster: &str, received: u64) -> Raw {
        let mut raw = self.dial(role);
        let opening = Opening { session, cluster: name(cluster), received };
        raw.writer.send(&opening, soon()).unwrap();
        raw
    }

    /// A cluster that has registered, by a session whose first connection still stands.
    fn registered(&self, cluster: &str) -> (SessionId, Raw) {
        let id = SessionId::random().unwrap();
        let mut raw = self.open(Role::Rank, id, cluster, 0);
        assert_eq!(raw.count(), 0);
        raw.say(0, 0, ToCoordinator::Register(sample(cluster, 1)));
        assert_eq!(raw.count(), 1);
        self.expect(|event| matches!(event, Event::Registered(_)));
        (id, raw)
    }

    fn expect(&self, wanted: impl Fn(&Event) -> bool) {
        loop {
            let event = self.events.recv_timeout(Duration::from_secs(20)).expect("no such event");
            if wanted(&event) {
                return;
            }
        }
    }
}

impl Raw {
    fn say(&mut self, received: u64, number: u64, message: ToCoordinator) {
        let envelope = Envelope::saying(received, number, message);
        self.writer.send(&envelope, soon()).unwrap();
    }

    fn next(&mut self) -> Envelope<FromCoordinator> {
        self.reader.receive(soon()).unwrap()
    }

    /// How many messages the coordinator says it has had.
    fn count(&mut self) -> u64 {
        let envelope = self.next();
        assert!(envelope.message.is_none(), "{envelope:?}");
        envelope.received
    }

    fn refused(&mut self) -> String {
        match self.next().message {
            Some((0, FromCoordinator::Refused { reason })) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the coordinator ends the connection without another word.
    fn is_ended(&mut self) -> bool {
        let next = self.reader.receive::<Envelope<FromCoordinator>>(soon());
        next.is_err_and(|error| !error.is_timeout())
    }
}

fn any() -> SessionId {
    SessionId::random().unwrap()
}

#[test]
fn only_the_first_word_of_a_rank_may_be_long() {
    let job = job();
    let long = || "x".repeat(100_000);
    let suspect = || ToCoordinator::Suspect { cluster: name("a"), reason: long() };
    let mut word = job.dial(Role::Messenger);
    word.say(0, 0, suspect());
    assert!(word.is_ended());
    let mut join = job.open(Role::Join, any(), "b", 0);
    assert_eq!(join.count(), 0);
    join.say(0, 0, ToCoordinator::Register(sample("b", 5000)));
    assert!(join.is_ended());
    let mut rank = job.open(Role::Rank, any(), "a", 0);
    assert_eq!(rank.count(), 0);
    rank.say(0, 0, ToCoordinator::Register(sample("a", 5000)));
    assert_eq!(rank.count(), 1);
    rank.say(0, 1, suspect());
    assert!(rank.is_ended());
    job.expect(|event| match event {
        Event::Suspected { .. } => panic!("{event:?}"),
        event => matches!(event, Event::Away(..)),
    });
}

#[test]
fn who_finds_another_way_is_no_stranger() {
    let job = job();
    let mut stream = TcpStream::connect(job.coordinator.address()).unwrap();
    let greeting = handshake::Greeting::new(Role::Rank, job.secret.job()).unwrap();
    stream.write_all(greeting.hello()).unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    drop(stream);
    job.registered("a");
    let mut noise = TcpStream::connect(job.coordinator.address()).unwrap();
    noise.write_all(b"SSH-2.0").unwrap();
    job.expect(|event| match event {
        Event::Stranger { problem, others, .. } => {
            assert!(problem.contains("protocol") && *others == 0, "{problem}");
            true
        }
        _ => false,
    });
}

fn dial_from(ip: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((ip, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Opens connections from one address for as long as the job is there, each with a whole hello and no more; told when there are many.
fn flood(job: &Job, ip: Ipv4Addr, pause: Duration) -> Receiver<()> {
    let (at, id) = (job.coordinator.address(), job.secret.job());
    let (sender, many) = channel();
    std::thread::spawn(move || {
        let mut kept = VecDeque::new();
        while let Ok(mut stream) = dial_from(ip, at) {
            let greeting = handshake::Greeting::new(Role::Rank, id).unwrap();
            if stream.write_all(greeting.hello()).is_ok() {
                kept.push_back(stream);
            }
            if kept.len() > 2 * MAX_STRANGERS {
                kept.pop_front();
                let _ = sender.send(());
            }
            std::thread::sleep(pause);
        }
    });
    many
}

#[test]
fn a_flood_from_one_address_keeps_nobody_out_who_comes_from_another() {
    let job = job();
    let many = flood(&job, Ipv4Addr::new(127, 0, 0, 2), Duration::ZERO);
    many.recv().unwrap();
    let began = Instant::now();
    // At the first attempt.
    for _ in 0..20 {
        job.dial(Role::Messenger);
    }
    assert!(began.elapsed() < HANDSHAKE, "{:?}", began.elapsed());
    job.expect(|event| matches!(event, Event::Stranger { problem, .. } if problem == CROWDED));
}

#[test]
fn many_behind_the_address_of_a_flood_come_in_at_last() {
    let job = job();
    let ip = Ipv4Addr::new(127, 0, 0, 2);
    let many = flood(&job, ip, Duration::from_millis(1));
    many.recv().unwrap();
    let (at, until) = (job.coordinator.address(), soon());
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let (id, key) = (job.secret.job(), job.secret.key());
                let once = || {
                    let stream = dial_from(ip, at).unwrap();
                    handshake::connect(stream, Role::Messenger, id, &key, until).is_err()
                };
                while once() {
                    assert!(Instant::now() < until, "it never comes in");
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
}

#[test]
fn what_resumes_nothing_is_refused() {
    let job = job();
    let (id, _raw) = job.registered("a");
    for (role, session, cluster, received) in [
        // Guessed; another cluster's; another role's; more than was said.
        (Role::Rank, any(), "a", 1),
        (Role::Rank, id, "b", 1),
        (Role::Join, id, "a", 1),
        (Role::Rank, id, "a", 1),
        (Role::Rank, id, "a", u64::MAX),
        (Role::Join, any(), "b", 7),
    ] {
        let reason = job.open(role, session, cluster, received).refused();
        assert!(reason.contains("session") && reason.contains(cluster), "{reason}");
        job.expect(|event| matches!(event, Event::Refused { .. }));
    }
    let reason = job.open(Role::Rank, id, "zz", 0).refused();
    assert!(reason.contains("no cluster `zz`"), "{reason}");
    // The session stands as before.
    let mut again = job.open(Role::Rank, id, "a", 0);
    assert_eq!(again.count(), 1);
    again.say(0, 1, ToCoordinator::Finalized);
    job.expect(|event| matches!(event, Event::Finalized(who) if who.cluster == 0));
}

#[test]
fn a_session_begins_with_its_own_first_message() {
    let job = job();
    let join = JoinRequest { cluster: name("b"), host: "h".into(), pid: 1 };
    for (role, cluster, message) in [
        (Role::Rank, "a", ToCoordinator::Finalized),
        (Role::Rank, "a", ToCoordinator::Register(sample("b", 1))),
        (Role::Rank, "b", ToCoordinator::Join(join.clone())),
        (Role::Join, "b", ToCoordinator::Exited { code: 0 }),
        (Role::Join, "b", ToCoordinator::Register(sample("b", 1))),
        (Role::Join, "a", ToCoordinator::Join(join)),
    ] {
        let mut raw = job.open(role, any(), cluster, 0);
        assert_eq!(raw.count(), 0);
        raw.say(0, 0, message);
        assert!(raw.refused().contains("out of turn"));
    }
    for (received, number) in [(0, 1), (1, 0)] {
        let mut raw = job.open(Role::Rank, any(), "a", 0);
        assert_eq!(raw.count(), 0);
        raw.say(received, number, ToCoordinator::Register(sample("a", 1)));
        assert!(raw.is_ended());
    }
    assert!(job.events.try_iter().all(|event| matches!(event, Event::Refused { .. })));
    assert!(job.coordinator.progress().iter().all(|cluster| !cluster.registered));
}

#[test]
fn a_second_session_of_a_cluster_is_refused_and_harms_nobody() {
    let job = job();
    let (_, mut first) = job.registered("a");
    let mut second = job.open(Role::Rank, any(), "a", 0);
    assert_eq!(second.count(), 0);
    second.say(0, 0, ToCoordinator::Register(sample("a", 1)));
    assert!(second.refused().contains("twice"));
    first.say(0, 1, ToCoordinator::Finalized);
    assert_eq!(first.count(), 2);
}

#[test]
fn wrong_counts_end_the_connection_and_not_the_session() {
    for (received, number) in [(1, 1), (u64::MAX, 1), (0, 2), (0, u64::MAX)] {
        let job = job();
        let (id, mut raw) = job.registered("a");
        raw.say(received, number, ToCoordinator::Finalized);
        assert!(raw.is_ended());
        job.expect(|event| matches!(event, Event::Away(..)));
        let mut again = job.open(Role::Rank, id, "a", 0);
        assert_eq!(again.count(), 1, "what came with a wrong count was not heard");
        job.expect(|event| matches!(event, Event::Back(_)));
    }
}

#[test]
fn a_message_that_comes_again_counts_once() {
    let job = job();
    let (id, mut raw) = job.registered("a");
    let suspect =
        |reason: &str| ToCoordinator::Suspect { cluster: name("a"), reason: reason.into() };
    raw.say(0, 0, suspect("an old number"));
    raw.say(0, 1, suspect("one"));
    assert_eq!(raw.count(), 2);
    let mut again = job.open(Role::Rank, id, "a", 0);
    assert_eq!(again.count(), 2);
    assert!(raw.is_ended(), "another connection has taken its place");
    again.say(0, 1, suspect("one"));
    again.say(0, 2, suspect("two"));
    assert_eq!(again.count(), 3);
    let reasons: Vec<_> = job
        .events
        .try_iter()
        .filter_map(|event| match event {
            Event::Suspected { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["one", "two"]);
}

#[test]
fn what_was_said_is_said_again_until_it_is_acknowledged() {
    let job = job();
    let (id, first) = job.registered("a");
    drop(first);
    job.expect(|event| matches!(event, Event::Away(..)));
    job.coordinator.end(5, "over");
    for _ in 0..3 {
        let mut raw = job.open(Role::Rank, id, "a", 0);
        assert_eq!(raw.count(), 1);
        let message = raw.next().message;
        assert!(
            matches!(message, Some((0, FromCoordinator::Ended { code: 5, .. }))),
            "{message:?}"
        );
    }
    let mut raw = job.open(Role::Rank, id, "a", 1);
    assert_eq!(raw.count(), 1);
    raw.say(1, 1, ToCoordinator::Finalized);
    assert_eq!(raw.count(), 2);
    let reason = job.open(Role::Rank, id, "a", 0).refused();
    assert!(reason.contains("session"), "it had more once: {reason}");
}

#[test]
fn who_comes_after_the_end_is_told_why_and_not_taken_in() {
    let job = job();
    let (_, mut first) = job.registered("a");
    job.coordinator.end(5, "over");
    let join = JoinRequest { cluster: name("b"), host: "h".into(), pid: 1 };
    for (role, message) in [
        (Role::Join, ToCoordinator::Join(join)),
        (Role::Rank, ToCoordinator::Register(sample("b", 1))),
    ] {
        let mut late = job.open(role, any(), "b", 0);
        assert_eq!(late.count(), 0);
        late.say(0, 0, message);
        assert_eq!(late.refused(), "the job has ended: over");
    }
    let message = first.next().message;
    assert!(matches!(message, Some((0, FromCoordinator::Ended { code: 5, .. }))), "{message:?}");
    assert!(job.events.try_iter().next().is_none(), "neither taken in nor complete");
    assert!(job.coordinator.progress()[1].to_join);
}
