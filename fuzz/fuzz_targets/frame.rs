//! Any bytes as frames.
#![no_main]

use gridmpi_wire::{HEADER_LEN, MAX_HEAD, MAX_PAYLOAD, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(Some(parsed)) => {
            let header = parsed.header;
            assert!(header.payload_len() <= MAX_PAYLOAD);
            assert!((HEADER_LEN..=MAX_HEAD).contains(&header.head_len()));
            let (before, len) = (header.data_before, header.payload_len());
            let again = parsed.frame.encode_behind(before, header.seq, header.ack, len);
            assert_eq!(*again, bytes[..header.head_len()]);
        }
        Ok(None) => assert!(bytes.len() < MAX_HEAD),
        Err(error) => drop(error.to_string()),
    }
});
