//! The pacers of a process, one towards each other cluster, and what their turns make happen.
//!
//! Their rates are those of the claims ([`Claims`]): as they began, or as [`crate::regulation`] brings grants.

use std::io;
use std::time::{Duration, Instant};

use gridmpi_rate::{self as rate, ACKNOWLEDGEMENT, Claims, PAYLOAD, Rate, SEGMENT};
use gridmpi_wire::ProcId;

use crate::Pacing;
use crate::link::{Left, Link, Most, Pace, Written};
use crate::opening::Narrow;
use crate::options::{Outlook, Work, outlook, progress};
use crate::pace::{Ask, Lead, Pacer, Progress, SMALL, Slack, Turn, turn_time};
use crate::poller::{Interest, Slots, Token};
use crate::state::{Socket, State};
use crate::timers::Due;

/// The pacers, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    /// The cluster of each process.
    clusters: Vec<u16>,
    /// `None` where what goes there is not paced.
    paced: Vec<Option<Paced>>,
    /// With whom the turns of each begin.
    cursors: Vec<ProcId>,
    ours: u16,
    /// How many processes our cluster has.
    count: u32,
}

/// What goes to one cluster.
#[derive(Debug)]
pub(crate) struct Paced {
    pub(crate) pacer: Pacer,
    pub(crate) claims: Claims,
    /// When it will be asked who is next.
    armed: Option<Instant>,
    /// So many looks at its connections are told of yet.
    pub(crate) tells: u8,
    /// So much more went by claims than without since the last one, bytes.
    pub(crate) by_claims: i64,
    /// Once a connection there was told of a rate, since others will be, too.
    pub(crate) narrow: Option<Narrow>,
}

/// What the kernel has of this peer's is to leave at another rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repaced {
    peer: ProcId,
    /// Bytes per second.
    rate: u64,
    is_faster: bool,
    /// A connection that was told of no rate yet is told of this one if the kernel has more than so many bytes of it.
    untold: Option<u64>,
}

impl Paced {
    pub(crate) fn new(rate: Rate, cursor: ProcId, now: Instant) -> Self {
        let claims = Claims::new(rate);
        Self {
            pacer: Pacer::new(payload(claims.rate()), cursor, now),
            claims,
            armed: None,
            tells: 0,
            by_claims: 0,
            narrow: None,
        }
    }

    /// `peer` has written so much of its turn.
    pub(crate) fn wrote(&mut self, peer: ProcId, bytes: usize, now: Instant) {
        self.pacer.wrote(peer, bytes, now);
        let counted = i64::try_from(bytes).unwrap_or(i64::MAX);
        let counted = if self.claims.has_some() { counted } else { -counted };
        self.by_claims = self.by_claims.saturating_add(counted);
        self.claims.went(wire_bits(bytes as u64), now);
    }

    /// Whether something goes there, or waits for its turn.
    pub(crate) fn is_sending(&self) -> bool {
        self.claims.has_some() || self.pacer.has_waiting()
    }

    /// What the process may always send there, payload, bytes per second.
    pub(crate) fn least(&self) -> f64 {
        payload(self.claims.least().min(self.claims.rate()))
    }

    /// The claims have changed, perhaps. Whose turn it is, and how fast it may be now, if that is another rate.
    pub(crate) fn follow_claims(&mut self, now: Instant) -> Option<Repaced> {
        let pace = self.claims.pace();
        let (before, rate) = (self.pacer.rate(), payload(pace.rate()));
        self.pacer.set_rate(rate, now);
        self.pacer.set_lead(match pace {
            rate::Pace::Transfers(_) => Lead::Usual,
            rate::Pace::Claimed(_) => Lead::Claimed,
            rate::Pace::Interface(_) => Lead::Any,
            rate::Pace::Held(_) => Lead::Least,
        });
        self.pacer.set_slack(Slack {
            interface: payload(self.claims.interface()),
            least: payload(self.claims.least()),
            pause: payload_bits(self.claims.allowance()),
            late: payload_bits(self.claims.late_allowance()),
        });
        self.pacer.owe(payload_bits(self.claims.debt()));
        // What is left in the kernel when nothing more is to be sent leaves as it was to.
        let is_other = rate != before && self.claims.has_some();
        let is_faster = rate > before;
        let writer = if is_faster { self.pacer.writer() } else { self.pacer.last() };
        let peer = writer.filter(|_| is_other)?;
        // The interface spaces out so much well enough; and what nothing spaces out needs not be told that it may be faster.
        let is_told = !is_faster && !self.pacer.needs_no_more_spacing();
        let untold = is_told.then(|| self.pacer.borne() as u64);
        Some(Repaced { peer, rate: (rate as u64).max(1), is_faster, untold })
    }
}

