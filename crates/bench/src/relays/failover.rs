//! How long nothing comes when a relay on the way dies: killed, so that its host resets its connections, or silent with its host.

use super::servers::{Keys, Server, Started, Trunk};
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::{Gateways, Job, Lab, RELAY_PORT, Relayed, Route, Stated};
use crate::process::Running;
use crate::samples::{Samples, median};
use crate::session::Session;
use gridmpi_lab::control::{self, Ask};
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::{Duration, Instant};

const MS: f64 = 1e3;
/// Between the clusters, one way.
const DELAY_MS: u32 = 10;
/// Relays of each cluster, each joined with one of the other's.
const RELAYS: u32 = 2;
/// After a reset, in round trips; after silence, ms.
const RESET_BOUND: f64 = 3.0;
const SILENCE_BOUND: f64 = 2_000.0;
/// How long a relay is silent: much longer than it may take to move.
const SILENT: Duration = Duration::from_secs(4);
/// A relay that is there again is known to all by then: processes try at least every second.
const SETTLE: Duration = Duration::from_millis(1500);
/// How long a relay that was killed is dead: longer than it may take to move.
const DEAD: Duration = Duration::from_millis(1500);
/// When a relay is there again something comes within this, or nothing will.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the program may have to go on, for each fault.
const EACH: Duration = Duration::from_secs(14);

/// What happens to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Reset,
    Silence,
}

/// Where it is, seen from the sender.
const SIDES: [(&str, usize); 2] = [("near", 0), ("far", 1)];
const CLUSTERS: [&str; 2] = ["a", "b"];

/// A pair of relays, one of each cluster; the first dials.
struct Pair {
    servers: [Server; 2],
    running: [Started; 2],
}

struct Way<'a> {
    lab: &'a Lab,
    keys: &'a Keys,
    pairs: Vec<Pair>,
    job: Running,
    /// Which pair is on the way.
    at: usize,
    until: Instant,
}

impl Way<'_> {
    /// Lets one relay of the pair on the way die. The longest time, s, in which nothing came.
    fn fail(&mut self, death: Death, side: usize) -> Result<f64, BenchError> {
        for _ in 0..self.pairs.len() {
            let lasted = self.kill_one(death, side)?;
            self.at = (self.at + 1) % self.pairs.len();
            if let Some(lasted) = lasted {
                return Ok(lasted);
            }
            // It was not the one on the way after all.
        }
        let message = "no relay was on the way: whichever died, messages went on coming";
        Err(BenchError::Output(message.to_owned()))
    }

    fn kill_one(&mut self, death: Death, side: usize) -> Result<Option<f64>, BenchError> {
        let node = self.node(side)?;
        let (words, lasts) = match death {
            Death::Reset => (vec!["kill".to_owned(), node, "relay --config".to_owned()], None),
            Death::Silence => (vec!["silence".to_owned(), node], Some(SILENT)),
        };
        let (began, from) = (Instant::now(), seconds());
        control::make_fault(self.lab.directory(), Ask { words, lasts })?;
        let over = began + lasts.unwrap_or(DEAD);
        thread::sleep(over.saturating_duration_since(Instant::now()));
        let end = seconds();
        self.revive(death, side)?;
        longest_gap(&mut self.job, (from, end), self.until.min(Instant::now() + PATIENCE))
    }

    fn node(&self, side: usize) -> Result<String, BenchError> {
        let pair = self.pairs.get(self.at);
        let server = pair.and_then(|pair| pair.servers.get(side));
        server.map(|server| server.node.clone()).ok_or(BenchError::NoTime)
    }

    /// Both relays of the pair are there again, and joined.
    fn revive(&mut self, death: Death, side: usize) -> Result<(), BenchError> {
        let Some(pair) = self.pairs.get_mut(self.at) else { return Ok(()) };
        if death == Death::Reset
            && let (Some(server), Some(running)) =
                (pair.servers.get(side), pair.running.get_mut(side))
        {
            *running = self.keys.start(self.lab, server, &[], self.until)?;
        }
        let [dialler, _] = &mut pair.running;
        dialler.running.expect("connected to a relay", self.until)?;
        // Nothing tells when the processes have registered again.
        thread::sleep(SETTLE);
        Ok(())
    }
}

/// By the clock of the program's processes.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// How long, s, nothing came to the receiver that began before the end of this span, and ended after its begin; `None`: messages went on coming.
///
/// One that outlasts the span is told only when something comes again, and counts to its end. What began later is not of this fault.
fn longest_gap(
    job: &mut Running,
    (from, end): (f64, f64),
    until: Instant,
) -> Result<Option<f64>, BenchError> {
    let mut longest: Option<f64> = None;
    loop {
        let said = Samples::parse(&next_word(job, until)?);
        if let Ok(&[begin, lasted]) = said.get("gap")
            && begin < end
            && begin + lasted > from
        {
            longest = Some(longest.map_or(lasted, |longest| longest.max(lasted)));
        }
        if let Ok(&[at]) = said.get("heard")
            && at >= end
        {
            return Ok(longest);
        }
    }
}

fn next_word(job: &mut Running, until: Instant) -> Result<String, BenchError> {
    job.line("@heard", until).map_err(|error| match error {
        BenchError::Late { .. } => {
            let message = "a relay died, and nothing has come since, though it is there again";
            BenchError::Output(message.to_owned())
        }
        error => error,
    })
}

