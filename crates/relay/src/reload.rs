//! New settings for a relay that runs.

use tracing::{info, warn};

use crate::arena::Key;
use crate::bounds;
use crate::config::{Config, Peer, Proof};
use crate::daemon::Daemon;
use crate::dial::Known;
use crate::sockets::{Socket, SocketKey};

/// Whether connections to the relay can go on as they are.
fn is_same(before: &Peer, after: &Peer) -> bool {
    let is_proof_same = match (&before.proof, &after.proof) {
        (Proof::Fingerprint(a), Proof::Fingerprint(b)) => a == b,
        (Proof::Secret(a), Proof::Secret(b)) => a.token_id() == b.token_id(),
        _ => false,
    };
    is_proof_same && before.address == after.address && before.connections == after.connections
}

impl Daemon {
    /// Takes on new settings. What stands goes on unless its peer is gone from them.
    pub(crate) fn reload(&mut self, config: Config) {
        if config.listen != self.config.listen {
            warn!("`listen` has changed: that needs a restart, and the old addresses go on");
        }
        let name = |config: &Config| config.identity.as_ref().map(|us| us.fingerprint());
        if name(&config) != name(&self.config) {
            warn!("`identity` has changed: that needs a restart, and the old one goes on");
        }
        let (listen, identity) = (self.config.listen.clone(), self.config.identity.clone());
        let connections = self.config.limits.connections;
        self.config = Config { listen, identity, ..config };
        if let Err(error) = bounds::bound_connections(&mut self.config) {
            warn!("{error}: {connections} connections at most, as before");
            self.config.limits.connections = connections;
        }
        self.core.set_limits(self.config.limits.clone());
        self.tell_beside();
        self.reload_peers();
        if let Err(error) = self.prepare_tls() {
            warn!("the new relays cannot be let in: {error}");
        }
        self.share_rates();
        self.dial_all();
        info!(
            tokens = self.config.tokens.len(),
            peers = self.config.peers.len(),
            "new settings hold"
        );
    }

    /// Tells processes of other relays.
    pub(crate) fn tell_beside(&mut self) {
        let beside = self.config.beside.clone();
        let relays: Vec<_> = beside.iter().map(|relay| relay.socket()).collect();
        let told = self.core.set_beside(beside);
        if told > 0 {
            info!(processes = told, ?relays, "processes were told of new relays");
        }
    }

    fn reload_peers(&mut self) {
        let mut wanted = self.config.peers.clone();
        for key in self.known.keys() {
            let Some(known) = self.known.get_mut(key) else { continue };
            let at = wanted
                .iter()
                .position(|peer| peer.name == known.peer.name && is_same(&known.peer, peer));
            match at {
                Some(at) => {
                    known.peer = wanted.swap_remove(at);
                    self.share_jobs(key);
                }
                None => self.forget_peer(key),
            }
        }
        for peer in wanted {
            self.known.insert(Known::new(peer));
        }
        self.say_what_is_plain();
    }

    /// Lets those jobs cross connections to a relay that may.
    fn share_jobs(&mut self, key: Key<Known>) {
        let Self { core, sockets, known, .. } = self;
        let Some(known) = known.get(key) else { return };
        for (link, wire) in core.trunks().collect::<Vec<_>>() {
            if sockets.trunk(wire.into()).is_some_and(|trunk| trunk.known == Some(key)) {
                core.set_jobs(link, known.peer.jobs.clone());
            }
        }
    }

    fn forget_peer(&mut self, key: Key<Known>) {
        let is_its =
            |socket: &Socket| matches!(socket, Socket::Trunk(trunk) if trunk.known == Some(key));
        let all = self.sockets.all.iter();
        let sockets: Vec<SocketKey> =
            all.filter(|(_, socket)| is_its(socket)).map(|(key, _)| key).collect();
        self.known.remove(key);
        for socket in sockets {
            self.end_trunk(socket, "it is no longer in the settings");
        }
    }
}
