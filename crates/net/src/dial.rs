//! Making connections: addresses in turn, in bounded time.
//!
//! A peer that there is no connection with is dialled on all its ways, until one leads there or it is given up. Where one stands and
//! much waits, others are made beside it, each on a way of its own; one that cannot be made is no failure.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_leg as leg;
use gridmpi_sock::look_after;
use gridmpi_wire::{Errand, Nonce, ProcId, Strand};
use rustix::net::{RecvFlags, SendFlags, recv};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};

use crate::attempt::{Attempt, Stage};
use crate::carrier::Carrier;
use crate::crossing::Deference;
use crate::failure::Target;
use crate::handshake::{Ask, AskStep, Claim};
use crate::link::received;
use crate::links::Met;
use crate::options::shorten_timeouts;
use crate::poller::{Interest, Token};
use crate::relays::read_ask;
use crate::state::{Socket, State};
use crate::timers::Due;
use crate::{DialError, Failure, Limits, LinkError, Way};

/// Pause after all addresses have failed; doubled each time, up to [`PAUSE_MOST`].
const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// How long an address is tried in the first round; doubled each round. An address that is no way to
/// the peer, such as that of another network, must not hold up the one that is.
const FIRST_ROUND: Duration = Duration::from_secs(1);

/// After a lost connection the lower process dials at once and the higher after this, so that the
/// two seldom cross. Not where relays are between: the lower one may know of it half a round trip later only.
const YIELD: Duration = Duration::from_millis(250);

/// The state of dialling one peer for one connection.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) strand: Strand,
    /// Another connection stands or stood: the peer is not given up if this one cannot be made.
    is_extra: bool,
    started: Instant,
    /// How long all ways are tried.
    total: Duration,
    /// Each way and how its last attempt ended.
    tried: Vec<(Target, Option<DialError>)>,
    /// Index of the way tried now or next.
    index: usize,
    pub(crate) attempt: Option<Token>,
    /// When the attempt, or the pause, ends.
    due: Instant,
    pause: Duration,
    /// How long each address of this round may take to connect.
    patience: Duration,
    /// Since when every way has refused.
    refused: Option<Instant>,
    /// Since when every way looks as if the peer had ended.
    gone: Option<Instant>,
}

impl State {
    /// Begins to make a connection to `id`, unless there is or soon will be one.
    pub(crate) fn dial(&mut self, id: ProcId) {
        self.dial_first(id, Duration::ZERO);
    }

    /// Begins to make a lost connection again, if no other is left. `is_silent`: nothing may have told the peer.
    pub(crate) fn redial(&mut self, id: ProcId, is_silent: bool) {
        let is_first = is_silent || self.us.me < id || self.is_relayed(id);
        self.dial_first(id, if is_first { Duration::ZERO } else { YIELD });
    }

    fn dial_first(&mut self, id: ProcId, wait: Duration) {
        let now = Instant::now();
        let peer = self.peer(id);
        if peer.has_link() || peer.dials.iter().any(|dial| !dial.is_extra) {
            return;
        }
        if peer.dial(Strand::FIRST).is_none() {
            let rest = peer.losses.map_or(Duration::ZERO, |losses| losses.rest(now));
            self.dial_strand(id, Strand::FIRST, wait + rest);
            return;
        }
        // What it was tried for in addition is all that there is now, and any way will do.
        let all = self.targets(id, Strand::FIRST, false);
        let total = self.total(id);
        let Some(dial) = self.peer(id).dial(Strand::FIRST) else { return };
        dial.is_now_the_only(total, now);
        dial.try_also(all);
        self.watch_absence(id, Strand::FIRST);
    }

    /// How long a connection with the peer is tried to be made, where there is none.
    fn total(&mut self, id: ProcId) -> Duration {
        let was_connected = self.peer(id).ended.is_some();
        if was_connected { self.limits().reconnect } else { self.limits().dial_total }
    }

    /// There is another way to `id`: who is dialled on all ways is on this one, too, and connections beside others may be made.
    pub(crate) fn dial_also(&mut self, id: ProcId, way: &Way) {
        let targets = self.targets_of(way);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.alone_until = None;
        let on_all = peer.dials.iter_mut().filter(|dial| !dial.is_extra);
        on_all.for_each(|dial| dial.try_also(targets.clone()));
    }

