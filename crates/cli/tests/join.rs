//! Clusters that are started elsewhere: by hand, and on head nodes.

mod common;

use common::{Bench, send, state};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Not a test: the ranks of the others.
#[test]
#[ignore = "played by the fake launcher"]
fn rank() {
    common::play_rank();
}

/// `gridmpi run` with cluster a here and b to join; its address and token.
fn listening(bench: &Bench, args: &[&str]) -> (Child, String, String) {
    let mut command = bench.command();
    command.args(["run", "--listen", "127.0.0.1:0", "--token-file", "token"]).args(args);
    command.env("FAKE_a", "ok").args(["--", "sh"]);
    let mut child = bench.start(&mut command);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let invitation = lines.by_ref().find_map(|line| {
        line.unwrap().split_whitespace().find(|w| w.starts_with("127.0.0.1:")).map(str::to_owned)
    });
    let token = fs::read_to_string(bench.path("token")).unwrap().trim().to_owned();
    // The rest must be read too, or gridmpi could block; tests look at it through a file.
    let log = bench.path("run.err");
    std::thread::spawn(move || {
        let mut log = fs::File::create(log).unwrap();
        for line in lines.map_while(Result::ok) {
            writeln!(log, "{line}").unwrap();
        }
    });
    (child, invitation.expect("no invitation"), token)
}

fn join(bench: &Bench, address: &str, token: &str, behaviour: &str) -> Command {
    let mut command = bench.command();
    command.args(["join", "--cluster", "b", address, "--", &bench.launcher(), "-n", "3", "sh"]);
    command.env("GRIDMPI_TOKEN", token).env("FAKE_b", behaviour);
    command
}

