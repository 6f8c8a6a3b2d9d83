//! `gridmpi probe` over the loopback: by hand and over a job's nodes, and what can go wrong.

mod common;

use common::{Bench, Outcome};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

/// A launcher that starts one process of what stands at the end of its arguments.
const LAUNCHER: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "HYDRA build details:"; exit 0; }
while [ $# -gt 2 ]; do shift; done
exec "$@"
"#;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn probe(bench: &Bench, args: &[&str]) -> Command {
    let mut command = bench.command();
    command.arg("probe").args(args).env_remove("GRIDMPI_TOKEN");
    command
}

/// A side that listens, and its port.
fn listening(bench: &Bench) -> (Child, u16) {
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let token = bench.path("token");
    let _ = std::fs::remove_file(&token);
    let args = ["--listen", &at, "--token-file", "token", "--wait", "30"];
    let child = bench.start(&mut probe(bench, &args));
    bench.until("listening", || token.exists() && std::fs::read(&token).unwrap().len() == 33);
    // It listens right after it has written the token.
    bench.until("the port", || is_listening(port));
    (child, port)
}

/// Without connecting, which would take the place of nobody but be reported.
fn is_listening(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))
}

fn dial(bench: &Bench, port: u16, more: &[&str]) -> Outcome {
    let at = format!("127.0.0.1:{port}");
    let mut args = vec![at.as_str(), "--token-file", "token", "--seconds", "1"];
    args.extend(more);
    bench.finish_beside(probe(bench, &args))
}

#[test]
fn both_directions_are_measured_by_hand() {
    let bench = Bench::new();
    let (far, port) = listening(&bench);
    let outcome = dial(&bench, port, &[]);
    outcome.expect(0, &[]);
    for part in ["here → there", "there → here", "[[link]]", "bandwidth = ", "at least"] {
        assert!(outcome.out.contains(part), "{outcome:#?}");
    }
    bench.outcome(far).expect(0, &["measured"]);
}

#[test]
fn figures_for_programs_are_json() {
    let bench = Bench::new();
    let (far, port) = listening(&bench);
    let outcome = dial(&bench, port, &["--json", "--connections", "2"]);
    outcome.expect(0, &[]);
    assert!(outcome.out.contains("\"is_links_own\": false"), "{outcome:#?}");
    assert!(outcome.out.contains("\"connections\": 2"), "{outcome:#?}");
    bench.outcome(far).expect(0, &[]);
}

#[test]
fn figures_that_nobody_takes_are_no_panic() {
    let bench = Bench::new();
    for format in [&[][..], &["--json"]] {
        let (far, port) = listening(&bench);
        let mut command = bench.by_shell("exec \"$0\" \"$@\" >/dev/full");
        command.args(["probe", &format!("127.0.0.1:{port}"), "--token-file", "token"]);
        command.args(["--seconds", "1"]).args(format).env_remove("GRIDMPI_TOKEN");
        bench.finish_beside(command).expect(1, &["gridmpi: cannot write to the standard output"]);
        bench.outcome(far).expect(0, &["measured"]);
    }
}

#[test]
fn nobody_there_is_said() {
    let bench = Bench::new();
    bench.secret("token", &"0".repeat(32));
    let port = free_port();
    dial(&bench, port, &[]).expect(1, &["connection refused", "--listen", &port.to_string()]);
    bench.nothing_left();
}

#[test]
fn another_token_is_said_at_both_ends_and_the_right_one_still_counts() {
    let bench = Bench::new();
    let (far, port) = listening(&bench);
    let right = std::fs::read(bench.path("token")).unwrap();
    bench.secret("token", &"0".repeat(32));
    dial(&bench, port, &[]).expect(1, &["another token"]);
    std::fs::write(bench.path("token"), right).unwrap();
    dial(&bench, port, &[]).expect(0, &[]);
    bench.outcome(far).expect(0, &["turned away 127.0.0.1", "another token"]);
}

#[test]
fn noise_at_the_listening_side_does_no_harm() {
    let bench = Bench::new();
    let (far, port) = listening(&bench);
    let mut strangers: Vec<_> =
        (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for stranger in &mut strangers[10..] {
        let _ = stranger.write_all(&[b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0xff; 300]].concat());
    }
    dial(&bench, port, &[]).expect(0, &[]);
    bench.outcome(far).expect(0, &["does not speak our protocol"]);
}

#[test]
fn a_garbage_peer_and_one_that_says_nothing_are_named() {
    let bench = Bench::new();
    bench.secret("token", &"0".repeat(32));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut one, _) = listener.accept().unwrap();
        let _ = one.write_all(&b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(20));
        let (mut two, _) = listener.accept().unwrap();
        let _ = two.read_to_end(&mut Vec::new());
    });
    dial(&bench, port, &[]).expect(1, &["does not speak our protocol"]);
    dial(&bench, port, &[]).expect(1, &["cannot reach", "says nothing"]);
    bench.nothing_left();
}

#[test]
fn a_listening_side_that_dies_half_way_is_named() {
    let bench = Bench::new();
    let (mut far, port) = listening(&bench);
    let at = format!("127.0.0.1:{port}");
    let near = bench.start(&mut probe(&bench, &[&at, "--token-file", "token"]));
    bench.until("connections", || established(port) > 10);
    far.kill().unwrap();
    far.wait().unwrap();
    bench.outcome(near).expect(1, &["of `there` went away while measuring"]);
}

