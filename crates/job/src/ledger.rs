//! What the clusters of a job have done so far, and whether the job must end because of it.
//! No I/O and no clock of its own.

use gridmpi_bootstrap::Parting;
use std::time::{Duration, Instant};

/// A launcher's exit may overtake the abort message of its cluster by this much.
const SETTLE: Duration = Duration::from_millis(500);
/// Who only saw another fail waits this long for the cause to be told.
const CAUSE: Duration = Duration::from_secs(3);
/// What a cluster's rank 0 said last is here this long after its launcher has ended, unless
/// something else holds its connection open.
const WORD: Duration = Duration::from_secs(2);
/// After a connection has been closed, as when a process ends, it has this long to come back after all; and the launcher of
/// a rank 0 that has ended has this long to end.
const CLOSED: Duration = Duration::from_secs(10);

/// Nothing is said of a connection that was lost for so long: most are made again sooner.
const UNSAID: Duration = Duration::from_secs(5);

/// The launcher of a cluster that aborts has this long to pass on what its program printed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What comes so soon after the user's wish that the job stop follows from it; programs may go on, and end for another reason.
const FOLLOWS: Duration = Duration::from_secs(10);

/// Why and how the job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: i32,
    pub(crate) reason: String,
}

impl Ending {
    pub(crate) fn by_signal(number: i32) -> Self {
        Self { code: 128 + number, reason: format!("stopped by signal {number}") }
    }
}

/// What the job will end for, if nothing better comes.
struct Pending {
    /// When it is due.
    when: Instant,
    /// When it came about.
    since: Instant,
    ending: Ending,
}

#[derive(Default)]
struct Entry {
    name: String,
    to_join: bool,
    registered: bool,
    finalized: bool,
    away: Option<Away>,
    exited: Option<(i32, Instant)>,
}

/// The connection with a cluster's rank 0 has ended.
#[derive(Clone, Copy)]
struct Away {
    parting: Parting,
    since: Instant,
    /// When people are told, if they have not been.
    told_at: Option<Instant>,
    /// It must be back by then.
    until: Instant,
}

impl Away {
    const fn next_look(self) -> Instant {
        match self.told_at {
            Some(at) => at,
            None => self.until,
        }
    }
}

impl Entry {
    /// It goes on as far as anybody knows, so that whoever is away should come back.
    const fn is_missed(&self) -> bool {
        self.exited.is_none() && !self.finalized
    }
}

pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// How long a lost connection is tried to be made again.
    reconnect: Duration,
    /// A cause that better ones may replace until its time has come.
    pending: Option<Pending>,
    /// The cluster whose `MPI_Abort` is pending.
    aborting: Option<usize>,
    decided: bool,
    /// When the verdict was last asked for.
    looked: Option<Instant>,
    /// The signal by which the user has asked the job to stop, and when.
    interrupted: Option<(i32, Instant)>,
    /// First exit code other than 0 of a cluster that had finalized.
    late_code: i32,
}

impl Ledger {
    pub(crate) fn new(names: impl IntoIterator<Item = String>, reconnect: Duration) -> Self {
        let entries = names.into_iter().map(|name| Entry { name, ..Entry::default() }).collect();
        Self {
            entries,
            reconnect,
            pending: None,
            aborting: None,
            decided: false,
            looked: None,
            interrupted: None,
            late_code: 0,
        }
    }

    /// A cluster that comes by `gridmpi join` has not come yet (true) or has come.
    pub(crate) fn expect_join(&mut self, cluster: usize, expected: bool) {
        self.entries[cluster].to_join = expected;
    }

    pub(crate) fn registered(&mut self, cluster: usize) {
        self.entries[cluster].registered = true;
    }

    pub(crate) fn finalized(&mut self, cluster: usize) {
        self.entries[cluster].finalized = true;
    }

    /// The connection with a registered cluster has ended.
    pub(crate) fn away(&mut self, cluster: usize, parting: Parting, now: Instant) {
        let until = now + self.patience(parting);
        // Who has closed it most likely ends, and that is soon known.
        let told_at = (parting == Parting::Broken).then_some(now + UNSAID);
        self.entries[cluster].away = Some(Away { parting, since: now, told_at, until });
    }

    /// The user has asked the launchers to stop by this signal, which they may do or not.
    pub(crate) fn interrupted(&mut self, number: i32, now: Instant) {
        self.interrupted = Some((number, now));
    }

