//! The launchers that run on this machine: started, signalled, waited for, and ended without a
//! trace.

use crate::hidden::{self, Watchdog};
use crate::input::{self, Input};
use crate::output::{Reading, Sink};
use crate::patient::Patient;
use crate::pumps::Pumps;
use crate::resolve::CommandLine;
use crate::sessions::Kept;
use crate::sweep::Marks;
use gridmpi_bootstrap::{ClusterName, JobId};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is left when launchers have ended gets this long between TERM and KILL.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the rest of the output where nobody must have it all: as long as `gridmpi run` waits for an ssh that takes it.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// One launcher.
struct Member {
    pid: Pid,
    exited: bool,
    /// It has ended by a signal.
    killed: bool,
}

/// All launchers of a job on this machine. To be used from the thread that made it: the kernel ties
/// the launchers' lives to that thread's.
pub(crate) struct Crew {
    gridmpi: PathBuf,
    job: JobId,
    marks: Marks,
    members: Vec<Member>,
    watchdog: Option<Watchdog>,
    pumps: Pumps,
    /// What launchers share, while any of them may run.
    kept: BTreeMap<PathBuf, Kept>,
}

/// Streams of a launcher.
pub(crate) struct Streams {
    pub(crate) input: Input,
    pub(crate) out: Sink,
    pub(crate) err: Sink,
}

impl Crew {
    /// For the launchers of `clusters`. Becomes the parent of their orphans.
    pub(crate) fn new(gridmpi: &Path, job: JobId, clusters: &[ClusterName]) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            gridmpi: gridmpi.to_owned(),
            job,
            marks: Marks::new(job, clusters),
            members: Vec::new(),
            watchdog: Some(Watchdog::start(gridmpi, job, clusters)?),
            pumps: Pumps::new(),
            kept: BTreeMap::new(),
        })
    }

    /// Starts a launcher in a process group of its own; returns its number in this crew.
    pub(crate) fn launch(&mut self, line: &CommandLine, streams: Streams) -> io::Result<usize> {
        line.shares.iter().for_each(|shared| self.keep(shared));
        let (stdin, fed) = streams.input.stdio();
        let (stdout, out_reading) = streams.out.split();
        let (stderr, err_reading) = streams.err.split();
        let mut command = hidden::launching(&self.gridmpi, &line.words);
        command.process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
        for name in &line.unset {
            command.env_remove(name);
        }
        command.envs(line.set.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &line.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn()?;
        if let Some(pipe) = child.stdin.take().filter(|_| fed) {
            input::feed(streams.input, pipe);
        }
        if let (Some(pipe), Some(reading)) = (child.stdout.take(), out_reading) {
            match reading {
                Reading::ForPeople => self.pumps.start(pipe, reading, Patient(io::stderr())),
                _ => self.pumps.start(pipe, reading, Patient(io::stdout())),
            }
        }
        if let (Some(pipe), Some(reading)) = (child.stderr.take(), err_reading) {
            self.pumps.start(pipe, reading, Patient(io::stderr()));
        }
        let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::Other)?;
        self.members.push(Member { pid, exited: false, killed: false });
        Ok(self.members.len() - 1)
    }

    /// What cannot be kept the launcher cannot use either, and says so itself.
    fn keep(&mut self, shared: &Path) {
        if self.kept.contains_key(shared) {
            return;
        }
        let name = format!("gridmpi.{}.{}", self.job, std::process::id());
        if let Ok(kept) = Kept::new(shared, &name) {
            self.watchdog.iter_mut().for_each(|watchdog| watchdog.note(kept.own()));
            self.kept.insert(shared.to_owned(), kept);
        }
    }

    /// Launchers that have ended since the last call, with their exit codes (128 + n for signal
    /// n). Reaps orphans too.
    pub(crate) fn reap(&mut self) -> Vec<(usize, i32)> {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let found = self.members.iter().position(|member| member.pid == pid);
            if let (Some(index), Some(code)) = (found, exit_code(status)) {
                self.members[index].exited = true;
                self.members[index].killed = status.signaled();
                ended.push((index, code));
            }
        }
        ended
    }

    /// Passes on a signal that somebody sent to us. What a terminal sends goes to the whole group,
    /// as it would without us; other signals to the launcher, which forwards them to its ranks.
    pub(crate) fn forward(&self, member: usize, signal: Signal) {
        let Some(member) = self.members.get(member).filter(|member| !member.exited) else { return };
        let keyboard = [Signal::INT, Signal::QUIT, Signal::TSTP, Signal::CONT];
        let _ = if keyboard.contains(&signal) {
            kill_process_group(member.pid, signal)
        } else {
            kill_process(member.pid, signal)
        };
    }

    /// Asks a launcher to end; a stopped one is woken for it.
    pub(crate) fn terminate(&self, member: usize) {
        self.forward(member, Signal::TERM);
        self.forward(member, Signal::CONT);
    }

    /// Ends a launcher and its group for good.
    pub(crate) fn kill(&self, member: usize) {
        if let Some(member) = self.members.get(member).filter(|member| !member.exited) {
            let _ = kill_process_group(member.pid, Signal::KILL);
        }
    }

    pub(crate) fn is_running(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| !member.exited)
    }

    pub(crate) fn was_killed(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.killed)
    }

    /// To be called when the launchers have ended: [`Crew::sweep`] and [`Crew::close`], for a while.
    pub(crate) fn finish(mut self) {
        self.sweep();
        self.close(Some(LAST_OUTPUT));
    }

    /// Ends what the launchers have left behind.
    pub(crate) fn sweep(&mut self) {
        for (index, member) in self.members.iter().enumerate() {
            if member.exited {
                // The number of a group stays taken as long as it has members.
                let _ = kill_process_group(member.pid, Signal::TERM);
            } else {
                self.kill(index);
            }
        }
        let reap = || while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {};
        self.marks.sweep(LEFTOVER_GRACE, PATIENCE, reap);
    }

    /// Waits for the rest of the output, which takes as long as those who read ours do; for this time at `most`. False if some
    /// of it could not be written.
    pub(crate) fn close(mut self, most: Option<Duration>) -> bool {
        let is_whole = self.pumps.drain(most);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        is_whole
    }
}

fn exit_code(status: WaitStatus) -> Option<i32> {
    status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))
}
