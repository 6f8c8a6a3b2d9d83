//! The command line: `gridmpi relay ...`.

use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing::{Level, error, info, warn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{Config, Peer, Proof, Token};
use crate::control::Handle;
use crate::daemon::Daemon;
use crate::file::{self, LogFormat, Settings};
use crate::identity::create_secret;
use crate::journal::Lines;
use crate::secret::read_secret;
use crate::signals::Signals;
use crate::tls::{Fingerprint, Identity};
use crate::{bounds, notify, public};

/// Carries traffic between clusters whose processes cannot connect to each other.
///
/// Without options it reads /etc/gridmpi/relay.toml, or ~/.config/gridmpi/relay.toml. SIGHUP reads that again; SIGTERM ends when
/// all circuits have ended, a second one at once.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make this relay's identity: a certificate, by which other relays know it, and its key.
    Init {
        /// Where to; made if it is not there.
        #[arg(long, default_value = "/etc/gridmpi")]
        directory: PathBuf,
    },
    /// Print the fingerprint of this relay's certificate, which the other relays need.
    Fingerprint {
        /// Where the identity is.
        #[arg(long, default_value = "/etc/gridmpi")]
        directory: PathBuf,
    },
    /// Make a new secret, for a token or for relays without TLS.
    Token {
        /// The new file; only its owner can read it.
        file: PathBuf,
    },
}

