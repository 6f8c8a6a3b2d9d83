//! Connections that others make, until it is known who they are.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_leg::{Host, HostStep, LegError, Request};
use gridmpi_wire::{Errand, LEG_MAGIC, LegVerdict, Nonce};
use rustix::net::{RecvFlags, SocketFlags};
use socket2::Socket as RawSocket;
use thiserror::Error;
use tracing::debug;

use crate::channel::{Channel, received, send};
use crate::daemon::{Daemon, Due};
use crate::dial::CONNECT;
use crate::greet::{Greeting, TRUNK_MAGIC};
use crate::options;
use crate::poller::{Interest, Ready};
use crate::sockets::{Leg, Pending, PendingStage, Socket, SocketKey, Trunk, TrunkStage};
use crate::tls;

/// How often accepting is tried again when the system is out of descriptors or memory.
const RETRY: Duration = Duration::from_millis(200);

/// How many are accepted at a time.
const ACCEPTS: usize = 256;

/// How many connections may go on with TLS's handshake before all others have had their turn: its signatures take the time of many bytes.
const SHAKES: usize = 4;

/// The first byte of TLS (a handshake record).
const TLS: u8 = 0x16;

/// Why somebody was sent away.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error("it closed")]
    Closed,
    #[error("it speaks no protocol of GridMPI's")]
    Noise,
    #[error("it begins with TLS, but this relay has no identity: see `gridmpi relay init`")]
    NoTls,
    #[error("no relay is expected without TLS: a [[peer]] with `tls = false` would be")]
    NoPlain,
    #[error("its host does not answer")]
    Unanswered,
    #[error("it took too long")]
    Late,
    #[error("others want its place, and its address has more than they")]
    Crowded,
    #[error("{0}")]
    Leg(#[from] LegError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What a look at a pending connection has given.
enum Found {
    Nothing,
    Asked(Box<Request>),
    /// A relay without TLS; its first bytes.
    Relay([u8; 8]),
    /// Somebody who begins with TLS; the first bytes, and how many.
    Tls([u8; 8], usize),
    /// Refused, and told so.
    Told(LegVerdict),
}

/// Fresh and unpredictable.
pub(crate) fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    Ok(nonce)
}

