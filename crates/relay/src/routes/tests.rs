//! Routes of one relay, and of several that tell each other.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

fn relay(n: usize) -> RelayId {
    RelayId([n as u8; 16])
}

/// One whose name is proven.
fn named(n: usize) -> (RelayId, Account) {
    (relay(n), relay(n).into())
}

fn key(n: usize) -> LinkKey {
    Key::from_bits(n as u64)
}

fn span(n: u32) -> Span {
    Span { job: [1; 16], first: ProcId(n), count: 1 }
}

#[test]
fn a_span_is_found_by_the_fewest_relays_and_never_back_where_it_came_from() {
    let mut routes = Routes::new(relay(0), 10);
    routes.link_up(key(1), named(1), None);
    routes.link_up(key(2), named(2), None);
    assert!(routes.learn(key(1), span(5), vec![relay(1), relay(9)]).unwrap());
    assert!(routes.learn(key(2), span(5), vec![relay(2)]).unwrap());
    assert_eq!(routes.towards(([1; 16], ProcId(5)), None, |_| true), [key(2)]);
    assert_eq!(routes.towards(([1; 16], ProcId(5)), Some(relay(2)), |_| true), [key(1)]);
    assert!(routes.towards(([1; 16], ProcId(6)), None, |_| true).is_empty());
    assert!(routes.towards(([2; 16], ProcId(5)), None, |_| true).is_empty());
    routes.link_down(key(2));
    assert_eq!(routes.towards(([1; 16], ProcId(5)), None, |_| true), [key(1)]);
}

#[test]
fn what_a_peer_may_tell_is_bounded_and_begins_with_itself() {
    let mut routes = Routes::new(relay(0), 2);
    routes.link_up(key(1), named(1), None);
    for n in 0..2 {
        assert!(routes.learn(key(1), span(n), vec![relay(1)]).unwrap());
    }
    assert!(!routes.learn(key(1), span(2), vec![relay(1)]).unwrap());
    // The same again takes no room; what was withdrawn makes some.
    assert!(routes.learn(key(1), span(1), vec![relay(1), relay(2)]).unwrap());
    routes.withdraw(key(1), span(0));
    assert!(routes.learn(key(1), span(2), vec![relay(1)]).unwrap());
    assert!(routes.learn(key(1), span(0), vec![relay(2)]).is_err());
}

#[test]
fn what_a_peer_may_tell_is_the_same_on_however_many_connections() {
    let mut routes = Routes::new(relay(0), 8);
    (1..=5).for_each(|n| routes.link_up(key(n), named(1), None));
    routes.link_up(key(6), named(2), None);
    let learn = |routes: &mut Routes, by: usize, n| {
        let path = vec![relay(if by == 6 { 2 } else { 1 })];
        routes.learn(key(by), span(n), path).unwrap()
    };
    // A few more than are told, since connections may be ahead of each other.
    let kept = (0..50).filter(|n| learn(&mut routes, 1 + *n as usize % 5, *n)).count();
    assert_eq!((kept, routes.all().count()), (9, 9));
    // The same on others takes no room, and another relay has its own.
    assert!((0..9).all(|n| (1..=5).all(|by| learn(&mut routes, by, n))));
    assert!(learn(&mut routes, 6, 100));
    // What is withdrawn on one is still known by the others.
    routes.withdraw(key(1), span(0));
    assert!(!learn(&mut routes, 1, 60));
    (2..=5).for_each(|by| routes.withdraw(key(by), span(0)));
    assert!(learn(&mut routes, 1, 60) && !learn(&mut routes, 1, 61));
    (1..=6).for_each(|by| routes.link_down(key(by)));
    assert!(routes.entries.is_empty() && routes.books.is_empty());
}

