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

pub(crate) use upkeep::Progress;
use upkeep::Upkeep;

/// How long a turn takes. Longer ones are longer waits for the others, shorter ones more wake-ups.
const TURN: Duration = Duration::from_millis(5);

/// At a low rate a turn is longer: fewer segments are not worth a wake-up.
const TURN_LEAST: usize = 4 * SEGMENT;

/// A turn of a connection that the kernel does not space out yet: it sends this much at once.
pub(crate) const TURN_YOUNG: usize = 2 * SEGMENT;

/// A turn begins this much before the one before it has ended, to be there in time.
const LEAD: f64 = SEGMENT as f64;

/// A turn takes along what would be left over for a short one of its own, up to this part of it: that would be one more wake-up,
/// which may be late.
const REST: f64 = 2.0 / 3.0;

/// The same of a frame that others are behind, with what is on the wire beside it.
const FRAME_BESIDE: usize = 2 * SEGMENT;

/// What has come since one began to wait is not for its turn if others wait, as theirs is older, unless that made it shorter than this part of
/// a usual one.
const TURN_OLD: f64 = 0.25;

/// What late wake-ups have missed is made up for by a faster turn, up to this part of it; it is kept in mind up to [`Slack::late`].
const CREDIT: f64 = 0.4;

/// A kernel that is held up is told to be faster by this part of what it is told: three times as fast. Who holds it up has more in the queue.
/// The same where the rate is all that the interface carries, of a message that is all there is: the interface spaces it out.
const HASTE: f64 = 2.0 / 3.0;

/// The same where the rate is all that an interface carries, of a connection that goes on: a moment in which the interface has nothing is
/// lost. What piles up there is what TCP lets be there by itself, about a millisecond.
const FILL: f64 = 0.1;

/// Where the kernel still has something that should have left it is looked at again after this part of a turn, at least.
const LINGER: f64 = 0.25;

/// Where windows are shut they are looked at again after this part of a turn, and so many of those who wait, each time.
const SHUT: f64 = 1.0 / 16.0;
const SHUT_MOST: usize = 8;

/// Messages up to this wait for nobody's turn, while not more than [`SMALL_LEAD`] is before them, or what [`Lead`] says.
pub(crate) const SMALL: u64 = 2 * SEGMENT as u64;
const SMALL_LEAD: f64 = 4.0 * SEGMENT as f64;

/// A message of up to so many parts that need no spacing is handed over by these.
const PARTS: usize = 6;

/// When the rate becomes lower what the kernel has need not be spaced out if so much of it leaves sooner than it should; more, if it was not to keep
/// to the rate anyway.
const BORNE: f64 = 2.0 * SMALL as f64;
const LET_GO: f64 = 4.0 * SMALL as f64;

/// So many times what a pause is worth leaves sooner, at most, of a message that goes unspaced since it would wait for others: 48 KB, if all do so at
/// once.
const ALL_BORNE: f64 = 3.0;

/// It is looked whether all has left when so much more could have, and no later than a wake-up may be: where the kernel is a packet behind it would
/// be looked at twice.
const SPARE: f64 = SEGMENT as f64;

/// Wake-ups are often so late: where that is worth more than a pause, small messages by turns of their own would not reach the rate, nor would
/// turns that did not make up for it.
const LATE: Duration = Duration::from_micros(150);

/// What a connection has to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Bytes of messages, by whole frames. Where there are none, only words of the stream itself are to be written.
    pub(crate) backlog: u64,
    /// The same, without what is written of the frame that goes now. All ones where newer ones go before the end of a long message.
    pub(crate) left: u64,
    /// Of these, those to the end of the frame that goes now.
    pub(crate) frame: u64,
    /// The kernel does not space out what it sends, since it has sent so little.
    pub(crate) is_young: bool,
    /// The kernel spaces nothing out for it unless it is told of a rate. Once it is, it has a timer for each packet, for good.
    pub(crate) is_untold: bool,
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

