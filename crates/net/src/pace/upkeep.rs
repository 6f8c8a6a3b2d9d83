//! Whether the kernel keeps up with what a connection is to send.
//!
//! An interface may be used by others of whom nobody here knows: the cluster's own MPI. A socket that keeps its pace among such as keep
//! none gets less than its part of the interface, since it has fewer packets in the queue there at a time: TCP small queues lets it have as
//! much as its pace brings in about a millisecond. So where the kernel falls behind the socket is told to be faster than what it is handed.

use std::time::Instant;

use gridmpi_rate::SEGMENT;
use gridmpi_wire::ProcId;

/// What the kernel has sent less than it should is no matter up to this, or up to this part of it; seen once only, up to two packets.
const MATTERS: f64 = 2.0 * SEGMENT as f64;
const MATTERS_ONCE: f64 = 4.0 * SEGMENT as f64;
const MATTERS_PART: f64 = 0.25;

/// So many looks in a row have to show that others hold it up. One does where a processor was busy for a moment, for all senders of a machine at
/// once: nothing is told to be faster for that than late wake-ups make it.
const LOOKS: u32 = 2;

/// Between two looks, turns.
const LOOK: f64 = 0.45;

/// How far the kernel is with what it was given of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes that it has sent since the connection was made, by whole segments; those that it sent again, too.
    pub(crate) sent: u64,
    /// Bytes that it has not sent once.
    pub(crate) unsent: usize,
    /// The congestion window does not hold these back.
    pub(crate) is_open: bool,
    /// How long the window of its peer, who did not read, has held it back since the connection was made, microseconds; the kernel counts by its
    /// ticks.
    pub(crate) unread_us: u64,
    /// Bytes per second at which it spaces out what it sends: what it was told, or less as long as its congestion control has not seen the path
    /// carry that much.
    pub(crate) pace: u64,
}

impl Progress {
    /// Whether neither window nor pace keep it from sending at `rate`, bytes per second, or nearly so. To be told of more would be of no use
    /// to it now, and too much as soon as its congestion control has seen what the path carries.
    fn is_free(&self, rate: f64) -> bool {
        self.is_open && self.pace as f64 >= (1.0 - MATTERS_PART) * rate
    }
}

/// What was seen when it had something to send that no window held back.
#[derive(Clone, Copy, Debug)]
struct Look {
    peer: ProcId,
    at: Instant,
    sent: u64,
    unread_us: u64,
}

impl Look {
    const fn new(peer: ProcId, progress: Progress, at: Instant) -> Self {
        Self { peer, at, sent: progress.sent, unread_us: progress.unread_us }
    }

    /// Whether it was of the same connection: one that took another's place begins at nothing.
    fn is_of_same(&self, later: &Self) -> bool {
        self.peer == later.peer && self.sent <= later.sent && self.unread_us <= later.unread_us
    }
}

/// How it keeps up with the connection whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    last: Option<Look>,
    /// How many looks in a row showed that it could not send as fast as it should.
    late: u32,
    /// So it was when that could last be said, maybe some messages ago; and how many looks in a row have shown that it is not so now.
    was_held_up: bool,
    in_time: u32,
}

impl Upkeep {
    /// Whether it cannot send as fast as it should.
    pub(super) const fn is_held_up(&self) -> bool {
        self.late >= LOOKS
    }

    /// Whether it could not when that could last be said.
    pub(super) const fn was_held_up(&self) -> bool {
        self.was_held_up
    }

    /// What was seen says nothing any more of what comes, but for how it was.
    pub(super) fn forget(&mut self) {
        (self.last, self.late) = (None, 0);
    }

    /// What is to be sent from now on is at another rate.
    pub(super) fn begin_anew(&mut self) {
        self.last = None;
    }

    /// `peer` is about to be given something.
    pub(super) fn begin(&mut self, peer: ProcId, progress: Progress, now: Instant) {
        self.last = progress.is_open.then_some(Look::new(peer, progress, now));
    }

    /// How many bytes it has sent less than it should at `rate`, bytes per second, since the last look, if that matters; `turn` is what it is
    /// given at a time, and the most that is said.
    pub(super) fn look(
        &mut self,
        peer: ProcId,
        progress: Progress,
        (rate, turn): (f64, usize),
        now: Instant,
    ) -> Option<f64> {
        let Progress { sent, unsent, .. } = progress;
        let has_sent_all = (unsent as f64) < MATTERS;
        if has_sent_all || !progress.is_free(rate) {
            self.forget();
            self.was_held_up &= !has_sent_all;
            return None;
        }
        let look = Look::new(peer, progress, now);
        let before = self.last.replace(look).filter(|before| before.is_of_same(&look))?;
        if before.unread_us < look.unread_us {
            // Who does not read is nobody on the interface.
            (self.late, self.was_held_up) = (0, false);
            return None;
        }
        let due = rate * now.saturating_duration_since(before.at).as_secs_f64();
        if due < LOOK * turn as f64 {
            self.last = Some(before);
            return None;
        }
        let late = (due - (sent - before.sent) as f64).min(unsent as f64);
        let matters = late >= MATTERS.max(MATTERS_PART * due);
        self.count(matters);
        (self.is_held_up() || matters && late >= MATTERS_ONCE).then_some(late.min(turn as f64))
    }

    /// A look has shown that it is late, or that it is not.
    const fn count(&mut self, is_late: bool) {
        (self.late, self.in_time) = match is_late {
            true => (self.late.saturating_add(1), 0),
            false => (0, self.in_time.saturating_add(1)),
        };
        // What the interface has in its queue at first counts as sent: one look in time says nothing.
        if self.is_held_up() {
            self.was_held_up = true;
        } else if self.in_time >= LOOKS {
            self.was_held_up = false;
        }
    }
}
