//! Point-to-point operations: what the program asks for, how it is started at the right place (the
//! engine for other clusters and wildcards, the vendor for the rest), and how it ends.

use crate::communicator::{From, Peer, Spanning};
use crate::datatype::Lasting;
use crate::error::{Error, Result, check, forward};
use crate::guard::Lift;
use crate::local::Held;
use crate::progress::Turn;
use crate::runtime::Runtime;
use crate::status::{Outcome, Told};
use gridmpi_abi::{Abi, Count, ErrorClass};
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::{Mode, RequestId, Source, TagMatch};
use gridmpi_wire::Plane;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Where the program's data lies: the first three arguments of most procedures.
pub(crate) struct Data<A: Abi> {
    pub(crate) buf: *mut c_void,
    pub(crate) count: Count,
    pub(crate) datatype: A::Datatype,
}

impl<A: Abi> Clone for Data<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Abi> Copy for Data<A> {}

// SAFETY: only the address is carried from thread to thread; the program promised the memory to the
// operation (MPI 4.1 §3.7.2), and whoever dereferences it says why it may.
unsafe impl<A: Abi> Send for Data<A> {}
// SAFETY: as above.
unsafe impl<A: Abi> Sync for Data<A> {}

impl<A: Abi> Data<A> {
    pub(crate) fn new(buf: *const c_void, count: Count, datatype: A::Datatype) -> Self {
        Self { buf: buf.cast_mut(), count, datatype }
    }

    /// The count, which is not negative.
    pub(crate) fn elements(&self) -> Result<u64> {
        u64::try_from(self.count).map_err(|_| {
            Error::new(ErrorClass::Count, format!("the count {} is negative", self.count))
        })
    }

    /// The data as the wide area sends it.
    ///
    /// # Safety
    /// The memory is the operation's until every clone of the buffer is gone.
    pub(crate) unsafe fn to_send(self, rt: &Runtime<A>) -> Result<SendBuffer> {
        let layout = rt.layouts.of(&rt.vendor, self.datatype)?;
        // SAFETY: as this function's.
        Ok(unsafe { SendBuffer::from_user(self.buf.cast(), self.elements()?, layout) })
    }

    /// The place where the wide area stores.
    ///
    /// # Safety
    /// The memory is the operation's until the buffer is gone.
    pub(crate) unsafe fn to_receive(self, rt: &Runtime<A>) -> Result<RecvBuffer> {
        let layout = rt.layouts.of(&rt.vendor, self.datatype)?;
        // SAFETY: as this function's.
        Ok(unsafe { RecvBuffer::from_user(self.buf.cast(), self.elements()?, layout) })
    }
}

/// The four modes of MPI 4.1 §3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendKind {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// Whom and what a message is about: the other three arguments of most procedures.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
}

/// An operation under way.
#[derive(Clone, Copy)]
pub(crate) enum Active<A: Abi> {
    /// In the engine. `held`: the vendor may satisfy it, too.
    Engine { id: RequestId, receive: bool, held: bool },
    /// In the vendor, among the members of the communicator in this cluster.
    Vendor { request: A::Request, receive: bool },
    /// A receive from `MPI_PROC_NULL` (MPI 4.1 §3.10) or a send that left from a copy: it has ended.
    Null,
}

/// A persistent operation (MPI 4.1 §3.9).
pub(crate) struct Persistent<A: Abi> {
    pub(crate) comm: Arc<Spanning<A>>,
    pub(crate) kind: PersistentKind,
    pub(crate) data: Data<A>,
    /// That of the data.
    pub(crate) datatype: Lasting<A>,
    pub(crate) address: Address,
    state: Mutex<PersistentState<A>>,
}

struct PersistentState<A: Abi> {
    activity: Activity<A>,
    /// To be cancelled by whoever is busy with it.
    cancel: bool,
}

/// What there is of a persistent operation between `MPI_Start` and its completion.
#[derive(Clone, Copy)]
pub(crate) enum Activity<A: Abi> {
    Inactive,
    /// A thread starts it or looks at it: no lock is held meanwhile, since functions of the program's may run.
    Busy,
    Started(Active<A>),
}

impl<A: Abi> Persistent<A> {
    pub(crate) fn new(
        comm: Arc<Spanning<A>>,
        kind: PersistentKind,
        (data, datatype): (Data<A>, Lasting<A>),
        address: Address,
    ) -> Self {
        let state = Mutex::new(PersistentState { activity: Activity::Inactive, cancel: false });
        Self { comm, kind, data, datatype, address, state }
    }

