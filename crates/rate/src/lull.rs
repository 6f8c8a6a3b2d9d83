//! Whether anybody sends for long: where nobody does, what is over in a moment need not be asked for.
//!
//! Who was told so is told when it is so no longer, unless it asks again anyway.

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

/// Who sends for long, and who was told that nobody else does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lull {
    long: BTreeSet<Who>,
    /// When others ceased to.
    past: BTreeMap<Who, Instant>,
    told: BTreeMap<Way, Instant>,
}

impl Lull {
    /// These send for long.
    pub(crate) fn note(&mut self, long: BTreeSet<Who>, now: Instant) {
        self.past.extend(self.long.difference(&long).map(|&who| (who, now)));
        self.past.retain(|_, since| now.saturating_duration_since(*since) < CALM);
        self.long = long;
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

    #[test]
    fn who_was_told_is_told_once_when_somebody_else_sends_for_long() {
        let ([to, other], now) = (clusters(), Instant::now());
        let (mut lull, nobody) = (Lull::default(), |_: &_| false);
        assert!((0..3).all(|process| lull.answer((process, to), now)));
        assert!(lull.answer((1, other), now));
        lull.note(BTreeSet::from([Some((1, to))]), now);
        assert!(lull.is_for((1, to)) && !lull.is_for((1, other)), "they may share an uplink");
        assert_eq!(lull.ended(|&of| of == (0, to), now), [(1, other), (2, to)]);
        assert_eq!(lull.ended(nobody, now), [(0, to)], "it has ended, and goes on as it was told");
        assert_eq!(lull.ended(nobody, now), []);
        assert!(!lull.answer((0, to), now));
        lull.note(BTreeSet::from([None]), now);
        assert_eq!(lull.ended(nobody, now), [(1, to)]);
    }

    #[test]
    fn it_is_calm_some_time_after_the_last_one() {
        let ([to, _], mut lull, now) = (clusters(), Lull::default(), Instant::now());
        lull.note(BTreeSet::from([Some((1, to))]), now);
        let end = now + 1000 * CALM;
        lull.note(BTreeSet::new(), end);
        assert!(!lull.is_for((0, to)) && lull.is_for((1, to)));
        lull.note(BTreeSet::new(), end + CALM - MS);
        assert!(!lull.is_for((0, to)));
        lull.note(BTreeSet::new(), end + CALM);
        assert!(lull.is_for((0, to)));
    }

    #[test]
    fn who_is_gone_or_has_forgotten_it_is_told_nothing() {
        let ([to, _], mut lull, now) = (clusters(), Lull::default(), Instant::now());
        assert!((0..3).all(|process| lull.answer((process, to), now)));
        assert!(lull.answer((2, to), now + QUIET));
        lull.forget(0);
        let later = now + 2 * QUIET;
        lull.note(BTreeSet::from([None]), later);
        assert_eq!(lull.ended(|_| false, later), [(2, to)]);
    }
}
