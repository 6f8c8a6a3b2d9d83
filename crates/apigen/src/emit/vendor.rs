//! The vendor table: every procedure of the standard that the vendor below may have.

use super::{arguments, c_parameters, forms};
use crate::{Entry, Table, rust};
use std::fmt::Write as _;

/// `struct Vendor<A>` with a method for each procedure, and the names to look up.
pub fn rust(table: &Table) -> String {
    let rows: Vec<_> =
        table.entries.iter().filter(|e| !e.procedure.is_variadic()).flat_map(rows).collect();
    let mut out = format!(
        "/// How many procedures [`Vendor`] has room for.\npub const PROCEDURES: usize = {};\n\n\
         /// What [`Vendor`] looks up, without the `P` in front.\npub static NAMES: [&CStr; PROCEDURES] = [\n",
        rows.len()
    );
    for (entry, large) in &rows {
        let _ =
            writeln!(out, "    c\"{}{}\",", entry.procedure.name, if *large { "_c" } else { "" });
    }
    out += "];\n\nimpl<A: Abi> Vendor<A> {\n";
    for (index, (entry, large)) in rows.iter().enumerate() {
        out += &method(entry, *large, index);
    }
    out + "}\n"
}

fn rows(entry: &Entry) -> impl Iterator<Item = (&Entry, bool)> {
    forms(entry).iter().map(move |large| (entry, *large))
}

fn method(entry: &Entry, large: bool, index: usize) -> String {
    let procedure = &entry.procedure;
    let suffix = if large { "_c" } else { "" };
    let types: Vec<_> = procedure.parameters(large).map(|p| rust::c_type(p, large)).collect();
    let returns = rust::base_type(&procedure.returns);
    let missing = match returns.as_str() {
        "c_int" => "self.unsupported()".to_owned(),
        "f64" => "0.0".to_owned(),
        "Aint" => "0".to_owned(),
        _ => "Handle::from_bits(0)".to_owned(),
    };
    format!(
        "    /// The vendor's `{name}{suffix}`.\n    #[inline]\n    pub unsafe fn {snake}{suffix}(&self{comma}{parameters}) -> {returns} {{\n        \
         match self.table[{index}] {{\n            \
         // SAFETY: found under this name, so it has the standard's signature.\n            \
         Some(f) => unsafe {{\n                let f: unsafe extern \"C\" fn({types}) -> {returns} = std::mem::transmute(f);\n                \
         f({arguments})\n            }},\n            None => {missing},\n        }}\n    }}\n    \
         /// Whether the vendor has `{name}{suffix}`.\n    pub fn has_{snake}{suffix}(&self) -> bool {{\n        self.table[{index}].is_some()\n    }}\n",
        name = procedure.name,
        snake = procedure.snake(),
        comma = if types.is_empty() { "" } else { ", " },
        parameters = c_parameters(procedure, large),
        types = types.join(", "),
        arguments = arguments(procedure, large),
    )
}
