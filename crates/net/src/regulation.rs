//! Rates that follow demand: the process's claims go to its cluster's broker, which is in one of the cluster's processes, and grants
//! come back.
//!
//! What concerns nobody else needs no word: a message that leaves in a moment goes at the rate that stands.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use gridmpi_engine::Word;
use gridmpi_rate::{
    Broker, Claimed, ClusterId, Correction, NodeId, Notice, Order, Pace, Parts, Path, Rate,
    SEGMENT, Seen,
};
use gridmpi_wire::{Carries, Demand, Grant, Limit, Part, ProcId, Room, Share, Start, Transfer};
use rustix::time::{ClockId, clock_gettime};

use crate::Online;
use crate::paces::{Paced, wire_bits};
use crate::seen::TELLS;
use crate::state::State;
use crate::timers::Due;

/// What is less, or leaves sooner at the least rate, is not worth a claim. That is what counts where there is no broker: everybody's share of the
/// link (B / N), or the rate to start with where that is lower.
const WORTH: u64 = 4 * SEGMENT as u64;
const WORTH_TIME: Duration = Duration::from_millis(1);

/// Between two steps of a broker at least: what happens meanwhile is settled at once.
const STEP: Duration = Duration::from_millis(1);

/// On the wire.
const EQUAL_SHARE: f64 = 65_536.0;
const UNKNOWN_US: u32 = u32::MAX;

/// The claims' way to the broker, or the broker itself.
pub(crate) struct Regulation {
    online: Online,
    node: NodeId,
    broker: Seat,
    /// The peers that much waits for.
    claimed: HashSet<ProcId>,
    /// Something may be to be told, settled or stepped.
    is_stirred: bool,
    /// The next look at the connections is arranged for.
    pub(crate) is_watching: bool,
    /// How many processes this cluster has.
    pub(crate) mates: u32,
}

/// Where the broker of this cluster is.
enum Seat {
    Here(Box<Seated>),
    At(ProcId),
    /// Nobody answers there.
    Empty,
}

struct Seated {
    broker: Broker,
    /// It does not step before then.
    next: Instant,
    /// When [`Due::Step`] comes.
    alarm: Option<Instant>,
}

impl Seated {
    /// When it is to be reminded of stepping, if that is not to come anyway. What is wanted now is not put off by being wanted again.
    fn alarm(&mut self, now: Instant) -> Option<Instant> {
        let is_wanted = self.broker.wants_step(now);
        let due = if is_wanted { Some(now) } else { self.broker.due() };
        let due = due?.max(self.next);
        if self.alarm.is_some_and(|alarm| alarm == due || is_wanted && alarm < due) {
            return None;
        }
        self.alarm = Some(due);
        self.alarm
    }
}

impl Regulation {
    pub(crate) fn new(online: Online, me: ProcId, now: Instant) -> Option<Self> {
        let node = *online.nodes.get(me.0 as usize)?;
        let cluster = online.network.cluster(node);
        let at = *online.brokers.get(cluster.index())?;
        let broker = if at == me {
            let mut broker = Broker::new(cluster, online.network.clone(), Parts::GRANTED);
            broker.join(me.0, node);
            Seat::Here(Box::new(Seated { broker, next: now, alarm: None }))
        } else {
            Seat::At(at)
        };
        let mates = online.nodes.iter().filter(|&&node| online.network.cluster(node) == cluster);
        let mates = mates.count() as u32;
        let claimed = HashSet::new();
        let (is_stirred, is_watching) = (false, false);
        Some(Self { online, node, broker, claimed, is_stirred, is_watching, mates })
    }

    /// The node of a process.
    pub(crate) fn node(&self, process: ProcId) -> NodeId {
        // Every process has one.
        self.online.nodes.get(process.0 as usize).copied().unwrap_or(self.node)
    }

    fn cluster(&self, process: ProcId) -> ClusterId {
        self.online.network.cluster(self.node(process))
    }

    /// What goes to a cluster, by its number, goes over this.
    pub(crate) fn path_to(&self, cluster: usize) -> Option<Path> {
        let Self { online: Online { network, .. }, node, .. } = self;
        let to = network.cluster_number(u32::try_from(cluster).ok()?)?;
        let link = network.between(network.cluster(*node), to);
        Some(Path { node: *node, interface: network.interface(*node), link })
    }

