//! Who may send how fast: the active transfers share interfaces and links max–min fairly.
//!
//! The maximum allowable transmission bandwidth (MATB) of a sender is the sum of the rates of its transfers. `network` says
//! what can be a bottleneck: each node's interface, in and out, and each direction of each link; `filling` shares
//! it (progressive filling, Bertsekas and Gallager, *Data Networks*, §6.5.2); `allocation` puts the two together. `broker` keeps
//! account of who is active in a cluster, `crowd` of how many they are and `room` of how many may do without a word, `inlets` of what piles up
//! in front of receivers, `claims` of what one process was granted,
//! `company` of the senders of collectives, who are known, `frame` of what data takes of a link, `demand` of whether it uses its
//! grant, `limits` of who does not, `lull` of whether anybody has more than its share for long, `links` of what links are believed to carry, `estimate` of how that is found out, `backlog` of what waits before them
//! and `caution` of whether they lose anything, `rivals` of what other clusters' brokers have told.
//!
//! No I/O, no clock, no randomness: brokers that know the same compute the same, bit for bit.

#![forbid(unsafe_code)]

mod allocation;
mod backlog;
mod broker;
mod caution;
mod claims;
mod company;
mod crowd;
mod demand;
mod estimate;
mod filling;
mod frame;
mod inlets;
mod limits;
mod links;
mod lull;
mod network;
mod rate;
mod rivals;
mod room;
mod unclaimed;

pub use allocation::{Allocator, Transfer};
pub use broker::{Broker, Order, Process};
pub use claims::{Claimed, Claims, Grant, Pace, Start};
pub use company::Path;
pub use estimate::Seen;
pub use frame::{ACKNOWLEDGEMENT, FRAME, HEADERS, HEADERS_IPV6, PAYLOAD, SEGMENT, Weight};
pub use links::{Correction, Parts};
pub use network::{ClusterId, LinkId, Network, NodeId};
pub use rate::Rate;
pub use rivals::Notice;
