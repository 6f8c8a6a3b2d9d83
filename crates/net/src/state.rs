//! Everything behind the lock: the endpoint, the sockets and who is connected to whom.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gridmpi_engine::{Endpoint, Patience};
use gridmpi_wire::{ProcId, Strand};
use rustix::event::{EventfdFlags, eventfd};

use crate::absence::Absences;
use crate::accept::Pending;
use crate::attempt::Attempt;
use crate::bind::Bound;
use crate::counts::{Counts, Stalls};
use crate::dial::Dial;
use crate::handshake::Identity;
use crate::link::Link;
use crate::losses::Losses;
use crate::owner::Owner;
use crate::paces::Paces;
use crate::paths::Paths;
use crate::poller::{Interest, Poller, Ready, Slots, Token};
use crate::regulation::Regulation;
use crate::relays::{Leg, Registrations};
use crate::timers::{Due, Timers};
use crate::{Failure, Limits, NetConfig, Stats};

/// Bytes read from a socket at a time when it is not known where they belong; shared by all
/// connections.
const STAGING: usize = 64 * 1024;

/// What a token stands for.
#[derive(Debug)]
pub(crate) enum Socket {
    Listener(OwnedFd),
    Timers,
    Wake,
    Pending(Box<Pending>),
    Attempt(Box<Attempt>),
    /// To a relay, for our own registration or for a circuit to us.
    Leg(Box<Leg>),
    Link(Box<Link>),
}

/// What we know of a process of another cluster.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// The connections that stand, in the order in which they were made.
    pub(crate) links: Vec<(Strand, Token)>,
    /// The place among them of the one that their next turn begins with; perhaps beyond.
    pub(crate) next_link: usize,
    /// Those we try to make.
    pub(crate) dials: Vec<Dial>,
    /// No more than one is tried to make before then.
    pub(crate) alone_until: Option<Instant>,
    /// It was given up.
    pub(crate) is_lost: bool,
    /// Connections that were lost since something new came.
    pub(crate) losses: Option<Losses>,
    /// How the last connection ended, if it was not in order.
    pub(crate) ended: Option<String>,
    /// Where that one led: the last place to try first.
    pub(crate) lost_way: Option<SocketAddr>,
}

impl Peer {
    /// The connection with this number, if it stands.
    pub(crate) fn link(&self, strand: Strand) -> Option<Token> {
        self.links.iter().find(|link| link.0 == strand).map(|link| link.1)
    }

    /// How we try to make the connection with this number, if we do.
    pub(crate) fn dial(&mut self, strand: Strand) -> Option<&mut Dial> {
        self.dials.iter_mut().find(|dial| dial.strand == strand)
    }

    pub(crate) fn has_link(&self) -> bool {
        !self.links.is_empty()
    }

    /// There are several connections, which share what there is to be sent.
    pub(crate) fn has_several(&self) -> bool {
        self.links.len() > 1
    }
}

/// What can be seen without the lock. Written under it, but for `is_stopping`.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    progress: AtomicU64,
    has_failed: AtomicBool,
    /// The driver thread is to end.
    pub(crate) is_stopping: AtomicBool,
}

impl Signs {
    /// Grows with everything that a waiting thread may want to look at. Read without the lock it may
    /// be behind, never ahead of what the lock would show.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// There is something to look at.
    pub(crate) fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Release);
    }

    /// Whether there is a failure to ask for.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }
}

/// Makes the wake-up event ready.
pub(crate) fn ring(wake: &OwnedFd) {
    // It fails only when it is ready already.
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    pub(crate) us: Identity,
    pub(crate) config: NetConfig,
    pub(crate) poller: Arc<Poller>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) sockets: Slots<Socket>,
    pub(crate) peers: HashMap<ProcId, Peer>,
    /// How many connections we try to make.
    pub(crate) dialling: usize,
    pub(crate) timers: Timers,
    pub(crate) paces: Paces,
    pub(crate) paths: Paths,
    /// Where rates are found online.
    pub(crate) regulation: Option<Regulation>,
    pub(crate) staging: Vec<u8>,
    /// Space for the events of a poll.
    pub(crate) ready: Vec<Ready>,
    pub(crate) failure: Option<Failure>,
    pub(crate) stats: Stats,
    pub(crate) counts: Counts,
    pub(crate) stalls: Stalls,
    /// On connections that are no more.
    pub(crate) retransmits_before: u64,
    pub(crate) signs: Arc<Signs>,
    /// Unauthenticated connections, oldest first.
    pub(crate) pending: Vec<Token>,
    pub(crate) listeners: Vec<Token>,
    pub(crate) registrations: Registrations,
    pub(crate) absences: Absences,
    /// A look at the relays' pulse is due.
    pub(crate) is_watching_pulse: bool,
    pub(crate) is_accepting: bool,
    /// All is said, or the time for it is over: no new connections.
    pub(crate) is_closing: bool,
    seen_completions: u64,
    is_tick_set: [bool; Patience::ALL.len()],
    /// Asked before sockets are touched: a child made by `fork` must not.
    owner: Owner,
    to_transmit: Vec<ProcId>,
}

