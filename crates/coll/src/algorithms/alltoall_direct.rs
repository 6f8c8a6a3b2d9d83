//! Alltoall(v,w): the vendor exchanges within the cluster, pairs of ranks of different clusters exchange
//! directly. One delay.
//!
//! Every rank begins with the rank after its own and goes round, so that not everybody sends to the same
//! receiver first.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, send: &Blocks, recv: &Blocks, in_place: bool) -> Schedule {
    let mut b = Builder::default();
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

fn remote_ranks(shape: &Shape) -> impl Iterator<Item = Rank> + '_ {
    let (me, size) = (shape.me().0, shape.size());
    (1..size).map(move |step| Rank((me + step) % size)).filter(|&rank| !shape.is_local(rank))
}
