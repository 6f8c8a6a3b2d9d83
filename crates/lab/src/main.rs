//! The lab alone, without MPI: `gridmpi-lab up FILE` is `gridmpi lab up FILE`.

use clap::Parser as _;
use gridmpi_lab::cli::{Args, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    // The lab starts its own program as `PROGRAM lab ...`.
    if words.get(1).is_some_and(|word| word == "lab") {
        words.remove(1);
    }
    run(Args::parse_from(words))
}
