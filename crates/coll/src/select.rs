//! Which algorithm serves a collective: one table, read from the top.

use crate::algorithms::scan_ranked::Own;
use crate::algorithms::*;
use crate::collective::{Blocks, Collective, Elements};
use crate::lanes::Lanes;
use crate::schedule::Schedule;
use crate::shape::Shape;

/// What the choice of an algorithm depends on besides the call. The same on all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes that are worth a lane of their own.
    pub lane_bytes: u64,
    /// Most ranks of a cluster that cross the wide area side by side for one collective.
    pub max_lanes: u32,
    /// Blocks up to so many bytes go through the leaders in Gather and Scatter: fewer messages at the
    /// root, for one more copy.
    pub through_leaders: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { lane_bytes: 256 * 1024, max_lanes: 8, through_leaders: 8 * 1024 }
    }
}

/// What the process of `shape` does in `collective`. All processes of the communicator must call with
/// arguments that belong together (MPI 4.1 §6) and the same `tuning`.
#[must_use]
pub fn schedule(shape: &Shape, collective: &Collective, tuning: &Tuning) -> Schedule {
    select(shape, collective, tuning).1
}

/// The name of the algorithm that [`schedule`] takes.
#[must_use]
pub fn algorithm(shape: &Shape, collective: &Collective, tuning: &Tuning) -> &'static str {
    select(shape, collective, tuning).0
}

/// The table. Conditions are on what all processes know, so that all choose alike.
#[rustfmt::skip]
fn select(s: &Shape, collective: &Collective, tuning: &Tuning) -> (&'static str, Schedule) {
    use Collective as C;
    let lanes = |bytes| Lanes::worth(s, bytes, tuning);
    let per_cluster = |bytes| bytes / s.clusters() as u64;
    let through_leaders = |len| len <= tuning.through_leaders;
    match *collective {
        _ if has_no_data(collective) => ("nothing to do", Schedule::default()),

        C::Barrier => ("barrier leaders", barrier_leaders::build(s)),

        C::Bcast { root, len } if lanes(len).are_several() => ("bcast lanes", bcast_lanes::build(s, lanes(len), root, len)),
        C::Bcast { root, len } => ("bcast direct", bcast_direct::build(s, root, len)),

        C::Gather { root, len, in_place } if through_leaders(len) => ("gather leaders", gather_leaders::build(s, root, len, in_place)),
        C::Gather { root, len, in_place } => ("gather direct", gather_direct::build(s, root, (len, true), &Blocks::equal(s.size(), len), in_place)),
        C::Gatherv { root, len, ref blocks, in_place } => ("gather direct", gather_direct::build(s, root, (len, false), blocks, in_place)),

        C::Scatter { root, len, in_place } if through_leaders(len) => ("scatter leaders", scatter_leaders::build(s, root, len, in_place)),
        C::Scatter { root, len, in_place } => ("scatter direct", scatter_direct::build(s, root, len, &Blocks::equal(s.size(), len), in_place)),
        C::Scatterv { root, len, ref blocks, in_place } => ("scatter direct", scatter_direct::build(s, root, len, blocks, in_place)),

        C::Allgather { ref blocks, in_place } => ("allgather lanes", allgather_lanes::build(s, lanes(per_cluster(blocks.total())), blocks, in_place)),
        C::Alltoall { ref send, ref recv, is_equal, in_place } => ("alltoall direct", alltoall_direct::build(s, send, recv, (is_equal, in_place))),

        C::Reduce { root, elements: e, in_place } if !by_cluster(s, e) => ("reduce ranked", reduce_ranked::build(s, root, e, in_place)),
        C::Reduce { root, elements: e, in_place } if lanes(e.len()).are_several() => ("reduce lanes", reduce_lanes::build(s, lanes(e.len()), root, e, in_place)),
        C::Reduce { root, elements: e, in_place } => ("reduce leaders", reduce_leaders::build(s, root, e, in_place)),

        C::Allreduce { elements: e, in_place } if !by_cluster(s, e) => ("allreduce ranked", allreduce_ranked::build(s, e, in_place)),
        C::Allreduce { elements: e, in_place } if lanes(e.len()).are_several() => ("allreduce lanes", allreduce_lanes::build(s, lanes(e.len()), e, in_place)),
        C::Allreduce { elements: e, in_place } => ("allreduce leaders", allreduce_leaders::build(s, e, in_place)),

        C::ReduceScatter { elements: e, ref blocks, in_place } if !by_cluster(s, e) => ("reduce_scatter ranked", reduce_scatter_ranked::build(s, e, blocks, in_place)),
        C::ReduceScatter { elements: e, ref blocks, in_place } if lanes(per_cluster(e.len())).are_several() => ("reduce_scatter lanes", reduce_scatter_lanes::build(s, lanes(per_cluster(e.len())), e, blocks, in_place)),
        C::ReduceScatter { elements: e, ref blocks, in_place } => ("reduce_scatter leaders", reduce_scatter_leaders::build(s, e, blocks, in_place)),

        C::Scan { elements: e, in_place } if s.is_ordered() => ("scan totals", scan_totals::build(s, e, Own::Included, in_place)),
        C::Scan { elements: e, in_place } => ("scan ranked", scan_ranked::build(s, e, Own::Included, in_place)),
        C::Exscan { elements: e, in_place } if s.is_ordered() => ("exscan totals", scan_totals::build(s, e, Own::Excluded, in_place)),
        C::Exscan { elements: e, in_place } => ("exscan ranked", scan_ranked::build(s, e, Own::Excluded, in_place)),
    }
}

/// Whether clusters may be combined one by one.
fn by_cluster(shape: &Shape, elements: Elements) -> bool {
    elements.commutative || shape.is_ordered()
}

/// Whether all processes know that no data moves. Only Barrier has something to do then.
fn has_no_data(collective: &Collective) -> bool {
    match collective {
        Collective::Bcast { len, .. }
        | Collective::Gather { len, .. }
        | Collective::Scatter { len, .. } => *len == 0,
        Collective::Allgather { blocks, .. } => blocks.total() == 0,
        Collective::Reduce { elements, .. }
        | Collective::Allreduce { elements, .. }
        | Collective::ReduceScatter { elements, .. }
        | Collective::Scan { elements, .. }
        | Collective::Exscan { elements, .. } => elements.is_empty(),
        // Each process knows its own part only.
        Collective::Barrier
        | Collective::Gatherv { .. }
        | Collective::Scatterv { .. }
        | Collective::Alltoall { .. } => false,
    }
}
