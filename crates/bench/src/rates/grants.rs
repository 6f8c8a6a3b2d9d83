//! How soon a process that claims a rate has its broker's grant, beside a round trip of the network in its cluster, and how long a program
//! is held up that sets its rate itself.

use super::conditions::observed;
use super::mode::Mode;
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{INTERFACE, Route};
use crate::samples::{Samples, quantile};
use crate::session::Session;

/// What a claim may take to be granted, by a round trip in the cluster.
const ROUND_TRIPS: f64 = 2.0;
/// What a change of the rate may take of the sender's time, µs.
const CHANGE_US: f64 = 20.0;

/// A message that is claimed, bytes: it leaves in 33 ms by the interface, where two nodes do not claim what takes 14 at half of the link. It is sent
/// without asking the receiver first.
const CLAIMED: u32 = 192 << 10;
const EAGER_LIMIT: (&str, &str) = ("GRIDMPI_EAGER_LIMIT", "256K");
/// The first sends make connections, and in a few more it is believed that nobody else sends.
const FIRST: usize = 5;

/// The rates that are set by turns, KB/s: a half and a whole equal share of the link.
const RATES: [u32; 2] = [1250, 2500];
/// To so many nodes messages are under way then, each by a connection of its own.
const RECEIVERS: u32 = SITE.nodes;

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    // Words to the broker stay in the cluster.
    session.tell_own_delay("grants", SITE.delay_ms);
    let granted = session.part("a claim's grant", claim);
    let changed = session.part("a change of the rate", change);
    Ok([granted, changed].into_iter().flatten().flatten().collect())
}

/// The sender is on another node than the broker.
fn claim(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let count = FIRST as u32 + session.choose(40, 200);
    let arguments = [INTERFACE.to_owned(), count.to_string(), CLAIMED.to_string()];
    let (samples, network) = run(session, "grants", &arguments, [2, 1])?;
    of_grants(&samples, network)
}

fn change(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let count = session.choose(1000, 4000);
    let arguments = [count, RATES[0], RATES[1]].map(|number| number.to_string());
    let (samples, network) = run(session, "changes", &arguments, [1, RECEIVERS])?;
    of_changes(&samples, network)
}

/// What a program of which one node sends says, and what the network did.
fn run(
    session: &mut Session,
    program: &str,
    arguments: &[String],
    ranks: [u32; 2],
) -> Result<(Samples, Network), BenchError> {
    let mode = Mode::Auto;
    let settings = mode.settings(&SITE);
    let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<_> = settings.chain([EAGER_LIMIT]).collect();
    observed(session, &SITE, mode, (&["a"], 1), |session| {
        session.job_with(Route::Site(SITE), program, arguments, ranks, &settings)
    })
}

/// From when the claim leaves its node until the grant has come there, by what one word takes there and back over the same interface after as long a
/// rest, a blocking socket at each end, and by what many in a row take; until the sender, which hands its first turn to the kernel meanwhile, has
/// looked at it; and that from the begin of the send, beside the vendor's MPI.
fn of_grants(samples: &Samples, network: Network) -> Result<Vec<Figure>, BenchError> {
    let series = |name| samples.scaled(name, 1e6).map(|all| all[FIRST.min(all.len())..].to_vec());
    let (grant, claim, send) = (series("grant")?, series("claim")?, series("send")?);
    let (lone, socket, mpi) = (series("lone")?, series("socket")?, series("mpi")?);
    let (name, words) = ("a claim is granted", "a word there and back in the cluster");
    let bound = Bound::RatioAtMost(ROUND_TRIPS);
    let median = Figure::paired(name, "µs", &grant, words, &lone, bound);
    let late = format!("{name}, p99");
    let late = Figure::new(late, "µs", &high(&grant), words, &high(&lone), Bound::Told);
    let many = format!("{name}, by many words in a row");
    let many = Figure::paired(many, "µs", &grant, "one of them", &socket, Bound::Told);
    let name = "a claim is granted, and the sender looks";
    let seen = Figure::paired(name, "µs", &claim, words, &lone, Bound::Told);
    let (name, whom) = ("a send has its grant", "one of many words by MPI");
    let whole = Figure::paired(name, "µs", &send, whom, &mpi, Bound::Told);
    let (name, ungranted) = ("messages that had arrived before a grant", samples.get("ungranted")?);
    let ungranted = Figure::new(name, "", ungranted, "none", &[0.0], Bound::Told);
    Ok(vec![median.with_network(network), late, many, seen, whole, ungranted])
}

/// What a change takes, and, of what one in a hundred takes more than, the sender's own part: where processors are few it may be held up by others.
fn of_changes(samples: &Samples, network: Network) -> Result<Vec<Figure>, BenchError> {
    let (taken, own) = (samples.scaled("seconds", 1e6)?, samples.scaled("processor", 1e6)?);
    let figure = |what: &str, samples: &[f64], bound| {
        let name = format!("a rate is set, {RECEIVERS} connections sending{what}");
        Figure::new(name, "µs", samples, "asked for", &[CHANGE_US], bound)
    };
    let bound = Bound::AtMost(CHANGE_US);
    Ok(vec![
        figure("", &taken, bound).with_network(network),
        figure(", p99", &high(&taken), Bound::Told),
        figure(", p99 of its processor time", &high(&own), bound),
    ])
}

/// The 99th percentile, if there is one.
fn high(samples: &[f64]) -> Vec<f64> {
    (!samples.is_empty()).then(|| quantile(samples, 0.99)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::conditions::Conditions;
    use crate::watched::Counters;

    fn network() -> Network {
        Conditions::none().network(Mode::Auto, 1, Counters::default())
    }

    #[test]
    fn a_grant_is_judged_by_round_trips_without_the_first_ones() {
        let of = |grants: &str| {
            let ones =
                ["socket", "mpi", "claim", "send"].map(|name| format!("@{name} 1 1 1 1 1 1 1 1\n"));
            let others = ones.concat() + "@lone 1 1 1 1 1 1e-4 1e-4 1e-4\n@ungranted 0";
            of_grants(&Samples::parse(&format!("{others}\n@grant {grants}\n")), network())
        };
        let met =
            |grants: &str| of(grants).unwrap().iter().map(|figure| figure.met).collect::<Vec<_>>();
        assert_eq!(met("9 9 9 9 9 1.9e-4 1.9e-4 9e-4"), [Some(true), None, None, None, None, None]);
        assert_eq!(
            met("0 0 0 0 0 2.1e-4 2.1e-4 1e-4"),
            [Some(false), None, None, None, None, None]
        );
        // Of the first ones alone nothing is known.
        assert_eq!(met("0 0 0"), [None; 6]);
        assert!(of("").is_err());
    }

    #[test]
    fn a_slow_change_in_a_hundred_is_one_too_many() {
        let met = |slow: usize| {
            let seconds = [vec!["5e-6"; 100 - slow], vec!["5e-5"; slow]].concat().join(" ");
            let samples = Samples::parse(&format!("@seconds {seconds}\n@processor {seconds}\n"));
            let figures = of_changes(&samples, network()).unwrap();
            figures.iter().map(|figure| figure.met).collect::<Vec<_>>()
        };
        assert_eq!(met(0), [Some(true), None, Some(true)]);
        assert_eq!(met(3), [Some(true), None, Some(false)]);
        assert_eq!(met(60), [Some(false), None, Some(false)]);
    }
}
