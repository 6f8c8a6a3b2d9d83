//! What a measurement has found, and what it means.

use gridmpi_rate::PAYLOAD;
use serde::Serialize;

/// From this part of a limit on, the limit is taken to be what counts.
const FULL: f64 = 0.92;

/// What is put into a job file, of what was found: a figure too high costs packets, one too low only its part. Figures are
/// off by about so much.
const SAFE: f64 = 0.99;

/// The path between two clusters.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// The clusters.
    pub between: [String; 2],
    /// Nodes that took part, of each.
    pub nodes: [u32; 2],
    /// Round trips on the idle path.
    pub round_trip: RoundTrip,
    /// All nodes of the first cluster to all of the second, and back.
    pub together: [Transfer; 2],
    /// One node of either cluster to all of the other.
    pub alone: [Transfer; 2],
}

/// Times of small messages to and fro.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundTrip {
    /// Of the fastest, microseconds.
    pub least_us: u32,
    /// Of the middle one, microseconds.
    pub median_us: u32,
}

/// What crossed in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Transfer {
    /// Bytes that programs could send and receive, as bits per second.
    pub goodput_bits_per_s: u64,
    /// The same with headers: what it takes of a link.
    pub bandwidth_bits_per_s: u64,
    /// Seconds that were looked at.
    pub seconds: f64,
    /// Whether the figure had settled.
    pub is_stable: bool,
    /// Connections in all.
    pub connections: u32,
    /// Segments with data that were sent.
    pub segments: u64,
    /// Those of them that were sent again.
    pub retransmitted: u64,
    /// How much longer small messages took meanwhile.
    pub queueing: Option<Queueing>,
    /// What the senders' kernels controlled congestion by.
    pub congestion: Option<String>,
}

/// Beyond the fastest round trip of the idle path.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Queueing {
    /// At least, microseconds.
    pub least_us: u32,
    /// Usually, microseconds.
    pub median_us: u32,
}

/// What a figure is the limit of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The path between the clusters.
    Link,
    /// The nodes' interfaces in sum: the path carries at least so much.
    Interfaces,
}

/// What a link takes for so many bytes per second of TCP's.
pub(crate) fn with_headers(goodput_bits_per_s: f64) -> u64 {
    (goodput_bits_per_s / PAYLOAD).round() as u64
}

fn safe(bits_per_s: u64) -> u64 {
    (bits_per_s as f64 * SAFE) as u64
}

impl PathReport {
    /// What the path carries each way, bits per second with headers, to put into a job file: the less of both directions,
    /// and one part in a hundred less.
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        let each = self.together.iter().map(|transfer| transfer.bandwidth_bits_per_s);
        safe(each.min().unwrap_or(0))
    }

    /// The same, with the clusters in the other order.
    #[must_use]
    pub fn turned(mut self) -> Self {
        self.between.reverse();
        self.nodes.reverse();
        self.together.reverse();
        self.alone.reverse();
        self
    }

    /// What limits the direction away from a cluster.
    #[must_use]
    pub fn bound(&self, from: usize) -> Bound {
        let sum = |side: usize| {
            self.alone[side].bandwidth_bits_per_s.saturating_mul(self.nodes[side].into())
        };
        let interfaces = sum(0).min(sum(1)) as f64;
        let carried = self.together[from & 1].bandwidth_bits_per_s as f64;
        if carried >= FULL * interfaces { Bound::Interfaces } else { Bound::Link }
    }

    /// Whether the figure of [`PathReport::bandwidth`] is the link's own.
    #[must_use]
    pub fn is_links_own(&self) -> bool {
        let least = usize::from(
            self.together[1].bandwidth_bits_per_s < self.together[0].bandwidth_bits_per_s,
        );
        self.bound(least) == Bound::Link
    }

    /// What the interface of each node of a cluster carries, to put into a job file as [`PathReport::bandwidth`], if it is
    /// less than the path.
    #[must_use]
    pub fn interface(&self, side: usize) -> Option<u64> {
        let alone = self.alone[side & 1].bandwidth_bits_per_s;
        let together = self.together[side & 1].bandwidth_bits_per_s as f64;
        (self.nodes[side & 1] > 1 && (alone as f64) < FULL * together).then(|| safe(alone))
    }

    /// One way, microseconds.
    #[must_use]
    pub fn delay_us(&self) -> u64 {
        u64::from(self.round_trip.least_us) / 2
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn report(nodes: [u32; 2], together: [u64; 2], alone: [u64; 2]) -> PathReport {
        let transfer = |mbit: u64| Transfer {
            goodput_bits_per_s: (mbit as f64 * 1e6 * PAYLOAD) as u64,
            bandwidth_bits_per_s: mbit * 1_000_000,
            seconds: 0.5,
            is_stable: true,
            connections: 16,
            segments: 1000,
            retransmitted: 5,
            queueing: Some(Queueing { least_us: 100, median_us: 3000 }),
            congestion: Some("cubic".to_owned()),
        };
        PathReport {
            between: ["a".to_owned(), "b".to_owned()],
            nodes,
            round_trip: RoundTrip { least_us: 20_123, median_us: 20_400 },
            together: together.map(transfer),
            alone: alone.map(transfer),
        }
    }

    #[test]
    fn a_link_is_told_from_interfaces() {
        let wide = report([8, 8], [160, 158], [50, 49]);
        assert_eq!((wide.bound(0), wide.bandwidth()), (Bound::Link, 156_420_000));
        assert!(wide.is_links_own());
        assert_eq!((wide.interface(0), wide.interface(1)), (Some(49_500_000), Some(48_510_000)));
        let few = report([3, 8], [149, 148], [50, 50]);
        assert_eq!((few.bound(0), few.bound(1)), (Bound::Interfaces, Bound::Interfaces));
        assert!(!few.is_links_own());
        let turned = report([3, 8], [149, 100], [50, 40]).turned();
        assert_eq!((turned.nodes, turned.between[0].as_str()), ([8, 3], "b"));
        assert_eq!(
            (turned.interface(0), turned.interface(1)),
            (Some(39_600_000), Some(49_500_000))
        );
        let pair = report([1, 1], [50, 50], [50, 50]);
        assert!(!pair.is_links_own() && pair.interface(0).is_none());
        let narrow = report([4, 4], [10, 10], [10, 10]);
        assert!(narrow.is_links_own() && narrow.interface(1).is_none());
    }

    #[test]
    fn headers_are_counted_as_rates_count_them() {
        assert_eq!(with_headers(1448.0), 1538);
    }
}
