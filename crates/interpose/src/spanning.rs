//! Which communicators span clusters: asked on every call, changed seldom.
//!
//! Readers take no lock. A byte for each of 256 kinds of handle counts the members of that kind and answers most questions
//! at once; the table is open addressing over atomic words; a table that has grown too small is replaced
//! and kept, since a reader may still be in it (they double, so what is kept is less than what is used).

use parking_lot::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

const EMPTY: usize = 0;
/// Held something once, and something may stand behind it.
const REMOVED: usize = usize::MAX;
const FIRST_CAPACITY: usize = 64;

/// A set of handle bits. No handle of a communicator has the bits 0 or `usize::MAX`.
#[derive(Debug)]
pub struct SpanningTable {
    kinds: Kinds,
    current: AtomicPtr<Slots>,
    /// The number of members; held while changing.
    len: Mutex<usize>,
}

const KINDS: usize = 256;
const MANY: u8 = u8::MAX;

/// How many members of each kind there are; [`MANY`] stays.
#[derive(Debug)]
pub(crate) struct Kinds([AtomicU8; KINDS]);

impl Kinds {
    const fn filled(members: u8) -> Self {
        let mut kinds = [const { AtomicU8::new(0) }; KINDS];
        let mut kind = 0;
        while kind < KINDS {
            kinds[kind] = AtomicU8::new(members);
            kind += 1;
        }
        Self(kinds)
    }

    /// False if the set does not contain it; true if it does, or another one of its kind. One load, no call, few
    /// registers: what the exported symbols begin with.
    #[inline(always)]
    pub(crate) fn may_contain(&self, bits: usize) -> bool {
        self.0[kind(bits)].load(Ordering::Relaxed) != 0
    }
}

/// Those of a set that may contain anything.
pub(crate) static ALL_KINDS: Kinds = Kinds::filled(MANY);

