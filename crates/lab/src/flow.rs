//! One direction of a link as pure arithmetic: bottleneck, loss, delay, and what the monitor
//! sees. Packets are handed in with their times; what is to be delivered when comes out.

use crate::chance::Chance;
use crate::queue::{Queue, Verdict};
use crate::spec::Link;
use serde::{Deserialize, Serialize};

/// What Ethernet adds on the wire to each packet as the lab sees it: preamble and start (8),
/// checksum (4), gap (12).
pub const WIRE_OVERHEAD: u64 = 24;
const MILLISECOND: u64 = 1_000_000;
/// Tells a direction's second stream of random numbers from its first.
const FAULT: u64 = 1 << 63;

/// Bytes of frames and number of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Bytes of frames, with Ethernet's header, without what the wire adds.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

impl Volume {
    /// Adds another volume.
    pub fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
    }
}

/// What passed one direction in some time: `arrived = left + dropped + still queued`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Came to the bottleneck.
    pub arrived: Volume,
    /// Left the bottleneck.
    pub left: Volume,
    /// Found no room in the buffer.
    pub dropped: Volume,
    /// Of those that left: lost at random on the way.
    pub lost: Volume,
    /// Most bytes in the buffer at once.
    pub queue_peak: u64,
}

impl Traffic {
    /// Adds what passed later.
    pub fn add(&mut self, later: &Self) {
        self.arrived.add(later.arrived);
        self.left.add(later.left);
        self.dropped.add(later.dropped);
        self.lost.add(later.lost);
        self.queue_peak = self.queue_peak.max(later.queue_peak);
    }
}

/// What passed in one millisecond of the lab's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds since the lab began.
    pub millisecond: u64,
    /// What passed.
    pub traffic: Traffic,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Flow {
    queue: Queue,
    chance: Chance,
    /// Losses by a fault, beside the others and drawn apart from them.
    fault: Chance,
    delay: u64,
    origin: u64,
    now: u64,
    current: Sample,
    total: Traffic,
}

impl Flow {
    /// Direction number `stream` of `link` in a lab that began at `origin` ns; `seed` of losses.
    #[must_use]
    pub fn new(link: &Link, seed: u64, stream: u64, origin: u64) -> Self {
        Self {
            queue: Queue::new(link.bandwidth, link.buffer),
            chance: Chance::new(seed, stream, link.loss),
            fault: Chance::new(seed, stream ^ FAULT, 0.0),
            delay: u64::try_from(link.delay.as_nanos()).unwrap_or(u64::MAX / 4),
            origin,
            now: origin,
            current: Sample { millisecond: 0, traffic: Traffic::default() },
            total: Traffic::default(),
        }
    }

    /// From now on also loses frames with this probability, by a fault.
    pub fn disturb(&mut self, probability: f64) {
        self.fault.set(probability);
    }

    /// A frame (of one packet, or a super-packet of several) arrived at `now` ns; an earlier
    /// time than the last counts as the last. Returns when it is to be delivered, or `None`
    /// when it was dropped or lost. Finished milliseconds are handed to `finished`.
    pub fn arrive(
        &mut self,
        now: u64,
        frame: Volume,
        finished: &mut impl FnMut(Sample),
    ) -> Option<u64> {
        self.settle(now, finished);
        let wire = frame.bytes + frame.packets * WIRE_OVERHEAD;
        // Both are always asked: a fault changes nothing of what is lost without it.
        let lost = self.chance.loses() | self.fault.loses();
        let verdict = self.queue.arrive(self.now, frame, lost, wire);
        self.note(self.now, finished, |traffic| {
            traffic.arrived.add(frame);
            if verdict == Verdict::Dropped {
                traffic.dropped.add(frame);
            }
        });
        match verdict {
            Verdict::Departs(at) if !lost => Some(at + self.delay),
            _ => None,
        }
    }

    /// Time has come to `now`, and no frame that arrived before is still to be handed in.
    pub fn settle(&mut self, now: u64, finished: &mut impl FnMut(Sample)) {
        self.now = self.now.max(now);
        while let Some(departure) = self.queue.depart(self.now) {
            self.note(departure.at, finished, |traffic| {
                traffic.left.add(departure.frame);
                if departure.lost {
                    traffic.lost.add(departure.frame);
                }
            });
        }
        self.enter(self.now, finished);
    }

    /// Whether a millisecond is unfinished or bytes are queued: then [`Self::settle`] is due.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.current.traffic != Traffic::default() || self.queue.queued() > 0
    }

    /// Everything since the lab began, the unfinished millisecond included.
    #[must_use]
    pub fn total(&self) -> Traffic {
        let mut total = self.total;
        total.add(&self.current.traffic);
        total
    }

    /// Bytes in the bottleneck's buffer.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.queue.queued()
    }

    /// Moves on to the millisecond of `at`.
    fn enter(&mut self, at: u64, finished: &mut impl FnMut(Sample)) {
        let millisecond = at.saturating_sub(self.origin) / MILLISECOND;
        if millisecond <= self.current.millisecond {
            return;
        }
        if self.current.traffic != Traffic::default() {
            self.total.add(&self.current.traffic);
            finished(self.current);
        }
        self.current = Sample { millisecond, traffic: Traffic::default() };
    }

    fn note(
        &mut self,
        at: u64,
        finished: &mut impl FnMut(Sample),
        change: impl FnOnce(&mut Traffic),
    ) {
        self.enter(at, finished);
        let queued = self.queue.queued();
        change(&mut self.current.traffic);
        let peak = &mut self.current.traffic.queue_peak;
        *peak = (*peak).max(queued);
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
