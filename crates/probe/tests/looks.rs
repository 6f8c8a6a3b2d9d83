//! Nodes in threads of this process look at each other, directly and through a small relay made of `gridmpi-leg`.

use gridmpi_bootstrap::line::Pass;
use gridmpi_bootstrap::{RelayAccess, RelayToken, Secret};
use gridmpi_doctor::{Bulk, Facts, Link, Outcome, RelayProblem, Severity, findings};
use gridmpi_leg::{Host, HostStep, Request};
use gridmpi_probe::node::{self, Identity};
use gridmpi_probe::{Conductor, Gathering, How, Options, Way};
use gridmpi_wire::{CircuitId, Errand, JobKey, LegNotice, LegVerdict};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where nobody listens: no system gives this port away, so that no listener of another test has it meanwhile.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// What waits at the relay.
#[derive(Default)]
struct Waiting {
    registered: HashMap<u32, TcpStream>,
    opened: HashMap<u64, (TcpStream, Box<Request>)>,
}

/// A relay that knows one token and is joined to no other.
fn relay(token: &RelayToken) -> SocketAddr {
    relay_with(token, usize::MAX)
}

/// One on whose way packets larger than `packet` vanish, as far as circuits are concerned.
fn relay_with(token: &RelayToken, packet: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, token) = (listener.local_addr().unwrap(), JobKey::new(token.bytes()));
    let waiting: Arc<Mutex<Waiting>> = Arc::default();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let (waiting, token) = (Arc::clone(&waiting), token.clone());
            std::thread::spawn(move || host(stream, &token, &waiting, (number as u64, packet)));
        }
    });
    at
}

fn host(
    mut stream: TcpStream,
    token: &JobKey,
    waiting: &Mutex<Waiting>,
    (number, packet): (u64, usize),
) -> Option<()> {
    let mut host = Host::new([number as u8 + 1; 32]);
    let request = loop {
        let count = stream.read(host.space()).ok().filter(|count| *count > 0)?;
        let known = |id: &_| (*id == token.token_id()).then(|| token.clone());
        match host.read(count, known).ok()? {
            HostStep::More => {}
            HostStep::Send(challenge) => stream.write_all(&challenge).ok()?,
            HostStep::Refuse(challenge, _) => return stream.write_all(&challenge).ok(),
            HostStep::Asked(request) => break request,
        }
    };
    let from = request.what().from;
    let mut waiting = waiting.lock().unwrap();
    match request.what().errand {
        Errand::Register { .. } => {
            stream.write_all(&request.answer(LegVerdict::Accepted)).ok()?;
            waiting.registered.insert(from.0, stream);
        }
        Errand::Open { to } => {
            let Some(far) = waiting.registered.get_mut(&to.0) else {
                return stream.write_all(&request.answer(LegVerdict::NoRoute)).ok();
            };
            far.write_all(&LegNotice::Called { from, circuit: CircuitId(number) }.encode()).ok()?;
            waiting.opened.insert(number, (stream, request));
        }
        Errand::Accept { circuit } => {
            let (mut near, asked) = waiting.opened.remove(&circuit.0)?;
            drop(waiting);
            stream.write_all(&request.answer(LegVerdict::Accepted)).ok()?;
            near.write_all(&asked.answer(LegVerdict::Accepted)).ok()?;
            splice(near.try_clone().ok()?, stream.try_clone().ok()?, packet);
            splice(stream, near, packet);
        }
    }
    Some(())
}

