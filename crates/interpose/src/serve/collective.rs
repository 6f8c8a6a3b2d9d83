//! Blocking collectives (MPI 4.1 §6): on a spanning communicator a schedule of ours; on one of this cluster the
//! vendor's nonblocking form, waited for by us, in every job of several clusters: one member may have a held receive to
//! move meanwhile, and blocking and nonblocking forms do not match (MPI 4.1 §6.12).

use super::completion::wait_in_cluster;
use crate::collective::{self, Memory};
use crate::communicator::Spanning;
use crate::counts::Counts;
use crate::error::{Error, Result, forward};
use crate::operation::Data;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, ErrorClass};
use gridmpi_coll::{Blocks, Collective};
use gridmpi_wire::Rank;
use std::ffi::{c_int, c_void};

/// The vendor's nonblocking collective on a communicator of this cluster, waited for by us.
macro_rules! in_cluster {
    ($rt:expr, $small:ident($($argument:expr),*)) => {{
        let mut request = A::request_null();
        // SAFETY: the program's arguments; we wait until it has ended.
        forward(|| unsafe { $rt.vendor.$small($($argument,)* &raw mut request) })?;
        wait_in_cluster($rt, request)
    }};
    ($rt:expr, $is_small:expr, $small:ident($($argument:expr),*), $large:ident($($wide:expr),*)) => {
        if $is_small { in_cluster!($rt, $small($($argument),*)) } else { in_cluster!($rt, $large($($wide),*)) }
    };
}

pub(super) use in_cluster;

pub(super) fn fits(counts: &[Count]) -> bool {
    counts.iter().all(|count| c_int::try_from(*count).is_ok())
}

pub(super) fn int(count: Count) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

impl<A: Abi> Spanning<A> {
    pub(super) fn root(&self, root: c_int) -> Result<Rank> {
        let size = self.view.size();
        u32::try_from(root).ok().filter(|rank| *rank < size).map(Rank).ok_or_else(|| {
            Error::new(
                ErrorClass::Root,
                format!("root {root} is not in a communicator of {size} processes"),
            )
        })
    }

    pub(super) fn is_me(&self, rank: Rank) -> bool {
        self.rank() == rank
    }
}

/// Bytes of `count` elements.
pub(super) fn bytes<A: Abi>(rt: &Runtime<A>, count: Count, datatype: A::Datatype) -> Result<u64> {
    let data = Data::<A>::new(std::ptr::null(), count, datatype);
    Ok(data.elements()? * rt.layouts.of(&rt.vendor, datatype)?.size())
}

/// A block for each rank: `counts[r]` elements at displacement `displs[r]`, in elements (`scale` bytes
/// apart) or in bytes.
struct Scattered<A: Abi> {
    blocks: Vec<Data<A>>,
    lens: Blocks,
}

impl<A: Abi> Scattered<A> {
    /// # Safety
    /// The arrays have an element for each of `ranks`.
    unsafe fn new(
        rt: &Runtime<A>,
        buf: *const c_void,
        counts: Counts,
        displs: Counts,
        type_of: impl Fn(usize) -> (A::Datatype, i64),
        ranks: u32,
    ) -> Result<Self> {
        let mut blocks = Vec::with_capacity(ranks as usize);
        let mut lens = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks as usize {
            let (datatype, scale) = type_of(rank);
            // SAFETY: as this function's.
            let (count, displ) = unsafe { (counts.get(rank), displs.get(rank)) };
            let at = isize::try_from(displ.wrapping_mul(scale)).unwrap_or(0);
            blocks.push(Data::new(buf.wrapping_byte_offset(at), count, datatype));
            lens.push(bytes(rt, count, datatype)?);
        }
        Ok(Self { blocks, lens: Blocks::new(lens) })
    }

    fn memory(&self, rt: &Runtime<A>) -> Result<Memory> {
        Memory::of_blocks(rt, self.blocks.iter().copied())
    }
}

fn extent<A: Abi>(rt: &Runtime<A>, datatype: A::Datatype) -> Result<i64> {
    Ok(rt.layouts.of(&rt.vendor, datatype)?.extent())
}

