//! The facts in `api/` are those of every vendor's `mpi.h`: constants, layouts, signatures.

mod common;

use common::{VENDORS, Vendor};
use gridmpi_apigen::abi::{AbiFacts, HANDLES, Representation, Value};
use gridmpi_apigen::api_dir;
use gridmpi_apigen::standard::{Parameter, Procedure, Standard};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A C program that prints a line for every fact that does not hold.
struct Probe {
    declarations: String,
    checks: String,
}

impl Probe {
    fn new() -> Self {
        Self { declarations: String::new(), checks: String::new() }
    }

    /// `expression`, as a number, is what the facts say.
    fn expect(&mut self, expression: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.checks, "    EXPECT({expression}, {value});");
    }

    fn expect_value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Number(number) => self.expect(&format!("MPI_{name}"), format!("{number}LL")),
            Value::Symbol { symbol, read: true } => {
                self.expect(&format!("MPI_{name}"), format!("(intptr_t){symbol}"))
            }
            Value::Symbol { symbol, .. } => {
                let address = format!("(intptr_t)dlsym(RTLD_DEFAULT, \"{symbol}\")");
                self.expect(&format!("MPI_{name}"), address);
            }
        }
    }

    fn source(&self) -> String {
        format!(
            "#define _GNU_SOURCE\n#include <mpi.h>\n#include <dlfcn.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n{}\n\
             #define EXPECT(got, want) do {{ long long g = (long long)(intptr_t)(got), w = (long long)(want); \
             if (g != w) printf(\"%s is %lld, not %lld\\n\", #got, g, w); }} while (0)\n\
             int main(void) {{\n{}    puts(\"checked\");\n    return 0;\n}}\n",
            self.declarations, self.checks
        )
    }
}

fn probe(facts: &AbiFacts, absent: &BTreeSet<String>) -> Probe {
    let mut probe = Probe::new();
    let there = |name: &String| !absent.contains(name);
    for (name, value) in facts.constants.iter().filter(|(name, _)| there(name)) {
        probe.expect(&format!("MPI_{name}"), value);
    }
    for (prefix, table) in [("ERR", &facts.errors), ("COMBINER", &facts.combiners)] {
        for (name, value) in
            table.iter().map(|(n, v)| (format!("{prefix}_{n}"), v)).filter(|(n, _)| there(n))
        {
            probe.expect(&format!("MPI_{name}"), value);
        }
    }
    let addresses = facts.addresses.iter().filter(|(name, _)| there(name));
    addresses.for_each(|(name, value)| probe.expect_value(name, value));
    for kind in HANDLES {
        let handle = &facts.handles[kind];
        let size = if handle.representation == Representation::Int { 4 } else { 8 };
        if !absent.contains(kind) {
            probe.expect(&format!("sizeof(MPI_{kind})"), size);
        }
        for (name, value) in handle.values.iter().filter(|(name, _)| there(name)) {
            probe.expect_value(name, value);
        }
    }
    let layout = &facts.status;
    probe.expect("sizeof(MPI_Status)", layout.size);
    probe.expect("_Alignof(MPI_Status)", layout.align);
    for (field, offset) in [("SOURCE", layout.source), ("TAG", layout.tag), ("ERROR", layout.error)]
    {
        probe.expect(&format!("offsetof(MPI_Status, MPI_{field})"), offset);
    }
    for kind in ["Aint", "Count", "Offset"] {
        probe.expect(&format!("sizeof(MPI_{kind})"), 8);
    }
    probe.expect("sizeof(MPI_Fint)", 4);
    probe
}

#[test]
fn constants_are_those_of_every_vendor() {
    let scratch = common::scratch("constants");
    for vendor in &VENDORS {
        let facts = AbiFacts::load(&api_dir(), vendor.abi).unwrap();
        let absent =
            facts.absent.get(vendor.tag).cloned().unwrap_or_default().into_iter().collect();
        let program = vendor.build(&scratch, &probe(&facts, &absent).source());
        let run = std::process::Command::new(program).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "checked\n", "{}", vendor.tag);
    }
}

/// The standard's signature as a C declaration, which the compiler compares with the header's.
fn declaration(procedure: &Procedure, large: bool) -> String {
    let parameters: Vec<_> = procedure.parameters(large).map(|p| parameter(p, large)).collect();
    let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
    let suffix = if large { "_c" } else { "" };
    format!("{} {}{suffix}({parameters});", procedure.returns, procedure.name)
}

fn parameter(parameter: &Parameter, large: bool) -> String {
    let constant = if parameter.constant { "const " } else { "" };
    let (base, name) = (parameter.base(large), &parameter.name);
    match base.strip_suffix("[3]") {
        Some(base) => format!("{constant}{base} {name}[][3]"),
        None if base == "\\ldots" => "...".into(),
        None => format!("{constant}{base} {}{name}", "*".repeat(parameter.depth.into())),
    }
}

/// What a header declares, by name.
fn declared(vendor: &Vendor, scratch: &std::path::Path) -> BTreeSet<String> {
    let file = scratch.join("include.c");
    std::fs::write(&file, "#include <mpi.h>\n").unwrap();
    let text = vendor.compile(&["-E", "-P", common::text(&file)]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("MPI_")).map(str::to_owned).collect()
}

/// `const` is left out on both sides: some headers forget it, and no call notices.
#[test]
fn signatures_are_those_of_every_vendor() {
    let scratch = common::scratch("signatures");
    let standard = Standard::load(&api_dir()).unwrap();
    for vendor in &VENDORS {
        let declarations = declarations(&standard, &declared(vendor, &scratch));
        let file = scratch.join(format!("{}.c", vendor.tag));
        std::fs::write(&file, format!("#include <mpi.h>\n{}", declarations.concat())).unwrap();
        let run = vendor.compile(&["-w", "-Dconst=", "-fsyntax-only", common::text(&file)]);
        assert!(declarations.len() > 400, "{}: {}", vendor.tag, declarations.len());
        assert!(run.status.success(), "{}:\n{}", vendor.tag, String::from_utf8_lossy(&run.stderr));
    }
}

/// The standard's declarations of what a header has.
fn declarations(standard: &Standard, declared: &BTreeSet<String>) -> Vec<String> {
    let forms = |procedure| [(procedure, false), (procedure, true)];
    let all = standard.procedures.iter().flat_map(forms);
    all.filter(|(procedure, large)| !large || procedure.large)
        .map(|(p, large)| (format!("{}{}", p.name, if large { "_c" } else { "" }), p, large))
        .filter(|(name, ..)| declared.contains(name))
        .map(|(name, procedure, large)| {
            format!("#undef {name}\n{}\n", declaration(procedure, large))
        })
        .collect()
}