/// Passes on what comes in pieces of at most `packet`; from a larger one on nothing.
fn splice(mut from: TcpStream, mut to: TcpStream, packet: usize) {
    std::thread::spawn(move || {
        let (mut piece, mut is_stuck) = (vec![0; 64 << 10], false);
        while let Ok(count @ 1..) = from.read(&mut piece) {
            is_stuck |= count > packet;
            if !is_stuck && to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// One node of each cluster, each with its relays and with addresses of others' told before its own; what they see.
fn look(relays: [Option<RelayAccess>; 2], wrong: &[SocketAddr], by_relays: bool) -> Facts {
    look_how(relays, wrong, by_relays, &How::default())
}

fn look_how(
    relays: [Option<RelayAccess>; 2],
    wrong: &[SocketAddr],
    by_relays: bool,
    how: &How,
) -> Facts {
    let secret = Secret::random().unwrap();
    let pass = Pass::from(&secret);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = [listener.local_addr().unwrap()];
    for (cluster, relays) in ["a", "b"].into_iter().zip(relays) {
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut addresses = wrong.to_vec();
        addresses.push(own.local_addr().unwrap());
        let (cluster, host) = (cluster.to_owned(), format!("{cluster}1"));
        let who = Identity { cluster, host, of: Some(1), addresses, interface: None, relays };
        let pass = pass.clone();
        std::thread::spawn(move || node::attend(&at, &pass, vec![own], who));
    }
    let clusters = ["a", "b"].map(|name| (name.to_owned(), Some(1))).to_vec();
    let wait = Duration::from_secs(20);
    let gathering = Gathering { listeners: vec![listener], relays: None, pass, clusters, wait };
    let mut watch = || Ok(());
    let mut conductor = Conductor::gather(gathering, &mut watch).unwrap();
    let between = ["a".to_owned(), "b".to_owned()];
    let link = Link { between, bandwidth: None, delay_us: None, dialler: None, measured: None };
    let facts = conductor.examine(&[Way { link, by_relays }], how);
    conductor.leave();
    assert_eq!(facts.troubles, []);
    facts
}

fn access(name: impl ToString, token: &RelayToken) -> Option<RelayAccess> {
    Some(RelayAccess { names: vec![name.to_string()], token: token.clone() })
}

#[test]
fn each_direction_is_looked_at_and_strangers_are_told_from_nodes() {
    // Something else that talks, and something that takes connections and says nothing.
    let talks = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = [NOBODY, talks.local_addr().unwrap(), mute.local_addr().unwrap()];
    std::thread::spawn(move || {
        for mut stream in talks.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example ESMTP ready\r\n");
        }
    });
    let facts = look([None, None], &wrong, false);
    assert_eq!((facts.machines.len(), facts.paths.len()), (2, 2));
    for path in &facts.paths {
        let outcomes: Vec<&Outcome> = path.visit.attempts.iter().map(|one| &one.outcome).collect();
        assert!(
            matches!(
                outcomes[..],
                [Outcome::Refused, Outcome::Stranger(_), Outcome::Mute, Outcome::Reached]
            ),
            "{outcomes:?}"
        );
        let depth = path.visit.depth.as_ref().unwrap();
        assert!(matches!((&depth.outward, &depth.inward), (Bulk::Passed(_), Bulk::Passed(_))));
        assert_eq!((depth.seen, depth.passing), (depth.local, None));
        assert!(depth.ahead_us.unsigned_abs() <= u64::from(depth.ahead_error_us) + 2000);
    }
}

#[test]
fn circuits_through_a_relay_lead_to_the_right_node() {
    let token = RelayToken::random().unwrap();
    let at = relay(&token);
    let facts = look([access(at, &token), access(at, &token)], &[], true);
    assert_eq!((facts.paths.len(), facts.relays.len(), facts.circuits.len()), (0, 2, 2));
    assert!(facts.relays.iter().all(|fact| fact.problem.is_none() && fact.trip_us.is_some()));
    for circuit in &facts.circuits {
        assert!(circuit.problem.is_none() && circuit.trip_us.is_some(), "{circuit:?}");
    }
    assert!(findings(&facts).iter().any(|f| f.code == "circuit" && f.severity == Severity::Ok));
}

#[test]
fn what_circuits_carry_is_measured_from_the_side_whose_relay_leads_somewhere() {
    let token = RelayToken::random().unwrap();
    let at = relay(&token);
    let both =
        RelayAccess { names: vec![NOBODY.to_string(), at.to_string()], token: token.clone() };
    let bandwidth = Some(Options { limit: Duration::from_secs(1), ..Options::default() });
    let how = How { bandwidth, ..How::default() };
    for relays in [[Some(both.clone()), access(at, &token)], [access(at, &token), Some(both)]] {
        let facts = look_how(relays, &[], true, &how);
        assert_eq!(facts.paths, []);
        let measured = facts.links[0].measured.as_ref().unwrap();
        assert!(measured.bandwidth > 1_000_000 && measured.again_permille.is_none());
        let all = findings(&facts);
        let found = all.iter().find(|finding| finding.code == "bandwidth").unwrap();
        assert!(found.evidence.contains("through relays"), "{found:?}");
        // The other one is gone, and is told of as such.
        assert!(all.iter().all(|finding| finding.severity != Severity::Error));
    }
    let facts = look_how([access(NOBODY, &token), access(NOBODY, &token)], &[], true, &how);
    assert_eq!(facts.links[0].measured, None);
}

#[test]
fn a_relay_behind_which_large_packets_vanish_is_seen() {
    let token = RelayToken::random().unwrap();
    let at = relay_with(&token, 4000);
    let facts = look([access(at, &token), access(at, &token)], &[], true);
    let problems: Vec<_> = facts.circuits.iter().map(|circuit| circuit.problem.clone()).collect();
    assert_eq!(problems, [Some(RelayProblem::Stalled), Some(RelayProblem::Stalled)]);
    let all = findings(&facts);
    let stalled = all.iter().find(|one| one.code == "circuit").unwrap();
    assert_eq!(stalled.severity, Severity::Error);
    assert!(stalled.remedy.as_deref().unwrap().contains("tcp_mtu_probing"), "{stalled:#?}");
}

#[test]
fn relays_that_cannot_be_used_say_why() {
    let token = RelayToken::random().unwrap();
    let (one, other) = (relay(&token), relay(&token));
    // Two relays that do not know each other.
    let facts = look([access(one, &token), access(other, &token)], &[], true);
    assert!(facts.relays.iter().all(|fact| fact.problem.is_none()), "{:?}", facts.relays);
    let problems: Vec<_> = facts.circuits.iter().map(|circuit| circuit.problem.clone()).collect();
    assert_eq!(problems, [Some(RelayProblem::NoRoute), Some(RelayProblem::NoRoute)]);
    // One that has another token, and one that is not there under a name that nobody knows.
    let wrong = RelayToken::random().unwrap();
    let unknown = access("no-such-relay.invalid:7070", &token);
    let facts = look([access(one, &wrong), unknown], &[], true);
    let problem = |n: usize| facts.relays[n].problem.clone().unwrap();
    assert_eq!(problem(0), RelayProblem::Token);
    assert!(matches!(problem(1), RelayProblem::Name(_)), "{:?}", problem(1));
    let codes: Vec<_> =
        findings(&facts).iter().filter(|f| f.severity == Severity::Error).map(|f| f.code).collect();
    assert!(codes.contains(&"relay-token") && codes.contains(&"relay-name"), "{codes:?}");
    let fresh = relay(&token);
    let facts = look([access(NOBODY, &token), access(fresh, &token)], &[], true);
    assert!(matches!(facts.relays[0].problem, Some(RelayProblem::Connect(_))));
    let far = facts.circuits.iter().find(|circuit| circuit.from.cluster == "b").unwrap();
    assert_eq!(far.problem, Some(RelayProblem::NoRoute));
}
