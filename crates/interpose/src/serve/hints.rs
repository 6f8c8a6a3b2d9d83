//! Hints of ours on communicators (MPI 4.1 §7.4.4): `gridmpi_matb`, `gridmpi_pattern`. Whatever else an info object holds is the
//! vendor's.

use crate::error::{Result, forward, tell};
use crate::matb::Hint;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use std::ffi::{CStr, c_char, c_int};

/// As much of a value as ours ever have.
const LONGEST: usize = 64;

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

/// Does what the hints of ours say with which all members of a communicator have called a procedure; there may be no info object.
pub unsafe fn follow<A: Abi>(rt: &'static Runtime<A>, comm: A::Comm, info: A::Info) {
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
    for (key, read) in
        [(c"gridmpi_matb", Hint::matb as fn(&str) -> _), (c"gridmpi_pattern", Hint::pattern)]
    {
        // SAFETY: the program's info object, which the vendor has just accepted.
        let Some(text) = (unsafe { value(rt, info, key) }) else { continue };
        match read(&text) {
            Ok(hint) => job.matb.hint(&job.net, hint, say),
            Err(wanted) => {
                say(&format!("{} = \"{text}\": {wanted}; it is ignored", key.to_string_lossy()))
            }
        }
    }
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