impl State {
    pub(crate) fn new(bound: Bound, config: NetConfig) -> io::Result<Self> {
        let us = Identity {
            me: config.me,
            procs: config.peers.len() as u32,
            job: config.job,
            key: config.key.clone(),
        };
        let paces = Paces::new(&config.pacing, config.me);
        let online = config.pacing.online.clone();
        let regulation =
            online.and_then(|online| Regulation::new(online, config.me, Instant::now()));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let owner = Owner::new(config.forked);
        let mut state = Self {
            endpoint: Endpoint::new(config.engine.clone()),
            us,
            config,
            poller: Arc::new(Poller::new()?),
            wake: Arc::new(eventfd(0, flags)?),
            sockets: Slots::default(),
            peers: HashMap::new(),
            dialling: 0,
            timers: Timers::new()?,
            paces,
            paths: Paths::default(),
            regulation,
            staging: vec![0; STAGING],
            ready: Vec::new(),
            failure: None,
            stats: Stats::default(),
            counts: Counts::default(),
            stalls: Stalls::default(),
            retransmits_before: 0,
            signs: Arc::default(),
            pending: Vec::new(),
            listeners: Vec::new(),
            registrations: Registrations::default(),
            absences: Absences::default(),
            is_watching_pulse: false,
            is_accepting: true,
            is_closing: false,
            seen_completions: 0,
            is_tick_set: [false; Patience::ALL.len()],
            owner,
            to_transmit: Vec::new(),
        };
        state.introduce_claims();
        state.register(bound)?;
        state.register_at_relays();
        state.call();
        Ok(state)
    }

