//! A relay's settings, as a file. Every key is described in `docs/relay.md`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridmpi_settings::{At, FileError, Source, Table, nearest};
use gridmpi_wire::{JobId, MOST_BESIDE, RelayAddress};
use tracing::Level;

use crate::config::{Config, MOST_CONNECTIONS, Peer, Proof, Token};
use crate::secret::{from_hex, read_secret};
use crate::tls::{Fingerprint, Identity};

/// Where a relay listens unless it is told otherwise.
pub(crate) const LISTEN: &str = "0.0.0.0:7118";

/// A relay's settings, and what the program around it has to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The relay's.
    pub config: Config,
    /// How it says what happens.
    pub log: LogFormat,
    /// How much of it.
    pub level: Level,
    /// Where `/metrics` and `/healthz` are served.
    pub metrics: Option<SocketAddr>,
}

/// What the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Least memory that lets circuits stand at all.
const LEAST_MEMORY: u64 = 1 << 20;

/// From this to that `keepalive` may be: more often would be a flood, and the kernel takes some hours only.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// Reads settings. `name` is what messages call the file; file names in it are seen from `directory`.
///
/// # Errors
/// Names the line and what to write instead.
pub fn parse(name: &str, text: &str, directory: &Path) -> Result<Settings, FileError> {
    let source = Source { name, text };
    let mut top = source.parse()?;
    let mut settings = relay(top.table("relay", "[relay]")?, directory)?;
    for table in top.tables("token", "[[token]]")? {
        let start = table.start;
        let token = token(table, directory)?;
        if let Some(message) = wrong_token(&settings.config, &token) {
            return Err(source.error(start, message));
        }
        settings.config.tokens.push(token);
    }
    for table in top.tables("peer", "[[peer]]")? {
        let start = table.start;
        let peer = peer(table, directory)?;
        if let Some(message) = wrong_peer(&settings.config, &peer) {
            return Err(source.error(start, message));
        }
        settings.config.peers.push(peer);
    }
    top.finish()?;
    if settings.config.tokens.is_empty() && settings.config.peers.is_empty() {
        let message = "neither a [[token]] nor a [[peer]]: nobody could use this relay";
        return Err(source.error(0, message));
    }
    Ok(settings)
}

/// What is wrong with a token beside those before it.
fn wrong_token(config: &Config, token: &Token) -> Option<String> {
    let is_same = |other: &&Token| other.key.token_id() == token.key.token_id();
    let other = config.tokens.iter().find(is_same)?;
    Some(same("token", "secret", [&other.name, &token.name]))
}

/// What is wrong with a relay beside those before it.
fn wrong_peer(config: &Config, peer: &Peer) -> Option<String> {
    if config.peers.iter().any(|other| other.name == peer.name) {
        return Some(format!("there are two [[peer]]s named `{}`", peer.name));
    }
    // A secret may be that of several relays: the document says whose `jobs` hold.
    let Proof::Fingerprint(fingerprint) = &peer.proof else { return None };
    if config.identity.is_none() {
        let message = "a [[peer]] with a `fingerprint` needs `identity` in [relay]: the directory that `gridmpi relay init` has made";
        return Some(message.to_owned());
    }
    let is_same =
        |other: &&Peer| matches!(&other.proof, Proof::Fingerprint(its) if its == fingerprint);
    let other = config.peers.iter().find(is_same)?;
    Some(same("peer", "fingerprint", [&other.name, &peer.name]))
}

/// Who comes could be either, and the first one's `jobs` would hold without a word.
fn same(what: &str, by: &str, [first, second]: [&str; 2]) -> String {
    format!(
        "the [[{what}]]s `{first}` and `{second}` have the same {by}: leave one of them, with the `jobs` of both"
    )
}

