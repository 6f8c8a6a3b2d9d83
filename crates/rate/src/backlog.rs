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

/// What comes on top when all who send over a link begin together and none has room there, by the time that the link takes for it, s; of some of
/// them, their part. Measured: 9 to 30 KB over 160 Mbit/s by eight of 50, of which half does no harm, since turns leave gaps.
const BEGIN: f64 = 0.65e-3;

/// No more is reckoned with: who is slowed down for others has heard of the first of them.
const MOST: f64 = 0.8e-3;

/// So much has to wait before it is worth a word to all who send that it drains; and what takes less is nothing.
const WORTH_DRAINING: f64 = 0.25e-3;
const NOTHING: f64 = 1e-9;

/// A turn comes by so much too late rather than too early.
const ROUNDED_UP: Duration = Duration::from_nanos(2);

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
    drains: bool,
    /// Since then; the part of it that is granted.
    since: Option<Instant>,
    load: f64,
    /// How many processes have begun to send over it since it was last asked for.
    begun: usize,
    caution: Caution,
}

/// Who sends over a link.
pub(crate) struct Senders {
    /// How many processes.
    pub(crate) active: usize,
    /// For which part of what their interfaces carry it has room: 0 to 1.
    pub(crate) room: f64,
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
        self.over(to, |_, backlog| backlog.begun += 1);
    }

    /// A process has seen this of its connections to a cluster. Whether less is to be granted for it.
    pub(crate) fn see(&mut self, to: ClusterId, seen: Seen, now: Instant) -> bool {
        let mut is_news = false;
        self.over(to, |_, backlog| is_news |= backlog.caution.see(seen, now));
        is_news
    }

    /// Which part of each may be granted where several nodes send (not `is_lone`); `senders` over it.
    pub(crate) fn parts(
        &mut self,
        is_lone: bool,
        senders: impl Fn(Resource) -> Senders,
        now: Instant,
    ) -> impl Iterator<Item = (Resource, f64)> {
        let parts = self.parts;
        self.of.iter_mut().map(move |(&link, backlog)| {
            backlog.pass(now);
            let begun = std::mem::take(&mut backlog.begun);
            // Nobody has to give way to a lone one.
            if begun > 0 && !is_lone {
                backlog.add(begun, &senders(link));
            }
            (link, backlog.part(parts, now))
        })
    }

    /// Ours may send so much from now on towards clusters, bits per second.
    pub(crate) fn load(
        &mut self,
        told: impl Iterator<Item = (ClusterId, f64)>,
        network: &Network,
        now: Instant,
    ) {
        for backlog in self.of.values_mut() {
            backlog.pass(now);
            backlog.load = 0.0;
        }
        for (to, rate) in told {
            self.over(to, |link, backlog| {
                backlog.load += rate / network.capacity(link).bits_per_second();
            });
        }
    }

    /// When more, or less, may be granted of one of them that is in use.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.of.values().filter_map(|backlog| backlog.due(self.parts)).min()
    }

    fn over(&mut self, to: ClusterId, mut change: impl FnMut(Resource, &mut Backlog)) {
        for &link in self.ways.get(&to).into_iter().flatten() {
            self.of.get_mut(&link).into_iter().for_each(|backlog| change(link, backlog));
        }
    }
}

impl Backlog {
    const NEW: Self = Self {
        waits: 0.0,
        drains: false,
        since: None,
        load: 0.0,
        begun: 0,
        caution: Caution::NONE,
    };

    /// So many have begun: nobody has to give way to those for whom there is room beside the others.
    fn add(&mut self, begun: usize, senders: &Senders) {
        let all = senders.active.max(begun) as f64;
        if all > 1.0 {
            let pushing = (begun as f64).min(all * (1.0 - senders.room));
            self.waits = (self.waits + pushing / all * BEGIN).min(MOST);
        }
    }

    /// What waits has drained, or grown.
    fn pass(&mut self, now: Instant) {
        let passed = self.since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.since = Some(now);
        let drained = passed.as_secs_f64() * (1.0 - self.load);
        // What an endless link is granted of may be endless, too.
        let waits = if drained.is_finite() { self.waits - drained } else { self.waits };
        self.waits = waits.clamp(0.0, MOST);
    }

    fn part(&mut self, parts: Parts, now: Instant) -> f64 {
        self.drains = self.waits > if self.drains { NOTHING } else { WORTH_DRAINING };
        if self.drains {
            parts.draining
        } else if self.caution.until(now).is_some() {
            parts.wary
        } else {
            parts.links
        }
    }

    fn due(&self, parts: Parts) -> Option<Instant> {
        let since = self.since.filter(|_| self.load > 0.0 && self.load.is_finite())?;
        let caution = self.caution.until(since);
        if parts.draining >= parts.links {
            return caution;
        }
        // What may be sent differs a little from what should be: it may grow.
        let (from, to) = if self.drains { (self.waits, 0.0) } else { (WORTH_DRAINING, self.waits) };
        let seconds = (from - to) / if self.drains { 1.0 - self.load } else { self.load - 1.0 };
        // Rounded up: not a moment too early. Never is not a time, and more than an hour as good as never.
        let is_coming = (0.0..3600.0).contains(&seconds);
        let turns = is_coming.then(|| since + Duration::from_secs_f64(seconds) + ROUNDED_UP);
        turns.into_iter().chain(caution).min()
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
            self.parts_beside(active, 0.0)
        }

