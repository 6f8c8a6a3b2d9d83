//! `api/policy.toml`: what we do with each procedure. Policy only.

use crate::{ApiError, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The whole file: one row for every procedure, under its class.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The sentences that rows of `vendor` and `refused` refer to.
    #[serde(default)]
    pub reasons: BTreeMap<String, String>,
    /// Done by us when it meets something of ours.
    #[serde(default)]
    pub served: BTreeMap<String, Served>,
    /// Refused by name when it meets something of ours. The value is a key of `reasons`.
    #[serde(default)]
    pub refused: BTreeMap<String, String>,
    /// Not exported: the vendor's own. The value is a key of `reasons`.
    #[serde(default)]
    pub vendor: BTreeMap<String, String>,
}

/// A row of `served`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// What decides between us and the vendor; where absent, it follows from the parameters.
    pub gate: Option<Gate>,
    /// May wait for, or ask after, another process: goes to us also when a communicator of one cluster is meant, as
    /// long as the runtime has something to move meanwhile (MPI 4.1 §3.5, progress).
    #[serde(default)]
    pub progress: bool,
    /// Goes to us in a job of several clusters, also when a communicator of one cluster is meant: all its members must
    /// come to the vendor by the same procedure, whatever each of them has to move meanwhile (MPI 4.1 §6.12).
    #[serde(default)]
    pub several: bool,
    /// Passed on, it makes no call of MPI's from inside the vendor: it needs no guard then.
    #[serde(default)]
    pub plain: bool,
    /// `interpose/direct.rs` has a short way for it on `MPI_COMM_WORLD` within the cluster.
    #[serde(default)]
    pub direct: bool,
}

/// What decides, at run time, whether a call is ours or goes straight to the vendor.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// A communicator of the arguments spans clusters.
    Comm,
    /// A request of ours is alive.
    Request,
    /// A group of ours is alive.
    Group,
    /// A matched message of ours is alive.
    Message,
    /// We have remembered something about a datatype.
    Datatype,
    /// A communicator of the arguments spans clusters, or the attribute is about rates: no vendor knows that.
    Rate,
    /// The library is at work.
    Active,
    /// Always, also before the library is at work.
    Always,
}

/// The class of one procedure.
#[derive(Clone, Debug)]
pub enum Class {
    /// Ours.
    Served(Served),
    /// Refused, with the reason.
    Refused(String),
    /// The vendor's, with the reason.
    Vendor(String),
}

impl Policy {
    /// Reads `policy.toml` in `dir`.
    pub fn load(dir: &Path) -> Result<Self, ApiError> {
        let path = dir.join("policy.toml");
        Self::parse(&read(&path)?)
            .map_err(|reason| ApiError::Malformed { path: path.display().to_string(), reason })
    }

    /// Reads the text of a `policy.toml`.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// The classes that have a row for a procedure (named without `MPI_`). One, if the file is right.
    pub fn classes(&self, name: &str) -> Vec<Class> {
        let reason = |key: &String| self.reasons.get(key).cloned().unwrap_or_default();
        let served = self.served.get(name).cloned().map(Class::Served);
        let refused = self.refused.get(name).map(|key| Class::Refused(reason(key)));
        let vendor = self.vendor.get(name).map(|key| Class::Vendor(reason(key)));
        served.into_iter().chain(refused).chain(vendor).collect()
    }

    /// Every name that has a row.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.served.keys().chain(self.refused.keys()).chain(self.vendor.keys())
    }

    /// Every reason that a row refers to, with the row's name.
    pub fn reason_keys(&self) -> impl Iterator<Item = (&String, &String)> {
        self.refused.iter().chain(self.vendor.iter())
    }
}
