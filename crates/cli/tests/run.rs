//! `gridmpi run` over fake launchers: good ends, bad ends, and nothing left running.

mod common;

use common::{Bench, send, state};
use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Not a test: the ranks of the others.
#[test]
#[ignore = "played by the fake launcher"]
fn rank() {
    common::play_rank();
}

#[test]
fn two_clusters_meet_and_end_well() {
    let bench = Bench::new();
    let outcome = bench.two("ok", "ok", &["--display", "map"]);
    outcome.expect(0, &["4 ranks in 2 clusters", "cluster a: ranks 0-1", "cluster b: ranks 2-3"]);
    let args = fs::read_to_string(bench.path("a.args")).unwrap();
    let library = bench.path("libgridmpi-mpich.so").display().to_string();
    assert!(args.starts_with(&format!("-genv LD_PRELOAD {library} -n 2 sh")), "{args}");
}

#[test]
fn no_argument_of_any_process_holds_a_secret() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 2), &bench.cluster("b", 2)]);
    command.args(["--timeout", "3", "--", "sh"]).env("FAKE_a", "hang").env("FAKE_b", "hang");
    let child = bench.start(&mut command);
    bench.until("the start of both launchers", || {
        bench.marked().iter().filter(|(_, args)| args.contains("--exact rank")).count() == 2
    });
    let mut keys = Vec::new();
    for (pid, _) in bench.marked() {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environ).into_owned();
        let found = text.split('\0').filter_map(|entry| entry.strip_prefix("GRIDMPI_KEY="));
        keys.extend(found.map(str::to_owned));
    }
    assert!(!keys.is_empty());
    for (_, args) in bench.marked() {
        assert!(keys.iter().all(|key| !args.contains(key)), "{args}");
    }
    bench.outcome(child).expect(124, &["time is over"]);
}

#[test]
fn the_abort_code_wins_over_the_launchers() {
    let outcome = Bench::new().two("abort:42", "hang", &[]);
    outcome.expect(42, &["cluster `a` aborted with code 42: the test wants it"]);
}

#[test]
fn a_failing_rank_gives_the_exit_code_and_ends_the_others() {
    Bench::new().two("hang", "exit:3", &[]).expect(3, &["cluster `b` ended with exit code 3"]);
}

#[test]
fn a_killed_rank_ends_the_job() {
    Bench::new().two("die", "hang", &[]).expect(137, &["cluster `a` ended with exit code 137"]);
}

#[test]
fn a_failure_after_finalize_is_told_by_the_exit_code() {
    Bench::new().two("late:5", "ok", &[]).expect(5, &[]);
}

#[test]
fn a_launcher_that_fails_at_once_ends_the_job() {
    let outcome = Bench::new().two("fail:6", "hang", &[]);
    outcome.expect(6, &["`a` ended with exit code 6 before all its ranks had called MPI_Init"]);
}

#[test]
fn a_launcher_that_is_killed_ends_the_job() {
    Bench::new().two("hang", "kill", &[]).expect(137, &["cluster `b` ended with exit code 137"]);
}

#[test]
fn a_program_without_mpi_is_named_when_others_wait() {
    let outcome = Bench::new().two("noinit", "hang", &[]);
    outcome.expect(1, &["program of cluster `a` ended without calling MPI_Init", "`b` needs it"]);
    let outcome = Bench::new().two("noinit", "noinit", &[]);
    outcome.expect(1, &["no MPI program ran over the clusters: the programs of a, b"]);
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("FAKE_a", "noinit");
    bench.finish(command).expect(0, &["warning: no MPI program ran"]);
}

#[test]
fn an_end_without_finalize_is_a_failure() {
    Bench::new().two("exit:0", "hang", &[]).expect(1, &["`a` ended without calling MPI_Finalize"]);
}

#[test]
fn a_cluster_that_never_comes_is_named_after_the_deadline() {
    let outcome = Bench::new().two("ok", "never", &["--wait", "2"]);
    outcome.expect(1, &["waiting for cluster `b`: not all of its 2 ranks", "--wait SECONDS"]);
    assert!(outcome.out.is_empty() || !outcome.out.contains("panicked"), "{outcome:?}");
}

