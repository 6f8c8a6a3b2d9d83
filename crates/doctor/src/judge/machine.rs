//! One machine by itself.

use super::buffers;
use crate::facts::{Facts, Interface, Kind, Link, Machine, PacedBy, Queueing};
use crate::finding::{Finding, Place, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use gridmpi_net::Congestion;

/// Descriptors that a process has beside its connections.
const OTHER_FILES: u64 = 100;
/// With fewer than so many open files nobody gets far.
const FEW_FILES: u64 = 1024;
/// Memory that RDMA wants to lock.
const FEW_LOCKED: u64 = 64 << 20;
/// What paced connections rest with, where nobody names another (`net`'s `options.rs`).
const OPENER: &str = "bbr";

const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
const AFTER_IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

pub(super) fn judge(machine: &Machine, facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(told(machine));
    all.extend(open_files(machine, facts.processes));
    all.extend(locked_memory(machine));
    all.extend(clock(machine));
    all.extend(congestion(machine));
    all.extend(opener(machine, facts));
    all.extend(pacing(machine, facts));
    all.extend(tcp(machine));
    if facts.paths.is_empty() {
        all.extend(buffers::alone(machine));
    }
    all
}

const fn is_trap(kind: Kind) -> bool {
    matches!(kind, Kind::Containers | Kind::Tunnel)
}

/// How a user is told to choose an interface.
pub(super) fn choose(cluster: &str, interface: &str) -> String {
    if cluster.is_empty() {
        format!(
            "interface = \"{interface}\" of the cluster in the job file, or GRIDMPI_INTERFACE={interface}"
        )
    } else {
        format!("interface = \"{interface}\" of cluster `{cluster}` in the job file")
    }
}

/// The addresses that others are told.
fn told(machine: &Machine) -> Vec<Finding> {
    let place = || Place::at(&machine.node);
    let known = |ip: IpAddr| machine.with(ip).map(|interface| (ip, interface));
    let told: Vec<(IpAddr, &Interface)> =
        machine.told.iter().filter_map(|at| known(at.ip())).collect();
    let listed = || {
        let one = |(ip, interface): &(IpAddr, &Interface)| format!("{} {ip}", interface.name);
        told.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    if told.is_empty() {
        return Vec::new();
    }
    let is_outer = |(_, interface): &&(IpAddr, &Interface)| interface.kind != Kind::Loopback;
    let Some((_, first)) = told.iter().find(is_outer) else {
        let what =
            "no interface but the loopback is up or fits: no other machine can reach this one";
        let severity = if machine.wanted.is_none() { Severity::Warning } else { Severity::Error };
        let finding = Finding::new(severity, "only-loopback", place(), what, listed());
        return vec![finding.remedy("ip link set dev NAME up, or name another `interface`")];
    };
    let good = told.iter().find(|(_, one)| one.kind != Kind::Loopback && !is_trap(one.kind));
    let trap = told.iter().find(|(_, one)| is_trap(one.kind));
    let evidence = format!("told in this order: {}", listed());
    match (is_trap(first.kind), good, trap) {
        (true, Some((_, good)), _) => vec![
            Finding::new(
                Severity::Warning,
                "trap-first",
                place(),
                format!(
                    "other nodes try {}, {}, before {}",
                    first.name,
                    called(first.kind),
                    good.name
                ),
                evidence,
            )
            .remedy(choose(&machine.node.cluster, &good.name)),
        ],
        (false, Some((_, good)), Some((_, trap))) => vec![
            Finding::new(
                Severity::Note,
                "trap-told",
                place(),
                format!(
                    "other nodes are also told the address of {}, {}",
                    trap.name,
                    called(trap.kind)
                ),
                evidence,
            )
            .remedy(choose(&machine.node.cluster, &good.name)),
        ],
        _ => vec![Finding::new(Severity::Ok, "interfaces", place(), "interfaces", evidence)],
    }
}

const fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::Containers => "which only containers or virtual machines of its own are behind",
        Kind::Tunnel => "a tunnel",
        Kind::Loopback => "the loopback",
        Kind::Card => "a network card",
        Kind::InfiniBand => "InfiniBand",
    }
}

