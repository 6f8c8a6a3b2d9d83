//! The other side of a broker: which transfers of a process towards one cluster it has been told of, and what
//! the process may send.
//!
//! Nobody waits for a grant: until one comes all transfers together have what they begin with, and no more than the least rate when no broker
//! answers. No I/O and no clock: the moment is an argument.

use crate::company::{Bounds, Company, Path};
use crate::demand::Demand;
use crate::room::HOLDS;
use crate::unclaimed::{self, Unclaimed};
use crate::{NodeId, Order, Process, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// No word takes longer, as far as debts are concerned.
const LAG_MOST: Duration = Duration::from_millis(4);

/// What may pile up before a link where all begin at once after a pause, or go on after all were late, bits: a quarter of a small switch's
/// buffer.
pub(crate) const PAUSE: f64 = 16384.0 * 8.0;

/// A broker that has not answered for so long is taken for none until it does: it hangs, or its host does.
const UNANSWERED: Duration = Duration::from_secs(1);

/// Who is young may have so many times of what transfers begin with, if that is granted: they seldom all begin at once, and who is late with
/// an exchange keeps the others waiting.
pub(crate) const AHEAD: f64 = 1.25;

/// Where everybody may always have such a part of what the interface carries, a claim is worth little to who is one of all.
pub(crate) const NEARLY: f64 = 0.75;

/// A rate between these parts of that is the same: nearly all of a link is granted. Once it was granted one is taken for one of all for so long, and
/// where less was, as where a receiver binds, for one of those to whom it may be so again.
pub(crate) const FAIR: f64 = 0.95;
const SAME: f64 = 1.02;
pub(crate) const KNOWN: Duration = Duration::from_secs(1);

/// In a collective in which all of several surely send they begin within so long of each other, as late as their machines may be: until then who has
/// begun takes no more than a new one, though others are not seen yet. All would have to give way at once, just when machines are late.
pub(crate) const ALL_BEGIN: Duration = Duration::from_millis(20);

/// What begins as if few did may be ahead of what as many as were there at the most may have by so many times of [`PAUSE`] together, were all of those to
/// begin so at once: all of a small switch's buffer.
const SOON: f64 = 4.0;

/// More segments that were sent again between two looks are no probes of a tail: something was lost. For so long after that a pause is
/// worth nothing.
pub(crate) const PROBES: u64 = 2;
pub(crate) const CAREFUL: Duration = Duration::from_secs(30);

/// What a broker is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// To whom.
    pub to: NodeId,
    /// Whether that has begun or ended.
    pub is_active: bool,
}

/// The transfers of one process to the nodes of another cluster.
#[derive(Clone, Debug)]
pub struct Claims {
    /// What every process may always have, and what that is where the link carries what was said: this.
    least: Rate,
    fair: Rate,
    said: Option<Rate>,
    /// What transfers begin with, which is more than that where few are active at the same time; and what counts instead while
    /// [`Self::is_over_soon`].
    base: Rate,
    short: Rate,
    /// What they go over, while there is a broker; who sends in collectives under way, and what one may begin with there.
    path: Option<Path>,
    /// What those links of it carry that are not its own, and how many clusters this process sends to in collectives.
    shared: Rate,
    entered: u32,
    company: Company,
    among: Option<Bounds>,
    /// A collective has begun in which others surely send, too, and nothing was claimed in it yet; and until when they begin.
    all_begin: bool,
    all_begin_until: Option<Instant>,
    claims: BTreeMap<NodeId, Claim>,
    /// Of all that is known to have to go since something is claimed, bits; and what has gone.
    claimed: f64,
    gone: f64,
    /// What the program wants instead.
    held: Option<Rate>,
    /// What the broker has granted to all of them together, since there were some; and when it has last said so.
    granted: Option<Grant>,
    heard: Option<Instant>,
    /// Since when they wait for their first grant; and whether the broker has left some without one, and has said nothing since.
    asked: Option<Instant>,
    is_unanswered: bool,
    /// How long a grant takes.
    lag: Duration,
    unclaimed: Unclaimed,
    /// What is left to each of those that send at the same time, until they are counted again. It counts where the path is open: whether what waited last was to
    /// go by such a one.
    room: Option<(Rate, Instant)>,
    is_open: bool,
    /// What everybody may have was granted not long ago; less was.
    one_of_all_until: Option<Instant>,
    less_until: Option<Instant>,
    /// Bits that were sent too fast.
    debt: f64,
    /// Something was lost not long ago.
    careful_until: Option<Instant>,
    demand: Demand,
    told: Vec<Claimed>,
}

