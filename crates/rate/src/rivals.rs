//! What brokers of clusters whose transfers can meet tell each other.
//!
//! All that the allocation depends on, and nothing that comes of it: who has heard the same computes the same, so that no word of one is the
//! cause of another's, and nothing swings.

use crate::broker::{Pair, Process};
use crate::limits::Limits;
use crate::{ClusterId, NodeId, Rate};
use std::collections::{BTreeMap, BTreeSet};

/// What the brokers of other clusters have to know of ours, where transfers of both can meet ([`Network::rivals`](crate::Network::rivals)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Notice {
    /// A transfer has begun or ended: of all processes that have it.
    Transfer {
        /// Who sends.
        from: NodeId,
        /// Who receives.
        to: NodeId,
        /// Whether that has begun or ended.
        is_active: bool,
    },
    /// One of those processes, told of each where one of them uses less than it gets; or no longer.
    Part {
        /// Who sends.
        from: NodeId,
        /// Who receives.
        to: NodeId,
        /// The process, on node `from`.
        process: Process,
        /// Whether it counts for itself from now on, or no longer.
        is_active: bool,
    },
    /// A process can use so much of what it gets towards a cluster.
    Limit {
        /// The process.
        process: Process,
        /// The receiving cluster.
        to: ClusterId,
        /// How much in all; [`Rate::UNBOUNDED`]: all that it gets.
        rate: Rate,
    },
    /// The link from the teller's cluster to another has turned out to carry so much.
    Link {
        /// The receiving cluster.
        to: ClusterId,
        /// How much.
        rate: Rate,
    },
}

/// A transfer of all processes that have it, or of one of them where somebody uses less than it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Portion {
    pub(crate) pair: Pair,
    pub(crate) only: Option<Process>,
    /// How many there are of the pair.
    pub(crate) of: u32,
}

/// What the broker of one other cluster has told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rival {
    /// Its transfers, and the processes of those that are told of one by one.
    pairs: BTreeMap<Pair, BTreeSet<Process>>,
}

impl Rival {
    /// Whether anything is known of it.
    pub(crate) fn is_idle(&self) -> bool {
        self.pairs.is_empty()
    }

    /// A transfer begins or ends; whether that is new.
    pub(crate) fn set(&mut self, pair: Pair, is_active: bool) -> bool {
        if !is_active {
            return self.pairs.remove(&pair).is_some();
        }
        let is_new = !self.pairs.contains_key(&pair);
        self.pairs.entry(pair).or_default();
        is_new
    }

    /// A process of a transfer counts for itself, or no longer; whether that is new. Nothing if there is no such transfer.
    pub(crate) fn split(&mut self, pair: Pair, process: Process, is_active: bool) -> bool {
        let Some(parts) = self.pairs.get_mut(&pair) else { return false };
        if is_active { parts.insert(process) } else { parts.remove(&process) }
    }

    /// All of it, in order.
    pub(crate) fn portions(&self) -> impl Iterator<Item = Portion> {
        self.pairs
            .iter()
            .flat_map(|(&pair, parts)| portions(pair, parts.iter().copied(), !parts.is_empty()))
    }

    /// The transfers, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.keys()
    }
}

/// A transfer as one, or process by process.
pub(crate) fn portions(
    pair: Pair,
    processes: impl ExactSizeIterator<Item = Process>,
    is_split: bool,
) -> impl Iterator<Item = Portion> {
    let of = if is_split { processes.len() as u32 } else { 1 };
    let whole = (!is_split).then_some(Portion { pair, only: None, of });
    let parts = processes.filter(move |_| is_split);
    whole.into_iter().chain(parts.map(move |process| Portion { pair, only: Some(process), of }))
}

/// What other brokers have been told of parts and limits of ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    parts: BTreeSet<(Pair, Process)>,
    limits: BTreeMap<(Process, ClusterId), f64>,
}

impl Told {
    /// A transfer has ended for everybody, and is told so: with it those of its processes are forgotten.
    pub(crate) fn forget(&mut self, pair: Pair) {
        if !self.parts.is_empty() {
            self.parts.retain(|(known, _)| *known != pair);
        }
    }

    /// What is new, where ours are these.
    pub(crate) fn news(
        &mut self,
        own: &[Portion],
        ours: ClusterId,
        limits: &Limits,
    ) -> Vec<Notice> {
        if self.parts.is_empty() && self.limits.is_empty() && limits.is_empty() {
            return Vec::new();
        }
        let parts: BTreeSet<_> = own.iter().filter_map(|own| Some((own.pair, own.only?))).collect();
        let limits: BTreeMap<_, _> = limits.of(ours).collect();
        let mut news = Vec::new();
        for (&(process, to), &bits) in &limits {
            if let Some(rate) = Rate::from_bits_per_second(bits)
                .filter(|_| self.limits.get(&(process, to)) != Some(&bits))
            {
                news.push(Notice::Limit { process, to, rate });
            }
        }
        for &(process, to) in self.limits.keys().filter(|key| !limits.contains_key(key)) {
            news.push(Notice::Limit { process, to, rate: Rate::UNBOUNDED });
        }
        let part = |&((from, to), process): &(Pair, Process), is_active| Notice::Part {
            from,
            to,
            process,
            is_active,
        };
        news.extend(self.parts.difference(&parts).map(|gone| part(gone, false)));
        news.extend(parts.difference(&self.parts).map(|new| part(new, true)));
        (self.parts, self.limits) = (parts, limits);
        news
    }
}
