//! Where processes were not found though their cluster is there: not all of a cluster may be at each of its relays, one that has just
//! come least of all.

use std::collections::HashMap;
use std::time::Duration;

use gridmpi_wire::{JobId, ProcId};

use super::LinkKey;

/// For so long other connections are tried first.
const LATELY: Duration = Duration::from_secs(5);

/// Who is not found for so long is not late, but elsewhere: a longer way may lead there, too. Circuits stay on the way that they have come by, and most who
/// are not found at a job's start are there the next moment.
const LONG: Duration = Duration::from_secs(1);

/// Who is not found again within so long has not been there meanwhile.
const KEPT: Duration = Duration::from_secs(60);

/// So much is kept in mind.
const MOST: usize = 1024;

/// A process of a job, and a connection by which it was not found.
pub(super) type What = (JobId, ProcId, LinkKey);

/// Who was not found, and when.
#[derive(Debug, Default)]
pub(super) struct Missed(HashMap<What, Times>);

#[derive(Debug)]
struct Times {
    first: Duration,
    last: Duration,
}

impl Missed {
    /// It is not found. Where too much is to be kept in mind it is not.
    pub(super) fn note(&mut self, what: What, now: Duration) {
        if let Some(times) = self.0.get_mut(&what).filter(|times| now < times.last + KEPT) {
            times.last = now;
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, times| now < times.last + LATELY);
        }
        if self.0.len() < MOST {
            self.0.insert(what, Times { first: now, last: now });
        }
    }

    /// It is found.
    pub(super) fn found(&mut self, what: What) {
        self.0.remove(&what);
    }

    /// Whether it was not lately.
    pub(super) fn has(&self, what: What, now: Duration) -> bool {
        self.lately(what, now).is_some()
    }

    /// Whether it was not again and again for long, up to lately.
    pub(super) fn has_long(&self, what: What, now: Duration) -> bool {
        self.lately(what, now).is_some_and(|times| times.last >= times.first + LONG)
    }

    fn lately(&self, what: What, now: Duration) -> Option<&Times> {
        self.0.get(&what).filter(|times| now < times.last + LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(process: u32) -> What {
        ([1; 16], ProcId(process), LinkKey::from_bits(7))
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_kept_for_a_while_and_never_too_much() {
        let mut missed = Missed::default();
        for n in 0..2000 {
            missed.note(what(n), at(1));
        }
        let has = |n, now| missed.has(what(n), now);
        assert!(has(0, at(5)) && has(1023, at(5)) && !has(1024, at(5)));
        assert!(!has(0, at(6)));
        missed.note(what(5000), at(6));
        assert!(missed.has(what(5000), at(6)) && missed.0.len() == 1);
    }

    #[test]
    fn who_is_found_was_late_and_who_is_not_for_long_is_elsewhere() {
        let mut missed = Missed::default();
        missed.note(what(1), at(10));
        assert!(missed.has(what(1), at(12)) && !missed.has_long(what(1), at(12)));
        missed.note(what(1), at(11));
        assert!(missed.has_long(what(1), at(11)) && !missed.has_long(what(1), at(16)));
        // Soon after the next time it is known at once, much later not.
        missed.note(what(1), at(60));
        assert!(missed.has_long(what(1), at(60)));
        missed.note(what(1), at(120));
        assert!(missed.has(what(1), at(120)) && !missed.has_long(what(1), at(120)));
        missed.found(what(1));
        assert!(!missed.has(what(1), at(121)));
    }
}
