//! Several relays of a cluster at once: one pair of ranks, eight, and all to all.

use super::across::Pattern;
use super::servers::{Keys, Server, Trunk, wait_for_trunks};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Gateways, Job, RELAY_PORT, Relayed, Route};
use crate::samples::Samples;
use crate::session::Session;

const PATTERNS: [Pattern; 3] = [
    Pattern { name: "one pair", ranks: 8, pairs: 1 },
    Pattern { name: "8 pairs", ranks: 8, pairs: 8 },
    Pattern { name: "all to all", ranks: 8, pairs: 0 },
];
/// What crosses for each relay; at 20 Mbit/s some 1.7 s. And with `--quick`.
const CROSSING: u64 = 4 << 20;
const QUICK_CROSSING: u64 = 1 << 20;
/// With eight relays at least.
const BOUND: f64 = 7.6;

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for &delay_ms in session.choose(&[0][..], &[0, 10]) {
        let counts = session.choose(&[1, 8][..], &[1, 2, 4, 8]);
        let mut speeds = Vec::new();
        for &gateways in counts {
            let name = format!("{gateways} relays, {delay_ms} ms");
            let site = Gateways { gateways, delay_ms };
            let found = session.part(&name, |session| speeds_with(session, site));
            speeds.push((gateways, found.unwrap_or_default()));
        }
        figures.extend(compare(&speeds, delay_ms));
    }
    Ok(figures)
}

fn compare(speeds: &[(u32, Vec<Vec<f64>>)], delay_ms: u32) -> Vec<Figure> {
    let Some(((_, alone), more)) = speeds.split_first() else { return Vec::new() };
    let mut figures = Vec::new();
    for (index, pattern) in PATTERNS.iter().enumerate() {
        for (gateways, speeds) in more {
            let (Some(ours), Some(alone)) = (speeds.get(index), alone.get(index)) else { continue };
            let name = format!("{}, {gateways} relays of 20 Mbit/s, {delay_ms} ms", pattern.name);
            let bound = if *gateways == 8 { Bound::RatioAtLeast(BOUND) } else { Bound::Told };
            figures.push(Figure::new(name, "Mbit/s", ours, "1 relay", alone, bound));
        }
    }
    figures
}

/// Of each pattern, Mbit/s of what the program sends.
fn speeds_with(session: &mut Session, site: Gateways) -> Result<Vec<Vec<f64>>, BenchError> {
    let route = Route::Gateways(site);
    session.lab(route)?;
    let keys = Keys::make(session)?;
    let program = session.program("across")?;
    let until = session.until()?;
    let repeat = session.choose(1, 2);
    let crossing = session.choose(QUICK_CROSSING, CROSSING) * u64::from(site.gateways);
    let (session, lab) = session.with_lab()?;
    let mut relays = Vec::new();
    for number in 1..=site.gateways {
        let [near, far] = ["a", "b"].map(|cluster| format!("{cluster}-gw{number}"));
        let address = lab.wide_address(&far);
        let [dialler, other] = Server::pair([&near, &far], &address, RELAY_PORT, Trunk::Tls);
        for server in [other, dialler] {
            let running = keys.start(lab, &server, &[], until)?;
            relays.push((server, running));
        }
    }
    wait_for_trunks(&mut relays, until)?;
    let (file, token) = (session.files().place("job.toml"), keys.token());
    let mut all = Vec::new();
    for pattern in &PATTERNS {
        let (arguments, crossing) = pattern.arguments(crossing, repeat);
        let job = Job {
            mpi: &session.mpi,
            file: &file,
            program: &program,
            arguments: &arguments,
            ranks: [pattern.ranks; 2],
            settings: &[],
            variables: &[],
            directory: None,
            relayed: Some(Relayed { token: &token }),
        };
        let said = lab.job(&job, session.until()?)?;
        let seconds = Samples::parse(&said.out);
        let speed = |seconds: &f64| crossing * 8e-6 / seconds;
        all.push(seconds.get("seconds")?.iter().map(speed).collect());
    }
    Ok(all)
}
