//! Receives that the vendor must not be given: those from any source, which a message from outside
//! could satisfy too, and the local ones that were posted behind one and compete with it.
//!
//! They are satisfied by probing the vendor, exactly as if it had them posted (MPI 4.1 §3.5,
//! "order"): a message goes to the first held receive that accepts it, and a receive takes the first
//! message of a sender that it accepts. New messages may arrive at the vendor between any two calls;
//! the probes below are arranged so that it does not matter.

use crate::endpoint::Endpoint;
use crate::lanes::Pattern;
use crate::request::State;
use crate::{LocalMatch, RequestId, TagMatch};
use gridmpi_wire::Rank;
use std::collections::VecDeque;

/// How many patterns that found nothing a pass remembers.
const MISSES: usize = 16;

/// A receive that is held.
struct Entry {
    /// Ascending: the order of posting.
    order: u64,
    request: RequestId,
    pattern: Pattern,
}

/// The held receives, in the order of posting.
pub(crate) struct Held {
    entries: VecDeque<Entry>,
    next_order: u64,
    /// One came or went: some that waited behind it may be free.
    changed: bool,
    /// Kept for its memory.
    missed: Vec<Pattern>,
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { entries: VecDeque::new(), next_order: 0, changed: false, missed: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a receive. Returns its order, which finds it again.
    pub(crate) fn push(&mut self, pattern: Pattern, request: RequestId) -> u64 {
        self.next_order += 1;
        self.changed = true;
        self.entries.push_back(Entry { order: self.next_order, request, pattern });
        self.next_order
    }

    pub(crate) fn remove(&mut self, order: u64) {
        if let Ok(at) = self.entries.binary_search_by_key(&order, |entry| entry.order) {
            self.entries.remove(at);
            self.changed = true;
        }
    }

    /// Whether one of the first `count` competes with `pattern`.
    fn conflicts(&self, pattern: &Pattern, count: usize) -> bool {
        self.entries.iter().take(count).any(|entry| entry.pattern.overlaps(pattern))
    }

    /// Whether any competes with `pattern`.
    pub(crate) fn competes(&self, pattern: &Pattern) -> bool {
        self.conflicts(pattern, self.entries.len())
    }

    /// The first of the first `count` that accepts a message.
    fn first_accepting(&self, message: &Pattern, count: usize) -> Option<usize> {
        self.entries.iter().take(count).position(|entry| entry.pattern.covers(message))
    }
}

impl Endpoint {
    /// Gives held receives what the vendor has for them. Whether anything moved.
    pub(crate) fn poll_vendor(&mut self, vendor: &mut dyn LocalMatch) -> bool {
        let mut moved = self.post_free(vendor);
        let mut missed = std::mem::take(&mut self.held.missed);
        missed.clear();
        let mut at = 0;
        while let Some(entry) = self.held.entries.get(at) {
            let pattern = entry.pattern;
            // What is covered by a miss can have come only since, and is left to the next pass.
            if missed.iter().any(|miss| miss.covers(&pattern)) {
                at += 1;
            } else if let Some(taken) = self.satisfy(vendor, at) {
                moved = true;
                // The one at `at` has gone, or an earlier one and it is one further to the front.
                at -= usize::from(taken < at);
            } else {
                if missed.len() < MISSES {
                    missed.push(pattern);
                }
                at += 1;
            }
        }
        self.held.missed = missed;
        self.post_free(vendor) || moved
    }

    /// Takes a message of the vendor for the held receive number `at`, or for an earlier one that
    /// has a better right to it. Returns the number of the one that got it, and is held no more.
    fn satisfy(&mut self, vendor: &mut dyn LocalMatch, at: usize) -> Option<usize> {
        let pattern = self.held.entries[at].pattern;
        if !self.held.conflicts(&pattern, at) {
            return self.take_local(vendor, at, pattern.source, pattern.tag);
        }
        // Look before taking: the message may be an earlier one's, having come since that was tried.
        let mut at = at;
        loop {
            let pattern = self.held.entries[at].pattern;
            let (source, tag) = vendor.iprobe(pattern.context, pattern.source, pattern.tag)?;
            let message = Pattern::exact(pattern.context, source, tag);
            match self.held.first_accepting(&message, at) {
                // The earlier one may see yet another message of the same sender before this one.
                Some(earlier) => at = earlier,
                None => return self.take_local(vendor, at, Some(source), TagMatch::Is(tag)),
            }
        }
    }

    fn take_local(
        &mut self,
        vendor: &mut dyn LocalMatch,
        at: usize,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<usize> {
        let Entry { request, pattern, .. } = self.held.entries[at];
        vendor.improbe_receive(request, pattern.context, source, tag)?;
        self.unpost(request, State::AtVendor);
        Some(at)
    }

    /// Posts to the vendor the local receives that no earlier held one competes with any more.
    fn post_free(&mut self, vendor: &mut dyn LocalMatch) -> bool {
        let mut posted = false;
        if !std::mem::take(&mut self.held.changed) {
            return false;
        }
        let mut at = 0;
        while let Some(&Entry { request, pattern, .. }) = self.held.entries.get(at) {
            let Some(source) = pattern.source.filter(|_| !self.held.conflicts(&pattern, at)) else {
                at += 1;
                continue;
            };
            self.unpost(request, State::AtVendor);
            vendor.post(request, pattern.context, source, pattern.tag);
            posted = true;
        }
        self.held.changed = false;
        posted
    }

    /// The vendor's first message that fits `pattern` and that no held receive accepts.
    pub(crate) fn probe_vendor(
        &mut self,
        vendor: &mut dyn LocalMatch,
        pattern: Pattern,
    ) -> Option<(Rank, i32)> {
        loop {
            let (source, tag) = vendor.iprobe(pattern.context, pattern.source, pattern.tag)?;
            let message = Pattern::exact(pattern.context, source, tag);
            let count = self.held.entries.len();
            let Some(at) = self.held.first_accepting(&message, count) else {
                return Some((source, tag));
            };
            self.satisfy(vendor, at)?;
            self.post_free(vendor);
        }
    }
}
