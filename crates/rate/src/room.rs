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

/// A few that were seen are not all that may come: there is room for no less than such a part of the members.
const LEAST_PART: usize = 2;

/// How many processes of a cluster send at the same time at the most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RollCall {
    /// Until then not everybody says all.
    until: Option<Instant>,
    begun: usize,
    most: usize,
}

impl RollCall {
    /// A transfer begins, with which so many processes of so many members send. How many did at the most, half of them at least, once all has been
    /// heard and it was not all of them: it begins anew then, unless they are [`told`](Self::told).
    pub(crate) fn begin(&mut self, active: usize, members: usize, now: Instant) -> Option<usize> {
        if self.until.is_some_and(|until| now < until) {
            return None;
        }
        self.begun += 1;
        self.most = self.most.max(active);
        if self.begun < ROUNDS * members {
            return None;
        }
        let most = std::mem::take(self).most.max(members.div_ceil(LEAST_PART));
        (most < members).then_some(most)
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
    fn it_takes_as_many_transfers_as_there_are_members_twice() {
        let (mut call, now) = (RollCall::default(), Instant::now());
        assert_eq!(begin(&mut call, &[1, 2, 1, 3, 1, 1, 1], now), [None; 7]);
        assert_eq!(call.begin(2, 4, now), Some(3));
        // Nobody was told, since somebody sends for long: those before are forgotten.
        assert_eq!(begin(&mut call, &[1; 7], now), [None; 7]);
        assert_eq!(call.begin(2, 4, now), Some(2));
    }

    #[test]
    fn what_begins_while_not_everybody_says_all_is_not_counted() {
        let (mut call, now) = (RollCall::default(), Instant::now());
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
        assert_eq!(begin(&mut call, &[1, 4, 1, 1, 1, 1, 1, 1], now), [None; 8]);
        assert_eq!(begin(&mut call, &[3; 8], now).last(), Some(&Some(3)));
    }
}
