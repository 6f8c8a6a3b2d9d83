//! Whether a link has lost something lately: it may carry a little less than is believed of it, which an estimate bears.

use crate::Seen;
use std::time::{Duration, Instant};

/// Losses count by so much time, and from so many segments on: one or two may have been sent again to probe for a tail.
const WINDOW: Duration = Duration::from_millis(200);
const MANY: u64 = 3;
/// And when more than this part of what arrives was sent again.
const LOSS: f64 = 0.001;

/// So long a link that has lost something is not trusted; twice as long, up to the most, if it does so again before it has been trusted for
/// as long.
const SPAN: Duration = Duration::from_secs(10);
const SPAN_MOST: Duration = Duration::from_secs(600);

/// What is known of a link's losses.
#[derive(Clone, Debug)]
pub(crate) struct Caution {
    /// What has been seen since the window began.
    window: Option<Instant>,
    seen: Seen,
    until: Option<Instant>,
    span: Duration,
}

impl Caution {
    /// Nothing has been lost.
    pub(crate) const NONE: Self = Self {
        window: None,
        seen: Seen { arrived: 0, resent: 0, queued: None },
        until: None,
        span: SPAN,
    };

    /// A process has seen this of its connections over the link. Whether it is not trusted any more, but was.
    pub(crate) fn see(&mut self, seen: Seen, now: Instant) -> bool {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) > WINDOW) {
            (self.window, self.seen) = (Some(now), Seen::default());
        }
        let Seen { arrived, resent, .. } = &mut self.seen;
        *arrived = arrived.saturating_add(seen.arrived);
        *resent = resent.saturating_add(seen.resent);
        let is_much = *resent >= MANY && *resent as f64 > LOSS * *arrived as f64;
        if !is_much || self.until(now).is_some() {
            return false;
        }
        let is_again =
            self.until.is_some_and(|until| now.saturating_duration_since(until) < self.span);
        self.span = if is_again { (2 * self.span).min(SPAN_MOST) } else { SPAN };
        self.until = Some(now + self.span);
        true
    }

    /// Until when it is not trusted, if it is not now.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(resent: u64) -> Seen {
        Seen { arrived: 600, resent, queued: None }
    }

    #[test]
    fn a_probe_or_two_are_no_loss_and_more_of_them_at_once_are() {
        let (mut caution, mut now) = (Caution::NONE, Instant::now());
        for _ in 0..100 {
            assert!(!caution.see(lost(2), now));
            now += 2 * WINDOW;
        }
        assert!(!caution.see(lost(1), now) && !caution.see(lost(1), now));
        assert!(caution.see(lost(1), now + WINDOW / 2));
        assert_eq!(caution.until(now), Some(now + WINDOW / 2 + SPAN));
        // What is known already is no news; nor are a few of very many a loss.
        assert!(!caution.see(lost(9), now + WINDOW));
        let many = Seen { arrived: 100_000, resent: 9, queued: None };
        assert!(!Caution::NONE.clone().see(many, now));
    }

    #[test]
    fn who_loses_again_and_again_is_trusted_less_and_less_but_not_for_ever() {
        let (mut caution, mut now) = (Caution::NONE, Instant::now());
        let mut spans = Vec::new();
        for _ in 0..9 {
            assert!(caution.see(lost(9), now));
            let until = caution.until(now).unwrap();
            spans.push((until - now).as_secs());
            assert_eq!(caution.until(until), None);
            now = until + Duration::from_secs(1);
        }
        assert_eq!(spans, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        now += SPAN_MOST;
        assert!(caution.see(lost(9), now));
        assert_eq!(caution.until(now), Some(now + SPAN));
    }
}
