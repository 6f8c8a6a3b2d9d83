//! Allreduce of large data, where clusters may be combined one by one: each reduces its own operands and
//! scatters the result over its lanes, lanes exchange with their counterparts and combine in cluster
//! order, clusters put the parts together. One delay.

use crate::builder::{Builder, Done};
use crate::collective::Elements;
use crate::lanes::Lanes;
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(
    shape: &Shape,
    lanes: Lanes<'_>,
    elements: Elements,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::among(lanes.senders());
    let (result, size) = (elements.result(), elements.size);
    let part = lanes.mine().map_or(result.part(0, 0), |lane| lanes.part(result, size, lane));
    let mine = b.elements(part.len, size);
    let from = lanes.by_local_rank(elements.operand(in_place), size);
    let reduced = b.local(LocalCollective::ReduceScatter { from, into: mine }, &Done::now());
    let mut combined = reduced.clone();
    if let Some(lane) = lanes.mine() {
        for cluster in shape.other_clusters() {
            b.send(lanes.rank(cluster, lane), mine, &reduced);
        }
        let peers = |cluster| lanes.rank(cluster, lane);
        let parts = b.receive_parts(shape, (mine, &reduced), part, size, peers);
        combined = b.combine(&parts, part);
    }
    lanes.share(&mut b, result, size, &combined);
    b.finish()
}
