//! C types of the standard as Rust types.

use crate::standard::{Direction, Parameter, Procedure};

/// The type of a parameter of the C interface; `A` is the ABI.
pub fn c_type(parameter: &Parameter, large: bool) -> String {
    let base = base_type(parameter.base(large));
    let constant = parameter.constant
        || (parameter.direction == Direction::In && parameter.depth == 1 && base != "c_void");
    match parameter.depth {
        0 => base,
        _ if base == "Function" => base,
        1 if constant => format!("*const {base}"),
        depth => format!("{}{base}", "*mut ".repeat(depth.into())),
    }
}

/// The type that a served procedure's own function takes: scalars and arrays whose width differs between the two forms
/// are normalised, everything else is as in C.
pub fn served_type(procedure: &Procedure, parameter: &Parameter) -> String {
    if !(procedure.large && parameter.is_poly()) {
        return c_type(parameter, false);
    }
    match (parameter.depth, parameter.direction) {
        (0, _) => "Count".into(),
        (_, Direction::In) => "Counts".into(),
        _ => "CountOut".into(),
    }
}

/// Rust's name of a C base type.
pub fn base_type(c: &str) -> String {
    match c {
        "void" | "MPI_F08_status" => "c_void".into(),
        "char" => "c_char".into(),
        "double" => "f64".into(),
        "int" | "MPI_Fint" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int".into(),
        "int[3]" => "[c_int; 3]".into(),
        "MPI_Aint" => "Aint".into(),
        "MPI_Count" | "MPI_Offset" => "Count".into(),
        _ if is_function(c) => "Function".into(),
        _ if c.starts_with("MPI_T_") => "*mut c_void".into(),
        handle => format!("A::{}", handle.trim_start_matches("MPI_")),
    }
}

fn is_function(c: &str) -> bool {
    c.trim_end_matches("_c").ends_with("_function")
}

/// A parameter's name, kept from meeting a keyword of Rust.
pub fn name(parameter: &Parameter) -> String {
    let name = parameter.name.to_lowercase();
    if matches!(name.as_str(), "type" | "ref" | "in" | "fn") { format!("{name}_") } else { name }
}