#[test]
fn a_cluster_joins_by_token_and_the_job_ends_well() {
    let bench = Bench::new();
    let (mut run, address, token) =
        listening(&bench, &[&bench.cluster("a", 2), "--cluster", "b=join"]);
    let mode = fs::metadata(bench.path("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let joined = bench.start(&mut join(&bench, &address, &token, "say"));
    let outcome = bench.outcome(joined);
    outcome.expect(0, &[]);
    assert!(outcome.out.contains("hello from b"), "output stays with join: {outcome:?}");
    assert_eq!(common::wait(&mut run).code(), Some(0));
    let args = fs::read_to_string(bench.path("b.args")).unwrap();
    assert!(args.starts_with("-genv LD_PRELOAD") && args.trim_end().ends_with("-n 3 sh"), "{args}");
}

#[test]
fn all_clusters_may_be_elsewhere_and_a_failure_ends_them_all() {
    let bench = Bench::new();
    let clusters = ["--cluster", "c=join", "--cluster", "b=join:3"];
    let (mut run, address, token) = listening(&bench, &clusters);
    let mut other = bench.command();
    other.args(["join", "--cluster", "c", &address, "--token-file", "token", "--"]);
    other.args([&bench.launcher(), "sh"]).env("FAKE_c", "hang");
    let other = bench.start(&mut other);
    let failing = bench.start(&mut join(&bench, &address, &token, "abort:44"));
    let (failing, other) = (failing, bench.outcome(other));
    other.expect(44, &["cluster `b` aborted with code 44"]);
    let failing = bench.outcome(failing);
    assert!(matches!(failing.code, Some(44 | 9)), "{failing:?}");
    assert_eq!(common::wait(&mut run).code(), Some(44));
    bench.nothing_left();
}

#[test]
fn the_end_of_gridmpi_run_ends_those_who_joined() {
    let bench = Bench::new();
    let (mut run, address, token) =
        listening(&bench, &["--cluster", "b=join", "--cluster", "c=join"]);
    let joined = bench.start(&mut join(&bench, &address, &token, "hang"));
    bench.until("the start of b", || bench.path("b.args").exists());
    run.kill().unwrap();
    run.wait().unwrap();
    bench.outcome(joined).expect(1, &["`gridmpi run` has gone away"]);
}

#[test]
fn an_interrupt_ends_a_job_to_which_nobody_has_come() {
    let bench = Bench::new();
    let (mut run, _, _) = listening(&bench, &["--cluster", "b=join", "--cluster", "c=join:2"]);
    send("INT", run.id());
    assert_eq!(common::wait(&mut run).code(), Some(130));
    bench.until("the reason", || {
        fs::read_to_string(bench.path("run.err")).unwrap().contains("stopped by signal 2")
    });

    bench.script("ssh", "#!/bin/sh\n>\"$FAKE_DIR/ssh.there\"\nexec sleep 600\n");
    let path = behind_head(&bench);
    let text = fs::read_to_string(bench.path("job.toml")).unwrap();
    let only = text.replace("name = \"a\"", "name = \"a\"\nhead = \"me@other\"");
    fs::write(bench.path("job.toml"), only).unwrap();
    let run = bench.start(bench.command().args(["run", "job.toml"]).env("PATH", path));
    bench.until("ssh", || bench.path("ssh.there").exists());
    send("INT", run.id());
    bench.outcome(run).expect(130, &["stopped by signal 2"]);
}

#[test]
fn a_joined_cluster_ends_though_nobody_reads_what_it_says() {
    let bench = Bench::new();
    bench.script("flooder", common::FLOODER);
    let (mut run, address, token) = listening(&bench, &["--cluster", "b=join"]);
    let mut command = bench.command();
    command.args(["join", "--cluster", "b", &address, "--", "./flooder", "sh"]);
    let mut joined = bench.start(command.env("GRIDMPI_TOKEN", token));
    bench.until_full(&joined);
    send("TERM", run.id());
    assert_eq!(common::wait(&mut joined).code(), Some(143));
    assert_eq!(common::wait(&mut run).code(), Some(143));
    bench.nothing_left();
}

#[test]
fn a_job_that_is_stopped_and_continued_takes_joined_clusters_along() {
    let bench = Bench::new();
    let (mut run, address, token) = listening(&bench, &["--cluster", "b=join"]);
    let mut command = join(&bench, &address, &token, "stdin");
    let mut joined = bench.start(command.stdin(Stdio::piped()));
    bench.until("the start of b", || bench.rank().is_some());
    let rank = bench.rank().unwrap();
    for _ in 0..2 {
        send("TSTP", run.id());
        bench.until("the stop", || state(run.id()) == 'T' && state(rank) == 'T');
        send("CONT", run.id());
        bench.until("the going on", || state(run.id()) != 'T' && state(rank) != 'T');
    }
    drop(joined.stdin.take());
    bench.outcome(joined).expect(0, &[]);
    assert_eq!(common::wait(&mut run).code(), Some(0));
}

/// A way to `address` that can be broken; whoever dials again gets through.
fn breakable(address: &str) -> (String, Receiver<(TcpStream, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let (sender, standing) = channel();
    let address = address.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&address).unwrap());
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            let _ = sender.send((near, far));
        }
    });
    (own, standing)
}

#[test]
fn a_join_whose_connection_breaks_comes_back() {
    let bench = Bench::new();
    let clusters = ["--cluster", "b=join:3", "--cluster", "c=join"];
    let (mut run, address, token) = listening(&bench, &clusters);
    let (way, standing) = breakable(&address);
    let joined = bench.start(&mut join(&bench, &way, &token, "abort_later:44"));
    let mut other = bench.command();
    other.args(["join", "--cluster", "c", &address, "--token-file", "token", "--"]);
    let other = bench.start(other.args([&bench.launcher(), "sh"]).env("FAKE_c", "hang"));
    bench.until("the start of both", || {
        bench.path("b.args").exists() && bench.path("c.args").exists()
    });
    let first = standing.recv_timeout(Duration::from_secs(20)).unwrap();
    first.0.shutdown(Shutdown::Both).unwrap();
    let said = || fs::read_to_string(bench.path("run.err")).unwrap();
    bench.until("its return", || {
        said().contains("connection with `gridmpi join` of cluster `b` was lost and made again")
    });
    fs::write(bench.path("stubborn"), "").unwrap();
    let outcome = bench.outcome(joined);
    let said = ["the launcher goes on", "is back"];
    assert!(said.iter().all(|part| outcome.err.contains(part)), "{outcome:?}");
    bench.outcome(other).expect(44, &["cluster `b` aborted with code 44"]);
    assert_eq!(common::wait(&mut run).code(), Some(44));
    bench.nothing_left();
}

