//! Relays, and circuits through them.

use crate::facts::{
    BesideFact, BesideProblem, Circuit, Facts, JobRelay, Node, PeerFact, PeerProblem, RelayFact,
    RelayProblem, Trouble,
};
use crate::finding::{Finding, Place, Severity};
use gridmpi_report::units::format_duration;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = facts.relays.iter().map(|fact| one(fact, facts)).collect();
    all.extend(facts.job_relays.iter().filter_map(|relay| of_job(relay, facts)));
    all.extend(facts.circuits.iter().map(|circuit| through(circuit, facts)));
    all.extend(facts.circuits.iter().filter_map(idle));
    all.extend(facts.peers.iter().map(joined));
    all.extend(facts.beside.iter().flat_map(told));
    all
}

/// From a relay to one that it tells processes of.
fn told(fact: &BesideFact) -> Vec<Finding> {
    let BesideFact { node, at, trip_us, problems } = fact;
    if problems.is_empty() {
        let place = Place::way(node, format!("relay {at}"));
        let what = "the relay that processes are told of knows the same tokens";
        return vec![Finding::new(Severity::Ok, "beside", place, what, show(*trip_us))];
    }
    problems.iter().map(|problem| useless(problem, node, *at)).collect()
}

fn useless(problem: &BesideProblem, node: &Node, at: SocketAddr) -> Finding {
    let place = Place::way(node, format!("relay {at}"));
    let (ip, port) = (at.ip(), at.port());
    let is = |severity, code, what: &str, evidence: &str, remedy: String| {
        Finding::new(severity, code, place.clone(), what, evidence).remedy(remedy)
    };
    let error = |code, what: &str, evidence: &str, remedy| {
        is(Severity::Error, code, what, evidence, remedy)
    };
    let warning = |code, what: &str, evidence: &str, remedy| {
        is(Severity::Warning, code, what, evidence, remedy)
    };
    match problem {
        BesideProblem::Connect(why) => error(
            "beside-unreachable",
            "no connection to the relay that processes are told of",
            why,
            format!(
                "is `gridmpi relay` running there (systemctl status gridmpi-relay)? There: iptables -I INPUT -p tcp --dport {port} -j ACCEPT. If \
                 it is gone for good: take \"{at}\" out of `beside`, and reload"
            ),
        ),
        BesideProblem::NoRelay(why) => error(
            "beside-other",
            "what is there is no relay",
            why,
            format!("write the address and port of the relay's `listen` into `beside`, not \"{at}\", and reload"),
        ),
        BesideProblem::Release => error(
            "beside-release",
            "the relay that processes are told of is of another release",
            "no common version of the protocol",
            format!("install this release on {ip}, and restart gridmpi-relay there"),
        ),
        BesideProblem::Token(name) => error(
            "beside-token",
            "the relay that processes are told of does not know a token of this one",
            &format!("token `{name}`"),
            format!("copy the file of [[token]] `{name}` to {ip}, name it in a [[token]] there, and reload that relay"),
        ),
        BesideProblem::Own => warning(
            "beside-own",
            "this relay tells processes of itself",
            "they would take one relay for two",
            format!("take \"{at}\" out of `beside`, and reload"),
        ),
        BesideProblem::Loopback => warning(
            "beside-loopback",
            "processes on other hosts take no notice of a loopback address",
            "",
            format!("write the address by which the cluster's nodes reach that relay into `beside`, not \"{at}\""),
        ),
        BesideProblem::NoToken => warning(
            "beside-unused",
            "nobody is told: this relay has no token, so that no process uses it",
            "",
            "name the cluster's token here ([[token]]), or `beside` at a relay that its processes use".to_owned(),
        ),
    }
}