#[test]
fn what_a_peer_may_tell_of_one_job_is_bounded_and_others_have_their_own() {
    let mut routes = Routes::new(relay(0), 1000);
    [1, 2, 3].into_iter().for_each(|n| routes.link_up(key(n), named(n.min(2)), None));
    let of = |job: u8, first: u32| Span { job: [job; 16], first: ProcId(first), count: 1000 };
    let learn = |routes: &mut Routes, by: usize, span| {
        routes.learn(key(by), span, vec![relay(by.min(2))]).unwrap()
    };
    // All of them hold process 999, and who looks for it looks at all of them.
    let kept = (0..500).filter(|n| learn(&mut routes, 2 + *n as usize % 2, of(1, *n))).count();
    assert_eq!((kept, routes.of_job([1; 16]).count()), (72, 72));
    // Another relay is heard of the same job, and this one of others.
    assert!(learn(&mut routes, 1, of(1, 900)) && learn(&mut routes, 2, of(2, 900)));
    assert_eq!(routes.towards(([1; 16], ProcId(999)), Some(relay(2)), |_| true), [key(1)]);
    routes.withdraw(key(2), of(1, 0));
    assert!(learn(&mut routes, 2, of(1, 901)) && !learn(&mut routes, 3, of(1, 902)));
    (1..=3).for_each(|by| routes.link_down(key(by)));
    assert!(routes.entries.is_empty() && routes.books.is_empty());
}

#[test]
fn what_somebody_may_tell_is_the_same_by_however_many_names() {
    let mut routes = Routes::new(relay(0), 80);
    let account = Account([99; 16]);
    (1..=50).for_each(|n| routes.link_up(key(n), (relay(n), account), None));
    let mut learn = |n: usize, job: u8| {
        let span = Span { job: [job; 16], first: ProcId(n as u32), count: 1 };
        routes.learn(key(1 + n % 50), span, vec![relay(1 + n % 50)]).unwrap()
    };
    assert_eq!((0..200).filter(|n| learn(*n, 1)).count(), 72);
    assert_eq!((0..200).filter(|n| learn(*n, 2)).count(), 90 - 72);
    // Those who share what they prove lead to each other all the same.
    let found = routes.towards(([1; 16], ProcId(7)), Some(relay(1)), |_| true);
    assert_eq!(found, [key(8)]);
    (1..=50).for_each(|n| routes.link_down(key(n)));
    assert!(routes.entries.is_empty() && routes.books.is_empty());
}

