//! Entry points for fuzzing: whatever bytes come from outside must end in a value or an error.

use crate::handshake;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::{ClusterName, JobTable, NetworkInfo};
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
    let _ = hear_member(bytes);
}

/// What a coordinator may say.
pub fn from_coordinator(bytes: &[u8]) {
    let _ = hear_coordinator(bytes);
}

fn expect(name: ClusterName) -> Expected {
    Expected { joins: name.as_str() == "b", name, ranks: None, interface: None }
}

/// Whether these were a message.
fn hear_member(bytes: &[u8]) -> bool {
    let names = ["a", "b"].into_iter().filter_map(|name| ClusterName::new(name).ok());
    let mut roster = Roster::new(names.map(expect).collect());
    if let Ok(Opening { cluster, received, .. }) = serde_json::from_slice(bytes) {
        let session = Session::<FromCoordinator>::new(0);
        let _ = (roster.find(&cluster), session.is_plausible(received));
        return true;
    }
    let envelope = serde_json::from_slice::<Envelope<ToCoordinator>>(bytes);
    let message = envelope.ok().and_then(|envelope| envelope.message);
    let Some((_, message)) = message else { return false };
    match message {
        ToCoordinator::Register(registration) => {
            let mut alone = Roster::new(vec![expect(registration.cluster.clone())]);
            let _ = alone.register(registration.clone());
            if let Some(table) = alone.table(JobId([0; 16]), &NetworkInfo::default()) {
                look_at(&table);
            }
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
    true
}

/// Whether these were a message.
fn hear_coordinator(bytes: &[u8]) -> bool {
    let envelope = serde_json::from_slice::<Envelope<FromCoordinator>>(bytes);
    let message = envelope.ok().and_then(|envelope| envelope.message);
    if let Some((_, FromCoordinator::Table(table))) = &message {
        look_at(table);
    }
    message.is_some()
}

fn look_at(table: &JobTable) {
    let _ = (table.size(), table.tag_ub(), table.credit(), table.is_secure());
    let last = table.clusters.len().saturating_sub(1);
    let _ = (table.via(0, last), table.dialler(0, last), table.network.matb(last));
    let _ = (table.network.reconnect(), table.network.carried(0, last));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Greeting, Role};
    use crate::join::{JoinRequest, JoinTerms};
    use crate::model::tests::sample;
    use crate::model::{LinkInfo, Via};
    use crate::session::SessionId;
    use serde::Serialize;
    use serde_json::{Value, json};

    /// More of one kind than any list that is bounded may have.
    const MANY: usize = 5000;

    fn name(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn value(of: impl Serialize) -> Value {
        serde_json::to_value(of).unwrap()
    }

    fn members() -> Vec<Value> {
        let (cluster, reason) = (name("a"), "why".to_owned());
        let aborts =
            ToCoordinator::Abort { cluster: cluster.clone(), code: 3, reason: reason.clone() };
        let joins = JoinRequest { cluster: name("b"), host: "h".to_owned(), pid: 1 };
        let messages = [
            ToCoordinator::Register(sample("a", 2)),
            aborts,
            ToCoordinator::Suspect { cluster: cluster.clone(), reason },
            ToCoordinator::Finalized,
            ToCoordinator::Join(joins),
            ToCoordinator::Exited { code: 1 },
        ];
        let session = SessionId::random().unwrap();
        let opening = value(Opening { session, cluster, received: 1 });
        let says = |message| value(Envelope::saying(1, 2, message));
        messages.into_iter().map(says).chain([opening]).collect()
    }

    fn table() -> JobTable {
        let link = LinkInfo {
            between: [0, 1],
            bandwidth_bits_per_s: Some(1_000_000_000),
            delay_us: None,
            via: Some(Via::Relays),
            dial: Some(0),
        };
        let network = NetworkInfo {
            links: vec![link],
            uplinks: vec![Some(1_000_000), None],
            matb: vec![None, Some(7)],
            reconnect_s: Some(60),
            ..NetworkInfo::default()
        };
        JobTable { job: [7; 16], clusters: vec![sample("a", 2), sample("b", 1)], network }
    }

    fn coordinators() -> Vec<Value> {
        let terms = JoinTerms {
            coordinators: vec!["192.0.2.1:7000".parse().unwrap()],
            wait_s: 0,
            interface: Some("eth1".to_owned()),
            reconnect_s: 60,
        };
        let reason = "why".to_owned();
        let messages = [
            FromCoordinator::Table(table()),
            FromCoordinator::Refused { reason: reason.clone() },
            FromCoordinator::Ended { code: 1, reason },
            FromCoordinator::Joined(terms),
            FromCoordinator::Signal { number: 15 },
        ];
        messages.into_iter().map(|message| value(Envelope::saying(1, 2, message))).collect()
    }

    /// How many values there are in this one, with itself.
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(list) => list.iter().map(count).sum(),
            Value::Object(map) => map.values().map(count).sum(),
            _ => 0usize,
        }
    }

    /// Changes the value that is so far behind the first.
    fn change(value: &mut Value, at: &mut usize, how: &dyn Fn(&mut Value)) {
        if *at == 0 {
            how(value);
        }
        // Once changed it is far from any other.
        *at = at.wrapping_sub(1);
        match value {
            Value::Array(list) => list.iter_mut().for_each(|it| change(it, at, how)),
            Value::Object(map) => map.values_mut().for_each(|it| change(it, at, how)),
            _ => {}
        }
    }

    /// Something less, and many of the same.
    fn shorten(value: &mut Value) {
        match value {
            Value::Array(list) => drop(list.pop()),
            Value::Object(map) => map.retain({
                let mut is_first = true;
                move |_, _| !std::mem::replace(&mut is_first, false)
            }),
            Value::String(text) => drop(text.pop()),
            other => *other = Value::Null,
        }
    }

    fn lengthen(value: &mut Value) {
        match value {
            Value::Array(list) => {
                let one = list.first().cloned().unwrap_or_default();
                list.resize(MANY, one);
            }
            Value::String(text) => *text = text.repeat(MANY),
            other => *other = json!(vec![other.clone(); 3]),
        }
    }

    /// Each value of each message in turn is replaced by each of many; how many were still messages, and how many not.
    fn replaced(messages: &[Value], hear: fn(&[u8]) -> bool) -> [usize; 2] {
        let others = [
            json!(null),
            json!(0),
            json!(-1),
            json!(1u64 << 32),
            json!(u64::MAX),
            json!(2f64.powi(64)),
            json!(0.5),
            json!(true),
            json!(""),
            json!("b"),
            json!([]),
            json!({}),
        ];
        let mut heard = [0; 2];
        for (message, at) in messages.iter().flat_map(|it| (0..count(it)).map(move |at| (it, at))) {
            let mut offer = |how: &dyn Fn(&mut Value)| {
                let mut changed = message.clone();
                change(&mut changed, &mut at.clone(), how);
                heard[usize::from(hear(changed.to_string().as_bytes()))] += 1;
            };
            others.iter().for_each(|other| offer(&|value| *value = other.clone()));
            offer(&shorten);
            offer(&lengthen);
        }
        heard
    }

    #[test]
    fn what_is_whole_is_understood() {
        for (messages, hear) in
            [(members(), hear_member as fn(&[u8]) -> bool), (coordinators(), hear_coordinator)]
        {
            for message in messages {
                assert!(hear(message.to_string().as_bytes()), "{message}");
            }
        }
    }

    #[test]
    fn messages_with_a_value_that_is_none_of_ours_are_survived() {
        for [wrong, right] in
            [replaced(&members(), hear_member), replaced(&coordinators(), hear_coordinator)]
        {
            assert!(wrong > 50 && right > 50, "{wrong} and {right}");
        }
    }

    proptest::proptest! {
        #[test]
        fn bytes_of_all_kinds_are_survived(bytes in proptest::collection::vec(0u8.., 0..100)) {
            hello(&bytes);
            hello(&[b"GMPI-RDV\x02\x00", bytes.as_slice()].concat());
            to_coordinator(&bytes);
            from_coordinator(&bytes);
        }

        #[test]
        fn messages_with_wrong_bytes_are_survived(
            which in 0usize..100,
            wrong in proptest::collection::vec((0usize..1000, 0u8..), 1..4),
        ) {
            let garble = |mut bytes: Vec<u8>| {
                let len = bytes.len();
                wrong.iter().for_each(|(at, byte)| bytes[at % len] = *byte);
                bytes
            };
            let text = |of: Vec<Value>| of[which % of.len()].to_string().into_bytes();
            let greeting = Greeting::new(Role::Rank, JobId([0; 16])).unwrap();
            hello(&garble(greeting.hello().to_vec()));
            to_coordinator(&garble(text(members())));
            from_coordinator(&garble(text(coordinators())));
        }
    }
}
