//! Private clusters: who reaches whom through gateways, NAT and firewalls, as unmodified programs see it.

mod common;

use common::{Lab, Place, is_empty, said};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long NAT and firewall remember what is idle.
const TIMEOUT: Duration = Duration::from_secs(2);

/// `a` dials out only, by NAT and from two gateways; `b` has one gateway, which can be dialled, and
/// no NAT. Both have the same addresses inside.
fn private() -> String {
    described(TIMEOUT, "")
}

fn described(timeout: Duration, rest: &str) -> String {
    format!(
        "[[cluster]]\nname = \"a\"\nnodes = 2\nprivate = true\ngateways = 2\nnetwork = \"10.9.0.0/16\"\n\
         nat = true\nnat_timeout = \"{} s\"\nfirewall = \"outbound\"\n{rest}\
         [[cluster]]\nname = \"b\"\nnodes = 2\nprivate = true\nnetwork = \"10.9.0.0/16\"\nfirewall = \"open\"\n\
         [[host]]\nname = \"pub\"\n[[link]]\ndelay = \"1 ms\"\n",
        timeout.as_secs()
    )
}

#[test]
fn clusters_with_the_same_addresses_are_apart() {
    let lab = Lab::up(&private());
    let shell = |node: &str, script: &str| lab.exec(node, &["sh", "-c", script]);
    assert_eq!(lab.exec("a1", &["ls", "/sys/class/net"]), "eth0\nlo\n");
    assert_eq!(lab.exec("a-gw2", &["ls", "/sys/class/net"]), "eth0\neth1\nlo\n");
    assert_eq!(lab.exec("pub", &["ls", "/sys/class/net"]), "eth1\nlo\n");
    // The same address is another machine, for programs and for launchers.
    assert_eq!(
        shell("a-head", "lab-ssh 10.9.0.2 hostname; lab-ssh a1 'lab-ssh 10.9.1.2 hostname'"),
        "a2\na-gw2\n"
    );
    assert_eq!(shell("b-head", "lab-ssh 10.9.0.2 hostname"), "b2\n");
    assert_eq!(shell("head", "lab-ssh a2 hostname; ssh b-head 'lab-ssh b1 hostname'"), "a2\nb1\n");
    let unclear = lab.place.run(["exec", "10.9.0.2", "--", "true"]);
    assert!(said(&unclear).contains("say which by name: a2, b2"), "{}", said(&unclear));
    let mut server = lab.server("b2");
    let (mut near, address) = lab.dial("b1", "10.9.0.2");
    assert_eq!((address.as_str(), near.say(5.0).as_str()), ("10.9.0.1", "ok"));
    assert_eq!(server.line(), "10.9.0.1");
    assert_eq!(lab.dial("a1", "10.9.0.2").1, "ConnectionRefusedError");
    // Names lead to the own cluster's nodes, or to the wide area.
    assert_eq!(
        shell("b-head", "getent hosts b2 a-gw1 | tr -s ' '"),
        "10.9.0.2 b2\n10.100.1.1 a-gw1\n"
    );
    let address = shell("head", "getent hosts b2 || echo none");
    assert_eq!(address, "none\n");
}

#[test]
fn outbound_means_that_nobody_dials_in() {
    let lab = Lab::up(&private());
    // Out: nodes as their gateway, gateways as themselves.
    let mut public = lab.server("pub");
    for (node, seen) in [
        ("a1", "10.100.1.1"),
        ("a-head", "10.100.1.1"),
        ("a-gw1", "10.100.1.1"),
        ("a-gw2", "10.100.1.2"),
        ("b-gw1", "10.100.2.1"),
    ] {
        let (mut talk, address) = lab.dial(node, "pub");
        assert_eq!(
            (talk.say(5.0).as_str(), public.line().as_str()),
            ("ok", seen),
            "{node}: {address}"
        );
        drop(talk);
        assert_eq!(public.line(), "closed");
    }
    // Without NAT only gateways reach the wide area.
    assert_eq!(lab.dial("b1", "10.100.3.1").1, "Network is unreachable");
    // In: not to a node, nor to a gateway behind the firewall, through whatever way.
    let _inside = lab.server("a1");
    let _closed = lab.server("a-gw1");
    assert_eq!(lab.dial("pub", "10.9.0.1").1, "Network is unreachable");
    assert_eq!(lab.dial("pub", "10.100.1.1").1, "TimeoutError");
    assert_eq!(lab.dial("b-gw1", "10.100.1.1").1, "TimeoutError");
    assert!(lab.is_cut_off("pub", "10.100.1.1"));
    // Also not to who knows a way: the gateway forwards nothing that it was not asked for.
    lab.exec("pub", &["ip", "route", "add", "10.9.0.0/16", "via", "10.100.1.1"]);
    assert_eq!(lab.dial("pub", "10.9.0.1").1, "TimeoutError");
    // An open gateway can be dialled, but is no way in either.
    let mut open = lab.server("b-gw1");
    let (mut talk, _) = lab.dial("pub", "10.100.2.1");
    assert_eq!((talk.say(5.0).as_str(), open.line().as_str()), ("ok", "10.100.3.1"));
    // Gateways reach their own side, too.
    assert_eq!(lab.dial("b1", "b-gw1").1, "10.9.0.1");
    assert_eq!(lab.dial("a-gw2", "10.9.0.1").1, "10.9.1.2");
    lab.exec("pub", &["ip", "route", "replace", "10.9.0.0/16", "via", "10.100.2.1"]);
    assert_eq!(lab.dial("pub", "10.9.0.1").1, "TimeoutError");
}

