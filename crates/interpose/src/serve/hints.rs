//! Hints of ours on communicators (MPI 4.1 §7.4.4): `gridmpi_matb`, `gridmpi_pattern`. Whatever else an info object holds is the
//! vendor's.

use crate::error::{Result, forward, tell};
use crate::matb::Hint;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use std::ffi::{CStr, CString, c_char, c_int};

/// As much of a value as ours ever have.
const LONGEST: usize = 64;

/// Reads a value, or says what it must be.
type Read = fn(&str) -> std::result::Result<Hint, &'static str>;

/// Ours. Of those of one info object the first counts that can be followed: who names a rate means that one.
const OURS: [(&CStr, Read); 2] = [(Hint::MATB, Hint::matb), (Hint::PATTERN, Hint::pattern)];

/// `MPI_Comm_set_info`. The hints are about the node, whatever the communicator.
pub unsafe fn comm_set_info<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    info: A::Info,
) -> Result<()> {
    // SAFETY: the program's arguments.
    forward(|| unsafe { rt.vendor.comm_set_info(comm, info) })?;
    // SAFETY: the vendor has accepted both.
    unsafe { follow(rt, comm, info) };
    Ok(())
}

/// `MPI_Comm_get_info`: the vendor's hints, and that one of ours to which the node keeps, where it was given on this communicator.
/// Those that were ignored are not there, nor those of the communicator that this one is a duplicate of (MPI 4.1 §7.4.2).
///
/// # Errors
/// The vendor's.
pub unsafe fn comm_get_info<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    info_used: *mut A::Info,
) -> Result<()> {
    // SAFETY: the program's arguments.
    forward(|| unsafe { rt.vendor.comm_get_info(comm, info_used) })?;
    let spanning = rt.tokens.spanning(comm);
    let followed = spanning.and_then(|comm| rt.job().matb.followed(comm.context()));
    // SAFETY: the object that the vendor has made.
    let info = unsafe { *info_used };
    for (key, _) in OURS {
        let used = followed.as_ref().filter(|followed| followed.key == key);
        // SAFETY: as above.
        unsafe { correct(rt, info, key, used.map(|followed| followed.value.as_str())) }?;
    }
    Ok(())
}

/// Lets an info object have this value of a key, or none: Intel MPI keeps whatever it was given, and all of it if that was several times.
unsafe fn correct<A: Abi>(
    rt: &Runtime<A>,
    info: A::Info,
    key: &CStr,
    wanted: Option<&str>,
) -> Result<()> {
    // SAFETY: a live info object and a string of our own; the key is there.
    while unsafe { value(rt, info, key) }.is_some() {
        forward(|| unsafe { rt.vendor.info_delete(info, key.as_ptr()) })?;
    }
    // It was a string of C's.
    let Some(text) = wanted.and_then(|text| CString::new(text).ok()) else { return Ok(()) };
    // SAFETY: the same.
    forward(|| unsafe { rt.vendor.info_set(info, key.as_ptr(), text.as_ptr()) })
}

/// Does what the hints of ours say with which all members of a communicator have called a procedure; there may be no info object, and
/// a communicator of one cluster has no hints of ours.
pub unsafe fn follow<A: Abi>(rt: &'static Runtime<A>, comm: A::Comm, info: A::Info) {
    let Some(spanning) = rt.tokens.spanning(comm) else { return };
    if info == A::info_null() {
        return;
    }
    let job = rt.job();
    // They have the same hints: one of each cluster tells what is wrong.
    let is_first = is_first(rt, comm);
    let say = |text: &str| {
        if is_first {
            tell(text)
        }
    };
    // SAFETY: the program's info object, which the vendor has just accepted.
    let given = |key: &CStr| unsafe { value(rt, info, key) };
    job.matb.hint(&job.net, spanning.context(), hints(given, say), say);
}

/// Those of ours that are `given`, as they are to be followed; nonsense goes to `tell`.
fn hints(given: impl Fn(&CStr) -> Option<String>, tell: impl Fn(&str)) -> Vec<(Hint, String)> {
    let mut hints = Vec::new();
    for (key, read) in OURS {
        let Some(text) = given(key) else { continue };
        match read(&text) {
            Ok(hint) => hints.push((hint, text)),
            Err(wanted) => {
                tell(&format!("{} = \"{text}\": {wanted}; it is ignored", key.to_string_lossy()));
            }
        }
    }
    hints
}

/// Whether this process is the first of the communicator's members in this cluster.
fn is_first<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> bool {
    let mut rank = 0;
    // SAFETY: a live communicator, which of the vendor's has the members in this cluster, and a place of our own.
    unsafe { rt.vendor.comm_rank(comm, &raw mut rank) };
    rank == 0
}

unsafe fn value<A: Abi>(rt: &Runtime<A>, info: A::Info, key: &CStr) -> Option<String> {
    let (mut text, mut flag) = ([0 as c_char; LONGEST + 1], 0 as c_int);
    // SAFETY: places of our own; the vendor writes at most so many characters and a null.
    unsafe {
        let (place, length) = (text.as_mut_ptr(), LONGEST as c_int);
        rt.vendor.info_get(info, key.as_ptr(), length, place, &raw mut flag);
        (flag != 0).then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matb::Senders;
    use std::cell::RefCell;

    #[test]
    fn a_rate_comes_before_a_pattern_and_nonsense_is_told() {
        let said = RefCell::new(Vec::new());
        let hints = |matb: &str, pattern: &str| {
            let all = [(Hint::MATB, matb), (Hint::PATTERN, pattern)];
            let given = |key: &CStr| {
                all.iter().find(|(own, _)| *own == key).map(|(_, text)| (*text).to_owned())
            };
            hints(given, |text| said.borrow_mut().push(text.to_owned()))
        };
        let rate = (Hint::Rate(20_000_000), "20M".to_owned());
        let all = (Hint::Senders(Senders::All), "all".to_owned());
        assert_eq!(hints("20M", "all"), [rate.clone(), all.clone()]);
        assert_eq!(*said.borrow(), Vec::<String>::new());
        assert_eq!(hints("20M", "some"), [rate]);
        assert_eq!(hints("fast", "all"), [all]);
        let said = said.into_inner();
        assert!(said[0].starts_with("gridmpi_pattern = \"some\": it must be"), "{said:?}");
        assert!(said[1].starts_with("gridmpi_matb = \"fast\": it must be"), "{said:?}");
    }
}
