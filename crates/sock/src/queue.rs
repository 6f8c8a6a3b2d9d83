//! Epoll.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// What is waited for, and what has come.
pub use rustix::event::epoll::EventFlags as Flags;

/// The longest wait that is asked for, in seconds; whoever waits longer waits again.
const LONGEST: u64 = 1 << 30;

/// The kernel's event queue. All calls take `&self`: one thread may wait while another registers.
#[derive(Debug)]
pub struct Queue {
    epoll: OwnedFd,
}

impl Queue {
    /// An empty one.
    ///
    /// # Errors
    /// The system has no more descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Waits for `flags` on a descriptor that is not registered yet; its events bear `data`.
    ///
    /// # Errors
    /// It is registered, or cannot be waited for, or there is no more memory.
    pub fn add(&self, fd: impl AsFd, data: u64, flags: Flags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), flags)?)
    }

    /// Waits for other things on a registered descriptor.
    ///
    /// # Errors
    /// It is not registered.
    pub fn modify(&self, fd: impl AsFd, data: u64, flags: Flags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(data), flags)?)
    }

    /// Waits no more for a registered descriptor. Events already taken from the kernel may still speak of it.
    ///
    /// # Errors
    /// It is not registered.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits at most `timeout` (`None`: without end; in whole milliseconds, upwards) and tells `each` of up to `BATCH` events: the data given, and what has come. None
    /// when a signal interrupts the wait.
    ///
    /// # Errors
    /// The queue itself is broken.
    pub fn wait<const BATCH: usize>(
        &self,
        timeout: Option<Duration>,
        mut each: impl FnMut(u64, Flags),
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(LONGEST) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            // The structure is packed: its fields are copied out.
            Ok((events, _)) => events.iter().for_each(|it| each(it.data.u64(), it.flags)),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn events(queue: &Queue, timeout: Option<Duration>) -> Vec<(u64, Flags)> {
        let mut events = Vec::new();
        queue.wait::<4>(timeout, |data, flags| events.push((data, flags))).unwrap();
        events
    }

    #[test]
    fn what_is_registered_is_told_until_it_is_removed() {
        let queue = Queue::new().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        queue.add(&near, 7, Flags::IN).unwrap();
        assert!(queue.add(&near, 8, Flags::IN).is_err(), "it is there already");
        assert!(events(&queue, Some(Duration::ZERO)).is_empty());
        far.write_all(b"x").unwrap();
        assert_eq!(events(&queue, None), [(7, Flags::IN)]);
        queue.modify(&near, u64::MAX, Flags::OUT).unwrap();
        assert_eq!(events(&queue, None), [(u64::MAX, Flags::OUT)]);
        queue.remove(&near).unwrap();
        assert!(events(&queue, Some(Duration::from_millis(1))).is_empty());
        assert!(queue.remove(&near).is_err(), "it is gone already");
    }
}
