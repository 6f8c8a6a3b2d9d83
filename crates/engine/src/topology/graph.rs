//! Graph topologies (MPI 4.1 §8.5.3): every process knows the whole graph.

use gridmpi_wire::Rank;

use super::{TopologyError, member};

/// A graph given by `MPI_Graph_create`. Edges may repeat, loop and go one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// `index[i]`: edges of nodes 0 to i together.
    index: Vec<i32>,
    edges: Vec<i32>,
}

impl Graph {
    /// `MPI_Graph_create` of `index.len()` nodes on a communicator of `available` processes: the first
    /// nodes' processes are in, the others get `MPI_COMM_NULL`; so does everybody for no nodes.
    ///
    /// # Errors
    /// [`TopologyError::TooLarge`], [`TopologyError::Rank`] for an edge to no node,
    /// [`TopologyError::Argument`] for an index that decreases or has not as many edges.
    pub fn new(available: u32, index: &[i32], edges: &[i32]) -> Result<Self, TopologyError> {
        if index.len() > available as usize {
            return Err(TopologyError::TooLarge { size: available });
        }
        if index.first().is_some_and(|&first| first < 0) || !index.is_sorted() {
            return Err(TopologyError::Argument("index of a graph: it decreases"));
        }
        let used = index.last().map_or(0, |&last| last as usize);
        let edges =
            edges.get(..used).ok_or(TopologyError::Argument("index of a graph: no such edge"))?;
        for &edge in edges {
            member(edge, index.len() as u32)?;
        }
        Ok(Self { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// Processes in the graph (`MPI_Graphdims_get`).
    #[must_use]
    pub fn size(&self) -> u32 {
        self.index.len() as u32
    }

    /// The index as given (`MPI_Graph_get`).
    #[must_use]
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// The edges as given (`MPI_Graph_get`).
    #[must_use]
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// The neighbours of `rank`, as given (`MPI_Graph_neighbors`, `MPI_Graph_neighbors_count`).
    ///
    /// # Errors
    /// [`TopologyError::Rank`].
    pub fn neighbours(&self, rank: i32) -> Result<&[i32], TopologyError> {
        let rank = member(rank, self.size())?.0 as usize;
        let start = if rank == 0 { 0 } else { self.index[rank - 1] };
        Ok(&self.edges[start as usize..self.index[rank] as usize])
    }

    /// `MPI_Graph_map`: where `me` would be in such a graph; `None` is `MPI_UNDEFINED`.
    #[must_use]
    pub fn map(&self, me: Rank) -> Option<Rank> {
        (me.0 < self.size()).then_some(me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_the_standards_example() {
        // MPI 4.1 §8.5.3, example: process 0: 1, 3; 1: 0; 2: 3; 3: 0, 2.
        let graph = Graph::new(6, &[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        assert_eq!(graph.neighbours(0), Ok(&[1, 3][..]));
        assert_eq!(graph.neighbours(1), Ok(&[0][..]));
        assert_eq!(graph.neighbours(3), Ok(&[0, 2][..]));
        assert_eq!(graph.neighbours(4), Err(TopologyError::Rank(4)));
        assert_eq!((graph.size(), graph.edges().len(), graph.index()), (4, 6, &[2, 3, 4, 6][..]));
        assert_eq!((graph.map(Rank(3)), graph.map(Rank(4))), (Some(Rank(3)), None));
    }

    #[test]
    fn loops_repeats_and_isolated_nodes() {
        let graph = Graph::new(3, &[0, 3, 3], &[1, 1, 2]).unwrap();
        assert_eq!(graph.neighbours(0), Ok(&[][..]));
        assert_eq!(graph.neighbours(1), Ok(&[1, 1, 2][..]));
        assert_eq!(Graph::new(3, &[], &[]).unwrap().size(), 0);
    }

    #[test]
    fn wrong_graphs_are_refused() {
        assert_eq!(Graph::new(1, &[0, 0], &[]), Err(TopologyError::TooLarge { size: 1 }));
        assert!(matches!(Graph::new(3, &[2, 1], &[0, 0]), Err(TopologyError::Argument(_))));
        assert!(matches!(Graph::new(3, &[-1], &[]), Err(TopologyError::Argument(_))));
        assert!(matches!(Graph::new(3, &[3], &[0, 0]), Err(TopologyError::Argument(_))));
        assert_eq!(Graph::new(3, &[1, 1], &[2]), Err(TopologyError::Rank(2)));
    }
}
