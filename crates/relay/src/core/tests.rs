//! Several relays in a small world of their own: processes that send and read as chance will have it, connections that carry
//! as much as they please, and everything that must hold looked at after each step.

mod beside;
mod deaf;
mod jobs;
mod shares;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use gridmpi_wire::{CircuitId, Errand, LegRequest, LegVerdict, ProcId};
use proptest::prelude::*;

use super::circuit::Side;
use super::*;
use crate::cell::{Cell, RelayId, Span};

const JOB: JobId = [1; 16];

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A process's end of a leg.
#[derive(Debug, Default)]
struct FakeLeg {
    link: Option<LinkKey>,
    /// Sent by the process and not read by the relay.
    sent: VecDeque<u8>,
    has_ended: bool,
    /// The end was read.
    end_seen: bool,
    /// What has come, and how much more it takes.
    got: Vec<u8>,
    room: usize,
    is_blocked: bool,
    answer: Option<LegVerdict>,
    got_end: bool,
    is_reset: bool,
    is_closed: bool,
    notices: VecDeque<(ProcId, CircuitId)>,
    told: Vec<RelayAddress>,
}

#[derive(Debug)]
struct FakeTrunk {
    link: LinkKey,
    far: (usize, u64),
    /// On the way to the far side.
    on_way: VecDeque<u8>,
    is_blocked: bool,
    is_dead: bool,
}

/// What a trunk takes before it says that it is full.
const PIPE: usize = 50_000;

#[derive(Debug, Default)]
struct Fake {
    legs: BTreeMap<u64, FakeLeg>,
    trunks: BTreeMap<u64, FakeTrunk>,
    pulled: Vec<u8>,
    most_pulled: usize,
    is_pushed: bool,
}

impl Wires for Fake {
    fn pull(&mut self, wire: Wire, most: usize) -> Pull {
        if std::mem::take(&mut self.is_pushed) {
            self.pulled.clear();
        }
        assert!(most > 0);
        let leg = self.legs.get_mut(&wire.0).unwrap();
        assert!(!leg.is_closed && !leg.end_seen);
        if leg.sent.is_empty() {
            leg.end_seen = leg.has_ended;
            return if leg.has_ended { Pull::End } else { Pull::Empty };
        }
        let count = most.min(leg.sent.len());
        let start = self.pulled.len();
        self.pulled.extend(leg.sent.drain(..count));
        self.most_pulled = self.most_pulled.max(self.pulled.len());
        Pull::Bytes { range: start..start + count, is_last: leg.sent.is_empty() && !leg.has_ended }
    }

    fn pulled(&self, range: Range<usize>) -> &[u8] {
        &self.pulled[range]
    }

