//! Circuits through relays: we are registered at each relay of our cluster, dial it for what it tells us of, and ask it for
//! circuits to others (`dial.rs`). Relays may also tell of other ones (`beside.rs`). Whoever is at the other end of a circuit proves itself as on any other connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_leg::{Ask, AskStep, Asker, Notices};
use gridmpi_wire::{CircuitId, Errand, JobKey, LegNotice, ProcId};
use rustix::net::RecvFlags;

use crate::accept::Origin;
use crate::beside::Standing;
use crate::dial::{begin_connect, is_connected, nonce, send_all};
use crate::link::received;
use crate::poller::{Interest, Ready, Token};
use crate::state::{Socket, State};
use crate::timers::Due;
use crate::{DialError, Way};

/// Pause before a registration is tried again; doubled each time, up to [`PAUSE_MOST`].
pub(crate) const PAUSE_LEAST: Duration = Duration::from_millis(20);
pub(crate) const PAUSE_MOST: Duration = Duration::from_secs(1);

/// Calls of one relay that wait for a place, as where many processes want us at once; others are not met.
const CALLS: usize = 1024;

/// Notices of one relay that are met at a time: then it is others' turn.
const NOTICES: usize = 16;

/// The relays of this process's cluster.
#[derive(Clone, Debug)]
pub struct Relays {
    /// Where they listen; [`Way::Relay`](crate::Way) counts through them. Those that they tell of later come behind them.
    pub addresses: Vec<SocketAddr>,
    /// What proves that we may use them.
    pub token: JobKey,
    /// The lowest process of our cluster.
    pub first: ProcId,
    /// How many processes our cluster has.
    pub count: u32,
    /// Whether those that they tell of are used as well.
    pub takes_more: bool,
}

impl Relays {
    /// The number of the one that listens there.
    pub(crate) fn numbered(&self, address: SocketAddr) -> Option<usize> {
        self.addresses.iter().position(|known| *known == address)
    }
}

/// How it stands with each relay.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    all: Vec<Registration>,
    /// How many of them the job names: the first.
    named: usize,
}

#[derive(Debug)]
pub(crate) struct Registration {
    /// What we are connected by, or try to be.
    socket: Option<Token>,
    /// Before the next attempt.
    pub(crate) pause: Duration,
    /// Why it does not stand.
    pub(crate) problem: Option<String>,
    pub(crate) standing: Standing,
    /// Since when we are registered, if we are.
    pub(crate) since: Option<Instant>,
    /// Who waits there for us, and for a place here.
    calls: VecDeque<CircuitId>,
}

impl Registrations {
    /// At so many relays that the job names.
    pub(crate) fn named(count: usize) -> Self {
        Self { all: (0..count).map(|_| Registration::new(Standing::Named)).collect(), named: count }
    }

    /// How many relays there are that the job does not name.
    pub(crate) fn told(&self) -> usize {
        self.all.len() - self.named
    }

    /// How many circuits of each relay may be unproven at a time: together they have half as many places as our port, beside those.
    fn places(&self, pending: usize) -> usize {
        let present = self.all.iter().filter(|registration| registration.since.is_some()).count();
        (pending / 2 / present.max(1)).max(1)
    }

    fn has_calls(&self, relay: usize) -> bool {
        self.all.get(relay).is_some_and(|registration| !registration.calls.is_empty())
    }

    fn next_call(&mut self, relay: usize) -> Option<CircuitId> {
        self.all.get_mut(relay)?.calls.pop_front()
    }

    /// Another one; its number.
    pub(crate) fn add(&mut self, registration: Registration) -> usize {
        self.all.push(registration);
        self.all.len() - 1
    }
}

impl Registration {
    pub(crate) const fn new(standing: Standing) -> Self {
        let calls = VecDeque::new();
        Self { socket: None, pause: PAUSE_LEAST, problem: None, standing, since: None, calls }
    }
}

/// A connection to a relay, of ours.
#[derive(Debug)]
pub(crate) struct Leg {
    fd: OwnedFd,
    /// Which relay.
    relay: usize,
    errand: Errand,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Connecting,
    Asking(Box<Ask>),
    /// We are registered: notices come.
    Registered(Notices),
}

