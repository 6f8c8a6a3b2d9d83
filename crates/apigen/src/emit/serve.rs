//! The functions that serve: their signatures, for who writes them.

use crate::{Entry, Table, rust};

/// One signature a line, in the order of the policy's table.
pub fn signatures(table: &Table) -> String {
    table.served().map(|(entry, _)| signature(entry) + ";\n").collect()
}

/// A body for each that refuses, to start from.
pub fn stubs(table: &Table) -> String {
    let one = |entry: &Entry| {
        let (name, signature) = (&entry.procedure.name, signature(entry));
        format!(
            "/// {name}\npub unsafe {signature} {{\n    Err(Error::unsupported(\"{name}\"))\n}}\n\n",
        )
    };
    table.served().map(|(entry, _)| one(entry)).collect()
}

/// `fn send<A: Abi>(rt: &Runtime<A>, …) -> Result<(), Error>`.
pub fn signature(entry: &Entry) -> String {
    let procedure = &entry.procedure;
    let parameters: String = procedure
        .parameters(false)
        .map(|p| format!(", {}: {}", rust::name(p), rust::served_type(procedure, p)))
        .collect();
    format!(
        "fn {}<A: Abi>(rt: &'static Runtime<A>{parameters}) -> Result<(), Error>",
        procedure.snake()
    )
}
