//! A bench for running the real `gridmpi` with launchers and ranks that behave on command.
//!
//! The fake launcher is a shell script; its ranks are this test program again, playing the part
//! that the environment names (see [`play_rank`]). Every process of a test carries a mark in its
//! environment, so that leftovers are found.
#![allow(dead_code, reason = "each test program uses its own part of the bench")]

use gridmpi_bootstrap::{DataModel, JobEnv, JobKey, ProcInfo, Registration, Settings};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MARK: &str = "GRIDMPI_TEST_MARK";
/// A test that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(60);

const LAUNCHER: &str = r#"#!/bin/sh
# A launcher after hydra's manner. Every cluster's behaviour is in FAKE_<cluster>.
[ "$1" = --version ] && { echo "HYDRA build details:"; exit 0; }
ranks=1
for word; do
    [ "$previous" = -n ] && ranks=$word
    previous=$word
done
eval "behaviour=\$FAKE_$GRIDMPI_CLUSTER"
export FAKE_RANKS="$ranks" FAKE_BEHAVIOUR="${behaviour:-ok}"
env >"$FAKE_DIR/$GRIDMPI_CLUSTER.env"
echo "$@" >"$FAKE_DIR/$GRIDMPI_CLUSTER.args"
case $FAKE_BEHAVIOUR in
    fail:*) exit "${FAKE_BEHAVIOUR#fail:}" ;;
    kill) kill -9 $$ ;;
    child:*) FAKE_BEHAVIOUR=${FAKE_BEHAVIOUR#child:}; "$FAKE_EXE" --exact rank --ignored --nocapture; exit $? ;;
esac
exec "$FAKE_EXE" --exact rank --ignored --nocapture
"#;

/// A launcher that prints more to stderr than a pipe holds, in whole pages, and does not heed TERM.
pub const FLOODER: &str = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo HYDRA build details:\n\
                           trap '' TERM\nexec dd if=/dev/zero bs=4096 count=10000 status=none >&2\n";

/// A directory with a launcher, a library and whatever a test puts there.
pub struct Bench {
    pub directory: PathBuf,
    mark: String,
}

/// What a run of `gridmpi` came to.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Bench {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(format!("gridmpi-test-{mark}"));
        fs::create_dir_all(&directory).unwrap();
        let bench = Self { directory, mark };
        bench.script("mpiexec", LAUNCHER);
        // Something harmless that the dynamic linker takes for a library.
        for family in ["mpich", "openmpi"] {
            let name = bench.path(&format!("libgridmpi-{family}.so"));
            std::os::unix::fs::symlink(harmless_library(), name).unwrap();
        }
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// A file that nobody else may read.
    pub fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    pub fn launcher(&self) -> String {
        self.path("mpiexec").display().to_string()
    }

    /// `--cluster NAME=LAUNCHER:RANKS` with the fake launcher.
    pub fn cluster(&self, name: &str, ranks: u32) -> String {
        format!("--cluster={name}={}:{ranks}", self.launcher())
    }

    pub fn command(&self) -> Command {
        self.dressed(heeding(env!("CARGO_BIN_EXE_gridmpi")))
    }

    /// `gridmpi` started by a shell, which runs `script` with it as `$0` and its arguments as `$@`.
    pub fn by_shell(&self, script: &str) -> Command {
        let mut shell = heeding("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_gridmpi")]);
        self.dressed(shell)
    }

    fn dressed(&self, mut command: Command) -> Command {
        command
            .env(MARK, &self.mark)
            .env("GRIDMPI_LIBDIR", &self.directory)
            .env("FAKE_EXE", std::env::current_exe().unwrap())
            .env("FAKE_DIR", &self.directory)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env_remove("LD_PRELOAD")
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        command
    }

    /// Runs `gridmpi run` over clusters a and b of two ranks each, behaving as told.
    pub fn two(&self, a: &str, b: &str, args: &[&str]) -> Outcome {
        let mut command = self.command();
        command.arg("run").args([self.cluster("a", 2), self.cluster("b", 2)]).args(args);
        command.args(["--", "sh"]).env("FAKE_a", a).env("FAKE_b", b);
        self.finish(command)
    }

    /// Runs to the end, and checks that nothing is left.
    pub fn finish(&self, mut command: Command) -> Outcome {
        self.outcome(self.start(&mut command))
    }

    pub fn start(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap()
    }

    pub fn outcome(&self, mut child: Child) -> Outcome {
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let status = ended(&mut child);
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        let status = status.unwrap_or_else(|late| panic!("{late}\nIt said:\n{out}{err}"));
        let outcome = Outcome { code: status.code(), out, err };
        self.nothing_left();
        outcome
    }

    /// Has what `child` says on stderr written into a file, where it can be looked at while it runs.
    pub fn log(&self, child: &mut Child) -> PathBuf {
        let path = self.path(&format!("{}.err", child.id()));
        let (mut from, mut to) = (child.stderr.take().unwrap(), fs::File::create(&path).unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        path
    }

    /// Waits until this stands in a log.
    pub fn said(&self, log: &Path, part: &str) {
        self.until(part, || fs::read_to_string(log).unwrap().contains(part));
    }

    /// Runs to the end beside others that stay.
    pub fn finish_beside(&self, mut command: Command) -> Outcome {
        let mut child = self.start(&mut command);
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let status = wait(&mut child);
        Outcome { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
    }

    /// Waits for processes with our mark to go; fails if they stay.
    pub fn nothing_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut left = self.marked();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            left = self.marked();
        }
        assert!(left.is_empty(), "left running: {left:?}");
    }

    /// Processes of this test that live.
    pub fn marked(&self) -> Vec<(u32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| {
                let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
            .map(|pid| (pid, arguments(pid)))
            .collect()
    }

    /// The rank that lives, if it is the only one.
    pub fn rank(&self) -> Option<u32> {
        let is_rank = |(pid, args): (u32, String)| args.contains("--exact rank").then_some(pid);
        let ranks: Vec<_> = self.marked().into_iter().filter_map(is_rank).collect();
        if let [only] = ranks[..] { Some(only) } else { None }
    }

    /// Waits until nothing more fits into the pipe of what `child` says on stderr, which nobody reads: see [`FLOODER`].
    pub fn until_full(&self, child: &Child) {
        let pipe = child.stderr.as_ref().unwrap();
        let most = u64::try_from(rustix::pipe::fcntl_getpipe_size(pipe).unwrap()).unwrap();
        self.until("a full pipe", || rustix::io::ioctl_fionread(pipe).unwrap() == most);
    }

    /// Waits until `found` is true.
    pub fn until(&self, what: &str, mut found: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !found() {
            assert!(Instant::now() < deadline, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Outcome {
    #[track_caller]
    pub fn expect(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is missing from {self:#?}");
        }
    }
}

/// A command that heeds signals, also where the tests run with some ignored: behind `&` of a script, or by `nohup`.
fn heeding(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", program]);
    command
}

/// Sends a signal, by its name.
pub fn send(signal: &str, pid: u32) {
    let arguments = [format!("-{signal}"), pid.to_string()];
    assert!(Command::new("kill").args(arguments).status().unwrap().success());
}

/// What a process does, in the kernel's letter: `T` if it is stopped.
pub fn state(pid: u32) -> char {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

pub fn arguments(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

fn harmless_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded = maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned()));
    loaded.map(PathBuf::from).find(|path| is_library(path)).expect("no library is loaded")
}

fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.so"))
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.unwrap().read_to_end(&mut bytes).unwrap();
        text_of(&bytes)
    })
}

