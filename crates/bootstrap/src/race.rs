//! A race of ways to somebody who holds a key: addresses at which he may listen, and relays that may lead to him.
//!
//! Attempts are started one after another, a quarter of a second apart (as RFC 8305 does), so that an address that swallows packets
//! costs little and a wrong one does not win over a right one. Each goes on by itself to the proof of the key, and the first that has
//! it wins: one that takes the connection and stays silent keeps nobody else back.

use crate::channel::Channel;
use crate::connect::{self, start};
use crate::handshake::{FAREWELL, Greeting, HandshakeError, Met, Role};
use crate::names::{self, Found};
use crate::relay::RelayAccess;
use crate::secret::{JobId, JobKey};
use gridmpi_leg::{Ask, AskStep, Asker, LegError};
use gridmpi_wire::{Errand, LegVerdict, ProcId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const STAGGER: Duration = Duration::from_millis(250);
/// Pause before what may help is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Time for the ways that are known while names of others are looked up, at first and at most. Then all are gone again, with those known by then.
const FIRST_ROUND: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_secs(5);

/// Who is looked for, and by whom.
pub(crate) struct Goal<'a> {
    /// Where he may listen.
    pub(crate) direct: &'a [SocketAddr],
    /// Relays at which he may be.
    pub(crate) relays: Option<&'a RelayAccess>,
    pub(crate) role: Role,
    pub(crate) job: JobId,
    pub(crate) key: &'a JobKey,
    pub(crate) listening: Listening,
}

/// Whether somebody listens who is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// Else he never will: an address that refuses connections is a wrong one.
    Now,
    /// He is about to: an address that refuses connections may do so for a moment only.
    Soon,
}

/// A connection at whose end the key was proven.
pub(crate) struct Won {
    pub(crate) channel: Channel,
    pub(crate) address: SocketAddr,
    pub(crate) is_relayed: bool,
}

/// Nobody proved the key.
pub(crate) struct Lost {
    ways: Vec<Way>,
    /// What is wrong with relays whose names are not known.
    pub(crate) unknown: Vec<String>,
    listening: Listening,
}

struct Way {
    address: SocketAddr,
    is_relay: bool,
    /// What came of the last attempt.
    fate: Option<Fate>,
}

/// Why a way did not lead there.
enum Fate {
    /// Nobody listens.
    Refused,
    /// A relay that does not know of him, or not yet.
    Unknown(LegError),
    /// A relay that has no place at present, or is about to be started again.
    TurnedAway(LegError),
    /// Somebody else is there.
    Other(HandshakeError),
    /// The connection broke off.
    Broken(String),
    Useless(String),
}

impl Fate {
    /// Whether it may help to try again a little later. A relay that nobody is in place of may be started again.
    const fn is_passing(&self, is_relay: bool, listening: Listening) -> bool {
        match self {
            Self::Unknown(_) | Self::TurnedAway(_) | Self::Broken(_) => true,
            Self::Refused => is_relay || matches!(listening, Listening::Soon),
            Self::Other(_) | Self::Useless(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Refused => "connection refused".to_owned(),
            Self::Unknown(error) | Self::TurnedAway(error) => error.to_string(),
            Self::Other(error @ HandshakeError::Version(_)) => {
                format!("{error}: install the same release of GridMPI at both ends")
            }
            Self::Other(error) => format!(
                "{error}: where this is the right address, the token (or GRIDMPI_JOB and GRIDMPI_KEY) is that of another job"
            ),
            Self::Broken(why) | Self::Useless(why) => why.clone(),
        }
    }
}

impl From<LegError> for Fate {
    fn from(error: LegError) -> Self {
        match error {
            LegError::Refused(LegVerdict::NoRoute | LegVerdict::Unanswered) => Self::Unknown(error),
            LegError::Refused(LegVerdict::Full | LegVerdict::Draining) => Self::TurnedAway(error),
            error => Self::Useless(error.to_string()),
        }
    }
}

impl From<HandshakeError> for Fate {
    fn from(error: HandshakeError) -> Self {
        match error {
            error @ (HandshakeError::Version(_)
            | HandshakeError::OtherJob
            | HandshakeError::WrongKey) => Self::Other(error),
            error => Self::Useless(error.to_string()),
        }
    }
}

impl Lost {
    /// Each address with what happened there.
    pub(crate) fn failures(&self) -> Vec<(SocketAddr, String)> {
        let tell = |way: &Way| {
            let text = way.fate.as_ref().map_or_else(String::new, Fate::text);
            (way.address, told(&text, way.is_relay))
        };
        self.ways.iter().map(tell).collect()
    }

