//! Any bytes as what the ends of a measurement tell each other, and as what receivers have received.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    gridmpi_probe::fuzz::messages(bytes);
    gridmpi_probe::fuzz::figure(bytes);
});
