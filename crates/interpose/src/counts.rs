//! Counts and displacements as the program gave them: `int` in the small form of a procedure, `MPI_Count` or `MPI_Aint`
//! in the large one.

use crate::Error;
use gridmpi_abi::{Aint, Count, ErrorClass};
use std::ffi::{c_int, c_void};

// The large form has MPI_Aint for some displacements and MPI_Count for others; one view serves both.
const _: () = assert!(size_of::<Aint>() == size_of::<Count>());

/// An array that the program hands in, such as `recvcounts`. Its length is known from elsewhere; it may be null where
/// the standard says that it is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    address: *const c_void,
    wide: bool,
}

impl Counts {
    /// A view of an array of `int`, or of 64-bit values when `wide`.
    pub fn new(address: *const c_void, wide: bool) -> Self {
        Self { address, wide }
    }

    /// # Safety
    /// The array has more than `index` elements.
    #[inline]
    pub unsafe fn get(self, index: usize) -> Count {
        // SAFETY: the caller's promise, and the element's width is the form's.
        unsafe {
            if self.wide {
                self.address.cast::<Count>().add(index).read()
            } else {
                Count::from(self.address.cast::<c_int>().add(index).read())
            }
        }
    }

    /// The first `len` elements.
    ///
    /// # Safety
    /// The array has `len` elements.
    pub unsafe fn to_vec(self, len: usize) -> Vec<Count> {
        // SAFETY: the caller's promise.
        (0..len).map(|index| unsafe { self.get(index) }).collect()
    }

    /// The program gave no array.
    pub fn is_null(self) -> bool {
        self.address.is_null()
    }

    /// The elements have 64 bits: the program called the large form, and so should we when we hand the array on.
    pub fn is_wide(self) -> bool {
        self.wide
    }

    /// Where the array is.
    pub fn address(self) -> *const c_void {
        self.address
    }
}

/// One value that the program wants to have written, such as `MPI_Buffer_detach`'s `size`.
#[derive(Clone, Copy, Debug)]
pub struct CountOut {
    address: *mut c_void,
    wide: bool,
}

impl CountOut {
    /// A place for an `int`, or for a 64-bit value when `wide`.
    pub fn new(address: *mut c_void, wide: bool) -> Self {
        Self { address, wide }
    }

    /// Writes the value, or fails when it does not fit into an `int` (MPI 4.1 §2.5.8).
    ///
    /// # Safety
    /// The program's pointer is valid.
    pub unsafe fn set(self, value: Count) -> Result<(), Error> {
        if self.wide {
            // SAFETY: the caller's promise.
            unsafe { self.address.cast::<Count>().write(value) };
            return Ok(());
        }
        let small = c_int::try_from(value).map_err(|_| {
            Error::new(ErrorClass::ValueTooLarge, format!("{value} does not fit into an int"))
        })?;
        // SAFETY: the caller's promise.
        unsafe { self.address.cast::<c_int>().write(small) };
        Ok(())
    }

    /// The program called the large form.
    pub fn is_wide(self) -> bool {
        self.wide
    }

    /// Where the value goes.
    pub fn address(self) -> *mut c_void {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_read_alike() {
        let small: [c_int; 3] = [1, -2, 3];
        let large: [Count; 3] = [1, -2, 1 << 40];
        let (small, large) =
            (Counts::new(small.as_ptr().cast(), false), Counts::new(large.as_ptr().cast(), true));
        // SAFETY: three elements each.
        unsafe {
            assert_eq!(small.to_vec(3), [1, -2, 3]);
            assert_eq!(large.to_vec(3), [1, -2, 1 << 40]);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (mut small, mut large): (c_int, Count) = (0, 0);
        // SAFETY: both are here.
        unsafe {
            assert!(CountOut::new((&raw mut small).cast(), false).set(7).is_ok());
            assert!(CountOut::new((&raw mut small).cast(), false).set(1 << 40).is_err());
            assert!(CountOut::new((&raw mut large).cast(), true).set(1 << 40).is_ok());
        }
        assert_eq!((small, large), (7, 1 << 40));
    }
}
