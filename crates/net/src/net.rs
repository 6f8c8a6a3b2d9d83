//! The handle that a process holds.

use std::io;
use std::net::Shutdown;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gridmpi_engine::{Endpoint, Patience};
use gridmpi_rate::Rate;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use socket2::SockRef;

use crate::discipline::{PacedBy, queueing_from};
use crate::driver::Shared;
use crate::lock::{Held, Lock};
use crate::owner::Owner;
use crate::state::{Peer, Socket, State};
use crate::{Bound, Counts, Failure, NetConfig, Stats};

/// Stack of the driver thread in bytes.
const STACK: usize = 256 * 1024;

/// How long the end of a connection waits for the other side's end, so that nothing on its way is
/// destroyed by a reset.
const LINGER: Duration = Duration::from_millis(500);

/// The network side of one process: sockets, driver thread and the endpoint behind one lock.
///
/// Usable from every thread. After `fork` the child must not use it: calls there panic before they
/// touch a socket, and the parent's connections stay whole. Dropping it without [`Self::shutdown`] cuts all
/// connections, which peers take for a failure.
pub struct Net {
    shared: Arc<Shared>,
    driver: Lock<Option<JoinHandle<()>>>,
    owner: Owner,
}

/// A moment in the history of a [`Net`]; see [`Net::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

/// The endpoint, locked. When it is dropped, what the endpoint wants sent is sent on this thread as
/// far as that goes without waiting; the rest follows as connections take it.
pub struct Guard<'a> {
    shared: &'a Shared,
    state: Option<Held<'a, State>>,
}

impl Net {
    /// Starts with the sockets of [`bind`](crate::bind), the job's table being known.
    ///
    /// # Errors
    /// The system has no more descriptors, memory or threads.
    pub fn start(bound: Bound, config: NetConfig) -> io::Result<Self> {
        let owner = Owner::new(config.forked);
        let mut state = State::new(bound, config)?;
        state.greet_broker();
        state.flush();
        let shared = Arc::new(Shared::new(state));
        let driver = spawn_driver(Arc::clone(&shared))?;
        Ok(Self { shared, driver: Lock::new(Some(driver)), owner })
    }

