//! Signals and children.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

/// Signals that end a program from outside.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// A child has changed its state.
pub const CHILD: i32 = libc::SIGCHLD;
/// Cannot be refused.
pub const KILL: i32 = libc::SIGKILL;

/// Signals taken from a file instead of being delivered.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether the terminal sent it, and so sent it to the whole foreground group.
    pub from_terminal: bool,
}

impl Signals {
    /// Blocks these signals in the calling thread and collects them. To be called before other
    /// threads start; children must be started with [`prepare`].
    ///
    /// # Errors
    /// When out of file descriptors.
    pub fn take(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: the set is initialised before use and lives on this stack.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            Ok(Self(OwnedFd::from_raw_fd(check(libc::signalfd(-1, &set, flags))?)))
        }
    }

    /// The next signal that has come, if any.
    pub fn next(&self) -> Option<Signal> {
        // SAFETY: all-zero bytes are valid here; at most its size is written.
        let (info, length) = unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let length = libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size);
            (info, length)
        };
        let signal = Signal {
            number: info.ssi_signo as i32,
            from_terminal: info.ssi_code == libc::SI_KERNEL,
        };
        (length > 0).then_some(signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signals that end programs, put off in the calling thread for as long as this lives: what must not be left half done is undone
/// first. It can be read from when one has come; that one takes effect with the end of this.
#[derive(Debug)]
pub struct PutOff {
    come: Signals,
    before: libc::sigset_t,
}

impl PutOff {
    /// Puts them off, but for those that this process was started to ignore.
    ///
    /// # Errors
    /// When out of file descriptors.
    pub fn begin() -> io::Result<Self> {
        let before = mask();
        let heeded: Vec<i32> = ENDING.into_iter().filter(|number| !is_ignored(*number)).collect();
        Ok(Self { come: Signals::take(&heeded)?, before })
    }
}

impl AsFd for PutOff {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.come.as_fd()
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// The signals that the calling thread has blocked.
fn mask() -> libc::sigset_t {
    // SAFETY: all-zero bytes are valid here; without a new set only the old one is written.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        set
    }
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: all-zero bytes are valid here; without a new action only the old one is written.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut action);
        action.sa_sigaction == libc::SIG_IGN
    }
}

/// Prepares a child: no blocked signals; with `bound` it is killed when its parent ends.
pub fn prepare(command: &mut Command, bound: bool) -> &mut Command {
    let before = move || {
        // SAFETY: only async-signal-safe calls between fork and exec; the set is initialised.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            if bound {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            }
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(before) }
}

/// Undoes [`Signals::take`] in this process, before it becomes another program.
pub fn unblock_signals() {
    // SAFETY: the set is initialised before use.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Sends a signal to one process.
///
/// # Errors
/// When there is no such process or the system does not allow it.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // 0 and negative numbers would mean groups of processes.
    if pid <= 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Takes one child that has ended, if any: its id and status.
pub fn reap() -> Option<(u32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid as u32, ExitStatus::from_raw(status)))
}

/// A file that becomes readable when the process ends.
///
/// # Errors
/// When there is no such process.
pub fn watch(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the result is checked before it is owned.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        Ok(OwnedFd::from_raw_fd(check(fd as libc::c_int)?))
    }
}

/// Kills the process that such a file stands for.
///
/// # Errors
/// When it has ended or the system does not allow it.
pub fn end(watched: &OwnedFd) -> io::Result<()> {
    let (fd, nothing) = (watched.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: an open descriptor; without further information the kernel reads no memory.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, KILL, nothing, 0) };
    check(result as libc::c_int).map(drop)
}

/// Ends what this process writes to its standard output, so that a reader sees the end.
pub fn close_output() {
    let Ok(null) = std::fs::File::options().write(true).open("/dev/null") else { return };
    // SAFETY: both descriptors are open; standard output stays a valid descriptor.
    unsafe { libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO) };
}

/// Replaces this process's standard input by nothing.
pub fn no_input() {
    let Ok(null) = std::fs::File::open("/dev/null") else { return };
    // SAFETY: both descriptors are open; standard input stays a valid descriptor.
    unsafe { libc::dup2(null.as_raw_fd(), libc::STDIN_FILENO) };
}

/// Leaves the terminal and the process group of the caller's parent.
pub fn new_session() {
    // SAFETY: no memory is involved; failing means that this is a leader already.
    unsafe { libc::setsid() };
}

/// The effective user.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group.
#[must_use]
pub fn group() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getegid() }
}