#[test]
fn a_wrong_key_keeps_its_cluster_out() {
    let outcome = Bench::new().two("ok", "wrongkey", &[]);
    outcome.expect(17, &["holds another key", "does not hold this job's key", "exit code 17"]);
}

#[test]
fn a_wrong_rank_count_and_singletons_are_explained() {
    let outcome = Bench::new().two("ok", "count:3", &[]);
    outcome.expect(1, &["was to have 2 ranks, but its MPI has 3"]);
    let outcome = Bench::new().two("ok", "count:1", &[]);
    outcome.expect(1, &["Each process believes to be alone"]);
}

#[test]
fn an_unknown_cluster_and_differing_machines_are_explained() {
    Bench::new().two("ok", "unknown", &[]).expect(17, &["no cluster `zz`", "a, b"]);
    Bench::new().two("ok", "model", &[]).expect(1, &["lay out data differently", "long 4 bytes"]);
}

#[test]
fn who_ignores_term_is_killed_with_all_descendants() {
    let bench = Bench::new();
    let outcome = bench.two("stubborn", "abort_later:4", &[]);
    outcome.expect(4, &["killing cluster `a`"]);
}

#[test]
fn children_of_the_launcher_end_too() {
    Bench::new().two("child:hang", "fail:8", &[]).expect(8, &[]);
}

#[test]
fn a_killed_gridmpi_takes_everything_along() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), &bench.cluster("b", 1), "--", "sh"]);
    command.env("FAKE_a", "stubborn").env("FAKE_b", "child:hang");
    let mut child = bench.start(&mut command);
    bench.until("the start of all", || {
        let hanging = bench.marked().iter().any(|(_, args)| args.contains("--exact rank"));
        hanging && bench.path("stubborn").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    bench.nothing_left();
}

#[test]
fn interrupts_reach_the_launchers_and_a_second_one_kills() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), &bench.cluster("b", 1), "--", "sh"]);
    command.env("FAKE_a", "hang").env("FAKE_b", "hang");
    let child = bench.start(&mut command);
    let ready = |count| {
        bench.until("the start of all", || {
            bench.marked().iter().filter(|(_, args)| args.contains("--exact rank")).count() >= count
        });
    };
    ready(2);
    send("INT", child.id());
    bench.outcome(child).expect(130, &[]);

    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("FAKE_a", "stubborn");
    let child = bench.start(&mut command);
    bench.until("the start of the stubborn", || bench.path("stubborn").exists());
    send("INT", child.id());
    send("QUIT", child.id());
    send("INT", child.id());
    let outcome = bench.outcome(child);
    assert!(matches!(outcome.code, Some(130 | 131)), "{outcome:?}");
}

/// A job whose launcher has set these traps, and waits for signals.
fn trapping(bench: &Bench, traps: &str) -> Child {
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo HYDRA build details; exit; }}\n\
         {traps}\n>ready\nwhile :; do sleep 0.05; done\n"
    );
    bench.script("trapping", &text);
    let mut command = bench.command();
    let child = bench.start(command.args(["run", "--cluster", "a=./trapping:1", "--", "sh"]));
    bench.until("the start", || bench.path("ready").exists());
    child
}

#[test]
fn a_program_that_has_survived_an_interrupt_may_save_when_it_is_to_end() {
    let bench = Bench::new();
    let child = trapping(&bench, "trap '>interrupted' INT\ntrap '>saved; exit 0' TERM");
    send("INT", child.id());
    bench.until("the signal", || bench.path("interrupted").exists());
    send("TERM", child.id());
    bench.outcome(child).expect(143, &["stopped by signal 15"]);
    assert!(bench.path("saved").exists(), "it was killed at once");
}

#[test]
fn term_ends_the_job_with_its_own_code() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("FAKE_a", "hang");
    let child = bench.start(&mut command);
    bench.until("the start", || {
        bench.marked().iter().any(|(_, args)| args.contains("--exact rank"))
    });
    send("TERM", child.id());
    bench.outcome(child).expect(143, &["stopped by signal 15"]);
}

