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
