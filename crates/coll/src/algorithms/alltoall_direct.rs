//! Alltoall(v,w): the vendor exchanges within the cluster, pairs of ranks of different clusters exchange
//! directly. One delay.
//!
//! Every rank of a cluster begins with another one of the others and goes round, so that not everybody sends to the same
//! receiver first.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::schedule::{BufferId, LocalCollective, Schedule, Senders, Span};
use crate::shape::Shape;

pub(crate) fn build(
    shape: &Shape,
    send: &Blocks,
    recv: &Blocks,
    (is_equal, in_place): (bool, bool),
) -> Schedule {
    let mut b = Builder::among(if is_equal { Senders::All } else { Senders::Any });
    let mut source = Span::new(BufferId::SEND, 0, send.total());
    let mut ready = Done::now();
    if in_place {
        source = b.bytes(send.total());
        ready = b.copy(Span::new(BufferId::RECV, 0, send.total()), source, &Done::now());
    }
    for peer in remote_ranks(shape) {
        b.receive(peer, recv.span(BufferId::RECV, peer), &ready);
    }
    for peer in remote_ranks(shape) {
        b.send(peer, send.span(source.buffer, peer), &ready);
    }
    let local = LocalCollective::Alltoallv {
        send: send.spans(source.buffer, shape.neighbours()),
        recv: recv.spans(BufferId::RECV, shape.neighbours()),
    };
    b.local(local, &ready);
    b.finish()
}

fn remote_ranks(shape: &Shape) -> Vec<Rank> {
    let mut remote: Vec<_> = shape.ranks().filter(|&rank| !shape.is_local(rank)).collect();
    // The local ranks' beginnings are spread evenly.
    let locals = shape.members(shape.my_cluster()).len();
    let first = shape.my_local_rank() as usize * remote.len() / locals;
    remote.rotate_left(first);
    remote
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_wire::ClusterId;

    #[test]
    fn ranks_of_a_cluster_begin_with_different_ones() {
        let first = |me: u32, clusters: &[u16]| {
            let clusters: Vec<_> = clusters.iter().copied().map(ClusterId).collect();
            remote_ranks(&Shape::new(Rank(me), &clusters)).first().copied()
        };
        let firsts = |ranks: std::ops::Range<u32>, clusters: &[u16]| {
            ranks.map(|me| first(me, clusters).unwrap().0).collect::<Vec<_>>()
        };
        let two = [0, 0, 0, 0, 1, 1, 1, 1];
        assert_eq!(firsts(0..4, &two), [4, 5, 6, 7]);
        assert_eq!(firsts(4..8, &two), [0, 1, 2, 3]);
        let uneven = [0, 1, 1, 1, 1, 0];
        assert_eq!(firsts(0..1, &uneven), [1]);
        assert_eq!(firsts(5..6, &uneven), [3]);
        assert_eq!(first(0, &[0, 0]), None);
    }
}
