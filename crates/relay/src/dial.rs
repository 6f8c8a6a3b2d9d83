//! The relays that this one knows: who dials whom, and when again.

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tracing::{debug, info, warn};

use crate::accept::nonce;
use crate::arena::Key;
use crate::bounds::Lines;
use crate::channel::Channel;
use crate::config::{Peer, Proof};
use crate::control::Command;
use crate::daemon::{Daemon, Due};
use crate::greet::{Greeting, Means};
use crate::options;
use crate::poller::Interest;
use crate::sockets::{Lost, Socket, SocketKey, Trunk, TrunkStage};
use crate::tls::{self, Fingerprint};

/// The shortest and the longest time between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A connection that stood for less is one that failed: whoever lets us in and closes is not to be dialled without end.
const STEADY: Duration = Duration::from_secs(1);

/// So long the other host has to answer. The kernel asks again after each second; a connection that comes of the third time it has asked
/// begins with a window of one segment (RFC 5681, §3.1), and whoever moves to it when another is lost waits for that to open.
pub(crate) const CONNECT: Duration = Duration::from_millis(1900);

/// Another relay that this one knows.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) peer: Peer,
    /// Connections that stand.
    pub(crate) up: usize,
    /// Those of them that it has made; at most `MOST_CONNECTIONS`.
    pub(crate) came: usize,
    /// Connections that are being made.
    attempts: usize,
    /// Its name is being looked up.
    is_resolving: bool,
    /// What is still to be tried of what its name led to.
    addresses: VecDeque<SocketAddr>,
    wait: Duration,
    /// No attempt before.
    not_before: Option<Instant>,
    /// Somebody was told that it cannot be reached.
    has_complained: bool,
    /// How much was said of its coming and going.
    lines: Lines,
}

impl Known {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            up: 0,
            came: 0,
            attempts: 0,
            is_resolving: false,
            addresses: VecDeque::new(),
            wait: FIRST_WAIT,
            not_before: None,
            has_complained: false,
            lines: Lines::default(),
        }
    }

    /// Other settings hold for it. Its connections go on; at another address it is tried at once.
    pub(crate) fn is_now(&mut self, peer: Peer) {
        if peer.address != self.peer.address {
            self.addresses.clear();
            (self.wait, self.not_before) = (FIRST_WAIT, None);
        }
        self.peer = peer;
    }

    /// Whether to tell that it has come, or is gone: it may do so as often as it pleases.
    pub(crate) fn is_told_of(&mut self) -> bool {
        let (is_told, before) = self.lines.another(Instant::now());
        if before > 0 {
            info!(peer = self.peer.name, count = before, "it came and went more often");
        }
        is_told
    }
}

impl Daemon {
    /// What plain connections that come in are proven by.
    pub(crate) fn plain_means(&self) -> Option<Means> {
        let secrets: Vec<_> = self
            .known
            .iter()
            .filter_map(|(_, known)| match &known.peer.proof {
                Proof::Secret(secret) => Some(secret.clone()),
                Proof::Fingerprint(_) => None,
            })
            .collect();
        (!secrets.is_empty()).then_some(Means::Secrets(secrets))
    }

    /// Dials whoever lacks connections.
    pub(crate) fn dial_all(&mut self) {
        for key in self.known.keys() {
            self.dial(key);
        }
    }

    pub(crate) fn dial(&mut self, key: Key<Known>) {
        if self.is_draining() {
            return;
        }
        let Some(known) = self.known.get_mut(key) else { return };
        let Some(address) = known.peer.address.clone() else { return };
        let has_enough = known.up + known.attempts >= known.peer.connections;
        let is_early = known.not_before.is_some_and(|at| Instant::now() < at);
        if has_enough || is_early || known.is_resolving || known.attempts > 0 {
            return;
        }
        known.is_resolving = true;
        let handle = self.handle.clone();
        // Looking up a name waits; the loop must not.
        let looked_up = std::thread::Builder::new().name("resolve".to_owned()).spawn(move || {
            let found = address.to_socket_addrs().map(Iterator::collect);
            let found = found.map_err(|error| format!("{address}: {error}"));
            handle.say(Command::Resolved(key, found));
        });
        if looked_up.is_err() {
            known.is_resolving = false;
            self.attempt_failed(key, "no thread to look up its name");
        }
    }

    pub(crate) fn resolved(&mut self, key: Key<Known>, found: Result<Vec<SocketAddr>, String>) {
        let Some(known) = self.known.get_mut(key) else { return };
        known.is_resolving = false;
        match found {
            Ok(addresses) => {
                known.addresses = addresses.into();
                self.attempt(key);
            }
            Err(error) => self.attempt_failed(key, &error),
        }
    }

    /// Makes the connections that lack to the next address.
    fn attempt(&mut self, key: Key<Known>) {
        let Some(known) = self.known.get_mut(key) else { return };
        let lacking = known.peer.connections.saturating_sub(known.up + known.attempts);
        let Some(address) = known.addresses.pop_front() else {
            self.attempt_failed(key, "its name leads nowhere");
            return;
        };
        for _ in 0..lacking {
            match self.connect(key, address) {
                Ok(()) => {
                    if let Some(known) = self.known.get_mut(key) {
                        known.attempts += 1;
                    }
                }
                Err(error) => {
                    self.attempt_failed(key, &format!("{address}: {error}"));
                    return;
                }
            }
        }
    }

