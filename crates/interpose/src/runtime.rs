//! The state of the library in this process.

use crate::communicator::Spanning;
use crate::datatype::Layouts;
use crate::direct::Direct;
use crate::error::install_panic_hook;
use crate::job::Job;
use crate::spanning::SpanningTable;
use crate::tokens::Tokens;
use crate::tool::Tool;
use crate::vendor::Vendor;
use gridmpi_abi::{Abi, Handle};
use parking_lot::Mutex;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// One in each process. Made by the first call, inert until the job's environment says otherwise.
pub struct Runtime<A: Abi> {
    /// The MPI below.
    pub vendor: Vendor<A>,
    /// The communicators that span clusters.
    pub spanning: SpanningTable,
    /// Flattened datatypes.
    pub(crate) layouts: Layouts,
    /// What the program's handles stand for.
    pub(crate) tokens: Tokens<A>,
    /// Our variables of the tools interface.
    pub(crate) tool: Tool,
    job: OnceLock<Job<A>>,
    direct: OnceLock<Direct>,
    active: AtomicBool,
    several: AtomicBool,
    held: AtomicUsize,
}

/// Points to the `Runtime` of the one ABI that this library is built for.
static RUNTIME: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

impl<A: Abi> Runtime<A> {
    /// The one of this process.
    #[inline]
    pub fn get() -> &'static Self {
        Self::started().unwrap_or_else(Self::start)
    }

    /// The one of this process, if there has been a call before.
    #[inline]
    pub fn started() -> Option<&'static Self> {
        let runtime: *const Self = RUNTIME.load(Ordering::Acquire).cast();
        // SAFETY: null, or made by `start` for the only ABI of this library, and never freed.
        unsafe { runtime.as_ref() }
    }

    #[cold]
    fn start() -> &'static Self {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock();
        if let Some(made) = Self::started() {
            return made;
        }
        install_panic_hook();
        let vendor = Vendor::find().unwrap_or_else(|reason| {
            eprintln!("gridmpi: {reason}");
            std::process::abort();
        });
        let runtime: &'static Self = Box::leak(Box::new(Self::over(vendor)));
        RUNTIME.store(ptr::from_ref(runtime).cast_mut().cast(), Ordering::Release);
        runtime
    }

    /// Inert.
    pub(crate) fn over(vendor: Vendor<A>) -> Self {
        Self {
            vendor,
            spanning: SpanningTable::new(),
            layouts: Layouts::default(),
            tokens: Tokens::default(),
            tool: Tool::default(),
            job: OnceLock::new(),
            direct: OnceLock::new(),
            active: AtomicBool::new(false),
            several: AtomicBool::new(false),
            held: AtomicUsize::new(0),
        }
    }

    /// Takes part in a job from now on.
    pub(crate) fn activate(&self, job: Job<A>) {
        assert!(self.job.set(job).is_ok(), "MPI_Init was served twice");
        self.active.store(true, Ordering::Release);
    }

    /// `MPI_COMM_WORLD` has members in several clusters; before the program makes its first call.
    pub(crate) fn join_clusters(&self, world: Spanning<A>) {
        self.adopt(world);
        self.several.store(true, Ordering::Release);
    }

    /// Opens the short way within the cluster, before the program makes its first call.
    pub(crate) fn open_direct(&self, direct: Direct) {
        self.direct.get_or_init(|| direct);
        self.set_held(0);
    }

    /// Leaves everything to the vendor again (`MPI_Finalize`).
    pub(crate) fn deactivate(&self) {
        self.several.store(false, Ordering::Release);
        self.active.store(false, Ordering::Release);
    }

    /// The job. Only served calls ask, and there are none before [`activate`](Self::activate).
    pub(crate) fn job(&self) -> &Job<A> {
        self.job.get().expect("calls are served only in a job")
    }

    /// The job, if there is or was one.
    pub(crate) fn joined(&self) -> Option<&Job<A>> {
        self.job.get()
    }

    /// The library is at work. False: everything goes to the vendor.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// The job has several clusters.
    #[inline]
    pub fn spans_clusters(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// Something of ours moves only while the program's thread polls for it.
    #[inline]
    pub fn needs_progress(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// How many receives are held that the vendor may satisfy. While there are any, the short way is closed.
    pub(crate) fn set_held(&self, held: usize) {
        self.held.store(held, Ordering::Relaxed);
        match self.direct.get() {
            Some(direct) if held == 0 => direct.open(),
            Some(direct) => direct.close(),
            None => (),
        }
    }

    /// Makes a spanning communicator known, before the program has its handle.
    pub(crate) fn adopt(&self, comm: Spanning<A>) -> A::Comm {
        let comm = Arc::new(comm);
        self.tokens.insert_communicator(&comm);
        self.spanning.insert(comm.token.bits());
        comm.token
    }

    /// How many requests of ours the program holds.
    #[inline]
    pub fn live_requests(&self) -> usize {
        self.tokens.requests.live()
    }

    /// How many groups of ours the program holds.
    #[inline]
    pub fn live_groups(&self) -> usize {
        self.tokens.groups.live()
    }

    /// How many matched messages of ours the program holds.
    #[inline]
    pub fn live_messages(&self) -> usize {
        self.tokens.messages.live()
    }

    /// How many datatypes we remember something about.
    #[inline]
    pub fn live_datatypes(&self) -> usize {
        self.layouts.live()
    }

    /// Whether a request is a token of ours.
    pub fn owns_request(&self, bits: usize) -> bool {
        self.tokens.requests.contains(bits)
    }

    /// Whether a group is a token of ours.
    pub fn owns_group(&self, bits: usize) -> bool {
        self.tokens.groups.contains(bits)
    }
}
