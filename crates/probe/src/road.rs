//! How the nodes of one cluster come to those of another, as the conductor has found.

use crate::conductor::Conductor;
use crate::reach::Reach;
use gridmpi_doctor::{Circuit, Facts, Link};
use std::collections::BTreeMap;

/// The processes as which nodes, by their positions, are registered at their relays.
pub(crate) type Registered = BTreeMap<usize, u32>;

/// All ways from one cluster to another.
#[derive(Debug)]
pub(crate) enum Road {
    /// To the addresses that nodes tell.
    Direct,
    /// By circuits.
    Circuits {
        /// Through these of the dialling cluster's relays.
        relays: Vec<String>,
        /// To whom.
        registered: Registered,
    },
}

impl Road {
    /// Between two clusters, from whichever can connect to the other: that one comes first. None where nobody can, the reasons
    /// for which are in the facts.
    pub(crate) fn of<'a>(
        link: &'a Link,
        by_relays: bool,
        facts: &Facts,
        registered: &Registered,
    ) -> Option<([&'a str; 2], Self)> {
        let [a, b] = link.between.each_ref().map(String::as_str);
        [[a, b], [b, a]].into_iter().find_map(|between| {
            let road = if by_relays {
                let relays = relays(between, &facts.circuits);
                let registered = registered.clone();
                (!relays.is_empty()).then_some(Self::Circuits { relays, registered })
            } else {
                crosses(between, facts).then_some(Self::Direct)
            };
            Some((between, road?))
        })
    }

    /// Those of `nodes` that can take part.
    pub(crate) fn users(&self, mut nodes: Vec<usize>) -> Vec<usize> {
        if let Self::Circuits { registered, .. } = self {
            nodes.retain(|node| registered.contains_key(node));
        }
        nodes
    }
}

impl Conductor<'_> {
    /// The way to one node.
    pub(crate) fn reach(&self, road: &Road, to: usize) -> Reach {
        match road {
            Road::Direct => Reach::Direct(self.nodes[to].addresses.clone()),
            Road::Circuits { relays, registered } => {
                let process = registered.get(&to).copied().unwrap_or(u32::MAX);
                Reach::Circuits { relays: relays.clone(), process }
            }
        }
    }
}

fn crosses([a, b]: [&str; 2], facts: &Facts) -> bool {
    let mut paths = facts.paths.iter();
    paths.any(|path| path.from.cluster == a && path.to.cluster == b && path.visit.depth.is_some())
}

/// Through which every node of one cluster that was tried came to every one of the other.
fn relays([a, b]: [&str; 2], circuits: &[Circuit]) -> Vec<String> {
    let mut good: BTreeMap<&str, bool> = BTreeMap::new();
    let ours = circuits.iter().filter(|one| one.from.cluster == a && one.to.cluster == b);
    for circuit in ours {
        *good.entry(&circuit.relay).or_insert(true) &= circuit.problem.is_none();
    }
    good.into_iter().filter(|(_, is_good)| *is_good).map(|(relay, _)| relay.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_doctor::{Node, RelayProblem};

    fn circuit(from: &str, to: &str, relay: &str, is_good: bool) -> Circuit {
        let node = |name: &str| Node { cluster: name[..1].to_owned(), host: name.to_owned() };
        Circuit {
            from: node(from),
            to: node(to),
            relay: relay.to_owned(),
            trip_us: None,
            problem: (!is_good).then_some(RelayProblem::NoRoute),
            idle: Vec::new(),
        }
    }

    #[test]
    fn relays_that_lead_everywhere_are_used_from_the_side_that_has_some() {
        let between = ["a".to_owned(), "b".to_owned()];
        let link = Link { between, bandwidth: None, delay_us: None, dialler: None, measured: None };
        let facts = |circuits| Facts { circuits, ..Facts::default() };
        let road = |facts: &Facts| {
            let (between, road) = Road::of(&link, true, facts, &Registered::new())?;
            let Road::Circuits { relays, .. } = road else { return None };
            Some((between, relays))
        };
        let some = facts(vec![
            circuit("a1", "b1", "one", true),
            circuit("a1", "b1", "two", true),
            circuit("a1", "b2", "one", false),
            circuit("a1", "b2", "two", true),
            circuit("a1", "c1", "two", false),
        ]);
        assert_eq!(road(&some), Some((["a", "b"], vec!["two".to_owned()])));
        let back = facts(vec![circuit("a1", "b1", "one", false), circuit("b1", "a1", "far", true)]);
        assert_eq!(road(&back), Some((["b", "a"], vec!["far".to_owned()])));
        assert_eq!(road(&facts(vec![circuit("a1", "b1", "one", false)])), None);
        assert!(Road::of(&link, false, &some, &Registered::new()).is_none());
    }
}
