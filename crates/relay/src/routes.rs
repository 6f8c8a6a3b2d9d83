//! Which processes can be reached by which connection: path vectors, as relays tell each other.
//!
//! A relay tells each peer its best path to every span of processes, unless the path leads through that peer, and never
//! believes one that leads through itself. So what is withdrawn does not live on in circles.
//!
//! What is to be told is not kept as words but as the spans that it is about: so what changes back and forth while a peer takes
//! nothing costs no memory, and a peer is never told more than it keeps; who has a share in that says `shares`.

mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gridmpi_wire::{JobId, ProcId};

use crate::arena::Key;
use crate::cell::{Cell, CellError, MAX_HOPS, RelayId, Span};
use crate::core::Link;
use shares::{Origin, Shares, Source};

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
    /// Its turn among those of its job that register here.
    turn: usize,
    learnt: BTreeMap<Account, Ways>,
}

/// What somebody has told of a span.
#[derive(Debug, Default)]
struct Ways {
    /// Its turn among those of its job that he has told of.
    turn: usize,
    /// What each of his connections leads to it by.
    by: BTreeMap<LinkKey, Vec<RelayId>>,
}

/// How many spans are from one source.
#[derive(Debug, Default)]
struct Book {
    all: usize,
    /// The turns that each job's have: one bit for each.
    turns: BTreeMap<JobId, u128>,
}

impl Book {
    fn of_job(&self, job: &JobId) -> usize {
        self.turns.get(job).map_or(0, |turns| turns.count_ones() as usize)
    }

    /// Takes note of another one: its turn, the first that no other of its job has.
    fn add(&mut self, job: JobId) -> usize {
        self.all += 1;
        let turns = self.turns.entry(job).or_default();
        let turn = turns.trailing_ones().min(127);
        *turns |= 1 << turn;
        turn as usize
    }

