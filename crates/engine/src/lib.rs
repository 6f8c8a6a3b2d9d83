//! The messaging state of one process, without I/O: matching, requests, wildcards, flow control
//! ([`Endpoint`]); and what its communicators are made of.
//!
//! Nothing here blocks, sleeps, reads a clock or touches a socket: callers hand in calls of the
//! program, frames of peers and completions of the vendor's MPI, and poll out completions, bytes to
//! write and connections to make.
#![forbid(unsafe_code)]

mod communicator;
mod early;
mod endpoint;
mod extent;
mod flow;
mod group;
mod incoming;
mod jobmap;
mod lanes;
mod matching;
mod outgoing;
mod peer;
mod request;
mod slab;
pub mod split;
mod topology;
mod types;
mod wildcard;

pub use communicator::{CommComparison, Communicator, Place};
pub use endpoint::{Endpoint, Sink};
pub use gridmpi_trunk::{Bounds, Patience, Progress};
pub use group::{Comparison, Group, GroupError, RankRange};
pub use jobmap::{ClusterInfo, JobMap};
pub use topology::{Cart, DeclaredEdge, DistGraph, Graph, Neighbour, Topology, TopologyError};
pub use types::{
    Completion, Config, Fault, LocalMatch, MessageId, Mode, PeerMisbehaved, Probed, RequestId,
    Source, TagMatch, Word,
};
