//! The short way: blocking sends and receives between processes of one cluster, on a communicator that lies in it or on
//! `MPI_COMM_WORLD`, where they are the vendor's but for the rank. In shared memory a small message takes 100 ns, and the
//! long way would add a tenth; this one adds some dozen instructions, and returns straight from the vendor to the program
//! wherever it can.
//!
//! It is open from `MPI_Init` on if blocking in the vendor is allowed (see `Job::is_patient`), while no receive is held
//! for the vendor. What does not fit takes the long way, also to be told its mistakes.

use crate::communicator::Spanning;
use crate::entry::{recv_beyond, send_beyond};
use crate::guard::Guard;
use crate::spanning::{ALL_KINDS, Kinds};
use crate::status::is_ignored;
use crate::vendor::Vendor;
use gridmpi_abi::{Abi, Handle, StatusFields};
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// What a call needs to know, in one cache line. It is for the one ABI that this library is built for.
#[repr(C, align(64))]
struct Way {
    /// On `MPI_COMM_WORLD`: the rank after the last member of this cluster; 0 while the way is closed.
    end: AtomicU32,
    /// The rank of the first member. The others follow it, as their ranks of the vendor's do.
    first: AtomicU32,
    /// Greatest tag. As a number without sign, every `int` that is no tag is greater.
    tag_ub: AtomicU32,
    /// On other communicators: those that may span. All, while the way is closed.
    spanning: AtomicPtr<Kinds>,
    /// What serves `MPI_COMM_WORLD`: the vendor's own where its ranks are the world's.
    world: Pair,
    /// What serves a communicator that lies in the cluster.
    inside: Pair,
}

/// A [`Send`] and a [`Recv`].
struct Pair {
    send: AtomicPtr<c_void>,
    recv: AtomicPtr<c_void>,
}

impl Pair {
    const fn new() -> Self {
        Self { send: AtomicPtr::new(ptr::null_mut()), recv: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Once the way has been open.
    #[inline(always)]
    fn send<A: Abi>(&self) -> Send<A> {
        // SAFETY: set before the way was opened, for the only ABI of this library.
        unsafe { transmute(self.send.load(Relaxed)) }
    }

    /// Once the way has been open.
    #[inline(always)]
    fn recv<A: Abi>(&self) -> Recv<A> {
        // SAFETY: set before the way was opened, for the only ABI of this library.
        unsafe { transmute(self.recv.load(Relaxed)) }
    }

    fn set(&self, send: *const c_void, recv: *const c_void) {
        self.send.store(send.cast_mut(), Relaxed);
        self.recv.store(recv.cast_mut(), Relaxed);
    }
}

type Send<A> = unsafe extern "C" fn(
    *const c_void,
    c_int,
    <A as Abi>::Datatype,
    c_int,
    c_int,
    <A as Abi>::Comm,
) -> c_int;
type Recv<A> = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    <A as Abi>::Datatype,
    c_int,
    c_int,
    <A as Abi>::Comm,
    *mut <A as Abi>::Status,
) -> c_int;

static WAY: Way = Way {
    end: AtomicU32::new(0),
    first: AtomicU32::new(0),
    tag_ub: AtomicU32::new(0),
    spanning: AtomicPtr::new((&raw const ALL_KINDS).cast_mut()),
    world: Pair::new(),
    inside: Pair::new(),
};

/// [`WAY`], without the look into the global offset table that Rust makes for any static of a shared library.
#[inline(always)]
fn way() -> &'static Way {
    #[cfg(target_arch = "x86_64")]
    {
        let way: *const Way;
        // SAFETY: takes an address of this library.
        unsafe {
            std::arch::asm!(
                "lea {way}, [rip + {WAY}]",
                way = out(reg) way,
                WAY = sym WAY,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: the static.
        unsafe { &*way }
    }
    #[cfg(not(target_arch = "x86_64"))]
    &WAY
}

impl Way {
    /// Whether it leads to `peer` of `MPI_COMM_WORLD`. As a number without sign, every `int` that is no rank is at the
    /// end or beyond it.
    #[inline(always)]
    fn leads_to(&self, peer: c_int) -> bool {
        peer.cast_unsigned() < self.end.load(Acquire)
    }

    #[inline(always)]
    fn is_tag(&self, tag: c_int) -> bool {
        tag.cast_unsigned() <= self.tag_ub.load(Relaxed)
    }

    #[inline(always)]
    fn may_span(&self, bits: usize) -> bool {
        // SAFETY: a static, or of a table that is never freed.
        unsafe { &*self.spanning.load(Acquire) }.may_contain(bits)
    }
}

/// The short way of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    end: u32,
    spanning: &'static Kinds,
}

impl Direct {
    /// Describes the way, which stays closed. `None` if the vendor's ranks do not follow the world's.
    pub(crate) fn new<A: Abi>(
        vendor: &Vendor<A>,
        spanning: &'static Kinds,
        world: &Spanning<A>,
        tag_ub: c_int,
    ) -> Option<Self> {
        let members = world.view.shape().neighbours();
        let first = members.first()?.0;
        if !members.iter().zip(first..).all(|(member, expected)| member.0 == expected) {
            return None;
        }
        let end = first.checked_add(u32::try_from(members.len()).ok()?)?;
        let (send, recv) = (vendor.procedure(c"MPI_Send")?, vendor.procedure(c"MPI_Recv")?);
        WAY.inside.set(send, recv);
        if first == 0 {
            WAY.world.set(send, recv);
        } else {
            let (send, recv): (Send<A>, Recv<A>) = (send_renamed::<A>, recv_renamed::<A>);
            WAY.world.set(send as *const c_void, recv as *const c_void);
        }
        WAY.first.store(first, Relaxed);
        WAY.tag_ub.store(tag_ub.cast_unsigned(), Relaxed);
        Some(Self { end, spanning })
    }

