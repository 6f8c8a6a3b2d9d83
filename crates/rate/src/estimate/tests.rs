use super::*;

const MS: Duration = Duration::from_millis(1);
const EVERY: Duration = LOOK;

/// A link, and senders who use it as far as the estimate lets them, and no faster than they can.
struct World {
    estimate: Estimate,
    carries: f64,
    wanted: f64,
    /// Of what arrives otherwise this part is lost.
    noise: f64,
    /// Segments, less those that were sent again.
    lost: f64,
    /// Bits that wait before the link, which has a buffer without end; and how much longer others' traffic, or the path, makes them wait.
    waiting: Option<f64>,
    others: Duration,
    is_ours: bool,
    now: Instant,
    resent: u64,
    arrived: u64,
}

impl World {
    fn new(said: f64, carries: f64, wanted: f64) -> Self {
        let estimate = Estimate::new(said);
        let now = Instant::now();
        Self {
            estimate,
            carries,
            wanted,
            noise: 0.0,
            lost: 0.0,
            waiting: None,
            others: Duration::ZERO,
            is_ours: true,
            now,
            resent: 0,
            arrived: 0,
        }
    }

    fn deep(said: f64, carries: f64, wanted: f64) -> Self {
        Self { waiting: Some(0.0), ..Self::new(said, carries, wanted) }
    }

    /// What of so many bits per second comes out of the link in 50 ms, and what is lost there, bits.
    fn through(&mut self, sent: f64) -> (f64, f64) {
        let most = self.carries * 0.05;
        let sent = sent * 0.05;
        let Some(waiting) = &mut self.waiting else {
            return (sent.min(most), (sent - most).max(0.0));
        };
        let all = *waiting + sent;
        *waiting = (all - most).max(0.0);
        (all.min(most), 0.0)
    }

    fn is_late_after(&mut self, time: Duration) -> bool {
        self.run(time);
        self.delay() > 50 * MS
    }

