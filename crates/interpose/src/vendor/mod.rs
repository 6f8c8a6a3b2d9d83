//! The MPI below: its procedures, found once, called by name.

// The signatures of some procedures are as long as the standard made them.
#![allow(clippy::type_complexity)]

mod find;

use crate::guard::remember_vendor;
use gridmpi_abi::{Abi, Aint, Count, ErrorClass, Function, Handle};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

pub use find::NoVendor;

/// No error code of any vendor's.
pub(crate) const ABSENT: c_int = c_int::MIN;

/// Every procedure of the standard that the vendor has. A procedure that it lacks returns
/// `MPI_ERR_UNSUPPORTED_OPERATION` and calls nothing.
pub struct Vendor<A> {
    table: [Option<unsafe extern "C" fn()>; PROCEDURES],
    library: String,
    abi: PhantomData<A>,
}

impl<A: Abi> Vendor<A> {
    /// Finds the vendor's library among those that are loaded, and looks up everything: procedures, and the
    /// constants that only it knows.
    ///
    /// # Errors
    /// There is none, or it is of another family.
    pub fn find() -> Result<Self, NoVendor> {
        let library = find::Library::find(A::MARKER)?;
        for (index, symbol) in A::SYMBOLS.iter().enumerate() {
            A::set_symbol(index, library.constant(symbol));
        }
        let table = std::array::from_fn(|index| library.procedure(NAMES[index]));
        if let Some(procedure) = table.iter().flatten().next() {
            remember_vendor(*procedure as *const c_void);
        }
        Ok(Self { table, library: library.path().to_owned(), abi: PhantomData })
    }

    /// One that has these procedures alone.
    ///
    /// # Safety
    /// They have the signatures that the standard gives them.
    #[cfg(test)]
    pub(crate) unsafe fn of(procedures: &[(&CStr, *const c_void)]) -> Self {
        let table = std::array::from_fn(|index| {
            let found = procedures.iter().find(|(name, _)| *name == NAMES[index])?;
            // SAFETY: a function, never called with this signature.
            Some(unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn()>(found.1) })
        });
        Self { table, library: String::new(), abi: PhantomData }
    }

    /// The file that it was loaded from.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The address of a procedure of the vendor's, by its name without the `P` in front; `None` if it has none.
    pub fn procedure(&self, name: &CStr) -> Option<*const c_void> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.table[index].map(|procedure| procedure as *const c_void)
    }

    /// What a large-count procedure gave; [`ABSENT`] where the vendor has none, so that [`check`](crate::error::check) makes it an error
    /// of ours: nobody has run an error handler.
    pub(crate) fn large(&self, code: c_int) -> c_int {
        if code == self.unsupported() { ABSENT } else { code }
    }

    #[cold]
    fn unsupported(&self) -> c_int {
        A::error_class(ErrorClass::UnsupportedOperation)
    }
}

impl<A> std::fmt::Debug for Vendor<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vendor").field("library", &self.library).finish_non_exhaustive()
    }
}

include!(concat!(env!("OUT_DIR"), "/vendor.rs"));
