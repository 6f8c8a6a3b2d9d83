//! Which bytes of a message have come.

use std::collections::VecDeque;

/// The bytes of a message that are in their place, each once.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// All bytes below this have come.
    all: u64,
    /// Others, from and to, in order and apart: several connections bring them. Few, but of a peer that means to have many:
    /// [`Self::parts`] is for who bounds them.
    beyond: VecDeque<(u64, u64)>,
    count: u64,
}

impl Extent {
    /// How many bytes have come.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// In how many parts something has come that something before is missing of.
    pub(crate) fn parts(&self) -> u64 {
        self.beyond.len() as u64
    }

    /// `len` bytes from `offset` on have come, which do not reach beyond 2^64. Whether all of them for the first time.
    pub(crate) fn add(&mut self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        if len == 0 {
            return true;
        }
        if offset == self.all && self.beyond.is_empty() {
            (self.all, self.count) = (end, self.count + len);
            return true;
        }
        let after = self.beyond.partition_point(|range| range.0 < offset);
        let before = after.checked_sub(1).and_then(|before| self.beyond.get(before));
        let free_from = before.map_or(self.all, |range| range.1);
        let free_to = self.beyond.get(after).map_or(u64::MAX, |range| range.0);
        if offset < free_from || end > free_to {
            return false;
        }
        self.count += len;
        let to = if end == free_to { self.take(after) } else { end };
        if offset > free_from {
            self.beyond.insert(after, (offset, to));
        } else if let Some(range) = after.checked_sub(1).and_then(|it| self.beyond.get_mut(it)) {
            range.1 = to;
        } else {
            self.all = to;
        }
        true
    }

    /// Takes out the range at `index`, which there is. Where it ends.
    fn take(&mut self, index: usize) -> u64 {
        self.beyond.remove(index).map_or(u64::MAX, |range| range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_counts_once(pieces in prop::collection::vec((0..64usize, 0..9usize), 0..60)) {
            let (mut extent, mut bytes) = (Extent::default(), [false; 80]);
            for (offset, len) in pieces {
                let place = &mut bytes[offset..offset + len];
                let is_free = place.iter().all(|&has_come| !has_come);
                prop_assert_eq!(extent.add(offset as u64, len as u64), is_free);
                if is_free {
                    place.fill(true);
                }
                let count = bytes.iter().filter(|&&has_come| has_come).count();
                prop_assert_eq!(extent.count(), count as u64);
                let all = bytes.iter().take_while(|&&has_come| has_come).count();
                prop_assert_eq!(extent.all, all as u64);
                let beyond = Vec::from(extent.beyond.clone());
                prop_assert!(beyond.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert!(beyond.first().is_none_or(|first| extent.all < first.0));
            }
        }
    }
}
