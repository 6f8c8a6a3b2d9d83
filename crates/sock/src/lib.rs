//! What the kernel says of sockets and is told of them, where no library does it in our stead: a queue of events, TCP's own account of a
//! connection, pacing, when one that rests is looked after. And who makes room at a listener ([`crowding`]). Linux only; nothing here waits but [`Queue::wait`].
#![forbid(unsafe_code)]

pub mod crowding;
mod queue;
mod rest;
mod tcp;

pub use queue::{Flags, Queue};
pub use rest::look_after;
pub use tcp::{TcpInfo, bound_unsent, set_pacing_rate};
