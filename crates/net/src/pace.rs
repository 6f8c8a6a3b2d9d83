//! Turns: which of this process's connections may write now, so that all of them together keep to a rate.
//!
//! The kernel spaces out what one socket sends, but each socket by itself. Many at a small rate each would still meet at the
//! link's buffer, so here one at a time gets the whole rate: for a few milliseconds, then the next. What is handed to the kernel
//! goes into a bucket that leaks at the rate; its level says how long the kernel is busy.
//!
//! Bytes are those that TCP carries. No I/O and no clock: the moment is an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use gridmpi_rate::{ACKNOWLEDGEMENT, SEGMENT};
use gridmpi_wire::ProcId;

/// How long a turn takes. Longer ones are longer waits for the others, shorter ones more wake-ups.
const TURN: Duration = Duration::from_millis(5);

/// At a low rate a turn is longer: fewer segments are not worth a wake-up.
const TURN_LEAST: usize = 4 * SEGMENT;

/// A turn of a connection that the kernel does not space out yet: it sends this much at once.
const TURN_YOUNG: usize = 2 * SEGMENT;

/// A turn begins this much before the one before it has ended, to be there in time.
const LEAD: f64 = SEGMENT as f64;

/// A turn takes along what would be left over for a short one of its own, up to this part of it: that would be one more wake-up,
/// which may be late.
const REST: f64 = 2.0 / 3.0;

/// What late wake-ups have missed is made up for by a faster turn, up to this part of it.
const CREDIT: f64 = 0.4;

/// Where the kernel still has something that should have left it is looked at again after this part of a turn, at least.
const LINGER: f64 = 0.25;

/// Where windows are shut they are looked at again after this part of a turn, and so many of those who wait, each time.
const SHUT: f64 = 1.0 / 16.0;
const SHUT_MOST: usize = 8;

/// Messages up to this wait for nobody's turn, while not more than [`SMALL_LEAD`] is before them.
pub(crate) const SMALL: u64 = 2 * SEGMENT as u64;
const SMALL_LEAD: f64 = 4.0 * SEGMENT as f64;

/// What a connection has to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Bytes of messages. Where there are none, only words of the stream itself are to be written.
    pub(crate) backlog: u64,
    /// The kernel does not space out what it sends, since it has sent so little.
    pub(crate) is_young: bool,
    /// How long its turns are, by the usual ones: more than 0.
    pub(crate) share: f64,
}

/// What it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Write now, at most so many bytes.
    Now(usize),
    /// Wait until [`Pacer::next`] names it.
    Later,
}

/// Who may write.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes per second, more than 0.
    rate: f64,
    /// How long the kernel is busy from `seen` on, in bytes at the rate; not less than 0.
    level: f64,
    /// What it has missed since somebody waits, bytes.
    missed: f64,
    seen: Instant,
    /// Whom [`Self::next`] has named, until it asks.
    called: Option<ProcId>,
    /// Whose turn was the last.
    last: Option<ProcId>,
    /// Who waits. Small messages that found no room go first.
    small: VecDeque<ProcId>,
    large: BTreeSet<ProcId>,
    /// This one is next among the large ones, or who comes after it. Each process begins with another, so that they do not meet there.
    cursor: ProcId,
    first: ProcId,
    /// All of them, and whether the kernel does not space out yet what they send.
    waiting: HashMap<ProcId, bool>,
    /// Whose last bytes the kernel has, and how much leaves until these have left.
    leaving: Vec<(ProcId, f64)>,
    /// The turn that was given last is the first one after a rest.
    is_first: bool,
    /// The last turn was cut short by a window: the kernel has no more to space out, so the next one waits until that has left.
    is_cut: bool,
    /// How many have been put back since somebody wrote.
    shut: usize,
}

impl Pacer {
    /// One that keeps to `rate` bytes per second, more than 0, and begins with `cursor`, or who comes after it.
    pub(crate) fn new(rate: f64, cursor: ProcId, now: Instant) -> Self {
        Self {
            rate,
            level: 0.0,
            missed: 0.0,
            seen: now,
            called: None,
            last: None,
            small: VecDeque::new(),
            large: BTreeSet::new(),
            cursor,
            first: cursor,
            waiting: HashMap::new(),
            leaving: Vec::new(),
            shut: 0,
            is_first: false,
            is_cut: false,
        }
    }