fn relay(mut table: Table<'_>, directory: &Path) -> Result<Settings, FileError> {
    let mut config = Config { listen: listen(&mut table)?, ..Config::default() };
    if let Some(At { value, at }) = table.text("identity")? {
        let identity = Identity::load(&directory.join(value));
        config.identity = Some(identity.map_err(|error| table.error(at, error.to_string()))?);
    }
    config.beside = beside(&mut table)?;
    if let Some(At { value, at }) = table.size("memory")? {
        if value < LEAST_MEMORY {
            return Err(table.error(at, "`memory` must be at least 1 MiB"));
        }
        config.limits.memory = usize::try_from(value).unwrap_or(usize::MAX);
    }
    if let Some(count) = table.count("circuits")? {
        config.limits.circuits = count as usize;
    }
    config.rate = table.rate("rate")?.map(|bits| bits.value / 8);
    config.busy_poll = table.delay("busy_poll")?.unwrap_or(config.busy_poll);
    config.drain = table.duration("drain")?.unwrap_or(config.drain);
    config.limits.keepalive =
        table.time_within("keepalive", KEEPALIVE)?.unwrap_or(config.limits.keepalive);
    let log = one_of(&mut table, "log", &[("text", LogFormat::Text), ("json", LogFormat::Json)])?;
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
    ];
    let level = one_of(&mut table, "log_level", &levels)?;
    let metrics = match table.text("metrics")? {
        Some(text) => Some(address(&table, "metrics", &text)?),
        None => None,
    };
    table.finish()?;
    let (log, level) = (log.unwrap_or(LogFormat::Text), level.unwrap_or(Level::INFO));
    Ok(Settings { config, log, level, metrics })
}

fn listen(table: &mut Table<'_>) -> Result<Vec<SocketAddr>, FileError> {
    let at = table.start;
    let own = || vec![At { value: LISTEN.to_owned(), at }];
    let texts = table.texts_at("listen")?.map_or_else(own, |found| found.value);
    texts.iter().map(|text| address(table, "listen", text)).collect()
}

fn beside(table: &mut Table<'_>) -> Result<Vec<RelayAddress>, FileError> {
    let Some(At { value: texts, at }) = table.texts_at("beside")? else { return Ok(Vec::new()) };
    if texts.len() > MOST_BESIDE {
        return Err(table.error(at, format!("`beside` names at most {MOST_BESIDE} relays")));
    }
    let read = |At { value: text, at }: At<String>| {
        text.parse().ok().and_then(RelayAddress::new).ok_or_else(|| {
            let message = format!(
                "`beside`: `{text}` is no address with a port at which processes can reach a relay, such as \"10.1.0.2:7118\": \
                 write numbers, since processes look no names up"
            );
            table.error(at, message)
        })
    };
    texts.into_iter().map(read).collect()
}

fn address(table: &Table<'_>, key: &str, text: &At<String>) -> Result<SocketAddr, FileError> {
    text.value.parse().map_err(|_| {
        let message = format!(
            "`{key}`: `{}` is no address with a port, such as \"0.0.0.0:7118\" or \"[::]:7118\"",
            text.value
        );
        table.error(text.at, message)
    })
}

fn one_of<T: Copy>(
    table: &mut Table<'_>,
    key: &'static str,
    values: &[(&str, T)],
) -> Result<Option<T>, FileError> {
    let Some(At { value, at }) = table.text(key)? else { return Ok(None) };
    if let Some((_, found)) = values.iter().find(|(name, _)| *name == value) {
        return Ok(Some(*found));
    }
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    let help = nearest(&value, &names).map_or_else(String::new, |n| format!("; did you mean {n}?"));
    Err(table.error(at, format!("`{key}` must be one of {}{help}", names.join(", "))))
}

fn token(mut table: Table<'_>, directory: &Path) -> Result<Token, FileError> {
    let Some(file) = table.text("file")? else {
        let message = "this [[token]] has no `file`: make one by `gridmpi relay token FILE`";
        return Err(table.error(table.start, message));
    };
    let key = secret(&table, &file, directory)?;
    let name = table.text("name")?.map_or(file.value, |name| name.value);
    let jobs = jobs(&mut table)?;
    table.finish()?;
    Ok(Token { name, key, jobs })
}

