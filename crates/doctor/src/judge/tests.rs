//! Tables of facts, and what is said of them.

mod congestion;
mod relays;
mod ways;

use super::findings;
use crate::facts::*;
use crate::finding::{Finding, Severity};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

fn node(name: &str) -> Node {
    Node { cluster: name[..1].to_owned(), host: name.to_owned() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    SocketAddr::new(ip(text), 7000)
}

fn interface(name: &str, kind: Kind, address: &str, bits: u8) -> Interface {
    Interface {
        name: name.into(),
        kind,
        is_up: true,
        mtu: Some(1500),
        speed: None,
        queueing: None,
        reverse_path: None,
        addresses: vec![(ip(address), bits)],
    }
}

/// A healthy machine: `eth0` within the cluster, `eth1` towards others, which alone is told.
fn machine(name: &str, inner: &str, outer: &str) -> Machine {
    let settings = [
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic bbr"),
        ("net.ipv4.tcp_allowed_congestion_control", "reno cubic bbr"),
        ("net.ipv4.conf.all.rp_filter", "0"),
    ];
    let settings: BTreeMap<_, _> =
        settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Machine {
        node: node(name),
        stack: None,
        wanted: None,
        told: vec![at(outer)],
        interfaces: vec![
            interface("lo", Kind::Loopback, "127.0.0.1", 8),
            interface("eth0", Kind::Card, inner, 16),
            interface("eth1", Kind::Card, outer, 16),
        ],
        settings,
        open_files: Some((65536, 65536)),
        locked_memory: None,
        has_rdma: false,
        clock_is_kept: Some(true),
        congestion: None,
        firewall: Some("nft".to_owned()),
    }
}

fn a1() -> Machine {
    machine("a1", "10.1.0.1", "10.100.1.1")
}

fn b1() -> Machine {
    machine("b1", "10.2.0.1", "10.100.2.1")
}

fn route(source: &str) -> Route {
    Route { interface: Some("eth1".into()), gateway: None, source: Some(ip(source)), mtu: None }
}

fn depth(from: &str, to: &str) -> Depth {
    Depth {
        address: at(to),
        local: SocketAddr::new(ip(from), 40000),
        seen: SocketAddr::new(ip(from), 40000),
        trip_us: 20_000,
        ahead_us: 0,
        ahead_error_us: 10_000,
        outward: Bulk::Passed(21_000),
        inward: Bulk::Passed(21_000),
        passing: None,
        path_mtu: Some(1500),
        congestion: Some("cubic".into()),
    }
}

fn attempt(to: &str, outcome: Outcome, source: &str) -> Attempt {
    Attempt { address: at(to), outcome, route: route(source) }
}

fn good(from: (&str, &str), to: (&str, &str)) -> Path {
    let attempts = vec![attempt(to.1, Outcome::Reached, from.1)];
    let visit = Visit { attempts, depth: Some(depth(from.1, to.1)) };
    Path { from: node(from.0), to: node(to.0), visit, idle: Vec::new() }
}

const A: (&str, &str) = ("a1", "10.100.1.1");
const B: (&str, &str) = ("b1", "10.100.2.1");

/// Two machines between which all is well.
fn healthy() -> Facts {
    let link = Link {
        between: ["a".into(), "b".into()],
        bandwidth: Some(160_000_000),
        delay_us: Some(10_000),
        dialler: None,
        measured: None,
    };
    Facts {
        machines: vec![a1(), b1()],
        paths: vec![good(A, B), good(B, A)],
        links: vec![link],
        ..Facts::default()
    }
}

/// What is wrong, without what is well.
fn wrong(facts: &Facts) -> Vec<Finding> {
    findings(facts).into_iter().filter(|finding| finding.severity != Severity::Ok).collect()
}

/// The only thing that is wrong.
fn only(facts: &Facts) -> Finding {
    let mut all = wrong(facts);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[track_caller]
fn expect(finding: &Finding, severity: Severity, code: &str, remedy: &str) {
    assert_eq!((finding.severity, finding.code), (severity, code), "{finding:#?}");
    assert!(finding.remedy.as_deref().unwrap_or("").contains(remedy), "{finding:#?}");
}

#[test]
fn nothing_is_said_of_what_is_well() {
    assert_eq!(wrong(&healthy()), []);
    let all = findings(&healthy());
    assert!(
        all.iter().any(|f| f.code == "path" && f.severity == Severity::Ok && f.places.len() == 2),
        "{all:#?}"
    );
}

#[test]
fn one_direction_that_is_dropped_has_the_rule_of_that_machines_firewall() {
    for (tool, rule) in [
        (
            "nft",
            "on the nodes of `b` (and on routers between): nft insert rule inet filter input ip saddr 10.100.0.0/16 meta l4proto tcp accept",
        ),
        ("iptables", "iptables -I INPUT -p tcp -s 10.100.0.0/16 -j ACCEPT"),
        (
            "firewall-cmd",
            "firewall-cmd --permanent --zone=trusted --add-source=10.100.0.0/16 && firewall-cmd --reload",
        ),
        ("ufw", "ufw allow proto tcp from 10.100.0.0/16"),
    ] {
        let mut facts = healthy();
        facts.machines[1].firewall = Some(tool.to_owned());
        facts.paths[0].visit =
            Visit { attempts: vec![attempt(B.1, Outcome::Silent, A.1)], depth: None };
        let finding = only(&facts);
        expect(&finding, Severity::Error, "silent", rule);
        assert!(finding.what.contains("the other way connections are made"), "{finding:#?}");
        assert_eq!(finding.places[0].to_string(), "a/a1 → b/b1");
    }
}

#[test]
fn strict_reverse_path_filters_are_named_where_nothing_answers() {
    let mut facts = healthy();
    facts.machines[1].settings.insert("net.ipv4.conf.all.rp_filter".into(), "1".into());
    assert_eq!(wrong(&facts), []);
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Silent, A.1)], depth: None };
    expect(
        &only(&facts),
        Severity::Error,
        "silent",
        "on the nodes of `b`: sysctl -w net.ipv4.conf.all.rp_filter=2",
    );
}

