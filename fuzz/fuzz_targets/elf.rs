//! Any bytes as the headers of a program.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    gridmpi_job::fuzz::elf(bytes);
});
