//! Whether a process uses what it is granted: who is held up by something else, a receiver that nobody said anything of, a window, its
//! own processor, leaves the rest to others while it sends.
//!
//! It is judged by what has arrived while something waits all the time (what the kernel has taken says little: it takes megabytes); one
//! who has nothing to send has no grant.
//! No clock: the moment is an argument.

use crate::Rate;
use std::time::{Duration, Instant};

/// So long is looked at, and in so many such spans, one after the other, less than this part has to be used. A window that still
/// opens, or a program that computes for a moment, is not one who needs less.
const SPAN: Duration = Duration::from_millis(100);
const SPANS: u32 = 2;
const SPANS_MOST: u32 = 32;
const LOW: f64 = 0.7;

/// For so long after more was granted nothing is judged: a window opens.
const GRACE: Duration = Duration::from_millis(400);
const MORE: f64 = 1.1;

/// So much more than was used is asked for then: by that it can be seen that more is wanted.
const ROOM: f64 = 1.25;

/// Who has less than they may is looked at so long, and has all again when they have used this part of it: turns are 5 ms of it.
const SPAN_LIMITED: Duration = Duration::from_millis(50);
const NEAR: f64 = 0.95;

/// What one process uses of what it is granted towards a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    span: Option<Span>,
    /// How many spans of little use there have been, and the most in one, bits per second.
    lows: u32,
    most: f64,
    /// How many there have to be: twice as many each time that more was wanted again.
    patience: u32,
    limit: Option<f64>,
    /// What the broker is to be told.
    news: Option<Rate>,
}

/// In which something has waited all the time.
#[derive(Clone, Copy, Debug)]
struct Span {
    since: Instant,
    /// It begins with the next look: what arrived before that is in what is said of it then.
    is_due: bool,
    /// Up to when `allowed` is known.
    at: Instant,
    rate: f64,
    /// Bits.
    allowed: f64,
    used: f64,
}

impl Span {
    /// From a look on.
    const fn new(rate: f64, since: Instant) -> Self {
        Self { since, is_due: false, at: since, rate, allowed: 0.0, used: 0.0 }
    }

    /// From the first look after then.
    const fn after(rate: f64, then: Instant) -> Self {
        Self { is_due: true, ..Self::new(rate, then) }
    }

    fn pass(&mut self, now: Instant) {
        self.allowed += self.rate * now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
    }
}

impl Default for Demand {
    fn default() -> Self {
        Self { span: None, lows: 0, most: 0.0, patience: SPANS, limit: None, news: None }
    }
}

impl Demand {
    /// Something waits, and so much is granted, bits per second.
    pub(crate) fn allow(&mut self, rate: f64, now: Instant) {
        match &mut self.span {
            _ if !rate.is_finite() => self.span = None,
            Some(span) if rate <= MORE * span.rate => {
                span.pass(now);
                span.rate = rate;
            }
            _ => {
                // Who is limited has a window already, which is to show that it can use more.
                let grace = if self.limit.is_some() { Duration::ZERO } else { GRACE };
                self.span = Some(Span::after(rate, now + grace));
                (self.lows, self.most) = (0, 0.0);
            }
        }
    }

    /// Something else is to be sent, too: nobody knows what holds that up.
    pub(crate) fn widen(&mut self, now: Instant) {
        self.lift();
        // A window that opens still does.
        let opens_until = |span: &Span| if span.is_due { span.since } else { now };
        self.span = self.span.map(|span| Span::after(span.rate, now.max(opens_until(&span))));
        (self.lows, self.most) = (0, 0.0);
    }

    /// Nothing waits any more: the broker forgets what it was told with the grant.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }

    /// Less is sent than is granted, until more is granted anew: that says nothing of what could be.
    pub(crate) fn pause(&mut self) {
        self.span = None;
        (self.lows, self.most) = (0, 0.0);
    }

