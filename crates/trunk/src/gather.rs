//! Lays out the bytes of the next write: heads and small payloads copied together, large payloads
//! where they lie.

use std::io::{self, IoSlice};
use std::ops::Range;

use gridmpi_buffer::MAX_SLICES;

use crate::queue::{Cursor, Queue};

/// Payloads up to this are copied behind their head: cheaper than a slice of their own.
const COPY_BELOW: usize = 2048;

/// Most bytes copied together for one write.
const SCRATCH_MAX: usize = 64 * 1024;

/// What an idle stream keeps of its scratch space.
const SCRATCH_IDLE: usize = 4 * 1024;

#[derive(Debug)]
enum Piece {
    /// Bytes of `scratch`.
    Copied(Range<usize>),
    /// Payload bytes of a kept frame.
    Payload { seq: u64, offset: u64, len: u64 },
}

/// The plan of one write.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    scratch: Vec<u8>,
    pieces: Vec<Piece>,
    offered: usize,
    max: usize,
    ack: u64,
    is_cut: bool,
    /// The frames that it begins, in their order.
    begun: Vec<Range<u64>>,
}

/// What a write did.
pub(crate) struct Done {
    pub(crate) written: usize,
    /// Fewer bytes went than were offered.
    pub(crate) is_short: bool,
}

impl Gather {
    /// Begins a plan of at most about `max` bytes whose heads acknowledge `ack`.
    pub(crate) fn begin(&mut self, max: usize, ack: u64) {
        self.scratch.clear();
        self.pieces.clear();
        self.begun.clear();
        (self.offered, self.max, self.ack, self.is_cut) = (0, max.max(1), ack, false);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_cut
            || self.offered >= self.max
            || self.scratch.len() >= SCRATCH_MAX
            || self.pieces.len() >= MAX_SLICES
    }

    /// Adds bytes to copy, unless the plan was cut short inside a frame.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if self.is_cut || bytes.is_empty() {
            return;
        }
        let start = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        self.copied(start);
    }

    /// The runs of frames that the plan begins, in their order.
    pub(crate) fn begun(&self) -> &[Range<u64>] {
        &self.begun
    }

    /// Adds a whole frame.
    pub(crate) fn whole(&mut self, queue: &Queue, seq: u64) {
        match self.begun.last_mut() {
            Some(run) if run.end == seq => run.end += 1,
            _ => self.begun.push(seq..seq + 1),
        }
        self.frame(queue, Cursor { seq, at: 0, ack: self.ack });
    }

    /// Adds a frame from the cursor on.
    pub(crate) fn frame(&mut self, queue: &Queue, from: Cursor) {
        let kept = queue.at(from.seq);
        let head_len = kept.head_len();
        if from.at < head_len {
            self.bytes(&kept.encode(from.seq, from.ack)[from.at..]);
        }
        let offset = from.at.saturating_sub(head_len);
        let len = kept.payload.len() as usize - offset;
        if len == 0 {
            return;
        }
        if len > COPY_BELOW && !kept.payload.is_fragmented() {
            let piece = Piece::Payload { seq: from.seq, offset: offset as u64, len: len as u64 };
            self.pieces.push(piece);
            self.offered += len;
            return;
        }
        let room = SCRATCH_MAX.saturating_sub(self.scratch.len()).max(COPY_BELOW);
        let copied = len.min(room);
        let start = self.scratch.len();
        self.scratch.resize(start + copied, 0);
        kept.payload.copy_to(offset as u64, &mut self.scratch[start..]);
        self.copied(start);
        self.is_cut = copied < len;
    }

    /// The scratch space has grown from `start`; grows the last piece or adds one.
    fn copied(&mut self, start: usize) {
        let end = self.scratch.len();
        self.offered += end - start;
        match self.pieces.last_mut() {
            Some(Piece::Copied(range)) => range.end = end,
            _ => self.pieces.push(Piece::Copied(start..end)),
        }
    }

    /// Hands the plan to `write`.
    pub(crate) fn write(
        &self,
        queue: &Queue,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Done> {
        let (result, offered) = match &self.pieces[..] {
            [Piece::Copied(range)] => {
                (write(&[IoSlice::new(&self.scratch[range.clone()])]), range.len())
            }
            _ => {
                let (slices, offered) = self.slices(queue);
                (write(&slices), offered)
            }
        };
        let written = result?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        debug_assert!(written <= offered, "wrote {written} of {offered} bytes");
        Ok(Done { written: written.min(offered), is_short: written < offered })
    }

    fn slices<'a>(&'a self, queue: &'a Queue) -> (Vec<IoSlice<'a>>, usize) {
        let mut slices = Vec::with_capacity(self.pieces.len() + 8);
        let mut offered = 0;
        for piece in &self.pieces {
            match *piece {
                Piece::Copied(ref range) => {
                    slices.push(IoSlice::new(&self.scratch[range.clone()]));
                    offered += range.len();
                }
                Piece::Payload { seq, offset, len } => {
                    let payload = &queue.at(seq).payload;
                    let covered = payload.io_slices(offset, len, &mut slices);
                    offered += covered as usize;
                    if covered < len {
                        break;
                    }
                }
            }
            if slices.len() >= MAX_SLICES {
                break;
            }
        }
        (slices, offered)
    }

    /// Gives back what an idle stream need not keep.
    pub(crate) fn release(&mut self) {
        if self.scratch.capacity() > SCRATCH_IDLE {
            self.scratch = Vec::new();
        }
        if self.pieces.capacity() > MAX_SLICES {
            self.pieces = Vec::new();
        }
    }
}
