//! `api/standard.json`: the C signatures of the standard, by kind; and `api/extensions.json`: what vendors declare
//! beyond it, in the same form. Facts only.

use crate::{ApiError, read};
use serde::Deserialize;
use std::path::Path;

/// The whole file.
#[derive(Debug, Deserialize)]
pub struct Standard {
    /// The version of MPI that it describes, such as `5.0`.
    pub standard: String,
    /// Every procedure that C has, by name.
    pub procedures: Vec<Procedure>,
}

#[derive(Deserialize)]
struct Extensions {
    procedures: Vec<Procedure>,
}

/// One procedure.
#[derive(Clone, Debug, Deserialize)]
pub struct Procedure {
    /// As in C: `MPI_Send`.
    pub name: String,
    /// The C type it returns, `int` for nearly all.
    pub returns: String,
    /// Has a large-count form (`MPI_Send_c`).
    #[serde(default)]
    pub large: bool,
    /// The ABIs that have it, where it is a vendor's extension.
    pub abis: Option<Vec<String>>,
    /// The version of MPI that brought it, where that is later than 3.1.
    pub since: Option<String>,
    /// In order.
    pub parameters: Vec<Parameter>,
}

/// Which way a parameter goes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Read by MPI.
    In,
    /// Written by MPI.
    Out,
    /// Both.
    Inout,
}

/// One parameter.
#[derive(Clone, Debug, Deserialize)]
pub struct Parameter {
    /// As in the standard.
    pub name: String,
    /// The standard's kind, such as `RANK` or `POLYXFER_NUM_ELEM_NNI`.
    pub kind: String,
    /// Which way it goes.
    pub direction: Direction,
    /// The C base type, without `const` and stars.
    pub c: String,
    /// The C base type in the large-count form, where that is another.
    pub c_large: Option<String>,
    /// Stars (and brackets) behind the base type.
    #[serde(default)]
    pub depth: u8,
    /// `const` in C.
    #[serde(default, rename = "const")]
    pub constant: bool,
    /// Stands in the large-count form only.
    #[serde(default)]
    pub large_only: bool,
    /// The parameter that says how many elements an array has.
    pub length: Option<String>,
}

impl Standard {
    /// Reads `standard.json` and `extensions.json` in `dir`.
    pub fn load(dir: &Path) -> Result<Self, ApiError> {
        Self::parse(&read(&dir.join("standard.json"))?, &read(&dir.join("extensions.json"))?)
    }

    /// Reads the texts of both files: the standard's procedures, and behind them the extensions.
    ///
    /// # Errors
    /// What the parser says.
    pub fn parse(standard: &str, extensions: &str) -> Result<Self, ApiError> {
        let mut standard: Self = parse("api/standard.json", standard)?;
        let extensions: Extensions = parse("api/extensions.json", extensions)?;
        standard.procedures.extend(extensions.procedures);
        Ok(standard)
    }
}

fn parse<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text)
        .map_err(|error| ApiError::Malformed { path: path.into(), reason: error.to_string() })
}

impl Procedure {
    /// The name of its policy row: without `MPI_`; an extension's `MPIX_` stays.
    pub fn key(&self) -> &str {
        self.name.trim_start_matches("MPI_")
    }

    /// The name in Rust: `MPI_Comm_dup` is `comm_dup`.
    pub fn snake(&self) -> String {
        self.key().to_lowercase()
    }

    /// Cannot be called from Rust with a fixed signature (`MPI_Pcontrol`).
    pub fn is_variadic(&self) -> bool {
        self.parameters.iter().any(|p| p.kind == "VARARGS")
    }

    /// The parameters of the small or the large form.
    pub fn parameters(&self, large: bool) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |p| large || !p.large_only)
    }
}

impl Parameter {
    /// Its width differs between the two forms.
    pub fn is_poly(&self) -> bool {
        self.c_large.is_some()
    }

    /// The base type of the small or the large form.
    pub fn base(&self, large: bool) -> &str {
        match &self.c_large {
            Some(wide) if large => wide,
            _ => &self.c,
        }
    }
}
