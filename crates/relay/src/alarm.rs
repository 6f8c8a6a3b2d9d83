//! Wakes the loop when something is due.
//!
//! A wait with a time-out has the kernel set a timer and take it back for each message that passes. This one is set once, and
//! stands until it goes off or something is due earlier.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::Clock;

/// A timer of the kernel's. Times are of the loop's clock.
#[derive(Debug)]
pub(crate) struct Alarm {
    fd: OwnedFd,
    clock: Clock,
    /// When it goes off, unless it has.
    set: Option<Duration>,
}

impl Alarm {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, clock, set: None })
    }

    /// Becomes readable anew, without being read, each time that it goes off.
    pub(crate) fn fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Sees to it that it goes off at `due`, or before. `now` may be some time ago.
    pub(crate) fn set(&mut self, due: Duration, now: Duration) -> io::Result<()> {
        if self.set.is_some_and(|at| now < at && at <= due) {
            return Ok(());
        }
        // Nothing would be never.
        let left = due.saturating_sub(self.clock.now()).max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &timer)?;
        self.set = Some(due);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn goes_off_within(alarm: &Alarm, ms: i64) -> bool {
        let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        poll(&mut [PollFd::new(&alarm.fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    #[test]
    fn goes_off_at_the_earliest_that_was_asked_for() {
        let clock = Clock::new();
        let (mut alarm, now) = (Alarm::new(clock).unwrap(), clock.now());
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        assert!(!goes_off_within(&alarm, 1));
        alarm.set(now + Duration::from_millis(2), now).unwrap();
        // Later than that changes nothing.
        alarm.set(now + Duration::from_secs(7200), now).unwrap();
        assert!(goes_off_within(&alarm, 900));
    }

    #[test]
    fn goes_off_again_and_at_once_for_what_is_overdue() {
        let clock = Clock::new();
        let (mut alarm, begun) = (Alarm::new(clock).unwrap(), clock.now());
        for _ in 0..3 {
            let now = clock.now();
            alarm.set(begun, now).unwrap();
            assert!(goes_off_within(&alarm, 900));
        }
        let now = clock.now();
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        assert!(!goes_off_within(&alarm, 1));
    }
}