    fn register(&mut self, bound: Bound) -> io::Result<()> {
        let token = self.sockets.reserve();
        self.poller.add(self.timers.fd(), token, Interest::Read)?;
        self.sockets.put(token, Socket::Timers);
        let token = self.sockets.reserve();
        self.poller.add(&*self.wake, token, Interest::Read)?;
        self.sockets.put(token, Socket::Wake);
        for listener in bound.listeners {
            let token = self.sockets.reserve();
            self.poller.add(&listener, token, Interest::Read)?;
            self.sockets.put(token, Socket::Listener(listener));
            self.listeners.push(token);
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Handles what the kernel says is ready, and sends what that gave to send. `may_clear_wake`:
    /// the caller is whom the wake event is for.
    pub(crate) fn handle(&mut self, ready: &[Ready], may_clear_wake: bool) {
        let looked = Instant::now();
        if !ready.is_empty() {
            self.owner.assert_here();
        }
        for ready in ready {
            // Taken out while it works on the rest of the state; put back unless it ended.
            let Some(socket) = self.sockets.take(ready.token) else { continue };
            match socket {
                Socket::Link(link) => self.link_ready(ready, link),
                Socket::Listener(listener) => self.accept_ready(ready.token, listener),
                Socket::Pending(pending) => self.pending_ready(ready.token, pending),
                Socket::Attempt(attempt) => self.attempt_ready(ready.token, attempt),
                Socket::Leg(leg) => self.leg_ready(ready, leg),
                Socket::Timers => {
                    self.sockets.put(ready.token, Socket::Timers);
                    self.timers_ready();
                }
                Socket::Wake => {
                    self.sockets.put(ready.token, Socket::Wake);
                    if may_clear_wake {
                        self.clear_wake();
                    }
                }
            }
        }
        self.flush_after(Some(looked));
    }

    fn clear_wake(&self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        // That may have been what was to end the driver, which sleeps or is about to.
        if self.signs.is_stopping.load(Ordering::SeqCst) {
            ring(&self.wake);
        }
    }

    fn timers_ready(&mut self) {
        for due in self.timers.expired(Instant::now()) {
            match due {
                Due::Tick(patience) => {
                    self.is_tick_set[patience as usize] = false;
                    self.endpoint.tick(patience);
                }
                Due::Handshake(token) => self.handshake_due(token),
                Due::Dial(peer, strand) => self.dial_due(peer, strand),
                Due::Attempt(token) => self.attempt_due(token),
                Due::Leg(token) => self.leg_due(token),
                Due::Register(relay) => self.register_due(relay),
                Due::Turn(cluster) => self.turn_due(cluster),
                Due::Open(cluster) => self.open_due(cluster),
                Due::Step => self.step_due(),
                Due::Look => self.look_due(),
                Due::Pulse => self.pulse_due(),
            }
        }
    }

    /// Makes the connections and writes the bytes that the endpoint asks for, as far as that goes
    /// without waiting.
    pub(crate) fn flush(&mut self) {
        self.flush_after(None);
    }

    /// `looked`: what the sockets had to say up to then has just been handled.
    fn flush_after(&mut self, looked: Option<Instant>) {
        self.connect_and_transmit();
        while self.regulate(looked) {
            self.connect_and_transmit();
        }
        for patience in Patience::ALL {
            self.arm_tick(patience);
        }
        let completions = self.endpoint.completions();
        if completions != self.seen_completions {
            self.seen_completions = completions;
            self.signs.advance();
        }
    }

    fn arm_tick(&mut self, patience: Patience) {
        let is_set = &mut self.is_tick_set[patience as usize];
        if !*is_set && self.endpoint.wants_tick(patience) {
            *is_set = true;
            let after = match patience {
                Patience::Brief => self.config.limits.tick,
                Patience::Long => self.config.limits.long_tick,
            };
            self.timers.set(Instant::now() + after, Due::Tick(patience));
        }
    }

    fn connect_and_transmit(&mut self) {
        while let Some(peer) = self.endpoint.wants_connection() {
            self.owner.assert_here();
            self.dial(peer);
        }
        let mut peers = std::mem::take(&mut self.to_transmit);
        self.endpoint.wants_transmit(&mut peers);
        if !peers.is_empty() {
            self.owner.assert_here();
        }
        // What a connection had that is lost meanwhile goes over the others.
        while !peers.is_empty() {
            for peer in peers.drain(..) {
                self.transmit(peer);
            }
            self.endpoint.wants_transmit(&mut peers);
        }
        self.to_transmit = peers;
    }

    pub(crate) fn transmit(&mut self, peer: ProcId) {
        let Some(known) = self.peers.get(&peer).filter(|peer| peer.has_link()) else { return };
        if known.has_several() {
            self.transmit_on_several(peer);
            return;
        }
        let token = known.links[0].1;
        // Absent while it is being handled: its handler writes then.
        let Some(Socket::Link(link)) = self.sockets.take(token) else { return };
        self.write_link(token, link);
    }

    /// The peer's record, new if there was none.
    pub(crate) fn peer(&mut self, peer: ProcId) -> &mut Peer {
        self.peers.entry(peer).or_default()
    }

    /// The peer cannot be talked to any more. `failure`: and that is no orderly end.
    pub(crate) fn give_up(&mut self, id: ProcId, reason: &str, failure: Option<Failure>) {
        let peer = self.peer(id);
        peer.is_lost = true;
        let (links, dials) = (std::mem::take(&mut peer.links), std::mem::take(&mut peer.dials));
        for (_, token) in links {
            self.release_link(token);
        }
        self.dialling -= dials.len();
        for token in dials.into_iter().filter_map(|dial| dial.attempt) {
            self.sockets.release(token);
        }
        self.forget_absence(id);
        self.endpoint.peer_lost(id, reason);
        self.signs.advance();
        self.unclaim(id);
        if self.regulation.as_ref().is_some_and(|regulation| regulation.is_near(id)) {
            // No message of the program's goes there.
            self.lose_near(id, reason, failure.is_none());
            return;
        }
        self.lose_far(id);
        if self.failure.is_none() && failure.is_some() {
            if let (Some(lost), Some(failure), false) =
                (&self.config.lost, &failure, self.is_closing)
            {
                (lost.0)(failure);
            }
            self.failure = failure;
            self.signs.has_failed.store(true, Ordering::Release);
        }
    }
}
