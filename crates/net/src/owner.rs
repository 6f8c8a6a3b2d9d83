//! Whose the sockets are: those of the process that opened them, not of a child that `fork` makes of it.

use std::sync::atomic::{AtomicBool, Ordering};

/// The process that started the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    process: u32,
    /// Is set in children.
    forked: Option<&'static AtomicBool>,
}

impl Owner {
    /// This process.
    pub(crate) fn new(forked: Option<&'static AtomicBool>) -> Self {
        Self { process: std::process::id(), forked }
    }

    /// Whether this is that process. It is asked for each message, so that the system is asked only where nobody else says it.
    pub(crate) fn is_here(&self) -> bool {
        match self.forked {
            Some(forked) => !forked.load(Ordering::Relaxed),
            None => std::process::id() == self.process,
        }
    }

    pub(crate) fn assert_here(&self) {
        assert!(self.is_here(), "a child made by fork cannot use MPI");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_that_it_is_a_child_believes_it() {
        static FORKED: AtomicBool = AtomicBool::new(false);
        let (told, asking) = (Owner::new(Some(&FORKED)), Owner::new(None));
        assert!(told.is_here() && asking.is_here());
        FORKED.store(true, Ordering::Relaxed);
        assert!(!told.is_here() && asking.is_here());
        let elsewhere = Owner { process: asking.process + 1, ..asking };
        assert!(!elsewhere.is_here());
    }
}
