//! A spanning communicator: the engine's view of it, and the vendor's communicator that is its token.

use crate::error::{Error, Result};
use crate::guard::this_thread;
use gridmpi_abi::{Abi, ErrorClass, StatusFields};
use gridmpi_engine::{Communicator, Place};
use gridmpi_wire::{ContextId, Plane, ProcId, Rank};
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// A communicator with members in more than one cluster.
#[derive(Debug)]
pub(crate) struct Spanning<A: Abi> {
    /// The vendor's communicator of the members in this cluster: what the program holds.
    pub(crate) token: A::Comm,
    /// Who is where.
    pub(crate) view: Communicator,
    /// Collectives begun on it; the same number on every member (MPI 4.1 §6.14: same order).
    collectives: AtomicU32,
    /// The thread that lets the vendor free the token; 0: none does.
    freed_by: AtomicUsize,
}

/// Whom a send is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// `MPI_PROC_NULL`.
    Null,
    /// A member in this cluster: its rank in the token.
    Local(c_int),
    /// A member elsewhere.
    Remote(ProcId),
}

/// Whom a receive or a probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// `MPI_PROC_NULL`.
    Null,
    /// `MPI_ANY_SOURCE`.
    Any,
    /// A member in this cluster: its rank in the token, and its rank.
    Local(c_int, Rank),
    /// A member elsewhere.
    Remote(Rank, ProcId),
}

impl<A: Abi> Spanning<A> {
    /// The communicator that `view` describes, whose token has the local members in order of rank.
    pub(crate) fn new(token: A::Comm, view: Communicator) -> Self {
        Self { token, view, collectives: AtomicU32::new(0), freed_by: AtomicUsize::new(0) }
    }

    /// Whether the token means this communicator to the calling thread. Once the vendor was asked to free it, it may have given the handle to
    /// another thread, for a communicator of this process alone; only callbacks within the freeing itself still mean this one.
    pub(crate) fn is_known_here(&self) -> bool {
        let freed_by = self.freed_by.load(Acquire);
        freed_by == 0 || freed_by == this_thread()
    }

    /// The calling thread lets the vendor free the token, or is done with that.
    pub(crate) fn set_freeing(&self, freeing: bool) {
        self.freed_by.store(if freeing { this_thread() } else { 0 }, Release);
    }

    /// The context of the program's own messages.
    pub(crate) fn context(&self) -> ContextId {
        self.view.context(Plane::PointToPoint)
    }

    pub(crate) fn rank(&self) -> Rank {
        self.view.rank()
    }

    /// The number of the next collective, from 0.
    pub(crate) fn next_collective(&self) -> u32 {
        self.collectives.fetch_add(1, Relaxed)
    }

    /// Where messages to `rank` go.
    ///
    /// # Errors
    /// `MPI_ERR_RANK`.
    pub(crate) fn peer(&self, rank: c_int) -> Result<Peer> {
        if rank == A::PROC_NULL {
            return Ok(Peer::Null);
        }
        let (_, place) = self.member(rank)?;
        Ok(match place {
            Place::Local(rank) => Peer::Local(int(rank)),
            Place::Remote(proc) => Peer::Remote(proc),
        })
    }

    /// Where messages from `rank` come from.
    ///
    /// # Errors
    /// `MPI_ERR_RANK`.
    pub(crate) fn source(&self, rank: c_int) -> Result<From> {
        if rank == A::PROC_NULL {
            return Ok(From::Null);
        }
        if rank == A::ANY_SOURCE {
            return Ok(From::Any);
        }
        let (rank, place) = self.member(rank)?;
        Ok(match place {
            Place::Local(local) => From::Local(int(local), rank),
            Place::Remote(proc) => From::Remote(rank, proc),
        })
    }

    fn member(&self, rank: c_int) -> Result<(Rank, Place)> {
        let known = u32::try_from(rank).ok().map(Rank);
        let place = known.and_then(|rank| Some((rank, self.view.place(rank)?)));
        place.ok_or_else(|| {
            let size = self.view.size();
            Error::new(
                ErrorClass::Rank,
                format!("rank {rank} is not in a communicator of {size} processes"),
            )
        })
    }

    /// The rank of the member that has this rank in the token.
    pub(crate) fn rank_of_local(&self, local: c_int) -> Option<Rank> {
        u32::try_from(local).ok().and_then(|local| self.view.rank_of_local(local))
    }

    /// The rank in the token of a member; `None` for members elsewhere.
    pub(crate) fn local_rank(&self, rank: Rank) -> Option<c_int> {
        match self.view.place(rank)? {
            Place::Local(local) => Some(int(local)),
            Place::Remote(_) => None,
        }
    }

    /// The rank in the token of a member of this cluster; `MPI_PROC_NULL` for others.
    pub(crate) fn vendor_rank(&self, rank: Rank) -> c_int {
        self.local_rank(rank).unwrap_or(A::PROC_NULL)
    }

    /// Puts the communicator's rank in place of the token's. `MPI_ANY_SOURCE` and `MPI_PROC_NULL` stay.
    pub(crate) fn translate_source(&self, status: &mut A::Status) {
        if let Some(rank) = self.rank_of_local(status.source()) {
            status.set_source(int(rank.0));
        }
    }
}

/// A rank as MPI's procedures give it.
pub(crate) fn int(rank: u32) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}
