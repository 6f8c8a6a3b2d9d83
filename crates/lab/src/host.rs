//! Settings of the machine itself that a lab needs and only root can change. They are put back
//! as they were.

use crate::state;
use crate::sys::wait_readable;
use crate::tools::set_variable;
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::BorrowedFd;
use std::time::Duration;

const ALLOWED: &str = "net/ipv4/tcp_allowed_congestion_control";
const BACKLOG: &str = "net/core/netdev_max_backlog";
/// Packets waiting between two virtual cables; less drops some outside the emulator's count.
const WANTED_BACKLOG: u64 = 20_000;
const SHARED: &str = "/run/gridmpi-lab.backlog";
/// How often it is tried whether another lab has been built.
const TURN: Duration = Duration::from_millis(10);

fn variable(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|value| value.trim().to_owned())
}

/// While this lives, `congestion` may be chosen in namespaces, if this user can allow it. One at
/// a time on a machine.
#[derive(Debug)]
pub struct Allowed {
    before: Option<String>,
    _lock: Option<File>,
}

impl Allowed {
    /// Allows it, unless `end` can be read while this waits for its turn.
    #[must_use]
    pub fn congestion(congestion: &str, end: BorrowedFd<'_>) -> Option<Self> {
        let _ = fs::create_dir_all(state::root());
        let lock = File::create(state::root().join("host.lock")).ok();
        while let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
            if wait_readable(&[end], Some(TURN)).is_ok_and(|ready| ready[0]) {
                return None;
            }
        }
        let before = variable(ALLOWED).unwrap_or_default();
        let is_allowed = before.split_whitespace().any(|name| name == congestion);
        let changed =
            !is_allowed && set_variable(ALLOWED, &format!("{before} {congestion}")).is_ok();
        Some(Self { before: changed.then_some(before), _lock: lock })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = set_variable(ALLOWED, before);
        }
    }
}

/// A share in the machine's raised packet backlog. It ends with the process that has it.
#[derive(Debug)]
pub struct Raised {
    _lock: File,
}

fn backlog() -> Option<u64> {
    // Not shown in a network namespace of its own: then nothing can be done or said.
    variable(BACKLOG)?.parse().ok()
}

/// Opens the file that every lab of root has a share in while it is up, whatever its directory;
/// it remembers the value from before the first.
fn shared_file() -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(SHARED)
}

/// Raises the packet backlog, if this user may, and takes a share in it.
///
/// # Errors
/// Says what else to do.
pub fn raise_backlog() -> Result<Option<Raised>, String> {
    let Some(before) = backlog() else { return Ok(None) };
    let advice = || {
        format!(
            "net.core.netdev_max_backlog is {before}: bursts may be dropped outside the \
             emulator; as root, run `sysctl -w net.core.netdev_max_backlog={WANTED_BACKLOG}`"
        )
    };
    match try_raise() {
        Ok(raised) => Ok(Some(raised)),
        Err(_) if before >= WANTED_BACKLOG => Ok(None),
        Err(_) => Err(advice()),
    }
}

fn try_raise() -> std::io::Result<Raised> {
    // Another lab's end may put it back between the two locks; once is bad luck enough.
    for _ in 0..5 {
        let mut file = shared_file()?;
        if file.try_lock().is_ok() {
            raise(&mut file)?;
            file.unlock()?;
        }
        file.lock_shared()?;
        if backlog().is_some_and(|now| now >= WANTED_BACKLOG) {
            return Ok(Raised { _lock: file });
        }
    }
    Err(std::io::ErrorKind::ResourceBusy.into())
}

/// Nobody else has a share.
fn raise(file: &mut File) -> std::io::Result<()> {
    let before = backlog().unwrap_or(0);
    if before >= WANTED_BACKLOG {
        return Ok(());
    }
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{before}")?;
    set_variable(BACKLOG, &WANTED_BACKLOG.to_string())
}

/// The same, if one was ever made. Only for who may write to it, and so put the backlog back: others could only be in the way.
fn made_file() -> std::io::Result<File> {
    File::options().read(true).write(true).open(SHARED)
}

/// For a holder: a share for as long as it lives, if the backlog is raised and its user may put it back.
#[must_use]
pub fn share_backlog() -> Option<Raised> {
    let file = made_file().ok()?;
    file.lock_shared().ok()?;
    Some(Raised { _lock: file })
}

/// Puts the backlog back when no lab has a share in it any more.
pub fn restore() {
    let Ok(mut file) = made_file() else { return };
    let mut before = String::new();
    if file.try_lock().is_err() || file.read_to_string(&mut before).is_err() {
        return;
    }
    let is_number = before.trim().parse::<u64>().is_ok();
    if is_number && set_variable(BACKLOG, before.trim()).is_ok() {
        let _ = file.set_len(0);
    }
}