#[test]
fn a_port_that_is_closed_and_a_way_that_is_missing_are_told_apart() {
    let mut facts = healthy();
    facts.paths.truncate(1);
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Refused, A.1)], depth: None };
    expect(&only(&facts), Severity::Error, "refused", "nft insert rule");
    let mut lost = attempt(B.1, Outcome::NoWay("Network is unreachable".into()), A.1);
    lost.route = Route::default();
    facts.paths[0].visit.attempts = vec![lost];
    // The other end gets no answer for the same reason, which is told once.
    facts.paths.push(good(B, A));
    facts.paths[1].visit =
        Visit { attempts: vec![attempt(A.1, Outcome::Silent, B.1)], depth: None };
    let all = wrong(&facts);
    assert_eq!(all.iter().filter(|f| f.severity == Severity::Error).count(), 1, "{all:#?}");
    assert!(all[1].what.contains("a/a1 has no way back"), "{all:#?}");
    facts.paths.truncate(1);
    expect(&only(&facts), Severity::Error, "no-route", "ip route add 10.100.0.0/16 via GATEWAY");
    facts.paths[0].visit.attempts = vec![attempt(B.1, Outcome::Mute, A.1)];
    expect(&only(&facts), Severity::Error, "mute", "relays");
    facts.paths[0].visit.attempts = vec![attempt("127.0.0.1", Outcome::Refused, "127.0.0.1")];
    expect(&only(&facts), Severity::Error, "no-address", "ip link set dev");
}

#[test]
fn what_a_firewall_rejects_by_icmp_has_its_rule_and_hides_no_other_direction() {
    let mut facts = healthy();
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Silent, A.1)], depth: None };
    let rejected = Outcome::Rejected("No route to host".into());
    facts.paths[1].visit = Visit { attempts: vec![attempt(A.1, rejected, B.1)], depth: None };
    let all = wrong(&facts);
    assert_eq!(all.len(), 2, "{all:#?}");
    expect(&all[0], Severity::Error, "silent", "on the nodes of `b` (and on routers between): nft");
    let rule = "on the nodes of `a` (and on routers between): nft";
    expect(&all[1], Severity::Error, "refused", rule);
    assert!(!all[1].remedy.as_deref().unwrap().contains("see that"), "{all:#?}");
    // A router may have said so.
    facts.paths[1].visit.attempts[0].route.gateway = Some(ip("10.100.2.254"));
    let router = "see that 10.100.2.254 has a way on to 10.100.0.0/16";
    expect(&wrong(&facts)[1], Severity::Error, "refused", router);
}