#[test]
fn what_nohup_ignores_does_not_end_the_job() {
    let bench = Bench::new();
    let mut command = bench.by_shell("trap '' HUP INT QUIT; exec \"$0\" \"$@\"");
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("FAKE_a", "until_go");
    let child = bench.start(&mut command);
    bench.until("the start", || bench.rank().is_some());
    for signal in ["HUP", "INT", "QUIT", "INT"] {
        send(signal, child.id());
    }
    // Signals are taken one after the other.
    send("TSTP", child.id());
    bench.until("the stop", || state(child.id()) == 'T');
    send("CONT", child.id());
    fs::write(bench.path("go"), "").unwrap();
    bench.outcome(child).expect(0, &[]);
}

#[test]
fn stopping_and_continuing_reach_the_launchers() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("FAKE_a", "stdin");
    let mut child = bench.start(command.stdin(Stdio::piped()));
    let rank = || bench.marked().into_iter().find(|(_, args)| args.contains("--exact rank"));
    bench.until("the start", || rank().is_some());
    let (rank, _) = rank().unwrap();
    send("TSTP", child.id());
    bench.until("the stop", || state(child.id()) == 'T' && state(rank) == 'T');
    send("CONT", child.id());
    bench.until("the going on", || state(child.id()) != 'T' && state(rank) != 'T');
    drop(child.stdin.take());
    bench.outcome(child).expect(0, &[]);
}

#[test]
fn a_launcher_is_asked_once_what_it_is() {
    let bench = Bench::new();
    let text = "#!/bin/sh\n[ \"$1\" = --version ] || exit 0\necho asked >>asked\necho HYDRA build details\n";
    bench.script("asked-once", text);
    let mut command = bench.command();
    command.args(["run", "--cluster", "a=./asked-once:1", "--", "sh"]);
    bench.finish(command).expect(0, &[]);
    assert_eq!(fs::read_to_string(bench.path("asked")).unwrap(), "asked\n");
}

#[test]
fn user_signals_reach_the_launcher_once() {
    let bench = Bench::new();
    let child = trapping(&bench, "trap 'echo caught >>caught' USR1\ntrap 'exit 0' USR2");
    send("USR1", child.id());
    bench.until("the signal", || bench.path("caught").exists());
    send("USR2", child.id());
    bench.outcome(child).expect(0, &[]);
    assert_eq!(fs::read_to_string(bench.path("caught")).unwrap(), "caught\n");
}

#[test]
fn input_goes_to_the_first_cluster() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), &bench.cluster("b", 1), "--", "sh"]);
    command.env("FAKE_a", "stdin").env("FAKE_b", "stdin").stdin(Stdio::piped());
    let mut child = bench.start(&mut command);
    child.stdin.take().unwrap().write_all(b"from the user\n").unwrap();
    let outcome = bench.outcome(child);
    outcome.expect(0, &[]);
    assert_eq!(outcome.out.matches("from the user").count(), 1, "{outcome:?}");
}

/// A job whose output nobody reads, when its program has ended: more than two pipes hold.
fn unread(bench: &Bench) -> Child {
    let _ = fs::remove_file(bench.path("a.args"));
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--label", "--", "sh"]);
    let child = bench.start(command.env("FAKE_a", "flood:1000"));
    // What is left then is gridmpi and its watchdog.
    bench.until("the end of the program", || {
        bench.path("a.args").exists() && bench.marked().len() == 2
    });
    child
}

