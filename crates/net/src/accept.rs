//! Connections that peers make, until they have proven who they are.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_sock::crowding::{self, Place};
use gridmpi_wire::{ProcId, RECORD_FIRST, Verdict};
use rustix::net::SocketFlags;
use socket2::Socket as RawSocket;

use crate::DialError;
use crate::carrier::{Carrier, Packets};
use crate::dial::{nonce, prepare};
use crate::handshake::{Answer, AnswerStep, Proven};
use crate::link::{peek, received};
use crate::links::Met;
use crate::poller::{Interest, Token};
use crate::security::FIRST_BYTE;
use crate::state::{Socket, State};
use crate::timers::Due;

/// How many connections are accepted at a time: then it is others' turn.
const ACCEPTED: usize = 64;

/// A circuit's hello comes along with it. One that has stood for so long and said nothing makes room for others.
const SILENT: Duration = Duration::from_millis(500);

/// How often accepting is tried again when the system is out of descriptors or memory.
const RETRY: Duration = Duration::from_millis(200);

/// A connection whose other side is unknown.
#[derive(Debug)]
pub(crate) struct Pending {
    carrier: Carrier,
    origin: Origin,
    /// It is known whether what follows the challenge is TLS, or checked records.
    is_settled: bool,
    /// Where it comes from; of a circuit: the relay.
    address: SocketAddr,
    answer: Answer,
    accepted: Instant,
    /// When the hello came: what it says was so then.
    hello: Option<Instant>,
}

/// How a connection came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Somebody has dialled our own port.
    Port,
    /// It is a circuit through this relay.
    Circuit(usize),
}

impl Pending {
    const fn is_circuit(&self) -> bool {
        matches!(self.origin, Origin::Circuit(_))
    }

    pub(crate) fn is_through(&self, relay: usize) -> bool {
        self.origin == Origin::Circuit(relay)
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.hello.is_none() && now >= self.accepted + SILENT
    }

    /// When that process said hello here, if it did.
    pub(crate) fn hello_of(&self, id: ProcId) -> Option<Instant> {
        self.hello.filter(|_| self.answer.from() == Some(id))
    }
}

impl State {
    /// Whether what passes between us and this process must be encrypted: within a cluster it need not.
    pub(crate) fn must_be_secure(&self, peer: ProcId) -> bool {
        self.config.security.is_some() && self.paces.is_far(peer)
    }

    /// Whether what passes must bear checksums: through relays, where TLS does not see to it.
    pub(crate) fn must_be_checked(&self, is_circuit: bool) -> bool {
        self.config.security.is_none() && is_circuit
    }

