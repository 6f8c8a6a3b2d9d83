//! Lanes: ranks of each cluster that cross the wide area side by side, each with a part of the data.

use gridmpi_wire::Rank;

use crate::builder::{Builder, Done};
use crate::schedule::{LocalCollective, Senders, Span};
use crate::select::Tuning;
use crate::shape::Shape;

/// The lanes of one collective: lane `j` of every cluster talks to lane `j` of every other.
///
/// They are spread evenly over the local ranks, so that they lie on different nodes where a cluster's
/// ranks are placed node by node.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'a> {
    shape: &'a Shape,
    count: u32,
}

impl<'a> Lanes<'a> {
    /// As many lanes as `bytes` are worth: at least one, at most what the smallest cluster has.
    pub(crate) fn worth(shape: &'a Shape, bytes: u64, tuning: &Tuning) -> Self {
        let most = tuning.max_lanes.min(shape.smallest()).max(1);
        let worth = bytes / tuning.lane_bytes.max(1);
        Self { shape, count: worth.clamp(1, most.into()) as u32 }
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.count > 1
    }

    /// This process's lane, if it is one.
    pub(crate) fn mine(&self) -> Option<u32> {
        self.lane_of(self.shape.my_local_rank())
    }

    /// The rank of `lane` in `cluster`.
    pub(crate) fn rank(&self, cluster: usize, lane: u32) -> Rank {
        self.shape.members(cluster)[self.local_rank(cluster, lane) as usize]
    }

    /// This cluster's lanes: those who send.
    pub(crate) fn senders(&self) -> Senders {
        let mine = self.shape.my_cluster();
        Senders::These((0..self.count).map(|lane| self.rank(mine, lane)).collect())
    }

    /// The part of `span` that crosses on `lane`, in whole units of `unit` bytes.
    pub(crate) fn part(&self, span: Span, unit: u64, lane: u32) -> Span {
        let (units, count) = (span.len / unit, u64::from(self.count));
        let start = |lane: u64| (units * lane / count) * unit;
        let (from, to) = (start(lane.into()), start(u64::from(lane) + 1));
        span.part(from, to - from)
    }

    /// The lanes' parts of `span` by local rank of this cluster; those that are no lane have nothing.
    pub(crate) fn by_local_rank(&self, span: Span, unit: u64) -> Vec<Span> {
        let mut next = 0;
        let locals = 0..self.shape.neighbours().len() as u32;
        let part = |local| {
            let len = self.lane_of(local).map_or(0, |lane| self.part(span, unit, lane).len);
            let part = span.part(next, len);
            next += len;
            part
        };
        locals.map(part).collect()
    }

    /// Gives all members of this cluster all of `span`, of which each lane has its part.
    pub(crate) fn share(&self, b: &mut Builder, span: Span, unit: u64, after: &Done) -> Done {
        let local = if self.are_several() {
            LocalCollective::Allgatherv { send: None, recv: self.by_local_rank(span, unit) }
        } else {
            LocalCollective::Bcast { data: span, root: self.local_rank(self.shape.my_cluster(), 0) }
        };
        b.local(local, after)
    }

    fn local_rank(&self, cluster: usize, lane: u32) -> u32 {
        let members = self.shape.members(cluster).len() as u64;
        (u64::from(lane) * members / u64::from(self.count)) as u32
    }

    fn lane_of(&self, local: u32) -> Option<u32> {
        let mine = self.shape.my_cluster();
        (0..self.count).find(|&lane| self.local_rank(mine, lane) == local)
    }
}
