//! Completion: the Wait and Test family over arrays that mix our requests and the vendor's
//! (MPI 4.1 §3.7.3, §3.7.5), `MPI_Request_free`, `MPI_Cancel`.

use super::communicator::reap;
use super::request_status::peek;
use super::waitall::waitall;
use crate::communicator::Spanning;
use crate::error::{Error, Result, check, forward};
use crate::guard::Lift;
use crate::operation::{self, Active, Activity, Persistent};
use crate::progress::{Turn, advance, look_at_vendor};
use crate::runtime::Runtime;
use crate::status::{Outcome, Told, is_ignored};
use crate::tokens::Request;
use gridmpi_abi::{Abi, ErrorClass, Function, Handle, StatusFields};
use gridmpi_engine::RequestId;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// What one look at a request found.
pub(super) enum Seen<A: Abi> {
    /// Under way; whether the vendor may end it. `id`: in the engine, which alone can.
    Pending { local: bool, id: Option<RequestId> },
    /// Null, or persistent and not started.
    Inactive,
    /// Ended: the handle is updated, the status still to be told.
    Ended(Outcome<A>),
}

/// Gives the program a handle for an operation on a spanning communicator.
pub(crate) fn hand_out<A: Abi>(
    rt: &'static Runtime<A>,
    active: Active<A>,
    comm: &Arc<Spanning<A>>,
) -> Result<A::Request> {
    let comm = Arc::clone(comm);
    match active {
        Active::Vendor { request, receive: false } => Ok(request),
        Active::Vendor { request, receive: true } => {
            rt.tokens.requests.insert(request, Request::Translate { comm });
            Ok(request)
        }
        Active::Engine { .. } | Active::Null => {
            let token = new_token(rt)?;
            rt.tokens.requests.insert(token, Request::Active { active, comm });
            Ok(token)
        }
    }
}

/// A generalized request (MPI 4.1 §13.2) that stands for one of the engine's.
fn new_token<A: Abi>(rt: &Runtime<A>) -> Result<A::Request> {
    let mut token = A::request_null();
    // SAFETY: the three functions do nothing, and need nothing.
    check(unsafe {
        rt.vendor.grequest_start(
            query_nothing as Function,
            free_nothing as Function,
            cancel_nothing as Function,
            std::ptr::null_mut(),
            &raw mut token,
        )
    })?;
    Ok(token)
}

/// The three functions of a generalized request. Ours are completed and freed in one go, so there is
/// nothing to tell, to free or to cancel.
extern "C" fn query_nothing(_state: *mut c_void, _status: *mut c_void) -> c_int {
    0
}

extern "C" fn free_nothing(_state: *mut c_void) -> c_int {
    0
}

extern "C" fn cancel_nothing(_state: *mut c_void, _complete: c_int) -> c_int {
    0
}

fn release_token<A: Abi>(rt: &Runtime<A>, mut token: A::Request) {
    // SAFETY: a token of ours that nobody else completes.
    unsafe {
        rt.vendor.grequest_complete(token);
        rt.vendor.request_free(&raw mut token);
    }
}

/// Looks at one request, without moving anything.
///
/// # Safety
/// `request` is the program's.
pub(super) unsafe fn look<A: Abi>(rt: &'static Runtime<A>, request: *mut A::Request) -> Seen<A> {
    // SAFETY: as this function's.
    let seen = unsafe { look_at(rt, request) };
    if matches!(seen, Seen::Ended(_)) {
        // It may have been the last on its communicator, which an error keeps. Where that fails the vendor has run the error handler.
        drop(reap(rt));
    }
    seen
}

unsafe fn look_at<A: Abi>(rt: &'static Runtime<A>, request: *mut A::Request) -> Seen<A> {
    // SAFETY: as this function's.
    let handle = unsafe { *request };
    if handle.bits() == A::request_null().bits() {
        return Seen::Inactive;
    }
    let mut persistent = None;
    let ours = rt.tokens.requests.with(handle, |ours| match ours {
        Request::Active { active, comm } => Some(look_active(rt, active, comm)),
        Request::Persistent(found) => {
            persistent = Some(Arc::clone(found));
            None
        }
        Request::Translate { .. } => None,
    });
    if let Some(Some(seen)) = ours {
        if matches!(seen, Seen::Ended(_)) {
            rt.tokens.requests.remove(handle);
            release_token(rt, handle);
            // SAFETY: as this function's.
            unsafe { *request = A::request_null() };
        }
        return seen;
    }
    match persistent {
        Some(persistent) => look_persistent(rt, &persistent),
        // SAFETY: as this function's.
        None => unsafe { look_vendor(rt, request) },
    }
}

