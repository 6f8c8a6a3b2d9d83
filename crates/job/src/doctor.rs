//! `gridmpi doctor` for a job: nodes are started as for measuring, look at each other, and what they see is judged.

use crate::address::parse_listen;
use crate::console::say;
use crate::crew::Crew;
use crate::head;
use crate::measure::{Starter, WAIT, let_end, listen, nodes};
use crate::relays;
use crate::resolve::CommandLine;
use crate::run::RunOptions;
use crate::spec::{ClusterSpec, JobSpec, Launcher};
use gridmpi_bootstrap::line::Pass;
use gridmpi_bootstrap::{ClusterName, LinkInfo, RelayAccess, Secret, Settings, Via};
use gridmpi_doctor::{Facts, Link, Severity, Trouble};
use gridmpi_probe::{Conductor, Gathering, How, ProbeError, Way};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Other clusters' nodes may come so long after a launcher has given up.
const GRACE: Duration = Duration::from_secs(5);

/// Looks at everything that the job would use, as far as its clusters can be started from here. `gridmpi` is our own program
/// file.
///
/// # Errors
/// Why nothing could be looked at, each problem in a line for the user.
pub fn examine(spec: &JobSpec, gridmpi: &Path, how: &How) -> Result<Facts, Vec<String>> {
    let one = |problem: String| vec![problem];
    let clusters: Vec<ClusterSpec> = spec
        .clusters
        .iter()
        .filter(|c| c.launcher != Launcher::Join)
        .map(|c| few(c, how))
        .collect();
    let ways = ways(spec);
    if ways.is_empty() {
        return Err(one("no two clusters of this job can be started from here: run `gridmpi doctor --listen` on a node of one, \
            and `gridmpi doctor HOST:PORT` on a node of the other".to_owned()));
    }
    // As the ranks would be told: whether it can be used is seen on the nodes.
    let settings = Settings::from_process().map_err(|error| one(error.to_string()))?;
    let settings = Settings { congestion: settings.congestion, ..Settings::default() };
    let secret = Secret::random().map_err(|error| one(error.to_string()))?;
    let (listener, at) = listen(spec).map_err(one)?;
    let relays = relays::of_coordinator(spec).map_err(one)?;
    relays.as_ref().map_or(Ok(Vec::new()), RelayAccess::resolve).map_err(one)?;
    let names: Vec<ClusterName> = clusters.iter().map(|cluster| cluster.name.clone()).collect();
    let mut crew = Crew::new(gridmpi, secret.job(), &names)
        .map_err(|error| one(format!("cannot prepare to launch: {error}")))?;
    let starter = Starter { spec, gridmpi, secret: &secret, at: at.clone(), settings };
    let launched = clusters.iter().try_for_each(|cluster| starter.launch(cluster, &mut crew));
    let found = launched.map_err(one).and_then(|()| {
        let expected = |c: &ClusterSpec| (c.name.to_string(), nodes(c).rank_count());
        let gathering = Gathering {
            listeners: vec![listener],
            relays,
            pass: Pass::from(&secret),
            clusters: clusters.iter().map(expected).collect(),
            wait: spec.wait.map_or(WAIT, |wait| wait.min(WAIT)),
        };
        conduct(gathering, &mut crew, &clusters, &ways, how, &at)
    });
    crew.finish();
    let mut facts = found?;
    facts.processes = spec.clusters.iter().map(ClusterSpec::rank_count).sum();
    Ok(facts)
}

/// The cluster with its first and last host only.
fn few(cluster: &ClusterSpec, how: &How) -> ClusterSpec {
    let mut few = cluster.clone();
    if let (false, [first, .., last]) = (how.all_nodes, cluster.hosts.as_slice()) {
        few.hosts = vec![first.clone(), last.clone()];
    }
    few
}

/// Which clusters a job would join, of those that can be started from here, and how.
fn ways(spec: &JobSpec) -> Vec<Way> {
    let all = spec.clusters.iter().enumerate();
    let ours: Vec<(usize, &ClusterSpec)> =
        all.filter(|(_, c)| c.launcher != Launcher::Join).collect();
    let later = |n: usize| ours[n + 1..].iter();
    let way = |(a, _): &(usize, _), (b, _): &(usize, _)| way(spec, [*a, *b]);
    ours.iter().enumerate().flat_map(|(n, one)| later(n).map(|other| way(one, other))).collect()
}

