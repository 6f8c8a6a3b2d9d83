//! What a link carries, by what connections see of it: what the job file says of it may be wrong.
//!
//! Where too much is lost a link carries less than is granted: not much more than what has arrived. Where hardly anything is lost
//! though the link is full it may carry more; that is tried by small steps, then by larger ones, and rarely where it was in vain.

use std::time::{Duration, Instant};

/// What a process has seen of its connections to a cluster since it last said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Segments that have arrived there, by their payload.
    pub arrived: u64,
    /// Segments that were sent again.
    pub resent: u64,
}

/// A full frame with everything around it, bits.
const FRAME_BITS: f64 = crate::FRAME as f64 * 8.0;

/// So long, and so many segments, are looked at before a judgement.
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_SEGMENTS: u64 = 200;

/// Of what is sent at most so much may be lost: where it has gone well before, and where more is tried.
const LOSS: f64 = 0.02;
const LOSS_TRYING: f64 = 0.005;

/// To this part grants sink at most for one window, and to that at least: where few are lost, and where many are.
const SINK_MOST: f64 = 0.7;
const SINK_LEAST: f64 = 0.95;
const SINK_LEAST_FAR: f64 = 0.85;
const LOSS_FAR: f64 = 0.05;

/// When they have sunk, and still something is lost: a little more, a few times. What is lost at random does not end by that.
const EASE: f64 = 0.97;
const EASES: u32 = 4;

/// How they rise: below what has gone well or is said, and beyond it, where it goes well again and again.
const RISE: f64 = 1.05;
const RISE_MOST: f64 = 1.5;

/// A full link is let alone for so long before more is tried; twice as long each time that it was in vain.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_MOST: Duration = Duration::from_secs(600);

/// What is seen later than this after the link was the only thing that could be full is of something else.
const LATE: Duration = Duration::from_millis(100);

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
    /// How long it has gone well at the safe rate.
    well: Duration,
    /// How often it may be eased yet.
    eases: u32,
    /// What is new of what is safe: people may be told.
    news: Option<f64>,
    window: Window,
    /// What is granted, and whether what is lost is lost here; since when.
    granted: f64,
    is_ours: bool,
    since: Option<Instant>,
    /// When that was last so.
    last_ours: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Window {
    busy: Duration,
    full: Duration,
    granted_bits: f64,
    seen: Seen,
}

impl Estimate {
    pub(crate) const fn new(said: f64) -> Self {
        Self {
            rate: said,
            safe: said,
            rise: RISE,
            patience: PATIENCE,
            well: Duration::ZERO,
            eases: 0,
            news: None,
            window: Window {
                busy: Duration::ZERO,
                full: Duration::ZERO,
                granted_bits: 0.0,
                seen: Seen { arrived: 0, resent: 0 },
            },
            granted: 0.0,
            is_ours: false,
            since: None,
            last_ours: None,
        }
    }

