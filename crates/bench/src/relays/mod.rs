//! What relays cost and carry, beside proxies that only pass bytes on.

mod across;
mod cost;
pub mod crowd;
pub mod ends;
mod failover;
mod mesh;
mod passage;
mod proxies;
mod scale;
mod servers;
mod talk;
mod tls;
mod trunks;

use crate::group::{Group, When};

/// All groups, in the order in which they are run.
pub const GROUPS: [Group; 6] = [
    Group {
        name: "latency",
        about: "8-byte ping-pong through a pair of relays",
        when: When::Always,
        measure: passage::latency,
    },
    Group {
        name: "throughput",
        about: "bulk through relays on one core",
        when: When::Always,
        measure: passage::throughput,
    },
    Group {
        name: "trunks",
        about: "1 to 8 relays with 20-Mbit/s interfaces in each cluster",
        when: When::Always,
        measure: trunks::measure,
    },
    Group {
        name: "failover",
        about: "how long nothing comes when a relay dies",
        when: When::Whole,
        measure: failover::measure,
    },
    Group {
        name: "tls",
        about: "processes' own TLS on a link of 1 Gbit/s",
        when: When::Always,
        measure: tls::measure,
    },
    Group {
        name: "scale",
        about: "relays of 4 clusters with 1,000 processes each, idle and chattering",
        when: When::Whole,
        measure: scale::measure,
    },
];
