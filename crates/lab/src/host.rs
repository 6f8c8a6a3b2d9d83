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

/// A setting that every lab of root has a share in while it is up.
struct Setting {
    name: &'static str,
    /// The shares are locks of this file, whatever a lab's directory; it remembers the value from before the first.
    file: &'static str,
    wanted: u64,
    suffices: fn(u64) -> bool,
    /// What is to be expected otherwise.
    harm: &'static str,
}

const SETTINGS: [Setting; 2] = [
    // Packets waiting between two virtual cables; less drops some outside the emulator's count.
    Setting {
        name: "net/core/netdev_max_backlog",
        file: "/run/gridmpi-lab.backlog",
        wanted: 20_000,
        suffices: |value| value >= 20_000,
        harm: "bursts may be dropped outside the emulator",
    },
    // Every rank of a lab has a session of its own. By session a rank that asks in vain, again and again, takes what its own driver
    // thread needs, and one that has more to do than others (the rate broker's) holds all of them up.
    Setting {
        name: "kernel/sched_autogroup_enabled",
        file: "/run/gridmpi-lab.autogroup",
        wanted: 0,
        suffices: |value| value == 0,
        harm: "the processors are shared out by session, not by thread, which slows ranks down",
    },
];

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

/// Shares in settings of the machine. They end with the process that has them.
#[derive(Debug, Default)]
pub struct Shares {
    _locks: Vec<File>,
}

/// Changes the settings that this user may change, takes shares in them, and says what is left to be done.
pub fn adapt() -> (Shares, Vec<String>) {
    let (mut shares, mut advice) = (Shares::default(), Vec::new());
    for setting in &SETTINGS {
        // Some are not shown in namespaces, or kernels lack them: then nothing can be done or said.
        let Some(before) = setting.value() else { continue };
        match setting.change() {
            Ok(lock) => shares._locks.push(lock),
            Err(_) if (setting.suffices)(before) => {}
            Err(_) => advice.push(setting.advice(before)),
        }
    }
    (shares, advice)
}

/// For a holder: shares for as long as it lives in what was changed and its user may put back.
#[must_use]
pub fn share() -> Shares {
    let share = |setting: &Setting| {
        let file = setting.made_file().ok()?;
        file.lock_shared().ok().map(|()| file)
    };
    Shares { _locks: SETTINGS.iter().filter_map(share).collect() }
}

/// Puts back what no lab has a share in any more.
pub fn restore() {
    SETTINGS.iter().for_each(Setting::restore);
}

impl Setting {
    fn value(&self) -> Option<u64> {
        variable(self.name)?.parse().ok()
    }

    fn advice(&self, value: u64) -> String {
        let Self { wanted, harm, .. } = self;
        let name = self.name.replace('/', ".");
        format!("{name} is {value}: {harm}; as root, run `sysctl -w {name}={wanted}`")
    }

    fn change(&self) -> std::io::Result<File> {
        // Another lab's end may put it back between the two locks; once is bad luck enough.
        for _ in 0..5 {
            let mut options = File::options();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(self.file)?;
            if file.try_lock().is_ok() {
                self.set(&mut file)?;
                file.unlock()?;
            }
            file.lock_shared()?;
            if self.value().is_some_and(self.suffices) {
                return Ok(file);
            }
        }
        Err(std::io::ErrorKind::ResourceBusy.into())
    }

    /// Nobody else has a share.
    fn set(&self, file: &mut File) -> std::io::Result<()> {
        let before = self.value().unwrap_or(0);
        if (self.suffices)(before) {
            return Ok(());
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{before}")?;
        set_variable(self.name, &self.wanted.to_string())
    }

    /// The file, if it was ever made. Only for who may write to it, and so put the setting back: others could only be in the way.
    fn made_file(&self) -> std::io::Result<File> {
        File::options().read(true).write(true).open(self.file)
    }

    fn restore(&self) {
        let Ok(mut file) = self.made_file() else { return };
        let mut before = String::new();
        if file.try_lock().is_err() || file.read_to_string(&mut before).is_err() {
            return;
        }
        let is_number = before.trim().parse::<u64>().is_ok();
        if is_number && set_variable(self.name, before.trim()).is_ok() {
            let _ = file.set_len(0);
        }
    }
}
