//! How many processes of a cluster send to another at the same time: what transfers may begin with, before the
//! broker knows of them.

use std::collections::HashMap;

use crate::Process;

/// So many transfers, or as many as there are members, are looked back upon, and as many before them.
const LEAST_SPAN: usize = 4;

/// The senders to one cluster. It counts in transfers, not in time: a program that computes for a minute is the same afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// Transfers of each process that has any.
    active: HashMap<Process, u32>,
    /// How many have begun in the present span.
    begun: usize,
    /// The most at the same time in the present span, and in the one before: `None` if there was none.
    peak: usize,
    before: Option<usize>,
}

impl Crowd {
    /// A transfer begins, in a cluster of so many members; whether it is the first of its process.
    pub(crate) fn begin(&mut self, process: Process, members: usize) -> bool {
        let count = self.active.entry(process).or_default();
        *count = count.saturating_add(1);
        if *count > 1 {
            return false;
        }
        self.peak = self.peak.max(self.active.len());
        self.begun += 1;
        if self.begun >= LEAST_SPAN.max(members) {
            self.before = Some(self.peak);
            self.peak = self.active.len();
            self.begun = 0;
        }
        true
    }

    /// A transfer has ended; whether it was the last of its process.
    pub(crate) fn end(&mut self, process: Process) -> bool {
        let Some(count) = self.active.get_mut(&process) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.active.remove(&process);
        true
    }

    /// How many are to be expected at the same time, once enough has been seen.
    pub(crate) fn size(&self) -> Option<usize> {
        Some(self.peak.max(self.before?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_remembered_for_two_spans_and_a_lone_sender_is_believed_after_two() {
        let mut crowd = Crowd::default();
        let alone = |crowd: &mut Crowd, times: usize| {
            (0..times).for_each(|_| {
                crowd.begin(3, 4);
                crowd.end(3);
            });
        };
        alone(&mut crowd, LEAST_SPAN - 1);
        assert_eq!(crowd.size(), None);
        alone(&mut crowd, 1);
        assert_eq!(crowd.size(), Some(1));
        (0..4).for_each(|process| assert!(crowd.begin(process, 4)));
        // Another of the same process is no other sender.
        assert!(!crowd.begin(2, 4));
        assert_eq!(crowd.size(), Some(4));
        assert!(!crowd.end(2));
        (0..4).for_each(|process| assert!(crowd.end(process)));
        alone(&mut crowd, LEAST_SPAN - 1);
        assert_eq!(crowd.size(), Some(4));
        alone(&mut crowd, 2 * LEAST_SPAN);
        assert_eq!(crowd.size(), Some(1));
        assert!(!crowd.end(77));
    }

    #[test]
    fn spans_grow_with_the_cluster() {
        let mut crowd = Crowd::default();
        for process in 0..99 {
            crowd.begin(process, 100);
            crowd.end(process);
        }
        assert_eq!(crowd.size(), None);
    }
}
