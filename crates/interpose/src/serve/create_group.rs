//! `MPI_Comm_create_group` (MPI 4.1 §7.4.2): only the members of the group take part, so there is no
//! collective to agree with. Rank 0 of the group names the context; the lowest member in each other
//! cluster learns it through the engine, and the others from that one through the vendor.

use super::completion::wait_vendor;
use super::creation::{checked_count, decode, encode, internal};
use super::group::vendor_ranks;
use crate::communicator::{Spanning, int};
use crate::error::{Error, Result, check};
use crate::progress::Turn;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass, Named};
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::split::NewCommunicator;
use gridmpi_engine::{Completion, Group, JobMap, Mode, RequestId, Source, TagMatch};
use gridmpi_wire::{ContextId, Plane, ProcId};
use std::ffi::c_int;

/// A tag of the collective plane that no schedule uses: theirs are not negative.
fn wide_tag(tag: c_int) -> c_int {
    tag | c_int::MIN
}

/// The lowest member of the group in each cluster, by rank; the group's rank 0 is the first.
fn leaders(group: &Group, map: &JobMap) -> Vec<ProcId> {
    let mut leaders: Vec<ProcId> = Vec::new();
    for &proc in group.procs() {
        let cluster = map.cluster_of(proc);
        if !leaders.iter().any(|&leader| map.cluster_of(leader) == cluster) {
            leaders.push(proc);
        }
    }
    leaders
}

/// Makes the token of `group`'s members in this cluster and learns the context. `group` is within `old`
/// and has this process.
pub(super) fn meet<A: Abi>(
    rt: &Runtime<A>,
    old: &Spanning<A>,
    group: &Group,
    tag: c_int,
) -> Result<(A::Comm, NewCommunicator)> {
    let leaders = leaders(group, &rt.job().map);
    let token = vendor_part(rt, old, group, tag)?;
    if leaders.len() == 1 {
        // All in one cluster: it has no context of ours.
        let context = ContextId::WORLD;
        return Ok((token, NewCommunicator { group: group.clone(), context }));
    }
    let mut count = 0;
    if leaders.contains(&rt.job().me) {
        count = lead(rt, old, &leaders, tag)?;
    }
    let count = checked_count(broadcast(rt, token, count)?)?;
    let context = ContextId::reserved(leaders[0], count);
    Ok((token, NewCommunicator { group: group.clone(), context }))
}

/// The vendor's communicator of the members in this cluster, in the order of their ranks. The group is made
/// from the token's own: MPICH 4.0 crashes on one that was made from the world's.
fn vendor_part<A: Abi>(
    rt: &Runtime<A>,
    old: &Spanning<A>,
    group: &Group,
    tag: c_int,
) -> Result<A::Comm> {
    gather(rt, &vendor_ranks(rt, group.procs()), tag)?;
    let ranks: Vec<c_int> = group
        .procs()
        .iter()
        .filter_map(|&proc| old.local_rank(old.view.group().rank(proc)?))
        .collect();
    let (mut all, mut part, mut token) = (A::group_null(), A::group_null(), A::comm_null());
    // SAFETY: a token, an array of that length, groups of our own that are given back, places of our own.
    unsafe {
        check(rt.vendor.comm_group(old.token, &raw mut all))?;
        let count = c_int::try_from(ranks.len()).unwrap_or(c_int::MAX);
        check(rt.vendor.group_incl(all, count, ranks.as_ptr(), &raw mut part))?;
        let made = check(rt.vendor.comm_create_group(old.token, part, tag, &raw mut token));
        check(rt.vendor.group_free(&raw mut part))?;
        check(rt.vendor.group_free(&raw mut all))?;
        made?;
    }
    Ok(token)
}

/// Waits until all members in this cluster are here, so that the vendor's blocking call waits for nobody
/// who may still need a message that we hold a receive for. `ranks` are those in the vendor's world.
fn gather<A: Abi>(rt: &Runtime<A>, ranks: &[c_int], tag: c_int) -> Result<()> {
    let [leader, others @ ..] = ranks else { return Ok(()) };
    let own = int(rt.job().map.vendor_rank_of(rt.job().me));
    if own != *leader {
        signal(rt, *leader, tag)?;
        return await_signal(rt, *leader, tag);
    }
    for other in others {
        await_signal(rt, *other, tag)?;
    }
    others.iter().try_for_each(|other| signal(rt, *other, tag))
}

