//! `gridmpi doctor` over the loopback: alone, by hand and over a job's nodes, and what can go wrong.

mod common;

use common::{Bench, Outcome};
use std::net::TcpListener;
use std::process::Command;

/// A launcher that starts one process of what stands at the end of its arguments.
const LAUNCHER: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "HYDRA build details:"; exit 0; }
while [ $# -gt 2 ]; do shift; done
exec "$@"
"#;

/// One that starts nothing and ends badly.
const BROKEN: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "HYDRA build details:"; exit 0; }
exit 3
"#;

fn doctor(bench: &Bench, args: &[&str]) -> Command {
    let mut command = bench.command();
    command.arg("doctor").args(args).env_remove("GRIDMPI_TOKEN").env_remove("GRIDMPI_INTERFACE");
    command
}

fn found(outcome: &Outcome) -> serde_json::Value {
    let start = outcome.out.find('{').unwrap_or_else(|| panic!("{outcome:#?}"));
    serde_json::from_str(&outcome.out[start..]).unwrap_or_else(|_| panic!("{outcome:#?}"))
}

fn job(bench: &Bench, second: &str) {
    bench.script("one", LAUNCHER);
    bench.script("broken", BROKEN);
    let cluster = |name: &str, launcher: &str| {
        format!("[[cluster]]\nname = \"{name}\"\nlauncher = \"./{launcher}\"\nranks = 1\n")
    };
    let text = format!("{}{}[job]\nwait = 20\n", cluster("a", "one"), cluster("b", second));
    std::fs::write(bench.path("job.toml"), text).unwrap();
}

#[test]
fn this_machine_is_looked_at_alone() {
    let bench = Bench::new();
    let outcome = bench.finish_beside(doctor(&bench, &["--json"]));
    let found = found(&outcome);
    assert_eq!(found["facts"]["machines"].as_array().unwrap().len(), 1, "{found:#}");
    assert!(found["facts"]["machines"][0]["told"].as_array().is_some_and(|told| !told.is_empty()));
    let outcome = bench.finish_beside(doctor(&bench, &["--verbose"]));
    assert!(outcome.out.contains("[buffers]") && outcome.out.contains(" errors, "), "{outcome:#?}");
}

