//! Collectives enter and leave their regulation themselves: inside one the senders are known, so that what it sends begins at their
//! share of the link at once, be that less or more than has been usual.
//!
//! Nothing of it goes over the wire. Who else sends at the same time the broker finds out as always, and grants count as always.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use gridmpi_rate::NodeId;
use gridmpi_wire::ProcId;

use crate::paces::Paced;
use crate::state::State;
use crate::{Net, Online};

/// A collective under way, until this is dropped.
#[must_use = "it is left when this is dropped"]
pub struct Entered<'a> {
    net: &'a Net,
    clusters: Vec<u16>,
    senders: Vec<(NodeId, u32)>,
    is_sure: bool,
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, senders, is_sure, .. } = self;
        let mut f = f.debug_struct("Entered");
        f.field("to", clusters).field("senders", senders).field("is_sure", is_sure).finish()
    }
}

impl Net {
    /// A collective begins in which this process sends so many bytes each to processes of other clusters, and `senders` of its own
    /// cluster, itself among them, send likewise at the same time. What it sends from now on begins at an equal share, until the
    /// result is dropped. Several may be under way, on whatever threads: their senders are counted together.
    ///
    /// Where only some of these may send (not `is_sure`), it begins at more if the last such collective was granted more.
    ///
    /// `None` where rates are not found online, or where that is too little to matter.
    ///
    /// # Panics
    /// As [`Self::lock`].
    pub fn enter(
        &self,
        sends: impl IntoIterator<Item = (ProcId, u64)>,
        senders: impl IntoIterator<Item = ProcId>,
        is_sure: bool,
    ) -> Option<Entered<'_>> {
        let mut guard = self.lock();
        let state = guard.state();
        let clusters = state.worth_entering(sends);
        if clusters.is_empty() {
            return None;
        }
        let senders = state.known(senders);
        state.enter(&clusters, &senders, is_sure);
        Some(Entered { net: self, clusters, senders, is_sure })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Self { net, clusters, senders, is_sure } = self;
        net.lock().state().leave(clusters, senders, *is_sure);
    }
}

impl State {
    /// Claims learn what they go over, before anything is sent.
    pub(crate) fn introduce_claims(&mut self) {
        let (Some(regulation), Some(Online { network, .. })) =
            (&self.regulation, &self.config.pacing.online)
        else {
            return;
        };
        let ours = network.cluster(regulation.node(self.config.me));
        for cluster in 0..self.paces.clusters() {
            let path = regulation.path_to(cluster);
            let Ok(number) = u16::try_from(cluster) else { return };
            let to = network.cluster_number(number.into());
            if let (Some(paced), Some(path), Some(to)) = (self.paces.get(number), path, to) {
                paced.claims.go_over(path, network.shared_between(ours, to));
            }
        }
        // Programs whose messages are all short claim nothing, and hear of nothing.
        self.follow_claims(Instant::now());
    }

    /// The clusters that so much goes to that it is worth a claim.
    fn worth_entering(&mut self, sends: impl IntoIterator<Item = (ProcId, u64)>) -> Vec<u16> {
        if self.regulation.is_none() {
            return Vec::new();
        }
        let mut sums: BTreeMap<u16, u64> = BTreeMap::new();
        for (to, bytes) in sends {
            if let Some(cluster) = self.paces.cluster_of(to).filter(|_| self.paces.is_far(to)) {
                let sum = sums.entry(cluster).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        sums.retain(|&cluster, &mut bytes| self.is_worth_a_claim(cluster, bytes));
        sums.into_keys().collect()
    }

    /// Processes, with their nodes.
    fn known(&self, senders: impl IntoIterator<Item = ProcId>) -> Vec<(NodeId, u32)> {
        let Some(regulation) = &self.regulation else { return Vec::new() };
        senders.into_iter().map(|sender| (regulation.node(sender), sender.0)).collect()
    }

    fn enter(&mut self, clusters: &[u16], senders: &[(NodeId, u32)], is_sure: bool) {
        for &cluster in clusters {
            if let Some(paced) = self.paces.get(cluster) {
                paced.claims.enter(senders, is_sure);
            }
        }
        self.share_links();
    }

    fn leave(&mut self, clusters: &[u16], senders: &[(NodeId, u32)], is_sure: bool) {
        for &cluster in clusters {
            if let Some(paced) = self.paces.get(cluster) {
                paced.claims.leave(senders, is_sure);
            }
        }
        self.share_links();
    }

    /// The clusters that collectives send to share uplinks.
    fn share_links(&mut self) {
        let is_entered = |paced: &&mut Paced| paced.claims.is_entered();
        let clusters = self.paces.iter_mut().filter(is_entered).count() as u32;
        self.paces.iter_mut().for_each(|paced| paced.claims.share_links(clusters));
        self.follow_claims(Instant::now());
    }

    /// Claims have changed, perhaps: what is under way is slower or faster at once.
    pub(crate) fn follow_claims(&mut self, now: Instant) {
        for repaced in self.paces.follow_claims(now) {
            self.repace(repaced);
        }
        // At a higher rate the next turn comes sooner.
        let clusters = (0u16..).take(self.paces.clusters());
        clusters.for_each(|cluster| self.arm_turn_if_sooner(cluster));
    }
}