impl State {
    /// Lets every relay of our cluster know where we are.
    pub(crate) fn register_at_relays(&mut self) {
        let count = self.config.relays.as_ref().map_or(0, |relays| relays.addresses.len());
        self.registrations = Registrations::named(count);
        for relay in 0..count {
            self.register_at(relay);
        }
    }

    /// Whether a process is reached through relays.
    pub(crate) fn is_relayed(&self, id: ProcId) -> bool {
        let ways = self.config.peers.get(id.0 as usize);
        ways.is_some_and(|ways| ways.iter().any(|way| matches!(way, Way::Relay(_))))
    }

    /// Who we are, to relays.
    pub(crate) fn asker(&self) -> Option<Asker> {
        let token = self.config.relays.as_ref()?.token.clone();
        Some(Asker { me: self.us.me, job: self.us.job, token })
    }

    pub(crate) fn register_at(&mut self, relay: usize) {
        let Some(relays) = &self.config.relays else { return };
        let errand = Errand::Register { first: relays.first, count: relays.count };
        match self.begin_leg(relay, errand) {
            Ok(token) => {
                if let Some(registration) = self.registrations.all.get_mut(relay) {
                    registration.socket = Some(token);
                }
            }
            Err(error) => self.unregistered(relay, &DialError::Connect(error)),
        }
    }

    fn begin_leg(&mut self, relay: usize, errand: Errand) -> std::io::Result<Token> {
        let address = self.config.relays.as_ref().and_then(|relays| relays.addresses.get(relay));
        let address = *address.ok_or(std::io::ErrorKind::NotFound)?;
        let fd = begin_connect(address, self.limits())?;
        let token = self.sockets.reserve();
        if let Err(error) = self.poller.add(&fd, token, Interest::ReadWrite) {
            self.sockets.release(token);
            return Err(error);
        }
        let leg = Leg { fd, relay, errand, stage: Stage::Connecting };
        self.sockets.put(token, Socket::Leg(Box::new(leg)));
        self.timers.set(Instant::now() + self.limits().dial_address, Due::Leg(token));
        Ok(token)
    }

    pub(crate) fn leg_ready(&mut self, ready: &Ready, mut leg: Box<Leg>) {
        match self.leg_step(ready.token, &mut leg) {
            Ok(false) => self.sockets.put(ready.token, Socket::Leg(leg)),
            Ok(true) => {
                // A circuit to us stands. The same descriptor gets another token.
                let _ = self.poller.remove(&leg.fd);
                self.sockets.release(ready.token);
                self.accepted(leg.fd, Origin::Circuit(leg.relay));
                // If nothing came of it.
                self.answer_calls();
            }
            Err(error) => self.end_leg(ready.token, &leg, &error),
        }
    }

    fn end_leg(&mut self, token: Token, leg: &Leg, error: &DialError) {
        self.sockets.release(token);
        match leg.errand {
            Errand::Register { .. } => self.unregistered(leg.relay, error),
            _ => self.answer_calls(),
        }
    }

    /// A leg's time to come about is over.
    pub(crate) fn leg_due(&mut self, token: Token) {
        let is_late = matches!(self.sockets.get(token), Some(Socket::Leg(leg))
            if !matches!(leg.stage, Stage::Registered(_)));
        if is_late && let Some(Socket::Leg(leg)) = self.sockets.take(token) {
            self.end_leg(token, &leg, &DialError::TimedOut);
        }
    }

    /// We are not, or no longer, known at a relay: later again.
    fn unregistered(&mut self, relay: usize, error: &DialError) {
        let Some(registration) = self.registrations.all.get_mut(relay) else { return };
        registration.socket = None;
        registration.calls.clear();
        registration.problem = Some(error.to_string());
        let now = Instant::now();
        let pause = registration.ends(now, PAUSE_MOST);
        if !self.is_closing {
            self.timers.set(now + pause, Due::Register(relay));
        }
    }

    pub(crate) fn register_due(&mut self, relay: usize) {
        let is_open = self.registrations.all.get(relay).is_some_and(|it| it.socket.is_none());
        if is_open && !self.is_closing {
            self.register_at(relay);
        }
    }

