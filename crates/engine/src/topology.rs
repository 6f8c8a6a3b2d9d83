//! Process topologies (MPI 4.1 §8): what a communicator knows of its members' arrangement.
//!
//! Ranks are never reordered: a program's neighbours are as near as its launch has put them.

mod cart;
mod dist_graph;
mod graph;

pub use cart::Cart;
pub use dist_graph::{DeclaredEdge, DistGraph, Neighbour};
pub use graph::Graph;

use gridmpi_wire::Rank;
use thiserror::Error;

/// The topology of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// `MPI_CART`.
    Cart(Cart),
    /// `MPI_GRAPH`.
    Graph(Graph),
    /// `MPI_DIST_GRAPH`.
    DistGraph(DistGraph),
}

/// Why arguments of a topology are erroneous; the program is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The topology has more processes than the communicator (`MPI_ERR_ARG`).
    #[error("the topology has more processes than the communicator's {size}")]
    TooLarge {
        /// Processes of the communicator.
        size: u32,
    },
    /// A dimension below 1, or arrays that differ in length (`MPI_ERR_DIMS`).
    #[error("invalid extent of dimension {0}")]
    Dims(usize),
    /// No such dimension (`MPI_ERR_DIMS`).
    #[error("there is no dimension {0}")]
    Direction(i32),
    /// A coordinate outside a dimension that does not wrap (`MPI_ERR_ARG`).
    #[error("coordinate {coordinate} is outside dimension {dimension}, which is not periodic")]
    Coordinate {
        /// The dimension, from 0.
        dimension: usize,
        /// What was given.
        coordinate: i32,
    },
    /// No such rank (`MPI_ERR_RANK`).
    #[error("rank {0} is not in the topology")]
    Rank(i32),
    /// An index that decreases or does not fit the edges, a negative degree or weight (`MPI_ERR_ARG`).
    #[error("invalid {0}")]
    Argument(&'static str),
}

/// `rank` as a member of a topology of `size`.
fn member(rank: i32, size: u32) -> Result<Rank, TopologyError> {
    let known = u32::try_from(rank).ok().filter(|&known| known < size);
    known.map(Rank).ok_or(TopologyError::Rank(rank))
}
