//! Standard and policy fit, and a build with a gap in the policy fails.

use gridmpi_apigen::policy::{Class, Policy};
use gridmpi_apigen::standard::Standard;
use gridmpi_apigen::{ApiError, Table, api_dir, emit};

fn faults(change: impl FnOnce(String) -> String) -> Vec<String> {
    let text = std::fs::read_to_string(api_dir().join("policy.toml")).unwrap();
    let policy = Policy::parse(&change(text)).unwrap();
    match Table::join(Standard::load(&api_dir()).unwrap(), &policy) {
        Err(ApiError::Policy(faults)) => faults,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_procedure_has_a_class() {
    let table = Table::load(&api_dir()).unwrap();
    assert!(table.entries.len() > 500);
    assert_eq!(table.entries.len(), Table::embedded().unwrap().entries.len());
}

#[test]
fn a_missing_row_fails() {
    let faults = faults(|text| text.replace("\nIbarrier = ", "\n# Ibarrier = "));
    assert_eq!(faults, ["MPI_Ibarrier has no row"]);
}

#[test]
fn a_stray_row_fails() {
    let faults =
        faults(|text| text.replace("\n[refused]\n", "\n[refused]\nIsend_twice = \"file\"\n"));
    assert_eq!(faults, ["the row Isend_twice is of no procedure"]);
}

#[test]
fn a_double_row_fails() {
    let faults = faults(|text| text.replace("\n[refused]\n", "\n[refused]\nSend = \"file\"\n"));
    assert_eq!(faults, ["MPI_Send has 2 rows"]);
}

#[test]
fn a_row_without_its_reason_fails() {
    let faults = faults(|text| text.replace("\nIbarrier = \"", "\nIbarrier = \"because-"));
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("the row Ibarrier has the reason \"because-"), "{faults:?}");
}

/// A procedure that takes a communicator, request, message or group falls through to the vendor only for a reason that
/// was weighed; the list of those reasons is here so that a new one is noticed.
#[test]
fn what_takes_a_token_falls_through_for_few_reasons() {
    let weighed = [
        "cached",
        "dynamic-part",
        "error-handler",
        "grequest",
        "intra",
        "pack",
        "partitioned-part",
        "token-is-handle",
        "window-part",
        "session-part",
        "file-part",
        "buffer-flush",
    ];
    let policy = Policy::load(&api_dir()).unwrap();
    for entry in Table::load(&api_dir()).unwrap().entries {
        let tokens = ["COMMUNICATOR", "REQUEST", "MESSAGE", "GROUP"];
        let takes = entry.procedure.parameters.iter().any(|p| tokens.contains(&p.kind.as_str()));
        if takes && matches!(entry.class, Class::Vendor(_)) {
            let reason = &policy.vendor[entry.procedure.key()];
            assert!(weighed.contains(&reason.as_str()), "{}: {reason}", entry.procedure.name);
        }
    }
}

/// The keys of `include/gridmpi.h` are no vendor's: a job of one cluster would end by them.
#[test]
fn attributes_about_rates_are_ours_on_every_communicator() {
    let entries = emit::entry::rust(&Table::load(&api_dir()).unwrap());
    for name in ["Attr_delete", "Attr_get", "Attr_put"] {
        let (old, new) = (format!("/// `MPI_{name}`."), name.to_lowercase().replace("attr_", ""));
        let new = format!("/// `MPI_Comm_{}_attr`.", new.replace("put", "set"));
        for title in [old, new] {
            let (_, entry) = entries.split_once(&title).unwrap();
            let entry = entry.split("\n}\n").next().unwrap();
            assert!(
                entry.contains("let ours = spans(rt, comm) || names_rate(rt, "),
                "{title} {entry}"
            );
        }
    }
}
