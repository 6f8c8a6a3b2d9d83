//! Checked records on a socket that nothing else guards (`gridmpi_wire::Seal`, `Verify`): what a relay or the machine that it runs on has
//! changed is found by the far process, which gives the connection up.
//!
//! Nothing is copied to be sent, but for the rest of a record that the kernel takes only a part of. A long payload is read straight to where it
//! belongs, and verified there before it counts: the reader is told of bytes of a record that is not whole yet only while all that is left of
//! it goes to the same place. All else waits in a buffer of ours until its record is whole and right.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use gridmpi_wire::{MAX_RECORD, RECORD_HEAD, RecordError, Seal, Verify};
use rustix::net::RecvFlags;

use crate::carrier::Out;

/// Pieces of at least this have records of their own, so that the far side can read them straight to where they belong.
const ALONE: usize = crate::link::DIRECT_ABOVE;

/// Most bytes sealed for one system call: what of them the kernel does not take is sealed again.
const BATCH: usize = 2 * MAX_RECORD;

/// Most pieces of one system call; far below the kernel's bound.
const PIECES: usize = 256;

/// What is read at a time while it is not known where it belongs.
const SPACE: usize = 16 * 1024;

/// What is read beyond a payload that is read straight to its place: the next head, or a few small records.
const BEHIND: usize = 4 * 1024;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    outgoing: Outgoing,
    incoming: Incoming,
}

impl Checked {
    /// Hands over as much as goes now.
    pub(crate) fn write(&mut self, out: Out<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outgoing.write(out, slices)
    }

    /// Sends what has been handed over, as far as it goes now.
    pub(crate) fn flush(&mut self, out: Out<'_>) -> io::Result<()> {
        self.outgoing.flush(out)
    }

    /// Something has been handed over and not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outgoing.unsent.is_empty()
    }

    /// Something good has been read and not handed out, or something bad.
    pub(crate) fn has_readable(&self) -> bool {
        self.incoming.good > 0 || self.incoming.damage.is_some()
    }

    /// There may be more to read now, though less came than was asked for.
    pub(crate) fn may_have_more(&self) -> bool {
        self.has_readable() || !self.incoming.is_drained
    }

    /// Reads what has come and is good, if `from_socket` from the socket too. 0 is the end.
    pub(crate) fn read(
        &mut self,
        fd: &OwnedFd,
        into: &mut [u8],
        from_socket: bool,
    ) -> io::Result<usize> {
        self.incoming.read(fd, into, from_socket)
    }

    /// Reads to several places, in order: what is good, or what is not yet known to be if the rest of its record has room there, too.
    pub(crate) fn read_vectored(
        &mut self,
        fd: &OwnedFd,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.incoming.read_vectored(fd, slices)
    }
}

#[derive(Debug, Default)]
struct Outgoing {
    seal: Seal,
    /// The rest of a record that has begun to go.
    unsent: Vec<u8>,
}