/// What TCP carries of it, bytes per second.
fn payload(rate: Rate) -> f64 {
    payload_bits(rate.bits_per_second()).min(f64::MAX)
}

/// What TCP carries of so many bits, bytes.
fn payload_bits(bits: f64) -> f64 {
    bits / 8.0 * PAYLOAD
}

/// What so many bytes that TCP carries take of a link, bits.
pub(crate) fn wire_bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / PAYLOAD
}

/// Turns follow each other for so long before it is heard what others have said: who was kept waiting for a processor may be late with many of them,
/// and others with what they were granted when they had not heard of each other.
const TURNS: Duration = Duration::from_millis(1);

/// A moment that differs by less is the same.
const SAME: Duration = Duration::from_micros(1);

impl Paces {
    pub(crate) fn new(pacing: &Pacing, me: ProcId) -> Self {
        let now = Instant::now();
        let first = |cluster| pacing.clusters.iter().position(|&other| other == cluster);
        let ours = pacing.clusters.get(me.0 as usize).copied().unwrap_or_default();
        let place = (me.0 as usize).saturating_sub(first(ours).unwrap_or_default());
        // Processes at the same place of their clusters would begin with each other.
        let cursor = |cluster| {
            let size = pacing.clusters.iter().filter(|&&other| other == cluster).count().max(1);
            ProcId((first(cluster).unwrap_or_default() + place % size) as u32)
        };
        let cursors: Vec<_> = (0u16..).take(pacing.rates.len()).map(cursor).collect();
        // What is not bounded need not be paced.
        let bounded = |rate: &Option<Rate>| rate.filter(|rate| *rate < Rate::UNBOUNDED);
        let paced = |(rate, &cursor)| Some(Paced::new(bounded(rate)?, cursor, now));
        Self {
            clusters: pacing.clusters.clone(),
            paced: pacing.rates.iter().zip(&cursors).map(paced).collect(),
            cursors,
            ours,
            count: pacing.clusters.iter().filter(|&&cluster| cluster == ours).count() as u32,
        }
    }

    /// What goes to each other cluster is to keep to the program's own rate, or no longer; it does when the claims are followed.
    fn hold(&mut self, rate: Option<Rate>) {
        let now = Instant::now();
        for (cluster, (paced, &cursor)) in (0..).zip(self.paced.iter_mut().zip(&self.cursors)) {
            if paced.is_none() && rate.is_some() && cluster != self.ours {
                *paced = Some(Paced::new(Rate::UNBOUNDED, cursor, now));
            }
            if let Some(paced) = paced {
                paced.claims.hold(rate);
            }
        }
    }

    /// The clusters of whose messages nothing is claimed: whose turn is last there need not be all that the kernel has.
    fn unclaimed(&self) -> Vec<u16> {
        let is_one = |paced: &Option<Paced>| paced.as_ref().is_some_and(|it| !it.claims.has_some());
        (0..).zip(&self.paced).filter(|(_, paced)| is_one(paced)).map(|(it, _)| it).collect()
    }

    /// The clusters that nothing holds any more, and for which the job has chosen no rate: they are as before the program put one.
    fn take_unbounded(&mut self) -> Vec<u16> {
        // Claims stand only where there is such a rate: none is lost.
        let is_free = |claims: &Claims| claims.least().min(claims.rate()) >= Rate::UNBOUNDED;
        let taken = |(cluster, paced): (u16, &mut Option<Paced>)| {
            paced.take_if(|paced| is_free(&paced.claims)).map(|_| cluster)
        };
        (0..).zip(&mut self.paced).filter_map(taken).collect()
    }

    /// Whether it is a process of another cluster.
    pub(crate) fn is_far(&self, peer: ProcId) -> bool {
        self.clusters.get(peer.0 as usize).is_none_or(|&cluster| cluster != self.ours)
    }

