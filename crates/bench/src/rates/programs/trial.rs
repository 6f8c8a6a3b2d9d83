//! One program in every mode at every delay, beside the best of those that need nothing found online.

use crate::error::BenchError;
use crate::figure::{Bound, Cell, Figure};
use crate::network::Network;
use crate::place::{Job, Route, Site, Stated};
use crate::programs::Mpi;
use crate::rates::conditions::Conditions;
use crate::rates::mode::{ALL_MODES, Mode};
use crate::rates::picture::{Scene, nearest_to_median};
use crate::rates::sites::SITE;
use crate::samples::median;
use crate::session::Session;
use crate::watched::Watched;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most nodes of a cluster; more ranks share them.
pub(super) const MOST_NODES: u32 = 8;
/// A figure of less than so many seconds is measured in so many rounds at least, where nothing else is wished: one alone says little of 2 %.
const SHORT_SECONDS: f64 = 2.0;
const ROUNDS_OF_SHORT: usize = 5;
/// After so many rounds it is looked whether runs tell if a bound is met, then after twice as many, and so on: who looks often is told
/// something by chance.
const FIRST_LOOK: usize = 5;
/// What NAS programs say of themselves beside their time.
pub(crate) const SPEED: &str = "Mop/s";

const JUDGED: Mode = Mode::Auto;

/// What a mode is compared to, the best of several, and what the judged one must be by it: what takes longer is slowed down.
#[derive(Debug)]
pub(crate) struct Peer {
    whom: &'static str,
    modes: &'static [Mode],
    most: f64,
    /// The same by its speed.
    least: f64,
}

const BEST: Peer = Peer {
    whom: "the best of off, static, half",
    modes: &[Mode::Off, Mode::Static, Mode::Half],
    most: 1.02,
    least: 0.981,
};
const UNPACED: Peer = Peer { whom: "off", modes: &[Mode::Off], most: 1.01, least: 0.991 };

/// Those of a program; the table of programs is by the first.
pub(crate) type Peers = &'static [Peer];
pub(crate) const OF_ALL: Peers = &[BEST];
/// Where senders never collide there is nothing to be gained, and less may be lost.
pub(crate) const WITHOUT_COLLISIONS: Peers = &[BEST, UNPACED];

/// One figure that a program says of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// Which, if it says several.
    pub(crate) name: &'static str,
    /// The less the better, and in the table of programs, if it is seconds.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Reading {
    pub(crate) const fn seconds(name: &'static str, value: f64) -> Self {
        Self { name, unit: "s", value }
    }

    pub(crate) const fn other(unit: &'static str, value: f64) -> Self {
        Self { name: "", unit, value }
    }
}

/// What a file must hold before the program has done what is wanted; the rest of it is not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enough<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

/// Reads what a program has said, or its file if it is not run to its end; its own verdict, too. And how long its run has taken.
pub(crate) type Read<'a> = &'a dyn Fn(&str, Duration) -> Result<Vec<Reading>, BenchError>;

/// A program, unmodified, and how it is run.
pub(crate) struct Trial<'a> {
    pub(crate) name: &'a str,
    pub(crate) mpi: Mpi,
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    pub(crate) ranks: [u32; 2],
    pub(crate) variables: &'a [(&'a str, String)],
    pub(crate) directory: Option<&'a Path>,
    pub(crate) enough: Option<Enough<'a>>,
    pub(crate) read: Read<'a>,
    pub(crate) peers: Peers,
}

/// How often every mode has its turn: whatever it takes, and where it takes little; and then those that matter as long as runs do not tell
/// whether the bound is met, until there have been so many rounds.
struct Rounds {
    all: usize,
    short: usize,
    most: usize,
    peers: Peers,
    /// Those that mattered when that was last looked at.
    open: BTreeSet<usize>,
}

impl Rounds {
    fn of(session: &Session, peers: Peers) -> Self {
        let most = session.wishes.most_rounds.unwrap_or(0);
        match session.wishes.rounds {
            Some(wanted) => Self::new(wanted, wanted, most, peers),
            None => Self::new(session.choose(1, 3), ROUNDS_OF_SHORT, most, peers),
        }
    }

