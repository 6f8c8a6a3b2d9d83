//! What pacing gains where senders meet at a link: the experiments of Takano et al. on pacing an MPI's traffic.

mod burst;
mod churn;
mod collectives;
mod conditions;
mod exactness;
mod gaps;
mod grants;
mod incast;
mod leftover;
mod mode;
mod npb;
mod patterns;
mod picture;
pub(crate) mod programs;
mod sites;
mod wrong;

use crate::group::{Group, When};

/// All groups, in the order in which they are run.
pub const GROUPS: [Group; 19] = [
    Group {
        name: "pairs",
        about: "8 pairs, 256 KiB at once",
        when: When::Always,
        measure: |session| burst::measure(session, &patterns::PAIRS),
    },
    Group {
        name: "lone",
        about: "one of them alone, 1 MiB",
        when: When::Always,
        measure: |session| burst::measure(session, &patterns::LONE),
    },
    Group {
        name: "all",
        about: "8 senders to 8 receivers, 32 KiB each to each at once",
        when: When::Always,
        measure: |session| burst::measure(session, &patterns::ALL),
    },
    Group {
        name: "both",
        about: "the same in both directions",
        when: When::Always,
        measure: |session| burst::measure(session, &patterns::BOTH),
    },
    Group {
        name: "row",
        about: "all-to-alls right behind each other, 16 KiB each",
        when: When::Whole,
        measure: |session| burst::measure(session, &patterns::ROW),
    },
    Group {
        name: "faster",
        about: "bursts where interfaces and link are twice as fast",
        when: When::Whole,
        measure: burst::measure_faster,
    },
    Group {
        name: "short",
        about: "8 senders to 8 receivers, 2,700 bytes each to each at once",
        when: When::Whole,
        measure: |session| burst::measure(session, &patterns::SHORT),
    },
    Group {
        name: "pause",
        about: "8 pairs and one of them alone, 1 s apart: longer than TCP remembers its window",
        when: When::Whole,
        measure: burst::measure_rested,
    },
    Group {
        name: "elsewhere",
        about: "bursts without bbr, where interfaces are not said, and with two ranks a node",
        when: When::Whole,
        measure: burst::measure_elsewhere,
    },
    Group {
        name: "collectives",
        about: "collectives by turns: one of 8 sends, all send",
        when: When::Whole,
        measure: collectives::measure,
    },
    Group {
        name: "incast",
        about: "8 senders to one receiver, and to eight with slow interfaces",
        when: When::Whole,
        measure: incast::measure,
    },
    Group {
        name: "exactness",
        about: "one sender at a rate of its own, frame by frame",
        when: When::Whole,
        measure: exactness::measure,
    },
    Group {
        name: "churn",
        about: "a lone sender, and others that join it and leave",
        when: When::Whole,
        measure: churn::measure,
    },
    Group {
        name: "leftover",
        about: "8 pairs, of which 4 cannot use their share",
        when: When::Whole,
        measure: leftover::measure,
    },
    Group {
        name: "wrong",
        about: "bursts where the job file says ten times too much of the link, or too little",
        when: When::Whole,
        measure: wrong::measure,
    },
    Group {
        name: "grants",
        about: "how soon a claim has its grant, and how long setting a rate takes",
        when: When::Whole,
        measure: grants::measure,
    },
    Group {
        name: "programs",
        about: "real programs on 4 + 4 nodes",
        when: When::Named,
        measure: programs::measure,
    },
    Group {
        name: "npb",
        about: "the NAS Parallel Benchmarks",
        when: When::Named,
        measure: npb::measure,
    },
    Group {
        name: "run",
        about: "a program of yours",
        when: When::Named,
        measure: programs::own::measure,
    },
];