    /// Who is in his place, where all ways led to somebody else. What one address says is no word on another: of a machine's many some
    /// are also those of others. The loopback address is everybody's own, and a relay that does not know him says nothing of who is there: these
    /// count only where there is nothing else.
    pub(crate) fn other(&self) -> Option<(SocketAddr, &HandshakeError)> {
        let says_something = |way: &&Way| {
            !way.address.ip().is_loopback() && !matches!(way.fate, Some(Fate::Unknown(_)))
        };
        let has_such = self.ways.iter().any(|way| says_something(&way));
        let mut counted = self.ways.iter().filter(|way| !has_such || says_something(way));
        let other = |way: &'_ Way| matches!(way.fate, Some(Fate::Other(_)));
        let is_all = self.unknown.is_empty() && counted.clone().all(other);
        match counted.next().filter(|_| is_all) {
            Some(Way { address, fate: Some(Fate::Other(error)), .. }) => Some((*address, error)),
            _ => None,
        }
    }

    /// He is nowhere at present: nobody listens at any of his addresses, nor does a relay know him.
    pub(crate) fn is_nowhere(&self) -> bool {
        let is_gone =
            |fate: &Fate| matches!(fate, Fate::Refused | Fate::Other(_) | Fate::Unknown(_));
        let has_address = self.ways.iter().any(|way| !way.is_relay);
        has_address && self.unknown.is_empty() && self.those(is_gone).len() == self.ways.len()
    }

    /// Where he certainly is not: nobody listens, or somebody else does.
    pub(crate) fn deserted(&self) -> Vec<SocketAddr> {
        self.those(|fate| matches!(fate, Fate::Refused | Fate::Other(_)))
    }

    /// Whether it may help to try again a little later.
    pub(crate) fn is_passing(&self) -> bool {
        let is_passing = |way: &Way, fate: &Fate| fate.is_passing(way.is_relay, self.listening);
        self.ways.iter().any(|way| way.fate.as_ref().is_some_and(|fate| is_passing(way, fate)))
    }

    fn those(&self, is_one: impl Fn(&Fate) -> bool) -> Vec<SocketAddr> {
        let is_one = |way: &&Way| way.fate.as_ref().is_some_and(&is_one);
        self.ways.iter().filter(is_one).map(|way| way.address).collect()
    }
}

/// What happened at an address, for the user.
pub(crate) fn told(what: &str, is_relay: bool) -> String {
    if is_relay { format!("as a relay: {what}") } else { what.to_owned() }
}

/// Goes all ways until one has led to him, none may any more, or the deadline has passed. A way that failed and may come good is gone
/// again while others are under way.
pub(crate) fn run(goal: &Goal<'_>, deadline: Instant) -> Result<Won, Lost> {
    let has_others = !goal.direct.is_empty();
    let mut round = FIRST_ROUND;
    loop {
        let look_up = |access: &RelayAccess| names::look_up(&access.names, has_others, deadline);
        let Found { known, unknown, is_pending } = goal.relays.map(look_up).unwrap_or_default();
        let until = if is_pending { deadline.min(Instant::now() + round) } else { deadline };
        round = (2 * round).min(ROUND);
        match Race::new(goal, &known, until).run() {
            Err(_) if is_pending && Instant::now() < deadline => {}
            outcome => return outcome.map_err(|lost| Lost { unknown, ..lost }),
        }
    }
}

struct Race<'a> {
    goal: &'a Goal<'a>,
    deadline: Instant,
    ways: Vec<Way>,
    /// Ways not tried yet, by their positions; when the next one is.
    waiting: VecDeque<usize>,
    next: Instant,
    /// Ways to be tried again, and when.
    again: Vec<(Instant, usize)>,
    running: Vec<Attempt>,
}

