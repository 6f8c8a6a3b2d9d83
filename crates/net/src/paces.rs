//! The pacers of a process, one towards each other cluster, and what their turns make happen.
//!
//! Their rates are those of the claims ([`Claims`]): as they began, or as [`crate::regulation`] brings grants.

use std::io;
use std::time::{Duration, Instant};

use gridmpi_rate::{self as rate, ACKNOWLEDGEMENT, Claims, PAYLOAD, Rate, SEGMENT};
use gridmpi_wire::ProcId;

use crate::Pacing;
use crate::link::{Left, Link, Most, Pace, Written};
use crate::options::{Outlook, outlook, progress};
use crate::pace::{Ask, Lead, Pacer, Progress, SMALL, Slack, Turn, turn_time};
use crate::poller::{Interest, Slots, Token};
use crate::state::{Socket, State};
use crate::timers::Due;

/// The kernel does not space out the first ten segments of a connection.
pub(crate) const YOUNG: u64 = 10 * SEGMENT as u64;

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
}

/// What the kernel has of this peer's is to leave at another rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repaced {
    peer: ProcId,
    /// Bytes per second.
    rate: u64,
    is_faster: bool,
    /// The interface spaces it out well enough.
    needs_none: bool,
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
        let peer = self.pacer.writer().filter(|_| is_other)?;
        let needs_none = self.pacer.needs_no_more_spacing();
        Some(Repaced { peer, rate: (rate as u64).max(1), is_faster: rate > before, needs_none })
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
        let cluster = self.place_of(peer)?;
        self.paced.get(usize::from(cluster))?.as_ref()?;
        Some(cluster)
    }

    /// How long an acknowledgement of `peer`'s may wait for its turn: it goes with what `peer` sends to us, and all of our cluster may have
    /// turns of its before that. We know only how long ours are.
    pub(crate) fn cycle(&self, peer: ProcId) -> Duration {
        let paced =
            self.cluster_of(peer).and_then(|cluster| self.paced[usize::from(cluster)].as_ref());
        paced.map_or(Duration::ZERO, |Paced { claims, .. }| {
            turn_time(payload(claims.least().min(claims.rate()))).saturating_mul(self.count)
        })
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
        self.follow_claims(Instant::now());
    }

    /// What goes to this cluster is paced no longer: nobody would name those who waited for their turn.
    fn let_go(&mut self, cluster: u16) {
        let peers = self.peers.keys().copied();
        let peers: Vec<_> =
            peers.filter(|&peer| self.paces.place_of(peer) == Some(cluster)).collect();
        for peer in peers {
            let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
            for &(_, token) in links {
                if let Some(Socket::Link(link)) = self.sockets.get(token) {
                    unpace(link);
                }
            }
            self.transmit(peer);
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
        self.claim(cluster, link.peer, link.is_short());
        loop {
            let now = Instant::now();
            let backlog = self.endpoint.unwritten_bytes(link.peer);
            let Some(most) = self.ask_turn(cluster, link, backlog, now)? else {
                self.note_wait(link, true);
                self.arm_turn(cluster);
                return Ok(Interest::Read);
            };
            let Written { bytes, left } = self.write_most(link, Most::Bytes(most))?;
            if let Some(paced) = self.paces.get(cluster) {
                if left != Left::Nothing {
                    // A lone connection that has the interface to itself goes on when its turn is over.
                    let is_shared = paced.pacer.has_waiting() || paced.pacer.is_held_up();
                    let turn = if is_shared { most } else { usize::MAX };
                    link.work(paced.pacer.rate() as u64, turn, backlog);
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
        let frame = self.endpoint.frame_bytes(link.peer);
        let ask = Ask {
            backlog,
            frame,
            is_young: link.written < YOUNG,
            is_untold: link.paced_to.is_none() && link.is_short(),
            share,
        };
        let Turn::Now(most) = pacer.ask(link.peer, ask, now) else { return Ok(None) };
        // All that there is, on a path which any window covers, and nobody waits: what the window lets out is no matter.
        let is_free = backlog <= most as u64 && !pacer.has_waiting() && link.is_short();
        let is_bounded = pacer.is_bounded_by_window() && backlog > 0 && !is_free;
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
            link.written >= YOUNG && !pacer.is_unspaced() && !pacer.need_no_spacing(backlog);
        if link.paced_to.map_or(needs_spacing, is_other) {
            link.pace(Pace { told, rate, is_behind })?;
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
            pacer.put_back(link.peer, ask.is_young, now);
            return Ok((None, false));
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
        let Repaced { peer, rate, is_faster, needs_none } = repaced;
        let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
        if is_faster && links.len() > 1 {
            // Which of them the turn is nobody knows here: it is faster from its next one on.
            return;
        }
        // Its connections share it.
        let rate = (rate / links.len().max(1) as u64).max(1);
        for &(_, token) in links {
            if let Some(Socket::Link(link)) = self.sockets.get(token)
                && (link.paced_to.is_some() || !needs_none)
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
        while let Some(peer) = self.paces.next(cluster, Instant::now()) {
            self.transmit(peer);
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
    // The opener is for those that are paced: at next to no rate any window is wide enough for the connection's own.
    link.work(1, usize::MAX, u64::MAX);
}

/// A connection that fails says so by itself.
fn progress_of(sockets: &mut Slots<Socket>, token: Token) -> Option<Progress> {
    let Some(Socket::Link(link)) = sockets.get(token) else { return None };
    progress(&link.carrier.fd).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{TcpListener, TcpStream};

    use bytes::Bytes;
    use gridmpi_buffer::{RecvBuffer, SendBuffer};
    use gridmpi_engine::{Config, Mode, Source, TagMatch};
    use gridmpi_rate::{Grant, Network};
    use gridmpi_wire::{ContextId, JobKey, Rank, Strand};

    use super::*;
    use crate::carrier::Carrier;
    use crate::links::Met;
    use crate::{Bound, Limits, Listen, Net, NetConfig, Online, Way, bind};

    pub(crate) const FAR: ProcId = ProcId(1);

    fn config(me: ProcId) -> NetConfig {
        NetConfig {
            me,
            job: [7; 16],
            key: JobKey::new([9; 32]),
            engine: Config::new(me),
            peers: vec![Vec::new(); 2],
            security: None,
            relays: None,
            limits: Limits::default(),
            pacing: Pacing::default(),
            warn: |_| {},
            tells_of_absence: None,
            lost: None,
            forked: None,
        }
    }

    /// A process of one cluster that sends to another at so many bits per second.
    pub(crate) fn state(rate: f64) -> State {
        state_among(vec![0, 1], rate)
    }

    /// The first of processes of these clusters.
    pub(crate) fn state_among(clusters: Vec<u16>, rate: f64) -> State {
        let rates = vec![None, Rate::from_bits_per_second(rate)];
        state_paced(Pacing { clusters, rates, ..Pacing::default() })
    }

    fn state_paced(pacing: Pacing) -> State {
        let config = NetConfig { pacing, ..config(ProcId(0)) };
        let listen = Listen { interface: Some("127.0.0.1".into()), port: 0 };
        State::new(bind(&listen).unwrap(), config).unwrap()
    }

    /// Has a connection to a peer, whose end is this.
    pub(crate) fn meet(state: &mut State, (peer, strand): (ProcId, Strand)) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        state.endpoint.connected(peer, strand, 1).unwrap();
        state.establish((peer, strand), Carrier::bare(near.into()), Met::default());
        listener.accept().unwrap().0
    }

    /// The first of two processes of a cluster, the other of which has the broker, with connections to that and to one of another cluster; much
    /// waits for the latter.
    fn with_broker() -> (State, [TcpStream; 2], [ProcId; 2]) {
        let (mut state, ends, peers) = with_broker_among(vec![0, 0, 1]);
        let much = SendBuffer::from_bytes(Bytes::from(vec![0; 1 << 20]));
        state.endpoint.send(peers[1], ContextId::WORLD, Rank(0), 1, Mode::Standard, much);
        (state, ends, peers)
    }

    /// The first of processes of these clusters, the second of which has the broker, and the third is of the other cluster.
    fn with_broker_among(clusters: Vec<u16>) -> (State, [TcpStream; 2], [ProcId; 2]) {
        let (broker, far) = (ProcId(1), ProcId(2));
        let mut network = Network::new();
        let ids = [(); 2].map(|()| network.add_cluster());
        let interface = Rate::from_bits_per_second(50e6).unwrap();
        let node = |&cluster: &u16| network.add_node(ids[usize::from(cluster)], interface);
        let nodes: Vec<_> = clusters.iter().map(node).collect();
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let online = Online { network, nodes, brokers: vec![broker, far], names, warn: |_| {} };
        let rates = vec![None, Rate::from_bits_per_second(8e6)];
        let online = Some(online);
        let mut state = state_paced(Pacing { clusters, rates, online, ..Pacing::default() });
        let ends = [broker, far].map(|peer| meet(&mut state, (peer, Strand::FIRST)));
        state.flush();
        (state, ends, [broker, far])
    }

    fn written(state: &mut State, peer: ProcId) -> u64 {
        let (_, token) = state.peers[&peer].links[0];
        let Some(Socket::Link(link)) = state.sockets.get(token) else { panic!("it is lost") };
        link.written
    }

    #[test]
    fn where_the_program_names_a_rate_nothing_goes_by_parts() {
        let (mut state, _ends, [_, far]) = with_broker();
        let ask = Ask { backlog: 6000, frame: 6000, is_young: false, is_untold: true, share: 1.0 };
        let now = Instant::now();
        for (held, is_part) in [(None, true), (Rate::from_bits_per_second(8e6), false)] {
            state.hold(held);
            let pacer = &mut state.paces.get(1).unwrap().pacer;
            assert!(matches!(pacer.ask(far, ask, now), Turn::Now(_)));
            assert_eq!(pacer.is_unspaced(), is_part, "{held:?}");
        }
    }

    #[test]
    fn a_claim_leaves_before_what_it_is_for() {
        let (mut state, _ends, peers) = with_broker();
        let before = peers.map(|peer| written(&mut state, peer));
        state.claim(1, peers[1], true);
        let after = peers.map(|peer| written(&mut state, peer));
        assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
    }

    #[test]
    fn what_follows_while_the_last_leaves_is_claimed_anew_unless_that_is_young() {
        let (mut state, _ends, [broker, far]) = with_broker();
        let rate = Rate::from_bits_per_second(9e6).unwrap();
        let mut follow = |settled: Option<bool>| {
            let grant = |is_settled| Grant { rate, node: rate, is_settled, is_quiet: false };
            let claims = &mut state.paces.get(1).unwrap().claims;
            settled.into_iter().for_each(|settled| claims.grant(grant(settled), Instant::now()));
            state.end_when_gone(1, far);
            let before = written(&mut state, broker);
            state.claim(1, far, true);
            assert!(state.has_claimed(far) && !state.is_leaving(1, far));
            written(&mut state, broker) > before
        };
        assert!(follow(None), "the first of all");
        assert!(!follow(None) && !follow(Some(false)), "nothing new is said of the young");
        assert!(follow(Some(true)), "it may have what others begin with");
        assert!(!follow(None), "it is young again");
    }

    #[test]
    fn short_messages_are_claimed_where_many_of_them_wait() {
        let (mut state, _ends, [_, far]) = with_broker_among(vec![0, 0, 1, 1, 1]);
        let peers = [2, 3, 4].map(ProcId);
        let _far: Vec<_> =
            peers[1..].iter().map(|&peer| meet(&mut state, (peer, Strand::FIRST))).collect();
        state.flush();
        let mut send = |peer| {
            let short = SendBuffer::from_bytes(Bytes::from(vec![0; 4000]));
            state.endpoint.send(peer, ContextId::WORLD, Rank(0), 1, Mode::Standard, short);
            state.transmit(peer);
            state.has_claimed(peer)
        };
        assert!(!send(far), "it leaves at once");
        assert!(!send(peers[1]), "it waits alone");
        assert!(send(peers[2]), "it is one of several");
    }

    /// It has had a turn and waits for the next one.
    fn wait_on(state: &mut State) {
        let now = Instant::now();
        let pacer = &mut state.paces.get(1).unwrap().pacer;
        let ask =
            Ask { backlog: 1 << 30, frame: 1 << 30, is_young: false, is_untold: false, share: 1.0 };
        while let Turn::Now(most) = pacer.ask(FAR, ask, now) {
            pacer.wrote(FAR, most, now);
        }
    }

    /// Three processes' networks, of which the first sends to the others at so many bits per second.
    fn nets(rate: f64) -> Vec<Net> {
        let listen = Listen { interface: Some("127.0.0.1".into()), port: 0 };
        let bound: Vec<_> = (0..3).map(|_| bind(&listen).unwrap()).collect();
        let way = |bound: &Bound| vec![Way::Direct(bound.addresses().to_vec())];
        let peers: Vec<_> = bound.iter().map(way).collect();
        let start = |(me, bound)| {
            let rates = vec![None, Rate::from_bits_per_second(rate).filter(|_| me == 0)];
            let pacing = Pacing { clusters: vec![0, 1, 1], rates, ..Pacing::default() };
            Net::start(bound, NetConfig { peers: peers.clone(), pacing, ..config(ProcId(me)) })
        };
        (0..).zip(bound).map(|it| start(it).unwrap()).collect()
    }

    #[test]
    fn an_acknowledgement_may_wait_for_the_turns_of_all() {
        let cycle = |rate| {
            let clusters = [vec![0; 256], vec![1; 256]].concat();
            let rates = vec![None, Rate::from_bits_per_second(rate)];
            let pacing = Pacing { clusters, rates, ..Pacing::default() };
            Paces::new(&pacing, ProcId(0)).cycle(ProcId(256)).as_secs_f64()
        };
        // Turns of 5 ms, or of four segments.
        assert!((cycle(1e9) - 1.28).abs() < 1e-6, "{}", cycle(1e9));
        let least = 256.0 * 4.0 * 1538.0 * 8.0 / 1.2e6;
        assert!((cycle(1.2e6) - least).abs() < 1e-6, "{} and not {least}", cycle(1.2e6));
        assert_eq!(cycle(f64::INFINITY), 0.0, "nobody has turns");
    }

    #[test]
    fn what_is_acknowledged_to_one_leaves_the_turn_to_the_other() {
        // What the first has of its turn leaves within minutes.
        let nets = nets(100.0);
        let buffer = |bytes| SendBuffer::from_bytes(Bytes::from(vec![0; bytes]));
        let send = |from: u32, to, bytes| {
            let (context, rank) = (ContextId::WORLD, Rank(from));
            let mut net = nets[from as usize].lock();
            net.send(ProcId(to), context, rank, 1, Mode::Standard, buffer(bytes));
        };
        let writer = || {
            let mut net = nets[0].lock();
            net.state().paces.get(1).and_then(|paced| paced.pacer.writer())
        };
        send(0, 1, 1 << 20);
        let until = Instant::now() + Duration::from_secs(60);
        let wait = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(Instant::now() < until, "it never was so");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&|| writer() == Some(FAR));
        let source = Source::Remote(Rank(2), ProcId(2));
        let into = RecvBuffer::owned(1 << 20);
        let came = nets[0].lock().receive(ContextId::WORLD, source, TagMatch::Is(1), into);
        send(2, 0, 1 << 20);
        wait(&|| nets[0].lock().take(came).is_some());
        assert_eq!(writer(), Some(FAR));
    }

    #[test]
    fn while_somebody_waits_there_is_one_timer_and_no_turn_is_missed() {
        let mut state = state(1e6);
        wait_on(&mut state);
        state.arm_turn(1);
        // At higher and higher rates the next turn comes sooner and sooner.
        for mbits in 2..20 {
            state.hold(Rate::from_bits_per_second(f64::from(mbits) * 1e6));
        }
        let began = Instant::now();
        let (mut fired, mut turns) = (0, 0);
        while began.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(1));
            for _ in state.timers.expired(Instant::now()) {
                fired += 1;
                state.turn_due(1);
                if !state.paces.get(1).unwrap().pacer.has_waiting() {
                    turns += 1;
                    wait_on(&mut state);
                    state.arm_turn(1);
                }
            }
        }
        // A turn takes 5 ms.
        assert!(turns > 20, "{turns}");
        // Those from the beginning, and one for each; another where one came too early.
        assert!(fired <= 20 + 2 * turns, "{fired} for {turns}");
    }
}
