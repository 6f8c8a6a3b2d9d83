//! Commands outside a lab that end with us, in whatever way we end.

use crate::error::BenchError;
use crate::place::own_program;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command, and whose it is.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process that it does not outlive, its parent.
    #[arg(long)]
    parent: i32,
    /// The command.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A command, its words still to be added, that the kernel kills when this process ends.
///
/// To be started by the main thread: the kernel goes by the thread that has started it.
///
/// # Errors
/// Our own program is not found, through which it is started.
pub fn command() -> Result<Command, BenchError> {
    let mut command = Command::new(own_program()?);
    let parent = std::process::id().to_string();
    command.args(["bench", "bound", "--parent", &parent, "--"]);
    Ok(command)
}

impl Args {
    /// Becomes the command. Returns only if it cannot.
    #[must_use]
    pub fn turn_into(&self) -> io::Error {
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return error.into();
        }
        // The end of one who was gone before that is not told any more.
        if getppid().map(Pid::as_raw_pid) != Some(self.parent) {
            return io::Error::other(format!("process {}, whose this is, has ended", self.parent));
        }
        let mut words = self.words.iter();
        let program = words.next().cloned().unwrap_or_default();
        let error = Command::new(&program).args(words).exec();
        io::Error::new(error.kind(), format!("cannot run {}: {error}", program.to_string_lossy()))
    }
}