    /// Whether the user has asked so.
    pub(crate) const fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    /// What people should know of connections that stay lost; each is told once.
    pub(crate) fn lost(&mut self, now: Instant) -> Vec<String> {
        let mut lost = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.is_missed()) {
            if let Some(away) = &mut entry.away
                && away.told_at.take_if(|at| now >= *at).is_some()
            {
                lost.push(format!(
                    "the connection with rank 0 of cluster `{}` is lost; it is waited for for another {} s (`reconnect` of the job file)",
                    entry.name,
                    away.until.saturating_duration_since(now).as_secs()
                ));
            }
        }
        lost
    }

    /// It has come back.
    pub(crate) fn back(&mut self, cluster: usize) {
        self.entries[cluster].away = None;
    }

    /// How long a connection that has ended so may take to come back.
    pub(crate) fn patience(&self, parting: Parting) -> Duration {
        match parting {
            Parting::Closed => CLOSED,
            Parting::Broken => self.reconnect.max(CLOSED),
        }
    }

    /// The program called `MPI_Abort`, as far as it could say. First come, first served.
    pub(crate) fn aborted(&mut self, cluster: usize, code: i32, reason: &str, now: Instant) {
        let reason = format!("cluster `{}` aborted with code {code}: {reason}", self.name(cluster));
        let ending = Ending { code: exit_code(code), reason };
        if self.entries[cluster].exited.is_some() {
            return self.propose(now, now, ending);
        }
        // Its own launcher is ending it, and still has the program's last words to pass on.
        if self.aborting.is_none() && !self.decided {
            self.aborting = Some(cluster);
            self.pending = Some(Pending { when: now + LAST_WORDS, since: now, ending });
        }
    }

    /// A cluster saw another fail.
    pub(crate) fn suspected(&mut self, cluster: usize, reason: &str, now: Instant) {
        let reason = format!("cluster `{}`: {reason}", self.name(cluster));
        self.propose(now + CAUSE, now, Ending { code: 1, reason });
    }

    /// A cluster's launcher has ended.
    pub(crate) fn exited(&mut self, cluster: usize, code: i32, now: Instant) {
        let entry = &mut self.entries[cluster];
        entry.exited = Some((code, now));
        if self.aborting == Some(cluster) {
            self.hasten(now);
        }
        if code == 0 {
            return;
        }
        let entry = &self.entries[cluster];
        if entry.finalized {
            // As under one mpiexec, the others may finish.
            if self.late_code == 0 {
                let told = Ending { code, reason: String::new() };
                self.late_code = self.explained(told, now).code;
            }
            return;
        }
        let stage = if entry.registered {
            ""
        } else {
            " before all its ranks had called MPI_Init (its launcher says why)"
        };
        let reason = format!("cluster `{}` ended with exit code {code}{stage}", entry.name);
        let when = if entry.registered { now + SETTLE } else { now };
        self.propose(when, now, Ending { code, reason });
    }

    /// What leads to a cluster's head node has ended with this exit code, and the cluster will not come.
    pub(crate) fn unreached(&mut self, cluster: usize, code: i32, reason: String, now: Instant) {
        self.entries[cluster].exited = Some((code, now));
        self.propose(now, now, Ending { code: if code == 0 { 1 } else { code }, reason });
    }

    /// Whether the job must end now; answers once.
    pub(crate) fn verdict(&mut self, now: Instant) -> Option<Ending> {
        self.looked = Some(now);
        if self.decided {
            return None;
        }
        if let Some((since, reason)) = self.silent_end(now) {
            self.propose(now, since, Ending { code: 1, reason });
        }
        let Pending { since, ending, .. } = self.pending.take_if(|pending| pending.when <= now)?;
        self.decided = true;
        Some(self.explained(ending, since))
    }

    /// An ending that came about then; where it follows from the user's wish, that is the reason.
    fn explained(&self, ending: Ending, since: Instant) -> Ending {
        let by_user = self.interrupted.filter(|(number, at)| {
            let is_soon = since.saturating_duration_since(*at) <= FOLLOWS;
            since >= *at && (is_soon || ending.code == 128 + number)
        });
        by_user.map_or(ending, |(number, _)| Ending::by_signal(number))
    }

    /// When to ask for the verdict again, if nothing happens before.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let missed = self.entries.iter().filter(|entry| entry.is_missed());
        let away = missed.filter_map(|entry| Some(entry.away?.next_look()));
        let pending = self.pending.as_ref().map(|pending| pending.when);
        let ended = self.entries.iter().filter_map(|entry| Some(entry.exited?.1 + WORD));
        let ended = ended.filter(|_| !self.is_settled(now));
        // What was due at the last look has had its look. What has become due since then has not.
        let is_ahead = |at: &Instant| self.looked.is_none_or(|looked| *at > looked);
        let ahead = away.chain(ended).filter(is_ahead);
        if self.decided { None } else { ahead.chain(pending).min() }
    }

    /// Whether no word about a cluster that has ended can be under way any more.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        let told = |entry: &Entry| !entry.registered || entry.finalized;
        // Who is away makes for a verdict.
        let late = |entry: &Entry| {
            entry.away.is_none() && entry.exited.is_some_and(|(_, at)| now >= at + WORD)
        };
        self.decided || (self.pending.is_none() && self.entries.iter().all(|e| told(e) || late(e)))
    }

    /// The exit code of a job whose launchers have all ended by themselves.
    pub(crate) const fn late_code(&self) -> i32 {
        self.late_code
    }

    /// Clusters whose programs ended well but never called `MPI_Init`.
    pub(crate) fn without_mpi(&self) -> Vec<&str> {
        let silent =
            |entry: &&Entry| entry.exited.is_some_and(|(code, _)| code == 0) && !entry.registered;
        self.entries.iter().filter(silent).map(|entry| entry.name.as_str()).collect()
    }

    fn name(&self, cluster: usize) -> &str {
        &self.entries[cluster].name
    }

    fn never_back(&self, entry: &Entry, parting: Parting) -> String {
        let name = &entry.name;
        match parting {
            Parting::Closed => format!(
                "rank 0 of cluster `{name}` ended without calling MPI_Finalize, and its launcher \
                 did not notice"
            ),
            Parting::Broken => format!(
                "the connection with rank 0 of cluster `{name}` was lost, and not made again within \
                 {} s (`reconnect` of the job file)",
                self.patience(parting).as_secs()
            ),
        }
    }

    /// What is pending is due.
    fn hasten(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            pending.when = now.min(pending.when);
        }
    }

    /// The cause that is due first wins; an abort beats what follows from it.
    fn propose(&mut self, when: Instant, since: Instant, ending: Ending) {
        if self.aborting.is_some() {
            return;
        }
        let better = self.pending.as_ref().is_none_or(|pending| when < pending.when);
        if !self.decided && better {
            self.pending = Some(Pending { when, since, ending });
        }
    }

    /// A cluster that ended, or whose rank 0 ended, without a word while others need it: since when, and what is said of it.
    fn silent_end(&self, now: Instant) -> Option<(Instant, String)> {
        for entry in &self.entries {
            let needs = |e: &&Entry| e.to_join || (e.registered && !e.finalized);
            let waiting = self.entries.iter().find(needs);
            match (entry.exited, entry.registered, waiting) {
                (Some((0, at)), false, Some(other)) => {
                    let reason = format!(
                        "the program of cluster `{}` ended without calling MPI_Init, but cluster \
                         `{}` needs it. Does the program use MPI, and does the \
                         launcher belong to that MPI? Is GridMPI's library at the same path on \
                         all its nodes?",
                        entry.name, other.name
                    );
                    return Some((at, reason));
                }
                // What it said last may have to come over another connection.
                (Some((0, at)), true, _)
                    if entry.away.is_some() && !entry.finalized && now >= at + WORD =>
                {
                    let name = &entry.name;
                    let reason = format!(
                        "the program of cluster `{name}` ended without calling MPI_Finalize"
                    );
                    return Some((at, reason));
                }
                _ => {}
            }
            let due = entry.away.filter(|away| now >= away.until);
            let due = due.filter(|_| entry.is_missed());
            if let Some(away) = due {
                return Some((away.since, self.never_back(entry, away.parting)));
            }
        }
        None
    }
}

