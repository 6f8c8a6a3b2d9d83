//! `gridmpi run`.

use crate::output::complain;
use crate::{own_program, text};
use gridmpi_bootstrap::env::parse_switch;
use gridmpi_bootstrap::{ClusterName, Pacing};
use gridmpi_job::{
    BAD_JOB, ClusterSpec, Family, JobSpec, LONGEST, OutputOptions, RunOptions, Style, parse_cluster,
};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const LONG: &str = "\
Run one MPI program over several clusters as one MPI_COMM_WORLD.

Every cluster is started by its own launcher and keeps its own MPI. Ranks count through the clusters
in the order in which they are given. The job ends with the exit code of the first rank that fails
(of MPI_Abort, its code), and leaves no process behind.";

const AFTER: &str = "\
Examples:
  Two clusters of four ranks on this machine, one program:
      gridmpi run --cluster a=mpiexec.mpich:4 --cluster b=mpiexec.mpich:4 -- ./heat --steps 100

  Two different MPIs need a program built for each; arguments are the same:
      gridmpi run --cluster a=mpiexec.mpich:4 --cluster b=mpiexec.openmpi:4 \\
                  --program b=./heat-openmpi -- ./heat --steps 100

  From a job file (hosts, head nodes, environments, links: see docs/job-file.md):
      gridmpi run job.toml
      gridmpi run job.toml -- ./heat --steps 200

  Cluster b is started elsewhere, for example inside a batch allocation, by `gridmpi join`:
      gridmpi run --listen 0.0.0.0:7000 --cluster a=mpiexec.mpich:4 --cluster b=join -- ./heat

Exit codes: that of the job; 2 if it cannot be started as described; 124 after --timeout;
128 + n if ended by signal n.

Settings of the library are read from the environment and handed to every rank: GRIDMPI_EAGER_LIMIT,
GRIDMPI_CREDIT, GRIDMPI_YIELD, GRIDMPI_PACING, GRIDMPI_MATB, GRIDMPI_CONNECTIONS, GRIDMPI_CONGESTION, GRIDMPI_DEBUG. GRIDMPI_LIBDIR names the directory of the library.";

/// Run one MPI program over several clusters
#[derive(clap::Args)]
#[command(long_about = LONG, after_long_help = AFTER)]
pub(crate) struct Args {
    /// Job file
    #[arg(value_name = "JOB.toml", conflicts_with = "cluster")]
    job: Option<PathBuf>,

    /// A cluster: its name, its launcher (`join` for one that is started elsewhere), its ranks
    ///
    /// The launcher may have arguments: --cluster 'b=mpiexec.openmpi --oversubscribe:4'. Where the last of them is a list a blank
    /// stands before the ranks: --cluster 'b=mpiexec --host x:2,y:2 :4'.
    #[arg(long, value_name = "NAME=LAUNCHER[:RANKS]", value_parser = parse_cluster)]
    cluster: Vec<ClusterSpec>,

    /// A cluster's own program, where clusters have different MPIs
    #[arg(long, value_name = "NAME=PATH")]
    program: Vec<Named<String>>,

    /// MPI of a cluster's program, where neither program nor launcher tell: mpich or openmpi
    #[arg(long, value_name = "NAME=FAMILY")]
    mpi: Vec<Named<MpiFamily>>,

    /// Kind of a cluster's launcher, where its --version does not tell: hydra, openmpi4, openmpi5
    /// or srun
    #[arg(long, value_name = "NAME=STYLE")]
    style: Vec<Named<LauncherStyle>>,

    /// Where to wait for clusters: an address of this machine, a port, or both
    /// [default: every address, a free port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,

    /// Write the join token into this file (readable by its owner only) instead of showing it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// How long clusters may take to come up [default: 600; no limit for those who join]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,

    /// End the job, with exit code 124, after so long
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Hold what leaves for other clusters to a rate, so that senders do not meet at a link [default: auto]
    ///
    /// off: as fast as TCP lets it; static: every node has an equal share of a link; auto: those who send share it. Needs the
    /// links' bandwidth in the job file.
    #[arg(long, value_name = "HOW", value_parser = pacing)]
    pacing: Option<Pacing>,

    /// Whether connections between clusters use TLS: on or off [default: on]
    #[arg(long, value_name = "SWITCH", value_parser = switch)]
    tls: Option<Switch>,

    /// Measure every link whose bandwidth the job file does not say, before the job starts
    ///
    /// As `gridmpi probe` does. A single link is measured where the job file says bandwidth = "measure".
    #[arg(long)]
    measure: bool,

