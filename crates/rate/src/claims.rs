//! The other side of a broker: which transfers of a process towards one cluster it has been told of, and what
//! the process may send.
//!
//! Nobody waits for a grant: until one comes, and when no broker answers, all transfers together have the base rate. A
//! lower rate counts at once. A higher one only when it has stood for a moment, and when the transfer is no longer young: where many
//! begin nearly at once the first is granted what will be the others', and what is sent too fast by then fills the link's buffer.

use crate::{NodeId, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a higher rate must stand.
const RAISE_AFTER: Duration = Duration::from_micros(500);

/// How long a transfer is young.
const YOUNG: Duration = Duration::from_micros(3500);

/// A transfer that has ended is given back after this, since mostly another follows.
const LINGER: Duration = Duration::from_millis(1);

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
    base: Rate,
    claims: BTreeMap<NodeId, Claim>,
    told: Vec<Claimed>,
}

#[derive(Clone, Debug)]
struct Claim {
    began: Instant,
    /// The processes there that something waits for.
    users: BTreeSet<u32>,
    /// Since when there is none.
    idle: Option<Instant>,
    /// Bits per second, by the broker.
    granted: Option<f64>,
    /// More than that, from then on.
    raise: Option<(Instant, f64)>,
}

impl Claims {
    /// None yet; `base` is for all together as long as no broker says more or less.
    #[must_use]
    pub fn new(base: Rate) -> Self {
        Self { base, claims: BTreeMap::new(), told: Vec::new() }
    }

    /// What counts where no grant does.
    #[must_use]
    pub const fn base(&self) -> Rate {
        self.base
    }

    /// Much waits to be sent to process `user` on node `to`.
    pub fn begin(&mut self, to: NodeId, user: u32, now: Instant) {
        let told = &mut self.told;
        let claim = self.claims.entry(to).or_insert_with(|| {
            told.push(Claimed { to, is_active: true });
            Claim { began: now, users: BTreeSet::new(), idle: None, granted: None, raise: None }
        });
        claim.users.insert(user);
        claim.idle = None;
    }

    /// Nothing waits any more.
    pub fn end(&mut self, to: NodeId, user: u32, now: Instant) {
        let Some(claim) = self.claims.get_mut(&to) else { return };
        if claim.users.remove(&user) && claim.users.is_empty() {
            claim.idle = Some(now);
        }
    }

    /// The broker has granted a rate. Nothing where no claim stands.
    pub fn granted(&mut self, to: NodeId, rate: Rate, now: Instant) {
        let first = self.base.bits_per_second() / self.claims.len().max(1) as f64;
        let Some(claim) = self.claims.get_mut(&to) else { return };
        let rate = rate.bits_per_second();
        let present = *claim.granted.get_or_insert(rate.min(first));
        if rate <= present {
            claim.granted = Some(rate);
            claim.raise = None;
        } else {
            let soonest = (now + RAISE_AFTER).max(claim.began + YOUNG);
            let from = claim.raise.map_or(soonest, |(from, _)| from);
            claim.raise = Some((from, rate));
        }
    }

    /// There is no broker any more: the base rate counts, and it is told nothing.
    pub fn forsake(&mut self) {
        for claim in self.claims.values_mut() {
            (claim.granted, claim.raise) = (None, None);
        }
        self.told.clear();
    }

