//! Who made a call that came in while this thread was inside the vendor already: the vendor itself, or a function of
//! the program's that the vendor called back (an attribute's delete function, an error handler).
//!
//! Only nested calls are asked about. They are rare (MPICH's and Intel's file procedures make some 25 of them for one
//! file), so a walk over the stack, some microseconds, is affordable.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the vendor's library is loaded.
static VENDOR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// To be told once which library is the vendor's, by the address of one of its procedures.
pub(crate) fn remember_vendor(procedure: *const c_void) {
    if let Some(object) = Object::of(procedure) {
        VENDOR.store(object.base, Ordering::Relaxed);
    }
}

/// Whether the call that just came in was made by the vendor. `outer` is an address on the stack in the frame of the
/// call that this thread was inside of already.
///
/// The first frame that is not ours says so. If there is none above `outer`, a procedure of the vendor's that we called
/// has ended by jumping to our symbol. What cannot be told is taken for the vendor's.
#[cold]
#[inline(never)]
pub(super) fn is_vendor(outer: usize) -> bool {
    let own = Object::of(is_vendor as *const c_void).map(|object| object.base);
    let mut walk = Walk { outer, own, caller: None };
    // SAFETY: the callback gets this walk, which outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.caller.is_none_or(|caller| caller.is_vendor(own))
}

/// A walk from the newest frame to the first that is not ours.
struct Walk {
    outer: usize,
    own: Option<*mut c_void>,
    caller: Option<Object>,
}

const CONTINUE: c_int = 0;
const STOP: c_int = 4;

// The unwinder of the C++ ABI, which Rust's own standard library is linked with.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

unsafe extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: as `is_vendor` says; the frame is the unwinder's.
    let (walk, instruction, lowest) =
        unsafe { (&mut *walk.cast::<Walk>(), _Unwind_GetIP(frame), _Unwind_GetCFA(frame)) };
    if lowest >= walk.outer {
        return STOP;
    }
    match Object::of(std::ptr::without_provenance(instruction)) {
        Some(object) if Some(object.base) == walk.own => CONTINUE,
        caller => {
            walk.caller = caller;
            STOP
        }
    }
}

/// The loaded object that an address lies in.
struct Object {
    base: *mut c_void,
    file: Option<&'static CStr>,
}

impl Object {
    fn of(address: *const c_void) -> Option<Self> {
        // SAFETY: all zero is a valid Dl_info; dladdr fills it, with a name that lives as long as the object. Neither the
        // vendor's library nor ours is ever unloaded, and other names are looked at at once.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(address, &raw mut info) == 0 {
                return None;
            }
            let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text));
            Some(Self { base: info.dli_fbase, file: text(info.dli_fname) })
        }
    }

    /// The vendor's library, one of its components (Open MPI opens `mca_*.so`), or ourselves.
    fn is_vendor(&self, own: Option<*mut c_void>) -> bool {
        let file = self.file.map_or(&b""[..], CStr::to_bytes);
        let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
        Some(self.base) == own
            || self.base == VENDOR.load(Ordering::Relaxed)
            || [&b"mca_"[..], b"libmca_", b"libopen-"].iter().any(|prefix| name.starts_with(prefix))
    }
}
