//! Bytes that could not be passed on at once, each copied once.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Room taken at a time.
const CHUNK: usize = 16 * 1024;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Held {
    chunks: VecDeque<BytesMut>,
    len: usize,
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(last) = self.chunks.back_mut() {
            let fits = (last.capacity() - last.len()).min(bytes.len());
            let (now, later) = bytes.split_at(fits);
            last.extend_from_slice(now);
            bytes = later;
        }
        if !bytes.is_empty() {
            let mut chunk = BytesMut::with_capacity(bytes.len().next_multiple_of(CHUNK));
            chunk.extend_from_slice(bytes);
            self.chunks.push_back(chunk);
        }
    }

    /// The first bytes, at most so many and as far as they lie together; `None` if there are none.
    pub(crate) fn take(&mut self, most: usize) -> Option<Bytes> {
        let front = self.chunks.front_mut()?;
        let taken = if front.len() <= most {
            self.chunks.pop_front()?.freeze()
        } else {
            front.split_to(most).freeze()
        };
        self.len -= taken.len();
        Some(taken)
    }

    /// The bytes as they lie, up to so many slices.
    pub(crate) fn slices(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().take(most).map(|chunk| &chunk[..])
    }

    /// The first `count` bytes are of no more use.
    pub(crate) fn consume(&mut self, mut count: usize) {
        self.len = self.len.saturating_sub(count);
        while let Some(front) = self.chunks.front_mut() {
            if front.len() > count {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.chunks.pop_front();
        }
    }

    /// The bytes for a system call.
    pub(crate) fn io_slices(&self, most: usize) -> Vec<IoSlice<'_>> {
        self.slices(most).map(IoSlice::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_out_as_it_went_in(steps in prop::collection::vec((0usize..40_000, 0usize..40_000, any::<bool>()), 0..30)) {
            let (mut held, mut model, mut next) = (Held::default(), VecDeque::new(), 0u32);
            for (put, take, is_taken) in steps {
                let bytes: Vec<u8> = (0..put).map(|_| { next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (next >> 24) as u8 }).collect();
                held.push(&bytes);
                model.extend(bytes);
                let seen: Vec<u8> = held.slices(usize::MAX).flatten().copied().collect();
                prop_assert!(seen.iter().eq(model.iter()));
                if is_taken {
                    if let Some(bytes) = held.take(take) {
                        prop_assert!(bytes.len() <= take);
                        prop_assert!(bytes.iter().eq(model.drain(..bytes.len()).collect::<Vec<_>>().iter()));
                    }
                } else {
                    let count = take.min(held.len());
                    held.consume(count);
                    model.drain(..count);
                }
                prop_assert_eq!(held.len(), model.len());
                prop_assert_eq!(held.is_empty(), model.is_empty());
            }
        }
    }
}
