//! Which ways a peer is told where there are more than it keeps: first those to processes that register here, then as many of each
//! relay that has told us some, and of each of these its jobs in turn. So nobody's inventions push out what others have.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gridmpi_wire::JobId;

use super::{Account, MOST_OF_JOB};
use crate::cell::Span;

/// Whom a way is from; `None`: its processes register here.
pub(super) type Source = Option<Account>;

/// A source, and a span's turn among those of its job that are from there: the same for all connections, so that they tell the same.
pub(super) type Origin = (Source, usize);

type Turn = (usize, Span);

#[derive(Debug, Default)]
struct Lot {
    placed: BTreeSet<Turn>,
    waiting: BTreeSet<Turn>,
}

/// So many places, as sources share them.
#[derive(Debug)]
struct Places {
    most: usize,
    placed: usize,
    waiting: usize,
    lots: BTreeMap<Source, Lot>,
}

impl Places {
    const fn new(most: usize) -> Self {
        Self { most, placed: 0, waiting: 0, lots: BTreeMap::new() }
    }

    fn has_place(&self, source: Source, turn: Turn) -> bool {
        self.lots.get(&source).is_some_and(|lot| lot.placed.contains(&turn))
    }

    /// Another one waits for a place.
    fn enter(&mut self, source: Source, turn: Turn) {
        let lot = self.lots.entry(source).or_default();
        if !lot.placed.contains(&turn) && lot.waiting.insert(turn) {
            self.waiting += 1;
        }
    }

    /// One is gone.
    fn leave(&mut self, source: Source, turn: Turn) {
        let Some(lot) = self.lots.get_mut(&source) else { return };
        self.placed -= usize::from(lot.placed.remove(&turn));
        self.waiting -= usize::from(lot.waiting.remove(&turn));
        if lot.placed.is_empty() && lot.waiting.is_empty() {
            self.lots.remove(&source);
        }
    }

    /// Gives places to whom they belong; those that have got one, or given one up.
    fn settle(&mut self) -> Vec<(Source, Turn)> {
        let mut changed = Vec::new();
        while let Some(source) = self.next() {
            if self.placed >= self.most {
                let Some(loser) = self.loser(source) else { break };
                changed.extend(self.displace(loser));
            }
            changed.extend(self.place(source));
        }
        if self.waiting > 0 {
            self.take_turns(&mut changed);
        }
        changed
    }

    /// Who has fewest of those that wait.
    fn next(&self) -> Option<Source> {
        if self.waiting == 0 {
            return None;
        }
        let waiting = self.lots.iter().filter(|(_, lot)| !lot.waiting.is_empty());
        let first = waiting.min_by_key(|(source, lot)| (source.is_some(), lot.placed.len()));
        first.map(|(source, _)| *source)
    }

    /// Who has so many that one of them is this source's.
    fn loser(&self, source: Source) -> Option<Source> {
        let others = self.lots.iter().filter(|(other, _)| other.is_some());
        let (loser, lot) = others.max_by_key(|(_, lot)| lot.placed.len())?;
        let own = self.lots.get(&source).map_or(0, |lot| lot.placed.len());
        let least = if source.is_none() { 1 } else { own + 2 };
        (lot.placed.len() >= least).then_some(*loser)
    }

    fn place(&mut self, source: Source) -> Option<(Source, Turn)> {
        let lot = self.lots.get_mut(&source)?;
        let turn = lot.waiting.pop_first()?;
        lot.placed.insert(turn);
        (self.placed, self.waiting) = (self.placed + 1, self.waiting - 1);
        Some((source, turn))
    }

    fn displace(&mut self, source: Source) -> Option<(Source, Turn)> {
        let lot = self.lots.get_mut(&source)?;
        let turn = lot.placed.pop_last()?;
        lot.waiting.insert(turn);
        (self.placed, self.waiting) = (self.placed - 1, self.waiting + 1);
        Some((source, turn))
    }

    /// Within a source whose turn comes earlier has the place.
    fn take_turns(&mut self, changed: &mut Vec<(Source, Turn)>) {
        for (source, lot) in &mut self.lots {
            while let (Some(first), Some(last)) = (lot.waiting.first(), lot.placed.last())
                && first < last
            {
                let (first, last) = (*first, *last);
                lot.waiting.remove(&first);
                lot.placed.remove(&last);
                lot.waiting.insert(last);
                lot.placed.insert(first);
                changed.extend([(*source, first), (*source, last)]);
            }
        }
    }
}

/// What one connection is told, of what there is to tell.
#[derive(Debug)]
pub(super) struct Shares {
    /// What there is.
    all: HashMap<Span, Origin>,
    /// Which of it, as far as each job goes; and which of that.
    jobs: BTreeMap<JobId, Places>,
    told: Places,
    /// What may be told now and was not, or the other way round.
    changed: BTreeSet<Span>,
}

impl Shares {
    pub(super) fn new(most: usize) -> Self {
        Self {
            all: HashMap::new(),
            jobs: BTreeMap::new(),
            told: Places::new(most),
            changed: BTreeSet::new(),
        }
    }

    pub(super) fn has(&self, span: &Span) -> bool {
        self.all.contains_key(span)
    }

    /// Of how many the peer is not told since there is no place.
    pub(super) fn waiting(&self) -> usize {
        self.all.len() - self.told.placed
    }

