//! Allgather(v): clusters gather their own blocks, every lane sends its part of them to its counterparts,
//! and clusters put together what came. One delay; a block crosses once to each other cluster.

use crate::builder::{Builder, Done};
use crate::collective::Blocks;
use crate::lanes::Lanes;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, lanes: Lanes<'_>, blocks: &Blocks, in_place: bool) -> Schedule {
    let mut b = Builder::among(lanes.senders());
    let own = Span::new(BufferId::SEND, 0, blocks.len(shape.me()));
    let gather = LocalCollective::Allgatherv {
        send: (!in_place).then_some(own),
        recv: blocks.spans(BufferId::RECV, shape.neighbours()),
    };
    let gathered = b.local(gather, &Done::now());
    if let Some(lane) = lanes.mine() {
        let ours = blocks.spans(BufferId::RECV, shape.neighbours());
        let part = lanes.part(Span::new(BufferId::RECV, 0, total(&ours)), 1, lane);
        for cluster in shape.other_clusters() {
            b.send(lanes.rank(cluster, lane), cut(&ours, part.offset, part.len), &gathered);
        }
    }
    for cluster in shape.other_clusters() {
        take_in(&mut b, shape, lanes, blocks, cluster);
    }
    b.finish()
}

/// Receives the blocks of `cluster`: at their places if these are in one piece, else on the side.
fn take_in(b: &mut Builder, shape: &Shape, lanes: Lanes<'_>, blocks: &Blocks, cluster: usize) {
    let places = blocks.spans(BufferId::RECV, shape.members(cluster));
    let len = total(&places);
    if len == 0 {
        return;
    }
    let whole = Span::new(BufferId::RECV, places[0].offset, len);
    let in_one_piece = cut(&places, 0, len) == [whole];
    let window = if in_one_piece { whole } else { b.bytes(len) };

    let mut here = Done::now();
    if let Some(lane) = lanes.mine() {
        let from = lanes.rank(cluster, lane);
        here = b.receive(from, lanes.part(window, 1, lane), &Done::now());
    }
    let shared = lanes.share(b, window, 1, &here);
    if !in_one_piece {
        let mut next = 0;
        for place in places {
            b.copy(window.part(next, place.len), place, &shared);
            next += place.len;
        }
    }
}

fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.len).sum()
}

/// `len` bytes from byte `skip` of `spans` one after the other, adjacent ones joined.
fn cut(spans: &[Span], skip: u64, len: u64) -> Vec<Span> {
    let (mut skip, mut len) = (skip, len);
    let mut parts = Vec::new();
    for span in spans {
        let from = skip.min(span.len);
        let part = span.part(from, len.min(span.len - from));
        (skip, len) = (skip - from, len - part.len);
        parts.push(part);
    }
    crate::builder::IntoSpans::into_spans(parts)
}
