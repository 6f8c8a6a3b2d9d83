//! Memory of our own for data that outlives the program's buffer: blocks that are used again, in huge pages, since
//! fresh small pages cost several times what the copy into them does.

use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::{Advice, MmapMut};

/// Bytes in a block: the longest payload of a frame.
const BLOCK: usize = 256 * 1024;

/// Less than this comes from the allocator, which keeps such memory itself, bytes.
const LEAST: usize = 64 * 1024;

/// Blocks that are mapped together, and kept when none is in use: 4 MiB is what a process holds that has once sent
/// much. While some are in use all stay: a long fast path needs as many again in the next round trip.
const SLAB: usize = 16;

static STORE: Mutex<Store> = Mutex::new(Store { free: Vec::new(), used: 0 });

struct Store {
    free: Vec<Place>,
    used: usize,
}

/// Blocks mapped together. They are given back to the system together.
struct Slab(MmapMut);

/// Block `index` of a slab. There is one place for each, so who has it has the bytes for itself.
struct Place {
    slab: Arc<Slab>,
    index: usize,
}

/// The first `len` bytes of a block in use. It returns when it is dropped.
pub(crate) struct Block {
    place: Option<Place>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the bytes at `start` belong to the place, which is this block's alone.
unsafe impl Send for Block {}
// SAFETY: as above; they change through `&mut` only.
unsafe impl Sync for Block {}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, were zero at first, and are this block's alone.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Block {
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let too_many = store().take_back(place);
            // The system may be slow: not under the lock.
            drop(too_many);
        }
    }
}

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    fn give_out(&mut self) -> Option<Place> {
        let place = self.free.pop()?;
        self.used += 1;
        Some(place)
    }

    /// What is not to be kept.
    fn take_back(&mut self, place: Place) -> Vec<Place> {
        self.used -= 1;
        self.free.push(place);
        if self.used > 0 || self.free.len() <= SLAB {
            return Vec::new();
        }
        // Whole slabs, so that they go back to the system.
        self.free.sort_by_key(|place| Arc::as_ptr(&place.slab));
        self.free.split_off(SLAB)
    }
}

/// The blocks of a new slab; none if the system has no memory to map.
fn map() -> Vec<Place> {
    let Ok(map) = MmapMut::map_anon(SLAB * BLOCK) else { return Vec::new() };
    // Without huge pages it works as well.
    let _ = map.advise(Advice::HugePage);
    let slab = Arc::new(Slab(map));
    (0..SLAB).map(|index| Place { slab: Arc::clone(&slab), index }).collect()
}

/// A block with room for `len` bytes, whatever they are now. `None`: the allocator is the better place.
pub(crate) fn take(len: usize) -> Option<Block> {
    if !(LEAST..=BLOCK).contains(&len) {
        return None;
    }
    let kept = store().give_out();
    let place = kept.or_else(|| {
        let mut fresh = map();
        let mut store = store();
        store.free.append(&mut fresh);
        store.give_out()
    })?;
    let start = place.slab.0.as_ptr().wrapping_add(place.index * BLOCK).cast_mut();
    Some(Block { place: Some(place), start, len })
}

/// Like [`take`], where `len` bytes fill most of a block: what others make us hold must not cost much more memory than
/// it has bytes.
pub(crate) fn take_most(len: usize) -> Option<Block> {
    if len > BLOCK / 2 { take(len) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize, value: u8) -> Bytes {
        let Some(mut block) = take(len) else { return vec![value; len].into() };
        block.as_mut().fill(value);
        block.freeze()
    }

    #[test]
    fn a_block_in_use_is_nobody_elses() {
        let lengths = [0, 1, LEAST - 1, LEAST, LEAST + 1, BLOCK - 1, BLOCK, BLOCK + 1];
        for round in 0..40u8 {
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
    fn threads_share_the_store() {
        std::thread::scope(|scope| {
            for value in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..50 {
                        let held: Vec<_> = (0..round % 24).map(|_| of(LEAST, value)).collect();
                        assert!(held.iter().flatten().all(|&byte| byte == value));
                    }
                });
            }
        });
    }

    #[test]
    fn all_are_kept_while_some_are_used_and_few_in_the_end() {
        let mut store = Store { free: Vec::new(), used: 0 };
        let mut used = Vec::new();
        for _ in 0..3 {
            store.free.append(&mut map());
            used.extend(std::iter::from_fn(|| store.give_out()));
        }
        assert_eq!((used.len(), store.used), (3 * SLAB, 3 * SLAB));
        while used.len() > 1 {
            assert!(store.take_back(used.swap_remove(used.len() / 2)).is_empty());
        }
        assert_eq!(store.free.len(), 3 * SLAB - 1);
        let too_many = store.take_back(used.remove(0));
        assert_eq!((store.free.len(), store.used, too_many.len()), (SLAB, 0, 2 * SLAB));
        let kept = &store.free[0].slab;
        assert!(store.free.iter().all(|place| Arc::ptr_eq(&place.slab, kept)), "a whole slab");
    }
}
