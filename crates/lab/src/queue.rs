//! The virtual bottleneck queue of one direction of a link: pure arithmetic, no I/O.
//!
//! Rate, buffer and drops follow from the times at which frames arrived, as the kernel stamped
//! them, so that a late run of the emulator moves a delivery but never decides a drop.
//!
//! A frame counts against the buffer from its arrival until its last bit has left. It occupies
//! the link for its *wire* bytes (the frame with preamble, checksum and gap), exactly: what a
//! division leaves over is carried to the next frame of a busy period.

use crate::flow::Volume;
use std::collections::VecDeque;

const NANOSECONDS: u128 = 1_000_000_000;

/// What happened to a frame that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It waits; its last bit leaves the bottleneck at this time, ns.
    Departs(u64),
    /// The buffer had no room for it.
    Dropped,
}

/// A frame that has left the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// When its last bit left, ns.
    pub at: u64,
    /// Its length.
    pub frame: Volume,
    /// What [`Queue::arrive`] was told: whether it is lost behind the bottleneck.
    pub lost: bool,
}

/// A drop-tail queue in front of a link of fixed rate. Times are nanoseconds of any one clock.
#[derive(Debug)]
pub struct Queue {
    /// Bits per second; 0: no limit.
    rate: u64,
    buffer: u64,
    waiting: VecDeque<Departure>,
    queued: u64,
    /// When the link will be free: `free` plus `left_over / rate` nanoseconds.
    free: u64,
    left_over: u64,
}

impl Queue {
    /// A queue of `buffer` bytes before a link of `rate` bits per second; without a rate
    /// everything passes at once and the buffer is never needed.
    #[must_use]
    pub fn new(rate: Option<u64>, buffer: u64) -> Self {
        let rate = rate.unwrap_or(0);
        Self { rate, buffer, waiting: VecDeque::new(), queued: 0, free: 0, left_over: 0 }
    }

    /// Bytes of frames whose last bit has not left.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Takes out the next frame that has left by `now`, in order of leaving.
    pub fn depart(&mut self, now: u64) -> Option<Departure> {
        let departure = *self.waiting.front().filter(|first| first.at <= now)?;
        self.waiting.pop_front();
        self.queued -= departure.frame.bytes;
        Some(departure)
    }

    /// A frame that occupies the link for `wire` bytes arrives at `now`; `lost` is kept for its
    /// departure. Everything that has left by `now` must have been taken out before
    /// ([`Self::depart`]), and `now` must not decrease.
    pub fn arrive(&mut self, now: u64, frame: Volume, lost: bool, wire: u64) -> Verdict {
        debug_assert!(self.waiting.front().is_none_or(|first| first.at > now));
        if self.rate > 0 && self.queued + frame.bytes > self.buffer {
            return Verdict::Dropped;
        }
        if self.free < now {
            self.free = now;
            self.left_over = 0;
        }
        if self.rate > 0 {
            let work = u128::from(wire) * 8 * NANOSECONDS + u128::from(self.left_over);
            let rate = u128::from(self.rate);
            self.free += u64::try_from(work / rate).unwrap_or(u64::MAX / 2);
            self.left_over = (work % rate) as u64;
        }
        self.queued += frame.bytes;
        self.waiting.push_back(Departure { at: self.free, frame, lost });
        Verdict::Departs(self.free)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
