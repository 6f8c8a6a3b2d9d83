//! Bytes that are not what was sent. The connection is given up and what it had is sent again on another, as after any loss; that is counted,
//! said once, and not borne for ever.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridmpi_wire::{ProcId, RecordError};

use crate::state::State;
use crate::{DialError, Failure};

/// So many connections to a peer may end so, without anything new from it having come, before it is given up; and not before
/// `Limits::reconnect` is over.
const MOST: u32 = 100;

/// Connections to a peer that ended so since something new came from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    since: Instant,
    expects: u64,
    times: u32,
}

impl Damage {
    /// Another one, while the frame `expects` is the next.
    fn again(before: Option<Self>, expects: u64, now: Instant) -> Self {
        match before {
            Some(it) if it.expects == expects => Self { times: it.times.saturating_add(1), ..it },
            _ => Self { since: now, expects, times: 1 },
        }
    }

    fn is_too_much(&self, now: Instant, patience: Duration) -> bool {
        self.times >= MOST && now.saturating_duration_since(self.since) >= patience
    }
}

impl State {
    /// A handshake has failed: perhaps by what this is about. `peer`: with whom, if that is known.
    pub(crate) fn note_failed(
        &mut self,
        peer: Option<ProcId>,
        address: Option<SocketAddr>,
        error: &DialError,
    ) {
        // Another certificate, or none, is also invalid data.
        if let DialError::Io(error) = error
            && error.get_ref().is_some_and(|inner| inner.is::<RecordError>())
        {
            self.note_damage(peer, address, error);
        }
    }

    /// What came was not what was sent.
    pub(crate) fn note_damage(
        &mut self,
        peer: Option<ProcId>,
        address: Option<SocketAddr>,
        error: &io::Error,
    ) {
        self.counts.damaged += 1;
        if self.counts.damaged > 1 {
            return;
        }
        let from = match (peer, address) {
            (Some(peer), Some(address)) => format!("{peer} ({address})"),
            (Some(peer), None) => peer.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => "a peer".to_owned(),
        };
        (self.config.warn)(&format!(
            "what came from {from} was damaged on the way: {error}. Nothing is lost, it is sent again on another connection; \
             but a relay, a proxy or a machine on the way is faulty. More of this is counted (gridmpi_damaged), not said"
        ));
    }

    /// A connection that stood has ended so. The reason to give the peer up, if that has been too often.
    pub(crate) fn damaged_again(
        &mut self,
        id: ProcId,
        address: Option<SocketAddr>,
        error: &io::Error,
    ) -> Option<Failure> {
        self.note_damage(Some(id), address, error);
        let (now, expects) = (Instant::now(), self.endpoint.expects(id));
        let patience = self.limits().reconnect;
        let peer = self.peer(id);
        let damage = Damage::again(peer.damage, expects, now);
        peer.damage = Some(damage);
        let Damage { times, since, .. } = damage;
        let seconds = now.saturating_duration_since(since).as_secs();
        damage
            .is_too_much(now, patience)
            .then(|| Failure::damaged(id, address, (times, seconds), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_without_progress_and_for_long_is_too_much() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let patience = Duration::from_millis(500);
        let mut damage = None;
        for time in 0..u64::from(MOST) - 1 {
            let now = Damage::again(damage, 7, at(time * 10));
            assert!(!now.is_too_much(at(time * 10), patience));
            damage = Some(now);
        }
        let now = Damage::again(damage, 7, at(1000));
        assert!(now.is_too_much(at(1000), patience));
        assert!(!now.is_too_much(at(1000), Duration::from_secs(2)), "it is tried for longer");
        let moved = Damage::again(damage, 8, at(1000));
        assert!(!moved.is_too_much(at(9000), patience), "something has come");
    }
}
