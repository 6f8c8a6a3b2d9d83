//! Probes and matched receives: MPI 4.1 §3.8.

use crate::communicator::{From, Spanning};
use crate::error::{Result, check, forward};
use crate::operation::{self, Active, Data, counted};
use crate::progress::{Turn, advance, look_at_vendor};
use crate::runtime::Runtime;
use crate::status::Told;
use crate::tokens::Message;
use gridmpi_abi::{Abi, Count, Named};
use gridmpi_engine::{Source, TagMatch};
use gridmpi_wire::{Plane, Rank};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Where a probe has to look.
#[derive(Clone, Copy)]
struct Pattern {
    /// In the engine, for messages of other clusters.
    remote: Option<Source>,
    /// In the vendor: from one rank of the local communicator, or any.
    local: Option<Option<Rank>>,
    tag: TagMatch,
}

fn pattern<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    source: c_int,
    tag: c_int,
) -> Result<Option<Pattern>> {
    let tag = rt.job().tag_match(tag)?;
    Ok(Some(match comm.source(source)? {
        From::Null => return Ok(None),
        From::Any => Pattern { remote: Some(Source::Any), local: Some(None), tag },
        From::Local(_, rank) => Pattern { remote: None, local: Some(Some(rank)), tag },
        From::Remote(rank, proc) => {
            Pattern { remote: Some(Source::Remote(rank, proc)), local: None, tag }
        }
    }))
}

/// A message that a local probe may see, if there is one: its source and tag.
fn find_local<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    from: Option<Rank>,
    tag: TagMatch,
) -> Option<(Rank, c_int)> {
    let context = comm.context().on(Plane::PointToPoint);
    let job = rt.job();
    let mut side = job.side.lock();
    side.probe(rt, &mut job.net.lock(), context, from, tag)
}

/// Looks once; the status of what was found.
fn look<A: Abi>(rt: &Runtime<A>, comm: &Spanning<A>, pattern: Pattern) -> Result<Option<Told<A>>> {
    let context = comm.context().on(Plane::PointToPoint);
    if let Some(source) = pattern.remote
        && let Some(found) = rt.job().net.lock().probe(context, source, pattern.tag)
    {
        return Ok(Some(Told::probed(&found)));
    }
    let Some((rank, tag)) = pattern.local.and_then(|from| find_local(rt, comm, from, pattern.tag))
    else {
        return Ok(None);
    };
    let (mut flag, mut status) = (0, A::Status::default());
    // SAFETY: a communicator of the program and places of our own.
    check(unsafe {
        rt.vendor.iprobe(comm.vendor_rank(rank), tag, comm.token, &raw mut flag, &raw mut status)
    })?;
    comm.translate_source(&mut status);
    Ok((flag != 0).then_some(Told::Vendor(status)))
}

/// `MPI_Iprobe`.
pub unsafe fn iprobe<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe {
        iprobe_once(rt, source, tag, comm, flag, status)?;
        end(rt, source, comm, *flag)
    }
}

/// Ends a call that returns what there is: where nothing was found and the vendor was not asked, it is.
fn end<A: Abi>(rt: &Runtime<A>, source: c_int, comm: A::Comm, flag: c_int) -> Result<()> {
    if flag == 0 && !is_local(rt, source, comm)? {
        look_at_vendor(rt);
    }
    Ok(())
}

unsafe fn iprobe_once<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    let Some(spanning) = rt.tokens.spanning(comm) else {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.iprobe(source, tag, comm, flag, status) });
    };
    let found = match pattern(rt, &spanning, source, tag)? {
        Some(pattern) => look(rt, &spanning, pattern)?,
        // SAFETY: the program's arguments.
        None => {
            return forward(|| unsafe { rt.vendor.iprobe(A::PROC_NULL, tag, comm, flag, status) });
        }
    };
    // SAFETY: the program's places.
    unsafe {
        *flag = c_int::from(found.is_some());
        if let Some(told) = found {
            told.write(rt, status);
        }
    }
    Ok(())
}

/// `MPI_Probe`.
pub unsafe fn probe<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> Result<()> {
    let local = is_local(rt, source, comm)?;
    let mut turn = Turn::new(rt);
    loop {
        let mut flag = 0;
        // SAFETY: the program's arguments and a place of our own.
        unsafe { iprobe_once(rt, source, tag, comm, &raw mut flag, status)? };
        if flag != 0 {
            return Ok(());
        }
        turn.wait(local)?;
    }
}