/// How much the kernel may have already when something is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lead {
    /// What keeps a gap from coming up; of small messages somewhat more.
    #[default]
    Usual,
    /// The same, but of small messages that come after a small one no more than a pause is worth: many nodes may have as many of them.
    Claimed,
    /// However much: what is written is no more than may leave at once.
    Any,
    /// Small ones, too, wait until no more is left than a pause is worth: so much has left at once already.
    Least,
}

/// The path's part in what leaves faster than the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// What the interface carries, bytes per second: more it holds back by itself. No bound where that is not known, or the rate is not to be
    /// exceeded.
    pub(crate) interface: f64,
    /// What the process may always have, bytes per second.
    pub(crate) least: f64,
    /// What a pause is worth at most, bytes: so much may leave at once after it.
    pub(crate) pause: f64,
    /// What late wake-ups have missed counts up to this, bytes, or to what they usually miss.
    pub(crate) late: f64,
}

impl Slack {
    /// Nothing is known of the path.
    pub(crate) const UNKNOWN: Self =
        Self { interface: f64::INFINITY, least: 0.0, pause: 0.0, late: f64::INFINITY };
}

/// One that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The kernel does not space out yet what it sends.
    is_young: bool,
    is_small: bool,
    /// What was left to write when others began to wait behind it. What has come since is newer than what these wait with.
    left: u64,
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
    /// What the pause before is worth, bytes: so much leaves at once.
    rested: f64,
    /// By so much `level` has risen for what leaves beside the turns, since one was given.
    beside: f64,
    seen: Instant,
    /// Whom [`Self::next`] has named, until it asks.
    called: Option<(ProcId, Waiting)>,
    /// Whose turn was the last.
    last: Option<ProcId>,
    /// Who waits. Small messages that found no room go first.
    small: VecDeque<ProcId>,
    large: BTreeSet<ProcId>,
    /// What small ones have written while a large one waited, since one of those had a turn, bytes; and whether the present turn is a small one's.
    passed: usize,
    is_small_turn: bool,
    /// This one is next among the large ones, or who comes after it. Each process begins with another, so that they do not meet there.
    cursor: ProcId,
    first: ProcId,
    /// All of them, and who was the last to begin.
    waiting: HashMap<ProcId, Waiting>,
    newest: Option<ProcId>,
    /// What the one that writes now had waited with.
    old: u64,
    /// Whose last bytes the kernel has, and how much leaves until these have left.
    leaving: Vec<(ProcId, f64)>,
    /// The turn that was given last is the first one after a rest.
    is_first: bool,
    /// The last turn was cut short by a window: the kernel has no more to space out, so the next one waits until that has left.
    is_cut: bool,
    /// It was a part that needs no spacing, or all of a message that goes without: the same.
    is_part: bool,
    /// It was not to keep to the rate ([`Lead::Any`]): the same.
    is_let_go: bool,
    /// The present turn waits for what the kernel had not sent of the one before.
    has_waited: bool,
    /// How many have been put back since somebody wrote.
    shut: usize,
    slack: Slack,
    /// What is to be written now waits for those that wait before it, and for this.
    lead: Lead,
    /// How the kernel keeps up with those whose turn it is.
    upkeep: Upkeep,
}

impl Pacer {
    /// One that keeps to `rate` bytes per second, more than 0, and begins with `cursor`, or who comes after it.
    pub(crate) fn new(rate: f64, cursor: ProcId, now: Instant) -> Self {
        Self {
            rate,
            level: 0.0,
            missed: 0.0,
            rested: 0.0,
            beside: 0.0,
            seen: now,
            called: None,
            last: None,
            small: VecDeque::new(),
            large: BTreeSet::new(),
            passed: 0,
            is_small_turn: false,
            cursor,
            first: cursor,
            waiting: HashMap::new(),
            newest: None,
            old: 0,
            leaving: Vec::new(),
            shut: 0,
            slack: Slack::UNKNOWN,
            lead: Lead::default(),
            is_first: false,
            is_cut: false,
            is_part: false,
            is_let_go: false,
            has_waited: false,
            upkeep: Upkeep::default(),
        }
    }

