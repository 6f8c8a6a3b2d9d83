//! Why a measurement came to nothing.

use gridmpi_bootstrap::line::LineError;

/// Whose fault it is, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// This machine does not let us.
    #[error("{0}")]
    Here(String),
    /// The far end cannot be reached, or is not of us.
    #[error("{}", dialling(.0))]
    Dial(LineError),
    /// A node cannot come to whoever has had it started.
    #[error("cannot take part in measuring: {0}")]
    Attend(LineError),
    /// Nobody came.
    #[error("{missing} after {seconds} s")]
    Missing {
        /// Who has not come.
        missing: String,
        /// How long was waited.
        seconds: u64,
    },
    /// A node says why it cannot do what it was asked.
    #[error("{node}: {reason}")]
    Node {
        /// The node's host and cluster.
        node: String,
        /// What it says.
        reason: String,
    },
    /// A node has gone.
    #[error("{node} went away while measuring: {reason}")]
    Lost {
        /// The node's host and cluster.
        node: String,
        /// What became of its connection.
        reason: String,
    },
    /// A node does not answer.
    #[error("{node} did not answer in time: {what}")]
    Silent {
        /// The node's host and cluster.
        node: String,
        /// What was waited for.
        what: &'static str,
    },
    /// Clusters that meet at relays do not.
    #[error(
        "clusters `{}` and `{}` meet at relays, and no circuit leads from one's nodes to the other's: {why}. `gridmpi doctor` with the job file \
         says more", .between[0], .between[1]
    )]
    NoCircuit {
        /// Which.
        between: [String; 2],
        /// The first thing that is wrong.
        why: String,
    },
    /// Connections were made, and nothing has crossed them.
    #[error(
        "nothing arrived from {from} at {to}, though connections were made: packets of full size may be dropped on the way"
    )]
    Nothing {
        /// The sending side.
        from: String,
        /// The receiving side.
        to: String,
    },
    /// Who waits says why it is of no use.
    #[error("{0}")]
    Ended(String),
}

fn dialling(error: &LineError) -> String {
    let hint = match error {
        LineError::Unreachable { .. } => {
            ". Is `gridmpi probe --listen` (or `doctor --listen`) running there, and does a firewall let its port through?"
        }
        _ => "",
    };
    format!("{error}{hint}")
}
