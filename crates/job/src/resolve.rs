//! Settles how a cluster is launched from this machine, or says why it cannot be.

use crate::compose::{self, Injection, Surroundings};
use crate::launcher::{self, LauncherError};
use crate::library::{self, LibraryError};
use crate::program::{self, Program, ProgramError};
use crate::sessions;
use crate::spec::{ClusterSpec, Family, Launcher, Style};
use gridmpi_bootstrap::JobEnv;
use gridmpi_bootstrap::env::TOKEN;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why a cluster cannot be launched. Shown to the user after the cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The launcher cannot be used.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The program cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The library is not where it should be.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// What the launcher is to reach its hosts by.
    #[error("`remote_shell` {0} is not on this machine: give its full path")]
    NoRemoteShell(String),
    /// What the launcher would not find.
    #[error(
        "`remote_shell` {0} has a blank in its path, and Open MPI takes what follows for an argument: name a link to it whose path has \
         none"
    )]
    BlankInRemoteShell(String),
    /// Where the launcher is to run.
    #[error(
        "there is no directory `{0}` on the machine where the launcher runs: correct the cluster's `directory`, or make it"
    )]
    NoDirectory(String),
    /// Nothing to run.
    #[error("no program: give it after `--`, as [job] `program`, or as the cluster's `program`")]
    NoProgram,
    /// The program's file does not exist here.
    #[error(
        "program `{0}` is not on this machine. If it is only on the cluster's nodes, say which MPI \
         it is built for by `mpi = \"mpich\"` or `mpi = \"openmpi\"` (--mpi NAME=FAMILY)"
    )]
    NoSuchProgram(String),
    /// Program and launcher are of different MPIs.
    #[error(
        "program `{program}` is built for {built}{library}, but launcher `{launcher}` starts \
         programs of {starts}: use {built}'s own mpiexec, or a program built for {starts} \
         (`program` of the cluster; --program NAME=PATH)"
    )]
    Mismatch {
        /// The program.
        program: String,
        /// Its family.
        built: Family,
        /// The library that shows it, in parentheses.
        library: String,
        /// The launcher.
        launcher: String,
        /// Its family.
        starts: Family,
    },
    /// Neither the program nor the launcher tells.
    #[error(
        "neither program `{0}` nor its launcher tells which MPI it uses: say it by \
         `mpi = \"mpich\"` or `mpi = \"openmpi\"` (--mpi NAME=FAMILY)"
    )]
    NoFamily(String),
    /// Nodes of a measurement cannot take the program's place.
    #[error(
        "cannot tell where the program stands in `{0}`, and so not start what measures in its place: leave out --measure here and \
         bandwidth = \"measure\" in the job file, or give the program itself (an MPI program's file)"
    )]
    NoPlace(String),
    /// Open MPI refuses root.
    #[error(
        "Open MPI's launcher refuses to run as root. Run as an ordinary user; or, where root is \
         meant (a container), set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    )]
    Root,
}

/// A cluster that can be launched here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Launcher, its arguments, program and its arguments; without the library.
    line: Vec<String>,
    pub(crate) style: Style,
    library: Option<PathBuf>,
    variables: BTreeMap<String, String>,
    extra: Vec<(&'static str, &'static str)>,
    directory: Option<PathBuf>,
}

/// A command line and the environment it needs beyond our own.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<String>,
    pub(crate) set: Vec<(String, String)>,
    pub(crate) unset: Vec<&'static str>,
    pub(crate) directory: Option<PathBuf>,
    /// What a launcher shares with others of its kind on this machine, and they may remove.
    pub(crate) shares: Option<PathBuf>,
}

impl CommandLine {
    /// Of a program that is part of this one, or leads to it.
    pub(crate) fn of_ours(words: Vec<String>) -> Self {
        Self { words, set: Vec::new(), unset: vec![TOKEN], directory: None, shares: None }
    }
}

/// Settles a cluster of the job file. `command` is its program with arguments, `env` the variables
/// of the whole job, `gridmpi` our own program file.
pub(crate) fn cluster(
    spec: &ClusterSpec,
    command: &[String],
    env: &BTreeMap<String, String>,
    around: Surroundings,
    gridmpi: &Path,
) -> Result<Resolved, ResolveError> {
    let name = command.first().ok_or(ResolveError::NoProgram)?;
    let launcher = launcher_of(spec)?;
    let program = in_directory(name, spec);
    let family = family(&program, spec.mpi, launcher.style, &launcher.name)?;
    let library = library::find(family, launcher.style, gridmpi)?;
    Ok(Resolved { library: Some(library), ..settled(spec, launcher, command, env, around)? })
}

