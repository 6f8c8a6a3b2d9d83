//! What processes are told of other relays.

use super::*;

fn relay(text: &str) -> RelayAddress {
    RelayAddress::new(text.parse().unwrap()).unwrap()
}

impl World {
    fn beside(&mut self, relays: &[RelayAddress]) -> usize {
        let told = self.nodes[0].core.set_beside(relays.to_vec());
        self.flush(0);
        told
    }

    /// Time passes, and all is carried that is said meanwhile.
    fn rest(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.pass_time(Duration::from_millis(100).min(until - self.now));
            self.settle();
        }
    }

    fn come(&mut self, process: u32) -> At {
        self.ask(0, process, Errand::Register { first: ProcId(0), count: 4 })
    }

    /// What a process has been told since this was last asked.
    fn told(&mut self, at: At) -> Vec<RelayAddress> {
        std::mem::take(&mut self.leg(at).told)
    }
}

#[test]
fn who_is_registered_hears_of_new_relays_and_who_registers_of_all() {
    let mut world = World::new(1, &Limits::default());
    let (one, two, three) = (relay("10.0.0.1:7118"), relay("10.0.0.2:7118"), relay("[fd00::3]:1"));
    assert_eq!(world.beside(&[one]), 0, "nobody is there");
    let [first, second] = [0, 1].map(|process| world.come(process));
    assert_eq!((world.told(first), world.told(second)), (vec![one], vec![one]));
    assert_eq!(world.beside(&[two, one, three]), 2);
    assert_eq!((world.told(first), world.told(second)), (vec![two, three], vec![two, three]));
    assert_eq!(world.beside(&[three]), 0, "nobody is told of what is there no longer");
    assert_eq!(world.told(first), []);
    let third = world.come(2);
    assert_eq!(world.told(third), [three]);
    assert_eq!(world.beside(&[one, three]), 3, "named again, it is new");
    assert_eq!(world.told(third), [one]);
    world.check();
}

#[test]
fn only_those_are_told_who_are_registered_still() {
    let mut world = World::new(1, &Limits::default());
    let [first, second] = [0, 1].map(|process| world.come(process));
    let again = world.come(0);
    assert!(world.leg(first).is_closed);
    world.reset(second);
    let opener = world.ask(0, 3, Errand::Open { to: ProcId(0) });
    assert_eq!(world.beside(&[relay("10.0.0.1:7118")]), 1);
    assert_eq!([again, first, second, opener].map(|at| world.told(at).len()), [1, 0, 0, 0]);
    world.nodes[0].core.drain();
    world.flush(0);
    assert_eq!(world.beside(&[relay("10.0.0.2:7118")]), 0, "who has been sent away");
    world.check();
}

#[test]
fn who_is_not_at_a_relay_that_has_come_is_found_at_the_one_where_it_is() {
    // 0 is the far cluster's; 1 and 2 are those of processes 4 and 5, and only the former is at the one that has come, 2.
    for through_another in [false, true] {
        let mut world = World::new(4, &Limits::default());
        if through_another {
            // The way to where it is is the longer one.
            world.join(0, 3);
            world.join(3, 1);
        } else {
            world.join(0, 1);
        }
        let errand = Errand::Register { first: ProcId(4), count: 2 };
        let [_, fifth] = [4, 5].map(|process| world.ask(1, process, errand));
        world.join(0, 2);
        world.ask(2, 4, errand);
        world.settle();
        // One who is not found tries again, ever more seldom.
        let (mut found, mut pause) = (0, Duration::from_millis(20));
        let mut attempts = 0;
        while found < 3 {
            let opener = world.ask(0, attempts % 4, Errand::Open { to: ProcId(5) });
            world.settle();
            found += world.leg(fifth).notices.len();
            world.leg(fifth).notices.clear();
            assert!(found > 0 || world.leg(opener).answer == Some(LegVerdict::NoRoute));
            world.reset(opener);
            world.rest(pause);
            (attempts, pause) = (attempts + 1, (pause * 2).min(Duration::from_secs(1)));
            assert!(attempts <= if through_another { 10 } else { 4 }, "found {found} times");
        }
        // Long after, too, it takes one attempt to know what was known before.
        world.rest(Duration::from_secs(10));
        for _ in 0..2 {
            let opener = world.ask(0, 0, Errand::Open { to: ProcId(5) });
            world.settle();
            world.reset(opener);
            world.settle();
        }
        assert!(!world.leg(fifth).notices.is_empty());
        world.leg(fifth).notices.clear();
        // Where it is not to be found any more that is still asked for.
        world.reset(fifth);
        let opener = world.ask(0, 0, Errand::Open { to: ProcId(5) });
        world.settle();
        assert_eq!(world.leg(opener).answer, Some(LegVerdict::NoRoute));
        world.check();
    }
}

#[test]
fn who_comes_a_little_late_is_not_reached_by_a_detour_from_then_on() {
    let mut world = World::new(3, &Limits::default());
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        world.join(a, b);
    }
    let errand = Errand::Register { first: ProcId(4), count: 2 };
    world.ask(1, 4, errand);
    world.settle();
    let opener = world.ask(0, 0, Errand::Open { to: ProcId(5) });
    world.settle();
    assert_eq!(world.leg(opener).answer, Some(LegVerdict::NoRoute));
    world.pass_time(Duration::from_millis(20));
    let late = world.ask(1, 5, errand);
    for from in 0..3 {
        world.ask(0, from, Errand::Open { to: ProcId(5) });
        world.settle();
    }
    assert_eq!(world.leg(late).notices.len(), 3);
    assert_eq!(world.nodes[2].core.circuits(), 0, "the third relay is not on the way");
    world.check();
}