/// From relay to relay.
fn joined(fact: &PeerFact) -> Finding {
    let PeerFact { node, peer, address, .. } = fact;
    let place = Place::way(node, format!("relay `{peer}`"));
    let at = fact.at.map_or_else(|| address.clone(), |at| format!("{address} is {at}"));
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let error = |code, what: &str, evidence: String, remedy: String| {
        Finding::new(Severity::Error, code, place.clone(), what, evidence).remedy(remedy)
    };
    match &fact.problem {
        None => {
            let what = "the two relays know each other (TLS)";
            Finding::new(Severity::Ok, "peer", place, what, show(fact.trip_us))
        }
        Some(PeerProblem::Name(why)) => error(
            "peer-name",
            "the other relay's name is not known on this host",
            format!("{address}: {why}"),
            format!("give its address as `address` in [[peer]] `{peer}`"),
        ),
        Some(PeerProblem::Connect(why)) => error(
            "peer-unreachable",
            "no connection to the other relay",
            format!("{at}: {why}"),
            format!(
                "is `gridmpi relay` running there (systemctl status gridmpi-relay)? There: iptables -I INPUT -p tcp --dport {port} -j ACCEPT; or \
                 let that one dial: `address` in its settings, none here"
            ),
        ),
        Some(PeerProblem::NoTls(why)) => error(
            "peer-tls",
            "what is there does not speak TLS as a relay does",
            format!("{at}: {why}"),
            format!(
                "is {address} the port of a relay, with an `identity`? something on the way that ends TLS must let port {port} through as it is"
            ),
        ),
        Some(PeerProblem::OtherCertificate { theirs, expected }) => error(
            "peer-certificate",
            "the other relay has another certificate than the settings say",
            format!("{at} has {theirs}, not {expected}"),
            format!(
                "ask there for `gridmpi relay fingerprint`: if it says {theirs}, write fingerprint = \"{theirs}\" into [[peer]] `{peer}`; if not, \
                 somebody else answers at {address}"
            ),
        ),
        Some(PeerProblem::Unknown(ours)) => error(
            "peer-refused",
            "the other relay does not let this one in",
            at,
            format!("there, in relay.toml, the lines below (or --allow {ours}); then reload it"),
        )
        .written([
            "[[peer]]".to_owned(),
            format!("name = \"{}\"", node.host),
            format!("fingerprint = \"{ours}\""),
        ]),
    }
}

fn show(us: Option<u32>) -> String {
    us.map_or_else(String::new, |us| {
        format!("round trip {}", format_duration(Duration::from_micros(us.into())))
    })
}

fn one(fact: &RelayFact, facts: &Facts) -> Finding {
    let place = Place::way(&fact.node, format!("relay {}", fact.relay));
    let is_other = |other: &RelayFact| other.node == fact.node && other.problem.is_none();
    match &fact.problem {
        None => {
            Finding::new(Severity::Ok, "relay", place, "the relay takes us", show(fact.trip_us))
        }
        // A process that does not know the name of each does not start.
        Some(problem @ RelayProblem::Name(_)) => described(problem, fact, place),
        Some(problem) => {
            let others = facts.relays.iter().any(is_other);
            made_good(described(problem, fact, place), others)
        }
    }
}

/// Where `others` do what one should, a job runs without it.
fn made_good(finding: Finding, others: bool) -> Finding {
    if !others {
        return finding;
    }
    let what = format!("{}; processes use the others", finding.what);
    Finding { severity: Severity::Warning, what, ..finding }
}

/// A relay of [job].
fn of_job(relay: &JobRelay, facts: &Facts) -> Option<Finding> {
    let JobRelay { relay: at, problem } = relay;
    let is_well = facts.job_relays.iter().any(|other| other.problem.is_none());
    let is_needed = !is_well && facts.troubles.iter().any(Trouble::is_absence);
    let severity = if is_needed { Severity::Error } else { Severity::Warning };
    let place = Place { hop: Some(format!("relay {at}")), ..Place::default() };
    let what = "a relay at which clusters are to find this machine cannot be used";
    let finding = Finding::new(severity, "job-relay", place, what, problem.clone()?);
    Some(finding.remedy(format!(
        "is `gridmpi relay` running there (systemctl status gridmpi-relay)? Let this machine connect to its TCP port {}, and put its token into \
         the file that `relay_token` of [job] names; or take it out of `relays` there",
        at.port()
    )))
}