    /// The rate is another from now on.
    pub(crate) fn set_rate(&mut self, rate: f64, now: Instant) {
        self.settle(now);
        if rate != self.rate {
            self.upkeep.begin_anew();
        }
        self.rate = rate;
    }

    /// What the socket of `peer` is to be told, which may write so many bytes now, bytes per second: it makes up for what has been missed, and
    /// sees to it that an interface which it fills has no gaps.
    pub(crate) fn socket_rate(&self, peer: ProcId, bytes: usize) -> u64 {
        // An interface that lets out no more than the rate, if it carries what was said, lets out nothing sooner for that: so it begins as it was.
        if self.is_held_up() || self.is_filling() && self.upkeep.was_held_up() {
            return faster(self.rate, HASTE);
        }
        let made_up = self.made_up_by(bytes) / (bytes as f64).max(1.0);
        if self.is_filling() {
            return faster(self.rate, made_up.max(FILL));
        }
        let is_by_turns = self.last != Some(peer) && (self.has_waiting() || self.level > 0.0);
        faster(self.rate * if is_by_turns { evened(bytes) } else { 1.0 }, made_up)
    }

    /// The same where its peer has no more than these: what the interface holds back by itself need not be spaced out before that.
    pub(crate) fn socket_rate_of_last(&self, peer: ProcId, bytes: usize) -> u64 {
        if self.is_filling() { faster(self.rate, HASTE) } else { self.socket_rate(peer, bytes) }
    }

    /// Whether so many bytes, which are all that there is, need not be spaced out: they are a turn at most, and the interface lets out only so
    /// much of them sooner than the rate does as a short message has.
    pub(crate) fn need_no_spacing(&self, bytes: u64) -> bool {
        let excess = bytes as f64 * self.sooner();
        excess <= SMALL as f64 && bytes <= SMALL.max(self.turn() as u64)
    }

    /// The same of what the kernel has: it was handed it when that was so, or was let go, and the rate may be somewhat lower now.
    pub(crate) fn needs_no_more_spacing(&self) -> bool {
        self.level <= self.borne()
    }

    /// Of how much the interface lets out only so much sooner that the kernel need not space it out any more, bytes.
    pub(crate) fn borne(&self) -> f64 {
        let borne = if self.is_let_go { LET_GO } else { BORNE };
        borne / self.sooner()
    }

    /// What may leave at once of a message for which the kernel need not be told of a rate: it is a few such parts, and each takes longer than
    /// wake-ups are late. Where all that the interface carries is granted that may be less soon.
    fn part_of(&self, ask: Ask) -> Option<usize> {
        if !self.goes_unspaced(ask) {
            return None;
        }
        let part = self.part().min(self.turn_of(ask.share));
        let is_worth = part as f64 >= 2.0 * self.usually_late();
        (is_worth && ask.backlog <= (PARTS * part) as u64).then_some(part)
    }

    /// The same of one that would wait for all others once for each part: all of it, if that is a turn, and no more than twice as much of it leaves
    /// sooner as of a part. None where a pause is worth nothing, as after losses.
    fn all_of(&self, ask: Ask) -> Option<usize> {
        let turn = self.turn_of(ask.share);
        let borne = BORNE.min(ALL_BORNE * self.slack.pause);
        let is_borne = ask.backlog as f64 * self.sooner() <= borne;
        (self.goes_unspaced(ask) && is_borne && ask.backlog <= turn as u64).then_some(turn)
    }

    /// Whether it is longer than what needs no spacing, but better not spaced out, so that the connection need not be told of a rate.
    fn goes_unspaced(&self, ask: Ask) -> bool {
        let is_known = self.slack.interface < f64::MAX;
        let is_free = ask.is_untold && !ask.is_young && self.lead != Lead::Any;
        is_known && is_free && !self.need_no_spacing(ask.backlog)
    }

