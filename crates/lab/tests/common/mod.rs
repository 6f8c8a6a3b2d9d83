//! A lab of its own for each test, in a directory of its own.

#![allow(dead_code, missing_docs)]

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
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
        let result: Value = serde_json::from_str(&text).unwrap();
        // What else the server says must not fill its pipe.
        let _ = std::io::copy(server.stdout.as_mut().unwrap(), &mut std::io::sink());
        server.wait().unwrap();
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0)
    }

    /// The first status that is as wanted; fails after 10 s without one.
    pub fn status_when(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let output = self.place.run(["status", "--json"]);
            assert!(output.status.success(), "{}", said(&output));
            let status: Value = serde_json::from_slice(&output.stdout).unwrap();
            if is_wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not as it should be for 10 s: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The direction's status, once nothing is on the way any more.
    pub fn direction(&self, from: &str, to: &str) -> Value {
        let status = self.status_when(|status| {
            let found = direction(status, from, to);
            let of = |name: &str| found["traffic"][name]["packets"].as_u64().unwrap();
            let delivered = found["delivered"]["packets"].as_u64().unwrap();
            let is_quiet = found["queued"] == 0 && of("left") == delivered + of("lost");
            is_quiet || found["emulated"] == false
        });
        direction(&status, from, to).clone()
    }

    /// Starts a server that sends back what it gets, and waits until it listens.
    pub fn server(&self, node: &str) -> Talk {
        self.server_as(node, &[])
    }

    /// The same on a socket that speaks IPv6, and by it IPv4.
    pub fn dual_server(&self, node: &str) -> Talk {
        self.server_as(node, &["dual"])
    }

    fn server_as(&self, node: &str, arguments: &[&str]) -> Talk {
        let command = [&["python3", "-c", SERVER, PORT], arguments].concat();
        let mut talk = Talk::start(self.exec_command(node, &command));
        assert_eq!(talk.line(), "listening");
        talk
    }

    /// Connects to such a server; says how it went: the client's own address, or the error.
    pub fn dial(&self, node: &str, address: &str) -> (Talk, String) {
        let arguments = ["python3", "-c", CLIENT, address, PORT];
        let mut talk = Talk::start(self.exec_command(node, &arguments));
        let said = talk.line();
        (talk, said)
    }

    /// Whether a ping comes back within five seconds.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.pings(from, to, "5")
    }

    /// Whether no ping comes back for a second.
    pub fn is_cut_off(&self, from: &str, to: &str) -> bool {
        !self.pings(from, to, "1")
    }

    /// Until the first answer, or for so many seconds.
    fn pings(&self, from: &str, to: &str, seconds: &str) -> bool {
        let ping = ["ping", "-n", "-c", "1", "-i", "0.2", "-w", seconds, to];
        let mut command = self.exec_command(from, &ping);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// Makes a fault; what it printed.
    pub fn fault(&self, arguments: &[&str]) -> String {
        let output = self.place.run([&["fault"], arguments].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The record of faults.
    pub fn faults(&self) -> String {
        fs::read_to_string(self.place.labs().join("lab/faults.txt")).unwrap()
    }

    pub fn save(&self) -> PathBuf {
        let out = self.place.path.join("out");
        let output = self.place.run([OsStr::new("save"), OsStr::new("--out"), out.as_os_str()]);
        assert!(output.status.success(), "{}", said(&output));
        out
    }
}

const PORT: &str = "5000";

/// Says whom it serves, and what ended a connection.
const SERVER: &str = r#"
import socket, sys, threading
dual = len(sys.argv) > 2
family = socket.AF_INET6 if dual else socket.AF_INET
server = socket.create_server(("", int(sys.argv[1])), family=family, dualstack_ipv6=dual)
print("listening", flush=True)
def serve(connection, peer):
    print(peer[0], flush=True)
    try:
        while got := connection.recv(1):
            connection.sendall(got)
        print("closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
while True:
    threading.Thread(target=serve, args=server.accept(), daemon=True).start()
"#;

/// For each number that it reads, sends a byte and waits so many seconds for its return.
const CLIENT: &str = r#"
import socket, sys
try:
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)
except OSError as error:
    print(type(error).__name__ if type(error) != OSError else error.strerror, flush=True)
    sys.exit()
print(connection.getsockname()[0], flush=True)
for line in sys.stdin:
    try:
        connection.settimeout(float(line))
        connection.sendall(b"x")
        print("ok" if connection.recv(1) else "closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"#;

/// One of these at work; it ends with this value.
pub struct Talk {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Has a client send something; says what came of it in so many seconds.
    pub fn say(&mut self, seconds: f64) -> String {
        writeln!(self.input, "{seconds}").unwrap();
        self.line()
    }
}

impl Talk {
    /// After `say` was late: waits for what is due since then. The connection sends it again by itself.
    pub fn line_after_resend(&mut self) -> String {
        writeln!(self.input, "30").unwrap();
        self.line()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn direction<'a>(status: &'a Value, from: &str, to: &str) -> &'a Value {
    let directions = status["directions"].as_array().unwrap();
    let is_it = |direction: &&Value| direction["from"] == from && direction["to"] == to;
    directions.iter().find(is_it).expect("no such direction")
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
