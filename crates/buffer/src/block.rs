//! Memory of our own for data that outlives the program's buffer: blocks that are used again, in huge pages, since
//! fresh small pages cost several times what the copy into them does.

use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::{Advice, MmapMut, MmapRaw};

/// Bytes in the smallest block; the others are twice and four times as long, so that none is twice as long as what lies in it.
/// Less than this comes from the allocator, which keeps such memory itself.
const PART: usize = 64 * 1024;

/// Bytes in the largest block: the longest payload of a frame.
const BLOCK: usize = 4 * PART;

/// Bytes that are mapped together, and kept when no block is in use: 4 MiB is what a process holds that has once sent
/// much. While some are in use all stay: a long fast path needs as many again in the next round trip.
const SLAB: usize = u64::BITS as usize * PART;

static STORE: Mutex<Store> = Mutex::new(Store::new());

struct Store {
    slabs: Vec<Slab>,
    /// All slabs before this one are in use as a whole.
    first: usize,
    /// Parts in use.
    used: usize,
}

/// Parts mapped together. They are given back to the system together.
struct Slab {
    map: MmapRaw,
    /// A bit for each part that is free.
    free: u64,
}

/// Parts of a slab, one after the other, that are in use. There is one place for each part, so who has it has the bytes for itself.
struct Place {
    slab: usize,
    first: u32,
    parts: usize,
    start: *mut u8,
}

/// The first `len` bytes of a block in use. It returns when it is dropped.
pub(crate) struct Block {
    place: Place,
    len: usize,
}

