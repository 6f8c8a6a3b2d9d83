//! Who makes progress: the baton between the program's threads and the driver thread.
//!
//! Everybody waits on the same epoll descriptor, which also carries the timers and a wake-up event.
//! At most one program thread waits there at a time (the *leader*); others wait for it on a condition
//! variable. The driver waits there while no program thread makes progress; while one does it
//! is parked and looks once a millisecond whether that still holds. Events are level-triggered, so a
//! thread that is woken and leaves an event to another loses nothing.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::lock::{Held, Lock, wait_until};
use crate::poller::{Poller, Ready};
use crate::state::{Signs, State, ring};

/// How long the driver is parked before it looks whether the program still makes progress.
const PARK: Duration = Duration::from_millis(1);

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) state: Lock<State>,
    pub(crate) poller: Arc<Poller>,
    pub(crate) signs: Arc<Signs>,
    wake: Arc<OwnedFd>,
    /// Counts the program's polls.
    polls: AtomicU64,
    /// A program thread waits for events.
    has_leader: AtomicBool,
    /// Program threads that wait for the leader, and what they wait on.
    followers: AtomicUsize,
    followed: Condvar,
}

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self {
            poller: Arc::clone(&state.poller),
            signs: Arc::clone(&state.signs),
            wake: Arc::clone(&state.wake),
            state: Lock::new(state),
            polls: AtomicU64::new(0),
            has_leader: AtomicBool::new(false),
            followers: AtomicUsize::new(0),
            followed: Condvar::new(),
        }
    }

    /// Progress has been made by a thread that is not the leader: those who wait may look.
    pub(crate) fn announce(&self) {
        if self.has_leader.load(Ordering::SeqCst) {
            ring(&self.wake);
        }
        if self.followers.load(Ordering::SeqCst) > 0 {
            self.followed.notify_all();
        }
    }

    /// One round without waiting, by a program thread. Whether anything happened that the program
    /// may want to look at; `false` too when another thread is at it.
    pub(crate) fn poll(&self) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let Some(mut state) = self.state.try_lock() else { return false };
        let before = self.signs.progress();
        let mut ready = std::mem::take(&mut state.ready);
        if self.poller.wait(Some(Duration::ZERO), &mut ready).is_ok() && !ready.is_empty() {
            state.handle(&ready, !self.has_leader.load(Ordering::SeqCst));
        }
        state.ready = ready;
        let moved = self.signs.progress() != before;
        drop(state);
        if moved {
            self.announce();
        }
        moved
    }

    /// Waits until something has happened since `since`, or until `until`.
    pub(crate) fn wait(&self, since: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        let mut ready = Vec::new();
        loop {
            if self.signs.progress() != since {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            if self.has_leader.swap(true, Ordering::SeqCst) {
                state = self.follow(state, until);
                continue;
            }
            drop(state);
            self.polls.fetch_add(1, Ordering::Relaxed);
            let waited = self.poller.wait(Some(until - now), &mut ready);
            state = self.lead(waited.is_ok(), &ready);
        }
    }

    /// The leader has waited: handles what is ready and lets another thread lead.
    fn lead(&self, has_waited: bool, ready: &[Ready]) -> Held<'_, State> {
        let mut state = self.state.lock();
        if has_waited {
            state.handle(ready, true);
        }
        self.has_leader.store(false, Ordering::SeqCst);
        if self.followers.load(Ordering::SeqCst) > 0 {
            self.followed.notify_all();
        }
        state
    }

    fn follow<'a>(&self, state: Held<'a, State>, until: Instant) -> Held<'a, State> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        let state = wait_until(&self.followed, state, until);
        self.followers.fetch_sub(1, Ordering::SeqCst);
        state
    }

    /// The driver thread.
    pub(crate) fn drive(&self) {
        let mut seen_polls = self.polls.load(Ordering::Relaxed);
        let mut ready = Vec::new();
        while !self.signs.is_stopping.load(Ordering::SeqCst) {
            let polls = self.polls.load(Ordering::Relaxed);
            if polls != seen_polls || self.has_leader.load(Ordering::SeqCst) {
                seen_polls = polls;
                std::thread::park_timeout(PARK);
                continue;
            }
            if self.poller.wait(None, &mut ready).is_err() {
                // Cannot happen with a valid descriptor; do not spin if it does.
                std::thread::park_timeout(PARK);
                continue;
            }
            self.drive_events(&ready);
        }
    }

    fn drive_events(&self, ready: &[Ready]) {
        // A program thread holds the lock: it polls, or will see to it that its work is flushed.
        let mut state = self.state.lock();
        let before = self.signs.progress();
        state.handle(ready, !self.has_leader.load(Ordering::SeqCst));
        let moved = self.signs.progress() != before;
        drop(state);
        if moved {
            self.announce();
        }
    }

    /// Makes the driver thread end; it may be parked.
    pub(crate) fn stop(&self) {
        self.signs.is_stopping.store(true, Ordering::SeqCst);
        ring(&self.wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paces::tests::state;

    #[test]
    fn who_polls_while_the_driver_is_to_end_does_not_let_it_sleep_on() {
        let shared = Shared::new(state(1e6));
        let is_rung = || {
            let mut ready = Vec::new();
            shared.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
            !ready.is_empty()
        };
        ring(&shared.wake);
        shared.poll();
        assert!(!is_rung(), "the program has seen to what it was rung for");
        // The driver has looked whether it is to end, and is about to sleep.
        shared.stop();
        shared.poll();
        shared.wait(shared.signs.progress(), Instant::now() + Duration::from_millis(1));
        assert!(is_rung());
    }
}