    fn push(&mut self, wire: Wire, pieces: &[Piece<'_>]) -> Pushed {
        self.is_pushed = true;
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Head(head) => bytes.extend_from_slice(head),
                Piece::Slice(slice) => bytes.extend_from_slice(slice),
                Piece::Pulled(range) => bytes.extend_from_slice(&self.pulled[range.clone()]),
                Piece::Held(held) => bytes.extend_from_slice(held),
            }
        }
        assert!(pieces.len() <= 1024, "more than one system call takes");
        if let Some(trunk) = self.trunks.get_mut(&wire.0) {
            assert!(!trunk.is_blocked);
            trunk.on_way.extend(&bytes);
            trunk.is_blocked = trunk.on_way.len() > PIPE;
            return Pushed { bytes: bytes.len(), is_blocked: trunk.is_blocked };
        }
        let leg = self.legs.get_mut(&wire.0).unwrap();
        assert!(leg.answer == Some(LegVerdict::Accepted) && !leg.got_end && !leg.is_closed);
        let count = bytes.len().min(leg.room);
        leg.got.extend_from_slice(&bytes[..count]);
        leg.room -= count;
        leg.is_blocked = count < bytes.len();
        Pushed { bytes: count, is_blocked: leg.is_blocked }
    }

    fn act(&mut self, action: Action) {
        let (Action::Answer(wire, _)
        | Action::Notice(wire, _)
        | Action::Shutdown(wire)
        | Action::Close(wire)
        | Action::Reset(wire)
        | Action::Dead(wire)
        | Action::Deaf(wire)) = action;
        if let Some(trunk) = self.trunks.get_mut(&wire.0) {
            assert!(matches!(action, Action::Dead(_) | Action::Deaf(_)));
            trunk.is_dead = true;
            return;
        }
        let leg = self.legs.get_mut(&wire.0).unwrap();
        assert!(!leg.is_closed, "something is said of what is closed");
        match action {
            Action::Answer(_, verdict) => {
                assert!(leg.answer.is_none(), "answered twice");
                leg.answer = Some(verdict);
                leg.is_closed = verdict != LegVerdict::Accepted;
            }
            Action::Notice(_, LegNotice::Called { from, circuit }) => {
                leg.notices.push_back((from, circuit));
            }
            Action::Notice(_, LegNotice::Beside(relay)) => leg.told.push(relay),
            Action::Shutdown(_) => leg.got_end = true,
            Action::Close(_) => leg.is_closed = true,
            Action::Reset(_) => {
                leg.is_closed = true;
                leg.is_reset = true;
            }
            Action::Dead(_) | Action::Deaf(_) => panic!("a leg is not dead"),
        }
    }
}

struct Node {
    core: Core,
    fake: Fake,
}

struct World {
    nodes: Vec<Node>,
    next: u64,
    now: Duration,
}

/// A process's leg: at which relay, which wire.
type At = (usize, u64);

impl World {
    fn new(count: usize, limits: &Limits) -> Self {
        let node = |n: usize| Node {
            core: Core::new(RelayId([n as u8; 16]), limits.clone()),
            fake: Fake::default(),
        };
        Self { nodes: (0..count).map(node).collect(), next: 1, now: Duration::ZERO }
    }

    fn flush(&mut self, node: usize) {
        let Node { core, fake } = &mut self.nodes[node];
        core.flush(&[], fake);
        while core.has_more() {
            core.flush(&[], fake);
        }
        core.take_sooner();
    }

    fn join(&mut self, a: usize, b: usize) -> [u64; 2] {
        let wires = [self.next, self.next + 1];
        self.next += 2;
        for (index, (node, far)) in [(a, b), (b, a)].into_iter().enumerate() {
            let Node { core, fake } = &mut self.nodes[node];
            let name = RelayId([far as u8; 16]);
            let link = core.trunk_up(Wire(wires[index]), (name, name.into()), index == 0, None);
            let trunk = FakeTrunk {
                link,
                far: (far, wires[1 - index]),
                on_way: VecDeque::new(),
                is_blocked: false,
                is_dead: false,
            };
            fake.trunks.insert(wires[index], trunk);
            self.flush(node);
        }
        wires
    }

    fn cut(&mut self, node: usize, wire: u64) {
        let Some(trunk) = self.nodes[node].fake.trunks.remove(&wire) else { return };
        self.nodes[node].core.gone(trunk.link);
        self.flush(node);
        let (far, wire) = trunk.far;
        if let Some(trunk) = self.nodes[far].fake.trunks.remove(&wire) {
            self.nodes[far].core.gone(trunk.link);
            self.flush(far);
        }
    }

    fn ask(&mut self, node: usize, from: u32, errand: Errand) -> At {
        self.ask_in(JOB, node, from, errand)
    }

    fn ask_in(&mut self, job: JobId, node: usize, from: u32, errand: Errand) -> At {
        let wire = self.next;
        self.next += 1;
        let Node { core, fake } = &mut self.nodes[node];
        fake.legs.insert(wire, FakeLeg { room: usize::MAX, ..FakeLeg::default() });
        let request = LegRequest { errand, job, from: ProcId(from), mac: [0; 32] };
        let link = core.ask(Wire(wire), &request);
        fake.legs.get_mut(&wire).unwrap().link = link;
        self.flush(node);
        (node, wire)
    }