    /// Something may be to be told.
    pub(crate) fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Whether much waits for that peer, or the kernel may still have some of it.
    fn has_claimed(&self, peer: ProcId) -> bool {
        self.claimed.contains(&peer)
    }

    /// Whether it is of this cluster.
    pub(crate) fn is_near(&self, process: ProcId) -> bool {
        self.cluster(process) == self.online.network.cluster(self.node)
    }

    /// Whether that is our broker.
    fn obeys(&self, process: ProcId) -> bool {
        matches!(self.broker, Seat::At(at) if at == process)
    }

    /// An order as it came over the wire; `None` if it is nonsense.
    fn order_of(&self, word: Word) -> Option<Order> {
        let network = &self.online.network;
        Some(match word {
            Word::Grant(Grant { cluster, rate, node, is_settled, is_quiet }) => {
                let (to, rate) = (network.cluster_number(cluster)?, rate_of(rate)?);
                let node = rate_of(node)?;
                Order::Grant { to, grant: gridmpi_rate::Grant { rate, node, is_settled, is_quiet } }
            }
            Word::Start(Start { cluster, rate, short, link }) => {
                let (rate, short, link) = (rate_of(rate)?, rate_of(short)?, rate_of(link)?);
                let start = gridmpi_rate::Start { rate, short, link };
                Order::Start { to: network.cluster_number(cluster)?, start }
            }
            Word::Room(Room { cluster, rate }) => {
                Order::Room { to: network.cluster_number(cluster)?, rate: rate_of(rate)? }
            }
            Word::Share(Share { to, share }) if share > 0 => {
                Order::Share { to: network.node(to)?, share: f64::from(share) / EQUAL_SHARE }
            }
            Word::Share(_)
            | Word::Transfer(_)
            | Word::Seen(_)
            | Word::Demand(_)
            | Word::Part(_)
            | Word::Limit(_)
            | Word::Carries(_) => return None,
        })
    }

    /// What somebody says to the broker here. Nonsense changes nothing.
    fn hear_transfer(&mut self, from: ProcId, transfer: Transfer) {
        let (near, cluster, node) = (self.is_near(from), self.cluster(from), self.node(from));
        let network = &self.online.network;
        let (Some(sender), Some(to)) = (network.node(transfer.from), network.node(transfer.to))
        else {
            return;
        };
        let Seat::Here(seated) = &mut self.broker else { return };
        let Transfer { is_active, .. } = transfer;
        if near {
            seated.broker.join(from.0, node);
        }
        match (near, is_active) {
            (true, true) if sender == node => {
                seated.broker.begin(from.0, sender, to, Instant::now());
            }
            (true, false) if sender == node => seated.broker.end(from.0, sender, to),
            (false, _) if self.online.brokers.get(cluster.index()) == Some(&from) => {
                seated.broker.heard(cluster, Notice::Transfer { from: sender, to, is_active });
            }
            (_, _) => {}
        }
    }

    /// What the broker of another cluster says of a process there. Nonsense changes nothing.
    fn hear_rival(&mut self, from: ProcId, word: Word) {
        let cluster = self.cluster(from);
        if self.is_near(from) || self.online.brokers.get(cluster.index()) != Some(&from) {
            return;
        }
        let notice = self.notice_of(cluster, word);
        if let (Seat::Here(seated), Some(notice)) = (&mut self.broker, notice) {
            seated.broker.heard(cluster, notice);
        }
    }

    /// A word about a process or a link of a cluster, if it is one of its.
    fn notice_of(&self, cluster: ClusterId, word: Word) -> Option<Notice> {
        let network = &self.online.network;
        let node = |process: u32| self.online.nodes.get(process as usize).copied();
        match word {
            Word::Part(Part { from, to, process, is_active }) => {
                let (from, to) = (network.node(from)?, network.node(to)?);
                let is_its = node(process) == Some(from);
                is_its.then_some(Notice::Part { from, to, process, is_active })
            }
            Word::Limit(Limit { process, cluster: to, rate }) => {
                let (to, rate) = (network.cluster_number(to)?, rate_of(rate)?);
                let is_its = network.cluster(node(process)?) == cluster;
                is_its.then_some(Notice::Limit { process, to, rate })
            }
            Word::Carries(Carries { cluster: to, rate }) => {
                let (to, rate) = (network.cluster_number(to)?, rate_of(rate)?);
                (to != cluster).then_some(Notice::Link { to, rate })
            }
            _ => None,
        }
    }

