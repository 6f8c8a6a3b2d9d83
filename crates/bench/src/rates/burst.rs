//! Bursts: all nodes of a cluster begin to send at the same instant.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Route, Site};
use crate::session::Session;

/// Of a full frame, what TCP carries.
const PAYLOAD: f64 = 1448.0 / 1538.0;
/// The acknowledgement of two full frames, by their size.
const ACKNOWLEDGEMENT: f64 = 90.0 / (2.0 * 1538.0);
/// Between one burst and the next, seconds: no longer than TCP remembers its window.
const PAUSE: &str = "0.1";
/// Of a million packets, how many may be dropped.
const DROPS: f64 = 100.0;

/// Who sends to whom.
pub(super) struct Burst {
    /// As the program has it.
    pattern: &'static str,
    name: &'static str,
    /// Each message.
    bytes: u32,
    /// To how many each node sends.
    peers: u32,
    /// How many nodes send; `None`: all.
    senders: Option<u32>,
    is_both_ways: bool,
    /// What ours may take at most, by what it is compared to.
    bound: f64,
}

pub(super) const PAIRS: Burst = Burst {
    pattern: "pairs",
    name: "8 pairs, 256 KiB each",
    bytes: 256 << 10,
    peers: 1,
    senders: None,
    is_both_ways: false,
    bound: 1.1,
};
pub(super) const ALL: Burst = Burst {
    pattern: "all",
    name: "8 to 8, 32 KiB each",
    bytes: 32 << 10,
    peers: 8,
    senders: None,
    is_both_ways: false,
    bound: 1.1,
};
/// Nobody collides with it.
pub(super) const LONE: Burst = Burst {
    pattern: "lone",
    name: "1 of 8 pairs, 1 MiB",
    bytes: 1 << 20,
    peers: 1,
    senders: Some(1),
    is_both_ways: false,
    bound: 1.01,
};
pub(super) const BOTH: Burst =
    Burst { pattern: "both", name: "8 to 8 and back, 32 KiB each", is_both_ways: true, ..ALL };

/// What holds the senders back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Off,
    /// A token bucket (tbf) as each node's interface, at an equal share of the link.
    Tbf,
    /// Ours, at an equal share of the link.
    Static,
    /// Ours, at half of that.
    Half,
    /// Ours, as it finds.
    Auto,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "not paced",
            Self::Tbf => "tbf at B/N",
            Self::Static => "static, B/N",
            Self::Half => "static, B/2N",
            Self::Auto => "auto",
        }
    }

    fn settings(self, site: &Site) -> Vec<(&'static str, String)> {
        let pacing = |how: &str| ("GRIDMPI_PACING", how.to_owned());
        let half = || format!("{}k", site.link_mbit * 1000 / (2 * site.nodes));
        match self {
            Self::Off | Self::Tbf => vec![pacing("off")],
            Self::Static => vec![pacing("static")],
            Self::Half => vec![pacing("static"), ("GRIDMPI_MATB", half())],
            Self::Auto => vec![pacing("auto")],
        }
    }
}

/// What came of one mode.
#[derive(Default)]
struct Outcome {
    /// Of each burst.
    milliseconds: Vec<f64>,
    /// Of a million packets.
    dropped: Vec<f64>,
}

/// The place of most measurements.
const SITE: Site =
    Site { nodes: 8, interface_mbit: 50, link_mbit: 160, delay_ms: 10, buffer_kib: 64 };

/// What is only looked at: twice as fast, with as much buffer and with four times that.
const FASTER: Site = Site { interface_mbit: 100, link_mbit: 320, ..SITE };
const DEEPER: Site = Site { buffer_kib: 256, ..FASTER };

const ALL_MODES: [Mode; 5] = [Mode::Off, Mode::Tbf, Mode::Static, Mode::Half, Mode::Auto];
const OFF_AND_AUTO: [Mode; 2] = [Mode::Off, Mode::Auto];

pub(super) fn measure(session: &mut Session, burst: &Burst) -> Result<Vec<Figure>, BenchError> {
    let quick = [(SITE, &[10][..], &OFF_AND_AUTO[..])];
    let whole = [
        (SITE, &[0, 2, 5, 10][..], &ALL_MODES[..]),
        (FASTER, &[0, 10], &OFF_AND_AUTO),
        (DEEPER, &[0, 10], &OFF_AND_AUTO),
    ];
    let mut figures = Vec::new();
    for (site, delays, modes) in session.choose(&quick[..], &whole) {
        for &delay_ms in *delays {
            figures.extend(compare(session, burst, Site { delay_ms, ..*site }, modes)?);
        }
    }
    Ok(figures)
}

