//! Any bytes as the first message of a stranger, and as messages of members of a job.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    gridmpi_bootstrap::fuzz::hello(bytes);
    gridmpi_bootstrap::fuzz::to_coordinator(bytes);
    gridmpi_bootstrap::fuzz::from_coordinator(bytes);
});
