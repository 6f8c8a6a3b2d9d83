//! A descriptor that one thread waits on and others ring.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Rung or quiet. Any thread may do anything with it; nothing waits.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Readable from now on.
    pub(crate) fn ring(&self) {
        // Fails only when it has been rung 2^64 times already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Readable no longer.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
