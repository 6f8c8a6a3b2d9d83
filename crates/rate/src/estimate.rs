//! What a link carries, by what connections see of it: what the job file says of it may be wrong.
//!
//! Where too much is lost, or waits long before the link, it carries less than is granted: not much more than what has arrived. Where neither
//! is so though the link is full it may carry more; that is tried by small steps, then by larger ones, and rarely where it was in vain.
//! Who sends less and loses as much of it as before does not lose it here: radio, a policer, others' traffic. That is borne, and so is a delay
//! that stays: others' packets wait, or the path has become longer.

use std::time::{Duration, Instant};

/// What a process has seen of its connections to a cluster since it last said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Segments that have arrived there, by their payload.
    pub arrived: u64,
    /// Segments that were sent again.
    pub resent: u64,
    /// How much longer than the shortest ones its round trips take, by the connection where that is least; `None` if too little has arrived
    /// to tell. What waits before the link makes up most of it.
    pub queued: Option<Duration>,
}

/// While something waits to be sent a process looks so often, or less often where they are many: the broker hears them all.
const LOOK: Duration = Duration::from_millis(50);
const PROCESSES: u32 = 16;

impl Seen {
    /// How often each of so many processes of a cluster looks.
    #[must_use]
    pub fn every(processes: u32) -> Duration {
        LOOK * processes.div_ceil(PROCESSES).max(1)
    }

    /// Somebody has seen this, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.arrived = self.arrived.saturating_add(other.arrived);
        self.resent = self.resent.saturating_add(other.resent);
        self.queued = self.queued.into_iter().chain(other.queued).min();
    }
}

/// A full frame with everything around it, bits.
const FRAME_BITS: f64 = crate::FRAME as f64 * 8.0;

/// So many looks, and so many segments, are waited for before a judgement.
const WINDOW_LOOKS: u32 = 4;
const WINDOW_SEGMENTS: u64 = 200;

/// What is seen so many looks after the link was last in use is of something else.
const LATE_LOOKS: u32 = 2;

/// What goes where something else may be full says nothing of the link, but for so little of all that is granted: the first and the last one of a burst
/// are alone for a moment.
pub(crate) const ELSEWHERE: f64 = 1.0 / 16.0;

/// Of what is sent at most so much may be lost beyond what is borne: where it has gone well before, and where more is tried.
const LOSS: f64 = 0.02;
const LOSS_TRYING: f64 = 0.005;

/// What is sent waits too long when every process sees this delay, and as much more as a small switch's buffer takes to drain: who paces
/// needs no deeper one. Acknowledgements that are held back, and processors that are late, are less.
const QUEUED: Duration = Duration::from_millis(25);
const BUFFER_BITS: f64 = 65_536.0 * 8.0;

/// What comes out while that is so is what the link carries; so much of it is granted until it is no longer so.
const DRAIN: f64 = 0.75;

/// To this part grants sink at most for one window, and to that at least: where few are lost, and where many are.
const SINK_MOST: f64 = 0.7;
const SINK_LEAST: f64 = 0.95;
const SINK_LEAST_FAR: f64 = 0.85;
const LOSS_FAR: f64 = 0.05;

/// And never below this, bits per second.
const FLOOR: f64 = 100e3;

/// When they have sunk, or risen, and still something is lost: a little less, a few times. What is lost at random does not end by that.
const EASE: f64 = 0.97;
const EASES: u32 = 4;

/// How they rise: below what has gone well or is said, and beyond it, where it goes well again and again.
const RISE: f64 = 1.05;
const RISE_MOST: f64 = 1.5;

/// A full link is let alone for so long before more is tried; twice as long each time that it was in vain. What is borne is for so long, too;
/// twice as long each time that it was found again.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_MOST: Duration = Duration::from_secs(600);

/// When only so much is sent of what was when it began, and what arrives has sunk nearly as much, what is lost is not lost by too much being
/// sent. Where more than that much is, what was sent before is not sent again at once.
const LESS: f64 = 0.75;
const NEARLY: f64 = 1.1;
const BORNE_MOST: f64 = 0.1;

/// How fast what is usually lost follows what is lost, once there is enough of that.
const USUAL: f64 = 0.25;

/// A link is full when so much of it is granted, and as much arrives: who is granted something need not use it.
const FULL: f64 = 0.9;
const USED: f64 = 0.8;

