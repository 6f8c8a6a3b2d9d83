//! The short way: blocking sends and receives on `MPI_COMM_WORLD` between processes of one cluster, which are the
//! vendor's but for the rank. In shared memory a small message takes a little over 100 ns, and the long way would add
//! a tenth; this one adds some twenty instructions.
//!
//! It is open from `MPI_Init` on if blocking in the vendor is allowed (see `Job::is_patient`), while no receive is held
//! for the vendor. What does not fit takes the long way, also to be told its mistakes.

use crate::communicator::Spanning;
use crate::guard::Guard;
use crate::status::is_ignored;
use crate::vendor::Vendor;
use gridmpi_abi::{Abi, StatusFields};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// What a call needs to know, in one cache line: the vendor looks for the peer by its rank first of all, so what leads
/// to the rank is waited for.
#[repr(align(64))]
struct Way {
    /// How many members of the world are in this cluster; 0 while the way is closed.
    count: AtomicU32,
    /// The rank in the world of the first of them. The others follow it, as their ranks of the vendor's do.
    first: AtomicU32,
    /// Greatest tag. As a number without sign, every `int` that is no tag is greater.
    tag_ub: AtomicU32,
    /// The [`Vendor`] for the one ABI that this library is built for.
    vendor: AtomicPtr<()>,
}

static WAY: Way = Way {
    count: AtomicU32::new(0),
    first: AtomicU32::new(0),
    tag_ub: AtomicU32::new(0),
    vendor: AtomicPtr::new(ptr::null_mut()),
};

/// The members of the world that a process reaches the short way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    count: u32,
}

impl Direct {
    /// Describes the way, which stays closed. `None` if the vendor's ranks do not follow the world's.
    pub(crate) fn new<A: Abi>(
        vendor: &'static Vendor<A>,
        world: &Spanning<A>,
        tag_ub: c_int,
    ) -> Option<Self> {
        let members = world.view.shape().neighbours();
        let first = members.first()?.0;
        if !members.iter().zip(first..).all(|(member, expected)| member.0 == expected) {
            return None;
        }
        let count = u32::try_from(members.len()).ok()?;
        WAY.first.store(first, Relaxed);
        WAY.tag_ub.store(tag_ub.cast_unsigned(), Relaxed);
        WAY.vendor.store(ptr::from_ref(vendor).cast_mut().cast(), Relaxed);
        Some(Self { count })
    }

    pub(crate) fn open(self) {
        WAY.count.store(self.count, Release);
    }

    /// Calls under way elsewhere may still take it.
    pub(crate) fn close(self) {
        WAY.count.store(0, Release);
    }
}

/// The vendor and its rank of `peer`, if the way is open for a call of the program's on `comm`.
#[inline(always)]
fn find<A: Abi>(comm: A::Comm, peer: c_int) -> Option<(&'static Vendor<A>, c_int)> {
    let count = WAY.count.load(Acquire);
    let rank = peer.cast_unsigned().wrapping_sub(WAY.first.load(Relaxed));
    if comm != A::comm_world() || rank >= count || !Guard::is_outside() {
        return None;
    }
    let vendor: *const Vendor<A> = WAY.vendor.load(Relaxed).cast();
    // SAFETY: set before the way was opened, for the only ABI of this library, and never freed.
    Some((unsafe { &*vendor }, rank.cast_signed()))
}

#[inline(always)]
fn is_tag(tag: c_int) -> bool {
    tag.cast_unsigned() <= WAY.tag_ub.load(Relaxed)
}

/// `MPI_Send`; `None`: not this way.
#[inline(always)]
pub(crate) unsafe fn send<A: Abi>(
    buf: *const c_void,
    count: c_int,
    datatype: A::Datatype,
    dest: c_int,
    tag: c_int,
    comm: A::Comm,
) -> Option<c_int> {
    let (vendor, rank) = find::<A>(comm, dest)?;
    // SAFETY: the program's call.
    is_tag(tag).then(|| unsafe { vendor.send(buf, count, datatype, rank, tag, comm) })
}

/// `MPI_Recv`; `None`: not this way.
#[inline(always)]
pub(crate) unsafe fn recv<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> Option<c_int> {
    let (vendor, rank) = find::<A>(comm, source)?;
    if !is_tag(tag) && tag != A::ANY_TAG {
        return None;
    }
    // SAFETY: the program's call.
    let code = unsafe { vendor.recv(buf, count, datatype, rank, tag, comm, status) };
    if !is_ignored::<A>(status) {
        // SAFETY: the program's status, which the vendor just filled.
        let status = unsafe { &mut *status };
        if status.source() == rank {
            status.set_source(source);
        }
    }
    Some(code)
}
