//! Groups (MPI 4.1 §7.3). A group with members in other clusters is ours, and its token a group of the
//! vendor's that contains this process alone; every other group is the vendor's.

use crate::communicator::int;
use crate::error::{Error, Result, check, forward};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_engine::{Comparison, Group, GroupError, RankRange};
use gridmpi_wire::{ProcId, Rank};
use std::ffi::c_int;
use std::sync::Arc;

/// The group behind a token of ours.
fn ours<A: Abi>(rt: &Runtime<A>, group: A::Group) -> Option<Arc<Group>> {
    rt.tokens.groups.with(group, |ours| Arc::clone(ours))
}

/// Both groups, if one of them is ours.
fn pair<A: Abi>(
    rt: &Runtime<A>,
    one: A::Group,
    two: A::Group,
) -> Result<Option<(Arc<Group>, Arc<Group>)>> {
    match (ours(rt, one), ours(rt, two)) {
        (None, None) => Ok(None),
        (Some(one), Some(two)) => Ok(Some((one, two))),
        (Some(one), None) => Ok(Some((one, Arc::new(lift_vendor(rt, two)?)))),
        (None, Some(two)) => Ok(Some((Arc::new(lift_vendor(rt, one)?), two))),
    }
}

/// The members of any group of the program.
///
/// # Errors
/// `MPI_ERR_GROUP` for the null group and one with processes that are not of the job.
pub(super) fn lift<A: Abi>(rt: &Runtime<A>, group: A::Group) -> Result<Arc<Group>> {
    match ours(rt, group) {
        Some(group) => Ok(group),
        None => lift_vendor(rt, group).map(Arc::new),
    }
}

fn lift_vendor<A: Abi>(rt: &Runtime<A>, group: A::Group) -> Result<Group> {
    if group == A::group_null() {
        return Err(Error::new(ErrorClass::Group, "MPI_GROUP_NULL is not a group"));
    }
    let mut size = 0;
    // SAFETY: a group of the vendor's and a place of our own.
    check(unsafe { rt.vendor.group_size(group, &raw mut size) })?;
    let ranks: Vec<c_int> = (0..size).collect();
    let mut world_ranks = vec![A::UNDEFINED; ranks.len()];
    let world = rt.job().vendor_world;
    // SAFETY: two groups of the vendor's and two arrays of that length.
    check(unsafe {
        rt.vendor.group_translate_ranks(
            group,
            size,
            ranks.as_ptr(),
            world,
            world_ranks.as_mut_ptr(),
        )
    })?;
    let procs: Option<Vec<_>> =
        world_ranks.into_iter().map(|rank| proc_of_vendor_rank(rt, rank)).collect();
    let procs = procs.ok_or_else(|| {
        Error::new(ErrorClass::Group, "the group has a process that is not in the job's world")
    })?;
    Ok(Group::new(procs))
}

/// The process of this cluster that has this rank in the vendor's world.
fn proc_of_vendor_rank<A: Abi>(rt: &Runtime<A>, rank: c_int) -> Option<ProcId> {
    let job = rt.job();
    let cluster = job.map.cluster_of(job.me);
    let procs = &job.map.clusters()[usize::from(cluster.0)].procs;
    usize::try_from(rank).ok().and_then(|rank| procs.get(rank)).copied()
}

/// The ranks in the vendor's world of those of `procs` that are in this cluster, in their order.
pub(super) fn vendor_ranks<A: Abi>(rt: &Runtime<A>, procs: &[ProcId]) -> Vec<c_int> {
    let job = rt.job();
    let here = job.map.cluster_of(job.me);
    let local = procs.iter().filter(|&&proc| job.map.cluster_of(proc) == here);
    local.map(|&proc| int(job.map.vendor_rank_of(proc))).collect()
}

/// A fresh group of the vendor's of these ranks of its world.
pub(super) fn vendor_group<A: Abi>(rt: &Runtime<A>, ranks: &[c_int]) -> Result<A::Group> {
    let mut group = A::group_null();
    let count = length(ranks.len());
    // SAFETY: an array of that length and a place of our own.
    check(unsafe {
        rt.vendor.group_incl(rt.job().vendor_world, count, ranks.as_ptr(), &raw mut group)
    })?;
    Ok(group)
}

