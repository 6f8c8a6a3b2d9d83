//! Receives that the engine holds because their message may come from this cluster as well as from
//! others: their arguments, the vendor's receives into their buffers, and the vendor as the engine
//! sees it.

use crate::communicator::Spanning;
use crate::datatype::Lasting;
use crate::error::{Result, check};
use crate::operation::{Address, Data, counted, vendor_irecv_under_lock};
use crate::runtime::Runtime;
use crate::status::{Outcome, Told};
use gridmpi_abi::{Abi, StatusFields};
use gridmpi_engine::{Completion, Endpoint, LocalMatch, RequestId, TagMatch};
use gridmpi_wire::{ContextId, Rank};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;

/// A receive that the vendor may satisfy.
pub(crate) struct Held<A: Abi> {
    comm: Arc<Spanning<A>>,
    data: Data<A>,
    datatype: Lasting<A>,
    state: State<A>,
}

enum State<A: Abi> {
    /// The engine has it.
    Waiting,
    /// The vendor receives into its buffer.
    Receiving(A::Request),
    /// The vendor is done; the engine may not know yet.
    Ended { outcome: Outcome<A>, reported: bool },
}

impl<A: Abi> State<A> {
    /// Where a receive of the vendor's could not be started, the held one ends with its error.
    fn started(receive: Result<A::Request>) -> Self {
        match receive {
            Ok(request) => Self::Receiving(request),
            Err(error) => {
                let outcome = Outcome { status: Told::Empty, error: Some(error) };
                Self::Ended { outcome, reported: false }
            }
        }
    }
}

impl<A: Abi> Held<A> {
    pub(crate) fn new(rt: &Runtime<A>, comm: &Arc<Spanning<A>>, mut data: Data<A>) -> Result<Self> {
        let datatype = Lasting::new(rt, data.datatype)?;
        data.datatype = datatype.get();
        Ok(Self { comm: Arc::clone(comm), data, datatype, state: State::Waiting })
    }

    fn release(self, rt: &Runtime<A>) -> Option<Outcome<A>> {
        self.datatype.release(rt);
        match self.state {
            State::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }
    }
}

/// All held receives of this process. Locked before the engine, never after it.
pub(crate) struct Side<A: Abi> {
    held: HashMap<RequestId, Held<A>>,
    /// Freed by the program while under way: nobody asks for their end but we.
    orphans: Vec<RequestId>,
}

impl<A: Abi> Default for Side<A> {
    fn default() -> Self {
        Self { held: HashMap::new(), orphans: Vec::new() }
    }
}

impl<A: Abi> Side<A> {
    pub(crate) fn insert(&mut self, rt: &Runtime<A>, id: RequestId, held: Held<A>) {
        self.held.insert(id, held);
        rt.set_held(self.held.len());
    }

    /// Forgets a receive that the engine has completed; how it ended if the vendor served it.
    pub(crate) fn remove(&mut self, rt: &Runtime<A>, id: RequestId) -> Option<Outcome<A>> {
        let held = self.held.remove(&id)?;
        rt.set_held(self.held.len());
        held.release(rt)
    }

    /// The status of a receive that the vendor served.
    pub(crate) fn told(&self, id: RequestId) -> Option<Told<A>> {
        match &self.held.get(&id)?.state {
            State::Ended { outcome, .. } => Some(outcome.status),
            _ => None,
        }
    }

    /// `MPI_Cancel` of a receive that is with the vendor already.
    pub(crate) fn cancel(&mut self, rt: &Runtime<A>, id: RequestId) {
        if let Some(Held { state: State::Receiving(request), .. }) = self.held.get_mut(&id) {
            // SAFETY: a receive of ours that is under way.
            unsafe { rt.vendor.cancel(request) };
        }
    }

    /// `MPI_Request_free` of a receive under way.
    pub(crate) fn orphan(&mut self, id: RequestId) {
        self.orphans.push(id);
    }

