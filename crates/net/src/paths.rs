//! How fast the ways to a cluster are by each other, by all that goes by them.
//!
//! Of one connection among many that share a relay it is known late and badly how fast it is: it has a few frames to carry, whose acknowledgements
//! wait behind what comes from there and then come at once. All that goes by the same relay to the same cluster tells more. What came is
//! compared to what would have come, in the same time, had the peer's connections all been as fast as they are on average: so neither
//! peers that are fast or slow themselves nor ways on which there was little to carry change what is known of the ways.

use std::time::{Duration, Instant};

/// What has been seen of a way for so long, with something on it, counts a third.
const MEMORY: Duration = Duration::from_secs(1);

/// So many bytes that came as expected are taken to have been seen of every way: the shortest frame of those that connections share. More
/// would keep a bad way long from being known for one.
const KNOWN: f64 = (8 << 10) as f64;

/// Ways within this factor of each other are taken for equally fast. What is seen is no closer, and who follows it gives relays that are
/// alike different loads, and then sees them differ by that.
const ALIKE: f64 = 1.25;

/// Less that was acknowledged at a time is words, not data, and says nothing of how fast it might have come.
const LEAST: u64 = 4 << 10;

/// For so long at least, and no more than twice as long, it is remembered how soon a way has answered: ways may become longer.
const LAG_MEMORY: Duration = Duration::from_secs(60);

/// A way by which a process is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Where to.
    pub(crate) cluster: u16,
    /// Which relay of ours.
    pub(crate) relay: usize,
}

/// What was acknowledged on one connection, and how long that took with something on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) bytes: u64,
    pub(crate) span: Duration,
}

/// All ways that something was seen of.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    all: Vec<(Path, Evidence)>,
}

#[derive(Clone, Copy, Debug)]
struct Evidence {
    came: f64,
    /// What would have come if each peer's connections were all as fast as they are on average.
    expected: f64,
    at: Instant,
    lag: Lag,
}

/// The shortest time that an acknowledgement, or the answer in a handshake, has taken lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    least: Option<Duration>,
    since: Instant,
    /// In the [`LAG_MEMORY`] before.
    before: Option<Duration>,
}

impl Lag {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { least: None, since: now, before: None }
    }

    pub(crate) fn note(&mut self, seen: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) >= LAG_MEMORY {
            *self = Self { before: self.least, ..Self::new(now) };
        }
        self.least = Some(self.least.map_or(seen, |least| least.min(seen)));
    }

    pub(crate) fn known(&self) -> Option<Duration> {
        self.least.into_iter().chain(self.before).min()
    }
}

impl Evidence {
    const fn new(at: Instant) -> Self {
        Self { came: 0.0, expected: 0.0, at, lag: Lag::new(at) }
    }

    fn factor(&self) -> f64 {
        (KNOWN + self.came) / (KNOWN + self.expected)
    }
}

impl Paths {
    /// Something came by a way from a peer whose connections carry `mean` bytes per second on average.
    pub(crate) fn add(&mut self, path: Path, came: Came, mean: f64, now: Instant) {
        if came.bytes < LEAST {
            return;
        }
        let evidence = self.of(path, now);
        // Time in which nothing was on its way makes nothing old.
        let passed = now.saturating_duration_since(evidence.at).min(came.span);
        let kept = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        evidence.came = evidence.came * kept + came.bytes as f64;
        evidence.expected = evidence.expected * kept + mean * came.span.as_secs_f64();
        evidence.at = now;
    }

    /// How long an acknowledgement takes by a way while little else waits there, as all connections by it have seen. `seen`: by one of
    /// them, and not told yet.
    pub(crate) fn lag(
        &mut self,
        path: Path,
        seen: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let lag = &mut self.of(path, now).lag;
        if let Some(seen) = seen {
            lag.note(seen, now);
        }
        lag.known()
    }

    fn of(&mut self, path: Path, now: Instant) -> &mut Evidence {
        let at = self.all.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
            self.all.push((path, Evidence::new(now)));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }

    /// By how much a peer's connection by this way is faster than its others are on average, as far as is known.
    pub(crate) fn factor(&self, path: Path) -> f64 {
        let ways = || self.all.iter().filter(|(other, _)| other.cluster == path.cluster);
        let own = ways().find(|(other, _)| *other == path);
        let Some(own) = own.map(|(_, evidence)| evidence.factor()) else { return 1.0 };
        let alike = ways().map(|(_, evidence)| evidence).filter(|evidence| {
            let other = evidence.factor();
            other <= ALIKE * own && own <= ALIKE * other
        });
        let (came, expected) = alike.fold((0.0, 0.0), |(came, expected), evidence| {
            (came + KNOWN + evidence.came, expected + KNOWN + evidence.expected)
        });
        came / expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: f64 = 1024.0;

    fn path(relay: usize) -> Path {
        Path { cluster: 1, relay }
    }

    /// Peers that carry the same to all to each: each relay gets its part by what is known, and `seconds` says how long it is until
    /// a relay's part is acknowledged.
    struct World {
        paths: Paths,
        now: Instant,
        relays: usize,
        peers: usize,
    }

    impl World {
        fn new(relays: usize, peers: usize) -> Self {
            Self { paths: Paths::default(), now: Instant::now(), relays, peers }
        }

        /// The parts of `bytes` for each peer, one for each relay.
        fn parts(&self, bytes: f64) -> Vec<f64> {
            let factors: Vec<_> = (0..self.relays).map(|at| self.paths.factor(path(at))).collect();
            let all: f64 = factors.iter().sum();
            factors.iter().map(|factor| bytes * factor / all).collect()
        }

        /// One exchange. How long it took, and the parts.
        fn exchange(&mut self, bytes: f64, seconds: impl Fn(usize, f64) -> f64) -> (f64, Vec<f64>) {
            let parts = self.parts(bytes);
            let spans: Vec<_> = (0..self.relays).map(|at| seconds(at, parts[at])).collect();
            let mean = parts.iter().sum::<f64>() / spans.iter().sum::<f64>();
            let took = spans.iter().copied().fold(0.0, f64::max);
            let begun = self.now;
            let mut order: Vec<_> = (0..self.relays).collect();
            order.sort_by(|a, b| spans[*a].total_cmp(&spans[*b]));
            for at in order {
                let span = Duration::from_secs_f64(spans[at]);
                let came = Came { bytes: parts[at] as u64, span };
                for _ in 0..self.peers {
                    self.paths.add(path(at), came, mean, begun + span);
                }
            }
            self.now = begun + Duration::from_secs_f64(took);
            (took, parts)
        }
    }

    fn spread(parts: &[f64]) -> f64 {
        let most = parts.iter().copied().fold(0.0, f64::max);
        most / parts.iter().copied().fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn relays_that_are_alike_get_equal_parts_though_acknowledgements_say_otherwise() {
        let mut world = World::new(8, 8);
        for round in 0..20 {
            // All is acknowledged at the end whatever was given, up to a fifth sooner or later.
            let seconds = |at: usize, _| 1.8 * (1.0 + 0.02 * ((at * 7 + round * 3) % 11) as f64);
            let (_, parts) = world.exchange(512.0 * KIB, seconds);
            assert!(spread(&parts) < 1.1, "{round}: {parts:?}");
        }
    }

    #[test]
    fn differing_relays_are_done_together() {
        // Half of them have half the bandwidth; 8 peers share each.
        let rates = |at: usize| if at.is_multiple_of(2) { 2.5e6 } else { 1.25e6 };
        let mut world = World::new(8, 8);
        let seconds = |at: usize, part: f64| 0.01 + 8.0 * part / rates(at);
        let least = 8.0 * 2048.0 * KIB / (4.0 * 2.5e6 + 4.0 * 1.25e6);
        let took: Vec<_> = (0..6).map(|_| world.exchange(2048.0 * KIB, seconds).0).collect();
        assert!(took[0] > 1.4 * least, "equal parts while nothing is known: {took:?}");
        assert!(took[2] < 1.15 * least && took[5] < 1.1 * least, "{took:?}, at least {least}");
    }

    #[test]
    fn a_relay_that_slows_down_is_found_out_soon() {
        let mut world = World::new(4, 8);
        let even = |_: usize, part: f64| 8.0 * part / 2.5e6;
        let worse =
            |at: usize, part: f64| if at == 0 { 4.0 * even(at, part) } else { even(at, part) };
        (0..20).for_each(|_| drop(world.exchange(512.0 * KIB, even)));
        let slowed = world.now;
        let mut last = Vec::new();
        while world.now < slowed + Duration::from_secs(3) {
            last = world.exchange(512.0 * KIB, worse).1;
        }
        assert!(last[1] > 2.5 * last[0], "{last:?}");
        // And when it is as before, again.
        let mended = world.now;
        while world.now < mended + Duration::from_secs(3) {
            last = world.exchange(512.0 * KIB, even).1;
        }
        assert!(spread(&last) < 1.01, "{last:?}");
    }

    #[test]
    fn a_peer_that_reads_slowly_says_nothing_of_the_way_to_it() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        let came = |bytes, seconds| Came { bytes, span: Duration::from_secs(seconds) };
        for at in 1..=10 {
            let now = now + Duration::from_secs(at);
            for relay in 0..2 {
                paths.add(path(relay), came(1_000_000, 1), 1e6, now);
            }
            // Only by one of the two.
            paths.add(path(0), came(10_000, 1), 1e4, now);
        }
        assert!((paths.factor(path(0)) - 1.0).abs() < 0.01, "{paths:?}");
        assert!((paths.factor(path(0)) - paths.factor(path(1))).abs() < 0.01, "{paths:?}");
    }

    #[test]
    fn what_one_connection_saw_of_a_way_is_known_for_all_and_forgotten_when_it_holds_no_more() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut lag = |relay, ms: Option<u64>, seconds| {
            let known = paths.lag(path(relay), ms.map(Duration::from_millis), at(seconds));
            known.map(|known| known.as_millis())
        };
        assert_eq!(lag(0, None, 0), None);
        assert_eq!(lag(0, Some(900), 0), Some(900));
        assert_eq!(lag(0, Some(25), 1), Some(25));
        assert_eq!(lag(0, Some(900), 2), Some(25), "its queue is not its length");
        assert_eq!(lag(1, Some(300), 2), Some(300), "another way");
        assert_eq!(lag(0, Some(310), 61), Some(25));
        assert_eq!(lag(0, Some(320), 120), Some(25));
        assert_eq!(lag(0, Some(330), 122), Some(310), "it has been longer for a minute");
        assert_eq!(paths.factor(path(0)), 1.0, "that says nothing of how much it carries");
    }

    #[test]
    fn words_and_rest_change_nothing_and_each_cluster_has_its_own() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let came = |bytes| Came { bytes, span: Duration::from_secs(1) };
        paths.add(path(0), came(2_000_000), 1e6, at(1));
        paths.add(path(1), came(500_000), 1e6, at(1));
        let known = [paths.factor(path(0)), paths.factor(path(1))];
        assert!(known[0] > 1.5 && known[1] < 0.7, "{known:?}");
        paths.add(path(0), came(LEAST - 1), 1e6, at(2));
        assert_eq!(paths.factor(path(0)), known[0]);
        // An hour later: what is known is as old as the second in which something was on its way.
        paths.add(path(1), came(500_000), 1e6, at(3600));
        assert!(paths.factor(path(1)) < known[1], "{paths:?}");
        assert_eq!(paths.factor(Path { cluster: 2, relay: 0 }), 1.0);
        assert_eq!(paths.factor(path(2)), 1.0);
    }
}
