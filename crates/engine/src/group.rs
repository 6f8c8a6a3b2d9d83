//! Groups of processes (MPI 4.1 §7.3): ordered, without duplicates.

use std::collections::HashMap;
use std::sync::Arc;

use gridmpi_wire::{ProcId, Rank};
use thiserror::Error;

/// An ordered set of processes. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group(Arc<[ProcId]>);

/// How two groups relate (`MPI_IDENT`, `MPI_SIMILAR`, `MPI_UNEQUAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same members in the same order.
    Identical,
    /// The same members in another order.
    Similar,
    /// Different members.
    Unequal,
}

/// Why an operation on a group is erroneous; the program is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupError {
    /// No such rank (`MPI_ERR_RANK`).
    #[error("rank {rank} is not in a group of {size}")]
    Rank {
        /// What was given, or computed of a range.
        rank: i64,
        /// Members of the group.
        size: u32,
    },
    /// A rank was given twice (`MPI_ERR_RANK`).
    #[error("rank {} is given twice", .0.0)]
    Duplicate(Rank),
    /// A stride of 0 (`MPI_ERR_ARG`).
    #[error("range {0} has stride 0")]
    ZeroStride(usize),
    /// A stride that leads away from the range's last rank (`MPI_ERR_ARG`).
    #[error("range {0} has a stride that leads away from its last rank")]
    WrongWay(usize),
}

/// A triplet of `MPI_Group_range_incl`: first rank, last rank, stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRange {
    /// The first rank.
    pub first: i32,
    /// No rank goes beyond this.
    pub last: i32,
    /// From one rank to the next; not 0.
    pub stride: i32,
}

impl Group {
    /// The group of `procs` in that order, which must be distinct.
    #[must_use]
    pub fn new(procs: impl IntoIterator<Item = ProcId>) -> Self {
        let procs: Arc<[ProcId]> = procs.into_iter().collect();
        debug_assert_eq!(index(&procs).len(), procs.len(), "members of a group are distinct");
        Self(procs)
    }