#[test]
fn a_conducting_side_that_dies_half_way_is_named() {
    let bench = Bench::new();
    let (far, port) = listening(&bench);
    let at = format!("127.0.0.1:{port}");
    let mut near = bench.start(&mut probe(&bench, &[&at, "--token-file", "token"]));
    bench.until("connections", || established(port) > 10);
    near.kill().unwrap();
    near.wait().unwrap();
    bench.outcome(far).expect(1, &["the end that conducts went away"]);
}

fn established(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    table
        .lines()
        .filter(|line| line.contains(&format!(": {local}")) && line.contains(" 01 "))
        .count()
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_starts() {
    let bench = Bench::new();
    let none = bench.finish_beside(probe(&bench, &["127.0.0.1:9"]));
    none.expect(2, &["no join token", "GRIDMPI_TOKEN"]);
    bench.secret("token", &"0".repeat(32));
    let unknown = probe(&bench, &["nosuch.invalid:9", "--token-file", "token"]);
    bench.finish_beside(unknown).expect(2, &["nosuch.invalid"]);
    bench.finish_beside(probe(&bench, &["nosuch.toml"])).expect(2, &["nosuch.toml"]);
    let (far, port) = listening(&bench);
    dial(&bench, port, &["--congestion", "nosuch"]).expect(1, &["nosuch"]);
    bench.outcome(far);
}

fn job(bench: &Bench, b: &str, link: &str) {
    let launcher = bench.script("one", LAUNCHER).display().to_string();
    let text = format!(
        "[[cluster]]\nname = \"a\"\nlauncher = \"{launcher}\"\ninterface = \"127.0.0.1\"\n\
         [[cluster]]\nname = \"b\"\ninterface = \"127.0.0.1\"\n{}\n{link}",
        b.replace("LAUNCHER", &launcher)
    );
    std::fs::write(bench.path("job.toml"), text).unwrap();
}

#[test]
fn the_nodes_of_a_job_are_measured() {
    let bench = Bench::new();
    job(&bench, "launcher = \"LAUNCHER\"", "");
    let outcome = bench.finish(probe(&bench, &["job.toml", "--seconds", "1"]));
    outcome.expect(0, &[]);
    assert!(outcome.out.contains("between = [\"a\", \"b\"]"), "{outcome:#?}");
}

/// What is measured is told, and the ports are free for the job, which here has nobody who would come.
#[test]
fn a_jobs_link_is_measured_before_it_starts() {
    let bench = Bench::new();
    let at = free_port();
    let link = format!(
        "[job]\nlisten = \"127.0.0.1:{at}\"\n[[link]]\nbetween = [\"b\", \"a\"]\nbandwidth = \"measure\"\n"
    );
    job(&bench, "launcher = \"LAUNCHER\"", &link);
    let mut command = bench.command();
    command.args(["run", "job.toml", "--", "sh", "-c", "exit 3"]);
    let outcome = bench.finish(command);
    for part in ["measuring b ↔ a", "measured: b ↔ a: at least", "one way"] {
        assert!(outcome.err.contains(part), "{outcome:#?}");
    }
    assert!(!outcome.err.contains("cannot listen"), "{outcome:#?}");
}

#[test]
fn nodes_behind_a_head_node_are_started_there() {
    let bench = Bench::new();
    let ssh = "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec sh -c \"$1\"\n";
    bench.script("ssh", ssh);
    job(&bench, "launcher = \"LAUNCHER\"\nhead = \"me@head\"", "");
    let mut command = probe(&bench, &["job.toml", "--seconds", "1"]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bench.directory.display()));
    let outcome = bench.finish(command);
    outcome.expect(0, &[]);
    assert!(outcome.out.contains("b → a"), "{outcome:#?}");
}

#[test]
fn clusters_that_cannot_be_measured_say_why() {
    let bench = Bench::new();
    let fails = bench.script(
        "fails",
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'HYDRA build details:'\nexit 7\n",
    );
    job(&bench, &format!("launcher = \"{}\"", fails.display()), "");
    let outcome = bench.finish(probe(&bench, &["job.toml"]));
    outcome.expect(1, &["cluster `b`", "exit code 7"]);
    job(&bench, "launcher = \"mpiexec.nowhere\"", "");
    bench.finish(probe(&bench, &["job.toml"])).expect(1, &["cluster `b`", "mpiexec.nowhere"]);
    job(&bench, "launcher = \"join\"", "");
    bench.finish(probe(&bench, &["job.toml"])).expect(2, &["`b`", "gridmpi probe --listen"]);
}

#[test]
fn a_job_does_not_start_if_its_links_cannot_be_measured() {
    let bench = Bench::new();
    let link = "[job]\nwait = 1\n[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = \"measure\"\n";
    job(&bench, "launcher = \"join\"", link);
    let mut command = bench.command();
    command.args(["run", "job.toml", "--", "sh"]);
    bench.finish(command).expect(2, &["join --measure", "cluster `b`: 0 nodes have come"]);
}

#[test]
fn a_cluster_whose_nodes_never_come_is_waited_for_no_longer_than_said() {
    let bench = Bench::new();
    let sleeps = bench.script(
        "sleeps",
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'HYDRA build details:'\nexec sleep 60\n",
    );
    let wait = "[job]\nwait = 1\n";
    job(&bench, &format!("launcher = \"{}\"", sleeps.display()), wait);
    let began = std::time::Instant::now();
    bench.finish(probe(&bench, &["job.toml"])).expect(1, &["cluster `b`: 0 nodes have come"]);
    assert!(began.elapsed() < Duration::from_secs(30));
}
