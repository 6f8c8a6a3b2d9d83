//! Where labs are recorded on this machine, and whether they live.
//!
//! A lab is one directory. Its holder (the process that the lab's namespaces live and die with)
//! is known by process id and start time, so that a later process with the same id is not taken
//! for it. Seen from inside the lab, the holder is process 1.

use crate::error::{Doing as _, LabError};
use crate::plan::{self, Node};
use crate::spec::Spec;
use crate::sys::{namespace, process};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Environment variable that names the lab a process is in.
pub const ENV_LAB: &str = "GRIDMPI_LAB";
/// Environment variable with the directory of all labs.
pub const ENV_DIR: &str = "GRIDMPI_LAB_DIR";

/// File in a lab's directory that is there once the lab is built.
pub(crate) const STATE: &str = "state.json";
/// File in a lab's directory that says who builds it.
const BUILDER: &str = "builder.json";
/// File in a lab's directory that says that it is one: the first that is made there, and the last that goes.
const MARK: &str = "gridmpi-lab";

/// What a running lab tells about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// What it is made of.
    pub spec: Spec,
    /// Inode of its namespace of process ids.
    pub pid_namespace: u64,
    /// Whether it lives in a user namespace.
    pub rootless: bool,
    /// The holder's descriptors of each node's namespaces, in the order of [`plan::nodes`].
    pub nodes: Vec<NodeNamespaces>,
    /// What could not be had and was not insisted on.
    pub notes: Vec<String>,
}

/// Descriptors, in the holder, of one node's namespaces.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct NodeNamespaces {
    /// Network.
    pub net: i32,
    /// Host name.
    pub uts: i32,
    /// Inter-process communication.
    pub ipc: i32,
    /// Mounts.
    pub mount: i32,
}

/// The process that a lab lives and dies with, as seen from outside the lab; while there is none yet, whoever builds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub started: u64,
}

impl Holder {
    /// The process with this id.
    pub fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; fields are counted behind it.
        let fields = text.rsplit_once(')')?.1;
        let mut fields = fields.split_whitespace();
        let is_zombie = fields.next()? == "Z";
        let started = fields.nth(18)?.parse().ok()?;
        (!is_zombie).then_some(Self { pid, started })
    }

    fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// How it stands with a lab that has, or may have, a directory.
#[derive(Debug, Clone)]
pub enum Standing {
    /// Somebody is building it.
    ComingUp,
    /// It runs.
    Up(Box<State>),
    /// At most a directory is left of it.
    Dead,
}

/// One lab's directory.
#[derive(Debug, Clone)]
pub struct LabDir(PathBuf);