/// What one direction of a link is believed to carry, bits per second.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    rate: f64,
    /// Beyond this it is only tried.
    safe: f64,
    rise: f64,
    patience: Duration,
    /// How long it has gone well at the safe rate, and the part that was lost of what was sent.
    well: Duration,
    usual: f64,
    /// Up to this rate that is measured: what more has lost is not usual.
    usual_up_to: f64,
    /// How often it may be eased yet.
    eases: u32,
    /// Since when it sinks.
    sinking: Option<Sinking>,
    draining: Option<Draining>,
    borne: Borne,
    /// What is new of what is safe: people may be told.
    news: Option<f64>,
    window: Window,
    /// What is granted, and whether what is lost is lost here; since when.
    granted: f64,
    is_ours: bool,
    since: Option<Instant>,
    /// When something was granted last, and when what was lost was not the link's.
    last: Option<Instant>,
    last_elsewhere: Option<Instant>,
    /// And when more was tried.
    last_trial: Option<Instant>,
}

/// How it was when it began to sink.
#[derive(Clone, Copy, Debug)]
struct Sinking {
    rate: f64,
    sent: f64,
    arrived: f64,
}

/// What waits before the link leaves it: what was believed when that began, and what the link carries, as it has been seen since.
#[derive(Clone, Copy, Debug)]
struct Draining {
    rate: f64,
    carries: f64,
}

/// Losses and delays that did not end by sending less: the part, how long, for how long yet, and for how long when it was found.
#[derive(Clone, Copy, Debug)]
struct Borne {
    loss: f64,
    queued: Duration,
    left: Duration,
    span: Duration,
}

impl Borne {
    const NOTHING: Self =
        Self { loss: 0.0, queued: Duration::ZERO, left: Duration::ZERO, span: PATIENCE };
}

#[derive(Clone, Debug)]
struct Window {
    busy: Duration,
    full: Duration,
    granted_bits: f64,
    /// Of these, where something else may have been full; and those before, of which something may be seen late.
    elsewhere_bits: f64,
    late_bits: f64,
    /// More was tried just before: what that has lost may be seen late, too.
    follows_trial: bool,
    seen: Seen,
}

/// What a window has shown.
#[derive(Clone, Copy, Debug)]
struct Finding {
    busy: Duration,
    /// Bits per second.
    granted: f64,
    sent: f64,
    arrived: f64,
    /// The part that was lost.
    loss: f64,
    /// What is sent waits at least so long.
    queued: Duration,
    is_full: bool,
    is_ours: bool,
}

impl Window {
    const NEW: Self = Self {
        busy: Duration::ZERO,
        full: Duration::ZERO,
        granted_bits: 0.0,
        elsewhere_bits: 0.0,
        late_bits: 0.0,
        follows_trial: false,
        seen: Seen { arrived: 0, resent: 0, queued: None },
    };

    fn finding(&self, rate: f64) -> Finding {
        let Self { busy, full, granted_bits, seen, .. } = *self;
        let elsewhere_bits = self.elsewhere_bits + self.late_bits;
        let seconds = busy.as_secs_f64();
        let of = |segments: u64| segments as f64 * FRAME_BITS / seconds;
        let (arrived, resent) = (of(seen.arrived), of(seen.resent));
        Finding {
            busy,
            granted: granted_bits / seconds,
            sent: arrived + resent,
            arrived,
            loss: resent / (arrived + resent),
            queued: seen.queued.unwrap_or_default(),
            is_full: full.as_secs_f64() >= FULL * seconds && arrived >= USED * rate,
            is_ours: elsewhere_bits <= ELSEWHERE * granted_bits && !self.follows_trial,
        }
    }
}

impl Estimate {
    pub(crate) const fn new(said: f64) -> Self {
        Self {
            rate: said,
            safe: said,
            rise: RISE,
            patience: PATIENCE,
            well: Duration::ZERO,
            usual: 0.0,
            usual_up_to: said,
            eases: 0,
            sinking: None,
            draining: None,
            borne: Borne::NOTHING,
            news: None,
            window: Window::NEW,
            granted: 0.0,
            is_ours: false,
            since: None,
            last: None,
            last_elsewhere: None,
            last_trial: None,
        }
    }

    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether what somebody who looks so often sees to be lost now is lost for too much being sent over the link: not where more is, or was,
    /// tried, nor where something else was full.
    pub(crate) fn is_to_blame(&self, every: Duration, now: Instant) -> bool {
        !self.is_trying() && is_late(self.last_elsewhere.max(self.last_trial), every, now)
    }

