//! The job that this process takes part in, from `MPI_Init` to `MPI_Finalize`.

use crate::buffered::Buffered;
use crate::error::{Error, Result};
use crate::local::Side;
use crate::matb::Matb;
use crate::progress::Eagerness;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, ErrorClass};
use gridmpi_bootstrap::{Control, JobEnv, Pacing};
use gridmpi_engine::{JobMap, TagMatch};
use gridmpi_net::Net;
use gridmpi_wire::ProcId;
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a process of a job has beside its vendor.
pub(crate) struct Job<A: Abi> {
    /// The way to the other clusters, and the engine.
    pub(crate) net: Net,
    /// Who is where.
    pub(crate) map: JobMap,
    /// This process.
    pub(crate) me: ProcId,
    /// The vendor's group of its own world, to find out who is in the vendor's groups.
    pub(crate) vendor_world: A::Group,
    /// Receives that the vendor may satisfy as well as the engine.
    pub(crate) side: Mutex<Side<A>>,
    /// The vendor's world again, for empty messages of ours and to look whether there are any.
    pub(crate) quiet: A::Comm,
    /// This process alone, for message tokens.
    pub(crate) own: A::Comm,
    /// What `MPI_Buffer_attach` gave.
    pub(crate) attached: Attached,
    /// Buffered sends that go inside the cluster.
    pub(crate) buffered: Buffered<A>,
    /// `MPI_TAG_UB`: the least of all clusters. The program gets its address.
    pub(crate) tag_ub: Box<c_int>,
    /// `MPI_UNIVERSE_SIZE`: the processes of the job. The program gets its address.
    pub(crate) universe: Box<c_int>,
    /// The program's hand on this node's rate.
    pub(crate) matb: Matb,
    /// How what leaves for other clusters is held back.
    pub(crate) pacing: Pacing,
    /// Ranks outnumber cores: who waits lets others run.
    pub(crate) yields: bool,
    /// How long a wait looks again before it sleeps.
    pub(crate) eagerness: Eagerness,
    /// The coordinator; only local rank 0 talks to it.
    pub(crate) control: Option<Control>,
    env: JobEnv,
    contexts: AtomicU32,
    told_lost: Arc<AtomicBool>,
}

/// Everything that [`Job::new`] needs; the rest starts empty.
pub(crate) struct JobParts<A: Abi> {
    pub(crate) net: Net,
    pub(crate) map: JobMap,
    pub(crate) me: ProcId,
    pub(crate) vendor_world: A::Group,
    pub(crate) quiet: A::Comm,
    pub(crate) own: A::Comm,
    pub(crate) tag_ub: c_int,
    pub(crate) matb: Matb,
    pub(crate) pacing: Pacing,
    pub(crate) yields: bool,
    pub(crate) control: Option<Control>,
    pub(crate) env: JobEnv,
    /// The job has been told that a process of another cluster is lost.
    pub(crate) told_lost: Arc<AtomicBool>,
}

impl<A: Abi> Job<A> {
    pub(crate) fn new(parts: JobParts<A>) -> Self {
        let universe = Box::new(crate::communicator::int(parts.map.size()));
        Self {
            net: parts.net,
            map: parts.map,
            me: parts.me,
            vendor_world: parts.vendor_world,
            side: Mutex::default(),
            quiet: parts.quiet,
            own: parts.own,
            attached: Attached::default(),
            buffered: Buffered::default(),
            tag_ub: Box::new(parts.tag_ub),
            universe,
            matb: parts.matb,
            pacing: parts.pacing,
            yields: parts.yields,
            eagerness: Eagerness::new(),
            control: parts.control,
            env: parts.env,
            contexts: AtomicU32::new(1),
            told_lost: parts.told_lost,
        }
    }

    /// Tells the other clusters that the program aborts; failing to is no reason not to abort.
    pub(crate) fn tell_abort(&self, code: c_int) {
        let reason = format!("{} called MPI_Abort", self.me);
        match &self.control {
            Some(control) => control.abort(code, &reason),
            None => drop(gridmpi_bootstrap::abort(&self.env, code, &reason)),
        }
    }

    /// Tells the job once that a process of another cluster is lost. We are not the cause, so the job's
    /// exit code is not ours to give; failing to tell leaves the end of this cluster to tell it.
    pub(crate) fn tell_lost(&self, failure: &str) {
        if self.told_lost.swap(true, Relaxed) {
            return;
        }
        match &self.control {
            Some(control) => control.suspect(failure),
            None => drop(gridmpi_bootstrap::suspect(&self.env, failure)),
        }
    }

    /// The count of a context that only this process can name.
    pub(crate) fn reserve_context(&self) -> u32 {
        self.contexts.fetch_add(1, Relaxed)
    }

    /// Whether blocking calls must not block in the vendor: something of ours moves only while this
    /// thread looks after it, or others need its core.
    pub(crate) fn is_patient(&self, rt: &Runtime<A>) -> bool {
        self.yields || rt.needs_progress()
    }

    /// A tag to send with.
    ///
    /// # Errors
    /// `MPI_ERR_TAG`.
    pub(crate) fn check_tag(&self, tag: c_int) -> Result<()> {
        if (0..=*self.tag_ub).contains(&tag) {
            return Ok(());
        }
        Err(Error::new(
            ErrorClass::Tag,
            format!("tag {tag} is not from 0 to MPI_TAG_UB, here {}", self.tag_ub),
        ))
    }

    /// A tag to receive or probe with.
    ///
    /// # Errors
    /// `MPI_ERR_TAG`.
    pub(crate) fn tag_match(&self, tag: c_int) -> Result<TagMatch> {
        if tag == A::ANY_TAG {
            return Ok(TagMatch::Any);
        }
        self.check_tag(tag).map(|()| TagMatch::Is(tag))
    }
}

/// The program's buffer for `MPI_Bsend`: its size counts, its memory serves what the vendor buffers by itself.
#[derive(Debug, Default)]
pub(crate) struct Attached(AtomicU64);

impl Attached {
    /// As large as need be (`MPI_BUFFER_AUTOMATIC`).
    const AUTOMATIC: u64 = u64::MAX;

    /// What `MPI_Buffer_attach` was given.
    pub(crate) fn set<A: Abi>(&self, buffer: *mut c_void, bytes: Count) {
        let is_automatic = buffer == A::buffer_automatic();
        let bytes = u64::try_from(bytes).unwrap_or(0);
        self.0.store(if is_automatic { Self::AUTOMATIC } else { bytes }, Relaxed);
    }

    /// Nothing is attached any more. Whether an `int` holds the size that was.
    pub(crate) fn take(&self) -> bool {
        let was = self.0.swap(0, Relaxed);
        was == Self::AUTOMATIC || c_int::try_from(was).is_ok()
    }

    fn size(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Whether a message of `bytes` may be buffered (MPI 4.1 §3.6).
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER`.
    pub(crate) fn check(&self, bytes: u64) -> Result<()> {
        if bytes <= self.size() {
            return Ok(());
        }
        let attached = self.size();
        Err(Error::new(
            ErrorClass::Buffer,
            format!(
                "a buffered send of {bytes} bytes needs more than the {attached} attached by MPI_Buffer_attach"
            ),
        ))
    }
}
