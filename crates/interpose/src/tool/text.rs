//! How the tools interface gives things to the program: null means that it does not want to know.

use std::ffi::{CStr, c_char, c_int};

/// Stores a value unless the place is null.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the program's place.
        unsafe { place.write(value) };
    }
}

/// Returns a string (MPI 4.1 §15.3.3): as much as `length` has room for with its null character, and in `length` what it needs.
/// Without a length nothing is returned.
pub(crate) unsafe fn give_text(text: &str, place: *mut c_char, length: *mut c_int) {
    // SAFETY: the program's place, or null.
    let Some(length) = (unsafe { length.as_mut() }) else { return };
    let room = usize::try_from(*length).unwrap_or(0);
    if !place.is_null() && room > 0 {
        let count = text.len().min(room - 1);
        // SAFETY: the program says that there are `room` bytes.
        unsafe {
            place.copy_from_nonoverlapping(text.as_ptr().cast(), count);
            place.add(count).write(0);
        }
    }
    *length = c_int::try_from(text.len() + 1).unwrap_or(c_int::MAX);
}

/// Whether the program's string is this one; null is none.
pub(crate) unsafe fn is_text(place: *const c_char, text: &str) -> bool {
    // SAFETY: a string of the program's.
    !place.is_null() && unsafe { CStr::from_ptr(place) }.to_bytes() == text.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(room: c_int) -> ([c_char; 8], c_int) {
        let (mut place, mut length) = ([b'#' as c_char; 8], room);
        // SAFETY: no more than 8 are asked for.
        unsafe { give_text("rate", place.as_mut_ptr(), &raw mut length) };
        (place, length)
    }

    #[test]
    fn strings_fit_their_room() {
        let text = |bytes: &[u8; 8]| bytes.map(|byte| byte as c_char);
        assert_eq!(given(8), (text(b"rate\0###"), 5));
        assert_eq!(given(5), (text(b"rate\0###"), 5));
        assert_eq!(given(4), (text(b"rat\0####"), 5));
        assert_eq!(given(1), (text(b"\0#######"), 5));
        assert_eq!(given(0), (text(b"########"), 5));
        assert_eq!(given(-3), (text(b"########"), 5));
        let mut length = 3;
        // SAFETY: null asks for less.
        unsafe {
            give_text("rate", std::ptr::null_mut(), &raw mut length);
            give_text("rate", std::ptr::null_mut(), std::ptr::null_mut());
            give(std::ptr::null_mut(), 1);
            assert!(is_text(c"rate".as_ptr(), "rate") && !is_text(c"rates".as_ptr(), "rate"));
            assert!(!is_text(std::ptr::null(), ""));
        }
        assert_eq!(length, 5);
    }
}