    fn new(all: usize, short: usize, most: usize, peers: Peers) -> Self {
        let is_compared = |mode| peers.iter().any(|peer| peer.modes.contains(&mode));
        let matters = |place: &usize| {
            let mode = ALL_MODES[*place];
            mode == JUDGED || is_compared(mode)
        };
        Self { all, short, most, peers, open: (0..ALL_MODES.len()).filter(matters).collect() }
    }

    /// The modes that have their turn in this round, none if it is one too many.
    fn modes(&mut self, round: usize, outcomes: &Outcomes) -> Vec<usize> {
        if round.is_multiple_of(FIRST_LOOK) && (round / FIRST_LOOK).is_power_of_two() {
            self.open = undecided(outcomes, self.peers);
        }
        let is_short = || outcomes.iter().any(Outcome::is_short);
        let wants_all = round < self.all || (round < self.short && is_short());
        let wants = |place: &usize| wants_all || (round < self.most && self.open.contains(place));
        // Every round begins with another one, so that what changes meanwhile meets all alike.
        let order = (0..ALL_MODES.len()).map(|place| (place + round) % ALL_MODES.len());
        order.filter(wants).collect()
    }
}

/// By mode.
type Outcomes = [Outcome; ALL_MODES.len()];

/// What came of one mode.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// What the program said, run by run.
    readings: Vec<Vec<Reading>>,
    watched: Vec<Watched>,
}

/// Who sends: the nodes of both clusters.
const SENDERS: [&str; 2] = ["a", "b"];

/// At every delay. What fails is told, and the rest goes on.
pub(crate) fn measure(session: &mut Session, trial: &Trial<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for delay_ms in session.delays(&[0, 10], &[0, 2, 5, 10]) {
        let nodes = trial.ranks[0].min(MOST_NODES);
        let found = compare(session, trial, Site { nodes, delay_ms, ..SITE });
        figures.extend(found.unwrap_or_default());
    }
    figures
}

fn compare(session: &mut Session, trial: &Trial<'_>, site: Site) -> Option<Vec<Figure>> {
    let mut outcomes = ALL_MODES.map(|_| Outcome::default());
    let name = format!("{}, {} ms", trial.name, site.delay_ms);
    let conditions = Conditions::at(session, &name, &site)?;
    let mut rounds = Rounds::of(session, trial.peers);
    for round in 0.. {
        let modes = rounds.modes(round, &outcomes);
        if modes.is_empty() {
            break;
        }
        for place in modes {
            let (mode, outcome) = (ALL_MODES[place], &mut outcomes[place]);
            let name = format!("{name}: {}", mode.name());
            session.part(&name, |session| run(session, trial, &site, mode, outcome));
        }
    }
    session
        .part(&format!("{name}: pictures"), |session| draw(session, trial.name, &site, &outcomes));
    Some(figures(trial, &site, &conditions, &outcomes))
}

/// The judged mode and those that it is compared to by which its runs do not tell yet whether a bound is met; none where all are told, or
/// one of these that is missed.
fn undecided(outcomes: &Outcomes, peers: Peers) -> BTreeSet<usize> {
    let kinds = 0..kinds(outcomes);
    let pairs = kinds.flat_map(|kind| peers.iter().map(move |peer| (kind, peer)));
    pairs.flat_map(|(kind, peer)| untold(outcomes, kind, peer)).collect()
}

/// The same of one figure and one peer.
fn untold(outcomes: &Outcomes, kind: usize, peer: &Peer) -> Vec<usize> {
    let Some(judged) = place_of(JUDGED) else { return Vec::new() };
    let Some(reading) = outcomes[judged].reading(kind) else { return Vec::new() };
    let bound = peer.bound(reading.unit, JUDGED, says_speed(outcomes));
    let ours = outcomes[judged].values(kind);
    let against = |place: usize| {
        let values = outcomes[place].values(kind);
        (place, Figure::new("", reading.unit, &ours, peer.whom, &values, bound))
    };
    let places = peer.modes.iter().filter_map(|mode| place_of(*mode));
    let figures: Vec<_> = places.map(against).collect();
    if figures.iter().any(|(_, figure)| figure.met == Some(false) && figure.is_told()) {
        return Vec::new();
    }
    let open = figures.iter().filter(|(_, figure)| figure.met.is_some() && !figure.is_told());
    open.flat_map(|(place, _)| [*place, judged]).collect()
}

