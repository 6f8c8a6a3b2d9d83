//! A job file that is wrong about the link: whether people are told, how near what they are told comes to what the link carries, and how long
//! bursts take from then on.

use super::burst::arguments;
use super::conditions::observed;
use super::mode::Mode;
use super::patterns::{Burst, PAIRS};
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{Route, Site, Stated};
use crate::samples::Samples;
use crate::session::Session;
use gridmpi_report::terminal::tell;

const BURST: Burst = PAIRS;

/// How many bursts: where too little is said it is put right after some 14 (the first 10 s are waited for), where too much is after some 25
/// (docs/rates-measured.md): before the last third of them.
const COUNT: u32 = 48;

/// What is found may be off what the link carries by so much of it, percent: by less no other word is said.
const MOST_OFF: f64 = 15.0;

/// How the library begins to tell of it; the rate in Mbit/s follows (`tell_corrections` in `net/regulation.rs`).
const CARRIES: &str = "the link from cluster `a` to `b` carries about ";

/// What came of one job.
struct Outcome {
    /// What people were told that the link carries, one word after the other, Mbit/s.
    told_mbit: Vec<f64>,
    /// Of the last bursts.
    milliseconds: Vec<f64>,
    network: Network,
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for delay_ms in session.delays(&[10], &[0, 10]) {
        let site = Site { delay_ms, ..SITE };
        // The truth is what the others stand beside.
        for said_mbit in [site.link_mbit, 10 * site.link_mbit, site.link_mbit / 10] {
            let name = format!("said to be {said_mbit} Mbit/s, {delay_ms} ms");
            let outcome = session.part(&name, |session| run(session, &site, said_mbit));
            let Some(outcome) = outcome else { continue };
            if outcome.told_mbit.is_empty() && said_mbit != site.link_mbit {
                tell(format_args!(
                    "gridmpi bench: {name}: the job said nothing of what the link carries instead: what its file says counts as found"
                ));
            }
            figures.extend(of(&name, &site, said_mbit, outcome));
        }
    }
    Ok(figures)
}

fn run(session: &mut Session, site: &Site, said_mbit: u32) -> Result<Outcome, BenchError> {
    let mode = Mode::Auto;
    let settings = mode.settings(site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (route, ranks) = (Route::Site(*site), [site.nodes; 2]);
    let stated = Stated { bandwidth_mbit: Some(said_mbit), ..Stated::ALL };
    let (said, network) =
        observed(session, site, mode, (BURST.sending(), site.nodes), |session| {
            session.job_told(route, "burst", &arguments(&BURST, COUNT), ranks, &settings, stated)
        })?;
    let milliseconds = Samples::parse(&said.out).scaled("seconds", 1e3)?;
    Ok(Outcome {
        told_mbit: told(&said.err),
        milliseconds: last_third(&milliseconds).to_vec(),
        network: Network { count: COUNT, ..network },
    })
}

/// What people are told that the link carries, in what a job says, Mbit/s.
fn told(text: &str) -> Vec<f64> {
    let rate = |line: &str| {
        let (_, rest) = line.split_once(CARRIES)?;
        rest.split_once(" Mbit/s")?.0.parse().ok()
    };
    text.lines().filter_map(rate).filter(|rate: &f64| rate.is_finite()).collect()
}

/// The bursts that count: by then it should have been put right.
fn last_third<T>(bursts: &[T]) -> &[T] {
    &bursts[bursts.len() - bursts.len() / 3..]
}

/// Whether people were told, of how much in the end, and what bursts take then. Where what is said is right that time alone, which others judge.
fn of(name: &str, site: &Site, said_mbit: u32, outcome: Outcome) -> Vec<Figure> {
    let Outcome { told_mbit, milliseconds, network } = outcome;
    let is_wrong = said_mbit != site.link_mbit;
    let judged = |bound| if is_wrong { bound } else { Bound::Told };
    let (least, bound) = ([BURST.least_ms(site)], judged(Bound::RatioAtMost(BURST.bound)));
    let time = format!("{name}: {}", BURST.name);
    let time = Figure::new(time, "ms", &milliseconds, "least possible", &least, bound);
    let time = time.with_network(network);
    if !is_wrong {
        return vec![time];
    }
    let (truth, words) = (f64::from(site.link_mbit), told_mbit.len() as f64);
    // Without a word it is what the job file says.
    let found = told_mbit.last().copied().unwrap_or(f64::from(said_mbit));
    let off = 100.0 * (found - truth).abs() / truth;
    let figure = |what: &str, unit, value: f64, (whom, against): (&str, f64), bound| {
        Figure::new(format!("{name}: {what}"), unit, &[value], whom, &[against], bound)
    };
    let once = Bound::RatioAtLeast(1.0);
    vec![
        figure("people are told", "times", words, ("at least", 1.0), once),
        figure("found", "Mbit/s", found, ("the link", truth), Bound::Told),
        figure("found, off", "%", off, ("asked for", MOST_OFF), Bound::AtMost(MOST_OFF)),
        time,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::conditions::Conditions;
    use crate::watched::Counters;

    #[test]
    fn what_people_are_told_is_found_between_other_words() {
        let word = |from, to, found| {
            format!(
                "gridmpi: the link from cluster `{from}` to `{to}` carries about {found} Mbit/s, as its connections see it, \
                 not 1600.000 as the job has it: going on with that; put right `bandwidth` in its [[link]]\n"
            )
        };
        let (first, last) = (word("a", "b", "231.500"), word("a", "b", "158.347"));
        let text = format!("noise\n{first}{}gridmpi: rank 3: {last}", word("b", "a", "20.000"));
        assert_eq!(told(&text), [231.5, 158.347]);
        assert!(told(&word("a", "b", "much")).is_empty() && told("").is_empty());
        assert!(told("the link from cluster `a` to `b` carries about 12").is_empty());
    }

    #[test]
    fn the_last_third_of_the_bursts_counts() {
        assert_eq!(last_third(&[1, 2, 3, 4, 5, 6, 7]), [6, 7]);
        assert!(last_third(&[1, 2]).is_empty());
        assert_eq!(last_third(&[0; COUNT as usize]).len(), 16);
    }

    fn met(said_mbit: u32, told_mbit: &[f64], ms: f64) -> Vec<Option<bool>> {
        let network = Conditions::none().network(Mode::Auto, COUNT, Counters::default());
        let outcome =
            Outcome { told_mbit: told_mbit.to_vec(), milliseconds: vec![ms; 16], network };
        of("it", &SITE, said_mbit, outcome).iter().map(|figure| figure.met).collect()
    }

    #[test]
    fn the_last_word_is_held_against_the_link() {
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(met(1600, &[250.0, 145.0], 133.0), [yes, None, yes, yes]);
        assert_eq!(met(16, &[157.0, 135.0], 134.0), [yes, None, no, no]);
        // Who says nothing has found nothing.
        assert_eq!(met(1600, &[], 125.0), [no, None, no, yes]);
        assert_eq!(met(16, &[], 125.0), [no, None, no, yes]);
        // The truth is no news.
        assert_eq!(met(160, &[], 150.0), [None]);
    }
}