/// What the broker lets a process send to a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// All that the process has claimed there together.
    pub rate: Rate,
    /// What the processes of its node are granted together, itself one.
    pub node: Rate,
    /// Whether that may be more than what they begin with, and a quarter.
    pub is_settled: bool,
    /// Nobody else has more than everybody's share there for long, or less for a receiver's sake: what is over soon need not be claimed until
    /// somebody has, or for a while.
    pub is_quiet: bool,
}

/// What a process's transfers to a cluster begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// As many as send at the same time at the most leave that to each.
    pub rate: Rate,
    /// Those that are over soon: as many as do on the average, when one begins.
    pub short: Rate,
    /// What the link there is believed to carry.
    pub link: Rate,
}

/// How fast a process is to send to a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As transfers may, where a node alone can fill the link; or as the program or the job wants it.
    Transfers(Rate),
    /// As what is claimed may, beside others.
    Claimed(Rate),
    /// What there is little of, claimed or not: as the interface lets it.
    Interface(Rate),
    /// What is not claimed when enough has gone so: as what is over soon begins, nothing ahead of that.
    Held(Rate),
}

impl Pace {
    /// The rate.
    #[must_use]
    pub const fn rate(self) -> Rate {
        match self {
            Self::Transfers(rate)
            | Self::Claimed(rate)
            | Self::Interface(rate)
            | Self::Held(rate) => rate,
        }
    }
}

#[derive(Clone, Debug)]
struct Claim {
    /// The processes there that something waits for.
    users: BTreeSet<u32>,
    /// Its part, by what an equal one would be.
    share: f64,
}

impl Claims {
    /// None yet; `least` is for all together where no broker says more or less.
    #[must_use]
    pub fn new(least: Rate) -> Self {
        Self {
            least,
            fair: least,
            said: None,
            base: least,
            short: least,
            path: None,
            shared: Rate::UNBOUNDED,
            entered: 1,
            company: Company::default(),
            among: None,
            all_begin: false,
            all_begin_until: None,
            claims: BTreeMap::new(),
            claimed: 0.0,
            gone: 0.0,
            held: None,
            granted: None,
            heard: None,
            asked: None,
            is_unanswered: false,
            lag: Duration::ZERO,
            unclaimed: Unclaimed::default(),
            room: None,
            is_open: false,
            one_of_all_until: None,
            less_until: None,
            debt: 0.0,
            careful_until: None,
            demand: Demand::default(),
            told: Vec::new(),
        }
    }