    /// The peer's cluster.
    pub(crate) fn place_of(&self, peer: ProcId) -> Option<u16> {
        self.clusters.get(peer.0 as usize).copied()
    }

    /// The peer's cluster, if what goes there is paced.
    pub(crate) fn cluster_of(&self, peer: ProcId) -> Option<u16> {
        self.towards(peer).and(self.place_of(peer))
    }

    /// How long an acknowledgement of `peer`'s may wait for its turn: it goes with what `peer` sends to us, and all of our cluster may have
    /// turns of its before that. We know only how long ours are.
    pub(crate) fn cycle(&self, peer: ProcId) -> Duration {
        self.towards(peer)
            .map_or(Duration::ZERO, |paced| turn_time(paced.least()).saturating_mul(self.count))
    }

    /// How fast what goes to the peer's cluster may go, payload, bytes per second; `None` where it is not paced.
    pub(crate) fn rate_to(&self, peer: ProcId) -> Option<u64> {
        self.towards(peer).map(|paced| paced.pacer.rate() as u64)
    }

    /// How fast the interface lets go what goes there, or the same where that is more.
    fn fastest_to(&self, peer: ProcId) -> u64 {
        self.towards(peer).map_or(u64::MAX, |paced| {
            payload(paced.claims.interface()).max(paced.pacer.rate()) as u64
        })
    }

    fn towards(&self, peer: ProcId) -> Option<&Paced> {
        self.paced.get(usize::from(self.place_of(peer)?))?.as_ref()
    }

    /// What this process may send to each cluster, bits per second.
    pub(crate) fn rates(&self) -> Vec<Option<f64>> {
        self.each(|claims| claims.rate())
    }

    /// And what its node, with so many processes, may.
    pub(crate) fn node_rates(&self, mates: usize) -> Vec<Option<f64>> {
        self.each(|claims| claims.node_rate(mates))
    }

    fn each(&self, rate: impl Fn(&Claims) -> Rate) -> Vec<Option<f64>> {
        let of = |paced: &Option<Paced>| Some(rate(&paced.as_ref()?.claims).bits_per_second());
        self.paced.iter().map(of).collect()
    }

    /// The claims have changed, perhaps: whose rates are others now.
    pub(crate) fn follow_claims(&mut self, now: Instant) -> Vec<Repaced> {
        self.iter_mut().filter_map(|paced| paced.follow_claims(now)).collect()
    }

    /// All that are paced.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Paced> {
        self.paced.iter_mut().flatten()
    }

    /// How many clusters there are.
    pub(crate) fn clusters(&self) -> usize {
        self.paced.len()
    }

    pub(crate) fn get(&mut self, cluster: u16) -> Option<&mut Paced> {
        self.paced.get_mut(usize::from(cluster))?.as_mut()
    }

    fn next(&mut self, cluster: u16, now: Instant) -> Option<ProcId> {
        self.get(cluster)?.pacer.next(now)
    }

    /// So many bytes have come from `peer`.
    pub(crate) fn received(&mut self, peer: ProcId, bytes: usize) {
        if let Some(cluster) = self.cluster_of(peer)
            && let Some(paced) = self.get(cluster)
        {
            paced.pacer.received(bytes, Instant::now());
            paced.claims.taken(wire_bits(bytes as u64) * ACKNOWLEDGEMENT);
        }
    }
}

impl State {
    /// What goes to each other cluster keeps to the program's own rate from now on, or no longer.
    pub(crate) fn hold(&mut self, rate: Option<Rate>) {
        self.paces.hold(rate);
        for cluster in self.paces.take_unbounded() {
            self.let_go(cluster);
        }
        let now = Instant::now();
        self.follow_claims(now);
        self.paces.unclaimed().into_iter().for_each(|cluster| self.repace_all(cluster));
        self.open_again(now);
    }

    /// What goes to this cluster is paced no longer: nobody would name those who waited for their turn.
    fn let_go(&mut self, cluster: u16) {
        for peer in self.peers_of(cluster) {
            let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
            for &(_, token) in links {
                if let Some(Socket::Link(link)) = self.sockets.get(token) {
                    unpace(link);
                }
            }
            self.transmit(peer);
        }
    }