    /// `MPI_Group_size`.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.len() as u32
    }

    /// Whether this is the empty group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members by rank.
    #[must_use]
    pub fn procs(&self) -> &[ProcId] {
        &self.0
    }

    /// The member of rank `rank`, if there is one.
    #[must_use]
    pub fn proc(&self, rank: Rank) -> Option<ProcId> {
        self.0.get(rank.0 as usize).copied()
    }

    /// The rank of `proc`, if it is a member (`MPI_Group_rank`).
    #[must_use]
    pub fn rank(&self, proc: ProcId) -> Option<Rank> {
        // World groups list process k at rank k; others are searched.
        if self.proc(Rank(proc.0)) == Some(proc) {
            return Some(Rank(proc.0));
        }
        self.0.iter().position(|member| *member == proc).map(|rank| Rank(rank as u32))
    }

    /// The ranks in `other` of the members that have `ranks` here; `None` for those that are not in it
    /// (`MPI_Group_translate_ranks`; `MPI_PROC_NULL` is the caller's to pass through).
    ///
    /// # Errors
    /// [`GroupError::Rank`].
    pub fn translate(&self, ranks: &[i32], other: &Self) -> Result<Vec<Option<Rank>>, GroupError> {
        let index = index(&other.0);
        let ranks = ranks.iter().map(|&rank| self.check(rank.into()));
        ranks.map(|rank| Ok(index.get(&self.0[rank?.0 as usize]).copied())).collect()
    }

    /// `MPI_Group_compare`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        if self.0 == other.0 {
            return Comparison::Identical;
        }
        let index = index(&other.0);
        let same =
            self.size() == other.size() && self.0.iter().all(|proc| index.contains_key(proc));
        if same { Comparison::Similar } else { Comparison::Unequal }
    }

    /// `MPI_Group_union`: all of this group, then those of `other` that are not in it.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let more = other.difference(self);
        Self(self.0.iter().chain(more.0.iter()).copied().collect())
    }

    /// `MPI_Group_intersection`: members also in `other`, in this group's order.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let index = index(&other.0);
        Self(self.0.iter().filter(|proc| index.contains_key(proc)).copied().collect())
    }

    /// `MPI_Group_difference`: members not in `other`, in this group's order.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let index = index(&other.0);
        Self(self.0.iter().filter(|proc| !index.contains_key(proc)).copied().collect())
    }

    /// `MPI_Group_incl`: the members of `ranks`, in that order.
    ///
    /// # Errors
    /// [`GroupError::Rank`], [`GroupError::Duplicate`].
    pub fn incl(&self, ranks: &[i32]) -> Result<Self, GroupError> {
        let ranks = self.distinct(ranks.iter().map(|&rank| rank.into()))?;
        Ok(Self(ranks.iter().map(|rank| self.0[rank.0 as usize]).collect()))
    }

    /// `MPI_Group_excl`: the members but those of `ranks`, in this group's order.
    ///
    /// # Errors
    /// [`GroupError::Rank`], [`GroupError::Duplicate`].
    pub fn excl(&self, ranks: &[i32]) -> Result<Self, GroupError> {
        let ranks = self.distinct(ranks.iter().map(|&rank| rank.into()))?;
        Ok(self.without(&ranks))
    }

    /// `MPI_Group_range_incl`.
    ///
    /// # Errors
    /// Any [`GroupError`].
    pub fn range_incl(&self, ranges: &[RankRange]) -> Result<Self, GroupError> {
        let ranks = self.of_ranges(ranges)?;
        Ok(Self(ranks.iter().map(|rank| self.0[rank.0 as usize]).collect()))
    }

    /// `MPI_Group_range_excl`.
    ///
    /// # Errors
    /// Any [`GroupError`].
    pub fn range_excl(&self, ranges: &[RankRange]) -> Result<Self, GroupError> {
        Ok(self.without(&self.of_ranges(ranges)?))
    }

    fn without(&self, ranks: &[Rank]) -> Self {
        let mut keep = vec![true; self.0.len()];
        ranks.iter().for_each(|rank| keep[rank.0 as usize] = false);
        let kept = self.0.iter().zip(keep).filter(|(_, keep)| *keep);
        Self(kept.map(|(proc, _)| *proc).collect())
    }

    /// The ranks of all ranges, one range after the other.
    fn of_ranges(&self, ranges: &[RankRange]) -> Result<Vec<Rank>, GroupError> {
        for (index, range) in ranges.iter().enumerate() {
            range.check(index)?;
            // Both ends are checked before anything is counted out, so that no range is long.
            self.check(range.first.into())?;
            self.check(range.end())?;
        }
        self.distinct(ranges.iter().flat_map(RankRange::ranks))
    }

    fn distinct(&self, ranks: impl Iterator<Item = i64>) -> Result<Vec<Rank>, GroupError> {
        let mut seen = vec![false; self.0.len()];
        let mut all = Vec::new();
        for rank in ranks {
            let rank = self.check(rank)?;
            if std::mem::replace(&mut seen[rank.0 as usize], true) {
                return Err(GroupError::Duplicate(rank));
            }
            all.push(rank);
        }
        Ok(all)
    }

    fn check(&self, rank: i64) -> Result<Rank, GroupError> {
        let size = self.size();
        match u32::try_from(rank) {
            Ok(known) if known < size => Ok(Rank(known)),
            _ => Err(GroupError::Rank { rank, size }),
        }
    }
}

impl RankRange {
    fn check(&self, index: usize) -> Result<(), GroupError> {
        let way = i64::from(self.last) - i64::from(self.first);
        match self.stride {
            0 => Err(GroupError::ZeroStride(index)),
            stride if way != 0 && (way > 0) != (stride > 0) => Err(GroupError::WrongWay(index)),
            _ => Ok(()),
        }
    }

    /// Steps from the first rank to the last one taken.
    fn steps(&self) -> i64 {
        (i64::from(self.last) - i64::from(self.first)) / i64::from(self.stride)
    }

    /// The last rank taken.
    fn end(&self) -> i64 {
        i64::from(self.first) + self.steps() * i64::from(self.stride)
    }

    fn ranks(&self) -> impl Iterator<Item = i64> + use<> {
        let (first, stride) = (i64::from(self.first), i64::from(self.stride));
        (0..=self.steps()).map(move |step| first + step * stride)
    }
}

fn index(procs: &[ProcId]) -> HashMap<ProcId, Rank> {
    procs.iter().copied().zip((0..).map(Rank)).collect()
}

#[cfg(test)]
mod tests;
