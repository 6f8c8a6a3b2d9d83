//! Collectives on spanning communicators: schedules of `gridmpi-coll`, run by the program's thread.

mod agenda;
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
    spare(result, stage)
}

/// Drops what a collective worked on, but not after an error: steps under way still point into it, and go on in the vendor and the
/// engine for as long as the program does.
fn spare<T>(result: Result<()>, used: T) -> Result<()> {
    if result.is_err() {
        std::mem::forget(used);
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
    allgather_blocks(rt, comm, own, Blocks::equal(comm.view.size(), own.len() as u64))
}

/// The same where lengths differ: everybody knows those of all, in `blocks`.
///
/// # Errors
/// Another cluster is lost.
pub(crate) fn allgather_blocks<A: Abi>(
    rt: &Runtime<A>,
    comm: &Spanning<A>,
    own: &[u8],
    blocks: Blocks,
) -> Result<Vec<u8>> {
    let all = vec![0; usize::try_from(blocks.total()).unwrap_or(usize::MAX)];
    // As in `run`: after an error the memory may still be written to, and stays.
    let mut memory = ManuallyDrop::new((own.to_vec(), all));
    let (own, all) = &mut *memory;
    let (send, recv) = (Memory::of_bytes(own), Memory::of_bytes(all));
    run(rt, comm, &Collective::Allgather { blocks, in_place: false }, send, recv, None)?;
    Ok(ManuallyDrop::into_inner(memory).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use gridmpi_abi::ErrorClass;

    #[test]
    fn what_steps_point_into_outlives_an_error() {
        let used = Arc::new(());
        assert!(spare(Ok(()), Arc::clone(&used)).is_ok());
        assert_eq!(Arc::strong_count(&used), 1);
        assert!(spare(Err(Error::new(ErrorClass::Intern, "")), Arc::clone(&used)).is_err());
        assert_eq!(Arc::strong_count(&used), 2, "it is still there");
    }
}