/// What of an abort code fits into an exit status; never success.
fn exit_code(code: i32) -> i32 {
    match code & 0xff {
        0 => 1,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECONNECT: Duration = Duration::from_secs(30);

    fn two() -> (Ledger, Instant) {
        (Ledger::new(["a".to_owned(), "b".to_owned()], RECONNECT), Instant::now())
    }

    fn started() -> (Ledger, Instant) {
        let (mut ledger, now) = two();
        ledger.registered(0);
        ledger.registered(1);
        (ledger, now)
    }

    #[test]
    fn a_good_end_is_no_verdict() {
        let (mut ledger, now) = started();
        for cluster in [0, 1] {
            ledger.finalized(cluster);
            ledger.exited(cluster, 0, now);
        }
        assert!(ledger.is_settled(now));
        assert_eq!(ledger.verdict(now + CAUSE), None);
        assert_eq!((ledger.late_code(), ledger.without_mpi().len()), (0, 0));
    }

    #[test]
    fn an_abort_beats_the_exit_code_that_overtook_it() {
        let (mut ledger, now) = started();
        ledger.exited(0, 9, now);
        assert_eq!(ledger.verdict(now), None);
        assert_eq!(ledger.next_look(now), Some(now + SETTLE));
        ledger.aborted(0, 7, "because", now);
        let ending = ledger.verdict(now).unwrap();
        assert_eq!(ending.code, 7);
        assert!(ending.reason.contains("`a`") && ending.reason.contains("because"));
        ledger.aborted(1, 8, "later", now);
        assert_eq!(ledger.verdict(now + CAUSE), None, "the verdict is given once");
    }

    #[test]
    fn an_abort_waits_for_the_last_words_of_its_cluster() {
        let (mut ledger, now) = started();
        ledger.aborted(0, 7, "because", now);
        assert_eq!(ledger.verdict(now), None);
        ledger.exited(1, 137, now);
        assert_eq!(ledger.verdict(now), None, "another cluster's end follows from the abort");
        ledger.exited(0, 9, now);
        assert_eq!(ledger.verdict(now).unwrap().code, 7);
        let (mut ledger, now) = started();
        ledger.aborted(0, 7, "because", now);
        assert_eq!(ledger.next_look(now), Some(now + LAST_WORDS));
        assert_eq!(ledger.verdict(now + LAST_WORDS).unwrap().code, 7, "nobody waits for ever");
    }

    #[test]
    fn the_cause_beats_those_who_only_saw_it() {
        let (mut ledger, now) = started();
        ledger.suspected(1, "lost rank 2", now);
        ledger.exited(0, 137, now + SETTLE);
        assert_eq!(ledger.verdict(now + 2 * SETTLE).unwrap().code, 137);
        let (mut ledger, now) = started();
        ledger.suspected(1, "lost rank 2", now);
        assert_eq!(ledger.verdict(now + SETTLE), None);
        assert!(ledger.verdict(now + CAUSE).unwrap().reason.contains("lost rank 2"));
    }

    #[test]
    fn a_launcher_that_fails_before_init_ends_the_job_at_once() {
        let (mut ledger, now) = two();
        ledger.exited(1, 132, now);
        let ending = ledger.verdict(now).unwrap();
        assert_eq!(ending.code, 132);
        assert!(ending.reason.contains("before all its ranks"), "{}", ending.reason);
    }

    #[test]
    fn ending_without_init_matters_when_somebody_waits() {
        let (mut ledger, now) = two();
        ledger.exited(0, 0, now);
        assert_eq!(ledger.verdict(now), None);
        assert_eq!(ledger.without_mpi(), ["a"]);
        ledger.registered(1);
        let ending = ledger.verdict(now).unwrap();
        assert!(ending.reason.contains("without calling MPI_Init"), "{}", ending.reason);
    }

    #[test]
    fn ending_without_finalize_is_a_failure() {
        let (mut ledger, now) = started();
        ledger.away(0, Parting::Closed, now);
        assert_eq!(ledger.verdict(now), None);
        ledger.exited(0, 0, now);
        ledger.finalized(1);
        ledger.exited(1, 0, now);
        assert_eq!((ledger.verdict(now), ledger.next_look(now)), (None, Some(now + WORD)));
        assert!(!ledger.is_settled(now + WORD), "never before the verdict");
        assert!(ledger.verdict(now + WORD).unwrap().reason.contains("MPI_Finalize"));
        let (mut ledger, now) = started();
        ledger.away(0, Parting::Closed, now);
        assert_eq!(ledger.next_look(now), Some(now + CLOSED));
        assert!(ledger.verdict(now + CLOSED).unwrap().reason.contains("did not notice"));
    }

    #[test]
    fn a_cluster_that_has_ended_is_looked_at_once_while_another_goes_on() {
        let (mut ledger, now) = started();
        ledger.exited(0, 0, now);
        assert_eq!((ledger.verdict(now), ledger.next_look(now)), (None, Some(now + WORD)));
        let (before, after) = (now + WORD - SETTLE, now + WORD + SETTLE);
        // The moment falls between a look and the question when the next one is.
        assert_eq!((ledger.verdict(before), ledger.next_look(after)), (None, Some(now + WORD)));
        assert_eq!((ledger.verdict(after), ledger.next_look(after)), (None, None));
        ledger.away(0, Parting::Closed, after);
        assert!(ledger.verdict(after).unwrap().reason.contains("MPI_Finalize"));
    }

    #[test]
    fn who_is_away_has_time_to_come_back() {
        let (mut ledger, now) = started();
        ledger.away(0, Parting::Broken, now);
        assert_eq!((ledger.lost(now).len(), ledger.next_look(now)), (0, Some(now + UNSAID)));
        let lost = ledger.lost(now + UNSAID);
        assert!(lost.len() == 1 && lost[0].contains("`a`") && lost[0].contains("25 s"), "{lost:?}");
        assert!(ledger.lost(now + UNSAID).is_empty(), "it has been told");
        assert_eq!(ledger.next_look(now), Some(now + RECONNECT));
        assert_eq!(ledger.verdict(now + RECONNECT - SETTLE), None);
        ledger.back(0);
        assert_eq!((ledger.verdict(now + RECONNECT), ledger.next_look(now)), (None, None));
        ledger.away(0, Parting::Broken, now);
        let reason = ledger.verdict(now + RECONNECT).unwrap().reason;
        assert!(reason.contains("`a`") && reason.contains("30 s"), "{reason}");
        let (mut ledger, now) = started();
        ledger.away(0, Parting::Broken, now);
        ledger.exited(0, 139, now);
        assert!(ledger.lost(now + UNSAID).is_empty());
        assert_eq!(ledger.verdict(now + SETTLE).unwrap().code, 139, "a crash is told at once");
        let (mut ledger, now) = started();
        ledger.away(0, Parting::Broken, now);
        ledger.exited(0, 0, now);
        ledger.back(0);
        ledger.finalized(0);
        ledger.finalized(1);
        ledger.exited(1, 0, now);
        assert!(ledger.is_settled(now) && ledger.verdict(now + CAUSE).is_none(), "a last word");
    }

    #[test]
    fn what_follows_from_the_users_wish_is_told_as_that_and_nothing_else() {
        let ended = |after: Duration, code: i32| {
            let (mut ledger, now) = started();
            ledger.interrupted(2, now);
            ledger.exited(0, code, now + after);
            ledger.verdict(now + after + SETTLE).unwrap()
        };
        assert_eq!(ended(FOLLOWS, 1), Ending::by_signal(2));
        assert_eq!(ended(FOLLOWS + SETTLE, 130), Ending::by_signal(2));
        let later = ended(FOLLOWS + SETTLE, 139);
        assert!(later.code == 139 && later.reason.contains("`a`"), "{later:?}");
        let (mut ledger, now) = started();
        ledger.interrupted(2, now);
        ledger.aborted(1, 7, "because", now + 2 * FOLLOWS);
        assert_eq!(ledger.verdict(now + 3 * FOLLOWS).unwrap().code, 7);
        // What was there before is no consequence.
        let (mut ledger, now) = started();
        ledger.suspected(1, "lost rank 2", now);
        ledger.interrupted(2, now + SETTLE);
        assert!(ledger.verdict(now + CAUSE).unwrap().reason.contains("lost rank 2"));
    }

    #[test]
    fn what_follows_may_take_its_time_to_be_seen() {
        let (mut ledger, now) = started();
        ledger.interrupted(3, now);
        ledger.away(0, Parting::Broken, now + SETTLE);
        assert_eq!(ledger.verdict(now + SETTLE + RECONNECT), Some(Ending::by_signal(3)));
        for (after, code) in [(SETTLE, 131), (2 * FOLLOWS, 5)] {
            let (mut ledger, now) = started();
            ledger.interrupted(3, now);
            ledger.finalized(0);
            ledger.exited(0, 5, now + after);
            assert_eq!(ledger.late_code(), code);
        }
    }

    #[test]
    fn a_failure_after_finalize_lets_others_finish() {
        let (mut ledger, now) = started();
        ledger.finalized(0);
        ledger.exited(0, 3, now);
        assert_eq!(ledger.verdict(now + CAUSE), None);
        assert_eq!(ledger.late_code(), 3);
    }

    #[test]
    fn an_end_is_settled_when_nothing_more_can_be_said() {
        let (mut ledger, now) = started();
        ledger.finalized(1);
        ledger.exited(1, 0, now);
        ledger.exited(0, 0, now);
        assert!(!ledger.is_settled(now) && ledger.is_settled(now + WORD));
        assert_eq!(ledger.next_look(now), Some(now + WORD));
        ledger.finalized(0);
        assert!(ledger.is_settled(now));
        let (mut ledger, now) = started();
        ledger.exited(0, 3, now);
        ledger.away(0, Parting::Closed, now);
        ledger.finalized(1);
        assert!(!ledger.is_settled(now), "a verdict is pending");
        assert!(ledger.verdict(now + SETTLE).is_some() && ledger.is_settled(now));
    }

    #[test]
    fn no_abort_is_a_success() {
        assert_eq!([exit_code(0), exit_code(256), exit_code(7), exit_code(-1)], [1, 1, 7, 255]);
    }
}
