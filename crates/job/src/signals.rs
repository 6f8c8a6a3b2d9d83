//! Signals that reach `gridmpi`, handed to its main loop.

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::signal as number;
use signal_hook::iterator::Signals;
use std::io;

/// What is caught: what a user or batch system sends, and the end of children.
const CAUGHT: [i32; 9] = [
    number::SIGINT,
    number::SIGTERM,
    number::SIGQUIT,
    number::SIGHUP,
    number::SIGUSR1,
    number::SIGUSR2,
    number::SIGTSTP,
    number::SIGCONT,
    number::SIGCHLD,
];

/// What stays ignored where we were started so: by `nohup`, or behind `&` of a script.
const LEFT_ALONE: [i32; 3] = [number::SIGHUP, number::SIGINT, number::SIGQUIT];

/// Calls `tell` with each signal, from a thread of its own.
pub(crate) fn watch(mut tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let is_wanted = |signal: &&i32| !(LEFT_ALONE.contains(*signal) && is_in(ignored, **signal));
    let mut signals = Signals::new(CAUGHT.iter().filter(is_wanted))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tell(signal);
        }
    })?;
    Ok(())
}

/// The signals that a process ignores, by its status as the kernel shows it: bit n - 1 for signal n.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(set: u64, signal: i32) -> bool {
    let bit = u32::try_from(signal - 1).ok().and_then(|shift| 1u64.checked_shl(shift));
    bit.is_some_and(|bit| set & bit != 0)
}

/// The signal of this number, if it is one of those that are passed on.
pub(crate) const fn named(signal: i32) -> Option<Signal> {
    Some(match signal {
        number::SIGINT => Signal::INT,
        number::SIGTERM => Signal::TERM,
        number::SIGQUIT => Signal::QUIT,
        number::SIGHUP => Signal::HUP,
        number::SIGUSR1 => Signal::USR1,
        number::SIGUSR2 => Signal::USR2,
        number::SIGTSTP => Signal::TSTP,
        number::SIGCONT => Signal::CONT,
        _ => return None,
    })
}

/// Stops this process until somebody continues it.
pub(crate) fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001005\nSigCgt:\t0\n";
        let set = ignored(status);
        assert!(is_in(set, number::SIGHUP) && is_in(set, number::SIGQUIT));
        assert!(!is_in(set, number::SIGINT) && !is_in(set, 0) && !is_in(set, 100));
        assert_eq!((ignored(""), ignored("SigIgn:\tx")), (0, 0));
    }
}
