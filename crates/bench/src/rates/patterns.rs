//! Who sends to whom in a burst, and what that takes at least.

use gridmpi_rate::{ACKNOWLEDGEMENT, PAYLOAD};

use crate::place::Site;

/// Between one burst and the next, seconds: no longer than TCP remembers its window, and longer.
const PAUSE: &str = "0.1";
const LONG_PAUSE: &str = "1";

/// What the time of a burst is compared to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    LeastPossible,
    /// Where nobody collides, it must not be slower than without pacing.
    Unpaced,
}

/// Who sends to whom.
pub(super) struct Burst {
    /// As the program has it.
    pub(super) pattern: &'static str,
    pub(super) name: &'static str,
    /// Each message.
    pub(super) bytes: u32,
    /// How many ranks each node has.
    pub(super) ranks_per_node: u32,
    /// To how many each rank sends.
    pub(super) peers: u32,
    /// How many nodes send; `None`: all.
    pub(super) senders: Option<u32>,
    /// How many receive; `None`: all.
    pub(super) receivers: Option<u32>,
    pub(super) is_both_ways: bool,
    /// How many of them follow each other at once, each of which waits for the one before.
    pub(super) calls: u32,
    /// Before each, seconds.
    pub(super) pause: &'static str,
    pub(super) beside: Beside,
    /// What ours may take at most, by what it is compared to.
    pub(super) bound: f64,
}

pub(super) const PAIRS: Burst = Burst {
    pattern: "pairs",
    name: "8 pairs, 256 KiB each",
    bytes: 256 << 10,
    ranks_per_node: 1,
    peers: 1,
    senders: None,
    receivers: None,
    is_both_ways: false,
    calls: 1,
    pause: PAUSE,
    beside: Beside::LeastPossible,
    bound: 1.1,
};
pub(super) const ALL: Burst =
    Burst { pattern: "all", name: "8 to 8, 32 KiB each", bytes: 32 << 10, peers: 8, ..PAIRS };
/// The same bytes from each node, by two ranks of it.
pub(super) const PAIRS_BY_TWO: Burst = Burst {
    name: "16 pairs, two ranks a node, 128 KiB each",
    bytes: 128 << 10,
    ranks_per_node: 2,
    ..PAIRS
};
pub(super) const ALL_BY_TWO: Burst = Burst {
    name: "16 to 16, two ranks a node, 8 KiB each",
    bytes: 8 << 10,
    ranks_per_node: 2,
    peers: 16,
    ..ALL
};
/// Between half as many nodes.
pub(super) const FEWER: Burst = Burst { name: "4 to 4, 32 KiB each", peers: 4, ..ALL };
/// Each message is over before a grant can come.
pub(super) const SHORT: Burst = Burst { name: "8 to 8, 2,700 bytes each", bytes: 2700, ..ALL };
/// Nobody collides with it.
pub(super) const LONE: Burst = Burst {
    pattern: "lone",
    name: "1 of 8 pairs, 1 MiB",
    bytes: 1 << 20,
    senders: Some(1),
    beside: Beside::Unpaced,
    bound: 1.01,
    ..PAIRS
};
/// These are so long apart that TCP has forgotten its window.
pub(super) const RESTED_PAIRS: Burst =
    Burst { name: "8 pairs, 256 KiB each, 1 s apart", pause: LONG_PAUSE, ..PAIRS };
pub(super) const RESTED_LONE: Burst = Burst {
    name: "1 of 8 pairs, 1 MiB, 1 s apart",
    pause: LONG_PAUSE,
    beside: Beside::LeastPossible,
    bound: 1.1,
    ..LONE
};
pub(super) const BOTH: Burst =
    Burst { pattern: "both", name: "8 to 8 and back, 32 KiB each", is_both_ways: true, ..ALL };
/// `MPI_Alltoall` by `MPI_Alltoall`, as the FFT of HPC Challenge has it: who gets out of step stays so.
pub(super) const ROW: Burst = Burst {
    pattern: "row",
    name: "6 all-to-alls in a row, 16 KiB each",
    bytes: 16 << 10,
    calls: 6,
    ..BOTH
};

pub(super) const INCAST: Burst = Burst {
    pattern: "incast",
    name: "8 to 1, 64 KiB each",
    bytes: 64 << 10,
    receivers: Some(1),
    ..PAIRS
};

impl Burst {
    /// Whether TCP has forgotten its window when it begins.
    pub(super) fn is_rested(&self) -> bool {
        self.pause == LONG_PAUSE
    }

    /// The clusters that send.
    pub(super) fn sending(&self) -> &'static [&'static str] {
        if self.is_both_ways { &["a", "b"] } else { &["a"] }
    }

    /// Bytes by bandwidth, and the delay, of each call.
    pub(super) fn least_ms(&self, site: &Site) -> f64 {
        let messages = f64::from(self.ranks_per_node * self.peers);
        let node_bits = f64::from(self.bytes) * messages * 8.0 / PAYLOAD;
        let acknowledged = if self.is_both_ways { 1.0 + ACKNOWLEDGEMENT } else { 1.0 };
        let all_bits = node_bits * f64::from(self.senders.unwrap_or(site.nodes)) * acknowledged;
        let by_link = all_bits / (f64::from(site.link_mbit) * 1e3);
        let by_interface =
            site.interface_mbit.map(|rate| node_bits * acknowledged / (f64::from(rate) * 1e3));
        let receivers = f64::from(self.receivers.unwrap_or(site.nodes));
        let by_receiver = site.inlet_kib.and(site.interface_mbit);
        let by_receiver = by_receiver.map(|rate| all_bits / receivers / (f64::from(rate) * 1e3));
        let by_bandwidth = by_link.max(by_interface.unwrap_or(0.0)).max(by_receiver.unwrap_or(0.0));
        f64::from(self.calls) * (by_bandwidth + f64::from(site.delay_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::sites::{FEW, SITE};

    #[test]
    fn the_least_time_is_that_of_the_neck() {
        let least = |burst: &Burst| burst.least_ms(&SITE);
        assert!((least(&PAIRS) - 121.4).abs() < 0.1, "{}", least(&PAIRS));
        assert!((least(&LONE) - 188.2).abs() < 0.1, "{}", least(&LONE));
        assert!((least(&ALL) - 121.4).abs() < 0.1);
        assert_eq!([&PAIRS_BY_TWO, &ALL_BY_TWO].map(least), [&PAIRS, &ALL].map(least));
        assert_eq!([&RESTED_PAIRS, &RESTED_LONE].map(least), [&PAIRS, &LONE].map(least));
        assert!((least(&SHORT) - 19.2).abs() < 0.1, "{}", least(&SHORT));
        let few = Site { delay_ms: 0, ..FEW };
        assert!((FEWER.least_ms(&few) - 27.8).abs() < 0.1, "{}", FEWER.least_ms(&few));
        assert!((least(&BOTH) - 124.6).abs() < 0.1, "{}", least(&BOTH));
        assert!((least(&ROW) - 6.0 * 67.3).abs() < 0.2, "{}", least(&ROW));
        let inlets = Site { inlet_kib: Some(64), ..SITE };
        assert!((INCAST.least_ms(&inlets) - 99.1).abs() < 0.1, "{}", INCAST.least_ms(&inlets));
        let slow = Site { interface_mbit: Some(10), ..SITE };
        assert!((PAIRS.least_ms(&slow) - 232.8).abs() < 0.1, "{}", PAIRS.least_ms(&slow));
    }
}
