//! What times depend on beside the network: how TCP is set, and whether TLS is.

use super::mode::{CONGESTION, Mode, SYSTEM};
use crate::error::BenchError;
use crate::network::Network;
use crate::place::{Lab, Route, Site, own_program};
use crate::samples::median;
use crate::session::Session;
use crate::watched::{Counters, Watched};
use std::ffi::OsString;
use std::time::Instant;

/// What GridMPI's connections wait at least for an acknowledgement, ms, and the first Linux that lets them (docs/rates.md).
const OWN_LEAST_MS: f64 = 40.0;
const OWN_LEAST_SINCE: (u32, u32) = (6, 15);
const UNKNOWN: &str = "unknown";
/// Of kernels that have no setting for it.
const KERNEL_LEAST_US: f64 = 200_000.0;

/// How TCP is set in the nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions {
    /// The system's congestion control.
    control: String,
    has_bbr: bool,
    /// Who paces what leaves by the node's interfaces.
    pacing: String,
    /// Of GridMPI's connections, if the kernel does as those of its version do (the sockets are another process's and cannot be asked), and of those of others.
    pub(super) least_timeout_ms: f64,
    system_timeout_ms: f64,
    /// Whether those are encrypted: in all modes or in none.
    pub(super) tls: bool,
}

/// Does something in this site's lab, in this mode, and says what the network did meanwhile; these clusters send, so many nodes of them in all.
///
/// # Errors
/// It fails, or the network cannot be watched.
pub(super) fn observed<T>(
    session: &mut Session,
    site: &Site,
    mode: Mode,
    (senders, nodes): (&'static [&'static str], u32),
    job: impl FnOnce(&mut Session) -> Result<T, BenchError>,
) -> Result<(T, Network), BenchError> {
    let (route, until) = (Route::Site(*site), session.until()?);
    let lab = session.lab(route)?;
    let (conditions, watch) = (Conditions::of(lab, until)?, lab.watch(senders)?);
    let done = job(session)?;
    let seen = [session.lab(route)?.watched(&watch)?];
    Ok((done, conditions.network_of(mode, &seen, nodes, site.link_mbit)))
}

impl Conditions {
    /// What went on in runs in this mode at a place, where so many nodes of the clusters that were watched sent.
    pub(super) fn network_of(
        &self,
        mode: Mode,
        runs: &[Watched],
        nodes: u32,
        link_mbit: u32,
    ) -> Network {
        let mut counters = Counters::default();
        runs.iter().for_each(|run| counters.add(run.counters));
        let used: Vec<f64> = runs.iter().filter_map(|run| run.utilisation(link_mbit)).collect();
        let connections: Vec<f64> = runs.iter().map(|run| run.connections_of(nodes)).collect();
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        Network {
            utilisation: (!used.is_empty()).then(|| median(&used)),
            connections: (!connections.is_empty()).then(|| mean(&connections)),
            ..self.network(mode, runs.len() as u32, counters)
        }
    }

    /// What went on in `count` runs in this mode, of which nothing more is known.
    pub(super) fn network(&self, mode: Mode, count: u32, counters: Counters) -> Network {
        let Counters { packets, dropped, tcp, .. } = counters;
        let is_vendor = mode == Mode::Vendor;
        Network {
            count,
            packets,
            dropped,
            retransmits: tcp.retransmits,
            timeouts: tcp.timeouts,
            loss_probes: tcp.loss_probes,
            utilisation: None,
            connections: None,
            least_timeout_ms: if is_vendor {
                self.system_timeout_ms
            } else {
                self.least_timeout_ms
            },
            congestion_control: self.control(mode),
            pacing: self.pacing(mode),
            tls: self.tls && !is_vendor,
        }
    }

    /// As they are at this place, which is called `name`; `None` if they cannot be read, which is told.
    pub(super) fn at(session: &mut Session, name: &str, site: &Site) -> Option<Self> {
        session.part(name, |session| {
            let until = session.until()?;
            Self::of(session.lab(Route::Site(*site))?, until)
        })
    }

