//! Blocking reductions (MPI 4.1 §6.9 to §6.11), served as the other collectives are.

use super::collective::{bytes, fits, in_cluster, int, is_in_place, memory};
use super::completion::wait_in_cluster;
use crate::collective::{self, Memory, Reduction};
use crate::communicator::Spanning;
use crate::counts::Counts;
use crate::error::{Error, Result, check, forward};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, ErrorClass};
use gridmpi_coll::{Blocks, Collective, Elements};
use std::ffi::{c_int, c_void};

/// The operands of a reduction.
fn elements<A: Abi>(
    rt: &Runtime<A>,
    count: u64,
    datatype: A::Datatype,
    op: A::Op,
) -> Result<Elements> {
    if op == A::op_null() {
        return Err(Error::new(ErrorClass::Op, "MPI_OP_NULL cannot reduce"));
    }
    let mut commutative = 0;
    // SAFETY: the program's operation and a place of our own.
    check(unsafe { rt.vendor.op_commutative(op, &raw mut commutative) })?;
    let size = rt.layouts.of(&rt.vendor, datatype)?.size();
    Ok(Elements { count, size, commutative: commutative != 0 })
}

fn operands(count: Count) -> Result<u64> {
    u64::try_from(count)
        .map_err(|_| Error::new(ErrorClass::Count, format!("the count {count} is negative")))
}

/// The program's operand, unless it is in place.
fn operand<A: Abi>(
    rt: &Runtime<A>,
    sendbuf: *const c_void,
    count: Count,
    datatype: A::Datatype,
) -> Result<(Memory, bool)> {
    if is_in_place::<A>(sendbuf) {
        return Ok((Memory::default(), true));
    }
    Ok((memory(rt, sendbuf, count, datatype)?, false))
}

/// `MPI_Reduce`.
pub unsafe fn reduce<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    op: A::Op,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[count]),
            ireduce(sendbuf, recvbuf, int(count), datatype, op, root, comm),
            ireduce_c(sendbuf, recvbuf, count, datatype, op, root, comm)
        );
    };
    let root = spanning.root(root)?;
    let elements = elements(rt, operands(count)?, datatype, op)?;
    let (send, in_place) = operand(rt, sendbuf, count, datatype)?;
    let at_root = spanning.is_me(root);
    let recv = if at_root { memory(rt, recvbuf, count, datatype)? } else { Memory::default() };
    let what = Collective::Reduce { root, elements, in_place };
    collective::run(rt, &spanning, &what, send, recv, Some(Reduction { datatype, op }))
}

/// The three that differ in name alone.
macro_rules! reductions {
    ($($name:ident $variant:ident $small:ident $large:ident;)*) => {$(
        #[doc = concat!("`MPI_", stringify!($variant), "`.")]
        pub unsafe fn $name<A: Abi>(
            rt: &'static Runtime<A>,
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: Count,
            datatype: A::Datatype,
            op: A::Op,
            comm: A::Comm,
        ) -> Result<()> {
            let Some(spanning) = rt.tokens.spanning(comm) else {
                return in_cluster!(rt, fits(&[count]),
                    $small(sendbuf, recvbuf, int(count), datatype, op, comm),
                    $large(sendbuf, recvbuf, count, datatype, op, comm));
            };
            let elements = elements(rt, operands(count)?, datatype, op)?;
            let (send, in_place) = operand(rt, sendbuf, count, datatype)?;
            let recv = memory(rt, recvbuf, count, datatype)?;
            let what = Collective::$variant { elements, in_place };
            collective::run(rt, &spanning, &what, send, recv, Some(Reduction { datatype, op }))
        }
    )*};
}

reductions! {
    allreduce Allreduce iallreduce iallreduce_c;
    scan Scan iscan iscan_c;
    exscan Exscan iexscan iexscan_c;
}

/// `MPI_Reduce_scatter` with a count for each rank, which is all that the two forms differ in.
fn scatter_reduced<A: Abi>(
    rt: &'static Runtime<A>,
    comm: &Spanning<A>,
    (sendbuf, recvbuf): (*const c_void, *mut c_void),
    counts: &[Count],
    reduction: Reduction<A>,
) -> Result<()> {
    let Reduction { datatype, op } = reduction;
    let mut total: Count = 0;
    let mut lens = Vec::with_capacity(counts.len());
    for count in counts {
        lens.push(bytes(rt, *count, datatype)?);
        total += count;
    }
    let elements = elements(rt, operands(total)?, datatype, op)?;
    let (send, in_place) = operand(rt, sendbuf, total, datatype)?;
    let mine = counts.get(comm.rank().0 as usize).copied().unwrap_or(0);
    let recv = memory(rt, recvbuf, if in_place { total } else { mine }, datatype)?;
    let what = Collective::ReduceScatter { elements, blocks: Blocks::new(lens), in_place };
    collective::run(rt, comm, &what, send, recv, Some(reduction))
}

/// `MPI_Reduce_scatter`.
pub unsafe fn reduce_scatter<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    datatype: A::Datatype,
    op: A::Op,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !recvcounts.is_wide(),
            ireduce_scatter(sendbuf, recvbuf, recvcounts.address().cast(), datatype, op, comm),
            ireduce_scatter_c(sendbuf, recvbuf, recvcounts.address().cast(), datatype, op, comm)
        );
    };
    // SAFETY: the array has an element for each rank.
    let counts = unsafe { recvcounts.to_vec(spanning.view.size() as usize) };
    scatter_reduced(rt, &spanning, (sendbuf, recvbuf), &counts, Reduction { datatype, op })
}

/// `MPI_Reduce_scatter_block`.
pub unsafe fn reduce_scatter_block<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: Count,
    datatype: A::Datatype,
    op: A::Op,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[recvcount]),
            ireduce_scatter_block(sendbuf, recvbuf, int(recvcount), datatype, op, comm),
            ireduce_scatter_block_c(sendbuf, recvbuf, recvcount, datatype, op, comm)
        );
    };
    let counts = vec![recvcount; spanning.view.size() as usize];
    scatter_reduced(rt, &spanning, (sendbuf, recvbuf), &counts, Reduction { datatype, op })
}
