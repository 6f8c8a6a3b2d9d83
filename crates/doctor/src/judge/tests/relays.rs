//! Relays, and circuits through them.

use super::*;

#[test]
fn relays_that_do_not_know_each_other_are_told_what_to_write() {
    let fact = |problem| PeerFact {
        node: Node { cluster: String::new(), host: "gw".into() },
        peer: "pub".into(),
        address: "pub:7118".into(),
        at: Some("192.0.2.1:7118".parse().unwrap()),
        trip_us: Some(20_000),
        problem,
    };
    let judged = |problem| findings(&Facts { peers: vec![fact(problem)], ..Facts::default() });
    assert_eq!((judged(None)[0].severity, judged(None)[0].code), (Severity::Ok, "peer"));
    let other =
        PeerProblem::OtherCertificate { theirs: "sha256:1".into(), expected: "sha256:2".into() };
    let cases = [
        (PeerProblem::Name("unknown".into()), "peer-name", "`address` in [[peer]] `pub`"),
        (PeerProblem::Connect("refused".into()), "peer-unreachable", "--dport 7118"),
        (PeerProblem::NoTls("x".into()), "peer-tls", "as it is"),
        (other, "peer-certificate", "fingerprint = \"sha256:1\""),
        (PeerProblem::Unknown("sha256:3".into()), "peer-refused", "--allow sha256:3"),
    ];
    let unknown = judged(Some(PeerProblem::Unknown("sha256:3".into())));
    assert_eq!(unknown[0].lines, ["[[peer]]", "name = \"gw\"", "fingerprint = \"sha256:3\""]);
    for (problem, code, remedy) in cases {
        expect(&judged(Some(problem))[0], Severity::Error, code, remedy);
    }
}

#[test]
fn a_relay_that_processes_are_told_of_in_vain_is_named_with_what_to_write() {
    let fact = |problems| BesideFact {
        node: Node { cluster: String::new(), host: "gw".into() },
        at: "10.1.0.2:7119".parse().unwrap(),
        trip_us: Some(200),
        problems,
    };
    let judged = |problems| findings(&Facts { beside: vec![fact(problems)], ..Facts::default() });
    let well = judged(Vec::new());
    assert_eq!((well.len(), well[0].severity, well[0].code), (1, Severity::Ok, "beside"));
    let cases = [
        (BesideProblem::Connect("refused".into()), "beside-unreachable", "--dport 7119"),
        (BesideProblem::NoRelay("x".into()), "beside-other", "not \"10.1.0.2:7119\""),
        (BesideProblem::Release, "beside-release", "on 10.1.0.2"),
        (
            BesideProblem::Token("site".into()),
            "beside-token",
            "file of [[token]] `site` to 10.1.0.2",
        ),
    ];
    for (problem, code, remedy) in cases {
        expect(&judged(vec![problem])[0], Severity::Error, code, remedy);
    }
    let cases = [
        (BesideProblem::Own, "beside-own", "out of `beside`"),
        (BesideProblem::Loopback, "beside-loopback", "not \"10.1.0.2:7119\""),
        (BesideProblem::NoToken, "beside-unused", "[[token]]"),
    ];
    for (problem, code, remedy) in cases {
        expect(&judged(vec![problem])[0], Severity::Warning, code, remedy);
    }
    // A line for each token that the other does not know.
    let tokens = ["site", "guests"].map(|name| BesideProblem::Token(name.into()));
    assert_eq!(judged(tokens.to_vec()).len(), 2);
}

fn relay(name: &str, problem: Option<RelayProblem>) -> RelayFact {
    let relay = format!("gw-{}:7070", &name[..1]);
    RelayFact {
        node: node(name),
        relay,
        address: Some(at("10.1.0.254")),
        route: route(A.1),
        trip_us: Some(300),
        problem,
    }
}

