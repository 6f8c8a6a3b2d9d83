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
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// What a call needs to know, in one cache line. It is for the one ABI that this library is built for.
#[repr(C, align(64))]
struct Way {
    /// `MPI_COMM_WORLD`, once the way has been open.
    world: AtomicUsize,
    /// Below: the rank on `MPI_COMM_WORLD` of the first member of this cluster; the others follow it, as their ranks of the
    /// vendor's do. Above: how many members there are; 0 while the way is closed.
    members: AtomicUsize,
    /// Greatest tag. As a number without sign, every `int` that is no tag is greater.
    tag_ub: AtomicUsize,
    /// On other communicators: those that may span, as a pointer to [`Kinds`]. All, while the way is closed.
    spanning: AtomicPtr<Kinds>,
    /// The vendor's [`Send`] and [`Recv`].
    send: AtomicPtr<c_void>,
    recv: AtomicPtr<c_void>,
}

/// What [`Way::members`] says of the first member.
const FIRST: usize = 0xFFFF_FFFF;

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
    world: AtomicUsize::new(0),
    members: AtomicUsize::new(0),
    tag_ub: AtomicUsize::new(0),
    spanning: AtomicPtr::new((&raw const ALL_KINDS).cast_mut()),
    send: AtomicPtr::new(ptr::null_mut()),
    recv: AtomicPtr::new(ptr::null_mut()),
};

/// What a field of [`WAY`] says. By a single instruction, where Rust makes three for a static of a shared library.
#[cfg(target_arch = "x86_64")]
macro_rules! way {
    ($field:ident) => {{
        let value: usize;
        // SAFETY: reads a word of the static. Every load of this machine acquires.
        #[allow(unused_unsafe, reason = "where it is used in an unsafe block")]
        unsafe {
            std::arch::asm!(
                "mov {value}, qword ptr [rip + {WAY} + {FIELD}]",
                value = out(reg) value,
                WAY = sym WAY,
                FIELD = const std::mem::offset_of!(Way, $field),
                options(readonly, nostack, preserves_flags),
            );
        }
        value
    }};
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! way {
    ($field:ident) => {
        WAY.$field.load(std::sync::atomic::Ordering::Acquire) as usize
    };
}

/// The vendor's rank of `peer` of `MPI_COMM_WORLD`, if the way leads there. As a number without sign, every `int` that is
/// not the rank of a member is as great as their number or greater.
#[inline(always)]
fn rank_of(peer: c_int) -> Option<c_int> {
    let members = way!(members);
    let rank = peer.cast_unsigned().wrapping_sub(members as u32);
    (rank < (members >> 32) as u32).then_some(rank.cast_signed())
}

/// The rank on `MPI_COMM_WORLD` of the first member.
#[inline(always)]
fn first() -> c_int {
    (way!(members) as u32).cast_signed()
}

#[inline(always)]
fn is_world<A: Abi>(comm: A::Comm) -> bool {
    comm.bits() == way!(world)
}

#[inline(always)]
fn is_tag(tag: c_int) -> bool {
    tag.cast_unsigned() <= way!(tag_ub) as u32
}

#[inline(always)]
fn may_span(bits: usize) -> bool {
    // SAFETY: a static, or of a table that is never freed.
    unsafe { &*(way!(spanning) as *const Kinds) }.may_contain(bits)
}

/// The vendor's, once the way has been open.
#[inline(always)]
fn vendor_send<A: Abi>() -> Send<A> {
    // SAFETY: set before the way was opened, for the only ABI of this library.
    unsafe { transmute(way!(send)) }
}

/// The vendor's, once the way has been open.
#[inline(always)]
fn vendor_recv<A: Abi>() -> Recv<A> {
    // SAFETY: set before the way was opened, for the only ABI of this library.
    unsafe { transmute(way!(recv)) }
}

/// The short way of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    /// As in [`Way`], open.
    members: usize,
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
        let members = first as usize | members.len() << 32;
        let (send, recv) = (vendor.procedure(c"MPI_Send")?, vendor.procedure(c"MPI_Recv")?);
        WAY.send.store(send.cast_mut(), Relaxed);
        WAY.recv.store(recv.cast_mut(), Relaxed);
        WAY.members.store(members & FIRST, Relaxed);
        WAY.tag_ub.store(tag_ub.cast_unsigned() as usize, Relaxed);
        WAY.world.store(A::comm_world().bits(), Release);
        Some(Self { members, spanning })
    }

    /// `MPI_COMM_WORLD` is known to span.
    pub(crate) fn open(self) {
        WAY.members.store(self.members, Release);
        WAY.spanning.store(ptr::from_ref(self.spanning).cast_mut(), Release);
    }

    /// Calls under way elsewhere may still take it.
    pub(crate) fn close(self) {
        WAY.members.fetch_and(FIRST, Release);
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
    if !is_world::<A>(comm) {
        // SAFETY: the program's call.
        return unsafe { send_inside::<A>(buf, count, datatype, dest, tag, comm) };
    }
    // One call at the end, which then is a jump.
    let (next, dest) = match rank_of(dest) {
        // The vendor's own calls mean its ranks.
        Some(rank) if is_tag(tag) && Guard::is_outside() => (vendor_send::<A>(), rank),
        _ => (send_beyond::<A> as Send<A>, dest),
    };
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
    let (next, source) = if is_world::<A>(comm) {
        match rank_of(source) {
            Some(rank) if is_tag(tag) || tag == A::ANY_TAG => {
                (if first() == 0 { vendor_recv::<A>() } else { recv_renamed::<A> }, rank)
            }
            _ => (recv_beyond::<A> as Recv<A>, source),
        }
    } else {
        (recv_inside::<A> as Recv<A>, source)
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
    let next = if may_span(comm.bits()) { send_beyond::<A> } else { vendor_send::<A>() };
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
    let next = if may_span(comm.bits()) { recv_beyond::<A> } else { vendor_recv::<A>() };
    // SAFETY: the program's call.
    unsafe { next(buf, count, datatype, source, tag, comm, status) }
}

/// `MPI_Recv` from a rank of the vendor's that is not the world's. A call that is the vendor's own meant the rank it said.
/// (Where the ranks are the same it does not matter whose a call is.)
unsafe extern "C" fn recv_renamed<A: Abi>(
    buf: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
    rank: c_int,
    tag: c_int,
    comm: A::Comm,
    status: *mut A::Status,
) -> c_int {
    let (next, source) = if !Guard::is_outside() {
        (recv_beyond::<A> as Recv<A>, first() + rank)
    } else if is_ignored::<A>(status) {
        (vendor_recv::<A>(), rank)
    } else {
        (recv_with_status::<A> as Recv<A>, rank)
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
    let code = unsafe { vendor_recv::<A>()(buf, count, datatype, rank, tag, comm, status) };
    // SAFETY: the program's status, which the vendor just filled.
    let status = unsafe { &mut *status };
    if status.source() == rank {
        status.set_source(first() + rank);
    }
    code
}
