//! New communicators out of old ones (MPI 4.1 §7.4.2): who is in, in which order, on which context.
//!
//! Whatever the processes must tell each other first is gathered elsewhere; here is the computation
//! that each of them does on it and that gives all of them the same result.

use gridmpi_wire::{ContextId, ProcId, Rank};
use thiserror::Error;

use crate::group::Group;

/// What one process tells the others for `MPI_Comm_split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitEntry {
    /// Processes of one colour come together; `None` for `MPI_UNDEFINED`.
    pub color: Option<u32>,
    /// Orders the processes of one colour.
    pub key: i32,
    /// A context of this process's own count (see [`ContextId::reserved`]), free for a new communicator
    /// should this process become its rank 0.
    pub reserved: u32,
}

/// The members and the context of a new communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommunicator {
    /// Its members.
    pub group: Group,
    /// Its context, of the counter of its rank 0.
    pub context: ContextId,
}

/// Why a communicator cannot be created of a group; the program is at fault (`MPI_ERR_GROUP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateError {
    /// The group has a member that the communicator has not.
    #[error("process {} of the group is not in the communicator", .0.0)]
    NotASubgroup(ProcId),
    /// `MPI_Comm_create_group` was called by a process that is not in the group.
    #[error("the calling process is not in the group")]
    NotAMember,
}

/// What rank `me` of `group` gets of `MPI_Comm_split`: processes of its colour by key, equal keys by old
/// rank. `None` for `MPI_UNDEFINED`. `entries` has what each rank told.
///
/// # Panics
/// If `entries` are not one for each rank or `me` is none of them.
#[must_use]
pub fn split(group: &Group, entries: &[SplitEntry], me: Rank) -> Option<NewCommunicator> {
    assert_eq!(entries.len(), group.procs().len(), "one entry for each rank");
    let color = entries[me.0 as usize].color?;
    let members = group.procs().iter().zip(entries);
    let mut members: Vec<_> = members.filter(|(_, entry)| entry.color == Some(color)).collect();
    members.sort_by_key(|(_, entry)| entry.key); // stable: equal keys stay in old order
    let (first, entry) = members[0];
    let context = ContextId::reserved(*first, entry.reserved);
    Some(NewCommunicator { group: Group::new(members.iter().map(|(proc, _)| **proc)), context })
}

/// What `me`, a member of `old`, gets of `MPI_Comm_create` with `group`: whether it is in the new
/// communicator. Processes may name different groups if these are disjoint (MPI 4.1 §7.4.2); rank 0 of
/// each reserves its context.
///
/// # Errors
/// [`CreateError::NotASubgroup`].
pub fn create(old: &Group, group: &Group, me: ProcId) -> Result<bool, CreateError> {
    match group.difference(old).procs().first() {
        Some(stranger) => Err(CreateError::NotASubgroup(*stranger)),
        None => Ok(group.rank(me).is_some()),
    }
}

/// Checks the arguments of `MPI_Comm_create_group`, which only members of `group` call.
///
/// # Errors
/// [`CreateError`].
pub fn create_group(old: &Group, group: &Group, me: ProcId) -> Result<(), CreateError> {
    if create(old, group, me)? { Ok(()) } else { Err(CreateError::NotAMember) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(procs: &[u32]) -> Group {
        Group::new(procs.iter().copied().map(ProcId))
    }

    fn entry(color: u32, key: i32) -> SplitEntry {
        SplitEntry { color: Some(color), key, reserved: 1 }
    }

    #[test]
    fn equal_keys_keep_their_old_order() {
        let entries = [entry(7, 5), entry(7, -1), entry(3, 0), entry(7, 5)];
        let new = split(&group(&[9, 4, 6, 2]), &entries, Rank(3)).unwrap();
        assert_eq!(new.group, group(&[4, 9, 2]));
        assert_eq!(new.context, ContextId::reserved(ProcId(4), 1));
    }

    #[test]
    fn undefined_gets_nothing() {
        let entries = [SplitEntry { color: None, ..entry(0, 0) }, entry(0, 0)];
        assert_eq!(split(&group(&[0, 1]), &entries, Rank(0)), None);
        assert_eq!(split(&group(&[0, 1]), &entries, Rank(1)).unwrap().group, group(&[1]));
    }

    #[test]
    fn groups_must_be_within_the_communicator() {
        let old = group(&[1, 2, 3]);
        assert_eq!(create(&old, &group(&[3, 1]), ProcId(1)), Ok(true));
        assert_eq!(create(&old, &group(&[3, 1]), ProcId(2)), Ok(false));
        assert_eq!(create(&old, &group(&[]), ProcId(2)), Ok(false));
        let stranger = Err(CreateError::NotASubgroup(ProcId(5)));
        assert_eq!(create(&old, &group(&[3, 5]), ProcId(3)), stranger);
        assert_eq!(create_group(&old, &group(&[3]), ProcId(1)), Err(CreateError::NotAMember));
        assert_eq!(create_group(&old, &group(&[3]), ProcId(3)), Ok(()));
    }

    proptest! {
        #[test]
        fn a_split_is_a_partition_that_all_agree_on(
            told in prop::collection::vec((prop::option::of(0u32..3), -2i32..3), 1..12),
        ) {
            let old = Group::new((0..told.len() as u32).map(|proc| ProcId(proc * 3 % 37)));
            let entries: Vec<_> = told.iter().map(|&(color, key)| SplitEntry { color, key, reserved: 4 }).collect();
            let results: Vec<_> = (0..told.len() as u32).map(|me| split(&old, &entries, Rank(me))).collect();
            for (a, one) in results.iter().enumerate() {
                prop_assert_eq!(one.is_some(), told[a].0.is_some());
                for (b, other) in results.iter().enumerate() {
                    let together = told[a].0.is_some() && told[a].0 == told[b].0;
                    prop_assert_eq!(one.is_some() && one == other, together);
                    if let (true, Some(new)) = (together && a != b, one) {
                        let rank = |index: usize| new.group.rank(old.procs()[index]).unwrap();
                        prop_assert_eq!(rank(a) < rank(b), (told[a].1, a) < (told[b].1, b));
                    }
                }
            }
        }
    }
}
