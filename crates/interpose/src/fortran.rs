//! Attributes about rates, and those that tell about the whole job, for Fortran programs. The vendors' Fortran bindings reach attributes by ways of their own below C, so
//! the few procedures that take a key are exported here, and everything that is not ours is passed on.
//!
//! Values go by Fortran's rules (MPI 4.1 §7.7.2): what is got and put is an integer, not an address. All three bindings call by
//! reference; `ierror` of `mpi_f08` may be absent, which is a null pointer.

use crate::entry::{enter, spans};
use crate::error::finish;
use crate::runtime::Runtime;
use crate::serve::attribute::{of_job, of_rates, set_rate};
use gridmpi_abi::{Abi, Handle};
use std::ffi::{CString, c_int, c_void};

/// An integer that an attribute's value is in Fortran: `INTEGER`, or one of `MPI_ADDRESS_KIND`.
pub trait Value: Copy {
    /// As wide as that.
    fn from_int(value: c_int) -> Self;
    /// Where it is no int it is no rate either.
    fn to_int(self) -> c_int;
}

impl Value for c_int {
    fn from_int(value: c_int) -> Self {
        value
    }
    fn to_int(self) -> c_int {
        self
    }
}

impl Value for isize {
    fn from_int(value: c_int) -> Self {
        value as Self
    }
    fn to_int(self) -> c_int {
        c_int::try_from(self).unwrap_or(if self > 0 { c_int::MAX } else { 0 })
    }
}

/// The vendor's procedure of this name.
///
/// # Panics
/// If there is none: a Fortran program that calls it could not have been linked.
#[must_use]
pub fn vendors(name: &str) -> *mut c_void {
    let symbol = CString::new(name).unwrap_or_default();
    // SAFETY: a name; the answer is only called by who knows its arguments.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
    assert!(!found.is_null(), "the vendor MPI has no {name}");
    found
}

/// Gets a value if the key is ours; whether it is.
pub unsafe fn get<A: Abi, V: Value>(
    keyval: *const c_int,
    value: *mut V,
    flag: *mut c_int,
    ierror: *mut c_int,
) -> bool {
    let rt = Runtime::<A>::get();
    let Some(_guard) = enter(rt) else { return false };
    // SAFETY: the program's places.
    unsafe {
        let Some(found) = of_rates(rt, *keyval) else { return false };
        *flag = c_int::from(found.is_some());
        if let Some(found) = found {
            *value = V::from_int(*found);
        }
        done(ierror, 0);
    }
    true
}

/// Puts our value in the place of what the vendor told, where it is about the whole job.
pub unsafe fn correct<A: Abi, V: Value>(
    comm: *const c_int,
    keyval: *const c_int,
    value: *mut V,
    flag: *mut c_int,
) {
    let rt = Runtime::<A>::get();
    let Some(_guard) = enter(rt) else { return };
    // SAFETY: the program's places.
    unsafe {
        let comm = handle(rt, *comm);
        if !spans(rt, comm) {
            return;
        }
        if let Some(ours) = of_job(rt, comm, (*keyval).wrapping_sub(A::FORTRAN_KEYS), *flag != 0) {
            *value = V::from_int(*ours);
            // What is not false stays as the program's compiler has it.
            if *flag == 0 {
                *flag = 1;
            }
        }
    }
}

/// `MPI_Comm_f2c`: where it is but a macro, handles are integers in both languages.
fn handle<A: Abi>(rt: &Runtime<A>, comm: c_int) -> A::Comm {
    if rt.vendor.has_comm_f2c() {
        // SAFETY: a handle of the program, which the vendor judges.
        unsafe { rt.vendor.comm_f2c(comm) }
    } else {
        Handle::from_bits(comm.cast_unsigned() as usize)
    }
}

/// Puts a value, or deletes the attribute, if the key is ours; whether it is. An error goes the way that it has in C.
pub unsafe fn put<A: Abi>(
    comm: *const c_int,
    keyval: *const c_int,
    value: Option<c_int>,
    ierror: *mut c_int,
) -> bool {
    let rt = Runtime::<A>::get();
    let Some(guard) = enter(rt) else { return false };
    // SAFETY: the program's places.
    unsafe {
        let Some(result) = set_rate(rt, *keyval, value) else { return false };
        guard.serve();
        done(ierror, finish(rt, Some(handle(rt, *comm)), result));
    }
    true
}

unsafe fn done(ierror: *mut c_int, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: the program's place.
        unsafe { *ierror = code };
    }
}

/// The exported symbols.
#[macro_export]
macro_rules! fortran_symbols {
    (get $($name:ident: $value:ty),*; put $($put:ident: $put_value:ty),*; delete $($delete:ident),*;) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            comm: *const c_int,
            keyval: *const c_int,
            value: *mut $value,
            flag: *mut c_int,
            ierror: *mut c_int,
        ) {
            type Own = unsafe extern "C" fn(*const c_int, *const c_int, *mut $value, *mut c_int, *mut c_int);
            unsafe {
                if !fortran::get::<A, $value>(keyval, value, flag, ierror) {
                    let own: Own = std::mem::transmute(fortran::vendors(stringify!($name)));
                    own(comm, keyval, value, flag, ierror);
                    fortran::correct::<A, $value>(comm, keyval, value, flag);
                }
            }
        })*
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $put(
            comm: *const c_int,
            keyval: *const c_int,
            value: *const $put_value,
            ierror: *mut c_int,
        ) {
            type Own = unsafe extern "C" fn(*const c_int, *const c_int, *const $put_value, *mut c_int);
            unsafe {
                if !fortran::put::<A>(comm, keyval, Some(fortran::Value::to_int(*value)), ierror) {
                    let own: Own = std::mem::transmute(fortran::vendors(stringify!($put)));
                    own(comm, keyval, value, ierror);
                }
            }
        })*
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $delete(comm: *const c_int, keyval: *const c_int, ierror: *mut c_int) {
            type Own = unsafe extern "C" fn(*const c_int, *const c_int, *mut c_int);
            unsafe {
                if !fortran::put::<A>(comm, keyval, None, ierror) {
                    let own: Own = std::mem::transmute(fortran::vendors(stringify!($delete)));
                    own(comm, keyval, ierror);
                }
            }
        })*
    };
}