#[test]
fn another_machine_with_the_same_address_is_recognised() {
    for (outcome, who) in [
        (Outcome::Other(node("a2")), "node a/a2 answers"),
        (Outcome::Oneself, "a/a1 itself answers"),
        (
            Outcome::Stranger("does not speak our protocol".into()),
            "something that does not speak our protocol answers",
        ),
    ] {
        let mut facts = healthy();
        // First the wrong address, then the right one.
        facts.paths[0].visit.attempts.insert(0, attempt("10.2.0.1", outcome.clone(), "10.1.0.1"));
        let finding = only(&facts);
        expect(&finding, Severity::Warning, "other-machine", "interface = \"eth1\" of cluster `b`");
        assert!(finding.what.contains(who), "{finding:#?}");
        // And where nothing else leads there.
        facts.paths[0].visit =
            Visit { attempts: vec![attempt("10.2.0.1", outcome, "10.1.0.1")], depth: None };
        let all = wrong(&facts);
        assert!(
            all.iter().all(|f| f.severity == Severity::Error)
                && all.iter().any(|f| f.code == "other-machine"),
            "{all:#?}"
        );
    }
}

#[test]
fn one_open_direction_is_enough_if_the_job_says_so() {
    let mut facts = healthy();
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Silent, A.1)], depth: None };
    let finding = only(&facts);
    expect(&finding, Severity::Error, "silent", "; or let only `b` connect: in the job file");
    assert_eq!(finding.lines, ["[[link]]", "between = [\"a\", \"b\"]", "dial = \"b\""]);
    facts.paths[1].visit =
        Visit { attempts: vec![attempt(A.1, Outcome::Silent, B.1)], depth: None };
    let remedies = wrong(&facts).into_iter().filter_map(|finding| finding.remedy);
    assert!(remedies.into_iter().all(|remedy| !remedy.contains("let only")));
}

#[test]
fn an_address_that_the_dialer_has_itself_leads_to_itself() {
    let mut facts = healthy();
    facts.paths.truncate(1);
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Refused, A.1)], depth: None };
    facts.machines[0].interfaces.push(interface("docker0", Kind::Containers, B.1, 16));
    let finding = only(&facts);
    expect(&finding, Severity::Error, "refused", "interface = \"eth0\" of cluster `b`");
    assert!(finding.what.contains("a/a1 itself has this address (docker0)"), "{finding:#?}");
}

#[test]
fn the_wrong_interface_first_costs_time() {
    let mut facts = healthy();
    facts.paths[0].visit.attempts.insert(0, attempt("10.2.0.1", Outcome::Silent, A.1));
    let finding = only(&facts);
    expect(
        &finding,
        Severity::Warning,
        "slow-first",
        "interface = \"eth1\" of cluster `b` in the job file",
    );
    assert!(finding.what.starts_with("eth0 (10.2.0.1)"), "{finding:#?}");
    // What fails at once costs nothing.
    facts.paths[0].visit.attempts[0].outcome = Outcome::NoWay("Network is unreachable".into());
    assert_eq!(wrong(&facts), []);
    facts.paths[0].visit.attempts[0].outcome = Outcome::Refused;
    assert_eq!(wrong(&facts), []);
}

#[test]
fn bridges_of_containers_and_tunnels_are_traps() {
    let mut facts = healthy();
    facts.paths.clear();
    facts.machines.truncate(1);
    facts.machines[0].interfaces.push(interface("docker0", Kind::Containers, "172.17.0.1", 16));
    facts.machines[0].told = vec![at("172.17.0.1"), at("10.100.1.1")];
    expect(&only(&facts), Severity::Warning, "trap-first", "interface = \"eth1\" of cluster `a`");
    facts.machines[0].told.reverse();
    expect(&only(&facts), Severity::Note, "trap-told", "interface = \"eth1\"");
    facts.machines[0].node.cluster = String::new();
    expect(&only(&facts), Severity::Note, "trap-told", "GRIDMPI_INTERFACE=eth1");
    facts.machines[0].told = vec![at("127.0.0.1")];
    expect(&only(&facts), Severity::Warning, "only-loopback", "ip link set");
    // A tunnel that is all there is may be meant.
    facts.machines[0].interfaces = vec![interface("wg0", Kind::Tunnel, "10.9.0.1", 24)];
    facts.machines[0].told = vec![at("10.9.0.1")];
    assert_eq!(wrong(&facts), []);
}

