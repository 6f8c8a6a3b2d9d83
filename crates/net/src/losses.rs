//! Connections that are lost again and again, and nothing comes of any. Each handshake ends well, so that nobody is unreachable; but what is to pass
//! never does. They are made again ever later, and not for ever.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridmpi_wire::ProcId;

use crate::state::State;
use crate::{Failure, LinkError};

/// The first loss is made good at once. After a second one, without anything new between them, one waits so long; doubled each time, up to
/// [`PAUSE_MOST`].
const PAUSE_LEAST: Duration = Duration::from_millis(20);
pub(crate) const PAUSE_MOST: Duration = Duration::from_secs(1);

/// So many in a row are no accident; and they take some seconds.
const LEAST: u32 = 10;

/// A connection on which nothing was to pass and that stood for so long was no worse than one that stands.
const STEADY: Duration = Duration::from_secs(1);

/// Connections to a peer that were lost since something new came from it, or is known to have come to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    /// When the first was lost.
    since: Instant,
    /// When the last was.
    last: Instant,
    progress: u64,
    times: u32,
}

impl Losses {
    /// Another one, when so much had come in all.
    fn again(before: Option<Self>, progress: u64, now: Instant) -> Self {
        match before {
            Some(it) if it.progress == progress => {
                Self { times: it.times.saturating_add(1), last: now, ..it }
            }
            _ => Self { since: now, last: now, progress, times: 1 },
        }
    }

    /// How long after the last one the next connection is made.
    fn pause(&self) -> Duration {
        let Some(doublings) = self.times.checked_sub(2) else { return Duration::ZERO };
        PAUSE_LEAST.saturating_mul(1 << doublings.min(16)).min(PAUSE_MOST)
    }

    /// How long one is still to wait.
    pub(crate) fn rest(&self, now: Instant) -> Duration {
        (self.last + self.pause()).saturating_duration_since(now)
    }

    fn is_too_much(&self, now: Instant, patience: Duration) -> bool {
        self.times >= LEAST && now.saturating_duration_since(self.since) >= patience
    }
}

impl State {
    /// The last connection with a peer, which stood since `since`, has ended so. The reason to give the peer up, if that has been too often.
    pub(crate) fn lost_again(
        &mut self,
        id: ProcId,
        (since, address): (Instant, Option<SocketAddr>),
        error: &LinkError,
    ) -> Option<Failure> {
        let (now, patience) = (Instant::now(), self.limits().reconnect);
        let progress = self.endpoint.progress(id);
        let has_stood = now.saturating_duration_since(since) >= STEADY && self.endpoint.is_idle(id);
        let peer = self.peer(id);
        let losses = Losses::again(peer.losses.filter(|_| !has_stood), progress, now);
        peer.losses = Some(losses);
        let seconds = now.saturating_duration_since(losses.since).as_secs();
        let how_much = (losses.times, seconds);
        losses.is_too_much(now, patience).then(|| match error {
            LinkError::Damaged(error) => Failure::damaged(id, address, how_much, error),
            error => Failure::cut(id, address, how_much, error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_first_is_made_good_at_once_and_others_ever_later() {
        let mut now = Instant::now();
        let (mut losses, mut rests) = (None, Vec::new());
        for _ in 0..9 {
            let it = Losses::again(losses, 7, now);
            rests.push(it.rest(now).as_millis());
            assert_eq!(it.rest(now + ms(10_000)), Duration::ZERO);
            now += it.rest(now);
            losses = Some(it);
        }
        assert_eq!(rests, [0, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(Losses::again(losses, 8, now).rest(now), Duration::ZERO, "something has come");
    }

    #[test]
    fn only_many_without_progress_and_for_long_are_too_many() {
        let start = Instant::now();
        let at = |time| start + ms(time);
        let mut losses = None;
        for time in 0..u64::from(LEAST) - 1 {
            let now = Losses::again(losses, 7, at(time * 10));
            assert!(!now.is_too_much(at(1_000_000), ms(500)));
            losses = Some(now);
        }
        let now = Losses::again(losses, 7, at(1000));
        assert!(now.is_too_much(at(1000), ms(500)));
        assert!(!now.is_too_much(at(1000), ms(2000)), "it is tried for longer");
        let moved = Losses::again(losses, 8, at(1000));
        assert!(!moved.is_too_much(at(9000), ms(500)), "something has come");
    }
}
