//! Reduce by an operation that does not commute, where ranks do not go cluster by cluster: the root gets
//! every operand and combines them in rank order. One delay.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::{Blocks, Elements};
use crate::schedule::{LocalCollective, Schedule, Senders};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, root: Rank, elements: Elements, in_place: bool) -> Schedule {
    let mut b = Builder::among(Senders::All);
    let at_root = shape.me() == root;
    let operand = elements.operand(at_root && in_place);
    if !shape.is_local(root) {
        b.send(root, operand, &Done::now());
        return b.finish();
    }
    let local_root = shape.local_rank_of(root);
    let gather = |recv| LocalCollective::Gatherv { send: Some(operand), recv, root: local_root };
    if !at_root {
        b.local(gather(Vec::new()), &Done::now());
        return b.finish();
    }
    let slots = Blocks::equal(shape.size(), elements.len());
    let all = b.elements(slots.total(), elements.size).buffer;
    let gathered = b.local(gather(slots.spans(all, shape.neighbours())), &Done::now());
    let parts: Vec<_> = shape
        .ranks()
        .map(|rank| {
            let slot = slots.span(all, rank);
            let here = shape.is_local(rank);
            let arrived = if here { gathered.clone() } else { b.receive(rank, slot, &Done::now()) };
            // The result takes the operand's place, so nothing is combined before that is gathered.
            (slot, arrived.and(&gathered))
        })
        .collect();
    b.combine(&parts, elements.result());
    b.finish()
}
