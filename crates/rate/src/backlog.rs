//! What waits before the links out of a cluster, by who has begun to send over them.
//!
//! Those who send already give way to one who begins when they have heard of it, and first turns come in one piece: for a moment more is
//! sent than a link carries. That waits in its buffer until less has been granted for long enough. So less is, until then, and nearly all
//! afterwards: a link before which nothing waits any more loses what is not granted of it. Nobody asks the link; what comes on top is reckoned.

use crate::caution::Caution;
use crate::links::Parts;
use crate::network::Resource;
use crate::{ClusterId, Network, Seen};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What comes on top when all who send over a link begin together, by the time that the link takes for it, s; of some of them, their part.
/// Measured: 9 to 30 KB over 160 Mbit/s, of which half does no harm, since turns leave gaps.
const BEGIN: f64 = 0.4e-3;

/// No more is reckoned with: who is slowed down for others has heard of the first of them.
const MOST: f64 = 0.8e-3;

/// What takes less is nothing.
const NOTHING: f64 = 1e-9;

/// The links over which nobody but this cluster sends.
#[derive(Clone, Debug)]
pub(crate) struct Backlogs {
    /// Those of them to each cluster.
    ways: BTreeMap<ClusterId, Vec<Resource>>,
    of: BTreeMap<Resource, Backlog>,
    parts: Parts,
}

#[derive(Clone, Debug)]
struct Backlog {
    /// The time that the link takes for what waits, s.
    waits: f64,
    /// Since then; the part of it that is granted.
    since: Option<Instant>,
    load: f64,
    /// How many processes have begun to send over it since it was last asked for.
    begun: usize,
    caution: Caution,
}

impl Backlogs {
    /// Nothing waits before the links out of `ours`.
    pub(crate) fn new(ours: ClusterId, network: &Network, parts: Parts) -> Self {
        let own = |links: Vec<Resource>| {
            links.into_iter().filter(|&link| network.is_only_of(link, ours)).collect()
        };
        let ways: BTreeMap<_, Vec<_>> =
            network.ways(ours).map(|(to, links)| (to, own(links))).collect();
        let of = ways.values().flatten().map(|&link| (link, Backlog::NEW)).collect();
        Self { ways, of, parts }
    }

    /// A process begins to send to a cluster.
    pub(crate) fn begin(&mut self, to: ClusterId) {
        for link in self.ways.get(&to).into_iter().flatten() {
            self.of.get_mut(link).into_iter().for_each(|backlog| backlog.begun += 1);
        }
    }

    /// A process has seen this of its connections to a cluster. Whether less is to be granted for it.
    pub(crate) fn see(&mut self, to: ClusterId, seen: Seen, now: Instant) -> bool {
        let mut is_news = false;
        for link in self.ways.get(&to).into_iter().flatten() {
            if let Some(backlog) = self.of.get_mut(link) {
                is_news |= backlog.caution.see(seen, now);
            }
        }
        is_news
    }

    /// Which part of each may be granted where several nodes send (not `is_lone`), over which so many processes send.
    pub(crate) fn parts(
        &mut self,
        is_lone: bool,
        active: impl Fn(Resource) -> usize,
        now: Instant,
    ) -> impl Iterator<Item = (Resource, f64)> {
        let parts = self.parts;
        self.of.iter_mut().map(move |(&link, backlog)| {
            backlog.pass(now);
            let begun = std::mem::take(&mut backlog.begun);
            // Nobody has to give way to a lone one.
            if begun > 0 && !is_lone {
                let part = begun as f64 / active(link).max(begun) as f64;
                backlog.waits = (backlog.waits + part * BEGIN).min(MOST);
            }
            (link, backlog.part(parts, now))
        })
    }

    /// From now on so much is granted to ours towards clusters, bits per second.
    pub(crate) fn load(
        &mut self,
        granted: impl Iterator<Item = (ClusterId, f64)>,
        network: &Network,
        now: Instant,
    ) {
        for backlog in self.of.values_mut() {
            backlog.pass(now);
            backlog.load = 0.0;
        }
        for (to, rate) in granted {
            for link in self.ways.get(&to).into_iter().flatten() {
                let load = rate / network.capacity(*link).bits_per_second();
                self.of.get_mut(link).into_iter().for_each(|backlog| backlog.load += load);
            }
        }
    }

    /// When more may be granted of one of them that is in use.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.of.values().filter_map(|backlog| backlog.due(self.parts)).min()
    }
}

impl Backlog {
    const NEW: Self = Self { waits: 0.0, since: None, load: 0.0, begun: 0, caution: Caution::NONE };

    /// What waits has drained, or grown.
    fn pass(&mut self, now: Instant) {
        let passed = self.since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.since = Some(now);
        let drained = passed.as_secs_f64() * (1.0 - self.load);
        // What an endless link is granted of may be endless, too.
        let waits = if drained.is_finite() { self.waits - drained } else { self.waits };
        self.waits = waits.clamp(0.0, MOST);
    }

    fn part(&self, parts: Parts, now: Instant) -> f64 {
        if self.waits > NOTHING {
            parts.draining
        } else if self.caution.until(now).is_some() {
            parts.wary
        } else {
            parts.links
        }
    }

