//! Reduce, where clusters may be combined one by one: each reduces its own operands, leaders send the
//! root the results, the root combines them in cluster order. One delay.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Elements;
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, root: Rank, elements: Elements, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let speaker = shape.speaker(shape.my_cluster(), root);
    let local_root = shape.local_rank_of(speaker);
    let at_root = shape.me() == root;
    let operand = elements.operand(at_root && in_place);
    let reduce = |from, into| LocalCollective::Reduce { from, into, root: local_root };

    if at_root {
        let result = elements.result();
        let is_last = shape.my_cluster() + 1 == shape.clusters();
        let mine = if is_last { result } else { b.elements(elements.len(), elements.size) };
        let from = (operand != mine).then_some(operand);
        let reduced = b.local(reduce(from, Some(mine)), &Done::now());
        let peers = |cluster| shape.leader(cluster);
        let parts = b.receive_parts(shape, (mine, &reduced), result, elements.size, peers);
        b.combine(&parts, result);
    } else if shape.me() == speaker {
        let mine = b.elements(elements.len(), elements.size);
        let reduced = b.local(reduce(Some(operand), Some(mine)), &Done::now());
        b.send(root, mine, &reduced);
    } else {
        b.local(reduce(Some(operand), None), &Done::now());
    }
    b.finish()
}