    /// Takes what was started out, to look at it; to be [`put`](Self::put) back.
    pub(crate) fn take(&self) -> Activity<A> {
        self.replace_if(|now| matches!(now, Activity::Started(_)))
    }

    /// Makes it busy if it is inactive; whether it was.
    pub(crate) fn claim(&self) -> bool {
        matches!(self.replace_if(|now| matches!(now, Activity::Inactive)), Activity::Inactive)
    }

    fn replace_if(&self, may: impl FnOnce(&Activity<A>) -> bool) -> Activity<A> {
        let mut state = self.state.lock();
        let now = state.activity;
        if may(&now) {
            state.activity = Activity::Busy;
        }
        now
    }

    /// Ends being busy. What another thread wanted cancelled meanwhile is; where that fails nobody can be told.
    pub(crate) fn put(&self, rt: &Runtime<A>, mut activity: Activity<A>) {
        let mut state = self.state.lock();
        while std::mem::take(&mut state.cancel) {
            if let Activity::Started(active) = &mut activity {
                MutexGuard::unlocked(&mut state, || drop(active.cancel(rt)));
            }
        }
        state.activity = activity;
    }

    /// `MPI_Cancel`. While a thread is busy with it, perhaps this one in a function of the program's, it is done at the end of that.
    pub(crate) fn cancel(&self, rt: &Runtime<A>) -> Result<()> {
        let mut state = self.state.lock();
        let Activity::Started(mut active) = state.activity else {
            state.cancel = matches!(state.activity, Activity::Busy);
            return Ok(());
        };
        state.activity = Activity::Busy;
        drop(state);
        let cancelled = active.cancel(rt);
        self.put(rt, Activity::Started(active));
        cancelled
    }
}

/// Which persistent operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PersistentKind {
    Send(SendKind),
    Receive,
}

/// Finds the mistakes of a send before anything is started with it.
pub(crate) fn check_send<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    data: Data<A>,
    to: Address,
) -> Result<()> {
    if comm.peer(to.peer)? != Peer::Null {
        rt.job().check_tag(to.tag)?;
        check_data(rt, data)?;
    }
    Ok(())
}

/// The same of what is to be sent or received.
pub(crate) fn check_data<A: Abi>(rt: &Runtime<A>, data: Data<A>) -> Result<()> {
    data.elements()?;
    rt.layouts.of(&rt.vendor, data.datatype).map(drop)
}

/// Starts a send on a spanning communicator.
///
/// # Safety
/// The data is the operation's until it has completed.
pub(crate) unsafe fn start_send<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    kind: SendKind,
    data: Data<A>,
    to: Address,
) -> Result<Active<A>> {
    let rank = match comm.peer(to.peer)? {
        Peer::Remote(proc) => {
            // SAFETY: as this function's.
            let id = unsafe { send_remote(rt, comm, kind, data, proc, to.tag)? };
            return Ok(Active::Engine { id, receive: false, held: false });
        }
        Peer::Local(rank) => rank,
        Peer::Null => A::PROC_NULL,
    };
    // SAFETY: as this function's.
    unsafe { start_send_near(rt, kind, data, Address { peer: rank, ..to }, comm.token) }
}

/// Starts a send to a rank of the vendor's.
///
/// # Safety
/// The data is the operation's until it has completed.
pub(crate) unsafe fn start_send_near<A: Abi>(
    rt: &Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    to: Address,
    comm: A::Comm,
) -> Result<Active<A>> {
    // SAFETY: as this function's.
    unsafe {
        if kind == SendKind::Buffered && rt.job().buffered.send(rt, data, to, comm)? {
            return Ok(Active::Null);
        }
        let request = vendor_isend(rt, kind, data, to, comm)?;
        Ok(Active::Vendor { request, receive: false })
    }
}

unsafe fn send_remote<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    kind: SendKind,
    data: Data<A>,
    to: gridmpi_wire::ProcId,
    tag: c_int,
) -> Result<RequestId> {
    let job = rt.job();
    job.check_tag(tag)?;
    // SAFETY: the caller gives the memory to the operation.
    let buffer = unsafe { data.to_send(rt)? };
    let mode = match kind {
        SendKind::Standard | SendKind::Ready => Mode::Standard,
        SendKind::Synchronous => Mode::Synchronous,
        SendKind::Buffered => {
            job.attached.check(buffer.len())?;
            Mode::Buffered
        }
    };
    let context = comm.context().on(Plane::PointToPoint);
    Ok(job.net.lock().send(to, context, comm.rank(), tag, mode, buffer))
}

