//! One run: what is asked for, how long it may take, and the labs that are up.

use crate::error::BenchError;
use crate::place::{Job, Lab, Route, Stated};
use crate::process::Said;
use crate::programs::{Fitness, Mpi, Programs};
use crate::rates::programs::own::Own;
use crate::samples::Samples;
use gridmpi_report::terminal::tell;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All of it, but for taking the last lab down.
    all: Duration,
    /// One command.
    command: Duration,
    /// When it ends without its results: only if the system hangs in bringing a lab up or down.
    last: Option<Duration>,
}

/// Of `--quick`, as far as it is what a quick run is by default.
pub const QUICK: Limits = Limits {
    all: Duration::from_secs(45),
    command: Duration::from_secs(15),
    last: Some(Duration::from_secs(49)),
};
/// The same with relays.
pub const QUICK_RELAYS: Limits = Limits {
    all: Duration::from_secs(55),
    command: Duration::from_secs(15),
    last: Some(Duration::from_secs(59)),
};
/// The same where many nodes are brought up many times.
pub const QUICK_OVER_NODES: Limits = Limits {
    all: Duration::from_secs(60),
    command: Duration::from_secs(15),
    last: Some(Duration::from_secs(70)),
};
/// Of everything else.
pub const WHOLE: Limits =
    Limits { all: Duration::from_secs(3 * 3600), command: Duration::from_secs(300), last: None };

/// What was asked for beside the groups.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Where pictures of the traffic go.
    pub pictures: Option<PathBuf>,
    /// At which delays groups are measured that have none of their own, ms; none: at those of the run.
    pub delays: Vec<u32>,
    /// What the names of real programs must contain.
    pub program: Option<String>,
    /// How often each program is run.
    pub rounds: Option<usize>,
    /// In how many rounds at most, where fewer do not tell whether its bound is met.
    pub most_rounds: Option<usize>,
    /// What the names of cases with several relays must contain.
    pub case: Option<String>,
    /// Where the binaries of the NAS Parallel Benchmarks are.
    pub npb: Option<PathBuf>,
    /// A program of the user's own.
    pub own: Option<Own>,
}

/// One run.
#[derive(Debug)]
pub struct Session {
    /// The MPI on both sides.
    pub mpi: Mpi,
    programs: Programs,
    is_quick: bool,
    limits: Limits,
    deadline: Instant,
    lab: Option<(Route, Lab)>,
    /// What was asked for beside the groups.
    pub wishes: Wishes,
    /// Something could not be measured, and was told.
    pub has_gaps: bool,
    /// It was told that the time is over.
    is_late: bool,
    /// Calls the watchdog off when it is dropped.
    _watched: Option<Sender<()>>,
}

impl Session {
    /// Starts the clock.
    ///
    /// # Errors
    /// The MPI is not installed, or there is no place for programs.
    pub fn new(
        mpi: Option<&str>,
        fitness: Fitness,
        is_quick: bool,
        limits: Limits,
    ) -> Result<Self, BenchError> {
        let deadline = Instant::now() + limits.all;
        let mpi = Mpi::find(mpi, fitness)?;
        let programs = Programs::new(mpi.clone())?;
        let watched = limits.last.map(|last| watch(programs.place("."), last));
        Ok(Self {
            mpi,
            programs,
            is_quick,
            limits,
            deadline,
            lab: None,
            wishes: Wishes::default(),
            has_gaps: false,
            is_late: false,
            _watched: watched,
        })
    }

    /// One number for `--quick`, another for a whole run.
    #[must_use]
    pub fn choose<T>(&self, quick: T, whole: T) -> T {
        if self.is_quick { quick } else { whole }
    }

    /// The delays, ms: those asked for, or one list for `--quick`, another for a whole run.
    pub(crate) fn delays(&self, quick: &[u32], whole: &[u32]) -> Vec<u32> {
        match &self.wishes.delays[..] {
            [] => self.choose(quick, whole).to_vec(),
            asked => asked.to_vec(),
        }
    }

    /// Says that a group has a delay of its own, where others were asked for.
    pub(crate) fn tell_own_delay(&self, group: &str, delay_ms: u32) {
        if self.wishes.delays.iter().any(|asked| *asked != delay_ms) {
            tell(format_args!(
                "gridmpi bench: {group}: at {delay_ms} ms only, whatever --delay says"
            ));
        }
    }

    /// When the next command must have ended.
    ///
    /// # Errors
    /// The time is over.
    pub fn until(&self) -> Result<Instant, BenchError> {
        let now = Instant::now();
        if now >= self.deadline {
            return Err(BenchError::NoTime);
        }
        Ok(self.deadline.min(now + self.limits.command))
    }

    /// The lab with this path; another that was up goes down.
    ///
    /// # Errors
    /// It does not come up.
    pub fn lab(&mut self, route: Route) -> Result<&Lab, BenchError> {
        let is_up = self.lab.as_ref().is_some_and(|(known, _)| *known == route);
        if !is_up {
            self.drop_lab();
            self.lab = Some((route, Lab::up(route)?));
        }
        self.lab.as_ref().map(|(_, lab)| lab).ok_or(BenchError::NoTime)
    }

    /// The lab that is up, and what else the session has.
    ///
    /// # Errors
    /// None is up.
    pub fn with_lab(&self) -> Result<(&Self, &Lab), BenchError> {
        self.lab.as_ref().map(|(_, lab)| (self, lab)).ok_or(BenchError::NoTime)
    }

