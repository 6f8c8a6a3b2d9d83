//! Which processes can be reached by which connection: path vectors, as relays tell each other.
//!
//! A relay tells each peer its best path to every span of processes, unless the path leads through that peer, and never
//! believes one that leads through itself. So what is withdrawn does not live on in circles.
//!
//! What is to be told is not kept as words but as the spans that it is about: so what changes back and forth while a peer takes
//! nothing costs no memory, and a peer is never told more than it keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gridmpi_wire::{JobId, ProcId};

use crate::arena::Key;
use crate::cell::{Cell, CellError, MAX_HOPS, RelayId, Span};
use crate::core::Link;

type LinkKey = Key<Link>;

/// To whom it is put down what is told on a connection: what its other side has proven, by whatever name it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub [u8; 16]);

impl From<RelayId> for Account {
    /// A name that is proven by a certificate.
    fn from(name: RelayId) -> Self {
        Self(name.0)
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Registrations here.
    local: usize,
    /// What each connection leads to it by, by whose it is.
    learnt: BTreeMap<Account, BTreeMap<LinkKey, Vec<RelayId>>>,
}

/// To how many spans somebody has told us paths, over all his connections.
#[derive(Debug, Default)]
struct Learnt {
    all: usize,
    of_job: BTreeMap<JobId, usize>,
}

impl Learnt {
    /// Takes note of another one, if there may be `most` at all and [`MOST_OF_JOB`] of a job.
    fn add(&mut self, job: JobId, most: usize) -> bool {
        let of_job = self.of_job.get(&job).copied().unwrap_or_default();
        let is_kept = self.all < most && of_job < MOST_OF_JOB;
        if is_kept {
            self.all += 1;
            self.of_job.insert(job, of_job + 1);
        }
        is_kept
    }

    fn remove(&mut self, job: JobId) {
        self.all -= 1;
        if let Some(of_job) = self.of_job.get_mut(&job) {
            *of_job -= 1;
            if *of_job == 0 {
                self.of_job.remove(&job);
            }
        }
    }
}

#[derive(Debug)]
struct Neighbour {
    peer: RelayId,
    account: Account,
    /// The jobs that may cross to it and from it; `None`: all.
    jobs: Option<Vec<JobId>>,
    /// What it was told.
    told: HashMap<Span, Vec<RelayId>>,
    /// Spans of which it was told something else than holds now.
    untold: BTreeSet<Span>,
    /// Something has changed since it was last told anything.
    has_news: bool,
}

/// Most clusters of one job whose processes register here: each is told to every other relay.
const MOST_LOCAL: usize = 64;

/// Most clusters of one job to which a relay tells us ways. Who looks for a process looks at all of them.
const MOST_OF_JOB: usize = 64;

/// All routes of a relay.
#[derive(Debug)]
pub(crate) struct Routes {
    me: RelayId,
    entries: BTreeMap<Span, Entry>,
    neighbours: BTreeMap<LinkKey, Neighbour>,
    learnt: BTreeMap<Account, Learnt>,
    /// Most paths that are told on one connection.
    most: usize,
    is_silent: bool,
    /// Connections for which there is news since this was last asked.
    with_news: Vec<LinkKey>,
}

impl Routes {
    pub(crate) fn new(me: RelayId, most: usize) -> Self {
        Self {
            me,
            entries: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            learnt: BTreeMap::new(),
            most,
            is_silent: false,
            with_news: Vec::new(),
        }
    }

    /// The connections for which there is news since this was last asked: see [`Self::news`].
    pub(crate) fn with_news(&mut self) -> Vec<LinkKey> {
        std::mem::take(&mut self.with_news)
    }