    /// As they are in the lab.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn of(lab: &Lab, until: Instant) -> Result<Self, BenchError> {
        // Kernels before 6.11 have no least timeout to be set: an empty line.
        let script = "cd /proc/sys/net/ipv4; for file in tcp_congestion_control \
                      tcp_available_congestion_control tcp_rto_min_us ../../kernel/osrelease; do \
                      cat $file 2>/dev/null || echo; done";
        let said = lab.run("a1", &["sh", "-c", script], until)?;
        // What it finds wrong is not looked for here.
        let doctor = ["sh", "-c", "\"$0\" doctor --json || true"].map(OsString::from);
        let doctor: Vec<_> = doctor.into_iter().chain([own_program()?.into_os_string()]).collect();
        let found = lab.run("a1", &doctor, until)?;
        Ok(Self { pacing: pacing(&found.out), ..Self::parse(&said.out) })
    }

    /// Of no system.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::parse("")
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let mut next = || lines.next().unwrap_or_default();
        let (control, available, least_us, release) = (next(), next(), next(), next());
        let system_ms = least_us.parse().unwrap_or(KERNEL_LEAST_US) / 1e3;
        let is_ours = version(release) >= Some(OWN_LEAST_SINCE);
        Self {
            control: control.to_owned(),
            has_bbr: available.split_whitespace().any(|known| known == "bbr"),
            pacing: UNKNOWN.to_owned(),
            least_timeout_ms: if is_ours { OWN_LEAST_MS } else { system_ms },
            system_timeout_ms: system_ms,
            tls: std::env::var_os("GRIDMPI_TLS").is_none_or(|choice| choice != "off"),
        }
    }

    /// Who paces in this mode.
    pub(super) fn pacing(&self, mode: Mode) -> String {
        match mode {
            Mode::Off | Mode::Vendor => "nobody".to_owned(),
            Mode::Tbf => "tbf".to_owned(),
            _ => self.pacing.clone(),
        }
    }

    /// The congestion control of the connections in this mode.
    pub(super) fn control(&self, mode: Mode) -> String {
        let chosen = match mode {
            Mode::WithoutBbr => Some(SYSTEM.to_owned()),
            _ => std::env::var(CONGESTION).ok(),
        };
        match chosen.filter(|name| mode.is_ours() && !name.is_empty()) {
            Some(name) if name != SYSTEM => name,
            None if mode.is_ours() && self.has_bbr => {
                format!("{}, at rest bbr (long paths)", self.control)
            }
            _ => self.control.clone(),
        }
    }
}

/// What `gridmpi doctor --json` says of pacing.
fn pacing(json: &str) -> String {
    let found: Option<serde_json::Value> = serde_json::from_str(json).ok();
    let findings = found.as_ref().and_then(|found| found.get("findings")?.as_array());
    let said = findings.into_iter().flatten().find(|one| one["code"] == "pacing");
    said.and_then(|one| one["what"].as_str()).unwrap_or(UNKNOWN).to_owned()
}

/// The first two numbers of a kernel's name.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_have_their_own_timeout() {
        let new = Conditions::parse("cubic\nreno cubic bbr\n200000\n6.18.1-cloud\n");
        assert_eq!((new.least_timeout_ms, new.has_bbr), (40.0, true));
        let old = Conditions::parse("cubic\nreno cubic\n100000\n6.12.0\n");
        assert_eq!((old.least_timeout_ms, old.has_bbr), (100.0, false));
        assert_eq!(Conditions::parse("reno\nreno\n\n5.10\n").least_timeout_ms, 200.0);
        let controls = [Mode::Tbf, Mode::WithoutBbr].map(|mode| new.control(mode));
        assert_eq!(controls, ["cubic", "cubic"]);
        assert_eq!(
            (new.pacing(Mode::Auto).as_str(), new.pacing(Mode::Off).as_str()),
            (UNKNOWN, "nobody")
        );
        let json = r#"{"findings":[{"code":"x","what":"y"},{"code":"pacing","what":"eth0: fq paces (fq)"}]}"#;
        assert_eq!(pacing(json), "eth0: fq paces (fq)");
    }
}
