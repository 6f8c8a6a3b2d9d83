//! Graph topologies (MPI 4.1 §8.5.3, §8.5.5).

use super::creation::spanning;
use super::group::array;
use super::topology::{create_of_first, erroneous, fill, no_topology};
use crate::communicator::int;
use crate::error::Result;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use gridmpi_engine::{Graph, Topology};
use std::ffi::c_int;

/// Lets `look` have the graph of a spanning communicator.
fn with_graph<A: Abi, R>(
    rt: &Runtime<A>,
    comm: A::Comm,
    look: impl FnOnce(&Graph) -> Result<R>,
) -> Result<R> {
    match spanning(rt, comm)?.view.topology() {
        Some(Topology::Graph(graph)) => look(graph),
        _ => Err(no_topology("graph")),
    }
}

/// # Safety
/// `index` has `nnodes` elements and `edges` as many as the last of them says.
unsafe fn graph_of_arguments(
    size: u32,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
) -> Result<Graph> {
    // SAFETY: as this function's.
    let index = unsafe { array(index, nnodes)? };
    // Only of an index that never decreases is the last one the number of edges.
    let used = if index.is_sorted() { index.last().copied().unwrap_or(0) } else { 0 };
    // SAFETY: as this function's.
    let edges = unsafe { array(edges, used.max(0))? };
    Graph::new(size, index, edges).map_err(erroneous)
}

/// `MPI_Graph_create`: ranks stay as they are, whatever `reorder` allows.
pub unsafe fn graph_create<A: Abi>(
    rt: &'static Runtime<A>,
    comm_old: A::Comm,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    _reorder: c_int,
    comm_graph: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm_old)?;
    // SAFETY: the program's arrays.
    let graph = unsafe { graph_of_arguments(old.view.size(), nnodes, index, edges)? };
    let made = create_of_first(rt, &old, graph.size(), Topology::Graph(graph))?;
    // SAFETY: the program's place.
    unsafe { *comm_graph = made };
    Ok(())
}

/// `MPI_Graphdims_get`.
pub unsafe fn graphdims_get<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    nnodes: *mut c_int,
    nedges: *mut c_int,
) -> Result<()> {
    with_graph(rt, comm, |graph| {
        // SAFETY: the program's places.
        unsafe {
            *nnodes = length(graph.index());
            *nedges = length(graph.edges());
        }
        Ok(())
    })
}

fn length(of: &[c_int]) -> c_int {
    c_int::try_from(of.len()).unwrap_or(c_int::MAX)
}

/// `MPI_Graph_get`.
pub unsafe fn graph_get<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    maxindex: c_int,
    maxedges: c_int,
    index: *mut c_int,
    edges: *mut c_int,
) -> Result<()> {
    // SAFETY: the program's arrays.
    with_graph(rt, comm, |graph| unsafe {
        fill(index, maxindex, graph.index())?;
        fill(edges, maxedges, graph.edges())
    })
}

/// `MPI_Graph_neighbors_count`.
pub unsafe fn graph_neighbors_count<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    rank: c_int,
    nneighbors: *mut c_int,
) -> Result<()> {
    with_graph(rt, comm, |graph| {
        let answer = length(graph.neighbours(rank).map_err(erroneous)?);
        // SAFETY: the program's place.
        unsafe { *nneighbors = answer };
        Ok(())
    })
}

/// `MPI_Graph_neighbors`.
pub unsafe fn graph_neighbors<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    rank: c_int,
    maxneighbors: c_int,
    neighbors: *mut c_int,
) -> Result<()> {
    with_graph(rt, comm, |graph| {
        let answer = graph.neighbours(rank).map_err(erroneous)?;
        // SAFETY: the program's array.
        unsafe { fill(neighbors, maxneighbors, answer) }
    })
}

/// `MPI_Graph_map`: the ranks that [`graph_create`] would give.
pub unsafe fn graph_map<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    newrank: *mut c_int,
) -> Result<()> {
    let comm = spanning(rt, comm)?;
    // SAFETY: the program's arrays.
    let graph = unsafe { graph_of_arguments(comm.view.size(), nnodes, index, edges)? };
    let answer = graph.map(comm.rank()).map_or(A::UNDEFINED, |rank| int(rank.0));
    // SAFETY: the program's place.
    unsafe { *newrank = answer };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read_as_far_as_the_index_says() {
        let (index, edges) = ([1, 1, 3], [2, 0, 1, 99]);
        // SAFETY: an index of 3 and at least as many edges as it says.
        let graph = unsafe { graph_of_arguments(4, 3, index.as_ptr(), edges.as_ptr()) };
        assert_eq!(graph.map(|graph| graph.edges().to_vec()), Ok(vec![2, 0, 1]));
    }

    #[test]
    fn edges_of_a_wrong_index_are_not_read() {
        for index in [[2, 1], [-3, -1]] {
            // SAFETY: no edge is looked at.
            assert!(unsafe { graph_of_arguments(4, 2, index.as_ptr(), std::ptr::null()) }.is_err());
        }
    }

    #[test]
    fn a_graph_may_have_no_nodes() {
        // SAFETY: arrays of no elements.
        let graph = unsafe { graph_of_arguments(4, 0, std::ptr::null(), std::ptr::null()) };
        assert_eq!(graph.map(|graph| graph.size()), Ok(0));
    }
}
