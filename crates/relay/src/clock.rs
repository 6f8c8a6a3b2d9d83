//! The time of the loop.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Counts from when it was made. Read once for each message that passes, and so without the detour by the C library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// By the system's monotonic clock, ns.
    from: u64,
    made: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // In this order: what is due comes late by the time between both, never early.
        let made = Instant::now();
        Self { from: monotonic(), made }
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(monotonic().saturating_sub(self.from))
    }

    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.made + at
    }

    /// 0 for all that was before it was made.
    pub(crate) fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.made)
    }
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_as_instants_do() {
        let clock = Clock::new();
        let (before, now, after) = (Instant::now(), clock.now(), Instant::now());
        // Both were not begun at quite the same time.
        let slack = Duration::from_millis(100);
        assert!(before <= clock.instant(now) + slack && clock.instant(now) <= after + slack);
        assert_eq!(clock.at(clock.instant(now)), now);
        assert_eq!(clock.at(before - Duration::from_secs(1)), Duration::ZERO);
    }
}
