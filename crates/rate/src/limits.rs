//! Processes that use less than their share: what they leave is allocated to others.

use crate::broker::{Own, Process};
use crate::{Allocator, ClusterId, Network, Rate, Transfer};
use std::collections::BTreeMap;

/// Who gets more because another needs less may reach a limit of its own. So often that is looked at; what is too much after that
/// does no harm.
const PASSES: u32 = 8;

/// A sum that is more than a limit by less than this is not.
const OVER: f64 = 1.000_001;

/// What processes have said that they can use towards a cluster, bits per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    of: BTreeMap<(Process, ClusterId), f64>,
}

impl Limits {
    /// A process can use so much, or all; whether that is new.
    pub(crate) fn set(&mut self, process: Process, to: ClusterId, rate: Rate) -> bool {
        let bits = rate.bits_per_second();
        if bits.is_finite() {
            self.of.insert((process, to), bits) != Some(bits)
        } else {
            self.of.remove(&(process, to)).is_some()
        }
    }

    /// A process sends nothing there any more.
    pub(crate) fn forget(&mut self, process: Process, to: ClusterId) {
        self.of.remove(&(process, to));
    }

    pub(crate) fn has(&self, process: Process, to: ClusterId) -> bool {
        !self.of.is_empty() && self.of.contains_key(&(process, to))
    }

    /// The rates of transfers, of which the first are `own`.
    pub(crate) fn allocate<'a>(
        &self,
        allocator: &'a mut Allocator,
        network: &Network,
        transfers: &mut [Transfer],
        own: &[Own],
    ) -> &'a [f64] {
        if !self.of.is_empty() {
            transfers.iter_mut().for_each(|transfer| transfer.demand = Rate::UNBOUNDED);
            for _ in 0..PASSES {
                let rates = allocator.allocate(network, transfers).to_vec();
                if !self.hold(network, &rates, transfers, own) {
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
        own: &[Own],
    ) -> bool {
        let key = |own: &Own| Some((own.only?, network.cluster(own.pair.1)));
        let mut sums: BTreeMap<(Process, ClusterId), (f64, u32)> = BTreeMap::new();
        for (own, rate) in own.iter().zip(rates) {
            if let Some(key) = key(own).filter(|key| self.of.contains_key(key)) {
                let (sum, count) = sums.entry(key).or_default();
                *sum += rate;
                *count += 1;
            }
        }
        sums.retain(|key, (sum, _)| *sum > OVER * self.of[key]);
        for ((own, rate), transfer) in own.iter().zip(rates).zip(transfers) {
            let Some(key) = key(own) else { continue };
            let Some(&(sum, count)) = sums.get(&key) else { continue };
            let limit = self.of[&key];
            let part = if sum.is_finite() { rate / sum } else { 1.0 / f64::from(count) };
            transfer.demand = Rate::from_bits_per_second(limit * part).unwrap_or(transfer.demand);
        }
        !sums.is_empty()
    }
}