    /// Begins to make connections to those who cannot connect to us.
    pub(crate) fn call(&mut self) {
        let all = self.config.peers.iter().zip(0..);
        let is_called = |ways: &[Way]| ways.iter().any(|way| matches!(way, Way::Called(_)));
        let called: Vec<_> =
            all.filter(|(ways, _)| is_called(ways)).map(|(_, id)| ProcId(id)).collect();
        called.into_iter().for_each(|id| self.dial(id));
    }

    /// Whether this one connects to us, and we cannot connect to it.
    pub(crate) fn is_awaited(&self, id: ProcId) -> bool {
        let ways = self.config.peers.get(id.0 as usize);
        ways.is_some_and(|ways| ways.contains(&Way::Awaited))
    }

    /// Begins to make those connections to `id` that are missing, each on a way of its own.
    pub(crate) fn dial_extra(&mut self, id: ProcId) {
        let now = Instant::now();
        let peer = self.peer(id);
        if !peer.has_link() || peer.alone_until.is_some_and(|until| now < until) {
            return;
        }
        if self.is_awaited(id) {
            return;
        }
        for strand in Strand::first(self.most_connections(id)) {
            self.dial_strand(id, strand, Duration::ZERO);
        }
    }

    fn dial_strand(&mut self, id: ProcId, strand: Strand, wait: Duration) {
        let (now, is_closing) = (Instant::now(), self.is_closing);
        let peer = self.peer(id);
        let is_extra = peer.has_link();
        if is_closing || peer.is_lost || peer.link(strand).is_some() || peer.dial(strand).is_some()
        {
            return;
        }
        let mut targets = self.targets(id, strand, is_extra);
        // One of several relays that has just failed is the last that will do.
        if let Some(lost) = self.peer(id).lost_way {
            targets.sort_by_key(|target| *target == Target::Relay(lost));
        }
        let total = self.total(id);
        // For one that is awaited there is nothing to do but to give it up then.
        let wait = if self.is_awaited(id) { total } else { wait };
        let due = now + wait;
        self.dialling += 1;
        self.peer(id).dials.push(Dial {
            strand,
            is_extra,
            started: if targets.is_empty() { now } else { due },
            total,
            tried: targets.into_iter().map(|target| (target, None)).collect(),
            index: 0,
            attempt: None,
            due,
            pause: PAUSE_LEAST,
            patience: FIRST_ROUND,
            refused: None,
            gone: None,
        });
        self.watch_absence(id, strand);
        if wait.is_zero() {
            self.attempt_next(id, strand);
        } else {
            self.timers.set(due, Due::Dial(id, strand));
        }
    }

    /// Where to try: on all ways, or on that of the connection's number.
    fn targets(&self, id: ProcId, strand: Strand, is_extra: bool) -> Vec<Target> {
        let ways = self.config.peers.get(id.0 as usize).map_or(&[][..], Vec::as_slice);
        let of = |ways: &[Way]| ways.iter().flat_map(|way| self.targets_of(way)).collect();
        match ways.len() {
            0 | 1 => of(ways),
            _ if !is_extra => of(ways),
            count => of(&ways[strand.index() % count..][..1]),
        }
    }

    fn targets_of(&self, way: &Way) -> Vec<Target> {
        match way {
            Way::Direct(addresses) | Way::Called(addresses) => {
                addresses.iter().copied().map(Target::Direct).collect()
            }
            Way::Awaited => Vec::new(),
            Way::Relay(relay) => {
                let relays =
                    self.config.relays.iter().flat_map(|relays| relays.addresses.get(*relay));
                relays.copied().map(Target::Relay).collect()
            }
        }
    }

    /// This connection is there; others that were not to be failures are none now.
    pub(crate) fn end_dial(&mut self, id: ProcId, strand: Strand) {
        let peer = self.peer(id);
        peer.dials.iter_mut().for_each(|dial| dial.is_extra = true);
        self.drop_dial(id, strand);
    }

    fn drop_dial(&mut self, id: ProcId, strand: Strand) -> Option<Dial> {
        let peer = self.peer(id);
        let at = peer.dials.iter().position(|dial| dial.strand == strand)?;
        let dial = peer.dials.swap_remove(at);
        self.dialling -= 1;
        if let Some(token) = dial.attempt {
            self.sockets.release(token);
        }
        Some(dial)
    }