    /// What a process of this cluster says of a link.
    fn hear_seen(&mut self, from: ProcId, seen: gridmpi_wire::Seen) {
        let gridmpi_wire::Seen { cluster, arrived, resent, queued } = seen;
        if !self.is_near(from) {
            return;
        }
        let queued = (queued != UNKNOWN_US).then(|| Duration::from_micros(queued.into()));
        self.note_seen(cluster, Seen { arrived, resent, queued }, Instant::now());
    }

    /// A process of this cluster has seen this of a link; for the broker, if it is here.
    fn note_seen(&mut self, cluster: u32, seen: Seen, now: Instant) {
        let to = self.online.network.cluster_number(cluster);
        if let (Seat::Here(seated), Some(to)) = (&mut self.broker, to) {
            seated.broker.seen(to, seen, Seen::every(self.mates), now);
        }
    }

    /// What a process of this cluster says that it can use.
    fn hear_demand(&mut self, from: ProcId, demand: Demand) {
        let Demand { cluster, rate } = demand;
        if !self.is_near(from) {
            return;
        }
        let to = self.online.network.cluster_number(cluster);
        if let (Seat::Here(seated), Some(to), Some(rate)) = (&mut self.broker, to, rate_of(rate)) {
            seated.broker.demand(from.0, to, rate);
        }
    }

    /// People are told what links have turned out to carry.
    fn tell_corrections(&mut self) {
        let Seat::Here(seated) = &mut self.broker else { return };
        let name =
            |cluster: ClusterId| self.online.names.get(cluster.index()).map_or("?", String::as_str);
        for Correction { to, said, found } in seated.broker.corrections() {
            let [said, found] = [said, found].map(|rate| rate.bits_per_second() / 1e6);
            let (from, to) = (name(self.online.network.cluster(self.node)), name(to));
            (self.online.warn)(&format!(
                "the link from cluster `{from}` to `{to}` carries about {found:.3} Mbit/s, as its connections see it, not {said:.3} \
                 as the job has it: going on with that; put right `bandwidth` in its [[link]], or \
                 the `uplink_bandwidth` of one of them that says so"
            ));
        }
    }
}

impl State {
    /// Something is to go to `peer` of a cluster that is paced: how fast, and whether the broker is to know. `takes`: whether the path takes so many bytes
    /// as fast as they are handed over.
    pub(crate) fn claim(&mut self, cluster: u16, peer: ProcId, takes: impl FnOnce(u64) -> bool) {
        let Some(regulation) = &self.regulation else { return };
        let backlog = self.endpoint.unwritten_bytes(peer);
        let is_claimed = regulation.has_claimed(peer);
        if backlog == 0 {
            return;
        }
        let is_open = self.hurry(cluster, backlog, takes);
        if is_claimed && !self.is_leaving(cluster, peer)
            || self.is_brief(cluster, (peer, is_open), backlog)
            || self.goes_on(cluster, peer)
        {
            self.grow(cluster, backlog);
            return;
        }
        let Some(regulation) = &mut self.regulation else { return };
        let Some(paced) = self.paces.get(cluster) else { return };
        regulation.claimed.insert(peer);
        regulation.is_stirred = true;
        let now = Instant::now();
        paced.claims.begin(regulation.node(peer), peer.0, wire_bits(backlog), now);
        paced.tells = TELLS;
        // What the kernel has leaves as it was to: of what does not keep to the rate it is little.
        paced.follow_claims(now);
        let hurries = matches!(paced.claims.pace(), Pace::Interface(_));
        self.watch(now);
        if !hurries {
            self.announce(now);
        }
    }

    /// A claim leaves before what it is for, unless that goes whatever is granted: to hand a turn to the kernel takes longer than the broker takes to
    /// decide.
    fn announce(&mut self, now: Instant) {
        let Some(Regulation { broker: Seat::At(broker), .. }) = self.regulation else { return };
        if self.tell_claims(now) {
            self.transmit(broker);
        }
    }

    /// Whether much waits for `peer`, or the kernel may still have some of it.
    pub(crate) fn has_claimed(&self, peer: ProcId) -> bool {
        self.regulation.as_ref().is_some_and(|regulation| regulation.has_claimed(peer))
    }