#[test]
fn the_end_of_a_join_ends_the_job() {
    let bench = Bench::new();
    let mut command = [bench.cluster("a", 2), "--cluster=b=join".to_owned()];
    command.sort();
    let (mut run, address, token) = listening(&bench, &[&command[0], &command[1]]);
    let mut joined = bench.start(&mut join(&bench, &address, &token, "never"));
    bench.until("the start of b", || bench.path("b.args").exists());
    joined.kill().unwrap();
    joined.wait().unwrap();
    assert_eq!(common::wait(&mut run).code(), Some(1));
    bench.nothing_left();
    let log = fs::read_to_string(bench.path("run.err")).unwrap();
    assert!(log.contains("lost `gridmpi join` of cluster `b`"), "{log}");
}

/// What is said of secrets to those who trust in it.
const SECURITY: &str = include_str!("../../../docs/security.md");

#[test]
fn the_token_is_shown_as_the_document_says_and_not_with_a_file_for_it() {
    let bench = Bench::new();
    let said = |more: &[&str]| {
        let mut command = bench.command();
        command.args(["run", "--listen", "127.0.0.1:0", "--cluster", "b=join", "--wait", "60"]);
        let mut child = bench.start(command.args(more).args(["--", "sh"]));
        let log = bench.log(&mut child);
        bench.said(&log, "gridmpi join");
        let token = fs::read_to_string(bench.path("token")).unwrap_or_default();
        send("TERM", child.id());
        common::wait(&mut child);
        bench.nothing_left();
        (fs::read_to_string(log).unwrap(), token)
    };
    let (shown, _) = said(&[]);
    assert!(shown.contains("GRIDMPI_TOKEN="), "{shown}");
    let (kept, token) = said(&["--token-file", "token"]);
    assert!(!kept.contains("GRIDMPI_TOKEN") && !kept.contains(token.trim()), "{kept}");
    assert_eq!(token.trim().len(), 32);
    let (quoted, _) = said(&["--token-file", "my token"]);
    assert!(quoted.contains(" --token-file 'my token' -- LAUNCHER"), "{quoted}");
    assert!(!quoted.contains("`env`"), "{quoted}");
    let keys = SECURITY.split("## Keys").nth(1).unwrap().split("## ").next().unwrap();
    for part in ["with one exception", "`GRIDMPI_TOKEN=...`", "`token: ...`", "`--token-file FILE`"]
    {
        assert!(keys.contains(part), "docs/security.md does not say {part}");
    }
}

#[test]
fn who_joins_is_told_which_variables_to_set() {
    let bench = Bench::new();
    let text = "[job]\nenv = { SOLVER = \"b\", OMP_NUM_THREADS = \"2\" }\n\
                [[cluster]]\nname = \"b\"\nlauncher = \"join\"\n";
    fs::write(bench.path("job.toml"), text).unwrap();
    let mut command = bench.command();
    let mut child = bench.start(command.args(["run", "job.toml", "--", "sh"]));
    let log = bench.log(&mut child);
    bench.said(&log, "to be set there as well: OMP_NUM_THREADS, SOLVER\n");
    send("TERM", child.id());
    common::wait(&mut child);
    bench.nothing_left();
}