fn look_active<A: Abi>(
    rt: &Runtime<A>,
    active: &mut Active<A>,
    comm: &Arc<Spanning<A>>,
) -> Seen<A> {
    match operation::poll(rt, active, comm) {
        Some(outcome) => Seen::Ended(outcome.on(comm)),
        None => Seen::Pending { local: active.is_local(), id: active.in_engine_alone() },
    }
}

fn look_persistent<A: Abi>(rt: &Runtime<A>, persistent: &Persistent<A>) -> Seen<A> {
    let mut active = match persistent.take() {
        Activity::Inactive => return Seen::Inactive,
        Activity::Busy => return Seen::Pending { local: true, id: None },
        Activity::Started(active) => active,
    };
    let seen = look_active(rt, &mut active, &persistent.comm);
    let ended = matches!(seen, Seen::Ended(_));
    persistent.put(rt, if ended { Activity::Inactive } else { Activity::Started(active) });
    seen
}

/// `MPI_Testany` over one request, since it alone tells an inactive request from one that ended.
unsafe fn look_vendor<A: Abi>(rt: &Runtime<A>, request: *mut A::Request) -> Seen<A> {
    // SAFETY: as the caller's.
    let handle = unsafe { *request };
    // Out of the table meanwhile: once the vendor has freed the handle, another thread may get it again.
    let translate = rt.tokens.requests.remove(handle);
    let (mut index, mut flag, mut status) = (0, 0, A::Status::default());
    // An error handler of the program's may run.
    let lift = Lift::new();
    // SAFETY: the program's request and places of our own.
    let code =
        unsafe { rt.vendor.testany(1, request, &raw mut index, &raw mut flag, &raw mut status) };
    drop(lift);
    if code == A::SUCCESS && flag == 0 {
        if let Some(translate) = translate {
            rt.tokens.requests.insert(handle, translate);
        }
        return Seen::Pending { local: true, id: None };
    }
    if code == A::SUCCESS && index == A::UNDEFINED {
        return Seen::Inactive;
    }
    Seen::Ended(match translate {
        Some(Request::Translate { comm }) => Outcome::of_vendor(code, status, &comm),
        _ => Outcome { status: Told::Vendor(status), error: check(code).err() },
    })
}

/// Waits for a request of the vendor's that the program does not know.
pub(crate) fn wait_vendor<A: Abi>(rt: &Runtime<A>, mut request: A::Request) -> Result<A::Status> {
    let mut turn = Turn::new(rt);
    loop {
        let (mut flag, mut status) = (0, A::Status::default());
        let lift = Lift::new();
        // SAFETY: a request of ours and places of our own.
        check(unsafe { rt.vendor.test(&raw mut request, &raw mut flag, &raw mut status) })?;
        drop(lift);
        if flag != 0 {
            return Ok(status);
        }
        turn.wait(true)?;
    }
}

/// Waits for a collective of the vendor's, in the vendor where nothing of ours depends on this thread.
pub(super) fn wait_in_cluster<A: Abi>(rt: &Runtime<A>, mut request: A::Request) -> Result<()> {
    if rt.job().is_patient(rt) {
        return wait_vendor(rt, request).map(drop);
    }
    // SAFETY: a request of ours.
    forward(|| unsafe { rt.vendor.wait(&raw mut request, A::status_ignore()) })
}

/// `MPI_Wait`.
pub unsafe fn wait<A: Abi>(
    rt: &'static Runtime<A>,
    request: *mut A::Request,
    status: *mut A::Status,
) -> Result<()> {
    let mut turn = Turn::new(rt);
    loop {
        // SAFETY: the program's request and status.
        match unsafe { look(rt, request) } {
            Seen::Pending { local, .. } => turn.wait(local)?,
            // SAFETY: as above.
            Seen::Inactive => return unsafe { Outcome::empty().finish(rt, status) },
            // SAFETY: as above.
            Seen::Ended(outcome) => return unsafe { outcome.finish(rt, status) },
        }
    }
}

/// `MPI_Test`.
pub unsafe fn test<A: Abi>(
    rt: &'static Runtime<A>,
    request: *mut A::Request,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    // SAFETY: the program's request, flag and status.
    let outcome = match unsafe { look(rt, request) } {
        Seen::Pending { local, .. } => {
            if !local {
                look_at_vendor(rt);
            }
            // SAFETY: as above.
            unsafe { *flag = 0 };
            return Ok(());
        }
        Seen::Inactive => Outcome::empty(),
        Seen::Ended(outcome) => outcome,
    };
    // SAFETY: as above.
    unsafe {
        *flag = 1;
        outcome.finish(rt, status)
    }
}

/// The program's array of requests; no reference to its elements outlives a call.
pub(super) struct Requests<A: Abi> {
    first: *mut A::Request,
    pub(super) count: usize,
}