pub fn wait(child: &mut Child) -> ExitStatus {
    ended(child).unwrap_or_else(|late| panic!("{late}"))
}

/// How it ended; or what was there when it had not, before it was killed for that.
fn ended(child: &mut Child) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status);
        }
        if Instant::now() > deadline {
            let columns = "pid,ppid,stat,etimes,wchan:24,args";
            let all = Command::new("ps").args(["-e", "--forest", "-o", columns]).output();
            let all = all.map_or_else(|error| error.to_string(), |all| text_of(&all.stdout));
            child.kill().unwrap();
            return Err(format!("gridmpi did not end (process {}):\n{all}", child.id()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The part of a rank: all local ranks of a cluster in one process, so to speak.
pub fn play_rank() {
    let behaviour = std::env::var("FAKE_BEHAVIOUR").unwrap_or_else(|_| "ok".to_owned());
    let env = JobEnv::from_process().unwrap().expect("not started by gridmpi");
    // Under a real launcher, only local rank 0 speaks for its cluster.
    let local = ["PMI_RANK", "OMPI_COMM_WORLD_RANK"].iter().find_map(|n| std::env::var(n).ok());
    if local.is_some_and(|rank| rank != "0") {
        std::process::exit(0);
    }
    let size = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "FAKE_RANKS"];
    let size = size.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let size: u32 = size.parse().unwrap_or(1);
    std::process::exit(behave(&behaviour, env, size));
}

fn behave(behaviour: &str, mut env: JobEnv, size: u32) -> i32 {
    let (what, number) = behaviour.split_once(':').unwrap_or((behaviour, "0"));
    let number: i32 = number.parse().unwrap_or(0);
    let mut registration = registration(&env, size);
    match what {
        "noinit" => return number,
        "never" => sleep(),
        "wrongkey" => env.key = JobKey::from_bytes([9; 32]),
        "count" => registration = self::registration(&env, number as u32),
        "unknown" => registration.cluster = gridmpi_bootstrap::ClusterName::new("zz").unwrap(),
        "model" => registration.data_model.long = 4,
        _ => {}
    }
    let control = match gridmpi_bootstrap::register(&env, registration, env.deadline()) {
        Ok((_, control)) => control,
        Err(error) => {
            eprintln!("rank: {error}");
            return 17;
        }
    };
    match what {
        "abort" => {
            control.abort(number, "the test wants it");
            return 9;
        }
        // Once the stubborn have put on their armour.
        "abort_later" => {
            while !stubborn_file().exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            control.abort(number, "the test wants it");
        }
        "exit" => return number,
        "late" => {
            control.finalized();
            return number;
        }
        "die" => {
            let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        }
        "hang" => sleep(),
        "until_go" => {
            while !PathBuf::from(std::env::var_os("FAKE_DIR").unwrap()).join("go").exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            println!("[0] {} goes", env.cluster);
        }
        "stubborn" => stubborn(),
        "stdin" => {
            std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).unwrap();
        }
        // Not to the end: Open MPI 5.0.11 never tells its ranks that stdin has ended.
        "line" if env.cluster.as_str() == "a" => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            println!("{line}");
        }
        "shout" => println!("\nshout from {}", env.cluster),
        "flood" => (0..number).for_each(|n| println!("[0] line {n:090}")),
        "say" => println!("[0] hello from {}", env.cluster),
        _ => {}
    }
    control.finalized();
    0
}

