//! Another relay that says much and reads nothing.

use super::*;
use crate::cell::{Item, Parser};

/// A relay with one process, between one that talks (it has dialled) and one that has been dialled; nothing was read of either.
struct Between {
    node: Node,
    talks: LinkKey,
    other: LinkKey,
    next: u32,
}

const TALKS: Wire = Wire(1000);
const OTHER: Wire = Wire(1001);

fn relay(wire: Wire) -> RelayId {
    RelayId([wire.0 as u8; 16])
}

fn span(first: u32) -> Span {
    Span { job: JOB, first: ProcId(first), count: 1 }
}

impl Between {
    fn new(limits: Limits) -> Self {
        let mut core = Core::new(RelayId([1; 16]), limits);
        let mut fake = Fake::default();
        let [talks, other] = [(TALKS, false), (OTHER, true)].map(|(wire, is_dialer)| {
            let link = core.trunk_up(wire, (relay(wire), relay(wire).into()), is_dialer, None);
            let far = (0, 0);
            let trunk =
                FakeTrunk { link, far, on_way: VecDeque::new(), is_blocked: true, is_dead: false };
            fake.trunks.insert(wire.0, trunk);
            link
        });
        let mut between = Self { node: Node { core, fake }, talks, other, next: 1 };
        [talks, other].into_iter().for_each(|link| between.block(link));
        between
    }

    fn block(&mut self, link: LinkKey) {
        self.node.core.links.get_mut(link).unwrap().is_blocked = true;
    }

    fn hear(&mut self, link: LinkKey, cells: &[(u32, Cell)]) {
        let mut bytes = Vec::new();
        cells.iter().for_each(|(circuit, cell)| cell.encode(*circuit, &mut bytes));
        let Node { core, fake } = &mut self.node;
        core.receive(link, &bytes, 0..bytes.len()).unwrap();
        core.flush(&bytes, fake);
        core.take_sooner();
        core.check();
    }

    /// The other side reads all: the cells that it has got.
    fn read(&mut self, link: LinkKey, wire: Wire) -> Vec<(u32, Cell)> {
        let (cells, data) = self.read_all(link, wire);
        assert!(data.is_empty(), "nobody has sent data");
        cells
    }

    /// And the bytes of all circuits.
    fn read_all(&mut self, link: LinkKey, wire: Wire) -> (Vec<(u32, Cell)>, Vec<u8>) {
        let Node { core, fake } = &mut self.node;
        let mut got = Vec::new();
        loop {
            let trunk = fake.trunks.get_mut(&wire.0).unwrap();
            trunk.is_blocked = false;
            got.extend(trunk.on_way.drain(..));
            core.writable(link);
            core.flush(&[], fake);
            if fake.trunks[&wire.0].on_way.is_empty() {
                break;
            }
        }
        let (mut parser, mut at) = (Parser::default(), 0);
        let (mut cells, mut data) = (Vec::new(), Vec::new());
        while let Some(item) = parser.next(&got, &mut at).unwrap() {
            match item {
                Item::Cell(circuit, cell) => cells.push((circuit, cell)),
                Item::Data(_, range) => data.extend_from_slice(&got[range]),
            }
        }
        (cells, data)
    }

    /// A process asks for something: its wire, and its connection.
    fn ask(&mut self, wire: u64, errand: Errand) -> (u64, LinkKey) {
        let Node { core, fake } = &mut self.node;
        fake.legs.insert(wire, FakeLeg { room: usize::MAX, ..FakeLeg::default() });
        let request = LegRequest { errand, job: JOB, from: ProcId(5), mac: [0; 32] };
        let link = core.ask(Wire(wire), &request).unwrap();
        core.flush(&[], fake);
        (wire, link)
    }

    /// What the relay keeps for it.
    fn kept(&self, link: LinkKey) -> usize {
        match self.node.core.links.get(link) {
            Some(Link { kind: Kind::Trunk(trunk), .. }) => {
                trunk.ready.len() + trunk.control.capacity()
            }
            _ => 0,
        }
    }

    fn is_up(&self, link: LinkKey) -> bool {
        self.node.core.links.get(link).is_some()
    }

    /// A circuit to this process, and its number.
    fn open(&mut self, to: u32) -> (u32, Cell) {
        let number = self.next;
        self.next += 2;
        (number, Cell::Open { job: JOB, from: ProcId(7), to: ProcId(to), hops: 3 })
    }
}

#[test]
fn pings_that_come_faster_than_their_answers_go_cost_no_memory() {
    let mut between = Between::new(Limits::default());
    for n in 0..1000 {
        let pings: Vec<_> = (0..100).map(|ping| (0, Cell::Ping(n * 100 + ping))).collect();
        between.hear(between.talks, &pings);
        assert!(between.kept(between.talks) < 1000, "{}", between.kept(between.talks));
    }
    assert_eq!(between.read(between.talks, TALKS), [(0, Cell::Pong(99_999))]);
    between.hear(between.talks, &[(0, Cell::Ping(1))]);
    assert_eq!(between.read(between.talks, TALKS), [(0, Cell::Pong(1))]);
}