// SAFETY: the bytes at the place's start belong to it, which is this block's alone.
unsafe impl Send for Block {}
// SAFETY: as above; they change through `&mut` only.
unsafe impl Sync for Block {}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` bytes from the start are mapped as long as the place is in use, were zero at first, and are this block's alone.
        unsafe { slice::from_raw_parts(self.place.start, self.len) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.place.start, self.len) }
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
        let too_many = store().take_back(&self.place);
        // The system may be slow: not under the lock.
        drop(too_many);
    }
}

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    const fn new() -> Self {
        Self { slabs: Vec::new(), first: 0, used: 0 }
    }

    fn give_out(&mut self, parts: usize) -> Option<Place> {
        while self.slabs.get(self.first).is_some_and(|slab| slab.free == 0) {
            self.first += 1;
        }
        let mut rest = self.slabs.iter_mut().enumerate().skip(self.first);
        let (slab, (first, start)) =
            rest.find_map(|(slab, it)| it.give_out(parts).map(|place| (slab, place)))?;
        self.used += parts;
        Some(Place { slab, first, parts, start })
    }

    /// What is not to be kept.
    fn take_back(&mut self, place: &Place) -> Vec<Slab> {
        self.used -= place.parts;
        self.first = self.first.min(place.slab);
        self.slabs[place.slab].free |= bits(place.first, place.parts);
        // Places name slabs by their position: as long as there is one, none goes.
        if self.used > 0 { Vec::new() } else { self.slabs.split_off(1) }
    }
}

impl Slab {
    /// None if the system has no memory to map.
    fn map() -> Option<Self> {
        let map = MmapMut::map_anon(SLAB).ok()?;
        // Without huge pages it works as well.
        let _ = map.advise(Advice::HugePage);
        Some(Self { map: map.into(), free: u64::MAX })
    }

    /// The number of the first part, and where it lies.
    fn give_out(&mut self, parts: usize) -> Option<(u32, *mut u8)> {
        let first = fit(self.free, parts)?;
        self.free &= !bits(first, parts);
        Some((first, self.map.as_mut_ptr().wrapping_add(first as usize * PART)))
    }
}

fn bits(first: u32, parts: usize) -> u64 {
    ((1 << parts) - 1) << first
}

/// Where among the free parts a block of one, two or four begins: where it leaves longer ones whole, if it can.
fn fit(free: u64, parts: usize) -> Option<u32> {
    let pairs = free & (free >> 1) & 0x5555_5555_5555_5555;
    let fours = pairs & (pairs >> 2) & 0x1111_1111_1111_1111;
    let single = free & !(pairs | (pairs << 1));
    let pair = pairs & !(fours | (fours << 2));
    let by_length = [single, pair, fours];
    let longer = &by_length[parts.trailing_zeros() as usize..];
    longer.iter().find(|starts| **starts != 0).map(|starts| starts.trailing_zeros())
}

/// A block with room for `len` bytes, whatever they are now. `None`: the allocator is the better place.
pub(crate) fn take(len: usize) -> Option<Block> {
    if !(PART..=BLOCK).contains(&len) {
        return None;
    }
    let parts = parts(len);
    let kept = store().give_out(parts);
    let place = kept.or_else(|| {
        let fresh = Slab::map()?;
        let mut store = store();
        store.slabs.push(fresh);
        store.give_out(parts)
    })?;
    Some(Block { place, len })
}

/// How many a block of `len` bytes has.
const fn parts(len: usize) -> usize {
    len.div_ceil(PART).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize, value: u8) -> Bytes {
        let Some(mut block) = take(len) else { return vec![value; len].into() };
        block.as_mut().fill(value);
        block.freeze()
    }

    /// As [`take`], from a store of its own.
    fn place(store: &mut Store, len: usize) -> Place {
        store.give_out(parts(len)).unwrap_or_else(|| {
            store.slabs.push(Slab::map().unwrap());
            store.give_out(parts(len)).unwrap()
        })
    }

    #[test]
    fn a_block_in_use_is_nobody_elses() {
        let around = |len: usize| [len - 1, len, len + 1];
        let lengths = [[0, 1, 100_000], around(PART), around(2 * PART), around(BLOCK)].concat();
        for round in 0..20u8 {
            let all: Vec<_> = lengths.iter().zip(round..).map(|(&len, v)| of(len, v)).collect();
            let parts: Vec<_> = all.iter().map(|bytes| bytes.slice(bytes.len() / 2..)).collect();
            drop(all);
            for ((part, &len), value) in parts.iter().zip(&lengths).zip(round..) {
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
                    for round in 0..24 {
                        let length = |index: usize| PART << (index % 3);
                        let held: Vec<_> =
                            (0..round % 24).map(|index| of(length(index), value)).collect();
                        assert!(held.iter().flatten().all(|&byte| byte == value));
                    }
                });
            }
        });
    }

    #[test]
    fn what_is_held_costs_at_most_twice_its_bytes() {
        for len in [PART, PART + 1, 100_000, 2 * PART, 2 * PART + 1, 200_000, BLOCK] {
            let mut store = Store::new();
            let held: Vec<_> = (0..64).map(|_| place(&mut store, len)).collect();
            let bytes = held.len() * len;
            assert!(store.used * PART < 2 * bytes, "{len}: {} parts", store.used);
            assert!(store.slabs.len() * SLAB < 2 * bytes + SLAB, "{len}");
            let is_exact = len.is_power_of_two();
            assert_eq!(store.used * PART == bytes, is_exact, "{len}: {} parts", store.used);
        }
    }

    proptest::proptest! {
        #[test]
        fn places_of_all_lengths_lie_apart_and_come_back(
            steps in proptest::collection::vec((PART..=BLOCK, 0..200usize), 1..400),
        ) {
            let mut store = Store::new();
            let mut held: Vec<Place> = Vec::new();
            for (len, index) in steps {
                if index < held.len() {
                    drop(store.take_back(&held.swap_remove(index)));
                }
                let new = place(&mut store, len);
                let end = new.first as usize + new.parts;
                assert!(new.parts * PART >= len && end <= 64);
                let is_apart = |it: &Place| {
                    it.slab != new.slab || it.first as usize >= end || it.first as usize + it.parts <= new.first as usize
                };
                assert!(held.iter().all(is_apart));
                held.push(new);
                assert_eq!(store.used, held.iter().map(|it| it.parts).sum::<usize>());
            }
            for it in held {
                drop(store.take_back(&it));
            }
            assert_eq!((store.used, store.slabs.len(), store.first), (0, 1, 0));
            assert_eq!(store.slabs[0].free, u64::MAX);
        }
    }

    #[test]
    fn short_blocks_leave_room_for_long_ones() {
        let mut store = Store::new();
        let [one, two] = [PART, 2 * PART].map(|len| place(&mut store, len));
        assert_eq!((one.first, two.first), (0, 2), "of the same four");
        let again = place(&mut store, PART);
        assert_eq!(again.first, 1);
        let long: Vec<_> = (0..15).map(|_| place(&mut store, BLOCK)).collect();
        assert_eq!(store.slabs.len(), 1);
        assert!(store.give_out(1).is_none());
        drop(store.take_back(&one));
        drop(store.take_back(&again));
        assert!(store.give_out(4).is_none());
        assert_eq!(place(&mut store, 2 * PART).first, 0);
        drop(long);
    }

    #[test]
    fn all_are_kept_while_some_are_used_and_few_in_the_end() {
        let mut store = Store::new();
        let mut used: Vec<_> = (0..3 * SLAB / BLOCK).map(|_| place(&mut store, BLOCK)).collect();
        assert_eq!((store.slabs.len(), store.used), (3, 3 * 64));
        while used.len() > 1 {
            assert!(store.take_back(&used.swap_remove(used.len() / 2)).is_empty());
        }
        let too_many = store.take_back(&used.remove(0));
        assert_eq!((store.slabs.len(), store.used, too_many.len()), (1, 0, 2));
        assert_eq!(place(&mut store, BLOCK).slab, 0);
    }
}