fn sleep() -> ! {
    std::thread::sleep(LIMIT);
    std::process::exit(99)
}

/// Ignores TERM, and has a child in another session that does, too.
fn stubborn() -> ! {
    let stay = "trap '' TERM INT HUP QUIT; >\"$0\"; while :; do sleep 1; done";
    let file = stubborn_file();
    let away = "setsid sh -c \"$1\" /dev/null & exec sh -c \"$1\" \"$2\"";
    let error = Command::new("sh").args(["-c", away, "sh", stay]).arg(file).exec();
    panic!("{error}");
}

fn stubborn_file() -> PathBuf {
    PathBuf::from(std::env::var_os("FAKE_DIR").unwrap()).join("stubborn")
}

pub fn registration(env: &JobEnv, ranks: u32) -> Registration {
    let proc = |rank| ProcInfo {
        addresses: vec!["127.0.0.1:9".parse().unwrap()],
        host: "here".to_owned(),
        pid: rank,
    };
    let _: &Settings = &env.settings;
    Registration {
        cluster: env.cluster.clone(),
        procs: (0..ranks).map(proc).collect(),
        data_model: DataModel::native(16),
        vendor: "Fake MPI".to_owned(),
        tag_ub: i32::MAX,
        credit: None,
        has_relays: false,
    }
}
