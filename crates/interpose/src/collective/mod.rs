//! Collectives on spanning communicators: schedules of `gridmpi-coll`, run by the program's thread.

mod memory;
mod phase;
mod run;

pub(crate) use memory::Memory;
pub(crate) use phase::Reduction;

use crate::communicator::Spanning;
use crate::error::Result;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use gridmpi_buffer::Layout;
use gridmpi_coll::{Blocks, Collective, Tuning};
use phase::Stage;
use run::Run;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Runs a collective to its end on every member's `send` and `recv`.
///
/// # Errors
/// A message of the wrong length, an error of the vendor's, a lost cluster.
pub(crate) fn run<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    what: &Collective,
    send: Memory,
    recv: Memory,
    reduction: Option<Reduction<A>>,
) -> Result<()> {
    let schedule = gridmpi_coll::schedule(comm.view.shape(), what, &Tuning::default());
    let element = match reduction {
        Some(reduction) => rt.layouts.of(&rt.vendor, reduction.datatype)?,
        None => Arc::new(Layout::empty()),
    };
    let mut buffers = vec![send, recv];
    buffers.extend(schedule.temporaries.iter().map(|t| Memory::temporary(*t, &element)));
    let stage = Stage { buffers, reduction, token: comm.token };
    let result = Run::new(rt, comm, &schedule, &stage).finish();
    if result.is_err() {
        // Steps under way still point into the buffers, and the program is about to end.
        std::mem::forget(stage);
    }
    result
}

/// Every member's `own`, by rank; all have the same length. Collective over `comm`.
///
/// # Errors
/// Another cluster is lost.
pub(crate) fn allgather_bytes<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    own: &[u8],
) -> Result<Vec<u8>> {
    let size = comm.view.size();
    let blocks = Blocks::equal(size, own.len() as u64);
    // As in `run`: after an error the memory may still be written to, and stays.
    let mut memory = ManuallyDrop::new((own.to_vec(), vec![0; own.len() * size as usize]));
    let (own, all) = &mut *memory;
    let (send, recv) = (Memory::of_bytes(own), Memory::of_bytes(all));
    run(rt, comm, &Collective::Allgather { blocks, in_place: false }, send, recv, None)?;
    Ok(ManuallyDrop::into_inner(memory).1)
}
