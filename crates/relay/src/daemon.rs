//! The loop: one thread, the sockets, the core.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tracing::{info, warn};

use crate::alarm::Alarm;
use crate::arena::{Arena, Key};
use crate::bounds::{self, Lines, Said};
use crate::cell::RelayId;
use crate::channel::received;
use crate::clock::Clock;
use crate::config::{Config, Proof};
use crate::control::{Command, Handle};
use crate::core::Core;
use crate::crowd::Crowd;
use crate::dial::Known;
use crate::http::Http;
use crate::lookout::Lookout;
use crate::metrics::{Path, PeerSeen, Snapshot};
use crate::notify;
use crate::options;
use crate::poller::{Interest, Ready};
use crate::signals::Heed;
use crate::sockets::{Socket, SocketKey, Sockets};

/// Bytes read from another relay at a time.
const INBOUND: usize = 256 * 1024;

/// How long one that was refused may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// What is due at some time. Whether it still is its owner sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Accept,
    /// Of those who have connected.
    Unproven,
    /// Of those for whom there is no place.
    Crowd,
    /// Of one that we have dialled.
    Pending(SocketKey),
    Dial(Key<Known>),
    Closing,
    Drained,
    Http,
}

/// What was counted outside the core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Connections of processes that were given up since nobody answered.
    pub(crate) silent: u64,
}

/// A relay.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) config: Config,
    pub(crate) me: RelayId,
    pub(crate) core: Core,
    pub(crate) sockets: Sockets,
    pub(crate) known: Arena<Known>,
    pub(crate) handle: Handle,
    pub(crate) listeners: Vec<SocketKey>,
    /// Connections whose other side has not proven itself, oldest first.
    pub(crate) pending: Vec<SocketKey>,
    pub(crate) is_accepting: bool,
    pub(crate) crowd: Crowd,
    /// The system has given no descriptor for one that came: accepting rests.
    pub(crate) is_short: bool,
    /// What was said of connections that were refused.
    pub(crate) strangers: Lines,
    pub(crate) silent: Lines,
    /// What was said to be full.
    pub(crate) said: Said,
    pub(crate) inbound: Vec<u8>,
    /// Anybody's between calls.
    pub(crate) scratch: Vec<u8>,
    pub(crate) ranges: Vec<Range<usize>>,
    /// Connections to relays that were not read to their end.
    pub(crate) again: Vec<SocketKey>,
    /// What is ready of those who have not proven themselves.
    pub(crate) strange: Vec<Ready>,
    pub(crate) counts: Counts,
    addresses: Vec<SocketAddr>,
    clock: Clock,
    timers: BinaryHeap<Reverse<(Duration, Due)>>,
    /// Nothing is due before, of the core's neither.
    due: Option<Duration>,
    /// Something may be due earlier.
    is_due_sooner: bool,
    alarm: Alarm,
    lookout: Lookout,
    /// Signals are heeded.
    pub(crate) heed: Option<Heed>,
    pub(crate) http: Option<Http>,
    draining: Option<Instant>,
    is_over: bool,
    /// When unproven connections are looked at.
    pub(crate) unproven_due: Option<Instant>,
    /// A look at those that were refused is among the timers.
    is_closing_due: bool,
    /// What those are answered with who begin with TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

