//! Distributed graphs (MPI 4.1 §8.5.4): every process knows its own neighbours.

use gridmpi_wire::Rank;

use super::{TopologyError, member};

/// A neighbour and the weight of the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The neighbour.
    pub rank: Rank,
    /// The weight that the program gave, not negative; 1 in an unweighted graph.
    pub weight: i32,
}

/// One edge that some process declared to `MPI_Dist_graph_create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredEdge {
    /// Where it starts.
    pub source: Rank,
    /// Where it ends.
    pub destination: Rank,
    /// As [`Neighbour::weight`].
    pub weight: i32,
}

/// One process's view of a distributed graph. Edges may repeat and loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistGraph {
    sources: Vec<Neighbour>,
    destinations: Vec<Neighbour>,
    weighted: bool,
}

impl DistGraph {
    /// `MPI_Dist_graph_create_adjacent` on a communicator of `size`: both lists as given, in order.
    /// Weights are `None` for `MPI_UNWEIGHTED`, in both lists or in neither.
    ///
    /// # Errors
    /// [`TopologyError::Rank`]; [`TopologyError::Argument`] for weights that are negative, too few, or in
    /// one list only.
    pub fn adjacent(
        size: u32,
        (sources, source_weights): (&[i32], Option<&[i32]>),
        (destinations, destination_weights): (&[i32], Option<&[i32]>),
    ) -> Result<Self, TopologyError> {
        if source_weights.is_some() != destination_weights.is_some() {
            return Err(TopologyError::Argument("weights of a graph: in one list only"));
        }
        Ok(Self {
            sources: neighbours(size, sources, source_weights)?,
            destinations: neighbours(size, destinations, destination_weights)?,
            weighted: source_weights.is_some(),
        })
    }

    /// The edges that one process declares to `MPI_Dist_graph_create` on a communicator of `size`:
    /// `degrees[i]` edges from `sources[i]` to the next of `destinations`.
    ///
    /// # Errors
    /// [`TopologyError::Rank`]; [`TopologyError::Argument`] for negative degrees or weights and lists
    /// that are too short.
    pub fn declare(
        size: u32,
        sources: &[i32],
        degrees: &[i32],
        destinations: &[i32],
        weights: Option<&[i32]>,
    ) -> Result<Vec<DeclaredEdge>, TopologyError> {
        if degrees.len() != sources.len() || degrees.iter().any(|&degree| degree < 0) {
            return Err(TopologyError::Argument("degrees of a graph"));
        }
        let repeat = |(&source, &degree)| std::iter::repeat_n(source, degree as usize);
        let sources: Vec<i32> = sources.iter().zip(degrees).flat_map(repeat).collect();
        let destinations = destinations.get(..sources.len());
        let destinations =
            destinations.ok_or(TopologyError::Argument("destinations of a graph"))?;
        let ends = neighbours(size, destinations, weights)?;
        let edge = |(source, end): (i32, Neighbour)| {
            let source = member(source, size)?;
            Ok(DeclaredEdge { source, destination: end.rank, weight: end.weight })
        };
        sources.into_iter().zip(ends).map(edge).collect()
    }

    /// What `me` has of all processes' declared edges, given in the order of the declaring ranks.
    #[must_use]
    pub fn of_declared(me: Rank, all: &[DeclaredEdge], weighted: bool) -> Self {
        let into = all.iter().filter(|edge| edge.destination == me);
        let out = all.iter().filter(|edge| edge.source == me);
        Self {
            sources: into.map(|e| Neighbour { rank: e.source, weight: e.weight }).collect(),
            destinations: out
                .map(|e| Neighbour { rank: e.destination, weight: e.weight })
                .collect(),
            weighted,
        }
    }

    /// Neighbours with an edge to this process, always in the same order (`MPI_Dist_graph_neighbors`).
    #[must_use]
    pub fn sources(&self) -> &[Neighbour] {
        &self.sources
    }

    /// Neighbours with an edge from this process, always in the same order.
    #[must_use]
    pub fn destinations(&self) -> &[Neighbour] {
        &self.destinations
    }

    /// Whether it was created with weights (`MPI_Dist_graph_neighbors_count`).
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }
}

fn neighbours(
    size: u32,
    ranks: &[i32],
    weights: Option<&[i32]>,
) -> Result<Vec<Neighbour>, TopologyError> {
    let wrong = TopologyError::Argument("weights of a graph");
    let neighbour = |(index, &rank): (usize, &i32)| {
        let weight = weights.map_or(Some(1), |weights| weights.get(index).copied());
        let weight = weight.filter(|&weight| weight >= 0).ok_or(wrong)?;
        Ok(Neighbour { rank: member(rank, size)?, weight })
    };
    ranks.iter().enumerate().map(neighbour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(rank: u32, weight: i32) -> Neighbour {
        Neighbour { rank: Rank(rank), weight }
    }

    #[test]
    fn adjacent_lists_stay_as_given() {
        let graph =
            DistGraph::adjacent(4, (&[3, 1, 3], Some(&[5, 0, 7])), (&[2], Some(&[9]))).unwrap();
        assert_eq!(graph.sources(), [near(3, 5), near(1, 0), near(3, 7)]);
        assert_eq!(graph.destinations(), [near(2, 9)]);
        assert!(graph.is_weighted());
        let bare = DistGraph::adjacent(4, (&[], None), (&[0], None)).unwrap();
        assert_eq!((bare.sources(), bare.destinations()), (&[][..], &[near(0, 1)][..]));
    }

    #[test]
    fn everybody_finds_its_edges_among_the_declared() {
        // Two processes declare the edges of others: 0 → 1, 0 → 2 and 2 → 2, 1 → 0.
        let mut all = DistGraph::declare(3, &[0], &[2], &[1, 2], Some(&[10, 20])).unwrap();
        all.extend(
            DistGraph::declare(3, &[2, 0, 1], &[1, 0, 1], &[2, 0], Some(&[30, 40])).unwrap(),
        );
        let view = |me| DistGraph::of_declared(Rank(me), &all, true);
        assert_eq!(view(0).destinations(), [near(1, 10), near(2, 20)]);
        assert_eq!(view(0).sources(), [near(1, 40)]);
        assert_eq!(view(2).sources(), [near(0, 20), near(2, 30)]);
        assert_eq!(view(2).destinations(), [near(2, 30)]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert_eq!(DistGraph::declare(3, &[0], &[1], &[3], None), Err(TopologyError::Rank(3)));
        assert_eq!(DistGraph::declare(3, &[-1], &[1], &[0], None), Err(TopologyError::Rank(-1)));
        let wrong = |result: Result<_, _>| matches!(result, Err(TopologyError::Argument(_)));
        assert!(wrong(DistGraph::declare(3, &[0], &[2], &[1], None)));
        assert!(wrong(DistGraph::declare(3, &[0], &[-1], &[1], None)));
        assert!(wrong(DistGraph::declare(3, &[0], &[1], &[1], Some(&[-1]))));
        assert!(DistGraph::adjacent(3, (&[1], None), (&[], Some(&[]))).is_err());
    }
}
