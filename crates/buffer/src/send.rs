//! What is sent.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::user::UserSend;
use crate::{Layout, MAX_SLICES};

/// A packed view of data to send: the program's memory, bytes of our own, or pieces of both in a row.
///
/// Clones and slices share the data and are cheap.
#[derive(Clone, Debug)]
pub struct SendBuffer(Data);

#[derive(Clone, Debug)]
enum Data {
    One(Piece),
    /// `len` bytes from byte `skip` of the pieces on.
    Many {
        pieces: Arc<Pieces>,
        skip: u64,
        len: u64,
    },
}

#[derive(Clone, Debug)]
enum Piece {
    Own(Bytes),
    User(UserSend),
}

#[derive(Debug)]
struct Pieces {
    /// No piece is empty.
    pieces: Vec<Piece>,
    /// Bytes of data before each piece.
    starts: Vec<u64>,
}

impl SendBuffer {
    /// No data.
    #[must_use]
    pub fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }

    /// Bytes of our own.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self(Data::One(Piece::Own(bytes)))
    }

    /// `count` elements of `layout` at `address` (null with absolute displacements is fine).
    ///
    /// # Safety
    /// The memory of the elements stays valid and unchanged until every clone and slice is dropped.
    #[allow(unsafe_code)] // passes the promise on to `user`
    #[must_use]
    pub unsafe fn from_user(address: *const u8, count: u64, layout: Arc<Layout>) -> Self {
        // SAFETY: the same promise.
        Self(Data::One(Piece::User(unsafe { UserSend::new(address, count, &layout) })))
    }

    /// The buffers' data one after the other.
    #[must_use]
    pub fn concat(parts: Vec<Self>) -> Self {
        let mut all = Pieces { pieces: Vec::with_capacity(parts.len()), starts: Vec::new() };
        let mut len = 0;
        for part in &parts {
            part.for_parts(0, part.len(), |piece, offset, bytes| {
                all.pieces.push(piece.part(offset, bytes));
                all.starts.push(len);
                len += bytes;
                true
            });
        }
        match all.pieces.len() {
            0 => Self::empty(),
            1 => Self(Data::One(all.pieces.remove(0))),
            _ => Self(Data::Many { pieces: Arc::new(all), skip: 0, len }),
        }
    }

    /// `len` bytes from `offset`.
    ///
    /// # Panics
    /// Unless they lie within.
    #[must_use]
    pub fn slice(&self, offset: u64, len: u64) -> Self {
        self.check(offset, len);
        match &self.0 {
            Data::One(piece) => Self(Data::One(piece.part(offset, len))),
            Data::Many { pieces, skip, .. } => {
                Self(Data::Many { pieces: Arc::clone(pieces), skip: skip + offset, len })
            }
        }
    }

    /// Bytes of data.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Data::One(piece) => piece.len(),
            Data::Many { len, .. } => *len,
        }
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no memory of the program is referred to.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        let mut owned = true;
        self.for_parts(0, self.len(), |piece, _, _| {
            owned = matches!(piece, Piece::Own(_));
            owned
        });
        owned
    }

    /// The same data without reference to the program's memory; copies only where there is one.
    #[must_use]
    pub fn to_owned(&self) -> Self {
        if self.is_owned() { self.clone() } else { Self::from_bytes(self.to_bytes()) }
    }

    /// The data in one piece; no copy when it is one piece of our own.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        if let Data::One(Piece::Own(bytes)) = &self.0 {
            return bytes.clone();
        }
        let len = self.len() as usize;
        if let Some(mut block) = crate::block::take(len) {
            self.copy_to(0, block.as_mut());
            return block.freeze();
        }
        let mut bytes = Vec::with_capacity(len);
        self.append_to(&mut bytes);
        bytes.into()
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        if self.is_fragmented() {
            bytes.resize(self.len() as usize, 0);
            return self.copy_to(0, bytes);
        }
        // Long blocks: nothing is written twice.
        let mut slices = Vec::new();
        while (bytes.len() as u64) < self.len() {
            let at = bytes.len() as u64;
            self.io_slices(at, self.len() - at, &mut slices);
            slices.drain(..).for_each(|slice| bytes.extend_from_slice(&slice));
        }
    }

    /// Whether the blocks are so short that copying ([`Self::copy_to`]) beats scatter-gather.
    #[must_use]
    pub fn is_fragmented(&self) -> bool {
        let (mut fragmented, mut pieces) = (false, 0);
        self.for_parts(0, self.len(), |piece, _, _| {
            fragmented = matches!(piece, Piece::User(user) if user.is_fragmented());
            pieces += 1;
            !fragmented
        });
        fragmented || self.len() / pieces.max(1) < crate::FRAGMENT && pieces > 1
    }

    /// Appends slices that cover the data from `offset` to `out`, until that holds [`MAX_SLICES`] or
    /// `len` bytes are covered.
    ///
    /// Returns the bytes covered: fewer than `len` if `out` is full, 0 only if it was full before or
    /// `len` is 0.
    ///
    /// # Panics
    /// Unless the `len` bytes lie within.
    pub fn io_slices<'a>(&'a self, offset: u64, len: u64, out: &mut Vec<IoSlice<'a>>) -> u64 {
        self.check(offset, len);
        let mut covered = 0;
        self.for_parts(offset, len, |piece, offset, bytes| {
            if out.len() >= MAX_SLICES {
                return false;
            }
            let more = piece.io_slices(offset, bytes, out);
            covered += more;
            more == bytes
        });
        covered
    }

    /// Copies `out.len()` bytes from `offset`.
    ///
    /// # Panics
    /// Unless they lie within.
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) {
        self.check(offset, out.len() as u64);
        let mut done = 0;
        self.for_parts(offset, out.len() as u64, |piece, offset, bytes| {
            let to = &mut out[done..done + bytes as usize];
            match piece {
                Piece::Own(own) => to.copy_from_slice(&own[offset as usize..][..bytes as usize]),
                Piece::User(user) => user.copy_to(offset, to),
            }
            done += bytes as usize;
            true
        });
    }

    fn check(&self, offset: u64, len: u64) {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(within, "{len} bytes at {offset} of a buffer of {}", self.len());
    }

    /// Calls `each` with piece, offset and length of each part of the `len` bytes from `offset`, while it
    /// returns true. Parts are not empty.
    fn for_parts<'a>(
        &'a self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&'a Piece, u64, u64) -> bool,
    ) {
        let (all, skip) = match &self.0 {
            Data::One(piece) => {
                if len > 0 {
                    each(piece, offset, len);
                }
                return;
            }
            Data::Many { pieces, skip, .. } => (pieces, *skip),
        };
        let (mut at, mut left) = (skip + offset, len);
        let mut index = all.starts.partition_point(|&start| start <= at) - 1;
        while left > 0 {
            let (piece, within) = (&all.pieces[index], at - all.starts[index]);
            let bytes = left.min(piece.len() - within);
            if !each(piece, within, bytes) {
                return;
            }
            (index, at, left) = (index + 1, at + bytes, left - bytes);
        }
    }
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Own(bytes) => bytes.len() as u64,
            Self::User(user) => user.len(),
        }
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        match self {
            Self::Own(bytes) => Self::Own(bytes.slice(offset as usize..(offset + len) as usize)),
            Self::User(user) => Self::User(user.part(offset, len)),
        }
    }

    fn io_slices<'a>(&'a self, offset: u64, len: u64, out: &mut Vec<IoSlice<'a>>) -> u64 {
        match self {
            Self::Own(bytes) => {
                out.push(IoSlice::new(&bytes[offset as usize..][..len as usize]));
                len
            }
            Self::User(user) => user.io_slices(offset, len, out),
        }
    }
}
