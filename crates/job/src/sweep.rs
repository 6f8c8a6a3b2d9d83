//! Finds what a job has left on this machine, wherever it hides.
//!
//! Every process of a job has `GRIDMPI_JOB` and `GRIDMPI_CLUSTER` in the environment it started
//! with. That finds also those who left their process group and session, and cannot hit a stranger.

use gridmpi_bootstrap::env::{CLUSTER, JOB};
use gridmpi_bootstrap::{ClusterName, JobId};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);

/// Which processes belong to us.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    job: Vec<u8>,
    clusters: Vec<Vec<u8>>,
}

impl Marks {
    /// Those of `clusters` of `job`; of every cluster if `clusters` is empty.
    pub(crate) fn new(job: JobId, clusters: &[ClusterName]) -> Self {
        let clusters = clusters.iter().map(|name| format!("{CLUSTER}={name}").into_bytes());
        Self { job: format!("{JOB}={job}").into_bytes(), clusters: clusters.collect() }
    }

    /// Whether an environment, as `/proc` shows it, is of one of ours.
    fn fit(&self, environ: &[u8]) -> bool {
        let has = |mark: &Vec<u8>| environ.split(|byte| *byte == 0).any(|entry| entry == mark);
        has(&self.job) && (self.clusters.is_empty() || self.clusters.iter().any(has))
    }

    /// Processes that live now, our own aside.
    fn living(&self) -> Vec<Pid> {
        let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
        let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        let own = std::process::id() as i32;
        all.flatten()
            .filter_map(pid)
            .filter(|pid| *pid != own)
            // Unreadable: another user's, or just gone. Empty: a zombie, to be reaped only.
            .filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|e| self.fit(&e)))
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// Ends what lives: TERM at once, KILL after `grace`. Returns how many were found. Looks again
    /// until nothing is left or `patience` after the grace has passed.
    pub(crate) fn sweep(&self, grace: Duration, patience: Duration, reap: impl Fn()) -> usize {
        let found = self.living();
        signal(&found, Signal::TERM);
        let start = Instant::now();
        loop {
            reap();
            let left = self.living();
            if left.is_empty() || start.elapsed() > grace + patience {
                return found.len();
            }
            if start.elapsed() >= grace {
                signal(&left, Signal::KILL);
            }
            std::thread::sleep(POLL);
        }
    }
}

fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // Gone in the meantime: good.
        let _ = kill_process(*pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::Secret;
    use std::process::{Command, Stdio};

    fn names(names: &[&str]) -> Vec<ClusterName> {
        names.iter().map(|name| ClusterName::new(*name).unwrap()).collect()
    }

    #[test]
    fn only_whole_entries_of_our_clusters_fit() {
        let job = Secret::parse(&"1".repeat(32)).unwrap().job();
        let marks = Marks::new(job, &names(&["a"]));
        let environ = |cluster: &str| format!("X=1\0{JOB}={job}\0{CLUSTER}={cluster}\0");
        assert!(marks.fit(environ("a").as_bytes()));
        assert!(!marks.fit(environ("ab").as_bytes()));
        assert!(!marks.fit(environ("b").as_bytes()));
        assert!(!marks.fit(format!("{JOB}={job}0\0{CLUSTER}=a\0").as_bytes()));
        assert!(Marks::new(job, &[]).fit(environ("b").as_bytes()));
    }

    #[test]
    fn a_process_that_ignores_term_and_left_its_session_is_ended() {
        let job = Secret::random().unwrap().job();
        let mut child = Command::new("setsid")
            .args(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
            .envs([(JOB, job.to_string()), (CLUSTER, "a".to_owned())])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let marks = Marks::new(job, &names(&["a"]));
        let deadline = Instant::now() + Duration::from_secs(10);
        while marks.living().is_empty() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        let found = marks.sweep(Duration::from_millis(50), Duration::from_secs(10), || {});
        assert!(found >= 1);
        child.wait().unwrap();
        assert!(marks.living().is_empty());
    }
}
