//! Threads that pass on what launchers print.

use crate::console::say;
use crate::output::{self, Reading, Turns};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// After the last process has gone, its output is in our pipes already: who finds nothing to read for so long will find nothing more.
const DRAIN: Duration = Duration::from_secs(2);

/// All that were started.
pub(crate) struct Pumps {
    turns: Vec<Arc<Turns>>,
    /// Something could not be written, which has been said.
    is_torn: Arc<AtomicBool>,
    ended: (Sender<()>, Receiver<()>),
}

impl Pumps {
    pub(crate) fn new() -> Self {
        Self { turns: Vec::new(), is_torn: Arc::default(), ended: channel() }
    }

    /// Passes on what comes from `from` until its end.
    pub(crate) fn start(
        &mut self,
        from: impl io::Read + Send + 'static,
        reading: Reading,
        mut to: impl io::Write + Send + 'static,
    ) {
        let turns = Arc::new(Turns::default());
        self.turns.push(Arc::clone(&turns));
        let (is_torn, ended) = (Arc::clone(&self.is_torn), self.ended.0.clone());
        std::thread::spawn(move || {
            let complain = |of: &str, error: &io::Error| complain(of, error, &is_torn);
            match reading {
                Reading::Pass | Reading::ForPeople => {
                    output::pass(from, &mut to, &turns, |_| ());
                }
                Reading::Cluster(of) => output::pass(from, &mut to, &turns, |e| complain(&of, e)),
                Reading::Label(label) => {
                    output::pump(from, &label, &mut to, &turns, |e| complain(label.name(), e));
                }
            }
            let _ = ended.send(());
        });
    }

    /// Waits until they have passed on everything, or nothing has come for long, or for this time at `most`. False if something
    /// could not be written that should have been.
    pub(crate) fn drain(&self, most: Option<Duration>) -> bool {
        let end = most.map(|most| Instant::now() + most);
        let mut left = self.turns.len();
        let mut seen = self.counts();
        while left > 0 {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            let rest = rest.map_or(DRAIN, |rest| rest.min(DRAIN));
            match self.ended.1.recv_timeout(rest) {
                Ok(()) => left -= 1,
                Err(RecvTimeoutError::Timeout) if !rest.is_zero() && self.is_any_writing(&seen) => {
                    seen = self.counts();
                }
                Err(_) => break,
            }
        }
        !self.is_torn.load(Ordering::Relaxed)
    }

    fn counts(&self) -> Vec<u64> {
        self.turns.iter().map(|turns| turns.count()).collect()
    }

    fn is_any_writing(&self, seen: &[u64]) -> bool {
        self.turns.iter().zip(seen).any(|(turns, count)| !turns.has_waited_since(*count))
    }
}

/// Once, of whatever kind.
fn complain(cluster: &str, error: &io::Error, is_torn: &AtomicBool) {
    if !is_torn.swap(true, Ordering::Relaxed) {
        say!("cannot write what cluster `{cluster}` prints: {error}");
    }
}