    /// What a connection has to be told now; it counts as told. What goes beyond what the other side keeps waits until
    /// something else is withdrawn.
    pub(crate) fn news(&mut self, link: LinkKey) -> Vec<Cell> {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return Vec::new() };
        neighbour.has_news = false;
        let untold = std::mem::take(&mut neighbour.untold);
        let now = untold.into_iter().map(|span| (span, self.path_on(link, &span)));
        let (there, gone): (Vec<_>, Vec<_>) = now.partition(|(_, path)| path.is_some());
        let most = self.most;
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return Vec::new() };
        let mut cells = Vec::new();
        for (span, _) in gone {
            if neighbour.told.remove(&span).is_some() {
                cells.push(Cell::Withdraw(span));
            }
        }
        for (span, path) in there {
            let Some(path) = path else { continue };
            if neighbour.told.len() >= most && !neighbour.told.contains_key(&span) {
                neighbour.untold.insert(span);
            } else {
                neighbour.told.insert(span, path.clone());
                cells.push(Cell::Route(span, path));
            }
        }
        cells
    }

    /// How many paths connections are still to be told, together.
    pub(crate) fn untold(&self) -> usize {
        self.neighbours.values().map(|neighbour| neighbour.untold.len()).sum()
    }

    /// Whether a process of these may register here: its job has told of no more clusters than it may.
    pub(crate) fn may_add_local(&self, span: Span) -> bool {
        let is_local = |entry: &Entry| entry.local > 0;
        self.entries.get(&span).is_some_and(is_local)
            || self.of_job(span.job).filter(|(_, entry)| is_local(entry)).count() < MOST_LOCAL
    }

    pub(crate) fn add_local(&mut self, span: Span) {
        self.entries.entry(span).or_default().local += 1;
        self.update(span);
    }

    pub(crate) fn remove_local(&mut self, span: Span) {
        if let Some(entry) = self.entries.get_mut(&span) {
            entry.local = entry.local.saturating_sub(1);
        }
        self.update(span);
    }

    pub(crate) fn link_up(
        &mut self,
        link: LinkKey,
        (peer, account): (RelayId, Account),
        jobs: Option<Vec<JobId>>,
    ) {
        let neighbour = Neighbour {
            peer,
            account,
            jobs,
            told: HashMap::new(),
            untold: BTreeSet::new(),
            has_news: false,
        };
        self.neighbours.insert(link, neighbour);
        let spans: Vec<Span> = self.entries.keys().copied().collect();
        for span in spans {
            let path = self.path_on(link, &span);
            self.tell(link, span, path.as_ref());
        }
    }

    /// Other jobs may cross a connection from now on. What it has told of them holds again, or does not any more.
    pub(crate) fn set_jobs(&mut self, link: LinkKey, jobs: Option<Vec<JobId>>) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        if neighbour.jobs != jobs {
            neighbour.jobs = jobs;
            let spans: Vec<Span> = self.entries.keys().copied().collect();
            spans.into_iter().for_each(|span| self.update(span));
        }
    }

    /// Whether the job may cross the connection.
    pub(crate) fn may_cross(&self, link: LinkKey, job: &JobId) -> bool {
        let neighbour = self.neighbours.get(&link);
        neighbour.is_some_and(|it| it.jobs.as_ref().is_none_or(|jobs| jobs.contains(job)))
    }

    /// What was told of a span by those that are to be believed of its job.
    fn believed<'a>(
        &'a self,
        span: &Span,
        entry: &'a Entry,
    ) -> impl Iterator<Item = (LinkKey, &'a [RelayId])> {
        let job = span.job;
        let learnt = entry.learnt.values().flatten().map(|(link, path)| (*link, &path[..]));
        learnt.filter(move |(link, _)| self.may_cross(*link, &job))
    }

    pub(crate) fn link_down(&mut self, link: LinkKey) {
        let Some(account) = self.account(link) else { return };
        let has_told =
            |entry: &Entry| entry.learnt.get(&account).is_some_and(|ways| ways.contains_key(&link));
        let learnt = self.entries.iter().filter(|(_, entry)| has_told(entry));
        let spans: Vec<Span> = learnt.map(|(span, _)| *span).collect();
        self.neighbours.remove(&link);
        spans.into_iter().for_each(|span| self.forget(link, account, span));
    }

    /// A peer says how it reaches a span. `Ok(false)`: it has told too many, this one is not kept.
    pub(crate) fn learn(
        &mut self,
        link: LinkKey,
        span: Span,
        path: Vec<RelayId>,
    ) -> Result<bool, CellError> {
        let Some(neighbour) = self.neighbours.get(&link) else { return Ok(true) };
        if path.first() != Some(&neighbour.peer) {
            return Err(CellError::Field("path"));
        }
        if path.contains(&self.me) {
            // It goes by us now, and no longer where it went before.
            self.withdraw(link, span);
            return Ok(true);
        }
        let account = neighbour.account;
        let before = self.entries.get(&span).and_then(|entry| entry.learnt.get(&account));
        if before.and_then(|ways| ways.get(&link)) == Some(&path) {
            return Ok(true);
        }
        // Of several connections with the same to tell one may be ahead of the others.
        let most = self.most + self.most / 8;
        if before.is_none() && !self.learnt.entry(account).or_default().add(span.job, most) {
            return Ok(false);
        }
        let ways = self.entries.entry(span).or_default().learnt.entry(account).or_default();
        ways.insert(link, path);
        self.update(span);
        Ok(true)
    }

    pub(crate) fn withdraw(&mut self, link: LinkKey, span: Span) {
        if let Some(account) = self.account(link) {
            self.forget(link, account, span);
        }
    }

    fn account(&self, link: LinkKey) -> Option<Account> {
        self.neighbours.get(&link).map(|neighbour| neighbour.account)
    }

    /// Forgets the path to the span that the connection has led by, which is his.
    fn forget(&mut self, link: LinkKey, his: Account, span: Span) {
        let Some(entry) = self.entries.get_mut(&span) else { return };
        let Some(ways) = entry.learnt.get_mut(&his) else { return };
        if ways.remove(&link).is_none() {
            return;
        }
        if ways.is_empty() {
            entry.learnt.remove(&his);
            if let Some(learnt) = self.learnt.get_mut(&his) {
                learnt.remove(span.job);
                if learnt.all == 0 {
                    self.learnt.remove(&his);
                }
            }
        }
        self.update(span);
    }

    /// From now on nothing leads through here.
    pub(crate) fn fall_silent(&mut self) {
        self.is_silent = true;
        let spans: Vec<Span> = self.entries.keys().copied().collect();
        spans.into_iter().for_each(|span| self.update(span));
    }

    /// The connections that lead to the process by the fewest relays, of those that `may` be used and lead not to `except`.
    pub(crate) fn towards(
        &self,
        (job, to): (JobId, ProcId),
        except: Option<RelayId>,
        may: impl Fn(LinkKey) -> bool,
    ) -> Vec<LinkKey> {
        let mut best = usize::MAX;
        let mut found = Vec::new();
        for (_, entry) in self.of_job(job).filter(|(span, _)| span.holds(to)) {
            // Whose name is proven has told nothing that does not begin with it.
            let own = except.map(Account::from);
            let others = entry.learnt.iter().filter(|(account, _)| Some(**account) != own);
            for (link, path) in others.flat_map(|(_, ways)| ways) {
                let is_back = except.is_some_and(|peer| path.contains(&peer));
                if path.len() > best || is_back || !self.may_cross(*link, &job) || !may(*link) {
                    continue;
                }
                if path.len() < best {
                    best = path.len();
                    found.clear();
                }
                if !found.contains(link) {
                    found.push(*link);
                }
            }
        }
        found
    }

    /// The lowest process of the cluster that this one belongs to, as far as it is known here.
    pub(crate) fn cluster(&self, job: JobId, process: ProcId) -> ProcId {
        let is_known =
            |span, entry: &Entry| entry.local > 0 || self.believed(span, entry).next().is_some();
        let mut spans =
            self.of_job(job).filter(|(span, entry)| span.holds(process) && is_known(span, entry));
        spans.next().map_or(process, |(span, _)| span.first)
    }

    /// All that is known, with the number of relays on the best way; 0: registered here.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Span, usize)> {
        self.entries.iter().filter_map(|(span, entry)| {
            let nearest = self.believed(span, entry).map(|(_, path)| path.len()).min();
            Some((*span, if entry.local > 0 { 0 } else { nearest? }))
        })
    }

    fn of_job(&self, job: JobId) -> impl Iterator<Item = (&Span, &Entry)> {
        let least = Span { job, first: ProcId(0), count: 0 };
        let most = Span { job, first: ProcId(u32::MAX), count: u32::MAX };
        self.entries.range(least..=most)
    }

    /// Something about the span has changed.
    fn update(&mut self, span: Span) {
        let best = self.path_for(None, &span);
        // Only whom the best leads through needs another; a relay's connections all the same.
        let mut others: BTreeMap<RelayId, Option<Vec<RelayId>>> = BTreeMap::new();
        let links: Vec<_> = self.neighbours.iter().map(|(link, it)| (*link, it.peer)).collect();
        for (link, peer) in links {
            let path = match &best {
                Some(best) if best.contains(&peer) => {
                    &*others.entry(peer).or_insert_with(|| self.path_for(Some(peer), &span))
                }
                best => best,
            };
            self.tell(link, span, path.as_ref());
        }
        if self.entries.get(&span).is_some_and(|e| e.local == 0 && e.learnt.is_empty()) {
            self.entries.remove(&span);
        }
    }

    /// `path`: how it is reached from here.
    fn tell(&mut self, link: LinkKey, span: Span, path: Option<&Vec<RelayId>>) {
        let path = path.filter(|_| self.may_cross(link, &span.job));
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        if neighbour.told.get(&span) == path {
            neighbour.untold.remove(&span);
            return;
        }
        neighbour.untold.insert(span);
        if !std::mem::replace(&mut neighbour.has_news, true) {
            self.with_news.push(link);
        }
    }

    /// What the other side of a connection is to know of the span.
    fn path_on(&self, link: LinkKey, span: &Span) -> Option<Vec<RelayId>> {
        let peer = self.neighbours.get(&link)?.peer;
        if !self.may_cross(link, &span.job) {
            return None;
        }
        self.path_for(Some(peer), span)
    }

    /// The best path from here to the span that does not lead through `peer`.
    fn path_for(&self, peer: Option<RelayId>, span: &Span) -> Option<Vec<RelayId>> {
        if self.is_silent {
            return None;
        }
        let entry = self.entries.get(span)?;
        if entry.local > 0 {
            return Some(vec![self.me]);
        }
        let learnt = self.believed(span, entry).map(|(_, path)| path);
        let usable = learnt.filter(|path| peer.is_none_or(|peer| !path.contains(&peer)));
        let best = usable.min_by_key(|path| (path.len(), *path))?;
        (best.len() < MAX_HOPS)
            .then(|| std::iter::once(self.me).chain(best.iter().copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    fn relay(n: usize) -> RelayId {
        RelayId([n as u8; 16])
    }

    /// One whose name is proven.
    fn named(n: usize) -> (RelayId, Account) {
        (relay(n), relay(n).into())
    }

    fn key(n: usize) -> LinkKey {
        Key::from_bits(n as u64)
    }

    fn span(n: u32) -> Span {
        Span { job: [1; 16], first: ProcId(n), count: 1 }
    }

    #[test]
    fn a_span_is_found_by_the_fewest_relays_and_never_back_where_it_came_from() {
        let mut routes = Routes::new(relay(0), 10);
        routes.link_up(key(1), named(1), None);
        routes.link_up(key(2), named(2), None);
        assert!(routes.learn(key(1), span(5), vec![relay(1), relay(9)]).unwrap());
        assert!(routes.learn(key(2), span(5), vec![relay(2)]).unwrap());
        assert_eq!(routes.towards(([1; 16], ProcId(5)), None, |_| true), [key(2)]);
        assert_eq!(routes.towards(([1; 16], ProcId(5)), Some(relay(2)), |_| true), [key(1)]);
        assert!(routes.towards(([1; 16], ProcId(6)), None, |_| true).is_empty());
        assert!(routes.towards(([2; 16], ProcId(5)), None, |_| true).is_empty());
        routes.link_down(key(2));
        assert_eq!(routes.towards(([1; 16], ProcId(5)), None, |_| true), [key(1)]);
    }

    #[test]
    fn what_a_peer_may_tell_is_bounded_and_begins_with_itself() {
        let mut routes = Routes::new(relay(0), 2);
        routes.link_up(key(1), named(1), None);
        for n in 0..2 {
            assert!(routes.learn(key(1), span(n), vec![relay(1)]).unwrap());
        }
        assert!(!routes.learn(key(1), span(2), vec![relay(1)]).unwrap());
        // The same again takes no room; what was withdrawn makes some.
        assert!(routes.learn(key(1), span(1), vec![relay(1), relay(2)]).unwrap());
        routes.withdraw(key(1), span(0));
        assert!(routes.learn(key(1), span(2), vec![relay(1)]).unwrap());
        assert!(routes.learn(key(1), span(0), vec![relay(2)]).is_err());
    }

    #[test]
    fn what_a_peer_may_tell_is_the_same_on_however_many_connections() {
        let mut routes = Routes::new(relay(0), 8);
        (1..=5).for_each(|n| routes.link_up(key(n), named(1), None));
        routes.link_up(key(6), named(2), None);
        let learn = |routes: &mut Routes, by: usize, n| {
            let path = vec![relay(if by == 6 { 2 } else { 1 })];
            routes.learn(key(by), span(n), path).unwrap()
        };
        // A few more than are told, since connections may be ahead of each other.
        let kept = (0..50).filter(|n| learn(&mut routes, 1 + *n as usize % 5, *n)).count();
        assert_eq!((kept, routes.all().count()), (9, 9));
        // The same on others takes no room, and another relay has its own.
        assert!((0..9).all(|n| (1..=5).all(|by| learn(&mut routes, by, n))));
        assert!(learn(&mut routes, 6, 100));
        // What is withdrawn on one is still known by the others.
        routes.withdraw(key(1), span(0));
        assert!(!learn(&mut routes, 1, 60));
        (2..=5).for_each(|by| routes.withdraw(key(by), span(0)));
        assert!(learn(&mut routes, 1, 60) && !learn(&mut routes, 1, 61));
        (1..=6).for_each(|by| routes.link_down(key(by)));
        assert!(routes.entries.is_empty() && routes.learnt.is_empty());
    }

    #[test]
    fn what_a_peer_may_tell_of_one_job_is_bounded_and_others_have_their_own() {
        let mut routes = Routes::new(relay(0), 1000);
        [1, 2, 3].into_iter().for_each(|n| routes.link_up(key(n), named(n.min(2)), None));
        let of = |job: u8, first: u32| Span { job: [job; 16], first: ProcId(first), count: 1000 };
        let learn = |routes: &mut Routes, by: usize, span| {
            routes.learn(key(by), span, vec![relay(by.min(2))]).unwrap()
        };
        // All of them hold process 999, and who looks for it looks at all of them.
        let kept = (0..500).filter(|n| learn(&mut routes, 2 + *n as usize % 2, of(1, *n))).count();
        assert_eq!((kept, routes.of_job([1; 16]).count()), (64, 64));
        // Another relay is heard of the same job, and this one of others.
        assert!(learn(&mut routes, 1, of(1, 900)) && learn(&mut routes, 2, of(2, 900)));
        assert_eq!(routes.towards(([1; 16], ProcId(999)), Some(relay(2)), |_| true), [key(1)]);
        routes.withdraw(key(2), of(1, 0));
        assert!(learn(&mut routes, 2, of(1, 901)) && !learn(&mut routes, 3, of(1, 902)));
        (1..=3).for_each(|by| routes.link_down(key(by)));
        assert!(routes.entries.is_empty() && routes.learnt.is_empty());
    }

    #[test]
    fn what_somebody_may_tell_is_the_same_by_however_many_names() {
        let mut routes = Routes::new(relay(0), 80);
        let account = Account([99; 16]);
        (1..=50).for_each(|n| routes.link_up(key(n), (relay(n), account), None));
        let mut learn = |n: usize, job: u8| {
            let span = Span { job: [job; 16], first: ProcId(n as u32), count: 1 };
            routes.learn(key(1 + n % 50), span, vec![relay(1 + n % 50)]).unwrap()
        };
        assert_eq!((0..200).filter(|n| learn(*n, 1)).count(), 64);
        assert_eq!((0..200).filter(|n| learn(*n, 2)).count(), 90 - 64);
        // Those who share what they prove lead to each other all the same.
        let found = routes.towards(([1; 16], ProcId(7)), Some(relay(1)), |_| true);
        assert_eq!(found, [key(8)]);
        (1..=50).for_each(|n| routes.link_down(key(n)));
        assert!(routes.entries.is_empty() && routes.learnt.is_empty());
    }

    #[test]
    fn the_same_again_is_no_news_and_each_is_told_the_best_way_that_leads_past_him() {
        let mut routes = Routes::new(relay(0), 10);
        (1..=4).for_each(|n| routes.link_up(key(n), named(n.min(3)), None));
        let path = |names: &[usize]| names.iter().map(|n| relay(*n)).collect::<Vec<_>>();
        assert!(routes.learn(key(1), span(7), path(&[1, 3])).unwrap());
        assert!(routes.learn(key(2), span(7), path(&[2, 8, 9])).unwrap());
        let mut told = |link| match &routes.news(key(link))[..] {
            [Cell::Route(_, path)] => path.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((told(1), told(2)), (path(&[0, 2, 8, 9]), path(&[0, 1, 3])));
        assert_eq!((told(3), told(4)), (path(&[0, 2, 8, 9]), path(&[0, 2, 8, 9])));
        routes.with_news();
        assert!(routes.learn(key(1), span(7), path(&[1, 3])).unwrap());
        assert_eq!((routes.with_news(), routes.untold()), (vec![], 0));
    }

    #[test]
    fn what_changes_while_nobody_listens_is_told_once_and_as_it_is_then() {
        let mut routes = Routes::new(relay(0), 10);
        [1, 2].into_iter().for_each(|n| routes.link_up(key(n), named(n), None));
        let told = |routes: &mut Routes| {
            assert_eq!(routes.with_news(), [key(2)]);
            routes.news(key(2))
        };
        for n in 0..1000 {
            assert!(routes.learn(key(1), span(n), vec![relay(1)]).unwrap());
            routes.withdraw(key(1), span(n));
            assert!(routes.untold() <= 1, "what nobody will be told is kept");
        }
        assert_eq!(told(&mut routes), []);
        assert!(routes.learn(key(1), span(7), vec![relay(1)]).unwrap());
        assert!(routes.learn(key(1), span(7), vec![relay(1), relay(3)]).unwrap());
        let path = vec![relay(0), relay(1), relay(3)];
        assert_eq!(told(&mut routes), [Cell::Route(span(7), path)]);
        routes.withdraw(key(1), span(7));
        assert!(routes.learn(key(1), span(7), vec![relay(1), relay(3)]).unwrap());
        assert_eq!(told(&mut routes), []);
        routes.withdraw(key(1), span(7));
        assert_eq!(told(&mut routes), [Cell::Withdraw(span(7))]);
    }

    #[test]
    fn what_a_peer_has_no_room_for_is_told_when_it_has() {
        let (mut one, mut two) = (Routes::new(relay(0), 3), Routes::new(relay(1), 3));
        one.link_up(key(1), named(1), None);
        two.link_up(key(0), named(0), None);
        let tell = |one: &mut Routes, two: &mut Routes| {
            for link in one.with_news() {
                for cell in one.news(link) {
                    match cell {
                        Cell::Route(span, path) => {
                            assert!(two.learn(key(0), span, path).unwrap(), "it is refused");
                        }
                        Cell::Withdraw(span) => two.withdraw(key(0), span),
                        other => panic!("{other:?}"),
                    }
                }
            }
        };
        (0..5).for_each(|n| one.add_local(span(n)));
        tell(&mut one, &mut two);
        assert_eq!((two.all().count(), one.untold()), (3, 2));
        // In one go: what is withdrawn makes room for what is told.
        one.remove_local(span(1));
        one.add_local(span(9));
        tell(&mut one, &mut two);
        assert_eq!((two.all().count(), one.untold()), (3, 2));
        one.remove_local(span(0));
        one.remove_local(span(2));
        tell(&mut one, &mut two);
        let known: Vec<u32> = two.all().map(|(span, _)| span.first.0).collect();
        assert_eq!((known, one.untold()), (vec![3, 4, 9], 0));
    }

    /// Relays in any graph, links numbered by (from, to), whose words arrive in order.
    struct Net {
        relays: Vec<Routes>,
        links: BTreeSet<(usize, usize)>,
        words: BTreeMap<(usize, usize), VecDeque<Cell>>,
    }

    impl Net {
        fn new(count: usize) -> Self {
            let relays = (0..count).map(|n| Routes::new(relay(n), 100)).collect();
            Self { relays, links: BTreeSet::new(), words: BTreeMap::new() }
        }

        fn link(&mut self, a: usize, b: usize) {
            if a != b && self.links.insert((a.min(b), a.max(b))) {
                self.relays[a].link_up(key(b), named(b), None);
                self.relays[b].link_up(key(a), named(a), None);
            }
        }

        fn cut(&mut self, a: usize, b: usize) {
            if self.links.remove(&(a.min(b), a.max(b))) {
                for (a, b) in [(a, b), (b, a)] {
                    self.relays[a].link_down(key(b));
                    self.words.remove(&(a, b));
                }
            }
        }

        /// Delivers everything; how many words it took.
        fn settle(&mut self) -> usize {
            for count in 0.. {
                for from in 0..self.relays.len() {
                    let told = self.relays[from].with_news().into_iter().flat_map(|link| {
                        let cells = self.relays[from].news(link);
                        cells.into_iter().map(move |cell| (link, cell))
                    });
                    for (link, cell) in told.collect::<Vec<_>>() {
                        let to = link.to_bits() as usize;
                        if self.links.contains(&(from.min(to), from.max(to))) {
                            self.words.entry((from, to)).or_default().push_back(cell);
                        }
                    }
                }
                let next =
                    self.words.iter().find(|(_, queue)| !queue.is_empty()).map(|(at, _)| *at);
                let Some((from, to)) = next else { return count };
                assert!(count < 100_000, "the routes do not settle");
                match self.words.get_mut(&(from, to)).unwrap().pop_front().unwrap() {
                    Cell::Route(span, path) => {
                        self.relays[to].learn(key(from), span, path).unwrap();
                    }
                    Cell::Withdraw(span) => self.relays[to].withdraw(key(from), span),
                    _ => unreachable!(),
                }
            }
            unreachable!()
        }

        /// Relays between `from` and `to`, by search.
        fn distance(&self, from: usize, to: usize) -> Option<usize> {
            let (mut seen, mut queue) = (BTreeSet::from([from]), VecDeque::from([(from, 0)]));
            while let Some((at, distance)) = queue.pop_front() {
                if at == to {
                    return Some(distance);
                }
                for &(a, b) in &self.links {
                    let next = if a == at {
                        b
                    } else if b == at {
                        a
                    } else {
                        continue;
                    };
                    if seen.insert(next) {
                        queue.push_back((next, distance + 1));
                    }
                }
            }
            None
        }
    }

    proptest! {
        #[test]
        fn routes_settle_on_the_shortest_paths_and_on_nothing_where_there_is_none(
            steps in prop::collection::vec((0usize..6, 0usize..6, any::<bool>()), 1..25),
            homes in prop::collection::vec(0usize..6, 1..4),
        ) {
            let mut net = Net::new(6);
            for (n, home) in homes.iter().enumerate() {
                net.relays[*home].add_local(span(n as u32));
            }
            for (a, b, is_link) in steps {
                if is_link { net.link(a, b) } else { net.cut(a, b) }
                net.settle();
            }
            for (n, home) in homes.iter().enumerate() {
                for from in (0..6).filter(|from| from != home) {
                    let by = net.relays[from].towards(([1; 16], ProcId(n as u32)), None, |_| true);
                    let distance = net.distance(from, *home);
                    prop_assert_eq!(by.is_empty(), distance.is_none());
                    for link in by {
                        let next = net.distance(link.to_bits() as usize, *home);
                        prop_assert_eq!(next.map(|next| next + 1), distance);
                    }
                }
            }
            for (n, home) in homes.iter().enumerate() {
                net.relays[*home].remove_local(span(n as u32));
            }
            net.settle();
            for relay in &net.relays {
                prop_assert!(relay.entries.is_empty());
            }
        }
    }
}
