//! A connection to another relay: bytes as they are.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::held::Held;

/// Most slices of one system call.
const SLICES: usize = 1000;

/// A connection, and what could not be written to it yet.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) fd: OwnedFd,
    /// Bytes that are to go before all others.
    tail: Held,
}

/// What a read has given besides bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// There may be more.
    Perhaps,
    /// The socket is empty.
    No,
    /// The other side sends no more.
    Ended,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, tail: Held::default() }
    }

    /// Reads once into `inbound`; `ranges` gets the places of what came.
    pub(crate) fn read(
        &mut self,
        inbound: &mut [u8],
        ranges: &mut Vec<Range<usize>>,
    ) -> io::Result<More> {
        let space = inbound.len();
        match received(rustix::net::recv(&self.fd, inbound, RecvFlags::empty()).map(|r| r.0))? {
            None => Ok(More::No),
            Some(0) => Ok(More::Ended),
            Some(count) => {
                ranges.push(0..count);
                Ok(if count < space { More::No } else { More::Perhaps })
            }
        }
    }

    /// Writes; what does not go is kept. Whether all has gone.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<bool> {
        let mut sent = 0;
        if self.tail.is_empty() {
            sent = send(&self.fd, slices)?;
        }
        for slice in slices {
            let skipped = sent.min(slice.len());
            sent -= skipped;
            if let Some(rest) = slice.get(skipped..).filter(|rest| !rest.is_empty()) {
                self.tail.push(rest);
            }
        }
        Ok(self.tail.is_empty())
    }

    /// Writes what was kept. Whether all has gone.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while !self.tail.is_empty() {
            let sent = send(&self.fd, &self.tail.io_slices(SLICES))?;
            if sent == 0 {
                return Ok(false);
            }
            self.tail.consume(sent);
        }
        Ok(true)
    }

    /// Bytes that were kept.
    pub(crate) fn kept(&self) -> usize {
        self.tail.len()
    }
}

/// Sends without waiting and without SIGPIPE; how many bytes went.
pub(crate) fn send(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    let mut sent = 0;
    for slices in slices.chunks(SLICES) {
        let count: usize = slices.iter().map(|slice| slice.len()).sum();
        match rustix::net::sendmsg(fd, slices, &mut control, SendFlags::NOSIGNAL) {
            Ok(now) => {
                sent += now;
                if now < count {
                    break;
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(sent)
}

/// Bytes received; `None` when there are none now.
pub(crate) fn received(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