    /// Whether more is granted than has gone well, to see whether it does.
    fn is_trying(&self) -> bool {
        self.rate > self.safe
    }

    /// What has turned out to be safe, when that has come to rest.
    pub(crate) fn news(&mut self) -> Option<f64> {
        self.news.take()
    }

    /// From now on so much is granted, bits per second. `is_ours`: nothing else that is known to be full is on the way.
    pub(crate) fn grant(&mut self, granted: f64, is_ours: bool, now: Instant) {
        self.pass(now);
        (self.granted, self.is_ours) = (granted, is_ours);
    }

    /// Somebody who sends over the link, and looks so often, has seen this. Whether another rate is believed now.
    pub(crate) fn see(&mut self, seen: Seen, every: Duration, now: Instant) -> bool {
        self.pass(now);
        if is_late(self.last, every, now) {
            return false;
        }
        self.window.seen.add(seen);
        if self.window.busy < WINDOW_LOOKS * every || self.window.seen.arrived < WINDOW_SEGMENTS {
            return false;
        }
        let before = self.rate;
        let is_past = is_late(self.last_elsewhere, every, now);
        let late_bits = if is_past { 0.0 } else { self.window.elsewhere_bits };
        let next = Window { late_bits, follows_trial: self.is_trying(), ..Window::NEW };
        let finding = std::mem::replace(&mut self.window, next).finding(self.rate);
        self.judge(finding);
        self.rate != before
    }

    fn pass(&mut self, now: Instant) {
        let passed =
            self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.since = Some(now);
        if self.granted <= 0.0 || !self.granted.is_finite() {
            return;
        }
        self.last = Some(now);
        let bits = self.granted * passed.as_secs_f64();
        if self.is_trying() {
            self.last_trial = Some(now);
        }
        if !self.is_ours {
            self.last_elsewhere = Some(now);
            self.window.elsewhere_bits += bits;
        }
        self.window.busy += passed;
        self.window.granted_bits += bits;
        if self.granted >= FULL * self.rate {
            self.window.full += passed;
        }
    }

    fn judge(&mut self, seen: Finding) {
        self.borne.left = self.borne.left.saturating_sub(seen.busy);
        let borne = if self.borne.left.is_zero() { 0.0 } else { self.borne.loss };
        if self.is_trying() {
            self.judge_trial(seen);
        } else if seen.loss > borne + LOSS {
            if seen.is_ours {
                self.sink(seen);
            }
            (self.rise, self.well) = (RISE, Duration::ZERO);
        } else if self.waits_too_long(seen) {
            if seen.is_ours {
                self.drain(seen);
            }
            (self.rise, self.well) = (RISE, Duration::ZERO);
        } else if let Some(drained) = self.draining.take() {
            self.rest_at(drained.carries);
        } else if self.loses_too_much(seen, borne) {
            self.ease();
        } else {
            self.sinking = None;
            if seen.is_full {
                self.goes_well(seen);
            }
        }
    }

    /// Whether something is lost still since it has sunk or risen, where most of the link is used.
    fn loses_too_much(&self, seen: Finding, borne: f64) -> bool {
        let is_too_much = seen.loss > borne.max(self.usual) + LOSS_TRYING;
        is_too_much && self.eases > 0 && seen.is_ours && seen.arrived >= USED * self.rate
    }

    /// Whether what is sent waits longer before the link than it must.
    fn waits_too_long(&self, seen: Finding) -> bool {
        let borne = if self.borne.left.is_zero() { Duration::ZERO } else { self.borne.queued };
        let drains = BUFFER_BITS / self.rate.max(FLOOR);
        seen.queued > borne + QUEUED + Duration::from_secs_f64(drains)
    }

    /// More than what is safe is tried.
    fn judge_trial(&mut self, seen: Finding) {
        if self.waits_too_long(seen) || seen.loss > self.usual + LOSS_TRYING {
            self.patience = (2 * self.patience).min(PATIENCE_MOST);
            (self.rate, self.rise, self.well) = (self.safe, RISE, Duration::ZERO);
            (self.news, self.eases) = (Some(self.safe), EASES);
        } else if seen.is_full {
            self.well += seen.busy;
            (self.safe, self.eases) = (self.rate, EASES);
            self.rise = (1.0 + 2.0 * (self.rise - 1.0)).min(RISE_MOST);
            self.rate *= self.rise;
        }
    }

