//! Watches over a running job: what happens is entered in the ledger, and its verdict carried out.

use crate::console::say;
use crate::crew::{Crew, Streams};
use crate::display;
use crate::head;
use crate::input::Input;
use crate::ledger::{Ending, Ledger};
use crate::measure::to_stderr;
use crate::output::{Bases, Sink};
use crate::resolve::CommandLine;
use crate::signals;
use crate::spec::ClusterSpec;
use gridmpi_bootstrap::{ClusterName, Coordinator, Event, JobTable, Progress};
use rustix::process::Signal;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// First complaint about clusters that do not come; later ones after three times as long each.
const FIRST_NOTICE: Duration = Duration::from_secs(5);
/// When clusters have not come for so long, `gridmpi doctor` looks why.
const LOOK_AFTER: Duration = Duration::from_secs(15);
/// Launchers that were asked to end get this long.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Orders to those elsewhere leave within this time, by threads that would stop with us.
const ORDERS_OUT: Duration = Duration::from_millis(200);
/// Launchers elsewhere must be waited for over the network, too.
const REMOTE_GRACE: Duration = Duration::from_secs(10);
/// When a launcher behind a head node has ended, the ssh that led there gets this long to pass on what is left of its output.
const SSH_END: Duration = Duration::from_secs(10);
/// Exit code when all went well but for output that could not be written.
const UNWRITTEN: i32 = 1;
/// Exit code when all programs ended well, but none knew of another cluster's.
const UNJOINED: i32 = 1;
/// Exit code when the job's time is over, as of `timeout(1)`.
const TIMED_OUT: i32 = 124;

/// What wakes the supervisor.
pub(crate) enum Happening {
    /// A signal came to this process.
    Signal(i32),
    /// The coordinator reports.
    Meeting(Event),
}

/// How a cluster is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By a launcher on this machine.
    Local,
    /// By `gridmpi join` on a head node, through ssh.
    Head,
    /// By `gridmpi join`, by the user.
    Outside,
}

/// One cluster under supervision.
pub(crate) struct Seat {
    spec: ClusterSpec,
    mode: Mode,
    /// Its launcher, or the ssh that leads to it, while that runs.
    member: Option<usize>,
    joined: bool,
    stage: Stage,
}

/// How far a cluster's launcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It runs, as far as anybody knows.
    Runs {
        /// Its `gridmpi join` is lost, and must be back by then.
        back_by: Option<Instant>,
    },
    /// Its end has been entered in the ledger; the ssh that led to it must end by then.
    Leaves {
        /// Else it is ended.
        by: Instant,
    },
    /// Nothing of it is waited for.
    Over,
}

impl Seat {
    pub(crate) fn new(spec: ClusterSpec, mode: Mode, member: Option<usize>) -> Self {
        Self { spec, mode, member, joined: false, stage: Stage::Runs { back_by: None } }
    }

    /// When something about it is to be done, if nothing happens before.
    const fn next_look(&self) -> Option<Instant> {
        match self.stage {
            Stage::Runs { back_by } => back_by,
            Stage::Leaves { by } => Some(by),
            Stage::Over => None,
        }
    }

    /// Whether there is a launcher yet that a signal reaches.
    const fn hears(&self) -> bool {
        match self.mode {
            Mode::Local => self.member.is_some(),
            Mode::Head | Mode::Outside => self.joined,
        }
    }

    /// Its launcher has ended. False if that was known.
    fn end(&mut self, now: Instant) -> bool {
        let is_news = matches!(self.stage, Stage::Runs { .. });
        if is_news {
            self.stage = match self.member {
                Some(_) => Stage::Leaves { by: now + SSH_END },
                None => Stage::Over,
            };
        }
        is_news
    }

    /// The end of its ssh, where that has `failed`, is none of its own: that has lost its way, and the cluster is still heard.
    fn goes_on_without(&self, failed: bool) -> bool {
        let is_joined = self.mode == Mode::Head && self.joined;
        is_joined && failed && matches!(self.stage, Stage::Runs { .. })
    }

    /// Nothing has come from its head node.
    fn is_unreached(&self) -> bool {
        self.mode == Mode::Head && !self.joined && matches!(self.stage, Stage::Runs { .. })
    }
}

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For clusters to come. Without it, those who join by hand may take as long as they like.
    pub(crate) wait: Option<Duration>,
    /// For the whole job.
    pub(crate) timeout: Option<Duration>,
    /// For lost connections to come back.
    pub(crate) reconnect: Duration,
}

