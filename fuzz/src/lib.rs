//! What several fuzz targets do to bytes on their way: cut them into pieces, and change one of them.

use arbitrary::Arbitrary;

/// A change of one message on its way.
#[derive(Arbitrary, Debug)]
pub struct Change {
    /// XOR of this into the byte at `at` (modulo the length).
    mask: u8,
    at: u8,
}

impl Change {
    /// Whether a message stays as it is.
    pub fn is_none(&self) -> bool {
        self.mask == 0
    }

    /// Changes a message, which is not empty. Whether it is another one then.
    pub fn apply(&self, bytes: &mut [u8]) -> bool {
        let at = usize::from(self.at) % bytes.len();
        bytes[at] ^= self.mask;
        !self.is_none()
    }
}

/// Changes a message, if that is wanted. Whether it is another one then.
pub fn change(bytes: &mut [u8], change: &Option<Change>) -> bool {
    change.as_ref().is_some_and(|change| change.apply(bytes))
}

/// Lengths of the pieces in which bytes arrive; when they are used up, all that is left arrives at once.
pub struct Cuts(std::vec::IntoIter<u8>);

impl Cuts {
    /// Each from 1 to 255; 0 counts as 1.
    pub fn new(lengths: Vec<u8>) -> Self {
        Self(lengths.into_iter())
    }

    /// Puts what comes next of `bytes` into `space`; how much. Neither may be empty.
    pub fn fill(&mut self, space: &mut [u8], bytes: &mut &[u8]) -> usize {
        assert!(!space.is_empty());
        let most = space.len().min(bytes.len());
        let count = self.0.next().map_or(most, |cut| usize::from(cut).clamp(1, most));
        space[..count].copy_from_slice(&bytes[..count]);
        *bytes = &bytes[count..];
        count
    }
}