#[test]
fn wrong_tokens_names_and_addresses_are_explained() {
    let bench = Bench::new();
    let (mut run, address, token) = listening(&bench, &["--cluster", "b=join"]);
    let wrong = join(&bench, &address, &"0".repeat(32), "ok");
    bench.finish_beside(wrong).expect(1, &["runs another job"]);
    let short = join(&bench, &address, "123", "ok");
    let outcome = bench.finish_beside(short);
    outcome.expect(2, &["GRIDMPI_TOKEN holds no join token"]);
    assert!(!outcome.err.contains("123"), "{outcome:?}");
    let mut none = join(&bench, &address, &token, "ok");
    none.env_remove("GRIDMPI_TOKEN");
    bench.finish_beside(none).expect(2, &["no join token: set GRIDMPI_TOKEN"]);
    let file = fs::read(bench.path("token")).unwrap();
    fs::write(bench.path("open"), file).unwrap();
    fs::set_permissions(bench.path("open"), PermissionsExt::from_mode(0o644)).unwrap();
    let mut open = bench.command();
    open.args(["join", "--cluster", "b", &address, "--token-file", "open", "--"]);
    open.args([&bench.launcher(), "sh"]);
    bench.finish_beside(open).expect(2, &["open can be read by others (mode 644): chmod 600 open"]);
    let mut unknown = bench.command();
    unknown.args(["join", "--cluster", "x", &address, "--", &bench.launcher(), "sh"]);
    unknown.env("GRIDMPI_TOKEN", &token);
    bench.finish_beside(unknown).expect(1, &["no cluster `x`; its clusters are: b"]);
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let nobody = join(&bench, &closed, &token, "ok");
    bench.finish_beside(nobody).expect(1, &["cannot reach", &closed, "connection refused"]);
    run.kill().unwrap();
    run.wait().unwrap();
    bench.nothing_left();
}

#[test]
fn noise_and_scanners_do_not_disturb_the_meeting() {
    let bench = Bench::new();
    let (mut run, address, token) = listening(&bench, &["--cluster", "b=join"]);
    let mut noise = TcpStream::connect(&address).unwrap();
    let _ = noise.write_all(&[0x5a; 100_000]);
    let _silent = TcpStream::connect(&address).unwrap();
    let joined = bench.start(&mut join(&bench, &address, &token, "ok"));
    bench.outcome(joined).expect(0, &[]);
    assert_eq!(common::wait(&mut run).code(), Some(0));
    let log = fs::read_to_string(bench.path("run.err")).unwrap();
    assert!(log.contains("warning: ignored a connection from 127.0.0.1"), "{log}");
}

/// A job with cluster a here and b behind a head node; the `PATH` by which the bench's own ssh is found.
fn behind_head(bench: &Bench) -> String {
    let text = format!(
        "[job]\nprogram = \"sh\"\nenv = {{ ALL = \"x\" }}\n\
         [[cluster]]\nname = \"a\"\nlauncher = \"{0}\"\nranks = 1\n\
         [[cluster]]\nname = \"b\"\nlauncher = \"{0}\"\nranks = 2\nhead = \"me@head\"\n",
        bench.launcher()
    );
    fs::write(bench.path("job.toml"), text).unwrap();
    format!("{}:{}", bench.directory.display(), std::env::var("PATH").unwrap())
}

#[test]
fn settings_reach_the_ranks_behind_a_head_node() {
    let bench = Bench::new();
    // Nothing of our environment is there, but what stands for the machine.
    let ssh = "#!/bin/sh\nfor last; do :; done\n\
               for name in EAGER_LIMIT CREDIT PACING DEBUG; do unset GRIDMPI_$name; done\nexec sh -c \"$last\"\n";
    bench.script("ssh", ssh);
    let path = behind_head(&bench);
    let text = fs::read_to_string(bench.path("job.toml")).unwrap();
    let own = "env = { GRIDMPI_CREDIT = \"2097152\"";
    fs::write(bench.path("job.toml"), text.replace("env = { ALL = \"x\"", own)).unwrap();
    let mut command = bench.command();
    command.args(["run", "--pacing", "static", "job.toml"]).env("PATH", path);
    command.env("GRIDMPI_EAGER_LIMIT", "12K").env("GRIDMPI_CREDIT", "1M").env("GRIDMPI_DEBUG", "1");
    bench.finish(command).expect(0, &[]);
    let env = fs::read_to_string(bench.path("b.env")).unwrap();
    for said in ["EAGER_LIMIT=12288", "PACING=static", "DEBUG=1", "CREDIT=2097152"] {
        let said = format!("GRIDMPI_{said}");
        assert!(env.lines().any(|line| line == said), "{said} is missing");
    }
}