/// The default of [`Limits::wait`] for clusters that we start ourselves.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(600);

struct Closing {
    code: i32,
    since: Instant,
    killed: bool,
}

pub(crate) struct Supervisor {
    seats: Vec<Seat>,
    crew: Crew,
    coordinator: Coordinator,
    events: Receiver<Happening>,
    ledger: Ledger,
    bases: Bases,
    display_map: bool,
    limits: Limits,
    started: Instant,
    wait_until: Option<Instant>,
    complete: bool,
    notice: (Instant, Duration),
    /// Looks why clusters do not come; once.
    doctor: Option<CommandLine>,
    /// When this process stops, as the user wants it to.
    stop_at: Option<Instant>,
    closing: Option<Closing>,
}

impl Supervisor {
    pub(crate) fn new(
        seats: Vec<Seat>,
        crew: Crew,
        coordinator: Coordinator,
        events: Receiver<Happening>,
        bases: Bases,
        display_map: bool,
        limits: Limits,
    ) -> Self {
        let started = Instant::now();
        let names = seats.iter().map(|seat| seat.spec.name.to_string());
        let mut ledger = Ledger::new(names, limits.reconnect);
        for (index, seat) in seats.iter().enumerate() {
            ledger.expect_join(index, seat.mode == Mode::Outside);
        }
        let by_hand = seats.iter().any(|seat| seat.mode == Mode::Outside);
        let wait = limits.wait.or((!by_hand).then_some(DEFAULT_WAIT));
        Self {
            seats,
            crew,
            coordinator,
            events,
            ledger,
            bases,
            display_map,
            limits,
            started,
            wait_until: wait.map(|wait| started + wait),
            complete: false,
            notice: (started + FIRST_NOTICE, FIRST_NOTICE),
            doctor: None,
            stop_at: None,
            closing: None,
        }
    }

    /// Has `line` look what is wrong when clusters do not come.
    pub(crate) fn calling(self, line: Option<CommandLine>) -> Self {
        Self { doctor: line, ..self }
    }

    /// Until the last launcher has ended. Returns the job's exit code.
    pub(crate) fn run(mut self) -> i32 {
        self.look();
        while !self.is_over() {
            let left = self.next_look().saturating_duration_since(Instant::now());
            if let Ok(happening) = self.events.recv_timeout(left) {
                self.handle(happening);
            }
            while let Ok(happening) = self.events.try_recv() {
                self.handle(happening);
            }
            self.look();
        }
        self.finish()
    }

    fn finish(self) -> i32 {
        let code = match &self.closing {
            Some(closing) => closing.code,
            None => self.own_end(),
        };
        let Self { mut crew, events, .. } = self;
        crew.sweep();
        // Those who read our output may take their time, but the user need not.
        std::thread::spawn(move || heed(&events));
        if crew.close(None) || code != 0 { code } else { UNWRITTEN }
    }

    /// The exit code of a job whose launchers have all ended by themselves.
    fn own_end(&self) -> i32 {
        let without = self.ledger.without_mpi();
        let names = without.join(", ");
        match (without.len(), self.ledger.late_code()) {
            (0, code) => code,
            (1, code) => {
                say!(
                    "warning: no MPI program ran: the program of {names} ended well but never called MPI_Init"
                );
                code
            }
            (_, code) => {
                say!(
                    "no MPI program ran over the clusters: the programs of {names} ended well but never called MPI_Init with GridMPI's \
                     library. If they are MPI programs, each cluster was a world of its own: does its launcher belong to its MPI, and is \
                     the library at the same path on all its nodes? A dynamic linker that could not load it says so in their standard error"
                );
                if code == 0 { UNJOINED } else { code }
            }
        }
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        let given_up = |seat: &Seat| {
            let closing = self.closing.as_ref();
            let late = closing.is_some_and(|c| now >= c.since + GRACE + REMOTE_GRACE);
            late || (closing.is_some() && seat.mode == Mode::Outside && !seat.joined)
        };
        let settled = self.closing.is_some() || self.ledger.is_settled(now);
        settled && self.seats.iter().all(|seat| seat.stage == Stage::Over || given_up(seat))
    }

