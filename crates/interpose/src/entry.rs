//! One generic function for each exported procedure, generated from `api/`, and what they share.
//!
//! A call that is inert, nested, or meets nothing of ours costs a relaxed load, a thread-local word and at most one
//! look-up, and goes to the vendor with its arguments as they came. Where the vendor makes no calls of its own from
//! inside (`plain` in `api/policy.toml`), the look-up alone decides, inside the exported symbol.

use crate::error::{finish, refuse};
use crate::guard::Guard;
use crate::{CountOut, Counts, Runtime, direct, matb, serve};
use gridmpi_abi::{Abi, Aint, Count, Handle};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;

/// The guard, if the library is at work and the call is the program's.
#[inline]
pub(crate) fn enter<A: Abi>(rt: &Runtime<A>) -> Option<Guard> {
    if rt.is_active() { Guard::enter() } else { None }
}

#[inline]
pub(crate) fn spans<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> bool {
    let look_closer = rt.tokens.are_being_freed();
    rt.spanning.contains(comm.bits()) && (!look_closer || rt.tokens.spanning(comm).is_some())
}

/// False: it does not span. True: look closer.
#[inline(always)]
fn may_span<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> bool {
    rt.spanning.kinds().may_contain(comm.bits())
}

#[inline]
fn owns_group<A: Abi>(rt: &Runtime<A>, group: A::Group) -> bool {
    rt.live_groups() != 0 && rt.owns_group(group.bits())
}

#[inline]
fn owns_request<A: Abi>(rt: &Runtime<A>, request: A::Request) -> bool {
    rt.live_requests() != 0 && rt.owns_request(request.bits())
}

#[inline]
fn names_rate<A: Abi>(_: &Runtime<A>, keyval: c_int) -> bool {
    matb::is_key(keyval)
}

/// Whether one of `count` handles at `handles` is ours. Null is for the vendor to find fault with.
unsafe fn any<A: Abi, H: Handle>(
    rt: &Runtime<A>,
    handles: *const H,
    count: c_int,
    ours: impl Fn(&Runtime<A>, H) -> bool,
) -> bool {
    let count = if handles.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    // SAFETY: the program gave an array of that length.
    (0..count).any(|index| ours(rt, unsafe { *handles.add(index) }))
}

include!(concat!(env!("OUT_DIR"), "/entry.rs"));