    /// Look at nodes and links before the job starts, and start it only if nothing is in the way
    ///
    /// As `gridmpi doctor` does; takes some seconds.
    #[arg(long)]
    doctor: bool,

    /// Put cluster and rank before each line of output
    #[arg(long, conflicts_with = "output")]
    label: bool,

    /// Write output to DIR/CLUSTER.out and DIR/CLUSTER.err
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Show where the ranks are, as soon as they have met
    #[arg(long, value_name = "WHAT", value_parser = ["map"])]
    display: Option<String>,

    /// Program and arguments, for every cluster without its own
    #[arg(last = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args) -> i32 {
    let options = RunOptions {
        gridmpi: own_program(),
        output: OutputOptions { label: args.label, directory: args.output.clone() },
        display_map: args.display.is_some(),
        token_file: args.token_file.clone(),
        measure: args.measure,
        doctor: args.doctor,
        file: args.job.clone().filter(|_| args.style.is_empty() && args.listen.is_none()),
        pacing: args.pacing,
        tls: args.tls.map(|switch| switch.0),
    };
    match spec(args) {
        Ok(spec) => gridmpi_job::run(&spec, &options),
        Err(problem) => {
            complain(problem);
            BAD_JOB
        }
    }
}

fn spec(args: Args) -> Result<JobSpec, String> {
    let mut spec = match &args.job {
        Some(path) => read(path)?,
        None => JobSpec { clusters: args.cluster, ..JobSpec::default() },
    };
    if !args.command.is_empty() {
        spec.command = args.command;
    }
    spec.wait = args.wait.or(spec.wait);
    spec.timeout = args.timeout.or(spec.timeout);
    spec.listen = args.listen.or(spec.listen);
    for Named { name, value } in args.program {
        find(&mut spec, &name, "--program")?.program = Some(value);
    }
    for Named { name, value } in args.mpi {
        find(&mut spec, &name, "--mpi")?.mpi = Some(value.0);
    }
    for Named { name, value } in args.style {
        find(&mut spec, &name, "--style")?.style = Some(value.0);
    }
    Ok(spec)
}

pub(crate) fn read(path: &std::path::Path) -> Result<JobSpec, String> {
    let shown = path.display().to_string();
    let text = text::read(path, "job file", ". A program goes behind `--`, after the clusters")?;
    gridmpi_job::file::parse(&shown, &text).map_err(|error| error.to_string())
}

fn find<'a>(
    spec: &'a mut JobSpec,
    name: &ClusterName,
    option: &str,
) -> Result<&'a mut ClusterSpec, String> {
    let names: Vec<String> = spec.clusters.iter().map(|c| c.name.to_string()).collect();
    let found = spec.clusters.iter_mut().find(|cluster| cluster.name == *name);
    found.ok_or_else(|| {
        format!("{option}: there is no cluster `{name}`; the clusters are: {}", names.join(", "))
    })
}

/// `NAME=VALUE`.
#[derive(Clone, Debug)]
struct Named<T> {
    name: ClusterName,
    value: T,
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for Named<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
        let name = ClusterName::new(name).map_err(|error| error.to_string())?;
        Ok(Self { name, value: value.parse().map_err(|error: T::Err| error.to_string())? })
    }
}

/// A family as the command line has it.
#[derive(Clone, Debug)]
pub(crate) struct MpiFamily(pub(crate) Family);

impl FromStr for MpiFamily {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be one of {}", Family::NAMES.join(", "));
        Family::parse(text).map(Self).ok_or_else(wrong)
    }
}

/// A kind of launcher as the command line has it.
#[derive(Clone, Debug)]
pub(crate) struct LauncherStyle(pub(crate) Style);

impl FromStr for LauncherStyle {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be one of {}", Style::NAMES.join(", "));
        Style::parse(text).map(Self).ok_or_else(wrong)
    }
}

#[derive(Clone, Copy, Debug)]
struct Switch(bool);

fn switch(text: &str) -> Result<Switch, String> {
    parse_switch(text).map(Switch).ok_or_else(|| "is none of on, off".to_owned())
}

fn pacing(text: &str) -> Result<Pacing, String> {
    Pacing::parse(text).ok_or_else(|| format!("must be one of {}", Pacing::NAMES.join(", ")))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST);
    match duration {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => {
            Err(format!("must be more than 0 and at most ten years, {} seconds", LONGEST.as_secs()))
        }
    }
}