    /// Whether so many bytes to a cluster that is paced take long enough.
    pub(crate) fn is_worth_a_claim(&mut self, cluster: u16, bytes: u64) -> bool {
        let Some(paced) = self.paces.get(cluster) else { return false };
        let in_time = paced.claims.least().bits_per_second() * WORTH_TIME.as_secs_f64();
        bytes > WORTH && bytes as f64 * 8.0 > in_time
    }

    /// So many bytes are all that waits for somebody: they may go faster than the rate, little as they are. Whether the path takes them, which is no matter
    /// where nothing may hurry.
    fn hurry(&mut self, cluster: u16, backlog: u64, takes: impl FnOnce(u64) -> bool) -> bool {
        let may_hurry = |paced: &&mut Paced| paced.claims.may_hurry();
        let Some(paced) = self.paces.get(cluster).filter(may_hurry) else { return false };
        let (is_open, now) = (takes(backlog), Instant::now());
        paced.claims.hurry(wire_bits(backlog), is_open, now);
        paced.follow_claims(now);
        is_open
    }

    /// So many bytes are all that waits for somebody, for whom nothing more is claimed; perhaps something is for others.
    fn grow(&mut self, cluster: u16, backlog: u64) {
        if let Some(paced) = self.paces.get(cluster)
            && paced.claims.grow(wire_bits(backlog))
        {
            // What the kernel has leaves as it was to.
            paced.follow_claims(Instant::now());
        }
    }

    /// Whether what waits for `peer` is over so soon that nobody has to know.
    fn is_brief(&mut self, cluster: u16, (peer, is_open): (ProcId, bool), backlog: u64) -> bool {
        let now = Instant::now();
        let is_worth = self.is_worth_a_claim(cluster, backlog);
        let Some(paced) = self.paces.get(cluster) else { return false };
        if !is_worth {
            let is_held = matches!(paced.claims.pace(), Pace::Held(_));
            return !is_held || !self.is_much_waiting(cluster);
        }
        let bits = wire_bits(backlog);
        paced.pacer.is_alone(peer) && paced.claims.is_brief(bits, is_open, now)
    }

    /// Whether all that waits for turns towards a cluster is worth a claim, little as each of its processes is sent.
    fn is_much_waiting(&mut self, cluster: u16) -> bool {
        let Some(paced) = self.paces.get(cluster) else { return false };
        let waiting = paced.pacer.waiting().map(|peer| self.endpoint.unwritten_bytes(peer)).sum();
        self.is_worth_a_claim(cluster, waiting)
    }

    /// Makes the connection to the broker before it is needed.
    pub(crate) fn greet_broker(&mut self) {
        let Some(regulation) = &self.regulation else { return };
        if let Seat::At(at) = regulation.broker {
            // The end of a transfer that never was.
            let node = regulation.node;
            self.endpoint.tell(at, transfer(node, node, false));
        }
    }

    /// The kernel has all that there is for `peer` of a cluster that is paced: the claim ends when that has left, since others are
    /// granted at once what is not claimed.
    pub(crate) fn end_when_gone(&mut self, cluster: u16, peer: ProcId) {
        if !self.has_claimed(peer) {
            return;
        }
        if let Some(paced) = self.paces.get(cluster) {
            paced.pacer.leave(peer);
        }
        self.arm_turn(cluster);
    }

    pub(crate) fn is_leaving(&mut self, cluster: u16, peer: ProcId) -> bool {
        self.paces
            .get(cluster)
            .is_some_and(|paced| paced.pacer.leaving().any(|other| other == peer))
    }

    /// There is more for `peer`. Whether it is claimed still: where nothing waits for anybody any more all begins anew, at what transfers
    /// begin with, since others may, too. Who is young may have no more than a new one as it is.
    fn goes_on(&mut self, cluster: u16, peer: ProcId) -> bool {
        let (Some(paced), Some(regulation)) = (self.paces.get(cluster), &self.regulation) else {
            return false;
        };
        let leaving: Vec<_> = paced.pacer.leaving().collect();
        if leaving.len() < paced.claims.users() || paced.claims.is_young() {
            paced.pacer.stay(peer);
            return regulation.has_claimed(peer);
        }
        leaving.into_iter().for_each(|other| self.unclaim(other));
        false
    }

    /// Claims end of those whose last bytes have left.
    pub(crate) fn end_claims(&mut self, cluster: u16) {
        let now = Instant::now();
        while let Some(peer) = self.paces.get(cluster).and_then(|paced| paced.pacer.gone(now)) {
            let kept = self.unsent_for(peer);
            match self.paces.get(cluster) {
                // Its window was shut, or the kernel lost time.
                Some(paced) if kept > SEGMENT => paced.pacer.linger(peer, kept),
                _ => self.unclaim(peer),
            }
        }
    }

