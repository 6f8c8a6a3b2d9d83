//! `api/abi/*.toml`: the constants and handle kinds of each ABI. Facts only.

use crate::{ApiError, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The kinds of handle that MPI has, in the order in which they are written.
pub const HANDLES: [&str; 11] = [
    "Comm",
    "Group",
    "Request",
    "Message",
    "Info",
    "Errhandler",
    "Win",
    "File",
    "Session",
    "Op",
    "Datatype",
];

/// One ABI.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbiFacts {
    /// As in file names: `mpich`.
    pub name: String,
    /// As in Rust: `Mpich`.
    pub type_name: String,
    /// A symbol that only a library of this family has.
    pub marker: String,
    /// Has the large-count procedures.
    pub large_counts: bool,
    /// What the keys of predefined attributes are in Fortran above those in C.
    pub fortran_keys: i64,
    /// The newest version of MPI from which any supported vendor has procedures.
    pub newest: String,
    /// What the header of a vendor lacks, by vendor and version.
    #[serde(default)]
    pub absent: BTreeMap<String, Vec<String>>,
    /// The layout of `MPI_Status`.
    pub status: StatusLayout,
    /// Numbers, by name without `MPI_`.
    pub constants: BTreeMap<String, i64>,
    /// Special addresses.
    pub addresses: BTreeMap<String, Value>,
    /// Error classes, by name without `MPI_ERR_`.
    pub errors: BTreeMap<String, i64>,
    /// Combiners, by name without `MPI_COMBINER_`.
    pub combiners: BTreeMap<String, i64>,
    /// The handles, by kind.
    pub handles: BTreeMap<String, HandleFacts>,
}

/// Bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusLayout {
    /// `sizeof`.
    pub size: usize,
    /// `_Alignof`.
    pub align: usize,
    /// Offset of `MPI_SOURCE`.
    pub source: usize,
    /// Offset of `MPI_TAG`.
    pub tag: usize,
    /// Offset of `MPI_ERROR`.
    pub error: usize,
}

/// How a kind of handle is held, and its predefined values by name without `MPI_`.
#[derive(Debug, Deserialize)]
pub struct HandleFacts {
    /// As in C.
    pub representation: Representation,
    /// Predefined handles.
    #[serde(flatten)]
    pub values: BTreeMap<String, Value>,
}

/// What C holds a handle in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Representation {
    /// `int`.
    Int,
    /// A pointer.
    Pointer,
}

/// A number known when the header is compiled, or one that only the loaded library knows.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Value {
    /// Known.
    Number(i64),
    /// The address of a variable, or what it holds.
    Symbol {
        /// Its name.
        symbol: String,
        /// What it holds, instead of its address.
        #[serde(default)]
        read: bool,
    },
}

impl AbiFacts {
    /// Reads `abi/NAME.toml` in `dir`.
    pub fn load(dir: &Path, name: &str) -> Result<Self, ApiError> {
        let path = dir.join("abi").join(format!("{name}.toml"));
        let malformed =
            |reason: String| ApiError::Malformed { path: path.display().to_string(), reason };
        let facts: Self =
            toml::from_str(&read(&path)?).map_err(|error| malformed(error.to_string()))?;
        match HANDLES.iter().find(|kind| !facts.handles.contains_key(**kind)) {
            Some(kind) => Err(malformed(format!("[handles.{kind}] is missing"))),
            None => Ok(facts),
        }
    }

    /// Every file of `abi/` in `dir`, by name.
    pub fn load_all(dir: &Path) -> Result<Vec<Self>, ApiError> {
        let path = dir.join("abi");
        let io = |source| ApiError::Io { path: path.display().to_string(), source };
        let files =
            std::fs::read_dir(&path).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
        let mut names: Vec<_> = files
            .iter()
            .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
            .collect();
        names.sort();
        names.iter().map(|name| Self::load(dir, name)).collect()
    }
}