    /// Whether the peer is told of it.
    pub(super) fn is_told(&self, span: &Span) -> bool {
        let found = self.all.get(span);
        found.is_some_and(|(source, turn)| self.told.has_place(*source, (*turn, *span)))
    }

    /// A way to the span is there; `None`: none is.
    pub(super) fn set(&mut self, span: Span, origin: Option<Origin>) {
        let before = self.all.get(&span).copied();
        if before == origin {
            return;
        }
        let job = self.jobs.entry(span.job).or_insert_with(|| Places::new(MOST_OF_JOB));
        if let Some((before, turn)) = before {
            self.all.remove(&span);
            job.leave(before, (turn, span));
            self.told.leave(before, (turn, span));
        }
        if let Some((source, turn)) = origin {
            self.all.insert(span, (source, turn));
            job.enter(source, (turn, span));
        }
        for (source, turn) in job.settle() {
            if job.has_place(source, turn) {
                self.told.enter(source, turn);
            } else {
                self.told.leave(source, turn);
                self.changed.insert(turn.1);
            }
        }
        if job.lots.is_empty() {
            self.jobs.remove(&span.job);
        }
    }

    /// Spans of which the peer is to be told something else, or may be.
    pub(super) fn settle(&mut self) -> BTreeSet<Span> {
        let settled = self.told.settle();
        self.changed.extend(settled.into_iter().map(|(_, turn)| turn.1));
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_wire::ProcId;

    fn span(job: usize, n: usize) -> Span {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&(job as u16).to_be_bytes());
        Span { job: id, first: ProcId(n as u32), count: 1 }
    }

    fn from(n: u8) -> Source {
        Some(Account([n; 16]))
    }

    /// How many of these are told.
    fn told(shares: &Shares, spans: impl Iterator<Item = Span>) -> usize {
        spans.filter(|span| shares.is_told(span)).count()
    }

    #[test]
    fn who_comes_first_gives_to_those_who_have_less() {
        let mut shares = Shares::new(100);
        // Somebody invents jobs and fills all places.
        (0..200).for_each(|job| shares.set(span(job, 0), Some((from(1), 0))));
        assert_eq!((shares.settle().len(), shares.waiting()), (100, 100));
        // Another relay tells of two jobs, a few clusters of one and many of the other.
        (0..3).for_each(|n| shares.set(span(500, n), Some((from(2), n))));
        (0..64).for_each(|n| shares.set(span(501, n), Some((from(2), n))));
        shares.settle();
        let of_job = |shares: &Shares, job| told(shares, (0..64).map(|n| span(job, n)));
        assert_eq!((of_job(&shares, 500), of_job(&shares, 501)), (3, 47));
        assert_eq!(told(&shares, (0..200).map(|job| span(job, 0))), 50);
        // What registers here comes before all.
        (0..10).for_each(|n| shares.set(span(600, n), Some((None, n))));
        let changed = shares.settle();
        assert_eq!((of_job(&shares, 600), changed.len()), (10, 20));
        assert_eq!((of_job(&shares, 500), of_job(&shares, 501)), (3, 42));
        // What goes makes room for what waits.
        (0..200).for_each(|job| shares.set(span(job, 0), None));
        shares.settle();
        assert_eq!((of_job(&shares, 501), shares.waiting()), (64, 0));
    }

    #[test]
    fn jobs_of_one_source_have_their_turns() {
        let mut shares = Shares::new(100);
        (0..64).for_each(|n| shares.set(span(1, n), Some((None, n))));
        (0..64).for_each(|n| shares.set(span(2, n), Some((None, n))));
        shares.settle();
        let of_job = |shares: &mut Shares, job| {
            shares.settle();
            told(shares, (0..64).map(|n| span(job, n)))
        };
        assert_eq!((of_job(&mut shares, 1), of_job(&mut shares, 2)), (50, 50));
        (0..2).for_each(|n| shares.set(span(3, n), Some((None, n))));
        assert_eq!(of_job(&mut shares, 3), 2);
        assert!(of_job(&mut shares, 1) >= 49 && of_job(&mut shares, 2) >= 49);
    }

    #[test]
    fn of_one_job_a_peer_is_told_no_more_than_it_keeps_and_everybody_gets_in() {
        let mut shares = Shares::new(1000);
        (0..64).for_each(|n| shares.set(span(1, n), Some((from(1), n))));
        (100..103).for_each(|n| shares.set(span(1, n), Some((from(2), n - 100))));
        shares.set(span(1, 200), Some((None, 0)));
        shares.settle();
        let mine = |shares: &Shares| told(shares, (100..103).chain([200]).map(|n| span(1, n)));
        assert_eq!((mine(&shares), shares.told.placed, shares.waiting()), (4, 64, 4));
        // One that comes by another relay now, and one that is gone.
        shares.set(span(1, 0), Some((from(2), 3)));
        shares.set(span(1, 1), None);
        shares.settle();
        assert_eq!((mine(&shares), shares.told.placed, shares.waiting()), (4, 64, 3));
        (0..300).for_each(|n| shares.set(span(1, n), None));
        shares.settle();
        assert!(shares.all.is_empty() && shares.jobs.is_empty() && shares.told.lots.is_empty());
        assert_eq!((shares.told.placed, shares.told.waiting), (0, 0));
    }
}
