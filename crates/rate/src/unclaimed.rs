//! What a process sends to a cluster without a word to the broker, since it is over before a grant could say more; and what does not keep to the
//! rate, since there is little of it.
//!
//! That goes as fast as the node's interface lets it, claimed or not, as long as all of it together is ahead of the share of each by no
//! more than the link's buffer has room for, that is, were all to do so at once, or as many as do so (`room`). No I/O and no clock: the moment is an argument.

use std::time::{Duration, Instant};

use crate::{Rate, claims};

/// What leaves sooner at the rate that is everybody's is over before a grant could speak of more: so long is young who begins.
const BRIEF: Duration = crate::broker::YOUNG;

/// No more hurries at once, or goes unclaimed, where no window holds it up and the senders are not known: in so long nobody gains much by a grant
/// who hurries, or may have little more at best.
const LONGEST: Duration = BRIEF.saturating_mul(4);

/// What goes so may be ahead of that rate by so many times of what a pause is worth: with that, less than a small switch's buffer if all do
/// so at once.
const AHEAD_MOST: f64 = 2.0;

/// For so long after the broker has said that it is quiet, what is over soon goes unclaimed, unless it says that it is so no longer.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

/// What bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// What every process may always have.
    pub(crate) least: Rate,
    /// What is left to each of those who send at the same time: as much, or more.
    pub(crate) share: Rate,
    /// What the interface lets leave: not less than that.
    pub(crate) fastest: Rate,
    /// What a pause is worth, bits.
    pub(crate) allowance: f64,
    /// What takes longer than [`BRIEF`] may hurry, too, or go unclaimed.
    pub(crate) is_long_too: bool,
    /// So many have been counted not long ago: it needs not be quiet.
    pub(crate) has_room: bool,
}

impl Bounds {
    fn ahead_most(&self) -> f64 {
        AHEAD_MOST * self.allowance
    }

    /// What is longer is claimed, and does not hurry, bits.
    fn longest(&self) -> f64 {
        let longest = if self.is_long_too { LONGEST } else { BRIEF };
        self.least.bits_per_second() * longest.as_secs_f64()
    }

    /// So much at most is kept in mind of what has gone: no more than that and the longest that hurries.
    fn kept(&self) -> f64 {
        self.ahead_most() + self.least.bits_per_second() * LONGEST.as_secs_f64()
    }
}

/// What of all who send together may be ahead, bits.
pub(crate) const fn ahead_of_all() -> f64 {
    AHEAD_MOST * claims::PAUSE * claims::AHEAD
}

/// What of that which has gone would not have left yet at some rates, bits.
#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    /// At the share of each.
    ahead: f64,
    /// And not as fast as the interface lets it either: of `ahead` it is what cannot have come to the link.
    waiting: f64,
}

impl Gone {
    fn after(self, passed: Duration, bounds: Bounds) -> Self {
        let left =
            |bits: f64, rate: Rate| (bits - passed.as_secs_f64() * rate.bits_per_second()).max(0.0);
        Self { ahead: left(self.ahead, bounds.share), waiting: left(self.waiting, bounds.fastest) }
    }