    fn connect(&mut self, key: Key<Known>, address: SocketAddr) -> std::io::Result<()> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = RawSocket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let fd: OwnedFd = socket.into();
        options::prepare(&fd, self.config.limits.keepalive)?;
        let now = Instant::now();
        let socket = self.sockets.add(fd, Interest::Write, |fd| {
            Socket::Trunk(Box::new(Trunk {
                channel: Channel::plain(fd),
                stage: TrunkStage::Connecting,
                address: Some(address),
                is_dialer: true,
                known: Some(key),
                since: now,
                has_ended: false,
                is_blocked: false,
                acknowledged: 0,
                is_active: false,
                is_asking: false,
                rate: None,
            }))
        })?;
        let end = self.config.unproven.end;
        self.timer(now + CONNECT.min(end), Due::Pending(socket));
        self.timer(now + end, Due::Pending(socket));
        Ok(())
    }

    /// A connection that we make has been made, or not.
    pub(crate) fn connected(&mut self, key: SocketKey) {
        let Some(trunk) = self.sockets.trunk(key) else { return };
        let error = match rustix::net::sockopt::socket_error(&trunk.channel.fd) {
            Ok(Ok(())) => None,
            Ok(Err(errno)) | Err(errno) => Some(errno),
        };
        if let Some(errno) = error {
            self.sockets.end_trunk(key, errno.to_string());
            return;
        }
        let known = trunk.known;
        let proof =
            known.and_then(|known| self.known.get(known)).map(|known| known.peer.proof.clone());
        let begun = match proof {
            Some(Proof::Secret(secret)) => self.greet_as_dialer(key, Means::Secrets(vec![secret])),
            Some(Proof::Fingerprint(fingerprint)) => self.begin_tls(key, fingerprint),
            None => Err("the relay is not known any more".to_owned()),
        };
        let Some(Socket::Trunk(trunk)) = self.sockets.all.get_mut(key) else { return };
        let watched = self.sockets.poller.modify(&trunk.channel.fd, key, Interest::Changes);
        if let Err(error) = begun.and(watched.map_err(|error| error.to_string())) {
            self.sockets.end_trunk(key, error);
        }
    }

    fn begin_tls(&mut self, key: SocketKey, to: Fingerprint) -> Result<(), String> {
        let us = self.config.identity.as_ref().ok_or("this relay has no identity for TLS")?;
        let connection = tls::dial(us, to).map_err(|error| error.to_string())?;
        let trunk = self.sockets.trunk(key).ok_or("it is gone")?;
        trunk.channel.set_tls(connection);
        trunk.stage = TrunkStage::Shaking;
        trunk.channel.flush().map(drop).map_err(|error| error.to_string())
    }

    /// Says the first word to another relay.
    pub(crate) fn greet_as_dialer(&mut self, key: SocketKey, means: Means) -> Result<(), String> {
        let nonce = nonce().map_err(|error| error.to_string())?;
        let mut hello = Vec::new();
        let greeting = Greeting::dial(self.me, means, nonce, &mut hello);
        let trunk = self.sockets.trunk(key).ok_or("it is gone")?;
        trunk.stage = TrunkStage::Greeting(Box::new(greeting));
        let written = trunk.channel.write(&[std::io::IoSlice::new(&hello)]);
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Connections to other relays have ended.
    pub(crate) fn look_after_lost(&mut self) {
        let mut is_fewer = false;
        for lost in std::mem::take(&mut self.sockets.lost) {
            let Lost { known, address, is_dialer, stood, why } = lost;
            if !is_dialer && stood.is_none() {
                // Whoever came and did not get in, also if it has shown a certificate that is known.
                self.rejected(address, &format_args!("as a relay: {why}"));
                continue;
            }
            let Some((key, known)) =
                known.and_then(|key| self.known.get_mut(key).map(|known| (key, known)))
            else {
                continue;
            };
            let Some(stood) = stood else {
                known.attempts = known.attempts.saturating_sub(1);
                self.attempt_failed(key, &why);
                continue;
            };
            if known.is_told_of() {
                warn!(peer = known.peer.name, "connection to the relay lost: {why}");
            }
            is_fewer = true;
            known.up = known.up.saturating_sub(1);
            match (is_dialer, stood < STEADY) {
                (true, true) => self.pause(key),
                (true, false) => known.wait = FIRST_WAIT,
                (false, _) => known.came = known.came.saturating_sub(1),
            }
            self.dial(key);
        }
        if is_fewer {
            // What it had is for those that are left.
            self.share_rates();
        }
    }

    /// It is not dialled for a while, for longer each time.
    fn pause(&mut self, key: Key<Known>) {
        let Some(known) = self.known.get_mut(key) else { return };
        let now = Instant::now();
        if known.not_before.is_some_and(|at| now < at) {
            // Another one of those that were made together has failed as well.
            return;
        }
        let at = now + known.wait;
        known.wait = (known.wait * 2).min(LONGEST_WAIT);
        known.not_before = Some(at);
        self.timer(at, Due::Dial(key));
    }

    fn attempt_failed(&mut self, key: Key<Known>, why: &str) {
        let Some(known) = self.known.get_mut(key) else { return };
        if known.attempts > 0 {
            return;
        }
        if !known.addresses.is_empty() {
            debug!(peer = known.peer.name, "not reached, trying its next address: {why}");
            self.attempt(key);
            return;
        }
        if std::mem::replace(&mut known.has_complained, true) {
            debug!(peer = known.peer.name, "not reached: {why}");
        } else {
            warn!(
                peer = known.peer.name,
                "the relay is not reached, and tried again and again: {why}"
            );
        }
        self.pause(key);
    }

    /// A connection to the relay stands now. `was_dialed`: we had dialled.
    pub(crate) fn peer_is_up(&mut self, key: Key<Known>, was_dialed: bool) {
        let Some(known) = self.known.get_mut(key) else { return };
        known.up += 1;
        known.has_complained = false;
        if was_dialed {
            known.attempts = known.attempts.saturating_sub(1);
        } else {
            known.came += 1;
        }
        // Others may have failed while this one was still being made.
        self.dial(key);
    }
}