    /// Tries the address whose turn it is, and those after it while they fail at once.
    fn attempt_next(&mut self, id: ProcId, strand: Strand) {
        loop {
            let limits = self.config.limits.clone();
            let has_closed = self.endpoint.peer_closed(id);
            let peer = self.peer(id);
            let was_connected = peer.ended.is_some();
            let Some(dial) = peer.dial(strand) else { return };
            let now = Instant::now();
            if dial.is_over(now, &limits, has_closed, was_connected) {
                self.dial_failed(id, strand);
                return;
            }
            self.note_absence(id, strand);
            let Some(dial) = self.peer(id).dial(strand) else { return };
            let Some(&(target, _)) = dial.tried.get(dial.index) else {
                self.pause(id, strand, now);
                return;
            };
            match self.attempt((id, strand), target) {
                Ok(token) => {
                    let Some(dial) = self.peer(id).dial(strand) else { return };
                    dial.attempt = Some(token);
                    dial.set_due(now, dial.patience, &limits);
                    let due = dial.due;
                    self.timers.set(due, Due::Dial(id, strand));
                    return;
                }
                Err(error) => {
                    let Some(dial) = self.peer(id).dial(strand) else { return };
                    dial.failed(DialError::Connect(error));
                }
            }
        }
    }

    /// All addresses have failed: waits a little and begins anew.
    fn pause(&mut self, id: ProcId, strand: Strand, now: Instant) {
        let Some(dial) = self.peer(id).dial(strand) else { return };
        dial.index = 0;
        dial.due = now + dial.pause;
        dial.pause = (dial.pause * 2).min(PAUSE_MOST);
        dial.patience = dial.patience.saturating_mul(2);
        let due = dial.due;
        self.timers.set(due, Due::Dial(id, strand));
    }

    fn attempt(
        &mut self,
        (peer, strand): (ProcId, Strand),
        target: Target,
    ) -> std::io::Result<Token> {
        let fd = begin_connect(target.address(), self.limits())?;
        let token = self.sockets.reserve();
        if let Err(error) = self.poller.add(&fd, token, Interest::ReadWrite) {
            self.sockets.release(token);
            return Err(error);
        }
        let carrier = Carrier::bare(fd);
        let attempt = Attempt {
            carrier,
            peer,
            strand,
            target,
            stage: Stage::Connecting,
            asked: Instant::now(),
            proven: None,
            deference: Deference::Possible,
        };
        self.sockets.put(token, Socket::Attempt(Box::new(attempt)));
        Ok(token)
    }

    /// A timer of this peer's dialling has run out; perhaps an old one.
    pub(crate) fn dial_due(&mut self, id: ProcId, strand: Strand) {
        let now = Instant::now();
        let Some(dial) = self.peers.get_mut(&id).and_then(|peer| peer.dial(strand)) else {
            return;
        };
        if now < dial.due {
            self.note_absence(id, strand);
            return;
        }
        if let Some(token) = dial.attempt.take() {
            let is_peer_due = match self.sockets.release(token) {
                Some(Socket::Attempt(attempt)) => attempt.awaits_peer(),
                _ => false,
            };
            let error = if is_peer_due { DialError::Unanswered } else { DialError::TimedOut };
            dial.failed(error);
        }
        self.attempt_next(id, strand);
    }

    pub(crate) fn attempt_ready(&mut self, token: Token, mut attempt: Box<Attempt>) {
        let (id, strand) = (attempt.peer, attempt.strand);
        match self.attempt_step(token, &mut attempt) {
            Ok(None) => self.sockets.put(token, Socket::Attempt(attempt)),
            Ok(Some(resume)) => self.attempt_succeeded(token, *attempt, resume),
            Err(error) => {
                self.sockets.release(token);
                self.note_failed(Some(id), Some(attempt.target.address()), &error);
                drop(attempt);
                if let Some(dial) = self.peer(id).dial(strand) {
                    dial.attempt = None;
                    dial.failed(error);
                    self.attempt_next(id, strand);
                }
            }
        }
    }

