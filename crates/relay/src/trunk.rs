//! Connections to other relays: from the first word to the last.

use std::io::IoSlice;
use std::ops::Range;
use std::time::Instant;

use gridmpi_wire::TokenId;
use tracing::info;

use crate::accept::nonce;
use crate::arena::Key;
use crate::bounds::shown;
use crate::cell::RelayId;
use crate::channel::More;
use crate::config::{MOST_CONNECTIONS, Proof};
use crate::daemon::Daemon;
use crate::dial::Known;
use crate::greet::{GreetError, GreetStep, Greeting, Means};
use crate::options;
use crate::poller::Ready;
use crate::sockets::{SocketKey, TrunkStage};

/// Bytes between two looks up to which a connection counts as idle: pings and the like.
const IDLE: u64 = 10_000;

/// How often one connection is read before others get their turn.
const READS: usize = 4;

/// Cells in one read that ask for more than to pass something on, from which on the connection's turn is over and the next one shorter: others
/// wait for it far longer than for as many bytes of circuits.
const ASKING: u64 = 256;

/// Bytes read then, by TLS less a record that may have half come.
const LITTLE: usize = 34 * 1024;

impl Daemon {
    pub(crate) fn trunk_ready(&mut self, ready: Ready) {
        let key = ready.key;
        let Some(trunk) = self.sockets.trunk(key) else { return };
        if matches!(trunk.stage, TrunkStage::Connecting) {
            self.connected(key);
            return;
        }
        trunk.has_ended |= ready.has_ended;
        if ready.is_writable && (trunk.is_blocked || trunk.channel.has_kept()) {
            match trunk.channel.flush() {
                Ok(is_all) => {
                    trunk.is_blocked = !is_all;
                    if let (true, TrunkStage::Up(link)) = (is_all, &trunk.stage) {
                        self.core.writable(*link);
                    }
                }
                Err(error) => {
                    self.end_trunk(key, error.to_string());
                    return;
                }
            }
        }
        if ready.is_readable {
            self.read_trunk(key);
        }
    }

    pub(crate) fn read_trunk(&mut self, key: SocketKey) {
        for _ in 0..READS {
            let Some(trunk) = self.sockets.trunk(key) else { return };
            let mut ranges = std::mem::take(&mut self.ranges);
            ranges.clear();
            let has_ended = trunk.has_ended;
            let most = if trunk.is_asking { LITTLE } else { self.inbound.len() };
            let inbound = self.inbound.get_mut(..most).unwrap_or_default();
            let more = trunk.channel.read(inbound, &mut self.scratch, &mut ranges);
            let before = self.core.counts().asking_in;
            let result = self.shaken(key).and_then(|()| self.digest(key, &ranges));
            self.ranges = ranges;
            self.core.flush(&self.inbound, &mut self.sockets);
            let is_asking = self.core.counts().asking_in - before > ASKING;
            if let Some(trunk) = self.sockets.trunk(key) {
                trunk.is_asking = is_asking;
            }
            let why = match (result, more) {
                (Ok(()), Ok(More::Perhaps)) if is_asking => break,
                (Ok(()), Ok(More::Perhaps)) => continue,
                // The end came together with the last bytes: the kernel will not tell of it again.
                (Ok(()), Ok(More::No)) if has_ended => continue,
                (Ok(()), Ok(More::No)) => return,
                (Ok(()), Ok(More::Ended)) => "it closed the connection".to_owned(),
                (Ok(()), Err(error)) => error.to_string(),
                (Err(why), _) => why,
            };
            self.end_trunk(key, why);
            return;
        }
        self.again.push(key);
    }

    /// If TLS is through with its handshake it is known who the other side is.
    fn shaken(&mut self, key: SocketKey) -> Result<(), String> {
        let Some(trunk) = self.sockets.trunk(key) else { return Ok(()) };
        let (TrunkStage::Shaking, Some(fingerprint)) = (&trunk.stage, trunk.channel.proven())
        else {
            return Ok(());
        };
        let means = Means::Tls(fingerprint.relay());
        if trunk.is_dialer {
            return self.greet_as_dialer(key, means);
        }
        trunk.known = self
            .known
            .iter()
            .find(
                |(_, known)| matches!(known.peer.proof, Proof::Fingerprint(f) if f == fingerprint),
            )
            .map(|(key, _)| key);
        let nonce = nonce().map_err(|error| error.to_string())?;
        trunk.stage = TrunkStage::Greeting(Box::new(Greeting::answer(self.me, means, nonce)));
        Ok(())
    }

    /// Hands what has come on to whom it is for.
    fn digest(&mut self, key: SocketKey, ranges: &[Range<usize>]) -> Result<(), String> {
        for range in ranges {
            let mut range = range.clone();
            if let Some(trunk) = self.sockets.trunk(key)
                && matches!(trunk.stage, TrunkStage::Greeting(_))
            {
                self.greet(key, &mut range).map_err(|error| error.to_string())?;
            }
            let Some(trunk) = self.sockets.trunk(key) else { return Ok(()) };
            if let TrunkStage::Up(link) = trunk.stage
                && !range.is_empty()
            {
                let received = self.core.receive(link, &self.inbound, range);
                received.map_err(|error| format!("it breaks the protocol: {error}"))?;
            }
        }
        Ok(())
    }

