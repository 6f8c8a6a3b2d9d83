//! `MPI_Request_get_status` and its forms over arrays (MPI 4.1 §3.7.6). The forms over arrays are ours in every case:
//! vendors before MPI 4.1 have none, and programs that find our symbol rely on it.

use super::completion::{Requests, position, status_at};
use crate::communicator::Spanning;
use crate::error::{Result, forward};
use crate::operation::{self, Active, Activity, Persistent};
use crate::progress::{advance, look_at_vendor};
use crate::runtime::Runtime;
use crate::status::{Told, is_ignored};
use crate::tokens::Request;
use gridmpi_abi::{Abi, Handle, StatusFields};
use std::ffi::c_int;
use std::sync::Arc;

/// What a look that leaves a request as it is has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Peeked {
    /// Under way; whether the vendor may end it, and was asked.
    Pending { local: bool },
    /// Null, or persistent and not started; the status is told, and empty.
    Inactive,
    /// It has ended, and the status is told.
    Ended,
}

impl Peeked {
    /// For a call that returns what there is: whether nothing is left to wait for.
    pub(super) fn end<A: Abi>(self, rt: &Runtime<A>) -> bool {
        if self == (Self::Pending { local: false }) {
            look_at_vendor(rt);
        }
        !matches!(self, Self::Pending { .. })
    }

    /// What two have in common of whom none has ended: they are under way if one is.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pending { local }, Self::Pending { local: also }) => {
                Self::Pending { local: local || also }
            }
            (Self::Inactive, other) | (other, _) => other,
        }
    }
}

/// `MPI_Request_get_status`.
pub unsafe fn request_get_status<A: Abi>(
    rt: &'static Runtime<A>,
    request: A::Request,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    // SAFETY: the program's places.
    unsafe {
        let peeked = peek(rt, request, status)?;
        *flag = c_int::from(peeked.end(rt));
    }
    Ok(())
}

/// Lets everything move that can, where there is a job; then the array.
fn begin<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *const A::Request,
) -> Result<Requests<A>> {
    if rt.is_active() {
        advance(rt)?;
    }
    Requests::new(array_of_requests.cast_mut(), count)
}

/// The indices of the requests that are not null.
///
/// # Safety
/// The array is the program's.
unsafe fn present<A: Abi>(requests: &Requests<A>) -> Vec<usize> {
    let null = A::request_null().bits();
    // SAFETY: as this function's.
    (0..requests.count).filter(|&index| unsafe { *requests.at(index) }.bits() != null).collect()
}

/// The empty status of a null request; its error is `MPI_SUCCESS` (MPI 4.1 §3.7.3).
///
/// # Safety
/// `status` is `MPI_STATUS_IGNORE` or the program's.
unsafe fn write_empty<A: Abi>(rt: &Runtime<A>, status: *mut A::Status) {
    // SAFETY: as this function's.
    unsafe {
        Told::Empty.write(rt, status);
        if !is_ignored::<A>(status) {
            (*status).set_error(A::SUCCESS);
        }
    }
}

/// `MPI_Request_get_status_any`.
pub unsafe fn request_get_status_any<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *const A::Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    let requests = begin(rt, count, array_of_requests)?;
    // SAFETY: the program's array and places.
    unsafe {
        let mut others = Peeked::Inactive;
        for at in present(&requests) {
            match peek(rt, *requests.at(at), status)? {
                Peeked::Ended => {
                    (*index, *flag) = (position(at), 1);
                    return Ok(());
                }
                other => others = others.and(other),
            }
        }
        let none = others.end(rt);
        (*index, *flag) = (A::UNDEFINED, c_int::from(none));
        if none {
            write_empty(rt, status);
        }
    }
    Ok(())
}

/// `MPI_Request_get_status_all`.
pub unsafe fn request_get_status_all<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *const A::Request,
    flag: *mut c_int,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    let requests = begin(rt, count, array_of_requests)?;
    // SAFETY: the program's array and places.
    unsafe {
        let present = present(&requests);
        for &at in &present {
            if !peek(rt, *requests.at(at), A::status_ignore())?.end(rt) {
                *flag = 0;
                return Ok(());
            }
        }
        // Every one has ended, so that now all statuses can be told.
        for at in 0..requests.count {
            write_empty(rt, status_at::<A>(array_of_statuses, at));
        }
        for &at in &present {
            peek(rt, *requests.at(at), status_at::<A>(array_of_statuses, at))?;
        }
        *flag = 1;
    }
    Ok(())
}