pub(super) fn memory<A: Abi>(
    rt: &Runtime<A>,
    buf: *const c_void,
    count: Count,
    datatype: A::Datatype,
) -> Result<Memory> {
    Memory::of_data(rt, Data::new(buf, count, datatype))
}

pub(super) fn is_in_place<A: Abi>(buf: *const c_void) -> bool {
    buf == A::in_place().cast_const()
}

/// `MPI_Barrier`.
pub unsafe fn barrier<A: Abi>(rt: &'static Runtime<A>, comm: A::Comm) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else { return in_cluster!(rt, ibarrier(comm)) };
    collective::run(rt, &spanning, &Collective::Barrier, Memory::default(), Memory::default(), None)
}

/// `MPI_Bcast`.
pub unsafe fn bcast<A: Abi>(
    rt: &'static Runtime<A>,
    buffer: *mut c_void,
    count: Count,
    datatype: A::Datatype,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[count]),
            ibcast(buffer, int(count), datatype, root, comm),
            ibcast_c(buffer, count, datatype, root, comm)
        );
    };
    let what = Collective::Bcast { root: spanning.root(root)?, len: bytes(rt, count, datatype)? };
    let recv = memory(rt, buffer, count, datatype)?;
    collective::run(rt, &spanning, &what, Memory::default(), recv, None)
}

/// `MPI_Gather`.
pub unsafe fn gather<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[sendcount, recvcount]),
            igather(
                sendbuf,
                int(sendcount),
                sendtype,
                recvbuf,
                int(recvcount),
                recvtype,
                root,
                comm
            ),
            igather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)
        );
    };
    let root = spanning.root(root)?;
    let (mut in_place, mut recv) = (false, Memory::default());
    let mut len = None;
    if spanning.is_me(root) {
        in_place = is_in_place::<A>(sendbuf);
        len = Some(bytes(rt, recvcount, recvtype)?);
        recv = memory(rt, recvbuf, recvcount * Count::from(spanning.view.size()), recvtype)?;
    }
    let send = if in_place { Memory::default() } else { memory(rt, sendbuf, sendcount, sendtype)? };
    let len = len.map_or_else(|| bytes(rt, sendcount, sendtype), Ok)?;
    collective::run(rt, &spanning, &Collective::Gather { root, len, in_place }, send, recv, None)
}

/// `MPI_Gatherv`.
pub unsafe fn gatherv<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: A::Datatype,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !recvcounts.is_wide(),
            igatherv(
                sendbuf,
                int(sendcount),
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                displs.address().cast(),
                recvtype,
                root,
                comm
            ),
            igatherv_c(
                sendbuf,
                sendcount,
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                displs.address().cast(),
                recvtype,
                root,
                comm
            )
        );
    };
    let root = spanning.root(root)?;
    let (mut in_place, mut recv, mut blocks) = (false, Memory::default(), Blocks::default());
    if spanning.is_me(root) {
        in_place = is_in_place::<A>(sendbuf);
        let scale = extent(rt, recvtype)?;
        // SAFETY: at the root the arrays have an element for each rank.
        let scattered = unsafe {
            Scattered::new(
                rt,
                recvbuf,
                recvcounts,
                displs,
                |_| (recvtype, scale),
                spanning.view.size(),
            )?
        };
        recv = scattered.memory(rt)?;
        blocks = scattered.lens;
    }
    let (send, len) = if in_place {
        (Memory::default(), blocks.len(root))
    } else {
        (memory(rt, sendbuf, sendcount, sendtype)?, bytes(rt, sendcount, sendtype)?)
    };
    collective::run(
        rt,
        &spanning,
        &Collective::Gatherv { root, len, blocks, in_place },
        send,
        recv,
        None,
    )
}

/// `MPI_Scatter`.
pub unsafe fn scatter<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[sendcount, recvcount]),
            iscatter(
                sendbuf,
                int(sendcount),
                sendtype,
                recvbuf,
                int(recvcount),
                recvtype,
                root,
                comm
            ),
            iscatter_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)
        );
    };
    let root = spanning.root(root)?;
    let (mut in_place, mut send) = (false, Memory::default());
    let mut len = None;
    if spanning.is_me(root) {
        in_place = is_in_place::<A>(recvbuf);
        len = Some(bytes(rt, sendcount, sendtype)?);
        send = memory(rt, sendbuf, sendcount * Count::from(spanning.view.size()), sendtype)?;
    }
    let recv = if in_place { Memory::default() } else { memory(rt, recvbuf, recvcount, recvtype)? };
    let len = len.map_or_else(|| bytes(rt, recvcount, recvtype), Ok)?;
    collective::run(rt, &spanning, &Collective::Scatter { root, len, in_place }, send, recv, None)
}

