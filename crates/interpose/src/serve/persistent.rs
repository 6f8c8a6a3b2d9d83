//! Persistent requests on spanning communicators (MPI 4.1 §3.9). Their token is a persistent receive
//! from `MPI_PROC_NULL`, never started at the vendor.

use crate::communicator::Spanning;
use crate::datatype::Lasting;
use crate::error::{Error, Result, check, forward};
use crate::operation::{
    Activity, Address, Data, Persistent, PersistentKind, counted, start_receive, start_send,
};
use crate::runtime::Runtime;
use crate::tokens::Request;
use gridmpi_abi::{Abi, Count, ErrorClass, Named};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Makes the request and its token. Mistakes are told here, where the vendor would; the peer is right.
///
/// # Safety
/// `request` is the program's place.
pub(crate) unsafe fn hand_out<A: Abi>(
    rt: &Runtime<A>,
    comm: &Arc<Spanning<A>>,
    kind: PersistentKind,
    mut data: Data<A>,
    address: Address,
    request: *mut A::Request,
) -> Result<()> {
    data.elements()?;
    match kind {
        PersistentKind::Send(_) => rt.job().check_tag(address.tag)?,
        PersistentKind::Receive => drop(rt.job().tag_match(address.tag)?),
    }
    let datatype = Lasting::new(rt, data.datatype)?;
    data.datatype = datatype.get();
    let mut token = A::request_null();
    // SAFETY: nothing is ever received, so the missing buffer is never looked at.
    let made = check(unsafe {
        rt.vendor.recv_init(
            std::ptr::null_mut(),
            0,
            A::datatype(Named::Byte),
            A::PROC_NULL,
            0,
            comm.token,
            &raw mut token,
        )
    });
    if made.is_err() {
        datatype.release(rt);
        return made;
    }
    let comm = Arc::clone(comm);
    let persistent = Persistent::new(comm, kind, (data, datatype), address);
    rt.tokens.requests.insert(token, Request::Persistent(Arc::new(persistent)));
    // SAFETY: the program's place.
    unsafe { *request = token };
    Ok(())
}

/// `MPI_Recv_init`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn recv_init<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    request: *mut A::Request,
) -> Result<()> {
    let (data, address) = (Data::new(buf, count, datatype), Address { peer: source, tag });
    if let (Some(spanning), true) = (rt.tokens.spanning(comm), source != A::PROC_NULL) {
        spanning.source(source)?;
        // SAFETY: the program's place for the request.
        return unsafe { hand_out(rt, &spanning, PersistentKind::Receive, data, address, request) };
    }
    // SAFETY: the program's arguments, under the rules of the procedure.
    forward(|| unsafe {
        counted!(rt.vendor, recv_init, recv_init_c, data, source, tag, comm, request)
    })
}

/// `MPI_Start`.
pub unsafe fn start<A: Abi>(rt: &'static Runtime<A>, request: *mut A::Request) -> Result<()> {
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    let ours = rt.tokens.requests.with(handle, |ours| match ours {
        Request::Persistent(persistent) => Some(Arc::clone(persistent)),
        _ => None,
    });
    match ours.flatten() {
        // SAFETY: the program gives the memory to the operation.
        Some(persistent) => unsafe { start_ours(rt, &persistent) },
        // SAFETY: the program's request.
        None => forward(|| unsafe { rt.vendor.start(request) }),
    }
}

/// Errors are the request's communicator's, since the call names none (MPI 4.1 §9.3).
unsafe fn start_ours<A: Abi>(rt: &Runtime<A>, persistent: &Persistent<A>) -> Result<()> {
    if !persistent.claim() {
        let message = "a persistent request is started that is under way";
        return Err(Error::new(ErrorClass::Request, message).on(&persistent.comm));
    }
    let (comm, data, address) = (&persistent.comm, persistent.data, persistent.address);
    // SAFETY: as the caller's.
    let started = unsafe {
        match persistent.kind {
            PersistentKind::Send(kind) => start_send(rt, comm, kind, data, address),
            PersistentKind::Receive => start_receive(rt, comm, data, address),
        }
    };
    let activity = started.as_ref().map_or(Activity::Inactive, |active| Activity::Started(*active));
    persistent.put(rt, activity);
    started.map(drop).map_err(|error| error.on(comm))
}

/// `MPI_Startall`: in the array's order (MPI 4.1 §3.9).
pub unsafe fn startall<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *mut A::Request,
) -> Result<()> {
    let count = usize::try_from(count).map_err(|_| {
        Error::new(ErrorClass::Count, format!("the count {count} of requests is negative"))
    })?;
    for index in 0..count {
        // SAFETY: the program's array.
        unsafe { start(rt, array_of_requests.add(index))? };
    }
    Ok(())
}