#[test]
fn relays_are_told_apart_by_what_is_wrong() {
    for (problem, code, remedy) in [
        (RelayProblem::Name("no such host".into()), "relay-name", "/etc/hosts"),
        (RelayProblem::Connect("connection refused".into()), "relay-unreachable", "--dport 7070"),
        (RelayProblem::Token, "relay-token", "relay_token"),
        (RelayProblem::NotAllowed, "relay-job", "relay's configuration"),
        (RelayProblem::Refused("the relay is ending".into()), "relay-refused", "log"),
    ] {
        let facts = Facts { relays: vec![relay("a1", Some(problem))], ..Facts::default() };
        expect(&only(&facts), Severity::Error, code, remedy);
    }
    let circuit = |problem| Circuit {
        from: node("a1"),
        to: node("b1"),
        relay: "gw-a:7070".into(),
        trip_us: None,
        problem,
        idle: Vec::new(),
    };
    let facts = |far, problem| Facts {
        relays: vec![relay("a1", None), relay("b1", far)],
        circuits: vec![circuit(problem)],
        ..Facts::default()
    };
    assert_eq!(wrong(&facts(None, None)), []);
    let no_route = || Some(RelayProblem::NoRoute);
    expect(
        &only(&facts(None, no_route())),
        Severity::Error,
        "circuit",
        "name gw-b:7070 as a peer of gw-a:7070",
    );
    let all = wrong(&facts(Some(RelayProblem::Token), no_route()));
    assert!(
        all.iter().any(|f| f.code == "circuit" && f.what.contains("registered at no relay")),
        "{all:#?}"
    );
    expect(
        &only(&facts(None, Some(RelayProblem::Unanswered))),
        Severity::Error,
        "circuit",
        "connect to gw-b:7070",
    );
}

#[test]
fn one_relay_of_several_that_cannot_be_used_is_made_good_by_the_others() {
    let gone = || Some(RelayProblem::Connect("connection refused".into()));
    let second = |name, problem| RelayFact { relay: "gw2:7070".into(), ..relay(name, problem) };
    let circuit = |relay: &str, problem| Circuit {
        from: node("a1"),
        to: node("b1"),
        relay: relay.into(),
        trip_us: None,
        problem,
        idle: Vec::new(),
    };
    let mut facts = Facts {
        relays: vec![relay("a1", None), second("a1", gone()), relay("b1", None)],
        circuits: vec![circuit("gw-a:7070", None), circuit("gw2:7070", gone())],
        ..Facts::default()
    };
    let all = wrong(&facts);
    assert_eq!(all.len(), 2, "{all:#?}");
    expect(&all[0], Severity::Warning, "relay-unreachable", "--dport 7070");
    expect(&all[1], Severity::Warning, "circuit", "log");
    assert!(all.iter().all(|one| one.what.ends_with("processes use the others")), "{all:#?}");
    // Those of another node are of no use to this one, nor is a circuit to elsewhere.
    facts.relays[0].problem = gone();
    facts.circuits[0].to = node("b2");
    let all = wrong(&facts);
    let codes: Vec<_> = all.iter().map(|one| (one.severity, one.code)).collect();
    assert_eq!(codes, ["relay-unreachable", "circuit"].map(|code| (Severity::Error, code)));
    // A name has to be known all the same.
    let unknown = Some(RelayProblem::Name("no such host".into()));
    facts.relays = vec![relay("a1", None), second("a1", unknown)];
    facts.circuits.clear();
    expect(&only(&facts), Severity::Error, "relay-name", "/etc/hosts");
}

#[test]
fn a_relay_of_the_job_that_cannot_be_used_is_an_error_where_somebody_does_not_come() {
    let relay = |n: u8, problem: Option<&str>| JobRelay {
        relay: format!("192.0.2.{n}:7070").parse().unwrap(),
        problem: problem.map(str::to_owned),
    };
    let mut facts = healthy();
    facts.job_relays = vec![relay(1, None), relay(2, Some("connection refused"))];
    let finding = only(&facts);
    expect(&finding, Severity::Warning, "job-relay", "`relay_token` of [job]");
    assert_eq!(finding.places[0].to_string(), "relay 192.0.2.2:7070");
    facts.job_relays.remove(0);
    expect(&only(&facts), Severity::Warning, "job-relay", "TCP port 7070");
    let (what, cluster) = ("0 nodes have come".into(), Some("c".into()));
    facts.troubles = vec![Trouble { cluster, what, at: vec![at("192.0.2.7")], hint: None }];
    let all = wrong(&facts);
    assert!(all.iter().all(|one| one.severity == Severity::Error), "{all:#?}");
    assert!(all.iter().any(|one| one.code == "job-relay"), "{all:#?}");
}
