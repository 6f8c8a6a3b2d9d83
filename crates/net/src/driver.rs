//! Who makes progress: the baton between the program's threads and the driver thread.
//!
//! Everybody waits on the same epoll descriptor, which also carries the timers and a wake-up event.
//! At most one program thread waits there at a time (the *leader*); others wait for it on a condition
//! variable. The driver waits there while no program thread makes progress; while one does it
//! is parked and looks once a millisecond whether that still holds, unless nothing has happened for
//! a while: then nobody is in anybody's way there. Events are level-triggered, so a thread that is
//! woken and leaves an event to another loses nothing.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::lock::{Held, Lock, wait_until};
use crate::poller::{Poller, Ready};
use crate::state::{Signs, State, ring};

/// How long the driver is parked before it looks whether the program still makes progress.
const PARK: Duration = Duration::from_millis(1);

/// So many looks without an event, and the driver waits for the next one itself: a program that waits for what its own MPI does may poll for
/// hours, and the processor has others to run. It is longer than messages there and back take, since both look at what comes then.
const QUIET: u32 = 32;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) state: Lock<State>,
    pub(crate) poller: Arc<Poller>,
    pub(crate) signs: Arc<Signs>,
    wake: Arc<OwnedFd>,
    /// Counts the program's polls.
    polls: AtomicU64,
    /// Counts those of them, and of its waits, that found something.
    finds: AtomicU64,
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
            finds: AtomicU64::new(0),
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
            self.finds.fetch_add(1, Ordering::Relaxed);
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
            self.finds.fetch_add(u64::from(!ready.is_empty()), Ordering::Relaxed);
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
        let mut program = Program::default();
        let mut ready = Vec::new();
        while !self.signs.is_stopping.load(Ordering::SeqCst) {
            if self.has_leader.load(Ordering::SeqCst) || program.is_at_it(self) {
                std::thread::park_timeout(PARK);
                continue;
            }
            if self.poller.wait(None, &mut ready).is_err() {
                // Cannot happen with a valid descriptor; do not spin if it does.
                std::thread::park_timeout(PARK);
                continue;
            }
            self.drive_events(&ready);
            program.quiet = 0;
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

/// What the driver has seen of the program's polls.
#[derive(Default)]
struct Program {
    polls: u64,
    finds: u64,
    /// How many looks in a row showed that nobody found anything.
    quiet: u32,
}

impl Program {
    /// Whether it has polled since this was asked last, and has found something lately.
    fn is_at_it(&mut self, shared: &Shared) -> bool {
        let [polls, finds] =
            [&shared.polls, &shared.finds].map(|count| count.load(Ordering::Relaxed));
        let (has_polled, has_found) = (polls != self.polls, finds != self.finds);
        (self.polls, self.finds) = (polls, finds);
        self.quiet = if has_found { 0 } else { self.quiet.saturating_add(1) };
        has_polled && self.quiet < QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paces::tests::state;

    #[test]
    fn the_driver_waits_for_events_where_the_program_polls_in_vain() {
        let shared = Shared::new(state(1e6));
        let mut program = Program::default();
        let mut is_parked = |polls| {
            (0..polls).for_each(|_| _ = shared.poll());
            program.is_at_it(&shared)
        };
        assert!(!is_parked(0));
        for _ in 0..2 {
            ring(&shared.wake);
            assert!(is_parked(1), "it has found something");
            assert_eq!((1..).take_while(|_| is_parked(1)).last(), Some(QUIET - 1));
            assert!(!is_parked(1));
        }
        ring(&shared.wake);
        assert!(is_parked(1) && !is_parked(0), "it computes");
    }

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