    /// Goes on with a meeting, and takes off `range` what belongs to it.
    fn greet(&mut self, key: SocketKey, range: &mut Range<usize>) -> Result<(), GreetError> {
        loop {
            let Self { sockets, inbound, .. } = self;
            let Some(trunk) = sockets.trunk(key) else { return Ok(()) };
            let TrunkStage::Greeting(greeting) = &mut trunk.stage else { return Ok(()) };
            let count = greeting.due().min(range.len());
            if count == 0 {
                return Ok(());
            }
            let bytes = inbound.get(range.start..range.start + count).unwrap_or_default();
            range.start += count;
            let mut out = Vec::new();
            let step = greeting.read(bytes, &mut out)?;
            if let GreetStep::Met { secret, .. } = step {
                self.recognize(key, secret)?;
            }
            let Some(trunk) = self.sockets.trunk(key) else { return Ok(()) };
            // A failure is met by the next read.
            let _ = trunk.channel.write(&[IoSlice::new(&out)]);
            if let GreetStep::Met { peer, .. } = step {
                self.met(key, peer);
            }
        }
    }

    /// Who has proven itself may have gone from the settings while it did, and may be here often enough.
    fn recognize(&mut self, key: SocketKey, secret: Option<TokenId>) -> Result<(), GreetError> {
        let by_secret = secret.and_then(|secret| self.known_by_secret(secret));
        let Some(trunk) = self.sockets.trunk(key) else { return Ok(()) };
        trunk.known = trunk.known.or(by_secret);
        let (is_dialer, known) = (trunk.is_dialer, trunk.known);
        let known = known.and_then(|known| self.known.get(known)).ok_or(GreetError::Unknown)?;
        if !is_dialer && known.came >= MOST_CONNECTIONS {
            return Err(GreetError::TooMany);
        }
        Ok(())
    }

    fn met(&mut self, key: SocketKey, peer: RelayId) {
        let Some(trunk) = self.sockets.trunk(key) else { return };
        let (address, is_dialer) = (trunk.address, trunk.is_dialer);
        let known = trunk.known.and_then(|key| Some((key, self.known.get(key)?)));
        let Some((known, proof, jobs)) =
            known.map(|(key, known)| (key, known.peer.proof.account(), known.peer.jobs.clone()))
        else {
            return;
        };
        let link = self.core.trunk_up(key.into(), (peer, proof), is_dialer, jobs);
        (trunk.stage, trunk.since) = (TrunkStage::Up(link), Instant::now());
        options::prepare_trunk(&trunk.channel.fd);
        if !is_dialer {
            self.crowd.is_through();
        }
        self.end_pending(key);
        self.peer_is_up(known, is_dialer);
        self.share_rates();
        if let Some(known) = self.known.get_mut(known)
            && known.is_told_of()
        {
            info!(peer = known.peer.name, relay = %peer, address = shown(address), "connected to a relay");
        }
    }

    fn known_by_secret(&self, secret: TokenId) -> Option<Key<Known>> {
        let mut all = self.known.iter();
        let is_it = |proof: &Proof| match proof {
            Proof::Secret(key) => key.token_id() == secret,
            Proof::Fingerprint(_) => false,
        };
        all.find(|(_, known)| is_it(&known.peer.proof)).map(|(key, _)| key)
    }

    /// Gives each connection its part of what may be sent to its relay, and by this one at all.
    pub(crate) fn share_rates(&mut self) {
        let Self { sockets, core, known, config, .. } = self;
        let trunks: Vec<SocketKey> = core.trunks().map(|(_, wire)| wire.into()).collect();
        let is_active = |key: &&SocketKey| sockets.trunk(**key).is_some_and(|it| it.is_active);
        let active = trunks.iter().filter(is_active).count();
        for key in trunks {
            let Some(trunk) = sockets.trunk(key) else { continue };
            // One that begins to send is one more.
            let sharers = (active + usize::from(!trunk.is_active)).max(1);
            let own = config.rate.map(|rate| rate / sharers as u64);
            let known = trunk.known.and_then(|key| known.get(key));
            let to_peer = known.and_then(|known| Some(known.peer.rate? / known.up.max(1) as u64));
            let rate = own.into_iter().chain(to_peer).min();
            if rate != trunk.rate {
                trunk.rate = rate;
                options::set_rate(&trunk.channel.fd, rate);
            }
        }
    }

    pub(crate) fn end_trunk(&mut self, key: SocketKey, why: impl Into<String>) {
        let why = why.into();
        if let Some(link) = self.sockets.end_trunk(key, why) {
            self.core.gone(link);
        }
        self.end_pending(key);
    }

    /// Sees where bytes have arrived though nothing was said: a slow path is no dead one.
    pub(crate) fn look_at_trunks(&mut self) {
        let Self { sockets, core, .. } = self;
        for (link, wire) in core.trunks().collect::<Vec<_>>() {
            let Some(trunk) = sockets.trunk(wire.into()) else { continue };
            let Some(acknowledged) = options::acknowledged(&trunk.channel.fd) else { continue };
            let more = acknowledged - std::mem::replace(&mut trunk.acknowledged, acknowledged);
            trunk.is_active = more > IDLE;
            if more > 0 {
                core.heard(link);
            }
        }
        if self.config.rate.is_some() {
            self.share_rates();
        }
    }
}
