//! First-in-first-out lanes, each for one pattern of (context, source, tag).
//!
//! An entry stands in `N` lanes at once and leaves them all at once. Every step is one hash look-up a
//! lane, however many entries there are.

use crate::TagMatch;
use gridmpi_wire::{ContextId, Rank};
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash, Hasher};

/// What a receive or probe accepts, or (without wildcards) what a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) context: ContextId,
    pub(crate) source: Option<Rank>,
    pub(crate) tag: TagMatch,
}

impl Pattern {
    pub(crate) const fn exact(context: ContextId, source: Rank, tag: i32) -> Self {
        Self { context, source: Some(source), tag: TagMatch::Is(tag) }
    }

    /// Whether some message is accepted by both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.context == other.context
            && (self.source.is_none() || other.source.is_none() || self.source == other.source)
            && self.tag.overlaps(other.tag)
    }

    /// Whether every message that `other` accepts is accepted.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.context == other.context
            && (self.source.is_none() || self.source == other.source)
            && (self.tag == TagMatch::Any || self.tag == other.tag)
    }

    /// Which of source and tag are wildcards, as a number below 4.
    pub(crate) fn class(&self) -> usize {
        usize::from(self.source.is_none()) << 1 | usize::from(self.tag == TagMatch::Any)
    }

    /// The patterns of every class that accept the message `self`, by class.
    pub(crate) fn widened(&self) -> [Self; 4] {
        let any_tag = Self { tag: TagMatch::Any, ..*self };
        let any_source = Self { source: None, ..*self };
        [*self, any_tag, any_source, Self { source: None, ..any_tag }]
    }
}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let tag = match self.tag {
            TagMatch::Is(tag) => u64::from(tag as u32),
            TagMatch::Any => 1 << 32,
        };
        let source = self.source.map_or(1 << 32, |rank| u64::from(rank.0));
        state.write_u64(self.context.0);
        state.write_u64(source << 31 ^ tag);
    }
}

/// Hashes a few words by folded multiplication. Seeded, since peers choose tags.
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let wide = u128::from(self.0 ^ word) * u128::from(ODD);
        self.0 = wide as u64 ^ (wide >> 64) as u64 ^ ODD.rotate_left(17);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Makes [`WordHasher`]s with one seed.
#[derive(Clone)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher(self.0)
    }
}

/// A map from words, quick and hard to attack.
pub(crate) type WordMap<K, V> = HashMap<K, V, Seeded>;

/// Index of a node; `NONE` ends a list.
type Index = u32;
const NONE: Index = Index::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: Index,
    after: Index,
}

#[derive(Clone, Copy)]
struct Ends {
    first: Index,
    last: Index,
}

struct Node<const N: usize> {
    /// What is queued: larger is later.
    order: u64,
    value: u64,
    patterns: [Pattern; N],
    links: [Link; N],
}

/// The lanes. A node's index is the handle by which it is removed.
pub(crate) struct Lanes<const N: usize> {
    nodes: Vec<Node<N>>,
    free: Vec<Index>,
    lanes: WordMap<Pattern, Ends>,
}

impl<const N: usize> Lanes<N> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), lanes: WordMap::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Puts `value` at the end of each of the lanes `patterns`, which differ. Returns its handle.
    pub(crate) fn push(&mut self, order: u64, value: u64, patterns: [Pattern; N]) -> u32 {
        let links = [Link { before: NONE, after: NONE }; N];
        let node = Node { order, value, patterns, links };
        let index = if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as Index
        };
        for (lane, pattern) in patterns.iter().enumerate() {
            self.append(lane, pattern, index);
        }
        index
    }

    fn append(&mut self, lane: usize, pattern: &Pattern, index: Index) {
        match self.lanes.entry(*pattern) {
            Entry::Vacant(entry) => {
                entry.insert(Ends { first: index, last: index });
            }
            Entry::Occupied(mut entry) => {
                let last = std::mem::replace(&mut entry.get_mut().last, index);
                self.nodes[last as usize].links[lane].after = index;
                self.nodes[index as usize].links[lane].before = last;
            }
        }
    }

    /// Order, value and handle of the first entry in the lane `pattern`.
    pub(crate) fn first(&self, pattern: &Pattern) -> Option<(u64, u64, u32)> {
        let index = self.lanes.get(pattern)?.first;
        let node = &self.nodes[index as usize];
        Some((node.order, node.value, index))
    }

    /// Takes the entry with this handle, which must be present, out of its lanes.
    pub(crate) fn remove(&mut self, index: u32) {
        for lane in 0..N {
            self.unlink(lane, index);
        }
        self.free.push(index);
    }

    fn unlink(&mut self, lane: usize, index: Index) {
        let node = &self.nodes[index as usize];
        let (Link { before, after }, pattern) = (node.links[lane], node.patterns[lane]);
        if before != NONE {
            self.nodes[before as usize].links[lane].after = after;
        }
        if after != NONE {
            self.nodes[after as usize].links[lane].before = before;
        }
        if before != NONE && after != NONE {
            return;
        }
        if before == NONE && after == NONE {
            self.lanes.remove(&pattern);
        } else if let Some(ends) = self.lanes.get_mut(&pattern) {
            if before == NONE {
                ends.first = after;
            } else {
                ends.last = before;
            }
        }
    }
}
