//! Bringing labs up and taking them down.

use crate::control::{self, Request};
use crate::error::{Doing as _, LabError};
use crate::host;
use crate::output;
use crate::spec::Spec;
use crate::state::{self, LabDir, Standing};
use crate::sys::process::{self, PutOff};
use crate::sys::wait_readable;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A lab of hundreds of nodes takes a few seconds.
const BUILD_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a holder may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps a lab up: the lab goes down when this is dropped, or its process dies in any way.
#[derive(Debug)]
pub struct Lifeline {
    _end: PipeWriter,
}

/// Brings a lab up that stays until it is taken down.
///
/// # Errors
/// When its name is taken or it cannot be built.
pub fn up(spec: &Spec) -> Result<LabDir, LabError> {
    start(spec, Stdio::null(), false)
}

/// Brings a lab up that lives no longer than the lifeline.
///
/// # Errors
/// When its name is taken or it cannot be built.
pub fn up_bound(spec: &Spec) -> Result<(LabDir, Lifeline), LabError> {
    let (reader, writer) = io::pipe().doing("cannot make a pipe")?;
    let lab = start(spec, reader.into(), true)?;
    Ok((lab, Lifeline { _end: writer }))
}

/// Whoever is interrupted meanwhile first takes away what it has begun.
fn start(spec: &Spec, stdin: Stdio, lifeline: bool) -> Result<LabDir, LabError> {
    let lab = LabDir::of(&spec.name)?;
    expect_free(&lab)?;
    let put_off = PutOff::begin().doing("cannot take signals")?;
    let allowed = host::Allowed::congestion(&spec.tcp.congestion, put_off.as_fd());
    let allowed = allowed.ok_or_else(interrupted)?;
    // Another may have been built under this name while this one waited for its turn.
    expect_free(&lab)?;
    // What is left of a lab that was killed is of no use.
    lab.remove();
    lab.create()?;
    let result = lab.record_builder().and_then(|()| build(&lab, spec, stdin, lifeline, &put_off));
    drop(allowed);
    if result.is_err() {
        let _ = down(&lab);
    }
    result.map(|()| lab)
}

fn expect_free(lab: &LabDir) -> Result<(), LabError> {
    match lab.standing() {
        Standing::ComingUp => {
            Err(LabError::NotUp(format!("another lab `{}` is being built", lab.name())))
        }
        Standing::Up(_) => Err(LabError::Exists(lab.name())),
        Standing::Dead if lab.is_taken() => Err(LabError::Taken(lab.path().to_owned())),
        Standing::Dead => Ok(()),
    }
}

fn interrupted() -> LabError {
    LabError::NotUp("it was interrupted".to_owned())
}

fn build(
    lab: &LabDir,
    spec: &Spec,
    stdin: Stdio,
    lifeline: bool,
    put_off: &PutOff,
) -> Result<(), LabError> {
    state::write_json(&lab.join("spec.json"), spec)?;
    write_shell(lab)?;
    let (_shares, advice) = host::adapt();
    let log = File::create(lab.join("log")).doing("cannot write the lab's log")?;
    let (reader, writer) = io::pipe().doing("cannot make a pipe")?;
    let program = std::env::current_exe().doing("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["lab", "hold", "--dir"]).arg(lab.path());
    command.stdin(stdin).stdout(writer).stderr(log);
    if lifeline {
        command.arg("--lifeline");
    }
    let mut first_stage =
        process::prepare(&mut command, false).spawn().doing("cannot start the holder")?;
    // The command holds copies of the pipes' ends.
    drop(command);
    // That nobody reads any more tells it to take the lab with it.
    let said = read_all(reader, put_off);
    let _ = first_stage.wait();
    let said = said?;
    if said.trim() == "ready" {
        advice.iter().for_each(|advice| output::complain(format_args!("note: {advice}")));
        return Ok(());
    }
    let log = fs::read_to_string(lab.join("log")).unwrap_or_default();
    Err(LabError::NotUp(reasons(&said, &log)))
}

/// What a holder said and logged before it ended, each reason once.
fn reasons(said: &str, log: &str) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for line in said.lines().chain(log.lines()).map(str::trim) {
        if !line.is_empty() && !reasons.contains(&line) {
            reasons.push(line);
        }
    }
    if reasons.is_empty() { "its holder was killed".to_owned() } else { reasons.join("; ") }
}

/// What the holder says until it closes its output, unless a signal comes before.
fn read_all(mut reader: PipeReader, put_off: &PutOff) -> Result<String, LabError> {
    let deadline = Instant::now() + BUILD_TIMEOUT;
    let mut text = Vec::new();
    let mut part = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let fds = [reader.as_fd(), put_off.as_fd()];
        let ready = wait_readable(&fds, Some(left)).doing("cannot wait")?;
        if ready[1] {
            return Err(interrupted());
        }
        if left.is_zero() {
            return Err(LabError::NotUp("its holder did not answer in two minutes".into()));
        }
        if ready[0] {
            match reader.read(&mut part).doing("cannot read from the holder")? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                length => text.extend_from_slice(&part[..length]),
            }
        }
    }
}

/// Programs for launchers: `lab-ssh`, and the names that they look for themselves.
fn write_shell(lab: &LabDir) -> Result<(), LabError> {
    let program = std::env::current_exe().doing("cannot find this program's own file")?;
    let quoted =
        |path: &std::path::Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let script = format!(
        "#!/bin/sh\n# A remote shell for this lab's nodes: lab-ssh [ssh options] HOST COMMAND...\n\
         {}={} exec {} lab ssh --name {} -- \"$@\"\n",
        state::ENV_DIR,
        quoted(&state::root()),
        quoted(&program),
        lab.name(),
    );
    let directory = lab.join("bin");
    let write = || {
        fs::create_dir_all(&directory)?;
        for name in ["lab-ssh", "ssh", "rsh"] {
            let file = directory.join(name);
            fs::write(&file, &script)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    };
    write().doing("cannot write the lab's remote shell")
}

/// Takes a lab down, however it is, and removes what it left, and nothing that is no lab's. Nothing to do is no error.
///
/// # Errors
/// When its holder cannot be ended.
pub fn down(lab: &LabDir) -> Result<(), LabError> {
    let result = match lab.holder().filter(|_| lab.lives()) {
        Some(holder) => end(lab, holder.pid),
        None => Ok(()),
    };
    if result.is_ok() {
        lab.remove();
        host::restore();
    }
    result
}

fn end(lab: &LabDir, pid: u32) -> Result<(), LabError> {
    let what = format!("cannot end the lab `{}` (process {pid})", lab.name());
    let watched = match process::watch(pid) {
        Ok(watched) => watched,
        // It has ended since.
        Err(_) if !lab.lives() => return Ok(()),
        Err(error) => return Err(LabError::Io(what, error)),
    };
    let asked = control::ask(lab, Request::Stop).is_ok();
    let has_ended = |timeout| wait_readable(&[watched.as_fd()], Some(timeout)).is_ok_and(|r| r[0]);
    if asked && has_ended(STOP_TIMEOUT) {
        return Ok(());
    }
    let killed = process::send(pid, process::KILL);
    if has_ended(STOP_TIMEOUT) { Ok(()) } else { killed.doing(what) }
}

#[cfg(test)]
mod tests {
    use super::reasons;

    #[test]
    fn each_reason_is_given_once() {
        assert_eq!(reasons("no ip\n", "no ip\nno tc\n\n"), "no ip; no tc");
        assert_eq!(reasons("", "\n"), "its holder was killed");
    }
}
