//! Distributed graphs (MPI 4.1 §8.5.4, §8.5.5).

use super::creation::{Contexts, Part, Told, decode, divide, encode, spanning};
use super::group::array;
use super::topology::{erroneous, first_ranks, no_topology};
use crate::collective::allgather_blocks;
use crate::communicator::{Spanning, int};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_coll::Blocks;
use gridmpi_engine::{DeclaredEdge, DistGraph, Neighbour, Topology};
use gridmpi_wire::Rank;
use std::ffi::c_int;

/// The weights of `n` edges; `None` for `MPI_UNWEIGHTED`.
///
/// # Safety
/// The array has `n` elements, unless it is `MPI_UNWEIGHTED` or `MPI_WEIGHTS_EMPTY`.
unsafe fn weights_of<'a, A: Abi>(weights: *const c_int, n: c_int) -> Result<Option<&'a [c_int]>> {
    if weights.cast() == A::unweighted().cast_const() {
        return Ok(None);
    }
    let empty = weights.cast() == A::weights_empty().cast_const();
    // SAFETY: as this function's.
    unsafe { array(weights, if empty { 0 } else { n }) }.map(Some)
}

/// All members of `old` get the new communicator, with their own view of the graph.
fn create<A: Abi>(
    rt: &Runtime<A>,
    old: &Spanning<A>,
    contexts: &Contexts,
    graph: DistGraph,
) -> Result<A::Comm> {
    let part = Part::of_ranks(old.view.group(), &first_ranks(old.view.size()), contexts);
    divide(rt, old, Some(part), Some(Topology::DistGraph(graph)))
}

/// `MPI_Dist_graph_create_adjacent`.
pub unsafe fn dist_graph_create_adjacent<A: Abi>(
    rt: &'static Runtime<A>,
    comm_old: A::Comm,
    indegree: c_int,
    sources: *const c_int,
    sourceweights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destweights: *const c_int,
    _info: A::Info,
    _reorder: c_int,
    comm_dist_graph: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm_old)?;
    // SAFETY: the program's arrays.
    let (into, out) = unsafe {
        let into = (array(sources, indegree)?, weights_of::<A>(sourceweights, indegree)?);
        let out = (array(destinations, outdegree)?, weights_of::<A>(destweights, outdegree)?);
        (into, out)
    };
    let graph = DistGraph::adjacent(old.view.size(), into, out).map_err(erroneous)?;
    let made = create(rt, &old, &Contexts::agree(rt, &old)?, graph)?;
    // SAFETY: the program's place.
    unsafe { *comm_dist_graph = made };
    Ok(())
}

/// `MPI_Dist_graph_create`: everybody learns all edges, and keeps its own.
pub unsafe fn dist_graph_create<A: Abi>(
    rt: &'static Runtime<A>,
    comm_old: A::Comm,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights: *const c_int,
    _info: A::Info,
    _reorder: c_int,
    comm_dist_graph: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm_old)?;
    // SAFETY: the program's arrays: an edge for each of the degrees' sum.
    let (edges, weighted) = unsafe {
        let (sources, degrees) = (array(sources, n)?, array(degrees, n)?);
        let count = sum(degrees)?;
        let (ends, weights) = (array(destinations, count)?, weights_of::<A>(weights, count)?);
        let edges = DistGraph::declare(old.view.size(), sources, degrees, ends, weights);
        (edges.map_err(erroneous)?, weights.is_some())
    };
    let (graph, contexts) = exchange(rt, &old, &edges, weighted)?;
    let made = create(rt, &old, &contexts, graph)?;
    // SAFETY: the program's place.
    unsafe { *comm_dist_graph = made };
    Ok(())
}

fn sum(degrees: &[c_int]) -> Result<c_int> {
    let sum = degrees.iter().try_fold(0 as c_int, |sum, &degree| {
        if degree < 0 { None } else { sum.checked_add(degree) }
    });
    sum.ok_or_else(|| Error::new(ErrorClass::Arg, "invalid degrees of a graph"))
}

