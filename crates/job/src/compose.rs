//! Command lines of launchers: what the job file says in each launcher's own words, and the
//! library for ranks only.
//!
//! Secrets never appear here: arguments are for everybody to see.

use crate::spec::{ClusterSpec, Style};
use std::path::Path;

/// The longest list of hosts, in bytes: half of what Linux takes as one argument.
const LONGEST_LIST: usize = 64 << 10;

/// Circumstances that decide defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// A batch system allots nodes to launchers here.
    pub(crate) batch: bool,
    /// Several launchers without hosts of their own share this machine.
    pub(crate) shared: bool,
    /// Processors of this machine.
    pub(crate) processors: u32,
    /// Show the local rank before each line of output.
    pub(crate) label: bool,
}

impl Surroundings {
    /// What this machine and its environment tell.
    pub(crate) fn of_this_machine() -> Self {
        const BATCH: [&str; 5] =
            ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "COBALT_JOBID"];
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            batch: BATCH.iter().any(|name| std::env::var_os(name).is_some()),
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }
}

/// What makes ranks out of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Injection<'a> {
    /// The preloaded library; none for programs without MPI.
    pub(crate) library: Option<&'a Path>,
    /// What the user preloads already.
    pub(crate) preloaded: Option<&'a str>,
    /// Names of the variables that ranks need; each must be set for the launcher.
    pub(crate) variables: Vec<&'a str>,
}

/// The launcher's words for `cluster`, without the library.
pub(crate) fn launcher(
    words: &[String],
    style: Style,
    cluster: &ClusterSpec,
    around: Surroundings,
) -> Vec<String> {
    let mut line = words.to_vec();
    line.extend(match style {
        Style::Hydra => hydra(cluster, around),
        Style::OpenMpi4 | Style::OpenMpi5 => open_mpi(style, cluster, around),
        Style::Srun => srun(cluster, around),
    });
    line.extend(cluster.launcher_args.iter().cloned());
    line
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn count(option: &str, value: Option<u32>) -> Vec<String> {
    value.map_or_else(Vec::new, |value| vec![option.to_owned(), value.to_string()])
}

fn hydra(cluster: &ClusterSpec, around: Surroundings) -> Vec<String> {
    let mut line = count("-n", cluster.rank_count());
    if around.label {
        line.push("-prepend-rank".to_owned());
    }
    let spread = cluster.spread();
    if !spread.is_empty() {
        line.push("-hosts".to_owned());
        match alike(&spread) {
            Some(each) => {
                line.push(names(&spread));
                line.extend(count("-ppn", each));
            }
            None => line.push(uneven(&spread)),
        }
    }
    if let Some(shell) = &cluster.remote_shell {
        line.extend(strings(["-launcher", "ssh", "-launcher-exec", shell]));
    }
    line
}

fn open_mpi(style: Style, cluster: &ClusterSpec, around: Surroundings) -> Vec<String> {
    let mut line = count("-n", cluster.rank_count());
    if around.label {
        line.push("--tag-output".to_owned());
    }
    let spread = cluster.spread();
    if !spread.is_empty() {
        line.extend(["--host".to_owned(), counted(&spread)]);
    } else if !around.batch {
        line.extend(on_this_machine(cluster, around));
    }
    if let Some(shell) = &cluster.remote_shell {
        // The agent need not exist on the nodes, so none of them may start others.
        line.extend(match style {
            Style::OpenMpi5 => strings([
                "--prtemca",
                "plm_ssh_agent",
                shell,
                "--prtemca",
                "plm_ssh_no_tree_spawn",
                "1",
            ]),
            _ => strings(["--mca", "plm_rsh_agent", shell, "--mca", "plm_rsh_no_tree_spawn", "1"]),
        });
    }
    line
}

/// Open MPI refuses more ranks than processors unless told, and binds two clusters' ranks to the
/// same first processors.
fn on_this_machine(cluster: &ClusterSpec, around: Surroundings) -> Vec<String> {
    let given = |option: &str| {
        let launcher = match &cluster.launcher {
            crate::spec::Launcher::Command(words) => words.as_slice(),
            crate::spec::Launcher::Join => &[],
        };
        launcher.iter().chain(&cluster.launcher_args).any(|word| word.starts_with(option))
    };
    let mut line = Vec::new();
    let many = cluster.rank_count().is_some_and(|ranks| ranks > around.processors);
    if many && !["--oversubscribe", "-oversubscribe", "--map-by", "-map-by"].into_iter().any(given)
    {
        line.push("--oversubscribe".to_owned());
    }
    if around.shared && !["--bind-to", "-bind-to"].into_iter().any(given) {
        line.extend(strings(["--bind-to", "none"]));
    }
    line
}

fn srun(cluster: &ClusterSpec, around: Surroundings) -> Vec<String> {
    let mut line = count("-n", cluster.rank_count());
    if around.label {
        line.push("--label".to_owned());
    }
    let spread = cluster.spread();
    if !spread.is_empty() {
        line.extend(["-w".to_owned(), names(&spread)]);
        // Without a number for each, srun itself gives each of these nodes as many as any other, or one more.
        line.extend(match alike(&spread) {
            Some(each) => count("--ntasks-per-node", each),
            None => count("-N", u32::try_from(spread.len()).ok()),
        });
    }
    line
}

type Spread<'a> = [(&'a str, Option<u32>)];

