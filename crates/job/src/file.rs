//! The job file.
//!
//! ```toml
//! [job]
//! program = "./heat"            # or after `--` on the command line
//! args = ["--steps", "100"]
//! wait = 600                    # seconds that clusters wait for each other
//!
//! [[cluster]]
//! name = "a"
//! launcher = "mpiexec.mpich"
//! ranks = 4
//!
//! [[cluster]]
//! name = "b"
//! launcher = "mpiexec.openmpi"
//! hosts = ["node1", "node2"]
//! ranks_per_host = 2
//! program = "./heat-openmpi"    # this cluster's own binary
//! env = { OMP_NUM_THREADS = "2" }
//!
//! [[link]]
//! between = ["a", "b"]
//! bandwidth = "1 Gbit/s"
//! delay = "10 ms"               # one way
//! ```
//! Every key is described in `docs/job-file.md`.

use crate::spec::{ClusterSpec, Family, JobSpec, Launcher, Style, check_rate};
use gridmpi_bootstrap::env::parse_switch;
use gridmpi_bootstrap::{
    ClusterName, LinkInfo, MAX_RELAYS, MOST_CONNECTIONS, Pacing, RelayAccess, Via,
};
use gridmpi_report::units::format_rate;
use gridmpi_settings::{At, FileError, Source, Table, nearest};

/// Reads the text of a job file; `name` is what messages call the file.
///
/// # Errors
/// Names the line and what to write instead.
pub fn parse(name: &str, text: &str) -> Result<JobSpec, FileError> {
    let source = Source { name, text };
    let mut top = source.parse()?;
    let mut spec = job(top.table("job", "[job]")?)?;
    for table in top.tables("cluster", "[[cluster]]")? {
        let at = table.start;
        let cluster = cluster(table)?;
        check_matb(&source, at, &spec, &cluster)?;
        if spec.clusters.iter().any(|other| other.name == cluster.name) {
            let message = format!("there are two clusters named `{}`", cluster.name);
            return Err(source.error(at, message));
        }
        spec.clusters.push(cluster);
    }
    for table in top.tables("link", "[[link]]")? {
        let at = table.start;
        let (link, is_measured) = link(table, &spec.clusters)?;
        check_only(&source, at, &spec, link.between)?;
        if is_measured {
            spec.measure.push(link.between);
        }
        spec.links.push(link);
    }
    top.finish()?;
    if spec.clusters.is_empty() {
        return Err(source.error(0, "no [[cluster]]: a job needs at least one"));
    }
    Ok(spec)
}

fn job(mut table: Table<'_>) -> Result<JobSpec, FileError> {
    let program = table.text("program")?;
    let args = table.texts("args")?;
    if let (None, Some(_)) = (&program, &args) {
        return Err(table.error(table.start, "`args` without `program` in [job]"));
    }
    let command = program.map(|at| at.value).into_iter().chain(args.unwrap_or_default());
    let spec = JobSpec {
        command: command.collect(),
        env: table.variables("env")?,
        wait: table.time("wait")?,
        timeout: table.time("timeout")?,
        listen: table.text("listen")?.map(|at| at.value),
        relays: relays(&mut table)?,
        relay_token: plain(table.text("relay_token")?).map(Into::into),
        pacing: choice(&mut table, "pacing", &Pacing::NAMES, Pacing::parse)?,
        reconnect: table.time("reconnect")?,
        tls: choice(&mut table, "tls", &["on", "off"], parse_switch)?,
        matb: rate(&mut table, "matb")?,
        connections: table.count_to("connections", MOST_CONNECTIONS)?,
        new_relays: choice(&mut table, "new_relays", &["on", "off"], parse_switch)?,
        ..JobSpec::default()
    };
    table.finish()?;
    Ok(spec)
}

