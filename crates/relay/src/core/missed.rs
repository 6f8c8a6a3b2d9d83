//! Where processes were not found though their cluster is there: not all of a cluster may be at each of its relays, one that has just
//! come least of all.

use std::collections::HashMap;
use std::time::Duration;

use gridmpi_wire::{JobId, ProcId};

use super::LinkKey;

/// For so long other connections are tried first.
const LATELY: Duration = Duration::from_secs(5);

/// So much is kept in mind.
const MOST: usize = 1024;

/// A process, and a connection by which it was not found, and when.
#[derive(Debug, Default)]
pub(super) struct Missed(HashMap<(JobId, ProcId, LinkKey), Duration>);

impl Missed {
    /// It is not found by this connection. Where too much is to be kept in mind it is not.
    pub(super) fn note(&mut self, job: JobId, process: ProcId, link: LinkKey, now: Duration) {
        if self.0.len() >= MOST {
            self.0.retain(|_, at| now < *at + LATELY);
        }
        if self.0.len() < MOST {
            self.0.insert((job, process, link), now);
        }
    }

    /// Whether that is so lately.
    pub(super) fn has(&self, job: JobId, process: ProcId, link: LinkKey, now: Duration) -> bool {
        self.0.get(&(job, process, link)).is_some_and(|at| now < *at + LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_for_a_while_and_never_too_much() {
        let (mut missed, link) = (Missed::default(), LinkKey::from_bits(7));
        let at = Duration::from_secs;
        let has = |missed: &Missed, n, now| missed.has([1; 16], ProcId(n), link, now);
        for n in 0..2000 {
            missed.note([1; 16], ProcId(n), link, at(1));
        }
        assert!(has(&missed, 0, at(5)) && has(&missed, 1023, at(5)) && !has(&missed, 1024, at(5)));
        assert!(!has(&missed, 0, at(6)));
        missed.note([1; 16], ProcId(5000), link, at(6));
        assert!(has(&missed, 5000, at(6)) && missed.0.len() == 1);
    }
}