/// The number of ranks that all hosts have.
fn alike(spread: &Spread<'_>) -> Option<Option<u32>> {
    let (_, first) = spread.first()?;
    spread.iter().all(|(_, ranks)| ranks == first).then_some(*first)
}

fn names(spread: &Spread<'_>) -> String {
    spread.iter().map(|(host, _)| *host).collect::<Vec<_>>().join(",")
}

/// Different numbers in hydra's words: a name for each rank, as Intel MPI takes `host:number` and does not heed it. Where that would be
/// too long for an argument, only MPICH spreads them so.
fn uneven(spread: &Spread<'_>) -> String {
    let times = |ranks: Option<u32>| ranks.unwrap_or(1) as usize;
    let length =
        |(host, ranks): &(&str, Option<u32>)| (host.len() + 1).saturating_mul(times(*ranks));
    if spread.iter().map(length).fold(0, usize::saturating_add) > LONGEST_LIST {
        return counted(spread);
    }
    let each = spread.iter().flat_map(|(host, ranks)| vec![*host; times(*ranks)]);
    each.collect::<Vec<_>>().join(",")
}

/// Each with its number of ranks.
fn counted(spread: &Spread<'_>) -> String {
    let one = |(host, ranks): &(&str, Option<u32>)| format!("{host}:{}", ranks.unwrap_or(1));
    spread.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Variables for the launcher itself, where options cannot say it. They are Intel MPI's; other launchers of its style ignore them.
pub(crate) fn launcher_variables(
    style: Style,
    cluster: &ClusterSpec,
    around: Surroundings,
) -> Vec<(&'static str, &'static str)> {
    let is_unpinned = cluster.hosts.is_empty() && !around.batch && around.shared;
    let mut variables = Vec::new();
    if style == Style::Hydra && is_unpinned && std::env::var_os("I_MPI_PIN").is_none() {
        // It binds each cluster's ranks to the same first processors.
        variables.push(("I_MPI_PIN", "0"));
    }
    if style == Style::Hydra && !cluster.hosts.is_empty() && alike(&cluster.spread()).is_none() {
        // A host gets one rank each time that it is named. As an option it would have MPICH go round the hosts.
        variables.push(("I_MPI_PERHOST", "1"));
    }
    variables
}

/// Puts the library and the job's variables into a launcher's command line, which starts with the
/// launcher. The rest of the line may be the user's own.
pub(crate) fn inject(line: &[String], style: Style, injection: &Injection<'_>) -> Vec<String> {
    let Some((launcher, rest)) = line.split_first() else { return Vec::new() };
    let preload = injection.preload();
    let options = match style {
        // Hydra hands its own environment to every rank.
        Style::Hydra => {
            let set = |preload| vec!["-genv".to_owned(), "LD_PRELOAD".to_owned(), preload];
            preload.map_or_else(Vec::new, set)
        }
        Style::OpenMpi4 | Style::OpenMpi5 => {
            let set = |preload| vec!["-x".to_owned(), format!("LD_PRELOAD={preload}")];
            let mut options = preload.map_or_else(Vec::new, set);
            for name in &injection.variables {
                options.extend(["-x".to_owned(), (*name).to_owned()]);
            }
            options
        }
        Style::Srun => vec![match preload {
            Some(preload) => format!("--export=ALL,LD_PRELOAD={preload}"),
            None => "--export=ALL".to_owned(),
        }],
    };
    [launcher.clone()].into_iter().chain(options).chain(rest.iter().cloned()).collect()
}

impl Injection<'_> {
    fn preload(&self) -> Option<String> {
        let library = self.library?.display();
        Some(match self.preloaded.filter(|other| !other.is_empty()) {
            Some(other) => format!("{library}:{other}"),
            None => library.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Launcher;
    use gridmpi_bootstrap::ClusterName;

    fn cluster(ranks: u32) -> ClusterSpec {
        let mut spec = ClusterSpec::new(ClusterName::new("a").unwrap(), Launcher::Join);
        spec.ranks = Some(ranks);
        spec
    }

    fn line(style: Style, cluster: &ClusterSpec, around: Surroundings) -> String {
        launcher(&["mpiexec".to_owned()], style, cluster, around).join(" ")
    }

    #[test]
    fn hosts_and_remote_shells_are_said_in_each_launchers_words() {
        let mut spec = cluster(4);
        spec.hosts = vec!["x".into(), "y".into()];
        spec.remote_shell = Some("/agent".into());
        let around = Surroundings { processors: 2, ..Surroundings::default() };
        let expected = [
            (Style::Hydra, "mpiexec -n 4 -hosts x,y -ppn 2 -launcher ssh -launcher-exec /agent"),
            (
                Style::OpenMpi4,
                "mpiexec -n 4 --host x:2,y:2 --mca plm_rsh_agent /agent \
                 --mca plm_rsh_no_tree_spawn 1",
            ),
            (
                Style::OpenMpi5,
                "mpiexec -n 4 --host x:2,y:2 --prtemca plm_ssh_agent /agent \
                 --prtemca plm_ssh_no_tree_spawn 1",
            ),
            (Style::Srun, "mpiexec -n 4 -w x,y --ntasks-per-node 2"),
        ];
        for (style, expected) in expected {
            assert_eq!(line(style, &spec, around), expected);
        }
    }

    #[test]
    fn ranks_that_hosts_cannot_share_alike_are_said_for_each() {
        let mut spec = cluster(4);
        spec.hosts = vec!["x".into(), "y".into(), "z".into()];
        let expected = [
            (Style::Hydra, "mpiexec -n 4 -hosts x,x,y,z"),
            (Style::OpenMpi4, "mpiexec -n 4 --host x:2,y:1,z:1"),
            (Style::OpenMpi5, "mpiexec -n 4 --host x:2,y:1,z:1"),
            (Style::Srun, "mpiexec -n 4 -w x,y,z -N 3"),
        ];
        for (style, expected) in expected {
            assert_eq!(line(style, &spec, Surroundings::default()), expected);
        }
        let around = Surroundings::default();
        let variables = |style, spec: &ClusterSpec| launcher_variables(style, spec, around);
        assert_eq!(variables(Style::Hydra, &spec), [("I_MPI_PERHOST", "1")]);
        assert!(variables(Style::OpenMpi5, &spec).is_empty());
        spec.ranks = Some(100_000);
        assert!(line(Style::Hydra, &spec, around).ends_with(" -hosts x:33334,y:33333,z:33333"));
        spec.ranks = Some(2);
        assert!(variables(Style::Hydra, &spec).is_empty());
        let few = line(Style::Hydra, &spec, Surroundings::default());
        assert_eq!(few, "mpiexec -n 2 -hosts x,y -ppn 1");
    }

    #[test]
    fn open_mpi_may_share_this_machine_unless_the_user_decides() {
        let around = Surroundings { processors: 2, shared: true, ..Surroundings::default() };
        let mut spec = cluster(4);
        let expected = "mpiexec -n 4 --oversubscribe --bind-to none";
        assert_eq!(line(Style::OpenMpi4, &spec, around), expected);
        spec.launcher_args = vec!["--bind-to".into(), "core".into()];
        let expected = "mpiexec -n 4 --oversubscribe --bind-to core";
        assert_eq!(line(Style::OpenMpi5, &spec, around), expected);
        let batch = Surroundings { batch: true, ..around };
        assert_eq!(line(Style::OpenMpi4, &cluster(4), batch), "mpiexec -n 4");
        let room = Surroundings { processors: 2, ..Surroundings::default() };
        assert_eq!(line(Style::OpenMpi4, &cluster(2), room), "mpiexec -n 2");
    }

    #[test]
    fn the_library_reaches_ranks_and_secrets_stay_names() {
        let injection = Injection {
            library: Some(Path::new("/lib/g.so")),
            preloaded: Some("/other.so"),
            variables: vec!["GRIDMPI_KEY", "OMP_NUM_THREADS"],
        };
        let user = ["mpiexec", "-n", "2", "./p"].map(str::to_owned);
        let got = inject(&user, Style::Hydra, &injection).join(" ");
        assert_eq!(got, "mpiexec -genv LD_PRELOAD /lib/g.so:/other.so -n 2 ./p");
        let got = inject(&user, Style::Srun, &injection).join(" ");
        assert_eq!(got, "mpiexec --export=ALL,LD_PRELOAD=/lib/g.so:/other.so -n 2 ./p");
        for style in [Style::OpenMpi4, Style::OpenMpi5] {
            let got = inject(&user, style, &injection);
            assert!(got.contains(&"LD_PRELOAD=/lib/g.so:/other.so".to_owned()));
            let key = got.iter().position(|word| word.starts_with("GRIDMPI_KEY")).unwrap();
            assert_eq!((got[key - 1].as_str(), got[key].as_str()), ("-x", "GRIDMPI_KEY"));
            assert!(got.join(" ").ends_with("-x OMP_NUM_THREADS -n 2 ./p"), "{got:?}");
        }
    }
}
