//! Epoll.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

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
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::None => epoll::EventFlags::empty(),
            Self::Read => epoll::EventFlags::IN,
            Self::Write => epoll::EventFlags::OUT,
            Self::Changes => {
                epoll::EventFlags::IN
                    | epoll::EventFlags::OUT
                    | epoll::EventFlags::RDHUP
                    | epoll::EventFlags::ET
            }
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
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, key: Key<Socket>, what: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key.to_bits());
        Ok(epoll::add(&self.epoll, fd, data, what.flags())?)
    }

    pub(crate) fn modify(&self, fd: impl AsFd, key: Key<Socket>, what: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key.to_bits());
        Ok(epoll::modify(&self.epoll, fd, data, what.flags())?)
    }

    /// Waits at most `timeout` (`None`: without end) and replaces `ready` by what is ready.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        ready.clear();
        match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(Ready::from_event)),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl Ready {
    fn from_event(event: &epoll::Event) -> Self {
        use epoll::EventFlags as Flags;
        // The structure is packed: copy the flags out first.
        let flags = event.flags;
        let ended = Flags::RDHUP | Flags::HUP | Flags::ERR;
        Self {
            key: Key::from_bits(event.data.u64()),
            is_readable: flags.intersects(Flags::IN | ended),
            is_writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
            has_ended: flags.intersects(ended),
            has_failed: flags.intersects(Flags::ERR),
        }
    }
}
