//! Scan and Exscan where ranks do not go cluster by cluster: leaders exchange all operands, compute all
//! prefixes in rank order and scatter them. One delay; an operand crosses once to each other cluster.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::{Blocks, Elements};
use crate::schedule::{LocalCollective, Schedule, Span};
use crate::shape::Shape;

/// Whether a rank's own operand is part of its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Included,
    Excluded,
}

pub(crate) fn build(shape: &Shape, elements: Elements, own: Own, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let slots = Blocks::equal(shape.size(), elements.len());
    let (all, mut ready) = gather_at_leaders(&mut b, shape, elements, in_place);
    let mut send = Vec::new();
    if let Some(all) = all {
        // Each operand becomes its prefix where it lies.
        for rank in shape.ranks().skip(1) {
            let before = slots.span(all.buffer, Rank(rank.0 - 1));
            ready = b.reduce(before, slots.span(all.buffer, rank), &ready);
        }
        let prefix =
            |&rank| result_slot(own, rank).map_or(all.part(0, 0), |r| slots.span(all.buffer, r));
        send = shape.neighbours().iter().map(prefix).collect();
    }
    // The receive buffer of rank 0 is not significant in Exscan (MPI 4.1 §6.11.2): nothing is stored.
    let result = elements.result();
    let recv = result_slot(own, shape.me()).map_or(result.part(0, 0), |_| result);
    b.local(LocalCollective::Scatterv { send, recv: Some(recv), root: 0 }, &ready);
    b.finish()
}

/// The rank up to which operands are combined for `rank`; `None` if it gets nothing.
fn result_slot(own: Own, rank: Rank) -> Option<Rank> {
    match own {
        Own::Included => Some(rank),
        Own::Excluded => rank.0.checked_sub(1).map(Rank),
    }
}

/// Brings every rank's operand to every leader. Returns there all operands in rank order, and
/// everywhere what to wait for before they, or the operand's place, are used.
pub(super) fn gather_at_leaders(
    b: &mut Builder,
    shape: &Shape,
    elements: Elements,
    in_place: bool,
) -> (Option<Span>, Done) {
    let gather = |recv| {
        let send = Some(elements.operand(in_place));
        LocalCollective::Gatherv { send, recv, root: 0 }
    };
    if shape.my_local_rank() != 0 {
        return (None, b.local(gather(Vec::new()), &Done::now()));
    }
    let slots = Blocks::equal(shape.size(), elements.len());
    let all = b.elements(slots.total(), elements.size);
    let ours = slots.spans(all.buffer, shape.neighbours());
    let gathered = b.local(gather(ours.clone()), &Done::now());
    let mut ready = gathered.clone();
    for cluster in shape.other_clusters() {
        let places = slots.spans(all.buffer, shape.members(cluster));
        ready.add(&b.receive(shape.leader(cluster), places, &Done::now()));
    }
    for cluster in shape.other_clusters() {
        // Operands are overwritten by prefixes, so they must have been sent before.
        ready.add(&b.send(shape.leader(cluster), ours.clone(), &gathered));
    }
    (Some(all), ready)
}