#[test]
fn what_is_idle_is_forgotten() {
    let lab = Lab::up(&private());
    let _public = lab.server("pub");
    // Each is used at once: on a busy machine it is forgotten by the time that the next one stands. The busy one comes last.
    let [mut idle, mut gateway, mut free, mut busy] = ["a1", "a-gw2", "b-gw1", "a2"].map(|node| {
        let (mut talk, _) = lab.dial(node, "pub");
        assert_eq!(talk.say(5.0), "ok", "{node}");
        talk
    });
    // Longer than the kernel takes to see to its entries; the busy one has many turns in it.
    let until = Instant::now() + TIMEOUT + Duration::from_millis(1_500);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(busy.say(5.0), "ok");
    }
    // No reset: silence. The entry is gone for the node behind NAT and at the gateway's firewall.
    assert_eq!(idle.say(1.0), "TimeoutError");
    assert_eq!(gateway.say(1.0), "TimeoutError");
    assert_eq!(free.say(5.0), "ok", "nothing forgets where nothing is guarded");
    let (mut again, _) = lab.dial("a1", "pub");
    assert_eq!(again.say(5.0), "ok");
}

#[test]
fn a_gateway_has_the_rate_that_was_asked_for() {
    // iperf3 has a connection that is idle while it measures.
    let lab = Lab::up(&described(Duration::from_secs(60), "gateway_interface = \"20 Mbit/s\"\n"));
    let bound = 20e6 * 1448.0 / 1538.0;
    for from in ["a-gw2", "a1"] {
        let goodput = lab.iperf(from, "pub", "10.100.3.1", &["-t", "2", "-O", "1"]);
        // Its bucket may be full when the counting begins.
        assert!(goodput <= bound * 1.05 && goodput >= bound * 0.6, "{from}: {goodput} of {bound}");
    }
    let direction = lab.direction("a", "pub");
    let delivered = direction["delivered"]["bytes"].as_u64().unwrap();
    assert!(delivered > 8_000_000, "{direction}");
    assert_eq!(direction["delivered"], direction["traffic"]["left"], "{direction}");
}

#[test]
fn jobs_are_started_where_private_clusters_reach_them() {
    let place = Place::new();
    let file = place.file(&private());
    let file = file.to_str().unwrap();
    let job = place.run(["job", file, "--relays"]);
    let job: toml::Table = String::from_utf8(job.stdout).unwrap().parse().unwrap();
    let first = &job["cluster"][0];
    assert_eq!(first["relays"][1].as_str(), Some("a-gw2:7118"));
    assert_eq!(first["hosts"][1].as_str(), Some("10.9.0.2"));
    let head = first["head"].as_str().unwrap();
    // What `gridmpi run` does with that: a program on the head that starts one on a node, and reaches back.
    let script = format!(
        "hostname; ssh -T -o BatchMode=yes -- {head} 'lab-ssh 10.9.0.2 hostname; ping -n -c 1 -W 5 10.100.3.1 >/dev/null && echo back'"
    );
    let run = place.run(["run", "--quiet", "--on", "pub", file, "--", "sh", "-c", &script]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "pub\na2\nback\n", "{}", said(&run));
    let wrong = place.run(["run", "--on", "nowhere", file, "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("no node `nowhere`: head, a1"), "{}", said(&wrong));
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

/// NAT and firewalls are the user's own where the namespaces are.
#[test]
fn gateways_need_no_root() {
    if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() != 0 {
        // Then every other test here is this one.
        return;
    }
    let place = Place::new();
    let file = place.file(&private());
    let program = place.path.join("gridmpi-lab");
    fs::copy(common::PROGRAM, &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&place.path, mode).unwrap();
    let script = r#"
        set -e
        "$0" up "$1" >&2
        "$0" exec a1 -- ping -c 1 -W 5 pub >/dev/null
        if "$0" exec pub -- ping -c 1 -W 1 a-gw1 >/dev/null; then exit 11; fi
        "$0" fault silence pub >&2
        if "$0" exec a1 -- ping -c 1 -W 1 pub >/dev/null; then exit 12; fi
        "$0" fault restore >&2
        "$0" exec a1 -- ping -c 1 -W 5 pub >/dev/null
        "$0" exec b-head -- lab-ssh 10.9.0.2 hostname
        "$0" down
    "#;
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script])
        .args([&program, &file])
        .env("GRIDMPI_LAB_DIR", place.labs())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"b2\n");
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}