impl<A: Abi> Requests<A> {
    pub(super) fn new(first: *mut A::Request, count: c_int) -> Result<Self> {
        let count = usize::try_from(count).map_err(|_| {
            Error::new(ErrorClass::Count, format!("the count {count} of requests is negative"))
        })?;
        Ok(Self { first, count })
    }

    pub(super) fn at(&self, index: usize) -> *mut A::Request {
        self.first.wrapping_add(index)
    }
}

/// A pass over the array.
struct Pass<A: Abi> {
    ended: Vec<(usize, Outcome<A>)>,
    pending: usize,
    local: bool,
}

impl<A: Abi> Pass<A> {
    /// Nothing ended of what may.
    fn is_vain(&self) -> bool {
        self.ended.is_empty() && self.pending > 0
    }

    /// For a call that returns what there is.
    fn end(self, rt: &Runtime<A>) -> Self {
        if self.is_vain() && !self.local {
            look_at_vendor(rt);
        }
        self
    }
}

/// Looks at requests until `enough` have ended.
///
/// # Safety
/// The array is the program's.
unsafe fn pass<A: Abi>(rt: &'static Runtime<A>, requests: &Requests<A>, enough: usize) -> Pass<A> {
    let mut pass = Pass { ended: Vec::new(), pending: 0, local: false };
    for index in 0..requests.count {
        // SAFETY: as this function's.
        match unsafe { look(rt, requests.at(index)) } {
            Seen::Inactive => {}
            Seen::Pending { local, .. } => {
                pass.pending += 1;
                pass.local |= local;
            }
            Seen::Ended(outcome) => pass.ended.push((index, outcome)),
        }
        if pass.ended.len() >= enough {
            break;
        }
    }
    pass
}

/// `MPI_Waitany`.
pub unsafe fn waitany<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *mut A::Request,
    index: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    let requests = Requests::<A>::new(array_of_requests, count)?;
    let mut turn = Turn::new(rt);
    loop {
        // SAFETY: the program's array.
        let mut pass = unsafe { pass(rt, &requests, 1) };
        if pass.is_vain() {
            turn.wait(pass.local)?;
            continue;
        }
        // SAFETY: the program's places.
        return unsafe { tell_any(rt, pass.ended.pop(), index, status) };
    }
}

/// # Safety
/// The places are the program's.
unsafe fn tell_any<A: Abi>(
    rt: &Runtime<A>,
    ended: Option<(usize, Outcome<A>)>,
    index: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    let (at, outcome) = match ended {
        Some((at, outcome)) => (position(at), outcome),
        None => (A::UNDEFINED, Outcome::empty()),
    };
    // SAFETY: as this function's.
    unsafe {
        *index = at;
        outcome.finish(rt, status)
    }
}

pub(super) fn position(index: usize) -> c_int {
    c_int::try_from(index).unwrap_or(c_int::MAX)
}

/// `MPI_Testany`.
pub unsafe fn testany<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *mut A::Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    let requests = Requests::<A>::new(array_of_requests, count)?;
    // SAFETY: the program's array and places.
    unsafe {
        let mut pass = pass(rt, &requests, 1).end(rt);
        let pending = pass.is_vain();
        *flag = c_int::from(!pending);
        if pending {
            *index = A::UNDEFINED;
            return Ok(());
        }
        tell_any(rt, pass.ended.pop(), index, status)
    }
}

/// What ended of an array, in the program's statuses; `MPI_ERR_IN_STATUS` if anything failed.
///
/// # Safety
/// `status_of` gives statuses of the program's or `MPI_STATUS_IGNORE`.
pub(super) unsafe fn tell_several<A: Abi>(
    rt: &Runtime<A>,
    ended: Vec<(*mut A::Status, Outcome<A>)>,
) -> Result<()> {
    let failure = ended.iter().find_map(|(_, outcome)| outcome.error.clone());
    for (status, outcome) in ended {
        let code = outcome.error.as_ref().map_or(A::SUCCESS, Error::code::<A>);
        // SAFETY: as this function's.
        unsafe {
            outcome.status.write(rt, status);
            if failure.is_some() && !is_ignored::<A>(status) {
                (*status).set_error(code);
            }
        }
    }
    match failure {
        None => Ok(()),
        // The vendor has run the error handler.
        Some(Error::Vendor(_)) => Err(Error::Vendor(A::error_class(ErrorClass::InStatus))),
        Some(Error::Ours { message, on, .. }) => {
            Err(Error::Ours { class: ErrorClass::InStatus, message, on })
        }
    }
}

