//! Threads of ours in the program's process.

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::io;

/// Runs beside the program, whose signals are for its own threads.
pub(crate) fn spawn(
    name: &str,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(stack);
    let spawned = thread.spawn(run);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    spawned.map(drop)
}
