//! Processes that use less than their share: what they leave is allocated to others, of their cluster and of others that know of it.

use crate::broker::Process;
use crate::rivals::Portion;
use crate::{Allocator, ClusterId, Network, Rate, Transfer};
use std::collections::BTreeMap;

/// Who gets more because another needs less may reach a limit of its own. So often that is looked at; what is too much after that
/// does no harm.
const PASSES: u32 = 8;

/// A sum that is more than a limit by less than this is not.
const OVER: f64 = 1.000_001;

/// Whose: the cluster of a process, the process, and where it sends.
type Key = (ClusterId, Process, ClusterId);

/// What processes of clusters have said that they can use towards others, bits per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    by: BTreeMap<Key, f64>,
}

impl Limits {
    /// A process of cluster `from` can use so much, or all; whether that is new.
    pub(crate) fn set(
        &mut self,
        from: ClusterId,
        process: Process,
        to: ClusterId,
        rate: Rate,
    ) -> bool {
        let (bits, key) = (rate.bits_per_second(), (from, process, to));
        if bits.is_finite() {
            self.by.insert(key, bits) != Some(bits)
        } else {
            self.by.remove(&key).is_some()
        }
    }

    /// Of a cluster nothing is known any more; whether something was.
    pub(crate) fn forget(&mut self, from: ClusterId) -> bool {
        let before = self.by.len();
        self.by.retain(|key, _| key.0 != from);
        self.by.len() < before
    }

    pub(crate) fn has(&self, from: ClusterId, process: Process, to: ClusterId) -> bool {
        !self.by.is_empty() && self.by.contains_key(&(from, process, to))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// What processes of one cluster have said, by process and where that goes.
    pub(crate) fn of(&self, from: ClusterId) -> impl Iterator<Item = ((Process, ClusterId), f64)> {
        let of_it = self.by.iter().filter(move |(key, _)| key.0 == from);
        of_it.map(|(&(_, process, to), &bits)| ((process, to), bits))
    }

    /// The rates of transfers, which are these portions.
    pub(crate) fn allocate<'a>(
        &self,
        allocator: &'a mut Allocator,
        network: &Network,
        transfers: &mut [Transfer],
        portions: &[Portion],
    ) -> &'a [f64] {
        if !self.by.is_empty() {
            transfers.iter_mut().for_each(|transfer| transfer.demand = Rate::UNBOUNDED);
            for _ in 0..PASSES {
                let rates = allocator.allocate(network, transfers).to_vec();
                if !self.hold(network, &rates, transfers, portions) {
                    break;
                }
            }
        }
        allocator.allocate(network, transfers)
    }

    /// Holds the transfers of each who has too much to what it can use in all. Whether there was one.
    fn hold(
        &self,
        network: &Network,
        rates: &[f64],
        transfers: &mut [Transfer],
        portions: &[Portion],
    ) -> bool {
        let key = |portion: &Portion| {
            let (from, to) = portion.pair;
            let key = (network.cluster(from), portion.only?, network.cluster(to));
            Some((key, *self.by.get(&key)?))
        };
        let mut sums: BTreeMap<Key, (f64, u32)> = BTreeMap::new();
        for (portion, rate) in portions.iter().zip(rates) {
            if let Some((key, _)) = key(portion) {
                let (sum, count) = sums.entry(key).or_default();
                *sum += rate;
                *count += 1;
            }
        }
        let mut is_over = false;
        for ((portion, rate), transfer) in portions.iter().zip(rates).zip(transfers) {
            let Some((key, limit)) = key(portion) else { continue };
            let (sum, count) = sums[&key];
            if sum <= OVER * limit {
                continue;
            }
            is_over = true;
            let part = if sum.is_finite() { rate / sum } else { 1.0 / f64::from(count) };
            transfer.demand = Rate::from_bits_per_second(limit * part).unwrap_or(transfer.demand);
        }
        is_over
    }
}