/// Tells all others the edges that this process declared, and finds its own among everybody's.
fn exchange<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    edges: &[DeclaredEdge],
    weighted: bool,
) -> Result<(DistGraph, Contexts)> {
    let count = u32::try_from(edges.len()).unwrap_or(u32::MAX);
    let own = [rt.job().reserve_context(), count, u32::from(weighted)];
    let told = Told::gather(rt, comm, own)?;
    let contexts = Contexts::of_counts(comm.view.group(), told.all().iter().map(|told| told[0]))?;
    let weighted = told.all().iter().any(|told| told[2] != 0);
    let blocks = blocks(told.all().iter().map(|told| told[1]));
    let mut own = Vec::new();
    if blocks.total() > 0 {
        own = concerning(comm.rank(), &allgather_blocks(rt, comm, &packed(edges), blocks)?);
    }
    Ok((DistGraph::of_declared(comm.rank(), &own, weighted), contexts))
}

/// Words that are told of an edge.
const WORDS: usize = 3;

fn packed(edges: &[DeclaredEdge]) -> Vec<u8> {
    let words = edges.iter().flat_map(|e| [e.source.0, e.destination.0, e.weight.cast_unsigned()]);
    encode(&words.collect::<Vec<_>>())
}

/// Where each process's [`packed`] edges are, by how many it has: often one has all, and they are told as many as they are.
fn blocks(counts: impl Iterator<Item = u32>) -> Blocks {
    Blocks::new(counts.map(|count| u64::from(count) * (WORDS * size_of::<u32>()) as u64))
}

/// Of the edges that all processes have [`packed`], those from and to `me`, in the order of who declared them.
fn concerning(me: Rank, bytes: &[u8]) -> Vec<DeclaredEdge> {
    let edge = |[source, destination, weight]: [u32; WORDS]| DeclaredEdge {
        source: Rank(source),
        destination: Rank(destination),
        weight: weight.cast_signed(),
    };
    decode(bytes).map(edge).filter(|e| e.source == me || e.destination == me).collect()
}

/// Lets `look` have this process's view of the graph of a spanning communicator.
fn with_graph<A: Abi>(rt: &Runtime<A>, comm: A::Comm, look: impl FnOnce(&DistGraph)) -> Result<()> {
    match spanning(rt, comm)?.view.topology() {
        Some(Topology::DistGraph(graph)) => {
            look(graph);
            Ok(())
        }
        _ => Err(no_topology("distributed graph")),
    }
}

/// `MPI_Dist_graph_neighbors_count`.
pub unsafe fn dist_graph_neighbors_count<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    indegree: *mut c_int,
    outdegree: *mut c_int,
    weighted: *mut c_int,
) -> Result<()> {
    let length = |of: &[Neighbour]| c_int::try_from(of.len()).unwrap_or(c_int::MAX);
    // SAFETY: the program's places.
    with_graph(rt, comm, |graph| unsafe {
        *indegree = length(graph.sources());
        *outdegree = length(graph.destinations());
        *weighted = c_int::from(graph.is_weighted());
    })
}

/// `MPI_Dist_graph_neighbors`: of more neighbours than the arrays take, the first.
pub unsafe fn dist_graph_neighbors<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    maxindegree: c_int,
    sources: *mut c_int,
    sourceweights: *mut c_int,
    maxoutdegree: c_int,
    destinations: *mut c_int,
    destweights: *mut c_int,
) -> Result<()> {
    with_graph(rt, comm, |graph| {
        let place = |ranks, weights| Places::new::<A>(graph.is_weighted(), ranks, weights);
        // SAFETY: the program's arrays.
        unsafe {
            place(sources, sourceweights).fill(maxindegree, graph.sources());
            place(destinations, destweights).fill(maxoutdegree, graph.destinations());
        }
    })
}

/// Where the program wants neighbours to be told.
struct Places {
    ranks: *mut c_int,
    /// Absent where there are none or the program wants none.
    weights: Option<*mut c_int>,
}

