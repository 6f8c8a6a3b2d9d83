//! Where the input of launchers comes from.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

/// What one launcher gets as stdin.
pub(crate) enum Input {
    /// Nothing.
    Null,
    /// Our own, if `ours`; before it these bytes, which are no user's business.
    Ours {
        /// What comes first.
        first: Vec<u8>,
        /// Whether our own input follows.
        ours: bool,
    },
}

impl Input {
    /// What the launcher gets, and whether [`feed`] has to fill it.
    pub(crate) fn stdio(&self) -> (Stdio, bool) {
        match self {
            Self::Null => (Stdio::null(), false),
            // A file or pipe may be read by the launcher itself. Not so a terminal: launchers run
            // in groups of their own, which the terminal would stop for reading.
            Self::Ours { first, ours: true } if first.is_empty() && !io::stdin().is_terminal() => {
                (Stdio::inherit(), false)
            }
            Self::Ours { .. } => (Stdio::piped(), true),
        }
    }
}

/// Feeds a launcher from a thread of its own until either end closes.
pub(crate) fn feed(input: Input, mut to: ChildStdin) {
    let Input::Ours { first, ours } = input else { return };
    std::thread::spawn(move || {
        if to.write_all(&first).is_err() || !ours {
            return;
        }
        let mut buffer = [0; 16 << 10];
        while let Ok(count) = next(&mut buffer) {
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
}

/// Reads when there is something to read and, on a terminal, only in the foreground: a read from
/// the background would stop the whole job.
fn next(buffer: &mut [u8]) -> io::Result<usize> {
    let stdin = io::stdin();
    loop {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if stdin.is_terminal() && !in_foreground(&stdin) {
            std::thread::sleep(Duration::from_millis(250));
            continue;
        }
        return stdin.lock().read(buffer);
    }
}

fn in_foreground(terminal: &io::Stdin) -> bool {
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}
