//! One function for each served procedure, in rooms by what they are about.

pub(crate) mod attribute;
mod collective;
mod communicator;
mod completion;
mod create_group;
mod creation;
mod datatype;
mod dist_graph;
mod graph;
mod group;
mod hints;
mod persistent;
mod probe;
mod receive;
mod reduction;
mod request_status;
mod send;
mod start;
mod topology;

pub use attribute::*;
pub use collective::*;
pub use communicator::*;
pub use completion::*;
pub use datatype::*;
pub use dist_graph::*;
pub use graph::*;
pub use group::*;
pub use hints::*;
pub use persistent::*;
pub use probe::*;
pub use receive::*;
pub use reduction::*;
pub use request_status::*;
pub use send::*;
pub use start::*;
pub use topology::*;