    /// Those of a cluster of whom something is known.
    pub(crate) fn peers_of(&self, cluster: u16) -> Vec<ProcId> {
        let is_there = |&peer: &ProcId| self.paces.place_of(peer) == Some(cluster);
        self.peers.keys().copied().filter(is_there).collect()
    }

    /// What the kernel has for this cluster leaves at the rate, too, of each connection at its part, until it has something to say.
    fn repace_all(&mut self, cluster: u16) {
        let peers = self.peers_of(cluster).into_iter();
        let links = peers.flat_map(|peer| self.peers.get(&peer).map_or(&[][..], |it| &it.links));
        let tokens: Vec<Token> = links.map(|&(_, token)| token).collect();
        let sockets = &mut self.sockets;
        let keeps = |token: &Token| progress_of(sockets, *token).is_some_and(|it| it.unsent > 0);
        let kept: Vec<Token> = tokens.into_iter().filter(keeps).collect();
        let Some(paced) = self.paces.get(cluster) else { return };
        let rate = (paced.pacer.rate() as u64 / kept.len().max(1) as u64).max(1);
        for token in kept {
            if let Some(Socket::Link(link)) = self.sockets.get(token) {
                // A connection that fails says so by itself.
                let _ = link.pace(Pace::plain(rate));
            }
        }
    }

    /// Lets a link write what it may, and says what is to be waited for.
    pub(crate) fn write_turns(&mut self, link: &mut Link) -> io::Result<Interest> {
        let Some(cluster) = self.paces.cluster_of(link.peer) else {
            let left = self.write_most(link, Most::Fair)?.left;
            let waits = left != Left::Nothing || self.endpoint.unwritten_bytes(link.peer) > 0;
            self.note_wait(link, waits);
            return Ok(match left {
                Left::Nothing => Interest::Read,
                // After its turn it is still writable, so the next wait for events comes back to it.
                Left::ForRoom | Left::ForTurn => Interest::ReadWrite,
            });
        };
        // What hurries goes as fast as the interface lets it.
        let fastest = self.paces.fastest_to(link.peer);
        self.claim(cluster, link.peer, |bytes| link.lets_out(bytes, fastest));
        loop {
            let now = Instant::now();
            let backlog = self.endpoint.unwritten_bytes(link.peer);
            let Some(most) = self.ask_turn(cluster, link, backlog, now)? else {
                self.note_wait(link, true);
                self.arm_turn(cluster);
                return Ok(Interest::Read);
            };
            let Written { bytes, left } = self.write_most(link, Most::Bytes(most))?;
            let is_direct = left != Left::Nothing && !self.is_relayed(link.peer);
            if let Some(paced) = self.paces.get(cluster) {
                if left != Left::Nothing {
                    // A lone connection that has the interface to itself goes on when its turn is over.
                    let is_shared = paced.pacer.has_waiting() || paced.pacer.is_held_up();
                    let turn = if is_shared { most } else { usize::MAX };
                    let rate = paced.pacer.rate() as u64;
                    let all = self.endpoint.unwritten_bytes(link.peer);
                    let is_young = link.is_young();
                    link.work(Work { rate, turn, all, is_direct, is_young });
                }
                let bytes = link.on_wire(bytes);
                if backlog > 0 {
                    paced.wrote(link.peer, bytes, now);
                } else {
                    paced.pacer.said(bytes, now);
                }
            }
            match left {
                // It has as much on its way as it may: what is acknowledged brings us back.
                Left::Nothing if self.endpoint.unwritten_bytes(link.peer) > 0 => {
                    self.note_wait(link, true);
                    return Ok(Interest::Read);
                }
                Left::Nothing => {
                    self.note_wait(link, false);
                    self.end_when_gone(cluster, link.peer);
                    link.rest();
                    return Ok(Interest::Read);
                }
                Left::ForRoom => {
                    self.note_wait(link, true);
                    return Ok(Interest::ReadWrite);
                }
                Left::ForTurn => {}
            }
        }
    }

    pub(crate) fn write_most(&mut self, link: &mut Link, most: Most) -> io::Result<Written> {
        self.begin_to_write(link);
        let written = link.write(&mut self.endpoint, most)?;
        self.stats.bytes_out += written.bytes as u64;
        link.written += written.bytes as u64;
        if link.is_far {
            self.counts.sent += written.bytes as u64;
        }
        if written.bytes > 0 {
            link.pulse.wrote();
            self.watch_pulse();
        }
        Ok(written)
    }

