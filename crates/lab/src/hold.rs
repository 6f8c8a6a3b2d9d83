//! The holder: process 1 of a lab, which its namespaces and everything in them live and die
//! with. When it ends, in whatever way, the kernel kills every process of the lab and takes the
//! network down.

use crate::arrivals;
use crate::control::{self, Ask, DirectionStatus, Done, NodeStatus, Request, Status};
use crate::emulator::{self, Direction, Running};
use crate::error::{Doing as _, LabError};
use crate::flow::{Flow, Volume};
use crate::host;
use crate::network::{self, NodeHandles};
use crate::output;
use crate::plan;
use crate::spec::Spec;
use crate::state::{self, Holder, LabDir, NodeNamespaces, State};
use crate::sys::process::{self, Signals};
use crate::sys::{clock, namespace, wait_readable};
use crate::tcp;
use crate::traffic;
use crate::troubles::{Reach, Troubles};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, PipeReader, Read as _, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

/// How often finished milliseconds are written to the recording.
const COLLECT: Duration = Duration::from_millis(200);
const MILLISECOND: Duration = Duration::from_millis(1);
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest recording, bytes; a lab that is left up does not fill the disk.
const RECORDING_LIMIT: u64 = 1 << 30;

/// First stage: makes the namespaces, starts the holder in them, records who it is and passes on what it says. It ends the holder if
/// whoever waits for that ends before the lab is up, in whatever way.
///
/// # Errors
/// When the system does not allow it, or nobody waits any more.
pub fn begin(lab: &LabDir, lifeline: bool) -> Result<(), LabError> {
    // Signals to those who wait are not meant for it: it takes away what they leave.
    process::new_session();
    make_namespaces()?;
    let (reader, writer) = io::pipe().doing("cannot make a pipe")?;
    let mut holder = start_holder(lab, lifeline, writer.into())?;
    let passed = record(lab, holder.id()).and_then(|()| tell(&said_by_holder(reader)?));
    if passed.is_err() {
        let _ = holder.kill();
        // Everything that it had started ends before it.
        let _ = holder.wait();
    }
    passed
}

/// Whoever reads them goes on without waiting for the end of this process.
///
/// # Errors
/// When nobody does.
pub fn tell(words: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    out.write_all(words.as_bytes()).and_then(|()| out.flush()).map_err(|_| nobody_waits())
}

fn nobody_waits() -> LabError {
    LabError::NotUp("nobody waits for it any more".to_owned())
}

/// What the holder says until it closes its output, unless who shall hear it is gone before.
fn said_by_holder(mut reader: PipeReader) -> Result<String, LabError> {
    let stdout = io::stdout();
    let mut text = Vec::new();
    let mut part = [0; 1024];
    loop {
        // A pipe that cannot be read from is ready when its other end is closed.
        let fds = [reader.as_fd(), stdout.as_fd()];
        let ready = wait_readable(&fds, None).doing("cannot wait")?;
        if ready[1] {
            return Err(nobody_waits());
        }
        if ready[0] {
            match reader.read(&mut part).doing("cannot read from the holder")? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                length => text.extend_from_slice(&part[..length]),
            }
        }
    }
}

fn make_namespaces() -> Result<(), LabError> {
    let (user, group) = (process::user(), process::group());
    // Mounts are separated by the second stage: this one still needs the machine's `/proc`.
    let kinds = namespace::PID | namespace::NET | namespace::UTS | namespace::IPC;
    // Root in a container may lack the right, and still make a user namespace.
    if user != 0 || namespace::unshare(kinds).is_err() {
        namespace::unshare(namespace::USER).map_err(not_allowed)?;
        map_user(user, group).map_err(not_allowed)?;
        namespace::unshare(kinds).map_err(not_allowed)?;
    }
    Ok(())
}

