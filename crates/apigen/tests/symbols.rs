//! Each library exports what the table says, the Fortran procedures that take an attribute's key, and nothing else.

mod common;

use gridmpi_apigen::{Table, abi::AbiFacts, api_dir, emit};
use std::collections::BTreeSet;
use std::process::Command;

/// By binding: `mpif.h` and `use mpi` share names, `mpi_f08` has its own but for what is deprecated.
fn fortran() -> impl Iterator<Item = String> {
    let procedures = ["get", "set", "delete"].map(|verb| format!("mpi_comm_{verb}_attr_"));
    let typed = procedures.clone().map(|name| format!("{name}f08_"));
    let old = ["get", "put", "delete"].map(|verb| format!("mpi_attr_{verb}_"));
    procedures.into_iter().chain(typed).chain(old)
}

#[test]
fn libraries_export_the_table() {
    let table = Table::load(&api_dir()).unwrap();
    for facts in AbiFacts::load_all(&api_dir()).unwrap() {
        let names = emit::symbols::names(&table, &facts);
        let wanted: BTreeSet<String> = names.into_iter().chain(fortran()).collect();
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