/// Starts a receive on a spanning communicator.
///
/// # Safety
/// The data is the operation's until it has completed.
pub(crate) unsafe fn start_receive<A: Abi>(
    rt: &Runtime<A>,
    comm: &Arc<Spanning<A>>,
    data: Data<A>,
    from: Address,
) -> Result<Active<A>> {
    let tag = rt.job().tag_match(from.tag)?;
    let (vendor_rank, source) = match comm.source(from.peer)? {
        From::Null => return Ok(Active::Null),
        From::Local(vendor_rank, rank) => {
            (vendor_rank, must_hold(rt, comm, rank, tag).then_some(Source::Local(rank)))
        }
        From::Remote(rank, proc) => {
            let context = comm.context().on(Plane::PointToPoint);
            // SAFETY: as this function's.
            let buffer = unsafe { data.to_receive(rt)? };
            let id = rt.job().net.lock().receive(context, Source::Remote(rank, proc), tag, buffer);
            return Ok(Active::Engine { id, receive: true, held: false });
        }
        From::Any => (A::ANY_SOURCE, Some(Source::Any)),
    };
    if let Some(source) = source {
        // SAFETY: as this function's.
        return unsafe { hold(rt, comm, data, source, tag) };
    }
    let from = Address { peer: vendor_rank, ..from };
    // SAFETY: as this function's.
    let request = unsafe { vendor_irecv(rt, data, from, comm.token)? };
    Ok(Active::Vendor { request, receive: true })
}

/// Whether a receive from a local rank would steal from a held wildcard (MPI 4.1 §3.5, order).
pub(crate) fn must_hold<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    rank: gridmpi_wire::Rank,
    tag: TagMatch,
) -> bool {
    rt.needs_progress()
        && rt.job().net.lock().must_hold(comm.context().on(Plane::PointToPoint), rank, tag)
}

unsafe fn hold<A: Abi>(
    rt: &Runtime<A>,
    comm: &Arc<Spanning<A>>,
    data: Data<A>,
    source: Source,
    tag: TagMatch,
) -> Result<Active<A>> {
    // SAFETY: as the caller's.
    let buffer = unsafe { data.to_receive(rt)? };
    let held = Held::new(rt, comm, data)?;
    let job = rt.job();
    // The engine may ask for the arguments as soon as it knows the request: both under the side's lock.
    let mut side = job.side.lock();
    let id = job.net.lock().receive(comm.context().on(Plane::PointToPoint), source, tag, buffer);
    side.insert(rt, id, held);
    Ok(Active::Engine { id, receive: true, held: true })
}

/// How the operation ended, if it has. To be asked until it tells, and then never again.
pub(crate) fn poll<A: Abi>(
    rt: &Runtime<A>,
    active: &mut Active<A>,
    comm: &Spanning<A>,
) -> Option<Outcome<A>> {
    match active {
        Active::Engine { id, receive, held } => {
            let job = rt.job();
            let completion = job.net.lock().take(*id)?;
            let of_vendor = if *held { job.side.lock().remove(rt, *id) } else { None };
            Some(of_vendor.unwrap_or_else(|| Outcome::of_engine(&completion, *receive)))
        }
        Active::Null => Some(Outcome { status: Told::of_nobody(), error: None }),
        Active::Vendor { request, receive } => {
            let (mut flag, mut status) = (0, A::Status::default());
            // An error handler of the program's may run.
            let _lift = Lift::new();
            // SAFETY: a request of ours that is under way, and two places of our own.
            let code = unsafe { rt.vendor.test(request, &raw mut flag, &raw mut status) };
            if code == A::SUCCESS && flag == 0 {
                return None;
            }
            Some(if *receive {
                Outcome::of_vendor(code, status, comm)
            } else {
                Outcome::sent(code)
            })
        }
    }
}

/// Waits until the operation ends.
///
/// # Errors
/// Only if waiting cannot go on: the other cluster is lost.
pub(crate) fn wait<A: Abi>(
    rt: &Runtime<A>,
    mut active: Active<A>,
    comm: &Spanning<A>,
) -> Result<Outcome<A>> {
    let mut turn = Turn::new(rt);
    loop {
        if let Some(outcome) = poll(rt, &mut active, comm) {
            return Ok(outcome);
        }
        turn.wait(active.is_local())?;
    }
}