struct Attempt {
    /// Position of the way.
    way: usize,
    socket: Socket,
    stage: Stage,
}

enum Stage {
    Connecting,
    /// A relay for a circuit.
    Asking(Box<Ask>),
    Meeting(Box<Greeting>),
}

impl Stage {
    const fn awaits(&self) -> PollFlags {
        match self {
            Self::Connecting => PollFlags::OUT,
            Self::Asking(_) | Self::Meeting(_) => PollFlags::IN,
        }
    }
}

/// The keys of a connection's two directions.
type Keys = (JobKey, JobKey);

impl<'a> Race<'a> {
    /// By the relays that listen `through` there, and directly.
    fn new(goal: &'a Goal<'a>, through: &[SocketAddr], deadline: Instant) -> Self {
        let way = |address: SocketAddr, is_relay| Way { address, is_relay, fate: None };
        let direct = goal.direct.iter().filter(|address| !through.contains(address));
        let ways: Vec<Way> = direct
            .map(|address| way(*address, false))
            .chain(through.iter().map(|address| way(*address, true)))
            .collect();
        Self {
            goal,
            deadline,
            waiting: (0..ways.len()).collect(),
            ways,
            next: Instant::now(),
            again: Vec::new(),
            running: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Won, Lost> {
        loop {
            let now = Instant::now();
            if now < self.deadline {
                self.start_due(now);
            }
            let is_over = self.running.is_empty() && self.waiting.is_empty();
            if is_over || now >= self.deadline {
                return Err(self.give_up());
            }
            for attempt in self.ready(now) {
                if let Some(won) = self.advance(attempt) {
                    return Ok(won);
                }
            }
        }
    }

    fn start_due(&mut self, now: Instant) {
        while self.next <= now
            && let Some(way) = self.waiting.pop_front()
        {
            self.next = now + STAGGER;
            self.start(way, now);
        }
        let (due, later): (Vec<_>, _) = self.again.drain(..).partition(|(at, _)| *at <= now);
        self.again = later;
        due.into_iter().for_each(|(_, way)| self.start(way, now));
    }

    fn start(&mut self, way: usize, now: Instant) {
        let Some(address) = self.ways.get(way).map(|way| way.address) else { return };
        match start(address) {
            Ok(socket) => self.running.push(Attempt { way, socket, stage: Stage::Connecting }),
            Err(error) => self.end(way, unconnected(&error), now),
        }
    }

    fn end(&mut self, way: usize, fate: Fate, now: Instant) {
        self.next = now;
        let Some(failed) = self.ways.get_mut(way) else { return };
        if fate.is_passing(failed.is_relay, self.goal.listening) {
            self.again.push((now + PAUSE, way));
        }
        failed.fate = Some(fate);
    }

    /// Takes the attempts out that can go on, or waits for some.
    fn ready(&mut self, now: Instant) -> Vec<Attempt> {
        let next = (!self.waiting.is_empty()).then_some(self.next);
        let again = self.again.iter().map(|(at, _)| *at);
        let until = again.chain(next).chain([self.deadline]).min().unwrap_or(self.deadline);
        let left = until.saturating_duration_since(now);
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds: Vec<_> = self
            .running
            .iter()
            .map(|attempt| PollFd::new(&attempt.socket, attempt.stage.awaits()))
            .collect();
        // An interrupted wait counts as one in which nothing happened: the caller looks at the clock.
        let _ = poll(&mut fds, Some(&timeout));
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let all = std::mem::take(&mut self.running).into_iter().zip(is_ready);
        let (ready, rest): (Vec<_>, Vec<_>) = all.partition(|(_, is_ready)| *is_ready);
        self.running = rest.into_iter().map(|(attempt, _)| attempt).collect();
        ready.into_iter().map(|(attempt, _)| attempt).collect()
    }

    fn advance(&mut self, mut attempt: Attempt) -> Option<Won> {
        match self.step(&mut attempt) {
            Ok(None) => self.running.push(attempt),
            Ok(Some(keys)) => {
                let way = attempt.way;
                match self.won(attempt, keys) {
                    Ok(won) => return won,
                    Err(error) => self.end(way, broken(&error), Instant::now()),
                }
            }
            Err(fate) => self.end(attempt.way, fate, Instant::now()),
        }
        None
    }

    fn won(&self, attempt: Attempt, (out, inward): Keys) -> io::Result<Option<Won>> {
        attempt.socket.set_nonblocking(false)?;
        let won = |way: &Way| Won {
            channel: Channel::new(attempt.socket.into(), out, inward),
            address: way.address,
            is_relayed: way.is_relay,
        };
        Ok(self.ways.get(attempt.way).map(won))
    }

    /// Goes on as far as what has come allows. The keys, once they are proven.
    fn step(&self, attempt: &mut Attempt) -> Result<Option<Keys>, Fate> {
        let Attempt { way, socket, stage } = attempt;
        match stage {
            Stage::Connecting => {
                connect::finish(socket).map_err(|error| unconnected(&error))?;
                let is_relay = self.ways.get(*way).is_some_and(|way| way.is_relay);
                *stage = match self.asker().filter(|_| is_relay) {
                    Some(asker) => ask(socket, &asker)?,
                    None => self.greet(socket)?,
                };
            }
            Stage::Asking(ask) => {
                let Some(asker) = self.asker() else { return Ok(None) };
                let Some(count) = read(socket, ask.space())? else { return Ok(None) };
                match ask.read(count, &asker)? {
                    AskStep::More => {}
                    AskStep::Send(request) => write(socket, &request)?,
                    AskStep::Done => *stage = self.greet(socket)?,
                }
            }
            Stage::Meeting(greeting) => {
                let Some(count) = read(socket, greeting.space())? else { return Ok(None) };
                match greeting.read(count, self.goal.key) {
                    Ok(Met::More) => {}
                    Ok(Met::Proven { proof, out, inward }) => {
                        write(socket, &proof)?;
                        return Ok(Some((out, inward)));
                    }
                    Err(error) => {
                        if matches!(error, HandshakeError::WrongKey) {
                            let _ = write(socket, &FAREWELL);
                        }
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(None)
    }

    fn asker(&self) -> Option<Asker> {
        self.goal.relays.map(|access| access.asker(ProcId::NEWCOMER, self.goal.job))
    }

    /// The other end is to be who is looked for.
    fn greet(&self, socket: &Socket) -> Result<Stage, Fate> {
        let greeting = Greeting::new(self.goal.role, self.goal.job).map_err(HandshakeError::Io)?;
        write(socket, greeting.hello())?;
        Ok(Stage::Meeting(Box::new(greeting)))
    }

    fn give_up(mut self) -> Lost {
        for Attempt { way, stage, .. } in self.running.drain(..) {
            let why = match stage {
                Stage::Connecting => "no answer",
                _ => "it takes the connection and says nothing",
            };
            if let Some(way) = self.ways.get_mut(way) {
                way.fate.get_or_insert_with(|| Fate::Useless(why.to_owned()));
            }
        }
        for way in &mut self.ways {
            way.fate.get_or_insert_with(|| Fate::Useless("there was no time to try it".to_owned()));
        }
        Lost { ways: self.ways, unknown: Vec::new(), listening: self.goal.listening }
    }
}

/// Asks a relay for a circuit to the coordinator, or to whoever is in its place.
fn ask(socket: &Socket, asker: &Asker) -> Result<Stage, Fate> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Fate::Useless("no random source".to_owned()))?;
    let (ask, hello) = Ask::new(asker, Errand::Open { to: ProcId::COORDINATOR }, nonce);
    write(socket, &hello)?;
    Ok(Stage::Asking(Box::new(ask)))
}

fn unconnected(error: &io::Error) -> Fate {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Fate::Refused,
        _ => Fate::Useless(connect::describe(error)),
    }
}

fn broken(error: &io::Error) -> Fate {
    Fate::Broken(error.to_string())
}

/// What has come; `None` if that is nothing yet.
fn read(mut socket: &Socket, into: &mut [u8]) -> Result<Option<usize>, Fate> {
    match socket.read(into) {
        Ok(0) => Err(Fate::Broken("it closed the connection".to_owned())),
        Ok(count) => Ok(Some(count)),
        Err(error) if is_again(&error) => Ok(None),
        Err(error) => Err(broken(&error)),
    }
}

/// Messages are so short that a connection's buffers have room for all that a handshake sends.
fn write(mut socket: &Socket, bytes: &[u8]) -> Result<(), Fate> {
    match socket.write(bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Fate::Broken("it takes nothing".to_owned())),
        Err(error) => Err(broken(&error)),
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::handshake;
    use crate::relay::RelayToken;
    use crate::secret::Secret;
    use gridmpi_leg::{Host, HostStep, Request};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::thread::JoinHandle;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Where nobody listens: no system gives this port away, so that no listener of another test has it meanwhile.
    pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn local() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    /// By these addresses, and through relays.
    fn race(
        secret: &Secret,
        direct: &[SocketAddr],
        relays: Option<&RelayAccess>,
        deadline: Instant,
    ) -> Result<Won, Lost> {
        let goal = Goal {
            direct,
            relays,
            role: Role::Probe,
            job: secret.job(),
            key: &secret.key(),
            listening: Listening::Now,
        };
        run(&goal, deadline)
    }

    fn go(secret: &Secret, direct: &[SocketAddr], deadline: Instant) -> Result<Won, Lost> {
        race(secret, direct, None, deadline)
    }

    fn go_through(secret: &Secret, access: &RelayAccess) -> Result<Won, Lost> {
        race(secret, &[], Some(access), soon())
    }

    /// Answers once.
    fn answering(secret: &Secret) -> (SocketAddr, JoinHandle<bool>) {
        let ((listener, at), secret) = (local(), secret.clone());
        let answer = move || {
            let stream = listener.accept().unwrap().0;
            handshake::accept(stream, secret.job(), &secret.key(), soon()).is_ok()
        };
        (at, std::thread::spawn(answer))
    }

    /// A relay's side of a leg, up to what it is asked.
    pub(crate) fn asked(near: &mut TcpStream, token: &RelayToken) -> Box<Request> {
        let key = gridmpi_wire::JobKey::new(token.bytes());
        let mut host = Host::new([7; 32]);
        loop {
            let count = near.read(host.space()).unwrap();
            match host.read(count, |_| Some(key.clone())).unwrap() {
                HostStep::More => {}
                HostStep::Send(challenge) => near.write_all(&challenge).unwrap(),
                HostStep::Asked(request) => return request,
                HostStep::Refuse(_, verdict) => panic!("{verdict}"),
            }
        }
    }

    /// A relay that answers what it is asked by one verdict each time; accepted circuits lead to `to`.
    fn relay(token: &RelayToken, verdicts: Vec<LegVerdict>, to: SocketAddr) -> SocketAddr {
        let ((listener, at), token) = (local(), token.clone());
        std::thread::spawn(move || {
            for verdict in verdicts {
                let mut near = listener.accept().unwrap().0;
                let answer = asked(&mut near, &token).answer(verdict);
                near.write_all(&answer).unwrap();
                if verdict == LegVerdict::Accepted {
                    let far = TcpStream::connect(to).unwrap();
                    for (from, to) in [(&near, &far), (&far, &near)] {
                        let (mut from, mut to) =
                            (from.try_clone().unwrap(), to.try_clone().unwrap());
                        std::thread::spawn(move || io::copy(&mut from, &mut to));
                    }
                }
            }
        });
        at
    }

    #[test]
    fn a_refused_address_does_not_hide_a_good_one() {
        let secret = Secret::random().unwrap();
        let (good, answer) = answering(&secret);
        let won = go(&secret, &[NOBODY, good], soon()).ok().unwrap();
        assert!(won.address == good && !won.is_relayed && answer.join().unwrap());
        let lost = go(&secret, &[NOBODY], soon()).err().unwrap();
        assert_eq!(lost.failures(), [(NOBODY, "connection refused".to_owned())]);
        assert!(lost.deserted() == [NOBODY] && !lost.is_passing());
    }

    #[test]
    fn no_address_and_a_past_deadline_end_at_once() {
        let secret = Secret::random().unwrap();
        assert!(go(&secret, &[], soon()).err().unwrap().failures().is_empty());
        let (_listener, at) = local();
        let lost = go(&secret, &[at], Instant::now()).err().unwrap();
        assert_eq!(lost.failures().len(), 1);
    }

    #[test]
    fn who_takes_connections_and_stays_silent_keeps_nobody_back() {
        let secret = Secret::random().unwrap();
        let silent: Vec<_> = (0..3).map(|_| local()).collect();
        let (good, answer) = answering(&secret);
        let mut all: Vec<SocketAddr> = silent.iter().map(|(_, at)| *at).collect();
        all.push(good);
        let began = Instant::now();
        let won = go(&secret, &all, soon()).ok().unwrap();
        assert!(won.address == good && answer.join().unwrap());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let lost = go(&secret, &all[..1], Instant::now() + Duration::from_millis(300)).err();
        assert!(lost.unwrap().failures()[0].1.contains("says nothing"));
    }

    #[test]
    fn a_silent_relay_keeps_no_other_back_which_is_asked_until_it_knows() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let (good, answer) = answering(&secret);
        let verdicts = vec![LegVerdict::NoRoute, LegVerdict::NoRoute, LegVerdict::Accepted];
        let (silent, knowing) = (local(), relay(&token, verdicts, good));
        let names = vec![silent.1.to_string(), knowing.to_string()];
        let access = RelayAccess { names, token };
        let began = Instant::now();
        let won = go_through(&secret, &access).ok().unwrap();
        assert!(won.address == knowing && won.is_relayed && answer.join().unwrap());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[test]
    fn a_relay_that_turns_us_away_may_let_us_in_yet() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let (good, answer) = answering(&secret);
        let verdicts = vec![LegVerdict::Full, LegVerdict::Draining, LegVerdict::Accepted];
        let (silent, full) = (local(), relay(&token, verdicts, good));
        let access = RelayAccess { names: vec![full.to_string()], token };
        let won = race(&secret, &[silent.1], Some(&access), soon()).ok().unwrap();
        assert!(won.address == full && answer.join().unwrap());
        for verdict in [LegVerdict::Full, LegVerdict::Draining] {
            let at = relay(&access.token, vec![verdict], good);
            let access = RelayAccess { names: vec![at.to_string()], token: access.token.clone() };
            let lost = race(&secret, &[NOBODY], Some(&access), soon()).err().unwrap();
            assert!(lost.is_passing() && !lost.is_nowhere(), "it may know him");
        }
    }

    #[test]
    fn a_relay_where_nobody_listens_may_come_again() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let access = RelayAccess { names: vec![NOBODY.to_string()], token };
        let lost = go_through(&secret, &access).err().unwrap();
        assert!(lost.is_passing() && lost.deserted() == [NOBODY]);
    }

    #[test]
    fn a_relay_that_does_not_know_him_may_yet() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let at = relay(&token, vec![LegVerdict::NoRoute], NOBODY);
        let access = RelayAccess { names: vec![at.to_string()], token };
        let lost = go_through(&secret, &access).err().unwrap();
        assert!(lost.is_passing() && lost.deserted().is_empty());
        assert!(lost.failures()[0].1.starts_with("as a relay: "));
    }