/// The handle that the program gets for `group`.
pub(super) fn hand_out<A: Abi>(rt: &Runtime<A>, group: Group) -> Result<A::Group> {
    // Of an empty group, too, the vendor makes a handle: the program may free it, and Open MPI counts.
    let local = vendor_ranks(rt, group.procs());
    if local.len() == group.procs().len() {
        return vendor_group(rt, &local);
    }
    let job = rt.job();
    let token = vendor_group(rt, &[int(job.map.vendor_rank_of(job.me))])?;
    rt.tokens.groups.insert(token, Arc::new(group));
    Ok(token)
}

fn length(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

fn erroneous(error: GroupError) -> Error {
    let class = match error {
        GroupError::Rank { .. } | GroupError::Duplicate(_) => ErrorClass::Rank,
        GroupError::ZeroStride(_) | GroupError::WrongWay(_) => ErrorClass::Arg,
    };
    Error::new(class, error.to_string())
}

/// An array argument of the program with its length.
///
/// # Errors
/// `MPI_ERR_ARG` for a negative length.
///
/// # Safety
/// The array has `n` elements; it is not looked at if `n` is 0.
pub(super) unsafe fn array<'a, T>(first: *const T, n: c_int) -> Result<&'a [T]> {
    let len = usize::try_from(n).map_err(|_| {
        Error::new(ErrorClass::Arg, format!("the length {n} of an array is negative"))
    })?;
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Error::new(ErrorClass::Arg, format!("a null array of {n} elements")));
    }
    // SAFETY: as this function's.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// `MPI_Group_size`.
pub unsafe fn group_size<A: Abi>(
    rt: &'static Runtime<A>,
    group: A::Group,
    size: *mut c_int,
) -> Result<()> {
    match ours(rt, group) {
        Some(group) => {
            // SAFETY: the program's place.
            unsafe { *size = int(group.size()) };
            Ok(())
        }
        // SAFETY: the program's arguments.
        None => forward(|| unsafe { rt.vendor.group_size(group, size) }),
    }
}

/// `MPI_Group_rank`.
pub unsafe fn group_rank<A: Abi>(
    rt: &'static Runtime<A>,
    group: A::Group,
    rank: *mut c_int,
) -> Result<()> {
    match ours(rt, group) {
        Some(group) => {
            let own = group.rank(rt.job().me);
            // SAFETY: the program's place.
            unsafe { *rank = own.map_or(A::UNDEFINED, |rank| int(rank.0)) };
            Ok(())
        }
        // SAFETY: the program's arguments.
        None => forward(|| unsafe { rt.vendor.group_rank(group, rank) }),
    }
}

/// The ranks in `two` of `ranks` in `one`; `MPI_PROC_NULL` stays.
fn translate<A: Abi>(one: &Group, ranks: &[c_int], two: &Group) -> Result<Vec<c_int>> {
    let real: Vec<c_int> = ranks.iter().copied().filter(|&rank| rank != A::PROC_NULL).collect();
    let translated = one.translate(&real, two).map_err(erroneous)?;
    let mut translated = translated.into_iter();
    let there = |rank: Option<Rank>| rank.map_or(A::UNDEFINED, |rank| int(rank.0));
    let each = ranks
        .iter()
        .map(|&rank| if rank == A::PROC_NULL { rank } else { there(translated.next().flatten()) });
    Ok(each.collect())
}

/// `MPI_Group_translate_ranks`.
pub unsafe fn group_translate_ranks<A: Abi>(
    rt: &'static Runtime<A>,
    group1: A::Group,
    n: c_int,
    ranks1: *const c_int,
    group2: A::Group,
    ranks2: *mut c_int,
) -> Result<()> {
    let Some((one, two)) = pair(rt, group1, group2)? else {
        // SAFETY: the program's arguments.
        return forward(|| unsafe {
            rt.vendor.group_translate_ranks(group1, n, ranks1, group2, ranks2)
        });
    };
    // SAFETY: the program's array.
    let translated = translate::<A>(&one, unsafe { array(ranks1, n)? }, &two)?;
    // SAFETY: the program's second array is as long as the first.
    unsafe { ranks2.copy_from(translated.as_ptr(), translated.len()) };
    Ok(())
}

/// `MPI_Group_compare`.
pub unsafe fn group_compare<A: Abi>(
    rt: &'static Runtime<A>,
    group1: A::Group,
    group2: A::Group,
    result: *mut c_int,
) -> Result<()> {
    let Some((one, two)) = pair(rt, group1, group2)? else {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.group_compare(group1, group2, result) });
    };
    let relation = match one.compare(&two) {
        Comparison::Identical => A::IDENT,
        Comparison::Similar => A::SIMILAR,
        Comparison::Unequal => A::UNEQUAL,
    };
    // SAFETY: the program's place.
    unsafe { *result = relation };
    Ok(())
}

