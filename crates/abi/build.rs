//! Writes the trait `Abi` and its implementations from `api/abi/*.toml`.
#![forbid(unsafe_code)]

use gridmpi_apigen::{abi::AbiFacts, api_dir, emit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = api_dir();
    println!("cargo::rerun-if-changed={}", dir.join("abi").display());
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("abi.rs");
    std::fs::write(out, emit::abi::rust(&AbiFacts::load_all(&dir)?)?)?;
    Ok(())
}
