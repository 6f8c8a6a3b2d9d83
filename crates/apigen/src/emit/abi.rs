//! The trait `Abi`, its implementations, and the names that are the same in every ABI.

use crate::ApiError;
use crate::abi::{AbiFacts, HANDLES, HandleFacts, Representation, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// All of it.
///
/// # Errors
/// When the ABIs do not have the same constants.
pub fn rust(abis: &[AbiFacts]) -> Result<String, ApiError> {
    same_keys(abis, "constants", |facts| facts.constants.keys())?;
    same_keys(abis, "addresses", |facts| facts.addresses.keys())?;
    let mut out = String::new();
    let neutral = Neutral::of(abis);
    out += &neutral.rust();
    out += &trait_definition(&abis[0]);
    for facts in abis {
        out += &implementation(facts, &neutral);
    }
    Ok(out)
}

fn same_keys<'a, I: Iterator<Item = &'a String>>(
    abis: &'a [AbiFacts],
    table: &str,
    keys: impl Fn(&'a AbiFacts) -> I,
) -> Result<(), ApiError> {
    let of = |facts| keys(facts).collect::<BTreeSet<_>>();
    for facts in &abis[1..] {
        if let Some(name) = of(facts).symmetric_difference(&of(&abis[0])).next() {
            let reason = format!("[{table}] {name} is not in every ABI");
            return Err(ApiError::Malformed {
                path: format!("api/abi/{}.toml", facts.name),
                reason,
            });
        }
    }
    Ok(())
}

/// The names that every ABI gives its own numbers to.
struct Neutral {
    errors: BTreeSet<String>,
    combiners: BTreeSet<String>,
    datatypes: BTreeSet<String>,
    operations: BTreeSet<String>,
}

impl Neutral {
    fn of(abis: &[AbiFacts]) -> Self {
        let union =
            |names: &dyn Fn(&AbiFacts) -> Vec<String>| abis.iter().flat_map(names).collect();
        let handles = |kind: &'static str| {
            move |facts: &AbiFacts| {
                let names = facts.handles[kind].values.keys();
                names.filter(|name| !name.ends_with("_NULL")).cloned().collect()
            }
        };
        Self {
            errors: union(&|facts| facts.errors.keys().cloned().collect()),
            combiners: union(&|facts| facts.combiners.keys().cloned().collect()),
            datatypes: union(&handles("Datatype")),
            operations: union(&handles("Op")),
        }
    }

    fn rust(&self) -> String {
        enumeration("ErrorClass", "An error class (MPI 4.1 §9.4).", "ERR_", &self.errors)
            + &enumeration(
                "Combiner",
                "How a datatype was made (MPI 4.1 §5.1.13).",
                "COMBINER_",
                &self.combiners,
            )
            + &enumeration("Named", "A predefined datatype.", "", &self.datatypes)
            + &enumeration(
                "Operation",
                "A predefined operation (MPI 4.1 §6.9.2).",
                "",
                &self.operations,
            )
    }
}

fn enumeration(name: &str, doc: &str, prefix: &str, members: &BTreeSet<String>) -> String {
    let mut variants = String::new();
    for member in members {
        let _ = writeln!(variants, "    /// `MPI_{prefix}{member}`.\n    {},", camel(member));
    }
    let all: Vec<_> = members.iter().map(|member| format!("Self::{}", camel(member))).collect();
    format!(
        "/// {doc}\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\npub enum {name} {{\n{variants}}}\n\n\
         impl {name} {{\n    /// Every one.\n    pub const ALL: &'static [Self] = &[{}];\n}}\n\n",
        all.join(", ")
    )
}

/// `UNSIGNED_CHAR` is `UnsignedChar`, `2INT` is `TwoInt`.
fn camel(name: &str) -> String {
    let name = name.strip_prefix('2').map_or(name.to_owned(), |rest| format!("TWO_{rest}"));
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..].to_lowercase()).collect()
}

/// Predefined handles that the trait has a function for; the others go by [`Neutral`] names.
fn has_function(kind: &str, name: &str) -> bool {
    !matches!(kind, "Op" | "Datatype") || name.ends_with("_NULL")
}