    #[test]
    fn a_name_that_is_not_known_keeps_no_other_way_back_and_is_told() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let (good, answer) = answering(&secret);
        let at = relay(&token, vec![LegVerdict::Accepted], good);
        let names = vec!["no.such.host.invalid:1".to_owned(), at.to_string()];
        let access = RelayAccess { names, token };
        let won = go_through(&secret, &access).ok().unwrap();
        assert!(won.address == at && answer.join().unwrap());
        let (good, answer) = answering(&secret);
        assert!(race(&secret, &[good], Some(&access), soon()).is_ok() && answer.join().unwrap());
        let lost = race(&secret, &[NOBODY], Some(&access), soon()).err().unwrap();
        assert!(lost.unknown[0].contains("no.such.host.invalid") && !lost.is_nowhere());
    }

    #[test]
    fn he_is_nowhere_where_no_address_and_no_relay_leads_to_him() {
        let secret = Secret::random().unwrap();
        let token = RelayToken::random().unwrap();
        let at = relay(&token, vec![LegVerdict::NoRoute], NOBODY);
        let access = RelayAccess { names: vec![at.to_string()], token };
        assert!(race(&secret, &[NOBODY], Some(&access), soon()).err().unwrap().is_nowhere());
        let ((_silent, silent), at) = (local(), Instant::now() + Duration::from_millis(100));
        assert!(!go(&secret, &[NOBODY, silent], at).err().unwrap().is_nowhere());
    }

    #[test]
    fn somebody_else_is_told_from_a_break() {
        let (ours, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let (at, answer) = answering(&other);
        let lost = go(&ours, &[at], soon()).err().unwrap();
        assert!(matches!(lost.other(), Some((of, HandshakeError::OtherJob)) if of == at));
        assert!(lost.deserted() == [at] && !lost.is_passing() && !answer.join().unwrap());
        let (listener, at) = local();
        let close = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let lost = go(&ours, &[at], soon()).err().unwrap();
        assert!(lost.is_passing() && lost.other().is_none() && lost.deserted().is_empty());
        close.join().unwrap();
    }

    #[test]
    fn somebody_else_at_one_address_hides_nothing_of_the_others() {
        let (ours, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let (at, answer) = answering(&other);
        let lost = go(&ours, &[NOBODY, at], soon()).err().unwrap();
        assert!(lost.other().is_none() && !answer.join().unwrap());
        let told = lost.failures();
        assert_eq!(told[0], (NOBODY, "connection refused".to_owned()));
        assert!(told[1].0 == at && told[1].1.starts_with("belongs to another job: "), "{told:?}");
    }

    #[test]
    fn what_everybody_has_for_himself_hides_nobody_who_is_there() {
        let way = |address: &str, fate| Way {
            address: address.parse().unwrap(),
            is_relay: false,
            fate: Some(fate),
        };
        let lost = |ways| Lost { ways, unknown: Vec::new(), listening: Listening::Now };
        let somebody = || Fate::Other(HandshakeError::OtherJob);
        let foreign = |lost: &Lost| lost.other().map(|(address, _)| address.to_string());
        let public = "192.0.2.1:7000";
        let told = lost(vec![way(public, somebody()), way("127.0.0.1:7000", Fate::Refused)]);
        assert_eq!(foreign(&told).as_deref(), Some(public));
        let silent = || Fate::Useless("no answer".to_owned());
        let told = lost(vec![way(public, silent()), way("127.0.0.1:7000", somebody())]);
        assert_eq!(foreign(&told), None);
        let told = lost(vec![way("127.0.0.1:7000", somebody()), way("[::1]:7000", Fate::Refused)]);
        assert_eq!(foreign(&told), None);
    }
}
