//! Relays that the job does not name: a relay at which we are registered tells of others of our cluster.
//!
//! Nothing is believed of them. We try to register there, seldom; only one that proves our relays' token is a way to others, behind
//! those that there are. It stays one to the job's end: circuits go through it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridmpi_wire::{MOST_BESIDE, ProcId, RelayAddress};

use crate::Way;
use crate::relays::{PAUSE_LEAST, Registration, Relays};
use crate::state::State;

/// Longest pause before one that has never kept us is tried again: whoever told of it may lie, and it is somebody else's machine.
pub(crate) const PAUSE_TOLD: Duration = Duration::from_secs(30);

/// Who has kept us registered for so long is as good as one that the job names, until it does not. Less is had by a relay under two
/// addresses, too: each registration of ours there ends the other.
pub(crate) const STEADY: Duration = Duration::from_secs(1);

/// How far a relay is one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A relay of ours has told of it, and it has not proven the token.
    Told,
    /// It has, and so it is a way to others.
    Met,
    /// It has kept us, too.
    Kept,
    /// The job names it.
    Named,
}

impl Relays {
    /// Whether one of our relays that listens at `by` may tell us of another one at `address`: not of what it cannot reach itself
    /// and we can, nor of what we know, nor at all where the job will have none.
    fn may_be_told(&self, by: SocketAddr, address: SocketAddr) -> bool {
        let is_own = address.ip().is_loopback() && !by.ip().to_canonical().is_loopback();
        let is_known = |known: &SocketAddr| {
            (known.ip().to_canonical(), known.port()) == (address.ip(), address.port())
        };
        self.takes_more && !is_own && !self.addresses.iter().any(is_known)
    }

    /// Relay `by` of ours tells of another one, and we have been told of `told` before. Whether that is one of ours now: the last.
    pub(crate) fn take(&mut self, by: usize, relay: RelayAddress, told: usize) -> bool {
        let Some(&teller) = self.addresses.get(by) else { return false };
        let is_taken = told < MOST_BESIDE && self.may_be_told(teller, relay.socket());
        if is_taken {
            self.addresses.push(relay.socket());
        }
        is_taken
    }
}

impl State {
    /// A relay of ours tells of another one.
    pub(crate) fn told_of(&mut self, by: usize, relay: RelayAddress) {
        let told = self.registrations.told();
        let Some(relays) = &mut self.config.relays else { return };
        if self.is_closing || !relays.take(by, relay, told) {
            return;
        }
        let at = self.registrations.add(Registration::new(Standing::Told));
        self.register_at(at);
    }

    /// One that we were told of has proven the token: whoever is reached through relays is reached through it as well.
    pub(crate) fn add_way(&mut self, relay: usize) {
        let is_relayed = |ways: &[Way]| ways.iter().any(|way| matches!(way, Way::Relay(_)));
        let all = self.config.peers.iter().zip(0..);
        let relayed: Vec<ProcId> =
            all.filter(|(ways, _)| is_relayed(ways)).map(|(_, id)| ProcId(id)).collect();
        for id in relayed {
            let had_several = self.may_have_several(id);
            let way = Way::Relay(relay);
            self.dial_also(id, &way);
            if let Some(ways) = self.config.peers.get_mut(id.0 as usize) {
                ways.push(way);
            }
            if !had_several && self.may_have_several(id) {
                self.begin_several(id);
            }
            self.widen(id);
        }
    }
}

impl Registration {
    /// We are registered.
    pub(crate) fn begins(&mut self, now: Instant) {
        self.since = Some(now);
        self.problem = None;
        match self.standing {
            Standing::Told => self.standing = Standing::Met,
            Standing::Met | Standing::Kept | Standing::Named => {}
        }
    }

