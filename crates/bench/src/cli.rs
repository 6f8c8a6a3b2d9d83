//! The command line: `gridmpi bench ...`.
//!
//! [`run`] must be called while the process has one thread, as all of `gridmpi lab` wants it.

use crate::error::BenchError;
use crate::figure::{self, Figure};
use crate::group::{Group, When};
use crate::programs::Fitness;
use crate::rates::programs::own::Own;
use crate::relays::{crowd, ends};
use crate::session::{self, Limits, Session, Wishes};
use crate::{bound, grid, network, p2p, rates, relays};
use clap::{Parser, Subcommand};
use gridmpi_report::table::Table;
use gridmpi_report::terminal::{print, tell};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure GridMPI side by side with what it is compared to
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Calls, latency, goodput, processor time, overlap and memory of point-to-point messages
    ///
    /// In labs on this machine, against the MPI alone and blocking sockets. The exit code
    /// is 1 if anything could not be measured; that is told, and the rest is measured.
    P2p(Options),

    /// Bursts of 8 + 8 nodes over a link with a small buffer, paced and not; exactness of rates; real programs
    ///
    /// In labs on this machine, against what bytes, bandwidth and delay allow, a token bucket, and the best of other ways.
    /// Beside each time stands what the network did: packets dropped, segments sent again, retransmission timeouts, how
    /// much of the link was used, and how TCP was set. The exit code is 1 if anything could not be measured;
    /// that is told, and the rest is measured.
    Rates(RatesOptions),

    /// Relays: what they add to latency, what one carries, several at once, what TLS between processes costs, and thousands of processes
    ///
    /// In labs on this machine, against no relay, and against HAProxy and nginx where these are installed. The exit code is 1
    /// if anything could not be measured; that is told, and the rest is measured.
    Relays(RelaysOptions),

    /// The end of a path that is dialled
    #[command(hide = true)]
    RelaysFar(ends::Far),

    /// The end of a path that measures
    #[command(hide = true)]
    RelaysNear(ends::Near),

    /// All processes of a cluster
    #[command(hide = true)]
    RelaysCrowd(crowd::Crowd),

    /// A command that ends with the process that starts it
    #[command(hide = true)]
    Bound(bound::Args),
}

#[derive(Debug, Default, clap::Args)]
struct Options {
    /// Less of everything: ends within 50 s (rates: 70 s, relays: 60 s; what is measured only if it is named takes longer)
    #[arg(long)]
    quick: bool,

    /// Write the figures to this file, as a JSON array of objects
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Measure only these groups (p2p: inside, latency, cable, fast, slow, overlap, memory; rates: pairs, lone, all, both, row,
    /// faster, pause, elsewhere, collectives, incast, exactness, churn, leftover, wrong, grants, short, programs, npb, run; relays: latency, throughput, trunks, failover,
    /// tls, scale)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// The MPI of both clusters [default: the first that is installed and fit]
    #[arg(long, value_parser = ["mpich", "openmpi"])]
    mpi: Option<String>,

    /// The exit code is 1 too if a bound is not met
    #[arg(long)]
    strict: bool,

    /// Print the table in Markdown
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, clap::Args)]
struct RatesOptions {
    #[command(flatten)]
    common: Options,

    /// Measure real programs, as --only programs does: 4 + 4 nodes, three times each at 0, 2, 5 and 10 ms (an hour and a half); with
    /// --quick once each at 0 and 10 ms; five times what takes less than two seconds
    #[arg(long)]
    programs: bool,

    /// Of these, only those with this text in their names; implies --programs
    #[arg(long, value_name = "TEXT")]
    program: Option<String>,

    /// Run each program so often, all modes by turns [default: three times, --quick once; five times what takes less than two seconds].
    /// Where runs differ by 3 %, medians of 25 tell 1 %
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// After these go on with `auto` and those that it is held against, as long as 95 % ranges of their ratios do not tell whether its
    /// bound is met, until each program has been run in N rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    until_told: Option<u32>,

    /// Measure at these delays only, one way, up to 1000 (exactness, leftover and grants: always at 10 ms)
    #[arg(long, value_name = "MS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=1000))]
    delay: Vec<u32>,

    /// Measure the NAS Parallel Benchmarks in this directory (BT CG EP FT IS LU MG SP: `ft.A.x`, `bt.S.16`), built with the
    /// MPI of both clusters
    #[arg(long, value_name = "DIR")]
    npb: Option<PathBuf>,

    /// Measure this program of yours, built with the MPI of both clusters, in every mode; what follows `--` are its arguments. Its time
    /// is what it prints last as `@seconds S`, or else that of the whole run, launching included. A run may take five minutes
    #[arg(long, value_name = "PROGRAM")]
    run: Option<PathBuf>,

    /// So many ranks of that, one half in each cluster, on up to 8 + 8 nodes: an even number up to 16, or a multiple of 16
    #[arg(long, value_name = "N", default_value_t = 8, requires = "run", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,

    /// What that program is given
    #[arg(last = true, value_name = "ARGUMENTS", requires = "run")]
    arguments: Vec<String>,

