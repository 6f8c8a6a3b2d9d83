//! What is written from the table.

pub mod abi;
pub mod coverage;
pub mod entry;
pub mod serve;
pub mod symbols;
pub mod vendor;

use crate::standard::{Parameter, Procedure};
use crate::{Entry, rust};

/// `name: type, …` of the C interface's small or large form.
pub(crate) fn c_parameters(procedure: &Procedure, large: bool) -> String {
    let one = |p: &Parameter| format!("{}: {}", rust::name(p), rust::c_type(p, large));
    procedure.parameters(large).map(one).collect::<Vec<_>>().join(", ")
}

/// `name, …`.
pub(crate) fn arguments(procedure: &Procedure, large: bool) -> String {
    procedure.parameters(large).map(rust::name).collect::<Vec<_>>().join(", ")
}

/// The forms that a procedure has: small, and large where there is one.
pub(crate) fn forms(entry: &Entry) -> &'static [bool] {
    if entry.procedure.large { &[false, true] } else { &[false] }
}
