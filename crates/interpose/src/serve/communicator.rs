//! Communicators (MPI 4.1 §7.4): asking, making and freeing those that span clusters.

use super::completion::wait_vendor;
use super::creation::{
    Contexts, Part, Told, checked_count, divide, finish, gather_neighbours, internal, spanning,
};
use super::{group, hints};
use crate::communicator::{Spanning, int};
use crate::error::{Error, Result, check, forward};
use crate::guard::Lift;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass, Handle};
use gridmpi_engine::split::{self, CreateError, SplitEntry};
use gridmpi_engine::{CommComparison, Group};
use gridmpi_wire::Rank;
use std::ffi::c_int;
use std::sync::Arc;

/// `MPI_Comm_size`.
pub unsafe fn comm_size<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    size: *mut c_int,
) -> Result<()> {
    let answer = int(spanning(rt, comm)?.view.size());
    // SAFETY: the program's place.
    unsafe { *size = answer };
    Ok(())
}

/// `MPI_Comm_rank`.
pub unsafe fn comm_rank<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    rank: *mut c_int,
) -> Result<()> {
    let answer = int(spanning(rt, comm)?.rank().0);
    // SAFETY: the program's place.
    unsafe { *rank = answer };
    Ok(())
}

/// `MPI_Comm_group`.
pub unsafe fn comm_group<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    group: *mut A::Group,
) -> Result<()> {
    let made = group::hand_out(rt, spanning(rt, comm)?.view.group().clone())?;
    // SAFETY: the program's place.
    unsafe { *group = made };
    Ok(())
}

/// `MPI_Comm_compare`.
pub unsafe fn comm_compare<A: Abi>(
    rt: &'static Runtime<A>,
    comm1: A::Comm,
    comm2: A::Comm,
    result: *mut c_int,
) -> Result<()> {
    let relation = match (rt.tokens.spanning(comm1), rt.tokens.spanning(comm2)) {
        (Some(one), Some(two)) => relation::<A>(one.view.compare(&two.view)),
        // One spans and the other does not: they have not the same members, if it is one at all.
        (Some(_), None) => unequal_if_valid(rt, comm2)?,
        (None, Some(_)) => unequal_if_valid(rt, comm1)?,
        // SAFETY: the program's arguments.
        (None, None) => return forward(|| unsafe { rt.vendor.comm_compare(comm1, comm2, result) }),
    };
    // SAFETY: the program's place.
    unsafe { *result = relation };
    Ok(())
}

fn relation<A: Abi>(relation: CommComparison) -> c_int {
    match relation {
        CommComparison::Identical => A::IDENT,
        CommComparison::Congruent => A::CONGRUENT,
        CommComparison::Similar => A::SIMILAR,
        CommComparison::Unequal => A::UNEQUAL,
    }
}

fn unequal_if_valid<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> Result<c_int> {
    let mut size = 0;
    // SAFETY: a handle of the program, which the vendor judges, and a place of our own.
    forward(|| unsafe { rt.vendor.comm_size(comm, &raw mut size) })?;
    Ok(A::UNEQUAL)
}

/// `MPI_Comm_dup`.
pub unsafe fn comm_dup<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    newcomm: *mut A::Comm,
) -> Result<()> {
    // SAFETY: the call that is asked for, with the program's communicator.
    let made = duplicate(rt, comm, |token, copy, request| unsafe {
        rt.vendor.comm_idup(token, copy, request)
    })?;
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

/// `MPI_Comm_dup_with_info`. Hints are for the vendor's part, but for those of ours.
pub unsafe fn comm_dup_with_info<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    info: A::Info,
    newcomm: *mut A::Comm,
) -> Result<()> {
    // SAFETY: the call that is asked for, with the program's communicator and info.
    let made = duplicate(rt, comm, |token, copy, request| unsafe {
        if rt.vendor.has_comm_idup_with_info() {
            rt.vendor.comm_idup_with_info(token, info, copy, request)
        } else {
            rt.vendor.comm_dup_with_info(token, info, copy)
        }
    })?;
    // SAFETY: a live communicator, and the info object that the vendor has just accepted.
    unsafe { hints::follow(rt, made, info) };
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

/// The vendor duplicates the token, attributes and all; copy callbacks of the program run in it. The
/// nonblocking form lets us yield while it waits, which counts where ranks outnumber cores, and lets held receives move, also on a
/// communicator of one cluster; `copy` may leave the request null.
fn duplicate<A: Abi>(
    rt: &Runtime<A>,
    comm: A::Comm,
    copy: impl FnOnce(A::Comm, *mut A::Comm, *mut A::Request) -> c_int,
) -> Result<A::Comm> {
    let old = rt.tokens.spanning(comm);
    let view = old.as_ref().map(|old| {
        let context = Contexts::agree(rt, old)?.of(Rank(0));
        Ok(old.view.duplicate(context))
    });
    let view = view.transpose()?;
    // The vendor fills it later; if that is never told, it stays for ever.
    let token = Box::into_raw(Box::new(A::comm_null()));
    let mut request = A::request_null();
    {
        let _lift = Lift::new();
        check(copy(comm, token, &raw mut request))?;
    }
    wait_vendor(rt, request)?;
    // SAFETY: made above, and nobody else's any more.
    let token = *unsafe { Box::from_raw(token) };
    Ok(view.map_or(token, |view| rt.adopt(Spanning::new(token, view))))
}

/// `MPI_Comm_split`.
pub unsafe fn comm_split<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    color: c_int,
    key: c_int,
    newcomm: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm)?;
    let own = words(SplitEntry {
        color: color_of::<A>(color)?,
        key,
        reserved: rt.job().reserve_context(),
    });
    let told = Told::gather(rt, &old, own)?;
    let entries = told.all().iter().map(entry).collect::<Result<Vec<_>>>()?;
    let new = split::split(old.view.group(), &entries, old.rank());
    let made = divide(rt, &old, new.map(|new| Part { new, color }), None)?;
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