fn trait_definition(model: &AbiFacts) -> String {
    let mut out = String::from(
        "/// One ABI of MPI.\npub trait Abi: Copy + Eq + Debug + Send + Sync + 'static {\n\
         /// As in file names: `mpich`.\nconst NAME: &'static str;\n\
         /// A symbol that only a library of this family has.\nconst MARKER: &'static std::ffi::CStr;\n\
         /// Has the large-count procedures.\nconst LARGE_COUNTS: bool;\n\
         /// What the keys of predefined attributes are in Fortran above those in C.\nconst FORTRAN_KEYS: c_int;\n\
         /// What only the loaded library knows; to be looked up and given to [`Abi::set_symbol`] at start.\n\
         const SYMBOLS: &'static [Symbol];\n\
         /// Gives the value of `SYMBOLS[index]`. Before that it is 0.\nfn set_symbol(index: usize, value: usize);\n\
         /// `MPI_Status`.\ntype Status: StatusFields;\n",
    );
    for kind in HANDLES {
        let _ = writeln!(out, "/// `MPI_{kind}`.\ntype {kind}: Handle;");
    }
    for name in model.constants.keys() {
        let _ = writeln!(out, "/// `MPI_{name}`.\nconst {name}: c_int;");
    }
    for name in model.addresses.keys() {
        let _ = writeln!(
            out,
            "/// `MPI_{name}`.\nfn {}() -> *mut {};",
            name.to_lowercase(),
            pointee("Self::", name)
        );
    }
    for kind in HANDLES {
        for name in model.handles[kind].values.keys().filter(|name| has_function(kind, name)) {
            let _ =
                writeln!(out, "/// `MPI_{name}`.\nfn {}() -> Self::{kind};", name.to_lowercase());
        }
    }
    out += "/// The number of a class; that of `OTHER` where this ABI has not the class.\nfn error_class(class: ErrorClass) -> c_int;\n\
        /// The class that has a number (a class's number, not any error code).\nfn class_of(number: c_int) -> Option<ErrorClass>;\n\
        /// The combiner that has a number.\nfn combiner(number: c_int) -> Option<Combiner>;\n\
        /// A predefined datatype; `MPI_DATATYPE_NULL` where this ABI has it not.\nfn datatype(name: Named) -> Self::Datatype;\n\
        /// A predefined operation.\nfn operation(name: Operation) -> Self::Op;\n}\n\n";
    out
}

fn pointee(path: &str, name: &str) -> String {
    if name.starts_with("STATUS") { format!("{path}Status") } else { "c_void".into() }
}

/// The symbols of an ABI, numbered as they are met.
#[derive(Default)]
struct Symbols(Vec<(String, bool)>);

impl Symbols {
    /// The expression of a value's bits.
    fn bits(&mut self, table: &str, value: &Value) -> String {
        match value {
            Value::Number(number) => format!("{}usize", *number as usize),
            Value::Symbol { symbol, read } => {
                let key = (symbol.clone(), *read);
                let index = self.0.iter().position(|known| *known == key).unwrap_or_else(|| {
                    self.0.push(key);
                    self.0.len() - 1
                });
                format!("{table}[{index}].load(Ordering::Relaxed)")
            }
        }
    }
}