impl Daemon {
    /// Listens, and dials; nothing is answered before [`Self::run`].
    ///
    /// # Errors
    /// An address that cannot be listened on, or too few descriptors.
    pub fn new(mut config: Config) -> io::Result<Self> {
        bounds::bound_connections(&mut config)?;
        let handle = Handle::new()?;
        let mut sockets = Sockets::new()?;
        sockets.add(handle.wake_fd()?, Interest::Read, Socket::Wake)?;
        let clock = Clock::new();
        let alarm = Alarm::new(clock)?;
        sockets.add(alarm.fd()?, Interest::Changes, Socket::Alarm)?;
        let me = match &config.identity {
            Some(identity) => identity.fingerprint().relay(),
            None => {
                let mut name = [0; 16];
                getrandom::fill(&mut name).map_err(io::Error::other)?;
                RelayId(name)
            }
        };
        let mut known = Arena::default();
        config.peers.iter().for_each(|peer| {
            known.insert(Known::new(peer.clone()));
        });
        let mut daemon = Self {
            me,
            core: Core::new(me, config.limits.clone()),
            sockets,
            known,
            handle,
            listeners: Vec::new(),
            pending: Vec::new(),
            is_accepting: true,
            crowd: Crowd::default(),
            is_short: false,
            strangers: Lines::default(),
            silent: Lines::default(),
            said: Said::default(),
            inbound: vec![0; INBOUND],
            scratch: vec![0; INBOUND],
            ranges: Vec::new(),
            again: Vec::new(),
            strange: Vec::new(),
            counts: Counts::default(),
            addresses: Vec::new(),
            clock,
            timers: BinaryHeap::new(),
            due: None,
            is_due_sooner: true,
            alarm,
            lookout: Lookout::new(),
            heed: None,
            http: None,
            draining: None,
            is_over: false,
            unproven_due: None,
            is_closing_due: false,
            tls: None,
            config,
        };
        daemon.tell_beside();
        daemon.prepare_tls()?;
        daemon.listen()?;
        daemon.say_what_is_plain();
        daemon.dial_all();
        Ok(daemon)
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// To speak to it from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether an address of IPv6 is listened on beside one of IPv4 with the same port.
    fn shares_port(&self, address: SocketAddr) -> bool {
        let same = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
        address.is_ipv6() && address.port() != 0 && self.config.listen.iter().any(same)
    }

    fn listen(&mut self) -> io::Result<()> {
        for address in self.config.listen.clone() {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            };
            let (fd, bound) = listener(address, self.shares_port(address)).map_err(named)?;
            let key = self.sockets.add(fd, Interest::Read, Socket::Listener)?;
            self.listeners.push(key);
            self.addresses.push(bound);
            info!(address = %bound, "listening");
        }
        Ok(())
    }

    /// Makes ready what others are answered with who begin with TLS.
    pub(crate) fn prepare_tls(&mut self) -> io::Result<()> {
        let Some(identity) = &self.config.identity else { return Ok(()) };
        let known = self.config.peers.iter().filter_map(|peer| match &peer.proof {
            Proof::Fingerprint(fingerprint) => Some(*fingerprint),
            Proof::Secret(_) => None,
        });
        let config = crate::tls::server(identity, known.collect()).map_err(io::Error::other)?;
        self.tls = Some(config);
        Ok(())
    }

    pub(crate) fn say_what_is_plain(&self) {
        for peer in &self.config.peers {
            if matches!(peer.proof, Proof::Secret(_)) {
                warn!(
                    peer = peer.name,
                    "NOT ENCRYPTED: whoever is between reads and can change what goes to and from this relay"
                );
            }
        }
    }

    pub(crate) fn timer(&mut self, at: Instant, due: Due) {
        self.timers.push(Reverse((self.clock.at(at), due)));
        self.is_due_sooner = true;
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// The kernel's event queue fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut now = self.clock.now();
        while !self.is_over {
            self.wait(&mut ready, now)?;
            now = self.clock.now();
            self.core.at(now);
            if !self.again.is_empty() {
                for key in std::mem::take(&mut self.again) {
                    self.read_trunk(key);
                }
            }
            self.dispatch_all(&mut ready);
            self.do_what_is_due(now);
            self.settle();
            self.say_what_is_full();
            self.end_if_drained();
        }
        Ok(())
    }

    /// Those who are known come first.
    pub(crate) fn dispatch_all(&mut self, ready: &mut Vec<Ready>) {
        for event in ready.drain(..) {
            if self.is_strange(event.key) {
                self.is_ready_later(event);
            } else {
                self.dispatch(event);
            }
        }
        self.dispatch_strange();
    }

