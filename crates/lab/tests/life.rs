//! Labs come up, run programs, and leave nothing behind, whatever ends them.

mod common;

use common::{Lab, Place, clusters, devices, eventually, is_empty, network_namespaces, said, two};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Kills one process that this test started.
fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn holder(place: &Place) -> u32 {
    let lab = fs::read_dir(place.labs()).unwrap().flatten().find(|entry| entry.path().is_dir());
    let text = fs::read_to_string(lab.unwrap().path().join("holder.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["pid"].as_u64().unwrap().try_into().unwrap()
}

/// The head's network namespace.
fn namespace(place: &Place) -> PathBuf {
    fs::read_link(format!("/proc/{}/ns/net", holder(place))).unwrap()
}

fn assert_nothing_left(place: &Place, namespace: &PathBuf) {
    eventually(&format!("processes are left: {:?}", place.processes()), || {
        place.processes().is_empty()
    });
    assert!(!network_namespaces().contains(namespace), "a namespace is left");
    assert!(is_empty(&place.labs()), "files are left in {}", place.labs().display());
}

#[test]
fn up_and_down_leave_nothing() {
    let before = devices();
    let lab = Lab::up(&two("delay = \"1 ms\"\n"));
    let namespace = namespace(&lab.place);
    assert!(network_namespaces().contains(&namespace));
    assert_eq!(devices(), before, "the machine's own devices have changed");
    let again = lab.place.run([OsStr::new("up"), lab.place.path.join("lab.toml").as_os_str()]);
    assert!(!again.status.success() && said(&again).contains("is up already"), "{}", said(&again));
    let list = lab.place.run(["list"]);
    assert!(said(&list).contains("lab  up  a: 2, b: 2"), "{}", said(&list));
    // A process that nobody waits for goes down with the lab.
    lab.exec("a1", &["sh", "-c", "sleep 1000 >/dev/null 2>&1 &"]);
    assert!(lab.place.processes().iter().any(|line| line.contains("sleep 1000")));
    assert!(lab.place.run(["down"]).status.success());
    assert_nothing_left(&lab.place, &namespace);
    assert_eq!(devices(), before);
    let gone = lab.place.run(["exec", "a1", "--", "true"]);
    assert!(!gone.status.success() && said(&gone).contains("no lab is up"), "{}", said(&gone));
}

#[test]
fn a_killed_holder_takes_everything_along() {
    let lab = Lab::up(&two("delay = \"1 ms\"\n"));
    let namespace = namespace(&lab.place);
    let mut sleeper = lab.exec_command("b2", &["sleep", "1000"]).spawn().unwrap();
    eventually("sleep does not start", || {
        lab.place.processes().iter().any(|line| line.contains(": sleep 1000"))
    });
    kill("-9", holder(&lab.place));
    // 128 and SIGKILL: its command was killed by the kernel.
    assert_eq!(sleeper.wait().unwrap().code(), Some(137));
    eventually("a namespace is left", || !network_namespaces().contains(&namespace));
    eventually("the lab lives", || said(&lab.place.run(["list"])).contains("lab  dead"));
    assert!(lab.place.run(["down"]).status.success());
    assert_nothing_left(&lab.place, &namespace);
}

#[test]
fn a_lab_without_its_directory_ends() {
    let lab = Lab::up(&two(""));
    let namespace = namespace(&lab.place);
    fs::remove_dir_all(lab.place.labs()).unwrap();
    eventually("the lab lives", || !network_namespaces().contains(&namespace));
    assert_nothing_left(&lab.place, &namespace);
}

#[test]
fn labs_come_up_side_by_side() {
    let place = Place::new();
    let file = place.file(&two(""));
    let up = |number: u32| {
        let mut command = place.command([OsStr::new("up"), file.as_os_str()]);
        command.args(["--name", &format!("x{number}")]).stdout(Stdio::null()).spawn().unwrap()
    };
    for mut child in (0..6).map(up).collect::<Vec<_>>() {
        assert!(child.wait().unwrap().success());
    }
    let exec = place.run(["exec", "--name", "x3", "b1", "--", "sh", "-c", "echo $GRIDMPI_LAB"]);
    assert_eq!(exec.stdout, b"x3\n", "{}", said(&exec));
    // Their processes have the same numbers, and their hosts the same names.
    let temporary = |lab: &str| {
        let script = "mkdir $TMPDIR/head.1 && lab-ssh a1 'echo $TMPDIR'";
        let made = place.run(["exec", "--name", lab, "head", "--", "sh", "-c", script]);
        assert!(made.status.success(), "{}", said(&made));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (first, second) = (temporary("x1"), temporary("x2"));
    assert!(first != second && Path::new(&first).join("head.1").is_dir(), "{first} {second}");
    let unclear = place.run(["exec", "b1", "--", "true"]);
    assert!(said(&unclear).contains("x0, x1, x2, x3, x4, x5"), "{}", said(&unclear));
    assert!(place.run(["down", "--all"]).status.success());
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

#[test]
fn a_dead_labs_name_can_be_used_again() {
    let lab = Lab::up(&two(""));
    kill("-9", holder(&lab.place));
    eventually("the lab lives", || said(&lab.place.run(["list"])).contains("dead"));
    let again = lab.place.run([OsStr::new("up"), lab.place.path.join("lab.toml").as_os_str()]);
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(lab.exec("a1", &["hostname"]), "a1\n");
}

#[test]
fn directories_that_are_no_labs_are_left_alone() {
    let place = Place::new();
    let file = place.file(&two(""));
    for name in ["lab", "empty", "crashed", "older"] {
        fs::create_dir_all(place.labs().join(name)).unwrap();
    }
    let mine = place.labs().join("lab/results.txt");
    fs::write(&mine, "a year's work").unwrap();
    std::os::unix::fs::symlink(place.labs().join("lab"), place.labs().join("link")).unwrap();
    // What labs left that were killed: with a mark as today's, and with a holder as before there was one.
    fs::write(place.labs().join("crashed/gridmpi-lab"), "").unwrap();
    fs::create_dir(place.labs().join("crashed/tmp")).unwrap();
    fs::write(place.labs().join("older/holder.json"), "{\"pid\": 1, \"started\": 0}").unwrap();
    let list = place.run(["list"]);
    let names: Vec<_> = str::from_utf8(&list.stdout).unwrap().lines().map(|l| &l[..5]).collect();
    assert_eq!(names, ["crash", "older"], "{}", said(&list));
    for action in ["up", "run"] {
        let mut command = place.command([OsStr::new(action), file.as_os_str()]);
        command.args(["--name", "lab"]);
        if action == "run" {
            command.args(["--", "true"]);
        }
        let up = command.output().unwrap();
        let why = format!("{} is not a lab's", place.labs().join("lab").display());
        assert!(up.status.code() == Some(2) && said(&up).contains(&why), "{}", said(&up));
        assert!(said(&up).contains("--name, or by GRIDMPI_LAB_DIR"), "{}", said(&up));
    }
    let down = place.run(["down", "--name", "lab"]);
    assert!(said(&down).contains("no lab `lab` is up"), "{}", said(&down));
    assert!(place.run(["down", "--all"]).status.success());
    assert_eq!(fs::read_to_string(&mine).unwrap(), "a year's work");
    let mut left: Vec<_> =
        fs::read_dir(place.labs()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "lab", "link"]);
    // Nobody misses what was empty.
    let up = place.command([OsStr::new("up"), file.as_os_str()]).args(["--name", "empty"]).output();
    assert!(up.as_ref().unwrap().status.success(), "{}", said(&up.unwrap()));
    assert!(place.run(["down"]).status.success() && !place.labs().join("empty").exists());
}

/// Starts `lab run` with a command that says `here` and then stays.
fn running(place: &Place) -> Child {
    let file = place.file(&two("delay = \"1 ms\"\n"));
    let script = "trap 'echo asked; exit 9' TERM; echo here; while :; do sleep 1; done";
    let mut command = place.command([OsStr::new("run"), file.as_os_str()]);
    command.args(["--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "here\n");
    child
}

#[test]
fn a_killed_run_takes_everything_along() {
    let place = Place::new();
    let mut child = running(&place);
    let namespace = namespace(&place);
    kill("-9", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    eventually("files are left", || is_empty(&place.labs()));
    assert_nothing_left(&place, &namespace);
}

/// Starts what brings a lab up that takes its time, as the leader of a group of processes; waits until the holder has begun.
fn coming_up(place: &Place, action: &str) -> Child {
    let file = place.file(&clusters(&["a", "b"], 40));
    let mut command = place.command([OsStr::new(action), file.as_os_str()]);
    command.args(["--name", "slow"]).process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    if action == "run" {
        command.args(["--", "true"]);
    }
    let mut child = command.spawn().unwrap();
    eventually("no holder begins", || place.labs().join("slow/holder.json").exists());
    assert!(child.try_wait().unwrap().is_none() && !place.labs().join("slow/state.json").exists());
    child
}

#[test]
fn whoever_ends_while_a_lab_comes_up_takes_it_along() {
    for action in ["up", "run"] {
        for (signal, to_group) in [(15, false), (15, true), (9, false)] {
            let place = Place::new();
            let mut child = coming_up(&place, action);
            let namespace = namespace(&place);
            let target = format!("{}{}", if to_group { "-" } else { "" }, child.id());
            let sent = Command::new("kill").args([&format!("-{signal}"), "--", &target]).status();
            assert!(sent.unwrap().success());
            assert_eq!(child.wait().unwrap().signal(), Some(signal), "{action} {target}");
            if signal == 9 {
                eventually("files are left", || is_empty(&place.labs()));
            }
            assert_nothing_left(&place, &namespace);
        }
    }
}

#[test]
fn a_lab_that_comes_up_is_not_called_dead() {
    let place = Place::new();
    let mut child = coming_up(&place, "up");
    let list = place.run(["list"]);
    assert_eq!(list.stdout, b"slow  coming up\n", "{}", said(&list));
    let early = place.run(["exec", "--name", "slow", "a1", "--", "true"]);
    assert!(said(&early).contains("`slow` is still being built"), "{}", said(&early));
    let mut second = place.command([OsStr::new("up"), place.path.join("lab.toml").as_os_str()]);
    let second = second.args(["--name", "slow"]).output().unwrap();
    assert!(said(&second).contains("another lab `slow` is being built"), "{}", said(&second));
    assert!(child.wait().unwrap().success());
    assert!(said(&place.run(["list"])).contains("slow  up  a: 40, b: 40"));
}

#[test]
fn whoever_waits_to_build_a_lab_can_be_interrupted() {
    let place = Place::new();
    fs::create_dir_all(place.labs()).unwrap();
    let turn = fs::File::create(place.labs().join("host.lock")).unwrap();
    turn.lock().unwrap();
    let file = place.file(&two(""));
    let mut child = place.command([OsStr::new("up"), file.as_os_str()]).spawn().unwrap();
    // Its signals, SIGTERM among them, are put off while it waits.
    let status = format!("/proc/{}/status", child.id());
    eventually("it does not wait", || {
        let status = fs::read_to_string(&status).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        u64::from_str_radix(blocked, 16).unwrap() & 1 << 14 != 0
    });
    kill("-TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

#[test]
fn a_run_passes_on_the_request_to_end() {
    let place = Place::new();
    let mut child = running(&place);
    let namespace = namespace(&place);
    kill("-TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(9));
    let mut rest = String::new();
    child.stdout.unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "asked\n");
    assert_nothing_left(&place, &namespace);
}

#[test]
fn a_run_returns_the_commands_exit_code_and_saves() {
    let place = Place::new();
    let file = place.file(&two("delay = \"1 ms\"\n"));
    let out = place.path.join("out");
    let mut command = place.command([OsStr::new("run"), file.as_os_str(), OsStr::new("--out")]);
    command.arg(&out).args(["--", "sh", "-c"]);
    command.arg("hostname; lab-ssh a1 ping -c 3 -i 0.01 b1-wan >/dev/null && exit 5");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert_eq!(output.stdout, b"head\n");
    assert!(said(&output).contains("a -> b"), "{}", said(&output));
    let csv = fs::read_to_string(out.join("traffic.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains(",a,b,")).count(), 3, "{csv}");
    assert!(fs::read_to_string(out.join("traffic.svg")).unwrap().ends_with("</svg>\n"));
    assert!(fs::read_to_string(out.join("summary.txt")).unwrap().contains("a -> b"));
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

#[test]
fn nodes_are_machines_of_their_own() {
    let lab = Lab::up(&two(""));
    assert_eq!(lab.exec("b2", &["hostname"]), "b2\n");
    assert_eq!(lab.exec("10.2.0.2", &["hostname"]), "b2\n");
    assert_eq!(lab.exec("10.100.2.2", &["hostname"]), "b2\n");
    assert_eq!(lab.exec("head", &["hostname"]), "head\n");
    assert_eq!(lab.exec("b2", &["ls", "/sys/class/net"]), "eth0\neth1\nlo\n");
    assert_eq!(lab.exec("b2", &["sh", "-c", "echo $GRIDMPI_LAB"]), "lab\n");
    let here = std::env::current_dir().unwrap();
    assert_eq!(lab.exec("b2", &["pwd"]).trim(), here.to_str().unwrap());
    // Where `br_netfilter` is not loaded there is no such variable, and nothing to switch off.
    let filtered = "cat /proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null || echo 0";
    assert_eq!(lab.exec("head", &["sh", "-c", filtered]), "0\n");
    // Nodes have their own shared memory.
    lab.exec("a1", &["touch", "/dev/shm/gridmpi-lab-test"]);
    assert_eq!(lab.exec("a2", &["ls", "/dev/shm"]), "");
    let unknown = lab.place.run(["exec", "c1", "--", "true"]);
    assert!(said(&unknown).contains("no node `c1`: head, a1, a2, b1, b2"), "{}", said(&unknown));
    let missing = lab.place.run(["exec", "a1", "--", "no-such-program"]);
    assert!(said(&missing).contains("cannot run `no-such-program`"), "{}", said(&missing));
    assert_eq!(lab.place.run(["exec", "a1", "--", "sh", "-c", "exit 77"]).status.code(), Some(77));
    let killed = lab.place.run(["exec", "a1", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137));
}

#[test]
fn launchers_reach_nodes_as_by_ssh() {
    let lab = Lab::up(&two(""));
    let on_head = |script: &str| lab.exec("head", &["sh", "-c", script]);
    assert_eq!(on_head("lab-ssh a1 hostname"), "a1\n");
    assert_eq!(on_head("ssh -x -q -o BatchMode=yes me@10.2.0.1 hostname"), "b1\n");
    assert_eq!(on_head("lab-ssh -n a2 'X=1; echo $X; cat' < /dev/zero"), "1\n");
    assert_eq!(on_head("echo hello | lab-ssh a2 cat"), "hello\n");
    assert_eq!(on_head("lab-ssh a1 'exit 3' || echo $?"), "3\n");
    // From node to node, as launchers that start as a tree do.
    assert_eq!(on_head("lab-ssh a1 'lab-ssh a2 hostname'"), "a2\n");
}

#[test]
fn errors_name_file_and_line() {
    let place = Place::new();
    let file = place.file("[[cluster]]\nname = \"a\"\nnods = 2\n");
    let output = place.run([OsStr::new("up"), file.as_os_str()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("lab.toml:3: unknown field `nods`"), "{}", said(&output));
    let output = place.run(["up", "/no/such/file"]);
    assert!(said(&output).contains("cannot read the lab file /no/such/file"), "{}", said(&output));
    let output = place.run(["down", "--name", "nothing"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(said(&output).contains("gridmpi lab: no lab `nothing` is up"), "{}", said(&output));
    assert!(place.run(["down", "--all"]).status.success(), "all of none is no error");
}

/// Runs the program with its standard output where `redirection` leads.
fn printing(place: &Place, redirection: &str, arguments: &[&str]) -> Output {
    let script = format!("exec \"$0\" \"$@\" {redirection}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, common::PROGRAM]).args(arguments);
    command.env("GRIDMPI_LAB_DIR", place.labs()).env_remove("GRIDMPI_LAB").output().unwrap()
}

#[test]
fn results_that_nobody_takes_are_no_panic() {
    let lab = Lab::up(&two("delay = \"1 ms\"\n"));
    let (place, out) = (&lab.place, lab.place.path.join("out"));
    let (file, out) = (place.path.join("lab.toml"), out.to_str().unwrap());
    let job = ["job", file.to_str().unwrap()];
    let faults = ["faults", "--count", "0"];
    let full = "gridmpi lab: cannot write to the standard output: No space left";
    for arguments in [
        &["list"][..],
        &["status"],
        &["status", "--json"],
        &job,
        &["save", "--out", out],
        &["fault", "cut", "a-b"],
        &faults,
        &["up", job[1], "--name", "other"],
        &["down", "--name", "other", "--out", out],
    ] {
        let output = printing(place, ">/dev/full", arguments);
        let text = said(&output);
        assert!(output.status.code() == Some(1) && text.contains(full), "{arguments:?}: {text}");
        assert!(printing(place, "2>/dev/full", arguments).status.code().unwrap() < 3);
    }
    for arguments in [&["list"][..], &["status"], &["status", "--json"], &job] {
        // A reader that has seen enough is no failure.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("panic"), "{arguments:?}: {}", said(&output));
    }
    assert_eq!(said(&place.run(["list"])).matches("  up  ").count(), 1, "down goes on");
}

#[test]
fn a_congestion_control_that_does_not_exist_is_refused() {
    let place = Place::new();
    let file = place.file(&(two("") + "[tcp]\ncongestion = \"nosuch\"\n"));
    let output = place.run([OsStr::new("up"), file.as_os_str()]);
    assert!(!output.status.success() && said(&output).contains("`nosuch`"), "{}", said(&output));
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

/// Users without rights get the same lab from a user namespace.
#[test]
fn a_lab_needs_no_root() {
    if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() != 0 {
        // Then every other test here is this one.
        return;
    }
    let place = Place::new();
    let file = place.file(&two("delay = \"2 ms\"\n"));
    let program = place.path.join("gridmpi-lab");
    fs::copy(common::PROGRAM, &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&place.path, mode).unwrap();
    let script = r#"
        set -e
        "$0" up "$1" >&2
        "$0" exec a1 -- ping -c 2 -i 0.1 b1-wan >/dev/null
        "$0" exec head -- lab-ssh b2 hostname
        "$0" status | grep -c '^a -> b'
        "$0" down
    "#;
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script])
        .args([&program, &file])
        .env("GRIDMPI_LAB_DIR", place.labs())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"b2\n1\n");
    assert!(place.processes().is_empty() && is_empty(&place.labs()));
}

/// Has the machine's setting played by a file, as root's lab has left it.
#[test]
fn root_puts_settings_back_where_no_lab_is_left_and_despite_others_labs() {
    if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() != 0 {
        return;
    }
    let place = Place::new();
    let program = place.path.join("gridmpi-lab");
    fs::copy(common::PROGRAM, &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&place.path, mode).unwrap();
    let file = place.file(&two(""));
    let script = r#"
        set -e
        setting=/proc/sys/net/core/netdev_max_backlog
        grouping=/proc/sys/kernel/sched_autogroup_enabled
        mount -t tmpfs none /run
        as_raised() {
            printf 1000 > /run/gridmpi-lab.backlog; echo 20000 > "$2/backlog"
            printf 1 > /run/gridmpi-lab.autogroup; echo 0 > "$2/autogroup"
        }
        as_raised "$@"
        setpriv --reuid 65534 --regid 65534 --clear-groups "$0" up "$1" >/dev/null
        mount --bind "$2/backlog" $setting
        # Not every kernel has it.
        if [ -e $grouping ]; then mount --bind "$2/autogroup" $grouping; else printf 1 > "$2/none"; grouping=$2/none; fi
        export GRIDMPI_LAB_DIR="$2/nowhere"
        "$0" down --all; cat $setting $grouping; echo
        as_raised "$@"
        "$0" down 2>/dev/null || cat $setting $grouping; echo
        as_raised "$@"
        "$0" down --name x 2>/dev/null || cat $setting $grouping; echo
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([&program, &file, &place.path])
        .env("GRIDMPI_LAB_DIR", place.labs())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"10001\n10001\n10001\n", "{}", said(&output));
    assert!(!place.processes().is_empty(), "the other lab is up");
}