#[test]
fn addresses_that_several_machines_have_are_named_once() {
    let mut facts = healthy();
    facts.paths.clear();
    for machine in &mut facts.machines {
        machine.interfaces.push(interface("virbr0", Kind::Containers, "192.168.122.1", 24));
        machine.told.push(at("192.168.122.1"));
    }
    let all = wrong(&facts);
    let shared = all.iter().find(|f| f.code == "same-address").unwrap();
    expect(shared, Severity::Warning, "same-address", "interface = \"eth");
    assert_eq!(shared.places.len(), 2);
    assert_eq!(all.iter().filter(|f| f.code == "trap-told").count(), 2);
    // Clusters that meet at relays are not dialled.
    let circuit = Circuit {
        from: node("a1"),
        to: node("b1"),
        relay: "gw:7070".into(),
        trip_us: Some(1),
        problem: None,
        idle: Vec::new(),
    };
    facts.circuits.push(circuit);
    assert!(wrong(&facts).iter().all(|f| f.code != "same-address"));
    facts.circuits.clear();
    // Two clusters on one machine are no two machines.
    facts.machines[1].node.host = "a1".into();
    assert!(wrong(&facts).iter().all(|f| f.code != "same-address"));
}

#[test]
fn the_way_out_is_looked_at() {
    let mut facts = healthy();
    facts.machines[0].interfaces.push(interface("docker0", Kind::Containers, "172.17.0.1", 16));
    facts.paths[0].visit.attempts[0].route.interface = Some("docker0".into());
    expect(&only(&facts), Severity::Warning, "trap-route", "ip route add 10.100.2.1/32");
    facts.paths[0].visit.attempts[0].route.interface = Some("eth0".into());
    assert_eq!(wrong(&facts), []);
    facts.machines[0].wanted = Some("10.100.0.0/16".into());
    let finding = only(&facts);
    expect(&finding, Severity::Warning, "other-interface", "dev eth1");
}

#[test]
fn packets_that_vanish_have_the_size_that_passes() {
    let mut facts = healthy();
    let seen = facts.paths[0].visit.depth.as_mut().unwrap();
    (seen.outward, seen.passing) = (Bulk::Stalled, Some(1400));
    let finding = only(&facts);
    expect(
        &finding,
        Severity::Error,
        "mtu",
        "on the nodes of `a`: ip link set dev eth1 mtu 1400; on the nodes of `b`: ip link set dev eth1 mtu 1400",
    );
    assert!(
        finding.places[0].to_string() == "a/a1 → b/b1"
            && finding.evidence.contains("up to 1500 bytes"),
        "{finding:#?}"
    );
    // Both ends see it, and it is one finding.
    let seen = facts.paths[1].visit.depth.as_mut().unwrap();
    (seen.inward, seen.passing) = (Bulk::Stalled, Some(1400));
    assert_eq!(only(&facts).places.len(), 1);
    facts.paths.truncate(1);
    let seen = facts.paths[0].visit.depth.as_mut().unwrap();
    (seen.inward, seen.passing) = (Bulk::Stalled, None);
    expect(&only(&facts), Severity::Error, "mtu", "net.ipv4.tcp_mtu_probing=1");
    let seen = facts.paths[0].visit.depth.as_mut().unwrap();
    (seen.outward, seen.inward) = (Bulk::Passed(1), Bulk::Broken("reset".into()));
    expect(&only(&facts), Severity::Error, "broken", "inspects");
}

#[test]
fn small_buffers_matter_on_long_links_only() {
    let mut facts = healthy();
    // 160 Mbit/s at 20 ms: 400 KB on their way, twice that in a buffer.
    facts.machines[1].settings.insert("net.ipv4.tcp_rmem".into(), "4096 131072 262144".into());
    facts.paths.truncate(1);
    expect(
        &only(&facts),
        Severity::Warning,
        "buffers",
        "on the nodes of `b`: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 1048576\"",
    );
    facts.paths[0].visit.depth.as_mut().unwrap().trip_us = 200;
    facts.links[0].delay_us = None;
    assert_eq!(wrong(&facts), []);
    // The sender's, where nobody says what the link carries: 1 Gbit/s at 20 ms is 2.5 MB.
    let mut facts = healthy();
    facts.links[0].bandwidth = None;
    facts.machines[1].settings.insert("net.ipv4.tcp_wmem".into(), "4096 16384 16777216".into());
    expect(
        &only(&facts),
        Severity::Note,
        "buffers",
        "on the nodes of `a`: sysctl -w net.ipv4.tcp_wmem=\"4096 16384 5242880\"",
    );
    facts.links[0].bandwidth = Some(10_000_000_000);
    assert_eq!(wrong(&facts).iter().filter(|f| f.code == "buffers").count(), 4);
}

