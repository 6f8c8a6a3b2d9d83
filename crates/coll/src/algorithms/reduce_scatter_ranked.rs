//! Reduce_scatter by an operation that does not commute, where ranks do not go cluster by cluster:
//! leaders exchange of every operand what the other's members are to get, combine in rank order and
//! scatter. One delay.

use super::reduce_scatter_leaders::packed;
use crate::builder::{Builder, Done};
use crate::collective::{Blocks, Elements};
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(
    shape: &Shape,
    elements: Elements,
    blocks: &Blocks,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::default();
    let operand = Some(elements.operand(in_place));
    let gather = |recv| LocalCollective::Gatherv { send: operand, recv, root: 0 };
    let recv = Some(Span::new(BufferId::RECV, 0, blocks.len(shape.me())));
    let scatter = |send| LocalCollective::Scatterv { send, recv, root: 0 };
    if shape.my_local_rank() != 0 {
        let gathered = b.local(gather(Vec::new()), &Done::now());
        b.local(scatter(Vec::new()), &gathered);
        return b.finish();
    }
    let members = shape.neighbours().len() as u64;
    let operands = b.elements(members * elements.len(), elements.size);
    let ours: Vec<_> =
        (0..members).map(|index| operands.part(index * elements.len(), elements.len())).collect();
    let gathered = b.local(gather(ours.clone()), &Done::now());

    let len = blocks.sum(shape.neighbours());
    let slots = Blocks::equal(shape.size(), len);
    let all = b.elements(slots.total(), elements.size).buffer;
    let arrived = exchange(&mut b, shape, blocks, &ours, (all, &slots), &gathered);
    let parts: Vec<_> =
        shape.ranks().map(|rank| (slots.span(all, rank), arrived.clone())).collect();
    let result = b.elements(len, elements.size);
    let combined = b.combine(&parts, result);
    b.local(scatter(packed(blocks, shape, result)), &combined.and(&gathered));
    b.finish()
}

/// Fills a slot for every rank with what its operand has for this cluster's members, and sends the other
/// leaders theirs. `ours` are this cluster's operands.
fn exchange(
    b: &mut Builder,
    shape: &Shape,
    blocks: &Blocks,
    ours: &[Span],
    (all, slots): (BufferId, &Blocks),
    gathered: &Done,
) -> Done {
    let of = |operand: &Span, cluster| {
        let part = |&rank| operand.part(blocks.offset(rank), blocks.len(rank));
        shape.members(cluster).iter().map(part).collect::<Vec<_>>()
    };
    let mut arrived = gathered.clone();
    for cluster in shape.other_clusters() {
        let places = slots.spans(all, shape.members(cluster));
        arrived.add(&b.receive(shape.leader(cluster), places, &Done::now()));
        let theirs: Vec<_> = ours.iter().flat_map(|operand| of(operand, cluster)).collect();
        b.send(shape.leader(cluster), theirs, gathered);
    }
    for (operand, &rank) in ours.iter().zip(shape.neighbours()) {
        let parts = of(operand, shape.my_cluster());
        arrived.add(&b.pack(&parts, slots.span(all, rank), gathered));
    }
    arrived
}
