//! Tests of the lab file: what is accepted, and the line an error names.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Spec, SpecError> {
    Spec::parse(text, "lab.toml", "my lab.v2")
}

const TWO: &str = "[[cluster]]\nname = \"a\"\nnodes = 2\n[[cluster]]\nname = \"b\"\nnodes = 3\n";

/// The error of a file with two good clusters (6 lines) and then `text`.
fn wrong(text: &str) -> String {
    parse(&format!("{TWO}{text}")).unwrap_err().to_string()
}

#[test]
fn the_least_file_is_two_clusters_on_a_cable() {
    let spec = parse(TWO).unwrap();
    assert_eq!(spec.name, "my-lab-v2");
    assert_eq!(spec.links.len(), 1);
    assert!(!spec.links[0].emulate && spec.gso && !spec.arrivals);
    assert_eq!((spec.tcp.congestion.as_str(), spec.tcp.rmem), ("cubic", 3_000_000));
}

#[test]
fn a_full_file_is_read() {
    let text = format!(
        "name = \"x\"\nseed = 7\narrivals = true\n{TWO}interface = \"50 Mbit/s\"\n[[link]]\nbetween = [\"b\", \"a\"]\n\
         bandwidth = \"160 Mbit/s\"\ndelay = \"10 ms\"\nbuffer = 64000\nloss = 0.25\ncoalesce = \"100 us\"\n\
         [tcp]\ncongestion = \"reno\"\nrmem = \"1 MB\"\n"
    );
    let spec = parse(&text).unwrap();
    assert_eq!((spec.name.as_str(), spec.seed, spec.gso), ("x", 7, false));
    assert!(spec.arrivals);
    assert_eq!(spec.clusters[1].interface, Some(50_000_000));
    let expected = Link {
        between: (0, 1),
        bandwidth: Some(160_000_000),
        delay: Duration::from_millis(10),
        buffer: 64_000,
        loss: 0.25,
        coalesce: Duration::from_micros(100),
        emulate: true,
    };
    assert_eq!(spec.links, [expected]);
    assert!(spec.tcp.congestion_named);
    assert_eq!((spec.tcp.rmem, spec.tcp.wmem), (1_000_000, 3_000_000));
}

#[test]
fn a_buffer_defaults_to_a_round_trip() {
    let link = |text: &str| parse(&format!("{TWO}[[link]]\n{text}")).unwrap().links[0].clone();
    assert_eq!(link("bandwidth = \"160 Mbit/s\"\ndelay = \"10 ms\"").buffer, 400_000);
    assert_eq!(link("bandwidth = \"160 Mbit/s\"").buffer, 65_536);
}

#[test]
fn one_link_may_stand_for_every_other_pair() {
    let three = format!("{TWO}[[cluster]]\nname = \"c\"\nnodes = 1\n");
    let text = "[[link]]\ndelay = \"1 ms\"\n[[link]]\nbetween = [\"a\", \"c\"]\ndelay = \"9 ms\"\n";
    let spec = parse(&format!("{three}{text}")).unwrap();
    let mut delays: Vec<_> = spec.links.iter().map(|l| (l.between, l.delay.as_millis())).collect();
    delays.sort_unstable();
    assert_eq!(delays, [((0, 1), 1), ((0, 2), 9), ((1, 2), 1)]);
    let chain = "[[link]]\nbetween = [\"a\", \"b\"]\n[[link]]\nbetween = [\"b\", \"c\"]\n";
    assert_eq!(parse(&format!("{three}{chain}")).unwrap().links.len(), 2);
}

