//! One ordered, reliable, resumable flow of frames to and from one process, over up to
//! [`Strand::MAX`](gridmpi_wire::Strand::MAX) connections at once, without I/O.
#![forbid(unsafe_code)]

mod bounds;
mod gather;
mod inbound;
mod queue;
mod runs;
mod spread;
mod standing;
mod stream;

pub use bounds::Bounds;
pub use standing::Patience;
pub use stream::{Progress, Receive, Stream, StreamError};