    fn leg(&mut self, (node, wire): At) -> &mut FakeLeg {
        self.nodes[node].fake.legs.get_mut(&wire).unwrap()
    }

    fn send(&mut self, at: At, bytes: &[u8]) {
        self.leg(at).sent.extend(bytes);
        self.readable(at);
    }

    fn end(&mut self, at: At) {
        self.leg(at).has_ended = true;
        self.readable(at);
    }

    fn readable(&mut self, at: At) {
        let leg = self.leg(at);
        if let (Some(link), false) = (leg.link, leg.is_closed) {
            self.nodes[at.0].core.readable(link);
            self.flush(at.0);
        }
    }

    fn give_room(&mut self, at: At, room: usize) {
        let leg = self.leg(at);
        leg.room = leg.room.saturating_add(room);
        let link = leg.link;
        if std::mem::take(&mut leg.is_blocked)
            && let Some(link) = link
        {
            self.nodes[at.0].core.writable(link);
            self.flush(at.0);
        }
    }

    fn reset(&mut self, at: At) {
        let leg = self.leg(at);
        if let (Some(link), false) = (leg.link, leg.is_closed) {
            leg.is_closed = true;
            self.nodes[at.0].core.gone(link);
            self.flush(at.0);
        }
    }

    /// Carries up to `most` bytes on a trunk.
    fn carry(&mut self, node: usize, wire: u64, most: usize) -> bool {
        let Some(trunk) = self.nodes[node].fake.trunks.get_mut(&wire) else { return false };
        let count = most.min(trunk.on_way.len());
        if count == 0 {
            return false;
        }
        let bytes: Vec<u8> = trunk.on_way.drain(..count).collect();
        let (far, far_wire) = trunk.far;
        if trunk.is_blocked && trunk.on_way.len() <= PIPE {
            trunk.is_blocked = false;
            let link = trunk.link;
            self.nodes[node].core.writable(link);
            self.flush(node);
        }
        let Node { core, fake } = &mut self.nodes[far];
        let link = fake.trunks[&far_wire].link;
        core.receive(link, &bytes, 0..bytes.len()).unwrap();
        core.flush(&bytes, fake);
        self.flush(far);
        true
    }

    /// Carries everything until nothing is on its way.
    fn settle(&mut self) {
        loop {
            let mut has_moved = false;
            for node in 0..self.nodes.len() {
                let wires: Vec<u64> = self.nodes[node].fake.trunks.keys().copied().collect();
                for wire in wires {
                    has_moved |= self.carry(node, wire, usize::MAX);
                }
            }
            if !has_moved {
                return;
            }
        }
    }

    fn pass_time(&mut self, time: Duration) {
        self.now += time;
        for node in 0..self.nodes.len() {
            self.nodes[node].core.at(self.now);
            self.nodes[node].core.tick();
            self.flush(node);
        }
    }

    /// What must hold at all times.
    fn check(&self) {
        for Node { core, fake } in &self.nodes {
            core.check();
            assert!(fake.most_pulled <= BATCH);
        }
    }

    fn check_empty(&self) {
        for Node { core, .. } in &self.nodes {
            assert_eq!((core.circuits.len(), core.budget.used()), (0, 0));
            assert!(core.until.is_empty() && core.waiting.is_empty() && core.fresh.is_empty());
            for (_, link) in core.links.iter() {
                match &link.kind {
                    Kind::Trunk(trunk) => assert!(trunk.numbers.is_empty()),
                    Kind::Registered { .. } => {}
                    Kind::Leg { .. } => panic!("a leg without a circuit"),
                }
            }
        }
    }

    fn register(&mut self, node: usize, me: u32) -> At {
        let errand = Errand::Register { first: ProcId(me), count: 1 };
        let at = self.ask(node, me, errand);
        self.settle();
        at
    }

