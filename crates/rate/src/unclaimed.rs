//! What a process sends to a cluster without a word to the broker, since it is over before a grant could come.
//!
//! It goes as fast as the node's interface lets it: what there is little of needs no pace. As long as all of it together is ahead of the rate
//! that is everybody's by no more than the link's buffer has room for, that is, were all to do so at once. No I/O and no clock: the moment is
//! an argument.

use std::time::{Duration, Instant};

use crate::Rate;

/// What leaves sooner at the rate that is everybody's is over before a grant could speak of more: so long is young who begins.
const BRIEF: Duration = crate::broker::YOUNG;

/// What goes so may be ahead of that rate by so many times of what a pause is worth: with that, less than a small switch's buffer if all do
/// so at once.
const AHEAD_MOST: f64 = 2.0;

/// For so long after the broker has said that nobody sends for long, what is brief goes unclaimed, unless it says that somebody does now.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

/// What bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// What every process may always have.
    pub(crate) least: Rate,
    /// What the interface lets leave: not less than that.
    pub(crate) fastest: Rate,
    /// What a pause is worth, bits.
    pub(crate) allowance: f64,
}

impl Bounds {
    fn ahead_most(&self) -> f64 {
        AHEAD_MOST * self.allowance
    }

    /// So much at most is kept in mind of what has gone: no more than that and the longest that hurries.
    fn kept(&self) -> f64 {
        self.ahead_most() + self.least.bits_per_second() * BRIEF.as_secs_f64()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Unclaimed {
    /// What has gone and would not have left yet at everybody's rate, bits, at that moment.
    ahead: Option<(f64, Instant)>,
    /// What waits is to go as fast as the interface lets it.
    hurries: bool,
    /// Until then nobody has to give way.
    quiet_until: Option<Instant>,
}

impl Unclaimed {
    /// So many bits are to go, all that waits: whether they may as fast as the interface lets them.
    pub(crate) fn hurry(&mut self, bits: f64, bounds: Bounds, now: Instant) {
        let excess = 1.0 - bounds.least.bits_per_second() / bounds.fastest.bits_per_second();
        let ahead = self.ahead(bounds.least, now) + bits * excess.max(0.0);
        self.hurries = ahead <= bounds.ahead_most();
    }

    /// Whether what waits may.
    pub(crate) const fn hurries(&self) -> bool {
        self.hurries
    }

    /// Something is claimed: what waits does not hurry any more.
    pub(crate) fn claim(&mut self) {
        self.hurries = false;
    }

    /// So many bits have gone, at whatever rate.
    pub(crate) fn went(&mut self, bits: f64, bounds: Bounds, now: Instant) {
        let ahead = self.ahead(bounds.least, now) + bits;
        self.ahead = Some((ahead.min(bounds.kept()), now));
    }

    fn ahead(&self, least: Rate, now: Instant) -> f64 {
        self.ahead.map_or(0.0, |(bits, since)| {
            let passed = now.saturating_duration_since(since).as_secs_f64();
            (bits - passed * least.bits_per_second()).max(0.0)
        })
    }

    /// The broker has said whether anybody would have to give way.
    pub(crate) fn hear(&mut self, is_quiet: bool, now: Instant) {
        self.quiet_until = is_quiet.then(|| now + QUIET);
    }

    /// Nobody can be asked.
    pub(crate) fn forsake(&mut self) {
        (self.hurries, self.quiet_until) = (false, None);
    }

    /// Whether so many bits, that hurry, need no claim, long as they are: at everybody's rate they would be over soon, and nobody has to give
    /// way. What is before them is no more than may be where anything hurries.
    pub(crate) fn is_brief(&self, bits: f64, least: Rate, now: Instant) -> bool {
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        self.hurries && is_quiet && bits <= least.bits_per_second() * BRIEF.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{CAREFUL, Claims, PAUSE, PROBES, Pace};
    use crate::company::Path;
    use crate::{Grant, Network, NodeId};

    const MBIT: f64 = 1e6;

    fn mbit(value: f64) -> Rate {
        Rate::from_bits_per_second(value * MBIT).unwrap()
    }

    /// One that begins with so much, on an interface of 50 and a link of 160 Mbit/s; and somebody to send to.
    fn claims(least: f64, base: f64) -> (Claims, NodeId, Instant) {
        let mut network = Network::new();
        let cluster = network.add_cluster();
        let node = network.add_node(cluster, Rate::UNBOUNDED);
        let (mut claims, now) = (Claims::new(mbit(least)), Instant::now());
        claims.go_over(Path { node, interface: mbit(50.0), link: mbit(160.0) }, Rate::UNBOUNDED);
        claims.begin_with(mbit(base), mbit(160.0));
        (claims, node, now)
    }

    /// Whose broker has just said that it is quiet.
    fn quiet(least: f64) -> (Claims, NodeId, Instant) {
        let (mut claims, node, now) = claims(least, 50.0);
        claims.hurry(1.0, now);
        assert!(!claims.is_brief(1.0, now), "nobody has said that it is quiet");
        claims.grant(grant(true), now);
        (claims, node, now)
    }

    fn grant(is_quiet: bool) -> Grant {
        Grant { rate: mbit(50.0), node: mbit(50.0), is_settled: false, is_quiet }
    }

    fn is_brief(claims: &Claims, bits: f64, now: Instant) -> bool {
        let mut claims = claims.clone();
        claims.hurry(bits, now);
        claims.is_brief(bits, now)
    }

    #[test]
    fn what_is_over_in_a_moment_is_not_claimed_while_it_is_quiet() {
        let (mut claims, node, now) = quiet(40.0);
        let brief = 40.0 * MBIT * BRIEF.as_secs_f64();
        assert!(is_brief(&claims, brief, now) && !is_brief(&claims, 1.01 * brief, now));
        assert!(!is_brief(&claims, brief, now + QUIET), "it is time to ask again");
        claims.begin(node, 0, now);
        assert!(!is_brief(&claims, brief, now), "the broker knows this process already");
        claims.end(node, 0);
        claims.hold(Some(mbit(1.0)));
        assert!(!is_brief(&claims, brief / 2.0, now), "it takes long");
        claims.hold(None);
        claims.grant(grant(false), now);
        assert!(!is_brief(&claims, brief, now), "another would have to give way");
        claims.grant(grant(true), now);
        claims.forsake();
        assert!(!is_brief(&claims, 0.0, now), "nobody can be asked");
    }

    #[test]
    fn what_hurries_goes_as_fast_as_the_interface_lets_it_until_something_is_claimed() {
        let (mut claims, node, now) = claims(20.0, 30.0);
        assert_eq!(claims.pace(), Pace::Held(mbit(30.0)));
        claims.hurry(1e3, now);
        assert_eq!((claims.pace(), claims.rate()), (Pace::Interface(mbit(50.0)), mbit(30.0)));
        claims.hold(Some(mbit(1.0)));
        assert_eq!(claims.pace(), Pace::Transfers(mbit(1.0)), "the program's own rate counts");
        claims.hold(None);
        claims.begin(node, 0, now);
        claims.hurry(1e3, now);
        assert_eq!(claims.pace(), Pace::Claimed(mbit(30.0)));
        claims.hold(Some(mbit(1.0)));
        assert_eq!(claims.pace(), Pace::Transfers(mbit(1.0)), "claimed or not");
        claims.hold(None);
        claims.end(node, 0);
        assert_eq!(claims.pace(), Pace::Held(mbit(30.0)));
        claims.hurry(1e3, now);
        claims.begin_with(mbit(30.0), mbit(50.0));
        assert_eq!(claims.pace(), Pace::Transfers(mbit(30.0)), "one alone fills the link");
        claims.forsake();
        assert_eq!(claims.pace(), Pace::Transfers(mbit(6.25)), "there is no broker");
    }

    #[test]
    fn what_goes_unclaimed_keeps_to_the_rate_that_is_everybodys() {
        let (mut claims, node, now) = claims(20.0, 50.0);
        // So much may pile up, were all to begin at once: however many are believed to.
        let most = AHEAD_MOST * PAUSE * 25.0 / 160.0;
        let longest = most / (1.0 - 20.0 / 50.0);
        let hurries = |claims: &mut Claims, bits, now| {
            claims.hurry(bits, now);
            matches!(claims.pace(), Pace::Interface(_))
        };
        assert!(hurries(&mut claims, 0.99 * longest, now));
        assert!(!hurries(&mut claims, 1.01 * longest, now));
        claims.went(longest, now);
        let until = |bits: f64| now + Duration::from_secs_f64(bits / (20.0 * MBIT));
        assert!(!hurries(&mut claims, 1.0, until(0.99 * (longest - most))));
        assert!(!hurries(&mut claims, 0.5 * longest, until(0.99 * longest - 0.5 * most)));
        assert!(hurries(&mut claims, 0.5 * longest, until(1.01 * longest - 0.5 * most)));
        assert!(hurries(&mut claims, 0.99 * longest, until(longest)));
        // However much it was it is not kept in mind for longer than this; what was claimed is not at all.
        claims.begin(node, 0, now);
        claims.went(longest, until(longest));
        claims.end(node, 0);
        assert!(hurries(&mut claims, 0.99 * longest, until(longest)));
        claims.went(100.0 * longest, until(longest));
        let kept = longest + most + 20.0 * MBIT * BRIEF.as_secs_f64();
        assert!(!hurries(&mut claims, 0.99 * longest, until(0.99 * kept)));
        assert!(hurries(&mut claims, 0.99 * longest, until(kept)));
        claims.resent(PROBES + 1, now);
        assert!(!hurries(&mut claims, 1.0, until(kept)), "something was lost");
        assert!(hurries(&mut claims, 1.0, now + CAREFUL), "that is long ago");
    }
}
