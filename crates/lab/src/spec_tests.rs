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
         bandwidth = \"160 Mbit/s\"\ndelay = \"10 ms\"\nbuffer = 64000\nloss = 0.25\n\
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

#[test]
fn too_many_nodes_are_refused() {
    let cluster = |n: usize| format!("[[cluster]]\nname = \"c{n}\"\nnodes = 200\n");
    let text: String = (0..3).map(cluster).collect();
    assert!(parse(&text).unwrap_err().to_string().contains("lab.toml:9: a lab has at most"));
}

proptest! {
    #[test]
    fn reading_is_total(text in "[\\[\\]a-z0-9=\" \n.]{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("{TWO}{text}"));
    }
}