fn cluster(mut table: Table<'_>) -> Result<ClusterSpec, FileError> {
    let name = name(&mut table)?;
    let launcher = launcher(&mut table)?;
    let mut spec = ClusterSpec::new(name, launcher);
    spec.ranks = table.count("ranks")?;
    spec.launcher_args = table.texts("launcher_args")?.unwrap_or_default();
    spec.style = choice(&mut table, "style", &Style::NAMES, Style::parse)?;
    spec.mpi = choice(&mut table, "mpi", &Family::NAMES, Family::parse)?;
    spec.hosts = hosts(&mut table)?;
    spec.ranks_per_host = table.count("ranks_per_host")?;
    spec.remote_shell = plain(table.text("remote_shell")?);
    spec.head = plain(table.text("head")?);
    spec.head_gridmpi = plain(table.text("head_gridmpi")?);
    spec.directory = plain(table.text("directory")?).map(Into::into);
    spec.env = table.variables("env")?;
    spec.interface = plain(table.text("interface")?);
    spec.interface_bandwidth = rate(&mut table, "interface_bandwidth")?;
    spec.uplink_bandwidth = rate(&mut table, "uplink_bandwidth")?;
    spec.matb = rate(&mut table, "matb")?;
    spec.relays = relays(&mut table)?;
    spec.relay_token = plain(table.text("relay_token")?).map(Into::into);
    spec.program = plain(table.text("program")?);
    spec.args = table.texts("args")?;
    check(&table, &spec)?;
    table.finish()?;
    Ok(spec)
}

/// Launchers have signs of their own in such lists, and each others: what is more than a name would mean something else to some.
fn hosts(table: &mut Table<'_>) -> Result<Vec<String>, FileError> {
    let Some(At { value: hosts, .. }) = table.texts_at("hosts")? else { return Ok(Vec::new()) };
    let is_name = |host: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        host.chars().all(is_plain) && host.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let read = |At { value, at }: At<String>| match is_name(&value) {
        true => Ok(value),
        false => {
            let remedy = match value.parse::<std::net::Ipv6Addr>() {
                Ok(_) => {
                    "launchers split such an address: give the host's name, or its IPv4 address"
                }
                Err(_) => {
                    "write one name for each host; the ranks on it are said by `ranks_per_host`, other options by `launcher_args`"
                }
            };
            Err(table.error(at, format!("`hosts`: {value:?} is no host name: {remedy}")))
        }
    };
    hosts.into_iter().map(read).collect()
}

fn relays(table: &mut Table<'_>) -> Result<Vec<String>, FileError> {
    let Some(At { value: names, at }) = table.texts_at("relays")? else { return Ok(Vec::new()) };
    if names.is_empty() || names.len() > MAX_RELAYS {
        let message = format!("`relays` must name 1 to {MAX_RELAYS} relays");
        return Err(table.error(at, message));
    }
    let read = |At { value, at }: At<String>| match RelayAccess::check_name(&value) {
        Ok(()) => Ok(value),
        Err(error) => Err(table.error(at, format!("`relays`: {error}"))),
    };
    names.into_iter().map(read).collect()
}

/// A rate with which a job gets on.
fn rate(table: &mut Table<'_>, key: &'static str) -> Result<Option<u64>, FileError> {
    let found = table.rate(key)?;
    found.map(|rate| enough(table, key, rate)).transpose()
}

fn enough(table: &Table<'_>, key: &str, rate: At<u64>) -> Result<u64, FileError> {
    let At { value, at } = rate;
    check_rate(&format!("`{key}`"), value).map_err(|problem| table.error(at, problem))?;
    Ok(value)
}

fn plain(found: Option<At<String>>) -> Option<String> {
    found.map(|at| at.value)
}

fn name(table: &mut Table<'_>) -> Result<ClusterName, FileError> {
    let Some(At { value, at }) = table.text("name")? else {
        return Err(table.error(table.start, "this [[cluster]] has no `name`"));
    };
    ClusterName::new(value).map_err(|error| table.error(at, error.to_string()))
}

