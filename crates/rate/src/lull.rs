//! Whether anybody sends for long who would have to give way: where nobody does, what is over in a moment need not be asked for.
//!
//! Who is granted no more than everybody may always have need not give way to who keeps to that, too, however long it sends. Who was told so
//! is told when it is so no longer, unless it asks again anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::unclaimed::QUIET;
use crate::{ClusterId, Process};

/// So long nobody must have, or those who send for long by turns with what is brief would have a word each time that they begin.
const CALM: Duration = Duration::from_millis(50);

/// What a process sends to a cluster.
type Way = (Process, ClusterId);

/// One of our processes, or (`None`) those of other clusters that meet ours on a link or at a receiver.
type Who = Option<Way>;

/// What one of our processes is granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    /// When it is young no longer.
    pub(crate) old_from: Instant,
    /// What everybody may always have, bits per second.
    pub(crate) fair: f64,
    /// What it is granted beyond that; less than 0 where that is less. Infinite where others need what it could not have.
    pub(crate) more: f64,
}

/// What one has had beyond everybody's share by then, bits, and has now.
#[derive(Clone, Copy, Debug)]
struct Had {
    bits: f64,
    at: Instant,
    sender: Sender,
}

impl Had {
    /// It has something else from now on, and no more in mind than this.
    fn pass(&mut self, sender: Sender, most: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let more = if self.sender.more.is_finite() { self.sender.more * passed } else { 0.0 };
        (self.bits, self.at, self.sender) = ((self.bits + more).clamp(0.0, most), now, sender);
    }

    /// When it has had so many bits for long, if nothing changes.
    fn long_from(&self, borne: f64) -> Option<Instant> {
        let Sender { old_from, more, .. } = self.sender;
        if self.bits > borne || more.is_infinite() {
            return Some(old_from);
        }
        let left = (borne - self.bits) / more;
        // More than an hour is as good as never, and never is not a time.
        let is_coming = more > 0.0 && left < 3600.0;
        is_coming.then(|| old_from.max(self.at + Duration::from_secs_f64(left)))
    }
}

/// Who sends for long, and who was told that nobody else does.
#[derive(Clone, Debug)]
pub(crate) struct Lull {
    /// What those who have more than everybody may have had of that, together, before it matters to somebody, bits; and now each of them.
    borne: f64,
    each: f64,
    senders: BTreeMap<Way, Had>,
    /// Those who send nothing at present, but have had more not long ago.
    resting: BTreeMap<Way, Had>,
    long: BTreeSet<Who>,
    /// When one of them will, if nothing changes.
    due: Option<Instant>,
    /// When others ceased to.
    past: BTreeMap<Who, Instant>,
    told: BTreeMap<Way, Instant>,
}