    /// `now`: before what was done since the last wait.
    fn wait(&mut self, ready: &mut Vec<Ready>, now: Duration) -> io::Result<()> {
        if self.core.take_sooner() | std::mem::take(&mut self.is_due_sooner) {
            self.look_what_is_due();
        }
        if !self.again.is_empty() || !self.strange.is_empty() || self.core.has_more() {
            return self.sockets.poller.wait(Some(Duration::ZERO), ready);
        }
        if let Some(time) = self.lookout.time(self.config.busy_poll) {
            self.look(time, ready)?;
            if !ready.is_empty() {
                return Ok(());
            }
        }
        if let Some(due) = self.due {
            self.alarm.set(due, now)?;
        }
        self.sockets.poller.wait(None, ready)
    }

    /// Until something comes, or is due, for `time` at most.
    fn look(&mut self, time: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let since = self.clock.now();
        let most = self.due.map_or(time, |due| time.min(due.saturating_sub(since)));
        loop {
            self.sockets.poller.wait(Some(Duration::ZERO), ready)?;
            let is_over = self.clock.now() - since >= most;
            match (ready.is_empty(), is_over) {
                (false, false) => self.lookout.found(),
                (_, true) if most == time => self.lookout.in_vain(),
                // What is due says nothing of whether looks are worth it.
                (_, true) => {}
                // Whoever else wants the processor may be the one that has something for us.
                (true, false) => {
                    std::thread::yield_now();
                    continue;
                }
            }
            return Ok(());
        }
    }

    pub(crate) fn dispatch(&mut self, ready: Ready) {
        match self.sockets.all.get_mut(ready.key) {
            Some(Socket::Leg(_)) => self.leg_ready(ready),
            Some(Socket::Trunk(_)) => self.trunk_ready(ready),
            Some(Socket::Listener(_)) => self.accept_ready(ready.key),
            Some(Socket::Pending(_)) => self.pending_ready(ready.key),
            Some(Socket::Closing(fd)) => {
                let read = rustix::net::recv(&*fd, &mut self.inbound[..], RecvFlags::empty());
                if !matches!(received(read.map(|read| read.0)), Ok(None | Some(1..))) {
                    self.sockets.all.remove(ready.key);
                }
            }
            Some(Socket::Wake(_)) => self.obey(),
            Some(Socket::Signals(_)) => self.signals_ready(),
            Some(Socket::Http(_)) => self.answer_next(),
            Some(Socket::Alarm(_)) | None => {}
        }
    }

    fn leg_ready(&mut self, ready: Ready) {
        let Some(leg) = self.sockets.leg(ready.key) else { return };
        leg.has_ended |= ready.has_ended;
        let Some(link) = leg.link else { return };
        // A process that has registered says nothing more, and ends it by closing.
        if ready.has_failed || (leg.is_registered && ready.is_readable) {
            let why = if ready.has_failed { "reset" } else { "closed" };
            let silent = options::is_unanswered(&leg.fd).then_some(leg.address);
            self.sockets.failed.push((link, ready.key, why.to_owned()));
            if let Some(process) = silent {
                self.given_up(process);
            }
            return;
        }
        if ready.is_writable && std::mem::take(&mut leg.is_blocked) {
            self.core.writable(link);
        }
        if ready.is_readable {
            self.core.readable(link);
        }
    }