/// The three procedures that combine two groups differ in the operation alone.
macro_rules! combinations {
    ($($procedure:ident: $operation:ident;)*) => {$(
        #[doc = concat!("`MPI_", stringify!($procedure), "`.")]
        pub unsafe fn $procedure<A: Abi>(
            rt: &'static Runtime<A>, group1: A::Group, group2: A::Group, newgroup: *mut A::Group,
        ) -> Result<()> {
            let Some((one, two)) = pair(rt, group1, group2)? else {
                // SAFETY: the program's arguments.
                return forward(|| unsafe { rt.vendor.$procedure(group1, group2, newgroup) });
            };
            let made = hand_out(rt, one.$operation(&two))?;
            // SAFETY: the program's place.
            unsafe { *newgroup = made };
            Ok(())
        }
    )*};
}

combinations! {
    group_union: union;
    group_intersection: intersection;
    group_difference: difference;
}

/// The four procedures that choose members differ in the operation and in how members are named.
macro_rules! selections {
    ($($procedure:ident: $operation:ident($element:ty) by $convert:expr;)*) => {$(
        #[doc = concat!("`MPI_", stringify!($procedure), "`.")]
        pub unsafe fn $procedure<A: Abi>(
            rt: &'static Runtime<A>, group: A::Group, n: c_int, chosen: *const $element, newgroup: *mut A::Group,
        ) -> Result<()> {
            let Some(ours) = ours(rt, group) else {
                // SAFETY: the program's arguments.
                return forward(|| unsafe { rt.vendor.$procedure(group, n, chosen, newgroup) });
            };
            // SAFETY: the program's array.
            let chosen: Vec<_> = unsafe { array(chosen, n)? }.iter().map($convert).collect();
            let made = hand_out(rt, ours.$operation(&chosen).map_err(erroneous)?)?;
            // SAFETY: the program's place.
            unsafe { *newgroup = made };
            Ok(())
        }
    )*};
}

selections! {
    group_incl: incl(c_int) by |&rank| rank;
    group_excl: excl(c_int) by |&rank| rank;
    group_range_incl: range_incl([c_int; 3]) by range;
    group_range_excl: range_excl([c_int; 3]) by range;
}

fn range(&[first, last, stride]: &[c_int; 3]) -> RankRange {
    RankRange { first, last, stride }
}

/// `MPI_Group_free`.
pub unsafe fn group_free<A: Abi>(rt: &'static Runtime<A>, group: *mut A::Group) -> Result<()> {
    // SAFETY: the program's handle. Forgotten first, since the vendor may use a freed one again at once.
    rt.tokens.groups.remove(unsafe { *group });
    // SAFETY: the program's handle.
    forward(|| unsafe { rt.vendor.group_free(group) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_abi::Mpich;

    fn group(procs: &[u32]) -> Group {
        Group::new(procs.iter().copied().map(ProcId))
    }

    #[test]
    fn translation_passes_proc_null_and_marks_strangers() {
        let null = Mpich::PROC_NULL;
        let ranks = [2, null, 0, 1, null];
        let translated = translate::<Mpich>(&group(&[7, 3, 5]), &ranks, &group(&[5, 7])).unwrap();
        assert_eq!(translated, [0, null, 1, Mpich::UNDEFINED, null]);
    }

    #[test]
    fn translation_of_no_rank_is_erroneous() {
        let error = translate::<Mpich>(&group(&[7, 3]), &[0, 2], &group(&[7])).unwrap_err();
        assert_eq!(error.code::<Mpich>(), Mpich::error_class(ErrorClass::Rank));
    }

    #[test]
    fn arrays_may_be_null_only_when_empty() {
        // SAFETY: nothing is there to look at.
        unsafe {
            assert_eq!(array::<c_int>(std::ptr::null(), 0), Ok(&[][..]));
            assert!(array::<c_int>(std::ptr::null(), 1).is_err());
            assert!(array::<c_int>(std::ptr::null(), -1).is_err());
        }
    }

    #[test]
    fn errors_have_the_classes_of_the_standard() {
        let class = |error| match erroneous(error) {
            Error::Ours { class, .. } => class,
            Error::Vendor(_) => unreachable!(),
        };
        assert_eq!(class(GroupError::Duplicate(Rank(1))), ErrorClass::Rank);
        assert_eq!(class(GroupError::ZeroStride(0)), ErrorClass::Arg);
    }
}
