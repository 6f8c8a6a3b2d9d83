//! Rates of transfers in a network.

use crate::filling::Filling;
use crate::network::Resource;
use crate::{Network, NodeId, Rate};
use std::num::NonZero;

/// Data on its way from one node to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Who sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// Its share among those that meet it at a bottleneck: one of weight 2 gets twice what one of weight 1 does.
    pub weight: NonZero<u32>,
    /// It cannot use more than this; what it leaves others get.
    pub demand: Rate,
}

impl Transfer {
    /// One that takes what it gets.
    #[must_use]
    pub const fn new(from: NodeId, to: NodeId) -> Self {
        Self { from, to, weight: NonZero::<u32>::MIN, demand: Rate::UNBOUNDED }
    }
}

/// Computes rates. It keeps its memory from one step to the next.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    filling: Filling,
    matb: Vec<f64>,
}

impl Allocator {
    /// One without memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The weighted max–min fair rates of transfers that are active at the same time, in their order, bits per second: no
    /// one's rate for its weight could be raised without lowering that of one who has no more for its own. Infinite where
    /// nothing bounds a transfer.
    ///
    /// The time is that of sorting: about n log n for n transfers.
    ///
    /// # Panics
    /// If a node is of another network.
    pub fn allocate(&mut self, network: &Network, transfers: &[Transfer]) -> &[f64] {
        self.filling.begin(network.capacities());
        for transfer in transfers {
            let Transfer { from, to, weight, demand } = *transfer;
            self.filling.add(weight, demand.bits_per_second(), network.path(from, to));
        }
        self.filling.fill()
    }

    /// What the last allocation has left of something, bits per second; hardly anything, or a little less than nothing, where that is full.
    pub(crate) fn left(&self, resource: Resource) -> f64 {
        self.filling.left(resource)
    }

    /// The maximum allowable transmission bandwidth (MATB) of each node, by [`NodeId::index`]: the sum over what it sends,
    /// bits per second, 0 for one that sends nothing.
    ///
    /// # Panics
    /// Like [`allocate`](Self::allocate).
    pub fn matb(&mut self, network: &Network, transfers: &[Transfer]) -> &[f64] {
        self.allocate(network, transfers);
        self.matb.clear();
        self.matb.resize(network.nodes(), 0.0);
        for (transfer, rate) in transfers.iter().zip(self.filling.rates()) {
            self.matb[transfer.from.index()] += rate;
        }
        &self.matb
    }
}