    /// So many bits of what is granted were taken up by something else, such as acknowledgements of what comes.
    pub(crate) fn taken(&mut self, bits: f64) {
        if let Some(span) = &mut self.span {
            span.used += bits;
        }
    }

    /// So many bits have arrived. `least` is never too much to ask for. Whether the broker is to be told something.
    pub(crate) fn used(&mut self, bits: f64, least: Rate, now: Instant) -> bool {
        let Some(span) = &mut self.span else { return self.news.is_some() };
        if now <= span.since {
            return self.news.is_some();
        }
        if span.is_due {
            *span = Span::new(span.rate, now);
            return self.news.is_some();
        }
        span.used += bits;
        span.pass(now);
        let (done, length) = (*span, span.at.saturating_duration_since(span.since));
        match self.limit {
            Some(_) if length >= SPAN_LIMITED => {
                self.span = Some(Span::new(done.rate, now));
                if done.used >= NEAR * done.allowed {
                    self.patience = (2 * self.patience).min(SPANS_MOST);
                    self.lift();
                }
            }
            None if length >= SPAN => {
                self.span = Some(Span::new(done.rate, now));
                self.judge(&done, least.bits_per_second() / 4.0);
            }
            _ => {}
        }
        self.news.is_some()
    }

    fn judge(&mut self, done: &Span, least: f64) {
        if done.used >= LOW * done.allowed {
            (self.lows, self.most) = (0, 0.0);
            return;
        }
        let seconds = done.at.saturating_duration_since(done.since).as_secs_f64();
        self.lows += 1;
        self.most = self.most.max(done.used / seconds);
        let limit = (ROOM * self.most).max(least);
        if self.lows >= self.patience && limit < done.rate {
            (self.lows, self.most) = (0, 0.0);
            self.limit = Some(limit);
            self.news = Rate::from_bits_per_second(limit);
        }
    }

    /// What the broker is to be told that this process can use, since it was last asked.
    pub(crate) fn news(&mut self) -> Option<Rate> {
        self.news.take()
    }