    /// Moves what can be moved without waiting. Returns whether anything did.
    ///
    /// The vendor finds here that a message of this cluster is too long for a held receive, and runs the error
    /// handler of the token at once. Our locks are held, so a handler of the program's own does not come back to
    /// us: what it asks MPI about the communicator is answered for this cluster alone.
    pub(crate) fn pump(&mut self, rt: &Runtime<A>, engine: &mut Endpoint) -> bool {
        let mut moved = engine.poll_local(&mut Vendor { rt, held: &mut self.held });
        for (&id, held) in &mut self.held {
            moved |= held.test(rt, engine, id);
        }
        self.reap(rt, engine);
        moved
    }

    fn reap(&mut self, rt: &Runtime<A>, engine: &mut Endpoint) {
        let (ended, under_way): (Vec<_>, Vec<_>) =
            self.orphans.drain(..).partition(|&id| engine.take(id).is_some());
        self.orphans = under_way;
        for id in ended {
            self.remove(rt, id);
        }
    }

    /// The first message of this cluster that a probe may see (MPI 4.1 §3.8.1).
    pub(crate) fn probe(
        &mut self,
        rt: &Runtime<A>,
        engine: &mut Endpoint,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, c_int)> {
        engine.probe_local(&mut Vendor { rt, held: &mut self.held }, context, source, tag)
    }
}

impl<A: Abi> Held<A> {
    fn test(&mut self, rt: &Runtime<A>, engine: &mut Endpoint, id: RequestId) -> bool {
        self.ask_vendor(rt);
        let State::Ended { outcome, reported: reported @ false } = &mut self.state else {
            return false;
        };
        *reported = true;
        engine.local_completed(id, completion(rt, outcome));
        true
    }

    fn ask_vendor(&mut self, rt: &Runtime<A>) {
        let State::Receiving(request) = &mut self.state else { return };
        let (mut flag, mut status) = (0, A::Status::default());
        // SAFETY: a receive of ours that is under way, and two places of our own.
        let code = unsafe { rt.vendor.test(request, &raw mut flag, &raw mut status) };
        if code != A::SUCCESS || flag != 0 {
            let outcome = Outcome::of_vendor(code, status, &self.comm);
            self.state = State::Ended { outcome, reported: false };
        }
    }
}

/// The engine's view of an end that the program learns from the vendor's own status.
fn completion<A: Abi>(rt: &Runtime<A>, outcome: &Outcome<A>) -> Completion {
    let mut completion = Completion { source: None, tag: 0, len: 0, error: None, cancelled: false };
    if let Told::Vendor(status) = outcome.status {
        let mut cancelled = 0;
        // SAFETY: a status that the vendor filled.
        unsafe { rt.vendor.test_cancelled(&raw const status, &raw mut cancelled) };
        completion.cancelled = cancelled != 0;
        completion.source = u32::try_from(status.source()).ok().map(Rank);
        completion.tag = status.tag();
    }
    completion
}

/// The vendor as the engine asks it.
struct Vendor<'a, A: Abi> {
    rt: &'a Runtime<A>,
    held: &'a mut HashMap<RequestId, Held<A>>,
}

impl<A: Abi> Vendor<'_, A> {
    fn pattern(comm: &Spanning<A>, source: Option<Rank>, tag: TagMatch) -> Address {
        let peer = source.and_then(|rank| comm.local_rank(rank)).unwrap_or(A::ANY_SOURCE);
        let tag = match tag {
            TagMatch::Any => A::ANY_TAG,
            TagMatch::Is(tag) => tag,
        };
        Address { peer, tag }
    }

    fn found(comm: &Spanning<A>, status: &A::Status) -> (Rank, c_int) {
        (comm.rank_of_local(status.source()).unwrap_or(Rank(0)), status.tag())
    }
}

