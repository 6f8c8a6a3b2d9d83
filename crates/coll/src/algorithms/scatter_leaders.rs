//! Scatter of small blocks: the root sends each other cluster's leader one message, clusters scatter.
//! One delay, and few messages for the root.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, root: Rank, len: u64, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let blocks = Blocks::equal(shape.size(), len);
    let part = Span::new(BufferId::RECV, 0, len);
    let speaker = shape.speaker(shape.my_cluster(), root);
    let local_root = shape.local_rank_of(speaker);
    let scatter = |send, recv| LocalCollective::Scatterv { send, recv, root: local_root };

    if shape.me() == root {
        for cluster in shape.other_clusters() {
            let parts = blocks.spans(BufferId::SEND, shape.members(cluster));
            b.send(shape.leader(cluster), parts, &Done::now());
        }
        let parts = blocks.spans(BufferId::SEND, shape.neighbours());
        b.local(scatter(parts, (!in_place).then_some(part)), &Done::now());
    } else if shape.me() == speaker {
        let members = shape.neighbours().len() as u64;
        let all = b.bytes(members * len);
        let arrived = b.receive(root, all, &Done::now());
        let parts = (0..members).map(|index| all.part(index * len, len)).collect();
        b.local(scatter(parts, Some(part)), &arrived);
    } else {
        b.local(scatter(Vec::new(), Some(part)), &Done::now());
    }
    b.finish()
}
