//! Any bytes as a job file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    gridmpi_job::fuzz::job_file(bytes);
});