    fn due(&self, parts: Parts) -> Option<Instant> {
        let since = self.since.filter(|_| self.load > 0.0)?;
        let drains = 1.0 - self.load;
        if self.waits > NOTHING && drains > 0.0 && parts.draining < parts.links {
            // Rounded up: not a moment too early. An hour is as good as never.
            let after = Duration::from_secs_f64((self.waits / drains).min(3600.0));
            return Some(since + after + Duration::from_nanos(1));
        }
        self.caution.until(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;

    const PARTS: Parts = Parts { links: 0.99, draining: 0.9, wary: 0.95, receivers: 1.0 };
    const LOST: Seen = Seen { arrived: 100, resent: 50, queued: None };

    struct World {
        network: Network,
        backlogs: Backlogs,
        clusters: [ClusterId; 4],
        now: Instant,
    }

    impl World {
        /// A cluster, whose uplink leads to two others, one of which has a link of its own besides; others send over what leads to the third.
        fn new() -> Self {
            let mut network = Network::new();
            let clusters = [(); 4].map(|()| network.add_cluster());
            let [ours, one, two, third] = clusters;
            let rate = Rate::from_bits_per_second(100e6).unwrap();
            network.add_link(rate, &[(ours, one), (ours, two)]);
            network.add_link(rate, &[(ours, one)]);
            network.add_link(rate, &[(ours, third), (one, third)]);
            let backlogs = Backlogs::new(ours, &network, PARTS);
            Self { network, backlogs, clusters, now: Instant::now() }
        }

        /// The parts of the links when so many send over each.
        fn parts(&mut self, active: usize) -> Vec<f64> {
            self.backlogs.parts(active == 1, |_| active, self.now).map(|(_, part)| part).collect()
        }

        fn load(&mut self, to: ClusterId, rate: f64) {
            self.backlogs.load([(to, rate)].into_iter(), &self.network, self.now);
        }
    }

    #[test]
    fn what_has_come_about_drains_before_all_is_granted() {
        let mut world = World::new();
        let [_, one, two, third] = world.clusters;
        assert_eq!(world.parts(8), [0.99, 0.99]);
        assert_eq!(world.backlogs.due(), None);
        world.backlogs.begin(two);
        world.backlogs.begin(two);
        // What others send over, too, is not reckoned.
        world.backlogs.begin(third);
        assert_eq!(world.parts(8), [0.9, 0.99]);
        world.load(two, 90e6);
        let due = world.backlogs.due().unwrap();
        let seconds = (due - world.now).as_secs_f64();
        assert!((seconds - 0.25 * BEGIN / 0.1).abs() < 1e-8, "{seconds}");
        world.now = due - Duration::from_micros(1);
        assert_eq!(world.parts(8), [0.9, 0.99]);
        world.now = due;
        assert_eq!(world.parts(8), [0.99, 0.99]);
        world.load(two, 99e6);
        assert_eq!(world.backlogs.due(), None);
        // However many begin: there is a most.
        for _ in 0..9 {
            (0..8).for_each(|_| world.backlogs.begin(one));
            assert_eq!(world.parts(8), [0.9, 0.9]);
        }
        world.load(one, 0.0);
        assert_eq!(world.backlogs.due(), None);
        world.now += Duration::from_secs_f64(1.01 * MOST);
        assert_eq!(world.parts(8), [0.99, 0.99]);
    }

    #[test]
    fn nobody_gives_way_to_a_lone_one() {
        let mut world = World::new();
        let [_, _, two, _] = world.clusters;
        world.backlogs.begin(two);
        assert_eq!(world.parts(1), [0.99, 0.99]);
        assert_eq!(world.parts(2), [0.99, 0.99]);
    }

    #[test]
    fn less_is_granted_of_what_has_lost_something_until_it_is_trusted_again() {
        let mut world = World::new();
        let [_, one, two, third] = world.clusters;
        assert!(!world.backlogs.see(third, LOST, world.now));
        assert!(world.backlogs.see(two, LOST, world.now));
        assert!(!world.backlogs.see(two, LOST, world.now));
        assert_eq!(world.parts(8), [0.95, 0.99]);
        world.load(two, 95e6);
        let due = world.backlogs.due().unwrap();
        assert!(due > world.now);
        assert!(world.backlogs.see(one, LOST, world.now));
        assert_eq!(world.parts(8), [0.95, 0.95]);
        // What waits drains first.
        world.backlogs.begin(two);
        assert_eq!(world.parts(8), [0.9, 0.95]);
        world.now = due;
        assert_eq!(world.parts(8), [0.99, 0.99]);
    }

    #[test]
    fn links_without_bounds_and_grants_without_sense_do_no_harm() {
        let mut network = Network::new();
        let [ours, one] = [(); 2].map(|()| network.add_cluster());
        network.add_link(Rate::UNBOUNDED, &[(ours, one)]);
        let (mut backlogs, now) = (Backlogs::new(ours, &network, PARTS), Instant::now());
        for rate in [f64::INFINITY, 1e300, 0.0] {
            backlogs.begin(one);
            assert_eq!(backlogs.parts(false, |_| 2, now).count(), 1);
            backlogs.load([(one, rate)].into_iter(), &network, now);
            let later = now + Duration::from_secs(1);
            let part = backlogs.parts(false, |_| 2, later).next().unwrap().1;
            assert!(part == 0.9 || part == 0.99, "{part}");
            assert!(backlogs.due().is_none_or(|due| due > now));
        }
    }
}
