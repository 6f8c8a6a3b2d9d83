//! `gridmpi-sim`: one seed with a trace, or many.

use clap::Parser;
use gridmpi_sim::{Failure, Mutation, Stats, run};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Runs random MPI programs on the engine in virtual time, against a plain model of MPI's rules.
#[derive(Parser)]
struct Arguments {
    /// Run this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds, FIRST..END.
    #[arg(long, value_parser = range, default_value = "0..10000")]
    seeds: Range<u64>,
    /// Print what happens (with --seed); a seed that fails is traced anyway.
    #[arg(long)]
    trace: bool,
    /// Seeds that run at a time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Make something wrong, to see that it is found.
    #[arg(long, value_enum, default_value = "none")]
    mutation: Mutation,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let (first, end) = text.split_once("..").ok_or("expected FIRST..END")?;
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err("no seed is in it".to_owned()) } else { Ok(range) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.seed {
        Some(seed) => run(seed, arguments.mutation, arguments.trace).map(|(stats, trace)| {
            trace.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: {stats:?}");
        }),
        None => run_all(&arguments),
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    // Again with a trace; a seed gives the same run each time.
    let failure = match run(failure.seed, arguments.mutation, true) {
        Err(traced) => traced,
        Ok(_) => failure,
    };
    failure.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {} FAILED: {}", failure.seed, failure.what);
    ExitCode::FAILURE
}

/// Runs the seeds until one fails; the lowest of those that did.
fn run_all(arguments: &Arguments) -> Result<(), Failure> {
    let (next, stop) = (AtomicU64::new(arguments.seeds.start), AtomicBool::new(false));
    let found: Mutex<(Option<Failure>, Stats)> = Mutex::new((None, Stats::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                let (failure, stats) = work(arguments, &next, &stop);
                let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                found.1 = found.1.plus(stats);
                if let Some(failure) = failure
                    && found.0.as_ref().is_none_or(|other| failure.seed < other.seed)
                {
                    found.0 = Some(failure);
                }
            });
        }
    });
    let (failure, stats) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    println!("seeds {:?}: {stats:?}, {seconds:.1} s", arguments.seeds);
    failure.map_or(Ok(()), Err)
}

/// Takes seeds until there are no more or one has failed.
fn work(arguments: &Arguments, next: &AtomicU64, stop: &AtomicBool) -> (Option<Failure>, Stats) {
    let mut stats = Stats::default();
    while !stop.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= arguments.seeds.end {
            break;
        }
        match run(seed, arguments.mutation, false) {
            Ok((more, _)) => stats = stats.plus(more),
            Err(failure) => {
                stop.store(true, Ordering::Relaxed);
                return (Some(failure), stats);
            }
        }
    }
    (None, stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_nothing_is_refused() {
        let refused = |words: &[&str]| Arguments::try_parse_from(words).is_err();
        for nothing in ["--seeds=10..10", "--seeds=10..5", "--seeds=10", "--threads=0"] {
            assert!(refused(&["gridmpi-sim", nothing]), "{nothing}");
        }
        assert!(!refused(&["gridmpi-sim", "--seeds=10..11", "--threads=1"]));
    }
}
