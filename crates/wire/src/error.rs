//! What can be wrong with bytes from a peer.

use thiserror::Error;

/// Why bytes from a peer were refused. Always the peer's (or the network's) fault, never ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The frame's kind is not in the table of this version.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// Bits that this version requires to be zero are set.
    #[error("reserved bits are set in a frame of kind {0}")]
    ReservedBits(u8),
    /// The body is shorter than its kind's fields, or longer than they and the largest payload.
    #[error("a frame of kind {kind} cannot have a body of {len} bytes")]
    BodyLength {
        /// Code of the frame's kind.
        kind: u8,
        /// Length that the header named, in bytes.
        len: u32,
    },
    /// A sequenced frame bears number 0, or an unsequenced one another number.
    #[error("a frame of kind {kind} cannot bear sequence number {seq}")]
    Sequence {
        /// Code of the frame's kind.
        kind: u8,
        /// Number that the header named.
        seq: u64,
    },
    /// A field's value is outside what the specification allows.
    #[error("the field {0} is out of its range")]
    Field(&'static str),
    /// The bytes end before the fields do.
    #[error("the bytes end inside the field {0}")]
    Short(&'static str),
    /// The connection does not begin with our magic: not a process of a GridMPI job.
    #[error("the peer does not speak GridMPI's protocol (wrong magic)")]
    Magic,
}
