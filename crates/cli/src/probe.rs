//! `gridmpi probe`.

use crate::by_hand::{Failure, Hand, bad, job_file, targets};
use crate::output::{complain, print};
use crate::own_program;
use gridmpi_bootstrap::line::Pass;
use gridmpi_probe::{Conductor, Here, Options, PathReport, ProbeError};
use std::path::Path;
use std::time::Duration;

const LONG: &str = "\
Measure what the path between two clusters carries: round-trip time, bandwidth each way, what is lost.

With a job file, a node is started on every host of every cluster by the cluster's own launcher, and
each pair of clusters is measured: all nodes of one sending at once, and one alone. By hand, one side
listens and the other names it; several listening hosts are measured at once.

The path is filled for a second or two in each direction: other traffic will notice.";

const AFTER: &str = "\
Examples:
  Every link of a job; prints the lines to put into the job file:
      gridmpi probe job.toml

  By hand; the listening side shows the token (or writes it into --token-file):
      site-b $ gridmpi probe --listen :7001 --token-file token
      site-a $ GRIDMPI_TOKEN=$(cat token) gridmpi probe b1.site-b.example:7001

  Two nodes at the far end, with one token:
      b1 $ gridmpi probe --listen :7001 --token-file token
      b2 $ GRIDMPI_TOKEN=$(cat token) gridmpi probe --listen :7001
      a1 $ GRIDMPI_TOKEN=$(cat token) gridmpi probe b1:7001 b2:7001

Only the listening side needs an open port. Bandwidths are those of whole frames on the link (1538
bytes for 1448 of TCP's), as the job file has them; goodput is what programs see.

Exit codes: 0; 1 if the path could not be measured, or the figures not be written; 2 if it cannot be
started as described.";

/// Measure the path between clusters
#[derive(clap::Args)]
#[command(long_about = LONG, after_long_help = AFTER)]
pub(crate) struct Args {
    /// Job file, or where the other side listens
    #[arg(value_name = "JOB.toml | HOST:PORT", required_unless_present = "listen")]
    targets: Vec<String>,

    #[command(flatten)]
    hand: Hand,

    /// Time for each transfer whose figure does not settle sooner
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=15))]
    seconds: u32,

    /// About how many connections are filled at once in all
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,

    /// Congestion control of the connections [default: the system's]
    #[arg(long, value_name = "NAME", value_parser = congestion)]
    congestion: Option<String>,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

fn congestion(name: &str) -> Result<String, String> {
    let is_name = (1..16).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    is_name.then(|| name.to_owned()).ok_or_else(|| "no name of a congestion control".to_owned())
}

pub(crate) fn run(args: &Args) -> i32 {
    if let Err(problem) = args.hand.token_is_for_both_ends(&args.targets) {
        complain(problem);
        return gridmpi_job::BAD_JOB;
    }
    let done = match (&args.hand.listen, job_file(&args.targets)) {
        (Some(listen), _) => {
            args.hand.serve(*listen, "probe", "measured; the figures are").map(|()| true)
        }
        (None, Some(path)) => job(args, path).map(|reports| show(args, &reports, true)),
        (None, None) => by_hand(args).map(|reports| show(args, &reports, false)),
    };
    match done {
        Ok(is_taken) => i32::from(!is_taken),
        Err((problems, code)) => {
            problems.iter().for_each(complain);
            code
        }
    }
}

fn failed(error: &ProbeError) -> Failure {
    (vec![error.to_string()], 1)
}

fn options(args: &Args) -> Options {
    Options {
        limit: Duration::from_secs(args.seconds.into()),
        connections: args.connections,
        congestion: args.congestion.clone(),
    }
}

fn job(args: &Args, path: &Path) -> Result<Vec<PathReport>, Failure> {
    let spec = crate::run::read(path).map_err(bad)?;
    let (pairs, others) = gridmpi_job::measurable(&spec);
    for name in others {
        complain(format!(
            "cluster `{name}` is started by hand: measure its links by `gridmpi probe --listen` there and \
             `gridmpi probe HOST:PORT` here"
        ));
    }
    if pairs.is_empty() {
        let problem = "no two clusters of this job can be started from here: nothing to measure";
        return Err(bad(problem.to_owned()));
    }
    let measured = gridmpi_job::measure(&spec, &pairs, &own_program(), &options(args));
    measured.map_err(|problems| (problems, 1))
}

fn by_hand(args: &Args) -> Result<Vec<PathReport>, Failure> {
    let targets = targets(&args.targets)?;
    let secret = gridmpi_job::read_token(args.hand.token_file.as_deref()).map_err(bad)?;
    let mut watch = || Ok(());
    let conductor = Conductor::by_hand(&targets, &Pass::from(&secret), Here::default(), &mut watch);
    let mut conductor = conductor.map_err(|error| failed(&error))?;
    let report = conductor.measure_by_hand(&options(args)).map_err(|error| failed(&error))?;
    conductor.leave();
    Ok(vec![report])
}

/// False if the figures could not be written, which has been said.
fn show(args: &Args, reports: &[PathReport], is_job: bool) -> bool {
    if args.json {
        return print(&format!("{}\n", gridmpi_probe::json(reports)));
    }
    let (table, lines) = (gridmpi_probe::table(reports), gridmpi_probe::job_lines(reports));
    let place = if is_job { "" } else { " (with the clusters' own names)" };
    print(&format!("{table}\nFor the job file{place}:\n\n{}\n", lines.trim_end()))
}
