//! The other side of a broker: which transfers of a process towards one cluster it has been told of, and what
//! the process may send.
//!
//! Nobody waits for a grant: until one comes, and when no broker answers, all transfers together have the base rate. A
//! lower rate counts at once. A higher one only when they are no longer young: where many processes begin nearly at once the first is
//! granted what will be the others', and what is sent too fast by then fills the link's buffer.

use crate::{NodeId, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// So long after a process has begun to send it is young.
const YOUNG: Duration = Duration::from_micros(3500);

/// What a broker is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// To whom.
    pub to: NodeId,
    /// Whether that has begun or ended.
    pub is_active: bool,
}

/// The transfers of one process to the nodes of another cluster. No I/O and no clock: the moment is an argument.
#[derive(Clone, Debug)]
pub struct Claims {
    /// What every process may always have.
    least: Rate,
    /// What transfers begin with: more than that where few are active at the same time.
    base: Rate,
    claims: BTreeMap<NodeId, Claim>,
    /// When they have become old, if they have not.
    youth: Option<Instant>,
    told: Vec<Claimed>,
}

#[derive(Clone, Debug, Default)]
struct Claim {
    /// The processes there that something waits for.
    users: BTreeSet<u32>,
    /// Bits per second, by the broker.
    granted: Option<f64>,
}

impl Claims {
    /// None yet; `least` is for all together where no broker says more or less.
    #[must_use]
    pub fn new(least: Rate) -> Self {
        Self { least, base: least, claims: BTreeMap::new(), youth: None, told: Vec::new() }
    }

    /// What counts where there is no broker.
    #[must_use]
    pub const fn least(&self) -> Rate {
        self.least
    }

    /// Transfers begin with this from now on, or with the least rate if that is more.
    pub fn begin_with(&mut self, rate: Rate) {
        self.base = if rate < self.least { self.least } else { rate };
    }

    /// Much waits to be sent to process `user` on node `to`.
    pub fn begin(&mut self, to: NodeId, user: u32, now: Instant) {
        if self.claims.is_empty() {
            self.youth = Some(now + YOUNG);
        }
        let told = &mut self.told;
        let claim = self.claims.entry(to).or_insert_with(|| {
            told.push(Claimed { to, is_active: true });
            Claim::default()
        });
        claim.users.insert(user);
    }

    /// Nothing waits any more.
    pub fn end(&mut self, to: NodeId, user: u32) {
        let Some(claim) = self.claims.get_mut(&to) else { return };
        if claim.users.remove(&user) && claim.users.is_empty() {
            let left = claim.granted.unwrap_or_default();
            self.claims.remove(&to);
            self.told.push(Claimed { to, is_active: false });
            self.inherit(left);
        }
    }

    /// What an ended transfer was granted the others of this process have, until the broker says what it is to be.
    fn inherit(&mut self, left: f64) {
        let granted = || self.claims.values().filter_map(|claim| claim.granted);
        let sum: f64 = granted().sum();
        if left > 0.0 && sum > 0.0 {
            let more = (sum + left) / sum;
            let all = self.claims.values_mut().filter_map(|claim| claim.granted.as_mut());
            all.for_each(|rate| *rate *= more);
        }
    }

    /// The broker has granted a rate. Nothing where no claim stands.
    pub fn granted(&mut self, to: NodeId, rate: Rate) {
        if let Some(claim) = self.claims.get_mut(&to) {
            claim.granted = Some(rate.bits_per_second());
        }
    }

    /// There is no broker any more: the least rate counts, and it is told nothing.
    pub fn forsake(&mut self) {
        self.base = self.least;
        self.claims.values_mut().for_each(|claim| claim.granted = None);
        self.told.clear();
    }

