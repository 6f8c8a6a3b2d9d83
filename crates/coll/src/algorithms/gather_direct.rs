//! Gather(v): every rank of another cluster sends straight to the root. One delay, and no process needs
//! to know the length of another's part.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::schedule::{BufferId, LocalCollective, Schedule, Senders, Span};
use crate::shape::Shape;

/// `blocks` are used on the root only; all are of `len` bytes if `is_equal`.
pub(crate) fn build(
    shape: &Shape,
    root: Rank,
    (len, is_equal): (u64, bool),
    blocks: &Blocks,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::among(if is_equal { Senders::All } else { Senders::Any });
    let part = Span::new(BufferId::SEND, 0, len);
    if !shape.is_local(root) {
        b.send(root, part, &Done::now());
        return b.finish();
    }
    let at_root = shape.me() == root;
    if at_root {
        for cluster in shape.other_clusters() {
            for &rank in shape.members(cluster) {
                b.receive(rank, blocks.span(BufferId::RECV, rank), &Done::now());
            }
        }
    }
    let local = LocalCollective::Gatherv {
        send: (!(at_root && in_place)).then_some(part),
        recv: if at_root { blocks.spans(BufferId::RECV, shape.neighbours()) } else { Vec::new() },
        root: shape.local_rank_of(root),
    };
    b.local(local, &Done::now());
    b.finish()
}
