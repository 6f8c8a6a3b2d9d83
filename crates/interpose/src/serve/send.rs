//! Sends: MPI 4.1 §3.2, §3.4, §3.6, §3.7.2, §3.9.

use crate::communicator::Peer;
use crate::counts::CountOut;
use crate::error::{Error, Result, check, forward};
use crate::guard::Lift;
use crate::operation::{
    Active, Address, Data, PersistentKind, SendKind, counted, start_send, start_send_near,
    vendor_isend,
};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, ErrorClass};
use std::ffi::{c_int, c_void};

/// The twelve procedures differ in mode and form alone.
macro_rules! sends {
    ($($kind:ident: $blocking:ident $nonblocking:ident $persistent:ident;)*) => {$(
        #[doc = concat!("`MPI_", stringify!($blocking), "`: returns when the buffer may be used again as the mode says.")]
        pub unsafe fn $blocking<A: Abi>(
            rt: &'static Runtime<A>, buf: *const c_void, count: Count, datatype: A::Datatype, dest: c_int, tag: c_int, comm: A::Comm,
        ) -> Result<()> {
            // SAFETY: the program's arguments, under the rules of the procedure.
            unsafe { blocking(rt, SendKind::$kind, Data::new(buf, count, datatype), Address { peer: dest, tag }, comm) }
        }

        #[doc = concat!("`MPI_", stringify!($nonblocking), "`.")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $nonblocking<A: Abi>(
            rt: &'static Runtime<A>, buf: *const c_void, count: Count, datatype: A::Datatype, dest: c_int, tag: c_int, comm: A::Comm,
            request: *mut A::Request,
        ) -> Result<()> {
            // SAFETY: as above.
            unsafe { nonblocking(rt, SendKind::$kind, Data::new(buf, count, datatype), Address { peer: dest, tag }, comm, request) }
        }

        #[doc = concat!("`MPI_", stringify!($persistent), "`.")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $persistent<A: Abi>(
            rt: &'static Runtime<A>, buf: *const c_void, count: Count, datatype: A::Datatype, dest: c_int, tag: c_int, comm: A::Comm,
            request: *mut A::Request,
        ) -> Result<()> {
            // SAFETY: as above.
            unsafe { persistent(rt, SendKind::$kind, Data::new(buf, count, datatype), Address { peer: dest, tag }, comm, request) }
        }
    )*};
}

sends! {
    Standard: send isend send_init;
    Buffered: bsend ibsend bsend_init;
    Synchronous: ssend issend ssend_init;
    Ready: rsend irsend rsend_init;
}

unsafe fn blocking<A: Abi>(
    rt: &'static Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    mut to: Address,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        // SAFETY: as the caller's.
        return unsafe { within_cluster(rt, kind, data, to, comm) };
    };
    match spanning.peer(to.peer)? {
        Peer::Remote(..) => {
            // SAFETY: as the caller's; we wait until the buffer is free.
            let active = unsafe { start_send(rt, &spanning, kind, data, to)? };
            let outcome = crate::operation::wait(rt, active, &spanning)?;
            return outcome.error.map_or(Ok(()), Err);
        }
        Peer::Local(rank) => to.peer = rank,
        Peer::Null => to.peer = A::PROC_NULL,
    }
    // SAFETY: as the caller's.
    unsafe { within_cluster(rt, kind, data, to, comm) }
}

/// A blocking send to a member in this cluster. It blocks in the vendor only while nothing of ours
/// depends on this thread.
unsafe fn within_cluster<A: Abi>(
    rt: &'static Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    to: Address,
    comm: A::Comm,
) -> Result<()> {
    let v = &rt.vendor;
    // SAFETY: as the caller's.
    if kind == SendKind::Buffered && unsafe { rt.job().buffered.send(rt, data, to, comm)? } {
        return Ok(());
    }
    if rt.job().is_patient(rt) && kind != SendKind::Buffered {
        // SAFETY: as the caller's; we wait until the buffer is free.
        let request = unsafe { vendor_isend(rt, kind, data, to, comm)? };
        return super::completion::wait_vendor(rt, request).map(drop);
    }
    // An error handler of the program's may run.
    let _lift = Lift::new();
    // SAFETY: as the caller's.
    check(unsafe {
        match kind {
            SendKind::Standard => counted!(v, send, send_c, data, to.peer, to.tag, comm),
            SendKind::Buffered => counted!(v, bsend, bsend_c, data, to.peer, to.tag, comm),
            SendKind::Synchronous => counted!(v, ssend, ssend_c, data, to.peer, to.tag, comm),
            SendKind::Ready => counted!(v, rsend, rsend_c, data, to.peer, to.tag, comm),
        }
    })
}