/// No colour at all, among words; colours are not negative.
const NO_COLOR: u32 = u32::MAX;

fn words(entry: SplitEntry) -> [u32; 3] {
    [entry.color.unwrap_or(NO_COLOR), entry.key.cast_unsigned(), entry.reserved]
}

fn entry(&[color, key, reserved]: &[u32; 3]) -> Result<SplitEntry> {
    Ok(SplitEntry {
        color: (color != NO_COLOR).then_some(color),
        key: key.cast_signed(),
        reserved: checked_count(reserved)?,
    })
}

fn color_of<A: Abi>(color: c_int) -> Result<Option<u32>> {
    if color == A::UNDEFINED {
        return Ok(None);
    }
    let known = u32::try_from(color);
    known.map(Some).map_err(|_| {
        Error::new(ErrorClass::Arg, format!("the color {color} of a split is negative"))
    })
}

/// `MPI_Comm_split_type`: what shares hardware, or anything else that a vendor knows to split by, is in
/// one cluster, and the token has the members there in the order of their ranks.
pub unsafe fn comm_split_type<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    split_type: c_int,
    key: c_int,
    info: A::Info,
    newcomm: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm)?;
    gather_neighbours(rt, &old)?;
    // SAFETY: the program's arguments.
    forward(|| unsafe { rt.vendor.comm_split_type(old.token, split_type, key, info, newcomm) })
}

