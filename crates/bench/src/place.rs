//! Where programs run: labs of two clusters, which live no longer than this process.

use crate::error::BenchError;
use crate::process::{self, Running, Said};
use crate::programs::Mpi;
use gridmpi_lab::spec::{LoadError, Spec};
use gridmpi_lab::state::LabDir;
use gridmpi_lab::up::{self, Lifeline};
use gridmpi_lab::{error::LabError, plan};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The interface towards the other cluster.
pub const INTERFACE: &str = "eth1";

/// The path between the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A virtual cable.
    Plain,
    /// A virtual cable, and interfaces of 160 Mbit/s: a slow path that costs no processor time.
    Shaped,
    /// 10 ms one way and 160 Mbit/s.
    Slow,
    /// 10 ms one way, as fast as the emulator carries.
    Fast,
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Shaped => "shaped",
            Self::Slow => "slow",
            Self::Fast => "fast",
        }
    }

    fn text(self) -> String {
        let (interface, link) = match self {
            Self::Plain => ("", "emulate = false"),
            Self::Shaped => ("interface = \"160 Mbit/s\"\n", "emulate = false"),
            Self::Slow => ("", "delay = \"10 ms\"\nbandwidth = \"160 Mbit/s\""),
            Self::Fast => ("", "delay = \"10 ms\""),
        };
        let cluster =
            |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n{interface}");
        let gso = self != Self::Slow;
        format!("gso = {gso}\n{}{}[[link]]\n{link}\n", cluster("a"), cluster("b"))
    }
}

/// A lab of one node (`a1`, `b1`) in each of two clusters. It goes down when this is dropped.
#[derive(Debug)]
pub struct Lab {
    directory: LabDir,
    spec: Spec,
    lifeline: Option<Lifeline>,
}

impl Lab {
    /// Brings it up.
    ///
    /// # Errors
    /// The system does not allow it, or a tool is missing.
    pub fn up(path: Route) -> Result<Self, BenchError> {
        let name = format!("bench-{}-{}", std::process::id(), path.name());
        let parsed = Spec::parse(&path.text(), "the bench's lab", &name);
        let mut spec = parsed.map_err(|error| LabError::Load(LoadError::Spec(error)))?;
        spec.name = name;
        let (directory, lifeline) = up::up_bound(&spec)?;
        Ok(Self { directory, spec, lifeline: Some(lifeline) })
    }

    /// A node's address towards the other cluster.
    #[must_use]
    pub fn wide_address(&self, node: &str) -> String {
        let nodes = plan::nodes(&self.spec);
        let found = nodes.iter().find(|known| known.name == node);
        found.map_or_else(String::new, |node| node.wan().to_string())
    }

    /// Starts a command on a node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start<S: AsRef<OsStr>>(&self, node: &str, command: &[S]) -> Result<Running, BenchError> {
        let name = command.first().map_or("", |word| word.as_ref().to_str().unwrap_or("it"));
        let short = Path::new(name).file_name().and_then(OsStr::to_str).unwrap_or(name);
        process::start(short, self.command(node)?.args(command))
    }

    /// Runs a command on a node to its end.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        node: &str,
        command: &[S],
        until: Instant,
    ) -> Result<Said, BenchError> {
        self.start(node, command)?.finish(until)
    }

    fn command(&self, node: &str) -> Result<Command, BenchError> {
        let mut command = Command::new(own_program()?);
        command.args(["lab", "exec", "--name", &self.directory.name(), node, "--"]);
        Ok(command)
    }

    /// Runs an MPI program over both clusters, with so many ranks in each.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn job(&self, job: &Job<'_>, until: Instant) -> Result<Said, BenchError> {
        let text = self.job_file(job);
        fs::write(job.file, text).map_err(|error| {
            let what = format!("cannot write {}", job.file.display());
            BenchError::File { what, error }
        })?;
        let gridmpi = own_program()?;
        let (run, dashes) = (OsStr::new("run"), OsStr::new("--"));
        let mut command =
            vec![gridmpi.as_os_str(), run, job.file.as_os_str(), dashes, job.program.as_os_str()];
        command.extend(job.arguments.iter().map(OsStr::new));
        self.run(plan::HEAD, &command, until)
    }

    fn job_file(&self, job: &Job<'_>) -> String {
        let mut text = String::new();
        for node in plan::nodes(&self.spec) {
            let cluster = &self.spec.clusters[node.cluster].name;
            let (address, ranks) = (node.lan(), job.ranks[node.cluster.min(1)]);
            text += &format!(
                "[[cluster]]\nname = \"{cluster}\"\nlauncher = \"{}\"\nlauncher_args = {:?}\n\
                 ranks = {ranks}\nranks_per_host = {ranks}\nhosts = [\"{address}\"]\n\
                 remote_shell = \"lab-ssh\"\ninterface = \"{INTERFACE}\"\n",
                job.mpi.launcher, job.mpi.arguments,
            );
        }
        text
    }

    /// Runs an MPI program on the first node by the vendor alone.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn alone(&self, job: &Job<'_>, until: Instant) -> Result<Said, BenchError> {
        let ranks = job.ranks[0].to_string();
        let mut command = vec![OsStr::new(job.mpi.launcher)];
        command.extend(job.mpi.arguments.iter().map(OsStr::new));
        command.extend([OsStr::new("-n"), OsStr::new(&ranks), job.program.as_os_str()]);
        command.extend(job.arguments.iter().map(OsStr::new));
        self.run("a1", &command, until)
    }
}

/// An MPI program and how it is started.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Whose it is.
    pub mpi: &'a Mpi,
    /// Where the job file may be written.
    pub file: &'a Path,
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Ranks in each cluster.
    pub ranks: [u32; 2],
}

fn own_program() -> Result<std::path::PathBuf, BenchError> {
    std::env::current_exe().map_err(|error| {
        let what = "cannot find this program's own file".to_owned();
        BenchError::File { what, error }
    })
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = up::down(&self.directory);
        // What could not be taken down in order goes with its lifeline.
        self.lifeline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_a_lab() {
        for path in [Route::Plain, Route::Shaped, Route::Slow, Route::Fast] {
            let spec = Spec::parse(&path.text(), "t", "t").unwrap();
            assert_eq!(spec.clusters.len(), 2);
            assert_eq!(spec.links[0].emulate, matches!(path, Route::Slow | Route::Fast));
            assert_eq!(spec.gso, path != Route::Slow);
        }
    }
}