    /// We are not, or not any more. How long to wait before the next attempt.
    pub(crate) fn ends(&mut self, now: Instant, most: Duration) -> Duration {
        let stood = self.since.take().map(|since| now.saturating_duration_since(since));
        let has_kept = stood.map(|stood| stood >= STEADY);
        self.standing = match (self.standing, has_kept) {
            (Standing::Told | Standing::Met, Some(true)) => Standing::Kept,
            (Standing::Kept, Some(false)) => Standing::Met,
            (standing, _) => standing,
        };
        if has_kept == Some(true) {
            self.pause = PAUSE_LEAST;
        }
        let most = match self.standing {
            Standing::Told | Standing::Met => PAUSE_TOLD,
            Standing::Kept | Standing::Named => most,
        };
        let pause = self.pause;
        self.pause = (pause * 2).min(most);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relays::PAUSE_MOST;
    use gridmpi_wire::JobKey;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_known_and_what_only_we_reach_is_no_new_relay() {
        let addresses = vec![address("10.0.0.1:7118"), address("[::ffff:10.0.0.2]:7118")];
        let (token, first) = (JobKey::new([1; 32]), ProcId(0));
        let relays = Relays { addresses, token, first, count: 1, takes_more: true };
        let [far, near] = ["10.0.0.1:7118", "[::ffff:127.0.0.1]:7118"].map(address);
        let told =
            |by, text| relays.may_be_told(by, RelayAddress::new(address(text)).unwrap().socket());
        assert!(
            told(far, "10.0.0.3:7118") && told(far, "10.0.0.1:7119") && told(far, "[fd00::1]:1")
        );
        assert!(!told(far, "10.0.0.1:7118") && !told(far, "10.0.0.2:7118"));
        assert!(!told(far, "127.0.0.1:7118") && !told(far, "[::1]:7118"));
        assert!(told(near, "127.0.0.1:7119"));
    }

    #[test]
    fn one_that_never_keeps_us_is_tried_ever_less_and_one_that_does_is_as_one_of_ours() {
        let mut now = Instant::now();
        let mut told = Registration::new(Standing::Told);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            let pause = told.ends(now, PAUSE_MOST);
            pauses.push(pause);
            now += pause;
        }
        assert!(pauses[0] == PAUSE_LEAST && pauses.is_sorted() && pauses[19] == PAUSE_TOLD);
        // It is one of ours under another address: each registration ends the other's.
        for _ in 0..3 {
            told.begins(now);
            now += PAUSE_LEAST;
            assert_eq!((told.ends(now, PAUSE_MOST), told.standing), (PAUSE_TOLD, Standing::Met));
        }
        told.begins(now);
        now += STEADY;
        assert_eq!((told.ends(now, PAUSE_MOST), told.standing), (PAUSE_LEAST, Standing::Kept));
        for _ in 0..20 {
            assert!(told.ends(now, PAUSE_MOST) <= PAUSE_MOST);
        }
    }

    /// One relay under two addresses, each registration at which ends the other; the second stands first. How often they register in a minute,
    /// and in the one after.
    fn rivals(standings: [Standing; 2]) -> [u32; 2] {
        const TRIP: Duration = Duration::from_millis(2);
        let start = Instant::now();
        let mut both = standings.map(Registration::new);
        both[1].begins(start);
        // The first finds the relay back when it has looked for it for long.
        let mut due = [Some(start + PAUSE_MOST), None];
        let mut counts = [0, 0];
        loop {
            let next = usize::from(due[0].is_none_or(|at| due[1].is_some_and(|other| other < at)));
            let Some(now) = due[next].take() else { panic!("one of the two is always due") };
            let Some(count) = counts.get_mut((now - start).as_secs() as usize / 60) else {
                return counts;
            };
            *count += 1;
            let (mine, other) = (next, 1 - next);
            both[mine].begins(now);
            due[other] = Some(now + TRIP + both[other].ends(now, PAUSE_MOST));
        }
    }

    #[test]
    fn one_relay_under_two_addresses_is_not_registered_at_all_the_time() {
        for told in [Standing::Told, Standing::Met] {
            let counts = rivals([Standing::Named, told]);
            assert!(counts[0] < 40 && counts[1] <= 4, "{counts:?}");
            let counts = rivals([told, told]);
            assert!(counts[0] < 40 && counts[1] <= 8, "{counts:?}");
        }
        // Named twice by the job, it is at least left alone for a second each time.
        let counts = rivals([Standing::Named; 2]);
        assert!(counts.into_iter().all(|count| count <= 130), "{counts:?}");
    }
}