/// Addresses that two machines tell.
pub(super) fn shared_addresses(facts: &Facts) -> Vec<Finding> {
    let mut owners: BTreeMap<IpAddr, Vec<&Machine>> = BTreeMap::new();
    // Clusters that meet at relays may well have the same private network.
    let is_dialled = |machine: &&Machine| {
        let node = &machine.node;
        facts.circuits.is_empty()
            || facts.paths.iter().any(|path| path.from == *node || path.to == *node)
    };
    for machine in facts.machines.iter().filter(is_dialled) {
        for at in machine.told.iter().filter(|at| !at.ip().is_loopback()) {
            let owners = owners.entry(at.ip()).or_default();
            // Clusters may share a machine.
            if owners.iter().all(|known| !known.is_same(machine)) {
                owners.push(machine);
            }
        }
    }
    let shared = owners.into_iter().filter(|(_, owners)| owners.len() > 1);
    let finding = |(ip, owners): (IpAddr, Vec<&Machine>)| {
        let what = format!(
            "several machines have the address {ip}: connections to it may end at the wrong one"
        );
        let named = |machine: &&Machine| {
            let name = machine.with(ip).map_or("?", |interface| &interface.name);
            format!("{name} of {}", machine.node)
        };
        let evidence = owners.iter().take(4).map(named).collect::<Vec<_>>().join(", ");
        let other = owners[0].interfaces.iter().find(|one| {
            one.kind == Kind::Card && one.is_up && one.addresses.iter().all(|(own, _)| *own != ip)
        });
        let remedy = match other {
            Some(other) => choose(&owners[0].node.cluster, &other.name),
            None => "renumber one of the two, or join the clusters by relays".to_owned(),
        };
        let mut finding = Finding::new(
            Severity::Warning,
            "same-address",
            Place::at(&owners[0].node),
            what,
            evidence,
        );
        finding.places = owners.iter().map(|machine| Place::at(&machine.node)).collect();
        finding.remedy(remedy)
    };
    shared.map(finding).collect()
}

fn open_files(machine: &Machine, processes: Option<u32>) -> Option<Finding> {
    let (soft, hard) = machine.open_files?;
    let needed = processes.map_or(FEW_FILES, |count| u64::from(count) + OTHER_FILES);
    let place = Place::at(&machine.node);
    let evidence = format!("{soft} of at most {hard}; up to {needed} are needed");
    if soft >= needed {
        return Some(Finding::new(Severity::Ok, "open-files", place, "open files", evidence));
    }
    let severity = if processes.is_some() { Severity::Error } else { Severity::Warning };
    let what = "a process may open too few files for its connections";
    let wanted = needed.max(FEW_FILES);
    let remedy = if hard >= needed {
        format!(
            "ulimit -n {wanted} before the launcher starts, or `* soft nofile {wanted}` in /etc/security/limits.conf of every node"
        )
    } else {
        format!(
            "`* - nofile {wanted}` in /etc/security/limits.conf of every node (systemd: LimitNOFILE={wanted} of the batch system's daemon)"
        )
    };
    Some(Finding::new(severity, "open-files", place, what, evidence).remedy(remedy))
}

fn locked_memory(machine: &Machine) -> Option<Finding> {
    let locked = machine.locked_memory.filter(|bytes| machine.has_rdma && *bytes < FEW_LOCKED)?;
    let what = "a process may lock little memory: the vendor's MPI needs more for InfiniBand";
    let evidence = format!("{} KiB", locked >> 10);
    let finding =
        Finding::new(Severity::Warning, "locked-memory", Place::at(&machine.node), what, evidence);
    Some(finding.remedy("`* - memlock unlimited` in /etc/security/limits.conf of every node"))
}

fn clock(machine: &Machine) -> Option<Finding> {
    let place = Place::at(&machine.node);
    match machine.clock_is_kept? {
        true => Some(Finding::new(Severity::Ok, "clock", place, "the clock is kept right", "")),
        false => {
            let what =
                "nothing keeps this clock right: logs of several machines cannot be put in order";
            let finding = Finding::new(Severity::Note, "clock", place, what, "timedatectl");
            Some(finding.remedy("timedatectl set-ntp true"))
        }
    }
}

/// Whether a list of words is without this one. What the kernel does not tell is not judged.
fn lacks(list: &str, name: &str) -> bool {
    !list.is_empty() && list.split(' ').all(|word| word != name)
}

