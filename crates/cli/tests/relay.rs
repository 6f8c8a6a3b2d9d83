//! `gridmpi relay` as it is run by hand and by systemd: settings, signals, what it says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

const GRIDMPI: &str = env!("CARGO_BIN_EXE_gridmpi");

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("gridmpi-cli-relay-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gridmpi(args: &[&str]) -> Output {
    Command::new(GRIDMPI).arg("relay").args(args).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A relay that is killed when the test ends in whatever way.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(args: &[&str], notify: &Path) -> Self {
        let mut child = Command::new(GRIDMPI)
            .arg("relay")
            .args(args)
            .env("NOTIFY_SOCKET", notify)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads on to a line that holds this.
    fn line(&mut self, part: &str) -> String {
        for line in &mut self.lines {
            let line = line.unwrap();
            if line.contains(part) {
                return line;
            }
        }
        panic!("it ended without saying {part}");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address.parse::<SocketAddr>().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: relay\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of `address=` in a line of the JSON log.
fn address(line: &str) -> String {
    line.split_once("\"address\":\"").unwrap().1.split('"').next().unwrap().to_owned()
}

#[test]
fn an_identity_is_made_once_and_its_fingerprint_shown() {
    let place = Place::new("init");
    let directory = place.at("identity");
    let made = gridmpi(&["init", "--directory", text(&directory)]);
    assert!(made.status.success(), "{made:?}");
    let shown = gridmpi(&["fingerprint", "--directory", text(&directory)]);
    assert_eq!(made.stdout, shown.stdout);
    assert!(String::from_utf8(shown.stdout).unwrap().starts_with("sha256:"));
    let again = gridmpi(&["init", "--directory", text(&directory)]);
    assert!(!again.status.success());
    assert!(String::from_utf8(again.stderr).unwrap().contains("is there already"));
}

#[test]
fn a_fingerprint_that_cannot_be_written_is_a_failure() {
    let place = Place::new("full");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for action in ["init", "fingerprint"] {
        let directory = place.at("identity");
        let mut command = Command::new(GRIDMPI);
        command.args(["relay", action, "--directory", text(&directory)]);
        let said = command.stdout(full()).output().unwrap();
        let expected = "gridmpi: cannot write to the standard output: No space left on device";
        let err = String::from_utf8(said.stderr).unwrap();
        assert!(err.starts_with(expected), "{err}");
        assert_eq!(said.status.code(), Some(1), "{action}: {err}");
    }
    // Nor can the reason, but for which it ends in the same way.
    let mut command = Command::new(GRIDMPI);
    command.args(["relay", "fingerprint", "--directory", "/nowhere"]);
    assert_eq!(command.stderr(full()).status().unwrap().code(), Some(1));
}

/// `gridmpi relay` that can write files of so many blocks of 512 bytes only, as on a disk that is nearly full.
fn cramped(blocks: u32, args: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" relay \"$@\"");
    shell.args(["-c", &script, GRIDMPI]).args(args).output().unwrap()
}

#[test]
fn what_cannot_be_written_wholly_is_not_left_behind() {
    let place = Place::new("cramped");
    let (token, identity) = (place.at("token"), place.at("identity"));
    let token = ["token", text(&token)];
    let init = ["init", "--directory", text(&identity)];
    // The key has room in one block, the certificate has not.
    for (blocks, args, file) in
        [(0, &token[..], "token"), (0, &init, "relay.key"), (1, &init, "relay.crt")]
    {
        let failed = cramped(blocks, args);
        let err = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{file}: {err}");
        assert!(err.contains(file) && err.contains("File too large"), "{err}");
        let left = fs::read_dir(&identity).map(Iterator::count).unwrap_or_default();
        assert!(left == 0 && !place.at("token").exists(), "{file}");
    }
    for args in [&token[..], &init] {
        assert!(gridmpi(args).status.success(), "{args:?}");
    }
}

#[test]
fn mistakes_are_said_before_anything_is_served() {
    let place = Place::new("mistakes");
    let token = place.at("token");
    assert!(gridmpi(&["token", text(&token)]).status.success());
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let open = place.at("open.toml");
    fs::write(&open, "[relay]\n").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["--config", text(&open)], "everybody may write"),
        (&["--token-file", text(&token)], "chmod 600"),
        (&["--config", "/nowhere/relay.toml"], "cannot read /nowhere/relay.toml"),
        (&["--peer", "host:1"], "say its fingerprint too"),
        (&["--listen", "203.0.113.1:1", "--token-file", "/dev/null"], "64 hexadecimal digits"),
    ];
    for (args, expected) in cases {
        let output = gridmpi(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn two_sites_meet_at_a_public_relay_by_the_lines_that_it_prints() {
    let place = Place::new("public");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let (own, site) = (place.at("public"), place.at("site"));
    let public = ["--public", "--listen", &listen, "--identity", text(&own)];
    let refused = gridmpi(&public);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("--allow sha256:..."), "{said}");
    let lines = String::from_utf8(refused.stdout).unwrap();
    let peer = lines.lines().find_map(|line| line.split_once("--peer ")).unwrap().1.to_owned();
    assert!(lines.contains(&format!("address = \"{listen}\"")), "{lines}");

    let made = gridmpi(&["init", "--directory", text(&site)]);
    let print = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut relay = Running::start(&[&public[..], &["--allow", &print]].concat(), Path::new(""));
    relay.line("listening");
    let dialler = ["--listen", "127.0.0.1:0", "--identity", text(&site), "--peer", &peer];
    let mut dialler = Running::start(&dialler, Path::new(""));
    dialler.line("connected to a relay");
    relay.line("connected to a relay");
    // The same settings, in a file, are what doctor looks at.
    let look = |name: &str, identity: &Path, fingerprint: &str| {
        let settings = place.at(name);
        let own = format!("[relay]\nidentity = \"{}\"\n", text(identity));
        let peer = format!(
            "[[peer]]\nname = \"p\"\naddress = \"{listen}\"\nfingerprint = \"{fingerprint}\"\n"
        );
        fs::write(&settings, own + &peer).unwrap();
        let output = Command::new(GRIDMPI)
            .args(["doctor", "--verbose", "--relay", text(&settings)])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let theirs = peer.split_once('=').unwrap().1;
    let (code, said) = look("right.toml", &site, theirs);
    assert!(code == Some(0) && said.contains("[peer]"), "{said}");
    let (code, said) = look("wrong.toml", &site, &print);
    assert!(
        code == Some(1)
            && said.contains("[peer-certificate]")
            && said.contains(&format!("fingerprint = \"{theirs}\"")),
        "{said}"
    );
    let stranger = place.at("stranger");
    let unknown =
        String::from_utf8(gridmpi(&["init", "--directory", text(&stranger)]).stdout).unwrap();
    let (code, said) = look("unknown.toml", &stranger, theirs);
    assert!(
        code == Some(1) && said.contains("[peer-refused]") && said.contains(unknown.trim()),
        "{said}"
    );
    // What is not encrypted has no place there.
    let plain = gridmpi(&["--public", "--secret-file", "/dev/null"]);
    assert!(String::from_utf8(plain.stderr).unwrap().contains("cannot be used with"));
}

#[test]
fn doctor_looks_at_relays_that_processes_are_told_of() {
    let place = Place::new("beside");
    let tokens = ["site", "other"].map(|name| place.at(name));
    for token in &tokens {
        assert!(gridmpi(&["token", text(token)]).status.success());
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let mut relay =
        Running::start(&["--listen", &listen, "--token-file", text(&tokens[0])], Path::new(""));
    relay.line("listening");
    let look = |token: &str| {
        let settings = place.at("relay.toml");
        let own = format!("[relay]\nlisten = [\"127.0.0.1:7118\"]\nbeside = [\"{listen}\"]\n");
        fs::write(&settings, format!("{own}[[token]]\nfile = \"{token}\"\n")).unwrap();
        let mut doctor = Command::new(GRIDMPI);
        doctor.args(["doctor", "--verbose", "--relay", text(&settings)]);
        let output = doctor.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = look("site");
    assert!(code == Some(0) && said.contains("[beside]"), "{said}");
    let (code, said) = look("other");
    let is_named = said.contains("[beside-token]") && said.contains("[[token]] `other`");
    assert!(code == Some(1) && is_named, "{said}");
    drop(relay);
    let (code, said) = look("site");
    assert!(code == Some(1) && said.contains("[beside-unreachable]"), "{said}");
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_journal_is_told_how_grave_a_line_is() {
    let place = Place::new("journal");
    assert!(gridmpi(&["token", text(&place.at("token"))]).status.success());
    let settings = place.at("relay.toml");
    fs::write(&settings, "[relay]\nlisten = [\"127.0.0.1:0\"]\n[[token]]\nfile = \"token\"\n")
        .unwrap();
    for is_named in [true, false] {
        let (reader, writer) = std::io::pipe().unwrap();
        let seen = fs::metadata(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
        let inode = if is_named { seen.ino() } else { seen.ino() + 1 };
        let mut command = Command::new(GRIDMPI);
        command.args(["relay", "--config", text(&settings)]).stderr(writer);
        command.env("JOURNAL_STREAM", format!("{}:{inode}", seen.dev()));
        let child = Killed(command.spawn().unwrap());
        // Or the pipe would not end with the relay.
        drop(command);
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let told = lines.find(|line| line.contains("listening")).unwrap();
        assert_eq!(told.starts_with("<6>2"), is_named, "{told}");
        fs::write(&settings, "[relay]\nlisten = 7\n").unwrap();
        let pid = child.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().unwrap().success());
        let told = lines.find(|line| line.contains("the old go on")).unwrap();
        assert_eq!(told.starts_with("<3>2"), is_named, "{told}");
        fs::write(&settings, "[relay]\nlisten = [\"127.0.0.1:0\"]\n[[token]]\nfile = \"token\"\n")
            .unwrap();
    }
}

#[test]
fn a_relay_by_settings_lives_through_signals() {
    let place = Place::new("settings");
    assert!(gridmpi(&["token", text(&place.at("token"))]).status.success());
    let settings = place.at("relay.toml");
    let good = "[relay]\nlisten = [\"127.0.0.1:0\"]\nmetrics = \"127.0.0.1:0\"\nlog = \"json\"\n[[token]]\nfile = \"token\"\n";
    fs::write(&settings, good).unwrap();
    let notify = place.at("notify");
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let told = || {
        let mut space = [0; 1000];
        let count = systemd.recv(&mut space).unwrap();
        String::from_utf8_lossy(&space[..count]).into_owned()
    };
    let mut relay = Running::start(&["--config", text(&settings)], &notify);
    relay.line("listening");
    let metrics = address(&relay.line("/metrics"));
    assert_eq!(told(), "READY=1\nSTATUS=serving");
    assert!(get(&metrics, "/healthz").ends_with("\r\n\r\nok\n"));
    let page = get(&metrics, "/metrics");
    assert!(
        page.contains("gridmpi_relay_budget_bytes 256000000") && page.ends_with("# EOF\n"),
        "{page}"
    );
    assert!(get(&metrics, "/other").starts_with("HTTP/1.1 404"));

    fs::write(&settings, good.replace("[[token]]", "memroy = \"1 MB\"\n[[token]]")).unwrap();
    relay.signal("HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    let said = relay.line("the old go on");
    assert!(
        said.contains("relay.toml:5: unknown key `memroy` in [relay]; did you mean `memory`?"),
        "{said}"
    );
    // What `systemctl status` shows until they are mended.
    let status = told();
    assert!(status.starts_with("READY=1\nSTATUS=the new settings are wrong"), "{status}");
    assert!(status.contains("relay.toml:5: unknown key `memroy`"), "{status}");

    fs::write(&settings, good.replace("[[token]]", "memory = \"64 MB\"\n[[token]]")).unwrap();
    relay.signal("HUP");
    relay.line("new settings hold");
    assert!(get(&metrics, "/metrics").contains("gridmpi_relay_budget_bytes 64000000"));
    assert!(told().starts_with("RELOADING=1"));
    assert_eq!(told(), "READY=1\nSTATUS=serving; the settings were read again");

    relay.signal("TERM");
    assert!(told().starts_with("STOPPING=1\nSTATUS=draining"));
    relay.line("the relay ends");
    assert!(relay.child.wait().unwrap().success());
}
