//! Receivers' interfaces, and what piles up in front of them.
//!
//! Where the senders of a burst end one by one, some receiver is always wanted by more than its interface carries, for a moment.
//! That is what its switch has a buffer for; to slow somebody down for it would leave links empty. So an interface binds when more
//! has piled up than any switch holds easily, until less is wanted again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::NodeId;

/// What may pile up in front of a receiver, bits: half of a small switch's buffer. Two that meet with their last messages of some
/// 16 KiB have sent them by then.
const ALLOWANCE: f64 = 32_768.0 * 8.0;

/// So long it takes until a word about it has its effect: what piles up by then counts, too.
const REACTION: f64 = 0.004;

/// What is wanted of an interface is as much as it carries if it is hardly more.
const OVER: f64 = 1.001;

/// What comes to a receiver, bits per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) rate: f64,
    /// From how many nodes.
    pub(crate) senders: u32,
}

/// The receivers that more comes, or has come, to than they can take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inlets {
    known: BTreeMap<NodeId, Inlet>,
    settled: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Inlet {
    /// What has piled up, bits.
    level: f64,
    /// By how much what comes is more than the interface carries, bits per second.
    excess: f64,
    /// It has bound so far, and does if too much is still wanted.
    has_bound: bool,
    binds: bool,
}

