//! Identifiers of processes, clusters, ranks and contexts.

use std::fmt;

/// A process of the job: its rank in the job's `MPI_COMM_WORLD`, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcId(pub u32);

/// A cluster of the job, numbered in the job file's order, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u16);

/// A rank within one communicator, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// Which of a communicator's two separate message spaces a context is (MPI 4.1 §6.1.2: collective
/// and point-to-point communication never interfere).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plane {
    /// Messages of the program's own sends and receives.
    PointToPoint,
    /// Messages of our collective algorithms.
    Collective,
}

/// One of the connections that a stream stands on at the same time, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strand(u8);

impl Strand {
    /// Most connections of one stream.
    pub const MAX: usize = 16;

    /// The one that is made when there is none.
    pub const FIRST: Self = Self(0);

    /// That with this number, which is below [`Self::MAX`].
    #[must_use]
    pub const fn new(number: usize) -> Option<Self> {
        if number < Self::MAX { Some(Self(number as u8)) } else { None }
    }

    /// Its number, below [`Self::MAX`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first `count` of them, in order; at most all.
    pub fn first(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map_while(Self::new)
    }
}

/// Separates the messages of one communicator from all others (MPI 4.1 §6.2, "context").
///
/// Made of the process that reserved it and that process's own counter, so that no two
/// communicators of a job share one, and no agreement is needed beyond naming the reserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u64);

impl ContextId {
    /// The point-to-point context of the job's `MPI_COMM_WORLD`.
    pub const WORLD: Self = Self(0);

    /// The `count`-th context reserved by `owner`. `count` starts at 1 (0 of process 0 is the
    /// world) and must be below 2^31.
    #[must_use]
    pub const fn reserved(owner: ProcId, count: u32) -> Self {
        assert!(count < 1 << 31, "a process can reserve 2^31 contexts");
        Self(((owner.0 as u64) << 32) | ((count as u64) << 1))
    }

    /// This communicator's context on `plane`.
    #[must_use]
    pub const fn on(self, plane: Plane) -> Self {
        match plane {
            Plane::PointToPoint => Self(self.0 & !1),
            Plane::Collective => Self(self.0 | 1),
        }
    }

    /// The plane this context belongs to.
    #[must_use]
    pub const fn plane(self) -> Plane {
        if self.0 & 1 == 0 { Plane::PointToPoint } else { Plane::Collective }
    }
}

impl fmt::Display for Strand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strands_are_numbered_below_their_bound() {
        let all: Vec<usize> = Strand::first(99).map(Strand::index).collect();
        assert_eq!(all, (0..Strand::MAX).collect::<Vec<_>>());
        assert_eq!((Strand::new(0), Strand::new(Strand::MAX)), (Some(Strand::FIRST), None));
    }

    #[test]
    fn contexts_of_different_owners_and_counts_differ() {
        let all = [
            ContextId::WORLD,
            ContextId::reserved(ProcId(0), 1),
            ContextId::reserved(ProcId(1), 0),
            ContextId::reserved(ProcId(1), 1),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a, b);
                assert_ne!(a.on(Plane::Collective), b.on(Plane::Collective));
            }
            assert_eq!(a.on(Plane::Collective).plane(), Plane::Collective);
            assert_eq!(a.on(Plane::Collective).on(Plane::PointToPoint), *a);
        }
    }
}