    /// How much a link may write now, if it is its turn; the kernel knows the rate then.
    fn ask_turn(
        &mut self,
        cluster: u16,
        link: &mut Link,
        backlog: u64,
        now: Instant,
    ) -> io::Result<Option<usize>> {
        let node = self.regulation.as_ref().map(|regulation| regulation.node(link.peer));
        let Some(Paced { pacer, claims, .. }) = self.paces.get(cluster) else { return Ok(None) };
        let share = node.map_or(1.0, |node| claims.share(node));
        let (endpoint, rate) = (&self.endpoint, pacer.rate() as u64);
        let (frame, left) = (endpoint.frame_bytes(link.peer), endpoint.left_bytes(link.peer));
        let ask = Ask {
            backlog,
            left,
            frame,
            is_young: link.is_young(),
            // Of what goes as it is nobody asks.
            is_untold: !pacer.need_no_spacing(backlog) && link.is_untold(backlog, rate),
            share,
        };
        let Turn::Now(most) = pacer.ask(link.peer, ask, now) else { return Ok(None) };
        // All that there is, on a path that takes it, and nobody waits: what the window lets out is no matter.
        let takes = || ask.is_untold || link.takes(backlog, rate);
        let is_free = || backlog <= most as u64 && !pacer.has_waiting() && takes();
        let is_bounded = pacer.is_bounded_by_window() && backlog > 0 && !is_free();
        let (most, is_behind) = if is_bounded {
            self.within_window(cluster, link, ask, most, now)?
        } else {
            (Some(most), false)
        };
        // Words of the stream say nothing of what messages may; before a short message the kernel may still have some of a long one.
        let is_beside = backlog == 0 || backlog <= SMALL && self.has_claimed(link.peer);
        let (Some(Paced { pacer, .. }), Some(most)) = (self.paces.get(cluster), most) else {
            return Ok(None);
        };
        let rate = (pacer.rate() as u64).max(1);
        let told = match usize::try_from(backlog) {
            _ if is_beside => rate,
            Ok(all) if all <= most => pacer.socket_rate_of_last(link.peer, all),
            _ => pacer.socket_rate(link.peer, most),
        };
        // What needs no spacing does not slow the kernel down: it is not as easily made faster again. But for what a pause let go at once. And
        // once told of any rate the kernel has a timer for each packet.
        let is_other = |known| backlog > SMALL || known < told || known == u64::MAX && backlog > 0;
        let needs_spacing =
            !link.is_young() && !pacer.is_unspaced() && !pacer.need_no_spacing(backlog);
        if link.paced_to.map_or(needs_spacing, is_other) {
            link.pace(Pace { told, rate, is_behind })?;
            self.begin_opening(cluster, now);
        }
        Ok(Some(most))
    }

    /// How much of a turn of so many bytes the connection's window lets out; if that is nothing others go first. And whether the kernel
    /// would space it out for less than the rate, as it did before a rest.
    fn within_window(
        &mut self,
        cluster: u16,
        link: &Link,
        ask: Ask,
        most: usize,
        now: Instant,
    ) -> io::Result<(Option<usize>, bool)> {
        let Outlook { room, progress, spacing } = outlook(&link.carrier.fd)?;
        let room = link.weighed(room);
        let Some(Paced { pacer, .. }) = self.paces.get(cluster) else { return Ok((None, false)) };
        pacer.begins(link.peer, progress, now);
        if room == 0 && ask.backlog > SMALL {
            pacer.put_back(link.peer, ask, now);
            return Ok((None, false));
        }
        if link.is_short() {
            // It opens again long before the turn is over.
            return Ok((Some(most), false));
        }
        if (room as u64) < ask.backlog.min(most as u64) {
            pacer.cut();
        }
        let rate = link.without_headers(pacer.rate() as u64);
        let is_behind = pacer.is_after_rest() && spacing.lags_behind(rate);
        Ok((Some(most.min(room.max(SEGMENT))), is_behind))
    }

