//! What a schedule is made of.

use std::borrow::Cow;

use gridmpi_wire::Rank;

use crate::shape::Shape;

/// A buffer of a schedule, seen as packed bytes: byte `k` is the `k`-th byte of the data in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub u16);

impl BufferId {
    /// The program's send buffer. Where the program sends a block to each rank, the view has the blocks
    /// in rank order without gaps, wherever they lie in memory.
    pub const SEND: Self = Self(0);
    /// The program's receive buffer, and the one buffer of Bcast. Blocks as in [`Self::SEND`].
    pub const RECV: Self = Self(1);

    /// The `index`-th of [`Schedule::temporaries`].
    #[must_use]
    pub const fn temporary(index: u16) -> Self {
        Self(index + 2)
    }

    /// The index in [`Schedule::temporaries`]; `None` for the program's buffers.
    #[must_use]
    pub const fn as_temporary(self) -> Option<usize> {
        if self.0 < 2 { None } else { Some(self.0 as usize - 2) }
    }
}

/// Memory that a schedule needs for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// So many bytes.
    Bytes(u64),
    /// So many elements of the reduction's datatype, laid out so that its operation can run on them.
    Elements(u64),
}

/// `len` packed bytes of a buffer from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Bytes; may be 0.
    pub len: u64,
}

impl Span {
    /// `len` bytes of `buffer` from `offset`.
    #[must_use]
    pub const fn new(buffer: BufferId, offset: u64, len: u64) -> Self {
        Self { buffer, offset, len }
    }

    /// The first byte after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// `len` bytes from byte `offset` of this span.
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Self {
        debug_assert!(offset + len <= self.len, "a part lies within its span");
        Self { offset: self.offset + offset, len, ..*self }
    }
}

/// A step of a schedule: its index in [`Schedule::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u32);

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the spans' data as one message.
    Send {
        /// To whom: a rank of another cluster in all our algorithms.
        to: Rank,
        /// What, one span after the other. Empty for a bare signal.
        data: Vec<Span>,
        /// Unique among this schedule's messages to that rank.
        tag: u32,
    },
    /// Receive one message, exactly as long as the spans.
    Receive {
        /// From whom.
        from: Rank,
        /// Where to, one span after the other.
        into: Vec<Span>,
        /// As sent.
        tag: u32,
    },
    /// Copy bytes between spans of one length that do not overlap.
    Copy {
        /// Source.
        from: Span,
        /// Target.
        to: Span,
    },
    /// `into = from OP into`, element by element: `from` is the left operand. Whole elements of buffers
    /// that hold elements.
    Reduce {
        /// Left operand.
        from: Span,
        /// Right operand and result.
        into: Span,
    },
    /// A collective of the vendor's MPI on the local communicator.
    Local(LocalCollective),
}

/// A collective among the members of this process's cluster, in the vendor's terms.
///
/// All members have the same local collectives in the same order in their schedules, and start them in
/// that order. Spans by local rank are in one buffer. What holds on the root only is `None` or empty
/// elsewhere. `MPI_IN_PLACE` is spelled as a missing `send` or `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalCollective {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast {
        /// The data on the root, its place elsewhere.
        data: Span,
        /// Local rank.
        root: u32,
    },
    /// `MPI_Gatherv`.
    Gatherv {
        /// This process's part; `None` on the root if it is in place.
        send: Option<Span>,
        /// On the root: places by local rank.
        recv: Vec<Span>,
        /// Local rank.
        root: u32,
    },
    /// `MPI_Scatterv`.
    Scatterv {
        /// On the root: parts by local rank.
        send: Vec<Span>,
        /// Place for this process's part; `None` on the root if it stays in place.
        recv: Option<Span>,
        /// Local rank.
        root: u32,
    },
    /// `MPI_Allgatherv`.
    Allgatherv {
        /// This process's part; `None` if it is in place.
        send: Option<Span>,
        /// Places by local rank.
        recv: Vec<Span>,
    },
    /// `MPI_Alltoallv`.
    Alltoallv {
        /// Parts by local rank.
        send: Vec<Span>,
        /// Places by local rank, in another buffer.
        recv: Vec<Span>,
    },
    /// `MPI_Reduce`.
    Reduce {
        /// Operand; `None` on the root if it is in `into`.
        from: Option<Span>,
        /// On the root: result.
        into: Option<Span>,
        /// Local rank.
        root: u32,
    },
    /// `MPI_Reduce_scatter`.
    ReduceScatter {
        /// Operand: parts by local rank, one after the other without gaps.
        from: Vec<Span>,
        /// Result of this process's part, in another buffer.
        into: Span,
    },
    /// `MPI_Scan`.
    Scan {
        /// Operand; `None` if it is in `into`.
        from: Option<Span>,
        /// Result.
        into: Span,
    },
    /// `MPI_Exscan`. Nothing is stored on local rank 0.
    Exscan {
        /// Operand; `None` if it is in `into`.
        from: Option<Span>,
        /// Result.
        into: Span,
    },
}

/// Who of a cluster sends to other clusters in a collective, at the same time: everybody there knows it without a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Whoever sends is the only one.
    #[default]
    One,
    /// These, by their ranks in the communicator: no others.
    These(Vec<Rank>),
    /// All members of the cluster, but for those who have nobody elsewhere to send to.
    All,
    /// No others than members of the cluster: each knows its own lengths alone.
    Any,
}

/// What one process does in a collective: steps and what each must wait for.
///
/// A step may start when all steps of its `after` list are done; local collectives moreover start in the
/// order of their steps. Steps only wait for earlier ones. The collective is done when all steps are.
///
/// No send waits for a receive. So an executor may block in a local collective once it has started
/// everything else that is ready: nobody waits for what it does not do meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Memory to have ready.
    pub temporaries: Vec<Temporary>,
    /// What to do.
    pub steps: Vec<Step>,
    /// By step: the steps that must be done before it starts.
    pub after: Vec<Vec<StepId>>,
    /// Who of this process's cluster sends as this one does. Means nothing if it sends no data.
    pub senders: Senders,
}

impl Schedule {
    /// The ranks of the cluster of `shape`'s process that send data to other clusters, itself among them if it does; more than those
    /// only where each process knows its own lengths alone.
    #[must_use]
    pub fn senders<'a>(&'a self, shape: &'a Shape) -> Cow<'a, [Rank]> {
        match &self.senders {
            Senders::One => Cow::Owned(vec![shape.me()]),
            Senders::These(ranks) => Cow::Borrowed(ranks),
            Senders::All | Senders::Any => Cow::Borrowed(shape.neighbours()),
        }
    }

    /// Whether all of these send, not only some of them perhaps.
    #[must_use]
    pub fn is_sure_of_senders(&self) -> bool {
        self.senders != Senders::Any
    }

    /// What this process sends to other clusters: to whom, and how many bytes.
    pub fn sent(&self) -> impl Iterator<Item = (Rank, u64)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Send { to, data, .. } => Some((*to, data.iter().map(|span| span.len).sum())),
            _ => None,
        })
    }
}
