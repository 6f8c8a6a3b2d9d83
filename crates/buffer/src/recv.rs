//! What is received into.

use std::io::IoSliceMut;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::block::Block;
use crate::user::UserReceive;
use crate::{Layout, MAX_SLICES};

/// Bytes that a discarding buffer lends out at once.
const SCRATCH: u64 = 64 * 1024;

/// A packed view of memory to receive into: the program's, our own, or none (data is discarded).
#[derive(Debug)]
pub struct RecvBuffer {
    /// No piece is empty.
    pieces: Pieces,
    capacity: u64,
}

/// One piece costs no allocation.
#[derive(Debug)]
enum Pieces {
    One(Piece),
    Many(Vec<Piece>),
}

#[derive(Debug)]
enum Piece {
    Own(BytesMut),
    Block(Block),
    User(UserReceive),
    /// Takes `len` bytes; `scratch` exists while slices are lent out.
    Discard {
        len: u64,
        scratch: Vec<u8>,
    },
}

impl RecvBuffer {
    /// Room for nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self { pieces: Pieces::Many(Vec::new()), capacity: 0 }
    }

    /// `len` zero bytes of our own.
    #[must_use]
    pub fn owned(len: u64) -> Self {
        Self::one(Piece::Own(BytesMut::zeroed(len as usize)))
    }

    /// `len` bytes of our own with anything in them: to be filled before they are read.
    #[must_use]
    pub fn room(len: u64) -> Self {
        match crate::block::take(len as usize) {
            Some(block) => Self::one(Piece::Block(block)),
            None => Self::owned(len),
        }
    }

    /// Accepts `len` bytes and forgets them.
    #[must_use]
    pub fn discard(len: u64) -> Self {
        Self::one(Piece::Discard { len, scratch: Vec::new() })
    }

    /// `count` elements of `layout` at `address` (null with absolute displacements is fine).
    ///
    /// # Safety
    /// The memory of the elements stays valid, and nobody else reads or writes it, until the buffer and
    /// what was split from it are dropped.
    #[allow(unsafe_code)] // passes the promise on to `user`
    #[must_use]
    pub unsafe fn from_user(address: *mut u8, count: u64, layout: Arc<Layout>) -> Self {
        // SAFETY: the same promise.
        Self::one(Piece::User(unsafe { UserReceive::new(address, count, &layout) }))
    }

    fn one(piece: Piece) -> Self {
        let capacity = piece.len();
        Self { pieces: Pieces::One(piece), capacity }
    }

    fn many(mut pieces: Vec<Piece>) -> Self {
        pieces.retain(|piece| piece.len() > 0);
        if pieces.len() == 1 {
            return Self::one(pieces.remove(0));
        }
        let capacity = pieces.iter().map(Piece::len).sum();
        Self { pieces: Pieces::Many(pieces), capacity }
    }

    /// The buffers one after the other.
    #[must_use]
    pub fn concat(parts: Vec<Self>) -> Self {
        Self::many(parts.into_iter().flat_map(Self::into_pieces).collect())
    }

    /// Only the `len` bytes from `offset`.
    ///
    /// # Panics
    /// Unless they lie within.
    #[must_use]
    pub fn slice(self, offset: u64, len: u64) -> Self {
        self.split_at(offset).1.split_at(len).0
    }

    /// The first `at` bytes, and the rest.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[must_use]
    pub fn split_at(self, at: u64) -> (Self, Self) {
        self.check(at, 0);
        if at == self.capacity {
            return (self, Self::empty());
        }
        let (mut first, mut rest, mut left) = (Vec::new(), Vec::new(), at);
        for piece in self.into_pieces() {
            let here = left.min(piece.len());
            left -= here;
            let (a, b) = piece.split(here);
            first.push(a);
            rest.push(b);
        }
        (Self::many(first), Self::many(rest))
    }

    /// Bytes it can take.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether no memory of the program is referred to.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.pieces().iter().all(|piece| !matches!(piece, Piece::User(_)))
    }

    /// Whether the blocks are so short that reading elsewhere and [`Self::write_at`] beats
    /// scatter-gather.
    #[must_use]
    pub fn is_fragmented(&self) -> bool {
        let pieces = self.pieces();
        let short = |piece: &Piece| matches!(piece, Piece::User(user) if user.is_fragmented());
        pieces.iter().any(short)
            || (pieces.len() > 1 && self.capacity / (pieces.len() as u64) < crate::FRAGMENT)
    }

    /// Stores `data` from `offset`.
    ///
    /// # Panics
    /// Unless it fits.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) {
        self.check(offset, data.len() as u64);
        let (mut skip, mut data) = (offset, data);
        for piece in self.pieces_mut() {
            if data.is_empty() {
                return;
            }
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let (here, rest) = data.split_at(data.len().min((piece.len() - skip) as usize));
            piece.write_at(skip, here);
            (skip, data) = (0, rest);
        }
    }

    /// Hands `f` slices that cover the view from `offset`: at most [`MAX_SLICES`] and `len` bytes, fewer
    /// where the view is in many pieces, none only if `len` is 0.
    ///
    /// # Panics
    /// Unless the `len` bytes lie within.
    pub fn with_io_slices_mut<R>(
        &mut self,
        offset: u64,
        len: u64,
        f: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
    ) -> R {
        self.check(offset, len);
        let mut slices: [IoSliceMut<'_>; MAX_SLICES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut used, mut skip, mut left) = (0, offset, len);
        for piece in self.pieces_mut() {
            if left == 0 || used == MAX_SLICES {
                break;
            }
            let size = piece.len();
            if skip >= size {
                skip -= size;
                continue;
            }
            let here = left.min(size - skip);
            let more = piece.io_slices_mut(skip, here, &mut slices[used..]);
            let covered: usize = slices[used..used + more].iter().map(|slice| slice.len()).sum();
            used += more;
            if (covered as u64) < here {
                break;
            }
            (skip, left) = (0, left - here);
        }
        f(&mut slices[..used])
    }

    /// What was received, if all memory is our own; `None` for the program's memory and for what was
    /// discarded.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        if let Pieces::One(Piece::Block(block)) = self.pieces {
            return Some(block.freeze());
        }
        let mut all = BytesMut::new();
        for piece in self.into_pieces() {
            match piece {
                Piece::Block(block) => all.extend_from_slice(block.as_ref()),
                Piece::Own(bytes) if all.is_empty() => all = bytes,
                Piece::Own(bytes) => all.extend_from_slice(&bytes),
                Piece::User(_) | Piece::Discard { .. } => return None,
            }
        }
        Some(all.freeze())
    }

    fn check(&self, offset: u64, len: u64) {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.capacity);
        assert!(within, "{len} bytes at {offset} of a buffer of {}", self.capacity);
    }

    fn into_pieces(self) -> Vec<Piece> {
        match self.pieces {
            Pieces::One(piece) => vec![piece],
            Pieces::Many(pieces) => pieces,
        }
    }

    fn pieces(&self) -> &[Piece] {
        match &self.pieces {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    fn pieces_mut(&mut self) -> &mut [Piece] {
        match &mut self.pieces {
            Pieces::One(piece) => std::slice::from_mut(piece),
            Pieces::Many(pieces) => pieces,
        }
    }
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Own(bytes) => bytes.len() as u64,
            Self::Block(block) => block.as_ref().len() as u64,
            Self::User(user) => user.len(),
            Self::Discard { len, .. } => *len,
        }
    }

    /// The first `at` bytes and the rest; `at` is within.
    fn split(self, at: u64) -> (Self, Self) {
        match self {
            Self::Own(mut bytes) => {
                let rest = bytes.split_off(at as usize);
                (Self::Own(bytes), Self::Own(rest))
            }
            // Nobody splits what came early, so a copy will do.
            Self::Block(block) => {
                let (first, rest) = block.as_ref().split_at(at as usize);
                (Self::Own(first.into()), Self::Own(rest.into()))
            }
            Self::User(user) => {
                let (first, rest) = user.split(at);
                (Self::User(first), Self::User(rest))
            }
            Self::Discard { len, .. } => {
                let part = |len| Self::Discard { len, scratch: Vec::new() };
                (part(at), part(len - at))
            }
        }
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) {
        match self {
            Self::Own(bytes) => bytes[offset as usize..][..data.len()].copy_from_slice(data),
            Self::Block(block) => {
                block.as_mut()[offset as usize..][..data.len()].copy_from_slice(data);
            }
            Self::User(user) => user.write_at(offset, data),
            Self::Discard { .. } => {}
        }
    }

    /// Fills `out` from its start. Returns how many slices there are.
    fn io_slices_mut<'a>(&'a mut self, offset: u64, len: u64, out: &mut [IoSliceMut<'a>]) -> usize {
        match self {
            Self::Own(bytes) => {
                out[0] = IoSliceMut::new(&mut bytes[offset as usize..][..len as usize]);
                1
            }
            Self::Block(block) => {
                out[0] = IoSliceMut::new(&mut block.as_mut()[offset as usize..][..len as usize]);
                1
            }
            Self::User(user) => user.io_slices_mut(offset, len, out),
            Self::Discard { scratch, .. } => {
                let bytes = len.min(SCRATCH) as usize;
                if scratch.len() < bytes {
                    scratch.resize(bytes, 0);
                }
                out[0] = IoSliceMut::new(&mut scratch[..bytes]);
                1
            }
        }
    }
}