    /// A circuit: both processes' legs.
    fn circuit(&mut self, from: (usize, u32), to: (usize, u32), registered: At) -> Option<[At; 2]> {
        let a = self.ask(from.0, from.1, Errand::Open { to: ProcId(to.1) });
        self.settle();
        let (_, circuit) = self.leg(registered).notices.pop_front()?;
        let b = self.ask(to.0, to.1, Errand::Accept { circuit });
        self.settle();
        (self.leg(b).answer == Some(LegVerdict::Accepted)).then_some([a, b])
    }
}

fn byte(circuit: usize, side: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(17) ^ circuit.wrapping_mul(101) ^ (side * 57))
        as u8
}

/// One direction of a circuit as its sender and its reader see it.
#[derive(Clone, Copy)]
struct Way {
    from: At,
    to: At,
    circuit: usize,
    side: usize,
    sent: usize,
    has_ended: bool,
}

impl Way {
    fn send(&mut self, world: &mut World, count: usize) {
        if world.leg(self.from).is_closed || self.has_ended {
            return;
        }
        let bytes: Vec<u8> =
            (self.sent..self.sent + count).map(|at| byte(self.circuit, self.side, at)).collect();
        self.sent += count;
        world.send(self.from, &bytes);
    }

    fn check(&self, world: &mut World) {
        let got = &world.leg(self.to).got;
        assert!(got.len() <= self.sent);
        let is_right =
            got.iter().enumerate().all(|(at, b)| *b == byte(self.circuit, self.side, at));
        assert!(is_right, "other bytes than were sent");
    }
}

fn line(relays: usize, limits: &Limits) -> (World, Vec<[u64; 2]>) {
    let mut world = World::new(relays, limits);
    let joints =
        (1..relays).map(|n| if n % 2 == 0 { world.join(n - 1, n) } else { world.join(n, n - 1) });
    let joints = joints.collect();
    world.settle();
    (world, joints)
}

fn ways(world: &mut World, relays: usize, circuits: usize, room: usize) -> Vec<Way> {
    let registered = world.register(relays - 1, 100);
    let mut ways = Vec::new();
    for circuit in 0..circuits {
        let [a, b] = world.circuit((0, circuit as u32), (relays - 1, 100), registered).unwrap();
        for (side, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
            world.leg(to).room = room;
            ways.push(Way { from, to, circuit, side, sent: 0, has_ended: false });
        }
    }
    ways
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn every_byte_arrives_in_order_and_nothing_is_held_beyond_its_window(
        relays in 1usize..5,
        circuits in 1usize..5,
        seed in 1u64..,
    ) {
        // Connections here stand still for as long as chance will have it.
        let dead = Duration::from_secs(3600);
        let limits = Limits { memory: 2_000_000, dead, ..Limits::default() };
        let (mut world, _) = line(relays, &limits);
        let mut ways = ways(&mut world, relays, circuits, 0);
        let mut chance = Chance(seed);
        for _ in 0..300 {
            let index = chance.below(ways.len());
            match chance.below(6) {
                0 => { let count = 1 + chance.below(20); ways[index].send(&mut world, count) }
                1 => { let count = 1 + chance.below(100_000); ways[index].send(&mut world, count) }
                2 => { let room = chance.below(80_000); world.give_room(ways[index].to, room) }
                3 if chance.one_in(10) => {
                    if !std::mem::replace(&mut ways[index].has_ended, true) {
                        world.end(ways[index].from);
                    }
                }
                4 if chance.one_in(10) => { let ms = chance.below(3000) as u64; world.pass_time(Duration::from_millis(ms.min(400))) }
                _ => {
                    let node = chance.below(relays);
                    let wires: Vec<u64> = world.nodes[node].fake.trunks.keys().copied().collect();
                    if !wires.is_empty() {
                        let most = if chance.one_in(3) { 1 + chance.below(30) } else { 100_000 };
                        world.carry(node, wires[chance.below(wires.len())], most);
                    }
                }
            }
            world.check();
        }
        for way in &mut ways {
            world.give_room(way.to, usize::MAX);
            if !way.has_ended {
                way.has_ended = true;
                world.end(way.from);
            }
        }
        world.settle();
        world.check();
        for way in &ways {
            way.check(&mut world);
            let leg = world.leg(way.to);
            prop_assert_eq!(leg.got.len(), way.sent);
            prop_assert!(leg.got_end && !leg.is_reset);
        }
        world.check_empty();
    }

    #[test]
    fn whatever_is_cut_both_ends_are_told_and_nothing_is_left(
        relays in 1usize..5,
        circuits in 1usize..5,
        seed in 1u64..,
    ) {
        let limits = Limits { memory: 2_000_000, ..Limits::default() };
        let (mut world, joints) = line(relays, &limits);
        let mut ways = ways(&mut world, relays, circuits, 30_000);
        let mut chance = Chance(seed);
        for _ in 0..100 {
            let index = chance.below(ways.len());
            match chance.below(8) {
                0..=2 => { let count = 1 + chance.below(50_000); ways[index].send(&mut world, count) }
                3 => { let room = chance.below(80_000); world.give_room(ways[index].to, room) }
                4 if chance.one_in(8) => world.reset(ways[index].from),
                5 if chance.one_in(30) && relays > 1 => {
                    let joint = chance.below(joints.len());
                    let wire = joints[joint][0];
                    let node = if joint % 2 == 1 { joint } else { joint + 1 };
                    world.cut(node, wire);
                }
                _ => {
                    let node = chance.below(relays);
                    let wires: Vec<u64> = world.nodes[node].fake.trunks.keys().copied().collect();
                    if !wires.is_empty() {
                        world.carry(node, wires[chance.below(wires.len())], 1 + chance.below(60_000));
                    }
                }
            }
            world.check();
        }
        for way in &ways {
            way.check(&mut world);
            world.reset(way.from);
        }
        world.settle();
        world.check();
        for way in &ways {
            prop_assert!(world.leg(way.to).is_closed);
        }
        world.check_empty();
    }
}

