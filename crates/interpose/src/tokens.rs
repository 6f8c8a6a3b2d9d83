//! What the program's handles stand for. A token is a real handle of the vendor that the program
//! holds; here is what it means to us.

use crate::communicator::Spanning;
use crate::operation::{Active, Persistent};
use gridmpi_abi::{Abi, Handle};
use gridmpi_engine::{Group, MessageId};
use gridmpi_wire::ContextId;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Arc, OnceLock};

/// A request handle of the program that needs us.
pub(crate) enum Request<A: Abi> {
    /// A nonblocking operation under way.
    Active { active: Active<A>, comm: Arc<Spanning<A>> },
    /// The vendor's own receive on a spanning communicator: only the rank in its status is ours.
    Translate { comm: Arc<Spanning<A>> },
    /// A persistent operation on a spanning communicator (MPI 4.1 §3.9).
    Persistent(Arc<Persistent<A>>),
}

/// A message handle of the program that needs us (MPI 4.1 §3.8.2).
pub(crate) enum Message<A: Abi> {
    /// Of another cluster; its token is a message of this process to itself.
    Engine { id: MessageId, comm: Arc<Spanning<A>> },
    /// The vendor's own: only the rank in its status is ours.
    Translate { comm: Arc<Spanning<A>> },
}

/// Entries by handle, and how many there are, for a look without the lock.
pub(crate) struct Table<T> {
    entries: Mutex<HashMap<usize, T>>,
    live: AtomicUsize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), live: AtomicUsize::new(0) }
    }
}

impl<T> Table<T> {
    /// Entries there are; one relaxed load.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    pub(crate) fn contains(&self, bits: usize) -> bool {
        self.live() > 0 && self.entries.lock().contains_key(&bits)
    }

    pub(crate) fn insert(&self, handle: impl Handle, entry: T) {
        let mut entries = self.entries.lock();
        entries.insert(handle.bits(), entry);
        self.live.store(entries.len(), Relaxed);
    }

    pub(crate) fn remove(&self, handle: impl Handle) -> Option<T> {
        if self.live() == 0 {
            return None;
        }
        let mut entries = self.entries.lock();
        let entry = entries.remove(&handle.bits());
        self.live.store(entries.len(), Relaxed);
        entry
    }

    /// What `look` makes of the entry, if there is one.
    pub(crate) fn with<R>(&self, handle: impl Handle, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.live() == 0 {
            return None;
        }
        self.entries.lock().get_mut(&handle.bits()).map(look)
    }
}

/// A spanning communicator that a call found.
pub(crate) enum Found<'a, A: Abi> {
    World(&'a Arc<Spanning<A>>),
    Other(Arc<Spanning<A>>),
}

impl<A: Abi> Deref for Found<'_, A> {
    type Target = Arc<Spanning<A>>;

    #[inline]
    fn deref(&self) -> &Arc<Spanning<A>> {
        match self {
            Self::World(world) => world,
            Self::Other(other) => other,
        }
    }
}

impl<A: Abi> Found<'_, A> {
    /// To keep beyond the call.
    pub(crate) fn to_arc(&self) -> Arc<Spanning<A>> {
        Arc::clone(self)
    }
}

/// All tokens of this process.
pub(crate) struct Tokens<A: Abi> {
    /// `MPI_COMM_WORLD`, which is never freed: most calls are on it, and it is found without a lock.
    world: OnceLock<Arc<Spanning<A>>>,
    communicators: RwLock<HashMap<usize, Arc<Spanning<A>>>>,
    contexts: RwLock<HashMap<ContextId, Arc<Spanning<A>>>>,
    /// Given back by the program.
    retired: Mutex<Vec<Arc<Spanning<A>>>>,
    /// How many of those there are, for a look without the lock.
    waiting: AtomicUsize,
    /// How many the vendor is freeing at this moment.
    freeing: AtomicUsize,
    pub(crate) requests: Table<Request<A>>,
    pub(crate) groups: Table<Arc<Group>>,
    pub(crate) messages: Table<Message<A>>,
    /// Tokens that stand for no message now.
    pub(crate) spare_messages: Mutex<Vec<A::Message>>,
}

