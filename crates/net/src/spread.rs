//! Several connections to one peer: when they are made, what each may write, and how fast they are.

use std::io;
use std::time::{Duration, Instant};

use gridmpi_rate::SEGMENT;
use gridmpi_wire::{ProcId, Strand};

use crate::NetConfig;
use crate::link::{Left, Link, Most, Pace};
use crate::options::{Work, window};
use crate::pace::{Ask, SMALL, TURN_YOUNG, Turn};
use crate::paces::{Paced, Paces};
use crate::paths::{Came, Lag, Path};
use crate::poller::{Interest, Slots, Token};
use crate::state::{Peer, Socket, State};

/// More than this must wait to be sent before a peer gets another connection.
const MUCH: u64 = 256 << 10;

/// Less time says nothing of how fast a connection is.
const SPAN_LEAST: Duration = Duration::from_millis(5);

/// What was seen so long ago counts a third.
const MEMORY: Duration = Duration::from_millis(250);

/// What one of several connections may have on its way while nothing is known of any, and at most while nothing is of itself: enough
/// for the next one to be made while that is carried.
const REACH_UNSEEN: u64 = 512 << 10;

/// And later at least.
const REACH_LEAST: u64 = 64 << 10;

/// What it may have on its way later, in seconds at the rate that it is taken to have: more than most round trips, so that it
/// never rests, and little enough that the connections end together: what is not yet given away goes where there is room.
const REACH_SECONDS: f64 = 0.25;

/// Or in round trips, if that is more: one that may have more than it has been given yet becomes faster from one to the next. But no
/// more than [`REACH_SECONDS`] beyond one: what a connection that never rests takes for a round trip is what it has on its way.
const REACH_ROUND_TRIPS: f64 = 2.0;

/// How fast a connection has been seen to be: what the far process has acknowledged on it, by the time that took.
#[derive(Debug)]
pub(crate) struct Speed {
    delivered: u64,
    since: Instant,
    /// Bytes per second.
    seen: Option<f64>,
    /// What came lately and in how many seconds.
    lately: (f64, f64),
    /// What will at least be delivered when the next byte has come that was given to it at that time.
    mark: Option<(u64, Instant)>,
    /// The shortest time that this, or a handshake, has taken and that its path was not told; and on this connection lately.
    waited: Option<Duration>,
    lag: Lag,
    /// What has come and is not yet counted for its path.
    came: Option<Came>,
    /// Nothing has come for so long that it is slower than it was.
    is_late: bool,
}

impl Speed {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            since: now,
            seen: None,
            lately: (0.0, 0.0),
            mark: None,
            waited: None,
            lag: Lag::new(now),
            came: None,
            is_late: false,
        }
    }

    /// It is about to be given more, and so much has come and is on its way: when the next byte is acknowledged says how long that takes.
    fn begin(&mut self, (delivered, flight): (u64, u64), now: Instant) {
        if flight == 0 {
            self.since = now;
        }
        let begun = delivered + flight;
        let is_pending = self.mark.is_some_and(|(all, _)| all <= begun);
        if !is_pending {
            self.mark = Some((begun + 1, now));
        }
    }

    /// So much has come, and so much is on its way. What that says, if anything.
    pub(crate) fn look(&mut self, (delivered, flight): (u64, u64), now: Instant) -> Option<f64> {
        self.note_lag(delivered, now);
        let span = now.saturating_duration_since(self.since);
        let came = delivered.saturating_sub(self.delivered);
        if came > 0 && span >= SPAN_LEAST {
            let seconds = span.as_secs_f64();
            let kept = (-seconds / MEMORY.as_secs_f64()).exp();
            self.lately = (self.lately.0 * kept + came as f64, self.lately.1 * kept + seconds);
            self.seen = Some(self.lately.0 / self.lately.1);
            (self.delivered, self.since) = (delivered, now);
            (self.came, self.is_late) = (Some(Came { bytes: came, span }), false);
            return self.seen;
        }
        if flight == 0 {
            (self.delivered, self.since) = (delivered, now);
            return None;
        }
        // It is slower than it was.
        let most = (came + flight) as f64 / span.as_secs_f64();
        let is_late = self.seen.is_some_and(|seen| 2.0 * most < seen);
        if is_late {
            (self.seen, self.is_late) = (Some(most), true);
            self.lately = (most * SPAN_LEAST.as_secs_f64(), SPAN_LEAST.as_secs_f64());
        }
        self.seen.filter(|_| is_late)
    }

    fn note_lag(&mut self, delivered: u64, now: Instant) {
        if let Some((_, at)) = self.mark.filter(|&(all, _)| delivered >= all) {
            self.note_waited(now.saturating_duration_since(at), now);
            self.mark = None;
        }
    }

    fn note_waited(&mut self, waited: Duration, now: Instant) {
        self.lag.note(waited, now);
        self.waited = Some(self.waited.map_or(waited, |other| other.min(waited)));
    }

    /// How fast it is to be taken for: by its path where that is known, but for one that keeps us waiting.
    fn told(&self, by_path: impl FnOnce() -> Option<f64>) -> Option<f64> {
        let seen = self.seen?;
        let by_path = if self.is_late { None } else { by_path() };
        Some(by_path.unwrap_or(seen))
    }
}

