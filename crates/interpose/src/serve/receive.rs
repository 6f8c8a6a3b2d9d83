//! Receives and combined sends and receives: MPI 4.1 §3.2.4, §3.7.2, §3.10.

use super::completion::wait_vendor;
use crate::communicator::{From, Spanning};
use crate::datatype::Lasting;
use crate::error::{Error, Result, check, forward};
use crate::operation::{
    self, Address, Data, SendKind, counted, start_receive, start_send, vendor_irecv,
};
use crate::progress::Turn;
use crate::runtime::Runtime;
use crate::status::is_ignored;
use gridmpi_abi::{Abi, Count, ErrorClass, Named};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `MPI_Recv`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn recv<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> Result<()> {
    let (data, from) = (Data::new(buf, count, datatype), Address { peer: source, tag });
    // SAFETY: the program's arguments; we wait until the buffer is free.
    unsafe {
        match rt.tokens.spanning(comm) {
            Some(spanning) => receive(rt, &spanning, data, from, status),
            None => receive_near(rt, comm, data, from, status),
        }
    }
}

unsafe fn receive<A: Abi>(
    rt: &Runtime<A>,
    comm: &Arc<Spanning<A>>,
    data: Data<A>,
    from: Address,
    status: *mut A::Status,
) -> Result<()> {
    // SAFETY: as the caller's.
    unsafe {
        let Some(peer) = direct_rank(rt, comm, from)? else {
            let active = start_receive(rt, comm, data, from)?;
            return operation::wait(rt, active, comm)?.finish(rt, status);
        };
        let received = receive_near(rt, comm.token, data, Address { peer, ..from }, status);
        if !is_ignored::<A>(status) {
            // What the vendor just filled.
            comm.translate_source(&mut *status);
        }
        received
    }
}

/// The vendor's rank to receive from if the vendor can serve this receive.
fn direct_rank<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    from: Address,
) -> Result<Option<c_int>> {
    let tag = rt.job().tag_match(from.tag)?;
    Ok(match comm.source(from.peer)? {
        From::Null => Some(A::PROC_NULL),
        From::Local(_, rank) if operation::must_hold(rt, comm, rank, tag) => None,
        From::Local(local, _) => Some(local),
        From::Any | From::Remote(..) => None,
    })
}

/// Waits until the vendor has a message.
fn await_message<A: Abi>(rt: &Runtime<A>, comm: A::Comm, from: Address) -> Result<()> {
    let mut turn = Turn::new(rt);
    loop {
        let (mut flag, ignore) = (0, A::status_ignore());
        // SAFETY: the program's arguments and a place of our own.
        forward(|| unsafe { rt.vendor.iprobe(from.peer, from.tag, comm, &raw mut flag, ignore) })?;
        if flag != 0 {
            return Ok(());
        }
        turn.wait(true)?;
    }
}

/// The vendor's receive, in one call that does not block for long: at once where nothing of ours waits and cores abound, else when the
/// message has come. One call, since MPICH forgets the communicator of a nonblocking receive that was truncated, and runs
/// another one's error handler.
unsafe fn receive_near<A: Abi>(
    rt: &Runtime<A>,
    comm: A::Comm,
    data: Data<A>,
    from: Address,
    status: *mut A::Status,
) -> Result<()> {
    // A mistake is told at once.
    let is_valid = data.count >= 0 && data.datatype != A::datatype_null();
    if is_valid && rt.job().is_patient(rt) {
        await_message(rt, comm, from)?;
    }
    // SAFETY: as the caller's.
    forward(|| unsafe {
        counted!(rt.vendor, recv, recv_c, data, from.peer, from.tag, comm, status)
    })
}

/// `MPI_Irecv`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn irecv<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    request: *mut A::Request,
) -> Result<()> {
    let (data, from) = (Data::new(buf, count, datatype), Address { peer: source, tag });
    // SAFETY: the program gives the memory to the operation, and a place for the request.
    unsafe {
        *request = match rt.tokens.spanning(comm) {
            None => vendor_irecv(rt, data, from, comm)?,
            Some(_) if source == A::PROC_NULL => vendor_irecv(rt, data, from, comm)?,
            Some(spanning) => {
                let active = start_receive(rt, &spanning, data, from)?;
                super::completion::hand_out(rt, active, &spanning)?
            }
        };
    }
    Ok(())
}

