//! Requests: what the program waits for.

use crate::lanes::Pattern;
use crate::slab::{Key, Slab};
use crate::{Completion, Fault, RequestId};
use gridmpi_buffer::RecvBuffer;
use gridmpi_wire::ProcId;

/// A receive that nothing has matched.
pub(crate) struct Waiting {
    pub(crate) pattern: Pattern,
    /// Where it stands among the posted receives; `None` for a held local one, which no peer serves.
    pub(crate) posted: Option<u32>,
    /// Whose message it waits for; `None` for a wildcard or a held local one.
    pub(crate) peer: Option<ProcId>,
    /// Where it stands among the held receives; `None` for one that only a peer can serve.
    pub(crate) held: Option<u64>,
    pub(crate) buffer: RecvBuffer,
}

/// How far a request is.
pub(crate) enum State {
    /// A send; its peer's outgoing table knows more.
    Sending,
    /// A receive that waits for a match.
    Waiting(Waiting),
    /// The vendor receives into the program's buffer.
    AtVendor,
    /// A receive matched with a message that is still arriving.
    Receiving,
    /// Over.
    Done(Completion, Option<RecvBuffer>),
}

struct Request {
    state: State,
    /// Nobody will ask: the entry goes when the request is done.
    detached: bool,
}

/// All requests of an endpoint.
pub(crate) struct Requests {
    slab: Slab<Request>,
    completions: u64,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        Self { slab: Slab::new(), completions: 0 }
    }

    pub(crate) const fn completions(&self) -> u64 {
        self.completions
    }

    pub(crate) const fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn insert(&mut self, state: State) -> RequestId {
        RequestId(self.slab.insert(Request { state, detached: false }))
    }

    pub(crate) fn state(&self, id: RequestId) -> Option<&State> {
        self.slab.get(id.0).map(|request| &request.state)
    }

    /// A receive that waits, to note where it stands.
    pub(crate) fn waiting_mut(&mut self, id: RequestId) -> Option<&mut Waiting> {
        match &mut self.slab.get_mut(id.0)?.state {
            State::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// Takes a receive out of its waiting; it becomes `next`. `None` if it does not wait.
    pub(crate) fn match_waiting(&mut self, id: RequestId, next: State) -> Option<Waiting> {
        let state = &mut self.slab.get_mut(id.0)?.state;
        if !matches!(state, State::Waiting(_)) {
            return None;
        }
        match std::mem::replace(state, next) {
            State::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// Ends a request. One that is gone is left alone.
    pub(crate) fn complete(
        &mut self,
        id: RequestId,
        completion: Completion,
        buffer: Option<RecvBuffer>,
    ) {
        let Some(request) = self.slab.get_mut(id.0) else { return };
        self.completions += 1;
        if request.detached {
            self.slab.remove(id.0);
        } else {
            request.state = State::Done(completion, buffer);
        }
    }

    /// Ends a request that was nobody's message.
    pub(crate) fn fail(&mut self, id: RequestId, fault: Fault) {
        self.complete(id, Completion { error: Some(fault), ..Completion::none() }, None);
    }

    pub(crate) fn peek(&self, id: RequestId) -> Option<&Completion> {
        match &self.slab.get(id.0).expect("a live request").state {
            State::Done(completion, _) => Some(completion),
            _ => None,
        }
    }

    /// Ends and removes a request that is over.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<(Completion, Option<RecvBuffer>)> {
        self.peek(id)?;
        match self.slab.remove(id.0)?.state {
            State::Done(completion, buffer) => Some((completion, buffer)),
            _ => None,
        }
    }

    /// Marks a request as one nobody will ask for.
    pub(crate) fn detach(&mut self, id: RequestId) {
        let Some(request) = self.slab.get_mut(id.0) else { return };
        if matches!(request.state, State::Done(..)) {
            self.slab.remove(id.0);
        } else {
            request.detached = true;
        }
    }

    /// The receives that wait for a message of `peer` alone.
    pub(crate) fn waiting_for(&self, peer: ProcId) -> Vec<RequestId> {
        let waits = |(key, request): (Key, &Request)| match &request.state {
            State::Waiting(waiting) if waiting.peer == Some(peer) => Some(RequestId(key)),
            _ => None,
        };
        self.slab.iter().filter_map(waits).collect()
    }
}

impl Completion {
    /// Of a send, or of nothing: no source, no tag, no bytes, no fault.
    pub(crate) const fn none() -> Self {
        Self { source: None, tag: 0, len: 0, error: None, cancelled: false }
    }
}
