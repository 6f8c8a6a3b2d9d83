//! How one node comes to another: to the addresses that it tells, or by circuits through relays, as a job's processes would.

use crate::message::MAX_ADDRESSES;
use crate::presence::Presence;
use gridmpi_bootstrap::line::{self, Line, Pass};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most relays of a cluster, and the longest name of one.
const MAX_RELAYS: usize = 64;
const MAX_NAME: usize = 300;
/// Time for a connection to be made and proven.
const SHORT: Duration = Duration::from_secs(10);

/// The way to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    /// To one of its addresses, best first.
    Direct(Vec<SocketAddr>),
    /// To this process, which it is registered as, by circuits.
    Circuits {
        /// Through which of the dialler's own relays; connections take them by turns.
        relays: Vec<String>,
        /// The process.
        process: u32,
    },
}

impl Reach {
    /// Whether it keeps to the bounds.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Direct(addresses) => (1..=MAX_ADDRESSES).contains(&addresses.len()),
            Self::Circuits { relays, .. } => {
                (1..=MAX_RELAYS).contains(&relays.len())
                    && relays.iter().all(|name| name.len() <= MAX_NAME)
            }
        }
    }
}

/// Connects a node to others.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) pass: Pass,
    /// At its cluster's relays.
    pub(crate) presence: Option<Arc<Presence>>,
}

impl Dialler {
    /// A new line to `to`, the `number`th.
    pub(crate) fn dial(&self, to: &Reach, number: usize) -> Result<Line, String> {
        match to {
            Reach::Direct(addresses) => {
                let line = line::dial(addresses, &self.pass, Instant::now() + SHORT);
                line.map_err(|error| error.to_string())
            }
            Reach::Circuits { relays, process } => {
                let relay = number.checked_rem(relays.len()).and_then(|turn| relays.get(turn));
                let own = self.presence.as_ref().zip(relay);
                let (own, relay) = own.ok_or("it has no relay to go through")?;
                own.line(relay, *process)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::Secret;

    #[test]
    fn ways_out_of_bounds_are_refused() {
        let by = |relays: Vec<String>| Reach::Circuits { relays, process: u32::MAX };
        assert!(by(vec!["gw:7070".into(); 64]).is_sound());
        assert!(!by(Vec::new()).is_sound() && !by(vec!["gw:7070".into(); 65]).is_sound());
        assert!(!by(vec!["x".repeat(301)]).is_sound());
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert!(Reach::Direct(vec![here]).is_sound());
        assert!(!Reach::Direct(Vec::new()).is_sound());
        assert!(!Reach::Direct(vec![here; MAX_ADDRESSES + 1]).is_sound());
    }

    #[test]
    fn who_has_no_relay_says_so() {
        let dialler = Dialler { pass: Pass::from(&Secret::random().unwrap()), presence: None };
        let to = Reach::Circuits { relays: vec!["gw:7070".into()], process: 1 };
        assert!(dialler.dial(&to, 7).is_err_and(|why| why.contains("no relay")));
    }
}