impl<A: Abi> LocalMatch for Vendor<'_, A> {
    fn iprobe(
        &mut self,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, c_int)> {
        let comm = self.rt.tokens.of_context(context)?;
        let pattern = Self::pattern(&comm, source, tag);
        let (mut flag, mut status) = (0, A::Status::default());
        // SAFETY: a communicator of the program and places of our own.
        unsafe {
            self.rt.vendor.iprobe(
                pattern.peer,
                pattern.tag,
                comm.token,
                &raw mut flag,
                &raw mut status,
            );
        }
        (flag != 0).then(|| Self::found(&comm, &status))
    }

    fn improbe_receive(
        &mut self,
        request: RequestId,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, c_int)> {
        let held = self.held.get_mut(&request)?;
        let _ = context;
        let pattern = Self::pattern(&held.comm, source, tag);
        let (mut flag, mut status, mut message) = (0, A::Status::default(), A::message_null());
        let v = &self.rt.vendor;
        // SAFETY: a communicator of the program and places of our own.
        unsafe {
            v.improbe(
                pattern.peer,
                pattern.tag,
                held.comm.token,
                &raw mut flag,
                &raw mut message,
                &raw mut status,
            );
        }
        if flag == 0 {
            return None;
        }
        let mut receive = A::request_null();
        let data = held.data;
        // SAFETY: the message was just taken; the memory is the receive's until it completes.
        let code =
            unsafe { counted!(v, imrecv, imrecv_c, data, &raw mut message, &raw mut receive) };
        held.state = State::started(check(code).map(|()| receive));
        Some(Self::found(&held.comm, &status))
    }

    fn post(&mut self, request: RequestId, _context: ContextId, source: Rank, tag: TagMatch) {
        let Some(held) = self.held.get_mut(&request) else { return };
        let pattern = Self::pattern(&held.comm, Some(source), tag);
        // SAFETY: the memory is the receive's until it completes.
        held.state = State::started(unsafe {
            vendor_irecv_under_lock(self.rt, held.data, pattern, held.comm.token)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Vendor as Mpi;
    use gridmpi_abi::{Mpich, Named};
    use gridmpi_engine::{Communicator, JobMap};
    use gridmpi_wire::{Plane, ProcId};
    use std::ffi::c_void;

    const FAILS: c_int = 17;

    unsafe extern "C" fn improbe(
        _source: c_int,
        _tag: c_int,
        _comm: <Mpich as Abi>::Comm,
        flag: *mut c_int,
        _message: *mut <Mpich as Abi>::Message,
        _status: *mut <Mpich as Abi>::Status,
    ) -> c_int {
        unsafe { *flag = 1 };
        0
    }

    unsafe extern "C" fn imrecv(
        _buf: *mut c_void,
        _count: c_int,
        _datatype: <Mpich as Abi>::Datatype,
        _message: *mut <Mpich as Abi>::Message,
        _request: *mut <Mpich as Abi>::Request,
    ) -> c_int {
        FAILS
    }

    #[test]
    fn a_message_that_the_vendor_cannot_receive_ends_the_receive_with_the_error() {
        let vendor = unsafe {
            Mpi::of(&[
                (c"MPI_Improbe", improbe as *const c_void),
                (c"MPI_Imrecv", imrecv as *const c_void),
            ])
        };
        let rt = Runtime::<Mpich>::over(vendor);
        let map = JobMap::contiguous([("a".into(), 2), ("b".into(), 1)]);
        let world = Communicator::world(ProcId(0), &map).unwrap();
        let comm = Arc::new(Spanning::new(Mpich::comm_world(), world));
        let data = Data::new(std::ptr::null(), 1, Mpich::datatype(Named::Byte));
        let datatype = Lasting::predefined(data.datatype);
        let id = RequestId::from_bits(1);
        let mut held = HashMap::from([(
            id,
            Held { comm: Arc::clone(&comm), data, datatype, state: State::Waiting },
        )]);
        let context = comm.context().on(Plane::PointToPoint);
        let found = Vendor { rt: &rt, held: &mut held }.improbe_receive(
            id,
            context,
            Some(Rank(1)),
            TagMatch::Any,
        );
        assert!(found.is_some(), "it took the message");
        let outcome = held.remove(&id).unwrap().release(&rt).expect("it has ended");
        assert_eq!(outcome.error, Some(crate::error::Error::Vendor(FAILS)));
    }
}