pub(super) fn status_at<A: Abi>(statuses: *mut A::Status, index: usize) -> *mut A::Status {
    if statuses == A::statuses_ignore() { A::status_ignore() } else { statuses.wrapping_add(index) }
}

/// `MPI_Testall`: nothing is completed unless all can be (MPI 4.1 §3.7.5), so a look that changes
/// nothing comes first.
pub unsafe fn testall<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *mut A::Request,
    flag: *mut c_int,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    let requests = Requests::<A>::new(array_of_requests, count)?;
    for index in 0..requests.count {
        // SAFETY: the program's array.
        let peeked = unsafe { peek(rt, *requests.at(index), A::status_ignore())? };
        if !peeked.end(rt) {
            // SAFETY: the program's place.
            unsafe { *flag = 0 };
            return Ok(());
        }
    }
    // SAFETY: the program's places; nothing is left to wait for.
    unsafe {
        *flag = 1;
        waitall(rt, count, array_of_requests, array_of_statuses)
    }
}

/// `MPI_Waitsome`.
pub unsafe fn waitsome<A: Abi>(
    rt: &'static Runtime<A>,
    incount: c_int,
    array_of_requests: *mut A::Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    let requests = Requests::<A>::new(array_of_requests, incount)?;
    let mut turn = Turn::new(rt);
    loop {
        // SAFETY: the program's array.
        let pass = unsafe { pass(rt, &requests, usize::MAX) };
        if !pass.is_vain() {
            // SAFETY: the program's places.
            return unsafe { tell_some(rt, pass, outcount, array_of_indices, array_of_statuses) };
        }
        turn.wait(pass.local)?;
    }
}

/// `MPI_Testsome`.
pub unsafe fn testsome<A: Abi>(
    rt: &'static Runtime<A>,
    incount: c_int,
    array_of_requests: *mut A::Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    advance(rt)?;
    let requests = Requests::<A>::new(array_of_requests, incount)?;
    // SAFETY: the program's array and places.
    unsafe {
        let pass = pass(rt, &requests, usize::MAX).end(rt);
        tell_some(rt, pass, outcount, array_of_indices, array_of_statuses)
    }
}

/// # Safety
/// The places are the program's.
unsafe fn tell_some<A: Abi>(
    rt: &Runtime<A>,
    pass: Pass<A>,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut A::Status,
) -> Result<()> {
    let none = pass.ended.is_empty() && pass.pending == 0;
    let ended: Vec<_> = pass.ended.into_iter().enumerate().collect();
    // SAFETY: as this function's: both arrays take as many entries as there are requests.
    unsafe {
        *outcount = if none { A::UNDEFINED } else { position(ended.len()) };
        for (k, (index, _)) in &ended {
            *indices.add(*k) = position(*index);
        }
        let ended =
            ended.into_iter().map(|(k, (_, outcome))| (status_at::<A>(statuses, k), outcome));
        tell_several(rt, ended.collect())
    }
}

/// `MPI_Request_free`.
pub unsafe fn request_free<A: Abi>(
    rt: &'static Runtime<A>,
    request: *mut A::Request,
) -> Result<()> {
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    match rt.tokens.requests.remove(handle) {
        Some(Request::Active { active, comm }) => {
            active.detach(rt)?;
            release_token(rt, handle);
            // SAFETY: as above.
            unsafe { *request = A::request_null() };
            drop(comm);
            reap(rt)
        }
        Some(Request::Persistent(persistent)) => {
            if let Activity::Started(active) = persistent.take() {
                active.detach(rt)?;
            }
            {
                // Delete functions of the program's may run, where its own datatype is gone.
                let _lift = Lift::new();
                persistent.datatype.release(rt);
            }
            drop(persistent);
            // SAFETY: a token of ours, never started at the vendor.
            check(unsafe { rt.vendor.request_free(request) })?;
            reap(rt)
        }
        // SAFETY: the program's request.
        Some(Request::Translate { .. }) | None => {
            forward(|| unsafe { rt.vendor.request_free(request) })
        }
    }
}

/// `MPI_Cancel`.
pub unsafe fn cancel<A: Abi>(rt: &'static Runtime<A>, request: *const A::Request) -> Result<()> {
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    let mut persistent = None;
    let ours = rt.tokens.requests.with(handle, |ours| match ours {
        Request::Active { active, .. } => Some(active.cancel(rt)),
        Request::Persistent(found) => {
            persistent = Some(Arc::clone(found));
            None
        }
        Request::Translate { .. } => None,
    });
    match (ours.flatten(), persistent) {
        (Some(done), _) => done,
        (None, Some(persistent)) => persistent.cancel(rt),
        // SAFETY: the program's request.
        (None, None) => forward(|| unsafe { rt.vendor.cancel(request.cast_mut()) }),
    }
}