/// Settles a cluster's launcher for a command that is no MPI program: the library stays out.
pub(crate) fn tool(
    spec: &ClusterSpec,
    command: &[String],
    env: &BTreeMap<String, String>,
    around: Surroundings,
) -> Result<Resolved, ResolveError> {
    settled(spec, launcher_of(spec)?, command, env, around)
}

fn settled(
    spec: &ClusterSpec,
    launcher: Known,
    command: &[String],
    env: &BTreeMap<String, String>,
    around: Surroundings,
) -> Result<Resolved, ResolveError> {
    let Known { words, style, .. } = launcher;
    let spec = &with_remote_shell(spec, style)?;
    let variables: BTreeMap<_, _> = env.clone().into_iter().chain(spec.env.clone()).collect();
    let mut line = compose::launcher(&words, style, spec, around);
    check_root(style, &line, &variables)?;
    line.extend(command.iter().cloned());
    Ok(Resolved {
        line,
        style,
        library: None,
        variables,
        extra: compose::launcher_variables(style, spec, around),
        directory: spec.directory.clone(),
    })
}

/// A launcher that is on this machine.
struct Known {
    /// How we find it from here.
    name: String,
    /// Itself and its arguments.
    words: Vec<String>,
    style: Style,
}

fn launcher_of(spec: &ClusterSpec) -> Result<Known, ResolveError> {
    let Launcher::Command(words) = &spec.launcher else { return Err(ResolveError::NoProgram) };
    if let Some(directory) = spec.directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(ResolveError::NoDirectory(directory.display().to_string()));
    }
    let words = with_whole_path(words, |path| program::find(&in_directory(path, spec)).is_some());
    let name = words.first().map(|word| in_directory(word, spec)).unwrap_or_default();
    let style = match spec.style {
        Some(style) if program::find(&name).is_some() => style,
        Some(_) => return Err(LauncherError::Missing(name).into()),
        None => launcher::style(&name)?,
    };
    Ok(Known { name, words, style })
}

/// Words of one who did not think of blanks: where only several of the first make a path that is there, they are one.
fn with_whole_path(words: &[String], is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let is_path = words.first().is_some_and(|word| word.contains('/'));
    let path = |count: usize| words[..count].join(" ");
    let most = if is_path { words.len() } else { 0 };
    let Some(count) = (1..=most).find(|count| is_there(&path(*count))) else {
        return words.to_vec();
    };
    [path(count)].into_iter().chain(words[count..].iter().cloned()).collect()
}

/// A launcher or program as we find it from here: a relative path begins where the cluster runs. Names are searched in `PATH`.
fn in_directory(name: &str, spec: &ClusterSpec) -> String {
    match &spec.directory {
        Some(directory) if name.contains('/') => directory.join(name).display().to_string(),
        _ => name.to_owned(),
    }
}

/// Launchers do not search for their remote shell alike, so they get its full path.
fn with_remote_shell(spec: &ClusterSpec, style: Style) -> Result<ClusterSpec, ResolveError> {
    let mut spec = spec.clone();
    if let Some(shell) = &spec.remote_shell {
        let words: Vec<String> = shell.split(' ').map(str::to_owned).collect();
        let words = with_whole_path(&words, |path| program::find(path).is_some());
        let Some((name, arguments)) = words.split_first() else { return Ok(spec) };
        let path = program::find(name).and_then(|path| std::path::absolute(path).ok());
        let path = path.ok_or_else(|| ResolveError::NoRemoteShell(name.clone()))?;
        let path = path.display().to_string();
        if path.contains(' ') && style.family() == Some(Family::OpenMpi) {
            return Err(ResolveError::BlankInRemoteShell(path));
        }
        spec.remote_shell = Some([&[path][..], arguments].concat().join(" ").trim_end().to_owned());
    }
    Ok(spec)
}

/// Settles a launcher's command line as a user wrote it for `gridmpi join`.
pub(crate) fn line(
    line: &[String],
    style: Option<Style>,
    mpi: Option<Family>,
    gridmpi: &Path,
) -> Result<Resolved, ResolveError> {
    let launcher = line.first().ok_or(ResolveError::NoProgram)?;
    let style = style.map_or_else(|| launcher::style(launcher), Ok)?;
    let program = line[1..].iter().find(|word| is_mpi_program(word));
    let family = match (program, mpi.or(style.family())) {
        (Some(program), _) => family(program, mpi, style, launcher)?,
        (None, Some(family)) => family,
        (None, None) => return Err(ResolveError::NoFamily(line[1..].join(" "))),
    };
    check_root(style, line, &BTreeMap::new())?;
    Ok(Resolved {
        line: line.to_vec(),
        style,
        library: Some(library::find(family, style, gridmpi)?),
        variables: BTreeMap::new(),
        extra: Vec::new(),
        directory: None,
    })
}