/// Takes back a receive that nobody will ask for, so that its memory is the program's again.
pub(crate) fn withdraw<A: Abi>(rt: &Runtime<A>, mut receive: Active<A>, comm: &Spanning<A>) {
    if receive.cancel(rt).is_ok() {
        // It can only not end where the whole job does, and that is told elsewhere.
        drop(wait(rt, receive, comm));
    }
}

/// The status of an operation that has ended, leaving it as it is.
pub(crate) fn peek<A: Abi>(
    rt: &Runtime<A>,
    active: &Active<A>,
    comm: &Spanning<A>,
) -> Option<Told<A>> {
    match active {
        Active::Engine { id, receive, held } => {
            let job = rt.job();
            let side = held.then(|| job.side.lock());
            let engine = job.net.lock();
            let completion = engine.peek(*id)?;
            let of_vendor = side.and_then(|side| side.told(*id));
            Some(of_vendor.unwrap_or_else(|| Told::of_engine(completion, *receive)))
        }
        Active::Null => Some(Told::of_nobody()),
        Active::Vendor { request, .. } => {
            let (mut flag, mut status) = (0, A::Status::default());
            // SAFETY: a request of ours that is under way, and two places of our own.
            unsafe { rt.vendor.request_get_status(*request, &raw mut flag, &raw mut status) };
            comm.translate_source(&mut status);
            (flag != 0).then_some(Told::Vendor(status))
        }
    }
}

impl<A: Abi> Active<A> {
    /// Whether the vendor may complete it.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Vendor { .. } | Self::Engine { held: true, .. })
    }

    /// In the engine, and the vendor has no part in it.
    pub(crate) fn in_engine_alone(&self) -> Option<RequestId> {
        match self {
            Self::Engine { id, held: false, .. } => Some(*id),
            _ => None,
        }
    }

    /// `MPI_Cancel` (MPI 4.1 §3.8.4). Sends to other clusters are never cancelled.
    pub(crate) fn cancel(&mut self, rt: &Runtime<A>) -> Result<()> {
        match self {
            Self::Engine { id, receive: true, held } => {
                let cancelled = rt.job().net.lock().cancel(*id);
                if *held && !cancelled {
                    rt.job().side.lock().cancel(rt, *id);
                }
                Ok(())
            }
            Self::Engine { .. } | Self::Null => Ok(()),
            // SAFETY: a request of ours that is under way.
            Self::Vendor { request, .. } => check(unsafe { rt.vendor.cancel(request) }),
        }
    }

    /// `MPI_Request_free`: it goes on and nobody asks for its end.
    pub(crate) fn detach(self, rt: &Runtime<A>) -> Result<()> {
        match self {
            Self::Engine { id, held: true, .. } => rt.job().side.lock().orphan(id),
            Self::Engine { id, .. } => rt.job().net.lock().detach(id),
            // SAFETY: a request of ours that is under way.
            Self::Vendor { mut request, .. } => {
                check(unsafe { rt.vendor.request_free(&raw mut request) })?;
            }
            Self::Null => {}
        }
        Ok(())
    }
}

/// Calls the small form of a vendor procedure, or the large one where the count needs it.
macro_rules! counted {
    ($vendor:expr, $small:ident, $large:ident, $data:expr $(, $argument:expr)*) => {
        match std::ffi::c_int::try_from($data.count) {
            Ok(count) => $vendor.$small($data.buf, count, $data.datatype $(, $argument)*),
            Err(_) => {
                let code = $vendor.$large($data.buf, $data.count, $data.datatype $(, $argument)*);
                $vendor.large(code)
            }
        }
    };
}
pub(crate) use counted;

/// The vendor's nonblocking send of this kind.
///
/// # Safety
/// As of the procedure itself.
pub(crate) unsafe fn vendor_isend<A: Abi>(
    rt: &Runtime<A>,
    kind: SendKind,
    data: Data<A>,
    to: Address,
    comm: A::Comm,
) -> Result<A::Request> {
    let mut request = A::request_null();
    let (v, r) = (&rt.vendor, &raw mut request);
    // SAFETY: as this function's.
    let started = forward(|| unsafe {
        match kind {
            SendKind::Standard => counted!(v, isend, isend_c, data, to.peer, to.tag, comm, r),
            SendKind::Buffered => counted!(v, ibsend, ibsend_c, data, to.peer, to.tag, comm, r),
            SendKind::Synchronous => counted!(v, issend, issend_c, data, to.peer, to.tag, comm, r),
            SendKind::Ready => counted!(v, irsend, irsend_c, data, to.peer, to.tag, comm, r),
        }
    });
    started.map(|()| request)
}

