//! Whose turn it is on a connection: circuits in turn by quantum, within clusters in turn, within jobs in turn.
//!
//! At each level what is at the front goes on until it has sent its quantum; what it sends beyond it is taken off its next
//! turn (surplus round robin). So each gets its share of what passes, however large or small its pieces are.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use gridmpi_wire::{JobId, ProcId};

/// Bytes that each may send in its turn. Not less than a piece may have, for a turn to be worth it.
pub(crate) const QUANTUM: usize = 16 * 1024;

#[derive(Debug)]
struct Ring<K, V> {
    order: VecDeque<K>,
    nodes: HashMap<K, (i64, V)>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { order: VecDeque::new(), nodes: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Default> Ring<K, V> {
    /// `left`: what it may send in its first turn, if it is not there already.
    fn enter(&mut self, key: K, left: i64) -> &mut V {
        let order = &mut self.order;
        &mut self
            .nodes
            .entry(key)
            .or_insert_with(|| {
                order.push_back(key);
                (left, V::default())
            })
            .1
    }

    /// Whose turn it is.
    fn turn(&mut self) -> Option<(K, &mut V)> {
        loop {
            let key = *self.order.front()?;
            let node = self.nodes.get_mut(&key)?;
            if node.0 > 0 {
                break;
            }
            node.0 += QUANTUM as i64;
            self.order.rotate_left(1);
        }
        let key = *self.order.front()?;
        Some((key, &mut self.nodes.get_mut(&key)?.1))
    }

    fn front(&mut self) -> Option<(&mut i64, &mut V)> {
        let key = self.order.front()?;
        let node = self.nodes.get_mut(key)?;
        Some((&mut node.0, &mut node.1))
    }

    fn leave_front(&mut self) {
        if let Some(key) = self.order.pop_front() {
            self.nodes.remove(&key);
        }
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

type Circuits<L> = Ring<L, ()>;
type Clusters<L> = Ring<ProcId, Circuits<L>>;
type Jobs<L> = Ring<JobId, Clusters<L>>;

/// One that has something to send.
#[derive(Debug)]
struct Sender<L> {
    job: JobId,
    cluster: ProcId,
    leaf: L,
    /// What is left of its turn, and of its cluster's and job's.
    left: i64,
}

#[derive(Debug)]
enum Line<L> {
    Nobody,
    /// Alone it needs no rings: each message of a circuit that rests between would build and tear them down.
    Lone(Sender<L>),
    Many(Jobs<L>),
}

/// Everything that has something to send on a connection.
#[derive(Debug)]
pub(crate) struct Fair<L> {
    line: Line<L>,
    len: usize,
}

impl<L> Default for Fair<L> {
    fn default() -> Self {
        Self { line: Line::Nobody, len: 0 }
    }
}

impl<L: Copy + Eq + Hash> Fair<L> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// This has something to send from now on. It must not be there already.
    pub(crate) fn enter(&mut self, job: JobId, cluster: ProcId, leaf: L) {
        let sender = Sender { job, cluster, leaf, left: QUANTUM as i64 };
        self.len += 1;
        self.line = match std::mem::replace(&mut self.line, Line::Nobody) {
            Line::Nobody => Line::Lone(sender),
            Line::Lone(first) => {
                let mut jobs = Jobs::default();
                seat(&mut jobs, first);
                seat(&mut jobs, sender);
                Line::Many(jobs)
            }
            Line::Many(mut jobs) => {
                seat(&mut jobs, sender);
                Line::Many(jobs)
            }
        };
    }

    /// Whose turn it is.
    pub(crate) fn turn(&mut self) -> Option<L> {
        match &mut self.line {
            Line::Nobody => None,
            Line::Lone(sender) => {
                while sender.left <= 0 {
                    sender.left += QUANTUM as i64;
                }
                Some(sender.leaf)
            }
            Line::Many(jobs) => {
                let (_, clusters) = jobs.turn()?;
                let (_, circuits) = clusters.turn()?;
                Some(circuits.turn()?.0)
            }
        }
    }

    /// The one whose turn it is has sent so many bytes.
    pub(crate) fn spent(&mut self, bytes: usize) {
        let bytes = bytes as i64;
        match &mut self.line {
            Line::Nobody => {}
            Line::Lone(sender) => sender.left -= bytes,
            Line::Many(jobs) => {
                let Some((of_job, clusters)) = jobs.front() else { return };
                *of_job -= bytes;
                let Some((of_cluster, circuits)) = clusters.front() else { return };
                *of_cluster -= bytes;
                let Some((of_circuit, ())) = circuits.front() else { return };
                *of_circuit -= bytes;
            }
        }
    }

    /// The one whose turn it is has no more to send.
    pub(crate) fn leave(&mut self) {
        if let Line::Many(jobs) = &mut self.line {
            let Some((_, clusters)) = jobs.front() else { return };
            let Some((_, circuits)) = clusters.front() else { return };
            circuits.leave_front();
            if circuits.is_empty() {
                clusters.leave_front();
                if clusters.is_empty() {
                    jobs.leave_front();
                }
            }
        }
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.line = Line::Nobody;
        }
    }
}

fn seat<L: Copy + Eq + Hash>(jobs: &mut Jobs<L>, sender: Sender<L>) {
    let Sender { job, cluster, leaf, left } = sender;
    jobs.enter(job, left).enter(cluster, left).enter(leaf, left);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: JobId = [1; 16];
    const B: JobId = [2; 16];

    #[test]
    fn jobs_share_first_then_clusters_then_circuits() {
        let mut fair = Fair::default();
        // Job A: one circuit; job B: cluster 0 with three circuits, cluster 1 with one.
        fair.enter(A, ProcId(0), 0);
        for leaf in 1..=3 {
            fair.enter(B, ProcId(0), leaf);
        }
        fair.enter(B, ProcId(9), 4);
        let mut sent = [0usize; 5];
        // Pieces of very different sizes.
        let sizes = [64 * 1024, 700, 16 * 1024, 5_000, 999];
        let mut total = 0;
        while total < 30 << 20 {
            let leaf = fair.turn().unwrap();
            fair.spent(sizes[leaf]);
            sent[leaf] += sizes[leaf];
            total += sizes[leaf];
        }
        let shares: Vec<f64> = sent.iter().map(|sent| *sent as f64 / total as f64).collect();
        for (share, expected) in shares.iter().zip([0.5, 1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0, 0.25])
        {
            assert!((share / expected - 1.0).abs() < 0.03, "{shares:?}");
        }
    }

    #[test]
    fn what_one_has_sent_alone_counts_when_another_comes() {
        let mut fair = Fair::default();
        fair.enter(A, ProcId(0), 1);
        assert_eq!(fair.turn(), Some(1));
        fair.spent(3 * QUANTUM);
        fair.enter(B, ProcId(0), 2);
        // The first has had three turns at once: the other has as many before it comes again.
        for _ in 0..3 {
            assert_eq!(fair.turn(), Some(2));
            fair.spent(QUANTUM);
        }
        assert_eq!(fair.turn(), Some(1));
        fair.leave();
        assert_eq!((fair.turn(), fair.len()), (Some(2), 1));
        fair.leave();
        assert_eq!((fair.turn(), fair.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn everyone_that_enters_is_served_until_it_leaves(
            entries in prop::collection::vec((0u8..3, 0u32..3, 1usize..50_000), 1..40),
        ) {
            let mut fair = Fair::default();
            let mut left: Vec<usize> = entries.iter().map(|entry| entry.2).collect();
            for (leaf, (job, cluster, _)) in entries.iter().enumerate() {
                fair.enter([*job; 16], ProcId(*cluster), leaf);
            }
            prop_assert_eq!(fair.len(), entries.len());
            while let Some(leaf) = fair.turn() {
                prop_assert!(left[leaf] > 0);
                let count = left[leaf].min(4096);
                fair.spent(count);
                left[leaf] -= count;
                if left[leaf] == 0 {
                    fair.leave();
                }
            }
            prop_assert_eq!(fair.len(), 0);
            prop_assert!(left.iter().all(|left| *left == 0));
        }
    }
}
