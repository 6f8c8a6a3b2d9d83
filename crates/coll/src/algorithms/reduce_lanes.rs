//! Reduce of large data, where clusters may be combined one by one: each reduces its own operands and
//! scatters the result over its lanes, lanes send to their counterparts in the root's cluster, these
//! combine in cluster order and the root gathers. One delay.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Elements;
use crate::lanes::Lanes;
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(
    shape: &Shape,
    lanes: Lanes<'_>,
    root: Rank,
    elements: Elements,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::among(lanes.senders());
    let (at_root, home, size) = (shape.me() == root, shape.cluster_of(root), elements.size);
    let result = elements.result();
    let from = lanes.by_local_rank(elements.operand(at_root && in_place), size);
    let len = lanes.mine().map_or(0, |lane| lanes.part(result, size, lane).len);
    let mut mine = b.elements(len, size);
    let mut ready = b.local(LocalCollective::ReduceScatter { from, into: mine }, &Done::now());

    if let Some(lane) = lanes.mine() {
        if !shape.is_local(root) {
            b.send(lanes.rank(home, lane), mine, &ready);
        } else {
            let combined = b.elements(len, size);
            let peers = |cluster| lanes.rank(cluster, lane);
            let parts = b.receive_parts(shape, (mine, &ready), combined, size, peers);
            (mine, ready) = (combined, b.combine(&parts, combined));
        }
    }
    if shape.is_local(root) {
        let recv = if at_root { lanes.by_local_rank(result, size) } else { Vec::new() };
        let root = shape.local_rank_of(root);
        b.local(LocalCollective::Gatherv { send: Some(mine), recv, root }, &ready);
    }
    b.finish()
}
