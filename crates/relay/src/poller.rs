//! Epoll.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use gridmpi_sock::{Flags, Queue};

use crate::arena::Key;
use crate::sockets::Socket;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    None,
    /// As long as there is something to read.
    Read,
    /// As long as something can be written.
    Write,
    /// Whenever something changes. Who is told remembers it, and so the kernel need not be told what is waited for.
    Changes,
}

impl Interest {
    fn flags(self) -> Flags {
        match self {
            Self::None => Flags::empty(),
            Self::Read => Flags::IN,
            Self::Write => Flags::OUT,
            Self::Changes => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
        }
    }
}

/// What is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) key: Key<Socket>,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// The other side sends no more.
    pub(crate) has_ended: bool,
    pub(crate) has_failed: bool,
}

/// Events taken from the kernel at a time.
const BATCH: usize = 256;

/// The kernel's event queue.
#[derive(Debug)]
pub(crate) struct Poller {
    queue: Queue,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: Queue::new()? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, key: Key<Socket>, what: Interest) -> io::Result<()> {
        self.queue.add(fd, key.to_bits(), what.flags())
    }

    pub(crate) fn modify(&self, fd: impl AsFd, key: Key<Socket>, what: Interest) -> io::Result<()> {
        self.queue.modify(fd, key.to_bits(), what.flags())
    }

    /// Waits at most `timeout` (`None`: without end) and replaces `ready` by what is ready.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.queue.wait::<BATCH>(timeout, |data, flags| ready.push(Ready::new(data, flags)))
    }
}

impl Ready {
    /// More of the same is ready.
    pub(crate) fn add(&mut self, more: Self) {
        self.is_readable |= more.is_readable;
        self.is_writable |= more.is_writable;
        self.has_ended |= more.has_ended;
        self.has_failed |= more.has_failed;
    }

    fn new(data: u64, flags: Flags) -> Self {
        let ended = Flags::RDHUP | Flags::HUP | Flags::ERR;
        Self {
            key: Key::from_bits(data),
            is_readable: flags.intersects(Flags::IN | ended),
            is_writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
            has_ended: flags.intersects(ended),
            has_failed: flags.intersects(Flags::ERR),
        }
    }
}
