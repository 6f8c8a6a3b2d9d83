//! What kind of launcher a command is.

use crate::program;
use crate::spec::Style;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A launcher answers `--version` within this time, or its kind stays unknown.
const ANSWER: Duration = Duration::from_secs(15);
const MAX_ANSWER: u64 = 64 << 10;

/// Why the kind of a launcher is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    #[error(
        "launcher `{0}` is not on this machine: give its full path, or load the module that \
             brings it"
    )]
    Missing(String),
    #[error("cannot run launcher `{0}`: {1}")]
    NotRunnable(String, String),
    #[error(
        "cannot tell what kind of launcher `{0}` is from its `--version` ({1}): say it by \
             `style = \"hydra\"`, \"openmpi4\", \"openmpi5\" or \"srun\" in the job file (--style)"
    )]
    Unknown(String, String),
}

/// Finds out by the name, or by asking for its version.
pub(crate) fn style(launcher: &str) -> Result<Style, LauncherError> {
    let Some(path) = program::find(launcher) else {
        return Err(LauncherError::Missing(launcher.to_owned()));
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    if name.as_deref() == Some("srun") {
        return Ok(Style::Srun);
    }
    let answer = ask(&path)
        .map_err(|error| LauncherError::NotRunnable(launcher.to_owned(), error.to_string()))?;
    recognize(&answer).ok_or_else(|| {
        let line = answer.lines().find(|line| !line.trim().is_empty()).unwrap_or("no output");
        LauncherError::Unknown(launcher.to_owned(), line.chars().take(100).collect())
    })
}

/// What `--version` prints, shortened.
fn ask(path: &Path) -> std::io::Result<String> {
    let mut child = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = output.take(MAX_ANSWER).read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    let answer = receiver.recv_timeout(ANSWER).unwrap_or_default();
    // It has answered or never will; a wrapper script may have children.
    let _ = rustix::process::Pid::from_raw(child.id() as i32)
        .map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
    child.wait()?;
    Ok(answer)
}

fn recognize(answer: &str) -> Option<Style> {
    let has = |part: &str| answer.contains(part);
    if has("HYDRA build details") || has("Intel(R) MPI Library") || has("MVAPICH") {
        Some(Style::Hydra)
    } else if has("OpenRTE") || has("(Open MPI) 4.") || has("(Open MPI) 3.") {
        Some(Style::OpenMpi4)
    } else if has("(Open MPI)") || has("PRRTE") || has("prterun") {
        Some(Style::OpenMpi5)
    } else if answer.trim_start().starts_with("slurm ") {
        Some(Style::Srun)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_recognized() {
        let cases = [
            ("HYDRA build details:\n    Version: 4.0.2\n", Some(Style::Hydra)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build", Some(Style::Hydra)),
            ("mpiexec.openmpi (OpenRTE) 4.1.4\n", Some(Style::OpenMpi4)),
            ("mpirun (Open MPI) 4.0.0\n", Some(Style::OpenMpi4)),
            ("mpiexec (Open MPI) 5.0.11\n", Some(Style::OpenMpi5)),
            ("prterun (PRRTE) 3.0.2", Some(Style::OpenMpi5)),
            ("slurm 23.02.1", Some(Style::Srun)),
            ("GNU bash, version 5", None),
            ("", None),
        ];
        for (answer, expected) in cases {
            assert_eq!(recognize(answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_missing_launcher_and_a_stranger_are_named() {
        let error = style("mpiexec.nowhere").unwrap_err().to_string();
        assert!(error.contains("mpiexec.nowhere") && error.contains("not on this machine"));
        let error = style("ls").unwrap_err().to_string();
        assert!(error.contains("`ls`") && error.contains("style ="), "{error}");
    }
}
