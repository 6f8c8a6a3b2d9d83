//! Any bytes as what another relay says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gridmpi_relay::fuzz::cells(bytes));
