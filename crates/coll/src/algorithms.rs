//! The algorithms, one a file. Each is one function that writes one process's schedule.

pub(crate) mod allgather_lanes;
pub(crate) mod allreduce_lanes;
pub(crate) mod allreduce_leaders;
pub(crate) mod allreduce_ranked;
pub(crate) mod alltoall_direct;
pub(crate) mod barrier_leaders;
pub(crate) mod bcast_direct;
pub(crate) mod bcast_lanes;
pub(crate) mod gather_direct;
pub(crate) mod gather_leaders;
pub(crate) mod reduce_lanes;
pub(crate) mod reduce_leaders;
pub(crate) mod reduce_ranked;
pub(crate) mod reduce_scatter_lanes;
pub(crate) mod reduce_scatter_leaders;
pub(crate) mod reduce_scatter_ranked;
pub(crate) mod scan_ranked;
pub(crate) mod scan_totals;
pub(crate) mod scatter_direct;
pub(crate) mod scatter_leaders;
