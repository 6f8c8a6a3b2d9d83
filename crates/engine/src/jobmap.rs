//! Which process of the job lives in which cluster.

use gridmpi_wire::{ClusterId, ProcId};

/// One cluster of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The name that the job gave it.
    pub name: String,
    /// Its processes, by their rank in the vendor's `MPI_COMM_WORLD` there, ascending.
    pub procs: Vec<ProcId>,
}

/// Who lives where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMap {
    clusters: Vec<ClusterInfo>,
    /// By process: its cluster, and its rank in the vendor's world there.
    places: Vec<(ClusterId, u32)>,
}

impl JobMap {
    /// The map of clusters that together have each process from 0 on exactly once, and each its own in
    /// ascending order (so that the vendor's world stands for the job's: see [`crate::Communicator`]);
    /// `None` for others.
    #[must_use]
    pub fn new(clusters: Vec<ClusterInfo>) -> Option<Self> {
        if !clusters.iter().all(|cluster| cluster.procs.is_sorted()) {
            return None;
        }
        let size: usize = clusters.iter().map(|cluster| cluster.procs.len()).sum();
        let mut places = vec![None; size];
        for (id, cluster) in (0..).map(ClusterId).zip(&clusters) {
            for (local, proc) in (0..).zip(&cluster.procs) {
                let place = places.get_mut(proc.0 as usize)?;
                if place.replace((id, local)).is_some() {
                    return None;
                }
            }
        }
        Some(Self { clusters, places: places.into_iter().collect::<Option<_>>()? })
    }

    /// The map in job order: the first cluster has the first processes, and so on.
    #[must_use]
    pub fn contiguous(clusters: impl IntoIterator<Item = (String, u32)>) -> Self {
        let mut next = 0;
        let clusters = clusters.into_iter().map(|(name, size)| {
            let procs = (next..next + size).map(ProcId).collect();
            next += size;
            ClusterInfo { name, procs }
        });
        let clusters: Vec<_> = clusters.collect();
        Self::new(clusters).expect("processes are numbered once, in order")
    }

    /// Processes of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.places.len() as u32
    }

    /// The clusters by their numbers.
    #[must_use]
    pub fn clusters(&self) -> &[ClusterInfo] {
        &self.clusters
    }

    /// The cluster of `proc`.
    ///
    /// # Panics
    /// If the job has no such process.
    #[must_use]
    pub fn cluster_of(&self, proc: ProcId) -> ClusterId {
        self.places[proc.0 as usize].0
    }

    /// The rank of `proc` in the vendor's world of its cluster.
    ///
    /// # Panics
    /// If the job has no such process.
    #[must_use]
    pub fn vendor_rank_of(&self, proc: ProcId) -> u32 {
        self.places[proc.0 as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(procs: &[u32]) -> ClusterInfo {
        ClusterInfo { name: "x".into(), procs: procs.iter().copied().map(ProcId).collect() }
    }

    #[test]
    fn maps_have_each_process_once() {
        assert!(JobMap::new(vec![cluster(&[0, 2]), cluster(&[1])]).is_some());
        assert!(JobMap::new(vec![cluster(&[0, 1]), cluster(&[1])]).is_none());
        assert!(JobMap::new(vec![cluster(&[1, 0]), cluster(&[2])]).is_none());
        assert!(JobMap::new(vec![cluster(&[0, 3]), cluster(&[1])]).is_none());
    }

    #[test]
    fn places_follow_the_job_order() {
        let map = JobMap::contiguous([("a".into(), 2), ("b".into(), 3)]);
        assert_eq!((map.size(), map.cluster_of(ProcId(2))), (5, ClusterId(1)));
        assert_eq!(map.vendor_rank_of(ProcId(4)), 2);
        assert_eq!(map.clusters()[1].procs, [ProcId(2), ProcId(3), ProcId(4)]);
    }
}