    pub(crate) const fn rate(&self) -> f64 {
        self.rate
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

    /// Somebody who sends over the link has seen this. Whether another rate is believed now.
    pub(crate) fn see(&mut self, seen: Seen, now: Instant) -> bool {
        self.pass(now);
        if self.last_ours.is_none_or(|last| now.saturating_duration_since(last) > LATE) {
            return false;
        }
        self.window.seen.arrived = self.window.seen.arrived.saturating_add(seen.arrived);
        self.window.seen.resent = self.window.seen.resent.saturating_add(seen.resent);
        if self.window.busy < WINDOW || self.window.seen.arrived < WINDOW_SEGMENTS {
            return false;
        }
        let before = self.rate;
        self.judge();
        self.rate != before
    }

    fn pass(&mut self, now: Instant) {
        let passed =
            self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.since = Some(now);
        if self.granted > 0.0 && self.granted.is_finite() && self.is_ours {
            self.last_ours = Some(now);
            self.window.busy += passed;
            self.window.granted_bits += self.granted * passed.as_secs_f64();
            if self.granted >= FULL * self.rate {
                self.window.full += passed;
            }
        }
    }

    fn judge(&mut self) {
        let Window { busy, full, granted_bits, seen } = std::mem::take(&mut self.window);
        let seconds = busy.as_secs_f64();
        let arrived = seen.arrived as f64 * FRAME_BITS / seconds;
        let is_full = full.as_secs_f64() >= FULL * seconds && arrived >= USED * self.rate;
        let loss = seen.resent as f64 / (seen.arrived as f64 + seen.resent as f64);
        let is_trying = self.rate > self.safe;
        if loss > if is_trying { LOSS_TRYING } else { LOSS } {
            if is_trying {
                self.patience = (2 * self.patience).min(PATIENCE_MOST);
                self.rate = self.safe;
                self.news = Some(self.safe);
            } else {
                let least = if loss > LOSS_FAR { SINK_LEAST_FAR } else { SINK_LEAST };
                self.sink(granted_bits / seconds, arrived, least);
            }
            (self.rise, self.well) = (RISE, Duration::ZERO);
        } else if loss > LOSS_TRYING && self.eases > 0 {
            self.eases -= 1;
            self.rate *= EASE;
            self.safe = self.rate;
            self.news = (self.eases == 0).then_some(self.safe);
        } else if loss <= LOSS_TRYING && is_full {
            self.well += busy;
            if std::mem::take(&mut self.eases) > 0 {
                self.news = Some(self.safe);
            }
            if is_trying {
                self.safe = self.rate;
                self.rise = (1.0 + 2.0 * (self.rise - 1.0)).min(RISE_MOST);
                self.rate *= self.rise;
            } else if self.well >= self.patience {
                self.well = Duration::ZERO;
                self.rate *= self.rise;
            }
        }
    }

    /// Too much of what was granted is lost.
    fn sink(&mut self, granted: f64, arrived: f64, least: f64) {
        let granted = granted.min(self.rate);
        self.rate = arrived.clamp(SINK_MOST * granted, least * granted);
        self.safe = self.rate;
        (self.patience, self.eases) = (WINDOW, EASES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A link, and senders who use it as far as the estimate lets them, and no faster than they can.
    struct World {
        estimate: Estimate,
        carries: f64,
        wanted: f64,
        now: Instant,
        resent: u64,
        arrived: u64,
    }

    impl World {
        fn new(said: f64, carries: f64, wanted: f64) -> Self {
            let estimate = Estimate::new(said);
            Self { estimate, carries, wanted, now: Instant::now(), resent: 0, arrived: 0 }
        }

        fn run(&mut self, time: Duration) {
            for _ in 0..time.as_millis() / 50 {
                let granted = (0.98 * self.estimate.rate()).min(self.wanted);
                self.estimate.grant(granted, true, self.now);
                self.now += 50 * MS;
                let arrived = (granted.min(self.carries) / FRAME_BITS * 0.05) as u64;
                let resent = ((granted - self.carries).max(0.0) / FRAME_BITS * 0.05) as u64;
                self.resent += resent;
                self.arrived += arrived;
                self.estimate.see(Seen { arrived, resent }, self.now);
            }
        }

        fn off_by(&self) -> f64 {
            self.estimate.rate() / self.carries - 1.0
        }
    }

    #[test]
    fn what_is_right_is_left_alone_but_for_a_rare_trial() {
        let mut world = World::new(160e6, 160e6, 400e6);
        world.run(Duration::from_secs(9));
        assert_eq!((world.estimate.rate(), world.resent), (160e6, 0));
        world.run(Duration::from_secs(600));
        assert!(world.off_by().abs() < 0.06, "{}", world.off_by());
        // A handful of trials in ten minutes.
        assert!(world.resent as f64 / (world.arrived as f64) < 2e-4, "{}", world.resent);
    }

    #[test]
    fn what_was_said_ten_times_too_high_or_low_is_put_right() {
        let mut world = World::new(1600e6, 160e6, 400e6);
        world.run(Duration::from_secs(2));
        assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
        world.run(Duration::from_secs(60));
        assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
        let mut world = World::new(16e6, 160e6, 400e6);
        world.run(Duration::from_secs(15));
        assert!((-0.35..0.06).contains(&world.off_by()), "{}", world.off_by());
        world.run(Duration::from_secs(120));
        assert!((-0.1..0.06).contains(&world.off_by()), "{}", world.off_by());
    }

    #[test]
    fn a_link_that_loses_some_of_everything_is_not_starved() {
        let mut estimate = Estimate::new(100e6);
        let mut now = Instant::now();
        for _ in 0..2000 {
            let granted = 0.98 * estimate.rate();
            estimate.grant(granted, true, now);
            now += 50 * MS;
            let sent = granted / FRAME_BITS * 0.05;
            estimate.see(Seen { arrived: (0.99 * sent) as u64, resent: (0.01 * sent) as u64 }, now);
        }
        assert!(estimate.rate() > 95e6, "{}", estimate.rate());
    }

    #[test]
    fn who_does_not_use_it_says_nothing_of_it() {
        let mut world = World::new(160e6, 160e6, 50e6);
        world.run(Duration::from_secs(100));
        assert_eq!(world.estimate.rate(), 160e6);
        // Nor does who is granted it and sends less.
        let mut estimate = Estimate::new(160e6);
        let mut now = Instant::now();
        for _ in 0..2000 {
            estimate.grant(156e6, true, now);
            now += 50 * MS;
            assert!(!estimate.see(Seen { arrived: 200, resent: 0 }, now));
        }
        // What is lost elsewhere is not the link's.
        let mut estimate = Estimate::new(160e6);
        let mut now = Instant::now();
        for _ in 0..100 {
            estimate.grant(50e6, false, now);
            now += 50 * MS;
            assert!(!estimate.see(Seen { arrived: 200, resent: 50 }, now));
        }
        // Not even when it is the link again that counts.
        estimate.grant(156e6, true, now);
        for _ in 0..10 {
            now += 50 * MS;
            assert!(!estimate.see(Seen { arrived: 600, resent: 0 }, now));
        }
        assert_eq!(estimate.rate(), 160e6);
    }
}
