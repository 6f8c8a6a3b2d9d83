//! GridMPI's variables: what they are called, what they are, and what they are worth now.

use crate::job::Job;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Named};
use std::ffi::c_int;

/// A control variable (MPI 4.1 §15.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Matb,
    Pacing,
    PacedBy,
}

/// A performance variable (MPI 4.1 §15.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Performance {
    RateGranted,
    Grants,
    Retransmits,
    BytesSent,
    BytesReceived,
    TimeStalled,
    Damaged,
}

/// What kind of performance variable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Always there, and nothing to be set: continuous and read-only.
    Level,
    /// Started, stopped, written and reset by handle.
    Counter,
    /// The same, in seconds.
    Timer,
}

/// The category of all of ours, and what it holds (MPI 4.1 §15.3.9).
pub(crate) const CATEGORY: (&str, &str) =
    ("gridmpi", "What GridMPI sends between clusters, and how fast it may");

impl Control {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Matb, Self::Pacing, Self::PacedBy];

    /// Name and description.
    pub(crate) const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Matb => (
                "gridmpi_matb",
                "What this node may send to each other cluster (maximum allowable transmission bandwidth), bits per second with \
                 headers; 0 where nothing holds it. Writing takes effect at once (before MPI_Init: with it); 0 lets the job's own \
                 choice count again",
            ),
            Self::Pacing => (
                "gridmpi_pacing",
                "How what leaves for other clusters is held back: off, static or auto",
            ),
            Self::PacedBy => (
                "gridmpi_paced_by",
                "Who spaces packets for other clusters out: tcp (TCP by timers of its own), fq (the queueing discipline of the \
                 interface) or card (what fq leaves to the network card); empty until there is a connection",
            ),
        }
    }

    /// The type, and how many of it.
    pub(crate) const fn datatype(self) -> (Named, c_int) {
        match self {
            Self::Matb => (Named::UnsignedLongLong, 1),
            Self::Pacing | Self::PacedBy => (Named::Char, PACING as c_int),
        }
    }
}

/// Room for each of the names of a setting, or of who paces, with a null character.
pub(crate) const PACING: usize = 8;

impl Performance {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::RateGranted,
        Self::Grants,
        Self::Retransmits,
        Self::BytesSent,
        Self::BytesReceived,
        Self::TimeStalled,
        Self::Damaged,
    ];

    /// Name and description.
    pub(crate) const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::RateGranted => (
                "gridmpi_rate_granted",
                "What this node may send now to the cluster to which it may send least, bits per second with headers; 0 where \
                 nothing holds it and no link's bandwidth is known",
            ),
            Self::Grants => (
                "gridmpi_grants",
                "Rates granted to this process by the rate broker of its cluster (pacing auto)",
            ),
            Self::Retransmits => (
                "gridmpi_retransmits",
                "Segments that TCP has sent again on this process's connections to other clusters",
            ),
            Self::BytesSent => (
                "gridmpi_bytes_sent",
                "Bytes that this process has sent to other clusters, GridMPI's own headers included",
            ),
            Self::BytesReceived => (
                "gridmpi_bytes_received",
                "Bytes that this process has received from other clusters, GridMPI's own headers included",
            ),
            Self::TimeStalled => (
                "gridmpi_time_stalled",
                "Seconds in which this process had something ready for another cluster that waited for its turn by the rate, or for \
                 the kernel to take more",
            ),
            Self::Damaged => (
                "gridmpi_damaged",
                "Connections that this process has given up because what came from another cluster was changed on the way; it was \
                 sent again",
            ),
        }
    }

    pub(crate) const fn class(self) -> Class {
        match self {
            Self::RateGranted => Class::Level,
            Self::TimeStalled => Class::Timer,
            _ => Class::Counter,
        }
    }

    /// What it has come to since the job began, or is; of a timer nanoseconds. Nothing outside a job.
    pub(crate) fn now<A: Abi>(self, rt: &Runtime<A>) -> u64 {
        rt.joined().map_or(0, |job| self.of(job))
    }

    fn of<A: Abi>(self, job: &Job<A>) -> u64 {
        match self {
            Self::RateGranted => whole(job.matb.rate(&job.net)),
            Self::Grants => job.net.counts().grants,
            Self::Retransmits => job.net.retransmits(),
            Self::BytesSent => job.net.counts().sent,
            Self::BytesReceived => job.net.counts().received,
            // 584 years.
            Self::TimeStalled => job.net.counts().stalled.as_nanos() as u64,
            Self::Damaged => job.net.counts().damaged,
        }
    }
}

/// Bits per second as the program gets them. The conversion saturates.
pub(crate) fn whole(rate: Option<f64>) -> u64 {
    rate.map_or(0, |rate| rate.round() as u64)
}

impl Class {
    /// `MPI_T_PVAR_CLASS_…`.
    pub(crate) const fn number<A: Abi>(self) -> c_int {
        match self {
            Self::Level => A::T_PVAR_CLASS_LEVEL,
            Self::Counter => A::T_PVAR_CLASS_COUNTER,
            Self::Timer => A::T_PVAR_CLASS_TIMER,
        }
    }

    /// What a value is in the program's memory.
    pub(crate) const fn datatype(self) -> Named {
        match self {
            Self::Timer => Named::Double,
            _ => Named::UnsignedLongLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_net::PacedBy;

    #[test]
    fn names_begin_alike_and_differ() {
        let controls = Control::ALL.map(|control| control.text().0);
        let performance = Performance::ALL.map(|variable| variable.text().0);
        let mut all: Vec<_> = controls.into_iter().chain(performance).collect();
        assert!(all.iter().all(|name| name.starts_with("gridmpi_")));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn a_setting_has_room() {
        assert!(gridmpi_bootstrap::Pacing::NAMES.iter().all(|name| name.len() < PACING));
        let by = [PacedBy::Tcp, PacedBy::Fq, PacedBy::Card].map(PacedBy::name);
        assert!(by.iter().all(|name| name.len() < PACING));
    }
}