    /// Nothing more leaves for `peer`, or it cannot be reached.
    pub(crate) fn unclaim(&mut self, peer: ProcId) {
        let Some(regulation) = &mut self.regulation else { return };
        if !regulation.claimed.remove(&peer) {
            return;
        }
        regulation.is_stirred = true;
        let cluster = self.paces.cluster_of(peer);
        if let Some(paced) = cluster.and_then(|cluster| self.paces.get(cluster)) {
            paced.pacer.stay(peer);
            paced.claims.end(regulation.node(peer), peer.0);
        }
    }

    /// Carries words between claims and broker. Whether something was said to others. `looked`: what the sockets had then is
    /// known, so that the broker may decide, as of then: others may have begun since.
    pub(crate) fn regulate(&mut self, looked: Option<Instant>) -> bool {
        while let Some((from, word)) = self.endpoint.heard() {
            self.hear(from, word);
        }
        let is_stirred = |regulation: &mut Regulation| std::mem::take(&mut regulation.is_stirred);
        if !self.regulation.as_mut().is_some_and(is_stirred) {
            return false;
        }
        let now = Instant::now();
        let has_claimed = self.tell_claims(now);
        let has_ordered = self.step(looked, now);
        if let Some(regulation) = &mut self.regulation {
            regulation.tell_corrections();
        }
        self.follow_claims(now);
        has_claimed || has_ordered
    }

    /// The time for the broker has come.
    pub(crate) fn step_due(&mut self) {
        let Some(regulation) = &mut self.regulation else { return };
        regulation.is_stirred = true;
        if let Seat::Here(seated) = &mut regulation.broker {
            seated.alarm = None;
        }
    }

    fn hear(&mut self, from: ProcId, word: Word) {
        let Some(regulation) = &mut self.regulation else { return };
        if self.peers.get(&from).is_some_and(|peer| peer.is_lost) {
            // What it had said before would stand for good.
            return;
        }
        regulation.is_stirred = true;
        if let Word::Transfer(transfer) = word {
            regulation.hear_transfer(from, transfer);
        } else if let Word::Seen(seen) = word {
            regulation.hear_seen(from, seen);
        } else if let Word::Demand(demand) = word {
            regulation.hear_demand(from, demand);
        } else if let Word::Part(_) | Word::Limit(_) | Word::Carries(_) = word {
            regulation.hear_rival(from, word);
        } else if regulation.obeys(from)
            && let Some(order) = regulation.order_of(word)
        {
            self.obey(order);
        }
    }

    /// Does what the broker says.
    fn obey(&mut self, order: Order) {
        let Some(regulation) = &self.regulation else { return };
        let cluster = u16::try_from(order.cluster(&regulation.online.network).index()).ok();
        let Some(paced) = cluster.and_then(|cluster| self.paces.get(cluster)) else { return };
        let is_a_grant = paced.claims.obey(order, Instant::now());
        self.counts.grants += u64::from(is_a_grant);
    }

    /// Tells the broker what is to be told; whether that is another process.
    fn tell_claims(&mut self, now: Instant) -> bool {
        let Some(regulation) = &mut self.regulation else { return false };
        let told: Vec<Claimed> =
            self.paces.iter_mut().flat_map(|paced| paced.claims.told()).collect();
        let (me, from) = (self.config.me, regulation.node);
        for &Claimed { to, is_active } in &told {
            match &mut regulation.broker {
                Seat::Here(seated) if is_active => seated.broker.begin(me.0, from, to, now),
                Seat::Here(seated) => seated.broker.end(me.0, from, to),
                Seat::At(at) => self.endpoint.tell(*at, transfer(from, to, is_active)),
                Seat::Empty => {}
            }
        }
        let has_demanded = self.tell_demands();
        let is_elsewhere = |r: &Regulation| matches!(r.broker, Seat::At(_));
        has_demanded || (!told.is_empty() && self.regulation.as_ref().is_some_and(is_elsewhere))
    }

