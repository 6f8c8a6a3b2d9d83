//! How operations end, and the status that tells the program (MPI 4.1 §3.2.5).

use crate::communicator::Spanning;
use crate::error::{Error, Result, check};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass, Named, StatusFields};
use gridmpi_engine::{Completion, Fault, Probed};
use std::ffi::c_int;
use std::sync::Arc;

/// How an operation ended.
pub(crate) struct Outcome<A: Abi> {
    pub(crate) status: Told<A>,
    pub(crate) error: Option<Error>,
}

/// The content of a status.
#[derive(Clone, Copy)]
pub(crate) enum Told<A: Abi> {
    /// As the vendor filled it; the source is a rank of the program's communicator.
    Vendor(A::Status),
    /// A message from another cluster, or none from `MPI_PROC_NULL`.
    Received { source: c_int, tag: c_int, bytes: u64 },
    /// A receive that was cancelled.
    Cancelled,
    /// An empty status (MPI 4.1 §3.7.3): of sends, null and inactive requests.
    Empty,
}

impl<A: Abi> Outcome<A> {
    /// A request that does nothing.
    pub(crate) fn empty() -> Self {
        Self { status: Told::Empty, error: None }
    }

    /// A send that the vendor completed.
    pub(crate) fn sent(code: c_int) -> Self {
        Self { status: Told::Empty, error: check(code).err() }
    }

    /// A receive that the vendor completed among the members in this cluster.
    pub(crate) fn of_vendor(code: c_int, mut status: A::Status, comm: &Spanning<A>) -> Self {
        comm.translate_source(&mut status);
        Self { status: Told::Vendor(status), error: check(code).err() }
    }

    /// What the engine completed.
    pub(crate) fn of_engine(completion: &Completion, receive: bool) -> Self {
        let error = completion.error.as_ref().map(fault);
        Self { status: Told::of_engine(completion, receive), error }
    }

    /// Of an operation on `comm`, where the call that tells of it names no communicator.
    pub(crate) fn on(mut self, comm: &Arc<Spanning<A>>) -> Self {
        self.error = self.error.map(|error| error.on(comm));
        self
    }

    /// Ends a single-completion procedure: fills the status, then the error.
    ///
    /// # Safety
    /// `status` is `MPI_STATUS_IGNORE` or the program's.
    pub(crate) unsafe fn finish(self, rt: &Runtime<A>, status: *mut A::Status) -> Result<()> {
        // SAFETY: as this function's.
        unsafe { self.status.write(rt, status) };
        self.error.map_or(Ok(()), Err)
    }
}

/// Whether the program gave `MPI_STATUS_IGNORE`.
pub(crate) fn is_ignored<A: Abi>(status: *mut A::Status) -> bool {
    status == A::status_ignore()
}

fn rank_of(rank: gridmpi_wire::Rank) -> c_int {
    c_int::try_from(rank.0).unwrap_or(c_int::MAX)
}

fn fault(fault: &Fault) -> Error {
    let class = match fault {
        Fault::Truncated { .. } => ErrorClass::Truncate,
        Fault::PeerLost { .. } => ErrorClass::ProcAborted,
    };
    Error::new(class, fault.to_string())
}

impl<A: Abi> Told<A> {
    /// What a receive from `MPI_PROC_NULL` tells (MPI 4.1 §3.10).
    pub(crate) fn of_nobody() -> Self {
        Self::Received { source: A::PROC_NULL, tag: A::ANY_TAG, bytes: 0 }
    }

    /// What the engine completed.
    pub(crate) fn of_engine(completion: &Completion, receive: bool) -> Self {
        match completion.source {
            _ if completion.cancelled => Self::Cancelled,
            Some(source) if receive => Self::Received {
                source: rank_of(source),
                tag: completion.tag,
                bytes: completion.len,
            },
            _ => Self::Empty,
        }
    }

    /// A message that a probe found in the engine.
    pub(crate) fn probed(probed: &Probed) -> Self {
        Self::Received { source: rank_of(probed.source), tag: probed.tag, bytes: probed.len }
    }

    /// Fills the program's status. `MPI_ERROR` stays as it is: only procedures that complete several
    /// requests set it (MPI 4.1 §3.2.5).
    ///
    /// # Safety
    /// `status` is `MPI_STATUS_IGNORE` or the program's.
    pub(crate) unsafe fn write(self, rt: &Runtime<A>, status: *mut A::Status) {
        if is_ignored::<A>(status) {
            return;
        }
        // SAFETY: a status of the program, as it says.
        let place = unsafe { &mut *status };
        let (source, tag, bytes, cancelled) = match self {
            Self::Vendor(told) => {
                let error = place.error();
                *place = told;
                place.set_error(error);
                return;
            }
            Self::Received { source, tag, bytes } => (source, tag, bytes, false),
            Self::Cancelled => (A::ANY_SOURCE, A::ANY_TAG, 0, true),
            Self::Empty => (A::ANY_SOURCE, A::ANY_TAG, 0, false),
        };
        place.set_source(source);
        place.set_tag(tag);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // SAFETY: the program's status and a predefined type. With MPI_BYTE, counts of every type
        // come out right on all vendors.
        unsafe {
            rt.vendor.status_set_elements_x(status, A::datatype(Named::Byte), bytes);
            rt.vendor.status_set_cancelled(status, c_int::from(cancelled));
        }
    }
}