/// The vendor's nonblocking receive.
///
/// # Safety
/// As of the procedure itself.
pub(crate) unsafe fn vendor_irecv<A: Abi>(
    rt: &Runtime<A>,
    data: Data<A>,
    from: Address,
    comm: A::Comm,
) -> Result<A::Request> {
    let _lift = Lift::new();
    // SAFETY: as this function's.
    unsafe { vendor_irecv_under_lock(rt, data, from, comm) }
}

/// The same where a lock of ours is held, so that an error handler of the program's, should one run, sees the
/// vendor's side of things alone.
///
/// # Safety
/// As of the procedure itself.
pub(crate) unsafe fn vendor_irecv_under_lock<A: Abi>(
    rt: &Runtime<A>,
    data: Data<A>,
    from: Address,
    comm: A::Comm,
) -> Result<A::Request> {
    let mut request = A::request_null();
    // SAFETY: as this function's.
    let code = unsafe {
        counted!(rt.vendor, irecv, irecv_c, data, from.peer, from.tag, comm, &raw mut request)
    };
    check(code).map(|()| request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Vendor;
    use gridmpi_abi::{Mpich, Named};
    use gridmpi_engine::{Communicator, JobMap};
    use gridmpi_wire::ProcId;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    static CANCELLED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn count_cancel(_request: *mut <Mpich as Abi>::Request) -> c_int {
        CANCELLED.fetch_add(1, Relaxed);
        0
    }

    fn receive() -> Persistent<Mpich> {
        let map = JobMap::contiguous([("a".into(), 2), ("b".into(), 1)]);
        let world = Communicator::world(ProcId(0), &map).unwrap();
        let comm = Arc::new(Spanning::new(Mpich::comm_world(), world));
        let data = Data::new(std::ptr::null(), 1, Mpich::datatype(Named::Byte));
        let datatype = Lasting::predefined(data.datatype);
        let from = Address { peer: 1, tag: 0 };
        Persistent::new(comm, PersistentKind::Receive, (data, datatype), from)
    }

    #[test]
    fn a_procedure_that_the_vendor_lacks_is_an_error_of_ours() {
        let rt = Runtime::<Mpich>::over(unsafe { Vendor::of(&[]) });
        let data = Data::new(std::ptr::null(), 1 << 31, Mpich::datatype(Named::Byte));
        let from = Address { peer: 0, tag: 0 };
        let started = unsafe { vendor_irecv(&rt, data, from, Mpich::comm_world()) };
        let class = ErrorClass::UnsupportedOperation;
        assert!(matches!(started, Err(Error::Ours { class: found, .. }) if found == class));
    }

    #[test]
    fn what_is_cancelled_while_another_looks_is_cancelled_when_it_has_looked() {
        let vendor = unsafe { Vendor::of(&[(c"MPI_Cancel", count_cancel as *const c_void)]) };
        let (rt, receive) = (Runtime::<Mpich>::over(vendor), receive());
        let cancelled = || CANCELLED.load(Relaxed);
        let request = Active::Vendor { request: Mpich::request_null(), receive: true };
        assert_eq!(receive.cancel(&rt), Ok(()), "there is nothing to cancel");
        assert!(receive.claim());
        receive.put(&rt, Activity::Started(request));
        assert_eq!(cancelled(), 0);

        let looked_at = receive.take();
        assert_eq!(receive.cancel(&rt), Ok(()));
        assert_eq!(cancelled(), 0, "another has it");
        receive.put(&rt, looked_at);
        assert_eq!(cancelled(), 1);

        assert_eq!(receive.cancel(&rt), Ok(()));
        assert_eq!(cancelled(), 2);

        assert!(matches!(receive.take(), Activity::Started(_)));
        assert_eq!(receive.cancel(&rt), Ok(()));
        receive.put(&rt, Activity::Inactive);
        assert!(receive.claim());
        receive.put(&rt, Activity::Started(request));
        assert_eq!(cancelled(), 2, "it had ended, and was started again");
    }
}
