//! `MPI_Waitall` (MPI 4.1 §3.7.5).

use super::completion::{Requests, Seen, look, status_at, tell_several};
use crate::error::Result;
use crate::progress::Turn;
use crate::runtime::Runtime;
use crate::status::Outcome;
use gridmpi_abi::Abi;
use gridmpi_engine::RequestId;
use std::ffi::c_int;

/// A request of the array that has not ended yet.
struct Waiting {
    index: usize,
    /// By which the engine, which alone can end it, says whether it has. `None`: it must be looked at.
    id: Option<RequestId>,
}

/// `MPI_Waitall`.
pub unsafe fn waitall<A: Abi>(
    rt: &'static Runtime<A>,
    count: c_int,
    array_of_requests: *mut A::Request,
    array_of_statuses: *mut A::Status,
) -> Result<()> {
    let requests = Requests::<A>::new(array_of_requests, count)?;
    let mut todo: Vec<_> = (0..requests.count).map(|index| Waiting { index, id: None }).collect();
    let mut ended = Vec::with_capacity(requests.count);
    let mut turn = Turn::new(rt);
    loop {
        let mut local = false;
        todo.retain_mut(|waiting| {
            if waiting.id.is_some() {
                return true;
            }
            // SAFETY: the program's array.
            let outcome = match unsafe { look(rt, requests.at(waiting.index)) } {
                Seen::Pending { local: by_vendor, id } => {
                    local |= by_vendor;
                    waiting.id = id;
                    return true;
                }
                Seen::Inactive => Outcome::empty(),
                Seen::Ended(outcome) => outcome,
            };
            ended.push((status_at::<A>(array_of_statuses, waiting.index), outcome));
            false
        });
        if todo.is_empty() {
            // SAFETY: the program's statuses.
            return unsafe { tell_several(rt, ended) };
        }
        turn.wait(local)?;
        ask_engine(rt, &mut todo);
    }
}

/// Which are to be looked at again. There may be thousands, which end one by one: the engine is asked for all at once.
fn ask_engine<A: Abi>(rt: &Runtime<A>, todo: &mut [Waiting]) {
    let mut ids = todo.iter_mut().map(|waiting| &mut waiting.id).filter(|id| id.is_some());
    if let Some(first) = ids.next() {
        let engine = rt.job().net.lock();
        for id in std::iter::once(first).chain(ids) {
            id.take_if(|id| engine.peek(*id).is_some());
        }
    }
}
