//! Whether anybody sends for long: where nobody does, what is over in a moment need not be asked for.
//!
//! Who was told so is told when it is so no longer, unless it asks again anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::{ClusterId, Process};

/// So long nobody must have, or those who send for long by turns with what is brief would have a word each time that they begin.
const CALM: Duration = Duration::from_millis(50);

/// One of our processes, or (`None`) those of other clusters that meet ours on a link or at a receiver.
type Who = Option<Process>;

/// Who sends for long, and who was told that nobody else does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lull {
    long: BTreeSet<Who>,
    /// When others ceased to.
    past: BTreeMap<Who, Instant>,
    told: BTreeSet<(Process, ClusterId)>,
}

impl Lull {
    /// These send for long.
    pub(crate) fn note(&mut self, long: BTreeSet<Who>, now: Instant) {
        self.past.extend(self.long.difference(&long).map(|&who| (who, now)));
        self.past.retain(|_, since| now.saturating_duration_since(*since) < CALM);
        self.long = long;
    }

    /// Whether nobody but that process does, or has done just now.
    pub(crate) fn is_for(&self, process: Process) -> bool {
        self.long.iter().chain(self.past.keys()).all(|&who| who == Some(process))
    }

    /// A process that asks is told whether it is so; it is to remember it.
    pub(crate) fn answer(&mut self, process: Process, to: ClusterId) -> bool {
        let is_so = self.is_for(process);
        if is_so {
            self.told.insert((process, to));
        } else {
            self.told.remove(&(process, to));
        }
        is_so
    }

    /// For whom it is so no longer, of those that were told and do not send now: once.
    pub(crate) fn ended(
        &mut self,
        sends: impl Fn(&(Process, ClusterId)) -> bool,
    ) -> Vec<(Process, ClusterId)> {
        let mut told = std::mem::take(&mut self.told);
        let is_over = |of: &(Process, ClusterId)| !sends(of) && !self.is_for(of.0);
        let ended = told.extract_if(.., is_over).collect();
        self.told = told;
        ended
    }

    /// A process is gone.
    pub(crate) fn forget(&mut self, process: Process) {
        self.told.retain(|(other, _)| *other != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_was_told_is_told_once_when_somebody_else_sends_for_long() {
        let (to, now) = (Network::new().add_cluster(), Instant::now());
        let (mut lull, nobody) = (Lull::default(), |_: &_| false);
        assert!((0..3).all(|process| lull.answer(process, to)));
        lull.note(BTreeSet::from([Some(1)]), now);
        assert!(lull.is_for(1) && !lull.is_for(0));
        assert_eq!(lull.ended(|&of| of == (0, to)), [(2, to)]);
        assert_eq!(lull.ended(nobody), [(0, to)], "it has ended, and goes on as it was told");
        assert_eq!(lull.ended(nobody), []);
        assert!(!lull.answer(0, to));
        lull.note(BTreeSet::from([None]), now);
        assert_eq!(lull.ended(nobody), [(1, to)]);
    }

    #[test]
    fn it_is_calm_some_time_after_the_last_one() {
        let (mut lull, now) = (Lull::default(), Instant::now());
        lull.note(BTreeSet::from([Some(1)]), now);
        let end = now + 1000 * CALM;
        lull.note(BTreeSet::new(), end);
        assert!(!lull.is_for(0) && lull.is_for(1));
        lull.note(BTreeSet::new(), end + CALM - MS);
        assert!(!lull.is_for(0));
        lull.note(BTreeSet::new(), end + CALM);
        assert!(lull.is_for(0));
    }

    #[test]
    fn who_is_gone_is_told_nothing() {
        let (to, now) = (Network::new().add_cluster(), Instant::now());
        let mut lull = Lull::default();
        assert!(lull.answer(0, to));
        lull.forget(0);
        lull.note(BTreeSet::from([Some(1)]), now);
        assert_eq!(lull.ended(|_| false), []);
    }
}
