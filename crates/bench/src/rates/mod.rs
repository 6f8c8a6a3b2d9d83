//! What pacing gains where senders meet at a link: the experiments of Takano et al. on pacing an MPI's traffic.

mod burst;
mod conditions;
mod mode;
mod patterns;
mod sites;

use crate::group::Group;

/// All groups, in the order in which they are run.
pub const GROUPS: [Group; 4] = [
    Group {
        name: "pairs",
        about: "8 pairs, 256 KiB at once",
        measure: |session| burst::measure(session, &patterns::PAIRS),
    },
    Group {
        name: "lone",
        about: "one of them alone, 1 MiB",
        measure: |session| burst::measure(session, &patterns::LONE),
    },
    Group {
        name: "all",
        about: "8 senders to 8 receivers, 32 KiB each to each at once",
        measure: |session| burst::measure(session, &patterns::ALL),
    },
    Group {
        name: "both",
        about: "the same in both directions",
        measure: |session| burst::measure(session, &patterns::BOTH),
    },
];