fn described(problem: &RelayProblem, fact: &RelayFact, place: Place) -> Finding {
    let cluster = &fact.node.cluster;
    let by = fact.route.interface.as_ref().map_or_else(String::new, |name| format!(", by {name}"));
    let at = fact.address.map_or_else(String::new, |at| format!("{at}{by}"));
    let name = fact.relay.rsplit_once(':').map_or(fact.relay.as_str(), |(name, _)| name);
    let port = fact.relay.rsplit_once(':').map_or("", |(_, port)| port);
    let error = |code, what: &str, evidence: String| {
        Finding::new(Severity::Error, code, place.clone(), what, evidence)
    };
    match problem {
        RelayProblem::Name(why) => error("relay-name", "the relay's name is not known on this node", why.clone()).remedy(
            format!("give its address in `relays` of cluster `{cluster}`, or `echo \"ADDRESS {name}\" >> /etc/hosts` on every node"),
        ),
        RelayProblem::Connect(why) => {
            error("relay-unreachable", "no connection to the relay", format!("{at}: {why}")).remedy(format!(
                "is `gridmpi relay` running there (systemctl status gridmpi-relay)? On the relay's host: iptables -I INPUT -p tcp --dport {port} -j \
                 ACCEPT; on the way: let nodes of `{cluster}` connect to TCP port {port}"
            ))
        }
        RelayProblem::Token => error("relay-token", "the relay has another token", at).remedy(format!(
            "put the relay's token into the file that `relay_token` of cluster `{cluster}` (or of [job]) names"
        )),
        RelayProblem::NotAllowed => error("relay-job", "the relay's token is not allowed for this job", at)
            .remedy("add the job or its token to the relay's configuration, and reload it"),
        RelayProblem::NoRoute | RelayProblem::Unanswered => {
            error("relay-route", "the relay knows no way", format!("{at}: {}", problem))
        }
        RelayProblem::Refused(why) | RelayProblem::Circuit(why) => {
            error("relay-refused", "the relay does not do it", format!("{at}: {why}"))
                .remedy("look at the relay's log and /metrics")
        }
        RelayProblem::Stalled => error("relay-refused", "the relay passes nothing on", at)
            .remedy("look at the relay's log and /metrics"),
    }
}

fn place(circuit: &Circuit) -> Place {
    let Circuit { from, to, relay, .. } = circuit;
    Place::way(from, format!("{to} through relay {relay}"))
}

fn idle(circuit: &Circuit) -> Option<Finding> {
    super::idle::judge(&circuit.idle, place(circuit))
}

fn through(circuit: &Circuit, facts: &Facts) -> Finding {
    let Circuit { from, to, relay, trip_us, problem, .. } = circuit;
    let place = place(circuit);
    let Some(problem) = problem else {
        return Finding::new(Severity::Ok, "circuit", place, "a circuit stands", show(*trip_us));
    };
    // Whoever is registered nowhere cannot be found: then that is the news.
    let far: Vec<&RelayFact> = facts.relays.iter().filter(|fact| fact.node == *to).collect();
    let is_there = far.iter().any(|fact| fact.problem.is_none());
    let names: Vec<&str> = far.iter().map(|fact| fact.relay.as_str()).collect();
    let (what, remedy) = match problem {
        RelayProblem::NoRoute if !is_there => (
            "the relay does not know the other node, which is registered at no relay".to_owned(),
            format!("see to the relays of cluster `{}` first: {}", to.cluster, names.join(", ")),
        ),
        RelayProblem::NoRoute => (
            format!("the relay has no route to the relays of cluster `{}`", to.cluster),
            format!(
                "join the two relays: name {} as a peer of {relay} (or the other way round), and let one connect to the other's port; if they meet at a relay \
                 between them, that one must run: `gridmpi doctor --relay FILE` beside each of the two says whether it is reached",
                names.join(" or ")
            ),
        ),
        RelayProblem::Unanswered => (
            "the other node is registered, but does not come for the circuit in 10 s".to_owned(),
            format!("let nodes of cluster `{}` connect to {}", to.cluster, names.join(", ")),
        ),
        RelayProblem::Stalled => (
            "large packets vanish on the way through the relays: circuits stand and then hang"
                .to_owned(),
            format!(
                "which part of it: `gridmpi doctor --listen` on {relay}'s host and `gridmpi doctor HOST:PORT` on nodes and on other relays' hosts say. On \
                 both ends of that part: sysctl -w net.ipv4.tcp_mtu_probing=1; or let ICMP \"fragmentation needed\" through on the way"
            ),
        ),
        _ => ("no circuit".to_owned(), format!("look at the log and /metrics of relay {relay}")),
    };
    let is_other =
        |other: &Circuit| other.from == *from && other.to == *to && other.problem.is_none();
    let others = facts.circuits.iter().any(is_other);
    made_good(
        Finding::new(Severity::Error, "circuit", place, what, problem.to_string()).remedy(remedy),
        others,
    )
}
