//! What can go wrong with a lab, said so that the reader knows what to do.

use std::io;
use std::path::PathBuf;

/// Why a lab command failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab file.
    #[error(transparent)]
    Load(#[from] crate::spec::LoadError),
    /// A step of building failed.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// A kernel tool refused.
    #[error("`{program}` failed: {message}")]
    Tool {
        /// Which program.
        program: String,
        /// What it said.
        message: String,
    },
    /// A kernel tool is not there.
    #[error("`{program}` is not installed: install the package {package}")]
    NoTool {
        /// Which program.
        program: String,
        /// Where it comes from, by Debian's name.
        package: &'static str,
    },
    /// The system does not let this user make namespaces.
    #[error("this system does not allow a lab without root: {0}")]
    NotAllowed(String),
    /// A name that is already taken.
    #[error(
        "a lab `{0}` is up already: take it down (`gridmpi lab down --name {0}`) or choose another --name"
    )]
    Exists(String),
    /// Something that is no lab's has the place of its directory.
    #[error(
        "{} is not a lab's, and is left alone: choose another --name, or by GRIDMPI_LAB_DIR another directory for labs", .0.display()
    )]
    Taken(PathBuf),
    /// No such lab, or none at all.
    #[error("{0}")]
    NoLab(String),
    /// No such node, or several.
    #[error("lab `{lab}`: {why}")]
    NoNode {
        /// The lab's name.
        lab: String,
        /// What there is instead.
        why: String,
    },
    /// The lab did not come up.
    #[error("the lab did not come up: {0}")]
    NotUp(String),
    /// The command inside could not be started.
    #[error("cannot run `{0}`: {1}")]
    Command(String, #[source] io::Error),
    /// A recording that is not one.
    #[error("{}:{line}: {message}", file.display())]
    Recording {
        /// The file.
        file: PathBuf,
        /// Its line.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A result could not be printed.
    #[error("cannot write to the standard output: {0}")]
    Output(#[source] io::Error),
    /// Something asked for on the command line cannot be.
    #[error("{0}")]
    Usage(String),
}

impl LabError {
    /// What a command that fails with it exits with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Output(_)) { 1 } else { 2 }
    }

    /// A kernel tool is not there.
    #[must_use]
    pub fn no_tool(program: &str) -> Self {
        let package = if program == "nft" { "nftables" } else { "iproute2" };
        Self::NoTool { program: program.to_owned(), package }
    }
}

/// Names what was being done when a system call failed.
pub trait Doing<T> {
    /// Adds the description.
    ///
    /// # Errors
    /// The same as before, described.
    fn doing(self, what: impl Into<String>) -> Result<T, LabError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, LabError> {
        self.map_err(|error| LabError::Io(what.into(), error))
    }
}
