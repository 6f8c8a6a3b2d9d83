//! The memory that relayed bytes may take: every window that somebody was granted is charged here before, and given back
//! when it is closed.

/// What is granted, against what may be.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    used: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Self { total, used: 0 }
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

    /// Takes so many bytes for something new.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        self.take_up_to(bytes, self.total)
    }

    /// Takes so many bytes for something to grow. The last quarter is kept for what is new.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.take_up_to(bytes, self.total / 4 * 3)
    }

    fn take_up_to(&mut self, bytes: usize, most: usize) -> bool {
        let is_there = self.used.checked_add(bytes).is_some_and(|used| used <= most);
        if is_there {
            self.used += bytes;
        }
        is_there
    }

    pub(crate) fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "more given back than was taken");
        self.used = self.used.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_leaves_a_quarter_for_what_is_new() {
        let mut budget = Budget::new(400);
        assert!(budget.take(200) && budget.grow(100) && !budget.grow(1));
        assert!(budget.take(100) && !budget.take(1));
        budget.give(400);
        assert_eq!(budget.used(), 0);
        assert!(!budget.take(usize::MAX));
    }
}