    /// As much is lost as ever, and it is full.
    fn goes_well(&mut self, seen: Finding) {
        self.well += seen.busy;
        let is_borne = !self.borne.left.is_zero();
        let is_known = self.rate <= self.usual_up_to || is_borne && seen.loss < self.usual;
        if seen.is_ours && is_known {
            let weight = USUAL.max(seen.busy.as_secs_f64() / self.well.as_secs_f64());
            self.usual += weight * (seen.loss - self.usual);
        }
        if !is_borne {
            self.borne.span = PATIENCE;
        }
        if seen.is_ours && std::mem::take(&mut self.eases) > 0 {
            self.news = Some(self.safe);
        }
        if self.well >= self.patience {
            self.well = Duration::ZERO;
            self.rate *= self.rise;
        }
    }

    fn ease(&mut self) {
        self.eases -= 1;
        self.rate *= EASE;
        // In vain: that is usual now.
        let is_usual = self.eases == 0;
        self.usual_up_to = if is_usual { self.rate } else { self.usual_up_to.min(self.rate) };
        self.safe = self.rate;
        self.news = is_usual.then_some(self.safe);
    }

    /// Too much of what was granted is lost.
    fn sink(&mut self, seen: Finding) {
        let Finding { sent, arrived, .. } = seen;
        let first = *self.sinking.get_or_insert(Sinking { rate: self.rate, sent, arrived });
        let is_less = sent <= LESS * first.sent;
        if is_less && arrived * first.sent <= NEARLY * sent * first.arrived {
            let is_little = seen.loss <= BORNE_MOST;
            self.bear(if is_little { first.rate } else { self.rate }, seen);
        } else {
            self.sink_to_arrived(seen);
        }
    }

    /// Too much of what was granted waits before the link.
    fn drain(&mut self, seen: Finding) {
        let rate = self.draining.map_or(self.rate, |before| before.rate);
        if self.draining.is_some() && seen.arrived <= NEARLY * seen.granted {
            // No more comes out than goes in: it is others' that waits.
            self.bear(rate, seen);
            return;
        }
        let carries = seen.arrived.max(FLOOR);
        self.draining = Some(Draining { rate, carries });
        (self.rate, self.safe) = (DRAIN * carries, DRAIN * carries);
        (self.sinking, self.eases) = (None, 0);
    }

    /// What is lost at this rate is usual from now on.
    const fn begin_at(&mut self, rate: f64) {
        (self.rate, self.safe, self.usual_up_to) = (rate, rate, rate);
    }

    /// The link has been seen to carry so much.
    fn rest_at(&mut self, carries: f64) {
        self.begin_at(carries);
        self.patience = self.patience.max(PATIENCE);
        self.news = Some(self.safe);
    }

    fn sink_to_arrived(&mut self, seen: Finding) {
        let least = if seen.loss > LOSS_FAR { SINK_LEAST_FAR } else { SINK_LEAST };
        let granted = seen.granted.min(self.rate);
        let sunk = seen.arrived.clamp(SINK_MOST * granted, least * granted);
        self.begin_at(sunk.max(FLOOR.min(self.rate)));
        self.draining = None;
        (self.patience, self.eases) = (WINDOW_LOOKS * LOOK, EASES);
    }

    /// Sending less was of no use: it is so again, as far as that is wise.
    fn bear(&mut self, rate: f64, seen: Finding) {
        let Finding { loss, queued, .. } = seen;
        let Borne { span, .. } = self.borne;
        self.borne = Borne { loss, queued, left: span, span: (2 * span).min(PATIENCE_MOST) };
        self.begin_at(rate);
        self.usual = loss;
        (self.sinking, self.draining) = (None, None);
        (self.eases, self.patience) = (0, PATIENCE);
        self.news = Some(self.safe);
    }
}

/// Whether what somebody sees now who looks so often is of after that.
fn is_late(last: Option<Instant>, every: Duration, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) > LATE_LOOKS * every)
}

#[cfg(test)]
mod tests;