    pub(crate) fn accept_ready(&mut self, token: Token, listener: OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // What is left in the queue makes it ready again.
        for _ in 0..ACCEPTED {
            match rustix::net::accept_with(&listener, flags) {
                Ok(fd) => self.accepted(fd, Origin::Port),
                Err(rustix::io::Errno::AGAIN) => break,
                // The connection ended while it waited, or the like: the next one.
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.timers.set(Instant::now() + RETRY, Due::Handshake(token));
                    self.is_accepting = false;
                    break;
                }
            }
        }
        self.sockets.put(token, Socket::Listener(listener));
        self.watch_listeners();
    }

    /// Whether somebody who comes to our port from `from` is let in: into a free place, or into that of another, who is ended.
    fn lets_in(&mut self, from: IpAddr) -> bool {
        let Self { pending, sockets, config, .. } = self;
        let places = pending.iter().filter_map(|&token| match sockets.get(token) {
            Some(Socket::Pending(pending)) if pending.origin == Origin::Port => {
                let since = pending.accepted;
                Some((token, Place { from: pending.address.ip(), since }))
            }
            _ => None,
        });
        let places: Vec<(Token, Place)> = places.collect();
        if places.len() < config.limits.pending {
            return true;
        }
        let victim = crowding::victim(places.iter().map(|place| place.1), from);
        self.turned_away();
        let Some(&(token, _)) = victim.and_then(|index| places.get(index)) else { return false };
        self.end_pending(token);
        true
    }

    /// Somebody has no place, or not any more.
    pub(crate) fn turned_away(&mut self) {
        self.stats.rejected += 1;
        self.stats.last_rejection =
            Some("more connections than there are places wait for their proof".to_owned());
    }

    /// Listeners are watched only while there are descriptors, so that they do not call in vain.
    fn watch_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            let token = self.listeners[index];
            let is_accepting = self.is_accepting;
            if let Some(Socket::Listener(listener)) = self.sockets.get(token) {
                let interest = if is_accepting { Interest::Read } else { Interest::None };
                let _ = self.poller.modify(&*listener, token, interest);
            }
        }
    }

    pub(crate) fn accepted(&mut self, fd: OwnedFd, origin: Origin) {
        self.stats.accepted += 1;
        let socket = RawSocket::from(fd);
        // Who has ended it already has none.
        let address = socket.peer_addr().ok().and_then(|address| address.as_socket());
        let Some(address) = address else { return };
        if origin == Origin::Port && !self.lets_in(address.ip()) {
            return;
        }
        let (Ok(()), Ok(nonce)) = (prepare(&socket, self.limits()), nonce()) else { return };
        let fd: OwnedFd = socket.into();
        let token = self.sockets.reserve();
        if self.poller.add(&fd, token, Interest::Read).is_err() {
            self.sockets.release(token);
            return;
        }
        let now = Instant::now();
        let answer = Answer::new(nonce);
        let carrier = Carrier::bare(fd);
        let pending = Pending {
            carrier,
            origin,
            is_settled: false,
            address,
            answer,
            accepted: now,
            hello: None,
        };
        self.sockets.put(token, Socket::Pending(Box::new(pending)));
        self.pending.push(token);
        self.timers.set(now + self.limits().handshake, Due::Handshake(token));
        if origin != Origin::Port {
            self.timers.set(now + SILENT, Due::Handshake(token));
        }
    }

    /// The oldest circuit through this relay that has said nothing for long.
    pub(crate) fn silent_circuit(&mut self, relay: usize) -> Option<Token> {
        let now = Instant::now();
        let Self { pending, sockets, .. } = self;
        let mut all = pending.iter().copied();
        all.find(|token| {
            matches!(sockets.get(*token), Some(Socket::Pending(pending))
                if pending.is_through(relay) && pending.is_silent(now))
        })
    }

    pub(crate) fn pending_ready(&mut self, token: Token, mut pending: Box<Pending>) {
        match self.pending_step(&mut pending) {
            Ok(None) => self.sockets.put(token, Socket::Pending(pending)),
            Ok(Some(proven)) => {
                let _ = self.poller.remove(&pending.carrier.fd);
                self.end_pending(token);
                self.decide(*pending, &proven);
            }
            Err(error) => {
                self.note_failed(None, Some(pending.address), &error);
                drop(pending);
                self.stats.rejected += 1;
                self.stats.last_rejection = Some(error.to_string());
                self.end_pending(token);
            }
        }
    }

    /// Forgets a pending handshake, whose place is free; one that is out of its slot belongs to the caller.
    fn end_pending(&mut self, token: Token) {
        self.forget_pending(token);
        self.answer_calls();
    }

    /// The same where calls are being answered.
    pub(crate) fn forget_pending(&mut self, token: Token) {
        self.sockets.release(token);
        self.pending.retain(|&other| other != token);
        if !self.is_accepting {
            self.is_accepting = true;
            self.watch_listeners();
        }
    }

    /// A handshake's time is over, or that of a circuit to say its first word, or accepting is to be tried again.
    pub(crate) fn handshake_due(&mut self, token: Token) {
        let handshake = self.limits().handshake;
        match self.sockets.get(token) {
            Some(Socket::Pending(pending)) if pending.accepted.elapsed() >= handshake => {
                self.stats.rejected += 1;
                self.stats.last_rejection = Some("the handshake took too long".to_owned());
                self.end_pending(token);
            }
            Some(Socket::Pending(pending)) if pending.is_silent(Instant::now()) => {
                self.answer_calls();
            }
            Some(Socket::Listener(_)) if !self.is_accepting => {
                self.is_accepting = true;
                self.watch_listeners();
            }
            _ => {}
        }
    }

    fn pending_step(&mut self, pending: &mut Pending) -> Result<Option<Proven>, DialError> {
        loop {
            if !pending.is_settled
                && let Some(from) = pending.answer.from()
                && !self.settle(pending, from)?
            {
                return Ok(None);
            }
            let read = pending.carrier.read(pending.answer.space());
            let Some(count) = received(read)? else { return Ok(None) };
            match pending.answer.read(count, &self.us)? {
                AnswerStep::More => {}
                AnswerStep::Send(challenge) => {
                    pending.hello = Some(Instant::now());
                    let (fd, from) = (&pending.carrier.fd, pending.answer.from());
                    let packets = from.map_or(Packets::Full, |from| {
                        self.packets_of_handshake(fd, from, self.pending.len())
                    });
                    pending.carrier.say(&challenge, packets).map_err(DialError::Io)?;
                }
                AnswerStep::Refuse(challenge) => {
                    pending.carrier.write_all(&challenge).map_err(DialError::Io)?;
                    return Err(crate::HandshakeError::NoCommonVersion.into());
                }
                AnswerStep::Proven(proven) => return Ok(Some(proven)),
            }
        }
    }

    /// TLS, or checked records, must follow the challenge if it comes from where that is so. Whether the first byte of what does is
    /// there.
    fn settle(&self, pending: &mut Pending, from: ProcId) -> Result<bool, DialError> {
        if self.must_be_secure(from) || self.must_be_checked(pending.is_circuit()) {
            let Some(first) = peek(&pending.carrier.fd)? else { return Ok(false) };
            // Else its proof is looked at, to say who it is that speaks neither.
            match (&self.config.security, first) {
                (Some(security), FIRST_BYTE) => {
                    pending.carrier.secure_accepted(security).map_err(DialError::Io)?;
                }
                (None, RECORD_FIRST) => pending.carrier.check(),
                _ => {}
            }
        }
        pending.is_settled = true;
        Ok(true)
    }

    /// The peer has proven itself: is its connection wanted?
    fn decide(&mut self, mut pending: Pending, proven: &Proven) {
        let (id, strand) = (proven.from, proven.strand);
        if self.must_be_secure(id) && !pending.carrier.is_secure() {
            self.stats.rejected += 1;
            self.stats.last_rejection = Some(format!("{id} does not speak TLS"));
            return;
        }
        if self.must_be_checked(pending.is_circuit()) && !pending.carrier.is_checked() {
            self.stats.rejected += 1;
            let what = format!("{id} sends no checksums through a relay: another version?");
            self.stats.last_rejection = Some(what);
            return;
        }
        let verdict = self.verdict(id, strand, pending.hello);
        if verdict != Verdict::Accepted {
            let welcome = proven.welcome(&self.us, verdict, 1);
            let _ = pending.carrier.write_all(&welcome);
            return;
        }
        // Whatever stood before is no longer whole on the other side; count nothing more from it.
        self.drop_link(id, strand);
        self.drop_half_links(id, proven, pending.hello);
        let expects = self.endpoint.expects(id);
        if let Err(error) = self.endpoint.connected(id, strand, proven.resume) {
            let welcome = proven.welcome(&self.us, Verdict::CannotResume, expects);
            let _ = pending.carrier.write_all(&welcome);
            self.cannot_resume(id, Some(pending.address), error);
            return;
        }
        let welcome = proven.welcome(&self.us, verdict, expects);
        if pending.carrier.write_all(&welcome).is_err() {
            self.endpoint.disconnected(id, strand);
            self.redial(id, false);
            return;
        }
        let answer = pending.hello.map(|hello| hello.elapsed());
        let met = Met { address: Some(pending.address), answer };
        self.establish((id, strand), pending.carrier, met);
    }

    /// Ends connections that the dialer had lost when it said hello.
    fn drop_half_links(&mut self, id: ProcId, proven: &Proven, hello: Option<Instant>) {
        for (strand, token) in self.peer(id).links.clone() {
            let is_older = match self.sockets.get(token) {
                Some(Socket::Link(link)) => hello.is_some_and(|hello| link.since < hello),
                _ => false,
            };
            if is_older && !proven.has(strand) {
                self.drop_link(id, strand);
            }
        }
    }
}