    /// Takes the lab down, and with it everything that still runs in it.
    pub fn drop_lab(&mut self) {
        self.lab = None;
    }

    /// Measures one of several things. What fails is told with its name and the reason, whatever is left of it goes with the lab, and the rest
    /// can be measured.
    pub fn part<T>(
        &mut self,
        name: &str,
        measure: impl FnOnce(&mut Self) -> Result<T, BenchError>,
    ) -> Option<T> {
        let error = match self.until().and_then(|_| measure(self)) {
            Ok(measured) => return Some(measured),
            Err(error) => error,
        };
        self.drop_lab();
        // That the time is over is told once.
        if !(matches!(error, BenchError::NoTime) && self.is_late) {
            tell(format_args!("gridmpi bench: {name}: not measured: {error}"));
        }
        self.is_late |= matches!(error, BenchError::NoTime);
        self.has_gaps = true;
        None
    }

    /// Where files live that are gone after the run, with the compiled programs.
    #[must_use]
    pub fn files(&self) -> &Programs {
        &self.programs
    }

    /// A compiled program.
    ///
    /// # Errors
    /// It does not compile.
    pub fn program(&self, name: &str) -> Result<PathBuf, BenchError> {
        self.programs.get(name, self.until()?)
    }

    /// Runs a program as a job over both clusters, without pacing; its samples.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn job(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
        ranks: [u32; 2],
    ) -> Result<Samples, BenchError> {
        // Held against bare TCP, so it is bare, too.
        let bare = [("GRIDMPI_PACING", "off"), ("GRIDMPI_TLS", "off")];
        self.job_with(route, program, arguments, ranks, &bare)
    }

    /// The same with settings of the library.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn job_with(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
        ranks: [u32; 2],
        settings: &[(&str, &str)],
    ) -> Result<Samples, BenchError> {
        let said = self.job_told(route, program, arguments, ranks, settings, Stated::ALL)?;
        Ok(Samples::parse(&said.out))
    }

    /// The same where the job file says so much of the network; all that was said.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn job_told(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
        ranks: [u32; 2],
        settings: &[(&str, &str)],
        stated: Stated,
    ) -> Result<Said, BenchError> {
        self.launch(route, program, arguments, ranks, Some((settings, stated)))
    }

    /// Runs a program by the vendor alone in the first cluster; its samples.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn alone(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
        ranks: u32,
    ) -> Result<Samples, BenchError> {
        let said = self.launch(route, program, arguments, [ranks, 0], None)?;
        Ok(Samples::parse(&said.out))
    }

    /// Runs a program by the vendor alone over all nodes of both clusters, as over those of one; its samples.
    ///
    /// # Errors
    /// It fails or is late.
    pub fn flat(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
    ) -> Result<Samples, BenchError> {
        let (mpi, program) = (self.mpi.clone(), self.program(program)?);
        self.lab(route)?;
        let until = self.until()?;
        let said = self.lab(route)?.flat(&mpi, &program, arguments, until)?;
        Ok(Samples::parse(&said.out))
    }

    fn launch(
        &mut self,
        route: Route,
        program: &str,
        arguments: &[String],
        ranks: [u32; 2],
        across: Option<(&[(&str, &str)], Stated)>,
    ) -> Result<Said, BenchError> {
        let (mpi, file) = (self.mpi.clone(), self.programs.place("job.toml"));
        let program = self.program(program)?;
        let (settings, stated) = across.unwrap_or((&[], Stated::ALL));
        let job = Job {
            mpi: &mpi,
            file: &file,
            program: &program,
            arguments,
            ranks,
            settings,
            stated,
            variables: &[],
            directory: None,
            relayed: None,
        };
        self.lab(route)?;
        let until = self.until()?;
        let lab = self.lab(route)?;
        match across {
            Some(_) => lab.job(&job, until),
            None => lab.alone(&job, until),
        }
    }
}

/// Ends this process, and with it its lab, if it lasts too long.
fn watch(directory: PathBuf, last: Duration) -> Sender<()> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        if receiver.recv_timeout(last) == Err(RecvTimeoutError::Timeout) {
            tell(format_args!("gridmpi bench: nothing more within {} s: ended", last.as_secs()));
            let _ = std::fs::remove_dir_all(directory);
            std::process::exit(1);
        }
    });
    sender
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::KNOWN;

    fn session() -> Session {
        Session {
            mpi: KNOWN[0].clone(),
            programs: Programs::new(KNOWN[0].clone()).unwrap(),
            is_quick: true,
            limits: QUICK,
            deadline: Instant::now() + QUICK.all,
            lab: None,
            wishes: Wishes::default(),
            has_gaps: false,
            is_late: false,
            _watched: None,
        }
    }

    #[test]
    fn what_fails_leaves_a_gap_and_the_rest_is_measured() {
        let mut session = session();
        assert_eq!((session.part("a", |_| Ok(1)), session.has_gaps), (Some(1), false));
        let fails = |_: &mut Session| Err::<u32, _>(BenchError::Output("no luck".to_owned()));
        assert_eq!((session.part("b", fails), session.has_gaps), (None, true));
        assert_eq!(session.part("c", |_| Ok(3)), Some(3));
        assert!(!session.is_late);
        // Nothing is begun when the time is over.
        session.deadline = Instant::now();
        assert_eq!(session.part("d", |_| Ok(4)), None);
        assert!(session.is_late);
    }
}
