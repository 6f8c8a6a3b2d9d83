//! A connection to another relay: bytes as they are, or by TLS.

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::Connection;

use crate::held::Held;
use crate::tls::{Fingerprint, proven};

/// Most slices of one system call.
const SLICES: usize = 1000;

/// What a record that has half come may add to what is read.
const RECORD: usize = 18 * 1024;

/// A connection, and what could not be written to it yet.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) fd: OwnedFd,
    crypt: Crypt,
}

#[derive(Debug)]
enum Crypt {
    /// Bytes that are to go before all others.
    Plain { tail: Held },
    /// Keeps what is to go itself.
    Tls(Box<Connection>),
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
    pub(crate) fn plain(fd: OwnedFd) -> Self {
        Self { fd, crypt: Crypt::Plain { tail: Held::default() } }
    }

    pub(crate) fn tls(fd: OwnedFd, connection: Connection) -> Self {
        Self { fd, crypt: Crypt::Tls(Box::new(connection)) }
    }

    /// From now on by TLS. Nothing was written before.
    pub(crate) fn set_tls(&mut self, connection: Connection) {
        self.crypt = Crypt::Tls(Box::new(connection));
    }

    /// Whose certificate was proven, once TLS is through with its handshake.
    pub(crate) fn proven(&self) -> Option<Fingerprint> {
        match &self.crypt {
            Crypt::Tls(connection) if !connection.is_handshaking() => proven(connection),
            _ => None,
        }
    }

    /// Bytes of TLS that were read elsewhere.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if let Crypt::Tls(connection) = &mut self.crypt {
            connection.read_tls(&mut bytes)?;
            process(connection, &self.fd)?;
        }
        Ok(())
    }

    /// Reads once into `inbound`; `ranges` gets the places of what came. `scratch` is anybody's between calls, and as long.
    pub(crate) fn read(
        &mut self,
        inbound: &mut [u8],
        scratch: &mut [u8],
        ranges: &mut Vec<Range<usize>>,
    ) -> io::Result<More> {
        let connection = match &mut self.crypt {
            Crypt::Plain { .. } => return read_plain(&self.fd, inbound, ranges),
            Crypt::Tls(connection) => connection,
        };
        let most = scratch.len().min(inbound.len().saturating_sub(RECORD));
        let space = scratch.get_mut(..most).unwrap_or_default();
        let read = rustix::net::recv(&self.fd, &mut *space, RecvFlags::empty());
        let count = match received(read.map(|read| read.0))? {
            None => return Ok(More::No),
            Some(0) => return Ok(More::Ended),
            Some(count) => count,
        };
        let mut rest = space.get(..count).unwrap_or_default();
        let mut at = 0;
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            process(connection, &self.fd)?;
            loop {
                let space = inbound.get_mut(at..).unwrap_or_default();
                match connection.reader().read(space) {
                    // An orderly end of TLS, or a buffer that would be too small.
                    Ok(0) => {
                        push(ranges, at);
                        return Ok(More::Ended);
                    }
                    Ok(count) => at += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        push(ranges, at);
        Ok(if count < most { More::No } else { More::Perhaps })
    }

    /// Writes; what does not go is kept. Whether all has gone.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<bool> {
        match &mut self.crypt {
            Crypt::Plain { tail } => write_plain(&self.fd, tail, slices),
            Crypt::Tls(connection) => {
                encrypt(connection, slices)?;
                self.flush()
            }
        }
    }

    /// Writes what was kept. Whether all has gone.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let tail = match &mut self.crypt {
            Crypt::Plain { tail } => tail,
            Crypt::Tls(connection) => return flush_tls(connection, &self.fd),
        };
        while !tail.is_empty() {
            let sent = send(&self.fd, &tail.io_slices(SLICES))?;
            if sent == 0 {
                return Ok(false);
            }
            tail.consume(sent);
        }
        Ok(true)
    }

    /// Whether something was kept.
    pub(crate) fn has_kept(&self) -> bool {
        match &self.crypt {
            Crypt::Plain { tail } => !tail.is_empty(),
            Crypt::Tls(connection) => connection.wants_write(),
        }
    }
}

fn push(ranges: &mut Vec<Range<usize>>, count: usize) {
    if count > 0 {
        ranges.push(0..count);
    }
}

fn read_plain(
    fd: &OwnedFd,
    inbound: &mut [u8],
    ranges: &mut Vec<Range<usize>>,
) -> io::Result<More> {
    let space = inbound.len();
    match received(rustix::net::recv(fd, inbound, RecvFlags::empty()).map(|r| r.0))? {
        None => Ok(More::No),
        Some(0) => Ok(More::Ended),
        Some(count) => {
            ranges.push(0..count);
            Ok(if count < space { More::No } else { More::Perhaps })
        }
    }
}

fn write_plain(fd: &OwnedFd, tail: &mut Held, slices: &[IoSlice<'_>]) -> io::Result<bool> {
    let mut sent = 0;
    if tail.is_empty() {
        sent = send(fd, slices)?;
    }
    for slice in slices {
        let skipped = sent.min(slice.len());
        sent -= skipped;
        if let Some(rest) = slice.get(skipped..).filter(|rest| !rest.is_empty()) {
            tail.push(rest);
        }
    }
    Ok(tail.is_empty())
}

/// What TLS makes of bytes that came; its own words are sent.
fn process(connection: &mut Connection, fd: &OwnedFd) -> io::Result<()> {
    let result = connection.process_new_packets();
    // An alert that says why should still go.
    let flushed = flush_tls(connection, fd);
    result.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    flushed.map(drop)
}

/// Encrypts all: many small slices share a record.
fn encrypt(connection: &mut Connection, slices: &[IoSlice<'_>]) -> io::Result<()> {
    let mut rest = slices;
    let mut skip = 0;
    while let Some((first, behind)) = rest.split_first() {
        if skip >= first.len() {
            skip -= first.len();
            rest = behind;
            continue;
        }
        let mut writer = connection.writer();
        // A slice that has half gone goes on by itself.
        let count = match first.get(skip..).filter(|_| skip > 0) {
            Some(half) => writer.write(half)?,
            None => writer.write_vectored(rest)?,
        };
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        skip += count;
    }
    Ok(())
}

struct Out<'a>(&'a OwnedFd);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match send(self.0, slices)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn flush_tls(connection: &mut Connection, fd: &OwnedFd) -> io::Result<bool> {
    while connection.wants_write() {
        match connection.write_tls(&mut Out(fd)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Sends without waiting and without SIGPIPE; how many bytes went.
pub(crate) fn send(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    match slices {
        [slice] => send_one(fd, slice),
        slices => send_many(fd, slices),
    }
}

fn send_one(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
        Ok(count) => Ok(count),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

fn send_many(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
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
