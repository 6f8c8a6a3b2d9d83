//! Which steps of a schedule may start, kept up step by step: a schedule has one for each process of other clusters, and they end one
//! by one.

use gridmpi_coll::{Schedule, Step};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is left of a schedule.
pub(super) struct Agenda {
    /// By step: how many steps it still waits for.
    awaited: Vec<usize>,
    /// By step: those that wait for it.
    followers: Vec<Vec<usize>>,
    /// Local collectives that have not started. Each waits for the start of the one before.
    locals: VecDeque<usize>,
    /// Steps that wait for nothing any more, the first in the schedule first.
    ready: BinaryHeap<Reverse<usize>>,
    /// How many are not done.
    left: usize,
}

impl Agenda {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let steps = schedule.steps.len();
        let is_local = |step: &usize| matches!(schedule.steps[*step], Step::Local(_));
        let locals: VecDeque<_> = (0..steps).filter(is_local).collect();
        let mut awaited: Vec<_> = schedule.after.iter().map(Vec::len).collect();
        for &later in locals.iter().skip(1) {
            awaited[later] += 1;
        }
        let mut followers = vec![Vec::new(); steps];
        for (follower, before) in schedule.after.iter().enumerate() {
            for step in before {
                followers[step.0 as usize].push(follower);
            }
        }
        let ready = (0..steps).filter(|step| awaited[*step] == 0).map(Reverse).collect();
        Self { awaited, followers, locals, ready, left: steps }
    }

    /// A step to start now, if there is one.
    pub(super) fn next(&mut self) -> Option<usize> {
        let Reverse(step) = self.ready.pop()?;
        if self.locals.front() == Some(&step) {
            self.locals.pop_front();
            if let Some(&next) = self.locals.front() {
                self.came(next);
            }
        }
        Some(step)
    }

    /// A step that was started is done.
    pub(super) fn done(&mut self, step: usize) {
        self.left -= 1;
        for follower in std::mem::take(&mut self.followers[step]) {
            self.came(follower);
        }
    }

    /// Whether all are done.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// One thing less to wait for.
    fn came(&mut self, step: usize) {
        self.awaited[step] -= 1;
        if self.awaited[step] == 0 {
            self.ready.push(Reverse(step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_coll::{BufferId, LocalCollective, Span, StepId};
    use gridmpi_wire::Rank;

    fn agenda(steps: Vec<(Step, &[u32])>) -> Agenda {
        let after = steps.iter().map(|(_, after)| after.iter().copied().map(StepId).collect());
        let after = after.collect();
        let steps = steps.into_iter().map(|(step, _)| step).collect();
        Agenda::new(&Schedule { steps, after, ..Schedule::default() })
    }

    fn receive() -> Step {
        Step::Receive { from: Rank(1), into: Vec::new(), tag: 0 }
    }

    fn copy() -> Step {
        let nothing = Span { buffer: BufferId(0), offset: 0, len: 0 };
        Step::Copy { from: nothing, to: nothing }
    }

    fn local() -> Step {
        Step::Local(LocalCollective::Barrier)
    }

    fn ready(agenda: &mut Agenda) -> Vec<usize> {
        std::iter::from_fn(|| agenda.next()).collect()
    }

    #[test]
    fn steps_start_when_all_that_they_wait_for_is_done_and_the_first_goes_first() {
        let mut agenda = agenda(vec![
            (receive(), &[]),
            (receive(), &[]),
            (copy(), &[0, 1]),
            (copy(), &[0]),
            (receive(), &[]),
        ]);
        assert_eq!(ready(&mut agenda), [0, 1, 4]);
        agenda.done(1);
        assert!(ready(&mut agenda).is_empty());
        agenda.done(0);
        assert_eq!(ready(&mut agenda), [2, 3]);
        agenda.done(3);
        agenda.done(2);
        assert!(!agenda.is_over());
        agenda.done(4);
        assert!(agenda.is_over() && ready(&mut agenda).is_empty());
    }

    #[test]
    fn local_collectives_start_in_their_order_but_need_not_be_done() {
        let mut agenda =
            agenda(vec![(receive(), &[]), (local(), &[0]), (local(), &[]), (local(), &[1])]);
        assert_eq!(ready(&mut agenda), [0], "the second could, but the first has not started");
        agenda.done(0);
        assert_eq!(ready(&mut agenda), [1, 2]);
        agenda.done(2);
        assert!(ready(&mut agenda).is_empty());
        agenda.done(1);
        assert_eq!(ready(&mut agenda), [3]);
        agenda.done(3);
        assert!(agenda.is_over());
    }

    #[test]
    fn nothing_to_do_is_over_at_once() {
        assert!(agenda(Vec::new()).is_over());
    }
}