fn jobs(table: &mut Table<'_>) -> Result<Option<Vec<JobId>>, FileError> {
    let Some(texts) = table.texts_at("jobs")? else { return Ok(None) };
    let wrong = |at| table.error(at, "`jobs` must hold job ids of 32 hexadecimal digits");
    let read = |text: &At<String>| from_hex(&text.value).ok_or_else(|| wrong(text.at));
    texts.value.iter().map(read).collect::<Result<_, _>>().map(Some)
}

fn secret(
    table: &Table<'_>,
    file: &At<String>,
    directory: &Path,
) -> Result<gridmpi_wire::JobKey, FileError> {
    let path: PathBuf = directory.join(&file.value);
    read_secret(&path).map_err(|error| table.error(file.at, error.to_string()))
}

fn peer(mut table: Table<'_>, directory: &Path) -> Result<Peer, FileError> {
    let start = table.start;
    let Some(name) = table.text("name")? else {
        return Err(table.error(start, "this [[peer]] has no `name`"));
    };
    let address = table.text("address")?;
    if let Some(At { value, at }) = &address
        && !value
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    {
        let message = format!(
            "`address`: `{value}` is no host with a port, such as \"gateway.example.org:7118\""
        );
        return Err(table.error(*at, message));
    }
    let proof = proof(&mut table, directory)?;
    let connections = table.count("connections")?.unwrap_or(1) as usize;
    if connections > MOST_CONNECTIONS {
        return Err(table.error(start, format!("`connections` must be at most {MOST_CONNECTIONS}")));
    }
    let rate = table.rate("rate")?.map(|bits| bits.value / 8);
    let jobs = jobs(&mut table)?;
    table.finish()?;
    let address = address.map(|address| address.value);
    Ok(Peer { name: name.value, address, proof, connections, rate, jobs })
}

fn proof(table: &mut Table<'_>, directory: &Path) -> Result<Proof, FileError> {
    let start = table.start;
    let tls = table.truth("tls")?.unwrap_or(true);
    let fingerprint = table.text("fingerprint")?;
    let file = table.text("secret_file")?;
    match (tls, fingerprint, file) {
        (true, Some(At { value, at }), None) => {
            let parsed = Fingerprint::parse(&value).map(Proof::Fingerprint);
            parsed.ok_or_else(|| {
                let message = "`fingerprint` must be `sha256:` and 64 hexadecimal digits, as `gridmpi relay fingerprint` prints it there";
                table.error(at, message)
            })
        }
        (false, None, Some(file)) => Ok(Proof::Secret(secret(table, &file, directory)?)),
        (true, None, _) => Err(table.error(start, "this [[peer]] needs `fingerprint`, which `gridmpi relay fingerprint` prints there (or `tls = false` and `secret_file`, not encrypted)")),
        (false, _, None) => Err(table.error(start, "a [[peer]] with `tls = false` needs `secret_file`, the same at both relays")),
        (true, Some(_), Some(_)) => Err(table.error(start, "`secret_file` has no meaning with TLS: the `fingerprint` proves the relay")),
        (false, Some(_), _) => Err(table.error(start, "`fingerprint` has no meaning with `tls = false`")),
    }
}