impl<A: Abi> Default for Tokens<A> {
    fn default() -> Self {
        Self {
            world: OnceLock::new(),
            communicators: RwLock::default(),
            contexts: RwLock::default(),
            retired: Mutex::default(),
            waiting: AtomicUsize::new(0),
            freeing: AtomicUsize::new(0),
            requests: Table::default(),
            groups: Table::default(),
            messages: Table::default(),
            spare_messages: Mutex::default(),
        }
    }
}

impl<A: Abi> Tokens<A> {
    /// The spanning communicator behind a handle; `None` for the vendor's own.
    #[inline]
    pub(crate) fn spanning(&self, comm: A::Comm) -> Option<Found<'_, A>> {
        match self.world.get() {
            Some(world) if comm == world.token => Some(Found::World(world)),
            _ => {
                let communicators = self.communicators.read();
                let found = communicators.get(&comm.bits()).filter(|found| found.is_known_here());
                found.cloned().map(Found::Other)
            }
        }
    }

    /// Whether handles are being freed that may mean something else to this thread. To be asked before a look into the table of spanning
    /// communicators: what is freed leaves that first.
    #[inline]
    pub(crate) fn are_being_freed(&self) -> bool {
        self.freeing.load(Acquire) != 0
    }

    /// Until the end of `free`, in which the vendor frees the token, it means `comm` to this thread alone. Whether the vendor did: then the
    /// communicator is forgotten, and `last` called if the handle means nothing to us any more; it may be that of a new one already.
    pub(crate) fn free_communicator<E>(
        &self,
        comm: &Arc<Spanning<A>>,
        free: impl FnOnce() -> std::result::Result<(), E>,
        last: impl FnOnce(),
    ) -> std::result::Result<(), E> {
        self.freeing.fetch_add(1, AcqRel);
        comm.set_freeing(true);
        let freed = free();
        if freed.is_ok() {
            self.forget_communicator(comm, last);
        }
        comm.set_freeing(false);
        self.freeing.fetch_sub(1, AcqRel);
        freed
    }

    /// The spanning communicator of a point-to-point context.
    pub(crate) fn of_context(&self, context: ContextId) -> Option<Arc<Spanning<A>>> {
        self.contexts.read().get(&context).cloned()
    }

    pub(crate) fn insert_communicator(&self, comm: &Arc<Spanning<A>>) {
        if comm.token == A::comm_world() {
            self.world.get_or_init(|| Arc::clone(comm));
        }
        self.contexts.write().insert(comm.context(), Arc::clone(comm));
        self.communicators.write().insert(comm.token.bits(), Arc::clone(comm));
    }

    /// The program gives the communicator back. It stays known until nothing uses it any more: receives
    /// under way, and delete callbacks of its attributes. False: it was given back before.
    pub(crate) fn retire_communicator(&self, comm: A::Comm) -> bool {
        let Some(spanning) = self.spanning(comm) else { return false };
        let mut retired = self.retired.lock();
        let is_new = !retired.iter().any(|other| Arc::ptr_eq(other, &spanning));
        if is_new {
            retired.push(spanning.to_arc());
            self.waiting.store(retired.len(), Relaxed);
        }
        is_new
    }

    /// The retired communicators that no operation uses: each is to be freed, then forgotten.
    pub(crate) fn unused_communicators(&self) -> Vec<Arc<Spanning<A>>> {
        if self.waiting.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut retired = self.retired.lock();
        // One reference is here, one by handle and one by context.
        let (unused, used) =
            retired.drain(..).partition(|spanning| Arc::strong_count(spanning) <= 3);
        *retired = used;
        self.waiting.store(retired.len(), Relaxed);
        unused
    }

    /// `last` is called under the lock, so that nobody makes a new communicator of the same handle known in between.
    fn forget_communicator(&self, comm: &Arc<Spanning<A>>, last: impl FnOnce()) {
        self.contexts.write().remove(&comm.context());
        let mut communicators = self.communicators.write();
        let bits = comm.token.bits();
        let is_known = communicators.get(&bits).is_some_and(|known| Arc::ptr_eq(known, comm));
        if is_known {
            communicators.remove(&bits);
            last();
        }
    }
}
