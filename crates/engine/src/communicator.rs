//! A communicator that the program holds: its context, its members, and where each of them lives.

use std::sync::Arc;

use gridmpi_coll::Shape;
use gridmpi_wire::{ClusterId, ContextId, Plane, ProcId, Rank};

use crate::group::{Comparison, Group};
use crate::jobmap::JobMap;
use crate::topology::Topology;

/// Where a member of a communicator is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process's cluster: its rank in the vendor's communicator of the members there.
    Local(u32),
    /// In another cluster.
    Remote(ProcId),
}

/// A communicator as one of its members sees it.
///
/// The vendor's communicator that stands for it has the members of this cluster in the order of their
/// ranks here; whoever creates that communicator keeps to this.
#[derive(Clone, Debug)]
pub struct Communicator {
    context: ContextId,
    group: Group,
    cluster: ClusterId,
    places: Vec<Place>,
    shape: Arc<Shape>,
    topology: Option<Topology>,
}

/// How two communicators relate (MPI 4.1 §7.4.1, `MPI_Comm_compare`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommComparison {
    /// The same communicator.
    Identical,
    /// The same members in the same order, but another context.
    Congruent,
    /// The same members in another order.
    Similar,
    /// Different members.
    Unequal,
}

impl Communicator {
    /// The communicator of `group` on `context` as `me` sees it; `None` if `me` is not a member.
    ///
    /// # Panics
    /// If a member is not a process of `map`.
    #[must_use]
    pub fn new(context: ContextId, group: Group, me: ProcId, map: &JobMap) -> Option<Self> {
        let rank = group.rank(me)?;
        let clusters: Vec<_> = group.procs().iter().map(|&proc| map.cluster_of(proc)).collect();
        let shape = Shape::new(rank, &clusters);
        let place = |(member, &proc)| {
            let local = shape.is_local(member);
            if local { Place::Local(shape.local_rank_of(member)) } else { Place::Remote(proc) }
        };
        let places = (0..).map(Rank).zip(group.procs()).map(place).collect();
        let (shape, cluster) = (Arc::new(shape), map.cluster_of(me));
        Some(Self { context, group, cluster, places, shape, topology: None })
    }

    /// `MPI_COMM_WORLD` of the job.
    #[must_use]
    pub fn world(me: ProcId, map: &JobMap) -> Option<Self> {
        Self::new(ContextId::WORLD, Group::new((0..map.size()).map(ProcId)), me, map)
    }

    /// The same communicator with a process topology.
    #[must_use]
    pub fn with_topology(self, topology: Topology) -> Self {
        Self { topology: Some(topology), ..self }
    }

    /// The same members and topology on another context (`MPI_Comm_dup`).
    #[must_use]
    pub fn duplicate(&self, context: ContextId) -> Self {
        Self { context, ..self.clone() }
    }

    /// The context of messages on `plane`.
    #[must_use]
    pub fn context(&self, plane: Plane) -> ContextId {
        self.context.on(plane)
    }

    /// `MPI_Comm_group`.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// `MPI_Comm_rank`.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shape.me()
    }

    /// `MPI_Comm_size`.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Where `rank` is reached; `None` if there is no such rank.
    #[must_use]
    pub fn place(&self, rank: Rank) -> Option<Place> {
        self.places.get(rank.0 as usize).copied()
    }

    /// The rank of the member that has rank `local` in the vendor's communicator of this cluster.
    #[must_use]
    pub fn rank_of_local(&self, local: u32) -> Option<Rank> {
        self.shape.neighbours().get(local as usize).copied()
    }

    /// The cluster of this process.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Whether members live in more than one cluster. One that does not is the vendor's alone.
    #[must_use]
    pub fn is_spanning(&self) -> bool {
        self.shape.clusters() > 1
    }

    /// The members by cluster, as collectives need them.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The process topology, if there is one.
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// `MPI_Comm_compare`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> CommComparison {
        match self.group.compare(&other.group) {
            Comparison::Identical if self.context == other.context => CommComparison::Identical,
            Comparison::Identical => CommComparison::Congruent,
            Comparison::Similar => CommComparison::Similar,
            Comparison::Unequal => CommComparison::Unequal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> JobMap {
        JobMap::contiguous([("a".into(), 3), ("b".into(), 2)])
    }

    fn comm(procs: &[u32], me: u32) -> Option<Communicator> {
        let group = Group::new(procs.iter().copied().map(ProcId));
        Communicator::new(ContextId::reserved(ProcId(0), 1), group, ProcId(me), &map())
    }

    #[test]
    fn the_world_has_everybody_in_job_order() {
        let world = Communicator::world(ProcId(3), &map()).unwrap();
        assert_eq!((world.rank(), world.size(), world.cluster()), (Rank(3), 5, ClusterId(1)));
        assert_eq!(world.place(Rank(4)), Some(Place::Local(1)));
        assert_eq!(world.place(Rank(1)), Some(Place::Remote(ProcId(1))));
        assert_eq!(world.place(Rank(5)), None);
        assert_eq!(world.rank_of_local(0), Some(Rank(3)));
        assert_eq!(world.rank_of_local(2), None);
        assert!(world.is_spanning() && world.shape().is_ordered());
        assert_eq!(world.context(Plane::PointToPoint), ContextId::WORLD);
        assert_ne!(world.context(Plane::Collective), ContextId::WORLD);
    }

    #[test]
    fn local_ranks_follow_the_ranks_of_the_communicator() {
        let comm = comm(&[4, 2, 3, 0], 0).unwrap();
        assert_eq!(comm.rank(), Rank(3));
        assert_eq!(comm.place(Rank(1)), Some(Place::Local(0)), "process 2 comes first");
        assert_eq!(comm.place(Rank(3)), Some(Place::Local(1)));
        assert_eq!(comm.place(Rank(0)), Some(Place::Remote(ProcId(4))));
        assert!(!comm.shape().is_ordered());
    }

    #[test]
    fn outsiders_and_one_cluster() {
        assert!(comm(&[0, 1], 2).is_none());
        assert!(!comm(&[4, 3], 3).unwrap().is_spanning());
    }

    #[test]
    fn comparison_tells_contexts_and_orders_apart() {
        let one = comm(&[0, 3], 0).unwrap();
        let copy = one.duplicate(ContextId::reserved(ProcId(0), 2));
        assert_eq!(one.compare(&one.clone()), CommComparison::Identical);
        assert_eq!(one.compare(&copy), CommComparison::Congruent);
        assert_eq!(one.compare(&comm(&[3, 0], 0).unwrap()), CommComparison::Similar);
        assert_eq!(one.compare(&comm(&[3, 0, 1], 0).unwrap()), CommComparison::Unequal);
    }
}
