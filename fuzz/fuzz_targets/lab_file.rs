//! Any text as a lab file, and the names and ways that follow from it.
#![no_main]

use gridmpi_lab::plan;
use gridmpi_lab::spec::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Spec::parse(text, "lab.toml", "lab") {
        Ok(spec) => {
            let nodes = plan::nodes(&spec);
            for (index, node) in
                nodes.iter().enumerate().filter(|(_, node)| node.name != "localhost")
            {
                assert_eq!(
                    plan::find(&spec, &nodes, &node.name, None),
                    Ok(plan::Found::Node(index))
                );
            }
            for site in 0..spec.sites() {
                assert_eq!(plan::ways_to(&spec, site).len(), spec.sites());
            }
            drop(plan::hosts_file(&spec, None));
            drop(plan::hosts_file(&spec, Some(0)));
        }
        Err(error) => assert!(error.to_string().starts_with("lab.toml:"), "{error}"),
    }
});