    /// Draw a burst of each pattern, place and mode, and a run of each program, into this directory, millisecond by millisecond; of a
    /// run of more than a second the busiest one, and the whole in another picture
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
}

impl RatesOptions {
    /// What both suites have, and the rest.
    fn split(self) -> (Options, Wishes) {
        let Self { mut common, programs, program, rounds, until_told, .. } = self;
        let Self { delay, npb, run, ranks, arguments, pictures, .. } = self;
        let wants_programs = programs || program.is_some();
        let named = [("programs", wants_programs), ("npb", npb.is_some()), ("run", run.is_some())];
        let named = named.iter().filter(|(name, is)| *is && !common.only.iter().any(|o| o == name));
        let named: Vec<_> = named.map(|(name, _)| (*name).to_owned()).collect();
        common.only.extend(named);
        let [rounds, most_rounds] = [rounds, until_told].map(|it| it.map(|it| it as usize));
        let own = run.map(|program| Own { program, arguments, ranks });
        let wishes =
            Wishes { npb, own, pictures, program, rounds, most_rounds, delays: delay, case: None };
        (common, wishes)
    }
}

#[derive(Debug, clap::Args)]
struct RelaysOptions {
    #[command(flatten)]
    common: Options,

    /// Of the cases with several relays (trunks), only those with this text in their names (`all to all, 8 relays of 20 Mbit/s,
    /// 10 ms`), with twice as many samples; implies --only trunks
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

impl RelaysOptions {
    /// What both suites have, and the rest.
    fn split(self) -> (Options, Wishes) {
        let Self { mut common, case } = self;
        if case.is_some() && common.only.iter().all(|name| name != "trunks") {
            common.only.push("trunks".to_owned());
        }
        (common, Wishes { case, ..Wishes::default() })
    }
}

/// Does what the command line says.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    let result = match args.suite {
        Suite::P2p(options) => {
            measure(&p2p::GROUPS, (Fitness::Any, session::QUICK), &options, Wishes::default())
        }
        Suite::Rates(options) => {
            let (options, wishes) = options.split();
            measure(
                &rates::GROUPS,
                (Fitness::OverNodes, session::QUICK_OVER_NODES),
                &options,
                wishes,
            )
        }
        Suite::Relays(options) => {
            let (options, wishes) = options.split();
            measure(&relays::GROUPS, (Fitness::Any, session::QUICK_RELAYS), &options, wishes)
        }
        Suite::RelaysFar(args) => return ends::end(ends::far(&args)),
        Suite::RelaysNear(args) => return ends::end(ends::near(&args)),
        Suite::RelaysCrowd(args) => return ends::end(crowd::play(&args)),
        Suite::Bound(args) => return ends::end(Err(args.turn_into())),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            tell(format_args!("gridmpi bench: {error}"));
            ExitCode::from(2)
        }
    }
}

/// What the environment sets counts in all that is measured, but where that sets it otherwise: only names are told, since values may be secrets.
fn tell_settings() {
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let set: Vec<_> = names.filter(|name| name.starts_with("GRIDMPI_")).collect();
    if !set.is_empty() {
        tell(format_args!(
            "gridmpi bench: set here, so what is measured has it, too: {}",
            set.join(", ")
        ));
    }
}

/// Whether all is as it should be.
fn measure(
    groups: &[Group],
    (fitness, quick): (Fitness, Limits),
    options: &Options,
    wishes: Wishes,
) -> Result<bool, BenchError> {
    check_names(groups, &options.only)?;
    // A file that cannot be written is better known before the run than after it.
    options.json.as_deref().map_or(Ok(()), |path| write_json(path, &[]))?;
    wishes.pictures.as_deref().map_or(Ok(()), make_directory)?;
    let limits = limits(groups, quick, options);
    tell_settings();
    let mut session = Session::new(options.mpi.as_deref(), fitness, options.quick, limits)?;
    session.wishes = wishes;
    let mut figures = Vec::new();
    let mut is_whole = true;
    for group in groups.iter().filter(|group| is_wanted(group, options)) {
        tell(format_args!("gridmpi bench: {}: {}", group.name, group.about));
        match group.run(&mut session) {
            Ok(found) => is_whole &= keep(group.name, found, &mut figures),
            Err(error) => {
                is_whole = false;
                tell(format_args!("gridmpi bench: {}: not measured: {error}", group.name));
            }
        }
    }
    session.drop_lab();
    let missed = figures.iter().filter(|figure| figure.met == Some(false)).count();
    let met = format!("{}, with {}\n", summary(&figures), session.mpi.name);
    // What cannot be printed is at least in the file.
    let printed = print(&(tables(&figures, options.markdown) + &met));
    options.json.as_deref().map_or(Ok(()), |path| write_json(path, &figures))?;
    printed.map_err(BenchError::Unprinted)?;
    Ok(is_whole && !session.has_gaps && !(options.strict && missed > 0))
}

