//! Numbers of frames, as runs without gaps: most lists of them are one or two.

use std::collections::VecDeque;
use std::ops::Range;

/// Numbers in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Line(VecDeque<Range<u64>>);

impl Line {
    pub(crate) fn push(&mut self, number: u64) {
        match self.0.back_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => self.0.push_back(number..number + 1),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<u64> {
        let run = self.0.front_mut()?;
        let number = run.start;
        run.start += 1;
        if run.is_empty() {
            self.0.pop_front();
        }
        Some(number)
    }
}

/// A set of numbers, the lowest first.
#[derive(Debug, Default)]
pub(crate) struct Runs(VecDeque<Range<u64>>);

/// A place among the numbers of a [`Runs`], which it is meaningless for after a change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    run: usize,
    into: u64,
}

impl Runs {
    /// How many runs there are.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn front(&self) -> Option<u64> {
        self.0.front().map(|run| run.start)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the lowest out.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let run = self.0.front_mut()?;
        let number = run.start;
        run.start += 1;
        if run.is_empty() {
            self.0.pop_front();
        }
        Some(number)
    }

    /// Takes the lowest run out if it begins with `number`; its end.
    pub(crate) fn pop_run(&mut self, number: u64) -> Option<u64> {
        self.0.pop_front_if(|run| run.start == number).map(|run| run.end)
    }

    /// Whether `number`, which is below `u64::MAX`, was not among them before.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if let Some(run) = self.0.back_mut()
            && run.end == number
        {
            run.end += 1;
            return true;
        }
        let after = self.0.partition_point(|run| run.start <= number);
        if after > 0 && number < self.0[after - 1].end {
            return false;
        }
        let joins_before = after > 0 && self.0[after - 1].end == number;
        let joins_after = self.0.get(after).is_some_and(|run| run.start == number + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[after - 1].end = self.0[after].end;
                self.0.remove(after);
            }
            (true, false) => self.0[after - 1].end += 1,
            (false, true) => self.0[after].start = number,
            (false, false) => self.0.insert(after, number..number + 1),
        }
        true
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|run| run.start <= number);
        after > 0 && number < self.0[after - 1].end
    }

    /// The number at the place; `None` behind the last.
    pub(crate) fn at(&self, walk: Walk) -> Option<u64> {
        self.0.get(walk.run).map(|run| run.start + walk.into)
    }

    /// The place behind one that has a number.
    pub(crate) fn step(&self, walk: Walk) -> Walk {
        let is_last = self.0.get(walk.run).is_none_or(|run| run.start + walk.into + 1 >= run.end);
        if is_last {
            Walk { run: walk.run + 1, into: 0 }
        } else {
            Walk { into: walk.into + 1, ..walk }
        }
    }

    /// Without what is below `number`.
    pub(crate) fn drop_below(&mut self, number: u64) {
        while let Some(run) = self.0.front_mut()
            && run.start < number
        {
            run.start = number.min(run.end);
            if run.is_empty() {
                self.0.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_a_set(steps in prop::collection::vec((0..4u8, 0..40u64), 0..120)) {
            let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
            for (what, number) in steps {
                match what {
                    0 | 1 => prop_assert_eq!(runs.insert(number), set.insert(number)),
                    2 => prop_assert_eq!(runs.pop(), set.pop_first()),
                    _ => {
                        runs.drop_below(number / 4);
                        set.retain(|&other| other >= number / 4);
                    }
                }
                prop_assert_eq!(runs.contains(number), set.contains(&number));
                let (mut walk, mut seen) = (Walk::default(), Vec::new());
                while let Some(number) = runs.at(walk) {
                    seen.push(number);
                    walk = runs.step(walk);
                }
                prop_assert!(seen.iter().eq(set.iter()), "{:?} {:?}", runs, set);
                let gaps = seen.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
                prop_assert_eq!(runs.runs(), gaps + usize::from(!seen.is_empty()));
            }
        }
    }

    #[test]
    fn a_line_keeps_its_order() {
        let mut line = Line::default();
        [5, 6, 7, 2, 3, 9].into_iter().for_each(|number| line.push(number));
        let all: Vec<u64> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(all, [5, 6, 7, 2, 3, 9]);
    }
}
