//! What the kernel sees of paced connections, for the rate broker: what has arrived, and what was sent again.

use std::time::{Duration, Instant};

use gridmpi_rate::{SEGMENT, Seen};

use crate::link::Link;
use crate::options::{Carried, carried};
use crate::paces::wire_bits;
use crate::state::{Socket, State};
use crate::timers::Due;

/// Of the connections to one cluster since they were looked at before.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Bytes that have been acknowledged, by the far process or the nearest relay.
    used: u64,
    /// What went directly: bytes that have been acknowledged, and bytes that were sent again. Of a leg to a relay the kernel sees the
    /// way to that relay, which says nothing of the link behind it.
    acknowledged: u64,
    resent: u64,
    /// In so many segments, as large as the connection's are.
    segments: u64,
    /// And how long it waited there, by the connection where that is least.
    queued: Option<Duration>,
}

/// What of a cluster's connections is seen less than so many looks after something was claimed there is of that, too.
pub(crate) const TELLS: u8 = 3;

/// Of a connection of which less has arrived since it was looked at, its round trips tell of something else, bytes.
const ENOUGH: u64 = 2 * SEGMENT as u64;

impl State {
    /// Something waits to be sent to a cluster that is paced.
    pub(crate) fn watch(&mut self, now: Instant) {
        let Some(regulation) = &mut self.regulation else { return };
        if !std::mem::replace(&mut regulation.is_watching, true) {
            self.timers.set(now + Seen::every(regulation.mates), Due::Look);
        }
    }

    /// It is time to look at the connections.
    pub(crate) fn look_due(&mut self) {
        let Some(regulation) = &mut self.regulation else { return };
        regulation.is_watching = false;
        let now = Instant::now();
        let sums = self.look();
        let mut has_some = false;
        for (cluster, sum) in (0u16..).zip(sums) {
            let seen = sum.seen();
            self.note_use(cluster, sum.used, sum.segments, now);
            has_some |= seen != Seen::default();
            if seen != Seen::default() && (self.is_of_claims(cluster) || seen.resent > 0) {
                self.tell_seen(cluster, seen, now);
            }
        }
        // The last of it arrives when nothing waits any more.
        if has_some || self.paces.iter_mut().any(|paced| paced.claims.has_some()) {
            self.watch(now);
        }
    }

    /// Whether what is seen now of the connections to a cluster is of what was claimed, most of it: to be asked once a look. What goes unclaimed would
    /// be taken for more than the link carries, by the time that something was granted.
    fn is_of_claims(&mut self, cluster: u16) -> bool {
        let Some(paced) = self.paces.get(cluster) else { return false };
        let by_claims = std::mem::take(&mut paced.by_claims);
        paced.tells = if paced.claims.has_some() { TELLS } else { paced.tells.saturating_sub(1) };
        paced.tells > 0 && by_claims >= 0
    }

    /// So much of what was sent to a cluster has arrived, or is at a relay: the broker is told if that is less than is granted. And so many
    /// segments were sent again.
    fn note_use(&mut self, cluster: u16, acknowledged: u64, resent: u64, now: Instant) {
        let Some(paced) = self.paces.get(cluster) else { return };
        paced.claims.resent(resent, now);
        if paced.claims.used(wire_bits(acknowledged), now)
            && let Some(regulation) = &mut self.regulation
        {
            regulation.stir();
        }
    }

    /// What has come of each cluster's connections.
    fn look(&mut self) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.paces.clusters()];
        let Self { sockets, paces, .. } = self;
        for socket in sockets.iter_mut() {
            let Socket::Link(link) = socket else { continue };
            let Some(cluster) = paces.cluster_of(link.peer) else { continue };
            if let Some(sum) = sums.get_mut(usize::from(cluster)) {
                sum.add(link);
            }
        }
        sums
    }
}

impl Sum {
    /// In segments of a usual size: those of one connection may be larger or smaller.
    fn seen(self) -> Seen {
        let segments = |bytes: u64| bytes.div_ceil(SEGMENT as u64);
        let arrived = self.acknowledged / SEGMENT as u64;
        Seen { arrived, resent: segments(self.resent), queued: self.queued }
    }

    fn add(&mut self, link: &mut Link) {
        if link.written == link.looked_at {
            return;
        }
        let Ok(now) = carried(&link.carrier.fd) else { return };
        let Carried { acknowledged, resent, .. } = link.carried;
        link.weigh(now.segment);
        let used = link.weighed(now.acknowledged.saturating_sub(acknowledged) as usize) as u64;
        self.used += used;
        if !link.pulse.is_circuit() {
            self.acknowledged += used;
            let again = now.resent.saturating_sub(resent);
            self.segments += again;
            self.resent += link.weighed((again * u64::from(now.segment)) as usize) as u64;
            let queued = (used >= ENOUGH).then_some(now.queued);
            self.queued = self.queued.into_iter().chain(queued).min();
        }
        if now.is_all {
            link.looked_at = link.written;
        }
        link.carried = now;
    }
}