#[test]
fn a_slow_reader_stops_its_own_sender_and_nobody_else() {
    let (mut world, _) = line(3, &Limits::default());
    let mut ways = ways(&mut world, 3, 2, 0);
    // Circuit 0's reader takes nothing, circuit 1's all.
    let fast = ways[2].to;
    world.leg(fast).room = usize::MAX;
    for _ in 0..200 {
        ways[0].send(&mut world, 50_000);
        ways[2].send(&mut world, 50_000);
        world.settle();
        world.check();
    }
    assert_eq!(world.leg(ways[2].to).got.len(), ways[2].sent);
    assert!(world.leg(ways[0].from).sent.len() > ways[0].sent - 100_000, "the sender goes on");
    let held: usize = world.nodes.iter().map(|node| node.core.gauges().held).sum();
    assert!(held <= 3 * FIRST_WINDOW, "{held} bytes are held of a reader that never reads");
}

#[test]
fn a_window_grows_when_it_is_used_up_and_shrinks_when_it_rests() {
    let limits = Limits { memory: 4_000_000, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    let mut ways = ways(&mut world, 2, 1, usize::MAX);
    let window = |world: &World| {
        let (_, circuit) = world.nodes[1].core.circuits.iter().next().unwrap();
        circuit.flows[Side::Opener as usize].window
    };
    assert_eq!(window(&world), FIRST_WINDOW);
    for _ in 0..40 {
        ways[0].send(&mut world, 400_000);
        // A long way: all that may be sent is under way before anything comes back.
        while world.nodes.iter().any(|node| node.fake.trunks.values().any(|t| !t.on_way.is_empty()))
        {
            world.settle();
        }
        world.check();
    }
    assert_eq!(window(&world), 4_000_000 / 16);
    world.pass_time(Duration::from_millis(100));
    world.settle();
    for _ in 0..8 {
        world.pass_time(Duration::from_secs(1));
        world.settle();
        world.check();
    }
    assert_eq!(window(&world), FIRST_WINDOW);
    ways[0].send(&mut world, 300_000);
    world.settle();
    assert_eq!(world.leg(ways[0].to).got.len(), ways[0].sent);
}

#[test]
fn circuits_beyond_the_budget_are_refused_and_make_room_again() {
    // A job that is alone may have 7 in 8 of it.
    let limits = Limits { memory: 12 * FIRST_WINDOW, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    let registered = world.register(1, 100);
    let mut standing = Vec::new();
    for n in 0..20 {
        let before = world.nodes[1].core.counts().refused[LegVerdict::Full as usize];
        match world.circuit((0, n), (1, 100), registered) {
            Some(ends) => standing.push(ends),
            None => {
                assert_eq!(world.nodes[0].core.circuits(), standing.len());
                let refused: u64 = world
                    .nodes
                    .iter()
                    .map(|n| n.core.counts().refused[LegVerdict::Full as usize])
                    .sum();
                assert!(refused > before);
            }
        }
        world.check();
    }
    assert_eq!(standing.len(), 10);
    world.reset(standing[0][0]);
    world.settle();
    assert!(world.circuit((0, 50), (1, 100), registered).is_some());
}

#[test]
fn who_does_not_come_is_given_up_and_a_silent_relay_is_dead() {
    let (mut world, _) = line(2, &Limits::default());
    let registered = world.register(1, 100);
    let a = world.ask(0, 0, Errand::Open { to: ProcId(100) });
    world.settle();
    for _ in 0..110 {
        world.pass_time(Duration::from_millis(100));
        world.settle();
    }
    assert_eq!(world.leg(a).answer, Some(LegVerdict::Unanswered));
    let (_, circuit) = world.leg(registered).notices.pop_front().unwrap();
    let late = world.ask(1, 100, Errand::Accept { circuit });
    assert_eq!(world.leg(late).answer, Some(LegVerdict::NoSuchCircuit));
    world.check_empty();

    let [a, b] = world.circuit((0, 1), (1, 100), registered).unwrap();
    world.pass_time(Duration::from_millis(600));
    world.settle();
    // From here on nothing arrives.
    let since = world.now;
    world.send(a, b"into the void");
    while !world.leg(a).is_reset {
        world.pass_time(Duration::from_millis(50));
        assert!(world.now - since <= Duration::from_secs(2), "a silent relay is found too late");
    }
    assert!(world.nodes[0].fake.trunks.values().all(|trunk| trunk.is_dead));
    assert!(!world.leg(b).is_reset || world.now - since > Duration::from_secs(1));
}

/// How often a relay has to be woken in a minute in which nothing happens.
fn wakeups_of_a_minute(world: &mut World) -> usize {
    let until = world.now + Duration::from_secs(60);
    for count in 0.. {
        let due = world.nodes.iter().filter_map(|node| node.core.next_due()).min().unwrap();
        if due > until {
            return count;
        }
        world.pass_time(due.saturating_sub(world.now));
        world.settle();
    }
    unreachable!()
}

#[test]
fn circuits_that_rest_cost_no_time() {
    let (mut world, _) = line(2, &Limits::default());
    wakeups_of_a_minute(&mut world);
    let without = wakeups_of_a_minute(&mut world);
    let mut ways = ways(&mut world, 2, 100, usize::MAX);
    for way in &mut ways {
        // Enough for some to grow.
        way.send(&mut world, 100_000);
    }
    wakeups_of_a_minute(&mut world);
    world.check();
    assert!(world.nodes.iter().all(|node| node.core.grown.is_empty()));
    assert_eq!(wakeups_of_a_minute(&mut world), without);
}

#[test]
fn an_idle_connection_is_used_from_time_to_time() {
    let (mut world, _) = line(2, &Limits::default());
    // Also what the routes have set off is long over.
    for _ in 0..120 {
        world.pass_time(Duration::from_millis(100));
        world.settle();
    }
    let cells = |world: &World| world.nodes[0].core.counts().cells_in;
    let before = cells(&world);
    for _ in 0..600 {
        world.pass_time(Duration::from_millis(100));
        world.settle();
    }
    // A minute: six pings of each side, and as many answers.
    let count = cells(&world) - before;
    assert!((8..=14).contains(&count), "{count}");
    assert!(world.nodes[0].fake.trunks.values().all(|trunk| !trunk.is_dead));
}

#[test]
fn a_silent_relay_is_found_before_more_is_sent_there_if_something_was_a_while_ago() {
    let (mut world, _) = line(2, &Limits::default());
    ways(&mut world, 2, 1, usize::MAX)[0].send(&mut world, 1000);
    for _ in 0..80 {
        world.pass_time(Duration::from_millis(100));
        world.settle();
    }
    assert!(world.nodes[0].fake.trunks.values().all(|trunk| !trunk.is_dead));
    // From here on nothing arrives.
    let since = world.now;
    while world.nodes[0].fake.trunks.values().any(|trunk| !trunk.is_dead) {
        world.pass_time(Duration::from_millis(50));
        assert!(world.now - since <= Duration::from_millis(1700), "it is found too late");
    }
}

#[test]
fn what_breaks_the_protocol_is_refused() {
    let open =
        |number| (number, Cell::Open { job: JOB, from: ProcId(1), to: ProcId(100), hops: 3 });
    // Each with what is said before; the other side has dialled, so it gives odd numbers.
    type Case = (Vec<(u32, Cell)>, Vec<u8>);
    let cases: Vec<Case> = vec![
        (vec![(5, Cell::Credit(1))], vec![]),
        (vec![(4, Cell::Fin)], vec![]),
        (vec![open(2)], vec![]),
        (vec![open(3), open(3)], vec![]),
        (vec![open(3), open(1)], vec![]),
        (vec![open(3), (3, Cell::Answer(LegVerdict::Accepted))], vec![]),
        (vec![open(3), (3, Cell::Fin), (3, Cell::Fin)], vec![]),
        (vec![open(3), (3, Cell::Return(1))], vec![]),
        (vec![open(3), (3, Cell::Blocked), (3, Cell::Blocked)], vec![]),
        (vec![(3, Cell::Open { job: JOB, from: ProcId(1), to: ProcId(100), hops: 9 })], vec![]),
        (vec![open(3), (3, Cell::Credit(64 << 20))], vec![]),
        (
            vec![open(3)],
            [&crate::cell::data_head(3, FIRST_WINDOW + 1)[..], &vec![0; FIRST_WINDOW + 1]].concat(),
        ),
        (vec![open(3), (3, Cell::Fin)], [&crate::cell::data_head(3, 1)[..], &[0]].concat()),
        (
            vec![(
                0,
                Cell::Route(Span { job: JOB, first: ProcId(0), count: 1 }, vec![RelayId([9; 16])]),
            )],
            vec![],
        ),
    ];
    for (index, (cells, data)) in cases.into_iter().enumerate() {
        let mut world = World::new(1, &Limits::default());
        world.register(0, 100);
        let Node { core, fake } = &mut world.nodes[0];
        let name = RelayId([5; 16]);
        let link = core.trunk_up(Wire(1000), (name, name.into()), false, None);
        let far = (0, 0);
        let trunk =
            FakeTrunk { link, far, on_way: VecDeque::new(), is_blocked: false, is_dead: false };
        fake.trunks.insert(1000, trunk);
        let mut bytes = Vec::new();
        cells.iter().for_each(|(circuit, cell)| cell.encode(*circuit, &mut bytes));
        bytes.extend_from_slice(&data);
        let result = core.receive(link, &bytes, 0..bytes.len());
        assert!(result.is_err(), "case {index}: {cells:?}");
        core.flush(&bytes, fake);
        core.gone(link);
        fake.trunks.clear();
        world.flush(0);
        world.check_empty();
    }
}
