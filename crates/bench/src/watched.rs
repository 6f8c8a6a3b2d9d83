//! What a lab has seen of its links and nodes.

use crate::error::BenchError;
use crate::place::Lab;
use gridmpi_lab::arrivals::{self, Arrival};
use gridmpi_lab::control::{self, Request, Status};
use gridmpi_lab::flow::{Volume, WIRE_OVERHEAD};
use gridmpi_lab::tcp::Tcp;
use gridmpi_lab::traffic::{self, Row};

/// Counters since the lab came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came to the bottlenecks of all directions.
    pub packets: u64,
    /// Those of them that found the buffer full.
    pub dropped: u64,
    /// Connections that have sent 16 KiB or more over a direction, in all directions.
    pub connections: u64,
    /// TCP in the nodes that were asked about.
    pub tcp: Tcp,
}

impl Counters {
    /// What has happened since.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            dropped: self.dropped.saturating_sub(before.dropped),
            connections: self.connections.saturating_sub(before.connections),
            tcp: self.tcp - before.tcp,
        }
    }

    /// Adds what happened at another time.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.dropped += other.dropped;
        self.connections += other.connections;
        self.tcp = self.tcp + other.tcp;
    }
}

/// What crossed the links, millisecond by millisecond.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// When the first millisecond began, of the clock that never steps, ns.
    pub origin_ns: u64,
    /// In order of time for each direction.
    pub rows: Vec<Row>,
}

impl Recording {
    /// The rows between two times of that clock, seconds.
    #[must_use]
    pub fn between(&self, begin: f64, end: f64) -> Vec<Row> {
        let millisecond = |at: f64| (at * 1e3 - self.origin_ns as f64 / 1e6).max(0.0) as u64;
        let (first, last) = (millisecond(begin), millisecond(end));
        let within = |row: &&Row| (first..=last).contains(&row.sample.millisecond);
        self.rows.iter().filter(within).cloned().collect()
    }
}

/// A lab is watched from a moment on.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    senders: &'static [&'static str],
    before: Counters,
    from_ms: u64,
}

/// What has happened since.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The clusters that the directions begin in that were watched.
    pub senders: &'static [&'static str],
    /// The counters.
    pub counters: Counters,
    /// In order of time for each direction that begins at a sender.
    pub rows: Vec<Row>,
}

impl Watched {
    /// Bits that left the bottlenecks of the directions that were watched, by what links of so many Mbit/s can carry from the first packet to the
    /// last; `None` if there was none.
    #[must_use]
    pub fn utilisation(&self, link_mbit: u32) -> Option<f64> {
        let all = || self.rows.iter().map(|row| row.sample.millisecond);
        let milliseconds = all().max()? - all().min()? + 1;
        let bits: f64 = self.senders.iter().map(|from| bits_from(&self.rows, from)).sum();
        let most = f64::from(link_mbit) * 1e3 * milliseconds as f64 * self.senders.len() as f64;
        Some(bits / most)
    }

    /// On how many connections each of so many nodes has sent, the mean of them.
    #[must_use]
    pub fn connections_of(&self, nodes: u32) -> f64 {
        self.counters.connections as f64 / f64::from(nodes.max(1))
    }
}

/// Bits that these rows let out of the bottleneck of the direction that begins in cluster `from`, as the link counts.
#[must_use]
pub fn bits_from(rows: &[Row], from: &str) -> f64 {
    let mine = rows.iter().filter(|row| row.from == from);
    let wire = |volume: Volume| volume.bytes + volume.packets * WIRE_OVERHEAD;
    mine.map(|row| wire(row.sample.traffic.left) as f64 * 8.0).sum()
}

/// What a lab that was asked for its nodes answers: the links' counters, and those of TCP in all nodes of these clusters.
fn counters_of(status: &Status, senders: &[&str]) -> Result<Counters, BenchError> {
    if status.nodes.is_empty() {
        let message = "the lab cannot read its nodes' TCP counters: is /proc/net/snmp there?";
        return Err(BenchError::Output(message.to_owned()));
    }
    let is_sender = |name: &str| senders.iter().any(|cluster| name.starts_with(cluster));
    let nodes = status.nodes.iter().filter(|node| is_sender(&node.name));
    let tcp = nodes.fold(Tcp::default(), |sum, node| sum + node.tcp);
    let directions = status.directions.iter();
    Ok(directions.fold(Counters { tcp, ..Counters::default() }, |sum, direction| Counters {
        packets: sum.packets + direction.traffic.arrived.packets,
        dropped: sum.dropped + direction.traffic.dropped.packets,
        connections: sum.connections + direction.connections,
        tcp: sum.tcp,
    }))
}