/// `MPI_Request_get_status_some`.
pub unsafe fn request_get_status_some<A: Abi>(
    rt: &'static Runtime<A>,
    incount: c_int,
    array_of_requests: *const A::Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    let requests = begin(rt, incount, array_of_requests)?;
    // SAFETY: the program's arrays and places; both arrays out take as many entries as there are requests.
    unsafe {
        let (mut ended, mut others) = (0, Peeked::Inactive);
        for at in present(&requests) {
            match peek(rt, *requests.at(at), status_at::<A>(array_of_statuses, ended))? {
                Peeked::Ended => {
                    *array_of_indices.add(ended) = position(at);
                    ended += 1;
                }
                other => others = others.and(other),
            }
        }
        let none = ended == 0 && others.end(rt);
        *outcount = if none { A::UNDEFINED } else { position(ended) };
    }
    Ok(())
}

/// What was found of a request of ours, and its status where that is told.
type Looked<A> = (Peeked, Option<Told<A>>);

fn peek_active<A: Abi>(rt: &Runtime<A>, active: &Active<A>, comm: &Spanning<A>) -> Looked<A> {
    match operation::peek(rt, active, comm) {
        Some(told) => (Peeked::Ended, Some(told)),
        None => (Peeked::Pending { local: active.is_local() }, None),
    }
}

fn peek_persistent<A: Abi>(rt: &Runtime<A>, persistent: &Persistent<A>) -> Looked<A> {
    match persistent.take() {
        Activity::Inactive => (Peeked::Inactive, Some(Told::Empty)),
        Activity::Busy => (Peeked::Pending { local: true }, None),
        Activity::Started(active) => {
            let looked = peek_active(rt, &active, &persistent.comm);
            persistent.put(rt, Activity::Started(active));
            looked
        }
    }
}

/// Whether a request has ended, with its status, leaving it as it is.
///
/// # Safety
/// The places are the program's or ours.
pub(super) unsafe fn peek<A: Abi>(
    rt: &'static Runtime<A>,
    request: A::Request,
    status: *mut A::Status,
) -> Result<Peeked> {
    let mut persistent = None;
    let looked = rt.tokens.requests.with(request, |ours| match ours {
        Request::Active { active, comm } => Some(peek_active(rt, active, comm)),
        Request::Persistent(found) => {
            persistent = Some(Arc::clone(found));
            None
        }
        Request::Translate { .. } => None,
    });
    let looked = looked.flatten().or_else(|| persistent.map(|found| peek_persistent(rt, &found)));
    if let Some((peeked, told)) = looked {
        if let Some(told) = told {
            // SAFETY: as this function's.
            unsafe { told.write(rt, status) };
        }
        return Ok(peeked);
    }
    // SAFETY: as this function's.
    let peeked = unsafe { peek_vendor(rt, request, status)? };
    if peeked == Peeked::Ended && !is_ignored::<A>(status) {
        rt.tokens.requests.with(request, |ours| {
            if let Request::Translate { comm } = ours {
                // SAFETY: the vendor just filled it.
                comm.translate_source(unsafe { &mut *status });
            }
        });
    }
    Ok(peeked)
}

/// The form for arrays alone tells an inactive request from one that ended. Programs know ours by headers of vendors that have theirs.
unsafe fn peek_vendor<A: Abi>(
    rt: &Runtime<A>,
    request: A::Request,
    status: *mut A::Status,
) -> Result<Peeked> {
    let (v, mut index, mut flag) = (&rt.vendor, 0, 0);
    // SAFETY: as the caller's, and places of our own.
    forward(|| unsafe {
        if v.has_request_get_status_any() {
            let one = &raw const request;
            v.request_get_status_any(1, one, &raw mut index, &raw mut flag, status)
        } else {
            v.request_get_status(request, &raw mut flag, status)
        }
    })?;
    Ok(match flag {
        0 => Peeked::Pending { local: true },
        _ if index == A::UNDEFINED => Peeked::Inactive,
        _ => Peeked::Ended,
    })
}