    fn attempt_succeeded(&mut self, token: Token, attempt: Attempt, resume: u64) {
        let Attempt { carrier, peer, strand, target, proven, .. } = attempt;
        let address = target.address();
        // The same descriptor gets another token; the old one must not be met again.
        let _ = self.poller.remove(&carrier.fd);
        self.sockets.release(token);
        if let Some(dial) = self.peer(peer).dial(strand) {
            dial.attempt = None;
        }
        // One that stood under this number was not what the other side has chosen.
        self.drop_link(peer, strand);
        match self.endpoint.connected(peer, strand, resume) {
            Ok(()) => {
                let answer = proven.map(|proven| proven.elapsed());
                self.establish((peer, strand), carrier, Met { address: Some(address), answer });
            }
            Err(error) => self.cannot_resume(peer, Some(address), error),
        }
    }

    /// Goes on with an attempt: connects, says hello, reads on. `Some` when the connection stands.
    fn attempt_step(
        &mut self,
        token: Token,
        attempt: &mut Attempt,
    ) -> Result<Option<u64>, DialError> {
        if !attempt.is_connected() {
            if !is_connected(&attempt.carrier.fd).map_err(DialError::Connect)? {
                return Ok(None);
            }
            self.poller
                .modify(&attempt.carrier.fd, token, Interest::Read)
                .map_err(DialError::Io)?;
            attempt.stage = self.greet(attempt)?;
            self.attempt_connected(attempt.peer, attempt.strand);
        }
        let claim = self.claim_of(attempt.peer, attempt.strand);
        loop {
            if attempt.awaits_challenge() && self.defers(token, attempt)? {
                return Ok(None);
            }
            match &mut attempt.stage {
                Stage::Connecting => return Ok(None),
                Stage::Leg(_) | Stage::Opening(..) => {
                    if !self.leg_of_attempt(attempt)? {
                        return Ok(None);
                    }
                }
                Stage::Handshake(ask) => {
                    let read = if ask.has_proven() {
                        attempt.carrier.read(ask.space())
                    } else {
                        // In clear; not a byte beyond the challenge.
                        let read = recv(&attempt.carrier.fd, ask.space(), RecvFlags::empty());
                        read.map(|read| read.0).map_err(Into::into)
                    };
                    let Some(count) = received(read)? else { return Ok(None) };
                    match ask.read(count, &self.us, claim)? {
                        AskStep::More => {}
                        AskStep::Send(proof) => {
                            attempt.proven = Some(Instant::now());
                            // So is what TLS says before it, when the challenge has been read.
                            let (fd, peer) = (&attempt.carrier.fd, attempt.peer);
                            attempt.carrier.packets =
                                self.packets_of_handshake(fd, peer, self.dialling);
                            attempt.carrier.write_all(&proof).map_err(DialError::Io)?;
                        }
                        AskStep::Welcomed(resume) => return Ok(Some(resume)),
                    }
                }
            }
        }
    }

    /// The connection is made: the first words on it.
    fn greet(&self, attempt: &mut Attempt) -> Result<Stage, DialError> {
        match attempt.target {
            Target::Direct(_) => Ok(Stage::Handshake(self.say_hello(attempt)?)),
            Target::Relay(_) => {
                let asker = self.asker().ok_or(DialError::Closed)?;
                let errand = Errand::Open { to: attempt.peer };
                let (ask, hello) = leg::Ask::new(&asker, errand, nonce()?);
                send_all(&attempt.carrier.fd, &hello).map_err(DialError::Io)?;
                Ok(Stage::Leg(Box::new(ask)))
            }
        }
    }

    /// The first words to the peer itself. TLS begins right behind the hello, which saves a round trip; its answer does behind the
    /// challenge.
    fn say_hello(&self, attempt: &mut Attempt) -> Result<Ask, DialError> {
        let (ask, hello) = Ask::new(&self.us, attempt.peer, nonce()?);
        attempt.asked = Instant::now();
        let packets = self.packets_of_handshake(&attempt.carrier.fd, attempt.peer, self.dialling);
        // What TLS begins with, in clear, is as everybody's.
        attempt.carrier.say(&hello, packets).map_err(DialError::Io)?;
        if let Some(security) = &self.config.security
            && self.must_be_secure(attempt.peer)
        {
            attempt.carrier.secure_dialled(security).map_err(DialError::Io)?;
        } else if self.must_be_checked(attempt.target.is_circuit()) {
            attempt.carrier.check();
        }
        Ok(ask)
    }

