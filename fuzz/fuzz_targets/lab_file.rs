//! Any text as a lab file, and the names and ways that follow from it.
#![no_main]

use gridmpi_lab::plan;
use gridmpi_lab::spec::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Spec::parse(text, "lab.toml", "lab") {
        Ok(spec) => {
            let nodes = plan::nodes(&spec);
            assert!(nodes.iter().all(|node| plan::find(&nodes, &node.name) == Some(node)));
            for cluster in 0..spec.clusters.len() {
                assert_eq!(plan::ways_to(&spec, cluster).len(), spec.clusters.len());
            }
            drop(plan::hosts_file(&spec));
        }
        Err(error) => assert!(error.to_string().starts_with("lab.toml:"), "{error}"),
    }
});