/// Settles such a line with `command` instead of its program, which is no MPI program: the library stays out.
pub(crate) fn line_of_tool(
    line: &[String],
    style: Option<Style>,
    command: &[String],
) -> Result<Resolved, ResolveError> {
    let launcher = line.first().ok_or(ResolveError::NoProgram)?;
    let style = style.map_or_else(|| launcher::style(launcher), Ok)?;
    let place = line.iter().skip(1).position(|word| is_mpi_program(word));
    let place = place.ok_or_else(|| ResolveError::NoPlace(line[1..].join(" ")))?;
    let mut words = line[..=place].to_vec();
    words.extend(command.iter().cloned());
    check_root(style, &words, &BTreeMap::new())?;
    Ok(Resolved {
        line: words,
        style,
        library: None,
        variables: BTreeMap::new(),
        extra: Vec::new(),
        directory: None,
    })
}

/// Where the program stands in a user's own command line, only the files tell.
fn is_mpi_program(word: &str) -> bool {
    !word.starts_with('-') && matches!(program::inspect(word), Ok(Program::Mpi(..)))
}

fn family(
    name: &str,
    stated: Option<Family>,
    style: Style,
    launcher: &str,
) -> Result<Family, ResolveError> {
    let (found, library) = match (stated, program::inspect(name)) {
        (Some(stated), _) => (Some(stated), String::new()),
        (None, Ok(Program::Mpi(family, library))) => (Some(family), format!(" ({library})")),
        (None, Ok(Program::Interpreted)) => (None, String::new()),
        (None, Ok(Program::Missing)) => return Err(ResolveError::NoSuchProgram(name.to_owned())),
        (None, Err(error)) => return Err(error.into()),
    };
    match (found, style.family()) {
        (Some(built), Some(starts)) if built != starts => Err(ResolveError::Mismatch {
            program: name.to_owned(),
            built,
            library,
            launcher: launcher.to_owned(),
            starts,
        }),
        (found, starts) => found.or(starts).ok_or_else(|| ResolveError::NoFamily(name.to_owned())),
    }
}

fn check_root(
    style: Style,
    line: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<(), ResolveError> {
    const ALLOWING: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    let set = |name: &&str| variables.contains_key(*name) || std::env::var_os(name).is_some();
    let allowed = ALLOWING.iter().all(set) || line.iter().any(|w| w == "--allow-run-as-root");
    let open_mpi = style.family() == Some(Family::OpenMpi);
    if open_mpi && rustix::process::geteuid().is_root() && !allowed {
        return Err(ResolveError::Root);
    }
    Ok(())
}

impl Resolved {
    /// The command that starts the ranks of `env`'s cluster. Not to be shown: see [`CommandLine`].
    pub(crate) fn command(&self, env: &JobEnv) -> CommandLine {
        let job = env.variables().into_iter().map(|(name, value)| (name.to_owned(), value));
        let ours = self.variables.clone().into_iter();
        let set: Vec<_> = ours.chain(job).collect();
        let preloaded = self.variables.get("LD_PRELOAD").cloned();
        let preloaded = preloaded.or_else(|| std::env::var("LD_PRELOAD").ok()).map(without_ours);
        let names = set.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "LD_PRELOAD");
        let injection = Injection {
            library: self.library.as_deref(),
            preloaded: preloaded.as_deref(),
            variables: names.collect(),
        };
        let words = compose::inject(&self.line, self.style, &injection);
        let extra =
            self.extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // The launcher itself must not be preloaded, and ranks need not know the token.
        let set: Vec<_> =
            set.into_iter().filter(|(name, _)| name != "LD_PRELOAD").chain(extra).collect();
        let shares = sessions::shared(self.style, &words, &set, self.directory.as_deref());
        CommandLine {
            shares,
            words,
            set,
            unset: vec!["LD_PRELOAD", TOKEN],
            directory: self.directory.clone(),
        }
    }
}