fn congestion(machine: &Machine) -> Vec<Finding> {
    let place = || Place::at(&machine.node);
    let [available, allowed] = [AVAILABLE, ALLOWED].map(|name| machine.setting(name));
    let now = machine.setting("net.ipv4.tcp_congestion_control");
    let mut all = Vec::new();
    if let Some(Congestion::Named(name)) = machine.congestion.as_deref().map(Congestion::named) {
        let what =
            format!("the congestion control `{name}` that GRIDMPI_CONGESTION names cannot be used");
        let finding = Finding::new(
            Severity::Error,
            "congestion",
            place(),
            what,
            format!("available: {available}; allowed: {allowed}"),
        );
        if lacks(available, &name) {
            all.push(finding.remedy(format!("modprobe tcp_{name}, or unset GRIDMPI_CONGESTION")));
        } else if lacks(allowed, &name) {
            let line = format!("sysctl -w {ALLOWED}=\"{allowed} {name}\"");
            all.push(finding.remedy(line));
        }
    }
    if !now.is_empty() {
        let queue = machine.setting("net.core.default_qdisc");
        let evidence = format!(
            "{now}; available: {available}; new interfaces queue by {}",
            if queue.is_empty() { "the kernel's own choice" } else { queue }
        );
        all.push(Finding::new(Severity::Ok, "congestion", place(), "congestion control", evidence));
    }
    all
}

/// Whether what keeps windows over pauses can be had.
fn opener(machine: &Machine, facts: &Facts) -> Option<Finding> {
    let [available, allowed] = [AVAILABLE, ALLOWED].map(|name| machine.setting(name));
    let is_of = |link: &Link| link.between.contains(&machine.node.cluster);
    // Where no job is looked at there may be one.
    let has_links = facts.links.is_empty() || facts.links.iter().any(is_of);
    // Where nothing slows down after idle times connections keep their windows without it.
    let is_kept = machine.setting(AFTER_IDLE) == "0";
    if machine.congestion.is_some() || !has_links || is_kept || !lacks(allowed, OPENER) {
        return None;
    }
    let what = "paced connections between clusters cannot rest with BBR, which keeps their windows: what is sent after a pause begins slowly";
    let evidence = format!("allowed: {allowed}; available: {available}");
    let place = Place::at(&machine.node);
    let finding = Finding::new(Severity::Note, "no-bbr", place, what, evidence);
    let load = if lacks(available, OPENER) { "modprobe tcp_bbr; " } else { "" };
    Some(finding.remedy(format!(
        "on every node: {load}sysctl -w {ALLOWED}=\"{allowed} {OPENER}\"; to keep it over a reboot: \
         echo tcp_bbr >/etc/modules-load.d/gridmpi.conf; echo '{ALLOWED} = {allowed} {OPENER}' >/etc/sysctl.d/gridmpi.conf. \
         Where there is no such module: sysctl -w {AFTER_IDLE}=0, by which all of a node's connections keep their windows"
    )))
}

/// Who paces what leaves by the interfaces that lead to other nodes, or else by any card.
fn pacing(machine: &Machine, facts: &Facts) -> Option<Finding> {
    let from_here = facts.paths.iter().filter(|path| path.from == machine.node);
    let attempts = from_here.flat_map(|path| &path.visit.attempts);
    let used: BTreeSet<&str> =
        attempts.filter_map(|attempt| attempt.route.interface.as_deref()).collect();
    let is_used = |one: &&Interface| match used.is_empty() {
        true => one.kind != Kind::Loopback && one.is_up && one.name == one.device(),
        false => used.contains(one.name.as_str()),
    };
    let said = |one: &Interface| {
        let Queueing { discipline, paced_by } = one.queueing.as_ref()?;
        let by = match paced_by {
            PacedBy::Tcp => "TCP paces",
            PacedBy::Fq => "fq paces",
            PacedBy::Card => "the card and fq pace",
        };
        Some(format!("{}: {by} ({discipline})", one.name))
    };
    let all: Vec<String> = machine.interfaces.iter().filter(is_used).filter_map(said).collect();
    let place = Place::at(&machine.node);
    let finding = || Finding::new(Severity::Ok, "pacing", place, all.join("; "), "");
    (!all.is_empty()).then(finding)
}

/// Settings that are on unless somebody has turned them off.
fn tcp(machine: &Machine) -> Vec<Finding> {
    let off = |name: &str| machine.number(name) == Some(0);
    let mut all = Vec::new();
    let mut add = |severity, name: &str, what: &str| {
        if off(name) {
            let finding = Finding::new(
                severity,
                "tcp-off",
                Place::at(&machine.node),
                what,
                format!("{name} = 0"),
            );
            all.push(finding.remedy(format!("sysctl -w {name}=1")));
        }
    };
    let windows =
        "TCP does not scale its windows: one connection carries at most 64 KiB in a round trip";
    add(Severity::Warning, "net.ipv4.tcp_window_scaling", windows);
    let sack = "TCP does not say which segments have come: after a loss much is sent again";
    add(Severity::Warning, "net.ipv4.tcp_sack", sack);
    let grow = "receive buffers do not grow: long links stay slow";
    add(Severity::Warning, "net.ipv4.tcp_moderate_rcvbuf", grow);
    all
}