    /// Whether anything waits.
    #[must_use]
    pub fn has_some(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Whether it may have no more of what is claimed than if it began now: nothing settled is granted, or others are about to begin.
    #[must_use]
    pub fn is_young(&self) -> bool {
        self.all_begin_until.is_some() || self.granted.is_none_or(|grant| !grant.is_settled)
    }

    /// How many processes something waits for.
    #[must_use]
    pub fn users(&self) -> usize {
        self.claims.values().map(|claim| claim.users.len()).sum()
    }

    /// What counts where there is no broker.
    #[must_use]
    pub const fn least(&self) -> Rate {
        self.least
    }

    /// The program's own rate counts from now on, or no longer.
    pub fn hold(&mut self, rate: Option<Rate>) {
        self.held = rate;
    }

    /// There is a broker, and transfers go over this; those of its links that lead to other clusters, too, carry `shared`.
    pub fn go_over(&mut self, path: Path, shared: Rate) {
        self.said = Some(path.link);
        (self.path, self.shared) = (Some(path), shared);
    }

    /// Does what the broker says of the cluster; whether that is a rate that counts now, as [`Self::grant`] has it.
    pub fn obey(&mut self, order: Order, now: Instant) -> bool {
        match order {
            Order::Grant { grant, .. } => return self.grant(grant, now),
            Order::Share { to, share } => self.set_share(to, share),
            Order::Start { start, .. } => self.begin_with(start),
            Order::Room { rate, .. } => self.make_room(rate, now),
        }
        false
    }

    /// Transfers begin with this from now on. Where the link carries less than was said everybody's share is less likewise.
    pub fn begin_with(&mut self, start: Start) {
        let Start { rate, short, link } = start;
        (self.base, self.short) = (rate, short);
        self.is_unanswered = false;
        let said = self.said.unwrap_or(link).bits_per_second();
        // Endless ones are alike.
        let left = (link.bits_per_second() / said).min(1.0);
        self.least = self.fair.scaled(left).min(rate);
        if let Some(path) = &mut self.path {
            path.link = link;
        }
        self.share_out();
    }

    /// For a while so much is left to each of those that send at the same time.
    pub fn make_room(&mut self, rate: Rate, now: Instant) {
        self.room = Some((rate, now + HOLDS));
    }

    /// A collective begins in which these of the cluster send, this process among them: until it ends transfers begin with
    /// what that leaves to one of them, and of those of other such collectives. Where these only may (not `is_sure`), with what was granted
    /// in the last such collective if that is more, as far as transfers begin with it otherwise.
    pub fn enter(&mut self, senders: &[(NodeId, Process)], is_sure: bool) {
        self.company.enter(senders, is_sure);
        self.all_begin = self.company.all_send();
        self.share_out();
    }

    /// It has ended.
    pub fn leave(&mut self, senders: &[(NodeId, Process)], is_sure: bool) {
        self.company.leave(senders, is_sure);
        if !self.company.all_send() {
            (self.all_begin, self.all_begin_until) = (false, None);
        }
        self.share_out();
    }

    /// Whether a collective is under way that sends to this cluster.
    #[must_use]
    pub fn is_entered(&self) -> bool {
        !self.company.is_empty()
    }

    /// To so many clusters collectives under way send, which share links that are not one's own.
    pub fn share_links(&mut self, clusters: u32) {
        self.entered = clusters.max(1);
        self.share_out();
    }

    fn share_out(&mut self) {
        let part = self.shared.bits_per_second() / f64::from(self.entered);
        let part = Rate::from_bits_per_second(part).unwrap_or(self.shared);
        let path = self.path.map(|path| Path { link: path.link.min(part), ..path });
        self.among = path.and_then(|path| self.company.bounds(&path));
    }

    /// So many bits, which are much, wait to be sent to process `user` on node `to`.
    pub fn begin(&mut self, to: NodeId, user: u32, bits: f64, now: Instant) {
        if self.claims.is_empty() {
            self.asked = Some(now);
        }
        self.claimed = self.claimed.max(self.gone) + bits;
        if std::mem::take(&mut self.all_begin) {
            self.all_begin_until = Some(now + ALL_BEGIN);
        }
        let (told, demand) = (&mut self.told, &mut self.demand);
        let claim = self.claims.entry(to).or_insert_with(|| {
            told.push(Claimed { to, is_active: true });
            demand.widen(now);
            Claim { users: BTreeSet::new(), share: 1.0 }
        });
        claim.users.insert(user);
    }

    /// So many bits are all that waits for somebody, for whom nothing more is to be claimed. Whether what is claimed goes at another rate by that.
    pub fn grow(&mut self, bits: f64) -> bool {
        let before = self.rate();
        if self.has_some() {
            self.claimed = self.claimed.max(self.gone + bits);
        }
        self.rate() != before
    }

    /// So many bits are to go, which are all that waits. Where nothing is claimed, or all that is hurries, they go as fast as the interface lets
    /// them, if all that goes so is ahead of the share of each by no more than may pile up after a pause: [`Self::pace`] says so. On a path that
    /// does not take them as fast as they are handed over, since a window holds them up (not `is_open`), less may.
    pub fn hurry(&mut self, bits: f64, is_open: bool, now: Instant) {
        // Nobody may look meanwhile.
        self.careful_until.take_if(|until| *until <= now);
        self.less_until.take_if(|until| *until <= now);
        self.room.take_if(|(_, until)| *until <= now);
        self.all_begin_until.take_if(|until| *until <= now);
        self.is_open = is_open;
        if self.may_hurry() {
            self.unclaimed.hurry(bits, self.bounds(is_open), now);
        }
    }

    /// So many bits have gone.
    pub fn went(&mut self, bits: f64, now: Instant) {
        if self.has_some() {
            self.gone += bits;
        }
        // What goes at the rate of its claim is ahead of nothing.
        if self.may_hurry() {
            self.unclaimed.went(bits, self.bounds(self.is_open), now);
        }
    }

    /// Whether [`Self::hurry`] may change something: it is one of many, and nothing keeps to the rate of a claim.
    #[must_use]
    pub fn may_hurry(&self) -> bool {
        self.is_one_of_many() && (!self.has_some() || self.unclaimed.hurries())
    }

    /// It takes several nodes to fill the link, and nobody's own rate counts. Where a node alone can fill it there is no more to be had.
    fn is_one_of_many(&self) -> bool {
        self.path.is_some_and(|path| path.interface < path.link) && self.held.is_none()
    }

    fn bounds(&self, is_open: bool) -> unclaimed::Bounds {
        // However few are granted something at the moment: those who go unclaimed are not known, but for how many they were in a roll-call.
        let room = self.room.filter(|_| is_open && self.is_free()).map(|(rate, _)| rate);
        let share = room.map_or(self.least, |rate| rate.max(self.least));
        let allowance = self.pause_at(self.rate().min(ahead(share)));
        let (share, least) = (share.min(self.rate()), self.least.min(self.rate()));
        let is_long_too = is_open && self.is_free();
        let has_room = room.is_some();
        unclaimed::Bounds {
            least,
            share,
            fastest: self.fastest(),
            allowance,
            is_long_too,
            has_room,
        }
    }

    /// Nothing was lost lately; nor was less granted, where a receiver binds; nor is it a collective, in which several may send to one.
    fn is_free(&self) -> bool {
        self.less_until.is_none() && !self.is_entered() && self.careful_until.is_none()
    }

    /// What the interface lets leave, at least what transfers begin with.
    fn fastest(&self) -> Rate {
        self.interface().max(self.rate())
    }

    /// Whether so many bits go unclaimed, though they are worth a claim: they hurry ([`Self::hurry`]), or a claim would gain little; they leave soon
    /// even at the rate that is everybody's; and the broker has said not long ago that nobody has more than that for long, who would have to
    /// give way, or for how many there is room.
    #[must_use]
    pub fn is_brief(&self, bits: f64, is_open: bool, now: Instant) -> bool {
        let is_free = self.may_hurry() && !self.has_some();
        is_free && self.unclaimed.is_brief(bits, self.bounds(is_open), self.gains_little(now), now)
    }

    /// Whether who begins now may have little more than what everybody may, by the interface, and was granted no more not long ago: all send at the
    /// same time.
    fn gains_little(&self, now: Instant) -> bool {
        let least = self.least.bits_per_second();
        let is_one_of_all = self.one_of_all_until.is_some_and(|until| now < until)
            && self.rate().bits_per_second() <= SAME * least;
        is_one_of_all && least >= NEARLY * self.fastest().bits_per_second()
    }

    /// Nothing waits any more.
    pub fn end(&mut self, to: NodeId, user: u32) {
        let Some(claim) = self.claims.get_mut(&to) else { return };
        if claim.users.remove(&user) && claim.users.is_empty() {
            self.claims.remove(&to);
            self.told.push(Claimed { to, is_active: false });
        }
        if self.claims.is_empty() {
            (self.granted, self.asked) = (None, None);
            (self.claimed, self.gone) = (0.0, 0.0);
            self.demand.rest();
        }
    }

    /// The broker has granted this to all together; whether that is a rate that counts now. Where no claim stands, or all and that not settled, it
    /// says no more than whether it is quiet.
    pub fn grant(&mut self, grant: Grant, now: Instant) -> bool {
        let before = self.rate().bits_per_second();
        self.is_unanswered = false;
        self.unclaimed.hear(grant.is_quiet, now);
        let is_of_a_rate = grant.is_settled || grant.rate < Rate::UNBOUNDED;
        if self.claims.is_empty() || !is_of_a_rate {
            return false;
        }
        if let Some(asked) = self.asked.take() {
            let lag = now.saturating_duration_since(asked).min(LAG_MOST);
            self.lag = if self.lag.is_zero() { lag } else { (3 * self.lag + lag) / 4 };
        }
        let Grant { rate, is_settled, .. } = grant;
        (self.granted, self.heard) = (Some(grant), Some(now));
        let part = rate.bits_per_second() / self.least.bits_per_second();
        if part < FAIR {
            (self.one_of_all_until, self.less_until) = (None, Some(now + KNOWN));
        } else if part <= SAME {
            self.one_of_all_until = Some(now + KNOWN);
        }
        self.company.granted(rate, is_settled);
        if is_settled {
            self.demand.allow(rate.bits_per_second(), now);
        }
        // Those for whom there is less now have sent for as long as a word takes.
        let less = before - self.rate().bits_per_second();
        if less > 0.0 && less.is_finite() {
            self.debt += less * self.lag.as_secs_f64();
        }
        true
    }

    /// So many bits have arrived at the cluster since this was last said. Whether the broker is to be told by
    /// [`demand`](Self::demand) that less can be used, or more again, or the rate is another since the broker does not answer.
    pub fn used(&mut self, bits: f64, now: Instant) -> bool {
        let is_new = !self.is_unanswered && self.asked.is_some_and(|asked| is_long_ago(asked, now));
        if is_new {
            self.is_unanswered = true;
            self.demand.pause();
        }
        let asks = self.ask_again(now);
        let is_over = self.all_begin_until.take_if(|until| *until <= now).is_some();
        self.demand.used(bits, self.least, now) || is_new || asks || is_over
    }

    /// Who has more than everybody's share asks now and then whether that is so still, by a transfer that is over at once: one that hangs takes
    /// nothing back.
    fn ask_again(&mut self, now: Instant) -> bool {
        let most = SAME * self.least.bits_per_second();
        let has_more = self.granted.is_some_and(|grant| grant.rate.bits_per_second() > most);
        let is_due =
            self.asked.is_none() && self.heard.is_some_and(|heard| is_long_ago(heard, now));
        let first = self.claims.keys().next().copied();
        let Some(to) = first.filter(|_| has_more && is_due) else { return false };
        self.told.extend([true, false].map(|is_active| Claimed { to, is_active }));
        self.asked = Some(now);
        true
    }

    /// So many bits of what is granted are taken up by what goes beside transfers, such as acknowledgements of what comes from there.
    pub fn taken(&mut self, bits: f64) {
        self.demand.taken(bits);
    }

    /// What the broker is to be told that this process can use of what it is granted, since this was last asked.
    pub fn demand(&mut self) -> Option<Rate> {
        self.demand.news()
    }

    /// How many bits were sent while a lower rate was on its way, since this was last asked: to be made up for, or the link's
    /// buffer stays as full as that has made it.
    pub fn debt(&mut self) -> f64 {
        std::mem::take(&mut self.debt)
    }

    /// The broker has said which part of that is one transfer's. Nothing where no claim stands.
    pub fn set_share(&mut self, to: NodeId, share: f64) {
        if let Some(claim) = self.claims.get_mut(&to) {
            claim.share = share;
        }
    }

    /// There is no broker any more: the least rate counts, and it is told nothing.
    pub fn forsake(&mut self) {
        (self.base, self.short) = (self.least, self.least);
        (self.path, self.among) = (None, None);
        self.demand.rest();
        self.granted = None;
        self.unclaimed.forsake();
        self.room = None;
        (self.one_of_all_until, self.less_until) = (None, None);
        self.claims.values_mut().for_each(|claim| claim.share = 1.0);
        self.told.clear();
    }

    /// What the broker is to be told since this was last asked, in order.
    pub fn told(&mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.told)
    }

