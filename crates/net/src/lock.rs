//! The lock of a process's network: who finds it taken sleeps until it is free.
//!
//! It never yields the processor meanwhile, as `parking_lot`'s do a few times first: where more threads want to run than there are processors
//! `sched_yield` puts who calls it behind all of them (Linux 6.18 takes from it all that is left of its slice), and the program's thread had a lock
//! 20 to 50 ms after it was free. Poisoning counts for nothing: a panic ends the process's part in the job anyway.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Something that one thread uses at a time.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// As long as this lives it is used.
pub(crate) type Held<'a, T> = MutexGuard<'a, T>;

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing while another thread uses it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Lets others use it until [`Condvar::notify_all`] or `until`.
pub(crate) fn wait_until<'a, T>(
    condition: &Condvar,
    held: Held<'a, T>,
    until: Instant,
) -> Held<'a, T> {
    let time = until.saturating_duration_since(Instant::now());
    condition.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner).0
}
