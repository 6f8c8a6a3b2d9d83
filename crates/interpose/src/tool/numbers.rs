//! The vendor's numbers and ours in one row.
//!
//! A vendor may add variables at any time, and what has been shown under a number keeps it (MPI 4.1 §15.3.6.2). So ours come
//! after those that the vendor had when the program first asked, and what the vendor adds later comes after ours.

use crate::error::{Result, check};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering::AcqRel, Ordering::Acquire};

const UNKNOWN: c_int = -1;

/// Where ours begin, once that is settled.
#[derive(Debug)]
pub(crate) struct Numbers {
    first: AtomicI32,
    ours: c_int,
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The vendor's, by its own number.
    Vendor(c_int),
    /// One of ours, from 0.
    Ours(usize),
}

/// The row at this moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The number of the first of ours.
    first: c_int,
    ours: c_int,
    /// How many the vendor has now.
    vendor: c_int,
}

impl Numbers {
    /// With so many of ours.
    pub(crate) const fn new(ours: c_int) -> Self {
        Self { first: AtomicI32::new(UNKNOWN), ours }
    }

    /// The row; `ask` calls the vendor, whose error (it is not initialised) is ours.
    pub(crate) fn row(&self, ask: impl FnOnce(*mut c_int) -> c_int) -> Result<Row> {
        let mut vendor = 0;
        check(ask(&raw mut vendor))?;
        // Threads that ask at the same time agree.
        let first = match self.first.compare_exchange(UNKNOWN, vendor, AcqRel, Acquire) {
            Ok(_) => vendor,
            Err(first) => first,
        };
        Ok(Row { first, ours: self.ours, vendor })
    }
}

impl Row {
    /// What a number of the program's means. One that is not there is left to the vendor.
    pub(crate) fn which(self, number: c_int) -> Which {
        match number.checked_sub(self.first) {
            Some(place) if (0..self.ours).contains(&place) => Which::Ours(place as usize),
            Some(place) if place >= self.ours => Which::Vendor(number - self.ours),
            _ => Which::Vendor(number),
        }
    }

    /// The program's number for one of the vendor's.
    pub(crate) fn of_vendor(self, number: c_int) -> c_int {
        if number >= self.first { number.saturating_add(self.ours) } else { number }
    }

    /// The program's number for one of ours.
    pub(crate) fn of_ours(self, place: usize) -> c_int {
        self.first + place as c_int
    }

    /// How many there are. Never less than there were: a vendor that has been ended and begun again may begin with fewer.
    pub(crate) fn count(self) -> c_int {
        self.vendor.max(self.first).saturating_add(self.ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(numbers: &Numbers, vendor: c_int) -> Row {
        let ask = |place: *mut c_int| {
            // SAFETY: the place that `row` gives.
            unsafe { place.write(vendor) };
            0
        };
        numbers.row(ask).unwrap()
    }

    #[test]
    fn numbers_once_shown_stay() {
        let numbers = Numbers::new(2);
        let before = row(&numbers, 10);
        assert_eq!(before.count(), 12);
        assert_eq!((before.of_ours(1), before.of_vendor(9)), (11, 9));
        let after = row(&numbers, 13);
        assert_eq!(after.count(), 15);
        let meant: Vec<_> = (8..16).map(|number| after.which(number)).collect();
        let (vendor, ours) = (Which::Vendor, Which::Ours);
        let wanted = [
            vendor(8),
            vendor(9),
            ours(0),
            ours(1),
            vendor(10),
            vendor(11),
            vendor(12),
            vendor(13),
        ];
        assert_eq!(meant, wanted);
        assert!((0..13).all(|number| after.which(after.of_vendor(number)) == vendor(number)));
        assert_eq!(row(&numbers, 3).count(), 12);
    }

    #[test]
    fn numbers_that_are_none_are_the_vendors_to_refuse() {
        let row = row(&Numbers::new(2), 0);
        assert_eq!(row.which(-1), Which::Vendor(-1));
        assert_eq!(row.which(c_int::MIN), Which::Vendor(c_int::MIN));
        assert_eq!(row.which(c_int::MAX), Which::Vendor(c_int::MAX - 2));
        assert_eq!(row.which(1), Which::Ours(1));
    }

    #[test]
    fn the_vendors_error_is_handed_through() {
        let numbers = Numbers::new(2);
        assert_eq!(numbers.row(|_| 60).unwrap_err(), crate::Error::Vendor(60));
        assert_eq!(row(&numbers, 5).count(), 7, "what failed settles nothing");
    }
}
