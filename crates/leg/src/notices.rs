//! What a relay tells a process that has registered.

use gridmpi_wire::{Inbox, LegNotice};

use crate::LegError;

/// Notices, one after another, as they come behind the answer to a registration.
#[derive(Debug)]
pub struct Notices(Inbox<{ LegNotice::LEN }>);

impl Default for Notices {
    fn default() -> Self {
        Self(Inbox::new(LegNotice::LEN))
    }
}

impl Notices {
    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.0.space()
    }

    /// `count` bytes were read into [`Self::space`]; a notice once it is whole.
    ///
    /// # Errors
    /// It is none: close.
    pub fn read(&mut self, count: usize) -> Result<Option<LegNotice>, LegError> {
        let notice = self.0.filled(count).map(|bytes| LegNotice::decode(&bytes));
        Ok(notice.transpose()?)
    }
}
