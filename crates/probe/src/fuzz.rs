//! Entry points for fuzzing: whatever bytes come from outside must end in a value or an error.

use crate::message::{Order, Purpose, Word};
use crate::visit::{Answer, Ask, Greeting};

/// What a line is for, orders and words, and what is said on a visit.
pub fn messages(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Purpose>(bytes);
    let _ = serde_json::from_slice::<Order>(bytes).is_ok_and(|order| order.is_sound());
    let _ = serde_json::from_slice::<Word>(bytes).is_ok_and(|word| word.is_sound());
    let _ = serde_json::from_slice::<Greeting>(bytes);
    let _ = serde_json::from_slice::<Ask>(bytes);
    let _ = serde_json::from_slice::<Answer>(bytes);
}

/// What receivers say they have received, to the figure that comes of it: pairs of moments and bytes, each of one receiver.
pub fn figure(bytes: &[u8]) {
    let number = |chunk: &[u8]| chunk.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let mut series = crate::figure::Series::new(3);
    for chunk in bytes.chunks_exact(17) {
        series.add(usize::from(chunk[0] % 3), number(&chunk[1..9]), number(&chunk[9..]));
    }
    let _ = series.figure(crate::figure::Window { discard_us: 1000, width_us: 1000 });
}

#[cfg(test)]
mod tests {
    proptest::proptest! {
        #[test]
        fn bytes_of_all_kinds_are_survived(bytes in proptest::collection::vec(0u8.., 0..300)) {
            super::messages(&bytes);
            super::figure(&bytes);
        }
    }
}
