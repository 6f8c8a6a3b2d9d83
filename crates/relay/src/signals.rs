//! Signals, as the loop hears of them. No thread waits for them: in a process of several threads each system call on a descriptor
//! counts who uses it, and messages that pass are system calls.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tracing::error;

use crate::daemon::Daemon;
use crate::poller::Interest;
use crate::sockets::Socket;

/// SIGHUP, SIGINT and SIGTERM.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// From now on they interrupt neither this thread nor those that it starts, but are kept for the loop.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub(crate) fn keep() -> io::Result<Self> {
        let kept = SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]);
        kept.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self(SignalFd::with_flags(&kept, flags)?))
    }

    fn fd(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// The next that has come.
    fn next(&self) -> Option<Signal> {
        let read = self.0.read_signal().ok()??;
        i32::try_from(read.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())
    }
}

/// Reads the settings again, which may take its time.
type Reread = Arc<Mutex<dyn FnMut() + Send>>;

/// Signals, and what comes of them.
pub(crate) struct Heed {
    signals: Signals,
    reread: Reread,
}

impl fmt::Debug for Heed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Heed").field(&self.signals).finish()
    }
}

impl Daemon {
    /// Ends by SIGINT and SIGTERM as by [`crate::Handle::end`]; has a thread `reread` the settings by SIGHUP, one at a time.
    ///
    /// # Errors
    /// The kernel's event queue takes no more.
    pub(crate) fn heed(
        &mut self,
        signals: Signals,
        reread: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        self.sockets.add(signals.fd()?, Interest::Read, Socket::Signals)?;
        self.heed = Some(Heed { signals, reread: Arc::new(Mutex::new(reread)) });
        Ok(())
    }

    pub(crate) fn signals_ready(&mut self) {
        while let Some(heed) = &self.heed
            && let Some(signal) = heed.signals.next()
        {
            match signal {
                Signal::SIGHUP => start_reading(Arc::clone(&heed.reread)),
                _ => self.end(),
            }
        }
    }
}

/// In a thread: files may lie where reading takes long.
fn start_reading(reread: Reread) {
    let started = std::thread::Builder::new().name("settings".to_owned()).spawn(move || {
        let mut reread = reread.lock().unwrap_or_else(PoisonError::into_inner);
        reread();
    });
    if let Err(error) = started {
        error!(
            "the settings are not read again, the system gives no thread ({error}): send SIGHUP once more"
        );
    }
}
