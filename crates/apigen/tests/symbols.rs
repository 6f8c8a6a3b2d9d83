//! Each library exports what the table says, and nothing else.

mod common;

use gridmpi_apigen::{Table, abi::AbiFacts, api_dir, emit};
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn libraries_export_the_table() {
    let table = Table::load(&api_dir()).unwrap();
    for facts in AbiFacts::load_all(&api_dir()).unwrap() {
        let wanted: BTreeSet<String> = emit::symbols::names(&table, &facts).into_iter().collect();
        assert_eq!(wanted, exported(&facts.name), "{}", facts.name);
    }
}

fn exported(abi: &str) -> BTreeSet<String> {
    let listing = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(common::library(abi))
        .output();
    let listing = String::from_utf8(listing.unwrap().stdout).unwrap();
    listing.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// mpi4py looks for these in the main program to learn the ABI; Open MPI has no large-count procedures.
#[test]
fn what_misleads_programs_is_not_exported() {
    let table = Table::load(&api_dir()).unwrap();
    let facts = |abi| AbiFacts::load(&api_dir(), abi).unwrap();
    let names = emit::symbols::names(&table, &facts("mpich"));
    assert!(names.contains(&"PMPI_Send_c".to_owned()));
    assert!(!names.iter().any(|name| name.contains("Get_version") || name.contains("Abi_get")));
    let names = emit::symbols::names(&table, &facts("openmpi"));
    assert!(names.contains(&"PMPI_Send".to_owned()));
    assert!(!names.iter().any(|name| name.ends_with("_c")));
}