    /// Goes on with a leg. `true`: it is a circuit now.
    fn leg_step(&mut self, token: Token, leg: &mut Leg) -> Result<bool, DialError> {
        if matches!(leg.stage, Stage::Connecting) {
            if !is_connected(&leg.fd).map_err(DialError::Connect)? {
                return Ok(false);
            }
            let asker = self.asker().ok_or(DialError::Closed)?;
            let (ask, hello) = Ask::new(&asker, leg.errand, nonce()?);
            let watched = self.poller.modify(&leg.fd, token, Interest::Read);
            watched.and_then(|()| send_all(&leg.fd, &hello)).map_err(DialError::Io)?;
            leg.stage = Stage::Asking(Box::new(ask));
        }
        let mut notices = 0;
        loop {
            match &mut leg.stage {
                Stage::Connecting => return Ok(false),
                Stage::Asking(ask) => {
                    let asker = self.asker().ok_or(DialError::Closed)?;
                    let Some(step) = read_ask(&leg.fd, ask, &asker)? else { return Ok(false) };
                    match step {
                        AskStep::More => {}
                        AskStep::Send(request) => {
                            send_all(&leg.fd, &request).map_err(DialError::Io)?;
                        }
                        AskStep::Done if matches!(leg.errand, Errand::Accept { .. }) => {
                            return Ok(true);
                        }
                        AskStep::Done => {
                            leg.stage = Stage::Registered(Notices::default());
                            self.registered(leg.relay);
                        }
                    }
                }
                Stage::Registered(_) if notices == NOTICES => return Ok(false),
                Stage::Registered(inbox) => {
                    let read = rustix::net::recv(&leg.fd, inbox.space(), RecvFlags::empty());
                    let Some(count) = received(read.map(|read| read.0).map_err(Into::into))? else {
                        return Ok(false);
                    };
                    if let Some(notice) = inbox.read(count)? {
                        notices += 1;
                        match notice {
                            LegNotice::Called { circuit, .. } => self.called(leg.relay, circuit),
                            LegNotice::Beside(relay) => self.told_of(leg.relay, relay),
                        }
                    }
                }
            }
        }
    }

    fn registered(&mut self, relay: usize) {
        let Some(registration) = self.registrations.all.get_mut(relay) else { return };
        let is_new = registration.standing == Standing::Told;
        registration.begins(Instant::now());
        if is_new {
            self.add_way(relay);
        }
    }

    /// Somebody waits at the relay for us. If we cannot come it will try again.
    fn called(&mut self, relay: usize, circuit: CircuitId) {
        let Some(registration) = self.registrations.all.get_mut(relay) else { return };
        if registration.calls.len() < CALLS {
            registration.calls.push_back(circuit);
        }
        self.answer_calls();
    }

    /// Comes to those who wait at relays, as far as there are places.
    pub(crate) fn answer_calls(&mut self) {
        for relay in 0..self.registrations.all.len() {
            while !self.is_closing
                && self.registrations.has_calls(relay)
                && self.finds_place_for_circuit(relay)
                && let Some(circuit) = self.registrations.next_call(relay)
            {
                let _ = self.begin_leg(relay, Errand::Accept { circuit });
            }
        }
    }

    /// Whether another circuit through this relay may come about, in a free place or in that of one that has said nothing.
    fn finds_place_for_circuit(&mut self, relay: usize) -> bool {
        while !self.has_place_for_circuit(relay) {
            let Some(token) = self.silent_circuit(relay) else { return false };
            self.turned_away();
            self.forget_pending(token);
        }
        true
    }

    /// Whether there is a free place for another circuit through this relay. What one relay does is no matter to the others, nor to our port.
    fn has_place_for_circuit(&self, relay: usize) -> bool {
        let places = self.registrations.places(self.limits().pending);
        let is_taken = |socket: &&Socket| match socket {
            Socket::Leg(leg) => leg.relay == relay && matches!(leg.errand, Errand::Accept { .. }),
            Socket::Pending(pending) => pending.is_through(relay),
            _ => false,
        };
        self.sockets.iter().filter(is_taken).count() < places
    }
}

/// Reads on in a leg's handshake; `None` when there is nothing to read now.
pub(crate) fn read_ask(
    fd: &OwnedFd,
    ask: &mut Ask,
    asker: &Asker,
) -> Result<Option<AskStep>, DialError> {
    let read = rustix::net::recv(fd, ask.space(), RecvFlags::empty());
    let Some(count) = received(read.map(|read| read.0).map_err(Into::into))? else {
        return Ok(None);
    };
    Ok(Some(ask.read(count, asker)?))
}
