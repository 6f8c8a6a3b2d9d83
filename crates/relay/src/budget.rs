//! What there is so much of and no more, shared by jobs: the memory that relayed bytes may take (every window that somebody was
//! granted is charged before, and given back when it is closed), circuits, and places for connections.
//!
//! What a job may have follows from what is left, as in switches whose ports share a buffer (Choudhury and Hahne, "Dynamic queue
//! length thresholds", 1998): a job that is alone may have most of it, several have alike, and there is always room for one more.

use std::collections::HashMap;

use gridmpi_wire::JobId;

/// What is granted, against what may be.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    used: usize,
    /// What jobs have that have something.
    jobs: HashMap<JobId, usize>,
}

/// With something new a job may have so many times what is left: of all, 7 in 8 if it is alone.
const NEW: usize = 7;
/// With something that grows, so many: 2 in 3. So there is room for what is new.
const MORE: usize = 2;

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Self { total, used: 0, jobs: HashMap::new() }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Less than what is used means: nothing new until enough was given back.
    pub(crate) fn set_total(&mut self, total: usize) {
        self.total = total;
    }

    /// Whether so much is there for something new of this job.
    pub(crate) fn has_room(&self, job: JobId, amount: usize) -> bool {
        self.has_room_by(job, amount, NEW)
    }

    /// Takes so much for something new of this job.
    #[must_use]
    pub(crate) fn take(&mut self, job: JobId, amount: usize) -> bool {
        self.take_by(job, amount, NEW)
    }

    /// Takes so much for something of this job to grow.
    #[must_use]
    pub(crate) fn grow(&mut self, job: JobId, amount: usize) -> bool {
        self.take_by(job, amount, MORE)
    }

    fn has_room_by(&self, job: JobId, amount: usize, times: usize) -> bool {
        let has = self.jobs.get(&job).copied().unwrap_or(0).saturating_add(amount);
        let left = self.total.checked_sub(self.used.saturating_add(amount));
        left.is_some_and(|left| has <= left.saturating_mul(times))
    }

    fn take_by(&mut self, job: JobId, amount: usize, times: usize) -> bool {
        let is_there = self.has_room_by(job, amount, times);
        if is_there && amount > 0 {
            self.used += amount;
            *self.jobs.entry(job).or_insert(0) += amount;
        }
        is_there
    }

    /// # Panics
    /// What jobs have is not what is used.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check(&self) {
        assert_eq!(self.jobs.values().sum::<usize>(), self.used);
        assert!(self.jobs.values().all(|has| *has > 0));
    }

    /// So much that this job has taken is there again.
    pub(crate) fn give(&mut self, job: JobId, amount: usize) {
        let has = self.jobs.get(&job).copied().unwrap_or(0);
        debug_assert!(amount <= has && has <= self.used, "more given back than was taken");
        self.used = self.used.saturating_sub(amount);
        match has.saturating_sub(amount) {
            0 => self.jobs.remove(&job),
            left => self.jobs.insert(job, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: JobId = [1; 16];
    const B: JobId = [2; 16];

    #[test]
    fn what_grows_leaves_room_for_what_is_new() {
        let mut budget = Budget::new(240);
        assert!(budget.take(A, 100) && budget.grow(A, 60) && !budget.grow(A, 1));
        assert!(budget.take(A, 50) && !budget.take(A, 1));
        budget.give(A, 210);
        assert_eq!((budget.used(), budget.jobs.len()), (0, 0));
        assert!(!budget.take(A, usize::MAX));
    }

    #[test]
    fn a_job_that_has_all_it_can_get_leaves_room_for_others() {
        let mut budget = Budget::new(8000);
        while budget.take(A, 1) {}
        assert_eq!(budget.used(), 7000);
        while budget.take(B, 1) {}
        assert_eq!(budget.used(), 7875);
        assert!(!budget.take(A, 1));
        // As one gives back the other may have more, until both have alike.
        while !budget.take(A, 1) {
            budget.give(A, 1);
            while budget.take(B, 1) {}
        }
        let [a, b] = [A, B].map(|job| budget.jobs[&job]);
        assert!(a.abs_diff(b) <= 8, "{a} {b}");
    }

    #[test]
    fn with_less_than_is_used_there_is_nothing_new() {
        let mut budget = Budget::new(800);
        assert!(budget.take(A, 700));
        budget.set_total(600);
        assert!(!budget.take(B, 1) && !budget.grow(A, 0));
        budget.give(A, 200);
        assert!(budget.take(B, 1));
    }
}
