//! Making connections: addresses in turn, in bounded time.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_leg as leg;
use gridmpi_wire::{Errand, Nonce, ProcId};
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, TcpKeepalive, Type};

use crate::carrier::Carrier;
use crate::handshake::{Ask, AskStep};
use crate::link::received;
use crate::options::shorten_timeouts;
use crate::poller::{Interest, Ready, Token};
use crate::relays::read_ask;
use crate::state::{Socket, State};
use crate::timers::Due;
use crate::{DialError, Failure, Limits, LinkError};

/// Pause after all addresses have failed; doubled each time, up to [`PAUSE_MOST`].
const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// How long an address is tried in the first round; doubled each round. An address that is no way to
/// the peer, such as that of another network, must not hold up the one that is.
const FIRST_ROUND: Duration = Duration::from_secs(1);

/// After a lost connection the lower process dials at once and the higher after this, so that the
/// two seldom cross.
const YIELD: Duration = Duration::from_millis(250);

/// The state of dialling one peer.
#[derive(Debug)]
pub(crate) struct Dial {
    started: Instant,
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
}

/// A way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// It listens there.
    Direct(SocketAddr),
    /// A relay of ours, that listens there, knows a way.
    Relay(SocketAddr),
}

impl Target {
    const fn address(self) -> SocketAddr {
        match self {
            Self::Direct(address) | Self::Relay(address) => address,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(address) => write!(f, "{address}"),
            Self::Relay(address) => write!(f, "through the relay {address}"),
        }
    }
}

/// One socket on its way to a peer.
#[derive(Debug)]
pub(crate) struct Attempt {
    carrier: Carrier,
    peer: ProcId,
    target: Target,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Connecting,
    /// Of the relay a circuit is wanted.
    Leg(Box<leg::Ask>),
    /// The circuit has been asked for, and our hello sent behind that.
    Opening(Box<leg::Ask>, Ask),
    Handshake(Ask),
}

impl Attempt {
    /// Whether the listener may already count this as a connection.
    pub(crate) fn has_proven(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(ask) if ask.has_proven())
    }

    fn is_connected(&self) -> bool {
        !matches!(self.stage, Stage::Connecting)
    }
}

impl State {
    /// Begins to make a connection to `id`, unless there is or soon will be one.
    pub(crate) fn dial(&mut self, id: ProcId) {
        self.dial_after(id, Duration::ZERO);
    }

    /// Begins to make a lost connection again.
    pub(crate) fn redial(&mut self, id: ProcId) {
        let wait = if self.us.me < id { Duration::ZERO } else { YIELD };
        self.dial_after(id, wait);
    }

    fn dial_after(&mut self, id: ProcId, wait: Duration) {
        let targets = self.targets(id);
        let (now, is_closing) = (Instant::now(), self.is_closing);
        let peer = self.peer(id);
        if is_closing || peer.link.is_some() || peer.is_lost || peer.dial.is_some() {
            return;
        }
        let due = now + wait;
        peer.dial = Some(Dial {
            started: due,
            tried: targets.into_iter().map(|target| (target, None)).collect(),
            index: 0,
            attempt: None,
            due,
            pause: PAUSE_LEAST,
            patience: FIRST_ROUND,
        });
        if wait.is_zero() {
            self.attempt_next(id);
        } else {
            self.timers.set(due, Due::Dial(id));
        }
    }

    /// The ways to a peer, in the order to try.
    fn targets(&self, id: ProcId) -> Vec<Target> {
        match &self.config.relays {
            Some(relays) if relays.leads_to.get(id.0 as usize).copied().unwrap_or(false) => {
                relays.in_turn(self.us.me, id).map(Target::Relay).collect()
            }
            _ => {
                let addresses = self.config.peers.get(id.0 as usize).into_iter().flatten();
                addresses.copied().map(Target::Direct).collect()
            }
        }
    }

    /// Ends dialling: there is a connection, or none is wanted.
    pub(crate) fn drop_dial(&mut self, id: ProcId) {
        let dial = self.peer(id).dial.take();
        if let Some(token) = dial.and_then(|dial| dial.attempt) {
            self.sockets.release(token);
        }
    }

