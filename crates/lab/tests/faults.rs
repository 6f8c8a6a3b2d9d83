//! Each fault does what `docs/lab.md` says, and ends.

mod common;

use common::{Lab, clusters, eventually, said, two};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LINK: &str = "delay = \"1 ms\"\n";

fn lost(lab: &Lab, from: &str, to: &str) -> u64 {
    lab.direction(from, to)["traffic"]["lost"]["packets"].as_u64().unwrap()
}

#[test]
fn a_cut_link_loses_everything_for_its_time() {
    let lab = Lab::up(&two(LINK));
    let _server = lab.server("b1");
    let (mut talk, _) = lab.dial("a1", "10.100.2.1");
    assert_eq!(talk.say(5.0), "ok");
    let done = lab.fault(&["cut", "b-a"]);
    assert!(done.trim_end().ends_with(" s  cut a-b"), "{done}");
    assert!(lab.is_cut_off("a1", "10.100.2.2") && lab.is_cut_off("b2", "10.100.1.2"));
    assert_eq!(talk.say(0.5), "TimeoutError");
    // The monitor has seen them come, and not come out; inside the cluster nothing has changed.
    assert!(lost(&lab, "a", "b") >= 2 && lost(&lab, "b", "a") >= 1);
    assert!(lab.reaches("a1", "10.1.0.2"));
    assert!(lab.fault(&["restore", "a-b"]).contains("restore a-b: 1 fault"));
    assert!(lab.reaches("a1", "10.100.2.2"));
    // The connection was not told: what it had sent gets through.
    assert_eq!(talk.line_after_resend(), "ok");
    assert!(lab.fault(&["cut", "a-b", "--for", "0.3 s"]).contains("cut a-b for 300 ms"));
    eventually("the cut does not end", || lab.faults().matches("end of cut a-b").count() == 2);
    assert!(lab.reaches("a1", "10.100.2.2"));
}

#[test]
fn a_plain_cable_can_be_cut_and_nothing_else() {
    let lab = Lab::up(&clusters(&["a", "b"], 1));
    lab.fault(&["cut", "a-b"]);
    assert!(lab.is_cut_off("a1", "10.100.2.1"));
    let status = said(&lab.place.run(["status"]));
    assert!(status.contains("warning: a fault is at work: cut a-b"), "{status}");
    assert_eq!(lab.exec("a1", &["cat", "/sys/class/net/eth1/carrier"]), "1\n");
    lab.fault(&["restore"]);
    assert!(lab.reaches("a1", "10.100.2.1"));
    let refused = lab.place.run(["fault", "loss", "a-b", "1%"]);
    assert!(said(&refused).contains("write `emulate = true`"), "{}", said(&refused));
}

#[test]
fn a_silent_host_neither_sends_nor_hears() {
    let lab = Lab::up(&two(LINK));
    let _server = lab.server("b1");
    let (mut talk, _) = lab.dial("a1", "10.100.2.1");
    assert_eq!(talk.say(5.0), "ok");
    lab.fault(&["silence", "b1"]);
    // From outside and from within its cluster, and the head; its interfaces do not notice.
    for (from, to) in
        [("a1", "10.100.2.1"), ("b2", "10.2.0.1"), ("head", "10.2.0.1"), ("b1", "10.2.0.2")]
    {
        assert!(lab.is_cut_off(from, to), "{from} reaches {to}");
    }
    assert_eq!(lab.exec("b1", &["sh", "-c", "cat /sys/class/net/eth*/carrier"]), "1\n1\n");
    assert!(lab.reaches("a1", "10.100.2.2") && lab.reaches("b2", "10.2.0.254"));
    assert_eq!(talk.say(0.5), "TimeoutError");
    lab.fault(&["restore", "b1"]);
    assert_eq!(talk.line_after_resend(), "ok");
    for (from, to) in [("a1", "10.100.2.1"), ("b2", "10.2.0.1"), ("b1", "10.2.0.2")] {
        assert!(lab.reaches(from, to), "{from} does not reach {to}");
    }
}

