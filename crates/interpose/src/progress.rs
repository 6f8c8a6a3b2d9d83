//! Waiting inside MPI: the program's own thread moves the network and the vendor meanwhile
//! (MPI 4.1 §3.5, progress).

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_net::Epoch;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rounds without news in which a waiting process only looks again, before it lets others run or
/// sleeps: about the time a message takes on the same machine.
const EAGER_ROUNDS: u32 = 200;
/// The same where looking again has been in vain lately.
const LEAST_ROUNDS: u32 = 4;
/// A sleep shorter than this should have been spent looking.
const SHORT_SLEEP: Duration = Duration::from_micros(50);
/// With fewer cores than ranks whoever we wait for may need ours.
const YIELDING_ROUNDS: u32 = 4;
/// How long a wait that the vendor may end only lets others run, where ranks outnumber cores: they get there
/// within this if they were only waiting for a core.
const YIELDING_TIME: Duration = Duration::from_millis(2);
/// After that it sleeps so long between two looks at the vendor, so that those who compute have the cores. A
/// message of another cluster still wakes it at once. Nothing shorter is to be had: the kernel counts such sleeps in whole milliseconds.
const NAP: Duration = Duration::from_millis(1);
/// Where ranks do not seem to outnumber cores a wait that has lasted so long naps as well, once in [`NAP_AGAIN`]: others may share the cores
/// of whom nobody here knows, and `sched_yield` alone promises these nothing.
const SPINNING_TIME: Duration = Duration::from_millis(100);
const NAP_AGAIN: Duration = Duration::from_millis(10);

/// How long a process that waits for another cluster alone leaves the vendor without a look.
const VENDOR_INTERVAL: Duration = Duration::from_millis(1);
/// Rounds between two looks at the vendor while it is not asked anyway.
const VENDOR_ROUNDS: u32 = 32;

/// One wait of the program's thread. Made before the first look at what is waited for.
pub(crate) struct Turn<'a, A: Abi> {
    rt: &'a Runtime<A>,
    idle: u32,
    /// When it is to sleep instead of letting others run; set when it begins to let them.
    nap: Option<Instant>,
    /// What had happened before the caller's last look.
    seen: Epoch,
}

impl<'a, A: Abi> Turn<'a, A> {
    pub(crate) fn new(rt: &'a Runtime<A>) -> Self {
        Self { rt, idle: 0, nap: None, seen: rt.job().net.epoch() }
    }

    /// Moves what can be moved; if nothing could, waits a little. `local`: the vendor may complete
    /// what is waited for, and the caller asks it between the turns.
    ///
    /// # Errors
    /// Another cluster is lost: the reason.
    pub(crate) fn wait(&mut self, local: bool) -> Result<()> {
        if advance(self.rt)? {
            self.idle = 0;
            self.nap = None;
        } else {
            self.idle += 1;
            self.rest(local);
        }
        self.seen = self.rt.job().net.epoch();
        Ok(())
    }

    /// What is held is for us to move, so that there is no sleep then; but what has ended stays there until the program asks for it,
    /// and moves the vendor no more: only the caller's own asking does.
    fn rest(&mut self, local: bool) {
        let job = self.rt.job();
        let wakeful = local || self.rt.needs_progress();
        let rounds = match (job.yields, wakeful) {
            (true, _) => YIELDING_ROUNDS,
            (false, true) => EAGER_ROUNDS,
            (false, false) => job.eagerness.rounds(),
        };
        let slept = if self.idle < rounds {
            std::hint::spin_loop();
            false
        } else if wakeful {
            self.let_others_run()
        } else {
            self.sleep();
            true
        };
        if !local && (slept || self.idle.is_multiple_of(VENDOR_ROUNDS)) {
            look_at_vendor(self.rt);
        }
    }

    fn sleep(&self) {
        let job = self.rt.job();
        let began = Instant::now();
        job.net.wait(self.seen, began + VENDOR_INTERVAL);
        job.eagerness.learn(began.elapsed());
    }

    /// Whether it was for longer than others took.
    fn let_others_run(&mut self) -> bool {
        let job = self.rt.job();
        let (first, again) = match job.yields {
            true => (YIELDING_TIME, Duration::ZERO),
            false => (SPINNING_TIME, NAP_AGAIN),
        };
        let now = Instant::now();
        if now < *self.nap.get_or_insert(now + first) {
            std::thread::yield_now();
            return false;
        }
        job.net.wait(self.seen, now + NAP);
        self.nap = Some(now + again);
        true
    }
}

/// How long it has paid lately to look again before sleeping: messages that cross a wide area come in bursts, and
/// what comes next is far off.
#[derive(Debug)]
pub(crate) struct Eagerness(AtomicU32);

impl Eagerness {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(EAGER_ROUNDS))
    }

    fn rounds(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn learn(&self, slept: Duration) {
        let less = (self.rounds() / 2).max(LEAST_ROUNDS);
        self.0.store(if slept < SHORT_SLEEP { EAGER_ROUNDS } else { less }, Relaxed);
    }
}

/// Moves the network, held receives and schedules as far as they go without waiting. Returns whether
/// anything moved.
///
/// # Errors
/// Another cluster is lost: the reason.
pub(crate) fn advance<A: Abi>(rt: &Runtime<A>) -> Result<bool> {
    let job = rt.job();
    let mut moved = job.net.poll();
    if rt.needs_progress() {
        // Another thread that is at it does it for us.
        if let Some(mut side) = job.side.try_lock() {
            moved |= side.pump(rt, &mut job.net.lock());
        }
    }
    match job.net.failure() {
        Some(failure) => Err(lost(rt, &failure.to_string())),
        None => Ok(moved),
    }
}

#[cold]
fn lost<A: Abi>(rt: &Runtime<A>, failure: &str) -> Error {
    rt.job().tell_lost(failure);
    Error::new(ErrorClass::ProcAborted, failure)
}

/// Lets the vendor move its own messages while we wait for another cluster. A call that says "not yet" and has not asked the vendor
/// looks as well: the program may do nothing else than repeat it (MPI 4.1 §3.7.3).
pub(crate) fn look_at_vendor<A: Abi>(rt: &Runtime<A>) {
    let mut flag = 0;
    // SAFETY: a communicator of our own. What may wait on it (create_group.rs) is looked at and left there.
    unsafe {
        rt.vendor.iprobe(
            A::ANY_SOURCE,
            A::ANY_TAG,
            rt.job().quiet,
            &raw mut flag,
            A::status_ignore(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eagerness_follows_what_sleeps_were_worth() {
        let eagerness = Eagerness::new();
        let rounds = |slept: Duration| {
            eagerness.learn(slept);
            eagerness.rounds()
        };
        let halved: Vec<_> = (0..7).map(|_| rounds(SHORT_SLEEP)).collect();
        assert_eq!(halved, [100, 50, 25, 12, 6, 4, 4]);
        assert_eq!(rounds(SHORT_SLEEP / 2), EAGER_ROUNDS, "the next look would have found it");
    }
}
