//! `gridmpi join`.

use crate::own_program;
use crate::run::{LauncherStyle, MpiFamily};
use gridmpi_bootstrap::{ClusterName, RelayAccess};
use gridmpi_job::{JoinOptions, parse_coordinators};
use std::net::SocketAddr;
use std::path::PathBuf;

const LONG: &str = "\
Take part in a job that `gridmpi run` holds together elsewhere, with a launcher started here.

This is how batch systems start clusters: each inside its own allocation. `gridmpi run` shows the
address and the join token. Output stays here; when the job ends, the launcher is ended too.";

const AFTER: &str = "\
Examples:
  At the first site, cluster b being started elsewhere:
      gridmpi run --listen 0.0.0.0:7000 --token-file token \\
                  --cluster a=mpiexec.mpich:4 --cluster b=join -- ./heat

  At the second, within its allocation:
      GRIDMPI_TOKEN=$(cat token) gridmpi join --cluster b first.site:7000 -- \\
                  mpiexec -n 4 ./heat

Everything after `--` is the launcher's own command line. What ranks need (the library, the job's
variables) is added to it; secrets go through the environment, never through arguments.

Exit codes: the launcher's; the job's, if the job failed; 2 if it cannot be started as described.";

/// Take part in a job with a cluster that is started here
#[derive(clap::Args)]
#[command(long_about = LONG, after_long_help = AFTER)]
pub(crate) struct Args {
    /// Name of this cluster in the job
    #[arg(long, value_name = "NAME", value_parser = name)]
    cluster: ClusterName,

    /// Where `gridmpi run` listens (several addresses: separated by commas)
    #[arg(value_name = "HOST:PORT", value_parser = addresses)]
    address: Addresses,

    /// Measure this cluster's links first (where `gridmpi run` has printed it): with what the launcher starts in the program's place
    #[arg(long, conflicts_with_all = ["relay", "described"])]
    measure: bool,

    /// File with the join token, which nobody else may read [default: the variable GRIDMPI_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Relay of this cluster that leads to the others (repeatable); with it `gridmpi run` need not be reachable directly
    #[arg(long, value_name = "HOST:PORT", value_parser = relay, requires = "relay_token_file")]
    relay: Vec<String>,

    /// File with the token of the relays
    #[arg(long, value_name = "FILE")]
    relay_token_file: Option<PathBuf>,

    /// MPI of the program, where neither program nor launcher tell: mpich or openmpi
    #[arg(long, value_name = "FAMILY")]
    mpi: Option<MpiFamily>,

    /// Kind of the launcher, where its --version does not tell: hydra, openmpi4, openmpi5 or srun
    #[arg(long, value_name = "STYLE")]
    style: Option<LauncherStyle>,

    /// Start what `gridmpi run` describes in the environment (it does so on head nodes)
    #[arg(long, hide = true)]
    described: bool,

    /// The launcher with its arguments, the program and its arguments
    #[arg(last = true, value_name = "LAUNCHER [ARGS]", required_unless_present = "described")]
    line: Vec<String>,
}

#[derive(Clone, Debug)]
struct Addresses(Vec<SocketAddr>);

fn addresses(text: &str) -> Result<Addresses, String> {
    parse_coordinators(text).map(Addresses)
}

fn relay(text: &str) -> Result<String, String> {
    RelayAccess::check_name(text).map(|()| text.to_owned())
}

fn name(text: &str) -> Result<ClusterName, String> {
    ClusterName::new(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: Args) -> i32 {
    gridmpi_job::join(&JoinOptions {
        gridmpi: own_program(),
        cluster: args.cluster,
        coordinators: args.address.0,
        line: args.line,
        measure: args.measure,
        described: args.described,
        token_file: args.token_file,
        relays: args.relay,
        relay_token: args.relay_token_file,
        style: args.style.map(|style| style.0),
        mpi: args.mpi.map(|mpi| mpi.0),
    })
}
