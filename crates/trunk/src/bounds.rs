//! How far the connections of a stream may get ahead of each other.

/// Both sides of a stream know the same bounds: the sender keeps them, and who exceeds them at the
/// receiver misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What the receiver may have to hold of messages whose beginning has not come, by
    /// [`Self::held`]: the beginnings go over one connection, and other connections may be faster.
    pub early: u64,
    /// How many frames from the first unacknowledged one on may have gone over other connections than
    /// the one for what must be in order.
    pub away: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { early: 4 << 20, away: 4096 }
    }
}

/// What the receiver needs to hold a frame of any length, and more.
const HELD_LEAST: u64 = 256;

impl Bounds {
    /// What it costs the receiver to hold a frame with so many bytes of payload.
    #[must_use]
    pub const fn held(payload: u64) -> u64 {
        HELD_LEAST + payload
    }

    /// Runs of frames that may have come with something missing before them. Each has a frame that went
    /// over another connection in it or missing before it, or begins with one that did not wait for `Data`; and the main one may have
    /// been another.
    ///
    /// The same goes for all parts of messages, of one direction of a stream together, with bytes missing before them: each begins with a frame
    /// that went over another connection, or lacks the one before it that did.
    #[must_use]
    pub const fn most_gaps(&self) -> u64 {
        self.away.saturating_mul(2).saturating_add(16)
    }
}