/// Whether a message from `source` may come through the vendor.
fn is_local<A: Abi>(rt: &Runtime<A>, source: c_int, comm: A::Comm) -> Result<bool> {
    Ok(match rt.tokens.spanning(comm) {
        Some(spanning) => !matches!(spanning.source(source)?, From::Remote(..)),
        None => true,
    })
}

/// Looks once and takes what was found out of matching.
fn take<A: Abi>(
    rt: &'static Runtime<A>,
    comm: &Arc<Spanning<A>>,
    pattern: Pattern,
) -> Result<Option<(A::Message, Told<A>)>> {
    let context = comm.context().on(Plane::PointToPoint);
    if let Some(source) = pattern.remote {
        let claimed = rt.job().net.lock().claim(context, source, pattern.tag);
        if let Some((id, found)) = claimed {
            let token = new_token(rt)?;
            rt.tokens.messages.insert(token, Message::Engine { id, comm: Arc::clone(comm) });
            return Ok(Some((token, Told::probed(&found))));
        }
    }
    let Some((rank, tag)) = pattern.local.and_then(|from| find_local(rt, comm, from, pattern.tag))
    else {
        return Ok(None);
    };
    let (mut flag, mut status, mut message) = (0, A::Status::default(), A::message_null());
    // SAFETY: a communicator of the program and places of our own.
    check(unsafe {
        let rank = comm.vendor_rank(rank);
        rt.vendor.improbe(rank, tag, comm.token, &raw mut flag, &raw mut message, &raw mut status)
    })?;
    if flag == 0 {
        return Ok(None);
    }
    comm.translate_source(&mut status);
    rt.tokens.messages.insert(message, Message::Translate { comm: Arc::clone(comm) });
    Ok(Some((message, Told::Vendor(status))))
}

/// A message handle that no other message has: one of this process to itself. It is used again and again:
/// MPICH 4.0 over UCX crashes when several threads make and receive such messages.
fn new_token<A: Abi>(rt: &Runtime<A>) -> Result<A::Message> {
    let mut spare = rt.tokens.spare_messages.lock();
    if let Some(token) = spare.pop() {
        return Ok(token);
    }
    let own = rt.job().own;
    let (mut token, mut request, mut flag) = (A::message_null(), A::request_null(), 0);
    // SAFETY: a communicator of this process alone, of our own; no data. The lock is held until the message is
    // taken, so that it is this one.
    unsafe {
        let v = &rt.vendor;
        check(v.isend(std::ptr::null(), 0, A::datatype(Named::Byte), 0, 0, own, &raw mut request))?;
        while flag == 0 {
            check(v.improbe(0, 0, own, &raw mut flag, &raw mut token, A::status_ignore()))?;
        }
        check(v.request_free(&raw mut request))?;
    }
    Ok(token)
}

/// Receives the messages behind all tokens, before the vendor ends.
pub(super) fn release_tokens<A: Abi>(rt: &Runtime<A>) -> Result<()> {
    let byte = A::datatype(Named::Byte);
    let mut spare = rt.tokens.spare_messages.lock();
    spare.drain(..).try_for_each(|mut token| {
        // SAFETY: the token's message, which is empty.
        check(unsafe {
            let (nowhere, ignore) = (std::ptr::null_mut(), A::status_ignore());
            rt.vendor.mrecv(nowhere, 0, byte, &raw mut token, ignore)
        })
    })
}

/// `MPI_Improbe`.
pub unsafe fn improbe<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    flag: *mut c_int,
    message: *mut A::Message,
    status: *mut A::Status,
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe {
        improbe_once(rt, source, tag, comm, flag, message, status)?;
        end(rt, source, comm, *flag)
    }
}

unsafe fn improbe_once<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    flag: *mut c_int,
    message: *mut A::Message,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    let Some(spanning) = rt.tokens.spanning(comm) else {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.improbe(source, tag, comm, flag, message, status) });
    };
    let taken = match pattern(rt, &spanning, source, tag)? {
        Some(pattern) => take(rt, &spanning, pattern)?,
        None => {
            // SAFETY: the program's arguments.
            return forward(|| unsafe {
                rt.vendor.improbe(A::PROC_NULL, tag, comm, flag, message, status)
            });
        }
    };
    // SAFETY: the program's places.
    unsafe {
        *flag = c_int::from(taken.is_some());
        if let Some((handle, told)) = taken {
            *message = handle;
            told.write(rt, status);
        }
    }
    Ok(())
}