/// `MPI_Sendrecv`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn sendrecv<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    source: c_int,
    recvtag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> Result<()> {
    let (out, to) = (Data::new(sendbuf, sendcount, sendtype), Address { peer: dest, tag: sendtag });
    let (into, from) =
        (Data::new(recvbuf, recvcount, recvtype), Address { peer: source, tag: recvtag });
    // SAFETY: the program's arguments; we wait until both buffers are free.
    unsafe {
        let Some(spanning) = rt.tokens.spanning(comm) else {
            return exchange_in_cluster(rt, (out, to), (into, from), comm, status);
        };
        // A mistake in one half must not leave the other one to take a message, or to send one.
        operation::check_send(rt, &spanning, out, to)?;
        if let Some(rank) = direct_rank(rt, &spanning, from)? {
            if rank != A::PROC_NULL {
                operation::check_data(rt, into)?;
            }
            let send = start_send(rt, &spanning, SendKind::Standard, out, to)?;
            let received = receive(rt, &spanning, into, from, status);
            let sent = operation::wait(rt, send, &spanning)?;
            return received.and(sent.error.map_or(Ok(()), Err));
        }
        let receive = start_receive(rt, &spanning, into, from)?;
        let sent = start_send(rt, &spanning, SendKind::Standard, out, to)
            .and_then(|send| operation::wait(rt, send, &spanning))
            .and_then(|sent| sent.error.map_or(Ok(()), Err));
        if sent.is_err() {
            operation::withdraw(rt, receive, &spanning);
            return sent;
        }
        operation::wait(rt, receive, &spanning)?.finish(rt, status)
    }
}

/// The vendor's own exchange, moved by us while something of ours waits. The vendor finds the mistakes of both halves before either is
/// started, by making persistent ones.
unsafe fn exchange_in_cluster<A: Abi>(
    rt: &'static Runtime<A>,
    (out, to): (Data<A>, Address),
    (into, from): (Data<A>, Address),
    comm: A::Comm,
    status: *mut A::Status,
) -> Result<()> {
    let (v, mut send, mut receive) = (&rt.vendor, A::request_null(), A::request_null());
    let (r, never) = (&raw mut send, &raw mut receive);
    // SAFETY: as the caller's; we wait until both buffers are free.
    unsafe {
        forward(|| counted!(v, send_init, send_init_c, out, to.peer, to.tag, comm, r))?;
        let is_valid =
            forward(|| counted!(v, recv_init, recv_init_c, into, from.peer, from.tag, comm, never))
                .and_then(|()| check(v.request_free(never)));
        let exchanged = is_valid.and_then(|()| forward(|| v.start(&raw mut send))).and_then(|()| {
            let received = receive_near(rt, comm, into, from, status);
            let sent = wait_vendor(rt, send);
            received.and(sent.map(drop))
        });
        let freed = check(v.request_free(&raw mut send));
        exchanged.and(freed)
    }
}

/// `MPI_Sendrecv_replace`: the outgoing data is packed first, so that the buffer is free to receive.
#[allow(clippy::too_many_arguments)]
pub unsafe fn sendrecv_replace<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> Result<()> {
    let into = Data::<A>::new(buf, count, datatype);
    // SAFETY: the program's buffer, which nobody changes during the call.
    let bytes = unsafe { into.to_send(rt)? }.to_bytes();
    let len = Count::try_from(bytes.len())
        .map_err(|_| Error::new(ErrorClass::Count, "the buffer exceeds 63 bits"))?;
    // MPI_PACKED matches every type (MPI 4.1 §5.2), and packed data of like machines is the data itself.
    let packed = A::datatype(Named::Packed);
    let (len, outgoing) = match c_int::try_from(len) {
        Ok(_) => (len, Lasting::predefined(packed)),
        // The vendor may have no procedure for such counts.
        Err(_) => (1, Lasting::many(&rt.vendor, packed, bytes.len() as u64)?),
    };
    // SAFETY: the program's arguments; the copy outlives the call.
    let done = unsafe {
        sendrecv(
            rt,
            bytes.as_ptr().cast(),
            len,
            outgoing.get(),
            dest,
            sendtag,
            buf,
            count,
            datatype,
            source,
            recvtag,
            comm,
            status,
        )
    };
    outgoing.release(rt);
    done
}
