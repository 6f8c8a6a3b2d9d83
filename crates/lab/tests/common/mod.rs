//! A lab of its own for each test, in a directory of its own.

#![allow(dead_code, missing_docs)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_gridmpi-lab");

/// A directory of labs, removed with everything in it.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gridmpi-lab-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// Writes a lab file.
    pub fn file(&self, text: &str) -> PathBuf {
        let file = self.path.join("lab.toml");
        fs::write(&file, text).unwrap();
        file
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("GRIDMPI_LAB_DIR", self.labs()).env_remove("GRIDMPI_LAB");
        command
    }

    pub fn labs(&self) -> PathBuf {
        self.path.join("labs")
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Processes that were started for a lab of this place and still run.
    pub fn processes(&self) -> Vec<String> {
        let mark = self.path.to_string_lossy().into_owned();
        let mine = std::process::id();
        let of = |entry: &fs::DirEntry| -> Option<String> {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&mark);
            let found = pid != mine && (has(&line) || has(&environment));
            found.then(|| format!("{pid}: {}", String::from_utf8_lossy(&line).replace('\0', " ")))
        };
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| of(&entry)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run(["down", "--all"]);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A lab that is up.
pub struct Lab {
    pub place: Place,
}

impl Lab {
    pub fn up(text: &str) -> Self {
        let place = Place::new();
        let file = place.file(text);
        let output = place.run([OsStr::new("up"), file.as_os_str()]);
        assert!(output.status.success(), "{}", said(&output));
        Self { place }
    }

    pub fn exec_command(&self, node: &str, command: &[&str]) -> Command {
        self.place.command([&["exec", node, "--"], command].concat())
    }

    /// Runs a command on a node to its successful end; returns its output.
    pub fn exec(&self, node: &str, command: &[&str]) -> String {
        let output = self.exec_command(node, command).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{node}: {command:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts an iperf3 server for one test and waits until it listens.
    pub fn iperf_server(&self, node: &str) -> Child {
        let mut command = self.exec_command(node, &["iperf3", "-s", "-1", "--forceflush"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("listening")), "iperf3 does not listen");
        child
    }

    /// Goodput in bit/s of an iperf3 run from one node to another's wide-area address.
    pub fn iperf(&self, from: &str, to: &str, address: &str, arguments: &[&str]) -> f64 {
        let mut server = self.iperf_server(to);
        let text = self.exec(from, &[&["iperf3", "-J", "-c", address], arguments].concat());
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        // What else the server says must not fill its pipe.
        let _ = std::io::copy(server.stdout.as_mut().unwrap(), &mut std::io::sink());
        server.wait().unwrap();
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0)
    }

    /// The direction's status, once nothing is on the way any more.
    pub fn direction(&self, from: &str, to: &str) -> serde_json::Value {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let output = self.place.run(["status", "--json"]);
            assert!(output.status.success(), "{}", said(&output));
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let found = status["directions"].as_array().unwrap().iter().find(|direction| {
                direction["from"].as_str() == Some(from) && direction["to"].as_str() == Some(to)
            });
            let found = found.expect("no such direction").clone();
            let of = |name: &str| found["traffic"][name]["packets"].as_u64().unwrap();
            let delivered = found["delivered"]["packets"].as_u64().unwrap();
            let is_quiet = found["queued"] == 0 && of("left") == delivered + of("lost");
            if is_quiet || found["emulated"] == false || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn save(&self) -> PathBuf {
        let out = self.place.path.join("out");
        let output = self.place.run([OsStr::new("save"), OsStr::new("--out"), out.as_os_str()]);
        assert!(output.status.success(), "{}", said(&output));
        out
    }
}

pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Waits until `condition` holds, at most ten seconds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The network namespaces of all processes on this machine.
pub fn network_namespaces() -> Vec<PathBuf> {
    let link = |entry: fs::DirEntry| fs::read_link(entry.path().join("ns/net")).ok();
    let mut all: Vec<_> = fs::read_dir("/proc").unwrap().flatten().filter_map(link).collect();
    all.sort();
    all.dedup();
    all
}

/// The network devices of this namespace.
pub fn devices() -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut all: Vec<_> = fs::read_dir("/sys/class/net").unwrap().flatten().map(name).collect();
    all.sort();
    all
}

pub fn two(link: &str) -> String {
    clusters(&["a", "b"], 2) + &format!("[[link]]\nbetween = [\"a\", \"b\"]\n{link}")
}

pub fn clusters(names: &[&str], nodes: u32) -> String {
    let cluster = |name| format!("[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n");
    names.iter().map(cluster).collect()
}

pub fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory)
        .map_or(true, |entries| entries.flatten().all(|entry| !entry.path().is_dir()))
}