/// `MPI_Mprobe`.
pub unsafe fn mprobe<A: Abi>(
    rt: &'static Runtime<A>,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    message: *mut A::Message,
    status: *mut A::Status,
) -> Result<()> {
    let local = is_local(rt, source, comm)?;
    let mut turn = Turn::new(rt);
    loop {
        let mut flag = 0;
        // SAFETY: the program's arguments and a place of our own.
        unsafe { improbe_once(rt, source, tag, comm, &raw mut flag, message, status)? };
        if flag != 0 {
            return Ok(());
        }
        turn.wait(local)?;
    }
}

/// A receive of a matched message under way, and the message's communicator.
type Started<A> = (Active<A>, Arc<Spanning<A>>);

/// A message of ours that the program wants received, started; `None` for one of the vendor's own. What fails leaves the message as it
/// is, for another try.
///
/// # Safety
/// The data is the operation's until it has completed; `message` is the program's.
unsafe fn start_matched<A: Abi>(
    rt: &Runtime<A>,
    data: Data<A>,
    message: *mut A::Message,
) -> Result<Option<Started<A>>> {
    // SAFETY: as this function's.
    let token = unsafe { *message };
    let is_remote = |ours: &mut Message<A>| matches!(ours, Message::Engine { .. });
    // SAFETY: as this function's.
    let buffer = match rt.tokens.messages.with(token, is_remote) {
        Some(true) => Some(unsafe { data.to_receive(rt)? }),
        _ => None,
    };
    // Out of the table first: once the vendor has freed the handle, another thread may get it again.
    match (rt.tokens.messages.remove(token), buffer) {
        (Some(Message::Engine { id, comm }), Some(buffer)) => {
            rt.tokens.spare_messages.lock().push(token);
            let id = rt.job().net.lock().receive_claimed(id, buffer);
            // SAFETY: as this function's.
            unsafe { *message = A::message_null() };
            Ok(Some((Active::Engine { id, receive: true, held: false }, comm)))
        }
        (Some(ours), _) => {
            // SAFETY: as this function's.
            let started = unsafe { vendor_imrecv(rt, data, message) };
            match (started, ours) {
                (Ok(request), Message::Translate { comm } | Message::Engine { comm, .. }) => {
                    Ok(Some((Active::Vendor { request, receive: true }, comm)))
                }
                (Err(error), ours) => {
                    // SAFETY: as this function's.
                    if unsafe { *message } == token {
                        rt.tokens.messages.insert(token, ours);
                    }
                    Err(error)
                }
            }
        }
        (None, _) => Ok(None),
    }
}

/// `MPI_Mrecv`.
pub unsafe fn mrecv<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    message: *mut A::Message,
    status: *mut A::Status,
) -> Result<()> {
    let data = Data::new(buf, count, datatype);
    // SAFETY: the program's arguments; we wait until the buffer is free.
    unsafe {
        match start_matched(rt, data, message)? {
            Some((active, comm)) => {
                operation::wait(rt, active, &comm)?.on(&comm).finish(rt, status)
            }
            None => forward(|| counted!(rt.vendor, mrecv, mrecv_c, data, message, status)),
        }
    }
}

unsafe fn vendor_imrecv<A: Abi>(
    rt: &Runtime<A>,
    data: Data<A>,
    message: *mut A::Message,
) -> Result<A::Request> {
    let mut request = A::request_null();
    // SAFETY: as the caller's.
    forward(|| unsafe { counted!(rt.vendor, imrecv, imrecv_c, data, message, &raw mut request) })?;
    Ok(request)
}

/// `MPI_Imrecv`.
pub unsafe fn imrecv<A: Abi>(
    rt: &'static Runtime<A>,
    buf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    message: *mut A::Message,
    request: *mut A::Request,
) -> Result<()> {
    let data = Data::new(buf, count, datatype);
    // SAFETY: the program gives the memory to the operation, and a place for the request.
    unsafe {
        let Some((active, comm)) = start_matched(rt, data, message)? else {
            return forward(|| counted!(rt.vendor, imrecv, imrecv_c, data, message, request));
        };
        *request = super::completion::hand_out(rt, active, &comm)?;
    }
    Ok(())
}