    /// The rate is another from now on.
    pub(crate) fn set_rate(&mut self, rate: f64, now: Instant) {
        self.settle(now);
        self.rate = rate;
    }

    /// What a socket is to be told that may write so many bytes now, bytes per second: it makes up for what has been missed.
    pub(crate) fn socket_rate(&self, bytes: usize) -> u64 {
        let faster = self.made_up_by(bytes) / (bytes as f64).max(1.0);
        ((self.rate / (1.0 - faster)) as u64).max(1)
    }

    /// The whole rate, bytes per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whose turn it is, as far as the kernel still has to send.
    pub(crate) fn writer(&self) -> Option<ProcId> {
        self.last.filter(|_| self.level > 0.0)
    }

    /// Whether what the window holds back of the turn that was given last would leave in another's: where others wait; and after a rest,
    /// when nobody knows yet whether others will.
    pub(crate) fn is_bounded_by_window(&self) -> bool {
        self.has_waiting() || self.is_first
    }

    /// That turn is cut short by the window.
    pub(crate) fn cut(&mut self) {
        self.is_cut = self.is_first;
    }

    /// Whether anybody waits for their turn.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nothing more is to be written for `peer`: [`Self::gone`] names it when what has been written has left.
    pub(crate) fn leave(&mut self, peer: ProcId) {
        if !self.leaving.iter().any(|(known, _)| *known == peer) {
            self.leaving.push((peer, self.level));
        }
    }

    /// There is more to write for it, or it is gone already.
    pub(crate) fn stay(&mut self, peer: ProcId) {
        self.leaving.retain(|(known, _)| *known != peer);
    }