    /// `MPI_COMM_WORLD` is known to span.
    pub(crate) fn open(self) {
        WAY.end.store(self.end, Release);
        WAY.spanning.store(ptr::from_ref(self.spanning).cast_mut(), Release);
    }

    /// Calls under way elsewhere may still take it.
    pub(crate) fn close(self) {
        WAY.end.store(0, Release);
        WAY.spanning.store((&raw const ALL_KINDS).cast_mut(), Release);
    }
}

/// `MPI_Send`.
#[inline(always)]
pub(crate) unsafe fn send<A: Abi>(
    buf: *const c_void,
    count: c_int,
    datatype: A::Datatype,
    dest: c_int,
    tag: c_int,
    comm: A::Comm,
) -> c_int {
    if comm != A::comm_world() {
        // SAFETY: the program's call.
        return unsafe { send_inside::<A>(buf, count, datatype, dest, tag, comm) };
    }
    let way = way();
    let is_open = way.leads_to(dest) && way.is_tag(tag);
    let next = if is_open { way.world.send::<A>() } else { send_beyond::<A> };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, dest, tag, comm) }
}

/// `MPI_Recv`.
#[inline(always)]
pub(crate) unsafe fn recv<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> c_int {
    // One call at the end, which then is a jump.
    let next = match way() {
        _ if comm != A::comm_world() => recv_inside::<A>,
        way if way.leads_to(source) && (way.is_tag(tag) || tag == A::ANY_TAG) => {
            way.world.recv::<A>()
        }
        _ => recv_beyond::<A>,
    };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, source, tag, comm, status) }
}

/// `MPI_Send` on another communicator than `MPI_COMM_WORLD`.
#[inline(never)]
unsafe extern "C" fn send_inside<A: Abi>(
    buf: *const c_void,
    count: c_int,
    datatype: A::Datatype,
    dest: c_int,
    tag: c_int,
    comm: A::Comm,
) -> c_int {
    let way = way();
    let next = if way.may_span(comm.bits()) { send_beyond::<A> } else { way.inside.send::<A>() };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, dest, tag, comm) }
}

/// `MPI_Recv` on another communicator than `MPI_COMM_WORLD`.
#[inline(never)]
unsafe extern "C" fn recv_inside<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> c_int {
    let way = way();
    let next = if way.may_span(comm.bits()) { recv_beyond::<A> } else { way.inside.recv::<A>() };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, source, tag, comm, status) }
}

/// The vendor's rank of `peer`, if it is of this cluster and the call is the program's. (Where the ranks are the same it
/// does not matter whose a call is.)
#[inline(always)]
fn rename(peer: c_int) -> Option<c_int> {
    let rank = peer - way().first.load(Relaxed).cast_signed();
    (rank >= 0 && Guard::is_outside()).then_some(rank)
}

/// `MPI_Send` where the vendor's ranks are not the world's.
unsafe extern "C" fn send_renamed<A: Abi>(
    buf: *const c_void,
    count: c_int,
    datatype: A::Datatype,
    dest: c_int,
    tag: c_int,
    comm: A::Comm,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        match rename(dest) {
            Some(rank) => way().inside.send::<A>()(buf, count, datatype, rank, tag, comm),
            None => send_beyond::<A>(buf, count, datatype, dest, tag, comm),
        }
    }
}

/// `MPI_Recv` where the vendor's ranks are not the world's.
unsafe extern "C" fn recv_renamed<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    source: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> c_int {
    let (next, source) = match rename(source) {
        Some(rank) if is_ignored::<A>(status) => (way().inside.recv::<A>(), rank),
        Some(rank) => (recv_with_status::<A> as Recv<A>, rank),
        None => (recv_beyond::<A> as Recv<A>, source),
    };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, source, tag, comm, status) }
}

/// Receives from a rank of the vendor's, and puts the world's into the status.
unsafe extern "C" fn recv_with_status<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    rank: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> c_int {
    // SAFETY: the program's call.
    let code = unsafe { way().inside.recv::<A>()(buf, count, datatype, rank, tag, comm, status) };
    // SAFETY: the program's status, which the vendor just filled.
    let status = unsafe { &mut *status };
    if status.source() == rank {
        status.set_source(rank + way().first.load(Relaxed).cast_signed());
    }
    code
}
