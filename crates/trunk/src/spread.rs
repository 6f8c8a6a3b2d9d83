//! Which connection carries which frame.
//!
//! Frames that must be in order go over one connection, the *main* one, so that the far side has nothing to put in order. `Data`
//! goes over whichever would have it there first: the connection with the least on its way by the rate that was seen of
//! it, and others too as long as they are not the last to be done with what there is.

use std::ops::RangeInclusive;

use gridmpi_wire::Strand;

use crate::Bounds;
use crate::queue::{Places, Queue};
use crate::standing::Standing;

/// What a connection may have on its way that nothing has been seen of: its path may be a bad one.
const UNSEEN: u64 = 128 << 10;

/// Frames of `Data` take no longer than this on their connection, seconds, so that connections can be done together.
const FRAME_SECONDS: f64 = 0.025;

/// And no fewer bytes, nor more, where connections share what there is.
const SHARED_FRAME: RangeInclusive<u32> = 8 << 10..=64 << 10;

/// Bytes of frames of `Data` that these connections share: by how fast they are on average, as far as that was seen.
pub(crate) fn shared_frame(standing: &[Standing]) -> u32 {
    let seen = || standing.iter().filter_map(|standing| standing.rate);
    let mean = seen().sum::<f64>() / seen().count().max(1) as f64;
    if mean > 0.0 {
        ((mean * FRAME_SECONDS) as u32).clamp(*SHARED_FRAME.start(), *SHARED_FRAME.end())
    } else {
        *SHARED_FRAME.end()
    }
}

/// `Data` on its way whose message's beginning is not acknowledged and went over another connection: the number of the
/// beginning, and what the far side may have to hold.
#[derive(Debug, Default)]
pub(crate) struct Early {
    by_opening: Vec<(u64, u64)>,
    held: u64,
}

impl Early {
    fn add(&mut self, opening: u64, held: u64) {
        self.held += held;
        match self.by_opening.iter_mut().find(|entry| entry.0 == opening) {
            Some(entry) => entry.1 += held,
            None => self.by_opening.push((opening, held)),
        }
    }

    /// Something was acknowledged.
    pub(crate) fn settle(&mut self, queue: &Queue) {
        let held = &mut self.held;
        self.by_opening.retain(|&(opening, bytes)| {
            let has_come = queue.has_come(opening);
            *held -= if has_come { bytes } else { 0 };
            !has_come
        });
    }
}

/// What a plan has laid out for one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Laid {
    bytes: u64,
    held: u64,
    away: u64,
}

/// What one needs to know to choose.
pub(crate) struct Choice<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) standing: &'a [Standing],
    pub(crate) early: &'a Early,
    pub(crate) bounds: &'a Bounds,
    pub(crate) main: Option<Strand>,
    /// Payload bytes that will be pushed behind what is there.
    pub(crate) behind: u64,
}

impl Choice<'_> {
    /// The next frame at `places` that the connection `at` is to carry, and whether it is of those in order.
    pub(crate) fn next(&self, at: usize, places: Places, laid: &Laid) -> Option<(u64, bool)> {
        let (ordered, data) = self.queue.next(places);
        let ordered = ordered.filter(|_| self.is_main(at));
        let taken = data.filter(|&seq| {
            let is_next = ordered.is_none_or(|ordered| seq < ordered);
            is_next && self.may_take(at, seq, laid)
        });
        let leaves_no_gap = |seq| !self.queue.leaves_gap(seq, places);
        let ordered = ordered.filter(|&seq| leaves_no_gap(seq) || self.may_be_away(seq, laid));
        taken.map(|seq| (seq, false)).or(ordered.map(|seq| (seq, true)))
    }

    /// Whether the bounds let a frame go where those before it do not: over another connection than the main one, or over that
    /// before `Data` that waits.
    fn may_be_away(&self, seq: u64, laid: &Laid) -> bool {
        self.queue.at(seq).is_away() || self.queue.away() + laid.away < self.bounds.away
    }

    fn is_main(&self, at: usize) -> bool {
        self.main == Some(self.standing[at].strand)
    }

    /// Whether the connection `at` is to carry a frame of `Data`.
    fn may_take(&self, at: usize, seq: u64, laid: &Laid) -> bool {
        let len = self.queue.at(seq).payload_len();
        let standing = &self.standing[at];
        if standing.is_out_of_reach(laid.bytes, len) {
            return false;
        }
        if self.standing.len() == 1 {
            return true;
        }
        let may_leave = self.may_leave_main(seq, laid);
        if !may_leave && !self.is_main(at) {
            return false;
        }
        let had = standing.flight() + laid.bytes;
        if had == 0 && !may_leave {
            return true;
        }
        if standing.rate.is_none() && !self.is_main(at) && had > 0 && had + len > UNSEEN {
            return false;
        }
        let own = self.seconds(at, laid.bytes + len);
        let others = || (0..self.standing.len()).filter(|&other| other != at);
        if others().all(|other| own <= self.seconds(other, len)) {
            return true;
        }
        // It would not be the first, or no other may carry it before more is acknowledged; but all others together would be
        // longer at what there is.
        let flight: u64 = others().map(|other| self.standing[other].flight()).sum();
        let rate: f64 = others().map(|other| self.rate(other)).sum();
        let rest = (self.queue.waiting_bytes() + self.behind).saturating_sub(laid.bytes);
        own <= (flight + rest) as f64 / rate
    }

    /// How long until so many bytes more would be acknowledged.
    fn seconds(&self, at: usize, more: u64) -> f64 {
        (self.standing[at].flight() + more) as f64 / self.rate(at)
    }

    /// By how it was seen; as good as the best while it was not.
    fn rate(&self, at: usize) -> f64 {
        let best = || {
            let seen = self.standing.iter().filter_map(|standing| standing.rate);
            seen.fold(1.0, f64::max)
        };
        self.standing[at].rate.unwrap_or_else(best)
    }

    /// Whether the bounds let another connection than the main one carry it.
    fn may_leave_main(&self, seq: u64, laid: &Laid) -> bool {
        let kept = self.queue.at(seq);
        let opening = kept.opened_by();
        if !self.may_be_away(seq, laid) {
            return false;
        }
        self.queue.has_come(opening)
            || (self.queue.is_begun(opening)
                && self.early.held + laid.held + Bounds::held(kept.payload_len())
                    <= self.bounds.early)
    }

    /// Notes the frame at `places` in the plan for the connection `at`.
    pub(crate) fn lay(&self, at: usize, seq: u64, places: Places, laid: &mut Laid) {
        let kept = self.queue.at(seq);
        laid.bytes += kept.payload_len();
        let is_main = self.is_main(at);
        let goes_away = !is_main || self.queue.leaves_gap(seq, places);
        laid.away += u64::from(goes_away && !kept.is_away());
        if !is_main && !self.queue.has_come(kept.opened_by()) {
            laid.held += Bounds::held(kept.payload_len());
        }
    }
}

impl Early {
    /// Another connection than the main one begins to carry a frame of `Data`.
    pub(crate) fn begin(&mut self, seq: u64, queue: &Queue) {
        let kept = queue.at(seq);
        if !queue.has_come(kept.opened_by()) {
            self.add(kept.opened_by(), Bounds::held(kept.payload_len()));
        }
    }
}