    /// Tells the broker what is used of grants; whether that is another process.
    fn tell_demands(&mut self) -> bool {
        let Some(regulation) = &mut self.regulation else { return false };
        let network = &regulation.online.network;
        let mut has_told = false;
        for cluster in 0..self.paces.clusters() as u32 {
            let paced = u16::try_from(cluster).ok().and_then(|cluster| self.paces.get(cluster));
            let Some(rate) = paced.and_then(|paced| paced.claims.demand()) else { continue };
            match (&mut regulation.broker, network.cluster_number(cluster)) {
                (Seat::Here(seated), Some(to)) => seated.broker.demand(self.config.me.0, to, rate),
                (Seat::At(at), _) => {
                    let word = Word::Demand(Demand { cluster, rate: bits_of(rate) });
                    self.endpoint.tell(*at, word);
                    has_told = true;
                }
                _ => {}
            }
        }
        has_told
    }

    /// What was seen of the connections to a cluster is for the broker.
    pub(crate) fn tell_seen(&mut self, cluster: u16, seen: Seen, now: Instant) {
        let Some(regulation) = &mut self.regulation else { return };
        regulation.is_stirred = true;
        let cluster = u32::from(cluster);
        regulation.note_seen(cluster, seen, now);
        if let Seat::At(at) = regulation.broker {
            let Seen { arrived, resent, queued } = seen;
            let queued = queued.map_or(UNKNOWN_US, microseconds);
            let word = Word::Seen(gridmpi_wire::Seen { cluster, arrived, resent, queued });
            self.endpoint.tell(at, word);
        }
    }

    /// The broker here, if it is here, orders and tells the others. Whether it said something.
    fn step(&mut self, looked: Option<Instant>, now: Instant) -> bool {
        let Some(Regulation { broker: Seat::Here(seated), online, .. }) = &mut self.regulation
        else {
            return false;
        };
        let may_step = |at: &Instant| *at >= seated.next && seated.broker.wants_step(*at);
        let Some(looked) = looked.filter(may_step) else {
            if let Some(due) = seated.alarm(now) {
                self.timers.move_to(due, Due::Step);
            }
            return false;
        };
        let before = processor_time();
        let (orders, notices) = (seated.broker.step(looked), seated.broker.notices());
        // A broker of very many takes a quarter of the time at most. That others had the processor meanwhile does not keep it from the next step.
        seated.next = looked + STEP.max(4 * processor_time().saturating_sub(before));
        for (cluster, notice) in &notices {
            if let Some(&at) = online.brokers.get(cluster.index()) {
                self.endpoint.tell(at, notice_word(*notice));
            }
        }
        if let Some(due) = seated.alarm(now) {
            self.timers.move_to(due, Due::Step);
        }
        let has_told = !orders.is_empty() || !notices.is_empty();
        for (process, order) in orders {
            if process == self.config.me.0 {
                self.obey(order);
            } else {
                self.endpoint.tell(ProcId(process), word_of(order));
            }
        }
        has_told
    }

    /// A process that only rates are spoken of with cannot be reached: rates do without it. Unless it has ended it may go on without us.
    pub(crate) fn lose_near(&mut self, peer: ProcId, reason: &str, has_ended: bool) {
        let Some(regulation) = &mut self.regulation else { return };
        regulation.is_stirred = true;
        let node = regulation.node(peer);
        match &mut regulation.broker {
            Seat::Here(seated) if has_ended => seated.broker.lost(peer.0),
            Seat::Here(seated) => seated.broker.cut_off(peer.0, node),
            Seat::At(at) if *at == peer => {
                regulation.broker = Seat::Empty;
                self.paces.iter_mut().for_each(|paced| paced.claims.forsake());
                (regulation.online.warn)(&format!(
                    "{peer}, the rate broker of this cluster, cannot be reached any more ({reason}): this \
                     process sends to other clusters at an equal share of the link from now on"
                ));
            }
            _ => {}
        }
    }

    /// The broker of another cluster, perhaps, is gone: what it has told counts no longer.
    pub(crate) fn lose_far(&mut self, peer: ProcId) {
        let Some(regulation) = &mut self.regulation else { return };
        let cluster = regulation.cluster(peer);
        if let Seat::Here(seated) = &mut regulation.broker
            && regulation.online.brokers.get(cluster.index()) == Some(&peer)
        {
            seated.broker.deaf_to(cluster);
            regulation.is_stirred = true;
        }
    }
}

/// What this thread has had of processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A transfer begins or ends.
fn transfer(from: NodeId, to: NodeId, is_active: bool) -> Word {
    Word::Transfer(Transfer { from: from.index() as u32, to: to.index() as u32, is_active })
}

