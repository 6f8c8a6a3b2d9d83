//! The exported symbols of one ABI's library: both names of each procedure, and nothing but a call.

use super::{arguments, c_parameters, forms};
use crate::abi::AbiFacts;
use crate::standard::Procedure;
use crate::{Entry, Table};

/// Every name that the library exports.
pub fn names(table: &Table, facts: &AbiFacts) -> Vec<String> {
    exports(table, facts).flat_map(|(entry, large)| both(entry, large)).collect()
}

/// The functions. They stand where `gridmpi_interpose::entry` is in scope and `A` is the ABI.
pub fn rust(table: &Table, facts: &AbiFacts) -> String {
    exports(table, facts).map(|(entry, large)| functions(entry, large)).collect()
}

fn exports<'a>(table: &'a Table, facts: &'a AbiFacts) -> impl Iterator<Item = (&'a Entry, bool)> {
    table
        .exported()
        .filter(|entry| is_of(&entry.procedure, facts))
        .flat_map(|entry| forms(entry).iter().map(move |large| (entry, *large)))
        .filter(|(_, large)| facts.large_counts || !large)
}

fn is_of(procedure: &Procedure, facts: &AbiFacts) -> bool {
    let abis = procedure.abis.as_ref();
    procedure.since.as_ref().is_none_or(|since| *since <= facts.newest)
        && abis.is_none_or(|abis| abis.contains(&facts.name))
}

fn both(entry: &Entry, large: bool) -> [String; 2] {
    let name = format!("{}{}", entry.procedure.name, if large { "_c" } else { "" });
    [name.clone(), format!("P{name}")]
}

fn functions(entry: &Entry, large: bool) -> String {
    let procedure = &entry.procedure;
    let parameters = c_parameters(procedure, large).replace("A::", "<A as Abi>::");
    let suffix = if large { "_c" } else { "" };
    let call =
        format!("entry::{}{suffix}::<A>({})", procedure.snake(), arguments(procedure, large));
    both(entry, large)
        .map(|name| {
            format!(
                "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({parameters}) -> c_int {{\n    unsafe {{ {call} }}\n}}\n"
            )
        })
        .concat()
}