unsafe fn nonblocking<A: Abi>(
    rt: &'static Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    to: Address,
    comm: A::Comm,
    request: *mut A::Request,
) -> Result<()> {
    let world = A::comm_world();
    // SAFETY: the program gives the memory to the operation.
    let active = unsafe {
        match rt.tokens.spanning(comm) {
            Some(spanning) => start_send(rt, &spanning, kind, data, to)?,
            None => start_send_near(rt, kind, data, to, comm)?,
        }
    };
    // Sends have no rank in their status, so that any communicator will do for one of a single cluster.
    let spanning = rt.tokens.spanning(comm).or_else(|| rt.tokens.spanning(world));
    let started = match (spanning, active) {
        (Some(spanning), active) => super::completion::hand_out(rt, active, &spanning)?,
        (None, Active::Vendor { request, .. }) => request,
        (None, Active::Engine { .. } | Active::Null) => {
            return Err(Error::new(ErrorClass::Intern, "a send of no communicator is ours"));
        }
    };
    // SAFETY: the program's place for the request.
    unsafe { *request = started };
    Ok(())
}

unsafe fn persistent<A: Abi>(
    rt: &'static Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    mut to: Address,
    comm: A::Comm,
    request: *mut A::Request,
) -> Result<()> {
    if let Some(spanning) = rt.tokens.spanning(comm) {
        match spanning.peer(to.peer)? {
            Peer::Remote(..) => {
                let kind = PersistentKind::Send(kind);
                // SAFETY: the program's place for the request.
                return unsafe {
                    super::persistent::hand_out(rt, &spanning, kind, data, to, request)
                };
            }
            Peer::Local(rank) => to.peer = rank,
            Peer::Null => to.peer = A::PROC_NULL,
        }
    }
    let (v, r) = (&rt.vendor, request);
    // SAFETY: the program's arguments, under the rules of the procedure.
    forward(|| unsafe {
        match kind {
            SendKind::Standard => {
                counted!(v, send_init, send_init_c, data, to.peer, to.tag, comm, r)
            }
            SendKind::Buffered => {
                counted!(v, bsend_init, bsend_init_c, data, to.peer, to.tag, comm, r)
            }
            SendKind::Synchronous => {
                counted!(v, ssend_init, ssend_init_c, data, to.peer, to.tag, comm, r)
            }
            SendKind::Ready => {
                counted!(v, rsend_init, rsend_init_c, data, to.peer, to.tag, comm, r)
            }
        }
    })
}

/// `MPI_Buffer_attach` (MPI 4.1 §3.6): the vendor uses the buffer in a job of one cluster, and for persistent requests inside one; all else
/// is copied out of the program's memory at once and only counted against its size.
pub unsafe fn buffer_attach<A: Abi>(
    rt: &'static Runtime<A>,
    buffer: *mut c_void,
    size: Count,
) -> Result<()> {
    // SAFETY: the program's buffer.
    forward(|| unsafe {
        match c_int::try_from(size) {
            Ok(small) => rt.vendor.buffer_attach(buffer, small),
            Err(_) => rt.vendor.buffer_attach_c(buffer, size),
        }
    })?;
    rt.job().attached.set::<A>(buffer, size);
    Ok(())
}

/// `MPI_Buffer_detach`: returns when the buffered messages are out.
pub unsafe fn buffer_detach<A: Abi>(
    rt: &'static Runtime<A>,
    buffer_addr: *mut c_void,
    size: CountOut,
) -> Result<()> {
    rt.job().buffered.drain(rt)?;
    let mut detached: c_int = 0;
    let mut detached_large: Count = 0;
    let small = rt.job().attached.take();
    // SAFETY: the program's place for the address, and places of our own for the size.
    forward(|| unsafe {
        if small {
            rt.vendor.buffer_detach(buffer_addr, &raw mut detached)
        } else {
            rt.vendor.buffer_detach_c(buffer_addr, &raw mut detached_large)
        }
    })?;
    // SAFETY: the program's place for the size.
    unsafe { size.set(if small { Count::from(detached) } else { detached_large }) }
}
