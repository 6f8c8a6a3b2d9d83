//! Traffic patterns between the halves of a job, whatever lies between them.

/// A pattern of the program `across`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) name: &'static str,
    /// Ranks in each cluster.
    pub(super) ranks: u32,
    /// How many of them send to a partner; 0: all to all.
    pub(super) pairs: u32,
}

/// Of one message, where partners send.
const MESSAGE: u64 = 1 << 20;

impl Pattern {
    /// What the program is told, for about so many bytes that cross one way; and how many do.
    pub(super) fn arguments(&self, crossing: u64, repeat: u32) -> (Vec<String>, f64) {
        let (ranks, pairs) = (u64::from(self.ranks), u64::from(self.pairs));
        let (bytes, count, all) = match crossing.checked_div(pairs) {
            None => {
                let each = (crossing / (ranks * ranks)).max(1);
                (each, 1, each * ranks * ranks)
            }
            Some(share) => {
                let bytes = MESSAGE.min(share).max(1);
                let count = (share / bytes).max(1);
                (bytes, count, bytes * count * pairs)
            }
        };
        let words = [bytes, count, pairs, u64::from(repeat)];
        (words.iter().map(u64::to_string).collect(), all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cross_as_much_as_they_say() {
        let arguments = |pairs, crossing| {
            let (words, crossing) = Pattern { name: "", ranks: 8, pairs }.arguments(crossing, 3);
            (words.join(" "), crossing)
        };
        assert_eq!(arguments(1, 4 << 20), ("1048576 4 1 3".into(), f64::from(4 << 20)));
        assert_eq!(arguments(8, 4 << 20), ("524288 1 8 3".into(), f64::from(4 << 20)));
        assert_eq!(arguments(0, 4 << 20), ("65536 1 0 3".into(), f64::from(4 << 20)));
    }
}