impl Outgoing {
    fn write(&mut self, out: Out<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(out)?;
        if !self.unsent.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut pieces = Pieces { slices, at: 0 };
        let mut taken = 0;
        loop {
            let batch = Batch::seal(&mut self.seal, &mut pieces);
            if batch.records.is_empty() {
                return Ok(taken);
            }
            match self.send(out, &batch) {
                Ok((count, is_all)) => {
                    taken += count;
                    if !is_all {
                        return Ok(taken);
                    }
                }
                // Told again by the next call.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what goes now. How much of the payloads is taken, and whether that is all.
    fn send(&mut self, out: Out<'_>, batch: &Batch<'_>) -> io::Result<(usize, bool)> {
        let sent = out.send(&batch.slices());
        let mut left = *sent.as_ref().unwrap_or(&0);
        let mut taken = 0;
        for record in &batch.records {
            if left == 0 {
                // It has not begun: what comes next may be something else.
                self.seal = record.before;
                return sent.map(|_| (taken, false));
            }
            taken += record.len;
            let pieces = batch.pieces[record.pieces.clone()].iter().copied();
            for bytes in std::iter::once(&record.head[..]).chain(pieces) {
                let gone = left.min(bytes.len());
                left -= gone;
                self.unsent.extend_from_slice(&bytes[gone..]);
            }
            if !self.unsent.is_empty() {
                self.seal = record.after;
                return Ok((taken, false));
            }
        }
        Ok((taken, true))
    }

    fn flush(&mut self, out: Out<'_>) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match out.send(&[IoSlice::new(&self.unsent)]) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What is to be sent, from a place on.
struct Pieces<'a> {
    slices: &'a [IoSlice<'a>],
    /// In the first of them.
    at: usize,
}

impl<'a> Pieces<'a> {
    /// What is left of the slice that one is in.
    fn rest(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = &self.slices.first()?[self.at..];
            if !rest.is_empty() {
                return Some(rest);
            }
            (self.slices, self.at) = (&self.slices[1..], 0);
        }
    }

    /// Appends the pieces of the next record. Their length; 0 at the end.
    fn record(&mut self, pieces: &mut Vec<&'a [u8]>) -> usize {
        let mut len = 0;
        while let Some(rest) = self.rest() {
            let is_alone = rest.len() >= ALONE;
            if len > 0 && (is_alone || len == MAX_RECORD || pieces.len() >= PIECES) {
                break;
            }
            let piece = &rest[..rest.len().min(MAX_RECORD - len)];
            pieces.push(piece);
            len += piece.len();
            self.at += piece.len();
            if is_alone {
                break;
            }
        }
        len
    }
}

/// Records that are sent by one system call.
struct Batch<'a> {
    pieces: Vec<&'a [u8]>,
    records: Vec<Record>,
}

struct Record {
    head: [u8; RECORD_HEAD],
    pieces: std::ops::Range<usize>,
    len: usize,
    /// Where the direction stands if it is not sent, and if it is.
    before: Seal,
    after: Seal,
}

impl<'a> Batch<'a> {
    fn seal(seal: &mut Seal, rest: &mut Pieces<'a>) -> Self {
        let mut batch = Self { pieces: Vec::new(), records: Vec::new() };
        let mut sealed = 0;
        while sealed < BATCH && batch.pieces.len() < PIECES {
            let begin = batch.pieces.len();
            let len = rest.record(&mut batch.pieces);
            if len == 0 {
                break;
            }
            let (before, pieces) = (*seal, begin..batch.pieces.len());
            let head = seal.head(batch.pieces[pieces.clone()].iter().copied());
            batch.records.push(Record { head, pieces, len, before, after: *seal });
            sealed += len;
        }
        batch
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.pieces.len() + self.records.len());
        for record in &self.records {
            slices.push(IoSlice::new(&record.head));
            slices.extend(self.pieces[record.pieces.clone()].iter().map(|it| IoSlice::new(it)));
        }
        slices
    }
}

#[derive(Debug, Default)]
struct Incoming {
    verify: Verify,
    buffer: Vec<u8>,
    /// What of the buffer has come and is not handed out.
    start: usize,
    end: usize,
    /// How much of that is of a record that is whole and right.
    good: usize,
    /// What follows is not.
    damage: Option<RecordError>,
    /// The socket had no more when it was read last.
    is_drained: bool,
}

impl Incoming {
    fn read(&mut self, fd: &OwnedFd, into: &mut [u8], from_socket: bool) -> io::Result<usize> {
        loop {
            let count = self.hand_out(|at, bytes| {
                let count = bytes.len().min(into.len() - at);
                into[at..at + count].copy_from_slice(&bytes[..count]);
                count
            });
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            if !self.has_come(fd, from_socket, SPACE)? {
                return Ok(0);
            }
        }
    }

    fn read_vectored(&mut self, fd: &OwnedFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        loop {
            let count = self.hand_out(|at, bytes| scatter(slices, at, bytes));
            if count > 0 || room == 0 {
                return Ok(count);
            }
            let rest = self.verify.rest();
            if rest > 0 && rest <= room && self.damage.is_none() {
                return self.place(fd, slices);
            }
            let ahead = if rest > 0 { SPACE } else { BEHIND };
            if !self.has_come(fd, true, ahead)? {
                return Ok(0);
            }
        }
    }

    /// Hands out what is good, as far as `take` takes it: given how much it has taken and the next bytes, it says how many of them.
    fn hand_out(&mut self, mut take: impl FnMut(usize, &[u8]) -> usize) -> usize {
        let mut count = 0;
        while self.good > 0 {
            let taken = take(count, &self.buffer[self.start..self.start + self.good]);
            if taken == 0 {
                break;
            }
            count += taken;
            self.start += taken;
            self.good -= taken;
            self.advance();
        }
        count
    }

