//! Where all places of those who are unproven are taken: who comes through, and who has to go.
//!
//! The processes of a job come all at once, many from one address: they wait in the kernel's queue and come through one after the
//! other. A flood does not come through, and whoever is honest waits behind it. So listeners rest while places are taken; when too few
//! have proven themselves for a while the queue is gone through, and from then on, as long as the flood lasts, it is decided by where
//! they come from who has a place ([`gridmpi_sock::crowding`]).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use gridmpi_sock::crowding::{Place, victim};

use crate::accept::Refused;
use crate::daemon::{Daemon, Due};
use crate::sockets::SocketKey;

/// For so long it is seen whether a crowd comes through.
const LOOK: Duration = Duration::from_secs(1);

/// It does if within that time, for one in so many places, somebody has proven himself, and most of those who have left have.
const ENOUGH: usize = 4;

/// For so long after the last one for whom there was no place a flood is taken to go on.
const FLOOD: Duration = Duration::from_secs(10);

/// What is known of those for whom there is no place.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Since when it is looked at.
    since: Option<Instant>,
    /// How many have proven themselves since then, and how many have left for that or another reason.
    through: usize,
    left: usize,
    /// When places were last taken while a flood went on.
    flood: Option<Instant>,
    /// A look is due.
    is_due: bool,
}

impl Crowd {
    /// All places, so many, are taken. `None`: it is to be decided who has one; else those who come wait, up to this time.
    fn wait(&mut self, places: usize, now: Instant) -> Option<Instant> {
        self.judge(places, now);
        if self.flood.is_some_and(|last| now < last + FLOOD) {
            self.flood = Some(now);
            return None;
        }
        if self.since.is_none() {
            (self.since, self.through, self.left) = (Some(now), 0, 0);
        }
        self.since.map(|since| since + LOOK)
    }

    /// Says, if it was looked at for long enough, whether it comes through. At that very moment there may be a place in a flood, too.
    fn judge(&mut self, places: usize, now: Instant) {
        if self.since.take_if(|since| now >= *since + LOOK).is_none() {
            return;
        }
        let is_moving = self.through >= places.div_ceil(ENOUGH);
        if !is_moving || 2 * self.through < self.left {
            self.flood = Some(now);
        }
    }

    /// Somebody has proven himself; he leaves his place as well.
    pub(crate) fn is_through(&mut self) {
        self.through += 1;
    }

    /// Somebody has left his place.
    pub(crate) fn leaves(&mut self) {
        self.left += 1;
    }
}

impl Daemon {
    fn is_crowded(&self) -> bool {
        self.pending.len() >= self.config.unproven.most
    }

    /// Whether another connection may be taken whose other side is unknown.
    pub(crate) fn may_accept(&mut self) -> bool {
        let until = if self.is_crowded() {
            self.crowd.wait(self.config.unproven.most, Instant::now())
        } else {
            None
        };
        self.is_accepting = until.is_none();
        if let Some(until) = until
            && !std::mem::replace(&mut self.crowd.is_due, true)
        {
            self.timer(until, Due::Crowd);
        }
        self.is_accepting
    }

    /// Nobody may have proven himself for long.
    pub(crate) fn look_at_crowd(&mut self) {
        self.crowd.is_due = false;
        self.crowd.judge(self.config.unproven.most, Instant::now());
        self.accept_again();
    }

    /// Sees to a place for one who comes from there; whether he has one.
    pub(crate) fn has_place(&mut self, from: IpAddr) -> bool {
        if !self.is_crowded() {
            return true;
        }
        let place = |key: &SocketKey| {
            let (address, since) = self.unproven(*key)?;
            Some((*key, Place { from: address?.ip(), since }))
        };
        let taken: Vec<(SocketKey, Place)> = self.pending.iter().filter_map(place).collect();
        let victim = victim(taken.iter().map(|(_, place)| *place), from);
        let Some((key, _)) = victim.and_then(|index| taken.get(index)) else { return false };
        self.refuse(*key, &Refused::Crowded);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_waits_while_others_come_through_and_not_in_a_flood() {
        let (mut crowd, began) = (Crowd::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(crowd.wait(64, at(0)), Some(at(1000)));
        assert_eq!(crowd.wait(64, at(900)), Some(at(1000)));
        let leave = |crowd: &mut Crowd, through, others| {
            (0..through).for_each(|_| crowd.is_through());
            (0..through + others).for_each(|_| crowd.leaves());
        };
        leave(&mut crowd, 16, 16);
        assert_eq!(crowd.wait(64, at(1000)), Some(at(2000)));
        // Some that come through make no crowd of a flood that moves.
        let mut moving = Crowd { since: crowd.since, ..Crowd::default() };
        leave(&mut moving, 16, 17);
        assert_eq!(moving.wait(64, at(2000)), None);
        // Nor a few of one that stands.
        leave(&mut crowd, 15, 0);
        assert_eq!(crowd.wait(64, at(2000)), None);
        // From here on at once, as long as it lasts.
        assert_eq!([3, 12, 21].map(|s| crowd.wait(64, at(1000 * s))), [None; 3]);
        assert_eq!(crowd.wait(64, at(31_000)), Some(at(32_000)));
        leave(&mut crowd, 64, 0);
        crowd.judge(64, at(32_000));
        assert_eq!(crowd.wait(64, at(40_000)), Some(at(41_000)));
    }
}
