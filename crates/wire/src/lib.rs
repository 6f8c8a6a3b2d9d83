//! What crosses between clusters: frames, their codec and version, the handshake of a connection,
//! and the identifiers they carry. Specified for readers of other languages in `docs/wire.md`.
//!
//! Every decoder is total: any bytes give a value or a [`WireError`] that names what is wrong, and a
//! length is checked before memory is taken for it.
#![forbid(unsafe_code)]

mod auth;
mod codec;
mod error;
mod field;
mod frame;
mod handshake;
mod ids;
mod inbox;
mod leg;
mod record;

pub use auth::{JobKey, MAC_LEN, Mac, Role};
pub use codec::{HEADER_LEN, Head, Header, MAX_DATA_BEFORE, MAX_HEAD, MAX_PAYLOAD, Parsed, parse};
pub use error::WireError;
pub use frame::{
    Carries, Demand, Envelope, Frame, Grant, Kind, Limit, Part, Room, Seen, Share, Start, Transfer,
};
pub use handshake::{
    Challenge, Hello, JobId, MAGIC, NONCE_LEN, Nonce, Proof, VERSION_MAX, VERSION_MIN, Verdict,
    Welcome, choose_version,
};
pub use ids::{ClusterId, ContextId, Plane, ProcId, Rank, Strand};
pub use inbox::Inbox;
pub use leg::{
    CircuitId, Errand, LEG_MAGIC, LEG_VERSION_MAX, LEG_VERSION_MIN, LegAnswer, LegChallenge,
    LegHello, LegNotice, LegRequest, LegVerdict, MOST_BESIDE, RelayAddress, TokenId,
};
pub use record::{MAX_RECORD, RECORD_FIRST, RECORD_HEAD, RecordError, Seal, Verify};