    /// Nothing good is left: reads on, if `from_socket`. Whether it is not the end; there may be something good now, or a record begun.
    fn has_come(&mut self, fd: &OwnedFd, from_socket: bool, ahead: usize) -> io::Result<bool> {
        if let Some(damage) = self.damage {
            return Err(io::Error::new(io::ErrorKind::InvalidData, damage));
        }
        if !from_socket {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.make_room(ahead);
        let most = self.buffer.len().min(self.end + ahead.max(self.verify.rest()));
        let space = &mut self.buffer[self.end..most];
        let (count, asked) = (receive(fd, space), space.len());
        self.is_drained = !matches!(count, Ok(count) if count == asked);
        let count = count?;
        self.end += count;
        self.advance();
        Ok(count > 0)
    }

    /// Makes room for so many bytes, and for the whole of the record begun.
    fn make_room(&mut self, ahead: usize) {
        let have = self.end - self.start;
        let wanted = self.verify.rest().max(have) + ahead;
        if self.start > 0 && (have == 0 || self.buffer.len() - self.start < wanted) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, have);
        }
        if self.buffer.len() - self.start < wanted {
            self.buffer.resize(self.start + wanted, 0);
        }
    }

    /// Looks at what has come, where nothing good is left.
    fn advance(&mut self) {
        if self.good > 0 || self.damage.is_some() {
            return;
        }
        if self.verify.rest() == 0 {
            let Some(head) = self.buffer[self.start..self.end].first_chunk() else { return };
            let opened = self.verify.head(head);
            self.start += RECORD_HEAD;
            if let Err(damage) = opened {
                self.damage = Some(damage);
                return;
            }
        }
        let rest = self.verify.rest();
        if let Some(payload) = self.buffer[self.start..self.end].get(..rest) {
            match self.verify.payload(payload) {
                Ok(()) => self.good = rest,
                Err(damage) => self.damage = Some(damage),
            }
        }
    }

    /// Reads on in the record begun, which is not whole in the buffer and has room in `slices`.
    fn place(&mut self, fd: &OwnedFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let here = &self.buffer[self.start..self.end];
        let before = scatter(slices, 0, here);
        self.verify.payload(here).map_err(damaged)?;
        (self.start, self.end) = (0, 0);
        self.make_room(BEHIND);
        let rest = self.verify.rest();
        let mut places = cut(slices, before, rest);
        places.push(IoSliceMut::new(&mut self.buffer[..BEHIND]));
        let count = rustix::io::readv(fd, &mut places);
        self.is_drained = !matches!(count, Ok(count) if count == rest + BEHIND);
        let count = match count {
            Err(_) if before > 0 => return Ok(before), // told again by the next call
            count => count?,
        };
        let direct = count.min(rest);
        let mut left = direct;
        for place in &places {
            let len = left.min(place.len());
            self.verify.payload(&place[..len]).map_err(damaged)?;
            left -= len;
        }
        self.end = count - direct;
        self.advance();
        Ok(before + direct)
    }
}

fn damaged(error: RecordError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn receive(fd: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, into, RecvFlags::empty())?.0)
}

