//! Running programs in a lab's nodes.

use crate::error::{Doing as _, LabError};
use crate::plan::{self, Found};
use crate::state::{self, LabDir, State};
use crate::sys::namespace::{self, Kinds};
use crate::sys::process::{self, Signals};
use crate::sys::wait_readable;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Moves this process, which must have one thread, into a node, and makes it or a child of it
/// run `command`. Returns the command's exit code if it ran as a child.
///
/// # Errors
/// When there is no such lab or node, or the command cannot be started.
pub fn run(lab: &LabDir, node: &str, command: &[OsString]) -> Result<u8, LabError> {
    let state = lab.state()?;
    let is_inside = enter(lab, &state, node)?;
    let Some((program, arguments)) = command.split_first() else {
        return Err(LabError::Usage("no command to run".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    set_environment(&mut command, lab);
    if !is_inside {
        // Programs name files there by host and process (Open MPI's launchers do), and those are the same in every lab.
        command.env("TMPDIR", lab.temporary());
    }
    if is_inside {
        process::unblock_signals();
        return Err(LabError::Command(program.to_string_lossy().into_owned(), command.exec()));
    }
    supervise(&mut command)
}

/// Enters the namespaces of `node`; says whether this process is one of the lab (else only its
/// children to come are).
fn enter(lab: &LabDir, state: &State, node: &str) -> Result<bool, LabError> {
    let gone = || LabError::NoLab(format!("the lab `{}` has just gone down", lab.name()));
    let holder = lab.holder_proc(state).ok_or_else(gone)?;
    let here = std::env::current_dir();
    let is_inside = inode(Path::new("/proc/self/ns/pid")) == Some(state.pid_namespace);
    let mut ways = Vec::new();
    if inode(Path::new("/proc/self/ns/user")) != inode(&holder.join("ns/user")) {
        ways.push((holder.join("ns/user"), namespace::USER));
    }
    if !is_inside {
        ways.push((holder.join("ns/pid"), namespace::PID));
    }
    let cluster = if is_inside { own_cluster(state) } else { None };
    ways.extend(node_namespaces(state, &holder, node, cluster)?);
    // All are opened before the first is entered: later ones change what paths mean.
    let open = |(path, kind): &(PathBuf, Kinds)| {
        Ok((File::open(path).doing(format!("cannot open {}", path.display()))?, *kind))
    };
    let files = ways.iter().map(open).collect::<Result<Vec<_>, LabError>>()?;
    for (file, kind) in &files {
        if *kind == namespace::MOUNT {
            namespace::unshare(namespace::MOUNT).doing("cannot leave the mounts")?;
        }
        namespace::join(file.as_fd(), *kind).doing(format!("cannot enter {node}"))?;
    }
    // Entering mounts leads to the root directory.
    let _ = here.map(std::env::set_current_dir);
    Ok(is_inside)
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|file| file.ino())
}

/// Where the namespaces of a node are found, in the order of entering.
fn node_namespaces(
    state: &State,
    holder: &Path,
    node: &str,
    here: Option<usize>,
) -> Result<Vec<(PathBuf, Kinds)>, LabError> {
    let kinds = [namespace::NET, namespace::UTS, namespace::IPC, namespace::MOUNT];
    let lab = state.spec.name.clone();
    let found = plan::find(&state.spec, &state.plan(), node, here)
        .map_err(|why| LabError::NoNode { lab: lab.clone(), why })?;
    let paths = match found {
        Found::Head => ["net", "uts", "ipc", "mnt"].map(|kind| holder.join("ns").join(kind)),
        Found::Node(index) => {
            let why = || format!("`{node}` was not built");
            let descriptors = state.nodes.get(index);
            let descriptors = descriptors.ok_or_else(|| LabError::NoNode { lab, why: why() })?;
            let numbers = [descriptors.net, descriptors.uts, descriptors.ipc, descriptors.mount];
            numbers.map(|number| holder.join("fd").join(number.to_string()))
        }
    };
    Ok(paths.into_iter().zip(kinds).collect())
}

/// The cluster of the node that this process of the lab is on: a node's host name is its own.
fn own_cluster(state: &State) -> Option<usize> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    state.plan().into_iter().find(|node| node.name == name.trim()).map(|node| node.cluster)
}

/// What programs in a lab are told: which it is, and where its remote shell is.
fn set_environment(command: &mut Command, lab: &LabDir) {
    let bin = lab.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let before = std::env::split_paths(&path).filter(|part| *part != bin);
    let paths = std::iter::once(bin.clone()).chain(before).collect::<Vec<_>>();
    if let Ok(path) = std::env::join_paths(paths) {
        command.env("PATH", path);
    }
    command.env(state::ENV_LAB, lab.name()).env(state::ENV_DIR, state::root());
    // The lab's root is not the machine's: nothing to protect Open MPI's users from.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

/// Runs a command as a child that does not outlive this process, passes on the signals that end
/// programs, and returns its exit code (128 and the signal's number if one ended it).
///
/// # Errors
/// When it cannot be started.
pub fn supervise(command: &mut Command) -> Result<u8, LabError> {
    let caught: Vec<i32> = [&process::ENDING[..], &[process::CHILD]].concat();
    let signals = Signals::take(&caught).doing("cannot take signals")?;
    let name = command.get_program().to_string_lossy().into_owned();
    let spawned = process::prepare(command, true).spawn();
    let mut child = spawned.map_err(|error| LabError::Command(name, error))?;
    let status = wait(&mut child, &signals).doing("cannot wait for the command")?;
    Ok(exit_code(status))
}

fn wait(child: &mut Child, signals: &Signals) -> std::io::Result<ExitStatus> {
    let mut asked: Option<Instant> = None;
    loop {
        let left = asked.map(|asked| GRACE.saturating_sub(asked.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            child.kill()?;
        }
        wait_readable(&[signals.as_fd()], left.filter(|left| !left.is_zero()))?;
        while let Some(signal) = signals.next() {
            // The terminal has sent its signals to the child, too.
            if signal.number != process::CHILD && !signal.from_terminal {
                let _ = process::send(child.id(), signal.number);
                asked = asked.or_else(|| Some(Instant::now()));
            }
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}

/// What an ssh-like command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Remote {
    /// The host, without a user's name.
    pub host: String,
    /// The command for the shell; none: a shell to talk to.
    pub command: Option<OsString>,
    /// Whether the command shall have no input.
    pub no_input: bool,
}

/// Options of ssh that take a value.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";

/// Reads `[ssh options] HOST [COMMAND...]`. The options mean nothing here, but for `-n`.
///
/// # Errors
/// When there is no host.
pub fn read_ssh(arguments: &[OsString]) -> Result<Remote, LabError> {
    let mut arguments = arguments.iter();
    let mut no_input = false;
    let host = loop {
        let none = || LabError::Usage("no host: lab-ssh [ssh options] HOST COMMAND...".into());
        let argument = arguments.next().ok_or_else(none)?.to_string_lossy();
        let Some(letters) = argument.strip_prefix('-') else { break argument.into_owned() };
        for (index, letter) in letters.char_indices() {
            no_input |= letter == 'n';
            if WITH_VALUE.contains(letter) {
                // The value is the rest of this argument, or else the next.
                if index + letter.len_utf8() == letters.len() {
                    arguments.next();
                }
                break;
            }
        }
    };
    let host = host.rsplit('@').next().unwrap_or_default().to_owned();
    // Like ssh, words are joined and read by the shell.
    let words: Vec<OsString> = arguments.cloned().collect();
    let command = (!words.is_empty()).then(|| words.join(std::ffi::OsStr::new(" ")));
    Ok(Remote { host, command, no_input })
}

/// The command line that a remote shell runs.
#[must_use]
pub fn shell_command(remote: &Remote) -> Vec<OsString> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    match &remote.command {
        Some(command) => vec![shell, "-c".into(), command.clone()],
        None => vec![shell],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(line: &str) -> Remote {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        read_ssh(&words).unwrap()
    }

    #[test]
    fn ssh_options_are_dropped() {
        for line in
            ["a1 ls -l", "-x a1 ls -l", "-p 22 -oBatchMode=yes -q me@a1 ls -l", "-qp 22 a1 ls -l"]
        {
            let remote = ssh(line);
            assert_eq!((remote.host.as_str(), remote.no_input), ("a1", false), "{line}");
            assert_eq!(remote.command, Some("ls -l".into()), "{line}");
        }
        assert!(ssh("-xn a1 true").no_input);
        assert_eq!(ssh("-l me 10.1.0.1").command, None);
    }

    #[test]
    fn a_host_is_needed() {
        assert!(read_ssh(&["-x".into()]).is_err());
        assert!(read_ssh(&[]).is_err());
    }
}
