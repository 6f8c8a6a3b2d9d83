//! For how many there is room on a link at the same time, found by a roll-call: for a moment every process says of all that it sends, but for what never need be said,
//! and is counted; then what is over soon need not be said for a while, since of as many as there were it fills no more than the link's buffer has room for.
//!
//! Nobody calls: what was told lapses everywhere at nearly the same time, and from then on processes claim as they always do.

use std::time::{Duration, Instant};

/// What was told holds for so long. A program that does something else meanwhile may lose something by it until then.
pub(crate) const HOLDS: Duration = Duration::from_secs(1);

/// No word takes longer to the last one who is told, whose machine may be late.
const LAPSES: Duration = Duration::from_millis(20);

/// A call is over when so many times as many transfers have begun as there are members: a few seldom meet as many as all that come after them do.
const ROUNDS: usize = 2;

/// The same of the first one: while a program gets ready fewer send than afterwards, or all at once just then.
const ROUNDS_FIRST: usize = 8;

/// A few that were seen are not all that may come: there is room for no less than such a part of the members.
const LEAST_PART: usize = 2;

/// There is as much for each as if so many less had been seen: of what all together may be ahead the link's buffer holds half as much again. Of the most
/// that are there at some moment in a second one has often come by chance.
const FITS: usize = 1;

/// How many processes of a cluster send at the same time at the most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RollCall {
    /// Until then not everybody says all.
    until: Option<Instant>,
    /// One is over.
    has_called: bool,
    begun: usize,
    most: usize,
}

impl RollCall {
    /// A transfer begins, with which so many processes, itself one, of so many members send. For how many there is to be room, half of them at least, once all
    /// has been heard and it was not all of them: it begins anew then, unless they are [`told`](Self::told).
    pub(crate) fn begin(&mut self, active: usize, members: usize, now: Instant) -> Option<usize> {
        if self.until.is_some_and(|until| now < until) {
            return None;
        }
        self.begun += 1;
        self.most = self.most.max(active);
        let rounds = if self.has_called { ROUNDS } else { ROUNDS_FIRST };
        if self.begun < rounds * members {
            return None;
        }
        let most = self.most;
        (self.begun, self.most, self.has_called) = (0, 0, true);
        (most < members).then(|| most.saturating_sub(FITS).max(members.div_ceil(LEAST_PART)))
    }

    /// They are told what it came to.
    pub(crate) fn told(&mut self, now: Instant) {
        self.until = Some(now + HOLDS + LAPSES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transfers with which so many send, one after another: what it comes to at each.
    fn begin(call: &mut RollCall, active: &[usize], now: Instant) -> Vec<Option<usize>> {
        active.iter().map(|&active| call.begin(active, 4, now)).collect()
    }

    #[test]
    fn the_first_takes_four_times_as_many_transfers_as_others() {
        let (mut call, now) = (RollCall::default(), Instant::now());
        let begin = |call: &mut RollCall, count: usize, last, now| {
            assert_eq!(begin(call, &vec![1; count - 1], now), vec![None; count - 1]);
            call.begin(last, 4, now)
        };
        // There is room for half of them at least, and so many fit though one more comes.
        let all = [(3, Some(2)), (1, Some(2)), (4, None), (3, Some(2))];
        assert_eq!(begin(&mut call, 32, 4, now), None);
        for (last, told) in all {
            assert_eq!(begin(&mut call, 8, last, now), told, "those before are forgotten");
        }
    }

    #[test]
    fn one_more_than_there_is_room_for_fits() {
        let mut call = RollCall { has_called: true, ..RollCall::default() };
        let mut most = |most| {
            let mut begin = |active| call.begin(active, 8, Instant::now());
            (0..15).for_each(|_| assert_eq!(begin(1), None));
            begin(most)
        };
        let room = [1, 4, 5, 6, 7, 8].map(&mut most);
        assert_eq!(room, [Some(4), Some(4), Some(4), Some(5), Some(6), None]);
    }

    #[test]
    fn what_begins_while_not_everybody_says_all_is_not_counted() {
        let (mut call, now) = (RollCall::default(), Instant::now());
        (0..32).for_each(|_| _ = call.begin(3, 4, now));
        call.told(now);
        assert_eq!(begin(&mut call, &[3; 9], now + HOLDS), [None; 9]);
        let later = now + HOLDS + LAPSES;
        assert_eq!(begin(&mut call, &[1; 7], later), [None; 7]);
        // There is room for half of them at least.
        assert_eq!(call.begin(1, 4, later), Some(2));
    }

    #[test]
    fn where_all_send_at_the_same_time_nobody_gains_by_it() {
        let (mut call, now) = (RollCall::default(), Instant::now());
        call.has_called = true;
        assert_eq!(begin(&mut call, &[1, 4, 1, 1, 1, 1, 1, 1], now), [None; 8]);
        assert_eq!(begin(&mut call, &[3; 8], now).last(), Some(&Some(2)));
    }
}
