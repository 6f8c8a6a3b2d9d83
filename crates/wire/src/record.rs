//! Checked records: bytes of a connection that nothing else guards, with a checksum that the far process verifies.
//!
//! Each side of a connection sends records, a head and a payload each. The checks are CRC-32C over all that this side has sent on the
//! connection up to there, lengths included and checks not: so bytes that were changed are found, and so are records that were lost, doubled,
//! put in another order or taken from another connection, as soon as that begins. The length has a check of its own, so that nobody waits for
//! bytes that never were. Specified in `docs/wire.md`.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};
use thiserror::Error;

/// Bytes of a record's head.
pub const RECORD_HEAD: usize = 12;

/// The largest payload of one record, in bytes; the smallest is 1.
pub const MAX_RECORD: usize = 64 * 1024;

/// First byte of every record. None of what else a connection may begin with begins so: our handshake, a leg's, a relay's, TLS.
pub const RECORD_FIRST: u8 = 0xc5;

/// Why what came cannot be what was sent. Nothing after it can be trusted: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It does not begin as a record does.
    #[error("what came is no checked record (it begins with {0:#04x})")]
    NotARecord(u8),
    /// The check of the length is wrong.
    #[error("the checksum of a record's length is wrong: it was changed on the way")]
    Length,
    /// Nobody sends records of that length.
    #[error("a record says that it has {0} bytes, which none has")]
    OutOfBounds(u32),
    /// The check of the payload is wrong.
    #[error("the checksum of a record is wrong: it was changed on the way")]
    Payload,
}

/// The checksum of one direction of a connection, up to where it stands.
#[derive(Clone, Copy)]
struct Sum(Digest);

impl Sum {
    fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn value(&self) -> u32 {
        // A checksum of 32 bits in the low half.
        self.0.finalize() as u32
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({:#010x})", self.value())
    }
}

/// The sender's side of one direction: makes heads. A copy remembers where the direction stood.
#[derive(Clone, Copy, Debug)]
pub struct Seal(Sum);

impl Default for Seal {
    fn default() -> Self {
        Self(Sum::new())
    }
}

impl Seal {
    /// The head of the next record, whose payload is these bytes one after another: 1 to [`MAX_RECORD`] in all, or the far
    /// side will refuse it.
    #[must_use]
    pub fn head<'a>(
        &mut self,
        payload: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> [u8; RECORD_HEAD] {
        let len: usize = payload.clone().map(<[u8]>::len).sum();
        debug_assert!((1..=MAX_RECORD).contains(&len), "a record of {len} bytes");
        // Its length has three bytes.
        let [l0, l1, l2, _] = (len as u32).to_le_bytes();
        let covered = [RECORD_FIRST, l0, l1, l2];
        self.0.add(&covered);
        let len_check = self.0.value();
        payload.for_each(|bytes| self.0.add(bytes));
        let mut head = [0; RECORD_HEAD];
        head[..4].copy_from_slice(&covered);
        head[4..8].copy_from_slice(&len_check.to_le_bytes());
        head[8..].copy_from_slice(&self.0.value().to_le_bytes());
        head
    }
}

/// The receiver's side of one direction: verifies what comes, wherever it was put.
#[derive(Debug)]
pub struct Verify {
    sum: Sum,
    /// Of the record begun.
    rest: usize,
    check: u32,
}

impl Default for Verify {
    fn default() -> Self {
        Self { sum: Sum::new(), rest: 0, check: 0 }
    }
}

impl Verify {
    /// How much of the payload of the record begun is still to come; 0: a head is due.
    #[must_use]
    pub const fn rest(&self) -> usize {
        self.rest
    }

    /// A head has come where one was due. How long the payload is that follows: 1 to [`MAX_RECORD`].
    ///
    /// # Errors
    /// It is not a head that the other side has sent here.
    pub fn head(&mut self, head: &[u8; RECORD_HEAD]) -> Result<usize, RecordError> {
        debug_assert_eq!(self.rest, 0, "a payload is due");
        let [first, l0, l1, l2, a0, a1, a2, a3, b0, b1, b2, b3] = *head;
        if first != RECORD_FIRST {
            return Err(RecordError::NotARecord(first));
        }
        self.sum.add(&[first, l0, l1, l2]);
        if self.sum.value() != u32::from_le_bytes([a0, a1, a2, a3]) {
            return Err(RecordError::Length);
        }
        let len = u32::from_le_bytes([l0, l1, l2, 0]);
        if !(1..=MAX_RECORD as u32).contains(&len) {
            return Err(RecordError::OutOfBounds(len));
        }
        (self.rest, self.check) = (len as usize, u32::from_le_bytes([b0, b1, b2, b3]));
        Ok(self.rest)
    }

    /// The next bytes of the payload have come: at most [`Self::rest`] are taken, and those are good once the rest is 0.
    ///
    /// # Errors
    /// The record has come whole, and is not what was sent.
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let taken = &bytes[..bytes.len().min(self.rest)];
        debug_assert_eq!(taken.len(), bytes.len(), "bytes beyond the record");
        self.sum.add(taken);
        self.rest -= taken.len();
        if self.rest == 0 && !taken.is_empty() && self.sum.value() != self.check {
            return Err(RecordError::Payload);
        }
        Ok(())
    }
}