/// A death, and where.
type Case = (Death, (&'static str, usize));

/// What was seen so far.
struct Seen {
    /// Round trips, ms.
    trip: Vec<f64>,
    /// How long nothing came, ms, case by case.
    lasted: Vec<Vec<f64>>,
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let count = session.choose(1, 5);
    let cases: Vec<Case> = [Death::Reset, Death::Silence]
        .into_iter()
        .flat_map(|death| SIDES.map(|side| (death, side)))
        .collect();
    let mut planned: Vec<usize> = (0..count).flat_map(|_| 0..cases.len()).rev().collect();
    let mut seen = Seen { trip: Vec::new(), lasted: vec![Vec::new(); cases.len()] };
    while !planned.is_empty() {
        let before = planned.len();
        let whole = session
            .part("a relay's death", |session| series(session, &cases, &mut planned, &mut seen));
        // What failed is not tried again. Where nothing could be measured at all, the rest cannot be either.
        if whole.is_none() && (planned.len() == before || planned.pop().is_none()) {
            break;
        }
    }
    let figures = cases.iter().zip(&seen.lasted);
    Ok(figures
        .flat_map(|((death, (side, _)), lasted)| told(*death, side, lasted, &seen.trip))
        .collect())
}

/// What is planned, the last first, in one job, until something fails. What was measured is planned no more.
fn series(
    session: &mut Session,
    cases: &[Case],
    planned: &mut Vec<usize>,
    seen: &mut Seen,
) -> Result<(), BenchError> {
    let route = Route::Gateways(Gateways { gateways: RELAYS, delay_ms: DELAY_MS });
    session.lab(route)?;
    let keys = Keys::make(session)?;
    let program = session.program("failover")?;
    let faults = u32::try_from(planned.len()).unwrap_or(1);
    let until = session.until()?;
    let (session, lab) = session.with_lab()?;
    let pairs = start_pairs(lab, &keys, until)?;
    let (file, token) = (session.files().place("job.toml"), keys.token());
    let arguments = [(EACH * faults).as_secs().to_string()];
    let job = Job {
        mpi: &session.mpi,
        file: &file,
        program: &program,
        arguments: &arguments,
        ranks: [1; 2],
        settings: &[],
        stated: Stated::ALL,
        variables: &[],
        directory: None,
        relayed: Some(Relayed { token: &token }),
    };
    let mut job = lab.start_job(&job)?;
    seen.trip.extend(Samples::parse(&job.expect("@rtt", until)?).scaled("rtt", MS)?);
    let mut way = Way { lab, keys: &keys, pairs, job, at: 0, until };
    while let Some(&index) = planned.last() {
        if let (Some((death, (_, side))), Some(lasted)) =
            (cases.get(index), seen.lasted.get_mut(index))
        {
            lasted.push(way.fail(*death, *side)? * MS);
        }
        planned.pop();
    }
    Ok(())
}

fn start_pairs(lab: &Lab, keys: &Keys, until: Instant) -> Result<Vec<Pair>, BenchError> {
    let mut pairs = Vec::new();
    for number in 1..=RELAYS {
        let [near, far] = CLUSTERS.map(|cluster| format!("{cluster}-gw{number}"));
        let address = lab.wide_address(&far);
        let servers = Server::pair([&near, &far], &address, RELAY_PORT, Trunk::Tls);
        let [dialler, other] = &servers;
        let other = keys.start(lab, other, &[], until)?;
        let mut dialler = keys.start(lab, dialler, &[], until)?;
        dialler.running.expect("connected to a relay", until)?;
        pairs.push(Pair { servers, running: [dialler, other] });
    }
    Ok(pairs)
}

/// The median and the worst, beside a round trip.
fn told(death: Death, side: &str, lasted: &[f64], trip: &[f64]) -> [Figure; 2] {
    let (how, bound) = match death {
        Death::Reset => ("killed", Bound::RatioAtMost(RESET_BOUND)),
        Death::Silence => ("silent", Bound::AtMost(SILENCE_BOUND)),
    };
    let worst: Vec<f64> = lasted.iter().copied().reduce(f64::max).into_iter().collect();
    let whom = "a round trip";
    [("median", lasted), ("worst", worst.as_slice())].map(|(which, samples)| {
        let name = format!("{side} relay {how}: nothing came for, {which} of {}", lasted.len());
        Figure::new(name, "ms", samples, whom, &[median(trip)], bound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::process::Command;

    fn receiver(said: &str) -> Running {
        process::start("the receiver", Command::new("printf").arg(said)).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn an_outage_that_outlasts_the_fault_counts_to_its_end() {
        let mut job = receiver("@heard 0.9\n@gap 1 2.8\n@heard 3.8\n@heard 4.9\n");
        assert_eq!(longest_gap(&mut job, (1.001, 2.5), soon()).unwrap(), Some(2.8));
        // The next fault has no part of it.
        assert_eq!(longest_gap(&mut job, (4.0, 4.5), soon()).unwrap(), None);
        let error = longest_gap(&mut job, (5.0, 6.0), soon()).unwrap_err().to_string();
        assert!(error.contains("ended without saying"), "{error}");
    }

    #[test]
    fn the_longest_gap_of_a_fault_counts_and_none_before_or_behind_it() {
        let said = "@gap 0.1 0.8\n@gap 1 0.04\n@gap 1.1 0.05\n@gap 2.6 0.3\n@heard 2.9\n";
        let gap = longest_gap(&mut receiver(said), (1.001, 2.5), soon()).unwrap();
        assert_eq!(gap, Some(0.05));
    }

    #[test]
    fn that_nothing_comes_any_more_is_no_absence_of_gaps() {
        let mut job = process::start("the receiver", Command::new("sleep").arg("60")).unwrap();
        let error = longest_gap(&mut job, (1.0, 2.0), Instant::now()).unwrap_err().to_string();
        assert!(error.contains("nothing has come since"), "{error}");
    }
}
