//! Whether this process is a child that `fork` has made: it must not touch the job's sockets, and to ask the system for each message who
//! one is would take longer than the rest of it.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// What is set in every child that `fork` makes of this process from now on; `None` if the system has no memory for that. Children that
/// share their parent's memory (`vfork`, `posix_spawn`) do not set it, nor do those that are made past the C library (`_Fork`, `clone`).
pub(crate) fn watch() -> Option<&'static AtomicBool> {
    static IS_WATCHED: OnceLock<bool> = OnceLock::new();
    // SAFETY: what is called in the child stores one word.
    let register = || unsafe { libc::pthread_atfork(None, None, Some(note)) == 0 };
    IS_WATCHED.get_or_init(register).then_some(&IS_CHILD)
}

unsafe extern "C" fn note() {
    IS_CHILD.store(true, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_and_its_parent_is_not() {
        let is_child = watch().unwrap();
        // SAFETY: the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends without a word to anybody.
            unsafe { libc::_exit(i32::from(is_child.load(Relaxed))) };
        }
        let mut status = 0;
        // SAFETY: it is ours, and the status is written before this returns.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1));
        assert!(!is_child.load(Relaxed));
    }
}
