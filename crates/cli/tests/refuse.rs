//! What cannot work is refused before anything starts, naming the thing and the remedy.

mod common;

use common::{Bench, Outcome};
use std::fs;
use std::process::Command;

fn run(bench: &Bench, args: &[&str]) -> Outcome {
    let mut command = bench.command();
    command.arg("run").args(args);
    bench.finish(command)
}

fn job_file(bench: &Bench, text: &str) -> Outcome {
    fs::write(bench.path("job.toml"), text).unwrap();
    run(bench, &["job.toml"])
}

#[test]
fn a_typo_in_the_job_file_names_line_and_nearest_key() {
    let bench = Bench::new();
    let outcome = job_file(&bench, "[[cluster]]\nname = \"a\"\nlancher = \"mpiexec\"\n");
    outcome.expect(2, &["job.toml:3: unknown key `lancher` in [[cluster]]", "`launcher`?"]);
    run(&bench, &["none.toml"]).expect(2, &["cannot read the job file none.toml"]);
    let program = std::env::current_exe().unwrap().display().to_string();
    run(&bench, &[&program]).expect(2, &[&program, "is no job file: it", "behind `--`"]);
    run(&bench, &["/dev/zero"]).expect(2, &["/dev/zero is no job file: it has more than 16 MiB"]);
}

#[test]
fn unknown_clusters_are_named_with_the_known_ones() {
    let bench = Bench::new();
    let link = "[[cluster]]\nname = \"a\"\n[[link]]\nbetween = [\"a\", \"bb\"]\n";
    job_file(&bench, link).expect(2, &["job.toml:3", "unknown cluster `bb`"]);
    let outcome = run(&bench, &[&bench.cluster("a", 1), "--program", "c=./x", "--", "sh"]);
    outcome.expect(2, &["--program: there is no cluster `c`; the clusters are: a"]);
}

#[test]
fn what_nobody_would_heed_of_a_cluster_that_joins_is_refused() {
    let bench = Bench::new();
    for (option, value) in [("--program", "b=./x"), ("--mpi", "b=mpich"), ("--style", "b=srun")] {
        let outcome = run(&bench, &["--cluster=b=join", option, value, "--", "sh"]);
        outcome.expect(2, &["cluster `b` is started by `gridmpi join`", option]);
    }
    let text = "[[cluster]]\nname = \"b\"\nlauncher = \"join\"\nenv = { A = \"1\" }\n";
    job_file(&bench, text).expect(2, &["job.toml:1: ", "started by hand: `env`"]);
}

#[test]
fn a_missing_launcher_and_a_strange_one_are_named() {
    let bench = Bench::new();
    let outcome = run(&bench, &["--cluster", "a=mpiexec.nowhere:2", "--", "sh"]);
    outcome.expect(2, &["cluster `a`: launcher `mpiexec.nowhere` is not on this machine"]);
    bench.script("strange", "#!/bin/sh\necho what\n");
    let outcome = run(&bench, &["--cluster", "a=./strange:2", "--", "sh"]);
    outcome.expect(2, &["what kind of launcher `./strange` is", "(what)", "--style"]);
    let silent = bench.script("silent", "#!/bin/sh\nexit 1\n").display().to_string();
    let cluster = format!("a={silent}:2");
    run(&bench, &["--cluster", &cluster, "--", "sh"]).expect(2, &["no output"]);
}

#[test]
fn a_program_that_is_missing_or_no_mpi_is_named() {
    let bench = Bench::new();
    let cluster = bench.cluster("a", 1);
    run(&bench, &[&cluster, "--", "./nothing"]).expect(2, &["program `./nothing` is not on this"]);
    let ls = "is no MPI program";
    run(&bench, &[&cluster, "--", "ls"]).expect(2, &["cluster `a`: /", "/ls", ls, "--mpi"]);
    fs::write(bench.path("text"), "hello world").unwrap();
    run(&bench, &[&cluster, "--", "./text"]).expect(2, &["./text is neither a program"]);
    run(&bench, &[&cluster]).expect(2, &["no program: give it after `--`"]);
    run(&bench, &["--", "sh"]).expect(2, &["no cluster"]);
    // The user knows better.
    let outcome = run(&bench, &[&cluster, "--mpi", "a=mpich", "--", "ls"]);
    outcome.expect(0, &[]);
}

#[test]
fn a_missing_remote_shell_is_named() {
    let bench = Bench::new();
    let text = format!(
        "[job]\nprogram = \"sh\"\n[[cluster]]\nname = \"a\"\nlauncher = \"{}\"\nhosts = [\"x\"]\n\
         remote_shell = \"no-agent\"\n",
        bench.launcher()
    );
    job_file(&bench, &text).expect(2, &["cluster `a`: `remote_shell` no-agent is not on this"]);
}

