//! Links do what the lab file says, as seen by unmodified programs and by the counters.

mod common;

use common::{Lab, clusters, direction, said, two};
use gridmpi_lab::arrivals;
use gridmpi_lab::flow::WIRE_OVERHEAD;
use gridmpi_lab::traffic::{self, Row};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;

/// Least round-trip time of some pings, ms.
fn least_rtt(lab: &Lab, from: &str, to: &str) -> f64 {
    let text = lab.exec(from, &["ping", "-n", "-c", "10", "-i", "0.02", to]);
    let line = text.lines().find(|line| line.starts_with("rtt")).expect("no answer");
    line.split(" = ").nth(1).and_then(|times| times.split('/').next()?.parse().ok()).unwrap()
}

fn packets(direction: &Value, name: &str) -> u64 {
    direction["traffic"][name]["packets"].as_u64().unwrap()
}

fn bytes(direction: &Value, name: &str) -> u64 {
    direction["traffic"][name]["bytes"].as_u64().unwrap()
}

/// A node's counter of TCP in a status.
fn tcp(status: &Value, node: &str, counter: &str) -> u64 {
    let nodes = status["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|found| found["name"] == node).expect("no such node");
    found["tcp"][counter].as_u64().unwrap()
}

/// What holds of every direction at rest.
fn assert_adds_up(direction: &Value) {
    let of = |name: &str| (bytes(direction, name), packets(direction, name));
    let delivered = &direction["delivered"];
    let delivered = (delivered["bytes"].as_u64().unwrap(), delivered["packets"].as_u64().unwrap());
    let sum = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
    assert_eq!(direction["queued"], 0, "{direction}");
    assert_eq!(of("arrived"), sum(of("left"), of("dropped")), "{direction}");
    assert_eq!(of("left"), sum(delivered, of("lost")), "{direction}");
    assert_eq!(direction["failures"], 0, "{direction}");
}

#[test]
fn a_ping_takes_the_delay_both_ways() {
    let lab = Lab::up(&two("delay = \"10 ms\"\n"));
    assert!(least_rtt(&lab, "a1", "10.100.2.1") >= 20.0);
    // Inside a cluster there is no delay: the least of ten cannot be late every time.
    assert!(least_rtt(&lab, "a1", "10.1.0.2") < 10.0);
    assert!(least_rtt(&lab, "head", "10.2.0.1") < 10.0);
    let direction = lab.direction("a", "b");
    assert_eq!((packets(&direction, "arrived"), bytes(&direction, "arrived")), (10, 980));
    assert_adds_up(&direction);
}

#[test]
fn single_frames_are_recorded_if_asked_for() {
    let lab = Lab::up(&("arrivals = true\n".to_owned() + &two("delay = \"1 ms\"\n")));
    // After the last one it waits for two round trips only, in which a machine that stands still answers nothing.
    lab.exec("a1", &["ping", "-n", "-c", "5", "-i", "0.05", "10.100.2.1"]);
    lab.status_when(|status| {
        [("a", "b"), ("b", "a")]
            .iter()
            .all(|&(from, to)| packets(direction(status, from, to), "left") == 5)
    });
    let rows = arrivals::read(&lab.save().join(arrivals::FILE)).unwrap();
    let mine: Vec<_> = rows.iter().filter(|row| row.from == "a" && row.to == "b").collect();
    assert_eq!((rows.len(), mine.len()), (10, 5), "{rows:?}");
    assert!(rows.iter().all(|row| (row.arrival.bytes, row.arrival.packets) == (98, 1)));
    // The pings are 50 ms apart, a late one not less than its successor is early.
    let span = mine[4].arrival.stamp - mine[0].arrival.stamp;
    assert!(span > 150_000_000, "{rows:?}");
}

#[test]
fn each_node_has_counters_of_its_own() {
    let lab = Lab::up(&two("loss = 0.2\n"));
    lab.iperf("a1", "b2", "10.100.2.2", &["-n", "1M"]);
    // All that left the node crossed the link. The kernel may still repeat a lost FIN, so the two
    // are compared within one reading, and again if a segment fell between its halves.
    let status = lab.status_when(|status| {
        let arrived = packets(direction(status, "a", "b"), "arrived");
        tcp(status, "a1", "segments") + tcp(status, "a1", "retransmits") == arrived
    });
    // One segment in five was lost.
    assert!(tcp(&status, "a1", "retransmits") > 0, "{status}");
    assert_eq!(tcp(&status, "a2", "segments"), 0, "{status}");
    assert_eq!(tcp(&status, "a2", "retransmits"), 0, "{status}");
}

#[test]
fn only_the_wide_area_joins_clusters() {
    let lab = Lab::up(&two("delay = \"1 ms\"\n"));
    let ping = |from: &str, to: &str| {
        let mut command = lab.exec_command(from, &["ping", "-n", "-c", "1", "-W", "1", to]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(ping("a1", "10.100.2.2") && ping("a1", "10.1.0.2") && ping("a1", "10.1.0.254"));
    assert!(!ping("a1", "10.2.0.1") && !ping("a1", "10.2.0.254"));
}

#[test]
fn a_lone_packet_waits_as_long_as_a_link_coalesces() {
    let lab = Lab::up(&two("coalesce = \"10 ms\"\n"));
    let output = lab
        .exec_command("a1", &["ping", "-n", "-c", "3", "-i", "0.1", "10.100.2.1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let time = |line: &str| line.split_once("time=")?.1.split_once(' ')?.0.parse::<f64>().ok();
    let times: Vec<f64> = text.lines().filter_map(time).collect();
    assert_eq!(times.len(), 3, "{text}");
    assert!(times.iter().all(|time| *time >= 20.0), "{text}");
}

#[test]
fn a_saturated_link_keeps_rate_and_buffer() {
    let (rate, buffer) = (40_000_000u64, 30_000u64);
    let link = format!("bandwidth = \"40 Mbit/s\"\ndelay = \"2 ms\"\nbuffer = {buffer}\n");
    let lab = Lab::up(&two(&link));
    let goodput = lab.iperf("a1", "b1", "10.100.2.1", &["-t", "3", "-P", "4"]);
    let bound = rate as f64 * 1448.0 / 1538.0;
    assert!(goodput <= bound * 1.01, "{goodput} of {bound}");
    // On a busy machine the sender may fall behind; far less means that the link is wrong.
    assert!(goodput >= bound * 0.6, "{goodput} of {bound}");
    for (from, to) in [("a", "b"), ("b", "a")] {
        let direction = lab.direction(from, to);
        assert_adds_up(&direction);
        assert!(direction["traffic"]["queue_peak"].as_u64().unwrap() <= buffer, "{direction}");
    }
    let forward = lab.direction("a", "b");
    assert!(packets(&forward, "dropped") > 0, "four flows fill such a buffer: {forward}");
    let rows = traffic::read(&lab.save().join("traffic.csv")).unwrap();
    assert_recording_is_sound(&rows, &forward, rate, buffer);
}

/// The recording of a -> b says the same as the counters, and no window exceeds the rate.
fn assert_recording_is_sound(rows: &[Row], forward: &Value, rate: u64, buffer: u64) {
    let mine: Vec<_> = rows.iter().filter(|row| row.from == "a").collect();
    let (mut arrived, mut dropped, mut peak) = (0, 0, 0);
    let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
    for row in &mine {
        let sample = &row.sample.traffic;
        arrived += sample.arrived.bytes;
        dropped += sample.dropped.packets;
        peak = peak.max(sample.queue_peak);
        let wire = sample.left.bytes + sample.left.packets * WIRE_OVERHEAD;
        *windows.entry(row.sample.millisecond / 100).or_default() += wire;
    }
    assert_eq!((arrived, dropped), (bytes(forward, "arrived"), packets(forward, "dropped")));
    assert_eq!(peak, forward["traffic"]["queue_peak"].as_u64().unwrap());
    assert!(peak <= buffer);
    // A window may hold the end of a frame that began before it.
    let most = rate / 8 / 10 + 1538;
    assert!(windows.values().all(|wire| *wire <= most), "{windows:?}");
    assert!(mine.windows(2).all(|p| p[0].sample.millisecond < p[1].sample.millisecond));
}

#[test]
fn losses_are_as_many_as_asked_for() {
    let loss = 0.05;
    let lab = Lab::up(&("seed = 11\n".to_owned() + &two(&format!("loss = {loss}\n"))));
    let mut server = lab.iperf_server("b1");
    let count = ["-u", "-b", "80M", "-l", "500", "-n", "10000000"];
    lab.exec("a1", &[&["iperf3", "-c", "10.100.2.1"], &count[..]].concat());
    let _ = std::io::copy(server.stdout.as_mut().unwrap(), &mut std::io::sink());
    server.wait().unwrap();
    let direction = lab.direction("a", "b");
    assert_adds_up(&direction);
    let (left, lost) = (packets(&direction, "left") as f64, packets(&direction, "lost") as f64);
    assert!(left >= 10_000.0, "{direction}");
    // Six standard deviations.
    let bound = 6.0 * (left * loss * (1.0 - loss)).sqrt();
    assert!((lost - left * loss).abs() <= bound, "{lost} of {left}");
    let status = lab.place.run(["status"]);
    assert!(said(&status).contains("seed of random loss: 11"), "{}", said(&status));
}

#[test]
fn an_interface_rate_limits_each_node() {
    let text = two("").replace("nodes = 2\n", "nodes = 2\ninterface = \"20 Mbit/s\"\n");
    let lab = Lab::up(&text);
    let goodput = lab.iperf("a1", "b2", "10.100.2.2", &["-t", "2", "-O", "1"]);
    let bound = 20e6 * 1448.0 / 1538.0;
    // Its bucket may be full when the counting begins.
    assert!(goodput <= bound * 1.05 && goodput >= bound * 0.6, "{goodput} of {bound}");
}

#[test]
fn an_interface_with_a_buffer_limits_what_comes_in() {
    // The senders have no limit; the receiver's switch drops what is too much.
    let receiver = "nodes = 2\ninterface = \"20 Mbit/s\"\ninterface_buffer = 30000\n";
    let receivers = clusters(&["b"], 2).replace("nodes = 2\n", receiver);
    let lab = Lab::up(&(clusters(&["a"], 2) + &receivers));
    let goodput = lab.iperf("a1", "b2", "10.100.2.2", &["-t", "2", "-O", "1", "-P", "2"]);
    let bound = 20e6 * 1448.0 / 1538.0;
    assert!(goodput <= bound * 1.05 && goodput >= bound * 0.6, "{goodput} of {bound}");
    let counters = lab.exec("head", &["tc", "-s", "qdisc"]);
    let dropped = |line: &str| line.contains("dropped") && !line.contains("dropped 0,");
    assert!(counters.lines().any(dropped), "two flows fill such a buffer: {counters}");
}

#[test]
fn frames_may_go_over_several_links() {
    let link = |a, b, rest| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\n{rest}");
    let chain = link("a", "b", "delay = \"5 ms\"\n") + &link("b", "c", "delay = \"4 ms\"\n");
    let lab = Lab::up(&(clusters(&["a", "b", "c"], 1) + &chain));
    assert!(least_rtt(&lab, "a1", "10.100.3.1") >= 18.0);
    for (from, to) in [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")] {
        let direction = lab.direction(from, to);
        assert_eq!(packets(&direction, "arrived"), 10);
        assert_adds_up(&direction);
    }
}

#[test]
fn every_pair_has_a_link_of_its_own_by_default() {
    let all = clusters(&["a", "b", "c"], 1) + "[[link]]\ndelay = \"3 ms\"\n";
    let lab = Lab::up(&all);
    for (from, address) in [("a1", "10.100.2.1"), ("a1", "10.100.3.1"), ("b1", "10.100.3.1")] {
        assert!(least_rtt(&lab, from, address) >= 6.0);
    }
    assert_eq!(packets(&lab.direction("a", "c"), "arrived"), 10);
}

#[test]
fn a_plain_cable_needs_no_emulator() {
    let lab = Lab::up(&two(""));
    assert!(least_rtt(&lab, "a1", "10.100.2.1") < 10.0);
    let direction = lab.direction("a", "b");
    assert_eq!(direction["emulated"], false);
    assert_eq!(direction["delivered"]["packets"], 10);
}

#[test]
fn super_packets_are_counted_as_what_they_stand_for() {
    let link = "bandwidth = \"500 Mbit/s\"\ndelay = \"1 ms\"\nbuffer = \"1 MB\"\n";
    let lab = Lab::up(&("gso = true\n".to_owned() + &two(link)));
    let bound = 500e6 * 1448.0 / 1538.0;
    let goodput = lab.iperf("a1", "b1", "10.100.2.1", &["-t", "2"]);
    assert!(goodput <= bound * 1.02 && goodput >= bound * 0.5, "{goodput} of {bound}");
    let direction = lab.direction("a", "b");
    assert_adds_up(&direction);
    let mean = bytes(&direction, "left") as f64 / packets(&direction, "left") as f64;
    assert!(mean > 1_000.0 && mean <= 1514.0, "{mean}");
}