/// What a peer's connections carry on average, as far as was seen.
#[derive(Default)]
struct Mean {
    bytes: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, speed: &Speed) {
        self.bytes += speed.lately.0;
        self.seconds += speed.lately.1;
    }

    /// Bytes per second.
    fn of_all(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// What a connection that is so fast, bytes per second, may have on its way, bytes, if an acknowledgement takes so long.
fn reach(rate: f64, lag: Option<Duration>) -> u64 {
    let lag = lag.unwrap_or_default().as_secs_f64();
    let span = (REACH_ROUND_TRIPS * lag).min(lag + REACH_SECONDS).max(REACH_SECONDS);
    REACH_LEAST.max((rate * span) as u64)
}

impl State {
    /// How many connections the peer may have at a time.
    pub(crate) fn most_connections(&self, id: ProcId) -> usize {
        let ways = || self.config.peers.get(id.0 as usize).map_or(1, Vec::len);
        self.config.limits.connections.unwrap_or_else(ways).clamp(1, Strand::MAX)
    }

    /// Whether the peer may have more than one.
    pub(crate) fn may_have_several(&self, id: ProcId) -> bool {
        self.paces.is_far(id) && self.most_connections(id) > 1
    }

    /// The peer may have several connections from now on: its one is looked at and bounded like them.
    pub(crate) fn begin_several(&mut self, id: ProcId) {
        let now = Instant::now();
        let links = self.peers.get(&id).map_or(Vec::new(), |peer| peer.links.clone());
        for (strand, token) in links {
            let (delivered, _) = self.endpoint.carried(id, strand).unwrap_or_default();
            if let Some(Socket::Link(link)) = self.sockets.get(token) {
                let Speed { lag, waited, .. } = link.speed;
                link.speed = Speed { delivered, lag, waited, ..Speed::new(now) };
            }
            self.endpoint.set_reach(id, strand, REACH_UNSEEN);
        }
    }

    /// Where much waits for a peer it gets another connection, if it may have more.
    pub(crate) fn widen(&mut self, id: ProcId) {
        if !self.may_have_several(id) {
            return;
        }
        let most = self.most_connections(id);
        let has_all =
            self.peers.get(&id).is_none_or(|peer| peer.links.len() + peer.dials.len() >= most);
        if !has_all && self.endpoint.unwritten_bytes(id) > MUCH {
            self.dial_extra(id);
        }
    }

    /// Something has come on one of a peer's connections: acknowledgements, perhaps. `link` is taken out.
    pub(crate) fn see(&mut self, link: &mut Link) {
        if !self.may_have_several(link.peer) {
            return;
        }
        let now = Instant::now();
        if let Some(mean) = self.look_at_speeds(link, now) {
            self.note_ways(link, mean, now);
            self.tell_rates(link, mean, now);
        }
    }

    /// Looks at all connections of `link`'s peer. What they carry on average if something new is known of any.
    fn look_at_speeds(&mut self, link: &mut Link, now: Instant) -> Option<f64> {
        let Self { peers, sockets, endpoint, .. } = self;
        let id = link.peer;
        let (mut is_new, mut mean) = (false, Mean::default());
        for_each_link(peers.get(&id)?, sockets, link, |link| {
            let carried = endpoint.carried(id, link.strand);
            is_new |= carried.is_some_and(|carried| link.speed.look(carried, now).is_some());
            mean.add(&link.speed);
        });
        mean.of_all().filter(|_| is_new)
    }

    /// What the connections of `link`'s peer carry on average.
    fn mean_speed(&mut self, link: &mut Link) -> Option<f64> {
        let Self { peers, sockets, .. } = self;
        let mut mean = Mean::default();
        for_each_link(peers.get(&link.peer)?, sockets, link, |link| mean.add(&link.speed));
        mean.of_all()
    }

    /// What came on the peer's connections says something of the ways that they go.
    fn note_ways(&mut self, link: &mut Link, mean: f64, now: Instant) {
        let Self { peers, sockets, paths, paces, config, .. } = self;
        let Some(peer) = peers.get(&link.peer) else { return };
        for_each_link(peer, sockets, link, |link| {
            if let (Some(came), Some(path)) = (link.speed.came.take(), path(link, paces, config)) {
                paths.add(path, came, mean, now);
            }
        });
    }

    /// Tells the endpoint how fast the peer's connections are, and bounds what each may have on its way; one that nothing was seen of
    /// as if it were like the others.
    fn tell_rates(&mut self, link: &mut Link, mean: f64, now: Instant) {
        let Self { peers, sockets, endpoint, paths, paces, config, .. } = self;
        let Some(peer) = peers.get(&link.peer) else { return };
        for_each_link(peer, sockets, link, |link| {
            let (id, strand) = (link.peer, link.strand);
            let path = path(link, paces, config);
            let by_path = || path.map(|path| mean * paths.factor(path));
            let told = link.speed.told(by_path);
            let rate = told.or_else(by_path).unwrap_or(mean);
            let lag = match path {
                Some(path) => paths.lag(path, link.speed.waited.take(), now),
                None => link.speed.lag.known(),
            };
            if let Some(rate) = told {
                endpoint.set_rate(id, strand, rate);
            }
            let most = if told.is_some() { u64::MAX } else { REACH_UNSEEN };
            endpoint.set_reach(id, strand, reach(rate, lag).min(most));
        });
    }

    /// A connection is made, and its handshake has told how long an answer takes: what it may have on its way is bounded as that of the
    /// peer's others is.
    pub(crate) fn begin_beside(&mut self, link: &mut Link, answer: Option<Duration>) {
        let now = Instant::now();
        if let Some(took) = answer {
            link.speed.note_waited(took, now);
        }
        if !self.may_have_several(link.peer) {
            return;
        }
        self.endpoint.set_reach(link.peer, link.strand, REACH_UNSEEN);
        if let Some(mean) = self.mean_speed(link) {
            self.tell_rates(link, mean, now);
        }
    }

    /// A connection is about to be given more.
    pub(crate) fn begin_to_write(&mut self, link: &mut Link) {
        if self.may_have_several(link.peer)
            && let Some(carried) = self.endpoint.carried(link.peer, link.strand)
        {
            link.speed.begin(carried, Instant::now());
        }
    }

    /// Writes what there is for a peer with several connections.
    pub(crate) fn transmit_on_several(&mut self, id: ProcId) {
        match self.paces.cluster_of(id) {
            Some(cluster) => self.write_paced(id, cluster),
            None => {
                for token in self.free_links(id) {
                    self.write_on(token, |state, link| {
                        Ok(state.write_most(link, Most::Fair)?.left)
                    });
                }
            }
        }
        self.settle_several(id);
        self.widen(id);
    }

    /// The connections of a peer that may take something. First the one that the last turn did not come to.
    fn free_links(&mut self, id: ProcId) -> Vec<Token> {
        let Self { peers, sockets, .. } = self;
        let Some(peer) = peers.get(&id) else { return Vec::new() };
        let (before, next) = peer.links.split_at(peer.next_link.min(peer.links.len()));
        let tokens = next.iter().chain(before).map(|&(_, token)| token);
        let is_free = |token: &Token| match sockets.get(*token) {
            Some(Socket::Link(link)) => link.interest == Interest::Read,
            _ => false,
        };
        tokens.filter(is_free).collect()
    }

    /// Lets `write` write on a connection. What is left for it; nothing if it is lost.
    fn write_on(
        &mut self,
        token: Token,
        write: impl FnOnce(&mut Self, &mut Link) -> io::Result<Left>,
    ) -> Left {
        // Absent while it is being handled: its handler writes then.
        let Some(Socket::Link(mut link)) = self.sockets.take(token) else { return Left::Nothing };
        let written = write(self, &mut link);
        let left = written.as_ref().copied().unwrap_or(Left::Nothing);
        let result = written.and_then(|left| {
            let wanted = match (left, self.paces.cluster_of(link.peer)) {
                (Left::Nothing, _) | (Left::ForTurn, Some(_)) => Interest::Read,
                // After its turn it is still writable, so the next wait for events comes back to it.
                (Left::ForRoom, _) | (Left::ForTurn, None) => Interest::ReadWrite,
            };
            self.watch_link(token, &mut link, wanted)
        });
        self.put_link(token, link, result);
        left
    }

    /// The same to a cluster that what goes to is paced: the peer's turn is that of all its connections, which share it and the
    /// rate.
    fn write_paced(&mut self, id: ProcId, cluster: u16) {
        self.claim(cluster, id, |_| false);
        loop {
            let links = self.free_links(id);
            let backlog = self.endpoint.unwritten_bytes(id);
            let Some(turn) = self.ask_turn_of_all(id, cluster, backlog) else {
                self.arm_turn(cluster);
                return;
            };
            let wrote = self.write_turn(id, &turn, links);
            if let Some(paced) = self.paces.get(cluster) {
                turn.end(paced, id, wrote);
            }
            // A turn that ended just where the payload does may have left words behind.
            let is_used_up = wrote >= turn.most;
            if wrote == 0 || (!is_used_up && self.endpoint.unwritten_bytes(id) == 0) {
                return;
            }
        }
    }

    /// Writes a turn, in equal parts, and again on those connections that took theirs, until it is used up. How much was written.
    fn write_turn(&mut self, id: ProcId, turn: &SharedTurn, mut links: Vec<Token>) -> usize {
        let (mut wrote, mut planned) = (0, 0);
        // What is short goes by one of them, at all of the rate.
        let least = if turn.all <= SMALL as usize { SMALL as usize } else { SEGMENT };
        while wrote < turn.most && !links.is_empty() {
            let part = (turn.all.saturating_sub(wrote) / links.len()).max(least);
            planned = part.saturating_add(planned);
            let rate = turn.rate_of(planned);
            let mut goes_on = Vec::new();
            for token in links {
                let most = part.min(turn.most.saturating_sub(wrote));
                if most == 0 {
                    // A short turn has a segment for each of a few.
                    self.begin_with(id, token);
                    break;
                }
                let mut bytes = 0;
                let kept = self.write_on(token, |state, link| {
                    state.write_part(link, most, rate, turn, &mut bytes)
                });
                wrote += bytes;
                if kept == Left::ForTurn && bytes >= most {
                    goes_on.push(token);
                }
            }
            links = goes_on;
        }
        wrote
    }

    /// The peer's next turn begins with this connection, so that none keeps a frame half written.
    fn begin_with(&mut self, id: ProcId, token: Token) {
        let peer = self.peer(id);
        let at = peer.links.iter().position(|link| link.1 == token);
        peer.next_link = at.unwrap_or_default();
    }

    /// A connection's part of a turn.
    fn write_part(
        &mut self,
        link: &mut Link,
        most: usize,
        rate: u64,
        turn: &SharedTurn,
        bytes: &mut usize,
    ) -> io::Result<Left> {
        let mut most = most;
        if turn.is_counted {
            if link.is_young() {
                most = most.min(TURN_YOUNG);
            }
            if turn.is_bounded {
                most = most.min(link.weighed(window(&link.carrier.fd)?).max(SEGMENT));
            }
            link.pace(Pace::plain(rate.max(1)))?;
        }
        let written = self.write_most(link, Most::Bytes(most))?;
        *bytes = link.on_wire(written.bytes);
        if written.left != Left::Nothing {
            let turn = if turn.has_others { most } else { usize::MAX };
            let (rate, is_young) = (rate.max(1), link.is_young());
            link.work(Work { rate, turn, all: u64::MAX, is_direct: false, is_young });
        }
        Ok(written.left)
    }

    /// The turn of a peer's connections together, if it is theirs.
    fn ask_turn_of_all(&mut self, id: ProcId, cluster: u16, backlog: u64) -> Option<SharedTurn> {
        let node = self.regulation.as_ref().map(|regulation| regulation.node(id));
        let paced = self.paces.get(cluster)?;
        let share = node.map_or(1.0, |node| paced.claims.share(node));
        let began = Instant::now();
        let (frame, left) = (self.endpoint.frame_bytes(id), self.endpoint.left_bytes(id));
        let ask = Ask { backlog, left, frame, is_young: false, is_untold: false, share };
        let Turn::Now(most) = paced.pacer.ask(id, ask, began) else { return None };
        let waits = usize::try_from(backlog).map_or(most, |waits| most.min(waits));
        let (rate, has_others) = (paced.pacer.socket_rate(id, waits), paced.pacer.has_waiting());
        let is_bounded = paced.pacer.is_bounded_by_window();
        let is_counted = backlog > 0;
        let all = if is_counted { waits } else { most };
        Some(SharedTurn { most, all, rate, has_others, is_bounded, is_counted, began })
    }

    /// What waits, and what does not any more, after a turn of writing.
    fn settle_several(&mut self, id: ProcId) {
        let waits = self.endpoint.unwritten_bytes(id) > 0;
        let cluster = self.paces.cluster_of(id);
        let links = self.peers.get(&id).map_or(Vec::new(), |peer| peer.links.clone());
        for (_, token) in links {
            let Some(Socket::Link(mut link)) = self.sockets.take(token) else { continue };
            self.note_wait(&mut link, waits);
            if cluster.is_some() && !waits {
                link.rest();
            }
            self.sockets.put(token, Socket::Link(link));
        }
        if let Some(cluster) = cluster.filter(|_| !waits) {
            self.end_when_gone(cluster, id);
        }
    }
}

/// Does something to each of a peer's connections, of which `link` is taken out.
fn for_each_link(
    peer: &Peer,
    sockets: &mut Slots<Socket>,
    link: &mut Link,
    mut act: impl FnMut(&mut Link),
) {
    act(link);
    for &(_, token) in &peer.links {
        if let Some(Socket::Link(other)) = sockets.get(token) {
            act(other);
        }
    }
}

/// The way that a connection goes, if that is one of several.
fn path(link: &Link, paces: &Paces, config: &NetConfig) -> Option<Path> {
    let relay = config.relays.as_ref()?.numbered(link.address?)?;
    Some(Path { cluster: paces.place_of(link.peer)?, relay })
}

/// What the connections of a peer may write together now.
struct SharedTurn {
    most: usize,
    /// What there is of that.
    all: usize,
    /// Of all together, bytes per second.
    rate: u64,
    /// Other peers wait for theirs.
    has_others: bool,
    /// What a window holds back would leave in another's turn.
    is_bounded: bool,
    /// There are bytes of messages to write, not only words of the stream.
    is_counted: bool,
    began: Instant,
}

impl SharedTurn {
    /// So much of it was written.
    fn end(&self, paced: &mut Paced, peer: ProcId, wrote: usize) {
        if !self.is_counted {
            paced.pacer.said(wrote, self.began);
            return;
        }
        if wrote < self.most && self.is_bounded {
            paced.pacer.cut();
        }
        paced.wrote(peer, wrote, self.began);
    }

    /// What each connection is to be told that has a part of it, when so much is planned: all of the rate if the others get nothing.
    fn rate_of(&self, planned: usize) -> u64 {
        let all = self.all.max(1);
        let rate = u128::from(self.rate) * planned.min(all) as u128 / all as u128;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
