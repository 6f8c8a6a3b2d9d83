//! Which calls are the program's. The vendor calls `PMPI_*` and some `MPI_*` from inside itself, and those calls come
//! to us, too: they are passed straight on. A function of the program's that the vendor calls back makes calls of the
//! program's again.

mod caller;
mod thread;

pub(crate) use caller::remember_vendor;

use std::marker::PhantomData;
use std::ptr;
use thread::{Place, this};

/// A number that no other thread has while this one lives; not 0.
pub(crate) fn this_thread() -> usize {
    this(|thread| ptr::from_ref(thread).addr())
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
        this(|thread| {
            let before = thread.place.get();
            if before != Place::Program && !is_called_back(before) {
                return None;
            }
            thread.place.set(Place::Vendor);
            let here = (&raw const before).addr();
            Some(Self { before, outer: thread.outer.replace(here), thread: PhantomData })
        })
    }

    /// The thread is in no call of the program's.
    #[inline(always)]
    pub fn is_outside() -> bool {
        thread::is_in_program()
    }

    /// From here on we are at work: calls that the vendor makes meanwhile are not looked at, until a [`Lift`].
    #[inline]
    pub fn serve(&self) {
        this(|thread| thread.place.set(Place::Serving));
    }
}

#[cold]
fn is_called_back(before: Place) -> bool {
    before == Place::Vendor && !caller::is_vendor(this(|thread| thread.outer.get()))
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        this(|thread| {
            thread.outer.set(self.outer);
            thread.place.set(self.before);
        });
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
        Self { before: this(|thread| thread.place.replace(Place::Vendor)), thread: PhantomData }
    }
}

impl Default for Lift {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Lift {
    fn drop(&mut self) {
        this(|thread| thread.place.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        this(|thread| thread.place.get())
    }

    /// In a test no exported symbol is on the stack, so that every nested call counts as the vendor's.
    #[test]
    fn nested_calls_are_told_apart() {
        let outer = Guard::enter().expect("the program's call");
        assert!(Guard::enter().is_none());
        outer.serve();
        assert!(Guard::enter().is_none());
        {
            let _lift = Lift::new();
            assert_eq!(place(), Place::Vendor);
            assert!(!Guard::is_outside());
        }
        assert_eq!(place(), Place::Serving, "the lift ends with its scope");
        drop(outer);
        assert!(Guard::is_outside() && Guard::enter().is_some());
        assert_eq!(place(), Place::Program);
    }

    #[test]
    fn threads_do_not_see_each_other() {
        let _outer = Guard::enter();
        std::thread::spawn(|| assert!(Guard::enter().is_some())).join().unwrap();
    }
}