    fn delay(&self) -> Duration {
        Duration::from_secs_f64(self.waiting.unwrap_or_default() / self.carries) + self.others
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            let granted = (0.998 * self.estimate.rate()).min(self.wanted);
            self.estimate.grant(granted, self.is_ours, self.now);
            self.now += 50 * MS;
            let (through, lost) = self.through(granted);
            let arrived = (through * (1.0 - self.noise) / FRAME_BITS) as u64;
            self.lost += (lost + through * self.noise) / FRAME_BITS;
            let resent = self.lost as u64;
            self.lost -= resent as f64;
            self.resent += resent;
            self.arrived += arrived;
            let queued = Some(self.delay());
            self.estimate.see(Seen { arrived, resent, queued }, EVERY, self.now);
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

/// Eight who send to one each, in bursts of which the first and the last are alone for a moment; `alone_ms` after all others. How far off the
/// estimate is after so many bursts.
fn off_by_after_bursts(bursts: u32, alone_ms: u32) -> f64 {
    let (mut estimate, mut now) = (Estimate::new(1600e6), Instant::now());
    let (mut seen, mut ms) = (Seen::default(), 0);
    // Segments, less those that were counted.
    let (mut arrived, mut lost) = (0.0, 0.0);
    let whole = |segments: &mut f64| {
        let whole = segments.floor();
        *segments -= whole;
        whole as u64
    };
    for _ in 0..bursts {
        for at in 0..250 {
            let senders = match at {
                0 => 1.0,
                1..125 => 8.0,
                125.. if at < 125 + alone_ms => 1.0,
                _ => 0.0,
            };
            let wanted = senders * 50e6;
            let granted = (0.998 * estimate.rate()).min(wanted);
            estimate.grant(granted, senders > 1.0, now);
            now += MS;
            ms += 1;
            let segments = |rate: f64| rate / 1000.0 / FRAME_BITS;
            arrived += segments(granted.min(160e6));
            lost += segments((granted - 160e6).max(0.0));
            seen.arrived += whole(&mut arrived);
            seen.resent += whole(&mut lost);
            if ms % 50 == 0 {
                estimate.see(std::mem::take(&mut seen), EVERY, now);
            }
        }
    }
    estimate.rate() / 160e6 - 1.0
}

#[test]
fn who_is_alone_for_a_moment_does_not_hide_what_all_have_lost() {
    let off_by = off_by_after_bursts(40, 20);
    assert!(off_by.abs() < 0.06, "{off_by}");
    assert_eq!(off_by_after_bursts(40, 125), 9.0, "as much may be lost of what goes to one alone");
}

#[test]
fn a_link_that_loses_some_of_everything_is_not_starved() {
    let mut estimate = Estimate::new(100e6);
    let mut now = Instant::now();
    for _ in 0..2000 {
        let granted = 0.998 * estimate.rate();
        estimate.grant(granted, true, now);
        now += 50 * MS;
        let sent = granted / FRAME_BITS * 0.05;
        let seen =
            Seen { arrived: (0.99 * sent) as u64, resent: (0.01 * sent) as u64, queued: None };
        estimate.see(seen, EVERY, now);
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
        assert!(!estimate.see(Seen { arrived: 200, resent: 0, queued: None }, EVERY, now));
    }
    // What is lost elsewhere is not the link's.
    let mut estimate = Estimate::new(160e6);
    let mut now = Instant::now();
    for _ in 0..100 {
        estimate.grant(50e6, false, now);
        now += 50 * MS;
        assert!(!estimate.see(Seen { arrived: 200, resent: 50, queued: None }, EVERY, now));
    }
    // Not even when it is the link again that counts.
    estimate.grant(156e6, true, now);
    for _ in 0..10 {
        now += 50 * MS;
        assert!(!estimate.see(Seen { arrived: 600, resent: 0, queued: None }, EVERY, now));
    }
    assert_eq!(estimate.rate(), 160e6);
}

/// Some is lost from the moment on that more than was said has gone well.
#[test]
fn losses_that_begin_beyond_what_was_said_are_usual_in_the_end() {
    let mut world = World::new(16e6, 160e6, 400e6);
    while world.estimate.rate() < 30e6 {
        world.run(Duration::from_millis(50));
    }
    world.noise = 0.01;
    world.run(Duration::from_secs(900));
    assert!((-0.15..0.06).contains(&world.off_by()), "{}", world.off_by());
}

/// A little too much was tried, and nearly nothing was lost by then.
#[test]
fn a_trial_that_went_well_at_first_is_taken_back() {
    let mut world = World::new(160e6, 160e6, 400e6);
    (world.estimate.rate, world.estimate.safe, world.estimate.eases) = (163e6, 163e6, EASES);
    world.run(Duration::from_secs(2));
    assert!((-0.05..0.01).contains(&world.off_by()), "{}", world.off_by());
}

#[test]
fn what_does_not_end_by_sending_less_is_borne() {
    let mut world = World::new(160e6, 160e6, 400e6);
    world.noise = 0.025;
    let mut least = f64::INFINITY;
    for _ in 0..600 {
        world.run(Duration::from_secs(1));
        least = least.min(world.estimate.rate());
    }
    assert!(least > 100e6 && world.off_by() > -0.1, "{least} {}", world.off_by());
    assert!(world.arrived as f64 * FRAME_BITS > 0.9 * 160e6 * 600.0, "{}", world.arrived);
    // More than that is its own, and it ends.
    world.carries = 80e6;
    world.run(Duration::from_secs(5));
    assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
}

#[test]
fn what_loses_most_of_what_is_sent_is_not_starved() {
    let mut world = World::new(160e6, 160e6, 400e6);
    world.noise = 0.15;
    world.run(Duration::from_secs(600));
    assert!(world.arrived as f64 * FRAME_BITS > 0.3 * 160e6 * 600.0, "{}", world.arrived);
    world.noise = 1.0;
    world.run(Duration::from_secs(600));
    assert!(world.estimate.rate() >= FLOOR, "{}", world.estimate.rate());
}

#[test]
fn what_a_deep_buffer_hides_is_found_by_its_delay() {
    for said in [160e6, 32e6] {
        let mut world = World::deep(said, 16e6, 400e6);
        world.run(Duration::from_secs(30));
        let (off_by, delay) = (world.off_by(), world.delay());
        assert!(off_by.abs() < 0.1 && delay < 100 * MS, "{said}: {off_by} {delay:?}");
        let before = world.arrived;
        let late = (0..3000).filter(|_| world.is_late_after(100 * MS)).count();
        let used = (world.arrived - before) as f64 * FRAME_BITS / (16e6 * 300.0);
        assert!(used > 0.93, "{said}: {used}");
        assert!(late < 100, "{said}: {late}");
    }
    // What carries more than is said is used, too.
    let mut world = World::deep(16e6, 160e6, 400e6);
    world.run(Duration::from_secs(120));
    assert!((-0.1..0.06).contains(&world.off_by()), "{}", world.off_by());
}

#[test]
fn a_delay_that_does_not_end_by_sending_less_is_borne() {
    let mut world = World::deep(160e6, 160e6, 400e6);
    world.run(Duration::from_secs(10));
    world.others = 200 * MS;
    world.run(Duration::from_secs(600));
    assert!(world.arrived as f64 * FRAME_BITS > 0.9 * 160e6 * 610.0, "{}", world.arrived);
    // More than that is its own.
    world.carries = 80e6;
    world.run(Duration::from_secs(60));
    assert!(world.off_by().abs() < 0.1, "{} {:?}", world.off_by(), world.delay());
}

#[test]
fn one_who_waits_for_nothing_shows_that_it_is_not_the_link() {
    let mut estimate = Estimate::new(160e6);
    let mut now = Instant::now();
    for look in 0..200 {
        estimate.grant(156e6, true, now);
        now += 25 * MS;
        let queued = [None, Some(900 * MS), Some(MS)][look % 3];
        assert!(!estimate.see(Seen { arrived: 250, resent: 0, queued }, EVERY, now));
    }
}

#[test]
fn a_link_that_has_lost_more_for_a_while_is_used_as_before() {
    let mut world = World::new(160e6, 160e6, 400e6);
    for (noise, seconds) in [(0.01, 30), (0.03, 10), (0.01, 60)] {
        world.noise = noise;
        world.run(Duration::from_secs(seconds));
    }
    assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
    // And one that has carried less, if nothing but one receiver is sent to since.
    world.carries = 16e6;
    world.run(Duration::from_secs(10));
    assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
    (world.carries, world.is_ours) = (160e6, false);
    world.run(Duration::from_secs(60));
    assert!(world.off_by().abs() < 0.1, "{}", world.off_by());
}

#[test]
fn bursts_of_many_processes_count_though_they_are_looked_at_late() {
    let every = Seen::every(128);
    let mut estimate = Estimate::new(1600e6);
    let mut now = Instant::now();
    for _ in 0..100 {
        let granted = estimate.rate();
        estimate.grant(granted, true, now);
        now += 250 * MS;
        estimate.grant(0.0, true, now);
        // Each of the processes looks once, after the burst.
        let each = 0.25 / FRAME_BITS / 128.0;
        let arrived = (granted.min(160e6) * each).round() as u64;
        let resent = ((granted - 160e6).max(0.0) * each).round() as u64;
        for _ in 0..128 {
            now += 3 * MS;
            estimate.see(Seen { arrived, resent, queued: None }, every, now);
        }
        now += 1000 * MS;
    }
    assert!((0.8..1.3).contains(&(estimate.rate() / 160e6)), "{}", estimate.rate());
}

#[test]
fn what_tcp_does_with_an_overload_is_not_taken_for_something_to_bear() {
    let mut worst = 0.0_f64;
    for seed in 1..=20_u64 {
        let mut random = seed;
        let mut next = |least: f64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            least + (1.0 - least) * (random >> 40) as f64 / (1_u64 << 24) as f64
        };
        let mut estimate = Estimate::new(1600e6);
        let (mut now, carries) = (Instant::now(), 160e6_f64);
        let mut over = 0;
        for step in 0..20 * 600 {
            estimate.grant(estimate.rate(), true, now);
            now += 50 * MS;
            // Windows are halved and timeouts waited for where it is too much.
            let offered = estimate.rate().min(1.5 * carries);
            let is_much = offered > carries;
            let sent = if is_much { offered * next(0.5) } else { offered };
            let arrived = if is_much { sent.min(carries) * next(0.9) } else { sent };
            let of = |bits: f64| (bits / FRAME_BITS * 0.05) as u64;
            estimate.see(
                Seen { arrived: of(arrived), resent: of(sent - arrived), queued: None },
                EVERY,
                now,
            );
            over += u32::from(step > 200 && estimate.rate() > 1.2 * carries);
        }
        worst = worst.max(f64::from(over) / 12_000.0);
    }
    assert!(worst < 0.05, "{worst}");
}
