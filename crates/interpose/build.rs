//! Writes the vendor table and the entry of each procedure from `api/`.
#![forbid(unsafe_code)]

use gridmpi_apigen::{Table, api_dir, emit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = api_dir();
    println!("cargo::rerun-if-changed={}", dir.display());
    let table = Table::load(&dir)?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("vendor.rs"), emit::vendor::rust(&table))?;
    std::fs::write(out.join("entry.rs"), emit::entry::rust(&table))?;
    Ok(())
}
