//! More of machines and the ways between them.

use super::*;

#[test]
fn machines_of_one_host_name_are_told_apart_by_what_they_run_on() {
    let mut facts = healthy();
    for (machine, stack) in facts.machines.iter_mut().zip(["1 net:[7]", "2 net:[7]"]) {
        machine.node.host = "node001".into();
        machine.stack = Some(stack.into());
        machine.interfaces.push(interface("virbr0", Kind::Containers, "192.168.122.1", 24));
        machine.told.push(at("192.168.122.1"));
    }
    let ends = [0, 1].map(|n: usize| facts.machines[n].node.clone());
    facts.paths.truncate(1);
    let attempts = vec![attempt("192.168.122.1", Outcome::Refused, A.1)];
    let visit = Visit { attempts, depth: None };
    facts.paths[0] = Path { from: ends[0].clone(), to: ends[1].clone(), visit, idle: Vec::new() };
    let is_shared = |facts: &Facts| wrong(facts).iter().any(|one| one.code == "same-address");
    let is_own = |facts: &Facts| wrong(facts).iter().any(|one| one.what.contains("itself has"));
    assert!(is_shared(&facts) && is_own(&facts), "{:#?}", wrong(&facts));
    // Two containers of one host are two, two clusters on one machine are not.
    facts.machines[1].stack = Some("1 net:[8]".into());
    assert!(is_shared(&facts) && is_own(&facts));
    facts.machines[1].stack = facts.machines[0].stack.clone();
    assert!(!is_shared(&facts) && !is_own(&facts));
    // Where it is not known there is only the name.
    facts.machines[1].stack = None;
    assert!(!is_shared(&facts) && !is_own(&facts));
}

#[test]
fn strict_filters_of_one_interface_are_named_as_the_kernel_counts_them() {
    let mut facts = healthy();
    facts.paths[0].visit =
        Visit { attempts: vec![attempt(B.1, Outcome::Silent, A.1)], depth: None };
    let mut remedy = |of_all: &str, name: &str, own| {
        let machine = &mut facts.machines[1];
        machine.settings.insert("net.ipv4.conf.all.rp_filter".into(), of_all.into());
        machine.interfaces[2].name = name.into();
        machine.interfaces[2].reverse_path = Some(own);
        only(&facts).remedy.unwrap()
    };
    let of_it = "on the nodes of `b`: sysctl -w net.ipv4.conf.eth1.rp_filter=2";
    assert!(remedy("0", "eth1", 1).contains(of_it));
    assert!(remedy("0", "eth1.40", 1).contains("net.ipv4.conf.eth1/40.rp_filter=2"));
    assert!(remedy("1", "eth1", 0).contains("net.ipv4.conf.all.rp_filter=2"));
    // The larger counts, and 2 is lax.
    for (of_all, own) in [("0", 0), ("0", 2), ("1", 2), ("2", 1)] {
        assert!(!remedy(of_all, "eth1", own).contains("rp_filter"), "{of_all} {own}");
    }
}

#[test]
fn the_interface_that_a_job_names_is_known_by_its_labels_and_is_none_within_a_machine() {
    let mut facts = healthy();
    facts.machines[0].wanted = Some("10.100.0.0/16".into());
    facts.machines[0].interfaces[2].name = "eth1:wan".into();
    assert_eq!(wrong(&facts), []);
    facts.paths[0].visit.attempts[0].route.interface = Some("lo".into());
    assert_eq!(wrong(&facts), []);
    // Its own network has no router before it.
    facts.paths[0].visit.attempts[0].route.interface = Some("eth0".into());
    let near = "on a/a1: ip route add 10.100.2.1/32 dev eth1";
    expect(&only(&facts), Severity::Warning, "other-interface", near);
    facts.paths[0].visit.attempts[0].address = at("192.0.2.1");
    let far = "ip route add 192.0.2.1/32 via GATEWAY dev eth1";
    expect(&only(&facts), Severity::Warning, "other-interface", far);
    facts.paths[0].visit.attempts[0].address = at("2001:db8::1");
    let six = "ip route add 2001:db8::1/128 via";
    expect(&only(&facts), Severity::Warning, "other-interface", six);
    facts.machines[0].interfaces.push(interface("docker0", Kind::Containers, "172.17.0.1", 16));
    facts.paths[0].visit.attempts[0].route.interface = Some("docker0".into());
    expect(&only(&facts), Severity::Warning, "trap-route", six);
}

#[test]
fn where_one_direction_is_looked_at_it_speaks_for_both() {
    let mut facts = healthy();
    for machine in &mut facts.machines {
        for (name, text) in [("rmem", "4096 131072 262144"), ("wmem", "4096 16384 262144")] {
            machine.settings.insert(format!("net.ipv4.tcp_{name}"), text.into());
        }
    }
    facts.paths[0].visit.depth.as_mut().unwrap().ahead_us = -60_000_000;
    facts.paths[1].visit.depth.as_mut().unwrap().ahead_us = 60_000_000;
    let said = |facts: &Facts| {
        let of = |one: Finding| (one.places[0].to_string(), one.remedy.unwrap_or_default());
        let mut said: Vec<_> = wrong(facts).into_iter().map(of).collect();
        said.sort();
        said
    };
    let both = said(&facts);
    assert_eq!(both.iter().filter(|(_, remedy)| remedy.contains("mem=")).count(), 4, "{both:#?}");
    assert_eq!(both.iter().filter(|(_, remedy)| remedy.contains("ntp")).count(), 1, "{both:#?}");
    // As where only one side connects, or the other way is closed.
    facts.paths.truncate(1);
    let remedies = |said: &[(String, String)]| {
        let mut remedies: Vec<_> = said.iter().map(|(_, remedy)| remedy.clone()).collect();
        remedies.sort();
        remedies
    };
    let one = said(&facts);
    assert_eq!(remedies(&one), remedies(&both));
    assert_eq!(one.iter().filter(|(place, _)| place == "b/b1 → a/a1").count(), 2, "{one:#?}");
    let all = wrong(&facts);
    let clocks = all.iter().find(|one| one.code == "clock-offset").unwrap();
    assert!(clocks.evidence.starts_with("a/a1 is ahead by"), "{clocks:#?}");
}
