//! Point-to-point figures.

mod bulk;
mod inside;
mod latency;
mod memory;
mod overlap;

use crate::group::{Group, When};
use crate::place::Route;

/// All groups, in the order in which they are run.
pub const GROUPS: [Group; 7] = [
    Group {
        name: "inside",
        about: "calls and ping-pong inside a cluster",
        when: When::Always,
        measure: inside::measure,
    },
    Group {
        name: "latency",
        about: "8-byte ping-pong between clusters over a virtual cable",
        when: When::Always,
        measure: latency::measure,
    },
    Group {
        name: "cable",
        about: "processor time of bulk over a virtual cable",
        when: When::Always,
        measure: |session| bulk::measure(session, Route::Plain),
    },
    Group {
        name: "fast",
        about: "bulk at 10 ms, as fast as the emulator carries",
        when: When::Always,
        measure: |session| bulk::measure(session, Route::Fast),
    },
    Group {
        name: "slow",
        about: "bulk at 10 ms and 160 Mbit/s",
        when: When::Always,
        measure: |session| bulk::measure(session, Route::Slow),
    },
    Group {
        name: "overlap",
        about: "8 MB behind a second of computing",
        when: When::Always,
        measure: overlap::measure,
    },
    Group {
        name: "memory",
        about: "an idle process with 64 remote peers",
        when: When::Always,
        measure: memory::measure,
    },
];
