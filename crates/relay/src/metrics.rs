//! What a relay has counted, for Prometheus.

use std::fmt;
use std::time::Duration;

use gridmpi_wire::LegVerdict;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::cell::Reason;
use crate::core::{Counts, Gauges};
use crate::daemon;
use crate::secret::to_hex;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whether it takes nothing new.
    pub is_draining: bool,
    /// The relays that it knows.
    pub peers: Vec<PeerSeen>,
    pub(crate) counts: Counts,
    pub(crate) gauges: Gauges,
    pub(crate) outside: daemon::Counts,
    pub(crate) unproven: usize,
}

/// What is seen of another relay.
#[derive(Clone, Debug)]
pub struct PeerSeen {
    /// What messages call it.
    pub name: String,
    /// Connections that stand.
    pub connections: usize,
    /// As last measured.
    pub round_trip: Option<Duration>,
    /// What the kernel says of the connections that stand.
    pub path: Path,
}

/// The way to another relay, by the account of TCP here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The largest packet that TCP counts on, bytes with headers; the least of all connections. `None` where none stands.
    pub packet: Option<u32>,
    /// Segments with data that were sent, since each connection was made, those that were sent again among them.
    pub sent: u64,
    /// Those that were sent again.
    pub resent: u64,
}

impl Path {
    pub(crate) fn add(&mut self, other: Self) {
        self.packet = self.packet.into_iter().chain(other.packet).min();
        self.sent += other.sent;
        self.resent += other.resent;
    }
}

impl Snapshot {
    /// Circuits that stand or are being opened.
    #[must_use]
    pub fn circuits(&self) -> usize {
        self.gauges.circuits
    }

    /// Bytes held and granted, and most that may be granted.
    #[must_use]
    pub fn memory(&self) -> [usize; 3] {
        [self.gauges.held, self.gauges.granted, self.gauges.budget]
    }

    /// Connections whose other side has not proven itself, and how many were sent away.
    #[must_use]
    pub fn unproven(&self) -> (usize, u64) {
        (self.unproven, self.outside.rejected)
    }
}

/// Jobs that are told apart: those that have carried most.
const JOBS: usize = 100;

type Labels = Vec<(&'static str, String)>;

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

struct Page(Registry);

impl Page {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        self.0.register(name, help, counter);
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        self.0.register(name, help, gauge);
    }

    fn counters(&mut self, name: &str, help: &str, values: impl Iterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }

    fn gauges(&mut self, name: &str, help: &str, values: impl Iterator<Item = (Labels, f64)>) {
        let family = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, help, family);
    }
}