/// A word, or several: `launcher = "mpiexec.openmpi --oversubscribe"`.
fn launcher(table: &mut Table<'_>) -> Result<Launcher, FileError> {
    let Some(At { value, at }) = table.text("launcher")? else {
        return Ok(Launcher::Command(vec!["mpiexec".to_owned()]));
    };
    parse_launcher(&value).ok_or_else(|| table.error(at, "`launcher` is empty"))
}

/// Reads a launcher as it is written in job files and on the command line.
pub(crate) fn parse_launcher(text: &str) -> Option<Launcher> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match words.first()?.as_str() {
        "join" if words.len() == 1 => Some(Launcher::Join),
        _ => Some(Launcher::Command(words)),
    }
}

fn choice<T>(
    table: &mut Table<'_>,
    key: &'static str,
    names: &[&str],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, FileError> {
    let Some(At { value, at }) = table.text(key)? else { return Ok(None) };
    if let Some(found) = parse(&value) {
        return Ok(Some(found));
    }
    let help = nearest(&value, names).map_or_else(String::new, |n| format!("; did you mean {n}?"));
    Err(table.error(at, format!("`{key}` must be one of {}{help}", names.join(", "))))
}

/// What cannot work together.
fn check(table: &Table<'_>, spec: &ClusterSpec) -> Result<(), FileError> {
    let wrong = |message: &str| Err(table.error(table.start, message));
    let unheeded = spec.unheeded();
    if !unheeded.is_empty() {
        let keys: Vec<String> = unheeded.iter().map(|key| format!("`{key}`")).collect();
        return wrong(&format!(
            "a cluster with launcher = \"join\" is started by hand: {} would mean nothing here, and belongs to where it is started \
             (`gridmpi join`)",
            keys.join(", ")
        ));
    }
    if spec.ranks_per_host.is_some() && spec.hosts.is_empty() {
        return wrong("`ranks_per_host` needs `hosts`");
    }
    if spec.remote_shell.is_some() && spec.hosts.is_empty() {
        return wrong("`remote_shell` needs `hosts`");
    }
    if spec.head_gridmpi.is_some() && spec.head.is_none() {
        return wrong("`head_gridmpi` needs `head`");
    }
    if let (Some(ranks), Some(each)) = (spec.ranks, spec.ranks_per_host)
        && u64::from(ranks) > u64::from(each) * spec.hosts.len() as u64
    {
        return wrong("`ranks` is more than `hosts` times `ranks_per_host`");
    }
    Ok(())
}

/// A node cannot send more than its interface carries.
fn check_matb(
    source: &Source<'_>,
    at: usize,
    job: &JobSpec,
    cluster: &ClusterSpec,
) -> Result<(), FileError> {
    let excess = job.matb(cluster).zip(cluster.interface_bandwidth);
    let Some((matb, carried)) = excess.filter(|(matb, carried)| matb > carried) else {
        return Ok(());
    };
    let (matb, carried) = (format_rate(matb as f64), format_rate(carried as f64));
    let (place, remedy) = match cluster.matb {
        Some(_) => ("", "lower it"),
        None => (" of [job]", "lower it, or give this cluster its own"),
    };
    let message = format!(
        "`matb`{place}, {matb}, is more than the interfaces of cluster `{}` carry (`interface_bandwidth` is {carried}): {remedy}",
        cluster.name
    );
    Err(source.error(at, message))
}

/// A link, and whether its bandwidth is to be measured.
fn link(mut table: Table<'_>, clusters: &[ClusterSpec]) -> Result<(LinkInfo, bool), FileError> {
    let start = table.start;
    let between = table.texts("between")?.unwrap_or_default();
    let [from, to] = between.as_slice() else {
        return Err(table.error(start, "a [[link]] needs `between = [\"a\", \"b\"]`"));
    };
    let find = |name: &String| {
        let names: Vec<_> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let index = names.iter().position(|known| known == name);
        index.and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
            let help = match nearest(name, &names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("clusters: {}", names.join(", ")),
            };
            table.error(start, format!("this [[link]] names an unknown cluster `{name}`; {help}"))
        })
    };
    let between = [find(from)?, find(to)?];
    if between[0] == between[1] {
        return Err(table.error(start, "this [[link]] joins a cluster with itself"));
    }
    let key = "bandwidth";
    let bandwidth = table.rate_or(key, "measure")?;
    let is_measured = matches!(bandwidth, Some(None));
    let bandwidth = bandwidth.flatten().map(|rate| enough(&table, key, rate)).transpose()?;
    let dial = dialler(&mut table, between, clusters)?;
    let link = LinkInfo {
        between,
        bandwidth_bits_per_s: bandwidth,
        delay_us: table.delay("delay")?.map(|delay| delay.as_micros() as u64),
        via: choice(&mut table, "via", &Via::NAMES, Via::parse)?,
        dial,
    };
    if link.dial.is_some() && link.via == Some(Via::Relays) {
        let message = "`dial` is for links without relays: leave it out, or `via = \"relays\"`";
        return Err(table.error(start, message));
    }
    table.finish()?;
    Ok((link, is_measured))
}