#[test]
fn errors_name_the_line() {
    let cases = [
        ("[[link]]\nbandwith = \"1 Mbit/s\"\n", "lab.toml:8: unknown field `bandwith`"),
        ("[[link]]\nbetween = [\"a\", \"z\"]\n", "lab.toml:8: there is no cluster `z`"),
        ("[[link]]\nbetween = [\"a\",\n \"a\"]\n", "lab.toml:9: a link joins two different"),
        ("[[link]]\nbandwidth = \"fast\"\n", "lab.toml:8: `fast` is not a rate"),
        ("[[link]]\nbandwidth = 160\n", "lab.toml:8: `160` is not a rate"),
        ("[[link]]\nbandwidth = \"10 bit/s\"\n", "lab.toml:8: a rate must lie"),
        ("[[link]]\ndelay = \"10\"\n", "lab.toml:8: `10` is not a duration"),
        ("[[link]]\ndelay = \"31 s\"\n", "lab.toml:8: a delay is at most"),
        (
            "[[link]]\ncoalesce = \"11 ms\"\n",
            "lab.toml:8: packets are held together for 10 ms at most",
        ),
        ("[[link]]\nbandwidth = \"1 Mbit/s\"\nbuffer = 100\n", "lab.toml:9: a buffer must hold"),
        (
            "[[cluster]]\nname = \"c\"\nnodes = 1\ninterface_buffer = 9000\n",
            "lab.toml:10: a buffer does nothing without an `interface`",
        ),
        (
            "[[cluster]]\nname = \"c\"\nnodes = 1\ninterface = \"1 Mbit/s\"\ninterface_buffer = 90\n",
            "lab.toml:11: a buffer must hold",
        ),
        ("[[link]]\nbuffer = 9000\n", "lab.toml:8: a buffer does nothing"),
        ("[[link]]\nloss = 2\n", "lab.toml:8: `2` is not a fraction"),
        ("[[link]]\ndelay = \"1 ms\"\nemulate = false\n", "lab.toml:9: a link with"),
        ("[[link]]\n[[link]]\n", "lab.toml:8: a second [[link]] without"),
        ("[tcp]\nrmem = 1\n", "lab.toml:8: a socket buffer"),
        ("[tcp]\ncongestion = \"a b\"\n", "lab.toml:8: not a congestion"),
        ("[[cluster]]\nname = \"a\"\nnodes = 1\n", "lab.toml:8: a second cluster `a`"),
        ("[[cluster]]\nname = \"c\"\nnodes = 0\n", "lab.toml:9: a cluster has 1 to"),
        ("[[cluster]]\nname = \"c\"\n", "missing field `nodes`"),
        ("[[cluster]]\nname = \"head\"\nnodes = 1\n", "lab.toml:8: `head` is"),
        ("[[cluster]]\nname = \"-c\"\nnodes = 1\n", "lab.toml:8: `-c` is no name"),
        ("x = [\n", "lab.toml:"),
    ];
    for (text, expected) in cases {
        let error = wrong(text);
        assert!(error.contains(expected), "{text:?}: {error:?}");
    }
    assert!(parse("").unwrap_err().to_string().contains("no cluster"));
    assert!(parse("nodes = 3\n").unwrap_err().to_string().contains("lab.toml:1: unknown field"));
}

const HIDDEN: &str = "[[cluster]]\nname = \"p\"\nnodes = 2\nprivate = true\n";

#[test]
fn a_private_cluster_is_read() {
    let text = format!(
        "{HIDDEN}gateways = 3\ngateway_interface = \"20 Mbit/s\"\ninterface_buffer = \"64 KiB\"\nnetwork = \"10.9.0.0/16\"\n\
         nat = true\nnat_timeout = \"30 s\"\nfirewall = \"open\"\n{TWO}[[host]]\nname = \"pub\"\ninterface = \"1 Gbit/s\"\n\
         [[link]]\ndelay = \"1 ms\"\n[[link]]\nbetween = [\"pub\", \"p\"]\ndelay = \"9 ms\"\n"
    );
    let spec = parse(&text).unwrap();
    let private = spec.private(0).unwrap();
    assert_eq!((private.gateways, private.nat, private.timeout.as_secs()), (3, true, 30));
    assert_eq!(private.network.to_string(), "10.9.0.0/16");
    assert_eq!(private.firewall, crate::private::Firewall::Open);
    assert_eq!(spec.wide_interface(0), (Some(20_000_000), Some(65_536)));
    assert_eq!(spec.wide_interface(3), (Some(1_000_000_000), None));
    assert_eq!(spec.wide_interface(4), (None, None));
    assert_eq!((spec.sites(), spec.site_name(3), spec.site_name(4)), (4, "pub", ""));
    // A host is the end of links as a cluster is.
    assert_eq!(spec.links.len(), 6);
    assert!(spec.links.iter().any(|link| link.between == (0, 3) && link.delay.as_millis() == 9));
    let plain = parse(HIDDEN).unwrap();
    let private = plain.private(0).unwrap();
    assert_eq!((private.gateways, private.nat, private.timeout.as_secs()), (1, false, 300));
    assert_eq!(private.network.to_string(), "10.1.0.0/16");
    assert_eq!(private.firewall, crate::private::Firewall::Outbound);
    assert!(spec.private(1).is_none() && spec.private(3).is_none());
}

#[test]
fn planned_faults_are_read_in_order_of_time() {
    let fault = |at, what, rest| format!("[[fault]]\nat = \"{at}\"\nwhat = \"{what}\"\n{rest}");
    let faults = fault("3 s", "silence  a1", "for = \"2 s\"\n") + &fault("10 ms", "reset a b", "");
    let spec = parse(&format!("{TWO}{faults}")).unwrap();
    let second = Duration::from_secs;
    let expected = [
        Planned { at: Duration::from_millis(10), what: "reset a b".into(), lasts: None },
        Planned { at: second(3), what: "silence a1".into(), lasts: Some(second(2)) },
    ];
    assert_eq!(spec.faults, expected);
}