#[test]
fn an_ssh_has_streams_that_nobody_else_has() {
    let bench = Bench::new();
    // Its parent is `gridmpi`.
    let ssh = "#!/bin/sh\nends() { for n in 0 1 2; do readlink /proc/$1/fd/$n; done; }\n\
               own=$(ends $$) ours=$(ends $PPID)\necho \"$own\" >\"$FAKE_DIR/own\"; echo \"$ours\" >\"$FAKE_DIR/ours\"\n\
               echo from far; echo from there >&2\nexit 255\n";
    bench.script("ssh", ssh);
    let path = behind_head(&bench);
    for (verb, code) in [("run", 255), ("probe", 1)] {
        let mut command = bench.command();
        command.args([verb, "job.toml"]).env("PATH", &path);
        let outcome = bench.finish(command);
        outcome.expect(code, &["from there"]);
        let (far, people) = (outcome.out.contains("from far"), outcome.err.contains("from far"));
        assert_eq!((far, people), (verb == "run", verb == "probe"), "{outcome:?}");
        let ends = |file: &str| fs::read_to_string(bench.path(file)).unwrap();
        let (own, ours) = (ends("own"), ends("ours"));
        assert_eq!((own.lines().count(), ours.lines().count()), (3, 3));
        assert!(own.lines().all(|end| !ours.contains(end)), "{own}{ours}");
    }
}

#[test]
fn an_ssh_that_does_not_end_is_ended() {
    let bench = Bench::new();
    bench.script("ssh", "#!/bin/sh\nfor last; do :; done\nsh -c \"$last\"\nexec sleep 600\n");
    let mut command = bench.command();
    command.args(["run", "job.toml"]).env("PATH", behind_head(&bench));
    bench.finish(command).expect(0, &["the ssh to the head node of cluster `b` has not ended"]);
}

#[test]
fn a_job_outlives_the_ssh_to_a_head_node() {
    let bench = Bench::new();
    // Its pipes end with it, as those of the far end's do when the connection is lost.
    let ssh = "#!/bin/sh\nfor last; do :; done\nexec 3<&0\n\
               mkfifo \"$FAKE_DIR/line.$$\"\ncat \"$FAKE_DIR/line.$$\" &\ntaker=$!\n\
               sh -c \"$last\" <&3 >\"$FAKE_DIR/line.$$\" 2>&1 &\n\
               until [ -e \"$FAKE_DIR/b.args\" ]; do sleep 0.05; done\nkill -9 $taker\nexit 255\n";
    bench.script("ssh", ssh);
    let run = |behaviour: &str| {
        let _ = fs::remove_file(bench.path("b.args"));
        let mut command = bench.command();
        command.args(["run", "job.toml"]).env("PATH", behind_head(&bench));
        command.env("FAKE_a", "ok").env("FAKE_b", behaviour);
        bench.start(&mut command)
    };
    let killed = ssh.replace("exit 255", "kill -9 $$");
    let ways = [
        ("until_go", "go", 0, ssh),
        ("abort_later:7", "stubborn", 7, ssh),
        ("until_go", "go", 0, &killed),
    ];
    for (behaviour, word, code, ssh) in ways {
        let _ = fs::remove_file(bench.path(word));
        bench.script("ssh", ssh);
        let mut child = run(behaviour);
        let log = bench.log(&mut child);
        bench.said(&log, "the ssh to the head node of cluster `b` has failed");
        fs::write(bench.path(word), "").unwrap();
        let status = common::wait(&mut child);
        assert_eq!(status.code(), Some(code), "{}", fs::read_to_string(&log).unwrap());
        bench.nothing_left();
    }
}