#[test]
fn the_same_again_is_no_news_and_each_is_told_the_best_way_that_leads_past_him() {
    let mut routes = Routes::new(relay(0), 10);
    (1..=4).for_each(|n| routes.link_up(key(n), named(n.min(3)), None));
    let path = |names: &[usize]| names.iter().map(|n| relay(*n)).collect::<Vec<_>>();
    assert!(routes.learn(key(1), span(7), path(&[1, 3])).unwrap());
    assert!(routes.learn(key(2), span(7), path(&[2, 8, 9])).unwrap());
    let mut told = |link| match &routes.news(key(link))[..] {
        [Cell::Route(_, path)] => path.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((told(1), told(2)), (path(&[0, 2, 8, 9]), path(&[0, 1, 3])));
    assert_eq!((told(3), told(4)), (path(&[0, 2, 8, 9]), path(&[0, 2, 8, 9])));
    routes.with_news();
    assert!(routes.learn(key(1), span(7), path(&[1, 3])).unwrap());
    assert_eq!((routes.with_news(), routes.untold()), (vec![], 0));
}

#[test]
fn what_changes_while_nobody_listens_is_told_once_and_as_it_is_then() {
    let mut routes = Routes::new(relay(0), 10);
    [1, 2].into_iter().for_each(|n| routes.link_up(key(n), named(n), None));
    let told = |routes: &mut Routes| {
        assert_eq!(routes.with_news(), [key(2)]);
        routes.news(key(2))
    };
    for n in 0..1000 {
        assert!(routes.learn(key(1), span(n), vec![relay(1)]).unwrap());
        routes.withdraw(key(1), span(n));
        assert!(routes.untold() <= 1, "what nobody will be told is kept");
    }
    assert_eq!(told(&mut routes), []);
    assert!(routes.learn(key(1), span(7), vec![relay(1)]).unwrap());
    assert!(routes.learn(key(1), span(7), vec![relay(1), relay(3)]).unwrap());
    let path = vec![relay(0), relay(1), relay(3)];
    assert_eq!(told(&mut routes), [Cell::Route(span(7), path)]);
    routes.withdraw(key(1), span(7));
    assert!(routes.learn(key(1), span(7), vec![relay(1), relay(3)]).unwrap());
    assert_eq!(told(&mut routes), []);
    routes.withdraw(key(1), span(7));
    assert_eq!(told(&mut routes), [Cell::Withdraw(span(7))]);
}

#[test]
fn what_a_peer_has_no_room_for_is_told_when_it_has() {
    let (mut one, mut two) = (Routes::new(relay(0), 3), Routes::new(relay(1), 3));
    one.link_up(key(1), named(1), None);
    two.link_up(key(0), named(0), None);
    let tell = |one: &mut Routes, two: &mut Routes| {
        for link in one.with_news() {
            for cell in one.news(link) {
                match cell {
                    Cell::Route(span, path) => {
                        assert!(two.learn(key(0), span, path).unwrap(), "it is refused");
                    }
                    Cell::Withdraw(span) => two.withdraw(key(0), span),
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    (0..5).for_each(|n| one.add_local(span(n)));
    tell(&mut one, &mut two);
    assert_eq!((two.all().count(), one.untold()), (3, 2));
    // In one go: what is withdrawn makes room for what is told.
    one.remove_local(span(1));
    one.add_local(span(9));
    tell(&mut one, &mut two);
    assert_eq!((two.all().count(), one.untold()), (3, 2));
    one.remove_local(span(0));
    one.remove_local(span(2));
    tell(&mut one, &mut two);
    let known: Vec<u32> = two.all().map(|(span, _)| span.first.0).collect();
    assert_eq!((known, one.untold()), (vec![3, 4, 9], 0));
}

#[test]
fn what_one_relay_invents_takes_no_place_of_what_others_have() {
    let of = |job: u8, n: u32| Span { job: [job; 16], first: ProcId(n), count: 1 };
    let mut routes = Routes::new(relay(0), 100);
    (1..=3).for_each(|n| routes.link_up(key(n), named(n), None));
    let mut known = BTreeMap::new();
    let mut tell = |routes: &mut Routes| {
        for cell in routes.news(key(3)) {
            match cell {
                Cell::Route(span, path) => known.insert(span, path.len() == 1),
                Cell::Withdraw(span) => known.remove(&span),
                other => panic!("{other:?}"),
            };
            assert!(known.len() <= 100);
        }
        known.clone()
    };
    let invent = |routes: &mut Routes, jobs: std::ops::Range<u8>| {
        for job in jobs {
            for n in 0..64 {
                let _ = routes.learn(key(1), of(job, n), vec![relay(1)]).unwrap();
            }
        }
    };
    invent(&mut routes, 1..4);
    assert_eq!(tell(&mut routes).len(), 100);
    // Of the first job more register here; another relay has some of it, and of another job.
    (100..110).for_each(|n| routes.add_local(of(1, n)));
    for n in 200..240 {
        assert!(routes.learn(key(2), of(1, n), vec![relay(2)]).unwrap());
        assert!(routes.learn(key(2), of(9, n), vec![relay(2)]).unwrap());
    }
    let told = tell(&mut routes);
    let waiting = routes.neighbours[&key(3)].shares.waiting();
    assert_eq!((told.len(), waiting), (100, 112 + 10 + 80 - 100));
    assert_eq!(told.values().filter(|is_local| **is_local).count(), 10);
    let of_job = |job: u8| told.keys().filter(|span| span.job == [job; 16]).count();
    let of_others = told.keys().filter(|span| span.first.0 >= 200).count();
    assert_eq!(of_others, 45);
    assert!(of_job(1) <= 64 && of_job(9) >= 20, "{} and {}", of_job(1), of_job(9));
    routes.link_down(key(1));
    assert_eq!(tell(&mut routes).len(), 10 + 80);
}

/// Relays in any graph, links numbered by (from, to), whose words arrive in order.
struct Net {
    relays: Vec<Routes>,
    links: BTreeSet<(usize, usize)>,
    words: BTreeMap<(usize, usize), VecDeque<Cell>>,
}

impl Net {
    fn new(count: usize) -> Self {
        let relays = (0..count).map(|n| Routes::new(relay(n), 100)).collect();
        Self { relays, links: BTreeSet::new(), words: BTreeMap::new() }
    }

    fn link(&mut self, a: usize, b: usize) {
        if a != b && self.links.insert((a.min(b), a.max(b))) {
            self.relays[a].link_up(key(b), named(b), None);
            self.relays[b].link_up(key(a), named(a), None);
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        if self.links.remove(&(a.min(b), a.max(b))) {
            for (a, b) in [(a, b), (b, a)] {
                self.relays[a].link_down(key(b));
                self.words.remove(&(a, b));
            }
        }
    }

    /// Delivers everything; how many words it took.
    fn settle(&mut self) -> usize {
        for count in 0.. {
            for from in 0..self.relays.len() {
                let told = self.relays[from].with_news().into_iter().flat_map(|link| {
                    let cells = self.relays[from].news(link);
                    cells.into_iter().map(move |cell| (link, cell))
                });
                for (link, cell) in told.collect::<Vec<_>>() {
                    let to = link.to_bits() as usize;
                    if self.links.contains(&(from.min(to), from.max(to))) {
                        self.words.entry((from, to)).or_default().push_back(cell);
                    }
                }
            }
            let next = self.words.iter().find(|(_, queue)| !queue.is_empty()).map(|(at, _)| *at);
            let Some((from, to)) = next else { return count };
            assert!(count < 100_000, "the routes do not settle");
            match self.words.get_mut(&(from, to)).unwrap().pop_front().unwrap() {
                Cell::Route(span, path) => {
                    self.relays[to].learn(key(from), span, path).unwrap();
                }
                Cell::Withdraw(span) => self.relays[to].withdraw(key(from), span),
                _ => unreachable!(),
            }
        }
        unreachable!()
    }

    /// Relays between `from` and `to`, by search.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        let (mut seen, mut queue) = (BTreeSet::from([from]), VecDeque::from([(from, 0)]));
        while let Some((at, distance)) = queue.pop_front() {
            if at == to {
                return Some(distance);
            }
            for &(a, b) in &self.links {
                let next = if a == at {
                    b
                } else if b == at {
                    a
                } else {
                    continue;
                };
                if seen.insert(next) {
                    queue.push_back((next, distance + 1));
                }
            }
        }
        None
    }
}

proptest! {
    #[test]
    fn routes_settle_on_the_shortest_paths_and_on_nothing_where_there_is_none(
        steps in prop::collection::vec((0usize..6, 0usize..6, any::<bool>()), 1..25),
        homes in prop::collection::vec(0usize..6, 1..4),
    ) {
        let mut net = Net::new(6);
        for (n, home) in homes.iter().enumerate() {
            net.relays[*home].add_local(span(n as u32));
        }
        for (a, b, is_link) in steps {
            if is_link { net.link(a, b) } else { net.cut(a, b) }
            net.settle();
        }
        for (n, home) in homes.iter().enumerate() {
            for from in (0..6).filter(|from| from != home) {
                let by = net.relays[from].towards(([1; 16], ProcId(n as u32)), None, |_| true);
                let distance = net.distance(from, *home);
                prop_assert_eq!(by.is_empty(), distance.is_none());
                for link in by {
                    let next = net.distance(link.to_bits() as usize, *home);
                    prop_assert_eq!(next.map(|next| next + 1), distance);
                }
            }
        }
        for (n, home) in homes.iter().enumerate() {
            net.relays[*home].remove_local(span(n as u32));
        }
        net.settle();
        for relay in &net.relays {
            prop_assert!(relay.entries.is_empty() && relay.books.is_empty());
        }
    }
}