    /// Goes on at the relay. Whether there may be more to read.
    fn leg_of_attempt(&self, attempt: &mut Attempt) -> Result<bool, DialError> {
        let asker = self.asker().ok_or(DialError::Closed)?;
        let (Stage::Leg(ask) | Stage::Opening(ask, _)) = &mut attempt.stage else {
            return Ok(true);
        };
        let Some(step) = read_ask(&attempt.carrier.fd, ask, &asker)? else { return Ok(false) };
        let hello = match &step {
            leg::AskStep::More => return Ok(true),
            leg::AskStep::Send(request) => {
                send_all(&attempt.carrier.fd, request).map_err(DialError::Io)?;
                // Sent on once the circuit stands, which saves a round trip.
                Some(self.say_hello(attempt)?)
            }
            leg::AskStep::Done => None,
        };
        attempt.stage = match (std::mem::replace(&mut attempt.stage, Stage::Connecting), hello) {
            (Stage::Leg(leg), Some(hello)) => Stage::Opening(leg, hello),
            (Stage::Opening(_, hello), None) => Stage::Handshake(hello),
            _ => return Err(DialError::Closed),
        };
        Ok(true)
    }

    /// What we say of ourselves to a listener.
    fn claim_of(&mut self, id: ProcId, strand: Strand) -> Claim {
        let claim = Claim::new(self.endpoint.expects(id), strand);
        let Some(peer) = self.peers.get(&id) else { return claim };
        let standing = peer.links.iter().map(|link| link.0);
        // The listener may count those already that were asked for.
        let asked = peer.dials.iter().map(|dial| (dial.strand, dial.attempt)).filter(|dial| {
            match dial.1.and_then(|token| self.sockets.get(token)) {
                Some(Socket::Attempt(attempt)) => attempt.has_proven(),
                _ => false,
            }
        });
        standing.chain(asked.map(|dial| dial.0)).fold(claim, Claim::with)
    }

    /// There is a connection: now the peer has its time to answer.
    fn attempt_connected(&mut self, id: ProcId, strand: Strand) {
        let limits = self.config.limits.clone();
        if let Some(dial) = self.peer(id).dial(strand) {
            dial.set_due(Instant::now(), limits.dial_address, &limits);
            let due = dial.due;
            self.timers.set(due, Due::Dial(id, strand));
        }
    }

    /// A connection beside others was not made, or was of no use: none is made for so long.
    pub(crate) fn rest_beside(&mut self, id: ProcId, span: Duration) {
        self.peer(id).alone_until = Some(Instant::now() + span);
    }

    /// No address led to the peer in the time there was.
    fn dial_failed(&mut self, id: ProcId, strand: Strand) {
        let has_closed = self.endpoint.peer_closed(id);
        let Some(dial) = self.drop_dial(id, strand) else { return };
        if dial.is_extra {
            self.rest_beside(id, self.limits().dial_total);
            return;
        }
        let peer = self.peer(id);
        let seconds = dial.started.elapsed().as_secs();
        let lost = peer.ended.clone();
        let failure = if self.is_awaited(id) {
            Failure::never_came(id, seconds.max(1), lost.as_deref())
        } else {
            Failure::unreachable(id, &dial.tried, seconds.max(1), lost.as_deref())
        };
        // A peer that said it was done owes us nothing more; what we still had for it is lost.
        self.give_up(id, &failure.what.clone(), (!has_closed).then_some(failure));
    }
}

impl Dial {
    /// The present attempt may take `span`, and not outlast the time for all; unless that is over
    /// already and there is reason to go on.
    fn set_due(&mut self, now: Instant, span: Duration, limits: &Limits) {
        let due = now + span.min(limits.dial_address);
        let last = self.started + self.total;
        self.due = if last > now { due.min(last) } else { due };
    }

    /// The connection that it was to be made beside is lost. What was met until then was met while nothing hung on it.
    fn is_now_the_only(&mut self, total: Duration, now: Instant) {
        (self.is_extra, self.started, self.total) = (false, now, total);
        (self.refused, self.gone) = (None, None);
    }

    /// On these ways as well. One that was not tried has not refused.
    fn try_also(&mut self, targets: Vec<Target>) {
        for target in targets {
            if self.tried.iter().all(|tried| tried.0 != target) {
                self.tried.push((target, None));
                (self.refused, self.gone) = (None, None);
            }
        }
    }