/// `MPI_Scatterv`.
pub unsafe fn scatterv<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcounts: Counts,
    displs: Counts,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    root: c_int,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !sendcounts.is_wide(),
            iscatterv(
                sendbuf,
                sendcounts.address().cast(),
                displs.address().cast(),
                sendtype,
                recvbuf,
                int(recvcount),
                recvtype,
                root,
                comm
            ),
            iscatterv_c(
                sendbuf,
                sendcounts.address().cast(),
                displs.address().cast(),
                sendtype,
                recvbuf,
                recvcount,
                recvtype,
                root,
                comm
            )
        );
    };
    let root = spanning.root(root)?;
    let (mut in_place, mut send, mut blocks) = (false, Memory::default(), Blocks::default());
    if spanning.is_me(root) {
        in_place = is_in_place::<A>(recvbuf);
        let scale = extent(rt, sendtype)?;
        // SAFETY: at the root the arrays have an element for each rank.
        let scattered = unsafe {
            Scattered::new(
                rt,
                sendbuf,
                sendcounts,
                displs,
                |_| (sendtype, scale),
                spanning.view.size(),
            )?
        };
        send = scattered.memory(rt)?;
        blocks = scattered.lens;
    }
    let (recv, len) = if in_place {
        (Memory::default(), blocks.len(root))
    } else {
        (memory(rt, recvbuf, recvcount, recvtype)?, bytes(rt, recvcount, recvtype)?)
    };
    collective::run(
        rt,
        &spanning,
        &Collective::Scatterv { root, len, blocks, in_place },
        send,
        recv,
        None,
    )
}

/// `MPI_Allgather`.
pub unsafe fn allgather<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[sendcount, recvcount]),
            iallgather(sendbuf, int(sendcount), sendtype, recvbuf, int(recvcount), recvtype, comm),
            iallgather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)
        );
    };
    let size = spanning.view.size();
    let in_place = is_in_place::<A>(sendbuf);
    let blocks = Blocks::equal(size, bytes(rt, recvcount, recvtype)?);
    let send = if in_place { Memory::default() } else { memory(rt, sendbuf, sendcount, sendtype)? };
    let recv = memory(rt, recvbuf, recvcount * Count::from(size), recvtype)?;
    collective::run(rt, &spanning, &Collective::Allgather { blocks, in_place }, send, recv, None)
}

/// `MPI_Allgatherv`.
pub unsafe fn allgatherv<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: A::Datatype,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !recvcounts.is_wide(),
            iallgatherv(
                sendbuf,
                int(sendcount),
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                displs.address().cast(),
                recvtype,
                comm
            ),
            iallgatherv_c(
                sendbuf,
                sendcount,
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                displs.address().cast(),
                recvtype,
                comm
            )
        );
    };
    let in_place = is_in_place::<A>(sendbuf);
    let scale = extent(rt, recvtype)?;
    // SAFETY: the arrays have an element for each rank.
    let scattered = unsafe {
        Scattered::new(
            rt,
            recvbuf,
            recvcounts,
            displs,
            |_| (recvtype, scale),
            spanning.view.size(),
        )?
    };
    let send = if in_place { Memory::default() } else { memory(rt, sendbuf, sendcount, sendtype)? };
    let recv = scattered.memory(rt)?;
    let what = Collective::Allgather { blocks: scattered.lens, in_place };
    collective::run(rt, &spanning, &what, send, recv, None)
}

