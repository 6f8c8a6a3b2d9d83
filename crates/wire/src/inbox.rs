//! A message of known length on its way in.

use crate::WireError;

/// Collects the bytes of one message after another, each of a length known beforehand, and never more than the one that
/// is due: what follows it is somebody else's to read. `N` is the length of the longest.
#[derive(Debug)]
pub struct Inbox<const N: usize> {
    bytes: [u8; N],
    have: usize,
    want: usize,
}

impl<const N: usize> Inbox<N> {
    /// A message of `want` bytes is due, at least 1 and at most `N`.
    #[must_use]
    pub const fn new(want: usize) -> Self {
        assert!(want > 0 && want <= N, "a message has from 1 to N bytes");
        Self { bytes: [0; N], have: 0, want }
    }

    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.have..self.want]
    }

    /// `count` bytes were read into the space; the whole message once it is there, and then a message of the same length
    /// is due again. `LEN` is the length that it was made with.
    pub fn filled<const LEN: usize>(&mut self, count: usize) -> Option<[u8; LEN]> {
        self.have = (self.have + count).min(self.want);
        if self.have < self.want {
            return None;
        }
        self.have = 0;
        self.bytes.first_chunk().copied()
    }

    /// Whether what has come begins as it must. Noise is known at its first byte.
    ///
    /// # Errors
    /// [`WireError::Magic`].
    pub fn check_magic(&self, magic: &[u8]) -> Result<(), WireError> {
        let compared = self.have.min(magic.len());
        if self.bytes[..compared] == magic[..compared] { Ok(()) } else { Err(WireError::Magic) }
    }
}
