//! Standard and policy, joined.

use crate::policy::{Class, Gate, Policy};
use crate::standard::{Direction, Procedure, Standard};
use crate::{ApiError, policy::Served};
use std::collections::BTreeSet;
use std::path::Path;

/// One procedure with its class.
#[derive(Clone, Debug)]
pub struct Entry {
    /// From the standard.
    pub procedure: Procedure,
    /// From the policy.
    pub class: Class,
}

/// Every procedure of the standard, and every extension, each with exactly one class.
#[derive(Debug)]
pub struct Table {
    /// The version of MPI.
    pub standard: String,
    /// By name.
    pub entries: Vec<Entry>,
}

impl Table {
    /// Reads and joins the files in `dir`.
    pub fn load(dir: &Path) -> Result<Self, ApiError> {
        Self::join(Standard::load(dir)?, &Policy::load(dir)?)
    }

    /// The table as it was when this crate was built, for programs that run where there is no `api/`.
    ///
    /// # Errors
    /// None in a build that passed its tests.
    pub fn embedded() -> Result<Self, ApiError> {
        let standard = Standard::parse(
            include_str!("../../../api/standard.json"),
            include_str!("../../../api/extensions.json"),
        )?;
        let policy = Policy::parse(include_str!("../../../api/policy.toml"))
            .map_err(|reason| ApiError::Malformed { path: "api/policy.toml".into(), reason })?;
        Self::join(standard, &policy)
    }

    /// Joins, or says which rows are missing, double or stray.
    pub fn join(standard: Standard, policy: &Policy) -> Result<Self, ApiError> {
        let mut faults = stray_rows(&standard, policy);
        let mut entries = Vec::with_capacity(standard.procedures.len());
        for procedure in standard.procedures {
            let mut classes = policy.classes(procedure.key());
            match (classes.len(), classes.pop()) {
                (1, Some(class)) => entries.push(Entry { procedure, class }),
                (0, _) => faults.push(format!("{} has no row", procedure.name)),
                (n, _) => faults.push(format!("{} has {n} rows", procedure.name)),
            }
        }
        faults.extend(entries.iter().filter_map(Entry::fault));
        if faults.is_empty() {
            Ok(Self { standard: standard.standard, entries })
        } else {
            Err(ApiError::Policy(faults))
        }
    }

    /// What is exported: served and refused.
    pub fn exported(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !matches!(entry.class, Class::Vendor(_)))
    }

    /// What is served, with its row.
    pub fn served(&self) -> impl Iterator<Item = (&Entry, &Served)> {
        self.entries.iter().filter_map(|entry| match &entry.class {
            Class::Served(row) => Some((entry, row)),
            _ => None,
        })
    }
}

fn stray_rows(standard: &Standard, policy: &Policy) -> Vec<String> {
    let known: BTreeSet<&str> = standard.procedures.iter().map(Procedure::key).collect();
    let stray = policy
        .names()
        .filter(|name| !known.contains(name.as_str()))
        .map(|name| format!("the row {name} is of no procedure"));
    let unreasoned = policy
        .reason_keys()
        .filter(|(_, key)| !policy.reasons.contains_key(*key))
        .map(|(name, key)| {
            format!("the row {name} has the reason {key:?}, which is not in [reasons]")
        });
    stray.chain(unreasoned).collect()
}

impl Entry {
    /// What decides at run time. Follows from the parameters read by MPI unless the policy says otherwise.
    pub fn gate(&self) -> Gate {
        if let Class::Served(Served { gate: Some(gate), .. }) = self.class {
            return gate;
        }
        let reads = |kind: &str| {
            self.procedure
                .parameters
                .iter()
                .any(|p| p.kind == kind && p.direction != Direction::Out)
        };
        let gates = [
            ("COMMUNICATOR", Gate::Comm),
            ("REQUEST", Gate::Request),
            ("MESSAGE", Gate::Message),
            ("GROUP", Gate::Group),
        ];
        gates.into_iter().find(|(kind, _)| reads(kind)).map_or(Gate::Active, |(_, gate)| gate)
    }

    fn fault(&self) -> Option<String> {
        let exported = !matches!(self.class, Class::Vendor(_));
        (exported && (self.procedure.is_variadic() || self.procedure.returns != "int")).then(|| {
            format!("{} cannot be exported: it has no fixed signature", self.procedure.name)
        })
    }
}
