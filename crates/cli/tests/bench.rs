//! `gridmpi bench`: what it starts outside a lab ends with it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const GRIDMPI: &str = env!("CARGO_BIN_EXE_gridmpi");

#[test]
fn what_is_bound_to_a_process_ends_when_that_is_killed() {
    // The shell has something left to do, so that it stays its parent.
    let script = "\"$0\" bench bound --parent $$ -- sh -c 'echo up; exec sleep 60'; true";
    let mut parent =
        Command::new("sh").args(["-c", script, GRIDMPI]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    parent.kill().unwrap();
    parent.wait().unwrap();
    // Its output ends when it does.
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(said.read_to_string(&mut line)));
    ended.recv_timeout(Duration::from_secs(30)).expect("it outlives its parent").unwrap();
}

#[test]
fn what_is_bound_to_another_than_its_parent_is_not_started() {
    let bound = ["bench", "bound", "--parent", "0", "--", "echo", "up"];
    let output = Command::new(GRIDMPI).args(bound).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{errors}");
    assert!(errors.contains("has ended"), "{errors}");
}