    /// Tries the address whose turn it is, and those after it while they fail at once.
    fn attempt_next(&mut self, id: ProcId) {
        loop {
            let limits = self.config.limits.clone();
            let has_closed = self.endpoint.peer_closed(id);
            let peer = self.peer(id);
            let was_connected = peer.ended.is_some();
            let Some(dial) = peer.dial.as_mut() else { return };
            let now = Instant::now();
            if dial.is_over(now, &limits, has_closed, was_connected) {
                self.dial_failed(id);
                return;
            }
            let Some(&(target, _)) = dial.tried.get(dial.index) else {
                self.pause(id, now);
                return;
            };
            match self.attempt(id, target) {
                Ok(token) => {
                    let Some(dial) = self.peer(id).dial.as_mut() else { return };
                    dial.attempt = Some(token);
                    dial.set_due(now, dial.patience, &limits);
                    let due = dial.due;
                    self.timers.set(due, Due::Dial(id));
                    return;
                }
                Err(error) => {
                    let Some(dial) = self.peer(id).dial.as_mut() else { return };
                    dial.failed(DialError::Connect(error));
                }
            }
        }
    }

    /// All addresses have failed: waits a little and begins anew.
    fn pause(&mut self, id: ProcId, now: Instant) {
        let Some(dial) = self.peer(id).dial.as_mut() else { return };
        dial.index = 0;
        dial.due = now + dial.pause;
        dial.pause = (dial.pause * 2).min(PAUSE_MOST);
        dial.patience = dial.patience.saturating_mul(2);
        let due = dial.due;
        self.timers.set(due, Due::Dial(id));
    }

    fn attempt(&mut self, peer: ProcId, target: Target) -> std::io::Result<Token> {
        let fd = begin_connect(target.address(), self.limits())?;
        let token = self.sockets.reserve();
        if let Err(error) = self.poller.add(&fd, token, Interest::ReadWrite) {
            self.sockets.release(token);
            return Err(error);
        }
        let carrier = Carrier::bare(fd);
        let attempt = Attempt { carrier, peer, target, stage: Stage::Connecting };
        self.sockets.put(token, Socket::Attempt(Box::new(attempt)));
        Ok(token)
    }

    /// A timer of this peer's dialling has run out; perhaps an old one.
    pub(crate) fn dial_due(&mut self, id: ProcId) {
        let now = Instant::now();
        let Some(dial) = self.peers.get_mut(&id).and_then(|peer| peer.dial.as_mut()) else {
            return;
        };
        if now < dial.due {
            return;
        }
        if let Some(token) = dial.attempt.take() {
            let has_connected = match self.sockets.release(token) {
                Some(Socket::Attempt(attempt)) => attempt.is_connected(),
                _ => false,
            };
            let error = if has_connected { DialError::Unanswered } else { DialError::TimedOut };
            dial.failed(error);
        }
        self.attempt_next(id);
    }

    pub(crate) fn attempt_ready(&mut self, ready: &Ready, mut attempt: Box<Attempt>) {
        let id = attempt.peer;
        match self.attempt_step(ready.token, &mut attempt) {
            Ok(None) => self.sockets.put(ready.token, Socket::Attempt(attempt)),
            Ok(Some(resume)) => self.attempt_succeeded(ready.token, *attempt, resume),
            Err(error) => {
                self.sockets.release(ready.token);
                drop(attempt);
                if let Some(dial) = self.peer(id).dial.as_mut() {
                    dial.attempt = None;
                    dial.failed(error);
                    self.attempt_next(id);
                }
            }
        }
    }

