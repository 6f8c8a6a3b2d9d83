//! New settings for a relay that runs.

use tracing::{info, warn};

use crate::arena::Key;
use crate::bounds;
use crate::config::{Config, Peer, Proof};
use crate::daemon::Daemon;
use crate::dial::Known;
use crate::sockets::{Socket, SocketKey};

/// Whether it is the same relay: who has proven to be the one has proven to be the other.
fn is_same(before: &Proof, after: &Proof) -> bool {
    match (before, after) {
        (Proof::Fingerprint(a), Proof::Fingerprint(b)) => a == b,
        (Proof::Secret(a), Proof::Secret(b)) => a.token_id() == b.token_id(),
        _ => false,
    }
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
        let renamed = self.go_on(self.known.keys(), &mut wanted, |before, after| {
            before.name == after.name && is_same(&before.proof, &after.proof)
        });
        // A secret may be that of several relays, which have nothing but names to tell them apart.
        let gone = self.go_on(renamed, &mut wanted, |before, after| {
            matches!(before.proof, Proof::Fingerprint(_)) && is_same(&before.proof, &after.proof)
        });
        gone.into_iter().for_each(|key| self.forget_peer(key));
        for peer in wanted {
            self.known.insert(Known::new(peer));
        }
        self.say_what_is_plain();
    }

    /// Takes on what is wanted of those of these relays that are among it, by `is_same`. The others.
    fn go_on(
        &mut self,
        keys: Vec<Key<Known>>,
        wanted: &mut Vec<Peer>,
        is_same: impl Fn(&Peer, &Peer) -> bool,
    ) -> Vec<Key<Known>> {
        let mut others = Vec::new();
        for key in keys {
            let Some(known) = self.known.get_mut(key) else { continue };
            match wanted.iter().position(|peer| is_same(&known.peer, peer)) {
                Some(at) => {
                    known.is_now(wanted.swap_remove(at));
                    self.share_jobs(key);
                }
                None => others.push(key),
            }
        }
        others
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
