//! Which bytes of a message have come.

/// The bytes of a message that are in their place, each once.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// All bytes below this have come.
    all: u64,
    /// Others, from and to, in order: several connections bring them. Few: one for each at most, but for those that have
    /// fallen behind.
    beyond: Vec<(u64, u64)>,
    count: u64,
}

impl Extent {
    /// How many bytes have come.
    pub(crate) const fn count(&self) -> u64 {
        self.count
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
        let is_free_before = after == 0 || self.beyond[after - 1].1 <= offset;
        let is_free_after = self.beyond.get(after).is_none_or(|range| end <= range.0);
        if offset < self.all || !is_free_before || !is_free_after {
            return false;
        }
        self.count += len;
        if after > 0 && self.beyond[after - 1].1 == offset {
            self.beyond[after - 1].1 = end;
        } else {
            self.beyond.insert(after, (offset, end));
        }
        self.join();
        true
    }

    /// Joins what touches.
    fn join(&mut self) {
        self.beyond.dedup_by(|next, before| {
            let touches = before.1 == next.0;
            before.1 = if touches { next.1 } else { before.1 };
            touches
        });
        if let Some(&(from, to)) = self.beyond.first()
            && from == self.all
        {
            self.all = to;
            self.beyond.remove(0);
        }
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
                prop_assert!(extent.beyond.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