    /// How fast all of the process's connections to the cluster may send together.
    #[must_use]
    pub fn rate(&self) -> Rate {
        let base = if self.is_over_soon() { self.short } else { self.base };
        let base = if self.is_unanswered { base.min(self.least) } else { base };
        let base = self.among.map_or(base, |bounds| bounds.around(base));
        match (self.held, self.granted) {
            (Some(held), _) => held,
            (None, None) => base,
            (None, Some(Grant { rate, .. })) if self.is_unanswered => rate.min(base),
            (None, Some(Grant { rate, .. })) if self.is_young() => rate.min(ahead(base)),
            (None, Some(Grant { rate, .. })) => rate,
        }
    }

    /// Whether what is claimed may begin as if few did: it does no harm though as many as ever do so at once and no grant comes in time. Not for a while
    /// after losses.
    fn is_over_soon(&self) -> bool {
        let excess = 1.0 - self.base.bits_per_second() / self.short.bits_per_second();
        let most = SOON * self.pause_at(self.least);
        most > 0.0 && self.claimed * excess.max(0.0) <= most
    }

    /// What goes now keeps to this.
    #[must_use]
    pub fn pace(&self) -> Pace {
        match (self.is_one_of_many(), self.has_some()) {
            (false, _) => Pace::Transfers(self.rate()),
            (true, _) if self.unclaimed.hurries() => Pace::Interface(self.fastest()),
            (true, true) => Pace::Claimed(self.rate()),
            (true, false) => Pace::Held(self.rate()),
        }
    }