    /// The present address failed; the next one's turn.
    fn failed(&mut self, error: DialError) {
        if let Some(tried) = self.tried.get_mut(self.index) {
            tried.1 = Some(error);
        }
        self.index += 1;
        let now = Instant::now();
        self.refused = self.all(Target::is_refusal).then(|| self.refused.unwrap_or(now));
        self.gone = self.all(Target::seems_gone).then(|| self.gone.unwrap_or(now));
    }

    /// Whether that is so of every way's last attempt.
    fn all(&self, test: fn(Target, &DialError) -> bool) -> bool {
        self.tried.iter().all(|(way, error)| error.as_ref().is_some_and(|it| test(*way, it)))
    }

    /// Whether to give up. A peer that has said its last word (`has_closed`) and listens no more has
    /// ended, and that is no surprise. Until then it waits for ours.
    fn is_over(
        &self,
        now: Instant,
        limits: &Limits,
        has_closed: bool,
        was_connected: bool,
    ) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        let seems_gone = || self.gone.is_some_and(|then| since(then) >= limits.dial_refused);
        let has_ended = has_closed && (self.all(Target::says_gone) || seems_gone());
        has_ended
            || self.refused.is_some_and(|then| since(then) >= limits.dial_refused)
            || since(self.started) >= self.patience(limits, was_connected)
    }

    /// How long it is tried in all.
    fn patience(&self, limits: &Limits, was_connected: bool) -> Duration {
        let is_unanswered =
            |(_, error): &(_, Option<DialError>)| matches!(error, Some(DialError::Unanswered));
        let is_stopped = was_connected && self.tried.iter().any(is_unanswered);
        if is_stopped { limits.dial_stopped } else { self.total }
    }

    /// How long it has been tried, and will be.
    pub(crate) fn times(
        &self,
        now: Instant,
        limits: &Limits,
        was_connected: bool,
    ) -> (Duration, Duration) {
        let spent = now.saturating_duration_since(self.started);
        (spent, self.patience(limits, was_connected).saturating_sub(spent))
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// Whether nothing depends on it: another connection stands.
    pub(crate) const fn is_extra(&self) -> bool {
        self.is_extra
    }

    /// Each way and how its last attempt ended.
    pub(crate) fn tried(&self) -> &[(Target, Option<DialError>)] {
        &self.tried
    }
}

impl From<LinkError> for DialError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) | LinkError::Damaged(error) => Self::Io(error),
            _ => Self::Closed,
        }
    }
}

/// A socket that is being connected, without waiting for it.
pub(crate) fn begin_connect(address: SocketAddr, limits: &Limits) -> std::io::Result<OwnedFd> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = RawSocket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    prepare(&socket, limits)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Whether it is connected by now: an event may come before the outcome.
pub(crate) fn is_connected(fd: &OwnedFd) -> std::io::Result<bool> {
    match SockRef::from(fd).take_error()? {
        Some(error) => Err(error),
        None => Ok(SockRef::from(fd).peer_addr().is_ok()),
    }
}

/// Options of every connection, made or accepted.
pub(crate) fn prepare(socket: &RawSocket, limits: &Limits) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(limits.silence))?;
    let idle = limits.silence / 3;
    look_after(socket, idle, idle / 3)?;
    shorten_timeouts(socket);
    if let Some(size) = limits.socket_buffer {
        socket.set_send_buffer_size(size)?;
        socket.set_recv_buffer_size(size)?;
    }
    Ok(())
}

/// Fresh random bytes.
pub(crate) fn nonce() -> Result<Nonce, DialError> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| DialError::Io(std::io::Error::other(error)))?;
    Ok(nonce)
}

