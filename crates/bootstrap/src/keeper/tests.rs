//! Sessions that lead through a relay, which does with them what a test says.

use super::{Keeper, News, Patience, TIMES, Times};
use crate::handshake::Role;
use crate::lock;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::tests::sample;
use crate::model::{ClusterName, NetworkInfo};
use crate::race::Listening;
use crate::race::tests::asked;
use crate::reach::Caller;
use crate::relay::{RelayAccess, RelayToken};
use crate::roster::Expected;
use crate::secret::Secret;
use crate::server::{Coordinator, CoordinatorConfig};
use gridmpi_wire::LegVerdict;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nobody else listens there, so that a port of a relay's stays its own while it is away.
const RELAYS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
const NOWHERE: Duration = Duration::from_millis(300);
const SIGNS: Patience =
    Patience { answer: Duration::from_millis(400), rest: Duration::from_millis(100) };
const WATCHED: Times = Times { signs: SIGNS, ..TIMES };
const STEP: Duration = Duration::from_millis(2);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// What a relay does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Serves,
    /// It does not know the coordinator.
    Ignorant,
    /// Nobody listens.
    Away,
    /// It takes everything and does nothing.
    Hangs,
    /// As soon as it has carried what proves the coordinator.
    HangsBehind,
    /// As where the coordinator is stopped: what leads through it stands still, and it leads there no more.
    Stands,
    /// What leads through it goes on, and it leads there no more.
    Goes,
}

impl Mood {
    const fn keeps(self) -> bool {
        matches!(self, Self::Hangs | Self::Stands | Self::Goes)
    }
}

struct Relay {
    at: SocketAddr,
    inside: Arc<Inside>,
}

struct Inside {
    /// None: it leads to the coordinator without being asked.
    token: Option<RelayToken>,
    coordinator: SocketAddr,
    mood: Mutex<Mood>,
    /// How often it has said that it does not know the coordinator.
    denied: AtomicUsize,
    /// Both ends of each circuit.
    circuits: Mutex<Vec<[TcpStream; 2]>>,
}

impl Relay {
    fn new(token: Option<RelayToken>, coordinator: SocketAddr) -> Self {
        let (mood, circuits) = (Mutex::new(Mood::Serves), Mutex::default());
        let inside = Inside { token, coordinator, mood, denied: AtomicUsize::new(0), circuits };
        let inside = Arc::new(inside);
        let listener = TcpListener::bind((RELAYS, 0)).unwrap();
        let relay = Self { at: listener.local_addr().unwrap(), inside: Arc::clone(&inside) };
        std::thread::spawn(move || inside.run(listener));
        relay
    }

