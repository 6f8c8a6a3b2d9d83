//! Bcast of large data: the root deals it out to the lanes of its cluster, these cross side by side, and
//! every other cluster puts it together. One delay.
//!
//! The root's buffer is only read (it may be read-only memory), so its cluster gets the data by a
//! broadcast, while the lanes cross out of memory of their own.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::lanes::Lanes;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, lanes: Lanes<'_>, root: Rank, len: u64) -> Schedule {
    let mut b = Builder::among(lanes.senders());
    let data = Span::new(BufferId::RECV, 0, len);
    if shape.is_local(root) {
        from_here(&mut b, shape, lanes, root, data);
    } else {
        let mut here = Done::now();
        if let Some(lane) = lanes.mine() {
            let from = lanes.rank(shape.cluster_of(root), lane);
            here = b.receive(from, lanes.part(data, 1, lane), &Done::now());
        }
        lanes.share(&mut b, data, 1, &here);
    }
    b.finish()
}

fn from_here(b: &mut Builder, shape: &Shape, lanes: Lanes<'_>, root: Rank, data: Span) {
    let (at_root, root_here) = (shape.me() == root, shape.local_rank_of(root));
    let mine = lanes.mine().map_or(data.part(0, 0), |lane| lanes.part(data, 1, lane));
    let part = if at_root { mine } else { b.bytes(mine.len) };
    let deal = LocalCollective::Scatterv {
        send: if at_root { lanes.by_local_rank(data, 1) } else { Vec::new() },
        recv: (!at_root).then_some(part),
        root: root_here,
    };
    let dealt = b.local(deal, &Done::now());
    if let Some(lane) = lanes.mine() {
        for cluster in shape.other_clusters() {
            b.send(lanes.rank(cluster, lane), part, &dealt);
        }
    }
    b.local(LocalCollective::Bcast { data, root: root_here }, &dealt);
}