/// Sends a message of a leg's handshake. The buffer of a new socket takes it whole.
pub(crate) fn send_all(fd: &OwnedFd, bytes: &[u8]) -> std::io::Result<()> {
    let sent = rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandshakeError;
    use gridmpi_leg::LegError;
    use gridmpi_wire::{LegVerdict, Verdict};

    fn dialling(ways: &[Target], limits: &Limits) -> Dial {
        let now = Instant::now();
        Dial {
            strand: Strand::FIRST,
            is_extra: false,
            started: now,
            total: limits.dial_total,
            tried: ways.iter().map(|way| (*way, None)).collect(),
            index: 0,
            attempt: None,
            due: now,
            pause: PAUSE_LEAST,
            patience: FIRST_ROUND,
            refused: None,
            gone: None,
        }
    }

    #[test]
    fn a_way_that_comes_later_is_tried_before_all_is_given_up() {
        let [known, new] = [1, 2].map(|port| Target::Direct(([10, 0, 0, 1], port).into()));
        let limits = Limits::default();
        let refused = || DialError::Connect(std::io::ErrorKind::ConnectionRefused.into());
        let mut dial = dialling(&[known], &limits);
        dial.failed(refused());
        let late = Instant::now() + limits.dial_refused;
        let is_over = |dial: &Dial| dial.is_over(late, &limits, false, false);
        dial.try_also(vec![known]);
        assert!(is_over(&dial), "what was tried is no other way");
        dial.try_also(vec![known, new]);
        assert!(!is_over(&dial));
        dial.failed(refused());
        assert!(dial.is_over(Instant::now() + limits.dial_refused, &limits, false, false));
    }

    #[test]
    fn who_is_turned_away_comes_again_unless_the_peer_has_said_its_last_word() {
        let (way, limits) = (Target::Direct(([10, 0, 0, 1], 1).into()), Limits::default());
        let mut dial = dialling(&[way], &limits);
        dial.failed(DialError::Closed);
        let late = Instant::now() + limits.dial_refused;
        assert!(!dial.is_over(late, &limits, false, false), "it may be one too many");
        assert!(dial.is_over(late, &limits, true, false));
        assert!(dial.is_over(dial.started + limits.dial_total, &limits, false, false));
    }

    #[test]
    fn what_was_tried_beside_another_connection_has_all_the_time_there_is_when_that_is_lost() {
        let (way, limits) = (Target::Direct(([10, 0, 0, 1], 1).into()), Limits::default());
        let mut dial = dialling(&[way], &limits);
        dial.is_extra = true;
        let refused = || DialError::Connect(std::io::ErrorKind::ConnectionRefused.into());
        dial.failed(refused());
        let lost = Instant::now() + limits.dial_refused;
        dial.is_now_the_only(limits.reconnect, lost);
        assert!(!dial.is_over(lost, &limits, false, true), "it was refused before");
        dial.index = 0;
        dial.failed(DialError::TimedOut);
        assert!(!dial.is_over(lost + limits.dial_total, &limits, false, true));
        assert!(dial.is_over(lost + limits.reconnect, &limits, false, true));
    }

    #[test]
    fn a_relay_that_turns_us_away_is_no_sign_that_the_peer_has_ended() {
        let (way, limits) = (Target::Relay(([10, 0, 0, 1], 1).into()), Limits::default());
        let io = |kind: std::io::ErrorKind| DialError::Connect(kind.into());
        let refused = |verdict| DialError::Leg(LegError::Refused(verdict));
        // At once, and later.
        let over = |error| {
            let mut dial = dialling(&[way], &limits);
            dial.failed(error);
            let at = [Instant::now(), Instant::now() + limits.dial_refused];
            at.map(|now| dial.is_over(now, &limits, true, false))
        };
        assert_eq!(over(io(std::io::ErrorKind::ConnectionRefused)), [false; 2]);
        assert_eq!(over(DialError::Closed), [false; 2]);
        for verdict in [LegVerdict::Full, LegVerdict::Draining, LegVerdict::Unanswered] {
            assert_eq!(over(refused(verdict)), [false; 2], "{verdict}");
        }
        assert_eq!(over(refused(LegVerdict::NoRoute)), [false, true]);
        let gone = HandshakeError::Refused(Verdict::Gone);
        assert_eq!(over(gone.into()), [true; 2]);
        assert_eq!(over(HandshakeError::Refused(Verdict::Duplicate).into()), [false; 2]);
        // Who has a way of his own, too, may be met by a relay's refusal first.
        let mut dial = dialling(&[Target::Direct(way.address()), way], &limits);
        dial.failed(io(std::io::ErrorKind::ConnectionRefused));
        dial.failed(refused(LegVerdict::NoRoute));
        assert!(!dial.is_over(Instant::now(), &limits, true, false));
        assert!(dial.is_over(Instant::now() + limits.dial_refused, &limits, true, false));
    }
}
