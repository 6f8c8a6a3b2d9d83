//! One ordered, reliable, resumable flow of frames to and from one process, without I/O.
#![forbid(unsafe_code)]

mod gather;
mod queue;
mod stream;

pub use stream::{Progress, Receive, Stream, StreamError};