fn start_holder(lab: &LabDir, lifeline: bool, stdout: Stdio) -> Result<Child, LabError> {
    let program = std::env::current_exe().doing("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["lab", "hold", "--inner"]).arg("--dir").arg(lab.path());
    if lifeline {
        command.arg("--lifeline");
    }
    command.stdin(Stdio::inherit()).stdout(stdout).stderr(Stdio::inherit());
    process::prepare(&mut command, false).spawn().doing("cannot start the holder")
}

/// A holder that nobody knows of could not be ended later.
fn record(lab: &LabDir, pid: u32) -> Result<(), LabError> {
    match Holder::of(pid) {
        Some(holder) => state::write_json(&lab.join("holder.json"), &holder),
        None => Err(LabError::NotUp("its holder ended at once".to_owned())),
    }
}

/// Becomes root of the new user namespace, standing for the user that started it.
fn map_user(user: u32, group: u32) -> std::io::Result<()> {
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Names the setting that stands in the way, where one is known.
fn not_allowed(error: std::io::Error) -> LabError {
    let value = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let settings = [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let cause = settings.iter().find(|(name, bad, _)| value(name).trim() == *bad);
    let remedy = match cause {
        Some((_, _, setting)) => format!("ask the administrator for `sysctl -w {setting}`"),
        None => "run it as root, or outside the container that forbids it".to_owned(),
    };
    LabError::NotAllowed(format!("{error}; {remedy}"))
}

/// Second stage: builds the lab, says `ready` (or why not) on the standard output, and stays
/// until it is told to stop or, with `lifeline`, until the standard input ends.
///
/// # Errors
/// When the lab cannot be built or kept.
pub fn hold(lab: &LabDir, lifeline: bool) -> Result<(), LabError> {
    process::new_session();
    let caught: Vec<i32> = [&process::ENDING[..], &[process::CHILD]].concat();
    let signals = Signals::take(&caught).doing("cannot take signals")?;
    let _shares = host::share();
    let mut holder = Holding::build(lab)?;
    tell("ready\n")?;
    process::close_output();
    let result = holder.serve(&signals, lifeline);
    lab.remove();
    result
}

/// A direction and who carries it.
struct Carried {
    from: String,
    to: String,
    /// The emulator, or of a plain cable the port whose counters tell what came out.
    by: Result<Running, String>,
}

/// A lab that is up.
struct Holding {
    home: PathBuf,
    origin: u64,
    directions: Vec<Carried>,
    recording: BufWriter<File>,
    /// Of single frames, if the lab file asks for it.
    arrivals: Option<BufWriter<File>>,
    recorded: u64,
    listener: UnixListener,
    names: Vec<String>,
    troubles: Troubles,
    /// The namespaces of the nodes exist as long as these.
    nodes: Vec<NodeHandles>,
}

impl Holding {
    fn build(lab: &LabDir) -> Result<Self, LabError> {
        let spec: Spec = state::read_json(&lab.join("spec.json"))?;
        let mut notes = Vec::new();
        prepare_mounts(lab, &spec, &mut notes)?;
        let nodes = network::build(&spec, lab.path(), &mut notes)?;
        let origin = clock::monotonic();
        let directions = start_links(&spec, origin)?;
        let recording = begin_file(&lab.join(traffic::FILE), traffic::HEADER)?;
        let begin_arrivals = || begin_file(&lab.join(arrivals::FILE), arrivals::HEADER);
        let arrivals = spec.arrivals.then(begin_arrivals).transpose()?;
        let listener = UnixListener::bind(lab.join(control::SOCKET)).doing("cannot listen")?;
        listener.set_nonblocking(true).doing("cannot listen")?;
        let names = plan::nodes(&spec).into_iter().map(|node| node.name).collect();
        let troubles = Troubles::new(&spec, lab.path())?;
        write_state(lab, spec, &nodes, notes)?;
        let home = lab.path().to_owned();
        Ok(Self {
            home,
            origin,
            directions,
            recording,
            arrivals,
            recorded: 0,
            listener,
            names,
            troubles,
            nodes,
        })
    }

    /// Runs the lab until the end.
    fn serve(&mut self, signals: &Signals, lifeline: bool) -> Result<(), LabError> {
        let stdin = std::io::stdin();
        loop {
            let mut fds = vec![signals.as_fd(), self.listener.as_fd()];
            if lifeline {
                fds.push(stdin.as_fd());
            }
            let ready = wait_readable(&fds, Some(self.pause())).doing("cannot wait")?;
            if ready.get(2) == Some(&true) && stdin.lock().read(&mut [0; 16]).unwrap_or(0) == 0 {
                return Ok(());
            }
            if ready[0] && ends(signals) {
                return Ok(());
            }
            // Nobody could reach a lab whose directory was removed.
            if !self.home.exists() {
                return Ok(());
            }
            self.collect();
            self.troubled(|troubles, now, reach| troubles.advance(now, reach));
            if ready[1] && self.answer() == Some(Request::Stop) {
                return Ok(());
            }
        }
    }

    /// How long there is nothing to do.
    fn pause(&self) -> Duration {
        let now = self.now();
        // Waiting counts in milliseconds, and must not end before the time.
        let next = self.troubles.next().map(|next| next.saturating_sub(now) + MILLISECOND);
        next.map_or(COLLECT, |next| next.min(COLLECT))
    }

    /// Time since the lab came up.
    fn now(&self) -> Duration {
        Duration::from_nanos(clock::monotonic().saturating_sub(self.origin))
    }

    fn troubled<T>(&mut self, act: impl FnOnce(&mut Troubles, Duration, &Reach<'_>) -> T) -> T {
        let now = self.now();
        let links = self.directions.chunks_exact(2).map(|pair| match pair {
            [Carried { by: Ok(forth), .. }, Carried { by: Ok(back), .. }] => Some([forth, back]),
            _ => None,
        });
        let reach = Reach { nodes: &self.nodes, links: links.collect() };
        act(&mut self.troubles, now, &reach)
    }

    fn make_fault(&mut self, ask: &Ask) -> Result<Done, String> {
        let words: Vec<&str> = ask.words.iter().map(String::as_str).collect();
        let what =
            self.troubled(|troubles, now, reach| troubles.make(now, &words, ask.lasts, reach));
        let at_ms = u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX);
        what.map(|what| Done { at_ms, what })
    }

    /// Answers one client; says what it wanted.
    fn answer(&mut self) -> Option<Request> {
        let (stream, _) = self.listener.accept().ok()?;
        let request = read_request(&stream)?;
        let mut text = match &request {
            Request::Fault(ask) => serde_json::to_string(&self.make_fault(ask)),
            Request::Nodes => {
                serde_json::to_string(&Status { nodes: self.node_status(), ..self.status() })
            }
            Request::Status | Request::Stop => serde_json::to_string(&self.status()),
        }
        .ok()?;
        text.push('\n');
        let _ = (&stream).write_all(text.as_bytes());
        Some(request)
    }

    /// Writes what has come since the last time.
    fn collect(&mut self) {
        self.collect_arrivals();
        self.collect_samples();
    }

    fn collect_arrivals(&mut self) {
        let Self { arrivals: Some(out), recorded, directions, .. } = self else { return };
        for Carried { from, to, by } in directions.iter() {
            let Ok(running) = by else { continue };
            let mut progress = running.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let arrivals = std::mem::take(&mut progress.arrivals);
            drop(progress);
            // Who reads it notices where it ends.
            for arrival in &arrivals {
                if *recorded > RECORDING_LIMIT {
                    break;
                }
                let _ = arrivals::write_row(out, from, to, arrival);
                *recorded += 40;
            }
        }
        let _ = out.flush();
    }

    /// Writes the milliseconds that have finished.
    fn collect_samples(&mut self) {
        let mut rows = Vec::new();
        for (index, direction) in self.directions.iter().enumerate() {
            let Ok(running) = &direction.by else { continue };
            let mut progress = running.progress.lock().unwrap_or_else(PoisonError::into_inner);
            rows.extend(std::mem::take(&mut progress.samples).into_iter().map(|s| (index, s)));
        }
        if rows.is_empty() || self.recorded > RECORDING_LIMIT {
            return;
        }
        rows.sort_by_key(|(_, sample)| sample.millisecond);
        for (index, sample) in rows {
            let Carried { from, to, .. } = &self.directions[index];
            let _ = traffic::write_row(&mut self.recording, from, to, &sample);
            self.recorded += 100;
        }
        // The next write tells again if the disk is full; the lab goes on without.
        let _ = self.recording.flush();
    }

    fn status(&self) -> Status {
        let up_ms = (clock::monotonic() - self.origin) / 1_000_000;
        let directions = self.directions.iter().map(Carried::status).collect();
        let faults = self.troubles.at_work();
        Status { up_ms, origin_ns: self.origin, directions, faults, nodes: Vec::new() }
    }

    /// None if they cannot be read: whoever needs them notices, everybody else goes on.
    fn node_status(&self) -> Vec<NodeStatus> {
        let counters = tcp::of_nodes(&self.nodes).unwrap_or_else(|error| {
            output::log(error);
            Vec::new()
        });
        let named = self.names.iter().cloned().zip(counters);
        named.map(|(name, tcp)| NodeStatus { name, tcp }).collect()
    }
}

impl Carried {
    fn status(&self) -> DirectionStatus {
        let (from, to) = (self.from.clone(), self.to.clone());
        let running = match &self.by {
            Ok(running) => running,
            Err(port) => {
                let delivered = received(port);
                return DirectionStatus { from, to, delivered, ..DirectionStatus::default() };
            }
        };
        let progress = running.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        DirectionStatus {
            from,
            to,
            emulated: true,
            realtime: progress.realtime == Some(true),
            traffic: progress.traffic,
            queued: progress.queued,
            connections: progress.connections,
            delivered: progress.delivered,
            failures: progress.failures,
            lateness_p50_us: microseconds(progress.lateness.quantile(0.5)),
            lateness_p99_us: microseconds(progress.lateness.quantile(0.99)),
            lateness_max_us: microseconds(progress.lateness.highest()),
        }
    }
}

/// What a device has received, as the kernel counts.
fn received(device: &str) -> Volume {
    let count = |name: &str| {
        let path = format!("/sys/class/net/{device}/statistics/{name}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Volume { bytes: count("rx_bytes"), packets: count("rx_packets") }
}

/// A file that begins with this line.
fn begin_file(path: &Path, header: &str) -> Result<BufWriter<File>, LabError> {
    let what = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).doing(what())?);
    writeln!(out, "{header}").and_then(|()| out.flush()).doing(what())?;
    Ok(out)
}

fn read_request(stream: &UnixStream) -> Option<Request> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(control::MAX_LINE)).read_line(&mut line).ok()?;
    Request::of(&line)
}

/// Takes the signals that came; orphans of the lab are children of the holder.
fn ends(signals: &Signals) -> bool {
    let mut ends = false;
    while let Some(signal) = signals.next() {
        ends |= signal.number != process::CHILD;
    }
    while process::reap().is_some() {}
    ends
}

fn prepare_mounts(lab: &LabDir, spec: &Spec, notes: &mut Vec<String>) -> Result<(), LabError> {
    namespace::unshare(namespace::MOUNT).doing("cannot make a mount namespace")?;
    namespace::keep_mounts_here().doing("cannot separate the mounts")?;
    if let Err(error) = namespace::mount_fresh("proc", Path::new("/proc")) {
        notes.push(format!("processes in the lab see the machine's own /proc ({error})"));
    }
    network::show_hosts(spec, lab.path(), None, notes)
}

fn start_links(spec: &Spec, origin: u64) -> Result<Vec<Carried>, LabError> {
    let mut directions = Vec::new();
    for (index, link) in spec.links.iter().enumerate() {
        let [from, to] =
            [link.between.0, link.between.1].map(|site| spec.site_name(site).to_owned());
        let by = if link.emulate {
            let what = format!("cannot start the emulator {from} - {to}");
            emulate(spec, index, origin, &format!("{from}-{to}")).doing(what)?.map(Ok)
        } else {
            [true, false].map(|end| Err(plan::link_port(index, end)))
        };
        let ends = [(from.clone(), to.clone()), (to, from)];
        directions.extend(ends.into_iter().zip(by).map(|((from, to), by)| Carried {
            from,
            to,
            by,
        }));
    }
    Ok(directions)
}

/// Both directions of a link.
fn emulate(spec: &Spec, index: usize, origin: u64, name: &str) -> io::Result<[Running; 2]> {
    let link = &spec.links[index];
    let direction = |backwards: bool| {
        let flow = Flow::new(link, spec.seed, 2 * index as u64 + u64::from(backwards), origin);
        let [rx, tx] = [backwards, !backwards].map(|end| plan::emulator_port(index, end));
        let direction = Direction::new(link, &rx, &tx, spec.gso, flow)?;
        Ok::<_, io::Error>(direction.recording_arrivals(spec.arrivals))
    };
    emulator::start([direction(false)?, direction(true)?], name)
}

fn write_state(
    lab: &LabDir,
    spec: Spec,
    nodes: &[NodeHandles],
    notes: Vec<String>,
) -> Result<(), LabError> {
    let namespace = fs::metadata("/proc/self/ns/pid").doing("cannot read /proc/self/ns")?;
    let numbers = |node: &NodeHandles| NodeNamespaces {
        net: node.net.as_raw_fd(),
        uts: node.uts.as_raw_fd(),
        ipc: node.ipc.as_raw_fd(),
        mount: node.mount.as_raw_fd(),
    };
    let rootless = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().nth(1) != Some("0"));
    let state = State {
        spec,
        pid_namespace: namespace.ino(),
        rootless,
        nodes: nodes.iter().map(numbers).collect(),
        notes,
    };
    state::write_json(&lab.join(state::STATE), &state)
}