/// A notice as it goes over the wire.
fn notice_word(notice: Notice) -> Word {
    match notice {
        Notice::Transfer { from, to, is_active } => transfer(from, to, is_active),
        Notice::Part { from, to, process, is_active } => {
            let (from, to) = (from.index() as u32, to.index() as u32);
            Word::Part(Part { from, to, process, is_active })
        }
        Notice::Limit { process, to, rate } => {
            Word::Limit(Limit { process, cluster: to.index() as u32, rate: bits_of(rate) })
        }
        Notice::Link { to, rate } => {
            Word::Carries(Carries { cluster: to.index() as u32, rate: bits_of(rate) })
        }
    }
}

/// An order as it goes over the wire.
fn word_of(order: Order) -> Word {
    match order {
        Order::Grant { to, grant: gridmpi_rate::Grant { rate, node, is_settled, is_quiet } } => {
            let [rate, node] = [rate, node].map(bits_of);
            Word::Grant(Grant { cluster: to.index() as u32, rate, node, is_settled, is_quiet })
        }
        Order::Start { to, start: gridmpi_rate::Start { rate, short, link } } => {
            let [rate, short, link] = [rate, short, link].map(bits_of);
            Word::Start(Start { cluster: to.index() as u32, rate, short, link })
        }
        Order::Room { to, rate } => {
            Word::Room(Room { cluster: to.index() as u32, rate: bits_of(rate) })
        }
        Order::Share { to, share } => {
            // The conversion saturates.
            let share = (share * EQUAL_SHARE).ceil() as u32;
            Word::Share(Share { to: to.index() as u32, share })
        }
    }
}

/// Rounded up: 0 is no rate.
fn bits_of(rate: Rate) -> u64 {
    // The conversion saturates: all ones are no bound.
    rate.bits_per_second().ceil() as u64
}

/// As the wire has it; less than what stands for not known.
fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).min(UNKNOWN_US - 1)
}

fn rate_of(bits: u64) -> Option<Rate> {
    if bits == u64::MAX { Some(Rate::UNBOUNDED) } else { Rate::from_bits_per_second(bits as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_rate::Network;

    /// The broker of the first of three clusters of a node each, the second with two processes.
    fn regulation() -> Regulation {
        let mut network = Network::new();
        let clusters = [(); 3].map(|()| network.add_cluster());
        let nodes = clusters.map(|cluster| network.add_node(cluster, Rate::UNBOUNDED));
        let [a, b, c] = nodes;
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let (brokers, nodes) = ([0, 1, 3].map(ProcId).to_vec(), vec![a, b, b, c]);
        let online = Online { network, nodes, brokers, names, warn: |_| {} };
        Regulation::new(online, ProcId(0), Instant::now()).unwrap()
    }

    #[test]
    fn what_a_broker_says_of_others_processes_is_nonsense() {
        let regulation = regulation();
        let cluster = regulation.cluster(ProcId(1));
        let part = |from, to, process| Word::Part(Part { from, to, process, is_active: true });
        let limit = |process, cluster, rate| Word::Limit(Limit { process, cluster, rate });
        let is_heard = |word| regulation.notice_of(cluster, word).is_some();
        assert!(is_heard(part(1, 2, 1)) && is_heard(part(1, 0, 2)));
        assert!(is_heard(limit(2, 0, 1_000_000)) && is_heard(limit(1, 2, u64::MAX)));
        // Of another node or cluster, or none; to nowhere; at no rate.
        assert!(!is_heard(part(1, 2, 0)) && !is_heard(part(1, 2, 77)) && !is_heard(part(7, 2, 1)));
        assert!(!is_heard(part(1, 7, 1)) && !is_heard(limit(3, 0, 1)) && !is_heard(limit(9, 0, 1)));
        assert!(!is_heard(limit(1, 9, 1)) && !is_heard(limit(1, 0, 0)));
        let carries = |cluster, rate| Word::Carries(Carries { cluster, rate });
        assert!(is_heard(carries(0, 1_000_000)) && is_heard(carries(2, u64::MAX)));
        assert!(!is_heard(carries(1, 1_000_000)) && !is_heard(carries(3, 1)));
        assert!(!is_heard(carries(0, 0)));
        assert!(!is_heard(transfer(regulation.node(ProcId(1)), regulation.node, true)));
    }
}