#[test]
fn buffers_of_a_machine_alone_are_held_against_usual_links() {
    let mut facts = healthy();
    facts.paths.clear();
    assert!(findings(&facts).iter().any(|f| f.code == "buffers" && f.severity == Severity::Ok));
    facts.machines[0].settings.insert("net.ipv4.tcp_wmem".into(), "4096 16384 1048576".into());
    let finding = only(&facts);
    expect(
        &finding,
        Severity::Note,
        "buffers",
        "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 33554432\"",
    );
    assert!(!finding.remedy.as_deref().unwrap_or("").contains("rmem"), "{finding:#?}");
}

#[test]
fn settings_that_somebody_turned_off_are_named() {
    let mut facts = healthy();
    facts.paths.clear();
    facts.machines[0].settings.insert("net.ipv4.tcp_window_scaling".into(), "0".into());
    expect(&only(&facts), Severity::Warning, "tcp-off", "sysctl -w net.ipv4.tcp_window_scaling=1");
}

#[test]
fn limits_are_held_against_the_size_of_the_job() {
    let mut facts = healthy();
    facts.machines[0].open_files = Some((1024, 65536));
    assert_eq!(wrong(&facts), []);
    facts.processes = Some(2000);
    expect(&only(&facts), Severity::Error, "open-files", "ulimit -n 2100");
    facts.machines[0].open_files = Some((1024, 1024));
    expect(&only(&facts), Severity::Error, "open-files", "limits.conf");
    let mut facts = healthy();
    facts.machines[0].locked_memory = Some(65536);
    assert_eq!(wrong(&facts), []);
    facts.machines[0].has_rdma = true;
    expect(&only(&facts), Severity::Warning, "locked-memory", "memlock unlimited");
    let mut facts = healthy();
    facts.machines[1].clock_is_kept = Some(false);
    expect(&only(&facts), Severity::Note, "clock", "timedatectl set-ntp true");
}

#[test]
fn clocks_are_apart_by_more_than_what_is_not_known() {
    let mut facts = healthy();
    let mut set = |ahead_us| {
        facts.paths[0].visit.depth.as_mut().unwrap().ahead_us = ahead_us;
        facts.paths[1].visit.depth.as_mut().unwrap().ahead_us = -ahead_us;
        wrong(&facts)
    };
    assert_eq!(set(55_000), []);
    expect(&set(-200_000)[0], Severity::Note, "clock-offset", "timedatectl");
    let all = set(60_000_000);
    assert_eq!(all.len(), 1);
    expect(&all[0], Severity::Warning, "clock-offset", "chronyc");
}

#[test]
fn translated_addresses_and_idle_times_are_seen() {
    let mut facts = healthy();
    facts.paths[0].visit.depth.as_mut().unwrap().seen = at("192.0.2.1");
    expect(&only(&facts), Severity::Note, "nat", "--long");
    let mut facts = healthy();
    let idle = |seconds, is_alive| Idle { seconds, is_alive };
    facts.paths[0].idle = vec![idle(15, true), idle(300, true)];
    assert_eq!(wrong(&facts), []);
    facts.paths[0].idle = vec![idle(300, false), idle(30, true), idle(60, false), idle(15, true)];
    let finding = only(&facts);
    expect(&finding, Severity::Note, "idle", "nf_conntrack_tcp_timeout_established");
    assert_eq!(finding.evidence, "alive after 30 s, dead after 60 s");
    facts.paths[0].idle = vec![idle(10, false)];
    expect(&only(&facts), Severity::Error, "idle", "nf_conntrack");
    // Through relays alike.
    facts.paths[0].idle.clear();
    facts.circuits.push(Circuit {
        from: node("a1"),
        to: node("b1"),
        relay: "gw:7070".into(),
        trip_us: Some(20_000),
        problem: None,
        idle: vec![idle(10, false)],
    });
    expect(&only(&facts), Severity::Error, "idle", "nf_conntrack");
}

