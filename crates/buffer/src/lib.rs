//! Datatypes flattened to strided runs, and *packed views* of memory: byte `k` of a view is the
//! `k`-th byte of the data that the type signature names, wherever it lies in the program's memory.
//!
//! [`Layout`] is one element of a datatype; [`SendBuffer`] and [`RecvBuffer`] are `count` elements of
//! it at an address (or bytes of our own). Only `user` touches the program's memory; `block` is memory of our own.

#[allow(unsafe_code)] // blocks of one mapping
mod block;
mod layout;
mod node;
mod recv;
mod send;
#[allow(unsafe_code)] // the one door to the program's memory; see its own comments
mod user;

pub use layout::{ArrayOrder, Distribution, Layout, LayoutError};
pub use node::Run;
pub use recv::RecvBuffer;
pub use send::SendBuffer;

/// The most slices that one scatter-gather call is offered.
pub const MAX_SLICES: usize = 64;

/// Blocks shorter than this on average are better copied than handed to the kernel one by one, bytes.
const FRAGMENT: u64 = 512;
