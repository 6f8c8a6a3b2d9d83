//! Writes the exported symbols from `api/`.
#![forbid(unsafe_code)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    gridmpi_apigen::build_symbols("openmpi")
}