/// `MPI_Alltoall`.
pub unsafe fn alltoall<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcount: Count,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcount: Count,
    recvtype: A::Datatype,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            fits(&[sendcount, recvcount]),
            ialltoall(sendbuf, int(sendcount), sendtype, recvbuf, int(recvcount), recvtype, comm),
            ialltoall_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)
        );
    };
    let size = spanning.view.size();
    let in_place = is_in_place::<A>(sendbuf);
    let recv_blocks = Blocks::equal(size, bytes(rt, recvcount, recvtype)?);
    let recv = memory(rt, recvbuf, recvcount * Count::from(size), recvtype)?;
    let (send, send_blocks) = if in_place {
        (Memory::default(), recv_blocks.clone())
    } else {
        let blocks = Blocks::equal(size, bytes(rt, sendcount, sendtype)?);
        (memory(rt, sendbuf, sendcount * Count::from(size), sendtype)?, blocks)
    };
    let what =
        Collective::Alltoall { send: send_blocks, recv: recv_blocks, is_equal: true, in_place };
    collective::run(rt, &spanning, &what, send, recv, None)
}

/// Runs an all-to-all over blocks of any kind.
fn exchange<A: Abi>(
    rt: &'static Runtime<A>,
    comm: &Spanning<A>,
    send: Option<Scattered<A>>,
    recv: &Scattered<A>,
) -> Result<()> {
    let in_place = send.is_none();
    let (send_memory, send) = match send {
        Some(send) => (send.memory(rt)?, send.lens),
        None => (Memory::default(), recv.lens.clone()),
    };
    let what = Collective::Alltoall { send, recv: recv.lens.clone(), is_equal: false, in_place };
    collective::run(rt, comm, &what, send_memory, recv.memory(rt)?, None)
}

/// `MPI_Alltoallv`.
pub unsafe fn alltoallv<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtype: A::Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtype: A::Datatype,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !recvcounts.is_wide(),
            ialltoallv(
                sendbuf,
                sendcounts.address().cast(),
                sdispls.address().cast(),
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                rdispls.address().cast(),
                recvtype,
                comm
            ),
            ialltoallv_c(
                sendbuf,
                sendcounts.address().cast(),
                sdispls.address().cast(),
                sendtype,
                recvbuf,
                recvcounts.address().cast(),
                rdispls.address().cast(),
                recvtype,
                comm
            )
        );
    };
    let size = spanning.view.size();
    let scale = extent(rt, recvtype)?;
    // SAFETY: the arrays have an element for each rank; those of the send side are not looked at in place.
    unsafe {
        let recv = Scattered::new(rt, recvbuf, recvcounts, rdispls, |_| (recvtype, scale), size)?;
        let send = if is_in_place::<A>(sendbuf) {
            None
        } else {
            let scale = extent(rt, sendtype)?;
            Some(Scattered::new(rt, sendbuf, sendcounts, sdispls, |_| (sendtype, scale), size)?)
        };
        exchange(rt, &spanning, send, &recv)
    }
}

/// `MPI_Alltoallw`: displacements are in bytes.
pub unsafe fn alltoallw<A: Abi>(
    rt: &'static Runtime<A>,
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtypes: *const A::Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtypes: *const A::Datatype,
    comm: A::Comm,
) -> Result<()> {
    let Some(spanning) = rt.tokens.spanning(comm) else {
        return in_cluster!(
            rt,
            !recvcounts.is_wide(),
            ialltoallw(
                sendbuf,
                sendcounts.address().cast(),
                sdispls.address().cast(),
                sendtypes,
                recvbuf,
                recvcounts.address().cast(),
                rdispls.address().cast(),
                recvtypes,
                comm
            ),
            ialltoallw_c(
                sendbuf,
                sendcounts.address().cast(),
                sdispls.address().cast(),
                sendtypes,
                recvbuf,
                recvcounts.address().cast(),
                rdispls.address().cast(),
                recvtypes,
                comm
            )
        );
    };
    let size = spanning.view.size();
    // SAFETY: the arrays have an element for each rank; those of the send side are not looked at in place.
    unsafe {
        let recv =
            Scattered::new(rt, recvbuf, recvcounts, rdispls, |r| (*recvtypes.add(r), 1), size)?;
        let send = if is_in_place::<A>(sendbuf) {
            None
        } else {
            Some(Scattered::new(
                rt,
                sendbuf,
                sendcounts,
                sdispls,
                |r| (*sendtypes.add(r), 1),
                size,
            )?)
        };
        exchange(rt, &spanning, send, &recv)
    }
}