    /// Of how much the interface lets out only so much sooner than the rate does as a short message has.
    fn part(&self) -> usize {
        let rate = if self.is_filling() { self.slack.least } else { self.rate };
        whole((SMALL as f64 / self.sooner_at(rate)) as usize)
    }

    /// Whether the present turn need not be spaced out: it is such a part, or all of a message, or does not keep to the rate.
    pub(crate) const fn is_unspaced(&self) -> bool {
        self.is_part || self.is_let_go
    }

    /// Which part of what it has the interface lets out sooner than the rate does.
    fn sooner(&self) -> f64 {
        self.sooner_at(self.rate)
    }

    fn sooner_at(&self, rate: f64) -> f64 {
        (1.0 - rate / self.slack.interface).max(0.0)
    }

    /// Whether the rate is all that the interface carries.
    fn is_filling(&self) -> bool {
        self.rate >= self.slack.interface
    }

    /// From now on this need not keep to the rate.
    pub(crate) fn set_slack(&mut self, slack: Slack) {
        self.slack = slack;
        self.rested = self.rested.min(slack.pause);
    }

    /// How much the kernel may have when something is written from now on.
    pub(crate) const fn set_lead(&mut self, lead: Lead) {
        self.lead = lead;
    }

    /// The whole rate, bytes per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whose turn it is, as far as the kernel still has to send.
    pub(crate) fn writer(&self) -> Option<ProcId> {
        self.last.filter(|_| self.level > 0.0)
    }

    /// Whose turn was last. Its window may have held back what should have left by now.
    pub(crate) const fn last(&self) -> Option<ProcId> {
        self.last
    }

    /// Whether what the window holds back of the turn that was given last would leave in another's: where others wait; and after a rest,
    /// when nobody knows yet whether others will.
    pub(crate) fn is_bounded_by_window(&self) -> bool {
        self.has_waiting() || self.is_first
    }

    /// Whether it is the first one after a rest.
    pub(crate) const fn is_after_rest(&self) -> bool {
        self.is_first
    }

    /// That turn is cut short by the window.
    pub(crate) fn cut(&mut self) {
        self.is_cut = self.is_first;
    }

    /// Whether the kernel cannot send as fast as it should.
    pub(crate) const fn is_held_up(&self) -> bool {
        self.upkeep.is_held_up()
    }