#[test]
fn a_head_node_is_reached_by_ssh_without_secrets_in_arguments() {
    let bench = Bench::new();
    // What an ssh does: hands the command to a shell at the other end.
    bench.script("ssh", "#!/bin/sh\necho \"$@\" >\"$FAKE_DIR/ssh.args\"\nfor last; do :; done\nexec sh -c \"$last\"\n");
    let path = behind_head(&bench);
    let run = |behaviour: &str| {
        let mut command = bench.command();
        command.args(["run", "job.toml", "--display", "map"]).env("PATH", &path);
        command.env("FAKE_a", "ok").env("FAKE_b", behaviour);
        bench.finish(command)
    };
    run("ok").expect(0, &["3 ranks in 2 clusters"]);
    let ssh = fs::read_to_string(bench.path("ssh.args")).unwrap();
    assert!(
        ssh.starts_with("-T -o BatchMode=yes -o ControlMaster=no -o ServerAliveInterval="),
        "{ssh}"
    );
    assert!(ssh.contains(" -- me@head exec sh -c "), "{ssh}");
    assert!(!ssh.contains("GRIDMPI_TOKEN"), "{ssh}");
    run("abort:21").expect(21, &["cluster `b` aborted"]);
    run("exit:5").expect(5, &["cluster `b` ended with exit code 5"]);
}

#[test]
fn a_gridmpi_that_is_not_where_it_was_named_is_replaced_by_no_other() {
    let bench = Bench::new();
    bench.script("ssh", "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
    bench.script("gridmpi", "#!/bin/sh\n>\"$FAKE_DIR/another\"\nexit 3\n");
    let path = behind_head(&bench);
    let text = fs::read_to_string(bench.path("job.toml")).unwrap();
    let named = |named: &str| {
        let key = format!("head = \"me@head\"\nhead_gridmpi = \"{named}\"");
        fs::write(bench.path("job.toml"), text.replace("head = \"me@head\"", &key)).unwrap();
        let mut command = bench.command();
        command.args(["run", "job.toml"]).env("PATH", &path).env("HOME", &bench.directory);
        bench.finish(command)
    };
    named("/nowhere/gridmpi").expect(127, &["`head_gridmpi`, /nowhere/gridmpi,"]);
    assert!(!bench.path("another").exists(), "it was");
    // One in the home directory there, and one in the PATH there.
    for name in ["~/gridmpi", "gridmpi"] {
        named(name).expect(3, &["exit code 3 before anything had joined"]);
        fs::remove_file(bench.path("another")).unwrap();
    }
}

#[test]
fn a_head_node_from_which_nothing_comes_has_a_remedy() {
    let bench = Bench::new();
    let path = behind_head(&bench);
    let run = |ssh: &str| {
        bench.script("ssh", &format!("#!/bin/sh\n{ssh}\n"));
        let mut command = bench.command();
        command.args(["run", "job.toml"]).env("PATH", &path).env("FAKE_a", "ok");
        bench.finish(command)
    };
    let try_it = "`ssh -o BatchMode=yes me@head true` must work here";
    run("echo no route >&2\nexit 255").expect(255, &["no route", "head node `me@head`", try_it]);
    run("echo 'sh: gridmpi: not found' >&2\nexit 127")
        .expect(127, &["not found", "`head_gridmpi`"]);
    // A ForceCommand that does something else, and well.
    run("cat >/dev/null")
        .expect(1, &["head node `me@head` ended with exit code 0", "ForceCommand"]);
    // Start-up files that read what is not theirs: the token must not be taken for a command, and shown.
    let greedy = run("for last; do :; done\nread -r stolen\nexec sh -c \"$last\"");
    greedy.expect(
        1,
        &["the start-up files of the login shell here", "exit code 1 before anything had joined"],
    );
}

#[test]
fn a_head_node_that_says_nothing_is_named() {
    let bench = Bench::new();
    bench.script("ssh", "#!/bin/sh\nexec sleep 600\n");
    let mut command = bench.command();
    command
        .args(["run", "--wait", "1", "job.toml"])
        .env("PATH", behind_head(&bench))
        .env("FAKE_a", "ok");
    let parts =
        ["gave up", "head node `me@head`", "`ssh -o BatchMode=yes me@head true` must work here"];
    bench.finish(command).expect(1, &parts);
}
