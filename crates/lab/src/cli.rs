//! The command line: `gridmpi lab ...`.
//!
//! [`run`] must be called while the process has one thread: entering a lab is not possible
//! otherwise.

use crate::control::{self, Request, Status};
use crate::enter;
use crate::error::{Doing as _, LabError};
use crate::fault_cli;
use crate::hold;
use crate::host;
use crate::job_file;
use crate::output;
use crate::plan::{self, HEAD};
use crate::save;
use crate::spec::{self, Spec};
use crate::state::{self, LabDir, Standing};
use crate::sys::process;
use crate::up;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Clusters of nodes on this machine, joined by links with rate, delay, buffer and loss.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring a lab up; it stays until `down`.
    Up {
        /// The lab file.
        file: PathBuf,
        /// The lab's name, if not the file's.
        #[arg(long)]
        name: Option<String>,
    },
    /// Take a lab down and remove all that is left of it, also after a crash.
    Down {
        /// Which lab, if more than one is there.
        #[arg(long, conflicts_with = "all")]
        name: Option<String>,
        /// Every lab of this user.
        #[arg(long)]
        all: bool,
        /// First save the recording, its picture and a summary into this directory.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// List the labs of this user.
    List,
    /// Show counters of every link.
    Status {
        /// Which lab, if more than one is up.
        #[arg(long)]
        name: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Save the recording so far, its picture and a summary into a directory.
    Save {
        /// Which lab, if more than one is up.
        #[arg(long)]
        name: Option<String>,
        /// Where to.
        #[arg(long, default_value = ".")]
        out: PathBuf,
    },
    /// Run a command on a node (`head` is the host that reaches all nodes).
    Exec {
        /// Which lab, if more than one is up.
        #[arg(long)]
        name: Option<String>,
        /// Name or address of the node.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// A remote shell for launchers: ssh's options are accepted and dropped.
    Ssh {
        /// Which lab, if more than one is up.
        #[arg(long)]
        name: Option<String>,
        /// `[ssh options] HOST [COMMAND...]`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Bring a lab up, run a command on its head, and take it down again.
    Run {
        /// The lab file.
        file: PathBuf,
        /// The lab's name, if not the file's and this process's id.
        #[arg(long)]
        name: Option<String>,
        /// Run the command on this node, not on the head.
        #[arg(long, default_value = HEAD)]
        on: String,
        /// Save the recording, its picture and a summary into this directory.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Do not print the summary.
        #[arg(long)]
        quiet: bool,
        /// The command; its exit code becomes this one's.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Print a job file (for `gridmpi run`) for the nodes of a lab.
    Job {
        /// The lab file.
        file: PathBuf,
        /// Launchers, as a=mpiexec.mpich,b=mpiexec.openmpi.
        #[arg(long, default_value = "")]
        mpi: String,
        /// Launcher of clusters that --mpi does not name.
        #[arg(long, default_value = "mpiexec")]
        launcher: String,
        /// Ranks on each node.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        ranks_per_node: u32,
        /// Write `relays` of private clusters (every gateway, port 7118), not only as a comment.
        #[arg(long)]
        relays: bool,
    },
    /// Make a fault in a running lab, or undo it.
    Fault(fault_cli::One),
    /// Make faults at random in a running lab, and print them.
    Faults(fault_cli::Many),
    /// (internal) Hold a lab.
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        inner: bool,
        #[arg(long)]
        lifeline: bool,
    },
}

/// Does what the command line says.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    match act(args.action) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn act(action: Action) -> Result<u8, LabError> {
    match action {
        Action::Up { file, name } => bring_up(&file, name),
        Action::Down { name, all, out } => take_down(name.as_deref(), all, out.as_deref()),
        Action::List => list(),
        Action::Status { name, json } => show_status(name.as_deref(), json),
        Action::Save { name, out } => save_now(&state::choose(name.as_deref())?, &out),
        Action::Exec { name, node, command } => {
            enter::run(&state::choose(name.as_deref())?, &node, &command)
        }
        Action::Ssh { name, arguments } => remote_shell(name.as_deref(), &arguments),
        Action::Run { file, name, on, out, quiet, command } => {
            run_inside(&file, name, &on, out.as_deref(), quiet, &command)
        }
        Action::Job { file, mpi, launcher, ranks_per_node, relays } => {
            print_job(&file, &mpi, launcher, ranks_per_node, relays)
        }
        Action::Fault(one) => fault_cli::one(one),
        Action::Faults(many) => fault_cli::many(many),
        Action::Hold { dir, inner, lifeline } => hold_lab(dir, inner, lifeline),
    }
}

fn load(file: &Path, name: Option<String>) -> Result<Spec, LabError> {
    let mut spec = Spec::load(file)?;
    if let Some(name) = name {
        spec::check_name(&name).map_err(LabError::Usage)?;
        spec.name = name;
    }
    Ok(spec)
}

fn print_notes(lab: &LabDir) -> Result<(), LabError> {
    let state = lab.state()?;
    state.notes.iter().for_each(|note| output::complain(format_args!("note: {note}")));
    if state.spec.links.iter().any(|link| link.loss > 0.0) {
        output::complain(format_args!("seed of random loss: {}", state.spec.seed));
    }
    Ok(())
}

fn bring_up(file: &Path, name: Option<String>) -> Result<u8, LabError> {
    let spec = load(file, name)?;
    let lab = up::up(&spec)?;
    print_notes(&lab)?;
    let nodes: Vec<_> = plan::nodes(&spec).into_iter().map(|node| node.name).collect();
    output::print(&format!("lab {} is up: {HEAD}, {}\n", spec.name, nodes.join(", ")))?;
    Ok(0)
}

fn take_down(name: Option<&str>, all: bool, out: Option<&Path>) -> Result<u8, LabError> {
    // Of a killed `run` this alone may be left.
    host::restore();
    let labs = match (name, all) {
        (_, true) => state::all(),
        (Some(name), false) => vec![left(name)?],
        // Dead ones count here: they are to be cleaned up.
        (None, false) => match state::all() {
            mut labs if labs.len() == 1 => vec![labs.remove(0)],
            labs if labs.is_empty() => return Err(LabError::NoLab("there is no lab".into())),
            _ => vec![state::choose(None)?],
        },
    };
    let mut printed = Ok(0);
    for lab in labs {
        if let (Some(out), true) = (out, lab.is_up()) {
            let directory = if all { out.join(lab.name()) } else { out.to_owned() };
            match save_now(&lab, &directory) {
                // What is saved need not be seen.
                Err(LabError::Output(error)) => printed = Err(LabError::Output(error)),
                saved => {
                    saved?;
                }
            }
        }
        up::down(&lab)?;
    }
    printed
}

fn list() -> Result<u8, LabError> {
    let lines: String = state::all().iter().map(listed).collect();
    output::print(&lines)?;
    Ok(0)
}

/// The lab of this name, up or not, if anything is left of it.
fn left(name: &str) -> Result<LabDir, LabError> {
    let lab = LabDir::of(name)?;
    if lab.is_labs() {
        return Ok(lab);
    }
    Err(LabError::NoLab(format!("no lab `{name}` is up, and nothing is left of one")))
}

/// A lab's line of the list.
fn listed(lab: &LabDir) -> String {
    let name = lab.name();
    match lab.standing() {
        Standing::Up(state) => {
            let clusters = state.spec.clusters.iter();
            let sizes: Vec<_> =
                clusters.map(|cluster| format!("{}: {}", cluster.name, cluster.nodes)).collect();
            format!("{name}  up  {}\n", sizes.join(", "))
        }
        Standing::ComingUp => format!("{name}  coming up\n"),
        Standing::Dead => format!("{name}  dead (remove it: gridmpi lab down --name {name})\n"),
    }
}

fn show_status(name: Option<&str>, json: bool) -> Result<u8, LabError> {
    let lab = state::choose(name)?;
    let request = if json { Request::Nodes } else { Request::Status };
    let status = control::ask(&lab, request)?;
    if json {
        output::print(&(serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"))?;
        return Ok(0);
    }
    let rows = crate::traffic::read(&lab.join(crate::traffic::FILE))?;
    output::print(&save::summary(&lab.state()?.spec, &status, &rows))?;
    print_notes(&lab)?;
    Ok(0)
}

fn save_now(lab: &LabDir, out: &Path) -> Result<u8, LabError> {
    let status = settled_status(lab)?;
    let summary = save::save(lab, &lab.state()?.spec, &status, out)?;
    output::print(&summary)?;
    Ok(0)
}

/// The status once everything on the way has arrived, or as it is after a moment: what the last
/// process sent may still be in flight when it has ended.
fn settled_status(lab: &LabDir) -> Result<Status, LabError> {
    let mut before = control::ask(lab, Request::Status)?;
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(25));
        let now = control::ask(lab, Request::Status)?;
        let packets = |status: &Status| {
            let all = status.directions.iter();
            all.map(|one| one.traffic.arrived.packets + one.delivered.packets).sum::<u64>()
        };
        if packets(&now) == packets(&before) {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

fn remote_shell(name: Option<&str>, arguments: &[OsString]) -> Result<u8, LabError> {
    let remote = enter::read_ssh(arguments)?;
    if remote.no_input {
        process::no_input();
    }
    enter::run(&state::choose(name)?, &remote.host, &enter::shell_command(&remote))
}

fn run_inside(
    file: &Path,
    name: Option<String>,
    on: &str,
    out: Option<&Path>,
    quiet: bool,
    command: &[OsString],
) -> Result<u8, LabError> {
    let mut spec = load(file, name.clone())?;
    // Better known before the lab is built than after it.
    plan::find(&spec, &plan::nodes(&spec), on, None).map_err(LabError::Usage)?;
    if name.is_none() {
        spec.name = format!("{}-{}", spec.name, std::process::id());
    }
    // A directory that cannot be written to is better known before the run than after it.
    if let Some(out) = out {
        std::fs::create_dir_all(out).doing(format!("cannot write to {}", out.display()))?;
    }
    let (lab, lifeline) = up::up_bound(&spec)?;
    let result = print_notes(&lab).and_then(|()| run_on(&lab, on, command));
    let saved = match result {
        Ok(_) => finish(&lab, &spec, out, quiet),
        Err(_) => Ok(()),
    };
    let ended = up::down(&lab);
    drop(lifeline);
    ended.and(saved)?;
    result
}

/// Runs the command through this program's `exec`, so that this process stays outside.
fn run_on(lab: &LabDir, node: &str, command: &[OsString]) -> Result<u8, LabError> {
    let program = std::env::current_exe().doing("cannot find this program's own file")?;
    let mut inside = Command::new(program);
    inside.args(["lab", "exec", "--name", &lab.name(), node, "--"]).args(command);
    inside.stdin(Stdio::inherit());
    enter::supervise(&mut inside)
}

fn finish(lab: &LabDir, spec: &Spec, out: Option<&Path>, quiet: bool) -> Result<(), LabError> {
    let status = settled_status(lab)?;
    let summary = match out {
        Some(out) => save::save(lab, spec, &status, out)?,
        None => {
            let rows = crate::traffic::read(&lab.join(crate::traffic::FILE))?;
            save::summary(spec, &status, &rows)
        }
    };
    if !quiet {
        output::log(summary.trim_end());
    }
    Ok(())
}

fn print_job(
    file: &Path,
    mpi: &str,
    launcher: String,
    ranks: u32,
    relays: bool,
) -> Result<u8, LabError> {
    let spec = Spec::load(file)?;
    let launchers = job_file::read_launchers(mpi, &spec)?;
    let choices =
        job_file::Choices { launchers, default_launcher: launcher, ranks_per_node: ranks, relays };
    output::print(&job_file::write(&spec, &choices))?;
    Ok(0)
}

fn hold_lab(dir: PathBuf, inner: bool, lifeline: bool) -> Result<u8, LabError> {
    let lab = LabDir::at(dir);
    let result = if inner { hold::hold(&lab, lifeline) } else { hold::begin(&lab, lifeline) };
    if let Err(error) = &result {
        // To whoever brings the lab up; the log says it too.
        output::log(error);
        if hold::tell(&format!("{error}\n")).is_err() {
            // Who would have taken away what is left is gone.
            lab.remove();
        }
    }
    Ok(u8::from(result.is_err()))
}
