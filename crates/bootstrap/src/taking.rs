//! Threads that take circuits, so many at a time: who has a relay's token may call as often as it likes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a relay can have where there are many.
const FEW: usize = 8;

/// How many circuits are being taken, and at most. Any thread may use it.
#[derive(Debug)]
pub struct Taking {
    most: usize,
    /// Of each thread, bytes.
    stack: usize,
    count: AtomicUsize,
}

/// One that is being taken, until it is dropped.
struct Place(Arc<Taking>);

impl Taking {
    /// At most so many at a time, each in a thread with a stack of so many bytes.
    #[must_use]
    pub const fn new(most: usize, stack: usize) -> Self {
        Self { most, stack, count: AtomicUsize::new(0) }
    }

    /// The part of one of so many relays, of `most` circuits in all: none can take the places of another. A few in any case.
    #[must_use]
    pub fn of_each(relays: usize, most: usize, stack: usize) -> Self {
        Self::new((most / relays.max(1)).max(FEW), stack)
    }

    /// How many there are at the moment.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// In a thread of its own: `take` gets a circuit; `serve` goes on with it when it counts no longer. Neither is called where there
    /// are as many as may be, or no thread is to be had: whoever waits at the other end tries again if nobody comes.
    pub fn begin<T>(
        self: &Arc<Self>,
        take: impl FnOnce() -> Option<T> + Send + 'static,
        serve: impl FnOnce(T) + Send + 'static,
    ) {
        let Some(place) = self.place() else { return };
        let thread = std::thread::Builder::new().name("circuit".to_owned()).stack_size(self.stack);
        // If there is none the place is free again.
        let _ = thread.spawn(move || {
            let taken = take();
            drop(place);
            if let Some(taken) = taken {
                serve(taken);
            }
        });
    }

    fn place(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        (self.count.fetch_add(1, Ordering::AcqRel) < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}
