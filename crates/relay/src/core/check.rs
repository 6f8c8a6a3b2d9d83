//! What must hold at all times between two calls, for tests and fuzzing.

use super::circuit::{End, Side};
use super::{CircuitKey, Core, Kind};
use crate::cell::FIRST_WINDOW;

impl Core {
    /// Looks through all books.
    ///
    /// # Panics
    /// They are wrong.
    pub fn check(&self) {
        let mut charged = 0;
        for (key, circuit) in self.circuits.iter() {
            charged += circuit.charged();
            for side in Side::BOTH {
                let flow = &circuit.flows[side as usize];
                assert!(flow.fresh.is_empty(), "bytes of a buffer that is used anew");
                assert!(flow.held.len() <= flow.window, "more is held than was charged");
                self.check_growth(key, side);
                let end = circuit.ends[side as usize];
                if let End::Trunk(link, number) = end {
                    let parts = flow.granted + flow.held.len() + flow.returning;
                    assert_eq!(parts, flow.window, "the window's parts");
                    match self.links.get(link).map(|link| &link.kind) {
                        Some(Kind::Trunk(trunk)) => {
                            assert_eq!(trunk.numbers.get(&number), Some(&(key, side)));
                        }
                        other => panic!("a circuit's end is {other:?}"),
                    }
                }
            }
        }
        assert_eq!(self.budget.used(), charged, "what is charged is what is granted");
        assert!(self.budget.used() <= self.budget.total());
        self.budget.check();
        self.places.check();
        self.shares.check();
        assert_eq!(self.shares.used(), self.circuits.len(), "circuits that nobody was charged for");
        let legs = self.links.len() - self.trunks.len();
        assert_eq!(self.places.used(), legs + self.waiting.len(), "places that nobody has");
        let (mut numbers, mut trunks) = (0, 0);
        for (_, link) in self.links.iter() {
            match &link.kind {
                Kind::Trunk(trunk) => {
                    numbers += trunk.numbers.len();
                    trunks += 1;
                }
                Kind::Leg { circuit, .. } => {
                    assert!(self.circuits.get(*circuit).is_some(), "a leg without a circuit");
                }
                Kind::Registered { .. } => {}
            }
        }
        assert_eq!(trunks, self.trunks().count(), "the list of connections to relays");
        let trunk_ends = self.circuits.iter().flat_map(|(_, circuit)| circuit.ends);
        let trunk_ends = trunk_ends.filter(|end| matches!(end, End::Trunk(..))).count();
        assert_eq!(numbers, trunk_ends, "numbers without circuits");
        let is_in_time = match (self.told, self.next_due()) {
            (Some(told), Some(due)) => told <= due,
            (None, due) => due.is_none(),
            (Some(_), None) => true,
        };
        assert!(is_in_time || self.is_sooner, "something is due earlier than was told");
        assert!(self.waiting.values().all(|key| self.circuits.get(*key).is_some()));
        assert!(self.until.iter().all(|(_, key)| self.circuits.get(*key).is_some()));
    }

    /// What can be given back is in the list of what is looked at.
    fn check_growth(&self, key: CircuitKey, side: Side) {
        let Some(circuit) = self.circuits.get(key) else { return };
        let flow = &circuit.flows[side as usize];
        let has_grown = match (circuit.ends[side as usize], circuit.ends[side.across() as usize]) {
            (_, End::Trunk(..)) => flow.credit > FIRST_WINDOW,
            (End::Leg(_), End::Leg(_)) => flow.window > FIRST_WINDOW,
            _ => false,
        };
        assert!(!has_grown || flow.is_grown, "growth that nobody looks at");
        assert_eq!(flow.is_grown, self.grown.contains(&(key, side)), "the list of what has grown");
    }
}