/// Spreads handles: they differ in their low bits (MPICH) or above them (addresses), and the multiplication by
/// 2^64 / golden ratio brings both to the top.
#[inline(always)]
fn spread(bits: usize) -> usize {
    bits.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[inline(always)]
fn kind(bits: usize) -> usize {
    spread(bits) >> (usize::BITS - KINDS.ilog2())
}

#[derive(Debug)]
struct Slots {
    /// 64 less the bits of an index.
    shift: u32,
    words: Box<[AtomicUsize]>,
}

impl Slots {
    fn leak(capacity: usize) -> *mut Self {
        let words = (0..capacity).map(|_| AtomicUsize::new(EMPTY)).collect();
        Box::into_raw(Box::new(Self { shift: usize::BITS - capacity.ilog2(), words }))
    }

    /// Where a member stands if it is alone.
    #[inline]
    fn home(&self, bits: usize) -> usize {
        spread(bits) >> self.shift
    }

    #[inline]
    fn find(&self, bits: usize) -> Option<usize> {
        let mask = self.words.len() - 1;
        let mut index = self.home(bits);
        for _ in 0..self.words.len() {
            match self.words[index & mask].load(Ordering::Relaxed) {
                word if word == bits => return Some(index & mask),
                EMPTY => return None,
                _ => index += 1,
            }
        }
        None
    }

    /// There is room: the table is at most half full.
    fn insert(&self, bits: usize) {
        let mask = self.words.len() - 1;
        let mut index = self.home(bits);
        while !matches!(self.words[index & mask].load(Ordering::Relaxed), EMPTY | REMOVED) {
            index += 1;
        }
        self.words[index & mask].store(bits, Ordering::Release);
    }

    /// Marks the slot, and frees marks that nothing stands behind, so that they do not pile up.
    fn remove(&self, index: usize) {
        let mask = self.words.len() - 1;
        self.words[index].store(REMOVED, Ordering::Release);
        let mut index = index;
        while self.words[(index + 1) & mask].load(Ordering::Relaxed) == EMPTY
            && self.words[index].load(Ordering::Relaxed) == REMOVED
        {
            self.words[index].store(EMPTY, Ordering::Release);
            index = index.wrapping_sub(1) & mask;
        }
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.filter(|word| !matches!(*word, EMPTY | REMOVED))
    }
}

impl SpanningTable {
    /// Empty.
    pub fn new() -> Self {
        let current = AtomicPtr::new(Slots::leak(FIRST_CAPACITY));
        Self { kinds: Kinds::filled(0), current, len: Mutex::new(0) }
    }

    #[inline]
    fn slots(&self) -> &Slots {
        // SAFETY: always a table made by `leak`, and tables are never freed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Whether the communicator with these bits spans clusters.
    #[inline]
    pub fn contains(&self, bits: usize) -> bool {
        self.slots().find(bits).is_some()
    }

    /// What is asked first of all, and answers most questions.
    #[inline(always)]
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Adds it, before the program has the handle.
    pub fn insert(&self, bits: usize) {
        debug_assert!(!matches!(bits, EMPTY | REMOVED));
        let mut len = self.len.lock();
        if self.contains(bits) {
            return;
        }
        if *len * 2 >= self.slots().words.len() {
            self.grow();
        }
        self.slots().insert(bits);
        self.count(bits, 1);
        *len += 1;
    }

    /// Drops it. The vendor may have given its bits to another communicator already, which does not span.
    pub fn remove(&self, bits: usize) {
        let mut len = self.len.lock();
        if let Some(index) = self.slots().find(bits) {
            self.slots().remove(index);
            self.count(bits, -1);
            *len -= 1;
        }
    }

    /// Under the lock.
    fn count(&self, bits: usize, change: i8) {
        let members = &self.kinds.0[kind(bits)];
        let known = members.load(Ordering::Relaxed);
        if known != MANY {
            members.store(known.wrapping_add_signed(change), Ordering::Release);
        }
    }

    fn grow(&self) {
        let old = self.slots();
        let new = Slots::leak(old.words.len() * 2);
        // SAFETY: made just now, and never freed.
        old.members().for_each(|bits| unsafe { &*new }.insert(bits));
        self.current.store(new, Ordering::Release);
    }
}

impl Default for SpanningTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn agrees_with_a_set() {
        let (table, mut model) = (SpanningTable::new(), HashSet::new());
        let mut state = 1usize;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bits = 0x8400_0000 + ((state >> 33) % 300);
            if state >> 63 == 0 {
                table.insert(bits);
                model.insert(bits);
            } else {
                table.remove(bits);
                model.remove(&bits);
            }
            assert_eq!(table.contains(bits), model.contains(&bits));
            assert!(table.kinds().may_contain(bits) || !model.contains(&bits));
        }
        for bits in 0x8400_0000..0x8400_0000 + 300 {
            assert_eq!(table.contains(bits), model.contains(&bits), "{bits:#x}");
        }
    }

    #[test]
    fn a_kind_that_has_had_many_members_stays_suspect() {
        let table = SpanningTable::new();
        let alike: Vec<_> = (1..).filter(|bits| kind(*bits) == kind(1)).take(300).collect();
        alike.iter().for_each(|bits| table.insert(*bits));
        assert!(alike.iter().all(|bits| table.kinds().may_contain(*bits) && table.contains(*bits)));
        alike[1..].iter().for_each(|bits| table.remove(*bits));
        assert!(table.kinds().may_contain(1) && table.contains(1) && !table.contains(alike[1]));
    }

    #[test]
    fn making_and_freeing_for_ever_needs_no_room() {
        let table = SpanningTable::new();
        let first = table.current.load(Ordering::Relaxed);
        for bits in 1..100_000 {
            table.insert(bits);
            table.remove(bits);
            assert!(!table.contains(bits));
        }
        assert_eq!(table.current.load(Ordering::Relaxed), first);
        assert!(table.slots().words.iter().all(|word| word.load(Ordering::Relaxed) == EMPTY));
    }

    #[test]
    fn a_reader_never_misses_a_member() {
        let table = SpanningTable::new();
        table.insert(7);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for bits in 1_000..5_000 {
                    table.insert(bits);
                    if bits % 3 != 0 {
                        table.remove(bits);
                    }
                }
            });
            while !writer.is_finished() {
                assert!(table.contains(7) && table.kinds().may_contain(7));
                assert!(!table.contains(8));
            }
        });
    }
}