#[test]
fn a_reset_ends_connections_at_either_end() {
    let lab = Lab::up(&two(LINK));
    let (mut b1, mut b2) = (lab.server("b1"), lab.server("b2"));
    let (mut meant, _) = lab.dial("a1", "10.100.2.1");
    let (mut other, _) = lab.dial("a1", "10.100.2.2");
    let (mut another, _) = lab.dial("a2", "10.100.2.1");
    for talk in [&mut meant, &mut other, &mut another] {
        assert_eq!(talk.say(5.0), "ok");
    }
    let mut served = [b1.line(), b1.line()];
    served.sort();
    assert_eq!(
        (served, b2.line()),
        (["10.100.1.1".into(), "10.100.1.2".into()], "10.100.1.1".into())
    );
    assert!(lab.fault(&["reset", "a1", "b1"]).contains("reset a1 b1: 1 connection\n"));
    assert_eq!(b1.line(), "ConnectionResetError");
    assert_eq!(meant.say(5.0), "ConnectionAbortedError");
    assert_eq!((other.say(5.0).as_str(), another.say(5.0).as_str()), ("ok", "ok"));
    // A cluster is all its nodes, and the other side can be the one that breaks off.
    assert!(lab.fault(&["reset", "b", "a"]).contains("reset b a: 2 connections\n"));
    assert_eq!(
        (b1.line().as_str(), b2.line().as_str()),
        ("ConnectionAbortedError", "ConnectionAbortedError")
    );
    assert_eq!(other.say(5.0), "ConnectionResetError");
    assert!(lab.fault(&["reset", "a", "b"]).contains(": 0 connections\n"));
}

/// No RST gets through: the far end is ended by the lab or not at all.
#[test]
fn a_reset_from_a_socket_of_both_families_ends_the_far_end() {
    let lab = Lab::up(&two(LINK));
    let mut server = lab.dual_server("b1");
    let (mut talk, _) = lab.dial("a1", "10.100.2.1");
    assert_eq!((talk.say(5.0).as_str(), server.line().as_str()), ("ok", "::ffff:10.100.1.1"));
    lab.fault(&["cut", "a-b"]);
    assert!(lab.fault(&["reset", "b1", "a1"]).contains(": 1 connection\n"));
    assert_eq!(server.line(), "ConnectionAbortedError");
    assert_eq!(talk.say(5.0), "ConnectionAbortedError");
    // And the other way round.
    lab.fault(&["restore"]);
    let (mut talk, _) = lab.dial("a1", "10.100.2.1");
    assert_eq!((talk.say(5.0).as_str(), server.line().as_str()), ("ok", "::ffff:10.100.1.1"));
    lab.fault(&["cut", "a-b"]);
    assert!(lab.fault(&["reset", "a1", "b1"]).contains(": 1 connection\n"));
    assert_eq!(server.line(), "ConnectionAbortedError");
}

#[test]
fn losses_are_counted_and_end() {
    let lab = Lab::up(&("seed = 5\n".to_owned() + &two("loss = 0.0\nemulate = true\n")));
    lab.fault(&["loss", "a-b", "50%"]);
    lab.exec("a1", &["sh", "-c", "ping -n -q -c 400 -i 0.002 -W 1 10.100.2.1 || true"]);
    let there = lost(&lab, "a", "b");
    // Six standard deviations of 400.
    assert!((140..=260).contains(&there), "{there}");
    lab.fault(&["restore"]);
    let before = lost(&lab, "a", "b");
    lab.exec("a1", &["ping", "-n", "-q", "-c", "100", "-i", "0.002", "-W", "1", "10.100.2.1"]);
    assert_eq!(lost(&lab, "a", "b"), before);
}