    /// Behaves so from now on. One that hangs or stands, and one that has, keeps what leads through it.
    fn turn(&self, mood: Mood) {
        let before = std::mem::replace(&mut *lock(&self.inside.mood), mood);
        if before.keeps() || mood.keeps() {
            return;
        }
        for stream in lock(&self.inside.circuits).drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Inside {
    fn mood(&self) -> Mood {
        *lock(&self.mood)
    }

    /// While it is in one of these moods.
    fn wait(&self, moods: &[Mood]) {
        while moods.contains(&self.mood()) {
            std::thread::sleep(STEP);
        }
    }

    fn run(self: Arc<Self>, mut listener: TcpListener) {
        let at = listener.local_addr().unwrap();
        loop {
            listener.set_nonblocking(true).unwrap();
            while self.mood() != Mood::Away {
                match listener.accept() {
                    Ok((near, _)) => {
                        let inside = Arc::clone(&self);
                        std::thread::spawn(move || inside.serve(near));
                    }
                    Err(_) => std::thread::sleep(STEP),
                }
            }
            drop(listener);
            while self.mood() == Mood::Away {
                std::thread::sleep(STEP);
            }
            listener = TcpListener::bind(at).unwrap();
        }
    }

    fn serve(&self, mut near: TcpStream) {
        self.wait(&[Mood::Hangs]);
        if let Some(token) = &self.token {
            let request = asked(&mut near, token);
            if matches!(self.mood(), Mood::Ignorant | Mood::Stands | Mood::Goes) {
                self.denied.fetch_add(1, Ordering::Relaxed);
                return near.write_all(&request.answer(LegVerdict::NoRoute)).unwrap();
            }
            near.write_all(&request.answer(LegVerdict::Accepted)).unwrap();
        }
        let mut far = TcpStream::connect(self.coordinator).unwrap();
        if self.mood() == Mood::HangsBehind {
            // Hello and Challenge.
            pass(&mut near, &mut far, 60);
            pass(&mut far, &mut near, 76);
            *lock(&self.mood) = Mood::Hangs;
        }
        let (near, far) = (&near, &far);
        lock(&self.circuits).push([near, far].map(|end| end.try_clone().unwrap()));
        std::thread::scope(|scope| {
            scope.spawn(|| self.carry(near, far));
            self.carry(far, near);
        });
    }

    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            self.wait(&[Mood::Hangs, Mood::Stands]);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.wait(&[Mood::Hangs, Mood::Stands]);
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Carries so many bytes.
fn pass(from: &mut TcpStream, to: &mut TcpStream, count: usize) {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).unwrap();
    to.write_all(&bytes).unwrap();
}

/// A job of one cluster, its coordinator, and an address where nobody listens.
struct Scene {
    secret: Secret,
    coordinator: Coordinator,
    token: RelayToken,
    closed: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let secret = Secret::random().unwrap();
        let name = ClusterName::new("a").unwrap();
        let config = CoordinatorConfig {
            secret: secret.clone(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clusters: vec![Expected { name, ranks: None, joins: false, interface: None }],
            network: NetworkInfo::default(),
            reachable: Vec::new(),
            relays: None,
            wait_s: 0,
        };
        let coordinator = Coordinator::start(config, |_| ()).unwrap();
        let closed = TcpListener::bind((RELAYS, 0)).unwrap().local_addr().unwrap();
        Self { secret, coordinator, token: RelayToken::random().unwrap(), closed }
    }

    fn relay(&self) -> Relay {
        Relay::new(Some(self.token.clone()), self.coordinator.address())
    }

    /// A session of the cluster's, by that address or one of those relays; the table has come.
    fn session(&self, direct: SocketAddr, relays: &[&Relay]) -> (Keeper, Receiver<News>) {
        self.session_with(TIMES, direct, relays)
    }

    fn session_with(
        &self,
        times: Times,
        direct: SocketAddr,
        relays: &[&Relay],
    ) -> (Keeper, Receiver<News>) {
        let names = relays.iter().map(|relay| relay.at.to_string()).collect();
        let caller = Caller {
            direct: vec![direct],
            relays: Some(RelayAccess { names, token: self.token.clone() }),
            role: Role::Rank,
            cluster: ClusterName::new("a").unwrap(),
            job: self.secret.job(),
            key: self.secret.key(),
            listening: Listening::Now,
        };
        let (sender, news) = channel();
        let first = ToCoordinator::Register(sample("a", 1));
        let tell = move |new| drop(sender.send(new));
        let times = Times { nowhere: NOWHERE, ..times };
        let keeper = Keeper::start_with(times, caller, first, soon(), tell).ok().unwrap();
        expect(&news, |new| matches!(new, News::Said(FromCoordinator::Table(_))));
        (keeper, news)
    }
}

fn text(new: &News) -> String {
    match new {
        News::Said(word) => format!("said: {word:?}"),
        News::Away(why) => format!("away: {why}"),
        News::Back => "back".to_owned(),
        News::Gone(why) => format!("gone: {why}"),
    }
}

/// The next news are so.
fn expect(news: &Receiver<News>, wanted: impl Fn(&News) -> bool) {
    let new = news.recv_timeout(Duration::from_secs(20)).expect("no news");
    assert!(wanted(&new), "{}", text(&new));
}

fn is_away(new: &News) -> bool {
    matches!(new, News::Away(_))
}

fn is_gone(new: &News) -> bool {
    matches!(new, News::Gone(_))
}

#[test]
fn who_came_through_a_relay_waits_until_it_knows_the_coordinator_again() {
    let scene = Scene::new();
    let relay = scene.relay();
    let (_keeper, news) = scene.session(scene.closed, &[&relay]);
    for mood in [Mood::Ignorant, Mood::Away] {
        relay.turn(mood);
        expect(&news, is_away);
        std::thread::sleep(2 * NOWHERE);
        assert!(news.try_recv().is_err(), "nothing has been decided");
        relay.turn(Mood::Serves);
        expect(&news, |new| matches!(new, News::Back));
    }
}

#[test]
fn a_relay_that_is_started_again_is_waited_for_at_the_start_too() {
    let scene = Scene::new();
    let relay = scene.relay();
    relay.turn(Mood::Away);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(NOWHERE);
            relay.turn(Mood::Serves);
        });
        scene.session(scene.closed, &[&relay]);
    });
}