#[test]
fn findings_that_nobody_takes_are_no_panic() {
    let bench = Bench::new();
    let code = bench.finish_beside(doctor(&bench, &[])).code;
    let others = [&["doctor", "--json"][..], &["coverage"], &["--version"], &["run", "--help"]];
    for args in [&["doctor"][..]].into_iter().chain(others) {
        let code = if args[0] == "doctor" { code } else { Some(0) };
        let mut left = bench.start(bench.command().args(args));
        drop(left.stdout.take());
        let log = bench.log(&mut left);
        assert_eq!(common::wait(&mut left).code(), code, "{args:?}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "", "{args:?}");
        let mut full = bench.by_shell("exec \"$0\" \"$@\" >/dev/full");
        full.args(args);
        let full = bench.finish_beside(full);
        assert_eq!(full.code, code.filter(|code| *code > 0).or(Some(1)), "{full:#?}");
        assert!(
            full.err.starts_with("gridmpi: cannot write to the standard output: No space"),
            "{full:#?}"
        );
    }
    bench.nothing_left();
}

#[test]
fn both_sides_look_at_each_other_by_hand() {
    let bench = Bench::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (at, token) = (format!("127.0.0.1:{port}"), bench.path("token"));
    let args = ["--listen", &at, "--token-file", "token", "--wait", "30"];
    let far = bench.start(&mut doctor(&bench, &args));
    // It listens right after it has written the token.
    let is_there = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))
    };
    bench.until("listening", || token.exists() && is_there());
    let outcome = bench.finish_beside(doctor(&bench, &[&at, "--token-file", "token", "--json"]));
    let found = found(&outcome);
    let paths = found["facts"]["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "{found:#}");
    assert!(paths.iter().all(|path| path["visit"]["depth"]["trip_us"].is_u64()), "{found:#}");
    bench.outcome(far).expect(0, &["looked at"]);
}

#[test]
fn nobody_there_is_not_taken_for_health() {
    let bench = Bench::new();
    // No system gives this port away.
    let closed = "127.0.0.1:1";
    let mut command = doctor(&bench, &[closed]);
    command.env("GRIDMPI_TOKEN", "5".repeat(32));
    bench.finish_beside(command).expect(2, &["connection refused", "--listen"]);
    bench.finish_beside(doctor(&bench, &["nosuch.toml"])).expect(2, &["nosuch.toml"]);
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let bench = Bench::new();
    job(&bench, "one");
    for (args, said) in [
        (&["--listen", "--json"][..], "cannot be used with"),
        (&["--listen", "--verbose"], "cannot be used with"),
        (&["--listen", "--long"], "cannot be used with"),
        (&["--relay", "r.toml", "--long"], "cannot be used with"),
        (&["--long"], "JOB.toml | HOST:PORT"),
        (&["--bandwidth"], "JOB.toml | HOST:PORT"),
        (&["--all-nodes"], "JOB.toml | HOST:PORT"),
        (&["job.toml", "--token-file", "token"], "--token-file goes with --listen or HOST:PORT"),
        (&["--token-file", "token"], "--token-file goes with --listen or HOST:PORT"),
    ] {
        bench.finish_beside(doctor(&bench, args)).expect(2, &[said]);
    }
    let mut probe = bench.command();
    probe.args(["probe", "job.toml", "--token-file", "token"]);
    bench.finish_beside(probe).expect(2, &["--token-file goes with --listen or HOST:PORT"]);
}

#[test]
fn nodes_of_a_job_look_at_each_other() {
    let bench = Bench::new();
    job(&bench, "one");
    let outcome = bench.finish_beside(doctor(&bench, &["job.toml", "--json"]));
    let found = found(&outcome);
    assert_eq!(found["facts"]["paths"].as_array().unwrap().len(), 2, "{found:#}");
    assert_eq!(found["facts"]["processes"], 2);
    outcome.expect(0, &[]);
}

#[test]
fn nodes_are_told_which_congestion_control_ranks_would_use() {
    let bench = Bench::new();
    job(&bench, "one");
    // Starts on other hosts what it is told of only.
    let told = "case \"$*\" in *GRIDMPI_CONGESTION*) ;; *) unset GRIDMPI_CONGESTION;; esac";
    let launcher = LAUNCHER.replace("HYDRA build details:", "mpirun (Open MPI) 5.0.11");
    bench.script("one", &launcher.replace("while", &format!("{told}\nwhile")));
    let mut command = doctor(&bench, &["job.toml", "--json"]);
    command.env("GRIDMPI_CONGESTION", "nosuch");
    let outcome = bench.finish_beside(command);
    let found = found(&outcome);
    let machines = found["facts"]["machines"].as_array().unwrap();
    assert_eq!(machines.len(), 2, "{found:#}");
    assert!(machines.iter().all(|machine| machine["congestion"] == "nosuch"), "{found:#}");
    outcome.expect(1, &[]);
}

#[test]
fn a_cluster_that_does_not_come_is_named_and_the_other_looked_at() {
    let bench = Bench::new();
    job(&bench, "broken");
    let outcome = bench.finish_beside(doctor(&bench, &["job.toml", "--json"]));
    let found = found(&outcome);
    assert_eq!(found["findings"][0]["code"], "absent", "{found:#}");
    assert!(found["findings"][0]["what"].as_str().unwrap().contains("cluster `b`"), "{found:#}");
    assert_eq!(found["facts"]["machines"].as_array().unwrap().len(), 1, "{found:#}");
    outcome.expect(1, &[]);
}

#[test]
fn each_cluster_that_does_not_come_has_its_own_reason() {
    let bench = Bench::new();
    job(&bench, "broken");
    let ends = |code: u32| BROKEN.replace("exit 3", &format!("exit {code}"));
    bench.script("worse", &ends(4));
    // Nobody comes, and nobody says why.
    bench.script("idle", &BROKEN.replace("exit 3", "exec sleep 30"));
    let more = ["worse", "idle"].map(|name| {
        format!("[[cluster]]\nname = \"{name}\"\nlauncher = \"./{name}\"\nranks = 1\n")
    });
    let text = std::fs::read_to_string(bench.path("job.toml")).unwrap();
    std::fs::write(bench.path("job.toml"), more.concat() + &text).unwrap();
    let outcome = bench.finish_beside(doctor(&bench, &["job.toml", "--json"]));
    let found = found(&outcome);
    let findings = found["findings"].as_array().unwrap();
    let absent = findings.iter().filter(|one| one["code"] == "absent");
    let said: Vec<_> = absent
        .map(|one| (one["places"][0]["cluster"].as_str().unwrap(), one["what"].as_str().unwrap()))
        .collect();
    assert_eq!(said.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["worse", "idle", "b"]);
    assert!(said[0].1.contains("`worse`") && said[0].1.contains("exit code 4"), "{said:#?}");
    assert!(said[1].1.starts_with("cluster `idle`: 0 of 1 nodes have come"), "{said:#?}");
    assert!(said[1].1.contains("not waited for longer"), "{said:#?}");
    assert!(said[2].1.contains("`b`") && said[2].1.contains("exit code 3"), "{said:#?}");
    outcome.expect(1, &[]);
}
