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

/// Calls `tell` with each signal, from a thread of its own.
pub(crate) fn watch(mut tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(CAUGHT)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tell(signal);
        }
    })?;
    Ok(())
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