fn signal<A: Abi>(rt: &Runtime<A>, to: c_int, tag: c_int) -> Result<()> {
    let (byte, quiet) = (A::datatype(Named::Byte), rt.job().quiet);
    let mut request = A::request_null();
    // SAFETY: a communicator of our own; no data.
    let code =
        unsafe { rt.vendor.isend(std::ptr::null(), 0, byte, to, tag, quiet, &raw mut request) };
    check(code)?;
    wait_vendor(rt, request).map(drop)
}

fn await_signal<A: Abi>(rt: &Runtime<A>, from: c_int, tag: c_int) -> Result<()> {
    let (byte, quiet) = (A::datatype(Named::Byte), rt.job().quiet);
    let mut request = A::request_null();
    // SAFETY: a communicator of our own; no data.
    let code = unsafe {
        rt.vendor.irecv(std::ptr::null_mut(), 0, byte, from, tag, quiet, &raw mut request)
    };
    check(code)?;
    wait_vendor(rt, request).map(drop)
}

/// What the lowest member of a cluster does: the first of them names the count of the context.
fn lead<A: Abi>(rt: &Runtime<A>, old: &Spanning<A>, leaders: &[ProcId], tag: c_int) -> Result<u32> {
    let job = rt.job();
    let context = old.view.context(Plane::Collective);
    let first = leaders[0];
    if first != job.me {
        let rank = old.view.group().rank(first);
        let rank =
            rank.ok_or_else(|| internal("a group that was within its communicator is not"))?;
        let (source, tag) = (Source::Remote(rank, first), TagMatch::Is(wide_tag(tag)));
        let id = job.net.lock().receive(context, source, tag, RecvBuffer::owned(4));
        return await_count(rt, id);
    }
    let count = job.reserve_context();
    for &leader in &leaders[1..] {
        let buffer = SendBuffer::from_bytes(encode(&[count]).into());
        let mut engine = job.net.lock();
        let (rank, tag) = (old.rank(), wide_tag(tag));
        let id = engine.send(leader, context, rank, tag, Mode::Standard, buffer);
        engine.detach(id);
    }
    Ok(count)
}

fn await_count<A: Abi>(rt: &Runtime<A>, id: RequestId) -> Result<u32> {
    let mut turn = Turn::new(rt);
    let (completion, buffer) = loop {
        let taken = rt.job().net.lock().take_with_buffer(id);
        match taken {
            Some(taken) => break taken,
            None => turn.wait(false)?,
        }
    };
    let Completion { error: None, .. } = completion else {
        return Err(Error::new(ErrorClass::ProcAborted, "the first process of the group is lost"));
    };
    let bytes = buffer.and_then(RecvBuffer::into_bytes).unwrap_or_default();
    match decode::<1>(&bytes).collect::<Vec<_>>()[..] {
        [[count]] => Ok(count),
        _ => Err(internal("a process named no context")),
    }
}

/// Hands the count from the token's rank 0 to all of its members.
fn broadcast<A: Abi>(rt: &Runtime<A>, token: A::Comm, count: u32) -> Result<u32> {
    let (byte, mut request) = (A::datatype(Named::Byte), A::request_null());
    let place = Box::into_raw(Box::new(count));
    // SAFETY: a place that stays until the request has ended; if that is never told, for ever.
    check(unsafe { rt.vendor.ibcast(place.cast(), 4, byte, 0, token, &raw mut request) })?;
    wait_vendor(rt, request)?;
    // SAFETY: made above, and nobody else's any more.
    Ok(*unsafe { Box::from_raw(place) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_has_its_lowest_member_lead() {
        let map = JobMap::contiguous([("a".into(), 3), ("b".into(), 2), ("c".into(), 2)]);
        let group = |procs: &[u32]| Group::new(procs.iter().copied().map(ProcId));
        let of = |procs| leaders(&group(procs), &map);
        assert_eq!(of(&[4, 2, 3, 0]), [ProcId(4), ProcId(2)]);
        assert_eq!(of(&[6, 5]), [ProcId(6)]);
        assert_eq!(of(&[0, 1, 2, 3, 4, 5]), [ProcId(0), ProcId(3), ProcId(5)]);
    }

    #[test]
    fn wide_tags_are_negative_and_distinct() {
        assert!(wide_tag(0) < 0 && wide_tag(c_int::MAX) < 0);
        assert_ne!(wide_tag(1), wide_tag(2));
    }
}
