//! Which calls are the program's. The vendor calls `PMPI_*` and some `MPI_*` from inside itself, and those calls come
//! to us, too: they are passed straight on. A function of the program's that the vendor calls back makes calls of the
//! program's again.

mod caller;

pub(crate) use caller::remember_vendor;

use std::cell::Cell;
use std::marker::PhantomData;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the program: what comes in is the program's.
    Program,
    /// In the vendor, on a call that was passed on: what comes in is the vendor's, or of a function called back.
    Vendor,
    /// In us, serving. We may hold locks and be in the middle of something, so what comes in goes to the vendor.
    Serving,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Program) };
    /// An address in the stack frame of the call that this thread is inside of.
    static OUTER: Cell<usize> = const { Cell::new(0) };
}

/// This thread is inside a call of the program's, until it is dropped.
#[derive(Debug)]
pub struct Guard {
    before: Place,
    outer: usize,
    thread: PhantomData<*const ()>,
}

impl Guard {
    /// Enters, or says that the call is not the program's.
    #[inline]
    pub fn enter() -> Option<Self> {
        PLACE.with(|place| {
            let before = place.get();
            if before != Place::Program && !is_called_back(before) {
                return None;
            }
            place.set(Place::Vendor);
            let here = (&raw const before).addr();
            Some(Self { before, outer: OUTER.replace(here), thread: PhantomData })
        })
    }

    /// From here on we are at work: calls that the vendor makes meanwhile are not looked at, until a [`Lift`].
    #[inline]
    pub fn serve(&self) {
        PLACE.set(Place::Serving);
    }
}

#[cold]
fn is_called_back(before: Place) -> bool {
    before == Place::Vendor && !caller::is_vendor(OUTER.get())
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        OUTER.set(self.outer);
        PLACE.set(self.before);
    }
}

/// While serving: until it is dropped, functions of the program's may be called back (error handlers, attributes' copy
/// and delete functions), by us or by the vendor, and their calls are the program's. The vendor's own still are not.
/// No lock of ours may be held.
#[derive(Debug)]
pub struct Lift {
    before: Place,
    thread: PhantomData<*const ()>,
}

impl Lift {
    /// To be held around the callback, or around the vendor's call that may make it.
    pub fn new() -> Self {
        Self { before: PLACE.replace(Place::Vendor), thread: PhantomData }
    }
}

impl Default for Lift {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Lift {
    fn drop(&mut self) {
        PLACE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a test no exported symbol is on the stack, so that every nested call counts as the vendor's.
    #[test]
    fn nested_calls_are_told_apart() {
        let outer = Guard::enter().expect("the program's call");
        assert!(Guard::enter().is_none());
        outer.serve();
        assert!(Guard::enter().is_none());
        {
            let _lift = Lift::new();
            assert_eq!(PLACE.get(), Place::Vendor);
        }
        assert_eq!(PLACE.get(), Place::Serving, "the lift ends with its scope");
        drop(outer);
        assert!(Guard::enter().is_some());
        assert_eq!(PLACE.get(), Place::Program);
    }

    #[test]
    fn threads_do_not_see_each_other() {
        let _outer = Guard::enter();
        std::thread::spawn(|| assert!(Guard::enter().is_some())).join().unwrap();
    }
}