impl Inlets {
    /// Begins to decide who binds: nobody does, so far.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.settle(now);
        for inlet in self.known.values_mut() {
            inlet.has_bound = inlet.binds;
            inlet.binds = false;
        }
    }

    /// More interfaces that bind, where so much comes to each with those that do already; `capacity` is what one carries.
    pub(crate) fn more(
        &mut self,
        loads: &BTreeMap<NodeId, Load>,
        capacity: impl Fn(NodeId) -> f64,
    ) -> Vec<NodeId> {
        let over = loads.iter().filter(|&(&node, load)| load.rate > OVER * capacity(node));
        let mut more = Vec::new();
        for (&node, load) in over {
            let inlet = self.known.entry(node).or_default();
            let by_then = inlet.level + (load.rate - capacity(node)) * REACTION;
            // A lone sender that is faster stays faster.
            let is_due = inlet.has_bound || load.senders == 1 || by_then >= ALLOWANCE;
            if !inlet.binds && is_due {
                inlet.binds = true;
                more.push(node);
            }
        }
        more
    }

    /// So much comes to each from now on.
    pub(crate) fn fill(
        &mut self,
        loads: &BTreeMap<NodeId, Load>,
        capacity: impl Fn(NodeId) -> f64,
    ) {
        self.known.retain(|&node, inlet| {
            let excess = loads.get(&node).map_or(0.0, |load| load.rate) - OVER * capacity(node);
            // Where both are endless there is none.
            inlet.excess = if excess.is_nan() { 0.0 } else { excess };
            inlet.binds || inlet.excess > 0.0 || inlet.level > 0.0
        });
    }

    /// Whether more comes, or has come, to a node than it can take.
    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// Whether some interface binds.
    pub(crate) fn bind(&self) -> bool {
        self.known.values().any(|inlet| inlet.binds)
    }

    /// When another interface binds if nothing changes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let filling = self.known.values().filter(|inlet| !inlet.binds && inlet.excess > 0.0);
        let seconds = filling.map(|inlet| (ALLOWANCE - inlet.level) / inlet.excess - REACTION);
        let least = seconds.fold(f64::INFINITY, f64::min).max(0.0);
        // Rounded up: not a moment too early. An hour is as good as never.
        let after = Duration::from_secs_f64(least.min(3600.0)) + Duration::from_nanos(1);
        least.is_finite().then_some(self.settled? + after)
    }

    fn settle(&mut self, now: Instant) {
        let passed = self.settled.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        for inlet in self.known.values_mut() {
            // Never infinite times zero.
            let more = if passed.is_zero() { 0.0 } else { inlet.excess * passed.as_secs_f64() };
            inlet.level = (inlet.level + more).clamp(0.0, 2.0 * ALLOWANCE);
        }
        self.settled = Some(self.settled.map_or(now, |at| at.max(now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Network, Rate};

    const MS: Duration = Duration::from_millis(1);

    fn nodes(count: u32) -> Vec<NodeId> {
        let mut network = Network::new();
        let cluster = network.add_cluster();
        (0..count).map(|_| network.add_node(cluster, Rate::UNBOUNDED)).collect()
    }

    fn loads(of: &[(NodeId, f64, u32)]) -> BTreeMap<NodeId, Load> {
        of.iter().map(|&(node, rate, senders)| (node, Load { rate, senders })).collect()
    }

    /// Who binds at `now`, where so much is wanted and what binds lets nine tenths of what it carries come.
    fn step(
        inlets: &mut Inlets,
        wanted: &[(NodeId, f64, u32)],
        capacity: f64,
        now: Instant,
    ) -> Vec<NodeId> {
        let mut loads = loads(wanted);
        inlets.begin(now);
        let binding = inlets.more(&loads, |_| capacity);
        for node in &binding {
            loads.get_mut(node).unwrap().rate = 0.9 * capacity;
        }
        assert!(inlets.more(&loads, |_| capacity).is_empty());
        inlets.fill(&loads, |_| capacity);
        binding
    }

    #[test]
    fn an_interface_binds_when_its_switch_has_taken_what_it_may_until_less_is_wanted() {
        let (nodes, now) = (nodes(1), Instant::now());
        let mut inlets = Inlets::default();
        let wanted = [(nodes[0], 60e6, 2)];
        assert!(step(&mut inlets, &wanted, 50e6, now).is_empty());
        let due = inlets.due().unwrap();
        let seconds = ALLOWANCE / (60e6 - OVER * 50e6) - REACTION;
        assert_eq!((due - now).as_micros(), (seconds * 1e6) as u128);
        assert!(step(&mut inlets, &wanted, 50e6, due - MS).is_empty());
        let due = inlets.due().unwrap();
        assert_eq!(step(&mut inlets, &wanted, 50e6, due), nodes);
        assert_eq!(inlets.due(), None);
        // It goes on binding when the queue has drained.
        assert_eq!(step(&mut inlets, &wanted, 50e6, due + 1000 * MS), nodes);
        let less = [(nodes[0], 50e6, 2)];
        assert!(step(&mut inlets, &less, 50e6, due + 1001 * MS).is_empty());
        assert!(inlets.known.is_empty());
    }

    #[test]
    fn a_moment_is_forgiven_and_a_lone_fast_sender_is_not() {
        let (nodes, now) = (nodes(2), Instant::now());
        let mut inlets = Inlets::default();
        for round in 0..100 {
            let over = [(nodes[0], 25e6, 3)];
            assert!(step(&mut inlets, &over, 15e6, now + 40 * round * MS).is_empty());
            assert!(step(&mut inlets, &[], 15e6, now + (40 * round + 10) * MS).is_empty());
        }
        let lone = [(nodes[1], 16e6, 1)];
        assert_eq!(step(&mut inlets, &lone, 15e6, now + 5000 * MS), [nodes[1]]);
        let crowd = [(nodes[1], 120e6, 8)];
        assert_eq!(step(&mut inlets, &crowd, 15e6, now + 6000 * MS), [nodes[1]]);
    }

    #[test]
    fn two_that_meet_with_their_last_short_messages_are_not_slowed() {
        let (nodes, now) = (nodes(1), Instant::now());
        let mut inlets = Inlets::default();
        // Of 16 KiB each, at 39 Mbit/s each: 3.6 ms with the headers.
        let wanted = [(nodes[0], 78e6, 2)];
        for step_ms in 0..4 {
            assert!(step(&mut inlets, &wanted, 50e6, now + step_ms * MS).is_empty(), "{step_ms}");
        }
        // Two that go on are.
        assert_eq!(step(&mut inlets, &wanted, 50e6, now + 10 * MS), nodes);
    }

    #[test]
    fn what_nothing_bounds_is_no_trouble() {
        let (nodes, now) = (nodes(1), Instant::now());
        let mut inlets = Inlets::default();
        let endless = [(nodes[0], f64::INFINITY, 2)];
        for (time, capacity) in (0u32..).zip([1e6, 1e6, f64::INFINITY, 1e6]) {
            step(&mut inlets, &endless, capacity, now + time * MS);
            assert!(inlets.known.values().all(|inlet| !inlet.level.is_nan()));
            let _ = inlets.due();
        }
    }
}
