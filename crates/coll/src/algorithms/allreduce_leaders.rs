//! Allreduce, where clusters may be combined one by one: each reduces its own operands, leaders exchange
//! the results directly and combine them in cluster order, clusters broadcast. One delay; the result is
//! the same everywhere because everybody combines the same in the same order.

use crate::builder::{Builder, Done};
use crate::collective::Elements;
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, elements: Elements, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let (operand, result) = (elements.operand(in_place), elements.result());
    let leads = shape.my_local_rank() == 0;
    let mine = leads.then(|| b.elements(elements.len(), elements.size));
    let reduce = LocalCollective::Reduce { from: Some(operand), into: mine, root: 0 };
    let reduced = b.local(reduce, &Done::now());
    let mut combined = reduced.clone();
    if let Some(mine) = mine {
        for cluster in shape.other_clusters() {
            b.send(shape.leader(cluster), mine, &reduced);
        }
        let peers = |cluster| shape.leader(cluster);
        let parts = b.receive_parts(shape, (mine, &reduced), result, elements.size, peers);
        combined = b.combine(&parts, result);
    }
    b.local(LocalCollective::Bcast { data: result, root: 0 }, &combined);
    b.finish()
}
