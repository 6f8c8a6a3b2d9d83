//! What the network did while something was measured.

use crate::figure::{Figure, short};
use gridmpi_report::table::Table;
use serde::Serialize;

/// What the network did while something was measured, and what that depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// How many bursts, or runs of a program, these are the counts of.
    pub count: u32,
    /// Packets that came to the link, both ways.
    pub packets: u64,
    /// Those of them that found its buffer full.
    pub dropped: u64,
    /// Segments that the sending nodes' TCP sent again.
    pub retransmits: u64,
    /// Retransmission timeouts there.
    pub timeouts: u64,
    /// Probes for losses there.
    pub loss_probes: u64,
    /// Bits that left the link's bottleneck during a burst, or from a program's first packet to its last, by bandwidth and time; the median.
    /// Both ways: the mean of them.
    pub utilisation: Option<f64>,
    /// Connections on which a node sends: as the burst has it, or those on which 16 KiB or more were sent, the mean of all nodes and runs.
    pub connections: Option<f64>,
    /// The least retransmission timeout of the connections, ms: what a kernel of this version lets them have. It is not read from them.
    pub least_timeout_ms: f64,
    /// Their congestion control.
    pub congestion_control: String,
    /// Who spaces packets out where a rate holds them back: TCP, or a discipline of the interface.
    pub pacing: String,
    /// Whether they are encrypted.
    pub tls: bool,
}

impl Network {
    fn cells(&self) -> [String; 12] {
        let share =
            |part: u64| format!("{:.2} %", 100.0 * part as f64 / self.packets.max(1) as f64);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            self.count.to_string(),
            self.packets.to_string(),
            format!("{} ({})", self.dropped, share(self.dropped)),
            self.retransmits.to_string(),
            self.timeouts.to_string(),
            self.loss_probes.to_string(),
            or_none(self.utilisation.map(|part| format!("{:.1} %", 100.0 * part))),
            or_none(self.connections.map(short)),
            format!("{} ms", short(self.least_timeout_ms)),
            self.congestion_control.clone(),
            self.pacing.clone(),
            if self.tls { "on" } else { "off" }.to_owned(),
        ]
    }
}

/// What the network did, figure by figure; `None` if it was not watched.
#[must_use]
pub fn table(figures: &[Figure]) -> Option<Table> {
    let mut table = Table::new([
        "network",
        "runs",
        "packets",
        "dropped",
        "sent again",
        "timeouts",
        "loss probes",
        "link used",
        "connections a node",
        "least timeout",
        "congestion control",
        "paced by",
        "TLS",
    ]);
    let mut is_empty = true;
    for figure in figures {
        let Some(network) = &figure.network else { continue };
        table.row(std::iter::once(figure.name.clone()).chain(network.cells()));
        is_empty = false;
    }
    (!is_empty).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Bound;

    #[test]
    fn it_becomes_a_row_and_an_object() {
        let network = Network {
            count: 30,
            packets: 1000,
            dropped: 5,
            retransmits: 6,
            timeouts: 7,
            loss_probes: 8,
            utilisation: Some(0.9712),
            connections: None,
            least_timeout_ms: 40.0,
            congestion_control: "cubic".to_owned(),
            pacing: "eth0: TCP paces (noqueue)".to_owned(),
            tls: true,
        };
        let figure = Figure::new("f", "ms", &[1.0], "v", &[2.0], Bound::Told);
        assert!(table(std::slice::from_ref(&figure)).is_none());
        let figure = figure.with_network(network);
        assert_eq!(serde_json::to_value(&figure).unwrap()["network"]["timeouts"], 7);
        let text = table(&[figure]).unwrap().to_text();
        assert!(text.contains("5 (0.50 %)") && text.contains("97.1 %"), "{text}");
        assert!(text.contains("TCP paces"), "{text}");
    }
}
