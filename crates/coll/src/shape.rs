//! Where the ranks of a communicator live.

use gridmpi_wire::{ClusterId, Rank};

/// The ranks of one communicator by cluster, as one of its processes sees them.
///
/// Clusters that have members are numbered here from 0 by their lowest rank ("the `c`-th cluster");
/// within a cluster, ranks are in the order of its local communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    me: Rank,
    /// By rank: the number of its cluster and its rank there.
    places: Vec<(usize, u32)>,
    /// By cluster: its members by local rank.
    members: Vec<Vec<Rank>>,
    /// Whether rank order is: all of the first cluster in local order, then the second's, …
    ordered: bool,
}

impl Shape {
    /// The shape seen by `me` of a communicator whose rank `r` lives in `clusters[r]`. The local
    /// communicator of each cluster has its members in the order of their ranks.
    ///
    /// # Panics
    /// If `me` is not a rank of the communicator.
    #[must_use]
    pub fn new(me: Rank, clusters: &[ClusterId]) -> Self {
        assert!((me.0 as usize) < clusters.len(), "rank {} of {}", me.0, clusters.len());
        let mut seen: Vec<ClusterId> = Vec::new();
        let mut members: Vec<Vec<Rank>> = Vec::new();
        let mut places = Vec::with_capacity(clusters.len());
        for (rank, cluster) in (0..).map(Rank).zip(clusters) {
            let index = seen.iter().position(|known| known == cluster).unwrap_or_else(|| {
                seen.push(*cluster);
                members.push(Vec::new());
                seen.len() - 1
            });
            places.push((index, members[index].len() as u32));
            members[index].push(rank);
        }
        let ordered = members.iter().flatten().copied().eq((0..clusters.len() as u32).map(Rank));
        Self { me, places, members, ordered }
    }

    /// The process whose view this is.
    #[must_use]
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Ranks of the communicator.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.places.len() as u32
    }

    /// All ranks in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.size()).map(Rank)
    }

    /// Clusters that have members.
    #[must_use]
    pub fn clusters(&self) -> usize {
        self.members.len()
    }

    /// The number of the cluster of `rank`.
    #[must_use]
    pub fn cluster_of(&self, rank: Rank) -> usize {
        self.places[rank.0 as usize].0
    }

    /// The rank of `rank` in the local communicator of its cluster.
    #[must_use]
    pub fn local_rank_of(&self, rank: Rank) -> u32 {
        self.places[rank.0 as usize].1
    }

    /// The members of cluster `cluster` by local rank.
    #[must_use]
    pub fn members(&self, cluster: usize) -> &[Rank] {
        &self.members[cluster]
    }

    /// The number of this process's cluster.
    #[must_use]
    pub fn my_cluster(&self) -> usize {
        self.cluster_of(self.me)
    }

    /// This process's rank in its cluster.
    #[must_use]
    pub fn my_local_rank(&self) -> u32 {
        self.local_rank_of(self.me)
    }

    /// The members of this process's cluster by local rank, itself among them.
    #[must_use]
    pub fn neighbours(&self) -> &[Rank] {
        self.members(self.my_cluster())
    }

    /// Whether `rank` is in this process's cluster.
    #[must_use]
    pub fn is_local(&self, rank: Rank) -> bool {
        self.cluster_of(rank) == self.my_cluster()
    }

    /// Whether ranks go through the clusters one after the other: combining each cluster's part in local
    /// order and then the clusters in theirs is combining in rank order.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Members of the smallest cluster.
    #[must_use]
    pub fn smallest(&self) -> u32 {
        self.members.iter().map(Vec::len).min().unwrap_or(0) as u32
    }

    /// The lowest member of a cluster, which speaks for it where one must.
    #[must_use]
    pub fn leader(&self, cluster: usize) -> Rank {
        self.members[cluster][0]
    }

    /// Who speaks for a cluster in a collective with a root: the root itself or the leader.
    #[must_use]
    pub fn speaker(&self, cluster: usize, root: Rank) -> Rank {
        if self.cluster_of(root) == cluster { root } else { self.leader(cluster) }
    }

    /// The other clusters, from the one after this process's on, so that not all begin with the same.
    pub fn other_clusters(&self) -> impl Iterator<Item = usize> + use<> {
        let (mine, all) = (self.my_cluster(), self.clusters());
        (1..all).map(move |step| (mine + step) % all)
    }
}