    fn lift(&mut self) {
        if self.limit.take().is_some() {
            self.news = Some(Rate::UNBOUNDED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);
    const GRANT: f64 = 80e6;

    fn least() -> Rate {
        Rate::from_bits_per_second(20e6).unwrap()
    }

    /// A process that can send at `able` bits per second, in pieces of so many milliseconds, and what it was granted.
    struct World {
        demand: Demand,
        granted: f64,
        now: Instant,
        told: Vec<f64>,
    }

    impl World {
        fn new() -> Self {
            let mut demand = Demand::default();
            let now = Instant::now();
            demand.allow(GRANT, now);
            Self { demand, granted: GRANT, now, told: Vec::new() }
        }

        fn run(&mut self, able: f64, time: Duration, piece_ms: u32) {
            for _ in 0..time.as_millis() / u128::from(piece_ms) {
                self.now += piece_ms * MS;
                let bits = able.min(self.granted) * f64::from(piece_ms) / 1e3;
                self.demand.used(bits, least(), self.now);
                if let Some(rate) = self.demand.news() {
                    self.told.push(rate.bits_per_second());
                    self.granted = GRANT.min(rate.bits_per_second());
                    self.demand.allow(self.granted, self.now);
                }
            }
        }
    }

    #[test]
    fn who_uses_little_asks_for_little_more_and_has_all_again_when_it_wants_it() {
        let mut world = World::new();
        world.run(20e6, GRACE + SPAN, 5);
        assert!(world.told.is_empty(), "one span is too early");
        world.run(20e6, 4 * SPAN, 5);
        assert_eq!(world.told.len(), 1);
        assert!((world.told[0] / 25e6 - 1.0).abs() < 0.05, "{:?}", world.told);
        world.run(20e6, 100 * SPAN, 5);
        assert_eq!(world.told.len(), 1, "and it rests");
        world.run(GRANT, 3 * SPAN_LIMITED, 5);
        assert_eq!(world.told[1..], [f64::INFINITY]);
        world.run(GRANT, 100 * SPAN, 5);
        assert_eq!(world.told.len(), 2);
    }

    #[test]
    fn who_is_stopped_wholly_keeps_something() {
        let mut world = World::new();
        world.run(0.0, GRACE + 5 * SPAN, 50);
        assert_eq!(world.told, [5e6]);
    }

    #[test]
    fn what_comes_the_other_way_does_not_keep_a_limit_for_ever() {
        let mut world = World::new();
        world.run(0.0, GRACE + 5 * SPAN, 50);
        assert_eq!(world.told, [5e6]);
        // It could send again, but for what is acknowledged of 50 Mbit/s that come.
        let acknowledgements = 50e6 * crate::ACKNOWLEDGEMENT;
        for _ in 0..100 {
            world.demand.taken(acknowledgements * 5e-3);
            world.run(world.granted - acknowledgements, 5 * MS, 5);
        }
        assert_eq!(world.told[1..], [f64::INFINITY]);
    }

    #[test]
    fn what_else_is_to_be_sent_may_be_as_fast_as_it_can() {
        let mut world = World::new();
        world.run(20e6, GRACE + 5 * SPAN, 5);
        world.demand.widen(world.now);
        assert_eq!(world.demand.news(), Some(Rate::UNBOUNDED));
        world.demand.widen(world.now);
        assert_eq!(world.demand.news(), None);
        let mut world = World::new();
        world.run(20e6, GRACE + 5 * SPAN, 5);
        world.demand.rest();
        assert_eq!(world.demand.news(), None);
    }

    #[test]
    fn what_else_is_to_be_sent_makes_no_window_open_sooner() {
        let mut world = World::new();
        world.run(20e6, 10 * MS, 5);
        world.demand.widen(world.now);
        world.run(20e6, GRACE - 10 * MS + 2 * SPAN, 5);
        assert!(world.told.is_empty(), "{:?}", world.told);
        world.run(20e6, SPAN, 5);
        assert_eq!(world.told.len(), 1);
    }

    #[test]
    fn grants_that_go_up_and_down_keep_no_limit() {
        let mut world = World::new();
        world.run(20e6, GRACE + 5 * SPAN, 5);
        assert_eq!(world.told.len(), 1);
        let limit = world.granted;
        world.demand.allow(10e6, world.now);
        for _ in 0..3 {
            for granted in [limit, 10e6] {
                world.demand.allow(granted, world.now);
                world.granted = granted;
                world.run(granted, 150 * MS, 5);
            }
        }
        assert_eq!(world.told[1..], [f64::INFINITY]);
    }

    #[test]
    fn who_changes_its_mind_often_is_taken_at_its_word_less_often() {
        let mut world = World::new();
        for _ in 0..100 {
            world.run(20e6, GRACE + 3 * SPAN, 5);
            world.run(GRANT, 3 * SPAN, 5);
        }
        assert!(world.told.len() <= 10, "{:?}", world.told);
    }

    #[test]
    fn what_has_no_bound_is_not_judged() {
        let mut demand = Demand::default();
        let now = Instant::now();
        demand.allow(f64::INFINITY, now);
        assert!(!demand.used(1.0, least(), now + GRACE + 10 * SPAN));
    }

    proptest! {
        /// However fast it can send, and in whatever pieces: what it is left is never less than what it can use, and hardly more
        /// where that is far less than it was granted; and little is said about it.
        #[test]
        fn nobody_is_slowed_and_little_is_wasted(able in 0.5f64..100.0, piece_ms in 1u32..12) {
            let mut world = World::new();
            world.run(able * 1e6, 40 * SPAN, piece_ms);
            let able = able * 1e6;
            prop_assert!(world.granted >= able.min(GRANT) * 0.999, "{} of {able}", world.granted);
            if able < 0.6 * GRANT {
                prop_assert!(world.granted <= (1.4 * able).max(5e6), "{} of {able}", world.granted);
            }
            prop_assert!(world.told.len() <= 3, "{:?}", world.told);
        }
    }
}
