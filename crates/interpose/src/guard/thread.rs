//! What each thread knows of itself: where it is, and how deep.
//!
//! The library is loaded when the process starts, so its thread-local storage lies at a fixed distance from the thread
//! pointer ("initial exec" of the ELF thread-local storage ABI) and is found in two instructions. What Rust generates
//! for a shared library is a call of `__tls_get_addr`, which the shortest calls would feel.

use std::cell::Cell;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Place {
    /// In the program: what comes in is the program's.
    Program = 0,
    /// In the vendor, on a call that was passed on: what comes in is the vendor's, or of a function called back.
    Vendor,
    /// In us, serving. We may hold locks and be in the middle of something, so what comes in goes to the vendor.
    Serving,
}

/// The words of one thread; all zero when it starts.
#[repr(C)]
pub(super) struct Thread {
    pub(super) place: Cell<Place>,
    /// An address in the stack frame of the call that this thread is inside of.
    pub(super) outer: Cell<usize>,
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.gridmpi_thread,\"awT\",@nobits",
    ".hidden gridmpi_thread",
    ".globl gridmpi_thread",
    ".type gridmpi_thread, @object",
    ".size gridmpi_thread, 16",
    ".balign 8",
    "gridmpi_thread:",
    ".zero 16",
    ".popsection",
);

/// Of the calling thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn this<R>(look: impl FnOnce(&Thread) -> R) -> R {
    const { assert!(size_of::<Thread>() == 16) };
    let thread: *const Thread;
    // SAFETY: reads where the thread's block lies; the same as long as the thread lives.
    unsafe {
        std::arch::asm!(
            "mov {thread}, qword ptr [rip + gridmpi_thread@gottpoff]",
            "add {thread}, qword ptr fs:[0]",
            thread = out(reg) thread,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: 16 bytes of this thread alone, first zero (`Place::Program`), changed through the cells only.
    look(unsafe { &*thread })
}

/// Whether the calling thread is in the program: `place`, without looking up where the words are.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn is_in_program() -> bool {
    const { assert!(std::mem::offset_of!(Thread, place) == 0) };
    let place: usize;
    // SAFETY: reads the first word of this thread's block.
    unsafe {
        std::arch::asm!(
            "mov {place}, qword ptr [rip + gridmpi_thread@gottpoff]",
            "mov {place}, qword ptr fs:[{place}]",
            place = out(reg) place,
            options(readonly, nostack, preserves_flags),
        );
    }
    place == Place::Program as usize
}

/// Whether the calling thread is in the program.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn is_in_program() -> bool {
    this(|thread| thread.place.get() == Place::Program)
}

/// Of the calling thread.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn this<R>(look: impl FnOnce(&Thread) -> R) -> R {
    thread_local! {
        static THREAD: Thread = const { Thread { place: Cell::new(Place::Program), outer: Cell::new(0) } };
    }
    THREAD.with(look)
}