#[test]
fn labelled_output_waits_for_a_slow_reader_and_for_nobody_who_is_interrupted() {
    let bench = Bench::new();
    let mut child = unread(&bench);
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(child.try_wait().unwrap(), None, "it did not wait for its reader");
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = bench.outcome(child);
    outcome.expect(0, &[]);
    assert_eq!(outcome.out.lines().filter(|line| line.starts_with("[a 0] line ")).count(), 1000);

    let mut child = unread(&bench);
    bench.until("the stop", || {
        send("TSTP", child.id());
        std::thread::sleep(Duration::from_millis(50));
        state(child.id()) == 'T'
    });
    send("CONT", child.id());
    bench.until("the end by a signal", || {
        send("INT", child.id());
        std::thread::sleep(Duration::from_millis(50));
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(common::wait(&mut child).code(), Some(130));
    bench.nothing_left();
}

#[test]
fn a_job_ends_though_nobody_reads_what_it_says() {
    let bench = Bench::new();
    bench.script("flooder", common::FLOODER);
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut command = bench.command();
        let mut child = bench.start(command.args(["run", "--cluster=a=./flooder:1", "--", "sh"]));
        bench.until_full(&child);
        send(signal, child.id());
        assert_eq!(common::wait(&mut child).code(), Some(code));
        bench.nothing_left();
    }
}

/// A launcher that prints something as soon as there is the file `go`.
const PRINTER: &str = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo HYDRA build details:\n\
                       until [ -e go ]; do sleep 0.05; done\nexec echo hello\n";

#[test]
fn output_that_cannot_be_written_is_said_once_and_a_reader_that_has_gone_is_not() {
    let bench = Bench::new();
    bench.script("printer", PRINTER);
    let args = ["run", "--label", "--cluster=a=./printer:1", "--", "sh"];
    let mut command = bench.command();
    let mut child = bench.start(command.args(args));
    drop(child.stdout.take());
    let log = bench.log(&mut child);
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(common::wait(&mut child).code(), Some(0));
    bench.nothing_left();
    let said = fs::read_to_string(log).unwrap();
    assert!(!said.contains("cannot write") && !said.contains("panicked"), "{said}");

    let mut command = bench.by_shell("exec \"$0\" \"$@\" >/dev/full");
    command.args(&args[..3]).arg("--cluster=b=./printer:1").args(&args[3..]);
    let outcome = bench.finish(command);
    outcome.expect(1, &["cannot write what cluster `"]);
    assert_eq!(outcome.err.matches("cannot write").count(), 1, "{outcome:?}");
}

/// A launcher that prints more than pipes and buffers hold, to `$STREAM`, and says in a file that it has come to its end.
const FLOODER: &str = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo HYDRA build details:\n\
                       for n in 1 2 3 4 5 6 7 8; do head -c 60000 /dev/zero | tr '\\0' '\\n' >&$STREAM || exit 9; done\n\
                       echo x >ended.$GRIDMPI_CLUSTER\n";

#[test]
fn a_job_goes_on_whose_output_cannot_be_written() {
    let bench = Bench::new();
    bench.script("flooder", FLOODER);
    for (stream, script) in
        [("1", "exec \"$0\" \"$@\" >/dev/full"), ("2", "exec \"$0\" \"$@\" 2>/dev/full")]
    {
        let mut command = bench.by_shell(script);
        command.args(["run", "--cluster=a=./flooder:1", "--label", "--", "sh"]);
        command.env("STREAM", stream);
        let outcome = bench.finish(command);
        outcome.expect(1, &[]);
        let complaints = outcome.err.matches("cannot write what cluster `").count();
        assert_eq!(complaints, usize::from(stream == "1"), "{outcome:?}");
        fs::remove_file(bench.path("ended.a")).unwrap();
    }
}

#[test]
fn output_is_labelled_or_put_into_files() {
    let outcome = Bench::new().two("say", "say", &["--label"]);
    outcome.expect(0, &[]);
    for line in ["[a 0] hello from a", "[b 2] hello from b"] {
        assert!(outcome.out.lines().any(|got| got == line), "{outcome:?}");
    }
    let bench = Bench::new();
    let outcome = bench.two("say", "exit:1", &["--output", "results"]);
    outcome.expect(1, &[]);
    let text = fs::read_to_string(bench.path("results/a.out")).unwrap();
    assert!(text.contains("hello from a"), "{text}");
    assert!(outcome.out.is_empty() && bench.path("results/b.err").exists());
}