    /// What the broker is to be told since this was last asked, in order.
    pub fn told(&mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.told)
    }

    /// Brings about what is due.
    pub fn settle(&mut self, now: Instant) {
        self.youth.take_if(|end| *end <= now || self.claims.is_empty());
    }

    /// When [`settle`](Self::settle) will have something to do.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.youth
    }

    /// How fast all of the process's connections to the cluster may send together, bits per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let base = self.base.bits_per_second();
        let sum: f64 = self.claims.values().filter_map(|claim| claim.granted).sum();
        let is_whole = self.claims.values().all(|claim| claim.granted.is_some());
        match (self.youth, is_whole && sum > 0.0) {
            (Some(_), false) => base,
            (Some(_), true) => sum.min(base),
            (None, false) => sum.max(base),
            (None, true) => sum,
        }
    }

    /// The part of one destination process in that, by what an equal one would be: 1 where all are granted the same.
    #[must_use]
    pub fn share(&self, to: NodeId) -> f64 {
        let (mut sum, mut users) = (0.0, 0);
        for claim in self.claims.values() {
            let Some(granted) = claim.granted else { continue };
            sum += granted;
            users += claim.users.len();
        }
        let share = self.claims.get(&to).and_then(|claim| {
            let each = claim.granted? / claim.users.len() as f64;
            Some(each * users as f64 / sum)
        });
        share.filter(|share| share.is_finite()).unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    const MBIT: f64 = 1e6;
    const MS: Duration = Duration::from_millis(1);

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * MBIT).unwrap()
    }

    fn claims() -> (Claims, Vec<NodeId>, Instant) {
        let mut network = Network::new();
        let cluster = network.add_cluster();
        let nodes = (0..4).map(|_| network.add_node(cluster, Rate::UNBOUNDED)).collect();
        (Claims::new(mbit(20.0)), nodes, Instant::now())
    }

    #[test]
    fn a_lone_transfer_starts_at_the_base_rate_and_rises_when_it_is_no_longer_young() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: true }]);
        assert_eq!(claims.rate(), 20.0 * MBIT);
        claims.granted(nodes[0], mbit(50.0));
        claims.settle(now + MS);
        assert_eq!((claims.rate(), claims.due()), (20.0 * MBIT, Some(now + YOUNG)));
        claims.settle(now + YOUNG);
        assert_eq!((claims.rate(), claims.due()), (50.0 * MBIT, None));
        claims.granted(nodes[0], mbit(10.0));
        assert_eq!(claims.rate(), 10.0 * MBIT);
        claims.granted(nodes[0], mbit(40.0));
        assert_eq!(claims.rate(), 40.0 * MBIT);
    }

    #[test]
    fn a_rise_that_is_taken_back_in_time_never_was() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        claims.granted(nodes[0], mbit(160.0));
        claims.granted(nodes[0], mbit(20.0));
        claims.settle(now + 9 * MS);
        assert_eq!((claims.rate(), claims.due()), (20.0 * MBIT, None));
        // One more of the same process is not young.
        claims.begin(nodes[1], 8, now + 9 * MS);
        assert_eq!(claims.rate(), 20.0 * MBIT);
        claims.granted(nodes[1], mbit(30.0));
        assert_eq!(claims.rate(), 50.0 * MBIT);
    }

    #[test]
    fn an_end_is_told_when_nobody_uses_it_and_what_comes_late_counts_for_nothing() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        claims.begin(nodes[0], 8, now);
        claims.end(nodes[0], 7);
        claims.end(nodes[0], 7);
        assert_eq!(claims.told().len(), 1);
        claims.end(nodes[0], 8);
        assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: false }]);
        claims.granted(nodes[0], mbit(1.0));
        claims.settle(now);
        assert_eq!((claims.rate(), claims.due()), (20.0 * MBIT, None));
    }

    #[test]
    fn where_few_are_active_all_begin_faster_but_never_slower_than_their_share() {
        let (mut claims, nodes, now) = claims();
        claims.begin_with(mbit(50.0));
        claims.begin(nodes[0], 7, now);
        assert_eq!(claims.rate(), 50.0 * MBIT);
        claims.granted(nodes[0], mbit(30.0));
        assert_eq!(claims.rate(), 30.0 * MBIT);
        claims.end(nodes[0], 7);
        claims.begin_with(mbit(1.0));
        assert_eq!((claims.rate(), claims.least()), (20.0 * MBIT, mbit(20.0)));
    }

    #[test]
    fn while_grants_come_in_one_by_one_there_is_no_less_than_the_base_rate() {
        let (mut claims, nodes, now) = claims();
        (0..).zip(&nodes).for_each(|(user, node)| claims.begin(*node, user, now));
        for count in 1..=4 {
            nodes[..count].iter().for_each(|n| claims.granted(*n, mbit(20.0 / count as f64)));
            assert!((claims.rate() - 20.0 * MBIT).abs() < 1.0, "{count}: {}", claims.rate());
        }
        nodes.iter().for_each(|node| claims.granted(*node, mbit(1.0)));
        assert!((claims.rate() - 4.0 * MBIT).abs() < 1.0, "{}", claims.rate());
    }

    #[test]
    fn destinations_have_the_parts_they_were_granted() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 0, now);
        claims.begin(nodes[1], 1, now);
        claims.begin(nodes[1], 2, now);
        assert_eq!([0, 1, 3].map(|n| claims.share(nodes[n])), [1.0; 3]);
        claims.granted(nodes[0], mbit(2.0));
        claims.granted(nodes[1], mbit(8.0));
        assert_eq!(claims.rate(), 10.0 * MBIT);
        // 2, 4 and 4 of 10.
        assert!((claims.share(nodes[0]) - 0.6).abs() < 1e-9);
        assert!((claims.share(nodes[1]) - 1.2).abs() < 1e-9);
        assert_eq!(claims.share(nodes[3]), 1.0);
        claims.forsake();
        assert_eq!((claims.rate(), claims.share(nodes[0])), (20.0 * MBIT, 1.0));
    }

    #[test]
    fn what_one_leaves_the_others_of_the_process_have() {
        let (mut claims, nodes, now) = claims();
        for (user, node) in (0..).zip(&nodes) {
            claims.begin(*node, user, now);
            claims.granted(*node, mbit(5.0));
        }
        claims.end(nodes[0], 0);
        claims.end(nodes[1], 1);
        assert!((claims.rate() - 20.0 * MBIT).abs() < 1.0, "{}", claims.rate());
        claims.granted(nodes[2], mbit(8.0));
        claims.granted(nodes[3], mbit(8.0));
        assert_eq!(claims.rate(), 16.0 * MBIT);
    }

    #[test]
    fn without_bounds_all_is_alike() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 0, now);
        claims.granted(nodes[0], Rate::UNBOUNDED);
        claims.settle(now + 9 * MS);
        assert_eq!((claims.rate(), claims.share(nodes[0])), (f64::INFINITY, 1.0));
    }
}