    fn with(self, bits: f64, most: f64) -> Self {
        Self { ahead: (self.ahead + bits).min(most), waiting: (self.waiting + bits).min(most) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Unclaimed {
    /// What has gone, and would not have left yet.
    gone: Option<(Gone, Instant)>,
    /// What waits is to go as fast as the interface lets it.
    hurries: bool,
    /// Until then nobody has to give way.
    quiet_until: Option<Instant>,
}

impl Unclaimed {
    /// So many bits are to go, all that waits: whether they may as fast as the interface lets them. Where there is room those before them that wait
    /// for the interface are as one message with them.
    pub(crate) fn hurry(&mut self, bits: f64, bounds: Bounds, now: Instant) {
        let excess = 1.0 - bounds.share.bits_per_second() / bounds.fastest.bits_per_second();
        let Gone { ahead, waiting } = self.gone(bounds, now);
        let waiting = if bounds.has_room { waiting } else { 0.0 };
        let ahead = ahead - waiting + (waiting + bits) * excess.max(0.0);
        self.hurries = ahead <= bounds.ahead_most() && waiting + bits <= bounds.longest();
    }

    /// Whether what waits may.
    pub(crate) const fn hurries(&self) -> bool {
        self.hurries
    }

    /// So many bits have gone, at whatever rate.
    pub(crate) fn went(&mut self, bits: f64, bounds: Bounds, now: Instant) {
        self.gone = Some((self.gone(bounds, now).with(bits, bounds.kept()), now));
    }

    fn gone(&self, bounds: Bounds, now: Instant) -> Gone {
        let after = |(gone, since): (Gone, Instant)| {
            gone.after(now.saturating_duration_since(since), bounds)
        };
        self.gone.map_or(Gone::default(), after)
    }

    /// The broker has said whether anybody would have to give way.
    pub(crate) fn hear(&mut self, is_quiet: bool, now: Instant) {
        self.quiet_until = is_quiet.then(|| now + QUIET);
    }

    /// Nobody can be asked.
    pub(crate) fn forsake(&mut self) {
        (self.hurries, self.quiet_until) = (false, None);
    }

    /// Whether so many bits need no claim, long as they are: they hurry or would gain little by one, at everybody's rate they would be over soon,
    /// and nobody has to give way.
    pub(crate) fn is_brief(
        &self,
        bits: f64,
        bounds: Bounds,
        gains_little: bool,
        now: Instant,
    ) -> bool {
        let is_quiet = bounds.has_room || self.quiet_until.is_some_and(|until| now < until);
        let is_over_soon = self.hurries || gains_little && bounds.is_long_too;
        is_quiet && is_over_soon && bits <= bounds.longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::{MUCH, start};
    use crate::claims::{CAREFUL, Claims, KNOWN, PAUSE, PROBES, Pace};
    use crate::company::Path;
    use crate::room::HOLDS;
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
        claims.begin_with(start(mbit(base), mbit(160.0)));
        (claims, node, now)
    }

    /// Whose broker has just said that it is quiet.
    fn quiet(least: f64) -> (Claims, NodeId, Instant) {
        let (mut claims, node, now) = claims(least, 50.0);
        claims.hurry(1.0, true, now);
        assert!(!claims.is_brief(1.0, true, now), "nobody has said that it is quiet");
        claims.grant(grant(true), now);
        (claims, node, now)
    }

    fn grant(is_quiet: bool) -> Grant {
        Grant { rate: mbit(50.0), node: mbit(50.0), is_settled: false, is_quiet }
    }

    fn is_brief(claims: &Claims, bits: f64, now: Instant) -> bool {
        let mut claims = claims.clone();
        claims.hurry(bits, true, now);
        claims.is_brief(bits, true, now)
    }

    #[test]
    fn what_is_over_in_a_moment_is_not_claimed_while_it_is_quiet() {
        let (mut claims, node, now) = quiet(40.0);
        // A fifth of it is ahead of what everybody may have.
        let brief = 5.0 * AHEAD_MOST * PAUSE * 50.0 / 160.0;
        assert!(is_brief(&claims, brief, now) && !is_brief(&claims, 1.01 * brief, now));
        assert!(!is_brief(&claims, brief, now + QUIET), "it is time to ask again");
        claims.begin(node, 0, MUCH, now);
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
    fn who_would_gain_little_by_a_claim_makes_none_for_what_is_over_soon() {
        let longest = |least: f64| least * MBIT * LONGEST.as_secs_f64();
        // Of whom each was granted so much, by a claim that has ended.
        let one_of_all = |least: f64, granted: f64| {
            let (mut claims, node, now) = claims(least, least);
            claims.begin(node, 0, MUCH, now);
            claims.grant(Grant { rate: mbit(granted), ..grant(true) }, now);
            claims.end(node, 0);
            (claims, node, now)
        };
        let (mut claims, node, now) = one_of_all(40.0, 39.0);
        assert!(is_brief(&claims, longest(40.0), now) && !is_brief(&claims, longest(40.5), now));
        assert!(!is_brief(&claims, longest(40.0), now + QUIET), "it is time to ask again");
        claims.begin_with(start(mbit(50.0), mbit(160.0)));
        assert!(!is_brief(&claims, longest(40.0), now), "few others send");
        claims.begin_with(start(mbit(40.0), mbit(160.0)));
        claims.enter(&[(node, 0)], true);
        assert!(!is_brief(&claims, longest(40.0), now), "others may send to the same one");
        claims.leave(&[(node, 0)], true);
        assert!(!claims.is_brief(longest(40.0), false, now), "a window may hold it back");
        assert!(is_brief(&claims, longest(40.0), now));
        // What it was granted then says nothing any more.
        claims.grant(grant(true), now + KNOWN);
        assert!(!is_brief(&claims, longest(40.0), now + KNOWN));
        claims.grant(grant(false), now);
        assert!(!is_brief(&claims, longest(40.0), now), "another would have to give way");
        for granted in [50.0, 20.0] {
            let (claims, _, now) = one_of_all(40.0, granted);
            assert!(!is_brief(&claims, longest(40.0), now), "{granted}");
        }
        // One of many, whose interface carries much more than that.
        let (claims, _, now) = one_of_all(20.0, 20.0);
        assert!(!is_brief(&claims, 0.5 * longest(20.0), now));
    }

    #[test]
    fn where_few_send_at_the_same_time_more_goes_unclaimed_for_a_while() {
        let (mut claims, node, now) = claims(20.0, 50.0);
        // So much fits into what eight may be ahead, and four of them.
        let of_all = AHEAD_MOST * PAUSE * 25.0 / 160.0 / (1.0 - 20.0 / 50.0);
        let of_few = AHEAD_MOST * PAUSE * 50.0 / 160.0 / (1.0 - 40.0 / 50.0);
        let longest = 20.0 * MBIT * LONGEST.as_secs_f64();
        let most = |claims: &Claims, is_open: bool, now: Instant| {
            let is_brief = |bits: &f64| {
                let mut claims = claims.clone();
                claims.hurry(*bits, is_open, now);
                claims.is_brief(*bits, is_open, now)
            };
            [of_all, longest.min(of_few)].into_iter().filter(is_brief).count()
        };
        assert_eq!(most(&claims, true, now), 0, "it is not known to be quiet");
        claims.make_room(mbit(40.0), now);
        assert_eq!((most(&claims, true, now), most(&claims, false, now)), (2, 0));
        assert_eq!(most(&claims, true, now + HOLDS), 0, "it is time to claim all");
        claims.enter(&[(node, 0)], true);
        assert_eq!(most(&claims, true, now), 0, "several may send to one");
        claims.leave(&[(node, 0)], true);
        claims.resent(PROBES + 1, now);
        assert_eq!(most(&claims, true, now), 0, "something was lost");
        claims.forsake();
        assert_eq!(most(&claims, true, now + CAREFUL), 0, "nobody can be asked");
    }

    #[test]
    fn where_there_is_room_messages_in_a_row_are_as_one_that_is_as_long_as_all_of_them() {
        // So many messages of 5 KB right behind each other go unclaimed, so long after the first.
        let in_a_row = |room: Option<f64>, after: Duration| {
            let (mut claims, _, now) = quiet(20.0);
            room.into_iter().for_each(|rate| claims.make_room(mbit(rate), now));
            let mut count = 0;
            for n in 0..20 {
                let now = if n == 0 { now } else { now + after };
                if !is_brief(&claims, 40e3, now) {
                    break;
                }
                claims.hurry(40e3, true, now);
                claims.went(40e3, now);
                count += 1;
            }
            count
        };
        let most = |share: f64| AHEAD_MOST * PAUSE * (1.25 * share).min(50.0) / 160.0;
        let alone = |share: f64| most(share) / (1.0 - share / 50.0);
        let longest = 20.0 * MBIT * LONGEST.as_secs_f64();
        let times = |bits: f64| (bits / 40e3) as u32;
        assert_eq!(in_a_row(Some(40.0), Duration::ZERO), times(longest.min(alone(40.0))));
        assert_eq!(in_a_row(Some(25.0), Duration::ZERO), times(alone(25.0)));
        // Where nobody has said how many send, all that has gone is ahead.
        assert_eq!(in_a_row(None, Duration::ZERO), 1);
        // The first has left by then, and half of it is ahead.
        let left = Duration::from_secs_f64(40e3 / 50e6);
        assert_eq!(in_a_row(Some(25.0), left), 1 + times((most(25.0) - 20e3) / 0.5));
    }

    #[test]
    fn on_a_long_path_what_has_gone_is_ahead_of_everybodys_share_for_as_long_as_without_room() {
        let ahead_after = |has_room: bool| {
            let (mut claims, _, now) = claims(20.0, 50.0);
            if has_room {
                claims.make_room(mbit(40.0), now);
            }
            // 46 Mbit/s, twice what everybody may have.
            let step = Duration::from_micros(500);
            let hurries = |n: &u32| {
                claims.hurry(23e3, false, now + *n * step);
                claims.went(23e3, now + *n * step);
                matches!(claims.pace(), Pace::Interface(_))
            };
            (0..20).filter(hurries).count()
        };
        assert!(ahead_after(false) < 10, "{}", ahead_after(false));
        assert_eq!(ahead_after(true), ahead_after(false));
    }

    #[test]
    fn on_a_long_path_or_in_a_collective_little_goes_unclaimed() {
        let brief = 40.0 * MBIT * BRIEF.as_secs_f64();
        let (mut claims, node, now) = quiet(40.0);
        assert!(is_brief(&claims, 1.01 * brief, now));
        let is_brief = |claims: &mut Claims, bits, is_open| {
            claims.hurry(bits, is_open, now);
            claims.is_brief(bits, is_open, now)
        };
        let cases = |claims: &mut Claims, is_open| {
            [is_brief(claims, brief, is_open), is_brief(claims, 1.01 * brief, is_open)]
        };
        assert_eq!(cases(&mut claims, false), [true, false]);
        claims.enter(&[(node, 0)], true);
        assert_eq!(cases(&mut claims, true), [true, false]);
    }

    #[test]
    fn what_is_granted_less_hurries_less() {
        let (mut claims, node, now) = claims(40.0, 40.0);
        let hurries = |claims: &mut Claims, bits| {
            claims.hurry(bits, true, now);
            matches!(claims.pace(), Pace::Interface(_))
        };
        let bits = 20.0 * MBIT * BRIEF.as_secs_f64();
        assert!(hurries(&mut claims, bits));
        claims.begin(node, 0, MUCH, now);
        assert!(hurries(&mut claims, bits));
        claims.grant(Grant { rate: mbit(10.0), ..grant(true) }, now);
        assert!(!hurries(&mut claims, bits));
        // It may be so again the next time.
        claims.end(node, 0);
        let brief = 40.0 * MBIT * BRIEF.as_secs_f64();
        assert!(hurries(&mut claims, brief) && !hurries(&mut claims, 1.01 * brief));
        claims.hurry(1.01 * brief, true, now + KNOWN);
        assert!(matches!(claims.pace(), Pace::Interface(_)));
    }

    #[test]
    fn what_hurries_goes_as_fast_as_the_interface_lets_it_claimed_or_not() {
        let (mut claims, node, now) = claims(20.0, 30.0);
        assert_eq!(claims.pace(), Pace::Held(mbit(30.0)));
        claims.hurry(1e3, true, now);
        assert_eq!((claims.pace(), claims.rate()), (Pace::Interface(mbit(50.0)), mbit(30.0)));
        claims.hold(Some(mbit(1.0)));
        assert_eq!(claims.pace(), Pace::Transfers(mbit(1.0)), "the program's own rate counts");
        claims.hold(None);
        claims.begin(node, 0, MUCH, now);
        claims.hurry(1e3, true, now);
        assert_eq!(claims.pace(), Pace::Interface(mbit(50.0)), "claimed or not");
        claims.hurry(1e9, true, now);
        assert_eq!(claims.pace(), Pace::Claimed(mbit(30.0)), "there is too much of it");
        claims.hurry(1e3, true, now);
        assert_eq!(claims.pace(), Pace::Claimed(mbit(30.0)), "it would go before that");
        claims.hold(Some(mbit(1.0)));
        assert_eq!(claims.pace(), Pace::Transfers(mbit(1.0)), "claimed or not");
        claims.hold(None);
        claims.end(node, 0);
        assert_eq!(claims.pace(), Pace::Held(mbit(30.0)));
        claims.hurry(1e3, true, now);
        claims.begin_with(start(mbit(30.0), mbit(50.0)));
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
            claims.hurry(bits, true, now);
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
        claims.hurry(100.0 * longest, true, until(longest));
        claims.begin(node, 0, MUCH, now);
        claims.went(longest, until(longest));
        claims.end(node, 0);
        assert!(hurries(&mut claims, 0.99 * longest, until(longest)));
        // But what hurries is.
        claims.begin(node, 0, MUCH, now);
        claims.went(longest, until(longest));
        claims.end(node, 0);
        assert!(!hurries(&mut claims, 0.99 * longest, until(longest)));
        claims.went(100.0 * longest, until(longest));
        let kept = longest + most + 20.0 * MBIT * LONGEST.as_secs_f64();
        assert!(!hurries(&mut claims, 0.99 * longest, until(0.99 * kept)));
        assert!(hurries(&mut claims, 0.99 * longest, until(kept)));
        claims.resent(PROBES + 1, now);
        assert!(!hurries(&mut claims, 1.0, until(kept)), "something was lost");
        assert!(hurries(&mut claims, 1.0, now + CAREFUL), "that is long ago");
    }
}