    /// Whether anybody waits for their turn.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Who does.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = ProcId> + use<'_> {
        self.waiting.keys().copied()
    }

    /// Whether nobody but `peer` does.
    pub(crate) fn is_alone(&self, peer: ProcId) -> bool {
        self.waiting().all(|other| other == peer)
    }

    /// Nothing more is to be written for `peer`: [`Self::gone`] names it when what has been written has left.
    pub(crate) fn leave(&mut self, peer: ProcId) {
        if !self.leaving.iter().any(|(known, _)| *known == peer) {
            let spare = SPARE.min(2.0 * self.usually_late());
            self.leaving.push((peer, self.level + spare));
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
        let part = if self.is_alone(peer) { self.part_of(ask) } else { self.all_of(ask) };
        let called = self.called.take_if(|(called, _)| *called == peer);
        let old = called.map_or(ask.left, |(_, waiting)| waiting.left);
        let turn = part.unwrap_or_else(|| self.turn_for(ask, old));
        let goes_on = part.is_some_and(|part| (part as u64) < ask.left.min(ask.backlog));
        if let Some((_, waiting)) = called {
            self.is_first = false;
            self.old = old;
            self.begin_unspaced(part.is_some());
            if !waiting.is_small {
                self.pass_on(peer, goes_on);
            }
            return Turn::Now(turn);
        }
        let is_last = self.newest == Some(peer) || self.waiting.len() == 1;
        if let Some(waiting) = self.waiting.get_mut(&peer) {
            if is_last {
                waiting.left = ask.left;
            }
            return Turn::Later;
        }
        self.settle(now);
        if !self.has_waiting() {
            // A moment that nobody wanted to use is worth no more than a pause.
            let missed = std::mem::take(&mut self.missed);
            self.rested = (self.rested + missed).min(self.slack.pause);
            if self.writer() != Some(peer) {
                // Processes that ended with the same one do not begin with the same one.
                self.cursor = self.first;
            }
        }
        let is_small = ask.backlog <= SMALL;
        let (is_first, lead) = if is_small {
            (self.small.is_empty() && !self.is_large_due(), self.small_lead())
        } else {
            (self.waiting.is_empty(), self.lead(peer, ask.is_young))
        };
        if is_first && (self.lead == Lead::Any || self.level <= lead) {
            self.is_small_turn = is_small;
            if !is_small {
                // As if it had waited: who could begin at once and who could not go on in the same order.
                self.pass_on(peer, goes_on);
            }
            self.old = old;
            self.is_first = !is_small && self.level <= LEAD;
            if self.is_first {
                self.upkeep.forget();
            }
            self.begin_turn(part.is_some());
            return Turn::Now(turn);
        }
        self.waiting.insert(peer, Waiting { is_young: ask.is_young, is_small, left: ask.left });
        self.newest = Some(peer);
        if is_small {
            self.small.push_back(peer);
        } else {
            self.large.insert(peer);
        }
        Turn::Later
    }

    /// Somebody is given a turn: nothing that was so of the one before is so of this one.
    fn begin_turn(&mut self, is_part: bool) {
        (self.is_cut, self.has_waited) = (false, false);
        self.begin_unspaced(is_part);
        self.beside = 0.0;
    }

    /// Who is after `peer` is next; where it goes on by parts, as nobody else waits, it has the next turn itself: whoever comes has newer.
    fn pass_on(&mut self, peer: ProcId, goes_on: bool) {
        self.cursor = if goes_on { peer } else { after(peer) };
    }

    fn begin_unspaced(&mut self, is_part: bool) {
        (self.is_part, self.is_let_go) = (is_part, self.lead == Lead::Any);
    }

    /// `peer` was to write, but its window is shut, and the kernel has something for when it opens: it waits on, others go first. Where
    /// those of all are shut nobody goes for a while: what the kernel was handed now would leave beside somebody's turn.
    pub(crate) fn put_back(&mut self, peer: ProcId, ask: Ask, now: Instant) {
        self.settle(now);
        let left = self.old.min(ask.left);
        self.waiting.insert(peer, Waiting { is_young: ask.is_young, is_small: false, left });
        self.large.insert(peer);
        self.shut += 1;
        if self.shut >= self.large.len().min(SHUT_MOST) {
            self.shut = 0;
            self.is_cut = true;
            // That takes its time at any rate, however large.
            let turn = (self.rate * TURN.as_secs_f64()).max(TURN_LEAST as f64);
            self.level = self.level.max(LEAD + SHUT * turn);
        }
    }

    /// `peer` has written so much of its turn.
    pub(crate) fn wrote(&mut self, peer: ProcId, bytes: usize, now: Instant) {
        self.said(bytes, now);
        if bytes > 0 {
            if self.lead == Lead::Any {
                // What has left at once is what the pause was worth.
                (self.rested, self.missed) = (0.0, 0.0);
            }
            self.shut = 0;
            self.last = Some(peer);
            if self.is_small_turn && !self.large.is_empty() {
                self.passed = self.passed.saturating_add(bytes);
            }
        }
    }

    /// Somebody has written words of the stream: they leave beside whoever's turn it is, which stays theirs.
    pub(crate) fn said(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        // What is made up for the kernel sends in no time.
        let made_up = self.made_up_by(bytes);
        self.take(made_up);
        self.level += bytes as f64 - made_up;
    }

    /// So many bytes have been sent too many; no more than a turn of them is made up for.
    pub(crate) fn owe(&mut self, bytes: f64) {
        self.burden(bytes.min(self.turn() as f64));
    }

    /// So many bytes have come, and will be acknowledged. Between two turns no more counts than one of them, or nobody would have the
    /// next while much comes.
    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        let before = self.level;
        let most = (self.turn() as f64 - self.beside).max(0.0) + self.rested + self.missed;
        self.burden((bytes as f64 * ACKNOWLEDGEMENT).min(most));
        self.beside += self.level - before;
    }

    /// So many bytes leave beside the turns.
    fn burden(&mut self, bytes: f64) {
        let made_up = bytes.min(self.rested + self.missed);
        self.take(made_up);
        self.level += bytes - made_up;
    }

    /// How much of the pause before and of what was missed a turn of so many bytes makes up for. A short turn can make up for little of what
    /// was missed: many of them would leave at once.
    fn made_up_by(&self, bytes: usize) -> f64 {
        if self.lead == Lead::Any {
            return 0.0;
        }
        let bytes = bytes as f64;
        let rested = self.rested.min(bytes);
        rested + self.missed.min(CREDIT * (bytes - rested))
    }

    /// So much has been made up for.
    fn take(&mut self, made_up: f64) {
        let rested = self.rested.min(made_up);
        self.rested -= rested;
        self.missed = (self.missed - (made_up - rested)).max(0.0);
    }

    /// So many bytes should have left by now. What others held up goes on for as long as these have something to send.
    fn miss(&mut self, bytes: f64) {
        let turn = self.turn() as f64;
        let (most, bound) = if self.is_held_up() {
            (turn, f64::INFINITY)
        } else {
            (CREDIT * turn, self.slack.late.max(self.usually_late()))
        };
        // What was missed while it was held up, or with another bound, may be more, and is kept.
        let before = self.missed.min(most);
        self.missed = before.max((before + bytes).min(most.min(bound)));
    }

    /// What a wake-up misses that is as late as they often are, bytes.
    fn usually_late(&self) -> f64 {
        self.rate * LATE.as_secs_f64()
    }

    /// Whose turn is over, and another one's begins now: what the kernel has done of it, [`Self::looked`] is to be told.
    pub(crate) fn over(&mut self, now: Instant) -> Option<ProcId> {
        self.settle(now);
        let is_due = self.lead_of_next().is_some_and(|lead| self.level <= lead);
        self.last.filter(|_| is_due && self.small.is_empty() && !self.has_waited)
    }

    /// So far the kernel is with `peer`, whose turn is over, if that can be said. Where it falls behind it is not handed more than it sends, or
    /// two would send at once when it can again; but the others wait for it once only, unless it is held up: its peer may have stopped
    /// reading. And what it has missed is made up for.
    pub(crate) fn looked(&mut self, peer: ProcId, progress: Option<Progress>, now: Instant) {
        self.settle(now);
        let turn = self.turn();
        let Some(progress) = progress else { return self.upkeep = Upkeep::default() };
        if let Some(late) = self.upkeep.look(peer, progress, (self.rate, turn), now) {
            self.level += late;
            self.miss(late);
            self.has_waited = !self.is_held_up();
        }
    }

    /// `peer` is about to write, and the kernel is so far with it: what it sends from now on is what [`Self::looked`] counts.
    pub(crate) fn begins(&mut self, peer: ProcId, progress: Progress, now: Instant) {
        self.upkeep.begin(peer, progress, now);
    }

    /// Whose turn it is now, if it is anyone's who waits.
    pub(crate) fn next(&mut self, now: Instant) -> Option<ProcId> {
        self.settle(now);
        self.called = None;
        if self.level > self.lead_of_next()? {
            return None;
        }
        self.is_small_turn = self.is_small_next();
        let peer = if self.is_small_turn { self.small.pop_front() } else { self.call_large() }?;
        self.called = self.waiting.remove(&peer).map(|waiting| (peer, waiting));
        // A part it may be when it asks.
        self.begin_turn(false);
        Some(peer)
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
        if self.is_small_next() {
            return Some(self.small_lead());
        }
        self.next_large().map(|peer| {
            let is_young = self.waiting.get(&peer).is_some_and(|waiting| waiting.is_young);
            self.lead(peer, is_young)
        })
    }

    fn small_lead(&self) -> f64 {
        let keeps_to_pause = match self.lead {
            Lead::Usual | Lead::Any => false,
            Lead::Claimed => self.is_small_turn,
            Lead::Least => true,
        };
        if !keeps_to_pause {
            return SMALL_LEAD;
        }
        self.slack.pause.max(self.usually_late()).clamp(LEAD, SMALL_LEAD)
    }

    /// Small ones go first, but not for ever.
    fn is_small_next(&self) -> bool {
        !self.small.is_empty() && !self.is_large_due()
    }

    fn is_large_due(&self) -> bool {
        !self.large.is_empty() && self.passed >= self.turn()
    }

    fn call_large(&mut self) -> Option<ProcId> {
        let peer = self.next_large()?;
        self.cursor = after(peer);
        self.passed = 0;
        self.large.take(&peer)
    }

    fn next_large(&self) -> Option<ProcId> {
        self.large.range(self.cursor..).next().or_else(|| self.large.first()).copied()
    }

    /// How much may be before a turn of `peer`. Its own it cannot meet, if the kernel spaces it out, or the interface does, which must not be
    /// left idle.
    fn lead(&self, peer: ProcId, is_young: bool) -> f64 {
        let goes_on = self.last == Some(peer) && !is_young && !self.is_cut;
        match (goes_on, self.is_unspaced()) {
            (true, false) => self.turn() as f64 / 2.0,
            (true, true) if self.is_filling() => (self.turn() as f64 / 4.0).min(self.part() as f64),
            (true, true) | (false, _) => LEAD,
        }
    }

    /// `old`: what it has waited with.
    fn turn_for(&self, ask: Ask, old: u64) -> usize {
        if ask.is_young {
            return TURN_YOUNG;
        }
        let turn = self.turn_of(ask.share);
        let all = whole(turn.saturating_add((turn as f64 * REST) as usize));
        let is_joined = ask.left > old && self.has_waiting();
        match usize::try_from(ask.frame) {
            _ if is_joined && old <= all as u64 => {
                let least = whole((turn as f64 * TURN_OLD) as usize).max(TURN_LEAST);
                whole(old as usize).saturating_add(FRAME_BESIDE).max(least).min(all)
            }
            _ if ask.backlog <= all as u64 => all,
            // Its last bytes would wait for all others.
            Ok(frame) if frame > turn && frame <= all => {
                whole(frame).saturating_add(FRAME_BESIDE).min(all)
            }
            _ => turn,
        }
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
        let idle = -level.min(0.0);
        if self.has_waiting() {
            self.miss(idle);
        } else {
            self.rested = (self.rested + idle).min(self.slack.pause);
        }
        self.seen = self.seen.max(now);
    }
}

/// How long a turn takes at so many bytes per second, more than 0.
pub(crate) fn turn_time(rate: f64) -> Duration {
    Duration::try_from_secs_f64(TURN_LEAST as f64 / rate).unwrap_or(Duration::MAX).max(TURN)
}

/// A socket that has paused is forgiven half of the time that its first packet takes (Linux, `tcp_update_skb_after_send`), so that all others
/// of a turn would leave that much sooner, and the one after it seem late. At this part of the rate they fill the turn, where a packet is a
/// segment; where the interface splits larger ones more would be needed.
fn evened(bytes: usize) -> f64 {
    let segments = bytes as f64 / SEGMENT as f64;
    if segments < 2.0 { 1.0 } else { (segments - 0.5) / segments }
}

/// A rate by which a part of what is sent takes no time.
fn faster(rate: f64, part: f64) -> u64 {
    ((rate / (1.0 - part)) as u64).max(1)
}

const fn after(peer: ProcId) -> ProcId {
    ProcId(peer.0.saturating_add(1))
}

/// Whole segments: the headers of what is left over would be counted by nobody.
const fn whole(bytes: usize) -> usize {
    bytes / SEGMENT * SEGMENT
}

mod upkeep;

#[cfg(test)]
pub(crate) mod tests;