impl LabDir {
    /// The directory of the lab called `name`, which need not exist.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub fn of(name: &str) -> Result<Self, LabError> {
        crate::spec::check_name(name).map_err(LabError::Usage)?;
        Ok(Self(root().join(name)))
    }

    /// The directory at a path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// A file in it.
    #[must_use]
    pub fn join(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The holder, if it was ever recorded.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        read_json(&self.join("holder.json")).ok()
    }

    /// Records that this process is building the lab.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record_builder(&self) -> Result<(), LabError> {
        write_json(&self.join(BUILDER), &Holder::of(std::process::id()))
    }

    /// How it stands with the lab.
    #[must_use]
    pub fn standing(&self) -> Standing {
        // First what is written last: whoever wrote that is recorded by now.
        let state = read_json::<State>(&self.join(STATE));
        let holder = self.holder();
        let holds = holder.is_some_and(Holder::lives);
        match state {
            Ok(state) if holds || proc_of(&state, holder).is_some() => {
                Standing::Up(Box::new(state))
            }
            Err(_) if holds || self.is_begun() => Standing::ComingUp,
            _ => Standing::Dead,
        }
    }

    /// Whether somebody builds it who has no holder yet.
    fn is_begun(&self) -> bool {
        read_json::<Holder>(&self.join(BUILDER)).is_ok_and(Holder::lives)
    }

    /// Where the `/proc` directory of the running lab's holder is found from here: inside the lab it is process 1.
    #[must_use]
    pub fn holder_proc(&self, state: &State) -> Option<PathBuf> {
        proc_of(state, self.holder())
    }

    /// Whether the lab is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.standing(), Standing::Up(_))
    }

    /// Whether its holder lives: the lab is up, or far on the way.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.holder().is_some_and(Holder::lives) || self.is_up()
    }

    /// The running lab's description.
    ///
    /// # Errors
    /// When there is no such lab.
    pub fn state(&self) -> Result<State, LabError> {
        match self.standing() {
            Standing::Up(state) => Ok(*state),
            Standing::ComingUp => {
                Err(LabError::NoLab(format!("the lab `{}` is still being built", self.name())))
            }
            Standing::Dead => Err(LabError::NoLab(format!("no lab `{}` is up", self.name()))),
        }
    }

    /// Where programs in the lab have what lasts no longer than they.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.join("tmp")
    }

    /// Whether a lab made the directory: others may stand beside those of labs, and are nobody's to remove.
    #[must_use]
    pub fn is_labs(&self) -> bool {
        // Labs of before there was a mark say who holds or builds them.
        let is_begun = || read_json::<Holder>(&self.join(BUILDER)).is_ok();
        fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_dir())
            && (self.join(MARK).is_file() || self.holder().is_some() || is_begun())
    }

    /// Whether something else has its place.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        let is_empty = || fs::read_dir(&self.0).is_ok_and(|mut entries| entries.next().is_none());
        fs::symlink_metadata(&self.0).is_ok() && !self.is_labs() && !is_empty()
    }

    /// Makes the directory, for this user alone, with its mark, and in it the one for what is temporary, which is everybody's as the
    /// system's is.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self) -> Result<(), LabError> {
        let temporary = self.temporary();
        let make = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        make(&self.0)
            .and_then(|()| fs::write(self.join(MARK), ""))
            .and_then(|()| make(&temporary))
            .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)))
            .doing(format!("cannot make {}", self.0.display()))
    }

    /// Removes the directory and what is in it, if it is a lab's; it may be gone already.
    pub fn remove(&self) {
        if !self.is_labs() {
            return;
        }
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut others = entries.map(|entry| entry.path()).filter(|path| *path != self.join(MARK));
        // The mark goes last: whoever is killed meanwhile leaves what is still seen to be a lab's.
        if others.all(|path| fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).is_ok())
        {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// The `/proc` directory of a lab's holder.
fn proc_of(state: &State, holder: Option<Holder>) -> Option<PathBuf> {
    let is_holder = |path: &PathBuf| {
        let namespace = fs::metadata(path.join("ns/pid"));
        namespace.is_ok_and(|namespace| namespace.ino() == state.pid_namespace)
    };
    let outside = PathBuf::from(format!("/proc/{}", holder?.pid));
    [PathBuf::from("/proc/1"), outside].into_iter().find(is_holder)
}

/// Writes a file in one step, so that no reader sees half of it.
///
/// # Errors
/// When it cannot be written.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), LabError> {
    let what = format!("cannot write {}", path.display());
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    let part = path.with_extension("part");
    text.and_then(|text| fs::write(&part, text)).and_then(|()| fs::rename(&part, path)).doing(what)
}

/// Reads such a file.
///
/// # Errors
/// When it is missing or not what was expected.
pub fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, LabError> {
    let text = fs::read_to_string(path);
    let value = text.and_then(|text| serde_json::from_str(&text).map_err(Into::into));
    value.doing(format!("cannot read {}", path.display()))
}

/// The directory of all labs of this user: where programs may be run from, and gone after a
/// restart where the system has such a place.
#[must_use]
pub fn root() -> PathBuf {
    if let Some(directory) = std::env::var_os(ENV_DIR) {
        return directory.into();
    }
    let places = if process::user() == 0 {
        [Some("/run".into()), Some(PathBuf::from("/var/lib"))]
    } else {
        [std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), None]
    };
    let runs_programs = |place: &PathBuf| namespace::is_noexec(place).is_ok_and(|noexec| !noexec);
    match places.into_iter().flatten().find(runs_programs) {
        Some(place) => place.join("gridmpi-lab"),
        None => std::env::temp_dir().join(format!("gridmpi-lab-{}", process::user())),
    }
}

/// Every lab that left a directory, up or not, by name.
#[must_use]
pub fn all() -> Vec<LabDir> {
    let Ok(entries) = fs::read_dir(root()) else { return Vec::new() };
    let directories = entries.flatten().map(|entry| LabDir(entry.path()));
    let mut labs: Vec<_> = directories.filter(LabDir::is_labs).collect();
    labs.sort_by_key(LabDir::name);
    labs
}

/// The lab that is meant: the named one, the one this process is in, or the only one.
///
/// # Errors
/// When there is none, or more than one and no name.
pub fn choose(name: Option<&str>) -> Result<LabDir, LabError> {
    let here = std::env::var(ENV_LAB).ok().filter(|name| !name.is_empty());
    if let Some(name) = name.map(str::to_owned).or(here) {
        let lab = LabDir::of(&name)?;
        lab.state()?;
        return Ok(lab);
    }
    let mut up: Vec<_> = all().into_iter().filter(LabDir::is_up).collect();
    match up.len() {
        1 => Ok(up.remove(0)),
        0 => Err(LabError::NoLab("no lab is up: start one by `gridmpi lab up FILE`".into())),
        _ => {
            let names: Vec<_> = up.iter().map(LabDir::name).collect();
            let message = format!("say which lab by --name: {}", names.join(", "));
            Err(LabError::NoLab(message))
        }
    }
}

impl State {
    /// The nodes.
    #[must_use]
    pub fn plan(&self) -> Vec<Node> {
        plan::nodes(&self.spec)
    }
}