        /// The same where they have room for such a part of what their interfaces carry.
        fn parts_beside(&mut self, active: usize, room: f64) -> Vec<f64> {
            let senders = |_| Senders { active, room };
            self.backlogs.parts(active == 1, senders, self.now).map(|(_, part)| part).collect()
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
        (0..4).for_each(|_| world.backlogs.begin(two));
        // What others send over, too, is not reckoned.
        world.backlogs.begin(third);
        assert_eq!(world.parts(8), [0.9, 0.99]);
        world.load(two, 90e6);
        let due = world.backlogs.due().unwrap();
        let seconds = (due - world.now).as_secs_f64();
        assert!((seconds - 0.5 * BEGIN / 0.1).abs() < 1e-8, "{seconds}");
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
    fn who_has_room_beside_the_others_adds_nothing() {
        let mut world = World::new();
        let [_, _, two, _] = world.clusters;
        for room in [1.0, 0.75] {
            (0..4).for_each(|_| world.backlogs.begin(two));
            assert_eq!(world.parts_beside(4, room), [0.99, 0.99], "{room}");
        }
        world.backlogs.begin(two);
        assert_eq!(world.parts_beside(5, 0.75), [0.9, 0.99], "what waits already counts");
    }

    #[test]
    fn one_of_many_is_not_worth_a_word_to_all_and_some_are() {
        let mut world = World::new();
        let [_, _, two, _] = world.clusters;
        let enough = (1000.0 * WORTH_DRAINING / BEGIN) as usize;
        for _ in 0..enough {
            world.backlogs.begin(two);
            assert_eq!(world.parts(1000), [0.99, 0.99]);
        }
        world.backlogs.begin(two);
        assert_eq!(world.parts(1000), [0.9, 0.99]);
    }

    #[test]
    fn what_is_sent_too_much_comes_about_in_time() {
        let mut world = World::new();
        let [_, _, two, _] = world.clusters;
        assert_eq!(world.parts(8), [0.99, 0.99]);
        world.load(two, 100.5e6);
        let due = world.backlogs.due().unwrap();
        assert!(((due - world.now).as_secs_f64() - WORTH_DRAINING / 0.005).abs() < 1e-6);
        world.now = due + Duration::from_micros(1);
        assert_eq!(world.parts(8), [0.9, 0.99]);
    }

    #[test]
    fn nobody_gives_way_to_a_lone_one() {
        let mut world = World::new();
        let [_, _, two, _] = world.clusters;
        world.backlogs.begin(two);
        assert_eq!(world.parts(1), [0.99, 0.99]);
        assert_eq!(world.parts(2), [0.99, 0.99]);
        // Nor where others send elsewhere.
        world.backlogs.begin(two);
        let parts = world.backlogs.parts(false, |_| Senders { active: 1, room: 0.0 }, world.now);
        assert!(parts.into_iter().all(|(_, part)| part == 0.99));
    }

    #[test]
    fn less_is_granted_of_what_has_lost_something_until_it_is_trusted_again() {
        let mut world = World::new();
        let [_, one, two, third] = world.clusters;
        let lose = |world: &mut World, to| {
            world.backlogs.see(to, LOST, world.now);
            world.now += Duration::from_millis(200);
            world.backlogs.see(to, LOST, world.now)
        };
        assert!(!lose(&mut world, third));
        assert!(lose(&mut world, two) && !lose(&mut world, two));
        assert_eq!(world.parts(8), [0.95, 0.99]);
        world.load(two, 95e6);
        let due = world.backlogs.due().unwrap();
        assert!(due > world.now);
        assert!(lose(&mut world, one));
        assert_eq!(world.parts(8), [0.95, 0.95]);
        // What waits drains first.
        (0..4).for_each(|_| world.backlogs.begin(two));
        assert_eq!(world.parts(8), [0.9, 0.95]);
        world.now = due;
        assert_eq!(world.parts(8)[0], 0.99);
    }

    #[test]
    fn links_without_bounds_and_grants_without_sense_do_no_harm() {
        let mut network = Network::new();
        let [ours, one] = [(); 2].map(|()| network.add_cluster());
        network.add_link(Rate::UNBOUNDED, &[(ours, one)]);
        let (mut backlogs, now) = (Backlogs::new(ours, &network, PARTS), Instant::now());
        let two = |_| Senders { active: 2, room: 0.0 };
        for rate in [f64::INFINITY, 1e300, 0.0] {
            backlogs.begin(one);
            assert_eq!(backlogs.parts(false, two, now).count(), 1);
            backlogs.load([(one, rate)].into_iter(), &network, now);
            let later = now + Duration::from_secs(1);
            let part = backlogs.parts(false, two, later).next().unwrap().1;
            assert!(part == 0.9 || part == 0.99, "{part}");
            assert!(backlogs.due().is_none_or(|due| due > now));
        }
    }
}