fn compare(
    session: &mut Session,
    burst: &Burst,
    site: Site,
    modes: &[Mode],
) -> Result<Vec<Figure>, BenchError> {
    say_conditions(session, burst, Route::Site(site))?;
    let mut outcomes: Vec<Outcome> = modes.iter().map(|_| Outcome::default()).collect();
    for _ in 0..session.choose(1, 2) {
        for (mode, outcome) in modes.iter().zip(&mut outcomes) {
            run(session, burst, &site, *mode, outcome)?;
        }
    }
    let least = [least_ms(burst, &site)];
    let Site { delay_ms, link_mbit, buffer_kib, .. } = site;
    let place = match site {
        Site { link_mbit: 160, buffer_kib: 64, .. } => format!("{}, {delay_ms} ms", burst.name),
        _ => format!("{}, {delay_ms} ms, {link_mbit} Mbit/s, {buffer_kib} KiB", burst.name),
    };
    let unpaced = &outcomes[0];
    // Where nobody collides, it must not be slower than without pacing.
    let (whom, reference) = match burst.senders {
        None => ("least possible", &least[..]),
        Some(_) => (Mode::Off.name(), &unpaced.milliseconds[..]),
    };
    let mut figures = Vec::new();
    for (mode, outcome) in modes.iter().zip(&outcomes) {
        let is_ours = *mode == Mode::Auto;
        let name = format!("{place}: {}", mode.name());
        let bound = if is_ours { Bound::RatioAtMost(burst.bound) } else { Bound::Told };
        figures.push(Figure::new(&name, "ms", &outcome.milliseconds, whom, reference, bound));
        if *mode != Mode::Off {
            let bound = if is_ours { Bound::AtMost(DROPS) } else { Bound::Told };
            let (name, whom) = (format!("{name}, dropped"), Mode::Off.name());
            figures.push(Figure::new(name, "ppm", &outcome.dropped, whom, &unpaced.dropped, bound));
        }
    }
    Ok(figures)
}

/// What the times depend on beside the network.
fn say_conditions(session: &mut Session, burst: &Burst, route: Route) -> Result<(), BenchError> {
    let until = session.until()?;
    let lab = session.lab(route)?;
    let value = |file: &str| {
        let said = lab.run("a1", &["cat", &format!("/proc/sys/net/ipv4/{file}")], until)?;
        Ok::<_, BenchError>(said.out.trim().to_owned())
    };
    let control = value("tcp_congestion_control")?;
    // Kernels before 6.11 have no such setting, and 200 ms.
    let least_us = value("tcp_rto_min_us").ok().and_then(|text| text.parse().ok());
    let (least_ms, Burst { pattern, peers, .. }) = (least_us.unwrap_or(200_000.0) / 1000.0, burst);
    eprintln!(
        "gridmpi bench: {pattern}: congestion control {control}, least retransmission timeout \
         {least_ms} ms (of GridMPI's connections 40 ms from Linux 6.15 on; paced ones rest and open under bbr where the \
         kernel allows it), sending connections a node: {peers}"
    );
    Ok(())
}

fn run(
    session: &mut Session,
    burst: &Burst,
    site: &Site,
    mode: Mode,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let mut site = *site;
    if mode == Mode::Tbf {
        site.interface_mbit = site.link_mbit / site.nodes;
    }
    // A lone one is believed to be alone after as many transfers as there are nodes.
    let count = session.choose(8, 16) + burst.senders.map_or(0, |_| 2 * site.nodes);
    let arguments =
        [burst.pattern, &burst.bytes.to_string(), &count.to_string(), PAUSE].map(str::to_owned);
    let route = Route::Site(site);
    let before = session.lab(route)?.packets()?;
    let settings = mode.settings(&site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let samples = session.job_with(route, "burst", &arguments, [site.nodes; 2], &settings)?;
    let after = session.lab(route)?.packets()?;
    // In the first one connections are made.
    outcome.milliseconds.extend(samples.scaled("seconds", 1e3)?.iter().skip(1));
    let (arrived, dropped) = (after.arrived - before.arrived, after.dropped - before.dropped);
    outcome.dropped.push(dropped as f64 / arrived.max(1) as f64 * 1e6);
    Ok(())
}

/// Bytes by bandwidth, and the delay.
fn least_ms(burst: &Burst, site: &Site) -> f64 {
    let node_bits = f64::from(burst.bytes) * f64::from(burst.peers) * 8.0 / PAYLOAD;
    let acknowledged = if burst.is_both_ways { 1.0 + ACKNOWLEDGEMENT } else { 1.0 };
    let all_bits = node_bits * f64::from(burst.senders.unwrap_or(site.nodes)) * acknowledged;
    let by_link = all_bits / (f64::from(site.link_mbit) * 1e3);
    let by_interface = node_bits * acknowledged / (f64::from(site.interface_mbit) * 1e3);
    by_link.max(by_interface) + f64::from(site.delay_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_is_that_of_the_neck() {
        let site = SITE;
        assert!((least_ms(&PAIRS, &site) - 121.4).abs() < 0.1, "{}", least_ms(&PAIRS, &site));
        assert!((least_ms(&LONE, &site) - 188.2).abs() < 0.1, "{}", least_ms(&LONE, &site));
        assert!((least_ms(&ALL, &site) - 121.4).abs() < 0.1);
        assert!((least_ms(&BOTH, &site) - 124.6).abs() < 0.1, "{}", least_ms(&BOTH, &site));
        let slow = Site { interface_mbit: 10, ..site };
        assert!((least_ms(&PAIRS, &slow) - 232.8).abs() < 0.1, "{}", least_ms(&PAIRS, &slow));
    }
}