/// How many bounds are met, and of how many that is not sure.
fn summary(figures: &[Figure]) -> String {
    let count = |wanted: &dyn Fn(&Figure) -> bool| figures.iter().filter(|it| wanted(it)).count();
    let judged = count(&|figure| figure.met.is_some());
    let met = count(&|figure| figure.met == Some(true));
    let doubtful = |is_met| count(&|it| it.met == Some(is_met) && it.is_doubtful());
    let doubt = match (doubtful(true), doubtful(false)) {
        (0, 0) => String::new(),
        (met, missed) => {
            format!(" ({met} of these and {missed} of the others by less than runs differ)")
        }
    };
    format!("{met} of {judged} bounds met{doubt}")
}

/// Keeps what was measured and tells what was not; whether that was nothing.
fn keep(group: &str, found: Vec<Figure>, figures: &mut Vec<Figure>) -> bool {
    let (measured, missing): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|figure| figure.is_measured);
    for figure in &missing {
        let Figure { name, against, .. } = figure;
        let whom = &against.whom;
        tell(format_args!(
            "gridmpi bench: {group}: not measured: {name}: no samples of it, or of what it is held against ({whom})"
        ));
    }
    figures.extend(measured);
    missing.is_empty()
}

fn tables(figures: &[Figure], is_markdown: bool) -> String {
    let text = |table: Table| if is_markdown { table.to_markdown() } else { table.to_text() };
    let tables = [figure::table(figures), grid::table(figures), network::table(figures)];
    tables.into_iter().flatten().map(text).collect::<Vec<_>>().join("\n")
}

/// What is not measured by default has no time limit that suits all of it.
fn limits(groups: &[Group], quick: Limits, options: &Options) -> Limits {
    let mut wanted = groups.iter().filter(|group| is_wanted(group, options));
    let is_whole = !options.quick || wanted.any(|group| group.when != When::Always);
    if is_whole { session::WHOLE } else { quick }
}

fn is_wanted(group: &Group, options: &Options) -> bool {
    match group.when {
        _ if !options.only.is_empty() => options.only.iter().any(|name| name == group.name),
        When::Always => true,
        When::Whole => !options.quick,
        When::Named => false,
    }
}

fn check_names(groups: &[Group], only: &[String]) -> Result<(), BenchError> {
    let is_unknown = |name: &&String| groups.iter().all(|group| group.name != name.as_str());
    only.iter().find(is_unknown).map_or(Ok(()), |name| {
        let known: Vec<_> = groups.iter().map(|group| group.name).collect();
        Err(BenchError::Output(format!("nothing is named `{name}`: {}", known.join(", "))))
    })
}

fn make_directory(path: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(path).map_err(|error| {
        let what = format!("cannot make the directory {}", path.display());
        BenchError::File { what, error }
    })
}

fn write_json(path: &Path, figures: &[Figure]) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(figures).map_err(std::io::Error::from);
    let written = text.and_then(|text| std::fs::write(path, text + "\n"));
    written.map_err(|error| {
        let what = format!("cannot write {}", path.display());
        BenchError::File { what, error }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Bound;

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        assert!(check_names(&p2p::GROUPS, &["latency".to_owned()]).is_ok());
        assert!(check_names(&rates::GROUPS, &["pairs".to_owned()]).is_ok());
        assert!(check_names(&relays::GROUPS, &["trunks".to_owned()]).is_ok());
        let text = check_names(&p2p::GROUPS, &["lateness".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("`lateness`") && text.contains("latency"), "{text}");
    }

    #[test]
    fn what_is_in_doubt_is_counted() {
        let samples = |by: f64| [0.9, 1.0, 1.1, 1.05, 0.95].map(|value| value * by);
        let bound = Bound::RatioAtMost(1.02);
        let figure = |by| Figure::new("f", "s", &samples(by), "v", &samples(1.0), bound);
        assert_eq!(summary(&[0.5, 2.0].map(figure)), "1 of 2 bounds met");
        let all = [0.5, 1.0, 1.1, 2.0].map(figure);
        let text = "2 of 4 bounds met (1 of these and 1 of the others by less than runs differ)";
        assert_eq!(summary(&all), text);
    }

    #[test]
    fn a_figure_without_samples_is_a_gap() {
        let figure = |ours: &[f64]| Figure::new("f", "ms", ours, "v", &[1.0], Bound::AtMost(5.0));
        let mut kept = Vec::new();
        assert!(keep("g", vec![figure(&[1.0])], &mut kept));
        assert!(!keep("g", vec![figure(&[]), figure(&[2.0])], &mut kept));
        assert_eq!(kept.iter().map(|figure| figure.ours).collect::<Vec<_>>(), [1.0, 2.0]);
    }

    #[test]
    fn a_named_group_is_measured_alone() {
        let wanted = |only: &[&str], quick| {
            let only = only.iter().map(|name| (*name).to_owned()).collect();
            let options = Options { quick, only, ..Options::default() };
            let groups = rates::GROUPS.iter().filter(|group| is_wanted(group, &options));
            groups.map(|group| group.name).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&["exactness"], true), ["exactness"]);
        assert!(wanted(&[], false).contains(&"exactness"));
        assert!(!wanted(&[], true).contains(&"exactness"));
    }
}
