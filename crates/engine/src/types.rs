//! What callers of the engine name: requests, patterns, completions, faults.

use gridmpi_trunk::Bounds;
use gridmpi_wire::{
    Carries, ContextId, Demand, Frame, Grant, Limit, Part, ProcId, Rank, Room, Seen, Share, Start,
    Transfer,
};
use std::borrow::Cow;
use std::sync::Arc;

/// Bounds and limits of an [`Endpoint`](crate::Endpoint). But for `me`, `copy_limit` and `tail_limit`
/// all must be the same in every process of a job.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process.
    pub me: ProcId,
    /// Bytes of one message that may be sent before the receiver has matched it.
    pub eager_limit: u64,
    /// Bytes of unexpected payload that each peer may have with us at a time.
    pub credit_bytes: u64,
    /// Unmatched messages that each peer may have with us at a time; at least 1.
    pub credit_envelopes: u64,
    /// Payload bytes of one frame; 1 to `MAX_PAYLOAD` of gridmpi-wire.
    pub chunk: u32,
    /// Messages up to this length are copied when they start, so that their send is over at once.
    /// The two ends may differ in it.
    pub copy_limit: u64,
    /// Bytes that a longer send may leave unacknowledged, and copied, when it is over; it waits for
    /// acknowledgements of more, unless one sends on and on. The two ends may differ in it.
    pub tail_limit: u64,
    /// How far the connections of one stream may get ahead of each other.
    pub bounds: Bounds,
}

impl Config {
    /// The defaults: credit of 16 MiB and 16,384 messages per peer, all of it usable by one message.
    #[must_use]
    pub fn new(me: ProcId) -> Self {
        let credit_bytes = 16 << 20;
        Self {
            me,
            eager_limit: credit_bytes,
            credit_bytes,
            credit_envelopes: 16_384,
            chunk: 256 << 10,
            copy_limit: 64 << 10,
            tail_limit: 4 << 20,
            bounds: Bounds::default(),
        }
    }
}

/// What processes say to each other about rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A transfer begins or ends.
    Transfer(Transfer),
    /// A rate broker grants a rate.
    Grant(Grant),
    /// A rate broker says what to begin with.
    Start(Start),
    /// A rate broker divides a rate.
    Share(Share),
    /// A process says how a link does.
    Seen(Seen),
    /// A process says what it uses of a rate.
    Demand(Demand),
    /// A rate broker tells another of a process's part of a transfer.
    Part(Part),
    /// A rate broker tells another what a process uses.
    Limit(Limit),
    /// A rate broker tells another what a link carries.
    Carries(Carries),
    /// What need not be claimed.
    Room(Room),
}

impl From<Word> for Frame {
    fn from(word: Word) -> Self {
        match word {
            Word::Transfer(transfer) => Self::Transfer(transfer),
            Word::Grant(grant) => Self::Grant(grant),
            Word::Start(start) => Self::Start(start),
            Word::Share(share) => Self::Share(share),
            Word::Seen(seen) => Self::Seen(seen),
            Word::Demand(demand) => Self::Demand(demand),
            Word::Part(part) => Self::Part(part),
            Word::Limit(limit) => Self::Limit(limit),
            Word::Carries(carries) => Self::Carries(carries),
            Word::Room(room) => Self::Room(room),
        }
    }
}

/// A request of the engine. Never used again for another request (slot and generation), so a
/// stale one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// As a number, to keep in a word of somebody else's.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`to_bits`](Self::to_bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A message that was claimed (`MPI_Mprobe`) and awaits its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u64);

impl MessageId {
    /// As a number, to keep in a word of somebody else's.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`to_bits`](Self::to_bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// How a send completes (MPI 4.1 §3.4). Ready mode is `Standard`: we need no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When the buffer may be used again.
    Standard,
    /// When the buffer may be used again and a receive has matched.
    Synchronous,
    /// At once: the data is copied.
    Buffered,
}

/// Whom a receive or probe accepts messages from. Ranks are those of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `MPI_ANY_SOURCE`, on a communicator that has members here and elsewhere.
    Any,
    /// A process of this cluster.
    Local(Rank),
    /// A process of another cluster.
    Remote(Rank, ProcId),
}

/// Which tags a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMatch {
    /// `MPI_ANY_TAG`.
    Any,
    /// This one.
    Is(i32),
}

impl TagMatch {
    /// Whether a message tagged `tag` is accepted.
    #[must_use]
    pub fn accepts(self, tag: i32) -> bool {
        match self {
            Self::Any => true,
            Self::Is(t) => t == tag,
        }
    }

    /// Whether some tag is accepted by both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Is(a), Self::Is(b)) => a == b,
            _ => true,
        }
    }
}

/// Why a request completed without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The message was longer than the receive's buffer (MPI 4.1 §3.2.4). What fits is stored.
    #[error("the message has {message} bytes, the receive buffer {capacity}")]
    Truncated {
        /// Bytes of the message.
        message: u64,
        /// Bytes the buffer takes.
        capacity: u64,
    },
    /// The process at the other end is gone.
    #[error("{peer} is lost: {reason}")]
    PeerLost {
        /// The other process.
        peer: ProcId,
        /// What became of it.
        reason: Arc<str>,
    },
}

/// How a request ended: the content of its `MPI_Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Rank of the sender in the communicator; `None` for sends and cancelled receives.
    pub source: Option<Rank>,
    /// Tag of the message; 0 for sends and cancelled receives.
    pub tag: i32,
    /// Bytes stored in the receive buffer; bytes sent, for sends.
    pub len: u64,
    /// What went wrong.
    pub error: Option<Fault>,
    /// A receive that was cancelled before it matched.
    pub cancelled: bool,
}

/// A message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Rank of the sender in the communicator.
    pub source: Rank,
    /// Its tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: u64,
}

/// A peer that sent what the protocol does not allow. Its connection is to be closed and
/// [`peer_lost`](crate::Endpoint::peer_lost) called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{peer} broke the protocol: {what}")]
pub struct PeerMisbehaved {
    /// Who.
    pub peer: ProcId,
    /// What it did.
    pub what: Cow<'static, str>,
}

impl PeerMisbehaved {
    pub(crate) fn new(peer: ProcId, what: impl Into<Cow<'static, str>>) -> Self {
        Self { peer, what: what.into() }
    }
}

/// The vendor's MPI as the engine needs it: implemented over `PMPI_Iprobe`, `PMPI_Improbe`,
/// `PMPI_Imrecv` and `PMPI_Irecv` on the local communicator of a context, by a model in the
/// simulator. Ranks are those of the spanning communicator. The calls must not block and must not
/// call back into the endpoint.
pub trait LocalMatch {
    /// The message that a receive with this pattern would get now, if any; left where it is.
    fn iprobe(
        &mut self,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)>;

    /// Takes the message that matches now, if any, and starts receiving it into the buffer of
    /// `request`. When that is done, `Endpoint::local_completed` must be called for the request.
    fn improbe_receive(
        &mut self,
        request: RequestId,
        context: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)>;

    /// Posts `request`, a held local receive that nothing conflicts with any more, to the vendor.
    /// When it is done, `Endpoint::local_completed` must be called for the request.
    fn post(&mut self, request: RequestId, context: ContextId, source: Rank, tag: TagMatch);
}
