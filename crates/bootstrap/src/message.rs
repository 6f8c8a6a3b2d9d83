//! What crosses an authenticated rendezvous connection, as JSON, one message a frame.

use crate::join::{JoinRequest, JoinTerms};
use crate::model::{ClusterName, JobTable, Registration};
use serde::{Deserialize, Serialize};

/// Longest reason that is carried, in bytes.
const MAX_REASON: usize = 4096;

/// To the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToCoordinator {
    /// A cluster has come up. First message of a rank.
    Register(Registration),
    /// The program called `MPI_Abort` (MPI 4.1 §9.7) or a rank failed.
    Abort { cluster: ClusterName, code: i32, reason: String },
    /// A rank saw another cluster fail; the cause is to be told by others.
    Suspect { cluster: ClusterName, reason: String },
    /// The cluster's local rank 0 has come to the end of `MPI_Finalize`.
    Finalized,
    /// A launcher elsewhere asks to take part. First message of `gridmpi join`.
    Join(JoinRequest),
    /// That launcher has ended with this exit status (128 + n for signal n).
    Exited { code: i32 },
}

/// From the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromCoordinator {
    /// All clusters have come.
    Table(JobTable),
    /// This cluster or this job cannot go on.
    Refused { reason: String },
    /// The job has ended or is being ended.
    Ended { code: i32, reason: String },
    /// A `gridmpi join` is taken in.
    Joined(JoinTerms),
    /// A `gridmpi join` is to forward this signal to its launcher.
    Signal { number: i32 },
}

/// Shortens a reason to what may cross.
pub(crate) fn bounded(reason: &str) -> String {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        assert!(bounded(&"é".repeat(4000)).len() <= 4096);
    }
}
