//! Parts that our own program plays in other processes: the start of a launcher, and the watchdog
//! that ends a job whose `gridmpi` was killed.

use crate::run::BAD_JOB;
use crate::sessions;
use crate::sweep::Marks;
use gridmpi_bootstrap::{ClusterName, JobId};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const EXEC: &str = "__exec";
const WATCHDOG: &str = "__watchdog";
/// A node of `gridmpi probe`.
pub(crate) const NODE: &str = "__node";
/// The launcher of such nodes, on a head node.
pub(crate) const NODES: &str = "__nodes";
/// What `gridmpi` writes to its watchdog when all is well.
const DONE: &[u8] = b"done\n";
/// Exit code of a command that cannot be run, as shells have it.
const CANNOT_RUN: i32 = 127;

/// Plays a hidden part if the arguments of this process ask for one, and then never returns. To be
/// called first in `main`.
pub fn play() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some(EXEC) => exec(&args.collect::<Vec<_>>()),
        Some(WATCHDOG) => watch(&args.collect::<Vec<_>>()),
        Some(NODE) => std::process::exit(gridmpi_probe::play_node()),
        Some(NODES) => nodes(&args.filter_map(|arg| arg.into_string().ok()).collect::<Vec<_>>()),
        _ => {}
    }
}

/// `__nodes --cluster NAME ADDRESSES`.
fn nodes(args: &[String]) -> ! {
    let played = match args {
        [_, name, at] => crate::measure::play_head(name, at),
        _ => Err("this is a part of `gridmpi probe`".to_owned()),
    };
    std::process::exit(played.unwrap_or_else(|problem| {
        crate::console::write(&problem);
        crate::console::flush();
        BAD_JOB
    }))
}

/// A command that runs `line` and ends with this process: its first act is to ask for a TERM at our
/// death.
pub(crate) fn launching(gridmpi: &Path, line: &[String]) -> Command {
    let mut command = Command::new(gridmpi);
    command.arg(EXEC).arg(std::process::id().to_string()).args(line);
    command
}

fn exec(args: &[OsString]) -> ! {
    let parent = args.first().and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    let Some((program, rest)) = args.get(1..).and_then(<[_]>::split_first) else {
        std::process::exit(CANNOT_RUN)
    };
    let asked = set_parent_process_death_signal(Some(Signal::TERM));
    // Who died before we asked will not be reported any more.
    if asked.is_err() || getppid().map(Pid::as_raw_pid) != parent {
        std::process::exit(CANNOT_RUN);
    }
    let error = Command::new(program).args(rest).exec();
    crate::console::write(&format!("cannot run {}: {error}", program.to_string_lossy()));
    crate::console::flush();
    std::process::exit(CANNOT_RUN)
}

/// The watchdog's end of this process's life: dropping it without [`Watchdog::dismiss`], by a crash
/// or a kill, makes it end what the job has left.
pub(crate) struct Watchdog {
    child: Child,
}

impl Watchdog {
    pub(crate) fn start(
        gridmpi: &Path,
        job: JobId,
        clusters: &[ClusterName],
    ) -> std::io::Result<Self> {
        let child = Command::new(gridmpi)
            .arg(WATCHDOG)
            .arg(job.to_string())
            .args(clusters.iter().map(ClusterName::as_str))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }

    /// Something that is to be removed if this process cannot do it any more.
    pub(crate) fn note(&mut self, kept: &Path) {
        let line = [kept.as_os_str().as_bytes(), b"\n"].concat();
        // Without a watchdog it stays if we are killed, and nothing else.
        let _ = self.child.stdin.as_mut().map(|pipe| pipe.write_all(&line));
    }

    /// All is well and nothing is left.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(DONE);
        }
        let _ = self.child.wait();
    }
}

fn watch(args: &[OsString]) -> ! {
    // Away from the terminal's signals and from whoever kills our process group.
    let _ = setsid();
    let mut texts = args.iter().filter_map(|arg| arg.to_str());
    let job = texts.next().and_then(|job| JobId::parse(job).ok());
    let clusters: Vec<_> = texts.filter_map(|name| ClusterName::new(name).ok()).collect();
    let mut said = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut said);
    if let Some(job) = job.filter(|_| !said.ends_with(DONE)) {
        let marks = Marks::new(job, &clusters);
        marks.sweep(Duration::from_secs(3), Duration::from_secs(10), || {});
        let kept = said.split(|byte| *byte == b'\n').filter(|path| !path.is_empty());
        kept.for_each(|path| sessions::remove(Path::new(OsStr::from_bytes(path))));
    }
    std::process::exit(0)
}