/// The page.
pub(crate) fn encode(seen: &Snapshot) -> Result<String, fmt::Error> {
    let mut page = Page(Registry::with_prefix("gridmpi_relay"));
    let Snapshot { counts, gauges, outside, .. } = seen;
    page.gauge("circuits", "Circuits that stand or are being opened", gauges.circuits);
    page.gauge("registered", "Processes that have registered", gauges.registered);
    page.gauge("connections", "Connections of processes and to other relays", gauges.connections);
    page.gauge(
        "connections_limit",
        "Most that they may be, by RLIMIT_NOFILE",
        gauges.most_connections,
    );
    page.gauge("routes", "Clusters of jobs to which there is a way", gauges.routes);
    page.gauge("routes_untold", "Ways of which other relays are still to be told", gauges.untold);
    page.gauge(
        "granted_bytes",
        "Bytes that senders may send or have sent and that wait",
        gauges.granted,
    );
    page.gauge("budget_bytes", "Most that they may be", gauges.budget);
    page.gauge("held_bytes", "Bytes that wait here", gauges.held);
    page.gauge("unproven", "Connections whose other side has not proven itself", seen.unproven);
    page.gauge("draining", "Whether the relay takes nothing new", usize::from(seen.is_draining));
    page.counter("opened", "Circuits that stood", counts.opened);
    page.counter("in_bytes", "Bytes of circuits that came", counts.bytes_in);
    page.counter("out_bytes", "Bytes of circuits that went", counts.bytes_out);
    page.counter("copied_bytes", "Bytes that could not go on at once", counts.bytes_held);
    page.counter("in_cells", "Cells that came from other relays", counts.cells_in);
    page.counter("out_cells", "Cells that went to other relays", counts.cells_out);
    page.counter(
        "routes_refused",
        "Ways that were not kept since one relay told too many",
        counts.routes_refused,
    );
    page.counter("accepted", "Connections that came", outside.accepted);
    page.counter("rejected", "Connections that were sent away unproven", outside.rejected);
    page.counter(
        "silent",
        "Connections of processes that were given up since their hosts did not answer",
        outside.silent,
    );
    let refusals = REFUSALS.iter().map(|(verdict, name)| {
        (label("verdict", name), counts.refused.get(*verdict as usize).copied().unwrap_or_default())
    });
    page.counters("refused", "Requests that were refused", refusals);
    let resets = Reason::ALL.iter().zip(counts.resets);
    let resets = resets.map(|(reason, count)| (label("reason", reason.name()), count));
    page.counters("resets", "Circuits that ended before their time", resets);
    let peers = || seen.peers.iter();
    let up = peers().map(|peer| (label("peer", &peer.name), peer.connections as f64));
    page.gauges("peer_connections", "Connections to another relay", up);
    let times = peers()
        .filter_map(|peer| Some((label("peer", &peer.name), peer.round_trip?.as_secs_f64())));
    page.gauges("peer_round_trip_seconds", "Round trip to another relay", times);
    of_paths(&mut page, &seen.peers);
    let mut jobs: Vec<_> = gauges.jobs.iter().collect();
    jobs.sort_by_key(|(_, used)| std::cmp::Reverse(used.bytes));
    jobs.truncate(JOBS);
    let of_jobs = |value: fn(&crate::core::JobUse) -> f64| {
        jobs.iter().map(move |(job, used)| (label("job", &to_hex(*job)), value(used)))
    };
    page.gauges("job_circuits", "Circuits of a job", of_jobs(|used| used.circuits as f64));
    page.gauges(
        "job_bytes",
        "Bytes passed on by the circuits of a job that stand",
        of_jobs(|used| used.bytes as f64),
    );
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &page.0)?;
    Ok(text)
}

/// Of connections that stand: what ended ones have sent is in none of it, so these are gauges.
fn of_paths(page: &mut Page, peers: &[PeerSeen]) {
    let of = |value: fn(&Path) -> Option<f64>| {
        let value = move |peer: &PeerSeen| Some((label("peer", &peer.name), value(&peer.path)?));
        peers.iter().filter_map(value)
    };
    page.gauges(
        "peer_packet_bytes",
        "Largest packet that TCP counts on towards another relay, by the connections that stand",
        of(|path| path.packet.map(f64::from)),
    );
    page.gauges(
        "peer_segments",
        "Segments with data sent to another relay by the connections that stand",
        of(|path| Some(path.sent as f64)),
    );
    page.gauges(
        "peer_segments_resent",
        "Those of them that were sent again",
        of(|path| Some(path.resent as f64)),
    );
}

const REFUSALS: [(LegVerdict, &str); 6] = [
    (LegVerdict::JobNotAllowed, "job_not_allowed"),
    (LegVerdict::NoRoute, "no_route"),
    (LegVerdict::Unanswered, "unanswered"),
    (LegVerdict::NoSuchCircuit, "no_such_circuit"),
    (LegVerdict::Full, "full"),
    (LegVerdict::Draining, "draining"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_relay_is_that_of_all_connections_and_says_nothing_where_none_stands() {
        let one = Path { packet: Some(1500), sent: 10, resent: 1 };
        let mut path = Path::default();
        for more in [one, Path { packet: Some(1400), sent: 5, resent: 2 }, Path::default()] {
            path.add(more);
        }
        assert_eq!(path, Path { packet: Some(1400), sent: 15, resent: 3 });
        let seen = |name: &str, path| PeerSeen {
            name: name.to_owned(),
            connections: 2,
            round_trip: None,
            path,
        };
        let mut page = Page(Registry::with_prefix("gridmpi_relay"));
        of_paths(&mut page, &[seen("up", path), seen("down", Path::default())]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &page.0).unwrap();
        for line in [
            "gridmpi_relay_peer_packet_bytes{peer=\"up\"} 1400.0",
            "gridmpi_relay_peer_segments{peer=\"up\"} 15.0",
            "gridmpi_relay_peer_segments_resent{peer=\"up\"} 3.0",
            "gridmpi_relay_peer_segments_resent{peer=\"down\"} 0.0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("packet_bytes{peer=\"down\"}"), "{text}");
    }
}
