//! The command `gridmpi`.
#![forbid(unsafe_code)]

mod by_hand;
mod coverage;
mod doctor;
mod join;
mod output;
mod probe;
mod run;
mod text;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Run one MPI program over several clusters, each with its own MPI
#[derive(Parser)]
#[command(name = "gridmpi", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Join(join::Args),
    Probe(probe::Args),
    Doctor(doctor::Args),
    Relay(gridmpi_relay::cli::Args),
    Lab(gridmpi_lab::cli::Args),
    Bench(gridmpi_bench::cli::Args),
    Coverage(coverage::Args),
}

fn main() -> ExitCode {
    gridmpi_job::play_hidden_part();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return told(&answer),
    };
    let code = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Join(args) => join::run(args),
        Command::Probe(args) => probe::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Relay(args) => return gridmpi_relay::cli::run(args, output::print),
        Command::Lab(args) => return gridmpi_lab::cli::run(args),
        Command::Bench(args) => return gridmpi_bench::cli::run(args),
        Command::Coverage(args) => coverage::run(&args),
    };
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}

/// Shows the help or the version that was asked for, or what is wrong with the command line.
fn told(answer: &clap::Error) -> ExitCode {
    let printed = answer.print();
    let code = match answer.use_stderr() {
        true => answer.exit_code(),
        false => i32::from(!output::is_taken(printed)),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Our own program file, through which launchers are started.
fn own_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "gridmpi".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