#[test]
fn links_are_held_against_what_is_said() {
    let measured = |bandwidth, is_links_own| {
        Some(Measured { bandwidth, is_links_own, again_permille: Some(3) })
    };
    let mut facts = healthy();
    facts.links[0].measured = measured(158_000_000, true);
    assert_eq!(wrong(&facts), []);
    facts.links[0].measured = measured(100_000_000, true);
    let finding = only(&facts);
    expect(&finding, Severity::Warning, "bandwidth", "in the job file");
    let lines = ["[[link]]", "between = [\"a\", \"b\"]", "bandwidth = \"100 Mbit/s\""];
    assert_eq!(finding.lines, lines);
    // Each in a line of its own, as the file has to have them.
    let text = crate::text(&[finding], false);
    let (_, written) = text.split_once("[bandwidth]\n").unwrap();
    assert_eq!(written.lines().map(str::trim).collect::<Vec<_>>(), lines);
    facts.links[0].measured = measured(100_000_000, false);
    assert_eq!(wrong(&facts), []);
    facts.links[0].measured = measured(500_000_000, false);
    assert!(wrong(&facts).iter().any(|f| f.code == "bandwidth" && f.severity == Severity::Note));
    facts.links[0] =
        Link { bandwidth: None, measured: measured(100_000_000, true), ..facts.links[0].clone() };
    expect(&only(&facts), Severity::Note, "bandwidth", "in the job file");
    let mut facts = healthy();
    facts.links[0].delay_us = Some(40_000);
    expect(&only(&facts), Severity::Note, "delay", "in the job file");
    assert_eq!(only(&facts).lines[2], "delay = \"10 ms\"");
}

#[test]
fn the_worst_is_first_and_absence_has_a_remedy() {
    let mut facts = healthy();
    facts.machines[0].settings.insert("net.ipv4.tcp_sack".into(), "0".into());
    let trouble = Trouble {
        cluster: Some("c".into()),
        what: "no node has come after 60 s".into(),
        at: vec![at("192.0.2.7")],
        hint: Some("`ssh x true` must work".into()),
    };
    facts.troubles.push(trouble);
    let all = findings(&facts);
    expect(&all[0], Severity::Error, "absent", "listen = \":7000\"");
    expect(&all[0], Severity::Error, "absent", "`ssh x true` must work. Nodes must reach");
    assert_eq!(all[1].code, "tcp-off");
    assert!(all.windows(2).all(|pair| pair[0].severity <= pair[1].severity));
    assert_eq!(crate::worst(&all), Severity::Error);
    let text = crate::text(&all, false);
    assert_eq!(text.lines().count(), 2);
    assert!(text.starts_with("error   c: no node has come after 60 s"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&crate::json(&all, &facts)).unwrap();
    assert_eq!(json["findings"][0]["severity"], "error");
}

#[test]
fn what_other_machines_say_cannot_disturb_the_terminal() {
    let mut facts = healthy();
    facts.machines[0].node.host = "evil\u{1b}[2J\nerror".into();
    facts.machines[0].settings.insert("net.ipv4.tcp_sack".into(), "0".into());
    let text = crate::text(&findings(&facts), false);
    assert!(!text.contains('\u{1b}') && text.lines().count() == 1, "{text:?}");
}

#[test]
fn who_paces_is_said_of_the_interfaces_that_are_used() {
    let mut facts = healthy();
    let of = |facts: &Facts| {
        let all = findings(facts);
        let found = all.iter().filter(|one| one.code == "pacing");
        found.map(|one| (one.severity, one.what.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&facts), []);
    let queueing =
        |discipline: &str, paced_by| Some(Queueing { discipline: discipline.to_owned(), paced_by });
    for interface in &mut facts.machines[0].interfaces {
        interface.queueing = match interface.name.as_str() {
            "eth1" => queueing("mq", PacedBy::Fq),
            _ => queueing("pfifo_fast", PacedBy::Tcp),
        };
    }
    assert_eq!(of(&facts), [(Severity::Ok, "eth1: fq paces (mq)".to_owned())]);
}