/// Where the settings are if no file is named: the first of these that is there.
pub(crate) fn default_paths() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/etc/gridmpi/relay.toml")];
    let home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    paths.extend(home.map(|home| home.join("gridmpi/relay.toml")));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::create_secret;
    use std::time::Duration;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("gridmpi-relay-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Identity::create(&path).unwrap();
            create_secret(&path.join("token")).unwrap();
            create_secret(&path.join("secret")).unwrap();
            std::fs::copy(path.join("token"), path.join("copy")).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const DOCUMENT: &str = include_str!("../../../docs/relay.md");

    #[test]
    fn a_full_file_is_read() {
        let place = Place::new("full");
        let text = format!(
            r#"
[relay]
listen = ["127.0.0.1:7000", "[::1]:7000"]
identity = "."
memory = "64 MB"
circuits = 100
rate = "800 Mbit/s"
busy_poll = "50 us"
drain = "5 s"
keepalive = 20
beside = ["10.1.0.2:7118", "[fd00::2]:7118"]
log = "json"
log_level = "debug"
metrics = "127.0.0.1:9070"

[[token]]
name = "site"
file = "token"
jobs = ["{job}"]

[[peer]]
name = "b"
address = "gateway.example.org:7118"
fingerprint = "sha256:{print}"
connections = 2
rate = "160 Mbit/s"
jobs = ["{job}"]

[[peer]]
name = "c"
tls = false
secret_file = "secret"
"#,
            job = "ab".repeat(16),
            print = "cd".repeat(32)
        );
        let settings = parse("relay.toml", &text, &place.0).unwrap();
        let config = &settings.config;
        assert_eq!(
            (config.listen.len(), config.limits.memory, config.limits.circuits),
            (2, 64_000_000, 100)
        );
        assert_eq!((config.rate, config.busy_poll), (Some(100_000_000), Duration::from_micros(50)));
        assert_eq!(
            (config.drain, config.limits.keepalive),
            (Duration::from_secs(5), Duration::from_secs(20))
        );
        let beside: Vec<String> =
            config.beside.iter().map(|relay| relay.socket().to_string()).collect();
        assert_eq!(beside, ["10.1.0.2:7118", "[fd00::2]:7118"]);
        assert_eq!((settings.log, settings.level), (LogFormat::Json, Level::DEBUG));
        assert_eq!(config.tokens[0].jobs, Some(vec![[0xab; 16]]));
        let [b, c] = &config.peers[..] else { panic!() };
        assert!(matches!(b.proof, Proof::Fingerprint(Fingerprint(bytes)) if bytes == [0xcd; 32]));
        assert_eq!((b.connections, b.rate), (2, Some(20_000_000)));
        assert_eq!((&b.jobs, &c.jobs), (&Some(vec![[0xab; 16]]), &None));
        assert!(matches!(c.proof, Proof::Secret(_)) && c.address.is_none());
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let place = Place::new("mistakes");
        let token = "[[token]]\nfile = \"token\"\n";
        let print = format!("fingerprint = \"sha256:{}\"\n", "cd".repeat(32));
        let cases = [
            (String::new(), "nobody could use this relay"),
            ("[relay]\nlisten = [\"7118\"]\n".to_owned(), "is no address with a port"),
            (
                format!("{token}[relay]\nbeside = [\"gw2:7118\"]\n"),
                "relay.toml:4: `beside`: `gw2:7118` is no address with a port",
            ),
            (format!("{token}[relay]\nbeside = [\"0.0.0.0:7118\"]\n"), "processes can reach"),
            (
                format!("{token}[relay]\nbeside = [{}]\n", "\"10.0.0.1:1\", ".repeat(17)),
                "at most 16 relays",
            ),
            (
                format!("{token}[relay]\nmemory = \"1 KB\"\n"),
                "relay.toml:4: `memory` must be at least",
            ),
            (
                format!("{token}[relay]\nkeepalive = 0\n"),
                "relay.toml:4: `keepalive` must be from 1 s to 3600 s",
            ),
            (format!("{token}[relay]\nkeepalive = \"7200 s\"\n"), "from 1 s to 3600 s"),
            (format!("{token}[relay]\nmemroy = \"1 GB\"\n"), "did you mean `memory`?"),
            (format!("{token}[relay]\nlog = \"jsn\"\n"), "did you mean json?"),
            (format!("{token}[relay]\nidentity = \"nowhere\"\n"), "gridmpi relay init"),
            ("[[token]]\nname = \"x\"\n".to_owned(), "gridmpi relay token FILE"),
            ("[[token]]\nfile = \"nothing\"\n".to_owned(), "relay.toml:2: cannot read"),
            (format!("{token}jobs = [\"12\"]\n"), "32 hexadecimal digits"),
            (
                format!("{token}[[peer]]\nname = \"b\"\n"),
                "relay.toml:3: this [[peer]] needs `fingerprint`",
            ),
            (
                format!(
                    "[relay]\nidentity = \".\"\n[[peer]]\nname = \"b\"\n{print}jobs = [\"12\"]\n"
                ),
                "relay.toml:6: `jobs` must hold job ids",
            ),
            (format!("{token}[[peer]]\n{print}"), "has no `name`"),
            (format!("{token}[[peer]]\nname = \"b\"\n{print}"), "needs `identity` in [relay]"),
            (
                format!("{token}[[peer]]\nname = \"b\"\nfingerprint = \"sha256:12\"\n"),
                "64 hexadecimal digits",
            ),
            (format!("{token}[[peer]]\nname = \"b\"\ntls = false\n"), "needs `secret_file`"),
            (
                format!("{token}[[peer]]\nname = \"b\"\naddress = \"host\"\n{print}"),
                "is no host with a port",
            ),
            (
                format!(
                    "[relay]\nidentity = \".\"\n{token}[[peer]]\nname = \"b\"\n{print}[[peer]]\nname = \"b\"\n{print}"
                ),
                "two [[peer]]s named `b`",
            ),
            (
                format!(
                    "[relay]\nidentity = \".\"\n[[peer]]\nname = \"b\"\n{print}[[peer]]\nname = \"c\"\n{print}jobs = []\n"
                ),
                "relay.toml:6: the [[peer]]s `b` and `c` have the same fingerprint: leave one",
            ),
            (
                format!("{token}[[token]]\nname = \"x\"\nfile = \"copy\"\njobs = []\n"),
                "relay.toml:3: the [[token]]s `token` and `x` have the same secret: leave one",
            ),
        ];
        for (text, expected) in cases {
            let got = parse("relay.toml", &text, &place.0).unwrap_err().to_string();
            assert!(got.contains(expected), "{text}\ngave: {got}\nnot:  {expected}");
        }
    }

    #[test]
    fn the_unit_has_no_secret_in_a_core_dump() {
        let unit = include_str!("../../../tools/gridmpi-relay.service");
        assert!(unit.lines().any(|line| line == "LimitCORE=0"));
    }

    #[test]
    fn relays_may_share_a_secret() {
        let place = Place::new("shared");
        let peer =
            |name| format!("[[peer]]\nname = \"{name}\"\ntls = false\nsecret_file = \"secret\"\n");
        let settings = parse("relay.toml", &(peer("b") + &peer("c")), &place.0).unwrap();
        assert_eq!(settings.config.peers.len(), 2);
    }

    #[test]
    fn the_document_describes_every_key() {
        let place = Place::new("document");
        let identity = "[relay]\nidentity = \".\"\n";
        let texts = [
            "[relay]\nzzzzzzzzzzzzzzz = 1\n".to_owned(),
            "[[token]]\nfile = \"token\"\nzzzzzzzzzzzzzzz = 1\n".to_owned(),
            format!(
                "{identity}[[peer]]\nname = \"b\"\ntls = false\nsecret_file = \"secret\"\nzzzzzzzzzzzzzzz = 1\n"
            ),
        ];
        for text in texts {
            let message = parse("relay.toml", &text, &place.0).unwrap_err().to_string();
            let known = message.split_once("known keys: ").unwrap().1;
            for key in known.split(", ") {
                assert!(DOCUMENT.contains(&format!("| `{key}` |")), "{key} is not described");
            }
        }
    }
}