    /// Those that [`Self::gone`] will name.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = ProcId> + use<'_> {
        self.leaving.iter().map(|(peer, _)| *peer)
    }

    /// One whose last byte has left: once for each [`Self::leave`].
    pub(crate) fn gone(&mut self, now: Instant) -> Option<ProcId> {
        self.settle(now);
        let at = self.leaving.iter().position(|(_, left)| *left <= 0.0)?;
        Some(self.leaving.swap_remove(at).0)
    }

    /// The kernel still has so many bytes of one that was named: it is named again when these can have left.
    pub(crate) fn linger(&mut self, peer: ProcId, bytes: usize) {
        // While its window is shut, not many times in a turn.
        self.leaving.push((peer, (bytes as f64).max(LINGER * self.turn() as f64)));
    }

    /// `peer` has something to write.
    pub(crate) fn ask(&mut self, peer: ProcId, ask: Ask, now: Instant) -> Turn {
        if ask.backlog == 0 {
            return Turn::Now(usize::MAX);
        }
        let turn = self.turn_for(ask);
        if self.called.take_if(|called| *called == peer).is_some() {
            self.is_first = false;
            return Turn::Now(turn);
        }
        if self.waiting.contains_key(&peer) {
            return Turn::Later;
        }
        self.settle(now);
        if !self.has_waiting() {
            // A moment that nobody wanted to use is no credit.
            self.missed = 0.0;
            if self.writer() != Some(peer) {
                // Processes that ended with the same one do not begin with the same one.
                self.cursor = self.first;
            }
        }
        let is_small = ask.backlog <= SMALL;
        let (is_first, lead) = if is_small {
            (self.small.is_empty(), SMALL_LEAD)
        } else {
            (self.waiting.is_empty(), self.lead(peer, ask.is_young))
        };
        if is_first && self.level <= lead {
            if !is_small {
                // As if it had waited: who could begin at once and who could not go on in the same order.
                self.cursor = after(peer);
            }
            self.is_first = !is_small && self.level <= LEAD;
            self.is_cut = false;
            return Turn::Now(turn);
        }
        self.waiting.insert(peer, ask.is_young);
        if is_small {
            self.small.push_back(peer);
        } else {
            self.large.insert(peer);
        }
        Turn::Later
    }

    /// `peer` was to write, but its window is shut, and the kernel has something for when it opens: it waits on, others go first. Where
    /// those of all are shut nobody goes for a while: what the kernel was handed now would leave beside somebody's turn.
    pub(crate) fn put_back(&mut self, peer: ProcId, is_young: bool, now: Instant) {
        self.settle(now);
        self.waiting.insert(peer, is_young);
        self.large.insert(peer);
        self.shut += 1;
        if self.shut >= self.large.len().min(SHUT_MOST) {
            self.shut = 0;
            self.is_cut = true;
            self.level = self.level.max(LEAD + SHUT * self.turn() as f64);
        }
    }

    /// `peer` has written.
    pub(crate) fn wrote(&mut self, peer: ProcId, bytes: usize, now: Instant) {
        self.settle(now);
        self.shut = 0;
        // What is made up for the kernel sends in no time. A short turn can make up for little: many of them would leave at once.
        let made_up = self.made_up_by(bytes);
        self.missed -= made_up;
        self.level += bytes as f64 - made_up;
        self.last = Some(peer);
    }

    /// So many bytes have been sent too many; no more than a turn of them is made up for.
    pub(crate) fn owe(&mut self, bytes: f64) {
        self.burden(bytes.min(self.turn() as f64));
    }

    /// So many bytes have come, and will be acknowledged.
    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        self.burden(bytes as f64 * ACKNOWLEDGEMENT);
    }

    /// So many bytes leave beside the turns.
    fn burden(&mut self, bytes: f64) {
        let missed = self.missed.min(bytes);
        self.missed -= missed;
        self.level += bytes - missed;
    }

    /// How much of what was missed a turn of so many bytes makes up for.
    fn made_up_by(&self, bytes: usize) -> f64 {
        self.missed.min(CREDIT * bytes as f64)
    }

    /// Whose turn it is now, if it is anyone's who waits.
    pub(crate) fn next(&mut self, now: Instant) -> Option<ProcId> {
        self.settle(now);
        self.called = None;
        if self.level > self.lead_of_next()? {
            return None;
        }
        self.called = self.small.pop_front().or_else(|| {
            let peer = self.next_large()?;
            self.cursor = after(peer);
            self.large.take(&peer)
        });
        if let Some(peer) = &self.called {
            self.waiting.remove(peer);
            self.is_cut = false;
        }
        self.called
    }

    /// When it is the turn of one who waits, or [`Self::gone`] names one.
    pub(crate) fn due(&self) -> Option<Instant> {
        let turn = self.lead_of_next().map(|lead| self.level - lead);
        let ends = self.leaving.iter().map(|(_, left)| *left);
        let before = turn.into_iter().chain(ends).min_by(f64::total_cmp)?.max(0.0);
        // A year is as good as never, and can be added to any moment.
        let seconds = (before / self.rate).min(365.0 * 86400.0);
        // Rounded up: not a moment too early.
        Some(self.seen + Duration::from_secs_f64(seconds) + Duration::from_nanos(1))
    }

    fn lead_of_next(&self) -> Option<f64> {
        if self.small.is_empty() {
            self.next_large().map(|peer| {
                let is_young = self.waiting.get(&peer).is_some_and(|&is_young| is_young);
                self.lead(peer, is_young)
            })
        } else {
            Some(SMALL_LEAD)
        }
    }

    fn next_large(&self) -> Option<ProcId> {
        self.large.range(self.cursor..).next().or_else(|| self.large.first()).copied()
    }

    /// How much may be before a turn of `peer`. Its own it cannot meet, if the kernel spaces it out.
    fn lead(&self, peer: ProcId, is_young: bool) -> f64 {
        let goes_on = self.last == Some(peer) && !is_young && !self.is_cut;
        if goes_on { self.turn() as f64 / 2.0 } else { LEAD }
    }

    fn turn_for(&self, ask: Ask) -> usize {
        if ask.is_young {
            return TURN_YOUNG;
        }
        let turn = self.turn_of(ask.share);
        let all = whole(turn + (turn as f64 * REST) as usize);
        if ask.backlog <= all as u64 { all } else { turn }
    }

    fn turn(&self) -> usize {
        self.turn_of(1.0)
    }

    fn turn_of(&self, share: f64) -> usize {
        // The conversion saturates.
        whole((self.rate * TURN.as_secs_f64() * share) as usize).max(TURN_LEAST)
    }

    fn settle(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.seen).as_secs_f64();
        let level = self.level - passed * self.rate;
        self.level = level.max(0.0);
        self.leaving.iter_mut().for_each(|(_, left)| *left -= passed * self.rate);
        if self.has_waiting() {
            self.missed -= level.min(0.0);
        }
        self.missed = self.missed.min(CREDIT * self.turn() as f64);
        self.seen = self.seen.max(now);
    }
}

