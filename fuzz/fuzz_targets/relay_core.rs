//! A relay between two others that say anything and processes that do anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gridmpi_relay::fuzz::core(bytes));