#[test]
fn launcher_and_program_are_found_where_they_run() {
    let bench = Bench::new();
    fs::create_dir(bench.path("work")).unwrap();
    let cluster = |launcher: &str, directory: &str, program: &str| {
        format!(
            "[[cluster]]\nname = \"a\"\nlauncher = \"{launcher}\"\nranks = 1\ndirectory = \"{directory}\"\nprogram = \"{program}\"\n"
        )
    };
    for name in ["mpiexec", "program"] {
        fs::rename(bench.script(name, "#!/bin/sh\n"), bench.path("work").join(name)).unwrap();
    }
    let launcher = fs::read_to_string(Bench::new().path("mpiexec")).unwrap();
    fs::write(bench.path("work/mpiexec"), launcher).unwrap();
    job_file(&bench, &cluster("./mpiexec", "work", "./program")).expect(0, &[]);
    let elsewhere = job_file(&bench, &cluster("../mpiexec", "work", "./program"));
    elsewhere.expect(2, &["cluster `a`: launcher `work/../mpiexec` is not on this machine"]);
    let elsewhere = job_file(&bench, &cluster("./mpiexec", "work", "../program"));
    elsewhere.expect(2, &["cluster `a`: program `work/../program` is not on this machine"]);
    let blank = "my work/mpiexec";
    std::os::unix::fs::symlink("work", bench.path("my work")).unwrap();
    job_file(&bench, &cluster(&format!("./{blank} -v"), ".", "sh")).expect(0, &[]);
    let mistyped = job_file(&bench, &cluster("mpiexec", "wrok", "sh"));
    mistyped.expect(2, &["cluster `a`: there is no directory `wrok`", "`directory`"]);
}

#[test]
fn every_problem_is_told_at_once() {
    let bench = Bench::new();
    let outcome = run(&bench, &["--cluster=a=nope1:1", "--cluster=b=nope2:1", "--", "sh"]);
    outcome.expect(2, &["cluster `a`: launcher `nope1`", "cluster `b`: launcher `nope2`"]);
}

#[test]
fn the_command_line_is_checked() {
    let bench = Bench::new();
    for args in [
        vec!["--cluster", "a"],
        vec!["--cluster", "a=x:none"],
        vec!["--wait", "never"],
        vec!["--wait", "-1"],
        vec!["--timeout", "nan"],
        vec!["--mpi", "a=lam"],
        vec!["--display", "nothing"],
        vec!["--label", "--output", "d"],
    ] {
        assert_eq!(run(&bench, &args).code, Some(2), "{args:?}");
    }
    let cluster = bench.cluster("a", 1);
    for (option, value) in [("--wait", "0"), ("--timeout", "1e18"), ("--timeout", "316224001")] {
        let outcome = run(&bench, &[&cluster, option, value, "--", "sh"]);
        outcome.expect(2, &[option, "must be more than 0 and at most ten years"]);
    }
    run(&bench, &[&cluster, "--timeout", "316224000", "--wait", "3e8", "--", "sh"]).expect(0, &[]);
    let twice = [&*bench.cluster("a", 1), &*bench.cluster("a", 1), "--", "sh"];
    run(&bench, &twice).expect(2, &["two clusters named `a`"]);
    let outcome = run(&bench, &[&bench.cluster("a", 1), "--listen", "nowhere", "--", "sh"]);
    outcome.expect(2, &["--listen", "HOST:PORT"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let outcome = run(&bench, &[&bench.cluster("a", 1), "--listen", &address, "--", "sh"]);
    outcome.expect(2, &["cannot listen on", &address, "--listen"]);
}

#[test]
fn a_missing_library_names_the_places() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("GRIDMPI_LIBDIR", "/nowhere");
    let outcome = bench.finish(command);
    outcome.expect(2, &["libgridmpi-mpich.so", "/nowhere", "GRIDMPI_LIBDIR"]);
}

#[test]
fn a_library_that_ranks_could_not_load_is_refused() {
    let bench = Bench::new();
    let mut command = bench.command();
    std::os::unix::fs::symlink(".", bench.path("with blank")).unwrap();
    let place = bench.path("with blank");
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("GRIDMPI_LIBDIR", &place);
    let path = place.join("libgridmpi-mpich.so").display().to_string();
    bench
        .finish(command)
        .expect(2, &["cluster `a`: the library", &path, "blank", "GRIDMPI_LIBDIR"]);
    assert!(!bench.path("a.args").exists(), "a launcher was started");
}

#[test]
fn a_token_file_that_cannot_be_written_is_named_before_anything_starts() {
    let bench = Bench::new();
    // Of two problems this one is told, as it was looked for before anything was begun.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    for (file, why) in [("none/token", "No such file"), (".", "is a directory")] {
        let mut args = vec!["--cluster=b=join", "--token-file", file, "--listen", &listen];
        let cluster = bench.cluster("a", 1);
        args.extend([&*cluster, "--", "sh"]);
        run(&bench, &args).expect(2, &[&format!("cannot write the token file {file}: "), why]);
        assert!(!bench.path("a.args").exists(), "a launcher was started");
    }
    // Nobody would write it.
    let outcome = run(&bench, &[&bench.cluster("a", 1), "--token-file", "token", "--", "sh"]);
    outcome.expect(2, &["--token-file is for clusters that join, and this job has none"]);
}

