//! `MPI_Request_get_status` and its forms over arrays (MPI 4.1 §3.7.6). The forms over arrays are ours in every case:
//! vendors before MPI 4.1 have none, and programs that find our symbol rely on it.

use super::completion::{Requests, position, status_at};
use crate::error::{Result, forward};
use crate::operation::{self, Activity, Persistent};
use crate::progress::advance;
use crate::runtime::Runtime;
use crate::status::{Told, is_ignored};
use crate::tokens::Request;
use gridmpi_abi::{Abi, Handle, StatusFields};
use std::ffi::c_int;
use std::sync::Arc;

/// `MPI_Request_get_status`.
pub unsafe fn request_get_status<A: Abi>(
    rt: &'static Runtime<A>,
    request: A::Request,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    // SAFETY: the program's places.
    unsafe { peek(rt, request, flag, status) }
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
        let present = present(&requests);
        for &at in &present {
            peek(rt, *requests.at(at), flag, status)?;
            if *flag != 0 {
                *index = position(at);
                return Ok(());
            }
        }
        *index = A::UNDEFINED;
        *flag = c_int::from(present.is_empty());
        if present.is_empty() {
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
            peek(rt, *requests.at(at), flag, A::status_ignore())?;
            if *flag == 0 {
                return Ok(());
            }
        }
        // Every one has ended, so that now all statuses can be told.
        for at in 0..requests.count {
            write_empty(rt, status_at::<A>(array_of_statuses, at));
        }
        for &at in &present {
            peek(rt, *requests.at(at), flag, status_at::<A>(array_of_statuses, at))?;
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
        let present = present(&requests);
        let mut ended = 0;
        for &at in &present {
            let mut flag = 0;
            let status = status_at::<A>(array_of_statuses, ended);
            peek(rt, *requests.at(at), &raw mut flag, status)?;
            if flag != 0 {
                *array_of_indices.add(ended) = position(at);
                ended += 1;
            }
        }
        *outcount = if present.is_empty() { A::UNDEFINED } else { position(ended) };
    }
    Ok(())
}

fn peek_persistent<A: Abi>(rt: &Runtime<A>, persistent: &Persistent<A>) -> Option<Told<A>> {
    match persistent.take() {
        Activity::Inactive => Some(Told::Empty),
        Activity::Busy => None,
        Activity::Started(active) => {
            let told = operation::peek(rt, &active, &persistent.comm);
            persistent.put(Activity::Started(active));
            told
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
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    let mut persistent = None;
    let told = rt.tokens.requests.with(request, |ours| match ours {
        Request::Active { active, comm } => Some(operation::peek(rt, active, comm)),
        Request::Persistent(found) => {
            persistent = Some(Arc::clone(found));
            None
        }
        Request::Translate { .. } => None,
    });
    let told = told.flatten().or_else(|| persistent.map(|found| peek_persistent(rt, &found)));
    if let Some(told) = told {
        // SAFETY: as this function's.
        unsafe {
            *flag = c_int::from(told.is_some());
            if let Some(told) = told {
                told.write(rt, status);
            }
        }
        return Ok(());
    }
    // SAFETY: as this function's.
    forward(|| unsafe { rt.vendor.request_get_status(request, flag, status) })?;
    // SAFETY: as this function's.
    if unsafe { *flag } != 0 && !is_ignored::<A>(status) {
        rt.tokens.requests.with(request, |ours| {
            if let Request::Translate { comm } = ours {
                // SAFETY: the vendor just filled it.
                comm.translate_source(unsafe { &mut *status });
            }
        });
    }
    Ok(())
}
