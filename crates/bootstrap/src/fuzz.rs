//! Entry points for fuzzing: whatever bytes come from outside must end in a value or an error.

use crate::handshake;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::ClusterName;
use crate::roster::{Expected, Roster};
use crate::secret::JobId;
use crate::session::{Envelope, Opening, Session};

/// The first message of a stranger.
pub fn hello(bytes: &[u8]) {
    let mut hello = [0; handshake::HELLO_LEN];
    let len = bytes.len().min(hello.len());
    hello[..len].copy_from_slice(&bytes[..len]);
    let _ = handshake::parse_hello(&hello, JobId([0; 16]));
}

/// What a member may say, and what comes of it.
pub fn to_coordinator(bytes: &[u8]) {
    let expect = |name: &str| {
        let name = ClusterName::new(name).ok()?;
        Some(Expected { joins: name.as_str() == "b", name, ranks: None, interface: None })
    };
    let mut roster = Roster::new(["a", "b"].into_iter().filter_map(expect).collect());
    if let Ok(Opening { cluster, received, .. }) = serde_json::from_slice(bytes) {
        let session = Session::<FromCoordinator>::new(0);
        let _ = (roster.find(&cluster), session.is_plausible(received));
    }
    let envelope = serde_json::from_slice::<Envelope<ToCoordinator>>(bytes);
    let Some((_, message)) = envelope.ok().and_then(|envelope| envelope.message) else { return };
    match message {
        ToCoordinator::Register(registration) => {
            let _ = roster.register(registration);
        }
        ToCoordinator::Join(request) => {
            let _ = roster.join(request);
        }
        ToCoordinator::Abort { cluster, .. } | ToCoordinator::Suspect { cluster, .. } => {
            let _ = roster.find(&cluster);
        }
        ToCoordinator::Finalized | ToCoordinator::Exited { .. } => {}
    }
}

/// What a coordinator may say.
pub fn from_coordinator(bytes: &[u8]) {
    let envelope = serde_json::from_slice::<Envelope<FromCoordinator>>(bytes);
    let message = envelope.ok().and_then(|envelope| envelope.message);
    if let Some((_, FromCoordinator::Table(table))) = message {
        let _ = (table.size(), table.tag_ub());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn bytes_of_all_kinds_are_survived(bytes in proptest::collection::vec(0u8.., 0..100)) {
            hello(&bytes);
            hello(&[b"GMPI-RDV\x02\x00", bytes.as_slice()].concat());
            to_coordinator(&bytes);
            from_coordinator(&bytes);
        }

        #[test]
        fn json_of_all_shapes_is_survived(
            key in "register|join|abort|table|ended|x",
            body in "[\\[\\]{}\":,a-c0-9.-]{0,60}",
        ) {
            let text = format!("{{\"{key}\":{body}}}");
            for text in [text.clone(), format!("{{\"received\":1,\"message\":[0,{text}]}}")] {
                to_coordinator(text.as_bytes());
                from_coordinator(text.as_bytes());
            }
        }
    }
}