    /// How fast the node may send there, by what this process knows: `mates` of them, itself one, are on it. Where nothing is granted and nothing
    /// held, what it always may, or what this process may begin with where that is more.
    #[must_use]
    pub fn node_rate(&self, mates: usize) -> Rate {
        let all = |rate: Rate| rate.scaled(mates as f64);
        let rate = self.rate();
        match (self.held, self.granted) {
            (Some(held), _) => all(held),
            (None, Some(Grant { node, .. })) if !self.is_unanswered => node.max(rate),
            (None, _) => all(self.least).max(rate),
        }
    }

    /// The part of one destination process in that, by what an equal one would be: 1 where all are granted the same.
    #[must_use]
    pub fn share(&self, to: NodeId) -> f64 {
        let Some(claim) = self.claims.get(&to) else { return 1.0 };
        let (mut shares, mut users) = (0.0, 0);
        for claim in self.claims.values() {
            shares += claim.share;
            users += claim.users.len();
        }
        claim.share / claim.users.len() as f64 * users as f64 / shares
    }

    /// How many bits may leave at once after a pause, beside the rate: the process's part of what may pile up before the link. None where
    /// there is no broker or the program's own rate counts; where a node alone can fill the link, since nothing of that drains then; and
    /// for a while after losses.
    #[must_use]
    pub fn allowance(&self) -> f64 {
        self.pause_at(self.rate())
    }