    fn attempt_succeeded(&mut self, token: Token, attempt: Attempt, resume: u64) {
        let Attempt { carrier, peer, target, .. } = attempt;
        let address = target.address();
        // The same descriptor gets another token; the old one must not be met again.
        let _ = self.poller.remove(&carrier.fd);
        self.sockets.release(token);
        if let Some(dial) = self.peer(peer).dial.as_mut() {
            dial.attempt = None;
        }
        match self.endpoint.connected(peer, resume) {
            Ok(()) => self.establish(peer, carrier, Some(address)),
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
            self.attempt_connected(attempt.peer);
        }
        loop {
            match &mut attempt.stage {
                Stage::Connecting => return Ok(None),
                Stage::Leg(_) | Stage::Opening(..) => {
                    if !self.leg_of_attempt(attempt)? {
                        return Ok(None);
                    }
                }
                Stage::Handshake(ask) => {
                    let read = attempt.carrier.read(ask.space());
                    let Some(count) = received(read)? else { return Ok(None) };
                    match ask.read(count, &self.us, self.endpoint.expects(attempt.peer))? {
                        AskStep::More => {}
                        AskStep::Send(proof) => {
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

    /// The first words to the peer itself.
    fn say_hello(&self, attempt: &mut Attempt) -> Result<Ask, DialError> {
        if let Some(security) = &self.config.security
            && self.must_be_secure(attempt.peer)
        {
            attempt.carrier.secure_dialled(security).map_err(DialError::Io)?;
        }
        let (ask, hello) = Ask::new(&self.us, attempt.peer, nonce()?);
        attempt.carrier.write_all(&hello).map_err(DialError::Io)?;
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

    /// There is a connection: now the peer has its time to answer.
    fn attempt_connected(&mut self, id: ProcId) {
        let limits = self.config.limits.clone();
        if let Some(dial) = self.peer(id).dial.as_mut() {
            dial.set_due(Instant::now(), limits.dial_address, &limits);
            let due = dial.due;
            self.timers.set(due, Due::Dial(id));
        }
    }

    /// No address led to the peer in the time there was.
    fn dial_failed(&mut self, id: ProcId) {
        let has_closed = self.endpoint.peer_closed(id);
        let peer = self.peer(id);
        let Some(dial) = peer.dial.take() else { return };
        let seconds = dial.started.elapsed().as_secs();
        let failure = Failure::unreachable(id, &dial.tried, seconds.max(1), peer.ended.as_deref());
        // A peer that said it was done owes us nothing more; what we still had for it is lost.
        self.give_up(id, &failure.what.clone(), (!has_closed).then_some(failure));
    }
}

impl Dial {
    /// The present attempt may take `span`, and not outlast the time for all; unless that is over
    /// already and there is reason to go on.
    fn set_due(&mut self, now: Instant, span: Duration, limits: &Limits) {
        let due = now + span.min(limits.dial_address);
        let last = self.started + limits.dial_total;
        self.due = if last > now { due.min(last) } else { due };
    }

    /// The present address failed; the next one's turn.
    fn failed(&mut self, error: DialError) {
        if let Some(tried) = self.tried.get_mut(self.index) {
            tried.1 = Some(error);
        }
        self.index += 1;
    }

    /// Whether to give up. A peer that has said its last word (`has_closed`) and listens no more has
    /// ended, and that is no surprise.
    fn is_over(
        &self,
        now: Instant,
        limits: &Limits,
        has_closed: bool,
        was_connected: bool,
    ) -> bool {
        let spent = now.saturating_duration_since(self.started);
        let all = |test: fn(&DialError) -> bool| {
            self.tried.iter().all(|(_, error)| error.as_ref().is_some_and(test))
        };
        let is_stopped =
            self.tried.iter().any(|(_, error)| matches!(error, Some(DialError::Unanswered)));
        let patience = if all(DialError::is_refusal) {
            if has_closed { Duration::ZERO } else { limits.dial_refused }
        } else if was_connected && is_stopped {
            limits.dial_stopped
        } else {
            limits.dial_total
        };
        spent >= patience
    }
}

impl From<LinkError> for DialError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) => Self::Io(error),
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
    let keepalive = TcpKeepalive::new()
        .with_time(idle.max(Duration::from_secs(1)))
        .with_interval((idle / 3).max(Duration::from_secs(1)));
    socket.set_tcp_keepalive(&keepalive)?;
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
