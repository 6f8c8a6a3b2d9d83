//! Any bytes as checked records, in pieces; and genuine records of which one byte is changed.
#![no_main]

use gridmpi_wire::{MAX_RECORD, RECORD_HEAD, RecordError, Seal, Verify};
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Debug)]
enum Input {
    Noise { bytes: Vec<u8>, piece: u16 },
    Changed { payloads: Vec<Vec<u8>>, at: usize, mask: u8, piece: u16 },
}

/// The payloads of the records that are whole and right, one after another, and how it ended.
fn verified(mut bytes: &[u8], piece: usize) -> (Vec<u8>, Result<(), RecordError>) {
    let (mut verify, mut good, mut present) = (Verify::default(), Vec::new(), Vec::new());
    loop {
        if verify.rest() == 0 {
            let Some((head, behind)) = bytes.split_first_chunk::<RECORD_HEAD>() else {
                return (good, Ok(()));
            };
            bytes = behind;
            match verify.head(head) {
                Ok(len) => assert!((1..=MAX_RECORD).contains(&len) && len == verify.rest()),
                Err(error) => return (good, Err(error)),
            }
        }
        let (taken, behind) = bytes.split_at(bytes.len().min(piece.max(1)).min(verify.rest()));
        if taken.is_empty() {
            return (good, Ok(()));
        }
        bytes = behind;
        if let Err(error) = verify.payload(taken) {
            return (good, Err(error));
        }
        present.extend_from_slice(taken);
        if verify.rest() == 0 {
            good.append(&mut present);
        }
    }
}

fuzz_target!(|input: Input| match input {
    Input::Noise { bytes, piece } => {
        let (good, _) = verified(&bytes, piece.into());
        assert!(good.len() <= bytes.len());
    }
    Input::Changed { payloads, at, mask, piece } => {
        let mut seal = Seal::default();
        let (mut bytes, mut sent) = (Vec::new(), Vec::new());
        for payload in payloads.iter().filter(|it| (1..=MAX_RECORD).contains(&it.len())) {
            let middle = payload.len() / 2;
            let halves = [&payload[..middle], &payload[middle..]];
            bytes.extend_from_slice(&seal.head(halves.into_iter()));
            bytes.extend_from_slice(payload);
            sent.extend_from_slice(payload);
        }
        assert_eq!(verified(&bytes, piece.into()), (sent.clone(), Ok(())));
        if bytes.is_empty() || mask == 0 {
            return;
        }
        let at = at % bytes.len();
        bytes[at] ^= mask;
        let (good, end) = verified(&bytes, piece.into());
        assert!(end.is_err(), "a change of 8 bits in a row is always found");
        assert!(sent.starts_with(&good) && good.len() < sent.len());
    }
});
