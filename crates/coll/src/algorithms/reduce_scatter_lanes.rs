//! Reduce_scatter of large data, where clusters may be combined one by one: for every cluster, the lanes
//! of each get a part of what its members are to have, already reduced over their own cluster; lanes
//! exchange with their counterparts, combine in cluster order and deal out. One delay.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::collective::{Blocks, Elements};
use crate::lanes::Lanes;
use crate::schedule::{BufferId, LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(
    shape: &Shape,
    lanes: Lanes<'_>,
    elements: Elements,
    blocks: &Blocks,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::among(lanes.senders());
    let (size, me) = (elements.size, shape.my_cluster());
    let windows = Blocks::new((0..shape.clusters()).map(|c| blocks.sum(shape.members(c))));
    let (operand, packed) = by_cluster(&mut b, shape, elements, blocks, in_place);
    let window = |cluster: usize| {
        let number = Rank(cluster as u32);
        operand.part(windows.offset(number), windows.len(number))
    };
    let my_part =
        |window: Span| lanes.mine().map_or(window.part(0, 0), |l| lanes.part(window, size, l));

    let mut reduced = packed;
    let mut reduce = |b: &mut Builder, cluster| {
        let mine = b.elements(my_part(window(cluster)).len, size);
        let from = lanes.by_local_rank(window(cluster), size);
        reduced = b.local(LocalCollective::ReduceScatter { from, into: mine }, &reduced);
        (mine, reduced.clone())
    };
    for cluster in shape.other_clusters() {
        let (part, ready) = reduce(&mut b, cluster);
        if let Some(lane) = lanes.mine() {
            b.send(lanes.rank(cluster, lane), part, &ready);
        }
    }
    let (mut mine, mut ready) = reduce(&mut b, me);
    if let Some(lane) = lanes.mine() {
        let combined = b.elements(mine.len, size);
        let peers = |cluster| lanes.rank(cluster, lane);
        let parts = b.receive_parts(shape, (mine, &ready), combined, size, peers);
        (mine, ready) = (combined, b.combine(&parts, combined));
    }
    b.local(deal(shape, lanes, blocks, size, mine), &ready);
    b.finish()
}

/// The operand with the blocks of each cluster's members in one piece, cluster after cluster.
fn by_cluster(
    b: &mut Builder,
    shape: &Shape,
    elements: Elements,
    blocks: &Blocks,
    in_place: bool,
) -> (Span, Done) {
    let operand = elements.operand(in_place);
    if shape.is_ordered() {
        return (operand, Done::now());
    }
    let members = (0..shape.clusters()).flat_map(|cluster| shape.members(cluster));
    let parts: Vec<_> = members.map(|&rank| blocks.span(operand.buffer, rank)).collect();
    let place = b.elements(elements.len(), elements.size);
    let packed = b.pack(&parts, place, &Done::now());
    (place, packed)
}

/// The members get their blocks out of the lanes' parts, of which this process has `mine`.
fn deal(
    shape: &Shape,
    lanes: Lanes<'_>,
    blocks: &Blocks,
    size: u64,
    mine: Span,
) -> LocalCollective {
    let here = Blocks::new(shape.neighbours().iter().map(|&rank| blocks.len(rank)));
    let window = Span::new(BufferId::RECV, 0, here.total()); // only its offsets count
    let locals = || (0..shape.neighbours().len() as u32).map(Rank);
    let parts = lanes.by_local_rank(window, size);
    let part_of = |local: Rank| parts[local.0 as usize];
    let me = Rank(shape.my_local_rank());

    let send = locals().map(|to| {
        let (start, len) = common(part_of(me), here.span(BufferId::RECV, to));
        mine.part(start.saturating_sub(part_of(me).offset).min(mine.len), len)
    });
    let recv = locals().map(|from| {
        let block = here.span(BufferId::RECV, me);
        let (start, len) = common(part_of(from), block);
        Span::new(BufferId::RECV, start.saturating_sub(block.offset).min(block.len), len)
    });
    LocalCollective::Alltoallv { send: send.collect(), recv: recv.collect() }
}

/// Start and length of what two spans have in common.
fn common(a: Span, b: Span) -> (u64, u64) {
    let start = a.offset.max(b.offset);
    (start, a.end().min(b.end()).saturating_sub(start))
}
