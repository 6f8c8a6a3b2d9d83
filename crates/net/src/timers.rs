//! Deadlines, the earliest of which makes a descriptor readable, so that whoever waits for events
//! meets it without having to know of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_engine::Patience;
use gridmpi_wire::{ProcId, Strand};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::poller::Token;

/// What is due. Its owner checks whether it still is: entries are taken back only by [`Timers::move_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Acknowledgements that found nothing to ride on for so long.
    Tick(Patience),
    /// The handshake of this socket must have ended.
    Handshake(Token),
    /// Something of this peer's dialling.
    Dial(ProcId, Strand),
    /// This attempt's challenge is to be read now.
    Attempt(Token),
    /// This leg must have come about.
    Leg(Token),
    /// Registering at this relay is to be tried again.
    Register(usize),
    /// The next connection's turn to send towards this cluster.
    Turn(u16),
    /// Windows of connections to this cluster that are at rest are opened further.
    Open(u16),
    /// The next step of the rate broker here.
    Step,
    /// The next look at whether relays still answer.
    Pulse,
    /// The next look at what has come of what was sent.
    Look,
}

#[derive(Debug)]
pub(crate) struct Timers {
    fd: OwnedFd,
    heap: BinaryHeap<Reverse<(Instant, Due)>>,
    armed: Option<Instant>,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, heap: BinaryHeap::new(), armed: None })
    }

    /// Readable when something is due.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn set(&mut self, at: Instant, due: Due) {
        self.heap.push(Reverse((at, due)));
        self.arm();
    }

    /// The same, but what was set of it before counts no longer.
    pub(crate) fn move_to(&mut self, at: Instant, due: Due) {
        self.heap.retain(|Reverse((_, other))| *other != due);
        self.set(at, due);
    }

    /// The descriptor is readable: what is due.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<Due> {
        let mut count = [0; 8];
        // Only to make it unreadable; whether it was is no matter.
        let _ = rustix::io::read(&self.fd, &mut count);
        self.armed = None;
        let mut due = Vec::new();
        while let Some(&Reverse((at, what))) = self.heap.peek()
            && at <= now
        {
            self.heap.pop();
            due.push(what);
        }
        self.arm();
        due
    }

    fn arm(&mut self) {
        let Some(&Reverse((at, _))) = self.heap.peek() else { return };
        if self.armed == Some(at) {
            return;
        }
        // Zero would disarm it.
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: wait.as_secs().min(1 << 30) as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        if timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec).is_ok() {
            self.armed = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_out_in_order_and_the_rest_stays() {
        let mut timers = Timers::new().unwrap();
        let now = Instant::now();
        timers.set(now + Duration::from_secs(60), Due::Tick(Patience::Brief));
        timers.set(now + Duration::from_millis(2), Due::Dial(ProcId(2), Strand::FIRST));
        timers.set(now + Duration::from_millis(1), Due::Dial(ProcId(1), Strand::FIRST));
        assert_eq!(timers.armed, Some(now + Duration::from_millis(1)));
        let due = timers.expired(now + Duration::from_secs(1));
        assert_eq!(due, [1, 2].map(|peer| Due::Dial(ProcId(peer), Strand::FIRST)));
        assert_eq!(timers.armed, Some(now + Duration::from_secs(60)));
    }

    #[test]
    fn what_is_moved_comes_once_and_the_descriptor_is_not_readable_before() {
        let mut timers = Timers::new().unwrap();
        let now = Instant::now();
        let [soon, later, last] = [10, 50, 90].map(|ms| now + Duration::from_millis(ms));
        for at in [later, soon, last] {
            timers.move_to(at, Due::Turn(1));
            assert_eq!(timers.armed, Some(at));
        }
        timers.set(later, Due::Tick(Patience::Brief));
        timers.move_to(soon, Due::Turn(2));
        assert_eq!(timers.armed, Some(soon));
        assert_eq!(timers.expired(soon), [Due::Turn(2)]);
        assert_eq!(timers.armed, Some(later));
        assert_eq!(timers.expired(later), [Due::Tick(Patience::Brief)]);
        // It was moved away from there, and moved again after it has come what was set before counts no more.
        assert_eq!(timers.expired(last), [Due::Turn(1)]);
        timers.move_to(last, Due::Turn(1));
        timers.move_to(soon, Due::Turn(1));
        assert_eq!(timers.expired(soon), [Due::Turn(1)]);
        assert_eq!(timers.expired(last), []);
    }
}