    /// Of one who has this rate.
    fn pause_at(&self, rate: Rate) -> f64 {
        self.queue_at(rate).filter(|_| self.careful_until.is_none()).unwrap_or(0.0)
    }

    /// How many bits that late wake-ups have kept from leaving may leave faster than the rate: all who send can be late at once, and then make
    /// up for it at once. Together as much as after a pause, after losses, too. Unbounded where the link is not known, or a node alone can
    /// fill it, or where there is no broker or the program's own rate counts.
    #[must_use]
    pub fn late_allowance(&self) -> f64 {
        self.queue_at(self.rate()).unwrap_or(f64::INFINITY)
    }

    /// The part of what may pile up before the link that is that of one who has this rate; where it is known, and takes several nodes to fill.
    fn queue_at(&self, rate: Rate) -> Option<f64> {
        let is_one = |path: &Path| self.is_one_of_many() && path.link < Rate::UNBOUNDED;
        let path = self.path.filter(is_one)?;
        let part = rate.bits_per_second() / path.link.bits_per_second();
        Some(PAUSE * part.min(1.0))
    }

    /// So many segments to the cluster were sent again since this was last said.
    pub fn resent(&mut self, segments: u64, now: Instant) {
        if segments > PROBES {
            self.careful_until = Some(now + CAREFUL);
        } else {
            self.careful_until.take_if(|until| *until <= now);
        }
    }

    /// What the node's interface carries, which holds back more by itself: unbounded where there is no broker, or the program's own rate counts.
    #[must_use]
    pub fn interface(&self) -> Rate {
        let path = self.path.filter(|_| self.held.is_none());
        path.map_or(Rate::UNBOUNDED, |path| path.interface)
    }
}

fn is_long_ago(then: Instant, now: Instant) -> bool {
    now.saturating_duration_since(then) >= UNANSWERED
}

/// So much more.
fn ahead(rate: Rate) -> Rate {
    rate.scaled(AHEAD)
}

#[cfg(test)]
pub(crate) mod tests;
