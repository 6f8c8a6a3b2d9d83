//! Reads `api/` and writes what follows from it: the vendor table, the entry of each procedure, the exported symbols,
//! each ABI's constants, the coverage table.
//!
//! Facts (`api/standard.json`, `api/abi/*.toml`) and policy (`api/policy.toml`) are separate data. [`Table::load`]
//! joins them and fails when a procedure of the standard has no policy row, or a row has no procedure, so that a
//! procedure that was forgotten breaks the build instead of running on a part of a communicator.
#![forbid(unsafe_code)]

pub mod abi;
pub mod emit;
pub mod policy;
pub mod rust;
pub mod standard;
mod table;

pub use table::{Entry, Table};

/// What is wrong in `api/`, said so that the line at fault is found.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// Policy and standard do not agree, one line each.
    #[error("api/policy.toml does not fit api/standard.json:\n  {}", .0.join("\n  "))]
    Policy(Vec<String>),
}

/// The repository's `api` directory, seen from any crate of the workspace.
pub fn api_dir() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api")
}

/// Reads a file of `api/`.
pub(crate) fn read(path: &std::path::Path) -> Result<String, ApiError> {
    std::fs::read_to_string(path)
        .map_err(|source| ApiError::Io { path: path.display().to_string(), source })
}

/// For the build script of a crate that is one ABI's library: writes the exported symbols.
///
/// # Errors
/// What is wrong in `api/`.
pub fn build_symbols(abi: &str) -> Result<(), Box<dyn std::error::Error>> {
    let dir = api_dir();
    println!("cargo::rerun-if-changed={}", dir.display());
    let symbols = emit::symbols::rust(&Table::load(&dir)?, &abi::AbiFacts::load(&dir, abi)?);
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("symbols.rs");
    std::fs::write(out, symbols)?;
    Ok(())
}
