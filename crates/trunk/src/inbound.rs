//! Which frames of the far process have come, over whatever connection.

use gridmpi_wire::{Header, Kind, MAX_DATA_BEFORE};

use crate::runs::Runs;
use crate::{Bounds, Receive, StreamError};

/// No peer of ours is ever so far ahead of itself.
const FARTHEST: u64 = 1 << 48;

/// The numbers that have come whole.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// All below and this one have.
    all: u64,
    /// Others beyond.
    beyond: Runs,
    /// The last of those that must be in order.
    last_ordered: u64,
}

impl Received {
    /// The lowest number that has not come.
    pub(crate) const fn expects(&self) -> u64 {
        self.all.saturating_add(1)
    }

    fn has(&self, seq: u64) -> bool {
        seq <= self.all || (!self.beyond.is_empty() && self.beyond.contains(seq))
    }

    /// A numbered frame begins.
    pub(crate) fn begins(&self, header: &Header) -> Result<Receive, StreamError> {
        let seq = header.seq;
        if self.has(seq) {
            return Ok(Receive::Duplicate);
        }
        let expected = self.expects();
        let gap = StreamError::Gap { expected, got: seq };
        if seq - expected >= FARTHEST {
            return Err(gap);
        }
        if header.kind == Kind::Data {
            return Ok(Receive::Deliver);
        }
        if seq <= self.last_ordered {
            return Err(gap);
        }
        let (between, said) = (seq - 1 - self.last_ordered, header.data_before);
        let follows = between == u64::from(said)
            || (said == MAX_DATA_BEFORE && between > u64::from(MAX_DATA_BEFORE));
        if follows { Ok(Receive::Deliver) } else { Err(gap) }
    }

    /// A frame that was to be delivered has come whole. Whether it is the first time.
    pub(crate) fn landed(&mut self, header: &Header, bounds: &Bounds) -> Result<bool, StreamError> {
        let seq = header.seq;
        if self.has(seq) {
            return Ok(false);
        }
        if header.kind.is_ordered() {
            self.last_ordered = seq;
        }
        if seq == self.expects() {
            self.all = seq;
            if let Some(end) = self.beyond.pop_run(seq + 1) {
                self.all = end - 1;
            }
            return Ok(true);
        }
        self.beyond.insert(seq);
        let (gaps, most) = (self.beyond.runs() as u64, bounds.most_gaps());
        if gaps > most { Err(StreamError::Scattered { gaps, most }) } else { Ok(true) }
    }
}
