//! Whether a link has lost something lately: it may carry a little less than is believed of it, which an estimate bears.

use crate::Seen;
use std::time::{Duration, Instant};

/// Losses are judged by so much time, or more where nobody looks at its end; they count from so many segments on, since some may have been sent
/// again to probe for a tail, and when they are more than this part of what has arrived.
const WINDOW: Duration = Duration::from_millis(200);
const MANY: u64 = 5;
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
        self.seen.add(seen);
        let since = *self.window.get_or_insert(now);
        if now.saturating_duration_since(since) < WINDOW {
            return false;
        }
        self.window = None;
        let Seen { arrived, resent, .. } = std::mem::take(&mut self.seen);
        let is_much = resent >= MANY && resent as f64 > LOSS * arrived as f64;
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

    /// Of so many segments in a window, which one process sees first and one last.
    fn lose(caution: &mut Caution, resent: u64, arrived: u64, now: &mut Instant) -> bool {
        let seen = |resent| Seen { arrived: arrived / 2, resent, queued: None };
        assert!(
            !caution.see(seen(resent / 2), *now),
            "what a window has shown is judged at its end"
        );
        *now += WINDOW;
        caution.see(seen(resent - resent / 2), *now)
    }

    #[test]
    fn probes_are_no_loss_nor_are_a_few_of_very_many() {
        let (mut caution, mut now) = (Caution::NONE, Instant::now());
        for _ in 0..100 {
            assert!(!lose(&mut caution, MANY - 1, 1000, &mut now));
            assert!(!lose(&mut caution, 2 * MANY, 20_000, &mut now));
        }
        assert!(lose(&mut caution, MANY, 1000, &mut now));
        assert_eq!(caution.until(now), Some(now + SPAN));
        // What is known already is no news.
        assert!(!lose(&mut caution, MANY, 1000, &mut now));
    }

    #[test]
    fn who_loses_again_and_again_is_trusted_less_and_less_but_not_for_ever() {
        let (mut caution, mut now) = (Caution::NONE, Instant::now());
        let mut spans = Vec::new();
        for _ in 0..9 {
            assert!(lose(&mut caution, 9, 600, &mut now));
            let until = caution.until(now).unwrap();
            spans.push((until - now).as_secs());
            assert_eq!(caution.until(until), None);
            now = until + Duration::from_secs(1);
        }
        assert_eq!(spans, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        now += SPAN_MOST;
        assert!(lose(&mut caution, 9, 600, &mut now));
        assert_eq!(caution.until(now), Some(now + SPAN));
    }
}