    /// What the broker is to be told since this was last asked, in order.
    pub fn told(&mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.told)
    }

    /// Brings about what is due.
    pub fn settle(&mut self, now: Instant) {
        for claim in self.claims.values_mut() {
            if let Some((_, rate)) = claim.raise.take_if(|(from, _)| *from <= now) {
                claim.granted = Some(rate);
            }
        }
        let (told, mut left) = (&mut self.told, 0.0);
        self.claims.retain(|&to, claim| {
            let is_over = claim.idle.is_some_and(|since| since + LINGER <= now);
            if is_over {
                told.push(Claimed { to, is_active: false });
                left += claim.granted.unwrap_or_default();
            }
            !is_over
        });
        self.inherit(left);
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

    /// When [`settle`](Self::settle) will have something to do.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let of = |claim: &Claim| {
            let raise = claim.raise.map(|(from, _)| from);
            raise.into_iter().chain(claim.idle.map(|since| since + LINGER)).min()
        };
        self.claims.values().filter_map(of).min()
    }

    /// How fast all of the process's connections to the cluster may send together, bits per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let granted = self.claims.values().filter_map(|claim| claim.granted);
        granted.reduce(|sum, rate| sum + rate).unwrap_or_else(|| self.base.bits_per_second())
    }

    /// The part of one destination process in that, by what an equal one would be: 1 where all are granted the same.
    #[must_use]
    pub fn share(&self, to: NodeId) -> f64 {
        let is_active = |claim: &&Claim| !claim.users.is_empty() && claim.granted.is_some();
        let (mut sum, mut users) = (0.0, 0);
        for claim in self.claims.values().filter(is_active) {
            sum += claim.granted.unwrap_or_default();
            users += claim.users.len();
        }
        let share = self.claims.get(&to).filter(is_active).map(|claim| {
            let each = claim.granted.unwrap_or_default() / claim.users.len() as f64;
            each * users as f64 / sum
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
    fn a_lone_transfer_starts_at_the_base_rate_and_rises_when_the_grant_has_stood() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: true }]);
        claims.granted(nodes[0], mbit(50.0), now);
        claims.settle(now + MS);
        assert_eq!(claims.rate(), 20.0 * MBIT);
        // A little more or less does not put it off.
        claims.granted(nodes[0], mbit(45.0), now + MS);
        assert_eq!(claims.due(), Some(now + YOUNG));
        claims.settle(now + YOUNG);
        assert_eq!((claims.rate(), claims.due()), (45.0 * MBIT, None));
        let now = now + 9 * MS;
        claims.granted(nodes[0], mbit(10.0), now);
        assert_eq!(claims.rate(), 10.0 * MBIT);
        claims.granted(nodes[0], mbit(20.0), now);
        assert_eq!(claims.due(), Some(now + RAISE_AFTER));
    }

    #[test]
    fn a_rise_that_is_taken_back_in_time_never_was() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        claims.granted(nodes[0], mbit(160.0), now);
        claims.granted(nodes[0], mbit(20.0), now + MS);
        claims.settle(now + 9 * MS);
        assert_eq!((claims.rate(), claims.due()), (20.0 * MBIT, None));
    }

    #[test]
    fn an_end_is_told_late_and_not_at_all_if_more_follows() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 7, now);
        claims.begin(nodes[0], 8, now);
        claims.end(nodes[0], 7, now);
        assert_eq!((claims.told().len(), claims.due()), (1, None));
        claims.end(nodes[0], 8, now);
        claims.end(nodes[0], 8, now + MS);
        claims.begin(nodes[0], 8, now);
        claims.settle(now + 9 * MS);
        assert!(claims.told().is_empty());
        claims.end(nodes[0], 8, now + 9 * MS);
        assert_eq!(claims.due(), Some(now + 9 * MS + LINGER));
        claims.settle(now + 9 * MS + LINGER);
        assert_eq!(claims.told(), [Claimed { to: nodes[0], is_active: false }]);
        assert_eq!((claims.rate(), claims.due()), (20.0 * MBIT, None));
        // What comes late counts for nothing.
        claims.granted(nodes[0], mbit(1.0), now);
        assert_eq!(claims.rate(), 20.0 * MBIT);
    }

    #[test]
    fn destinations_have_the_parts_they_were_granted() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 0, now);
        claims.begin(nodes[1], 1, now);
        claims.begin(nodes[1], 2, now);
        assert_eq!([0, 1, 3].map(|n| claims.share(nodes[n])), [1.0; 3]);
        claims.granted(nodes[0], mbit(2.0), now);
        claims.granted(nodes[1], mbit(8.0), now);
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
            claims.granted(*node, mbit(5.0), now);
        }
        claims.end(nodes[0], 0, now);
        claims.end(nodes[1], 1, now);
        claims.settle(now + LINGER);
        assert!((claims.rate() - 20.0 * MBIT).abs() < 1.0, "{}", claims.rate());
        claims.granted(nodes[2], mbit(8.0), now);
        claims.granted(nodes[3], mbit(8.0), now);
        assert_eq!(claims.rate(), 16.0 * MBIT);
    }

    #[test]
    fn without_bounds_all_is_alike() {
        let (mut claims, nodes, now) = claims();
        claims.begin(nodes[0], 0, now);
        claims.granted(nodes[0], Rate::UNBOUNDED, now);
        claims.settle(now + 9 * MS);
        assert_eq!((claims.rate(), claims.share(nodes[0])), (f64::INFINITY, 1.0));
    }
}