    pub(crate) fn obey(&mut self) {
        for command in self.handle.take() {
            match command {
                Command::End => self.end(),
                Command::Reload(config) => {
                    self.reload(*config);
                    self.forget_page();
                }
                Command::Snapshot(to) => {
                    // Whoever asked may have lost patience.
                    let _ = to.send(self.snapshot());
                }
                Command::Page(to) => {
                    let _ = to.send(self.page(Instant::now()));
                }
                Command::Answered(number) => self.answered(number),
                Command::Resolved(key, found) => self.resolved(key, found),
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut peers: Vec<PeerSeen> = Vec::new();
        for (key, known) in self.known.iter() {
            let (mut round_trip, mut path) = (None::<Duration>, Path::default());
            for (link, wire) in self.core.trunks() {
                match self.sockets.all.get(wire.into()) {
                    Some(Socket::Trunk(trunk)) if trunk.known == Some(key) => {
                        let measured = self.core.round_trip(link);
                        round_trip = round_trip.into_iter().chain(measured).min();
                        path.add(options::path(&trunk.channel.fd));
                    }
                    _ => {}
                }
            }
            let (name, connections) = (known.peer.name.clone(), known.up);
            peers.push(PeerSeen { name, connections, round_trip, path });
        }
        Snapshot {
            is_draining: self.is_draining(),
            peers,
            counts: self.core.counts().clone(),
            gauges: self.core.gauges(),
            outside: self.counts.clone(),
            unproven: self.pending.len(),
        }
    }

    /// In order; at once if it was told before.
    pub(crate) fn end(&mut self) {
        if self.is_draining() {
            self.is_over = true;
        } else {
            self.drain();
        }
    }

    fn drain(&mut self) {
        let (circuits, drain) = (self.core.circuits(), self.config.drain);
        notify::notify_stopping(&format!(
            "draining: nothing new is taken; what is left of {circuits} circuits is cut after {} s",
            drain.as_secs()
        ));
        let until = Instant::now() + drain;
        info!(circuits, "draining: nothing new is taken");
        self.draining = Some(until);
        self.timer(until, Due::Drained);
        self.core.drain();
    }

    fn end_if_drained(&mut self) {
        let Some(until) = self.draining else { return };
        if self.core.circuits() == 0 || Instant::now() >= until {
            self.is_over = true;
        }
        if self.is_over {
            self.core.end();
            self.settle();
            info!("the relay ends");
        }
    }

    fn look_what_is_due(&mut self) {
        let own = self.timers.peek().map(|Reverse((at, _))| *at);
        self.due = own.into_iter().chain(self.core.next_due()).min();
    }

    fn do_what_is_due(&mut self, now: Duration) {
        // What has become due earlier meanwhile the next wait will find.
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.is_due_sooner = true;
        if self.core.next_due().is_some_and(|due| due <= now) {
            self.look_at_trunks();
            self.core.tick();
        }
        while let Some(&Reverse((at, due))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            match due {
                Due::Accept => {
                    (self.is_accepting, self.is_short) = (true, false);
                    self.watch_listeners();
                }
                Due::Unproven => self.look_at_unproven(self.clock.instant(now)),
                Due::Crowd => self.look_at_crowd(),
                Due::Pending(key) => self.pending_due(key),
                Due::Dial(key) => self.dial(key),
                Due::Closing => self.close_late(self.clock.instant(now)),
                Due::Http => self.answer_next(),
                Due::Drained => {}
            }
        }
    }

    fn close_late(&mut self, now: Instant) {
        let Sockets { closing, all, .. } = &mut self.sockets;
        closing.retain(|(since, key)| {
            let is_late = now >= *since + CLOSING;
            if is_late {
                all.remove(*key);
            }
            !is_late && all.get(*key).is_some()
        });
        self.is_closing_due = false;
        self.end_closing_in_time();
    }

    /// Those that were refused have not for ever.
    fn end_closing_in_time(&mut self) {
        if let (false, Some((since, _))) = (self.is_closing_due, self.sockets.closing.front()) {
            self.is_closing_due = true;
            self.timer(*since + CLOSING, Due::Closing);
        }
    }

    /// Lets the core do what it has to do, and looks after what fails on the way.
    fn settle(&mut self) {
        loop {
            self.core.flush(&[], &mut self.sockets);
            self.end_closing_in_time();
            let failed = std::mem::take(&mut self.sockets.failed);
            if failed.is_empty() && self.sockets.lost.is_empty() {
                return;
            }
            for (link, key, why) in failed {
                self.core.gone(link);
                if self.sockets.trunk(key).is_some() {
                    self.end_trunk(key, why);
                } else if self.sockets.leg(key).is_some_and(|leg| leg.link == Some(link)) {
                    self.sockets.all.remove(key);
                }
            }
            self.look_after_lost();
        }
    }
}

/// `is_only_v6`: an address of IPv6 that stands for all of the host takes no connections of IPv4.
fn listener(address: SocketAddr, is_only_v6: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = RawSocket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if is_only_v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    // A job's processes come all at once. What the system allows (net.core.somaxconn) may be less.
    socket.listen(4096)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket.into(), bound))
}
