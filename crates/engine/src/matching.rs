//! Which receive gets which message (MPI 4.1 §3.5, "order").
//!
//! Messages of one (sender, receiver, context) arrive in the order they were sent. A message goes to
//! the receive posted first among those that accept it; a receive takes the message that arrived
//! first among those it accepts. Both look only at the heads of the few lanes that can hold it.

use crate::lanes::{Lanes, Pattern};

/// Receives that no message has matched, each in the lane of its pattern.
pub(crate) struct Posted {
    lanes: Lanes<1>,
    /// How many stand in lanes of each class: a class without any is not looked up.
    by_class: [usize; 4],
    order: u64,
}

impl Posted {
    pub(crate) fn new() -> Self {
        Self { lanes: Lanes::new(), by_class: [0; 4], order: 0 }
    }

    /// Appends the receive `request`. Returns its handle.
    pub(crate) fn push(&mut self, pattern: Pattern, request: u64) -> u32 {
        self.order += 1;
        self.by_class[pattern.class()] += 1;
        self.lanes.push(self.order, request, [pattern])
    }

    /// The receive that a message, given by an exact pattern, goes to.
    pub(crate) fn find(&self, message: &Pattern) -> Option<u64> {
        let candidates = message.widened();
        let present = candidates.iter().filter(|pattern| self.by_class[pattern.class()] > 0);
        let first = present.filter_map(|pattern| self.lanes.first(pattern)).min()?;
        Some(first.1)
    }

    pub(crate) fn remove(&mut self, pattern: &Pattern, handle: u32) {
        self.by_class[pattern.class()] -= 1;
        self.lanes.remove(handle);
    }
}

/// Messages that no receive has matched, each in the lanes of all patterns that accept it.
pub(crate) struct Unexpected {
    lanes: Lanes<4>,
    order: u64,
}

impl Unexpected {
    pub(crate) fn new() -> Self {
        Self { lanes: Lanes::new(), order: 0 }
    }

    /// Appends a message, given by an exact pattern. Returns its handle.
    pub(crate) fn push(&mut self, message: &Pattern, value: u64) -> u32 {
        self.order += 1;
        self.lanes.push(self.order, value, message.widened())
    }

    /// The message that a receive gets.
    pub(crate) fn find(&self, pattern: &Pattern) -> Option<u64> {
        if self.lanes.is_empty() {
            return None;
        }
        self.lanes.first(pattern).map(|first| first.1)
    }

    pub(crate) fn remove(&mut self, handle: u32) {
        self.lanes.remove(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TagMatch;
    use gridmpi_wire::{ContextId, Rank};
    use proptest::prelude::*;

    fn pattern() -> impl Strategy<Value = Pattern> {
        (0..2u64, prop::option::of(0..3u32), prop::option::of(0..3i32)).prop_map(
            |(context, source, tag)| Pattern {
                context: ContextId(context),
                source: source.map(Rank),
                tag: tag.map_or(TagMatch::Any, TagMatch::Is),
            },
        )
    }

    fn message() -> impl Strategy<Value = Pattern> {
        (0..2u64, 0..3u32, 0..3i32).prop_map(|(context, source, tag)| {
            Pattern::exact(ContextId(context), Rank(source), tag)
        })
    }

    proptest! {
        /// Against the plain way: lists searched from the front.
        #[test]
        fn the_lanes_equal_plain_lists(
            steps in prop::collection::vec((any::<bool>(), pattern(), message()), 1..200)
        ) {
            let (mut posted, mut unexpected) = (Posted::new(), Unexpected::new());
            let mut receives: Vec<(Pattern, u64, u32)> = Vec::new();
            let mut messages: Vec<(Pattern, u64, u32)> = Vec::new();
            for (number, (is_receive, pattern, message)) in steps.into_iter().enumerate() {
                let number = number as u64;
                if is_receive {
                    let plain = messages.iter().position(|m| pattern.covers(&m.0));
                    prop_assert_eq!(unexpected.find(&pattern), plain.map(|at| messages[at].1));
                    if let Some(at) = plain {
                        unexpected.remove(messages.remove(at).2);
                    } else {
                        receives.push((pattern, number, posted.push(pattern, number)));
                    }
                } else {
                    let plain = receives.iter().position(|r| r.0.covers(&message));
                    prop_assert_eq!(posted.find(&message), plain.map(|at| receives[at].1));
                    if let Some(at) = plain {
                        let (pattern, _, handle) = receives.remove(at);
                        posted.remove(&pattern, handle);
                    } else {
                        messages.push((message, number, unexpected.push(&message, number)));
                    }
                }
            }
        }
    }

    #[test]
    fn patterns_overlap_and_cover_as_messages_show() {
        let tags = [TagMatch::Any, TagMatch::Is(0), TagMatch::Is(1)];
        let sources = [None, Some(Rank(0)), Some(Rank(1))];
        let context = ContextId(0);
        let all =
            sources.iter().flat_map(|&source| tags.map(|tag| Pattern { context, source, tag }));
        let all: Vec<Pattern> = all.collect();
        let message = |s, t| Pattern::exact(context, Rank(s), t);
        let messages: Vec<Pattern> =
            (0..3).flat_map(|s| (0..3).map(move |t| message(s, t))).collect();
        for a in &all {
            for b in &all {
                let both = |m: &Pattern| a.covers(m) && b.covers(m);
                let escapes = |m: &Pattern| b.covers(m) && !a.covers(m);
                assert_eq!(a.overlaps(b), messages.iter().any(both), "{a:?} {b:?}");
                assert_eq!(a.covers(b), !messages.iter().any(escapes), "{a:?} {b:?}");
            }
        }
    }
}