impl Places {
    fn new<A: Abi>(weighted: bool, ranks: *mut c_int, weights: *mut c_int) -> Self {
        let given = weights.cast() != A::unweighted() && weights.cast() != A::weights_empty();
        Self { ranks, weights: (weighted && given).then_some(weights) }
    }

    /// # Safety
    /// The arrays have `room` elements.
    unsafe fn fill(&self, room: c_int, neighbours: &[Neighbour]) {
        let room = usize::try_from(room).unwrap_or(0);
        for (index, neighbour) in neighbours.iter().take(room).enumerate() {
            // SAFETY: as this function's.
            unsafe {
                self.ranks.add(index).write(int(neighbour.rank.0));
                if let Some(weights) = self.weights {
                    weights.add(index).write(neighbour.weight);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_abi::OpenMpi;

    fn edge(source: u32, destination: u32, weight: i32) -> DeclaredEdge {
        DeclaredEdge { source: Rank(source), destination: Rank(destination), weight }
    }

    #[test]
    fn edges_are_told_as_many_as_they_are_and_found_in_the_order_of_ranks() {
        let told = [vec![edge(0, 1, 5)], vec![], vec![edge(2, 2, i32::MAX), edge(1, 0, 0)]];
        let packed: Vec<_> = told.iter().map(|edges| packed(edges)).collect();
        let blocks = blocks(told.iter().map(|edges| edges.len() as u32));
        assert_eq!(blocks.total(), 3 * 12, "nothing is told in place of edges that there are not");
        for (rank, packed) in packed.iter().enumerate() {
            assert_eq!(blocks.len(Rank(rank as u32)), packed.len() as u64, "of rank {rank}");
        }
        let all = packed.concat();
        assert_eq!(concerning(Rank(0), &all), [edge(0, 1, 5), edge(1, 0, 0)]);
        assert_eq!(concerning(Rank(2), &all), [edge(2, 2, i32::MAX)]);
        assert_eq!(concerning(Rank(3), &all), []);
    }

    #[test]
    fn degrees_are_summed_with_care() {
        assert_eq!(sum(&[2, 0, 3]), Ok(5));
        assert!(sum(&[2, -1]).is_err());
        assert!(sum(&[i32::MAX, 1]).is_err());
    }

    #[test]
    fn weights_may_be_absent_or_empty() {
        let (unweighted, empty) = (OpenMpi::unweighted().cast(), OpenMpi::weights_empty().cast());
        let weights = [4, 5];
        // SAFETY: named constants, and an array of 2 elements.
        unsafe {
            assert_eq!(weights_of::<OpenMpi>(unweighted, 2), Ok(None));
            assert_eq!(weights_of::<OpenMpi>(empty, 0), Ok(Some(&[][..])));
            assert_eq!(weights_of::<OpenMpi>(weights.as_ptr(), 2), Ok(Some(&weights[..])));
        }
    }

    #[test]
    fn neighbours_are_told_as_far_as_there_is_room() {
        let neighbours = [(7, 70), (8, 80), (9, 90)]
            .map(|(rank, weight)| Neighbour { rank: Rank(rank), weight });
        let (mut ranks, mut weights) = ([-1; 3], [-1; 3]);
        // SAFETY: arrays of at least 2 elements.
        unsafe {
            Places::new::<OpenMpi>(true, ranks.as_mut_ptr(), weights.as_mut_ptr())
                .fill(2, &neighbours);
            assert_eq!((ranks, weights), ([7, 8, -1], [70, 80, -1]));
            Places::new::<OpenMpi>(false, ranks.as_mut_ptr(), weights.as_mut_ptr())
                .fill(1, &neighbours[2..]);
            assert_eq!((ranks, weights), ([9, 8, -1], [70, 80, -1]));
            Places::new::<OpenMpi>(true, ranks.as_mut_ptr(), OpenMpi::unweighted().cast())
                .fill(3, &neighbours);
        }
        assert_eq!(ranks, [7, 8, 9]);
    }
}