#[derive(Debug, Parser)]
struct Serve {
    /// The settings; no other option goes with them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "token_file", "peer", "allow", "secret_file", "identity", "public", "metrics"])]
    config: Option<PathBuf>,
    /// For a host that everybody reaches, where relays of sites meet that can only dial out: listens on all addresses, makes an
    /// identity if there is none (in --identity, else where the settings would be), and prints what the others need. Needs
    /// --allow for each of them, or --token-file.
    #[arg(long, conflicts_with = "secret_file")]
    public: bool,
    /// Where to listen; may be repeated.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// A file with a token (64 hexadecimal digits, mode 0600): who knows it may use the relay. May be repeated; /dev/stdin works
    /// too.
    #[arg(long, value_name = "FILE")]
    token_file: Vec<PathBuf>,
    /// The directory of this relay's identity, for TLS.
    #[arg(long, value_name = "DIRECTORY")]
    identity: Option<PathBuf>,
    /// Another relay to connect to, with the fingerprint of its certificate unless there is a --secret-file; may be repeated.
    #[arg(long, value_name = "HOST:PORT[=sha256:...]")]
    peer: Vec<String>,
    /// The fingerprint of another relay that may connect to this one; may be repeated.
    #[arg(long, value_name = "sha256:...")]
    allow: Vec<String>,
    /// A file with a secret that proves relays to each other without TLS. What they carry is NOT ENCRYPTED then.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Where to serve /metrics and /healthz.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

/// How long the loop may take to heed new settings until systemd is told that it does.
const OBEYED: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

/// Serves until it is told to end, or does what else is asked. `print` says why, and gives false, where it cannot print.
#[must_use]
pub fn run(args: Args, print: fn(&str) -> bool) -> ExitCode {
    let show = |us: Identity| print(&format!("{}\n", us.fingerprint()));
    let result: Result<bool, Failure> = match args.action {
        None => serve(args.serve, print).map(|()| true),
        Some(Action::Init { directory }) => {
            Identity::create(&directory).map(show).map_err(Into::into)
        }
        Some(Action::Fingerprint { directory }) => {
            Identity::load(&directory).map(show).map_err(Into::into)
        }
        Some(Action::Token { file }) => create_secret(&file).map(|()| true).map_err(Into::into),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stderr(), "gridmpi: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: Serve, print: fn(&str) -> bool) -> Result<(), Failure> {
    let path = settings_path(&args)?;
    let settings = match &path {
        Some(path) => read(path)?,
        None if args.public => public(args, print)?,
        None => by_options(&args)?,
    };
    let level = start_log(settings.log, settings.level);
    bounds::raise_descriptors();
    // Before there is any thread that they could end.
    let signals = Signals::keep()?;
    let mut daemon = Daemon::new(settings.config)?;
    if let Some(address) = settings.metrics {
        let bound = daemon.serve_http(address)?;
        info!(address = %bound, "serving /metrics and /healthz");
    }
    let relay = daemon.handle();
    let fixed = (settings.log, settings.metrics);
    daemon.heed(signals, move || reread(path.as_deref(), &relay, &level, fixed))?;
    notify::notify_ready("serving");
    Ok(daemon.run()?)
}

/// Where the settings are; `None`: in the options.
fn settings_path(args: &Serve) -> Result<Option<PathBuf>, String> {
    if let Some(path) = &args.config {
        return Ok(Some(path.clone()));
    }
    let has_users = !args.token_file.is_empty()
        || !args.peer.is_empty()
        || !args.allow.is_empty()
        || args.secret_file.is_some();
    if args.public || has_users {
        return Ok(None);
    }
    let alone = [
        ("--listen", !args.listen.is_empty()),
        ("--identity", args.identity.is_some()),
        ("--metrics", args.metrics.is_some()),
    ];
    if let Some((option, _)) = alone.iter().find(|(_, is_given)| *is_given) {
        return Err(format!(
            "{option} does not go with a file of settings: say who may use this relay as well (--token-file, --peer, --allow, --secret-file or \
             --public), and no file is read; or write it into the settings, and leave it out here"
        ));
    }
    let paths = file::default_paths();
    let found = paths.iter().find(|path| path.exists()).cloned();
    let tried: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    found.map(Some).ok_or_else(|| {
        format!(
            "no settings: neither --config nor --token-file, and there is no {}",
            tried.join(", no ")
        )
    })
}

/// Settings say whom to trust, so that not everybody may write them.
fn read(path: &Path) -> Result<Settings, Failure> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| format!("cannot read {name}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() && metadata.permissions().mode() & 0o002 != 0 {
        return Err(format!("everybody may write {name}: chmod o-w {name}").into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    Ok(file::parse(&name, &text, directory)?)
}

type LevelHandle = reload::Handle<LevelFilter, Registry>;

fn start_log(format: LogFormat, level: Level) -> LevelHandle {
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(Lines::new()).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    handle
}

/// How the log is written, and where `/metrics` is served.
type Fixed = (LogFormat, Option<SocketAddr>);

/// Reads the settings again, for the relay to go on with; what is `fixed` stays.
fn reread(path: Option<&Path>, relay: &Handle, level: &LevelHandle, fixed: Fixed) {
    // Whoever has sent the signal may wait to hear that it was heeded, also where there is nothing to be done.
    notify::notify_reloading();
    let mut status = "serving; the settings were read again".to_owned();
    match path.map(read) {
        None => info!("there is no file with settings to read again"),
        Some(Ok(settings)) => {
            let new = LevelFilter::from_level(settings.level);
            let _ = level.modify(|filter| *filter = new);
            say_what_stays(fixed, (settings.log, settings.metrics));
            relay.reload(settings.config);
            // It has obeyed when it answers.
            let _ = relay.snapshot(OBEYED);
        }
        Some(Err(wrong)) => {
            status = format!("the new settings are wrong, and the old go on: {wrong}");
            error!("{status}");
        }
    }
    notify::notify_ready(&status);
}

fn say_what_stays(before: Fixed, now: Fixed) {
    for (key, is_same) in [("log", before.0 == now.0), ("metrics", before.1 == now.1)] {
        if !is_same {
            warn!("`{key}` has changed: that needs a restart, and the old one goes on");
        }
    }
}

/// Settings of a relay at which others meet; says what these need.
fn public(mut args: Serve, print: fn(&str) -> bool) -> Result<Settings, Failure> {
    let (identity, directory) = public::identity(args.identity.as_deref())?;
    if args.listen.is_empty() {
        args.listen.push(public::listen());
    }
    let at = public::reachable(&args.listen);
    let lines = public::lines(&at, &identity.fingerprint(), &args.token_file);
    // It serves all the same.
    print(&lines);
    if args.allow.is_empty() && args.peer.is_empty() && args.token_file.is_empty() {
        return Err(format!(
            "nobody may use this relay yet: say --allow sha256:... for each relay that is to connect (there, `gridmpi relay fingerprint` \
             prints it), or --token-file FILE for processes. Its identity is in {}",
            directory.display()
        )
        .into());
    }
    args.identity = Some(directory);
    by_options(&args)
}

fn by_options(args: &Serve) -> Result<Settings, Failure> {
    let mut config = Config { listen: args.listen.clone(), ..Config::default() };
    if config.listen.is_empty() {
        config.listen.push(file::LISTEN.parse()?);
    }
    for path in &args.token_file {
        let key = read_secret(path)?;
        config.tokens.push(Token { name: path.display().to_string(), key, jobs: None });
    }
    if let Some(directory) = &args.identity {
        config.identity = Some(Identity::load(directory)?);
    }
    let secret = args.secret_file.as_deref().map(read_secret).transpose()?;
    for text in &args.peer {
        let (address, proof) = match (text.split_once('='), &secret) {
            (Some((address, print)), _) => (address, Proof::Fingerprint(fingerprint(print)?)),
            (None, Some(secret)) => (text.as_str(), Proof::Secret(secret.clone())),
            (None, None) => {
                let message = format!(
                    "--peer {text}: say its fingerprint too, as {text}=sha256:..., or give --secret-file"
                );
                return Err(message.into());
            }
        };
        if matches!(proof, Proof::Fingerprint(_)) && config.identity.is_none() {
            return Err(format!("--peer {text} needs --identity: see `gridmpi relay init`").into());
        }
        config.peers.push(peer(address, Some(address), proof));
    }
    if let (Some(print), None) = (args.allow.first(), &config.identity) {
        return Err(format!("--allow {print} needs --identity: see `gridmpi relay init`").into());
    }
    for print in &args.allow {
        config.peers.push(peer(print, None, Proof::Fingerprint(fingerprint(print)?)));
    }
    if let Some(secret) = secret {
        config.peers.push(peer("those who know the secret", None, Proof::Secret(secret)));
    }
    Ok(Settings { config, log: LogFormat::Text, level: Level::INFO, metrics: args.metrics })
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::parse(text).ok_or_else(|| {
        format!("`{text}` is no fingerprint: it must be `sha256:` and 64 hexadecimal digits, as `gridmpi relay fingerprint` prints it")
    })
}

fn peer(name: &str, address: Option<&str>, proof: Proof) -> Peer {
    let address = address.map(str::to_owned);
    Peer { name: name.to_owned(), address, proof, connections: 1, rate: None, jobs: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<Serve, clap::Error> {
        Args::try_parse_from([&["relay"], words].concat()).map(|args| args.serve)
    }

    #[test]
    fn no_option_is_read_and_ignored() {
        for words in [
            &["--listen", "127.0.0.1:1"][..],
            &["--identity", "/nowhere"],
            &["--metrics", "127.0.0.1:1", "--listen", "127.0.0.1:2"],
        ] {
            let said = settings_path(&args(words).unwrap()).unwrap_err();
            assert!(said.contains("--token-file") && said.contains("does not go"), "{said}");
        }
        for words in [
            &["--listen", "127.0.0.1:1"][..],
            &["--metrics", "127.0.0.1:1"],
            &["--token-file", "token"],
            &["--secret-file", "secret"],
        ] {
            let said = args(&[&["--config", "relay.toml"], words].concat()).unwrap_err();
            assert!(said.to_string().contains("cannot be used with"), "{said}");
        }
    }

    #[test]
    fn options_that_say_who_may_use_it_are_settings() {
        for users in [
            &["--token-file", "token"][..],
            &["--peer", "host:1"],
            &["--allow", "sha256:"],
            &["--secret-file", "secret"],
            &["--public"],
        ] {
            let words = [&["--listen", "127.0.0.1:1", "--metrics", "127.0.0.1:2"], users].concat();
            assert_eq!(settings_path(&args(&words).unwrap()), Ok(None), "{words:?}");
        }
        let by_file = settings_path(&args(&["--config", "relay.toml"]).unwrap());
        assert_eq!(by_file, Ok(Some(PathBuf::from("relay.toml"))));
    }
}