#[test]
fn at_the_end_of_the_job_nobody_waits_for_relays() {
    let scene = Scene::new();
    let relay = scene.relay();
    let (_keeper, news) = scene.session(scene.closed, &[&relay]);
    scene.coordinator.end(3, "over");
    expect(&news, |new| matches!(new, News::Said(FromCoordinator::Ended { code: 3, .. })));
    relay.turn(Mood::Ignorant);
    let began = Instant::now();
    expect(&news, is_away);
    expect(&news, is_gone);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn an_address_that_led_to_the_coordinator_and_refuses_ends_the_session() {
    let scene = Scene::new();
    let relay = scene.relay();
    relay.turn(Mood::Ignorant);
    let (_keeper, news) = scene.session(scene.coordinator.address(), &[&relay]);
    drop(scene.coordinator);
    let began = Instant::now();
    expect(&news, is_away);
    expect(&news, is_gone);
    assert!((NOWHERE..Duration::from_secs(10)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
fn a_relay_that_hangs_before_the_first_answer_is_left_for_another() {
    let scene = Scene::new();
    let [one, other] = [scene.relay(), scene.relay()];
    one.turn(Mood::HangsBehind);
    other.turn(Mood::Away);
    let times = Times { answer: Duration::from_millis(300), ..TIMES };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while one.inside.mood() != Mood::Hangs {
                std::thread::sleep(STEP);
            }
            other.turn(Mood::Serves);
        });
        let (keeper, news) = scene.session_with(times, scene.closed, &[&one, &other]);
        assert!(keeper.say(ToCoordinator::Finalized, soon()) && news.try_recv().is_err());
    });
}

#[test]
fn a_relay_that_hangs_is_left_for_another() {
    let scene = Scene::new();
    let [one, other] = [scene.relay(), scene.relay()];
    other.turn(Mood::Away);
    let (keeper, news) = scene.session_with(WATCHED, scene.closed, &[&one, &other]);
    other.turn(Mood::Serves);
    // At rest, and with something to say.
    one.turn(Mood::Hangs);
    expect(&news, is_away);
    expect(&news, |new| matches!(new, News::Back));
    one.turn(Mood::Serves);
    other.turn(Mood::Hangs);
    assert!(keeper.say(ToCoordinator::Finalized, soon()));
}

#[test]
fn who_is_only_stopped_is_not_lost() {
    let scene = Scene::new();
    let relay = scene.relay();
    let (keeper, news) = scene.session_with(WATCHED, scene.closed, &[&relay]);
    relay.turn(Mood::Stands);
    // Each time that no sign has come another way is looked for, and none found.
    while relay.inside.denied.load(Ordering::Relaxed) < 3 {
        std::thread::sleep(STEP);
    }
    relay.turn(Mood::Goes);
    assert!(keeper.say(ToCoordinator::Finalized, soon()));
    assert!(news.try_recv().is_err(), "what stood is kept, and nothing told");
}

#[test]
fn who_is_reached_directly_may_be_silent() {
    let scene = Scene::new();
    let (way, relay) = (Relay::new(None, scene.coordinator.address()), scene.relay());
    relay.turn(Mood::Ignorant);
    let (_keeper, news) = scene.session_with(WATCHED, way.at, &[&relay]);
    relay.turn(Mood::Serves);
    way.turn(Mood::Hangs);
    std::thread::sleep(2 * (SIGNS.rest + SIGNS.answer));
    assert!(news.try_recv().is_err(), "another way leads to the same process");
}