/// A pair of clusters has one link: of two, one would count and the other not.
fn check_only(
    source: &Source<'_>,
    at: usize,
    job: &JobSpec,
    between: [u16; 2],
) -> Result<(), FileError> {
    let [a, b] = between.map(usize::from);
    if !job.links.iter().any(|link| link.joins(a, b)) {
        return Ok(());
    }
    let name = |at: usize| job.clusters.get(at).map(|it| it.name.as_str()).unwrap_or_default();
    let message = format!(
        "there are two [[link]]s between `{}` and `{}`: put all keys into one, which holds for both directions",
        name(a),
        name(b)
    );
    Err(source.error(at, message))
}

/// Which of the two clusters of a link makes the connections, if only one can.
fn dialler(
    table: &mut Table<'_>,
    between: [u16; 2],
    clusters: &[ClusterSpec],
) -> Result<Option<u16>, FileError> {
    let Some(At { value, at }) = table.text("dial")? else { return Ok(None) };
    let name = |position: u16| clusters.get(usize::from(position)).map(|it| it.name.as_str());
    if let Some(found) = between.into_iter().find(|position| name(*position) == Some(&*value)) {
        return Ok(Some(found));
    }
    let names = between.map(|position| format!("`{}`", name(position).unwrap_or_default()));
    let help = names.join(" or ");
    Err(table.error(
        at,
        format!("`dial` names the cluster of this link whose processes connect: {help}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(text: &str) -> String {
        parse("job.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn the_longest_times_are_taken() {
        let times = "[job]\nwait = 316224000\ntimeout = 316224000\nreconnect = 316224000\n";
        let spec = parse("job.toml", &format!("{times}[[cluster]]\nname = \"a\"\n")).unwrap();
        assert_eq!([spec.wait, spec.timeout, spec.reconnect], [Some(gridmpi_settings::LONGEST); 3]);
    }

    #[test]
    fn everything_has_a_sensible_default() {
        let spec = parse("job.toml", "[[cluster]]\nname = \"a\"\n").unwrap();
        let expected = Launcher::Command(vec!["mpiexec".to_owned()]);
        assert_eq!(spec.clusters[0].launcher, expected);
        assert!(spec.command.is_empty() && spec.wait.is_none());
    }

    #[test]
    fn a_full_file_is_read() {
        let text = r#"
[job]
program = "./heat"
args = ["-n", "5"]
wait = "120 s"
timeout = 30
pacing = "static"
tls = "off"
reconnect = "2 s"
matb = "40 Mbit/s"
connections = 4
new_relays = "off"
listen = "0.0.0.0:7000"
env = { A = "1", B = 2 }

[[cluster]]
name = "a"
launcher = "mpiexec.openmpi --oversubscribe"
launcher_args = ["--bind-to", "none"]
ranks = 4
hosts = ["x", "y"]
ranks_per_host = 2
remote_shell = "/bin/agent"
relays = ["gw1:7118", "gw2:7118"]
relay_token = "relay-token"
interface = "eth1"
interface_bandwidth = "50 Mbit/s"
uplink_bandwidth = "1 Gbit/s"
matb = "20 Mbit/s"
program = "./other"
args = []
mpi = "openmpi"
style = "openmpi5"

[[cluster]]
name = "b"
launcher = "join"

[[link]]
between = ["b", "a"]
bandwidth = "160 Mbit/s"
delay = "10 ms"
via = "relays"
"#;
        let dialled = text.replace("via = \"relays\"", "dial = \"a\"");
        assert_eq!(parse("job.toml", &dialled).unwrap().links[0].dial, Some(0));
        let spec = parse("job.toml", text).unwrap();
        assert_eq!(spec.command, ["./heat", "-n", "5"]);
        assert_eq!(spec.env["B"], "2");
        assert_eq!(spec.timeout, Some(Duration::from_secs(30)));
        let a = &spec.clusters[0];
        assert_eq!((a.style, a.mpi), (Some(Style::OpenMpi5), Some(Family::OpenMpi)));
        assert_eq!(a.relays, ["gw1:7118", "gw2:7118"]);
        assert_eq!(a.relay_token.as_deref(), Some(std::path::Path::new("relay-token")));
        assert_eq!(a.command(&spec.command), ["./other"]);
        assert_eq!(spec.clusters[1].launcher, Launcher::Join);
        let network = spec.network();
        assert_eq!(network.interfaces, [Some(50_000_000), None]);
        assert_eq!(network.reconnect_s, Some(2));
        assert_eq!((network.pacing, network.tls), (Some(Pacing::Static), Some(false)));
        assert_eq!((network.new_relays, network.connections), (Some(false), Some(4)));
        assert_eq!(network.matb, [Some(20_000_000), Some(40_000_000)]);
        let link = &spec.links[0];
        assert_eq!((link.between, link.via), ([1, 0], Some(Via::Relays)));
        assert_eq!((link.bandwidth_bits_per_s, link.delay_us), (Some(160_000_000), Some(10_000)));
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let a = "[[cluster]]\nname = \"a\"\n";
        let b = "[[cluster]]\nname = \"b\"\n";
        let cases = [
            (
                format!("{a}lancher = \"x\"\n"),
                "job.toml:3: unknown key `lancher` in [[cluster]]; did you mean `launcher`?",
            ),
            (
                format!("{a}[[clusters]]\n"),
                "job.toml:3: unknown key `clusters`; did you mean `cluster`?",
            ),
            (
                format!("[job]\nzzzzzzz = 1\n{a}"),
                "job.toml:2: unknown key `zzzzzzz` in [job]; known keys: ",
            ),
            (format!("{a}ranks = 0\n"), "job.toml:3: `ranks` must be a whole number"),
            (format!("{a}ranks = \"four\"\n"), "job.toml:3: `ranks` must be a whole number"),
            (format!("{a}mpi = \"openmp\"\n"), "did you mean openmpi?"),
            (format!("{a}{a}"), "job.toml:3: there are two clusters named `a`"),
            (
                format!("{a}[[link]]\nbetween = [\"a\", \"bb\"]\n"),
                "job.toml:3: this [[link]] names an unknown cluster `bb`",
            ),
            (format!("{a}[[link]]\nbetween = [\"a\"]\n"), "needs `between"),
            (format!("{a}[[link]]\nbetween = [\"a\", \"a\"]\n"), "with itself"),
            (
                format!("{a}{b}[[link]]\nbetween = [\"a\", \"b\"]\ndial = \"c\"\n"),
                "job.toml:7: `dial` names the cluster of this link whose processes connect: `a` or `b`",
            ),
            (
                format!(
                    "{a}{b}[[link]]\nbetween = [\"a\", \"b\"]\ndial = \"b\"\nvia = \"relays\"\n"
                ),
                "job.toml:5: `dial` is for links without relays",
            ),
            (
                format!(
                    "{a}{b}[[link]]\nbetween = [\"a\", \"b\"]\n[[link]]\nbetween = [\"b\", \"a\"]\n"
                ),
                "job.toml:7: there are two [[link]]s between `b` and `a`: put all keys into one",
            ),
            (format!("{a}ranks_per_host = 2\n"), "needs `hosts`"),
            (format!("{a}launcher = \"join\"\nhead = \"h\"\n"), "started by hand: `head` would"),
            (
                format!(
                    "{a}launcher = \"join\"\nenv = {{ A = \"1\" }}\nprogram = \"x\"\nargs = []\ndirectory = \"/\"\nmpi = \"mpich\"\n\
                     style = \"srun\"\n"
                ),
                "started by hand: `directory`, `env`, `program`, `args`, `style`, `mpi` would mean nothing here",
            ),
            ("[[cluster]]\nranks = 2\n".to_owned(), "job.toml:1: this [[cluster]] has no `name`"),
            ("[[cluster]]\nname = \"a b\"\n".to_owned(), "job.toml:2: \"a b\" is no cluster name"),
            ("cluster = 3\n".to_owned(), "must be a list of tables, each written [[cluster]]"),
            (String::new(), "no [[cluster]]"),
            ("[[cluster]\n".to_owned(), "job.toml:1: "),
            (
                format!("{a}hosts = [\"x\",\n \"y:4\"]\n"),
                "job.toml:4: `hosts`: \"y:4\" is no host name: write one name for each host; the ranks on it are said by `ranks_per_host`",
            ),
            (
                format!("{a}hosts = [\"fd00::11\"]\n"),
                "\"fd00::11\" is no host name: launchers split",
            ),
            (format!("{a}hosts = [\"a b\"]\n"), "\"a b\" is no host name"),
            (format!("{a}hosts = [\"a,b\"]\n"), "\"a,b\" is no host name"),
            (format!("{a}hosts = [\"\"]\n"), "\"\" is no host name"),
            (format!("{a}hosts = [\"-x\"]\n"), "\"-x\" is no host name"),
            (format!("{a}hosts = \"x\"\n"), "job.toml:3: `hosts` must be a list of strings"),
            (
                format!(
                    "{a}[[cluster]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = 10\n"
                ),
                "job.toml:7: `delay` must be a string",
            ),
            (format!("[job]\npacing = \"fast\"\n{a}"), "`pacing` must be one of off, static, auto"),
            (
                format!("{a}interface_bandwidth = \"0 Mbit/s\"\n"),
                "job.toml:3: `interface_bandwidth`",
            ),
            (
                format!(
                    "{a}[[cluster]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = \"mesure\"\n"
                ),
                "job.toml:7: `bandwidth`",
            ),
            (
                format!("{a}relays = [\"gw\"]\n"),
                "job.toml:3: `relays`: \"gw\" is no relay: write host:port",
            ),
            (
                format!("[job]\nwait = 5\n\n relays= [\n  \"gw\",\n]\n{a}relays = [\"x:1\"]\n"),
                "job.toml:5: `relays`: \"gw\" is no relay",
            ),
            (
                "\ncluster = [{ name = \"a\", relays = [\"gw\"] }]\n".to_owned(),
                "job.toml:2: `relays`: \"gw\" is no relay",
            ),
            (format!("{a}relays = []\n"), "job.toml:3: `relays` must name 1 to 64 relays"),
            (format!("[job]\ntls = \"maybe\"\n{a}"), "job.toml:2: `tls` must be one of on, off"),
            (format!("[job]\nwait = \"soon\"\n{a}"), "job.toml:2: `wait`"),
            (format!("[job]\nwait = 0\n{a}"), "job.toml:2: `wait` must be more than 0"),
            (format!("[job]\ntimeout = \"0\"\n{a}"), "job.toml:2: `timeout` must be more than 0"),
            (format!("[job]\nreconnect = \"0 s\"\n{a}"), "`reconnect` must be more than 0"),
            (
                format!("[job]\ntimeout = {}\n{a}", u64::MAX),
                "job.toml:2: `timeout` must be at most ten years, 316224000 seconds",
            ),
            (format!("[job]\nreconnect = 316224001\n{a}"), "`reconnect` must be at most ten years"),
            (
                format!("[job]\nconnections = 0\n{a}"),
                "job.toml:2: `connections` must be a whole number from 1 to 16",
            ),
            (format!("[job]\nconnections = 17\n{a}"), "from 1 to 16"),
            (format!("[job]\nconnections = \"4\"\n{a}"), "from 1 to 16"),
            (format!("[job]\nmatb = \"0\"\n{a}"), "job.toml:2: `matb`"),
            (format!("[job]\nmatb = \"0 Mbit/s\"\n{a}"), "job.toml:2: `matb` must be more than 0"),
            (
                format!("[job]\nmatb = \"1 kbit/s\"\n{a}"),
                "job.toml:2: `matb`, 1 kbit/s, is too low",
            ),
            (
                format!("{a}interface_bandwidth = \"1 bit/s\"\n"),
                "job.toml:3: `interface_bandwidth`, 1 bit/s, is too low for a job to get on: it must be at least 100 kbit/s",
            ),
            (
                format!("{a}\nuplink_bandwidth = \"99 kbit/s\"\n"),
                "job.toml:4: `uplink_bandwidth`, 99 kbit/s",
            ),
            (
                format!(
                    "{a}{b}[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1 ms\"\nbandwidth = \"1 bit/s\"\n"
                ),
                "job.toml:8: `bandwidth`, 1 bit/s, is too low for a job to get on: it must be at least 100 kbit/s",
            ),
            (format!("{a}matb = \"-1 Mbit/s\"\n"), "job.toml:3: `matb`: `-1 Mbit/s` is not a rate"),
            (format!("{a}matb = 20\n"), "job.toml:3: `matb` must be a string"),
            (
                format!("{a}{b}interface_bandwidth = \"50 Mbit/s\"\nmatb = \"1 Gbit/s\"\n"),
                "job.toml:3: `matb`, 1 Gbit/s, is more than the interfaces of cluster `b` carry (`interface_bandwidth` is 50 Mbit/s): \
                 lower it",
            ),
            (
                format!("[job]\nmatb = \"60 Mbit/s\"\n{a}interface_bandwidth = \"50 Mbit/s\"\n"),
                "job.toml:3: `matb` of [job], 60 Mbit/s, is more than",
            ),
        ];
        for (text, expected) in cases {
            let got = message(&text);
            assert!(got.contains(expected), "{text}\ngave: {got}\nnot:  {expected}");
        }
    }

    const DOCUMENT: &str = include_str!("../../../docs/job-file.md");

    #[test]
    fn the_documents_examples_are_job_files() {
        let blocks: Vec<_> = DOCUMENT.split("```toml\n").skip(1).collect();
        assert!(blocks.len() > 1);
        for block in blocks {
            let text = block.split("```").next().unwrap();
            parse("docs/job-file.md", text).unwrap();
        }
    }

    #[test]
    fn the_document_describes_every_key() {
        let a = "[[cluster]]\nname = \"a\"\n";
        let b = "[[cluster]]\nname = \"b\"\n";
        let link = format!("{a}{b}[[link]]\nbetween = [\"a\", \"b\"]\nzzzzzzzzzzzzzzz = 1\n");
        let texts =
            [format!("[job]\nzzzzzzzzzzzzzzz = 1\n{a}"), format!("{a}zzzzzzzzzzzzzzz = 1\n"), link];
        for text in texts {
            let known = message(&text);
            let known = known.split_once("known keys: ").unwrap().1;
            for key in known.split(", ") {
                assert!(DOCUMENT.contains(&format!("| `{key}` |")), "{key} is not described");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[\\[\\]a-z=\"{}\n0-9, ]{0,80}") {
            let _ = parse("fuzz", &text);
        }
    }
}
