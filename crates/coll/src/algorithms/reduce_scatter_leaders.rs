//! Reduce_scatter, where clusters may be combined one by one: each reduces all operands to its leader,
//! leaders send one another what the other's members are to get, combine in cluster order and scatter.
//! One delay.

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
    let is_leader = shape.my_local_rank() == 0;
    let all = is_leader.then(|| b.elements(elements.len(), elements.size));
    let operand = Some(elements.operand(in_place));
    let reduce = LocalCollective::Reduce { from: operand, into: all, root: 0 };
    let mut ready = b.local(reduce, &Done::now());

    let mut send = Vec::new();
    if let Some(all) = all {
        for cluster in shape.other_clusters() {
            let theirs = blocks.spans(all.buffer, shape.members(cluster));
            b.send(shape.leader(cluster), theirs, &ready);
        }
        let result = b.elements(blocks.sum(shape.neighbours()), elements.size);
        let mine = b.elements(result.len, elements.size);
        let reduced = b.pack(&blocks.spans(all.buffer, shape.neighbours()), mine, &ready);
        let peers = |cluster| shape.leader(cluster);
        let parts = b.receive_parts(shape, (mine, &reduced), result, elements.size, peers);
        ready = b.combine(&parts, result);
        send = packed(blocks, shape, result);
    }
    let recv = Some(Span::new(BufferId::RECV, 0, blocks.len(shape.me())));
    b.local(LocalCollective::Scatterv { send, recv, root: 0 }, &ready);
    b.finish()
}

/// The blocks of this cluster's members, one after the other in `place`.
pub(super) fn packed(blocks: &Blocks, shape: &Shape, place: Span) -> Vec<Span> {
    let here = Blocks::new(shape.neighbours().iter().map(|&rank| blocks.len(rank)));
    let block = |local| place.part(here.offset(local), here.len(local));
    (0..shape.neighbours().len() as u32).map(gridmpi_wire::Rank).map(block).collect()
}