impl Daemon {
    pub(crate) fn accept_ready(&mut self, key: SocketKey) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Others have their turn in between, however many come.
        for _ in 0..ACCEPTS {
            if !self.may_accept() {
                break;
            }
            let Some(Socket::Listener(listener)) = self.sockets.all.get(key) else { return };
            match rustix::net::accept_with(listener, flags) {
                Ok(fd) => self.accepted(fd),
                Err(rustix::io::Errno::AGAIN) => break,
                // The connection ended while it waited, or the like: the next one.
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    self.cannot_accept(errno);
                    self.timer(Instant::now() + RETRY, Due::Accept);
                    (self.is_accepting, self.is_short) = (false, true);
                    break;
                }
            }
        }
        if !self.is_accepting {
            self.watch_listeners();
        }
    }

    /// Listeners are watched only while there is room, so that they do not call in vain.
    pub(crate) fn watch_listeners(&mut self) {
        for key in &self.listeners {
            if let Some(Socket::Listener(listener)) = self.sockets.all.get(*key) {
                let interest = if self.is_accepting { Interest::Read } else { Interest::None };
                let _ = self.sockets.poller.modify(listener, *key, interest);
            }
        }
    }

    fn accepted(&mut self, fd: OwnedFd) {
        self.counts.accepted += 1;
        let socket = RawSocket::from(fd);
        // One that is gone already has none.
        let address = socket.peer_addr().ok().and_then(|address| address.as_socket());
        let Some(address) = address else { return };
        if !self.has_place(address.ip()) {
            self.rejected(Some(address), &Refused::Crowded);
            return;
        }
        let fd: OwnedFd = socket.into();
        if let Err(error) = options::prepare(&fd, self.config.limits.keepalive) {
            self.rejected(Some(address), &Refused::Io(error));
            return;
        }
        let now = Instant::now();
        let stage = PendingStage::First { bytes: [0; 8], have: 0 };
        let added = self.sockets.add(fd, Interest::Read, |fd| {
            Socket::Pending(Box::new(Pending { fd, address: Some(address), accepted: now, stage }))
        });
        let Ok(key) = added else { return };
        self.pending.push(key);
        self.look_at_unproven_by(now + self.config.unproven.end);
    }

    /// One timer for all unproven connections: most are through with their handshake long before it is due.
    fn look_at_unproven_by(&mut self, at: Instant) {
        if self.unproven_due.is_none_or(|due| at < due) {
            self.unproven_due = Some(at);
            self.timer(at, Due::Unproven);
        }
    }

    pub(crate) fn look_at_unproven(&mut self, now: Instant) {
        if self.unproven_due.take_if(|due| *due <= now).is_none() {
            // Another one is to come.
            return;
        }
        for key in self.pending.clone() {
            self.pending_due(key);
        }
        let since = self.pending.iter().filter_map(|key| self.unproven(*key)).map(|it| it.1).min();
        if let Some(since) = since {
            self.look_at_unproven_by(since + self.config.unproven.end);
        }
    }

    /// Where a connection comes from whose other side has not proven itself, and since when it is there.
    pub(crate) fn unproven(&self, key: SocketKey) -> Option<(Option<SocketAddr>, Instant)> {
        match self.sockets.all.get(key)? {
            Socket::Pending(pending) => Some((pending.address, pending.accepted)),
            Socket::Trunk(trunk) if !matches!(trunk.stage, TrunkStage::Up(_)) => {
                Some((trunk.address, trunk.since))
            }
            _ => None,
        }
    }

    /// Whether somebody is there who has come by himself and has not proven who he is.
    pub(crate) fn is_strange(&self, key: SocketKey) -> bool {
        match self.sockets.all.get(key) {
            Some(Socket::Pending(_)) => true,
            Some(Socket::Trunk(trunk)) => {
                !trunk.is_dialer && !matches!(trunk.stage, TrunkStage::Up(_))
            }
            _ => false,
        }
    }

    /// Something is ready that can wait for its turn.
    pub(crate) fn is_ready_later(&mut self, ready: Ready) {
        match self.strange.iter_mut().find(|other| other.key == ready.key) {
            Some(before) => before.add(ready),
            None => self.strange.push(ready),
        }
    }

    /// Those who have not proven themselves have their turn, of those who do it by TLS a few.
    pub(crate) fn dispatch_strange(&mut self) {
        let mut shakes = 0;
        for ready in std::mem::take(&mut self.strange) {
            let is_shaking = matches!(self.sockets.all.get(ready.key),
                Some(Socket::Trunk(trunk)) if matches!(trunk.stage, TrunkStage::Shaking));
            shakes += usize::from(is_shaking);
            if is_shaking && shakes > SHAKES {
                self.strange.push(ready);
            } else {
                self.dispatch(ready);
            }
        }
    }

    /// Forgets that a connection was unproven; there is room for another.
    pub(crate) fn end_pending(&mut self, key: SocketKey) {
        let before = self.pending.len();
        self.pending.retain(|other| *other != key);
        if self.pending.len() < before {
            self.crowd.leaves();
        }
        if !self.is_draining() {
            self.accept_again();
        }
    }

    pub(crate) fn accept_again(&mut self) {
        if !self.is_accepting && !self.is_short {
            self.is_accepting = true;
            self.watch_listeners();
        }
    }

    /// The time of an unproven connection may be over.
    pub(crate) fn pending_due(&mut self, key: SocketKey) {
        let Some((_, since)) = self.unproven(key) else { return };
        let stage = self.sockets.trunk(key).map(|trunk| &trunk.stage);
        let end = self.config.unproven.end;
        let (most, why) = match stage {
            Some(TrunkStage::Connecting) => (CONNECT.min(end), Refused::Unanswered),
            _ => (end, Refused::Late),
        };
        if since.elapsed() >= most {
            self.refuse(key, &why);
        }
    }

    pub(crate) fn refuse(&mut self, key: SocketKey, why: &Refused) {
        match self.sockets.all.get(key) {
            Some(Socket::Pending(pending)) => {
                let from = pending.address;
                self.sockets.all.remove(key);
                self.rejected(from, why);
            }
            Some(Socket::Trunk(_)) => {
                self.sockets.end_trunk(key, why.to_string());
            }
            _ => {}
        }
        self.end_pending(key);
    }

    pub(crate) fn pending_ready(&mut self, key: SocketKey) {
        match self.pending_step(key) {
            Ok(Found::Nothing) => {}
            Ok(Found::Asked(request)) => {
                self.crowd.is_through();
                self.end_pending(key);
                self.asked(key, request);
            }
            Ok(Found::Relay(bytes)) => self.relay_came(key, &bytes),
            Ok(Found::Tls(bytes, have)) => {
                self.tls_came(key, bytes.get(..have).unwrap_or_default())
            }
            Ok(Found::Told(verdict)) => {
                if let Some(Socket::Pending(pending)) = self.sockets.all.get(key) {
                    self.rejected(pending.address, &Refused::Leg(LegError::Refused(verdict)));
                }
                self.end_pending(key);
                self.sockets.close_slowly(key);
            }
            Err(why) => self.refuse(key, &why),
        }
    }

    fn pending_step(&mut self, key: SocketKey) -> Result<Found, Refused> {
        let Self { sockets, config, .. } = self;
        loop {
            let Some(Socket::Pending(pending)) = sockets.all.get_mut(key) else {
                return Ok(Found::Nothing);
            };
            let Pending { fd, stage, .. } = &mut **pending;
            match stage {
                PendingStage::First { bytes, have } => {
                    let read = rustix::net::recv(&*fd, &mut bytes[*have..], RecvFlags::empty());
                    match received(read.map(|read| read.0))? {
                        None => return Ok(Found::Nothing),
                        Some(0) => return Err(Refused::Closed),
                        Some(count) => *have += count,
                    }
                    if bytes[0] == TLS {
                        return Ok(Found::Tls(*bytes, *have));
                    }
                    let begun = &bytes[..*have];
                    let (is_leg, is_relay) =
                        (LEG_MAGIC.starts_with(begun), TRUNK_MAGIC.starts_with(begun));
                    if !is_leg && !is_relay {
                        return Err(Refused::Noise);
                    }
                    if *have < bytes.len() {
                        continue;
                    }
                    if is_relay {
                        return Ok(Found::Relay(*bytes));
                    }
                    let mut host = Host::new(nonce()?);
                    host.space()[..bytes.len()].copy_from_slice(bytes);
                    let _ = host.read(bytes.len(), |_| None)?;
                    *stage = PendingStage::Leg(Box::new(host));
                }
                PendingStage::Leg(host) => {
                    let read = rustix::net::recv(&*fd, host.space(), RecvFlags::empty());
                    let count = match received(read.map(|read| read.0))? {
                        None => return Ok(Found::Nothing),
                        Some(0) => return Err(Refused::Closed),
                        Some(count) => count,
                    };
                    let step = host.read(count, |id| {
                        let mut tokens = config.tokens.iter();
                        tokens
                            .find(|token| token.key.token_id() == *id)
                            .map(|token| token.key.clone())
                    })?;
                    match step {
                        HostStep::More => {}
                        HostStep::Send(bytes) => send_all(fd, &bytes)?,
                        HostStep::Refuse(bytes, verdict) => {
                            send_all(fd, &bytes)?;
                            return Ok(Found::Told(verdict));
                        }
                        HostStep::Asked(request) => return Ok(Found::Asked(request)),
                    }
                }
            }
        }
    }

    /// A process has proven itself and wants something.
    fn asked(&mut self, key: SocketKey, request: Box<Request>) {
        let Some(Socket::Pending(pending)) = self.sockets.all.remove(key) else { return };
        let what = *request.what();
        let token = self.config.tokens.iter().find(|token| token.key.token_id() == request.token());
        let is_allowed = token
            .is_some_and(|token| token.jobs.as_ref().is_none_or(|jobs| jobs.contains(&what.job)));
        let leg = Leg {
            fd: pending.fd,
            address: pending.address,
            link: None,
            request: Some(request),
            has_ended: false,
            is_blocked: false,
            is_registered: matches!(what.errand, Errand::Register { .. }),
        };
        let poller = &self.sockets.poller;
        let mut watched = Ok(());
        let key = self.sockets.all.insert_with(|key| {
            watched = poller.modify(&leg.fd, key, Interest::Changes);
            Socket::Leg(leg)
        });
        if watched.is_err() {
            self.sockets.all.remove(key);
            return;
        }
        if !is_allowed {
            self.core.forbid(key.into());
            return;
        }
        debug!(from = ?pending.address, process = what.from.0, errand = ?what.errand, "a process asks");
        let link = self.core.ask(key.into(), &what);
        if let Some(leg) = self.sockets.leg(key) {
            leg.link = link;
        }
    }

    /// Another relay has dialled us, without TLS.
    fn relay_came(&mut self, key: SocketKey, first: &[u8]) {
        let means = self.plain_means();
        let (Some(means), Ok(nonce)) = (means, nonce()) else {
            self.refuse(key, &Refused::NoPlain);
            return;
        };
        let mut greeting = Greeting::answer(self.me, means, nonce);
        let mut out = Vec::new();
        // Eight bytes that are the magic: they can be neither wrong nor all.
        let _ = greeting.read(first, &mut out);
        self.meet(key, TrunkStage::Greeting(Box::new(greeting)), Channel::plain);
    }

    /// Somebody begins with TLS.
    fn tls_came(&mut self, key: SocketKey, first: &[u8]) {
        let connection = self.tls.clone().and_then(|config| tls::answer(config).ok());
        let Some(connection) = connection else {
            self.refuse(key, &Refused::NoTls);
            return;
        };
        let key = self.meet(key, TrunkStage::Shaking, |fd| Channel::tls(fd, connection));
        let Some(trunk) = key.and_then(|key| self.sockets.trunk(key)) else { return };
        // What is wrong with the first bytes is met again with those that follow.
        let _ = trunk.channel.feed(first);
    }

    /// What comes on this connection is for another relay's ears from now on, though it has still to prove itself.
    fn meet(
        &mut self,
        key: SocketKey,
        stage: TrunkStage,
        channel: impl FnOnce(OwnedFd) -> Channel,
    ) -> Option<SocketKey> {
        let Some(Socket::Pending(pending)) = self.sockets.all.remove(key) else { return None };
        self.pending.retain(|other| *other != key);
        let trunk = Trunk {
            channel: channel(pending.fd),
            stage,
            address: pending.address,
            is_dialer: false,
            known: None,
            since: pending.accepted,
            has_ended: false,
            is_blocked: false,
            acknowledged: 0,
            is_active: false,
            is_asking: false,
            rate: None,
        };
        let poller = &self.sockets.poller;
        let mut watched = Ok(());
        let key = self.sockets.all.insert_with(|key| {
            watched = poller.modify(&trunk.channel.fd, key, Interest::Changes);
            Socket::Trunk(Box::new(trunk))
        });
        if watched.is_err() {
            self.sockets.all.remove(key);
            return None;
        }
        self.pending.push(key);
        self.look_at_unproven_by(pending.accepted + self.config.unproven.end);
        Some(key)
    }
}

/// A message that a fresh connection has room for.
fn send_all(fd: &OwnedFd, bytes: &[u8]) -> Result<(), Refused> {
    match send(fd, &[std::io::IoSlice::new(bytes)])? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(Refused::Closed),
    }
}