#[test]
fn output_files_that_cannot_be_written_are_named_before_anything_starts() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("results/b.out")).unwrap();
    fs::write(bench.path("results/a.out"), "of an earlier job").unwrap();
    let clusters = [bench.cluster("a", 1), bench.cluster("b", 1)];
    let outcome = run(&bench, &[&clusters[0], &clusters[1], "--output", "results", "--", "sh"]);
    outcome.expect(2, &["cannot write results/b.out: Is a directory", "--output"]);
    assert!(!bench.path("a.args").exists(), "a launcher was started");
    assert_eq!(fs::read_to_string(bench.path("results/a.out")).unwrap(), "of an earlier job");
    fs::remove_dir(bench.path("results/b.out")).unwrap();
    run(&bench, &[&clusters[0], &clusters[1], "--output", "results", "--", "sh"]).expect(0, &[]);
    let anew = fs::read_to_string(bench.path("results/a.out")).unwrap();
    assert!(!anew.contains("of an earlier job"), "{anew}");
}

#[test]
fn malformed_settings_are_named() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["run", &bench.cluster("a", 1), "--", "sh"]).env("GRIDMPI_CREDIT", "lots");
    bench.finish(command).expect(2, &["GRIDMPI_CREDIT", "lots"]);
    let least = "GRIDMPI_MATB: \"1\" is too low for a job to get on: at least 100k";
    let join = ["join", "--cluster", "a", "127.0.0.1:9", "--", &bench.launcher(), "sh"];
    for args in [&["run", &bench.cluster("a", 1), "--", "sh"][..], &join] {
        let mut command = bench.command();
        command.args(args).env("GRIDMPI_MATB", "1").env("GRIDMPI_TOKEN", "5".repeat(32));
        bench.finish(command).expect(2, &[least]);
    }
}

#[test]
fn a_directory_is_no_program() {
    let bench = Bench::new();
    let outcome = run(&bench, &[&bench.cluster("a", 1), "--", "/tmp"]);
    outcome.expect(2, &["cluster `a`: program `/tmp` is a directory"]);
}

/// A C program for tests that need real ones; `None` without that compiler.
fn compile(
    bench: &Bench,
    compiler: &str,
    name: &str,
    text: &str,
    flags: &[&str],
) -> Option<String> {
    let source = bench.path(&format!("{name}.c"));
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.arg(source).arg("-o").arg(bench.path(name)).args(flags);
    match command.output() {
        Ok(output) if output.status.success() => Some(format!("./{name}")),
        Ok(output) => panic!("{compiler}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            eprintln!("skipped: no {compiler}");
            None
        }
    }
}

#[test]
fn a_static_program_is_refused() {
    let bench = Bench::new();
    let text = "int main(void) { return 0; }\n";
    for flags in [vec!["-static"], vec!["-static-pie"]] {
        let Some(program) = compile(&bench, "gcc", "fixed", text, &flags) else { return };
        let outcome = run(&bench, &[&bench.cluster("a", 1), "--", &program]);
        outcome.expect(2, &["./fixed is linked statically", "-static"]);
    }
}

#[test]
fn program_and_launcher_of_different_mpis_are_refused() {
    let bench = Bench::new();
    let text = "#include <mpi.h>\nint main(void) { MPI_Init(0, 0); MPI_Finalize(); return 0; }\n";
    if let Some(program) = compile(&bench, "mpicc.openmpi", "other", text, &[]) {
        let outcome = run(&bench, &[&bench.cluster("a", 1), "--", &program]);
        let parts =
            ["`./other` is built for Open MPI (libmpi.so.40)", "the MPICH family", "--program"];
        outcome.expect(2, &parts);
    }
    if let Some(program) = compile(&bench, "mpicc.mpich", "own", text, &[]) {
        bench.script("ompi", "#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n");
        let outcome = run(&bench, &["--cluster", "a=./ompi:1", "--", &program]);
        outcome.expect(2, &["built for the MPICH family (libmpich.so.12)", "Open MPI"]);
    }
}

#[test]
fn open_mpi_as_root_is_told_the_remedy() {
    if !rustix_is_root() {
        return;
    }
    let bench = Bench::new();
    bench.script("ompi", "#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n");
    let mut command = bench.command();
    command.args(["run", "--cluster", "a=./ompi:1", "--", "sh"]);
    command.env_remove("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    bench
        .finish(command)
        .expect(2, &["refuses to run as root", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]);
}

fn rustix_is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    line.split_whitespace().nth(2) == Some("0")
}

/// Needed by the launcher when a test gets that far.
#[test]
#[ignore = "played by the fake launcher"]
fn rank() {
    common::play_rank();
}