    /// The endpoint, for a short time: no progress is made while the guard lives.
    ///
    /// # Panics
    /// In a child made by `fork`, unless by luck there is nothing to do with a socket.
    pub fn lock(&self) -> Guard<'_> {
        let state = self.shared.state.try_lock().unwrap_or_else(|| {
            // A child may have been made while another thread held the lock: it would wait forever.
            self.owner.assert_here();
            self.shared.state.lock()
        });
        Guard { shared: &self.shared, state: Some(state) }
    }

    /// Makes progress without waiting. Whether anything happened.
    ///
    /// # Panics
    /// As [`Self::lock`].
    pub fn poll(&self) -> bool {
        self.shared.poll()
    }

    /// The present moment; see [`Self::wait`]. Costs next to nothing.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.shared.signs.progress())
    }

    /// Makes progress, sleeping while there is none, until something has happened after `since`
    /// (frames arrived, requests completed, a peer was lost) or the time is `until`. Whether
    /// something has.
    ///
    /// Take `since` before you look whether there is something to do, or from the guard under which
    /// you look: then nothing that happens in between is missed.
    ///
    /// # Panics
    /// In a child made by `fork`.
    pub fn wait(&self, since: Epoch, until: Instant) -> bool {
        self.owner.assert_here();
        self.shared.wait(since.0, until)
    }

    /// The first peer that was given up, and why. Costs next to nothing while there is none.
    pub fn failure(&self) -> Option<Failure> {
        if !self.shared.signs.has_failed() {
            return None;
        }
        self.shared.state.lock().failure.clone()
    }

    /// Lets what this process sends to each other cluster keep to a rate of the program's own from now on, headers included,
    /// whatever was found or granted; `None`: no longer. What the kernel has already of a turn may be sent as it was to be.
    ///
    /// # Panics
    /// In a child made by `fork`.
    pub fn hold(&self, rate: Option<Rate>) {
        self.owner.assert_here();
        self.lock().state().hold(rate);
    }

    /// How fast this process may send to each cluster now, bits per second, headers included; `None` where it is not paced.
    pub fn rates(&self) -> Vec<Option<f64>> {
        self.shared.state.lock().paces.rates()
    }

    /// And its node, on which there are so many processes of the job, itself among them: what it may send to each cluster now, by what this process
    /// knows (its last grant, where there is a broker).
    pub fn node_rates(&self, mates: usize) -> Vec<Option<f64>> {
        self.shared.state.lock().paces.node_rates(mates)
    }

    /// What the traffic with other clusters has come to so far; also after [`Self::shutdown`].
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().counts()
    }

    /// How many segments the kernel has sent again to other clusters so far: asks it of each connection.
    pub fn retransmits(&self) -> u64 {
        self.shared.state.lock().retransmits()
    }

    /// Who paces what leaves for other clusters: the least of those that connections leave by; `None` if there is no connection, or
    /// the kernel does not say.
    pub fn paced_by(&self) -> Option<PacedBy> {
        let sources = self.shared.state.lock().sources();
        let by = |ip| Some(queueing_from(ip).ok()??.paced_by);
        sources.into_iter().filter_map(by).min()
    }

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        self.shared.state.lock().stats.clone()
    }

    /// Ends in order: every stream is closed, all is delivered and acknowledged and every peer has
    /// closed too, or the time is `deadline`. Then connections and ports are closed and the driver
    /// thread has ended. Whether all of that came about in time. A second call does nothing.
    pub fn shutdown(&self, deadline: Instant) -> bool {
        if !self.owner.is_here() {
            return false;
        }
        let Some(driver) = self.driver.lock().take() else { return true };
        let is_quiet = self.drain(deadline);
        self.linger(deadline);
        let is_whole = self.end(driver);
        self.shared.state.lock().close_all();
        is_quiet && is_whole
    }

    /// Ends the driver thread; whether it had not died.
    fn end(&self, driver: JoinHandle<()>) -> bool {
        self.shared.stop();
        driver.thread().unpark();
        driver.join().is_ok()
    }

    fn drain(&self, deadline: Instant) -> bool {
        let mut guard = self.lock();
        guard.close();
        loop {
            // The last acknowledgements have nothing to ride on.
            for patience in Patience::ALL {
                guard.tick(patience);
                guard.tick(patience);
            }
            guard.flush();
            if guard.state().is_quiet() {
                return true;
            }
            let epoch = guard.epoch();
            drop(guard);
            // Not a word may come any more, so look at times by oneself.
            let look = Instant::now() + Duration::from_millis(20);
            self.wait(epoch, look.min(deadline));
            guard = self.lock();
            if Instant::now() >= deadline {
                return guard.state().is_quiet();
            }
        }
    }

    /// Says that nothing follows and waits for the same from the peers.
    fn linger(&self, deadline: Instant) {
        let until = deadline.min(Instant::now() + LINGER);
        self.shared.state.lock().finish_links();
        loop {
            let (has_links, epoch) = {
                let mut guard = self.lock();
                (guard.state().has_links(), guard.epoch())
            };
            if !has_links || Instant::now() >= until {
                return;
            }
            self.wait(epoch, until);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        if let Some(driver) = self.driver.lock().take() {
            self.end(driver);
        }
    }
}

/// The driver must not run the program's signal handlers: it is born with all signals blocked.
fn spawn_driver(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
    let driver = std::thread::Builder::new()
        .name("gridmpi-net".to_owned())
        .stack_size(STACK)
        .spawn(move || shared.drive());
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    driver
}

impl<'a> Guard<'a> {
    /// The present moment: what has happened up to now has been seen by the holder of this guard.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.shared.signs.progress())
    }

    /// Sends now what the drop of the guard would send.
    pub fn flush(&mut self) {
        let before = self.shared.signs.progress();
        self.state().flush();
        if self.shared.signs.progress() != before {
            self.shared.announce();
        }
    }

    /// The state. The option is empty only inside `drop`.
    pub(crate) fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("present until the guard is dropped")
    }
}

impl Deref for Guard<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.state.as_ref().expect("present until the guard is dropped").endpoint
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.state().endpoint
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.flush();
        self.state = None;
    }
}

impl State {
    /// Half-closes every connection; no other will be made.
    fn finish_links(&mut self) {
        self.is_closing = true;
        for socket in self.sockets.iter() {
            if let Socket::Link(link) = socket {
                let _ = SockRef::from(&link.carrier.fd).shutdown(Shutdown::Write);
            }
        }
    }

    fn has_links(&self) -> bool {
        self.peers.values().any(Peer::has_link)
    }

    /// Closes every socket.
    fn close_all(&mut self) {
        let sockets = std::mem::take(&mut self.sockets);
        for socket in sockets.iter() {
            if let Socket::Link(link) = socket {
                self.retire(link);
            }
        }
        self.pending.clear();
        self.listeners.clear();
        self.peers.clear();
    }
}
