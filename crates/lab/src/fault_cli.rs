//! `gridmpi lab fault` and `gridmpi lab faults`.

use crate::control::{self, Ask, Done};
use crate::error::{Doing as _, LabError};
use crate::output;
use crate::schedule::{Kind, Schedule, Wishes};
use crate::state::{self, LabDir};
use crate::sys::process::{ENDING, Signals};
use crate::sys::wait_readable;
use clap::Parser;
use gridmpi_report::units::{parse_duration, parse_fraction};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// One fault.
#[derive(Debug, Parser)]
pub struct One {
    /// Which lab, if more than one is up.
    #[arg(long)]
    name: Option<String>,
    /// How long `cut`, `silence` and `loss` last, as "2 s"; without: until `restore`.
    #[arg(long = "for", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// cut A-B | loss A-B 1% | silence NODE | reset FROM TO | kill NODE TEXT | forget GATEWAY | renumber NODE | restore [A-B | NODE]
    #[arg(required = true)]
    what: Vec<String>,
}

/// Faults at random.
#[derive(Debug, Parser)]
pub struct Many {
    /// Which lab, if more than one is up.
    #[arg(long)]
    name: Option<String>,
    /// Decides which faults are drawn; default: drawn itself, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Mean time from one fault to the next.
    #[arg(long, default_value = "0.5 s", value_parser = parse_duration)]
    every: Duration,
    /// How long to go on; without --count and this, until it is interrupted.
    #[arg(long = "for", value_parser = parse_duration)]
    time: Option<Duration>,
    /// How many faults to make at most.
    #[arg(long)]
    count: Option<u64>,
    /// Which kinds to draw from.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cut,silence,reset,loss")]
    kinds: Vec<Kind>,
    /// How long a fault that lasts does so at most; the least is a tenth of it.
    #[arg(long, default_value = "1 s", value_parser = parse_duration)]
    lasts: Duration,
    /// How much `loss` loses.
    #[arg(long, default_value = "1 %", value_parser = parse_fraction)]
    loss: f64,
    /// Links to draw from; default: all.
    #[arg(long, value_delimiter = ',')]
    links: Vec<String>,
    /// Machines to draw from; default: gateways and public hosts, or else all nodes.
    #[arg(long, value_delimiter = ',')]
    on: Vec<String>,
    /// What the command lines of processes that `kill` kills have in them.
    #[arg(long)]
    pattern: Option<String>,
}

fn print(done: &Done) -> Result<(), LabError> {
    output::print(&format!("{:>9.3} s  {}\n", done.at_ms as f64 / 1e3, done.what))
}

/// Makes one fault and prints it.
///
/// # Errors
/// When there is no such lab, or no such fault.
pub fn one(one: One) -> Result<u8, LabError> {
    let lab = state::choose(one.name.as_deref())?;
    print(&control::make_fault(&lab, Ask { words: one.what, lasts: one.lasts })?)?;
    Ok(0)
}

/// Makes faults until the time is over, or a signal comes; then undoes what is left of them.
///
/// # Errors
/// When there is no such lab, it cannot have such faults, or it ends.
pub fn many(many: Many) -> Result<u8, LabError> {
    let lab = state::choose(many.name.as_deref())?;
    let spec = lab.state()?.spec;
    let seed = many.seed.unwrap_or_else(crate::spec::drawn_seed);
    let Many { kinds, links, on: machines, every, lasts, loss, pattern, time, count, .. } = many;
    let wishes = Wishes { kinds, links, machines, every, lasts, loss, pattern };
    let schedule = Schedule::new(&spec, seed, wishes).map_err(LabError::Usage)?;
    output::print(&format!("seed {seed}\n"))?;
    let signals = Signals::take(&ENDING).doing("cannot take signals")?;
    let result = go_on(&lab, schedule, &signals, time, count.unwrap_or(u64::MAX));
    let words = vec!["restore".to_owned()];
    let restored = control::make_fault(&lab, Ask { words, lasts: None });
    let made = result?;
    print(&restored?)?;
    output::print(&format!("{made} faults\n"))?;
    Ok(0)
}

/// Says how many there were.
fn go_on(
    lab: &LabDir,
    mut schedule: Schedule,
    signals: &Signals,
    time: Option<Duration>,
    count: u64,
) -> Result<u64, LabError> {
    let begin = Instant::now();
    let mut due = Duration::ZERO;
    for made in 0..count {
        let step = schedule.draw();
        due = due.saturating_add(step.after);
        let ends = time.is_some_and(|time| due > time);
        let until = if ends { time.unwrap_or(due) } else { due };
        // Counted from the begin: what asking takes does not add up. Who is late looks for signals, too.
        loop {
            let left = until.saturating_sub(begin.elapsed());
            let pause = if left.is_zero() { left } else { left.max(Duration::from_millis(1)) };
            if wait_readable(&[signals.as_fd()], Some(pause)).doing("cannot wait")?[0] {
                return Ok(made);
            }
            if left.is_zero() {
                break;
            }
        }
        if ends || time.is_some_and(|time| begin.elapsed() > time) {
            return Ok(made);
        }
        print(&control::make_fault(lab, step.ask)?)?;
    }
    Ok(count)
}