fn implementation(facts: &AbiFacts, neutral: &Neutral) -> String {
    let name = &facts.type_name;
    let table = format!("{}_SYMBOLS", facts.name.to_uppercase());
    let mut symbols = Symbols::default();
    let mut body = String::new();
    for kind in HANDLES {
        let holder = match facts.handles[kind].representation {
            Representation::Int => "IntHandle",
            Representation::Pointer => "PointerHandle",
        };
        let _ = writeln!(body, "type {kind} = {holder}<kind::{kind}>;");
    }
    for (constant, value) in &facts.constants {
        let _ = writeln!(body, "const {constant}: c_int = {value};");
    }
    for (address, value) in &facts.addresses {
        let bits = symbols.bits(&table, value);
        let _ = writeln!(
            body,
            "#[inline] fn {}() -> *mut {} {{ std::ptr::without_provenance_mut({bits}) }}",
            address.to_lowercase(),
            pointee("Self::", address)
        );
    }
    for kind in HANDLES {
        for (handle, value) in
            facts.handles[kind].values.iter().filter(|(n, _)| has_function(kind, n))
        {
            let bits = symbols.bits(&table, value);
            let _ = writeln!(
                body,
                "#[inline] fn {}() -> Self::{kind} {{ Handle::from_bits({bits}) }}",
                handle.to_lowercase()
            );
        }
    }
    body += &numbers(facts, neutral);
    body += &named(
        &mut symbols,
        &table,
        "datatype",
        "Named",
        &facts.handles["Datatype"],
        &neutral.datatypes,
    );
    body += &named(
        &mut symbols,
        &table,
        "operation",
        "Operation",
        &facts.handles["Op"],
        &neutral.operations,
    );
    let rows: String = symbols
        .0
        .iter()
        .map(|(symbol, read)| format!("Symbol {{ name: c\"{symbol}\", read: {read} }}, "))
        .collect();
    format!(
        "{status}/// The ABI `{file}`.\n#[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub struct {name};\n\n\
         static {table}: [AtomicUsize; {len}] = [const {{ AtomicUsize::new(0) }}; {len}];\n\n\
         impl Abi for {name} {{\nconst NAME: &'static str = \"{file}\";\nconst MARKER: &'static std::ffi::CStr = c\"{marker}\";\n\
         const LARGE_COUNTS: bool = {large};\nconst FORTRAN_KEYS: c_int = {fortran_keys};\nconst SYMBOLS: &'static [Symbol] = &[{rows}];\n\
         fn set_symbol(index: usize, value: usize) {{ {table}[index].store(value, Ordering::Relaxed); }}\n\
         type Status = {name}Status;\n{body}}}\n\n",
        status = status(facts),
        file = facts.name,
        marker = facts.marker,
        large = facts.large_counts,
        fortran_keys = facts.fortran_keys,
        len = symbols.0.len(),
    )
}

fn numbers(facts: &AbiFacts, neutral: &Neutral) -> String {
    let other = facts.errors["OTHER"];
    let number = |name: &String| facts.errors.get(name).copied().unwrap_or(other);
    let to: Vec<_> = neutral
        .errors
        .iter()
        .map(|n| format!("ErrorClass::{} => {},", camel(n), number(n)))
        .collect();
    let back = |class: &str, table: &BTreeMap<String, i64>| -> String {
        table.iter().map(|(n, v)| format!("{v} => {class}::{},", camel(n))).collect()
    };
    format!(
        "fn error_class(class: ErrorClass) -> c_int {{ match class {{ {} }} }}\n\
         fn class_of(number: c_int) -> Option<ErrorClass> {{ Some(match number {{ {} _ => return None }}) }}\n\
         fn combiner(number: c_int) -> Option<Combiner> {{ Some(match number {{ {} _ => return None }}) }}\n",
        to.concat(),
        back("ErrorClass", &facts.errors),
        back("Combiner", &facts.combiners),
    )
}

fn named(
    symbols: &mut Symbols,
    table: &str,
    function: &str,
    neutral: &str,
    handles: &HandleFacts,
    names: &BTreeSet<String>,
) -> String {
    let null = handles.values.keys().find(|name| name.ends_with("_NULL"));
    let arms: String = names
        .iter()
        .filter_map(|name| {
            let value = handles.values.get(name).or_else(|| handles.values.get(null?))?;
            Some(format!("{neutral}::{} => {}, ", camel(name), symbols.bits(table, value)))
        })
        .collect();
    let kind = if neutral == "Named" { "Datatype" } else { "Op" };
    format!(
        "fn {function}(name: {neutral}) -> Self::{kind} {{ Handle::from_bits(match name {{ {arms} }}) }}\n"
    )
}

fn status(facts: &AbiFacts) -> String {
    let layout = &facts.status;
    let mut accessors = String::new();
    for (field, offset) in [("source", layout.source), ("tag", layout.tag), ("error", layout.error)]
    {
        let index = offset / 4;
        let _ = writeln!(
            accessors,
            "#[inline] fn {field}(&self) -> c_int {{ self.words[{index}] }}\n\
             #[inline] fn set_{field}(&mut self, {field}: c_int) {{ self.words[{index}] = {field}; }}"
        );
    }
    let name = format!("{}Status", facts.type_name);
    format!(
        "/// `MPI_Status` of the ABI `{}`.\n#[derive(Clone, Copy, Debug, Default)]\n#[repr(C, align({}))]\npub struct {name} {{ words: [c_int; {}] }}\n\n\
         impl StatusFields for {name} {{\n{accessors}}}\n\n",
        facts.name,
        layout.align,
        layout.size / 4,
    )
}