#[test]
fn wrong_combinations_name_line_and_remedy() {
    let hidden = |rest: &str| format!("{HIDDEN}{rest}");
    let public = "[[cluster]]\nname = \"c\"\nnodes = 1\n";
    let of_public = |rest: &str| format!("{public}{rest}");
    let host = |rest: &str| format!("[[host]]\nname = \"h\"\n{rest}");
    let fault = |rest: &str| format!("[[fault]]\nat = \"1 s\"\n{rest}");
    let cases = [
        (
            hidden("interface = \"1 Gbit/s\"\n"),
            "lab.toml:11: nodes of a private cluster have no wide-area interface: write `gateway_interface`",
        ),
        (hidden("gateways = 0\n"), "lab.toml:11: a private cluster has 1 to 50 gateways"),
        (hidden("gateways = 51\n"), "lab.toml:11: a private cluster has 1 to 50"),
        (hidden("network = \"10.9.0.0\"\n"), "lab.toml:11: `10.9.0.0` is no network"),
        (
            hidden("network = \"10.100.0.0/16\"\n"),
            "lab.toml:11: `10.100.0.0/16` overlaps the wide area",
        ),
        (hidden("firewall = \"closed\"\n"), "lab.toml:11: `closed` is no firewall: \"outbound\""),
        (hidden("nat_timeout = \"1.5 s\"\n"), "lab.toml:11: the kernel counts in seconds"),
        (hidden("nat_timeout = \"0 s\"\n"), "lab.toml:11: the kernel counts in seconds"),
        (
            hidden("firewall = \"open\"\nnat_timeout = \"5 s\"\n"),
            "lab.toml:12: nothing here times out: `nat_timeout` needs `nat = true`",
        ),
        (
            hidden("interface_buffer = 9000\n"),
            "lab.toml:11: a buffer does nothing without an `gateway_interface`",
        ),
        (
            of_public("gateways = 2\n"),
            "lab.toml:10: `gateways` is for clusters behind gateways: write `private = true`",
        ),
        (of_public("private = false\nnat = true\n"), "lab.toml:11: `nat` is for clusters behind"),
        (of_public("network = \"10.9.0.0/16\"\n"), "lab.toml:10: `network` is for"),
        (host("nodes = 2\n"), "lab.toml:9: unknown field `nodes`"),
        (
            host("interface_buffer = 9000\n"),
            "lab.toml:9: a buffer does nothing without an `interface`",
        ),
        ("[[host]]\nname = \"head\"\n".into(), "lab.toml:8: `head` is"),
        (
            "[[host]]\nname = \"a2\"\n".into(),
            "lab.toml:8: two machines would be called `a2`: rename one",
        ),
        (
            hidden("[[cluster]]\nname = \"p-gw\"\nnodes = 1\n"),
            "lab.toml:12: two machines would be called `p-gw1`",
        ),
        ("[[host]]\nname = \"a\"\n".into(), "lab.toml:8: a second site `a`"),
        (
            host("[[link]]\nbetween = [\"h\", \"x\"]\n"),
            "lab.toml:10: there is no cluster `x`, nor a host",
        ),
        (fault("what = \"cut a-c\"\n"), "lab.toml:9: no link `a-c`: a-b"),
        (fault("what = \"loss a-b 1%\"\n"), "lab.toml:9: the link a-b is a plain cable"),
        (fault("what = \"explode\"\n"), "lab.toml:9: `explode` is no fault: cut A-B"),
        (
            fault("what = \"reset a b\"\nfor = \"1 s\"\n"),
            "lab.toml:10: only cut, silence and loss last",
        ),
        (
            fault("what = \"cut a-b\"\nfor = \"0 s\"\n"),
            "lab.toml:10: a fault must last longer than 0",
        ),
        (
            fault("what = \"cut a-b\"\nfor = \"99999999 s\"\n"),
            "lab.toml:10: `99999999 s` is not a duration",
        ),
        ("[[fault]]\nwhat = \"cut a-b\"\n".into(), "missing field `at`"),
    ];
    for (text, expected) in cases {
        let error = wrong(&text);
        assert!(error.contains(expected), "{text:?}: {error:?}");
    }
}

#[test]
fn too_many_nodes_are_refused() {
    let cluster = |n: usize| format!("[[cluster]]\nname = \"c{n}\"\nnodes = 200\n");
    let text: String = (0..3).map(cluster).collect();
    assert!(parse(&text).unwrap_err().to_string().contains("lab.toml:9: a lab has at most"));
    let host = |n: usize| format!("[[host]]\nname = \"h{n}\"\n");
    let text: String = (0..49).map(host).collect();
    assert!(wrong(&text).contains("lab.toml:104: a lab has at most 50 clusters and hosts"));
    // Gateways and heads count, too.
    let cluster = |n: usize| {
        format!("[[cluster]]\nname = \"c{n}\"\nnodes = 250\nprivate = true\ngateways = 6\n")
    };
    let text: String = (0..2).map(cluster).collect();
    assert!(parse(&text).unwrap_err().to_string().contains("lab.toml:7: a lab has at most"));
}

proptest! {
    #[test]
    fn reading_is_total(text in "[\\[\\]a-z0-9=\" \n.]{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("{TWO}{text}"));
    }
}