impl Lull {
    /// Nobody sends. So many bits that are sent beyond everybody's share matter to nobody.
    pub(crate) const fn new(borne: f64) -> Self {
        Self {
            borne,
            each: borne,
            senders: BTreeMap::new(),
            resting: BTreeMap::new(),
            long: BTreeSet::new(),
            due: None,
            past: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// These send, and others of other clusters perhaps.
    pub(crate) fn note(&mut self, senders: &[(Way, Sender)], has_others: bool, now: Instant) {
        let over = senders.iter().filter(|(_, sender)| sender.more > 0.0).count();
        self.each = self.borne / over.max(1) as f64;
        let most = 2.0 * self.borne;
        let mut before = std::mem::take(&mut self.senders);
        before.append(&mut self.resting);
        for &(way, sender) in senders {
            let mut had = before.remove(&way).unwrap_or(Had { bits: 0.0, at: now, sender });
            had.pass(sender, most, now);
            self.senders.insert(way, had);
        }
        for (way, mut had) in before {
            let Sender { fair, .. } = had.sender;
            had.pass(Sender { more: -fair, ..had.sender }, most, now);
            if had.bits > 0.0 {
                self.resting.insert(way, had);
            }
        }
        let is_long = |had: &Had| had.long_from(self.each).is_some_and(|from| from <= now);
        let ours = self.senders.iter().filter(|(_, had)| is_long(had)).map(|(&way, _)| Some(way));
        let long = ours.chain(has_others.then_some(None)).collect();
        self.past.extend(self.long.difference(&long).map(|&who| (who, now)));
        self.past.retain(|_, since| now.saturating_duration_since(*since) < CALM);
        self.long = long;
        let is_short = |(way, _): &(&Way, &Had)| !self.long.contains(&Some(**way));
        let short = self.senders.iter().filter(is_short);
        self.due = short.filter_map(|(_, had)| had.long_from(self.each)).min();
    }

    /// When somebody is to be told that it is so no longer, if nothing changes: not where all have been, as two send for long.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.told.is_empty() && self.long.len() < 2)
    }

    /// Whether nobody does, or has done just now, but for that itself.
    fn is_for(&self, way: Way) -> bool {
        self.long.iter().chain(self.past.keys()).all(|&who| who == Some(way))
    }

    /// A process that asks is told whether it is so; it is to remember it.
    pub(crate) fn answer(&mut self, way: Way, now: Instant) -> bool {
        let is_so = self.is_for(way);
        if is_so {
            self.told.insert(way, now);
        } else {
            self.told.remove(&way);
        }
        is_so
    }

    /// For whom it is so no longer, of those that were told, believe it still and do not send now: once.
    pub(crate) fn ended(&mut self, sends: impl Fn(&Way) -> bool, now: Instant) -> Vec<Way> {
        if self.long.is_empty() && self.past.is_empty() {
            return Vec::new();
        }
        let mut told = std::mem::take(&mut self.told);
        told.retain(|_, since| now.saturating_duration_since(*since) < 2 * QUIET);
        let is_over = |way: &Way, _: &mut Instant| !self.is_for(*way) && !sends(way);
        let ended = told.extract_if(.., is_over).map(|(way, _)| way).collect();
        self.told = told;
        ended
    }

    /// A process is gone.
    pub(crate) fn forget(&mut self, process: Process) {
        self.told.retain(|(other, _), _| *other != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    const MS: Duration = Duration::from_millis(1);

    /// Two clusters.
    fn clusters() -> [ClusterId; 2] {
        let mut network = Network::new();
        [(); 2].map(|()| network.add_cluster())
    }

    /// Where 1,000 bits beyond everybody's share matter to nobody.
    fn calm() -> Lull {
        Lull::new(1000.0)
    }

    /// What one that is old now is granted beyond that, bits per second.
    fn sender(more: f64, now: Instant) -> Sender {
        Sender { old_from: now, fair: 1e5, more }
    }

    /// These have less than everybody's share.
    fn note(lull: &mut Lull, long: &[Way], now: Instant) {
        let long: Vec<_> = long.iter().map(|&way| (way, sender(f64::INFINITY, now))).collect();
        lull.note(&long, false, now);
    }

    #[test]
    fn who_was_told_is_told_once_when_somebody_else_sends_for_long() {
        let ([to, other], now) = (clusters(), Instant::now());
        let (mut lull, nobody) = (calm(), |_: &_| false);
        assert!((0..3).all(|process| lull.answer((process, to), now)));
        assert!(lull.answer((1, other), now));
        note(&mut lull, &[(1, to)], now);
        assert!(lull.is_for((1, to)) && !lull.is_for((1, other)), "they may share an uplink");
        assert_eq!(lull.ended(|&of| of == (0, to), now), [(1, other), (2, to)]);
        assert_eq!(lull.ended(nobody, now), [(0, to)], "it has ended, and goes on as it was told");
        assert_eq!(lull.ended(nobody, now), []);
        assert!(!lull.answer((0, to), now));
        lull.note(&[], true, now);
        assert_eq!(lull.ended(nobody, now), [(1, to)]);
    }

    #[test]
    fn who_keeps_to_everybodys_share_sends_for_as_long_as_it_likes() {
        let ([to, _], mut lull, now) = (clusters(), calm(), Instant::now());
        let at = |ms| now + ms * MS;
        let one = |lull: &mut Lull, more, ms| {
            lull.note(&[((1, to), sender(more, now))], false, at(ms));
            (lull.due(), lull.is_for((0, to)))
        };
        assert!(lull.answer((0, to), now));
        assert_eq!(one(&mut lull, 0.0, 0), (None, true));
        assert_eq!(one(&mut lull, -5e5, 100), (None, true));
        // Half of what matters to nobody, and a fifth of that is made up for.
        assert_eq!(one(&mut lull, 5e5, 100), (Some(at(102)), true));
        assert_eq!(one(&mut lull, -1e5, 101), (None, true));
        assert_eq!(one(&mut lull, 1e5, 102), (Some(at(108)), true));
        assert_eq!(one(&mut lull, 1e5, 107), (Some(at(108)), true));
        assert_eq!(one(&mut lull, 1e5, 108), (None, false));
        assert_eq!(lull.ended(|_| false, at(108)), [(0, to)]);
        // It has had more until it is calm, and begins anew then.
        assert!(!one(&mut lull, 0.0, 109).1);
        lull.note(&[], false, at(110));
        lull.note(&[], false, at(110) + CALM);
        assert_eq!(one(&mut lull, 1e6, 200), (None, true), "nobody has to be told");
    }

    #[test]
    fn several_have_less_to_spare_each_and_a_short_rest_is_no_new_begin() {
        let ([to, _], mut lull, now) = (clusters(), calm(), Instant::now());
        let at = |ms| now + ms * MS;
        let both = |more| [1, 2].map(|process| ((process, to), sender(more, now)));
        assert!(lull.answer((0, to), now));
        lull.note(&both(1e5), false, now);
        assert_eq!(lull.due(), Some(at(5)), "half of it each");
        // Of 400 bits 200 are gone after two milliseconds at everybody's share, all after four.
        lull.note(&[], false, at(4));
        lull.note(&both(1e5)[..1], false, at(6));
        assert_eq!(lull.due(), Some(at(14)));
        lull.note(&[], false, at(6));
        lull.note(&both(1e5)[..1], false, at(8));
        assert_eq!(lull.due(), Some(at(18)));
        // However much it has had: no more than twice what is borne is kept in mind.
        lull.note(&both(1e9)[..1], false, at(8));
        lull.note(&both(-1e5), false, at(1000));
        assert_eq!(lull.long.len(), 1);
        lull.note(&both(-1e5), false, at(1011));
        assert!(lull.long.is_empty() && !lull.is_for((0, to)));
        lull.note(&both(-1e5), false, at(1011) + CALM);
        assert!(lull.is_for((0, to)));
    }

    #[test]
    fn who_is_young_does_not_send_for_long_yet() {
        let ([to, _], mut lull, now) = (clusters(), calm(), Instant::now());
        assert!(lull.answer((0, to), now));
        let note = |lull: &mut Lull, more, ms| {
            let young = Sender { old_from: now + 10 * MS, ..sender(more, now) };
            lull.note(&[((1, to), young)], false, now + ms * MS);
            (lull.due(), lull.is_for((0, to)))
        };
        for more in [1e9, f64::INFINITY] {
            assert_eq!(note(&mut lull, more, 0), (Some(now + 10 * MS), true));
            assert_eq!(note(&mut lull, more, 9), (Some(now + 10 * MS), true));
        }
        assert_eq!(note(&mut lull, -1e9, 10), (None, false), "it has had more than all that");
    }

    #[test]
    fn it_is_calm_some_time_after_the_last_one() {
        let ([to, _], mut lull, now) = (clusters(), calm(), Instant::now());
        note(&mut lull, &[(1, to)], now);
        let end = now + 1000 * CALM;
        note(&mut lull, &[], end);
        assert!(!lull.is_for((0, to)) && lull.is_for((1, to)));
        note(&mut lull, &[], end + CALM - MS);
        assert!(!lull.is_for((0, to)));
        note(&mut lull, &[], end + CALM);
        assert!(lull.is_for((0, to)));
    }

    #[test]
    fn who_is_gone_or_has_forgotten_it_is_told_nothing() {
        let ([to, _], mut lull, now) = (clusters(), calm(), Instant::now());
        assert!((0..3).all(|process| lull.answer((process, to), now)));
        assert!(lull.answer((2, to), now + QUIET));
        lull.forget(0);
        let later = now + 2 * QUIET;
        lull.note(&[], true, later);
        assert_eq!(lull.ended(|_| false, later), [(2, to)]);
    }
}