#[test]
fn processes_of_one_node_are_killed() {
    let lab = Lab::up(&two(""));
    let start = |node: &str, seconds: &str| {
        let mut command =
            lab.exec_command(node, &["sh", "-c", "echo here; exec sleep $0", seconds]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n");
        child
    };
    let (mut meant, mut elsewhere, mut other) =
        (start("a1", "1001"), start("a2", "1001"), start("a1", "2002"));
    eventually("sleep is not seen", || {
        lab.fault(&["kill", "a1", "sleep 1001"]).contains(": 1 process\n")
    });
    assert_eq!(meant.wait().unwrap().code(), Some(137));
    assert!(lab.fault(&["kill", "a1", "sleep", "1001"]).contains(": 0 processes\n"));
    for child in [&mut elsewhere, &mut other] {
        assert!(child.try_wait().unwrap().is_none(), "killed, too");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_lab_file_may_plan_faults() {
    let plan = "[[fault]]\nat = \"0.6 s\"\nwhat = \"silence b1\"\nfor = \"0.2 s\"\n\
                [[fault]]\nat = \"0.3 s\"\nwhat = \"loss a-b 1 %\"\nfor = \"1 s\"\n\
                [[fault]]\nat = \"0.5 s\"\nwhat = \"reset a b\"\n";
    let lab = Lab::up(&(two(LINK) + plan));
    eventually("the plan is not done", || lab.faults().contains("end of loss"));
    let record = lab.faults();
    let lines: Vec<(u64, &str)> = record
        .lines()
        .map(|line| line.split_once(" ms: ").unwrap())
        .map(|(at, what)| (at.parse().unwrap(), what))
        .collect();
    let what: Vec<_> = lines.iter().map(|(_, what)| *what).collect();
    let expected = [
        "loss a-b 1 % for 1 s",
        "reset a b: 0 connections",
        "silence b1 for 200 ms",
        "end of silence b1",
        "end of loss a-b 1 %",
    ];
    assert_eq!(what, expected);
    for ((at, what), due) in lines.iter().zip([300, 500, 600, 800, 1_300]) {
        assert!((due..due + 5_000).contains(at), "{what} at {at}, due at {due}");
    }
    let out = lab.save();
    assert_eq!(std::fs::read_to_string(out.join("faults.txt")).unwrap(), record);
}

/// What `faults` printed, without times.
fn drawn(text: &str) -> Vec<String> {
    let what = |line: &str| line.split_once(" s  ").map(|(_, what)| what.to_owned());
    text.lines().filter_map(what).collect()
}

#[test]
fn random_faults_are_the_same_for_the_same_seed() {
    let lab = Lab::up(&two(LINK));
    let run = |seed: &str| {
        let wanted = ["--every", "30 ms", "--count", "25", "--lasts", "0.2 s"];
        let output = lab.place.run([&["faults", "--seed", seed], &wanted[..]].concat());
        assert!(output.status.success(), "{}", said(&output));
        assert!(
            said(&output).contains(&format!("seed {seed}\n"))
                && said(&output).contains("\n25 faults\n")
        );
        // What is left at the end depends on times.
        let mut drawn = drawn(&said(&output));
        assert!(drawn.pop().unwrap().starts_with("restore: "));
        drawn
    };
    let first = run("7");
    assert_eq!(first.len(), 25);
    for kind in ["cut a-b for ", "silence ", "reset ", "loss a-b 1 % for "] {
        assert!(first.iter().any(|line| line.starts_with(kind)), "{kind}: {first:?}");
    }
    assert!(lab.reaches("a1", "10.100.2.1") && lab.reaches("b2", "10.100.1.2"));
    assert_eq!(run("7"), first);
    assert_ne!(run("8"), first);
    for (from, to) in [("a1", "10.100.2.1"), ("a2", "10.100.2.2"), ("b1", "10.2.0.2")] {
        assert!(lab.reaches(from, to), "{from} does not reach {to}");
    }
}

#[test]
fn an_interrupted_schedule_undoes_its_faults() {
    let lab = Lab::up(&two(LINK));
    let mut command =
        lab.place.command(["faults", "--every", "10 ms", "--kinds", "cut", "--lasts", "1000 s"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("cut a-b for ")));
    assert!(lab.is_cut_off("a1", "10.100.2.1"));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("restore: ")), "{rest:?}");
    assert!(child.wait().unwrap().success());
    assert!(lab.reaches("a1", "10.100.2.1"));
}

/// Each fault takes longer than the time to the next.
#[test]
fn a_schedule_that_is_late_ends_in_time_and_when_interrupted() {
    let lab = Lab::up(&two(LINK));
    for lasts in [&["--for", "0.3 s"][..], &[]] {
        let wanted = ["faults", "--kinds", "reset", "--every", "1 us"];
        let mut command = lab.place.command([&wanted[..], lasts].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if lasts.is_empty() {
            for _ in 0..3 {
                assert!(lines.any(|line| line.unwrap().contains("reset ")));
            }
            assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        }
        let rest = std::thread::spawn(move || lines.map(Result::unwrap).collect::<Vec<_>>());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !rest.is_finished() {
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("it goes on");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let rest = rest.join().unwrap();
        assert!(rest.iter().any(|line| line.contains("restore: ")), "{lasts:?}: {rest:?}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn wrong_faults_say_what_there_is() {
    let lab = Lab::up(&two(LINK));
    for (words, why) in [
        (&["cut", "a-c"][..], "no link `a-c`: a-b"),
        (&["silence", "c1"], "no node `c1`: head, a1, a2, b1, b2"),
        (&["silence", "head"], "no part of any fault"),
        (&["reset", "a1", "b1", "--for", "1 s"], "only cut, silence and loss last"),
        (&["explode"], "`explode` is no fault: cut A-B"),
        (&["cut", "a-b", "--for", "0"], "a fault must last longer than 0"),
        (&["cut", "a-b", "--for", "soon"], "`soon` is not a duration"),
    ] {
        let output = lab.place.run([&["fault"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
    let output = lab.place.run(["faults", "--every", "0"]);
    assert!(said(&output).contains("--every must be longer than 0"), "{}", said(&output));
    let output = lab.place.run(["faults", "--kinds", "kill"]);
    assert!(said(&output).contains("--pattern"), "{}", said(&output));
    assert_eq!(lab.faults(), "");
}