#[test]
fn ways_that_come_and_go_cost_another_relay_that_is_slow_nothing() {
    let mut between = Between::new(Limits::default());
    for n in 0..3000 {
        let way = Cell::Route(span(n), vec![relay(TALKS)]);
        let cells = [(0, way.clone()), (0, Cell::Withdraw(span(n))), (0, way)];
        let until = if n < 2990 { 2 } else { 3 };
        between.hear(between.talks, &cells[..until]);
        assert!(between.kept(between.other) < 1000, "{}", between.kept(between.other));
        assert!(between.node.core.gauges().untold <= 10);
    }
    let path = vec![RelayId([1; 16]), relay(TALKS)];
    let told: Vec<_> = (2990..3000).map(|n| (0, Cell::Route(span(n), path.clone()))).collect();
    assert_eq!(between.read(between.other, OTHER), told);
    between.hear(between.talks, &[(0, Cell::Withdraw(span(2995)))]);
    assert_eq!(between.read(between.other, OTHER), [(0, Cell::Withdraw(span(2995)))]);
}

#[test]
fn who_asks_and_asks_and_does_not_read_the_answers_is_left() {
    let bound = 10_000;
    let mut between = Between::new(Limits { cells: bound, ..Limits::default() });
    let mut asked = 0;
    while between.is_up(between.talks) {
        // Nobody is there: each is refused.
        let open = between.open(1);
        between.hear(between.talks, &[open]);
        asked += 1;
        assert!(asked <= bound, "all answers are kept");
        assert!(between.kept(between.talks) <= 2 * bound);
    }
    // An answer has nine bytes.
    assert!(asked > bound / 9, "{asked}");
    assert!(
        between.node.fake.trunks[&TALKS.0].is_dead && !between.node.fake.trunks[&OTHER.0].is_dead
    );
    assert!(between.is_up(between.other));
    // What it still says is for nobody.
    let open = between.open(1);
    between.hear(between.talks, &[open]);
}

#[test]
fn who_reads_late_gets_all_in_order_however_much_it_is() {
    let mut between = Between::new(Limits { cells: 2 << 20, ..Limits::default() });
    let errand = Errand::Register { first: ProcId(5), count: 1 };
    let (registered, _) = between.ask(1, errand);
    let (first, open) = between.open(5);
    between.hear(between.talks, &[(first, open)]);
    let notice = between.node.fake.legs.get_mut(&registered).unwrap().notices.pop_front();
    let (_, circuit) = notice.unwrap();
    let (leg, link) = between.ask(2, Errand::Accept { circuit });
    let bytes: Vec<u8> = (0..FIRST_WINDOW).map(|at| byte(0, 0, at)).collect();
    between.node.fake.legs.get_mut(&leg).unwrap().sent.extend(&bytes);
    between.node.core.readable(link);
    // Many times what goes in one push, and the bytes behind it.
    let count = 100_000;
    for _ in 0..count / 1000 {
        let opens: Vec<_> = (0..1000).map(|_| between.open(1)).collect();
        between.hear(between.talks, &opens);
    }
    let (cells, data) = between.read_all(between.talks, TALKS);
    let refused = (1..=count).map(|n| (2 * n + 1, Cell::Answer(LegVerdict::NoRoute)));
    let mut expected = vec![(first, Cell::Answer(LegVerdict::Accepted))];
    expected.extend(refused);
    expected.push((0, Cell::Route(span(5), vec![RelayId([1; 16])])));
    assert_eq!(cells.len(), expected.len());
    assert!(cells == expected && data == bytes);
}

#[test]
fn nobody_makes_others_deaf_by_what_they_are_told_for_him() {
    let bound = 10_000;
    let mut between = Between::new(Limits { cells: bound, ..Limits::default() });
    between.hear(between.other, &[(0, Cell::Route(span(1), vec![relay(OTHER)]))]);
    let _ = between.read(between.talks, TALKS);
    between.block(between.other);
    let mut refused = 0;
    for _ in 0..bound {
        let (number, open) = between.open(1);
        between.hear(between.talks, &[(number, open), (number, Cell::Reset(Reason::Reset))]);
        refused += between.read(between.talks, TALKS).len();
        assert!(between.is_up(between.other), "the other one pays for it");
    }
    assert!(refused > bound / 2, "{refused}");
    // It reads again, and takes circuits again.
    assert!(between.read(between.other, OTHER).len() > 2);
    let (number, open) = between.open(1);
    between.hear(between.talks, &[(number, open)]);
    assert!(matches!(between.read(between.other, OTHER)[..], [(_, Cell::Open { .. })]));
}
