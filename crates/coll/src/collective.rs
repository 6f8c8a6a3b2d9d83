//! What can be asked for: the collectives of MPI 4.1 §6, in packed bytes.

use gridmpi_wire::Rank;

use crate::schedule::{BufferId, Span};

/// A collective and its arguments as one process gives them.
///
/// Lengths are packed bytes (count × type size). `in_place` is about this process's own buffers: with it
/// [`BufferId::SEND`] is not used (of Scatter: [`BufferId::RECV`] on the root).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast` of [`BufferId::RECV`].
    Bcast {
        /// Who has the data.
        root: Rank,
        /// Bytes, the same everywhere.
        len: u64,
    },
    /// `MPI_Gather`.
    Gather {
        /// Who gets the data.
        root: Rank,
        /// Bytes of each rank, the same everywhere.
        len: u64,
        /// On the root.
        in_place: bool,
    },
    /// `MPI_Gatherv`.
    Gatherv {
        /// Who gets the data.
        root: Rank,
        /// Bytes of this process.
        len: u64,
        /// On the root: bytes of each rank. Not used elsewhere.
        blocks: Blocks,
        /// On the root.
        in_place: bool,
    },
    /// `MPI_Scatter`.
    Scatter {
        /// Who has the data.
        root: Rank,
        /// Bytes for each rank, the same everywhere.
        len: u64,
        /// On the root.
        in_place: bool,
    },
    /// `MPI_Scatterv`.
    Scatterv {
        /// Who has the data.
        root: Rank,
        /// Bytes for this process.
        len: u64,
        /// On the root: bytes for each rank. Not used elsewhere.
        blocks: Blocks,
        /// On the root.
        in_place: bool,
    },
    /// `MPI_Allgather` and `MPI_Allgatherv`.
    Allgather {
        /// Bytes of each rank.
        blocks: Blocks,
        /// On all processes.
        in_place: bool,
    },
    /// `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`.
    Alltoall {
        /// Bytes to each rank; with `in_place` the same as `recv`.
        send: Blocks,
        /// Bytes from each rank.
        recv: Blocks,
        /// Of `MPI_Alltoall`: everybody sends as much to everybody.
        is_equal: bool,
        /// On all processes.
        in_place: bool,
    },
    /// `MPI_Reduce`.
    Reduce {
        /// Who gets the result.
        root: Rank,
        /// The operands.
        elements: Elements,
        /// On the root.
        in_place: bool,
    },
    /// `MPI_Allreduce`.
    Allreduce {
        /// The operands.
        elements: Elements,
        /// On all processes.
        in_place: bool,
    },
    /// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`.
    ReduceScatter {
        /// The operands.
        elements: Elements,
        /// Bytes of the result for each rank; together all elements. With `in_place` the operand is all
        /// of [`BufferId::RECV`] and the result its start.
        blocks: Blocks,
        /// On all processes.
        in_place: bool,
    },
    /// `MPI_Scan`.
    Scan {
        /// The operands.
        elements: Elements,
        /// On all processes.
        in_place: bool,
    },
    /// `MPI_Exscan`. [`BufferId::RECV`] of rank 0 is not written.
    Exscan {
        /// The operands.
        elements: Elements,
        /// On all processes.
        in_place: bool,
    },
}

/// The operands of a reduction and what is known of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Elements on each process.
    pub count: u64,
    /// Packed bytes of one.
    pub size: u64,
    /// Whether the operation commutes; if not, operands are combined in rank order (MPI 4.1 §6.9.1).
    pub commutative: bool,
}

impl Elements {
    /// Packed bytes of all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count * self.size
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The operand: in the send buffer, or in the receive buffer if it is in place.
    pub(crate) fn operand(&self, in_place: bool) -> Span {
        Span::new(if in_place { BufferId::RECV } else { BufferId::SEND }, 0, self.len())
    }

    /// All of the receive buffer.
    pub(crate) fn result(&self) -> Span {
        Span::new(BufferId::RECV, 0, self.len())
    }
}

/// Lengths of the ranks' blocks in a packed buffer, one after the other in rank order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// `ends[r]`: bytes of the blocks of ranks 0 to `r`.
    ends: Vec<u64>,
}

impl Blocks {
    /// Blocks of `lens` bytes by rank.
    #[must_use]
    pub fn new(lens: impl IntoIterator<Item = u64>) -> Self {
        let sum = |end: &mut u64, len: u64| {
            *end += len;
            Some(*end)
        };
        Self { ends: lens.into_iter().scan(0, sum).collect() }
    }

    /// `ranks` blocks of `len` bytes.
    #[must_use]
    pub fn equal(ranks: u32, len: u64) -> Self {
        Self::new((0..ranks).map(|_| len))
    }

    /// The first byte of a rank's block.
    #[must_use]
    pub fn offset(&self, rank: Rank) -> u64 {
        if rank.0 == 0 { 0 } else { self.ends[rank.0 as usize - 1] }
    }

    /// Bytes of a rank's block.
    #[must_use]
    pub fn len(&self, rank: Rank) -> u64 {
        self.ends[rank.0 as usize] - self.offset(rank)
    }

    /// Bytes of all blocks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// A rank's block in `buffer`.
    #[must_use]
    pub fn span(&self, buffer: BufferId, rank: Rank) -> Span {
        Span::new(buffer, self.offset(rank), self.len(rank))
    }

    /// The blocks of `ranks` in `buffer`.
    #[must_use]
    pub fn spans(&self, buffer: BufferId, ranks: &[Rank]) -> Vec<Span> {
        ranks.iter().map(|&rank| self.span(buffer, rank)).collect()
    }

    /// Bytes of the blocks of `ranks`.
    #[must_use]
    pub fn sum(&self, ranks: &[Rank]) -> u64 {
        ranks.iter().map(|&rank| self.len(rank)).sum()
    }
}