/// `MPI_Comm_create`.
pub unsafe fn comm_create<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    group: A::Group,
    newcomm: *mut A::Comm,
) -> Result<()> {
    let old = wider_than_group(rt, comm)?;
    let group = group::lift(rt, group)?;
    let member = split::create(old.view.group(), &group, rt.job().me).map_err(|e| refused(&e))?;
    let contexts = Contexts::agree(rt, &old)?;
    let part = if member { Some(part_of(old.view.group(), &group, &contexts)?) } else { None };
    let made = divide(rt, &old, part, None)?;
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

/// The communicator to make another from. The call came to us because it or the group is ours; a group of
/// ours has members in other clusters.
fn wider_than_group<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> Result<Arc<Spanning<A>>> {
    if comm == A::comm_null() {
        return Err(Error::new(ErrorClass::Comm, "MPI_COMM_NULL has no processes"));
    }
    rt.tokens.spanning(comm).map(|found| found.to_arc()).ok_or_else(|| {
        let message = "the group has processes in other clusters, and the communicator has not";
        Error::new(ErrorClass::Group, message)
    })
}

/// `group`, not empty and within `old`, as a part of it.
fn part_of(old: &Group, group: &Group, contexts: &Contexts) -> Result<Part> {
    let ranks: Option<Vec<Rank>> = group.procs().iter().map(|&proc| old.rank(proc)).collect();
    let ranks = ranks.ok_or_else(|| internal("a group that was within its communicator is not"))?;
    Ok(Part::of_ranks(old, &ranks, contexts))
}

pub(super) fn refused(error: &CreateError) -> Error {
    Error::new(ErrorClass::Group, error.to_string())
}

/// `MPI_Comm_create_group`.
pub unsafe fn comm_create_group<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    group: A::Group,
    tag: c_int,
    newcomm: *mut A::Comm,
) -> Result<()> {
    let old = wider_than_group(rt, comm)?;
    let group = group::lift(rt, group)?;
    rt.job().check_tag(tag)?;
    split::create_group(old.view.group(), &group, rt.job().me).map_err(|e| refused(&e))?;
    let (token, new) = super::create_group::meet(rt, &old, &group, tag)?;
    let made = finish(rt, token, new, None)?;
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

/// `MPI_Comm_free`. The token lives on as long as operations use it (MPI 4.1 §7.4.3).
pub unsafe fn comm_free<A: Abi>(rt: &'static Runtime<A>, comm: *mut A::Comm) -> Result<()> {
    // SAFETY: the program's handle.
    let handle = unsafe { *comm };
    if handle == A::comm_world() || handle == A::comm_self() {
        return Err(Error::new(ErrorClass::Comm, "a predefined communicator cannot be freed"));
    }
    if !rt.tokens.retire_communicator(handle) {
        return Err(Error::new(ErrorClass::Comm, "the communicator was freed before"));
    }
    reap(rt)?;
    // SAFETY: the program's handle.
    unsafe { *comm = A::comm_null() };
    Ok(())
}

/// Frees what the program gave back and nothing uses any more: at once, or when the last request on it has ended. No lock of ours
/// may be held.
pub(crate) fn reap<A: Abi>(rt: &Runtime<A>) -> Result<()> {
    rt.tokens.unused_communicators().iter().try_for_each(|unused| free(rt, unused))
}

/// Frees the token. Delete callbacks of the program run in it and may use the communicator, so it is
/// forgotten afterwards; but another thread may be given the handle before the vendor has returned to this one.
fn free<A: Abi>(rt: &Runtime<A>, unused: &Arc<Spanning<A>>) -> Result<()> {
    let mut token = unused.token;
    // SAFETY: a token of ours that neither the program nor an operation holds.
    let free = || forward(|| unsafe { rt.vendor.comm_free(&raw mut token) });
    rt.tokens.free_communicator(unused, free, || rt.spanning.remove(unused.token.bits()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::spans;
    use crate::vendor::Vendor;
    use gridmpi_abi::{Handle, Mpich, OpenMpi};
    use gridmpi_engine::{Communicator, JobMap};
    use gridmpi_wire::ProcId;
    use std::ffi::c_void;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static RT: OnceLock<&'static Runtime<Mpich>> = OnceLock::new();
    /// Calls of [`free`] that have looked around.
    static FREED: AtomicUsize = AtomicUsize::new(0);

    fn adopt(rt: &Runtime<Mpich>, token: <Mpich as Abi>::Comm) {
        let map = JobMap::contiguous([("a".into(), 1), ("b".into(), 1)]);
        let view = Communicator::world(ProcId(0), &map).unwrap();
        rt.adopt(Spanning::new(token, view));
    }

    fn is_known(token: <Mpich as Abi>::Comm) -> [bool; 2] {
        let rt = RT.get().unwrap();
        [spans(rt, token), rt.tokens.spanning(token).is_some()]
    }

    /// Where delete callbacks run, and the vendor may have given the handle to another thread. The second time that thread's communicator
    /// spans clusters.
    unsafe extern "C" fn vendors_free(comm: *mut <Mpich as Abi>::Comm) -> c_int {
        let token = unsafe { *comm };
        assert_eq!(is_known(token), [true; 2]);
        let other = std::thread::spawn(move || {
            assert_eq!(is_known(token), [false; 2]);
            if FREED.fetch_add(1, Relaxed) == 1 {
                adopt(RT.get().unwrap(), token);
                assert_eq!(is_known(token), [true; 2]);
            }
        });
        c_int::from(other.join().is_err())
    }

    #[test]
    fn a_handle_that_the_vendor_frees_means_what_it_did_to_nobody_else() {
        let free = (c"MPI_Comm_free", vendors_free as *const c_void);
        let rt = Runtime::<Mpich>::over(unsafe { Vendor::of(&[free]) });
        let rt = *RT.get_or_init(|| Box::leak(Box::new(rt)));
        let token = Handle::from_bits(0x8400_0001);
        adopt(rt, token);
        assert!(rt.tokens.retire_communicator(token));
        assert_eq!(reap(rt), Ok(()));
        assert_eq!(is_known(token), [false; 2]);

        adopt(rt, token);
        assert!(rt.tokens.retire_communicator(token));
        assert_eq!(reap(rt), Ok(()));
        assert_eq!(is_known(token), [true; 2], "the other thread's");
        assert_eq!((FREED.load(Relaxed), rt.tokens.are_being_freed()), (2, false));
    }

    #[test]
    fn split_entries_cross_between_abis() {
        let entries = [
            SplitEntry { color: Some(0), key: -1, reserved: 3 },
            SplitEntry { color: Some(i32::MAX as u32), key: i32::MIN, reserved: 1 },
            SplitEntry { color: None, key: 0, reserved: 9 },
        ];
        for one in entries {
            assert_eq!(entry(&words(one)), Ok(one));
        }
        assert!(entry(&[0, 0, u32::MAX]).is_err());
    }

    #[test]
    fn colors_are_undefined_or_not_negative() {
        assert_eq!(color_of::<Mpich>(Mpich::UNDEFINED), Ok(None));
        assert_eq!(color_of::<OpenMpi>(OpenMpi::UNDEFINED), Ok(None));
        assert_eq!(color_of::<Mpich>(0), Ok(Some(0)));
        assert!(color_of::<Mpich>(-1).is_err());
    }

    #[test]
    fn groups_become_parts_in_their_own_order() {
        let group = |procs: &[u32]| Group::new(procs.iter().copied().map(gridmpi_wire::ProcId));
        let old = group(&[5, 3, 8]);
        let contexts = Contexts::of_counts(&old, [1, 2, 3].into_iter()).unwrap();
        let part = part_of(&old, &group(&[8, 5]), &contexts).unwrap();
        assert_eq!((part.new.group, part.color), (group(&[8, 5]), 2));
        assert!(part_of(&old, &group(&[4]), &contexts).is_err());
    }
}