/// A rank that itself calls `gridmpi run` has our library preloaded already.
fn without_ours(preloaded: String) -> String {
    let others = preloaded.split([':', ' ']).filter(|path| !path.contains("/libgridmpi"));
    others.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{ClusterName, Secret, Settings};
    use std::time::Duration;

    fn resolved(style: Style) -> Resolved {
        Resolved {
            line: ["mpiexec", "-n", "2", "./p"].map(str::to_owned).to_vec(),
            style,
            library: Some("/lib/x.so".into()),
            variables: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            extra: Vec::new(),
            directory: None,
        }
    }

    fn env() -> (JobEnv, String) {
        let secret = Secret::parse(&"7".repeat(32)).unwrap();
        let env = JobEnv {
            coordinators: vec!["127.0.0.1:9".parse().unwrap()],
            job: secret.job(),
            key: secret.key(),
            cluster: ClusterName::new("a").unwrap(),
            relays: None,
            interface: None,
            wait: Duration::from_secs(1),
            settings: Settings::default(),
        };
        (env, secret.key().reveal())
    }

    #[test]
    fn the_key_is_in_the_environment_and_never_in_the_arguments() {
        let (env, key) = env();
        for style in [Style::Hydra, Style::OpenMpi4, Style::OpenMpi5, Style::Srun] {
            let command = resolved(style).command(&env);
            assert!(!command.words.join(" ").contains(&key));
            assert!(command.set.iter().any(|(name, value)| name == "GRIDMPI_KEY" && *value == key));
            assert!(command.unset.contains(&"LD_PRELOAD"));
        }
    }

    #[test]
    fn a_job_within_a_job_has_one_library() {
        let preloaded = "/a/libgridmpi-mpich.so:/b/other.so /c/libgridmpi_openmpi.so".to_owned();
        assert_eq!(without_ours(preloaded), "/b/other.so");
    }

    #[test]
    fn a_path_with_a_blank_is_one_word_where_it_is_there() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = |text: &str| with_whole_path(&words(text), |path| path == "/opt/my mpi/run");
        assert_eq!(found("/opt/my mpi/run -v"), ["/opt/my mpi/run", "-v"]);
        assert_eq!(found("/opt/my mpi/other"), ["/opt/my", "mpi/other"]);
        let first = |text: &str| with_whole_path(&words(text), |path| !path.is_empty());
        assert_eq!(first("/bin/run a"), ["/bin/run", "a"]);
        assert_eq!(with_whole_path(&words("run a"), |path| path == "run a"), ["run", "a"]);
    }

    #[test]
    fn open_mpi_takes_no_remote_shell_with_a_blank() {
        let directory = std::env::temp_dir().join(format!("gridmpi my {}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let agent = directory.join("agent");
        std::fs::write(&agent, "").unwrap();
        let mut spec = ClusterSpec::new(ClusterName::new("a").unwrap(), Launcher::Join);
        spec.remote_shell = Some(format!("{} -x", agent.display()));
        let of = |style| with_remote_shell(&spec, style).map(|spec| spec.remote_shell);
        assert_eq!(of(Style::Hydra), Ok(spec.remote_shell.clone()));
        let refused = of(Style::OpenMpi5).unwrap_err().to_string();
        assert!(refused.contains(&agent.display().to_string()), "{refused}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn open_mpi_is_told_the_name_of_every_variable() {
        let (env, _) = env();
        let words = resolved(Style::OpenMpi4).command(&env).words;
        for name in ["A", "GRIDMPI_KEY", "GRIDMPI_COORDINATOR", "GRIDMPI_CLUSTER"] {
            let at = words.iter().position(|word| word == name).unwrap();
            assert_eq!(words[at - 1], "-x");
        }
        assert!(!words.contains(&"GRIDMPI_INTERFACE".to_owned()), "unset variables are not named");
    }

    #[test]
    fn families_come_from_the_user_the_program_or_the_launcher() {
        let family = |name, stated, style| family(name, stated, style, "mpiexec");
        assert_eq!(family("sh", None, Style::Hydra), Ok(Family::Mpich));
        assert_eq!(family("sh", None, Style::OpenMpi5), Ok(Family::OpenMpi));
        assert_eq!(family("sh", Some(Family::Mpich), Style::Srun), Ok(Family::Mpich));
        let error = family("sh", None, Style::Srun).unwrap_err();
        assert_eq!(error, ResolveError::NoFamily("sh".to_owned()));
        assert!(matches!(
            family("/none/x", None, Style::Hydra),
            Err(ResolveError::NoSuchProgram(_))
        ));
        assert_eq!(family("/none/x", Some(Family::Mpich), Style::Hydra), Ok(Family::Mpich));
        let error = family("sh", Some(Family::OpenMpi), Style::Hydra).unwrap_err().to_string();
        assert!(error.contains("built for Open MPI") && error.contains("MPICH"), "{error}");
    }
}
