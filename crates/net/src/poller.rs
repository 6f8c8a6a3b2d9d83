//! Epoll, and the sockets registered in it by token.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use gridmpi_sock::{Flags, Queue};

/// Names a registered socket. Never used again for another one (slot and generation), so that an
/// event taken from the kernel before a socket was replaced is recognised as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(u64);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    None,
    Read,
    ReadWrite,
}

impl Interest {
    fn flags(self) -> Flags {
        match self {
            Self::None => Flags::empty(),
            Self::Read => Flags::IN,
            Self::ReadWrite => Flags::IN | Flags::OUT,
        }
    }
}

/// What is ready. Errors and ends count as both, so that the next call finds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Events taken from the kernel at a time.
const BATCH: usize = 16;

/// The kernel's event queue. All calls take `&self`: one thread may wait while another registers.
#[derive(Debug)]
pub(crate) struct Poller {
    queue: Queue,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: Queue::new()? })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.queue.add(fd, token.0, interest.flags())
    }

    pub(crate) fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.queue.modify(fd, token.0, interest.flags())
    }

    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        self.queue.remove(fd)
    }

    /// Waits at most `timeout` (`None`: without end) and replaces `ready` by what is ready; by nothing
    /// when a signal interrupts the wait.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.queue.wait::<BATCH>(timeout, |data, flags| ready.push(Ready::new(data, flags)))
    }
}

impl Ready {
    fn new(data: u64, flags: Flags) -> Self {
        let ended = Flags::ERR | Flags::HUP;
        Self {
            token: Token(data),
            readable: flags.intersects(Flags::IN | ended),
            writable: flags.intersects(Flags::OUT | ended),
        }
    }
}

/// Values by [`Token`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// A token for a value that [`Self::put`] will bring.
    pub(crate) fn reserve(&mut self) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        Token(u64::from(self.slots[index as usize].0) << 32 | u64::from(index))
    }

    fn slot(&mut self, token: Token) -> Option<&mut (u32, Option<T>)> {
        let slot = self.slots.get_mut(token.0 as u32 as usize)?;
        (slot.0 == (token.0 >> 32) as u32).then_some(slot)
    }

    /// Puts a value where `token` points; drops it if the token was released.
    pub(crate) fn put(&mut self, token: Token, value: T) {
        if let Some(slot) = self.slot(token) {
            slot.1 = Some(value);
        }
    }

    pub(crate) fn get(&mut self, token: Token) -> Option<&mut T> {
        self.slot(token)?.1.as_mut()
    }

    /// Takes the value out for a while; the token stays valid for [`Self::put`].
    pub(crate) fn take(&mut self, token: Token) -> Option<T> {
        self.slot(token)?.1.take()
    }

    /// Ends the token, and returns its value unless that is taken out.
    pub(crate) fn release(&mut self, token: Token) -> Option<T> {
        let slot = self.slot(token)?;
        slot.0 = slot.0.wrapping_add(1);
        let value = slot.1.take();
        self.free.push(token.0 as u32);
        value
    }

    /// All that are there, with their tokens.
    pub(crate) fn iter_with_tokens(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let token = Token(u64::from(slot.0) << 32 | index as u64);
            slot.1.as_mut().map(|value| (token, value))
        })
    }

    /// All that are there.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.1.as_mut())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.1.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_token_reaches_nothing() {
        let mut slots = Slots::default();
        let first = slots.reserve();
        slots.put(first, 'a');
        assert_eq!(slots.release(first), Some('a'));
        let second = slots.reserve();
        slots.put(second, 'b');
        assert_ne!(first, second);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.take(first), None);
        assert_eq!(slots.release(first), None);
        slots.put(first, 'c');
        assert_eq!(slots.take(second), Some('b'));
        slots.put(second, 'd');
        assert_eq!(slots.iter().collect::<Vec<_>>(), [&'d']);
    }
}