    fn next_look(&self) -> Instant {
        let mut next = Instant::now() + Duration::from_secs(60);
        let mut by = |when: Option<Instant>| next = when.map_or(next, |when| next.min(when));
        by(self.ledger.next_look(Instant::now()).filter(|_| self.closing.is_none()));
        by(self.seats.iter().filter_map(Seat::next_look).min());
        by(self.stop_at);
        match &self.closing {
            Some(closing) if closing.killed => by(Some(closing.since + GRACE + REMOTE_GRACE)),
            Some(closing) => by(Some(closing.since + GRACE)),
            None => {
                by(self.limits.timeout.map(|timeout| self.started + timeout));
                if !self.complete {
                    by(Some(self.notice.0));
                    by(self.wait_until);
                    by(self.doctor.as_ref().map(|_| self.started + LOOK_AFTER));
                }
            }
        }
        next
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::Signal(number) => self.signal(number),
            Happening::Meeting(event) => self.meeting(event),
        }
    }

    fn meeting(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Registered(who) => self.ledger.registered(who.cluster),
            Event::Complete(table) => self.start(&table),
            Event::Stranger { peer, problem, others } => {
                let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
                say!("warning: ignored a connection from {peer}: it {problem}{more}");
            }
            Event::Refused { peer, reason } => say!("refused {peer}: {reason}"),
            Event::Failed(reason) => self.end(Ending { code: 1, reason }),
            Event::Aborted { cluster, code, reason } => {
                self.ledger.aborted(cluster, code, &reason, now);
            }
            Event::Suspected { cluster, reason } => self.ledger.suspected(cluster, &reason, now),
            Event::Finalized(who) => self.ledger.finalized(who.cluster),
            Event::Away(who, parting) => self.ledger.away(who.cluster, parting, now),
            Event::Back(who) => {
                self.ledger.back(who.cluster);
                say!(
                    "the connection with rank 0 of cluster `{}` was lost and made again",
                    self.seats[who.cluster].spec.name
                );
            }
            Event::Joined(who, request) => self.joined(who.cluster, &request.host, request.pid),
            Event::JoinExited(who, code) => self.exited(who.cluster, code),
            Event::RelayLost { relay, problem } => {
                say!(
                    "warning: the relay {relay} cannot be used at present: {problem}; it is tried on"
                );
            }
            Event::JoinAway(who, parting) => {
                self.returns(who.cluster, Some(now + self.ledger.patience(parting)));
            }
            Event::JoinBack(who) => {
                self.returns(who.cluster, None);
                say!(
                    "the connection with `gridmpi join` of cluster `{}` was lost and made again",
                    self.seats[who.cluster].spec.name
                );
            }
        }
    }

    fn start(&mut self, table: &JobTable) {
        self.complete = true;
        let sizes = table.clusters.iter().map(|cluster| u32::try_from(cluster.procs.len()).ok());
        self.bases.learn(sizes);
        if self.display_map {
            say!("{}", display::map(table));
        }
    }

    fn joined(&mut self, cluster: usize, host: &str, pid: u32) {
        let seat = &mut self.seats[cluster];
        seat.joined = true;
        self.ledger.expect_join(cluster, false);
        if seat.mode == Mode::Outside {
            say!("cluster `{}` has joined from {host} (pid {pid})", seat.spec.name);
        }
        let missing = self.seats.iter().any(|seat| seat.mode == Mode::Outside && !seat.joined);
        if !missing && self.wait_until.is_none() {
            self.wait_until = Some(Instant::now() + DEFAULT_WAIT);
        }
    }

    /// When the lost `gridmpi join` of a cluster must be back, if it is lost.
    fn returns(&mut self, cluster: usize, by: Option<Instant>) {
        if let Stage::Runs { back_by } = &mut self.seats[cluster].stage {
            *back_by = by;
        }
    }

    /// A launcher has ended: reported by `gridmpi join`, or seen here.
    fn exited(&mut self, cluster: usize, code: i32) {
        let now = Instant::now();
        if self.seats[cluster].end(now) {
            self.ledger.exited(cluster, code, now);
        }
    }

    fn reap(&mut self) {
        for (member, code) in self.crew.reap() {
            if let Some(cluster) = self.seats.iter().position(|seat| seat.member == Some(member)) {
                self.reaped(cluster, code);
            }
        }
    }

    /// What we have started for a cluster has ended.
    fn reaped(&mut self, cluster: usize, code: i32) {
        let is_closing = self.closing.is_some();
        let seat = &mut self.seats[cluster];
        let member = seat.member.take();
        let killed = member.is_some_and(|member| self.crew.was_killed(member));
        if !is_closing && seat.goes_on_without(killed || code == head::FAILED) {
            return say!(
                "warning: the ssh to the head node of cluster `{}` has failed; the cluster is still connected and goes on, but \
                 what its program prints does not come here any more",
                seat.spec.name
            );
        }
        if seat.is_unreached() {
            let reason = head::ended(&seat.spec, code, "before anything had joined from there");
            self.ledger.unreached(cluster, code, reason, Instant::now());
        } else {
            self.exited(cluster, code);
        }
        self.seats[cluster].stage = Stage::Over;
    }

    /// Those who have been away, or have taken their leave, for too long.
    fn lose(&mut self, now: Instant) {
        for cluster in 0..self.seats.len() {
            let seat = &mut self.seats[cluster];
            match seat.stage {
                Stage::Runs { back_by: Some(by) } if now >= by => {
                    let name = seat.spec.name.clone();
                    self.exited(cluster, 1);
                    say!("lost `gridmpi join` of cluster `{name}`");
                }
                Stage::Leaves { by } if now >= by => {
                    seat.stage = Stage::Over;
                    seat.member.into_iter().for_each(|member| self.crew.kill(member));
                    say!(
                        "the ssh to the head node of cluster `{}` has not ended {} s after its launcher: ending it; the last of what its \
                         program printed may be missing",
                        seat.spec.name,
                        SSH_END.as_secs()
                    );
                }
                _ => {}
            }
        }
    }

    fn look(&mut self) {
        self.stop_in_time();
        self.reap();
        let now = Instant::now();
        self.lose(now);
        if self.closing.is_some() {
            return self.press(now);
        }
        if let Some(ending) = self.ledger.verdict(now) {
            return self.end(ending);
        }
        self.ledger.lost(now).iter().for_each(|lost| say!("{lost}"));
        if let Some(timeout) = self.limits.timeout.filter(|timeout| now >= self.started + *timeout)
        {
            let reason = format!("the job's time is over ({} s)", timeout.as_secs_f64());
            return self.end(Ending { code: TIMED_OUT, reason });
        }
        if !self.complete {
            self.look_for_missing(now);
        }
    }

    fn look_for_missing(&mut self, now: Instant) {
        let missing = missing(&self.coordinator.progress(), &self.seats);
        if self.wait_until.is_some_and(|until| now >= until) {
            let waited = now.duration_since(self.started).as_secs();
            let reason = format!(
                "gave up after {waited} s: {}. Raise the limit by --wait SECONDS if the clusters \
                 need longer to start",
                missing.join("; ")
            );
            return self.end(Ending { code: 1, reason });
        }
        if now >= self.notice.0 {
            say!("{}", missing.join("\n"));
            let next = self.notice.1 * 3;
            self.notice = (now + next, next);
        }
        if now >= self.started + LOOK_AFTER
            && let Some(line) = self.doctor.take()
        {
            self.call_doctor(&line);
        }
    }

    /// What it finds goes to the user by itself; it ends with the job at the latest.
    fn call_doctor(&mut self, line: &CommandLine) {
        say!("looking what is wrong ({}):", line.words[1..].join(" "));
        let begin = to_stderr().and_then(|out| {
            let streams = Streams { input: Input::Null, out: Sink::File(out), err: Sink::Inherit };
            self.crew.launch(line, streams).map_err(|error| error.to_string())
        });
        if let Err(problem) = begin {
            say!("cannot look: {problem}");
        }
    }

    /// Ends the job, once.
    fn end(&mut self, ending: Ending) {
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(Closing { code: ending.code, since: Instant::now(), killed: false });
        self.coordinator.end(ending.code, &ending.reason);
        // A head node's launcher is ended by its `gridmpi join`, which has just been told.
        for seat in self.seats.iter().filter(|seat| seat.mode == Mode::Local || !seat.joined) {
            if let Some(member) = seat.member {
                self.crew.terminate(member);
            }
        }
        say!("{}", ending.reason);
    }

    /// While ending: those who do not go are made to.
    fn press(&mut self, now: Instant) {
        let Some(closing) = &mut self.closing else { return };
        if !closing.killed && now >= closing.since + GRACE {
            closing.killed = true;
            self.kill();
        }
    }

    fn kill(&self) {
        let late = self.closing.as_ref().is_some_and(|c| c.since.elapsed() >= GRACE);
        for seat in &self.seats {
            if let Some(member) = seat.member.filter(|member| self.crew.is_running(*member)) {
                self.crew.kill(member);
                if late && seat.mode == Mode::Local {
                    say!("killing cluster `{}`: it did not end when asked to", seat.spec.name);
                }
            }
        }
    }

    fn signal(&mut self, number: i32) {
        let Some(signal) = signals::named(number) else { return };
        match signal {
            Signal::INT | Signal::QUIT => self.interrupt(signal),
            // The first of its kind, whatever the user has asked for before: programs have their time to save.
            Signal::TERM | Signal::HUP => self.stop(signal, self.closing.is_some()),
            Signal::TSTP => {
                self.forward(signal);
                let is_told = self.seats.iter().any(|seat| seat.joined);
                let rest = if is_told { ORDERS_OUT } else { Duration::ZERO };
                self.stop_at = Some(Instant::now() + rest);
            }
            Signal::CONT => {
                self.stop_at = None;
                self.forward(signal);
            }
            _ => self.forward(signal),
        }
    }

    /// Stops this process when it is time; what follows happens when somebody continues it.
    fn stop_in_time(&mut self) {
        if self.stop_at.is_some_and(|at| Instant::now() >= at) {
            self.stop_at = None;
            signals::stop_self();
        }
    }

    /// The first goes to the launchers, whose programs may take it as they like; whoever sends another insists.
    fn interrupt(&mut self, signal: Signal) {
        let again = self.closing.is_some() || self.ledger.is_interrupted();
        if again || !self.seats.iter().any(Seat::hears) {
            return self.stop(signal, again);
        }
        self.ledger.interrupted(signal.as_raw(), Instant::now());
        self.forward(signal);
    }

    /// Ends the job; at once, where that has been asked for before.
    fn stop(&mut self, signal: Signal, again: bool) {
        self.end(Ending::by_signal(signal.as_raw()));
        if again && let Some(closing) = &mut self.closing {
            closing.killed = true;
            self.kill();
        }
    }

    fn forward(&self, signal: Signal) {
        for (cluster, seat) in self.seats.iter().enumerate() {
            match (seat.mode, seat.member) {
                (Mode::Local, Some(member)) => self.crew.forward(member, signal),
                _ => self.coordinator.signal(cluster, signal.as_raw()),
            }
        }
    }
}

