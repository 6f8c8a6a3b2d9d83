//! Memory of our own for data that outlives the program's buffer: blocks that are used again, since
//! fresh pages cost several times what the copy into them does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Bytes in a block: the longest payload of a frame.
const BLOCK: usize = 256 * 1024;

/// Less than this comes from the allocator, which keeps such memory itself, bytes.
const LEAST: usize = 64 * 1024;

/// Blocks kept for later beyond as many as are in use: 4 MiB is what a process holds that has once
/// sent much. A long fast path has more in use, and needs as many again in the next round trip.
const SPARE: usize = 16;

static STORE: Mutex<Store> = Mutex::new(Store { free: Vec::new(), used: 0 });

struct Store {
    free: Vec<Vec<u8>>,
    used: usize,
}

/// A block in use. It returns when the last [`Bytes`] of it is dropped.
struct Block(Vec<u8>);

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let too_many = store().take_back(std::mem::take(&mut self.0));
        // The allocator may be slow: not under the lock.
        drop(too_many);
    }
}

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    fn give_out(&mut self) -> Option<Vec<u8>> {
        self.used += 1;
        self.free.pop()
    }

    /// What is not to be kept.
    fn take_back(&mut self, block: Vec<u8>) -> Vec<Vec<u8>> {
        self.used = self.used.saturating_sub(1);
        self.free.push(block);
        self.free.split_off(self.free.len().min(self.used + SPARE))
    }
}

/// Bytes that `fill` appends to an empty vector: `len` of them.
pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    if !(LEAST..=BLOCK).contains(&len) {
        let mut bytes = Vec::with_capacity(len);
        fill(&mut bytes);
        return Bytes::from(bytes);
    }
    let kept = store().give_out();
    let mut block = Block(kept.unwrap_or_else(|| Vec::with_capacity(BLOCK)));
    block.0.clear();
    fill(&mut block.0);
    debug_assert_eq!(block.0.len(), len, "filled with another length than said");
    Bytes::from_owner(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize, value: u8) -> Bytes {
        filled(len, |bytes| bytes.resize(len, value))
    }

    #[test]
    fn a_block_in_use_is_nobody_elses() {
        let lengths = [0, 1, LEAST - 1, LEAST, LEAST + 1, BLOCK - 1, BLOCK, BLOCK + 1];
        for round in 0..4u8 {
            let all: Vec<_> = lengths.iter().zip(round..).map(|(&len, v)| of(len, v)).collect();
            let parts: Vec<_> = all.iter().map(|bytes| bytes.slice(bytes.len() / 2..)).collect();
            drop(all);
            for ((part, len), value) in parts.iter().zip(lengths).zip(round..) {
                assert_eq!(part.len(), len - len / 2);
                assert!(part.iter().all(|&byte| byte == value), "{len} bytes of {value}");
            }
        }
    }

    #[test]
    fn as_many_are_kept_as_are_used_and_few_in_the_end() {
        let mut store = Store { free: Vec::new(), used: 0 };
        let mut used: Vec<Vec<u8>> = Vec::new();
        for _ in 0..10 * SPARE {
            let block = store.give_out();
            assert!(block.is_none());
            used.push(vec![0; 8]);
        }
        for left in (5 * SPARE..10 * SPARE).rev() {
            assert!(store.take_back(used.remove(0)).is_empty(), "{left} are still in use");
        }
        assert_eq!(store.free.len(), 5 * SPARE);
        assert!(store.give_out().is_some());
        used.push(vec![0; 8]);
        while let Some(block) = used.pop() {
            drop(store.take_back(block));
            assert!(store.free.len() <= used.len() + SPARE);
        }
        assert_eq!((store.free.len(), store.used), (SPARE, 0));
    }
}