/// How two clusters, by their positions, would be joined.
pub(crate) fn way(spec: &JobSpec, between: [usize; 2]) -> Way {
    let [a, b] = between;
    let [one, other] = between.map(|n| &spec.clusters[n]);
    let said: Option<&LinkInfo> = spec.links.iter().find(|link| link.joins(a, b));
    let have_relays = !one.relays.is_empty() && !other.relays.is_empty();
    let dial = said.and_then(|link| link.dial).map(usize::from);
    let by_relays = said
        .and_then(|link| link.via)
        .map_or(have_relays && dial.is_none(), |via| via == Via::Relays);
    let link = Link {
        between: [one.name.to_string(), other.name.to_string()],
        bandwidth: said.and_then(|link| link.bandwidth_bits_per_s),
        delay_us: said.and_then(|link| link.delay_us),
        dialler: dial.and_then(|at| spec.clusters.get(at)).map(|it| it.name.to_string()),
        measured: None,
    };
    Way { link, by_relays }
}

fn conduct(
    gathering: Gathering,
    crew: &mut Crew,
    clusters: &[ClusterSpec],
    ways: &[Way],
    how: &How,
    at: &[SocketAddr],
) -> Result<Facts, Vec<String>> {
    let (mut ended, mut is_told): (Option<(Instant, String)>, bool) = (None, false);
    let mut codes = BTreeMap::new();
    // Told once: what others see is still worth looking at.
    let mut watch = || {
        for (member, code) in crew.reap() {
            codes.entry(member).or_insert(code);
            ended.get_or_insert_with(|| (Instant::now(), fate(&clusters[member], code)));
        }
        match &ended {
            Some((since, why)) if !is_told && since.elapsed() >= GRACE => {
                is_told = true;
                Err(why.clone())
            }
            _ => Ok(()),
        }
    };
    let gathered = Conductor::gather_some(gathering, &mut watch);
    let (mut conductor, missing) = gathered.map_err(|error| vec![error.to_string()])?;
    let absent = conductor.missing().to_vec();
    let mut facts = conductor.examine(ways, how);
    conductor.leave();
    let_end(crew, clusters.len());
    let reason = missing.map_or_else(String::new, |why| match why {
        ProbeError::Missing { seconds, .. } => format!(" after {seconds} s"),
        why => format!("; it was not waited for longer: {why}"),
    });
    let absences = absent.iter().map(|(name, came)| {
        let member = clusters.iter().position(|cluster| cluster.name.as_str() == name);
        let code = member.and_then(|member| codes.get(&member).copied());
        let what = format!("{came}{reason}");
        absence(name, member.map(|member| &clusters[member]), code, what, at)
    });
    facts.troubles.extend(absences);
    Ok(facts)
}

fn fate(cluster: &ClusterSpec, code: i32) -> String {
    head::fate(cluster, code, "before its nodes had come")
}

/// Why a cluster has not come: its launcher has ended, or else `what`.
fn absence(
    name: &str,
    cluster: Option<&ClusterSpec>,
    code: Option<i32>,
    what: String,
    at: &[SocketAddr],
) -> Trouble {
    let head = cluster.and_then(|cluster| Some((cluster, cluster.head.as_ref()?)));
    let hint = head.map(|(cluster, head)| match code {
        Some(code) => head::remedy(cluster, head, code),
        None => head::must_work(head),
    });
    let own = cluster.zip(code).map(|(cluster, code)| fate(cluster, code));
    Trouble { cluster: Some(name.to_owned()), what: own.unwrap_or(what), at: at.to_vec(), hint }
}