/// Copies to places that lie one after another, from `at` of them on. How much had room.
fn scatter(slices: &mut [IoSliceMut<'_>], at: usize, bytes: &[u8]) -> usize {
    let mut left = bytes;
    for place in cut(slices, at, bytes.len()).iter_mut() {
        let (now, later) = left.split_at(place.len());
        place.copy_from_slice(now);
        left = later;
    }
    bytes.len() - left.len()
}

/// The next `len` bytes of places that lie one after another, from `at` of them on; fewer where they end.
fn cut<'a>(slices: &'a mut [IoSliceMut<'_>], at: usize, len: usize) -> Vec<IoSliceMut<'a>> {
    let mut parts = Vec::with_capacity(slices.len() + 1);
    let (mut skipped, mut left) = (at, len);
    for slice in slices {
        let skip = skipped.min(slice.len());
        skipped -= skip;
        let part = &mut slice[skip..];
        let taken = left.min(part.len());
        left -= taken;
        if taken > 0 {
            parts.push(IoSliceMut::new(&mut part[..taken]));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (one, other) = UnixStream::pair().unwrap();
        for socket in [&one, &other] {
            socket.set_nonblocking(true).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(socket, 20_000).unwrap();
        }
        (one.into(), other.into())
    }

    fn is_nothing_now(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::WouldBlock
    }

    /// Reads what there is now, into places of these lengths by turns, straight to them or not.
    fn read_some(
        carrier: &mut Checked,
        fd: &OwnedFd,
        lens: &[usize],
        is_direct: bool,
        got: &mut Vec<u8>,
    ) -> io::Result<()> {
        loop {
            let mut places: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
            let mut slices: Vec<_> = places.iter_mut().map(|it| IoSliceMut::new(it)).collect();
            let count = if is_direct {
                carrier.read_vectored(fd, &mut slices)
            } else {
                carrier.read(fd, &mut slices[0], true)
            };
            match count {
                Ok(0) => return Ok(()),
                Ok(count) => got.extend_from_slice(&places.concat()[..count]),
                Err(error) if is_nothing_now(&error) && !carrier.has_readable() => return Ok(()),
                Err(error) if is_nothing_now(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Pieces that are handed over together: some short, some long, some empty.
    fn pieces() -> impl Strategy<Value = Vec<usize>> {
        let piece = prop_oneof![0usize..100, 7_000usize..9_000, 60_000usize..200_000];
        prop::collection::vec(piece, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_handed_over_is_handed_out(
            writes in prop::collection::vec(pieces(), 1..5),
            lens in prop::collection::vec(1usize..100_000, 1..4),
            directs in prop::collection::vec(any::<bool>(), 1..6),
        ) {
            let (near, far) = pair();
            let (mut writer, mut reader) = (Checked::default(), Checked::default());
            let (mut sent, mut got) = (Vec::new(), Vec::new());
            let mut turns = directs.iter().cycle();
            let mut read = |reader: &mut Checked, got: &mut Vec<u8>| {
                read_some(reader, &far, &lens, *turns.next().unwrap(), got).unwrap();
            };
            for (number, lens) in writes.iter().enumerate() {
                let seed = number as u8;
                let pieces: Vec<Vec<u8>> = lens.iter().map(|&len| {
                    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
                }).collect();
                let all = pieces.concat();
                let mut at = 0;
                while at < all.len() {
                    // What is left of the pieces, as the stream would hand it over again.
                    let mut skipped = at;
                    let rest: Vec<IoSlice<'_>> = pieces.iter().map(|piece| {
                        let skip = skipped.min(piece.len());
                        skipped -= skip;
                        IoSlice::new(&piece[skip..])
                    }).collect();
                    match writer.write(Out::usual(&near), &rest) {
                        Ok(count) => at += count,
                        Err(error) => assert!(is_nothing_now(&error), "{error}"),
                    }
                    read(&mut reader, &mut got);
                }
                sent.extend_from_slice(&all);
            }
            while writer.has_unsent() || got.len() < sent.len() {
                writer.flush(Out::usual(&near)).unwrap();
                read(&mut reader, &mut got);
            }
            prop_assert!(got == sent);
        }

        #[test]
        fn what_is_not_right_is_not_handed_out(
            lens in pieces(), at: prop::sample::Index, len in 1usize..100_000,
        ) {
            let (near, far) = pair();
            let mut seal = Seal::default();
            let mut bytes = Vec::new();
            let mut sent = Vec::new();
            for len in lens.into_iter().map(|len| len.clamp(1, MAX_RECORD)) {
                let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
                bytes.extend_from_slice(&seal.head(std::iter::once(&payload[..])));
                bytes.extend_from_slice(&payload);
                sent.extend_from_slice(&payload);
            }
            let at = at.index(bytes.len());
            bytes[at] ^= 16;
            let (mut reader, mut got) = (Checked::default(), Vec::new());
            let mut rest = &bytes[..];
            let end = loop {
                if let Ok(count) = rustix::io::write(&near, rest) {
                    rest = &rest[count..];
                }
                if let Err(error) = read_some(&mut reader, &far, &[len], false, &mut got) {
                    break error;
                }
                prop_assert!(!rest.is_empty(), "it was not found");
            };
            prop_assert_eq!(end.kind(), io::ErrorKind::InvalidData);
            prop_assert!(sent.starts_with(&got) && got.len() < sent.len());
        }
    }
}