    /// What the kernel still has to send leaves at this rate.
    pub(crate) fn repace(&mut self, repaced: Repaced) {
        let Repaced { peer, rate, is_faster, untold } = repaced;
        let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
        if is_faster && links.len() > 1 {
            // Which of them the turn is nobody knows here: it is faster from its next one on.
            return;
        }
        // Its connections share it.
        let rate = (rate / links.len().max(1) as u64).max(1);
        for &(_, token) in links {
            if let Some(Socket::Link(link)) = self.sockets.get(token)
                && (link.paced_to.is_some() || untold.is_some_and(|most| keeps_more(link, most)))
            {
                // A connection that fails says so by itself.
                let _ = link.pace(Pace::plain(rate));
            }
        }
    }

    /// Bytes for a peer that the kernel has not sent once, over all connections.
    pub(crate) fn unsent_for(&mut self, peer: ProcId) -> usize {
        let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
        let sockets = &mut self.sockets;
        links.iter().filter_map(|&(_, token)| progress_of(sockets, token)).map(|it| it.unsent).sum()
    }

    /// How far the kernel is with the only connection to a peer, if there is no relay on the way, whose window would hold it back.
    fn lone_progress(&mut self, peer: ProcId) -> Option<Progress> {
        let &[(_, token)] = &self.peers.get(&peer)?.links[..] else { return None };
        if self.is_relayed(peer) { None } else { progress_of(&mut self.sockets, token) }
    }

    /// How the kernel has kept up with the connection whose turn is over now.
    fn look_back(&mut self, cluster: u16) {
        let now = Instant::now();
        let Some(peer) = self.paces.get(cluster).and_then(|paced| paced.pacer.over(now)) else {
            return;
        };
        let progress = self.lone_progress(peer);
        if let Some(paced) = self.paces.get(cluster) {
            paced.pacer.looked(peer, progress, now);
        }
    }

    /// The turn of somebody who sends to this cluster may have come.
    pub(crate) fn turn_due(&mut self, cluster: u16) {
        let Some(paced) = self.paces.get(cluster) else { return };
        paced.armed = None;
        self.look_back(cluster);
        let begun = Instant::now();
        let mut now = begun;
        while now < begun + TURNS
            && let Some(peer) = self.paces.next(cluster, now)
        {
            self.transmit(peer);
            now = Instant::now();
        }
        self.end_claims(cluster);
        self.arm_turn(cluster);
    }

    /// Sees to it that the next turn is not missed, nor the end of one who has had its last, and that nobody wakes for them before.
    pub(crate) fn arm_turn(&mut self, cluster: u16) {
        // What is reckoned anew is hardly ever the same to the nanosecond.
        self.arm_turn_where(cluster, |armed, due| due + SAME < armed || due > armed + SAME);
    }

    /// The same, but where it comes later who wakes too early looks again: to move a timer may take longer than all else that a new rate takes.
    pub(crate) fn arm_turn_if_sooner(&mut self, cluster: u16) {
        self.arm_turn_where(cluster, |armed, due| due + SAME < armed);
    }

    fn arm_turn_where(&mut self, cluster: u16, is_other: impl Fn(Instant, Instant) -> bool) {
        let Some(paced) = self.paces.get(cluster) else { return };
        let Some(due) = paced.pacer.due() else { return };
        if paced.armed.is_none_or(|armed| is_other(armed, due)) {
            paced.armed = Some(due);
            self.timers.move_to(due, Due::Turn(cluster));
        }
    }
}

/// The connection sends as fast as TCP lets it, and is told of a rate anew when there is one.
fn unpace(link: &mut Link) {
    if link.paced_to.is_some() {
        // A connection that fails says so by itself.
        let _ = link.pace(Pace::plain(u64::MAX));
        link.paced_to = None;
    }
    // The opener is for those that are paced.
    link.let_go();
}

/// Whether the kernel has more than so many bytes that it has not sent on to the interface, where no rate spaces them out any more.
fn keeps_more(link: &Link, bytes: u64) -> bool {
    // A connection that fails says so by itself.
    progress(&link.carrier.fd).is_ok_and(|it| it.unsent as u64 > bytes)
}

/// A connection that fails says so by itself.
fn progress_of(sockets: &mut Slots<Socket>, token: Token) -> Option<Progress> {
    let Some(Socket::Link(link)) = sockets.get(token) else { return None };
    progress(&link.carrier.fd).ok()
}

#[cfg(test)]
pub(crate) mod tests;