const fn after(peer: ProcId) -> ProcId {
    ProcId(peer.0.saturating_add(1))
}

/// Whole segments: the headers of what is left over would be counted by nobody.
const fn whole(bytes: usize) -> usize {
    bytes / SEGMENT * SEGMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 2_000_000.0;

    /// Connections that always have something to write, and a clock.
    struct World {
        pacer: Pacer,
        now: Instant,
        written: Vec<f64>,
    }

    impl World {
        fn new(peers: usize) -> Self {
            let now = Instant::now();
            Self { pacer: Pacer::new(RATE, ProcId(0), now), now, written: vec![0.0; peers] }
        }

        fn ask(&mut self, peer: u32, backlog: u64) -> Turn {
            self.pacer.ask(ProcId(peer), Ask { backlog, is_young: false, share: 1.0 }, self.now)
        }

        /// Writes as long as it may.
        fn go(&mut self, peer: u32) {
            while let Turn::Now(most) = self.ask(peer, 1 << 30) {
                self.written[peer as usize] += most as f64;
                self.pacer.wrote(ProcId(peer), most, self.now);
            }
        }

        /// Runs for so long, every wake-up being late by `late`.
        fn run(&mut self, time: Duration, late: Duration) {
            let end = self.now + time;
            while let Some(due) = self.pacer.due().filter(|&due| due + late < end) {
                self.now = self.now.max(due + late);
                while let Some(peer) = self.pacer.next(self.now) {
                    self.go(peer.0);
                }
            }
            self.now = end;
        }
    }

    #[test]
    fn together_they_keep_to_the_rate_and_share_it() {
        for peers in [1, 2, 8] {
            let mut world = World::new(peers);
            (0..peers).for_each(|peer| world.go(peer as u32));
            world.run(Duration::from_secs(3), Duration::from_micros(100));
            let all: f64 = world.written.iter().sum();
            let turn = world.pacer.turn() as f64;
            assert!((all - 3.0 * RATE).abs() < 2.0 * turn, "{peers}: {all}");
            for share in &world.written {
                assert!((share - all / peers as f64).abs() <= 2.0 * turn, "{:?}", world.written);
            }
        }
    }

    #[test]
    fn a_turn_begins_when_the_one_before_has_nearly_left() {
        let mut world = World::new(2);
        let Turn::Now(most) = world.ask(0, 1 << 20) else { panic!("nobody is before it") };
        world.pacer.wrote(ProcId(0), most, world.now);
        assert_eq!(world.ask(1, 1 << 20), Turn::Later);
        assert_eq!(world.pacer.next(world.now), None);
        let due = world.pacer.due().unwrap();
        world.now = due;
        assert_eq!(world.pacer.next(due), Some(ProcId(1)));
        assert!((world.pacer.level - LEAD).abs() < 1.0, "{}", world.pacer.level);
    }

    #[test]
    fn small_messages_pass_by_those_who_wait_but_are_counted() {
        let mut world = World::new(2);
        world.go(0);
        world.now = world.pacer.due().unwrap() - Duration::from_micros(50);
        let mut passed = 0;
        while let Turn::Now(_) = world.ask(1, 100) {
            world.pacer.wrote(ProcId(1), 1000, world.now);
            passed += 1;
        }
        assert!((1..=6).contains(&passed), "{passed}");
        // It goes before the large ones now.
        world.now = world.pacer.due().unwrap();
        assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
    }

    #[test]
    fn words_of_the_stream_never_wait() {
        let mut world = World::new(2);
        world.go(0);
        assert_eq!(world.ask(0, 0), Turn::Now(usize::MAX));
        assert_eq!(world.ask(1, 0), Turn::Now(usize::MAX));
    }

    #[test]
    fn late_wake_ups_are_made_up_for_and_idle_time_is_not() {
        let late = Duration::from_micros(500);
        let mut world = World::new(8);
        (0..8).for_each(|peer| world.go(peer));
        world.run(Duration::from_secs(2), late);
        let all: f64 = world.written.iter().sum();
        assert!(all > 2.0 * RATE - 3.0 * world.pacer.turn() as f64, "{all}");
        let mut world = World::new(1);
        world.now += Duration::from_secs(60);
        world.go(0);
        assert!(world.written[0] <= 2.0 * world.pacer.turn() as f64, "{:?}", world.written);
    }

    #[test]
    fn large_ones_take_turns_from_the_cursor_on() {
        let now = Instant::now();
        let mut pacer = Pacer::new(RATE, ProcId(6), now);
        pacer.wrote(ProcId(4), 1 << 20, now);
        let ask = Ask { backlog: 1 << 20, is_young: false, share: 1.0 };
        for peer in [4, 5, 6, 7] {
            assert_eq!(pacer.ask(ProcId(peer), ask, now), Turn::Later);
        }
        let later = now + Duration::from_secs(9);
        let order: Vec<_> = std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0).collect();
        assert_eq!(order, [6, 7, 4, 5]);
    }

    #[test]
    fn who_begins_at_once_and_who_has_to_wait_go_on_in_the_same_order() {
        // What is left of the collective before, whose last part went to 4.
        for before in [0, 2 * SEGMENT] {
            let now = Instant::now();
            let mut pacer = Pacer::new(RATE, ProcId(5), now);
            pacer.wrote(ProcId(4), before, now);
            let ask = Ask { backlog: 16_493, is_young: false, share: 1.0 };
            let mut order = Vec::new();
            for peer in [5, 6, 7, 4].map(ProcId) {
                if let Turn::Now(most) = pacer.ask(peer, ask, now) {
                    pacer.wrote(peer, most, now);
                    order.push(peer.0);
                }
            }
            assert_eq!(order.len(), usize::from(before == 0));
            let later = now + Duration::from_secs(9);
            order.extend(std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0));
            assert_eq!(order, [5, 6, 7, 4], "after {before}");
        }
    }

    #[test]
    fn whose_turn_was_the_first_does_not_have_the_next_one_before_others() {
        let now = Instant::now();
        let mut pacer = Pacer::new(RATE, ProcId(5), now);
        let ask = Ask { backlog: 1 << 20, is_young: false, share: 1.0 };
        let Turn::Now(most) = pacer.ask(ProcId(5), ask, now) else { panic!("nobody is before it") };
        pacer.wrote(ProcId(5), most, now);
        for peer in [5, 6, 4] {
            assert_eq!(pacer.ask(ProcId(peer), ask, now), Turn::Later);
        }
        let later = now + Duration::from_secs(9);
        let order: Vec<_> = std::iter::from_fn(|| pacer.next(later)).map(|peer| peer.0).collect();
        assert_eq!(order, [6, 4, 5]);
    }

    #[test]
    fn a_late_turn_is_faster_by_what_was_missed() {
        let mut world = World::new(2);
        let turn = world.pacer.turn();
        assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
        world.pacer.wrote(ProcId(0), turn, world.now);
        assert_eq!(world.ask(1, 1 << 20), Turn::Later);
        assert_eq!(world.pacer.socket_rate(turn), RATE as u64);
        world.now = world.pacer.due().unwrap() + Duration::from_millis(1);
        assert_eq!(world.pacer.next(world.now), Some(ProcId(1)));
        // 1 ms less the lead.
        let missed = RATE / 1e3 - LEAD;
        let wanted = RATE * turn as f64 / (turn as f64 - missed);
        assert!((world.pacer.socket_rate(turn) as f64 - wanted).abs() < 2.0);
        world.pacer.wrote(ProcId(1), turn, world.now);
        // The kernel has it out sooner by that, and the next one begins sooner.
        assert!((world.pacer.level - (turn as f64 - missed)).abs() < 1.0, "{}", world.pacer.level);
        assert_eq!(world.ask(0, 1 << 20), Turn::Later);
        assert_eq!(world.pacer.next(world.now + Duration::from_secs(1)), Some(ProcId(0)));
        assert_eq!(world.pacer.socket_rate(turn), (RATE / (1.0 - CREDIT)) as u64);
        // One who comes later missed nothing.
        world.now += Duration::from_secs(2);
        assert_eq!(world.ask(1, 1 << 20), Turn::Now(turn));
        assert_eq!(world.pacer.socket_rate(turn), RATE as u64);
    }

    #[test]
    fn what_comes_in_takes_its_acknowledgements() {
        let mut world = World::new(1);
        world.go(0);
        for _ in 0..1000 {
            world.pacer.received((RATE / 1000.0) as usize, world.now);
            world.run(Duration::from_millis(1), Duration::ZERO);
        }
        let share = world.written[0] / RATE;
        assert!((0.95..0.985).contains(&share), "{share}");
    }

    #[test]
    fn young_connections_send_little_at_a_time() {
        let mut world = World::new(1);
        let young = Ask { backlog: 1 << 20, is_young: true, share: 1.0 };
        assert_eq!(world.pacer.ask(ProcId(0), young, world.now), Turn::Now(TURN_YOUNG));
        world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
        assert_eq!(world.pacer.ask(ProcId(0), young, world.now), Turn::Later);
    }

    #[test]
    fn young_connections_that_wait_do_not_go_on_before_what_they_sent_has_left() {
        let mut world = World::new(1);
        let young = Ask { backlog: 1 << 20, is_young: true, share: 1.0 };
        assert_eq!(world.pacer.ask(ProcId(0), young, world.now), Turn::Now(TURN_YOUNG));
        world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
        for _ in 0..5 {
            assert_eq!(world.pacer.ask(ProcId(0), young, world.now), Turn::Later);
            assert_eq!(world.pacer.next(world.now), None);
            let due = world.pacer.due().unwrap();
            let left = (due - world.now).as_secs_f64() * RATE;
            assert!(left > TURN_YOUNG as f64 - LEAD - 1.0, "{left}");
            world.now = due;
            assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
            assert_eq!(world.pacer.ask(ProcId(0), young, world.now), Turn::Now(TURN_YOUNG));
            world.pacer.wrote(ProcId(0), TURN_YOUNG, world.now);
        }
    }

    #[test]
    fn many_short_turns_after_a_late_wake_up_do_not_leave_at_once() {
        let now = Instant::now();
        let mut pacer = Pacer::new(RATE, ProcId(0), now);
        pacer.wrote(ProcId(9), 10 * SEGMENT, now);
        let ask = Ask { backlog: 1 << 20, is_young: false, share: 1.0 };
        (0..8).for_each(|peer| assert_eq!(pacer.ask(ProcId(peer), ask, now), Turn::Later));
        // All that can be made up for has been missed. Windows let each have one segment.
        let late = now + Duration::from_secs(1);
        let mut at_once = 0;
        while let Some(peer) = pacer.next(late) {
            assert!(matches!(pacer.ask(peer, ask, late), Turn::Now(_)));
            pacer.wrote(peer, SEGMENT, late);
            at_once += 1;
        }
        assert_eq!(at_once, 2);
        // They leave faster, but one by one.
        let gap = (pacer.due().unwrap() - late).as_secs_f64() * RATE;
        assert!(gap > 0.0 && gap < SEGMENT as f64, "{gap}");
        assert_eq!(pacer.socket_rate(SEGMENT), (RATE / (1.0 - CREDIT)) as u64);
    }

    #[test]
    fn what_comes_in_is_taken_off_what_was_missed() {
        let mut world = World::new(2);
        world.go(0);
        assert_eq!(world.ask(1, 1 << 20), Turn::Later);
        world.now += Duration::from_secs(1);
        world.pacer.settle(world.now);
        let missed = world.pacer.missed;
        assert_eq!(missed, CREDIT * world.pacer.turn() as f64);
        world.pacer.received(10_000, world.now);
        assert!((missed - world.pacer.missed - 10_000.0 * ACKNOWLEDGEMENT).abs() < 1e-6);
        world.pacer.owe(missed);
        assert_eq!(world.pacer.missed, 0.0);
        assert!((world.pacer.level - 10_000.0 * ACKNOWLEDGEMENT).abs() < 1e-6);
    }

    #[test]
    fn a_turn_takes_along_what_would_be_left_for_a_short_one() {
        let mut world = World::new(1);
        let turn = world.pacer.turn();
        let all = turn + (REST * turn as f64) as usize;
        assert_eq!(world.ask(0, all as u64), Turn::Now(all));
        assert_eq!(world.ask(0, all as u64 + 1), Turn::Now(turn));
        // 32 KiB by messages of that size at 40 Mbit/s, as eight of them share 320.
        let mut pacer = Pacer::new(39.2e6 / 8.0 * 1448.0 / 1538.0, ProcId(0), world.now);
        let ask = Ask { backlog: (32 << 10) + 65, is_young: false, share: 1.0 };
        assert!(
            matches!(pacer.ask(ProcId(0), ask, world.now), Turn::Now(most) if most as u64 >= ask.backlog)
        );
    }

    #[test]
    fn turns_are_as_long_as_their_shares_and_a_new_rate_counts_at_once() {
        let mut world = World::new(1);
        let ask = |share, world: &mut World| {
            world.now = world.pacer.due().unwrap_or(world.now) + Duration::from_secs(1);
            world.pacer.ask(ProcId(0), Ask { backlog: 1 << 30, is_young: false, share }, world.now)
        };
        let bytes = RATE * TURN.as_secs_f64();
        let whole = bytes as usize / SEGMENT * SEGMENT;
        assert_eq!(ask(1.0, &mut world), Turn::Now(whole));
        assert_eq!(ask(2.5, &mut world), Turn::Now((2.5 * bytes) as usize / SEGMENT * SEGMENT));
        assert_eq!(ask(1e-9, &mut world), Turn::Now(TURN_LEAST));
        world.pacer.wrote(ProcId(0), whole, world.now);
        let before = world.pacer.level;
        world.pacer.set_rate(4.0 * RATE, world.now);
        world.now += TURN / 4;
        world.pacer.settle(world.now);
        assert!((before - world.pacer.level - whole as f64).abs() < 1.0, "{}", world.pacer.level);
        assert_eq!(world.pacer.rate(), 4.0 * RATE);
    }

    #[test]
    fn one_is_gone_when_its_last_byte_has_left_whoever_comes_after_it() {
        let mut world = World::new(2);
        let turn = world.pacer.turn();
        world.pacer.wrote(ProcId(0), turn, world.now);
        world.pacer.leave(ProcId(0));
        let began = world.now;
        assert_eq!(world.pacer.gone(began), None);
        // The next one's turn, and acknowledgements, leave after it.
        world.now += TURN / 2;
        world.pacer.wrote(ProcId(1), turn, world.now);
        world.pacer.received(100_000, world.now);
        assert!(world.pacer.due().unwrap() - began < TURN);
        // What is left of it leaves at a quarter of the rate.
        world.pacer.set_rate(RATE / 4.0, world.now);
        let due = world.pacer.due().unwrap();
        let wanted = (turn as f64 / RATE - TURN.as_secs_f64() / 2.0) * 4.0;
        assert!(((due - world.now).as_secs_f64() - wanted).abs() < 1e-6, "{wanted}");
        assert_eq!(world.pacer.gone(due - Duration::from_micros(1)), None);
        world.pacer.leave(ProcId(1));
        assert_eq!(world.pacer.gone(due), Some(ProcId(0)));
        assert_eq!(world.pacer.gone(due), None, "once");
        // More is to be sent to the other before it is gone.
        world.pacer.stay(ProcId(1));
        assert_eq!((world.pacer.due(), world.pacer.gone(due + 100 * TURN)), (None, None));
    }

    #[test]
    fn one_that_the_kernel_still_has_bytes_of_is_named_again_but_not_all_the_time() {
        let mut world = World::new(1);
        world.pacer.leave(ProcId(0));
        assert_eq!(world.pacer.gone(world.now), Some(ProcId(0)));
        for (bytes, least) in [(RATE as usize / 100, Duration::from_millis(10)), (1, TURN / 5)] {
            world.pacer.linger(ProcId(0), bytes);
            let due = world.pacer.due().unwrap();
            assert!(due - world.now >= least && due - world.now < 2 * least, "{bytes}");
            world.now = due;
            assert_eq!(world.pacer.gone(due), Some(ProcId(0)));
        }
    }

    #[test]
    fn the_first_turn_after_a_rest_is_bounded_by_its_window_and_a_lone_one_goes_on_by_itself() {
        let mut world = World::new(2);
        let turn = world.pacer.turn();
        assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
        assert!(world.pacer.is_bounded_by_window());
        // Its window lets out less: that has left before it goes on, and others would have asked by then.
        world.pacer.cut();
        world.pacer.wrote(ProcId(0), 2 * SEGMENT, world.now);
        assert_eq!(world.ask(0, 1 << 20), Turn::Later);
        world.now = world.pacer.due().unwrap();
        assert_eq!(world.pacer.next(world.now), Some(ProcId(0)));
        assert_eq!(world.ask(0, 1 << 20), Turn::Now(turn));
        assert!(!world.pacer.is_bounded_by_window());
        // It keeps the kernel supplied.
        world.pacer.wrote(ProcId(0), turn, world.now);
        assert_eq!(world.ask(0, 1 << 20), Turn::Later);
        assert!(world.pacer.due().unwrap() - world.now < TURN * 3 / 5);
        assert_eq!(world.ask(1, 1 << 20), Turn::Later);
        assert!(world.pacer.is_bounded_by_window());
    }

    #[test]
    fn where_windows_are_shut_others_go_first_and_none_is_asked_all_the_time() {
        let mut world = World::new(0);
        world.pacer.wrote(ProcId(99), 10 * SEGMENT, world.now);
        (0..20).for_each(|peer| assert_eq!(world.ask(peer, 1 << 20), Turn::Later));
        world.now += Duration::from_secs(1);
        let round = |world: &mut World, open: Option<u32>| {
            let mut asked = Vec::new();
            while let Some(peer) = world.pacer.next(world.now) {
                assert!(matches!(world.ask(peer.0, 1 << 20), Turn::Now(_)));
                asked.push(peer.0);
                if Some(peer.0) == open {
                    world.pacer.wrote(peer, world.pacer.turn(), world.now);
                } else {
                    world.pacer.put_back(peer, false, world.now);
                }
            }
            let due = world.pacer.due().unwrap();
            assert!(due > world.now + TURN / 20, "{:?}", due - world.now);
            world.now = due;
            asked
        };
        assert_eq!(round(&mut world, None), (0..8).collect::<Vec<_>>());
        assert_eq!(round(&mut world, None), (8..16).collect::<Vec<_>>());
        // All come by in turn; who may write does.
        assert_eq!(round(&mut world, Some(19)), [16, 17, 18, 19]);
        assert!(!world.pacer.waiting.contains_key(&ProcId(19)) && world.pacer.waiting.len() == 19);
    }

    #[test]
    fn a_rate_of_next_to_nothing_is_slow_and_no_more() {
        let now = Instant::now();
        let mut pacer = Pacer::new(1e-9, ProcId(0), now);
        pacer.wrote(ProcId(0), 1 << 20, now);
        let ask = Ask { backlog: 1 << 20, is_young: false, share: 1.0 };
        assert_eq!(pacer.ask(ProcId(1), ask, now), Turn::Later);
        assert!(pacer.due().unwrap() > now + Duration::from_secs(86400));
        assert_eq!(pacer.socket_rate(1), 1);
    }
}
