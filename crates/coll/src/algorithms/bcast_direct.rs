//! Bcast: the root sends straight to one rank of each other cluster; clusters broadcast. One delay.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, root: Rank, len: u64) -> Schedule {
    let mut b = Builder::default();
    let data = Span::new(BufferId::RECV, 0, len);
    let speaker = shape.speaker(shape.my_cluster(), root);
    let mut here = Done::now();
    if shape.me() == root {
        for cluster in shape.other_clusters() {
            b.send(shape.leader(cluster), data, &Done::now());
        }
    } else if shape.me() == speaker {
        here = b.receive(root, data, &Done::now());
    }
    b.local(LocalCollective::Bcast { data, root: shape.local_rank_of(speaker) }, &here);
    b.finish()
}
