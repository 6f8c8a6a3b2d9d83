//! What a served call may end with, and how the program hears of it.

use crate::Runtime;
use crate::communicator::Spanning;
use crate::guard::Lift;
use crate::last_words::{await_reader, say};
use crate::serve::reap;
use crate::vendor::ABSENT;
use gridmpi_abi::{Abi, ErrorClass, Handle};
use std::any::Any;
use std::ffi::c_int;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The vendor failed, and has run the error handler: the code is handed through. So are codes of the tools interface, which
    /// runs none.
    Vendor(c_int),
    /// We failed.
    Ours {
        /// What the program is told.
        class: ErrorClass,
        /// What a person is told when the program ends by it.
        message: String,
        /// The communicator whose error handler runs; where absent, that of the call, else
        /// `MPI_COMM_SELF` (MPI 4.1 §9.3).
        on: Option<On>,
    },
}

/// A communicator that an error is raised on. It is kept until then: the program may have given it back, and the operation that failed
/// may have been the last on it.
#[derive(Clone)]
pub struct On {
    bits: usize,
    kept: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("On").field("bits", &self.bits).finish_non_exhaustive()
    }
}

impl PartialEq for On {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kept, &other.kept)
    }
}

impl Eq for On {}

impl Error {
    /// An error of ours.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self::Ours { class, message: message.into(), on: None }
    }

    /// Raised on this communicator.
    pub(crate) fn on<A: Abi>(self, comm: &Arc<Spanning<A>>) -> Self {
        match self {
            Self::Ours { class, message, .. } => {
                let on = On { bits: comm.token.bits(), kept: Arc::clone(comm) as _ };
                Self::Ours { class, message, on: Some(on) }
            }
            vendor => vendor,
        }
    }

    /// The error code that the program gets.
    pub fn code<A: Abi>(&self) -> c_int {
        match self {
            Self::Vendor(code) => *code,
            Self::Ours { class, .. } => A::error_class(*class),
        }
    }

    /// `MPI_ERR_UNSUPPORTED_OPERATION`.
    pub fn unsupported(procedure: &str) -> Self {
        let message = format!("{procedure} is not supported across clusters");
        Self::new(ErrorClass::UnsupportedOperation, message)
    }
}

/// What a served call comes to.
pub type Result<T> = std::result::Result<T, Error>;

/// What the vendor returned, as a result. `MPI_SUCCESS` is 0 in every ABI (MPI 4.1 §9.4).
#[inline]
pub fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(code)) }
}

#[cold]
fn failed(code: c_int) -> Error {
    match code {
        ABSENT => Error::new(
            ErrorClass::UnsupportedOperation,
            "the vendor MPI has no procedure for counts of more than 2^31-1",
        ),
        code => Error::Vendor(code),
    }
}

/// A call that is passed on to the vendor with the program's own arguments: it may run an error handler of
/// the program's, whose calls are the program's. No lock of ours may be held.
#[inline]
pub fn forward(call: impl FnOnce() -> c_int) -> Result<()> {
    let _lift = Lift::new();
    check(call())
}

/// Ends a served call: runs the error handler if need be and gives the code to return.
#[inline]
pub fn finish<A: Abi>(rt: &Runtime<A>, comm: Option<A::Comm>, result: Result<()>) -> c_int {
    match result {
        Ok(()) => A::SUCCESS,
        Err(error) => raise(rt, comm, error),
    }
}

/// Ends a call that we do not serve: a line once for each procedure, and the error handler.
#[cold]
#[inline(never)]
pub fn refuse<A: Abi>(
    rt: &Runtime<A>,
    comm: Option<A::Comm>,
    procedure: &str,
    remedy: &str,
    told: &AtomicBool,
) -> c_int {
    if !told.swap(true, Ordering::Relaxed) {
        tell(&format!("{procedure} refused across clusters: {remedy}"));
    }
    if is_fatal(rt, comm) {
        await_reader();
    }
    let code = A::error_class(ErrorClass::UnsupportedOperation);
    call_handler(rt, comm, code);
    code
}

#[cold]
#[inline(never)]
fn raise<A: Abi>(rt: &Runtime<A>, comm: Option<A::Comm>, error: Error) -> c_int {
    let (class, message, on) = match error {
        Error::Vendor(code) => return code,
        Error::Ours { class, message, on } => (class, message, on),
    };
    let comm = on.as_ref().map(|on| A::Comm::from_bits(on.bits)).or(comm);
    if is_fatal(rt, comm) {
        say(&message);
    }
    let code = A::error_class(class);
    call_handler(rt, comm, code);
    if on.is_some() {
        drop(on);
        // It may have been needed for this alone. Where that fails the vendor has run the error handler.
        drop(reap(rt));
    }
    code
}

/// Whether the handler ends the program, so that our message is the last that a person sees.
fn is_fatal<A: Abi>(rt: &Runtime<A>, comm: Option<A::Comm>) -> bool {
    let mut handler = A::errhandler_null();
    // SAFETY: a live communicator, and a place for the answer.
    let code = unsafe { rt.vendor.comm_get_errhandler(raised_on::<A>(comm), &raw mut handler) };
    let fatal = code == A::SUCCESS && handler == A::errors_are_fatal();
    if code == A::SUCCESS && handler != A::errors_are_fatal() && handler != A::errors_return() {
        // SAFETY: MPI_Comm_get_errhandler gave a reference, which is given back (MPI 4.1 §9.3.4).
        unsafe { rt.vendor.errhandler_free(&raw mut handler) };
    }
    fatal
}

/// Runs the handler that the program attached. It is the program's code, so its calls are the program's.
fn call_handler<A: Abi>(rt: &Runtime<A>, comm: Option<A::Comm>, code: c_int) {
    let _lift = Lift::new();
    // SAFETY: a live communicator of the vendor's.
    unsafe { rt.vendor.comm_call_errhandler(raised_on::<A>(comm), code) };
}

/// Of no communicator, and of none that is one, `MPI_COMM_SELF` hears (MPI 4.1 §9.3).
fn raised_on<A: Abi>(comm: Option<A::Comm>) -> A::Comm {
    comm.filter(|comm| *comm != A::comm_null()).unwrap_or_else(A::comm_self)
}

/// A line for people, in one piece: other ranks write to the same place.
pub fn tell(message: &str) {
    let line = format!("gridmpi: {message}\n");
    // Nobody can be told that nobody can be told.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A panic is a fault of ours and must not cross into C: the process ends with a line that says so.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        tell(&format!("internal error, please report it: {info}"));
        std::process::abort();
    }));
}