/// Does what signals ask of this process when there is nobody left to pass them on to.
fn heed(events: &Receiver<Happening>) {
    for happening in events {
        let Happening::Signal(number) = happening else { continue };
        match signals::named(number) {
            Some(Signal::INT | Signal::QUIT | Signal::TERM | Signal::HUP) => {
                std::process::exit(128 + number)
            }
            Some(Signal::TSTP) => signals::stop_self(),
            _ => {}
        }
    }
}

/// Says what each cluster that has not come is lacking.
fn missing(progress: &[Progress], seats: &[Seat]) -> Vec<String> {
    let late = progress.iter().filter(|cluster| !cluster.registered);
    let head_of = |name: &ClusterName| {
        let seat = seats.iter().find(|seat| seat.spec.name == *name)?;
        seat.spec.head.as_deref()
    };
    late.map(|cluster| {
        let name = &cluster.name;
        let of = cluster.ranks.map_or_else(|| "its".to_owned(), |n| format!("all of its {n}"));
        if let Some(head) = head_of(name).filter(|_| cluster.to_join) {
            format!(
                "waiting for cluster `{name}`: nothing has joined from its head node `{head}` yet. {}; and that node must \
                 reach this machine",
                head::must_work(head)
            )
        } else if cluster.to_join {
            format!("waiting for cluster `{name}`: nobody has joined by `gridmpi join --cluster {name}` yet")
        } else {
            format!("waiting for cluster `{name}`: not {of} ranks have called MPI_Init yet")
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let cluster = |name: &str, ranks, to_join, registered| Progress {
            name: ClusterName::new(name).unwrap(),
            ranks,
            to_join,
            registered,
        };
        let all = [
            cluster("a", Some(4), false, false),
            cluster("b", None, true, false),
            cluster("c", Some(2), false, true),
        ];
        let texts = missing(&all, &[]);
        assert_eq!(texts.len(), 2);
        let launcher = crate::spec::Launcher::Command(vec!["mpiexec".into()]);
        let mut spec = ClusterSpec::new(ClusterName::new("b").unwrap(), launcher);
        spec.head = Some("me@head".to_owned());
        let behind = missing(&all, &[Seat::new(spec, Mode::Head, None)]);
        assert!(behind[1].contains("`ssh -o BatchMode=yes me@head true`"), "{behind:?}");
        assert_eq!(
            texts[0],
            "waiting for cluster `a`: not all of its 4 ranks have called MPI_Init yet"
        );
        assert!(texts[1].contains("gridmpi join --cluster b"));
    }
}
