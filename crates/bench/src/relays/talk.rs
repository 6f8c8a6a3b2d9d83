//! One end of a circuit that says something and knows what must come back.

use std::time::{Duration, Instant};

/// Bytes of a message, and of every fourth.
const SHORT: usize = 8;
const LONG: usize = 1024;

/// What is said on one circuit, a message at a time.
#[derive(Debug)]
pub(super) struct Talk {
    seed: u64,
    /// Messages said before.
    count: u64,
    /// When the one was said that has not come back.
    said: Option<Instant>,
    /// How much of it has.
    back: usize,
}

impl Talk {
    /// No two circuits with different seeds say the same.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, count: 0, said: None, back: 0 }
    }

    /// The next message; `None` while one is on its way.
    pub(super) fn write(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.said.is_some() {
            return None;
        }
        self.said = Some(now);
        Some(self.message())
    }

    /// Bytes came. The time the message took, once all of it is back.
    ///
    /// # Errors
    /// They are not what was said.
    pub(super) fn read(&mut self, bytes: &[u8], now: Instant) -> Result<Option<Duration>, String> {
        let wrong = |what: &str| format!("message {}: {what}", self.count);
        let said = self.said.ok_or_else(|| wrong("something came that was not said"))?;
        let message = self.message();
        let rest = message.get(self.back..).unwrap_or_default();
        if !rest.starts_with(bytes) {
            return Err(wrong("something else came back than was said"));
        }
        self.back += bytes.len();
        if self.back < message.len() {
            return Ok(None);
        }
        (self.said, self.back) = (None, 0);
        self.count += 1;
        Ok(Some(now.saturating_duration_since(said)))
    }

    fn message(&self) -> Vec<u8> {
        let len = if self.count % 4 == 3 { LONG } else { SHORT };
        let mut state = self.seed ^ self.count.rotate_left(17);
        let words = (0..len / 8).flat_map(|_| {
            // splitmix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31).to_le_bytes()
        });
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_told_from_anything_else() {
        let now = Instant::now();
        let (mut talk, mut other) = (Talk::new(1), Talk::new(2));
        let mut lens = Vec::new();
        for _ in 0..4 {
            let message = talk.write(now).unwrap();
            assert!(talk.write(now).is_none(), "one at a time");
            let (first, second) = message.split_at(5);
            assert_eq!(talk.read(first, now), Ok(None));
            let later = now + Duration::from_millis(3);
            assert_eq!(talk.read(second, later), Ok(Some(Duration::from_millis(3))));
            lens.push(message.len());
        }
        assert_eq!(lens, [8, 8, 8, 1024]);
        assert!(talk.read(b"x", now).is_err(), "nothing was said");
        let message = talk.write(now).unwrap();
        assert_ne!(other.write(now).unwrap(), message);
        assert!(other.read(&message, now).is_err(), "another circuit's");
        assert!(talk.read(&[message, vec![0]].concat(), now).is_err(), "too much");
    }
}