    fn remove(&mut self, job: JobId, turn: usize) {
        self.all -= 1;
        if let Some(turns) = self.turns.get_mut(&job) {
            *turns &= !(1 << turn);
            if *turns == 0 {
                self.turns.remove(&job);
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
    /// What it may be told of what there is.
    shares: Shares,
    /// Something has changed since it was last told anything.
    has_news: bool,
}

/// Most clusters of one job whose processes register here: each is told to every other relay.
const MOST_LOCAL: usize = 64;

/// Most clusters of one job to which a relay is told ways.
const MOST_OF_JOB: usize = 64;

/// Of several connections with the same to tell one may be ahead of the others: so much more is kept than is told.
const fn kept(told: usize) -> usize {
    told + told / 8
}

/// All routes of a relay.
#[derive(Debug)]
pub(crate) struct Routes {
    me: RelayId,
    entries: BTreeMap<Span, Entry>,
    neighbours: BTreeMap<LinkKey, Neighbour>,
    books: BTreeMap<Source, Book>,
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
            books: BTreeMap::new(),
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
    /// there is room, or it is its source's turn.
    pub(crate) fn news(&mut self, link: LinkKey) -> Vec<Cell> {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return Vec::new() };
        neighbour.has_news = false;
        let mut spans = std::mem::take(&mut neighbour.untold);
        let mut ways: BTreeMap<_, _> =
            spans.iter().map(|span| (*span, self.way_on(link, span))).collect();
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return Vec::new() };
        for (span, way) in &ways {
            neighbour.shares.set(*span, way.as_ref().map(|way| way.0));
        }
        spans.extend(neighbour.shares.settle());
        let mut cells = Vec::new();
        let mut there = Vec::new();
        for span in spans {
            if neighbour.shares.is_told(&span) {
                there.push(span);
            } else if neighbour.told.remove(&span).is_some() {
                cells.push(Cell::Withdraw(span));
            }
        }
        for span in there {
            let way = ways.remove(&span).unwrap_or_else(|| self.way_on(link, &span));
            let Some((_, path)) = way else { continue };
            let Some(neighbour) = self.neighbours.get_mut(&link) else { break };
            if neighbour.told.get(&span) != Some(&path) {
                neighbour.told.insert(span, path.clone());
                cells.push(Cell::Route(span, path));
            }
        }
        cells
    }

    /// How many paths connections are still to be told, together.
    pub(crate) fn untold(&self) -> usize {
        self.neighbours.values().map(|it| it.untold.len() + it.shares.waiting()).sum()
    }

    /// Whether a process of these may register here: its job has told of no more clusters than it may. `before`: as of which it
    /// has registered, and will not be any more.
    pub(crate) fn may_add_local(&self, span: Span, before: Option<Span>) -> bool {
        let local = |span: &Span| self.entries.get(span).map_or(0, |entry| entry.local);
        let goes = before.is_some_and(|before| local(&before) == 1);
        let of_job = self.books.get(&None).map_or(0, |book| book.of_job(&span.job));
        local(&span) > 0 || of_job < MOST_LOCAL + usize::from(goes)
    }

    pub(crate) fn add_local(&mut self, span: Span) {
        let entry = self.entries.entry(span).or_default();
        entry.local += 1;
        if entry.local == 1 {
            entry.turn = self.books.entry(None).or_default().add(span.job);
        }
        self.update(span);
    }

    pub(crate) fn remove_local(&mut self, span: Span) {
        let Some(entry) = self.entries.get_mut(&span).filter(|entry| entry.local > 0) else {
            return;
        };
        entry.local -= 1;
        if entry.local == 0 {
            let turn = entry.turn;
            self.strike(None, span.job, turn);
        }
        self.update(span);
    }

    /// A span that was from this source is not any more.
    fn strike(&mut self, source: Source, job: JobId, turn: usize) {
        let Some(book) = self.books.get_mut(&source) else { return };
        book.remove(job, turn);
        if book.all == 0 {
            self.books.remove(&source);
        }
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
            shares: Shares::new(self.most),
            has_news: false,
        };
        self.neighbours.insert(link, neighbour);
        let spans: Vec<Span> = self.entries.keys().copied().collect();
        for span in spans {
            let path = self.way_on(link, &span).map(|(_, path)| path);
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
        let ways = entry.learnt.values().flat_map(|ways| &ways.by);
        let learnt = ways.map(|(link, path)| (*link, &path[..]));
        learnt.filter(move |(link, _)| self.may_cross(*link, &job))
    }

    pub(crate) fn link_down(&mut self, link: LinkKey) {
        let Some(account) = self.account(link) else { return };
        let has_told = |entry: &Entry| {
            entry.learnt.get(&account).is_some_and(|ways| ways.by.contains_key(&link))
        };
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
        if before.and_then(|ways| ways.by.get(&link)) == Some(&path) {
            return Ok(true);
        }
        let mut turn = None;
        if before.is_none() {
            let book = self.books.entry(Some(account)).or_default();
            if book.all >= kept(self.most) || book.of_job(&span.job) >= kept(MOST_OF_JOB) {
                return Ok(false);
            }
            turn = Some(book.add(span.job));
        }
        let ways = self.entries.entry(span).or_default().learnt.entry(account).or_default();
        ways.turn = turn.unwrap_or(ways.turn);
        ways.by.insert(link, path);
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
        if ways.by.remove(&link).is_none() {
            return;
        }
        if ways.by.is_empty() {
            let turn = ways.turn;
            entry.learnt.remove(&his);
            self.strike(Some(his), span.job, turn);
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
        let entries = self.of_job(job).filter(|(span, _)| span.holds(to)).map(|(_, entry)| entry);
        // Both in order: each way is looked at once, and each connection's settings.
        let usable = self.neighbours.keys().filter(|link| self.may_cross(**link, &job));
        let mut links: Vec<_> = usable.map(|link| (*link, usize::MAX)).collect();
        for entry in entries {
            // Whose name is proven has told nothing that does not begin with it.
            let own = except.map(Account::from);
            let others = entry.learnt.iter().filter(|(account, _)| Some(**account) != own);
            for ways in others.map(|(_, ways)| &ways.by) {
                let mut at = links.iter_mut().peekable();
                for (link, path) in ways {
                    while at.next_if(|(other, _)| other < link).is_some() {}
                    let is_back = except.is_some_and(|peer| path.contains(&peer));
                    if !is_back && let Some((_, best)) = at.next_if(|(other, _)| other == link) {
                        *best = path.len().min(*best);
                    }
                }
            }
        }
        links.retain(|(link, best)| *best < usize::MAX && may(*link));
        let best = links.iter().map(|(_, best)| *best).min();
        links.into_iter().filter(|(_, len)| Some(*len) == best).map(|(link, _)| link).collect()
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
        let path_for = |us: &Self, peer| us.way_for(peer, &span).map(|(_, path)| path);
        let best = path_for(self, None);
        // Only whom the best leads through needs another; a relay's connections all the same.
        let mut others: BTreeMap<RelayId, Option<Vec<RelayId>>> = BTreeMap::new();
        let links: Vec<_> = self.neighbours.iter().map(|(link, it)| (*link, it.peer)).collect();
        for (link, peer) in links {
            let path = match &best {
                Some(best) if best.contains(&peer) => {
                    &*others.entry(peer).or_insert_with(|| path_for(self, Some(peer)))
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
        // One that waits for a place is told of as little as one that is not there, but has to leave.
        let is_there = path.is_some() || !neighbour.shares.has(&span);
        if neighbour.told.get(&span) == path && is_there {
            neighbour.untold.remove(&span);
            return;
        }
        neighbour.untold.insert(span);
        if !std::mem::replace(&mut neighbour.has_news, true) {
            self.with_news.push(link);
        }
    }

    /// What the other side of a connection is to know of the span.
    fn way_on(&self, link: LinkKey, span: &Span) -> Option<(Origin, Vec<RelayId>)> {
        let peer = self.neighbours.get(&link)?.peer;
        if !self.may_cross(link, &span.job) {
            return None;
        }
        self.way_for(Some(peer), span)
    }

    /// The best path from here to the span that does not lead through `peer`, and whom it is from.
    fn way_for(&self, peer: Option<RelayId>, span: &Span) -> Option<(Origin, Vec<RelayId>)> {
        if self.is_silent {
            return None;
        }
        let entry = self.entries.get(span)?;
        if entry.local > 0 {
            return Some(((None, entry.turn), vec![self.me]));
        }
        let learnt = self.believed(span, entry);
        let usable = learnt.filter(|(_, path)| peer.is_none_or(|peer| !path.contains(&peer)));
        let (link, best) = usable.min_by_key(|(_, path)| (path.len(), *path))?;
        let account = self.account(link)?;
        let origin = (Some(account), entry.learnt.get(&account)?.turn);
        (best.len() < MAX_HOPS)
            .then(|| (origin, std::iter::once(self.me).chain(best.iter().copied()).collect()))
    }
}
