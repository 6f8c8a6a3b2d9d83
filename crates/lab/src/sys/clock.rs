//! Clocks, exact sleeping, and real-time priority of the calling thread.

use super::check;
use std::io;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; both clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the clock that never steps.
#[must_use]
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, the clock of packet time stamps.
#[must_use]
pub fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Sleeps until [`monotonic`] reaches `deadline` ns, or a signal comes.
pub fn sleep_until(deadline: u64) {
    let time = libc::timespec {
        tv_sec: (deadline / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid; the remaining time is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    };
}

/// Gives the calling thread real-time priority (1 to 99), and exact timers in any case.
///
/// # Errors
/// When the system does not allow real-time priority; timers are exact all the same.
pub fn run_at_once(priority: i32) -> io::Result<()> {
    // Timers of ordinary threads are late by 50 µs unless they ask otherwise.
    // SAFETY: this option takes a plain number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 is the calling thread; the structure is valid.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) }).map(drop)
}