/// Looks before a job starts, and says what is wrong.
///
/// # Errors
/// When a job would not work.
pub(crate) fn before(spec: &JobSpec, gridmpi: &Path) -> Result<(), Vec<String>> {
    say!("looking at nodes and links before the job starts (gridmpi doctor)");
    let facts = examine(spec, gridmpi, &How::default())?;
    let findings = gridmpi_doctor::findings(&facts);
    let told: Vec<_> = findings.into_iter().filter(|f| f.severity <= Severity::Warning).collect();
    gridmpi_doctor::text(&told, false).lines().for_each(|line| say!("{line}"));
    if gridmpi_doctor::worst(&told) == Severity::Error {
        let problem = "the job is not started. Without --doctor it is started all the same";
        return Err(vec![problem.to_owned()]);
    }
    Ok(())
}

/// The command that looks why clusters do not come. None where it would find what is not so: where the job's one open port
/// is taken by the job itself, where nothing could be started, and where the file cannot be read again, as a pipe cannot.
pub(crate) fn later(spec: &JobSpec, options: &RunOptions) -> Option<CommandLine> {
    let file = options.file.as_ref().filter(|file| file.is_file())?.display().to_string();
    let listen = spec.listen.as_deref().and_then(|text| parse_listen(text).ok());
    let is_taken = listen.is_some_and(|at| at.port() != 0);
    let words = vec![options.gridmpi.display().to_string(), "doctor".to_owned(), file];
    let line = CommandLine::of_ours(words);
    (!is_taken && !ways(spec).is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"
[[cluster]]
name = "a"
hosts = ["a1", "a2", "a3"]
ranks_per_host = 4
relays = ["gw-a:7070"]
[[cluster]]
name = "b"
hosts = ["b1"]
relays = ["gw-b:7070"]
[[cluster]]
name = "c"
[[cluster]]
name = "d"
launcher = "join"
[[link]]
between = ["b", "a"]
bandwidth = "1 Gbit/s"
delay = "10 ms"
"#;

    fn spec(text: &str) -> JobSpec {
        crate::file::parse("job.toml", text).unwrap()
    }

    #[test]
    fn the_first_and_the_last_host_stand_for_a_cluster() {
        let spec = spec(JOB);
        let hosts = |n: usize, how: &How| few(&spec.clusters[n], how).hosts.join(" ");
        assert_eq!(hosts(0, &How::default()), "a1 a3");
        assert_eq!(nodes(&few(&spec.clusters[0], &How::default())).rank_count(), Some(2));
        assert_eq!(hosts(0, &How { all_nodes: true, ..How::default() }), "a1 a2 a3");
        assert_eq!(
            (hosts(1, &How::default()), hosts(2, &How::default())),
            ("b1".into(), String::new())
        );
    }

    #[test]
    fn every_pair_that_can_be_started_is_looked_at_in_the_way_that_the_job_would_use() {
        let ways = ways(&spec(JOB));
        let names: Vec<String> = ways.iter().map(|way| way.link.between.join("")).collect();
        assert_eq!(names, ["ab", "ac", "bc"]);
        assert_eq!(ways.iter().map(|way| way.by_relays).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(
            (ways[0].link.bandwidth, ways[0].link.delay_us),
            (Some(1_000_000_000), Some(10_000))
        );
    }

    #[test]
    fn a_job_that_does_not_begin_is_looked_at_where_that_tells_something() {
        let mut spec = spec(JOB);
        let mut options = RunOptions { gridmpi: "gridmpi".into(), ..RunOptions::default() };
        assert!(later(&spec, &options).is_none());
        options.file = Some("/dev/null".into());
        assert!(later(&spec, &options).is_none());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        options.file = Some(file.into());
        assert_eq!(later(&spec, &options).unwrap().words, ["gridmpi", "doctor", file]);
        spec.listen = Some("127.0.0.1:0".to_owned());
        assert!(later(&spec, &options).is_some());
        spec.listen = Some(":7000".to_owned());
        assert!(later(&spec, &options).is_none());
        spec.listen = None;
        spec.clusters.truncate(1);
        assert!(later(&spec, &options).is_none());
    }

    #[test]
    fn clusters_that_come_by_hand_are_looked_at_by_hand() {
        let text = "[[cluster]]\nname = \"a\"\n[[cluster]]\nname = \"b\"\nlauncher = \"join\"\n";
        let problems = examine(&spec(text), Path::new("x"), &How::default()).unwrap_err();
        assert!(problems[0].contains("gridmpi doctor --listen"), "{problems:?}");
    }
}
