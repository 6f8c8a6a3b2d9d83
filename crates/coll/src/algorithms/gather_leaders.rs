//! Gather of small blocks: clusters gather to their leaders, who send the root one message each. One
//! delay, and few messages for the root.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, root: Rank, len: u64, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let blocks = Blocks::equal(shape.size(), len);
    let part = Span::new(BufferId::SEND, 0, len);
    let speaker = shape.speaker(shape.my_cluster(), root);
    let local_root = shape.local_rank_of(speaker);
    let gather = |send, recv| LocalCollective::Gatherv { send, recv, root: local_root };

    if shape.me() == root {
        for cluster in shape.other_clusters() {
            let places = blocks.spans(BufferId::RECV, shape.members(cluster));
            b.receive(shape.leader(cluster), places, &Done::now());
        }
        let places = blocks.spans(BufferId::RECV, shape.neighbours());
        b.local(gather((!in_place).then_some(part), places), &Done::now());
    } else if shape.me() == speaker {
        let members = shape.neighbours().len() as u64;
        let all = b.bytes(members * len);
        let places = (0..members).map(|index| all.part(index * len, len)).collect();
        let gathered = b.local(gather(Some(part), places), &Done::now());
        b.send(root, all, &gathered);
    } else {
        b.local(gather(Some(part), Vec::new()), &Done::now());
    }
    b.finish()
}