impl Lab {
    /// The links' counters, and those of TCP in all nodes of these clusters.
    ///
    /// # Errors
    /// The lab does not answer, or cannot read them.
    pub fn counters(&self, senders: &[&str]) -> Result<Counters, BenchError> {
        counters_of(&control::ask(self.directory(), Request::Nodes)?, senders)
    }

    /// Watches the links, and TCP in all nodes of these clusters, from now on.
    ///
    /// # Errors
    /// As [`Self::counters`].
    pub fn watch(&self, senders: &'static [&'static str]) -> Result<Watch, BenchError> {
        let status = control::ask(self.directory(), Request::Nodes)?;
        Ok(Watch { senders, before: counters_of(&status, senders)?, from_ms: status.up_ms })
    }

    /// What has happened since.
    ///
    /// # Errors
    /// As [`Self::counters`] and [`Self::recording`].
    pub fn watched(&self, watch: &Watch) -> Result<Watched, BenchError> {
        let counters = self.counters(watch.senders)?.since(watch.before);
        let is_new = |row: &Row| {
            row.sample.millisecond >= watch.from_ms && watch.senders.contains(&&row.from[..])
        };
        let rows = self.recording()?.rows.into_iter().filter(is_new).collect();
        Ok(Watched { senders: watch.senders, counters, rows })
    }

    /// The recording up to now.
    ///
    /// # Errors
    /// The lab does not answer, or its recording cannot be read.
    pub fn recording(&self) -> Result<Recording, BenchError> {
        // It is complete when this is answered.
        let origin_ns = control::ask(self.directory(), Request::Status)?.origin_ns;
        let rows = traffic::read(&self.directory().join(traffic::FILE))?;
        Ok(Recording { origin_ns, rows })
    }

    /// Every frame so far of the direction that begins in cluster `from`, in a lab that records them.
    ///
    /// # Errors
    /// The lab does not answer, or has no such record.
    pub fn frames(&self, from: &str) -> Result<Vec<Arrival>, BenchError> {
        control::ask(self.directory(), Request::Status)?;
        let rows = arrivals::read(&self.directory().join(arrivals::FILE))?;
        Ok(rows.into_iter().filter(|row| row.from == from).map(|row| row.arrival).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_lab::flow::{Sample, Traffic};

    #[test]
    fn a_link_is_used_from_the_first_packet_to_the_last() {
        let rows = vec![row(10, "a"), row(12, "b"), row(19, "a")];
        let counters = Counters { connections: 6, ..Counters::default() };
        let mut watched = Watched { senders: &["a", "b"], counters, rows };
        // 2 packets of 1538 bytes in each of three rows; 10 ms, both ways.
        let used = watched.utilisation(100).unwrap();
        assert!((used - 6.0 * 1538.0 * 8.0 / (1e6 * 2.0)).abs() < 1e-9, "{used}");
        watched.senders = &["a"];
        let used = watched.utilisation(100).unwrap();
        assert!((used - 4.0 * 1538.0 * 8.0 / 1e6).abs() < 1e-9, "{used}");
        assert_eq!(watched.connections_of(4), 1.5);
        assert_eq!(Watched::default().utilisation(100), None);
    }

    fn row(millisecond: u64, from: &str) -> Row {
        let left = Volume { bytes: 1514 * 2, packets: 2 };
        let traffic = Traffic { left, ..Traffic::default() };
        Row { from: from.into(), to: "x".into(), sample: Sample { millisecond, traffic } }
    }

    #[test]
    fn a_burst_is_found_by_the_clock() {
        let rows = vec![row(99, "a"), row(100, "a"), row(100, "b"), row(103, "a"), row(104, "a")];
        let recording = Recording { origin_ns: 5_000_000_000, rows };
        let found = recording.between(5.100, 5.1039);
        assert_eq!(found.len(), 3);
        assert_eq!(bits_from(&found, "a"), 2.0 * 2.0 * 1538.0 * 8.0);
        assert!(recording.between(1.0, 2.0).is_empty());
    }

    #[test]
    fn counters_are_summed_up() {
        let tcp = |retransmits| Tcp { retransmits, ..Tcp::default() };
        let before = Counters { packets: 10, dropped: 1, connections: 2, tcp: tcp(1) };
        let mut sum =
            Counters { packets: 30, dropped: 4, connections: 6, tcp: tcp(3) }.since(before);
        sum.add(Counters { packets: 1, dropped: 1, connections: 1, tcp: tcp(1) });
        assert_eq!(sum, Counters { packets: 21, dropped: 4, connections: 5, tcp: tcp(3) });
    }
}