fn run(
    session: &mut Session,
    trial: &Trial<'_>,
    site: &Site,
    mode: Mode,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let site = mode.site(site);
    let (route, file) = (Route::Site(site), session.files().place("job.toml"));
    let settings = mode.settings(&site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let job = Job {
        mpi: &trial.mpi,
        file: &file,
        program: trial.program,
        arguments: trial.arguments,
        ranks: trial.ranks,
        settings: &settings,
        stated: Stated::ALL,
        variables: trial.variables,
        directory: trial.directory,
        relayed: None,
    };
    let watch = session.lab(route)?.watch(&SENDERS)?;
    let began = Instant::now();
    let said = carry_out(session, route, &job, trial.enough)?;
    let took = began.elapsed();
    let watched = session.lab(route)?.watched(&watch)?;
    // Both or neither: a reading and what was seen of its run belong together.
    outcome.readings.push((trial.read)(&said, took)?);
    outcome.watched.push(watched);
    if trial.enough.is_some() {
        // What still runs of it.
        session.drop_lab();
    }
    Ok(())
}

/// Of each mode the run that took as long as most, where pictures are wanted.
fn draw(session: &Session, name: &str, site: &Site, outcomes: &Outcomes) -> Result<(), BenchError> {
    let Some(directory) = &session.wishes.pictures else { return Ok(()) };
    let spec = Route::Site(*site).spec("pictures")?;
    for (mode, outcome) in ALL_MODES.into_iter().zip(outcomes) {
        let Some(run) = outcome.typical() else { continue };
        Scene { name, site, mode }.draw_run(directory, &spec, &run.rows)?;
    }
    Ok(())
}

fn carry_out(
    session: &mut Session,
    route: Route,
    job: &Job<'_>,
    enough: Option<Enough<'_>>,
) -> Result<String, BenchError> {
    let until = session.until()?;
    let lab = session.lab(route)?;
    let Some(Enough { file, text }) = enough else { return Ok(lab.job(job, until)?.out) };
    // An earlier run's must not be taken for this one's.
    let _ = std::fs::remove_file(file);
    let written = || std::fs::read_to_string(file).unwrap_or_default();
    lab.start_job(job)?.until(|| written().contains(text), until)?;
    Ok(written())
}

/// Of every mode by the first peer, in the table of programs; and of the judged one by the others, in lines that say what it must be.
fn figures(
    trial: &Trial<'_>,
    site: &Site,
    conditions: &Conditions,
    outcomes: &Outcomes,
) -> Vec<Figure> {
    let [first, others @ ..] = trial.peers else { return Vec::new() };
    let mut figures = Vec::new();
    for kind in 0..kinds(outcomes) {
        let part =
            outcomes.iter().find_map(|outcome| outcome.reading(kind)).map_or("", |it| it.name);
        let row = [trial.name, part].join(if part.is_empty() { "" } else { " " });
        let row = format!("{row}, {} ms", site.delay_ms);
        for (mode, outcome) in ALL_MODES.into_iter().zip(outcomes) {
            let title = format!("{row}: {}", mode.name());
            let Some(figure) = compared(title, outcomes, kind, mode, first) else { continue };
            if figure.unit != "s" {
                figures.push(figure);
                continue;
            }
            let network = outcome.network(conditions, mode, site);
            let cell = Cell { row: row.clone(), column: mode.name() };
            figures.push(figure.in_cell(cell).with_network(network));
        }
        figures.extend(others.iter().filter_map(|peer| {
            let title = format!("{row}: {}, beside {}", JUDGED.name(), peer.whom);
            compared(title, outcomes, kind, JUDGED, peer)
        }));
    }
    figures
}

/// One figure of a mode by a peer, if it has it.
fn compared(
    title: String,
    outcomes: &Outcomes,
    kind: usize,
    mode: Mode,
    peer: &Peer,
) -> Option<Figure> {
    let outcome = &outcomes[place_of(mode)?];
    let (unit, values) = (outcome.reading(kind)?.unit, outcome.values(kind));
    let bound = peer.bound(unit, mode, says_speed(outcomes));
    let (best, all) = (peer.best(outcomes, kind), peer.samples(outcomes, kind));
    Some(Figure::new(title, unit, &values, peer.whom, &best, bound).among(&values, &all))
}

/// Where a mode has its outcome.
fn place_of(wanted: Mode) -> Option<usize> {
    ALL_MODES.iter().position(|mode| *mode == wanted)
}

/// How many figures a program says: as many in every mode; one that failed said nothing.
fn kinds(outcomes: &Outcomes) -> usize {
    let kinds = outcomes.iter().filter_map(|outcome| outcome.readings.first()).map(Vec::len);
    kinds.max().unwrap_or(0)
}

/// Whether it says its speed: of itself the same as its time, but not rounded to hundredths of a second, of which some take thirty.
fn says_speed(outcomes: &Outcomes) -> bool {
    let mut readings = outcomes.iter().flat_map(|outcome| &outcome.readings).flatten();
    readings.any(|reading| reading.unit == SPEED)
}

impl Peer {
    /// What a figure of this mode must be.
    fn bound(&self, unit: &str, mode: Mode, says_speed: bool) -> Bound {
        match unit {
            SPEED if mode == JUDGED => Bound::RatioAtLeast(self.least),
            "s" if mode == JUDGED && !says_speed => Bound::RatioAtMost(self.most),
            _ => Bound::Told,
        }
    }

    /// The samples of the mode that is compared to: that of the least median, or of the highest where more is better.
    fn best(&self, outcomes: &Outcomes, kind: usize) -> Vec<f64> {
        let reading = outcomes.iter().find_map(|outcome| outcome.reading(kind));
        let is_seconds = reading.is_some_and(|reading| reading.unit == "s");
        let mut samples = self.samples(outcomes, kind);
        samples.sort_by(|a, b| median(a).total_cmp(&median(b)));
        let chosen = if is_seconds { samples.first() } else { samples.last() };
        chosen.cloned().unwrap_or_default()
    }

    /// The samples of each mode of which one is the best.
    fn samples(&self, outcomes: &Outcomes, kind: usize) -> Vec<Vec<f64>> {
        let mine = ALL_MODES.iter().zip(outcomes).filter(|(mode, _)| self.modes.contains(mode));
        let samples = mine.map(|(_, outcome)| outcome.values(kind));
        samples.filter(|samples| !samples.is_empty()).collect()
    }
}

impl Outcome {
    fn reading(&self, kind: usize) -> Option<&Reading> {
        self.readings.first()?.get(kind)
    }

    fn values(&self, kind: usize) -> Vec<f64> {
        let of = |run: &Vec<Reading>| run.get(kind).map(|reading| reading.value);
        self.readings.iter().filter_map(of).collect()
    }

    /// What was seen of the run whose first figure is nearest to the median.
    fn typical(&self) -> Option<&Watched> {
        self.watched.get(nearest_to_median(&self.values(0))?)
    }

    /// Whether it says something that took little time.
    fn is_short(&self) -> bool {
        let mut readings = self.readings.iter().flatten();
        readings.any(|reading| reading.unit == "s" && reading.value < SHORT_SECONDS)
    }

    fn network(&self, conditions: &Conditions, mode: Mode, site: &Site) -> Network {
        conditions.network_of(mode, &self.watched, 2 * site.nodes, site.link_mbit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watched::Counters;

    fn outcome(seconds: &[f64]) -> Outcome {
        let run = |s: &f64| vec![Reading::seconds("", *s), Reading::other("Mop/s", 10.0 / s)];
        Outcome { readings: seconds.iter().map(run).collect(), ..Outcome::default() }
    }

    /// Runs that differ as runs do.
    fn timed(by: f64) -> Outcome {
        let samples = [0.9, 1.0, 1.1, 1.05, 0.95].map(|seconds| Reading::seconds("", seconds * by));
        Outcome { readings: samples.map(|it| vec![it]).to_vec(), ..Outcome::default() }
    }

    /// At 10 ms, of a program that is called so.
    fn figures_of(name: &str, peers: Peers, outcomes: &Outcomes) -> Vec<Figure> {
        let trial = Trial {
            name,
            mpi: crate::programs::KNOWN[0].clone(),
            program: Path::new(""),
            arguments: &[],
            ranks: [4; 2],
            variables: &[],
            directory: None,
            enough: None,
            read: &|_, _| Ok(Vec::new()),
            peers,
        };
        figures(&trial, &Site { delay_ms: 10, ..SITE }, &Conditions::none(), outcomes)
    }

    #[test]
    fn what_is_short_is_measured_again_and_every_round_begins_with_another_mode() {
        assert!(outcome(&[3.5, 0.1]).is_short() && !outcome(&[2.0]).is_short());
        assert!(!Outcome::default().is_short());
        // More is better there: that it is small says nothing of time.
        let other =
            Outcome { readings: vec![vec![Reading::other("Mop/s", 0.1)]], ..Outcome::default() };
        assert!(!other.is_short());
        let mut rounds = Rounds::new(1, 5, 0, OF_ALL);
        let short = ALL_MODES.map(|_| outcome(&[0.1]));
        let firsts: Vec<_> = (0..5).map(|round| rounds.modes(round, &short)[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
        assert_eq!(rounds.modes(2, &short), [2, 3, 4, 0, 1]);
        assert!(rounds.modes(5, &short).is_empty());
        assert!(rounds.modes(1, &ALL_MODES.map(|_| outcome(&[3.0]))).is_empty());
    }

    #[test]
    fn what_runs_do_not_tell_is_measured_on_as_long_as_that_is_wished() {
        let [off, fair, half, auto] = [0, 2, 3, 4];
        assert_eq!((ALL_MODES[off], ALL_MODES[fair]), (Mode::Off, Mode::Static));
        assert_eq!((ALL_MODES[half], ALL_MODES[auto]), (Mode::Half, Mode::Auto));
        let modes =
            |by: [f64; 5], round| Rounds::new(1, 5, 30, OF_ALL).modes(round, &by.map(timed));
        // Both faster ones are as fast as it; by the slow one all is told, and of tbf nobody asks.
        assert_eq!(modes([1.0, 1.0, 1.02, 2.0, 1.0], 10), [off, fair, auto]);
        assert_eq!(modes([1.0, 1.0, 1.5, 2.0, 1.0], 20), [off, auto]);
        assert!(modes([1.0, 1.0, 1.02, 2.0, 1.0], 30).is_empty());
        // It is clearly faster than all; clearly slower than one.
        assert!(modes([2.0, 1.0, 2.0, 2.0, 1.0], 10).is_empty());
        assert!(modes([1.0, 1.0, 0.5, 2.0, 1.0], 10).is_empty());
        // Before the first look all of them matter, and between two those that did.
        let mut rounds = Rounds::new(1, 5, 30, OF_ALL);
        let few = ALL_MODES.map(|_| outcome(&[3.0]));
        assert_eq!(rounds.modes(2, &few), [fair, half, auto, off]);
        assert_eq!(rounds.modes(10, &[1.0, 1.0, 1.5, 2.0, 1.0].map(timed)), [off, auto]);
        assert_eq!(rounds.modes(11, &[2.0, 1.0, 2.0, 2.0, 1.0].map(timed)), [auto, off]);
        assert!(rounds.modes(20, &[2.0, 1.0, 2.0, 2.0, 1.0].map(timed)).is_empty());
    }

    #[test]
    fn the_run_that_took_as_long_as_most_is_drawn() {
        let seen = |packets| {
            let counters = Counters { packets, ..Counters::default() };
            Watched { counters, ..Watched::default() }
        };
        let watched = [7, 8, 9].map(seen).to_vec();
        let outcome = Outcome { watched, ..outcome(&[4.0, 1.0, 2.0]) };
        assert_eq!(outcome.typical().map(|run| run.counters.packets), Some(9));
        assert!(Outcome::default().typical().is_none());
    }

    #[test]
    fn each_mode_is_compared_to_the_best_of_three() {
        // Neither tbf nor auto is a reference.
        let outcomes = [&[4.0][..], &[1.0], &[2.0, 2.2, 2.1], &[3.0], &[1.05]].map(outcome);
        assert_eq!(BEST.best(&outcomes, 0), [2.0, 2.2, 2.1]);
        assert_eq!(median(&BEST.best(&outcomes, 1)), 10.0 / 2.1);
        let figures = figures_of("ft", OF_ALL, &outcomes);
        assert_eq!(figures.len(), 10);
        let auto = figures.iter().find(|figure| figure.name == "ft, 10 ms: auto").unwrap();
        assert!((auto.ratio - 0.5).abs() < 1e-9 && auto.cell.is_some() && auto.network.is_some());
        // Of all modes only that one is judged, by its speed if it says that.
        let judged = |figures: &[Figure]| -> Vec<_> {
            let judged = figures.iter().filter(|figure| figure.met == Some(true));
            judged.map(|figure| (figure.name.clone(), figure.unit)).collect()
        };
        assert_eq!(judged(&figures), [("ft, 10 ms: auto".to_owned(), SPEED)]);
        let seconds = outcomes.clone().map(|mut outcome| {
            outcome.readings.iter_mut().for_each(|run| run.truncate(1));
            outcome
        });
        assert_eq!(
            judged(&figures_of("ft", OF_ALL, &seconds)),
            [("ft, 10 ms: auto".to_owned(), "s")]
        );
        assert!(figures.iter().filter(|figure| figure.cell.is_none()).all(|f| f.unit == "Mop/s"));
    }

    #[test]
    fn what_never_collides_is_held_to_what_is_not_paced_in_a_line_of_its_own() {
        // Beside the best of all nothing changes; static is slow, and off not the best.
        let beside = |off: f64, auto: f64| {
            let seconds = [off, 1.0, 3.0, 1.0, auto];
            let outcomes = seconds.map(|s| Outcome {
                readings: vec![vec![Reading::seconds("", s)]],
                ..Outcome::default()
            });
            let figures = figures_of("pair", WITHOUT_COLLISIONS, &outcomes);
            assert_eq!(figures.len(), ALL_MODES.len() + 1);
            let [.., by_best, by_off] = figures.as_slice() else { unreachable!() };
            assert_eq!(by_off.name, "pair, 10 ms: auto, beside off");
            assert_eq!((by_off.against.whom.as_str(), by_off.cell.as_ref()), ("off", None));
            let text = crate::figure::table(&figures).unwrap().to_text();
            assert!(text.contains("× 1.01 at most"), "{text}");
            (by_best.met, by_off.met)
        };
        assert_eq!(beside(1.0, 1.005), (Some(true), Some(true)));
        assert_eq!(beside(1.0, 1.015), (Some(true), Some(false)));
        assert_eq!(beside(1.1, 1.105), (Some(false), Some(true)));
        assert_eq!(figures_of("ft", OF_ALL, &ALL_MODES.map(|_| timed(1.0))).len(), ALL_MODES.len());
    }

    #[test]
    fn runs_tell_of_each_peer() {
        let [off, fair, auto] = [Mode::Off, Mode::Static, JUDGED].map(|it| place_of(it).unwrap());
        let open =
            |by: [f64; 5], peers| undecided(&by.map(timed), peers).into_iter().collect::<Vec<_>>();
        // Clearly slower than B/N; by off alone nothing is told.
        assert!(open([1.0, 1.0, 0.5, 2.0, 1.0], OF_ALL).is_empty());
        assert_eq!(open([1.0, 1.0, 0.5, 2.0, 1.0], WITHOUT_COLLISIONS), [off, auto]);
        assert_eq!(open([2.0, 1.0, 1.0, 2.0, 1.0], WITHOUT_COLLISIONS), [fair, auto]);
        assert!(open([2.0, 1.0, 2.0, 2.0, 1.0], WITHOUT_COLLISIONS).is_empty());
    }
}
