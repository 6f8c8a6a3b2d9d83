//! Congestion controls that a process cannot have.

use super::*;

const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

/// Two machines of which the first one's processes may have these only.
fn allowing(available: &str, allowed: &str) -> Facts {
    let mut facts = healthy();
    let settings = &mut facts.machines[0].settings;
    settings.insert(AVAILABLE.into(), available.into());
    settings.insert(ALLOWED.into(), allowed.into());
    facts
}

#[test]
fn one_that_is_named_and_cannot_be_used_is_an_error() {
    let mut facts = allowing("reno cubic bbr", "reno cubic");
    facts.machines[0].congestion = Some("cubic".into());
    assert_eq!(wrong(&facts), []);
    facts.machines[0].congestion = Some("bbr".into());
    expect(
        &only(&facts),
        Severity::Error,
        "congestion",
        "net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
    );
    facts.machines[0].congestion = Some("dctcp".into());
    expect(&only(&facts), Severity::Error, "congestion", "modprobe tcp_dctcp");
    // What cannot be read shows nothing.
    let settings = &mut facts.machines[0].settings;
    settings.remove(AVAILABLE);
    settings.remove(ALLOWED);
    assert_eq!(wrong(&facts), []);
}

#[test]
fn windows_that_nothing_keeps_over_pauses_are_noted_with_how_to_have_bbr_also_after_a_reboot() {
    let now = "on every node: sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"; to keep it over a reboot: ";
    let finding = only(&allowing("reno cubic bbr", "reno cubic"));
    expect(&finding, Severity::Note, "no-bbr", now);
    assert_eq!(finding.places[0].to_string(), "a/a1");
    for kept in [
        "echo tcp_bbr >/etc/modules-load.d/gridmpi.conf",
        "echo 'net.ipv4.tcp_allowed_congestion_control = reno cubic bbr' >/etc/sysctl.d/gridmpi.conf",
        "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
    ] {
        expect(&finding, Severity::Note, "no-bbr", kept);
    }
    let finding = only(&allowing("reno cubic", "reno cubic"));
    expect(&finding, Severity::Note, "no-bbr", "on every node: modprobe tcp_bbr; sysctl -w");
    // Names are whole words.
    expect(&only(&allowing("reno bbr2", "reno bbr2")), Severity::Note, "no-bbr", "modprobe");
    // On all nodes it is one finding.
    let mut facts = allowing("reno cubic", "reno cubic");
    facts.machines[1].settings = facts.machines[0].settings.clone();
    assert_eq!(only(&facts).places.len(), 2);
}

#[test]
fn bbr_is_missed_only_where_connections_between_clusters_would_rest_with_it() {
    let mut facts = allowing("reno cubic", "reno cubic");
    facts.machines[0].settings.remove(ALLOWED);
    assert_eq!(wrong(&facts), [], "it cannot be read");
    let mut facts = allowing("reno cubic", "reno cubic");
    facts.paths.clear();
    facts.links[0].between = ["b".into(), "c".into()];
    assert_eq!(wrong(&facts), [], "its cluster has no link");
    let mut facts = allowing("reno cubic", "reno cubic");
    facts.machines[0].congestion = Some("system".into());
    assert_eq!(wrong(&facts), [], "the system's is wanted at all times, which everybody has");
    let mut facts = allowing("reno cubic", "reno cubic");
    let settings = &mut facts.machines[0].settings;
    settings.insert("net.ipv4.tcp_slow_start_after_idle".into(), "0".into());
    assert_eq!(wrong(&facts), [], "windows are kept without it");
    facts.machines[0].settings.insert("net.ipv4.tcp_slow_start_after_idle".into(), "1".into());
    expect(&only(&facts), Severity::Note, "no-bbr", "modprobe tcp_bbr");
    // Nobody knows what a machine alone is for.
    let mut facts = allowing("reno cubic", "reno cubic");
    facts.paths.clear();
    facts.links.clear();
    expect(&only(&facts), Severity::Note, "no-bbr", "modprobe tcp_bbr");
}
