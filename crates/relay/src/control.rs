//! What other threads say to the loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::arena::Key;
use crate::config::Config;
use crate::dial::Known;
use crate::http::Page;
use crate::metrics::Snapshot;

/// Something to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take nothing new, and end when all has ended; at once if that was said before.
    End,
    /// Take on these settings.
    Reload(Box<Config>),
    /// Say what has been counted.
    Snapshot(Sender<Snapshot>),
    /// Say what has been counted, or was a moment ago.
    Page(Sender<Arc<Page>>),
    /// The one with this number who asked for `/metrics` was answered.
    Answered(u64),
    /// A name was looked up.
    Resolved(Key<Known>, Result<Vec<SocketAddr>, String>),
}

#[derive(Debug)]
struct Shared {
    commands: Mutex<Vec<Command>>,
    wake: OwnedFd,
}

/// Speaks to a relay from other threads.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { commands: Mutex::new(Vec::new()), wake })))
    }

    /// Readable when there is something to do.
    pub(crate) fn wake_fd(&self) -> io::Result<OwnedFd> {
        self.0.wake.try_clone()
    }

    pub(crate) fn say(&self, command: Command) {
        self.0.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        // Full means that it is readable.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn take(&self) -> Vec<Command> {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        std::mem::take(&mut *self.0.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the relay other settings. Where it listens and who it is stay.
    pub fn reload(&self, config: Config) {
        self.say(Command::Reload(Box::new(config)));
    }

    /// What the relay has counted; `None` if it does not answer in time.
    #[must_use]
    pub fn snapshot(&self, patience: Duration) -> Option<Snapshot> {
        let (send, receive) = channel();
        self.say(Command::Snapshot(send));
        receive.recv_timeout(patience).ok()
    }

    /// The same as it is shown, perhaps a moment old.
    pub(crate) fn page(&self, patience: Duration) -> Option<Arc<Page>> {
        let (send, receive) = channel();
        self.say(Command::Page(send));
        receive.recv_timeout(patience).ok()
    }

    /// Asks the relay to end: it takes nothing new, and ends when its circuits have, or after [`crate::Config::drain`]. Asked
    /// again it ends at once.
    pub fn end(&self) {
        self.say(Command::End);
    }
}
