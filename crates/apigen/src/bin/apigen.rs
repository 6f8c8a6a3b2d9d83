//! Prints what is generated from `api/`, for people and for the files that are checked in.
#![forbid(unsafe_code)]

use gridmpi_apigen::{Table, abi::AbiFacts, api_dir, emit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Table::load(&api_dir())?;
    let what = std::env::args().nth(1).unwrap_or_default();
    let text = match what.as_str() {
        "coverage" => emit::coverage::markdown(&table),
        "symbols" => {
            let abi = std::env::args().nth(2).ok_or("usage: apigen symbols ABI")?;
            emit::symbols::names(&table, &AbiFacts::load(&api_dir(), &abi)?).join("\n") + "\n"
        }
        "serve-signatures" => emit::serve::signatures(&table),
        "serve-stubs" => emit::serve::stubs(&table),
        _ => return Err("usage: apigen coverage|symbols ABI|serve-signatures|serve-stubs".into()),
    };
    print!("{text}");
    Ok(())
}
